"""Pictures of an optimiser's path: on the surface, and as convergence over the steps.

All use the same view, colours and fonts. Start, end and optimum are named on the picture, and each picture comes back
as a :class:`~helpers.picture.Picture` that carries one sentence with its numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from numpy.typing import ArrayLike, NDArray

from . import rosenbrock
from .descent import Trajectory, values_along
from .picture import LINE_COLOURS, LINE_STYLES, PALETTE, Picture, new_figure, sentence_list, styled

Array = NDArray[np.float64]
Surface = Callable[[Array], ArrayLike]

VIEW = (-0.7, 1.7, -0.6, 1.9)
LEVELS = np.logspace(-3, 2, 11)
GRID = 161
FARTHEST = 1e300


@styled
def surface(fun: Surface = rosenbrock.value, *, optimum: ArrayLike = (1.0, 1.0), title: str | None = None) -> Picture:
    """Show a function of two variables as filled contours on logarithmic levels.

    Parameters
    ----------
    fun : callable, points of shape (..., 2) -> values of shape (...)
        The function, 0 at its optimum.
    optimum : array_like, shape (2,)
        Where the minimum lies; it is marked and named, and the view grows to hold it.
    title : str, optional
        The title. Without it, "The Rosenbrock function", or "The function f" for another one.

    Returns
    -------
    Picture

    Raises
    ------
    ValueError
        If ``fun`` does not give every point its value.

    Examples
    --------
    >>> surface().summary
    'The Rosenbrock function: a curved valley, with its lowest point at (1, 1).'
    >>> surface(lambda x: np.sum(x**2, axis=-1), optimum=(0, 0), title="A bowl").summary
    'A bowl: contours of f, lowest point at (0, 0).'
    """
    usual = fun is rosenbrock.value
    title = title if title is not None else "The Rosenbrock function" if usual else "The function f"
    figure = new_figure()
    _draw_surface(figure.axes[0], fun, optimum, _view((), optimum))
    figure.axes[0].set_title(title)
    what = "a curved valley, with its lowest point" if usual else "contours of f, lowest point"
    return Picture(figure, f"{title}: {what} at {_place(optimum)}.")


@styled
def trajectories(
    *paths: Trajectory,
    fun: Surface = rosenbrock.value,
    optimum: ArrayLike = (1.0, 1.0),
    title: str = "Adam's path",
) -> Picture:
    """Show one or more paths on one surface. The view grows where a path leaves it.

    Parameters
    ----------
    *paths : Trajectory
        One to six paths in two variables; their labels go into the legend.
    fun, optimum, title
        See :func:`surface`.

    Returns
    -------
    Picture

    Raises
    ------
    ValueError
        If there is no path, more than six, or one that is not a path in two variables; or see :func:`surface`.
    """
    _require_plane_paths(paths)
    figure = new_figure()
    _draw_paths(figure.axes[0], paths, fun, optimum, _view(paths, optimum))
    figure.axes[0].set_title(title)
    return Picture(figure, " ".join(_sentence(path, fun) for path in paths))


@styled
def side_by_side(
    left: Trajectory,
    right: Trajectory,
    *,
    fun: Surface = rosenbrock.value,
    optimum: ArrayLike = (1.0, 1.0),
) -> Picture:
    """Show two paths on two surfaces with the same view: the right one beside a variant.

    Parameters
    ----------
    left, right : Trajectory
        Two paths in two variables; their labels become the titles.
    fun, optimum
        See :func:`surface`.

    Returns
    -------
    Picture

    Raises
    ------
    ValueError
        If one is not a path in two variables; or see :func:`surface`.
    """
    paths = (left, right)
    _require_plane_paths(paths)
    figure = new_figure(2, width=12.0, height=5.2, sharex=True, sharey=True)
    for axes, path, colour in zip(figure.axes, paths, LINE_COLOURS, strict=False):
        _draw_paths(axes, [path], fun, optimum, _view(paths, optimum), colour=colour)
        axes.set_title(path.label)
        axes.label_outer()
    return Picture(figure, f"On the left, {_sentence(left, fun)} On the right, {_sentence(right, fun)}")


@styled
def convergence(
    *paths: Trajectory, fun: Surface = rosenbrock.value, title: str = "How far down, step by step"
) -> Picture:
    """Show the noiseless value of each path over the steps, on a logarithmic scale.

    Parameters
    ----------
    *paths : Trajectory
        One to six paths. Their own ``values`` are used; where they have none, ``fun`` of their points.
    fun, title
        See :func:`surface`.

    Returns
    -------
    Picture

    Raises
    ------
    ValueError
        If there is no path, or more than six, or one that has not one value a point (see :func:`band`), or if a value
        is below 0.
    """
    _require_some(paths)
    values = [_values(path, fun) for path in paths]
    for path, own in zip(paths, values, strict=True):
        if own.shape != (path.steps + 1,):
            raise ValueError(f"A path needs one value a point; {path.label or 'this one'} has shape {own.shape}.")
        _require_no_value_below_0(own)
    figure = new_figure(height=4.4)
    axes = figure.axes[0]
    for path, own, colour, style in zip(paths, values, LINE_COLOURS, LINE_STYLES, strict=False):
        axes.plot(np.arange(path.steps + 1), own, color=colour, linestyle=style, label=path.label or "path")
    _finish_convergence(axes, title, legend=len(paths) > 1)
    same = len({path.steps for path in paths}) == 1
    ends = sentence_list(
        [
            f"{path.label or 'the path'} {own[-1]:.1e}{'' if same else f' ({path.steps} steps)'}"
            for path, own in zip(paths, values, strict=True)
        ]
    )
    return Picture(figure, f"f after {paths[0].steps} steps: {ends}." if same else f"f at the end: {ends}.")


@styled
def band(values: ArrayLike, *, title: str = "Many seeds", below: float = 1e-6) -> Picture:
    """Show many runs as a band: each run pale, the middle half filled, the median strong.

    Parameters
    ----------
    values : array_like, shape (runs, steps + 1)
        The noiseless value along each run. Where it is not finite, the run counts as the worst.
    title : str
        The title.
    below : float
        The sentence counts the runs that end below this value.

    Returns
    -------
    Picture

    Raises
    ------
    ValueError
        If ``values`` is not two-dimensional or is empty, or holds values below 0.
    """
    runs = np.asarray(values, dtype=np.float64)
    if runs.ndim != 2 or runs.size == 0:
        raise ValueError(f"values must have shape (runs, steps + 1), with one run or more; got {runs.shape}.")
    _require_no_value_below_0(runs)
    figure = new_figure(height=4.4)
    axes, steps = figure.axes[0], np.arange(runs.shape[1])
    finite = np.isfinite(runs)
    quantiles = np.quantile(np.where(finite, runs, FARTHEST), [0.25, 0.5, 0.75], axis=0)
    quarter, median, three_quarters = np.where(quantiles < FARTHEST / len(runs), quantiles, np.inf)
    axes.plot(steps, runs.T, color=PALETTE["grey"], linewidth=0.8, alpha=0.5)
    axes.fill_between(steps, quarter, three_quarters, color=PALETTE["blue"], alpha=0.3, label="middle half")
    axes.plot(steps, median, color=PALETTE["blue"], label="median")
    _finish_convergence(axes, title, legend=True)
    ends = np.where(finite[:, -1], runs[:, -1], np.inf)
    good, lost = int(np.sum(ends < below)), int(np.sum(~finite[:, -1]))
    return Picture(
        figure,
        f"{len(runs)} runs of {runs.shape[1] - 1} steps: median f {median[-1]:.1e} at the end, "
        f"best {ends.min():.1e}, worst {ends.max():.1e}; {good} of {len(runs)} end below {below:g}."
        + (f" {lost} of {len(runs)} end at no finite value." if lost else ""),
    )


def _finish_convergence(axes: Axes, title: str, *, legend: bool) -> None:
    axes.set(yscale="log", xlabel="step", ylabel="f(x) without noise", title=title)
    axes.grid(axis="y", alpha=0.3)
    if legend:
        axes.legend()


def _draw_surface(axes: Axes, fun: Surface, optimum: ArrayLike, view: tuple[float, float, float, float]) -> None:
    left, right, bottom, top = view
    x0, x1 = np.meshgrid(np.linspace(left, right, GRID), np.linspace(bottom, top, GRID))
    wanted = f"fun must give every point its value: for points of shape {(*x0.shape, 2)} an array of shape {x0.shape}"
    cure = "A function f of one point takes many as lambda x: np.apply_along_axis(f, -1, x)."
    try:
        z = np.asarray(fun(np.stack([x0, x1], axis=-1)), dtype=np.float64)
    except Exception as error:
        error.add_note(f"{wanted}. {cure}")
        raise
    if z.shape != x0.shape:
        raise ValueError(f"{wanted}; it gave {z.shape}. {cure}")
    z = np.where(z <= 0, 1e-15, z)  # zero has no logarithm
    # matplotlib fills up to 1e250; and more than 61 lines would be a grey area.
    highest = min(240, max(2, int(np.ceil(np.log10(np.max(z[np.isfinite(z)], initial=1.0))))))
    levels = LEVELS if highest == 2 else np.logspace(-3, highest, min(2 * (highest + 3) + 1, 61))
    axes.contourf(
        x0, x1, z, levels=levels, norm=LogNorm(levels[0], levels[-1]), cmap="Greys", alpha=0.22, extend="both"
    )
    axes.contour(x0, x1, z, levels=levels, colors=PALETTE["grey"], linewidths=0.6, alpha=0.6)
    axes.set(xlim=(left, right), ylim=(bottom, top), xlabel="x₀", ylabel="x₁")
    best = np.asarray(optimum, dtype=np.float64)
    axes.plot(*best, marker="*", markersize=20, color=PALETTE["orange"], markeredgecolor="black", linestyle="none")
    _say(axes, f"optimum {_place(best)}", best, (14, -22))


def _draw_paths(
    axes: Axes,
    paths: Sequence[Trajectory],
    fun: Surface,
    optimum: ArrayLike,
    view: tuple[float, float, float, float],
    colour: str | None = None,
) -> None:
    _draw_surface(axes, fun, optimum, view)
    for path, own, style in zip(paths, LINE_COLOURS, LINE_STYLES, strict=False):
        points = path.points[_drawn(path)]
        axes.plot(*points.T, color=colour or own, linestyle=style, marker=".", markersize=4, label=path.label or "path")
        axes.plot(
            *points[-1], marker="s", markersize=12, color=colour or own, markeredgecolor="black", linestyle="none"
        )
    _name_the_starts_and_ends(axes, paths, view)
    if len(paths) > 1:
        axes.legend(loc="upper left")


def _name_the_starts_and_ends(axes: Axes, paths: Sequence[Trajectory], view: tuple[float, float, float, float]) -> None:
    """Write "start" and "end" once at each place where paths start or end, clear of each other and of the optimum."""
    near = np.array([view[1] - view[0], view[3] - view[2]]) * 0.06

    def at_one_of(places: list[Array], point: Array) -> bool:
        return any(bool(np.all(np.abs(point - place) < near)) for place in places)

    starts: list[Array] = []
    for path in paths:
        if not at_one_of(starts, path.start):
            axes.plot(*path.start, marker="o", markersize=10, color="white", markeredgecolor="black", linestyle="none")
            _say(axes, "start", path.start, (-10, -24))
            starts.append(path.start)
    ends: list[Array] = []
    for path in paths:
        end = path.points[_drawn(path)][-1]
        if not at_one_of(ends, end):
            _say(axes, "end", end, (12, 8) if at_one_of(starts, end) else (-44, 10))
            ends.append(end)


def _drawn(path: Trajectory) -> NDArray[np.bool_]:
    """Say which points can be drawn: finite, and so near that the axes can hold them."""
    near: NDArray[np.bool_] = np.all(np.abs(path.points) < FARTHEST, axis=-1)  # False for NaN
    return near


def _say(axes: Axes, words: str, at: ArrayLike, shift: tuple[int, int]) -> None:
    axes.annotate(
        words,
        tuple(np.asarray(at, dtype=np.float64)),
        xytext=shift,
        textcoords="offset points",
        bbox={"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": "none", "alpha": 0.75},
    )


def _view(paths: Sequence[Trajectory], optimum: ArrayLike) -> tuple[float, float, float, float]:
    """Return the usual view, grown to hold every path and the optimum."""
    best, low, high = np.asarray(optimum, dtype=np.float64), np.array(VIEW[::2]), np.array(VIEW[1::2])
    groups = [path.points[_drawn(path)] for path in paths] or [(low + high)[np.newaxis] / 2]
    if np.any((best < low) | (best > high)):
        groups.append(best[np.newaxis])
    points = np.concatenate(groups)
    (left, bottom), (right, top) = points.min(axis=0), points.max(axis=0)
    grow = 0.08 * max(right - left, top - bottom)
    return (
        min(VIEW[0], left - grow),
        max(VIEW[1], right + grow),
        min(VIEW[2], bottom - grow),
        max(VIEW[3], top + grow),
    )


def _values(path: Trajectory, fun: Surface) -> Array:
    return path.values if path.values is not None else values_along(fun, path.points, "fun")


def _sentence(path: Trajectory, fun: Surface) -> str:
    name = path.label or "The path"
    lost = int(np.sum(~_drawn(path)))
    gap = f" {lost} {'point is' if lost == 1 else 'points are'} not finite and not drawn." if lost else ""
    return (
        f"{name}: {path.steps} steps from {_place(path.start)} to {_place(path.end)}, "
        f"f = {_values(path, fun)[-1]:.1e}.{gap}"
    )


def _place(point: ArrayLike) -> str:
    return "(" + ", ".join(f"{entry:.4g}" for entry in np.asarray(point, dtype=np.float64)) + ")"


def _require_some(paths: Sequence[Trajectory]) -> None:
    if not 1 <= len(paths) <= len(LINE_COLOURS):
        raise ValueError(f"A picture shows 1 to {len(LINE_COLOURS)} paths; got {len(paths)}.")


def _require_no_value_below_0(values: Array) -> None:
    little = 1e-12 * np.max(np.abs(values[np.isfinite(values)]), initial=0.0)  # what rounding leaves of a zero
    if np.any(values < -little):
        raise ValueError(
            f"A logarithmic scale needs values above the minimum, and the lowest is {np.nanmin(values):.3g}: "
            "subtract the function's minimum from the values first."
        )


def _require_plane_paths(paths: Sequence[Trajectory]) -> None:
    _require_some(paths)
    for path in paths:
        if path.points.ndim != 2 or path.points.shape[1] != 2:
            raise ValueError(f"The surface shows paths in two variables; got points of shape {path.points.shape}.")
        if not _drawn(path)[0]:
            raise ValueError("The path starts at a point that is not finite: there is nothing to draw.")
