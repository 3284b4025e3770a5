"""Does this environment hold what the course needs? Lesson 00 asks first."""

from __future__ import annotations

import html
import sys
from dataclasses import dataclass
from importlib import metadata

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

DISTRIBUTION = "bring-your-own-gradient"


@dataclass(frozen=True)
class Row:
    """One line of the table: a package, the version found (or None), the versions that serve."""

    package: str
    found: str | None
    needed: str

    @property
    def ok(self) -> bool:
        """Whether the version found serves."""
        return self.found is not None and SpecifierSet(self.needed).contains(self.found, prereleases=True)


@dataclass(frozen=True)
class Environment:
    """The table of packages; it shows itself in a notebook and in a terminal."""

    rows: tuple[Row, ...]

    @property
    def ok(self) -> bool:
        """Whether every package serves."""
        return all(row.ok for row in self.rows)

    def verdict(self) -> str:
        """Say in one sentence whether all is well, and the cure where it is not."""
        if self.ok:
            return "Everything the course needs is here."
        bad = ", ".join(row.package for row in self.rows if not row.ok)
        return f"Missing, too old or too new: {bad}. Close JupyterLab and run: python3 start.py"

    def __repr__(self) -> str:
        lines = [f"{'package':<12} {'found':<14} {'needed':<12} ok"]
        lines += [
            f"{row.package:<12} {row.found or 'missing':<14} {row.needed:<12} {_answer(row.ok)}" for row in self.rows
        ]
        return "\n".join([*lines, self.verdict()])

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{name}</th>" for name in ("package", "found", "needed", "ok"))
        body = "".join(
            f"<tr><td>{html.escape(row.package)}</td><td>{html.escape(row.found or 'missing')}</td>"
            f"<td>{html.escape(row.needed)}</td><td>{_answer(row.ok)}</td></tr>"
            for row in self.rows
        )
        return f"<table><tr>{head}</tr>{body}</table><p>{html.escape(self.verdict())}</p>"


def check_environment() -> Environment:
    """Compare what is installed with what the course asks for.

    The needed versions come from the installed metadata of the course itself, so they stand in one place only.

    Returns
    -------
    Environment
        A table; its ``ok`` is True when every package serves.

    Raises
    ------
    RuntimeError
        If the course itself is not installed in this environment.

    Examples
    --------
    >>> check_environment().ok
    True
    """
    try:
        asked = metadata.requires(DISTRIBUTION) or []
        python = metadata.metadata(DISTRIBUTION)["Requires-Python"]
    except metadata.PackageNotFoundError as error:
        raise RuntimeError("The course is not installed here. Close JupyterLab and run: python3 start.py") from error
    rows = [Row("python", ".".join(map(str, sys.version_info[:3])), python)]
    for line in asked:
        requirement = Requirement(line)
        if requirement.marker is None:
            rows.append(Row(requirement.name, _version(requirement.name), str(requirement.specifier)))
    return Environment(tuple(rows))


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _answer(ok: bool) -> str:
    return "yes" if ok else "NO"
