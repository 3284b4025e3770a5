"""Central differences along a line, with several steps, and how far the best of them may be off."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

STEPS = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6)
ROUNDING = 4  # how many units in the last place a value may be off
Array = npt.NDArray[Any]


class Slope(NamedTuple):
    """A derivative along a line, and how far it may be off; both of the shape of the function's value."""

    value: Array
    error: Array


def slopes(along: Callable[[float], Any], steps: Sequence[float] = STEPS, eps: float | None = None) -> list[Slope]:
    """Return central differences at 0 of a function of one number, one for each step; ``error`` is rounding alone.

    The difference of step h is (along(h) - along(-h)) / 2h. A step that leads out of where the function is defined
    (it raises ArithmeticError or ValueError, or is not finite there) is left out.

    Parameters
    ----------
    along : function of a float
        Returns a number or an array, always of the same shape.
    steps : sequence of floats
        From large to small.
    eps : float, optional
        The distance from 1 to the next number, in the precision in which ``along`` computes; by default that of the
        dtype in which it answers.

    Examples
    --------
    >>> [round(float(slope.value), 9) for slope in slopes(lambda t: (2 + t) ** 3, steps=(0.1, 0.01, 0.001))]
    [12.01, 12.0001, 12.000001]
    """
    found = []
    for h in steps:
        try:
            after, before = np.asarray(along(h)), np.asarray(along(-h))
        except (ArithmeticError, ValueError):
            continue
        if np.all(np.isfinite(after)) and np.all(np.isfinite(before)):
            own = np.finfo(np.result_type(after, np.float16)).eps if eps is None else eps
            rounding = ROUNDING * own * (np.abs(after) + np.abs(before)) / (2 * h)
            found.append(Slope((after - before) / (2 * h), rounding))
    return found


def best(found: Sequence[Slope]) -> Slope:
    """Return, entry by entry, the slope that the one with the next step confirms best, and how far it may be off.

    Of fewer than two slopes nothing can be said: the value is NaN, the error infinite.

    Examples
    --------
    >>> value, error = best(slopes(lambda t: np.array([np.exp(t), 3 * t])))
    >>> bool(np.all(np.abs(value - [1, 3]) <= error)), bool(np.all(error < 1e-8))
    (True, True)
    """
    if len(found) < 2:
        shape = found[0].value.shape if found else ()
        return Slope(np.full(shape, np.nan), np.full(shape, np.inf))
    pairs = list(itertools.pairwise([*found, found[-2]]))
    errors = np.stack([np.abs(one.value - two.value) + one.error for one, two in pairs])
    values = np.stack([one.value for one, _ in pairs])
    chosen = np.argmin(errors, axis=0)[None]
    value, error = (np.take_along_axis(table, chosen, axis=0)[0] for table in (values, errors))
    return Slope(cast(Array, value), cast(Array, error))
