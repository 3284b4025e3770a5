"""What the doctor hands back: findings, worst first, and what happened in each use."""

from __future__ import annotations

import html
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

Severity = Literal["wrong", "fragile", "style"]
SEVERITIES: tuple[Severity, ...] = ("wrong", "fragile", "style")
Where = tuple[str, int]
COLOURS = {"wrong": "#b3261e", "fragile": "#8a5a00", "style": "#3b5b7e"}
WIDTH = 96


@dataclass(frozen=True)
class Finding:
    """One mistake: its public name, how bad it is, the numbers seen, and the code that cures it.

    Attributes
    ----------
    slug : str
        The mistake's name in the course's catalogue, such as ``"grad-output-ignored"``.
    severity : "wrong", "fragile" or "style"
        "wrong": a number that you get is wrong, or an error is sure. "fragile": right now, but silently wrong in a
        use that the function does not forbid. "style": it works, and should be written differently.
    message : str
        What is wrong, in one or two sentences.
    evidence : mapping
        What was seen; most often ``got`` and ``expected``.
    cure : str
        Code to write, with your own names.
    where : (file, line) or None
        The place to change.
    lesson : str
        The number of the lesson that explains it.
    """

    slug: str
    severity: Severity
    message: str
    evidence: Mapping[str, Any] = field(default_factory=dict)
    cure: str = ""
    where: Where | None = None
    lesson: str = ""

    def __str__(self) -> str:
        title = f"{self.severity.upper()}: {self.slug}" + (f"  ({self.place})" if self.where else "")
        told = [f"{name}: {short(value)}" for name, value in self.evidence.items()]
        lines = [title, *_indented(self.message), *(line for each in told for line in _indented(each))]
        if self.cure:
            lines += ["  cure:", *(f"      {line}" for line in self.cure.splitlines())]
        return "\n".join(lines)

    @property
    def place(self) -> str:
        """Where to change it, as short text: the file's name and the line, empty if it is not known."""
        if self.where is None:
            return ""
        file, line = self.where
        name = file.replace("\\", "/").rsplit("/", 1)[-1]
        return f"line {line} of its cell" if "ipykernel" in file or file.startswith("<") else f"{name}, line {line}"


@dataclass(frozen=True)
class Diagnosis:
    """All findings about one patient; true when nothing is wrong.

    ``bool(diagnosis)`` is False if a finding is "wrong", and also if the gradient could not be compared at all (then
    ``unfinished`` says why): what was not looked at is not called right.

    Attributes
    ----------
    patient : str
        What was looked at.
    findings : tuple of Finding
        The worst first.
    uses : mapping
        What happens in each use that was tried: ``{"second derivative": "refused: ...", ...}``.
    unfinished : str
        Empty, or why the gradient was not compared.
    cut_short : str
        Empty, or which part was being looked at when the time was over, or was given up.
    """

    patient: str
    findings: tuple[Finding, ...] = ()
    uses: Mapping[str, str] = field(default_factory=dict)
    unfinished: str = ""
    cut_short: str = ""

    def __bool__(self) -> bool:
        return not self.unfinished and all(finding.severity != "wrong" for finding in self.findings)

    @property
    def slugs(self) -> tuple[str, ...]:
        """The names of the findings, worst first."""
        return tuple(finding.slug for finding in self.findings)

    @property
    def verdict(self) -> str:
        """One line: the patient, and how it is."""
        counts = [(sum(f.severity == severity for f in self.findings), severity) for severity in SEVERITIES]
        told = ", ".join(f"{count} {severity}" for count, severity in counts if count)
        state = told or ("not known" if self.unfinished else "healthy")
        return f"{self.patient}: {state}" + (f" (worst: {self.findings[0].slug})" if self.findings else "")

    def __repr__(self) -> str:
        parts = [self.verdict, *(f"\n{finding}" for finding in self.findings)]
        if self.uses:
            width = max(map(len, self.uses))
            parts.append("\nuses:")
            parts += [
                textwrap.fill(told, WIDTH, initial_indent=f"  {use:<{width}}  ", subsequent_indent=" " * (width + 4))
                for use, told in self.uses.items()
            ]
        parts += [f"\nnot finished: {self.unfinished}"] if self.unfinished else []
        parts += [f"\ncut short: {self.cut_short}"] if self.cut_short else []
        return "\n".join(parts)

    def _repr_html_(self) -> str:
        parts = [f"<p><b>{html.escape(self.verdict)}</b></p>", *map(_card, self.findings)]
        if self.uses:
            rows = "".join(
                f'<tr><td style="text-align:left">{html.escape(use)}</td>'
                f'<td style="text-align:left">{html.escape(told)}</td></tr>'
                for use, told in self.uses.items()
            )
            parts.append(f"<details><summary>What happens in each use</summary><table>{rows}</table></details>")
        for title, told in (("Not finished", self.unfinished), ("Cut short", self.cut_short)):
            parts += [f"<p><b>{title}:</b> {html.escape(told)}</p>"] if told else []
        return f'<div style="max-width:60em">{"".join(parts)}</div>'


def few(values: Any) -> np.ndarray[Any, Any]:
    """Return an array's first numbers as a list of them; short() leaves out the middle of a long one."""
    return np.array(values).reshape(-1)[:1000]


def short(value: Any) -> str:
    """Return a number, an array or a text, short and to six digits."""
    if isinstance(value, (list, tuple)) and all(isinstance(each, (int, float)) for each in value):
        value = np.asarray(value)
    if isinstance(value, np.ndarray):
        text = np.array2string(value, precision=6, suppress_small=False, threshold=12, separator=", ")
        return " ".join(text.split())
    return f"{value:.6g}" if isinstance(value, (float, complex, np.number)) else str(value)


def _indented(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent="  ", subsequent_indent="  ") or [""]


def _card(finding: Finding) -> str:
    rows = "".join(
        f'<tr><td style="text-align:left">{html.escape(name)}</td>'
        f'<td style="text-align:left;font-family:monospace">{html.escape(short(value))}</td></tr>'
        for name, value in finding.evidence.items()
    )
    colour = COLOURS[finding.severity]
    told = [finding.place, f"lesson {finding.lesson}" if finding.lesson else ""]
    beside = "".join(f" · <small>{html.escape(each)}</small>" for each in told if each)
    return (
        f'<div style="border-left:4px solid {colour};padding:0 0.8em;margin:0.8em 0">'
        f'<p><b style="color:{colour}">{finding.severity}</b> <code>{finding.slug}</code>{beside}<br>'
        f"{html.escape(finding.message)}</p>"
        + (f"<table>{rows}</table>" if rows else "")
        + (f'<p>Cure:</p><pre style="font-family:monospace">{html.escape(finding.cure)}</pre>' if finding.cure else "")
        + "</div>"
    )
