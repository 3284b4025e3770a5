"""A figure that describes itself: one style, one palette, alt text, and words that a test can compare.

A :class:`Picture` holds a matplotlib figure and one sentence that says what is to be seen. In a notebook it shows

* the figure as PNG, with the sentence as its alt text,
* the same sentence, printed under it,
* and as text/plain a **description**: title, axes, and for each line its colour, its first and last point, its
  extent, some points on the way and the length that is drawn. PNG bytes change with every matplotlib version; the
  description does not, so strict nbval compares it.

Figures are made without pyplot: no global state, nothing to close, safe beside figures of your own.
"""

from __future__ import annotations

import io
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.colors import to_hex
from matplotlib.contour import ContourSet
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch
from numpy.typing import NDArray

# Okabe and Ito, "Color universal design" (2008): told apart by readers with any kind of colour vision.
PALETTE = {
    "blue": "#0072b2",
    "vermilion": "#d55e00",
    "green": "#009e73",
    "purple": "#cc79a7",
    "sky": "#56b4e9",
    "orange": "#e69f00",
    "black": "#1a1a1a",
    "grey": "#6e6e6e",
}
LINE_COLOURS = [PALETTE[name] for name in ("blue", "vermilion", "green", "purple", "sky", "orange")]
LINE_STYLES = ["-", (0, (5, 1.5)), (0, (1, 1)), (0, (5, 1, 1, 1)), (0, (8, 2)), (0, (2, 2))]

STYLE: dict[str, Any] = {
    "font.size": 14,
    "font.family": "DejaVu Sans",
    "axes.titlesize": 15,
    "axes.labelsize": 14,
    "xtick.labelsize": 14,
    "ytick.labelsize": 14,
    "legend.fontsize": 14,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "lines.linewidth": 2.2,
    "legend.frameon": False,
    "figure.dpi": 100,
    "savefig.dpi": 100,
}


LINE = 100  # characters of a line under a picture: it must not break within a word
WHOLE_FIGURE = {"savefig.bbox": None, "savefig.dpi": "figure", "savefig.transparent": False}
"""Settings under which a saved figure is as large as it was made, whatever the reader's own are."""

styled = mpl.rc_context(STYLE)  # type: ignore[arg-type]
"""Decorator: what a function draws has the course's style."""


