"""Pictures of workers: which of them was at work on which sample, and when.

They draw times that something else has measured, such as those of ``benchmarks/executor.json``, and measure nothing
themselves. They return a :class:`~helpers.picture.Picture`.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from .picture import LINE_COLOURS, Picture, new_figure, styled

MOST = 4
BAR = 0.82  # of the height of a row
NARROW = 0.02  # of the width of the picture: a shorter bar has no room for its number


class Span(NamedTuple):
    """One stretch of work: the number of the worker, that of the sample, and when it began and ended."""

    worker: int
    sample: int
    begin: float
    end: float


@styled
def workers(runs: Mapping[str, Sequence[Span]], *, unit: str = "ms", title: str = "Who does what, and when") -> Picture:
    """Show for each run a row for each worker, with a bar for each sample that it worked on.

    Parameters
    ----------
    runs : mapping, name -> sequence of Span
        One to four runs, with times in one unit from a zero of their own. The number of a sample stands in its bar.
    unit : str
        The unit of the times.
    title : str
        The title.

    Returns
    -------
    Picture

    Raises
    ------
    ValueError
        If there is no run, if there are more than four, if a run is empty, if a time is not finite, or if a span ends
        before it begins.

    Examples
    --------
    >>> alone = [Span(0, 0, 0.0, 2.0), Span(0, 1, 2.0, 4.0)]
    >>> workers({"alone": alone, "in pairs": [Span(0, 0, 0.0, 2.0), Span(1, 1, 0.0, 2.5)]}).summary
    'Who does what, and when: alone, 2 samples on 1 worker in 4 ms; in pairs, 2 samples on 2 workers in 2.5 ms.'
    """
    _check(runs)
    rows = [(name, worker) for name, spans in runs.items() for worker in sorted({span.worker for span in spans})]
    last = max(span.end for spans in runs.values() for span in spans)
    figure = new_figure(width=10.0, height=1.8 + 0.5 * len(rows))
    axes = figure.axes[0]
    for (name, spans), colour in zip(runs.items(), LINE_COLOURS, strict=False):
        for span in sorted(spans, key=lambda span: (span.worker, span.begin)):
            row, width = rows.index((name, span.worker)), span.end - span.begin
            axes.barh(
                row,
                width,
                left=span.begin,
                height=BAR,
                color=colour,
                edgecolor="white",
                label=[f"{name}, sample {span.sample}"],
            )
            if width > NARROW * last:
                axes.text(span.begin + width / 2, row, str(span.sample), color="white", ha="center", va="center")
    axes.set(title=title, xlabel=f"time in {unit}", xlim=(0, 1.02 * last), ylim=(len(rows) - 0.5, -0.5))
    counts = {name: len({span.worker for span in spans}) for name, spans in runs.items()}
    axes.set_yticks(range(len(rows)), [name if counts[name] == 1 else f"{name} {k + 1}" for name, k in _numbered(rows)])
    axes.tick_params(axis="y", length=0)
    told = [_sentence(name, spans, counts[name], unit) for name, spans in runs.items()]
    return Picture(figure, f"{title}: {'; '.join(told)}.")


def _numbered(rows: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
    """Return the rows with the workers of each run counted from 0."""
    names = [name for name, _ in rows]
    return [(name, place - names.index(name)) for place, name in enumerate(names)]


def _check(runs: Mapping[str, Sequence[Span]]) -> None:
    if not 1 <= len(runs) <= MOST:
        raise ValueError(f"A picture shows 1 to {MOST} runs; got {len(runs)}.")
    for name, spans in runs.items():
        if not spans:
            raise ValueError(f"{name!r} has no span: nobody did anything.")
        for span in spans:
            if not (np.isfinite(span.begin) and np.isfinite(span.end) and span.begin <= span.end):
                raise ValueError(f"A span has a finite begin and a later end; {name!r} has {span}.")


def _sentence(name: str, spans: Sequence[Span], count: int, unit: str) -> str:
    samples = len({span.sample for span in spans})
    took = max(span.end for span in spans) - min(span.begin for span in spans)
    return f"{name}, {_plural(samples, 'sample')} on {_plural(count, 'worker')} in {took:.3g} {unit}"


def _plural(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"
