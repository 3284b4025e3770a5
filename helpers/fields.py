"""Pictures of fields on the unit square, of what was recovered of one, and of what a gradient costs as a grid grows.

A field is an array [row, column], row along y and column along x, as in :mod:`helpers.solvers`. All functions return a
:class:`~helpers.picture.Picture`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

from .picture import LINE_COLOURS, LINE_STYLES, Picture, new_figure, styled

Array = NDArray[np.float64]
MOST = 5
BANDS = 10  # of colour, from 0 to the largest number
BAR = 0.07  # the width of the scale of colours, in panels
MARKERS = ["o", "s", "^", "D", "v", "P"]
SIGNED, POSITIVE = "PuOr_r", "cividis"  # both are told apart with any kind of colour vision


@styled
def panels(
    fields: Mapping[str, ArrayLike],
    *,
    sensors: ArrayLike | None = None,
    label: str = "log-conductivity m",
    title: str = "",
) -> Picture:
    """Show fields side by side, all with the same colours for the same numbers.

    Parameters
    ----------
    fields : mapping, name -> array of shape (rows, columns)
        One to five fields.
    sensors : array, (sensors, 2), optional
        Positions (x, y) that are marked in each panel.
    label : str
        What the colours show.
    title : str
        Over the whole picture.

    Returns
    -------
    Picture

    Raises
    ------
    ValueError
        If there is no field or more than five, or if one has not two axes or holds numbers that are not finite.

    Examples
    --------
    >>> panels({"cold": np.zeros((4, 4)), "warm": np.ones((4, 4))}, label="temperature").summary
    'temperature, smallest and largest number: cold 0.00 and 0.00, warm 1.00 and 1.00.'
    """
    arrays = _checked(fields)
    told = [f"{name} {_short(array.min())} and {_short(array.max())}" for name, array in arrays.items()]
    beginning = f"{title}. " if title else ""
    figure = _draw(arrays, sensors, label, title)
    return Picture(figure, f"{beginning}{label}, smallest and largest number: {', '.join(told)}.")


@styled
def recovery(
    truth: ArrayLike,
    start: ArrayLike,
    *,
    sensors: ArrayLike | None = None,
    label: str = "log-conductivity m",
    title: str = "",
    **results: ArrayLike,
) -> Picture:
    """Show truth, start, each result and its error side by side, with one scale of colours.

    Parameters
    ----------
    truth, start : array, (rows, columns)
        The field that was looked for, and where the search began.
    sensors : array, (sensors, 2), optional
        Positions (x, y) that are marked.
    label, title : str
        What the colours show, and what stands over the picture.
    **results : array, (rows, columns)
        One result with its error, or several without; their names are shown, with a blank for "_".

    Returns
    -------
    Picture
        Its sentence tells the relative errors: the norm of the difference to the truth, divided by that of the truth.

    Raises
    ------
    ValueError
        If there is no result, if shapes differ, or if numbers are not finite.

    Examples
    --------
    >>> truth = np.outer([1.0, 2.0], [1.0, -1.0])
    >>> recovery(truth, 0 * truth, result=0.9 * truth).summary
    'Relative error: start 1.00, result 0.10.'
    """
    if not results:
        raise ValueError("There is no result to show: give it as a keyword, such as result=m.")
    arrays = {"truth": truth, "start": start, **{name.replace("_", " "): field for name, field in results.items()}}
    checked = _checked(arrays)
    if len({array.shape for array in checked.values()}) > 1:
        shapes = ", ".join(f"{name} {array.shape}" for name, array in checked.items())
        raise ValueError(f"Fields that are compared have one shape; got {shapes}.")
    true = checked["truth"]
    told = [
        f"{name} {np.linalg.norm(array - true) / np.linalg.norm(true):.2f}"
        for name, array in checked.items()
        if name != "truth"
    ]
    if len(results) == 1:
        checked["error"] = checked[next(iter(results)).replace("_", " ")] - true
    beginning = f"{title}. " if title else ""
    return Picture(_draw(checked, sensors, label, title), f"{beginning}Relative error: {', '.join(told)}.")


@styled
def growth(
    unknowns: Sequence[float],
    costs: Mapping[str, Sequence[float]],
    *,
    ylabel: str,
    xlabel: str = "number of unknowns",
    title: str = "",
) -> Picture:
    """Show how costs grow with the number of unknowns, both on logarithmic scales.

    Parameters
    ----------
    unknowns : sequence of float
        Increasing.
    costs : mapping, name -> sequence of float
        One cost for each number of unknowns. One to six curves.
    ylabel, xlabel, title : str
        What the axes show, and the title.

    Returns
    -------
    Picture

    Raises
    ------
    ValueError
        If there is no curve or more than six, if lengths differ, or if a number is not finite and above 0.

    Examples
    --------
    >>> growth([10, 100], {"one": [2, 20], "other": [5, 500]}, ylabel="solves").summary
    'solves, for 10 to 100 unknowns: one 2 to 20, other 5 to 500.'
    """
    x = np.asarray(unknowns, dtype=np.float64)
    curves = {name: np.asarray(cost, dtype=np.float64) for name, cost in costs.items()}
    if not 1 <= len(curves) <= len(LINE_COLOURS):
        raise ValueError(f"A picture shows 1 to {len(LINE_COLOURS)} curves; got {len(curves)}.")
    for name, cost in {"unknowns": x, **curves}.items():
        if cost.shape != x.shape or x.ndim != 1 or len(x) == 0 or not (np.all(np.isfinite(cost)) and cost.min() > 0):
            raise ValueError(f"{name} must hold {x.size} finite numbers above 0; got {cost.tolist()}.")
    figure = new_figure(width=9.0)
    axes = figure.axes[0]
    for (name, cost), colour, style, marker in zip(curves.items(), LINE_COLOURS, LINE_STYLES, MARKERS, strict=False):
        axes.plot(x, cost, color=colour, linestyle=style, marker=marker, markersize=9, label=name)
    axes.set(xscale="log", yscale="log", xlabel=xlabel, ylabel=ylabel, title=title)
    axes.grid(alpha=0.3)
    figure.legend(loc="outside right upper", handlelength=3.5)
    told = [f"{name} {cost[0]:,.3g} to {cost[-1]:,.3g}" for name, cost in curves.items()]
    beginning = f"{title}. " if title else ""
    return Picture(figure, f"{beginning}{ylabel}, for {x[0]:,.6g} to {x[-1]:,.6g} unknowns: {', '.join(told)}.")


def _draw(fields: Mapping[str, Array], sensors: ArrayLike | None, label: str, title: str) -> Figure:
    low = min(float(array.min()) for array in fields.values())
    high = max(float(array.max()) for array in fields.values())
    signed = low < 0
    top = _rounded_up(max(-low, high))
    if signed:  # the band in the middle holds 0, so what differs from it by a rounding error only is white
        levels, colours, bottom = top * (np.arange(2 * BANDS) + 0.5 - BANDS) / BANDS, SIGNED, -top
    else:
        levels, colours, bottom = np.linspace(0, top, 2 * BANDS + 1), POSITIVE, 0.0
    figure = new_figure(
        len(fields) + 1,
        width=3.1 * len(fields) + 1.4,
        height=4.2 if title else 3.8,
        width_ratios=[*([1] * len(fields)), BAR],
    )
    *plates, bar = figure.axes
    if title:
        figure.suptitle(title)
    for axes, (name, array) in zip(plates, fields.items(), strict=True):
        _panel(axes, array, levels=levels, cmap=colours, vmin=bottom, vmax=top)
        axes.set(title=name, xlabel="x")
        axes.tick_params(labelleft=axes is plates[0])
        if sensors is not None:
            x, y = np.asarray(sensors, dtype=np.float64).T
            axes.plot(x, y, "o", color="white", markeredgecolor="black", markersize=5, clip_on=False, label="sensors")
    plates[0].set_ylabel("y")
    _scale(bar, bottom, top, colours, label)
    return figure


def _scale(axes: Axes, low: float, high: float, colours: str, label: str) -> None:
    """Draw which colour means which number, as high as a panel."""
    shades = np.linspace(low, high, 256)[:, None]
    axes.imshow(shades, cmap=colours, vmin=low, vmax=high, extent=(0, 1, low, high), origin="lower", aspect="auto")
    axes.set(xticks=[], yticks=[low, (low + high) / 2, high], box_aspect=1 / BAR)
    axes.yaxis.set_major_formatter("{x:.3g}")
    axes.yaxis.tick_right()
    axes.yaxis.set_label_position("right")
    axes.set_ylabel(label)


def _panel(axes: Axes, array: Array, **shades: Any) -> None:
    """Draw one field; its outermost cells reach to the edge of the square."""
    rows, columns = (np.concatenate([[0.0], (np.arange(count) + 0.5) / count, [1.0]]) for count in array.shape)
    axes.contourf(columns, rows, np.pad(array, 1, mode="edge"), extend="both", **shades)
    axes.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    axes.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
    axes.set_yticks([0, 0.5, 1], ["0", "0.5", "1"])


def _checked(fields: Mapping[str, Any]) -> dict[str, Array]:
    if not 1 <= len(fields) <= MOST:
        raise ValueError(f"A picture shows 1 to {MOST} fields; got {len(fields)}.")
    arrays = {name: np.asarray(field, dtype=np.float64) for name, field in fields.items()}
    for name, array in arrays.items():
        if array.ndim != 2 or array.size == 0:
            raise ValueError(f"{name} must be a field with two axes (rows, columns); got shape {array.shape}.")
        if not np.all(np.isfinite(array)):
            raise ValueError(f"{name} holds NaN or infinity.")
    return arrays


def _rounded_up(number: float) -> float:
    """Return the next larger number of two digits: the scale of colours ends there."""
    if number <= 0:
        return 1.0
    unit = 10 ** (np.floor(np.log10(number)) - 1)
    return float(np.ceil(number / unit - 1e-9) * unit)


def _short(number: float) -> str:
    told = f"{number:.2f}" if number == 0 or abs(number) >= 0.01 else f"{number:.1e}"
    return told.replace("-0.00", "0.00")
