"""The index of the course: from what torch says, or from what you see when it says nothing, to mistake and cure."""

from __future__ import annotations

import html
import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from . import catalogue
from .messages import MESSAGES, explain
from .symptoms import SAYS, SYMPTOMS

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"
WIDTH = 96
KEEP_WORDS = "overflow-wrap:normal;word-break:normal"


@dataclass(frozen=True)
class Entry:
    """One row of the index.

    Attributes
    ----------
    seen : str
        What torch says, or what you see if it says nothing.
    mistake : str
        What is really wrong.
    slug, lesson, cure : str
        The mistake's name, the number of the lesson that explains it, and the code that cures it.
    gradcheck : str
        What gradcheck says about a silent mistake; empty for a loud one.
    """

    seen: str
    mistake: str
    slug: str
    lesson: str
    cure: str
    gradcheck: str = ""

    def holds(self, word: str) -> bool:
        """Say whether any column of the row holds the word, in capitals or not."""
        columns = self.seen, self.mistake, self.slug, self.lesson, self.cure, self.gradcheck
        return any(word.casefold() in column.casefold() for column in columns)

    def __str__(self) -> str:
        told = f"{self.slug}, lesson {self.lesson}: {self.mistake}"
        if self.gradcheck:
            told += f" gradcheck: {self.gradcheck}."
        return "\n".join([_wrapped(self.seen, 0), _wrapped(told, 4), textwrap.indent(self.cure, " " * 8)])


@dataclass(frozen=True)
class Index:
    """Rows of the index: ``loud`` by what torch says, ``silent`` by what you see. It prints, and shows as tables."""

    search: str
    loud: tuple[Entry, ...]
    silent: tuple[Entry, ...]

    def __len__(self) -> int:
        return len(self.loud) + len(self.silent)

    @property
    def slugs(self) -> frozenset[str]:
        """The names of the mistakes in these rows."""
        return frozenset(entry.slug for entry in (*self.loud, *self.silent))

    @property
    def headline(self) -> str:
        """One line: how many rows, and what was searched for."""
        if not len(self):
            return f"No row holds all of these words: {self.search!r}. Fewer words find more."
        about = f" for {self.search!r}" if self.search else ""
        return f"{_count(self.loud, 'message')} and {_count(self.silent, 'silent symptom')}{about}"

    @property
    def brief(self) -> str:
        """One line for each row, without its cure: its name, its lesson, and the beginning of what is seen.

        The loud rows come first; an empty line ends them.

        Examples
        --------
        >>> print(index("non-leaf").brief)
        nonleaf-parameter             03  can't optimize a non-leaf Tensor
        """
        return "\n\n".join("\n".join(map(_line, entries)) for entries in (self.loud, self.silent) if entries)

    def __repr__(self) -> str:
        parts = [self.headline]
        for title, entries in (("TORCH SAYS", self.loud), ("YOU SEE, AND TORCH SAYS NOTHING", self.silent)):
            parts += ["", title, *map(str, entries)] if entries else []
        return "\n".join(parts)

    def _repr_html_(self) -> str:
        loud = _table(["torch says", "what is really wrong; below, the cure", "name", "lesson"], self.loud)
        silent = _table(["you see", "what is wrong; below, the cure", "name", "lesson", "gradcheck"], self.silent)
        return f"<p><b>{html.escape(self.headline)}</b></p>{loud}{silent}"


