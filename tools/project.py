"""The course's folder, what its pyproject.toml asks for, and whether a version satisfies that."""

import hashlib
import operator
import re
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
# A change of one of these changes what has to be installed.
INSTALLED_FROM = ("pyproject.toml", "settings/default_setting_overrides.json")

COMPARISONS = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
}


class Requirement(NamedTuple):
    """One line of pyproject.toml's dependencies: ``torch>=2.13,<3`` is name ``torch``, bounds ``>=2.13,<3``."""

    name: str
    bounds: str

    def __str__(self) -> str:
        return self.name + self.bounds

    @property
    def lowest(self) -> str:
        """The same name held at exactly the lower bound."""
        lower = next(bound for bound in self.bounds.split(",") if bound.startswith(">="))
        return f"{self.name}=={lower.removeprefix('>=')}"

    def accepts(self, version: str) -> bool:
        """Tell whether `version` lies within the bounds."""
        return all(satisfies(version, bound) for bound in self.bounds.split(",") if bound)


def parse_requirement(text: str) -> Requirement:
    """Split a requirement without extras or markers, the only kind that pyproject.toml has."""
    name = re.match(r"[\w.-]+", text)
    if name is None:
        raise ValueError(f"no package name in {text!r}")
    return Requirement(name[0], text[name.end() :].replace(" ", ""))


def release(version: str) -> tuple[int, ...]:
    """Return the numbers of a version: (2, 13) for ``2.13.0+cpu``, since 2.13 and 2.13.0 are the same."""
    numbers = re.match(r"\d+(\.\d+)*", version)
    parts = [int(part) for part in numbers[0].split(".")] if numbers else []
    while parts and parts[-1] == 0:
        parts.pop()
    return tuple(parts)


def satisfies(version: str, bound: str) -> bool:
    """Tell whether `version` satisfies one bound such as ``>=2.13``."""
    match = re.fullmatch(r"([<>=!]+)(.+)", bound)
    if match is None or match[1] not in COMPARISONS:
        raise ValueError(f"a bound that start.py cannot compare: {bound!r}")
    return COMPARISONS[match[1]](release(version), release(match[2]))


def read_project(root: Path = ROOT) -> dict[str, Any]:
    """Return the [project] table of pyproject.toml."""
    with (root / "pyproject.toml").open("rb") as file:
        return tomllib.load(file)["project"]


def requirements(extras: frozenset[str] = frozenset(), root: Path = ROOT) -> list[Requirement]:
    """Return the dependencies, with those of the named extras behind them."""
    project = read_project(root)
    lines = list(project["dependencies"])
    for extra in sorted(extras):
        lines += project["optional-dependencies"][extra]
    return [parse_requirement(line) for line in lines]


def fingerprint(root: Path = ROOT) -> str:
    """Return a hash of the files that say what has to be installed."""
    digest = hashlib.sha256()
    for name in INSTALLED_FROM:
        digest.update((root / name).read_bytes())
    return digest.hexdigest()


def install_target(extras: frozenset[str]) -> str:
    """Return what pip's ``-e`` is given: the course's folder, with the extras."""
    return f".[{','.join(sorted(extras))}]" if extras else "."
