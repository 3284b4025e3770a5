"""Pictures of what changes with time: counts and the curves fitted to them, and lines of any other kind.

They draw the numbers that they are given, and compute nothing. They return a :class:`~helpers.picture.Picture`.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.lines import Line2D
from numpy.typing import ArrayLike, NDArray

from .picture import LINE_COLOURS, LINE_STYLES, Picture, new_figure, sentence_list, styled

Array = NDArray[np.float64]


@styled
def series(
    times: ArrayLike,
    counts: ArrayLike,
    curves: Mapping[str, tuple[ArrayLike, ArrayLike]],
    *,
    names: Sequence[str],
    title: str = "Counts and curves",
    xlabel: str = "time",
    ylabel: str = "number",
) -> Picture:
    """Show counts as marks, and curves that should meet them. Each quantity has a colour, each curve a line style.

    Parameters
    ----------
    times : array_like, shape (T,)
        When it was counted.
    counts : array_like, shape (T, n)
        What was counted, for each of n quantities.
    curves : mapping, name -> (t, y)
        Curves as times of shape (m,) and values of shape (m, n). They must cover the times of the counts; the sentence
        says how far each is from the counts (root mean square, read off the curve).
    names : sequence of n strings
        The quantities.
    title, xlabel, ylabel : str
        What to write on the figure.

    Returns
    -------
    Picture

    Raises
    ------
    ValueError
        If the shapes do not fit, if a number is not finite, or if a curve ends before the counts do.

    Examples
    --------
    >>> series([0, 1], [[1.0], [3.0]], {"a line": ([0, 2], [[1.0], [3.0]])}, names=["sheep"]).summary
    'Counts and curves: sheep, counted 2 times. Typical distance (root mean square) from the counts: a line 0.71.'
    """
    t, y = _finite("times", times), _finite("counts", counts)
    if y.shape != (len(t), len(names)) or not y.size:
        raise ValueError(f"counts must have the shape (times, names), ({len(t)}, {len(names)}); got {y.shape}.")
    if not 1 <= len(curves) <= len(LINE_STYLES):
        raise ValueError(f"A picture shows 1 to {len(LINE_STYLES)} curves; got {len(curves)}.")
    figure = new_figure(width=10.0, height=5.0)
    axes = figure.axes[0]
    for column, (name, colour) in enumerate(zip(names, LINE_COLOURS, strict=False)):
        axes.plot(t, y[:, column], "o", color=colour, label=f"{name}, counted")
    told = []
    for (label, (along, values)), style in zip(curves.items(), LINE_STYLES, strict=False):
        at, line = _finite(label, along), _finite(label, values)
        if line.shape != (len(at), len(names)):
            raise ValueError(
                f"{label} must have the shape (times, names), ({len(at)}, {len(names)}); got {line.shape}."
            )
        if at.min() > t.min() or at.max() < t.max():
            raise ValueError(f"{label} must cover the times of the counts, {t.min():g} to {t.max():g}.")
        for column, (name, colour) in enumerate(zip(names, LINE_COLOURS, strict=False)):
            axes.plot(at, line[:, column], color=colour, linestyle=style, label=f"{name}, {label}")
        read = np.stack([np.interp(t, at, line[:, column]) for column in range(len(names))], axis=1)
        told.append(f"{label} {np.sqrt(np.mean((read - y) ** 2)):.2g}")
    axes.set(title=title, xlabel=xlabel, ylabel=ylabel)
    keys = [Line2D([], [], color=colour, linewidth=6) for colour in LINE_COLOURS[: len(names)]]
    keys.append(Line2D([], [], color="#1a1a1a", marker="o", linestyle="none"))
    keys += [axes.plot([], [], color="#1a1a1a", linestyle=style)[0] for style in LINE_STYLES[: len(curves)]]
    figure.legend(keys, [*names, "counted", *curves], loc="outside right upper", handlelength=3.5)
    return Picture(
        figure,
        f"{title}: {sentence_list(list(names))}, counted {len(t)} times. "
        f"Typical distance (root mean square) from the counts: {sentence_list(told)}.",
    )


@styled
def lines(
    x: ArrayLike,
    curves: Mapping[str, ArrayLike],
    *,
    title: str,
    xlabel: str,
    ylabel: str,
    xscale: str = "linear",
    yscale: str = "linear",
    truth: str | None = None,
    marks: bool = False,
) -> Picture:
    """Show one to six lines over the same x, told apart by colour and by dashes.

    Parameters
    ----------
    x : array_like, shape (m,)
        Where the lines are known.
    curves : mapping, name -> array_like, shape (m,)
        The lines. On a logarithmic axis they must be above 0.
    title, xlabel, ylabel : str
        What to write on the figure.
    xscale, yscale : {"linear", "log"}
        The axes.
    truth : str, optional
        The name of the line that the others should meet: the sentence says how far from it they go. Without it, it
        says where each line begins and ends.
    marks : bool
        Mark each point; on a logarithmic x axis write its x under it.

    Returns
    -------
    Picture

    Raises
    ------
    ValueError
        If the shapes do not fit, if a number is not finite, or not above 0 on a logarithmic axis, or if ``truth`` is
        not among the names.

    Examples
    --------
    >>> lines([1, 2], {"f": [3.0, 4.0]}, title="A line", xlabel="x", ylabel="y").summary
    'A line, from x = 1 to 2: f from 3 to 4.'
    >>> lines([1, 2], {"f": [3, 4], "g": [3, 3]}, title="Two", xlabel="x", ylabel="y", truth="f").summary
    'Two, largest distance from f: g 1.'
    """
    at = _finite("x", x)
    if not 1 <= len(curves) <= len(LINE_COLOURS):
        raise ValueError(f"A picture shows 1 to {len(LINE_COLOURS)} lines; got {len(curves)}.")
    if truth is not None and (truth not in curves or len(curves) == 1):
        raise ValueError(f"truth must be one of several lines; there is no other beside {truth!r} or it is missing.")
    drawn = {name: _finite(name, values) for name, values in curves.items()}
    for name, values in {"x": at, **drawn}.items():
        if values.shape != at.shape or at.ndim != 1 or not len(at):
            raise ValueError(f"{name} must have the shape of x, one axis with {at.size} numbers; got {values.shape}.")
        if (xscale if name == "x" else yscale) == "log" and values.min() <= 0:
            raise ValueError(f"{name} must be above 0 on a logarithmic axis; its smallest number is {values.min():g}.")
    figure = new_figure(width=10.0, height=4.8)
    axes = figure.axes[0]
    for (name, values), colour, style in zip(drawn.items(), LINE_COLOURS, LINE_STYLES, strict=False):
        axes.plot(at, values, color=colour, linestyle=style, marker="o" if marks else None, label=name)
    axes.set(title=title, xlabel=xlabel, ylabel=ylabel, xscale=xscale, yscale=yscale)
    axes.grid(alpha=0.3)
    if marks and xscale == "log":  # matplotlib's own ticks run into each other on less than two powers of 10
        axes.set_xticks(at, [f"{value:g}" for value in at])
        axes.set_xticks([], minor=True)
    if len(drawn) > 1:
        figure.legend(loc="outside right upper", handlelength=3.5)
    if truth is None:
        told = [f"{name} from {values[0]:.2g} to {values[-1]:.2g}" for name, values in drawn.items()]
        return Picture(figure, f"{title}, from {xlabel} = {at[0]:g} to {at[-1]:g}: {sentence_list(told)}.")
    far = {name: np.abs(values - drawn[truth]).max() for name, values in drawn.items() if name != truth}
    told = [f"{name} {distance:.2g}" for name, distance in far.items()]
    return Picture(figure, f"{title}, largest distance from {truth}: {sentence_list(told)}.")


def _finite(name: str, given: ArrayLike) -> Array:
    array = np.asarray(given, dtype=np.float64)
    if not np.all(np.isfinite(array)):
        raise ValueError(f"{name} holds NaN or Inf. A picture would leave them out in silence.")
    return array