def index(search: str = "") -> Index:
    """Return the index of all mistakes of the course, or those of its rows that hold some words.

    Parameters
    ----------
    search : str
        Words; a row is kept if it holds each of them in some column. A whole message of torch will do as well, with
        your own names and numbers in it.

    Returns
    -------
    Index
        ``.loud`` are the rows by what torch says, ``.silent`` those by what you see if it says nothing.

    Examples
    --------
    >>> [entry.slug for entry in index("lbfgs stops").silent]
    ['stale-loss']
    >>> print(index("non-leaf"))
    1 message and 0 silent symptoms for 'non-leaf'
    <BLANKLINE>
    TORCH SAYS
    can't optimize a non-leaf Tensor
        nonleaf-parameter, lesson 03: The parameter is the result of an operation (.to(device), *
        0.01), not a leaf. Its gradient would never be kept.
            x = x.detach().clone().requires_grad_(True)  # a leaf, after .to(device) and all arithmetic
            optimizer = torch.optim.Adam([x])
    """
    words = search.split()
    loud, silent = (
        [entry for entry in entries if all(map(entry.holds, words))] for entries in (_loud(), map(_silent, SYMPTOMS))
    )
    if words and not loud and not silent and (known := explain(search)):
        loud = [entry for entry in _loud() if entry.slug == known[0].slug]
    return Index(search, tuple(loud), tuple(silent))


def _loud() -> list[Entry]:
    rows = []
    for text in SAYS:
        known = explain(text)
        assert known is not None, text
        message, match = known
        rows.append((MESSAGES.index(message), Entry(text, message.meaning, *_of(message.slug, match.groupdict()))))
    return [entry for _, entry in sorted(rows, key=lambda row: row[0])]


def _silent(slug: str) -> Entry:
    words, mistake, gradcheck = SYMPTOMS[slug]
    return Entry(words, mistake, *_of(slug, {}), gradcheck)


def _of(slug: str, found: dict[str, str | None]) -> tuple[str, str, str]:
    """Return slug, lesson and cure of a mistake, with names that a reader can replace by their own."""
    words = {
        "f": "MyFunction",
        "method": "forward",
        "signature": "ctx, x",
        "gradients": "grad_x, None",
        "hint": "helpers.check_gradient(fun, gradient, x)  # says which entry is wrong, and by how much",
    }
    words |= {key: value for key, value in found.items() if value}
    return slug, catalogue.MISTAKES[slug].lesson, catalogue.cure(slug, words)


def _count(entries: Sequence[Entry], name: str) -> str:
    return f"{len(entries)} {name}" + ("" if len(entries) == 1 else "s")


def _line(entry: Entry) -> str:
    line = f"{entry.slug:28}  {entry.lesson}  {entry.seen}"
    return line if len(line) <= WIDTH else line[: WIDTH - 2].rstrip() + " …"


def _wrapped(text: str, indent: int) -> str:
    return textwrap.fill(text, WIDTH, initial_indent=" " * indent, subsequent_indent=" " * indent)


def _table(titles: list[str], entries: Iterable[Entry]) -> str:
    rows = [_rows(entry) for entry in entries]
    head = "".join(f'<th style="text-align:left">{title}</th>' for title in titles)
    return f"<table><thead><tr>{head}</tr></thead>{''.join(rows)}</table>" if rows else ""


def _rows(entry: Entry) -> str:
    """Return a row of the table, and under it the cure in the whole width: code needs long lines."""
    cells = [_prose(entry.seen), _prose(entry.mistake), _code(entry.slug), _link(entry.lesson)]
    cells += [_prose(entry.gradcheck)] if entry.gradcheck else []
    cure = f'<pre style="white-space:pre-wrap;margin:0 0 0 2em;{KEEP_WORDS}">{html.escape(entry.cure)}</pre>'
    return f"<tbody><tr>{''.join(map(_cell, cells))}</tr><tr>{_cell(cure, len(cells))}</tr></tbody>"


def _cell(content: str, columns: int = 1) -> str:
    return f'<td colspan="{columns}" style="text-align:left;vertical-align:top;{KEEP_WORDS}">{content}</td>'


def _prose(text: str) -> str:
    """Return words as markup, with code where backticks mark it."""
    return re.sub(r"`([^`]+)`", lambda code: _code(code[1]), html.escape(text))


def _code(text: str) -> str:
    return f'<code style="white-space:nowrap">{text}</code>'


def _link(lesson: str) -> str:
    """Return a lesson's number as a link to its notebook; as plain text if there is no such notebook here."""
    for path in NOTEBOOKS.glob(f"{lesson}_*.ipynb"):
        return f'<a href="{path.name}">{lesson}</a>'
    return lesson
