"""Two functions side by side, with the lines that differ marked."""

from __future__ import annotations

import html
import inspect
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from difflib import SequenceMatcher

Pair = tuple[str, str, bool]


@dataclass(frozen=True)
class Listing:
    """Rows of code: left line, right line, and whether they are the same."""

    rows: tuple[Pair, ...]
    headings: tuple[str, str]

    @property
    def changed(self) -> int:
        """How many rows differ."""
        return sum(not same for *_, same in self.rows)

    def __repr__(self) -> str:
        width = max(len(line) for line in (self.headings[0], *(left for left, *_ in self.rows)))
        lines = [f"  {self.headings[0]:<{width}}   {self.headings[1]}"]
        lines += [f"{' ' if same else '▶'} {left:<{width}} | {right}".rstrip() for left, right, same in self.rows]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rows = "".join(_html_row(*row) for row in self.rows)
        heads = "".join(f'<th style="text-align:left">{html.escape(heading)}</th>' for heading in self.headings)
        return f"<table><tr><th></th>{heads}</tr>{rows}</table>"


def compare(left: Callable[..., object], right: Callable[..., object]) -> Listing:
    """Return the code of two functions side by side; a mark stands before each line that differs.

    The code is read from the functions themselves, so what you see is what runs.

    Parameters
    ----------
    left, right : functions
        Python functions whose source can be read, such as those written in a cell.

    Returns
    -------
    Listing
        It shows itself as a table in a notebook and as text in a terminal; its first line, ``def ...``, is left out.

    Raises
    ------
    TypeError
        If one of them is not a Python function.
    OSError
        If the source cannot be read.

    Examples
    --------
    >>> compare(compare, compare).changed
    0
    """
    before, after = _body(left), _body(right)
    rows: list[Pair] = []
    matcher = SequenceMatcher(None, before, after, autojunk=False)
    for kind, start, end, other_start, other_end in matcher.get_opcodes():
        olds, news = before[start:end], after[other_start:other_end]
        height = max(len(olds), len(news))
        olds, news = olds + [""] * (height - len(olds)), news + [""] * (height - len(news))
        rows += [(old, new, kind == "equal") for old, new in zip(olds, news, strict=True)]
    return Listing(tuple(rows), (left.__name__, right.__name__))


def _body(function: Callable[..., object]) -> list[str]:
    source = textwrap.dedent(inspect.getsource(function))
    return textwrap.dedent("\n".join(source.splitlines()[1:])).splitlines()


def _html_row(left: str, right: str, same: bool) -> str:
    shade = "" if same else "background:#fbe5d6;color:#1a1a1a;"
    style = f"text-align:left;white-space:pre;font-family:monospace;padding:0 0.6em;line-height:1.5;{shade}"
    mark = "" if same else "▶"
    cells = "".join(f'<td style="{style}">{html.escape(line) or "&nbsp;"}</td>' for line in (left, right))
    return f'<tr><td style="padding:0;line-height:1.5">{mark}</td>{cells}</tr>'
