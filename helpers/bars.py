"""Bars of measured costs: what each way takes, and where the time of one of them goes.

Both take names with numbers, such as those of ``benchmarks/bridge.json``, and measure nothing themselves. They return a
:class:`~helpers.picture.Picture`.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .picture import PALETTE, Picture, new_figure, sentence_list, styled

ROOM = 1.15  # how much longer the axis is than the bars: the number stands behind its bar


@styled
def ratios(costs: Mapping[str, float], *, unit: str, title: str = "What each way costs") -> Picture:
    """Show what each way costs, as a multiple of one of them; the cheapest is on top.

    Parameters
    ----------
    costs : mapping, name -> number above 0
        What each way takes, in any unit.
    unit : str
        The name of the way that counts as 1.
    title : str
        The title.

    Returns
    -------
    Picture

    Raises
    ------
    ValueError
        If a cost is not a finite number above 0, or if ``unit`` is not among the names.

    Examples
    --------
    >>> ratios({"walking": 60.0, "the bus": 12.0}, unit="walking").summary
    'What each way costs, in units of walking: the bus 0.20 and walking 1.00.'
    """
    if unit not in costs:
        raise ValueError(f"unit must be one of the ways; there is no {unit!r} among {', '.join(map(repr, costs))}.")
    for name, cost in costs.items():
        if not (np.isfinite(cost) and cost > 0):
            raise ValueError(f"A cost is a finite number above 0; {name!r} has {cost}.")
    names = sorted(costs, key=lambda name: costs[name])
    lengths = [costs[name] / costs[unit] for name in names]
    figure, axes = _board(names, title)
    colours = [PALETTE["grey" if name == unit else "blue"] for name in names]
    axes.barh(range(len(names)), lengths, color=colours, label=names)
    axes.axvline(1, color=PALETTE["grey"], linestyle="--", linewidth=1)
    axes.set(xlim=(0, ROOM * max(lengths)), xlabel=f"time, in units of {unit}")
    told = [_short(length) for length in lengths]
    _write(axes, told, lengths)
    return Picture(figure, f"{title}, in units of {unit}: {_list(names, told)}.")


@styled
def parts(costs: Mapping[str, float], *, title: str = "Where the time goes") -> Picture:
    """Show the parts of one cost, one below the other; each begins where the one above it ends.

    Parameters
    ----------
    costs : mapping, name -> number
        The parts in order, in any unit. A part that was measured as a difference may be a little below 0.
    title : str
        The title.

    Returns
    -------
    Picture

    Raises
    ------
    ValueError
        If there is no part, if one is not finite, or if their sum is not above 0.

    Examples
    --------
    >>> parts({"waiting": 3.0, "riding": 9.0}, title="A bus ride").summary
    'A bus ride: waiting 25% and riding 75%.'
    """
    amounts = np.array(list(costs.values()), dtype=np.float64)
    if not (np.all(np.isfinite(amounts)) and amounts.sum() > 0):
        raise ValueError(f"Parts are finite numbers with a sum above 0; got {list(costs.values())}.")
    shares = 100 * amounts / amounts.sum()
    ends = np.cumsum(shares)
    starts = ends - shares
    names = list(costs)
    figure, axes = _board(names, title)
    axes.barh(range(len(names)), shares, left=starts, color=PALETTE["blue"], label=names)
    axes.set(xlim=(min(0, *ends), ROOM * max(100, *ends)), xlabel="share of the whole, in percent")
    axes.set_xticks(range(0, 101, 20))
    told = [f"{share:.0f}%".replace("-0%", "0%") for share in shares]
    _write(axes, told, np.maximum(starts, ends).tolist())
    return Picture(figure, f"{title}: {_list(names, told)}.")


def _board(names: Sequence[str], title: str) -> tuple[Figure, Axes]:
    figure = new_figure(width=10.0, height=1.6 + 0.45 * len(names))
    axes = figure.axes[0]
    axes.set(title=title, ylim=(len(names) - 0.5, -0.5))
    axes.set_yticks(range(len(names)), names)
    axes.tick_params(axis="y", length=0)
    return figure, axes


def _write(axes: Axes, words: Sequence[str], ends: Sequence[float]) -> None:
    """Write the numbers behind their bars."""
    box = {"boxstyle": "square,pad=0.1", "facecolor": "white", "edgecolor": "none"}
    for row, (word, end) in enumerate(zip(words, ends, strict=True)):
        axes.annotate(word, (end, row), xytext=(6, 0), textcoords="offset points", va="center", bbox=box)


def _short(number: float) -> str:
    if number < 0.1:
        return f"{number:.2g}"
    return f"{number:.2f}" if number < 9.995 else f"{number:,.0f}"


def _list(names: Sequence[str], told: Sequence[str]) -> str:
    return sentence_list([f"{name} {number}" for name, number in zip(names, told, strict=True)])
