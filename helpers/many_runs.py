"""Pictures of many runs at once: how they go down, where they stop, and how many arrive.

They draw what was computed, and run nothing themselves. They return a :class:`~helpers.picture.Picture`.
"""

from collections.abc import Iterable, Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Patch
from numpy.typing import ArrayLike, NDArray

from .picture import LINE_COLOURS, LINE_STYLES, PALETTE, Picture, new_figure, sentence_list, styled

Array = NDArray[np.float64]

MARKERS = ["o", "s", "^", "D", "v", "P"]
MOST = len(LINE_COLOURS)


@styled
def descents(
    ensembles: Mapping[str, ArrayLike],
    *,
    levels: Mapping[str, float] | None = None,
    title: str = "Many runs",
    lowest: float = 1e-16,
) -> Picture:
    """Show groups of runs step by step: the median of each group, with its middle half as a band.

    Parameters
    ----------
    ensembles : mapping, name -> values of shape (steps + 1, runs)
        One to six groups: the noiseless value along each run, as in the ``values`` of ``descend_many``.
    levels : mapping, name -> number above 0, optional
        Values to compare with, drawn as grey horizontal lines.
    title : str
        The title.
    lowest : float
        What lies below is drawn here, and the sentence says so: rounding decides there.

    Returns
    -------
    Picture

    Raises
    ------
    ValueError
        If there is no group, if there are more than six, or if one has another shape, or a value that is negative or
        not finite.

    Examples
    --------
    >>> descents({"slow": [[1.0, 1.0], [0.5, 0.7]], "fast": [[1.0, 1.0], [0.1, 0.1]]}).summary
    'Many runs, median of f at the end: slow 6.0e-01 (2 runs) and fast 1.0e-01 (2 runs).'
    """
    groups = {name: _values(name, values) for name, values in ensembles.items()}
    _require_some(len(groups), "groups")
    figure = new_figure(width=10.0, height=5.0)
    axes = figure.axes[0]
    told = []
    for (name, values), colour, style in zip(groups.items(), LINE_COLOURS, LINE_STYLES, strict=False):
        steps = np.arange(len(values))
        low, median, high = np.maximum(np.quantile(values, [0.25, 0.5, 0.75], axis=1), lowest)
        axes.fill_between(steps, low, high, color=colour, alpha=0.25, linewidth=0)
        axes.plot(steps, median, color=colour, linestyle=style, label=name)
        told.append(f"{name} {_bounded(float(median[-1]), lowest)} ({values.shape[1]} runs)")
    compared = _draw_levels(axes, levels or {})
    said = _cut_off(lowest, groups.values())
    axes.set(yscale="log", xlabel="step", ylabel="f(x) without noise", title=title)
    axes.grid(axis="y", alpha=0.3)
    lines, _ = axes.get_legend_handles_labels()
    band = Patch(color=PALETTE["grey"], alpha=0.25, linewidth=0, label="middle half")
    figure.legend(handles=[*lines, band], loc="outside right upper", handlelength=3.0)
    return Picture(figure, f"{title}, median of f at the end: {sentence_list(told)}.{compared}{said}")


@styled
def floors(
    measured: Mapping[str, tuple[ArrayLike, ArrayLike]],
    theory: Mapping[str, tuple[ArrayLike, ArrayLike]],
    *,
    title: str = "The floor against the learning rate",
) -> Picture:
    """Show where runs stop against their learning rate: measured as marks, theory as lines.

    Parameters
    ----------
    measured : mapping, name -> (learning rates, mean of f at each)
        Both of shape (k,), for one to six optimisers.
    theory : mapping, name -> (learning rates, mean of f at each)
        The line that theory draws, for all of the optimisers or for some.
    title : str
        The title.

    Returns
    -------
    Picture

    Raises
    ------
    ValueError
        If there is no optimiser, if there are more than six, if theory speaks of one that was not measured, if lengths
        do not go together, or if a number is not finite and above 0.

    Examples
    --------
    >>> floors({"SGD": ([0.1, 0.2], [1.0, 2.1])}, {"SGD": ([0.1, 0.2], [1.0, 2.0])}).summary
    'The floor against the learning rate: SGD from 1.0e+00 at 0.1 to 2.1e+00 at 0.2, and theory 1.0e+00 to 2.0e+00.'
    """
    _require_some(len(measured), "optimisers")
    if not set(theory) <= set(measured):
        told_of, known = (", ".join(map(repr, names)) for names in (theory, measured))
        raise ValueError(f"theory may only speak of what was measured; it has {told_of}, and measured are {known}.")
    figure = new_figure(width=10.0, height=5.0)
    axes = figure.axes[0]
    told = []
    for name, colour, style, marker in zip(measured, LINE_COLOURS, LINE_STYLES, MARKERS, strict=False):
        rates, values = _pairs(name, *measured[name])
        axes.plot(rates, values, color=colour, marker=marker, markersize=10, linestyle="none", label=f"{name} measured")
        told.append(f"{name} from {values[0]:.1e} at {rates[0]:g} to {values[-1]:.1e} at {rates[-1]:g}")
        if name in theory:
            line = _pairs(name, *theory[name])
            axes.plot(*line, color=colour, linestyle=style, label=f"{name} theory")
            told[-1] += f", and theory {line[1][0]:.1e} to {line[1][-1]:.1e}"
    axes.set(xscale="log", yscale="log", xlabel="learning rate", ylabel="mean of f(x)", title=title)
    axes.grid(alpha=0.3)
    figure.legend(loc="outside right upper", handlelength=3.0)
    return Picture(figure, f"{title}: {'; '.join(told)}.")


