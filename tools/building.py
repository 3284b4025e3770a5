"""Build .venv, or bring it up to date, by pip: in numbered steps, with the output in .venv/install.log."""

import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tools import torch_build
from tools.environment import (
    UNFINISHED,
    Environment,
    base_python,
    child_variables,
    python_version,
    read_stamp,
    reason_to_build,
    reason_to_renew,
    write_stamp,
)
from tools.lock import only_one
from tools.mishaps import DISK_FULL, Mishap, explain_log
from tools.progress import Progress
from tools.project import ROOT, Requirement, fingerprint, install_target, read_project, requirements, satisfies

SPACE_NEEDED = 2_000_000_000
PIP_FOR_REPORTS = (23, 3)  # older ones download whole wheels to learn what they depend on
# A user's own "install for me alone" would be refused in .venv; the log is read as UTF-8 and while it grows.
PIP_VARIABLES = {"PIP_USER": "0", "PYTHONUNBUFFERED": "1", "PYTHONIOENCODING": "utf-8"}


def ready(extras: frozenset[str] = frozenset(), *, accept_cuda: bool = False, root: Path = ROOT) -> Path:
    """Return the Python of an up-to-date .venv, which is built first where it has to be.

    Parameters
    ----------
    extras
        The extras of pyproject.toml that are needed.
    accept_cuda
        Whether a CUDA build of torch may be downloaded without a question.
    root
        The course's folder.
    """
    environment = Environment(root)
    if reason_to_build(environment, extras):
        check_place(root)
        with only_one(environment.scratch / "start.lock") as lock:
            # Another start.py may have built it while this one waited.
            if reason := reason_to_build(environment, extras):
                print(f"Building the environment in .venv: {reason}.", flush=True)
                Builder(environment, lock).build(extras, accept_cuda=accept_cuda)
    return environment.python


def check_place(root: Path) -> None:
    """Stop where no environment can be built, with the reason."""
    if os.pathsep in str(root):
        raise Mishap(f"A folder with '{os.pathsep}' in its path cannot hold an environment: {root}. Rename it first.")
    if Path(sys.prefix) == root / ".venv":
        raise Mishap("The .venv has to be rebuilt and cannot do that itself: run start.py with the Python outside it.")
    if not os.access(root, os.W_OK):
        raise PermissionError(13, "not writable", str(root))
    missing = [name for name in ("venv", "ensurepip") if importlib.util.find_spec(name) is None]
    if missing:
        package = f"python{python_version()}-venv"
        raise Mishap(
            f"This Python has no module {' and no '.join(missing)}."
            f" On Debian or Ubuntu install it by: sudo apt install {package}"
        )


