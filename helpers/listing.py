"""Two functions side by side, with the lines that differ marked."""

from __future__ import annotations

import html
import inspect
import io
import textwrap
import tokenize
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
        Functions written with ``def`` whose source can be read, such as those written in a cell.

    Returns
    -------
    Listing
        It shows itself as a table in a notebook and as text in a terminal. The lines down to ``def ...:`` are left out
        where the two differ in the name alone; otherwise they are shown, with ``_`` for a name that differs.

    Raises
    ------
    TypeError
        If one of them is not a function written with ``def``: a lambda, a class, or code that is not Python.
    OSError
        If the source cannot be read.

    Examples
    --------
    >>> compare(compare, compare).changed
    0
    """
    sources = _Source.of(left), _Source.of(right)
    same_head = sources[0].head == sources[1].head and not any(source.in_one_line for source in sources)
    same_name = sources[0].name == sources[1].name
    before, after = (source.body() if same_head else source.full(same_name) for source in sources)
    rows: list[Pair] = []
    matcher = SequenceMatcher(None, before, after, autojunk=False)
    for kind, start, end, other_start, other_end in matcher.get_opcodes():
        olds, news = before[start:end], after[other_start:other_end]
        height = max(len(olds), len(news))
        olds, news = olds + [""] * (height - len(olds)), news + [""] * (height - len(news))
        rows += [(old, new, kind == "equal") for old, new in zip(olds, news, strict=True)]
    return Listing(tuple(rows), (left.__name__, right.__name__))


@dataclass(frozen=True)
class _Source:
    """The lines of a function, and where in them its name stands and its body begins."""

    lines: list[str]
    name: str
    name_at: tuple[int, int]
    head: tuple[str, ...]  # decorators, signature and what is said beside them, without the name
    head_lines: int
    in_one_line: bool

    @classmethod
    def of(cls, function: Callable[..., object]) -> _Source:
        code = getattr(inspect.unwrap(function), "__code__", None)
        if code is None:
            what = f"the class {function.__name__}" if isinstance(function, type) else type(function).__name__
            raise TypeError(f"compare reads functions written with def; got {what}. Pass a function or a method.")
        if code.co_name == "<lambda>":
            raise TypeError("compare reads functions written with def; got a lambda. Write it as a def with a name.")
        source = textwrap.dedent(inspect.getsource(function))
        tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
        start = next(i for i, token in enumerate(tokens) if token.type == tokenize.NAME and token.string == "def")
        colon, depth = start, 0
        while depth or tokens[colon].string != ":":
            depth += (tokens[colon].string in ("(", "[", "{")) - (tokens[colon].string in (")", "]", "}"))
            colon += 1
        end = next(i for i in range(colon, len(tokens)) if tokens[i].type in (tokenize.NEWLINE, tokenize.ENDMARKER))
        beside = [token for token in tokens[colon + 1 : end] if token.type != tokenize.COMMENT]
        name = tokens[start + 1]
        head = [token.string for i, token in enumerate(tokens[:end]) if i != start + 1 and token.type != tokenize.NL]
        return cls(source.splitlines(), name.string, name.start, tuple(head), tokens[end].start[0], bool(beside))

    def body(self) -> list[str]:
        return textwrap.dedent("\n".join(self.lines[self.head_lines :])).splitlines()

    def full(self, with_name: bool) -> list[str]:
        row, column = self.name_at
        line = self.lines[row - 1]
        shown = line if with_name else f"{line[:column]}_{line[column + len(self.name) :]}"
        return [*self.lines[: row - 1], shown, *self.lines[row:]]


def _html_row(left: str, right: str, same: bool) -> str:
    shade = "" if same else "background:#fbe5d6;color:#1a1a1a;"
    style = f"text-align:left;white-space:pre;font-family:monospace;padding:0 0.6em;line-height:1.5;{shade}"
    mark = "" if same else "▶"
    cells = "".join(f'<td style="{style}">{html.escape(line) or "&nbsp;"}</td>' for line in (left, right))
    return f'<tr><td style="padding:0;line-height:1.5">{mark}</td>{cells}</tr>'
