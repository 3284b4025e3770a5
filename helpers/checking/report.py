"""What the results of all checks share: a verdict, a sentence, a table and notes, as text and as HTML."""

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Verdict = Literal["right", "wrong", "undecided"]
Words = Sequence[Sequence[str]]


@dataclass(frozen=True)
class Report:
    """A result that is true when its verdict is "right".

    Attributes
    ----------
    verdict : {"right", "wrong", "undecided"}
        "undecided": the check could not have seen a fault, and the notes say why.
    sentence : str
        The verdict in words.
    notes : tuple of str
        What else is good to know, such as a guess of the fault.
    """

    verdict: Verdict
    sentence: str
    notes: tuple[str, ...]

    def __bool__(self) -> bool:
        return self.verdict == "right"

    def __repr__(self) -> str:
        return "\n".join([self.sentence, *columns(self._table()), *self.notes])

    def __str__(self) -> str:
        return repr(self)

    def _repr_html_(self) -> str:
        lines = []
        for k, row in enumerate(self._table()):
            cell = "td" if k else "th"
            lines.append("<tr>" + "".join(f"<{cell}>{html.escape(word)}</{cell}>" for word in row) + "</tr>")
        table = f"<table>{''.join(lines)}</table>" if lines else ""
        notes = "".join(f"<p>{html.escape(note)}</p>" for note in self.notes)
        return f"<p><b>{html.escape(self.sentence)}</b></p>{table}{notes}"

    def _table(self) -> Words:
        """Return the rows of the table, if there is one; the first one is its head."""
        raise NotImplementedError


def columns(rows: Words) -> list[str]:
    """Return rows as lines whose columns stand below each other: names to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for first, *others in rows:
        cells = [first.ljust(widths[0]), *(word.rjust(width) for word, width in zip(others, widths[1:], strict=True))]
        lines.append(f"  {'  '.join(cells)}".rstrip())
    return lines


def number(value: float, error: float = 0.0) -> str:
    """Write a number with 6 digits, and as 0 what is no larger than its own error.

    Examples
    --------
    >>> number(2 / 3), number(1e-17, error=1e-12), number(0.123456789, error=1e-3)
    ('0.666667', '0', '0.123')
    """
    if abs(value) <= error:
        return "0"
    digits = 6
    if 0 < error < math.inf and math.isfinite(value):
        digits = min(6, max(1, math.floor(math.log10(abs(value))) - math.ceil(math.log10(error)) + 1))
    return f"{value:.{digits}g}"


def below(error: float) -> str:
    """Write the power of ten that an error lies below: its exact size differs from one computer to the next.

    Examples
    --------
    >>> below(3.2e-11), below(0.0), below(float("inf"))
    ('1e-10', '0', 'inf')
    """
    if error == 0 or not math.isfinite(error):
        return f"{error:g}"
    return f"1e{math.ceil(math.log10(error) - 1e-9)}"


def counted(count: int, word: str, words: str | None = None) -> str:
    """Write a count with its noun.

    Examples
    --------
    >>> counted(1, "entry", "entries"), counted(3, "entry", "entries"), counted(2, "trial")
    ('1 entry', '3 entries', '2 trials')
    """
    return f"{count} {word if count == 1 else words or word + 's'}"
