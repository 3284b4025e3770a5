"""Try the README's commands as a newcomer: in a fresh clone, with nothing cached, in an awkward path."""

import http.client
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

ROOT = Path(__file__).resolve().parent.parent
SETTINGS = "settings/default_setting_overrides.json"
FIRST_BUILD_SECONDS = 1200
SLOW_START_SECONDS = 5


def main() -> int:
    """Run the trial and return the exit status."""
    # Where the trial itself runs in the background Ctrl-C is ignored, and children would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    open_course, run_tests = readme_commands()
    with tempfile.TemporaryDirectory(prefix="a fresh clone ü ", ignore_cleanup_errors=True) as folder:
        clone = Path(folder) / "course"
        subprocess.run(["git", "clone", "--quiet", "--no-local", ROOT, clone], check=True)
        variables = fresh_variables(Path(folder))
        for title in ("first", "second"):
            seconds = try_course([*open_course, "--no-browser"], clone, variables)
            print(f"== The {title} start took {seconds:.1f} s until JupyterLab answered.", flush=True)
        if seconds > SLOW_START_SECONDS:
            print(f"== Warning: a second start should take less than {SLOW_START_SECONDS} s.", flush=True)
        return subprocess.run(run_tests, cwd=clone, env=variables).returncode


def readme_commands() -> list[list[str]]:
    """Return the two commands of the README's first shell block."""
    block = re.search(r"```sh\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    commands = [shlex.split(line) for line in block[1].splitlines() if line.strip()] if block else []
    if len(commands) != 2:
        sys.exit("README.md's first ```sh block must hold two commands: to open the course and to run its tests.")
    return commands


def fresh_variables(folder: Path) -> dict[str, str]:
    """Return the environment's variables with every cache and every setting of Jupyter's in `folder`."""
    names = ("PIP_CACHE_DIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR")
    return dict(os.environ) | {name: str(folder / name.lower()) for name in names}


def try_course(command: list[str], clone: Path, variables: dict[str, str]) -> float:
    """Start JupyterLab, check it, stop it by Ctrl-C; return the seconds until it answered."""
    began = time.monotonic()
    process = subprocess.Popen(command, cwd=clone, env=variables, stdout=subprocess.PIPE, encoding="utf-8")
    watchdog = threading.Timer(FIRST_BUILD_SECONDS, process.terminate)
    watchdog.start()
    try:
        address = wait_for_address(process)
        seconds = time.monotonic() - began
        check_answers(address)
        check_settings(address)
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=60)
        print(rest, end="", flush=True)
        if process.returncode != 0:
            sys.exit(f"After Ctrl-C start.py ended with status {process.returncode}.")
        return seconds
    finally:
        watchdog.cancel()
        if process.poll() is None:
            process.terminate()
            process.wait()


def wait_for_address(process: subprocess.Popen[str]) -> str:
    """Hand on what start.py prints until it prints the address."""
    for line in process.stdout:
        print(line, end="", flush=True)
        if match := re.search(r"http://\S+token=\S+", line):
            return match[0]
    sys.exit(f"start.py ended with status {process.wait()} before it printed an address.")


def get(address: str, path: str, *, token: bool) -> tuple[int, bytes]:
    """Ask the server at `address` for `path`, with its token or without."""
    parts = urlsplit(address)
    headers = {"Authorization": f"token {parse_qs(parts.query)['token'][0]}"} if token else {}
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=30)
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def check_answers(address: str) -> None:
    """Check that the printed page opens, and that nothing opens without the token."""
    page = urlsplit(address)
    if page.hostname != "127.0.0.1":
        sys.exit(f"JupyterLab listens on {page.hostname}.")
    lesson = "/api/contents/" + page.path.removeprefix("/lab/tree/")
    found = [get(address, path, token=token)[0] for path, token in ((page.path, True), (lesson, True), (lesson, False))]
    if found != [http.client.OK, http.client.OK, http.client.FORBIDDEN]:
        sys.exit(f"The page, the lesson, and the lesson without a token answer {found}, not [200, 200, 403].")


def check_settings(address: str) -> None:
    """Check that JupyterLab has taken over the course's settings as its defaults."""
    for plugin, wanted in json.loads((ROOT / SETTINGS).read_text("utf-8")).items():
        _, body = get(address, f"/lab/api/settings/{plugin}", token=True)
        properties = json.loads(body)["schema"]["properties"]
        found = {name: properties[name].get("default") for name in wanted}
        if found != wanted:
            sys.exit(f"{plugin} has {found} instead of {wanted}.")
    print("== JupyterLab answers, and has the course's settings.", flush=True)


if __name__ == "__main__":
    sys.exit(main())
