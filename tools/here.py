"""Use the running Python's environment as it is, if it has what the course needs."""

import importlib.metadata
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from tools.mishaps import Mishap
from tools.project import ROOT, Requirement, install_target, read_project, requirements


def check(extras: frozenset[str]) -> Path:
    """Return the running Python, if it has the packages that pyproject.toml asks for."""
    lacking = list(missing(requirements(extras)))
    if lacking:
        command = [sys.executable, "-m", "pip", "install", "-e", install_target(extras)]
        shown = subprocess.list2cmdline(command) if os.name == "nt" else shlex.join(command)
        raise Mishap(f"This environment lacks {', '.join(lacking)}. In the course's folder run: {shown}")
    return Path(sys.executable)


def missing(needed: Iterable[Requirement]) -> Iterable[str]:
    """Yield what the running environment lacks, the course itself included."""
    for requirement in needed:
        try:
            version = importlib.metadata.version(requirement.name)
        except importlib.metadata.PackageNotFoundError:
            yield str(requirement)
            continue
        if not requirement.accepts(version):
            yield f"{requirement} (it has {version})"
    course = read_project()["name"]
    try:
        text = importlib.metadata.distribution(course).read_text("direct_url.json")
    except importlib.metadata.PackageNotFoundError:
        yield f"{course} (the course itself)"
        return
    origin = json.loads(text or "{}")
    if origin.get("url", ROOT.as_uri()) != ROOT.as_uri():
        yield f"{course} from this folder (it has the one from another)"
    elif not origin.get("dir_info", {}).get("editable"):
        yield f"{course} from this folder (it has a copy, which would not follow the files here)"
