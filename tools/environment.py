"""The course's own environment in .venv: its places, and whether it is up to date."""

import json
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.project import ROOT, fingerprint

UNFINISHED = {"finished": False}
STAMP = {"finished": bool, "fingerprint": str, "folder": str, "python": str, "extras": list}


@dataclass(frozen=True)
class Environment:
    """The places of an environment under the course's folder."""

    root: Path = ROOT

    @property
    def folder(self) -> Path:
        """The environment itself."""
        return self.root / ".venv"

    @property
    def python(self) -> Path:
        """The Python that sees its packages."""
        return self.folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")

    @property
    def stamp(self) -> Path:
        """Written last, so that its content tells whether the build came to its end."""
        return self.folder / "start.json"

    @property
    def log(self) -> Path:
        """What the commands of the last build wrote."""
        return self.folder / "install.log"

    @property
    def scratch(self) -> Path:
        """What start.py needs beside the environment."""
        return self.root / ".tmp"


def reason_to_build(environment: Environment, extras: frozenset[str]) -> str | None:
    """Return why .venv cannot be used as it is, None if it can."""
    stamp = read_stamp(environment)
    if stamp is None:
        return "there is none yet" if not environment.folder.exists() else "start.py did not make the one that is there"
    if not stamp["finished"]:
        return "an earlier build did not come to its end"
    if reason := reason_to_renew(environment, stamp):
        return reason
    if stamp["fingerprint"] != fingerprint(environment.root):
        return "pyproject.toml or the settings have changed"
    if not extras <= set(stamp["extras"]):
        return "the packages for the tests are missing"
    return None


def reason_to_renew(environment: Environment, stamp: dict[str, Any]) -> str | None:
    """Return why a finished .venv can only be made anew."""
    if stamp["folder"] != str(environment.folder):
        return "the folder was moved or copied"
    if not environment.python.exists():
        return "its Python is gone"
    if stamp["python"] != base_python(environment):
        return "its Python was replaced"
    return None


def base_python(environment: Environment) -> str:
    """Return which Python .venv stands on, as names alone tell it: ``3.11 python3.11``, whatever the patch release.

    The packages stay where the first of the two looked for them; where the second one looks is decided by a link,
    which an upgrade of the system can turn to another Python. One whose file is called ``python`` counts by its path.
    """
    try:
        settings = (environment.folder / "pyvenv.cfg").read_text("utf-8", "replace")
    except FileNotFoundError:
        settings = ""
    made_by = re.search(r"^version(?:_info)? *= *(\d+\.\d+)", settings, re.MULTILINE)
    file = Path(os.path.realpath(environment.python))
    return f"{made_by[1] if made_by else '?'} {file.name if re.search(r'[0-9][.][0-9]', file.name) else file}"


def read_stamp(environment: Environment) -> dict[str, Any] | None:
    """Return what the last build left, None where start.py never built."""
    try:
        stamp = json.loads(environment.stamp.read_text("utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except ValueError:
        return UNFINISHED
    whole = isinstance(stamp, dict) and all(isinstance(stamp.get(key), kind) for key, kind in STAMP.items())
    return stamp if whole else UNFINISHED


def write_stamp(environment: Environment, content: dict[str, Any]) -> None:
    """Replace the stamp in one move, so that no half of it can be read."""
    draft = environment.stamp.with_suffix(".new")
    draft.write_text(json.dumps(content), "utf-8")
    draft.replace(environment.stamp)


def python_version() -> str:
    """Return the running Python's version as far as an environment depends on it."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def child_variables() -> dict[str, str]:
    """Return the variables for programs of .venv: none that lead Python out of it."""
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONHOME", "PYTHONPATH")}
