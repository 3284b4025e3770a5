"""The command line of start.py: what can be asked for, and who does it."""

import argparse
import contextlib
import math
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import NoReturn

from tools import building, here, lab
from tools.environment import child_variables
from tools.mishaps import Mishap, explain_os_error
from tools.project import ROOT

TEST_EXTRA = frozenset({"test"})
# Each verb, with the fewest and the most arguments that it takes.
TAKES = {"open": (0, 0), "test": (0, math.inf), "run": (1, 1), "write": (0, 1), "build": (0, 0)}
STOPPED = 130  # what shells report after Ctrl-C

USAGE = "python3 start.py [VERB] [OPTIONS]"
VERBS = """\
verbs:
  (none)             open the course in JupyterLab
  test [ARGUMENTS]   run all tests; arguments go to pytest: test -k closure
  run LESSON         check one lesson: run 02
  write [LESSON]     run lessons again and store their outputs
  build              build the environment and do nothing else

options:
  --no-browser       print the address and open no browser
  --port N           use this port for JupyterLab
  --here             use the running Python's packages and build no .venv
  --yes              accept a CUDA build of torch, several GB, if there is no other
  --help             show this
"""


def main(arguments: Sequence[str]) -> int:
    """Do what the command line asks for and return the exit status; tell a failure in a sentence."""
    for stream in (sys.stdout, sys.stderr):
        # A terminal that lacks a letter shows a question mark and no traceback; IDLE's window lacks none.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    signal.signal(signal.SIGTERM, interrupt)
    try:
        return perform(arguments)
    except Mishap as mishap:
        print(mishap, file=sys.stderr)
    except OSError as error:
        print(explain_os_error(error), file=sys.stderr)
    except KeyboardInterrupt:
        print("\nStopped. Run it again to go on.", file=sys.stderr)
        return STOPPED
    return 1


def interrupt(*_: object) -> NoReturn:
    """Treat a request to end like Ctrl-C, so that no child is left behind."""
    raise KeyboardInterrupt


def perform(arguments: Sequence[str]) -> int:
    """Prepare the environment that the verb needs, then do the verb."""
    options, verb, further = parse(arguments)
    if verb == "help":
        print(f"usage: {USAGE}\n\n{VERBS}", end="")
        return 0
    names = lesson_names(further) if verb in ("run", "write") else []
    extras = TEST_EXTRA if verb in ("test", "run", "write") else frozenset()
    if options.here:
        python, variables = here.check(extras), dict(os.environ)
    else:
        python, variables = building.ready(extras, accept_cuda=options.yes), child_variables()
    match verb:
        case "open":
            return lab.open_course(python, variables, port=options.port, browser=not options.no_browser)
        case "build":
            print(f"The environment is ready: {python}")
            return 0
        case "write":
            return run([str(python), "tools/run_notebooks.py", *names], variables)
        case "run":
            further = [*(f"notebooks/{name}.ipynb" for name in names), "-n", "0"]
    # More threads make small tensors slower, twice as slow where two tests share two cores.
    return run([str(python), "-m", "pytest", *further], {"OMP_NUM_THREADS": "1"} | variables)


def parse(arguments: Sequence[str]) -> tuple[argparse.Namespace, str, list[str]]:
    """Split the command line into start.py's own options, the verb, and what is meant for the verb."""
    parser = argparse.ArgumentParser(usage=USAGE, add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--no-browser", action="store_true")
    parser.add_argument("--port", type=int)
    parser.add_argument("--here", action="store_true")
    parser.add_argument("--yes", action="store_true")
    try:
        options, further = parser.parse_known_args(arguments)
    except argparse.ArgumentError as error:
        name, why = error.argument_name, error.message
        raise Mishap(f"{name} cannot be used like that: {why}. python3 start.py --help shows how.") from None
    verb = further.pop(0) if further else "open"
    if verb in ("help", "-h", "--help"):
        return options, "help", []
    if verb not in TAKES:
        raise Mishap(f"start.py does not know {verb!r}. python3 start.py --help lists what it does.")
    fewest, most = TAKES[verb]
    if not fewest <= len(further) <= most:
        raise Mishap(f"'{verb}' cannot be used like that. python3 start.py --help shows how.")
    return options, verb, further


def lesson_names(given: Sequence[str]) -> list[str]:
    """Return the full names of the lessons that start with `given`, such as 02 or 02_static_forward."""
    lessons = sorted(path.stem for path in (ROOT / "notebooks").glob("*.ipynb"))
    names = []
    for name in given:
        found = [lesson for lesson in lessons if lesson.startswith(name.removesuffix(".ipynb"))]
        if not found:
            raise Mishap(f"There is no lesson {name!r}. There are: {', '.join(lessons)}.")
        names += found
    return names


def run(command: list[str], variables: dict[str, str]) -> int:
    """Run a command in the course's folder and return its exit status."""
    process = subprocess.Popen(command, cwd=ROOT, env=variables)
    try:
        return process.wait()
    except KeyboardInterrupt:
        # A terminal's Ctrl-C reaches the child as well, which then ends in its own good order.
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=5)
        process.terminate()
        process.wait()
        raise