class Builder:
    """Run the commands that build an environment, with their output in its log."""

    def __init__(self, environment: Environment, lock: int) -> None:
        self.environment = environment
        self.lock = lock
        self.progress = Progress(0)

    def build(self, extras: frozenset[str], *, accept_cuda: bool) -> None:
        """Bring .venv up to date with pyproject.toml."""
        environment = self.environment
        stamp = read_stamp(environment)
        keep = self.can_be_kept(stamp)
        extras = extras | frozenset(stamp["extras"] if stamp and keep and stamp["finished"] else ())
        torch = requirements(root=environment.root)[0]
        version = self.installed_torch(torch) if keep else None
        self.progress = Progress((not keep) + 2 * (version is None) + 1)
        if not keep:
            self.make()
        write_stamp(environment, UNFINISHED)
        if version is None:
            version = self.install_torch(torch, accept_cuda=accept_cuda)
        with self.progress.step("Installing the other packages"):
            # torch is named so that pip leaves the chosen build where it is.
            self.pip("install", f"torch=={version}", "-e", install_target(extras))
            self.check_import()
        write_stamp(
            environment,
            {
                "finished": True,
                "fingerprint": fingerprint(environment.root),
                "folder": str(environment.folder),
                "python": base_python(environment),
                "extras": sorted(extras),
            },
        )

    def can_be_kept(self, stamp: dict[str, Any] | None) -> bool:
        """Tell whether the packages in .venv can be built upon, from whatever hand they come."""
        if stamp is not None and (not stamp["finished"] or reason_to_renew(self.environment, stamp)):
            return False
        if not self.environment.python.exists():
            return False
        # Any Python that is new enough serves, also where another one runs start.py this time.
        pip = re.search(r"from (.*) \(python (\d+)\.(\d+)\)", self.output("-m", "pip", "--version"))
        if pip is None or str(self.environment.folder) not in pip[1]:
            return False
        return satisfies(f"{pip[2]}.{pip[3]}", read_project(self.environment.root)["requires-python"])

    def make(self) -> None:
        """Make a new .venv that holds pip and nothing else."""
        with self.progress.step("Making .venv"):
            self.refuse_to_remove_what_others_made()
            discard(self.environment)
            if shutil.disk_usage(self.environment.root).free < SPACE_NEEDED:
                raise Mishap(DISK_FULL)
            self.environment.folder.mkdir()
            write_stamp(self.environment, UNFINISHED)
            self.run(sys.executable, "-m", "venv", "--without-pip", str(self.environment.folder))
            self.run(str(self.environment.python), "-m", "ensurepip", "--default-pip")

    def refuse_to_remove_what_others_made(self) -> None:
        """Stop where a .venv that start.py did not make is in somebody's use."""
        if read_stamp(self.environment) is None and self.output("-c", "print('it runs')"):
            raise Mishap(
                "The .venv here was not made by start.py, and its Python is too old or has no pip."
                " Rename or remove it, then run it again."
            )

    def installed_torch(self, torch: Requirement) -> str | None:
        """Return the version of a torch that is there and will do, CUDA or not."""
        version = self.torch_version()
        return version if version and torch.accepts(version) else None

    def torch_version(self) -> str:
        """Return the version of the torch in .venv, nothing where there is none."""
        return self.output("-c", "import importlib.metadata as m; print(m.version('torch'))").strip()

    def install_torch(self, torch: Requirement, *, accept_cuda: bool) -> str:
        """Install a CPU build, or a CUDA build that was agreed to, and return its version."""
        with self.progress.step("Choosing a build of torch"):
            build = torch_build.choose(torch, self.resolve)
            self.progress.note = str(build)
        if build.is_cuda and not accept_cuda:
            torch_build.accept_cuda(build)
        with self.progress.step("Installing torch"):
            self.pip("install", build.requirement, *build.options)
        return self.torch_version()

    def resolve(self, requirement: str, options: tuple[str, ...]) -> list[dict[str, Any]]:
        """Ask pip what `requirement` would install, without downloading it."""
        pip_version = re.search(r"pip (\d+)\.(\d+)", self.output("-m", "pip", "--version"))
        if pip_version and tuple(map(int, pip_version.groups())) < PIP_FOR_REPORTS:
            self.pip("install", "--upgrade", "pip>={}.{}".format(*PIP_FOR_REPORTS))
        # Of an index that does not hand out metadata alone this reads a part of each wheel, not gigabytes.
        sparing = "--use-feature=fast-deps"
        if self.output("-m", "pip", "install", sparing, "--help"):
            options = (sparing, *options)
        report = self.environment.folder / "report.json"
        self.pip("install", "--dry-run", "--ignore-installed", "--report", str(report), requirement, *options)
        return json.loads(report.read_text("utf-8"))["install"]

    def pip(self, command: str, *arguments: str) -> None:
        """Run pip in .venv."""
        options = ("--disable-pip-version-check", "--no-input", "--no-color", "--progress-bar=off", "--retries=2")
        self.run(str(self.environment.python), "-m", "pip", command, *options, *arguments)

    def check_import(self) -> None:
        """Make sure that the course's own package is found from other folders."""
        where = "import importlib.util as u; print(u.find_spec('helpers').origin)"
        if not self.output("-c", where).strip():
            raise Mishap(
                "Python does not find the course's folder. A path of plain letters, without accents, may help."
            )

    def run(self, *command: str) -> None:
        """Run a command with its output in the log; show its life; stop with a sentence where it fails."""
        log = self.environment.log
        with log.open("ab") as output:
            begin = output.tell()
            output.write(f"\n$ {shlex.join(command)}\n".encode())
            output.flush()
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self.environment.root,
                env=child_variables() | PIP_VARIABLES,
                pass_fds=() if os.name == "nt" else (self.lock,),
            )
            try:
                while process.poll() is None:
                    self.progress.show(doing(log_text(log, begin)))
                    time.sleep(0.1)
            finally:
                if process.poll() is None:
                    process.terminate()
                    process.wait()
        if process.returncode:
            raise Mishap(explain(log_text(log, begin), self.environment))

    def output(self, *arguments: str) -> str:
        """Return what .venv's Python prints, nothing where it fails."""
        try:
            return subprocess.run(
                [self.environment.python, *arguments],
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                encoding="utf-8",
                cwd=self.environment.folder,
                env=child_variables(),
                check=True,
            ).stdout
        except (OSError, subprocess.CalledProcessError):
            return ""


def discard(environment: Environment) -> None:
    """Remove .venv: out of the way in one move first, so that no half of it can be taken for whole."""
    trash = environment.scratch / "discarded"
    shutil.rmtree(trash, ignore_errors=True)
    if environment.folder.is_symlink() or environment.folder.is_file():
        environment.folder.unlink()
    elif environment.folder.exists():
        environment.folder.rename(trash)
        shutil.rmtree(trash, ignore_errors=True)


def log_text(log: Path, begin: int) -> str:
    """Return what stands in the log from the byte `begin` on."""
    with log.open("rb") as file:
        file.seek(begin)
        return file.read().decode("utf-8", "replace")


def doing(text: str) -> str:
    """Return what pip is at, as the last telling line of its output has it."""
    for line in reversed(text.splitlines()):
        if "Installing collected packages" in line:
            return "writing files"
        if match := re.match(r"\s*(?:Downloading|Processing|Using cached) (\S+)(?: \((\d.+)\))?", line):
            name = " ".join(match[1].rsplit("/")[-1].split("-")[:2])
            return f"{name}, {match[2]}" if match[2] else name
        if match := re.match(r"Collecting ([\w.-]+)", line):
            return match[1]
    return ""


def explain(text: str, environment: Environment) -> str:
    """Return a sentence on a command that failed, with the end of its output where nothing better is known."""
    if sentence := explain_log(text):
        return sentence
    if shutil.disk_usage(environment.root).free < 10_000_000:
        return DISK_FULL
    lines = "\n    ".join(text.strip().splitlines()[-5:])
    return f"A step failed, and start.py does not know why. Its last words:\n    {lines}\nAll of it: {environment.log}"