@styled
def arrivals(
    ends: Mapping[str, ArrayLike],
    *,
    below: float = 1e-6,
    lowest: float = 1e-9,
    title: str = "Where the runs end",
) -> Picture:
    """Show where each run ends: the ends of each group in order, and the line below which a run has arrived.

    Parameters
    ----------
    ends : mapping, name -> array of shape (runs,)
        One to six groups: the noiseless value at the end of each run.
    below : float
        A run has arrived if it ends below this value.
    lowest : float
        What lies below is drawn here, and the sentence says so: how far below is chance.
    title : str
        The title.

    Returns
    -------
    Picture

    Raises
    ------
    ValueError
        If there is no group, if there are more than six, if ``lowest`` is not below ``below``, or if an end is negative
        or not finite.

    Examples
    --------
    >>> arrivals({"one": [0.1, 1e-8], "other": [1e-7, 1e-8]}).summary
    'Where the runs end: below 1e-06 end one 1 of 2 and other 2 of 2.'
    >>> arrivals({"one": [0.1, 1e-12]}).summary
    'Where the runs end: below 1e-06 end one 1 of 2. What lies below 1e-09 is drawn at 1e-09.'
    """
    groups = {name: np.sort(_values(name, np.asarray(values)[np.newaxis])[0]) for name, values in ends.items()}
    _require_some(len(groups), "groups")
    if not 0 < lowest < below:
        raise ValueError(f"lowest must lie between 0 and below = {below:g}; got {lowest:g}.")
    figure = new_figure(width=10.0, height=5.0)
    axes = figure.axes[0]
    told = []
    for (name, values), colour, style in zip(groups.items(), LINE_COLOURS, LINE_STYLES, strict=False):
        places = np.arange(1, len(values) + 1)
        drawn = np.maximum(values, lowest)
        axes.plot(places, drawn, color=colour, linestyle=style, label=name)
        told.append(f"{name} {int(np.sum(values < below))} of {len(values)}")
    axes.axhline(below, color=PALETTE["grey"], linestyle="--", linewidth=1.2, label=f"arrived: below {below:g}")
    axes.set(yscale="log", xlabel="runs, from the best to the worst", ylabel="f(x) at the end", title=title)
    axes.grid(axis="y", alpha=0.3)
    figure.legend(loc="outside right upper", handlelength=3.0)
    return Picture(figure, f"{title}: below {below:g} end {sentence_list(told)}.{_cut_off(lowest, groups.values())}")


def _draw_levels(axes: Axes, levels: Mapping[str, float]) -> str:
    for (name, level), style in zip(levels.items(), LINE_STYLES[1:], strict=False):
        if not (np.isfinite(level) and level > 0):
            raise ValueError(f"A level is a finite number above 0; {name!r} has {level}.")
        axes.axhline(level, color=PALETTE["grey"], linestyle=style, linewidth=1.8, label=name)
    return f" {sentence_list([f'{name} is {level:.1e}' for name, level in levels.items()])}." if levels else ""


def _cut_off(lowest: float, drawn: Iterable[Array]) -> str:
    below = any(np.any(values < lowest) for values in drawn)
    return f" What lies below {lowest:.0e} is drawn at {lowest:.0e}." if below else ""


def _bounded(value: float, lowest: float) -> str:
    return f"{value:.1e}" if value > lowest else f"below {lowest:.0e}"


def _values(name: str, given: ArrayLike) -> Array:
    values = np.asarray(given, dtype=np.float64)
    if values.ndim != 2 or values.size == 0:
        raise ValueError(f"The values of {name!r} must have shape (steps + 1, runs); got {values.shape}.")
    if not np.all(np.isfinite(values) & (values >= 0)):
        raise ValueError(f"The values of {name!r} must be finite and 0 or more. Count the others in words.")
    return values


def _pairs(name: str, rates: ArrayLike, values: ArrayLike) -> tuple[Array, Array]:
    x, y = np.asarray(rates, dtype=np.float64), np.asarray(values, dtype=np.float64)
    if x.ndim != 1 or x.shape != y.shape or x.size == 0:
        raise ValueError(f"{name!r} needs one value for each learning rate; got shapes {x.shape} and {y.shape}.")
    if not np.all((x > 0) & (y > 0) & np.isfinite(x) & np.isfinite(y)):
        raise ValueError(f"On a logarithmic scale all numbers are finite and above 0; those of {name!r} are not.")
    return x, y


def _require_some(count: int, what: str) -> None:
    if not 1 <= count <= MOST:
        raise ValueError(f"A picture shows 1 to {MOST} {what}; got {count}.")