class Picture:
    """A figure with a sentence that says what is to be seen.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
        The figure.
    summary : str
        One sentence with the numbers: the alt text, and the line printed under the figure.

    Raises
    ------
    ValueError
        If ``summary`` is empty: a picture without words is lost on a reader who cannot see it.

    Examples
    --------
    >>> figure = new_figure()
    >>> _ = figure.axes[0].plot([0, 1], [2, 3], label="a line")
    >>> print(Picture(figure, "A line rises.").describe())
    Picture: A line rises.
    axes 1: x linear 0 to 1, y linear 2 to 3
      line 'a line' #1f77b4 -: n 2, first (0, 2), last (1, 3), x 0 to 1, y 2 to 3, mean (0.5, 2.5)
    """

    def __init__(self, figure: Figure, summary: str) -> None:
        if not summary.strip():
            raise ValueError("summary is empty: say in one sentence what the picture shows.")
        self.figure = figure
        self.summary = summary

    def __repr__(self) -> str:
        return f"Picture({self.summary!r})"

    def describe(self) -> str:
        """Return the description that nbval compares."""
        lines = [f"Picture: {self.summary}"]
        lines.extend(f"text {text.get_text()!r}" for text in self.figure.texts)
        for number, axes in enumerate(self.figure.axes, start=1):
            lines.append(f"axes {number}: {_axes_line(axes)}")
            lines.extend(f"  {line}" for line in _contents(axes))
        return "\n".join(lines)

    def png(self) -> bytes:
        """Return the figure as PNG; the same figure gives the same bytes."""
        if self.figure.get_layout_engine() is not None:  # it would move the axes a little with every draw
            self.figure.draw_without_rendering()
            self.figure.set_layout_engine("none")
        buffer = io.BytesIO()
        with mpl.rc_context(WHOLE_FIGURE):  # type: ignore[arg-type]
            self.figure.savefig(buffer, format="png", metadata={"Software": None}, pil_kwargs={"compress_level": 9})
        return buffer.getvalue()

    def save(self, path: str | Path) -> None:
        """Write the figure to a file, with its sentence inside; the ending of the name decides the format."""
        field = {".pdf": "Subject", ".svg": "Description", ".png": "Description"}.get(Path(path).suffix.lower())
        with mpl.rc_context(WHOLE_FIGURE):  # type: ignore[arg-type]
            self.figure.savefig(path, metadata={field: self.summary} if field else None)

    def bundle(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the figure and its description as a notebook shows them, by MIME type, and their metadata."""
        bundle = {"image/png": self.png(), "text/plain": self.describe()}
        return bundle, {"image/png": {"alt": self.summary, "software": f"matplotlib {mpl.__version__}"}}

    def _ipython_display_(self) -> None:
        from IPython.display import display

        bundle, metadata = self.bundle()
        display(bundle, metadata=metadata, raw=True)  # type: ignore[no-untyped-call]
        print(textwrap.fill(self.summary, LINE, break_long_words=False, break_on_hyphens=False))


@styled
def new_figure(columns: int = 1, *, width: float = 8.0, height: float = 5.4, **subplots: Any) -> Figure:
    """Return a figure in the course's style, with ``columns`` axes side by side, outside pyplot."""
    figure = Figure(figsize=(width, height), layout="constrained")
    figure.subplots(1, columns, **subplots)
    return figure


def _axes_line(axes: Axes) -> str:
    title = f"title {axes.get_title()!r}, " if axes.get_title() else ""
    if not axes.axison:
        return f"{title}no axis".strip()
    x, y = axes.xaxis, axes.yaxis
    return title + ", ".join(
        f"{name}{f' {axis.get_label_text()!r}' if axis.get_label_text() else ''} "
        f"{axis.get_scale()} {_number(low)} to {_number(high)}"
        for name, axis, (low, high) in (("x", x, _data_limits(axes, 0)), ("y", y, _data_limits(axes, 1)))
    )


def _data_limits(axes: Axes, which: int) -> tuple[float, float]:
    """Return the axis limits, or the data's own where matplotlib still chooses (its margins differ by version)."""
    chosen = axes.get_autoscalex_on() if which == 0 else axes.get_autoscaley_on()
    low, high = axes.dataLim.get_points()[:, which] if chosen else (axes.get_xlim(), axes.get_ylim())[which]
    return float(low), float(high)


def _contents(axes: Axes) -> Iterator[str]:
    for collection in axes.collections:
        if isinstance(collection, ContourSet):
            contours: Any = collection  # matplotlib's stubs know neither its colours nor its limits
            levels = " ".join(_number(level) for level in np.asarray(collection.levels))
            kind = "filled contours" if collection.filled else "contours"
            colour = contours.get_cmap().name if contours.colors is None else to_hex(contours.get_edgecolor()[0])
            yield f"{kind} {colour}: levels {levels}, data {_number(contours.zmin)} to {_number(contours.zmax)}"
        elif isinstance(collection, PathCollection):
            x, y = _columns(collection.get_offsets())
            yield f"marks {_name(collection)} {_colours(collection)}: {_points(axes, x, y)}"
        else:
            x, y = _columns(np.concatenate([path.vertices for path in collection.get_paths()]))
            kind = "lines" if isinstance(collection, LineCollection) else "area"
            where = f"{_extent('x', x)}, {_extent('y', y)}, {_length(axes, x, y)}"
            yield f"{kind} {_name(collection)} {_colours(collection)}: {where}"
    for image in axes.images:
        yield f"image: {_spread(image.get_array())}"
    for line in axes.lines:
        x, y = (np.asarray(data, dtype=float) for data in line.get_data(orig=False))
        marks = line.get_marker()
        drawn = _dash(line) if marks in ("None", None, "") else f"{_dash(line)} marker {marks}"
        yield f"line {_name(line)} {to_hex(line.get_color())} {drawn}: {_points(axes, x, y)}"
    for patch in axes.patches:
        yield f"shape {_name(patch)} {to_hex(patch.get_facecolor())}{_size(patch)}"
    for text in axes.texts:
        if text.get_text():
            yield f"text {text.get_text()!r}{_place(text)}"
        elif text.get_gid():
            yield f"arrow {text.get_gid()}"
    legend = axes.get_legend()
    if legend is not None:
        yield "legend: " + ", ".join(repr(entry.get_text()) for entry in legend.get_texts())


def _colours(collection: Any) -> str:
    """Name the first colour; where a colour map chooses, the values instead (the colours are known after a draw)."""
    if collection.get_array() is not None:
        return f"{collection.get_cmap().name} {_spread(collection.get_array())}"
    filled = collection.get_facecolor()
    return str(to_hex((filled if len(filled) else collection.get_edgecolor())[0]))


def _columns(points: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    x, y = np.ma.filled(np.ma.asarray(points, dtype=float), np.nan).T
    return x, y


def _spread(values: Any) -> str:
    values = np.ma.filled(np.ma.asarray(values, dtype=float), np.nan)
    return f"{'x'.join(map(str, values.shape))} values, {_extent('from', values)}, mean {_mean(values)}"


def _size(patch: Any) -> str:
    if isinstance(patch, FancyArrowPatch):  # its outline is known after a draw
        return ""
    x, y = patch.get_patch_transform().transform_path(patch.get_path()).vertices.T
    return f": {_extent('x', x)}, {_extent('y', y)}"


def _dash(line: Any) -> str:
    style = line.get_linestyle()
    if style in ("None", " ", ""):
        return "no line"
    dashes = line._unscaled_dash_pattern[1]
    return "-" if dashes is None else "dashes " + "/".join(f"{part:g}" for part in dashes)


def _name(artist: Any) -> str:
    label = str(artist.get_label())
    return repr(label) if label and not label.startswith("_") else "unnamed"


def _place(text: Any) -> str:
    x, y = getattr(text, "xy", text.get_position())
    return f" at ({_number(x)}, {_number(y)})"


def _points(axes: Axes, x: NDArray[Any], y: NDArray[Any]) -> str:
    if len(x) == 0:
        return "empty"
    words = (
        f"n {len(x)}, first ({_number(x[0])}, {_number(y[0])}), last ({_number(x[-1])}, {_number(y[-1])}), "
        f"{_extent('x', x)}, {_extent('y', y)}, mean ({_mean(x)}, {_mean(y)})"
    )
    if len(x) < 3:
        return words
    inner = ", ".join(f"({_number(x[i])}, {_number(y[i])})" for i in (len(x) // 4, len(x) // 2, 3 * len(x) // 4))
    return f"{words}, on the way {inner}, {_length(axes, x, y)}"


def _length(axes: Axes, x: NDArray[Any], y: NDArray[Any]) -> str:
    """Say how long the drawn line is, as seen on the axes' scales: a point that moves anywhere changes it."""
    steps = [np.diff(_scaled(axis, values)) for axis, values in ((axes.xaxis, x), (axes.yaxis, y))]
    lengths = np.hypot(*steps)
    return f"length {lengths[np.isfinite(lengths)].sum():.4g}"


def _scaled(axis: Any, values: NDArray[Any]) -> NDArray[Any]:
    with np.errstate(divide="ignore", invalid="ignore"):
        scaled: NDArray[Any] = np.log10(values) if axis.get_scale() == "log" else values
    return scaled


def _extent(name: str, values: NDArray[Any]) -> str:
    finite = values[np.isfinite(values)]
    return f"{name} {_number(finite.min())} to {_number(finite.max())}" if finite.size else f"{name} not finite"


def _mean(values: NDArray[Any]) -> str:
    finite = values[np.isfinite(values)]
    return _number(finite.mean()) if finite.size else "nan"


def _number(value: float) -> str:
    """Write 3 digits. What rounding errors leave of a zero is written as 0."""
    return "0" if abs(value) < 1e-12 else f"{value:.3g}"


def sentence_list(words: Sequence[str]) -> str:
    """Join words as a sentence does: "a, b and c"."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else list(words))
