"""Pictures of a check: how far finite differences are off, step by step.

They draw what :mod:`helpers.checking` measured, and measure nothing themselves. They return a
:class:`~helpers.picture.Picture`.
"""

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from .checking import StepSizeCurve
from .checking.report import below
from .picture import LINE_STYLES, PALETTE, Picture, new_figure, sentence_list, styled

COLOURS = {"forward": PALETTE["blue"], "central": PALETTE["vermilion"], "complex": PALETTE["green"]}
MARKERS = {"forward": "o", "central": "s", "complex": "^"}
MOST = 3


@styled
def step_sizes(*curves: StepSizeCurve, title: str = "How far a difference is off") -> Picture:
    """Show the error of finite differences against the step h, with the best steps marked.

    Each method has its colour and its mark, each curve its line style. An error below the precision of the numbers
    is drawn at that precision: what lies below it is chance.

    Parameters
    ----------
    *curves : StepSizeCurve
        One to three, from ``step_size_curve``. Several must differ in their dtype, which tells them apart.
    title : str
        The title.

    Returns
    -------
    Picture

    Raises
    ------
    ValueError
        If there is no curve, if there are more than three, or if two have the same dtype.

    Examples
    --------
    >>> from helpers import step_size_curve
    >>> curve = step_size_curve(lambda x: x @ x, lambda x: 2 * x, [1.0, 2.0], methods=["forward"], steps=[1e-1, 1e-2])
    >>> step_sizes(curve).summary
    'Relative error of differences, best step and error. float64: forward 1e-02 with an error below 1e-2.'
    """
    dtypes = [str(curve.dtype) for curve in curves]
    if not 1 <= len(curves) <= MOST:
        raise ValueError(f"A picture shows 1 to {MOST} curves; got {len(curves)}.")
    if len(set(dtypes)) < len(dtypes):
        raise ValueError(f"Several curves are told apart by their dtype, and these have {', '.join(dtypes)}.")
    figure = new_figure(width=10.0)
    axes = figure.axes[0]
    for curve, style in zip(curves, LINE_STYLES, strict=False):
        for method in curve.errors:
            _draw(axes, curve, method, style, f"{method}, {curve.dtype}" if len(curves) > 1 else method)
    axes.set(xscale="log", yscale="log", xlabel="step h", ylabel="relative error", title=title)
    axes.grid(alpha=0.3)
    figure.legend(loc="outside right upper", handlelength=3.5)  # long enough to show the dashes
    told = " ".join(_sentence(curve) for curve in curves)
    return Picture(figure, f"Relative error of differences, best step and error. {told}")


def _draw(axes: Axes, curve: StepSizeCurve, method: str, style: Any, label: str) -> None:
    errors = np.maximum(curve.errors[method], np.finfo(curve.dtype).eps)
    axes.plot(
        curve.steps,
        errors,
        color=COLOURS[method],
        linestyle=style,
        marker=MARKERS[method],
        markersize=6,
        markevery=4,
        label=label,
    )
    if curve.rule(method) is None:  # every small step is as good
        return
    k = int(np.nanargmin(errors))
    axes.plot(
        curve.steps[k],
        errors[k],
        color=COLOURS[method],
        marker=MARKERS[method],
        markersize=13,
        markeredgecolor="black",
        linestyle="none",
    )


def _sentence(curve: StepSizeCurve) -> str:
    words = []
    for method in curve.errors:
        step, error = curve.best(method)
        told = below(max(error, float(np.finfo(curve.dtype).eps)))
        where = "any small step" if curve.rule(method) is None else f"{step:.0e}"
        words.append(f"{method} {where} with an error below {told}")
    return f"{curve.dtype}: {sentence_list(words)}."
