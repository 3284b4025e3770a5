"""Directions to look along, points to look from, and the derivative along a direction there."""

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import numpy as np

from ..differences import Slope, best, slopes
from .problem import Array, Problem

Method = Literal["central", "complex"]
Along = Callable[[float], np.generic]

# Powers of 2: x + h is then exact for most x, so that h itself is not rounded.
STEPS = {8: tuple(2.0**-k for k in (7, 10, 13, 17, 20)), 4: tuple(2.0**-k for k in (3, 5, 7, 9, 11))}
FINER = tuple(2.0**-k for k in range(22, 38, 2))
COMPLEX_STEP = 2.0**-66
SHRINK = (1.0, 0.1, 0.01)
LOOSE = 0.05


class Probe(NamedTuple):
    """A direction. ``entry`` is the entry that alone moves, None if all do."""

    name: str
    direction: Array
    entry: int | None

    @property
    def size(self) -> float:
        """How large the entry's move is: the derivative along the direction is that many times the entry's."""
        return 1.0 if self.entry is None else float(self.direction[self.entry])


def sizes(x: Array) -> Array:
    """Return how far each entry moves for one unit of step: about 1 + its size, as a power of 2."""
    moved: Array = np.exp2(np.floor(np.log2(1 + np.abs(x))))
    return moved


def entry(problem: Problem, x: Array, k: int) -> Probe:
    """Return the direction of one entry, about 1 + that entry long."""
    direction = np.zeros_like(x)
    direction[k] = sizes(x[k])
    return Probe(problem.name(k), direction, k)


def entries(problem: Problem, x: Array) -> list[Probe]:
    """Return the directions of all entries."""
    return [entry(problem, x, k) for k in range(x.size)]


def directions(x: Array, count: int, rng: np.random.Generator) -> list[Probe]:
    """Return random directions in which all entries move, each about as far as it is large."""
    size = 1 + np.abs(x)
    drawn = (rng.standard_normal(x.shape) for _ in range(count))
    return [Probe(f"direction {k}", (size * one).astype(x.dtype), None) for k, one in enumerate(drawn)]


def small_direction(x: Array, rng: np.random.Generator) -> Array:
    """Return a random direction in which no entry moves farther than it is large, unless it is 0."""
    size = np.where(x == 0, 1, np.minimum(np.abs(x), 1))
    direction: Array = (size * rng.standard_normal(x.shape)).astype(x.dtype)
    return direction


def line(problem: Problem, point: Array, direction: Array) -> Along:
    """Return the value as a function of how far we are from the point, along the direction."""
    return lambda t: problem.value(point + point.dtype.type(t) * direction)


def near_point(problem: Problem, x: Array, shift: float, rng: np.random.Generator) -> Array | None:
    """Return a point a random step away where the function can be computed all around, None if there is none."""
    away, around = rng.standard_normal((2, *x.shape))
    for relative in (False, True):
        size = np.abs(x) + (not relative)
        for smaller in SHRINK:
            point: Array = (x + smaller * shift * size * away).astype(x.dtype)
            if not np.array_equal(point, x) and _computable(line(problem, point, (size * around).astype(x.dtype))):
                return point
    return None


def _computable(along: Along) -> bool:
    h = STEPS[8][1]
    try:
        with np.errstate(all="ignore"):
            return all(np.isfinite(along(t)) for t in (0.0, h, -h))
    except (ArithmeticError, ValueError):
        return False


def precision(along: Along) -> float:
    """Return how exactly a function is computed, relative to its value: rounding, or a solver that stops early.

    High differences of values that lie close together keep nothing of a smooth function, only its errors. Source:
    J. J. Moré and S. M. Wild, "Estimating computational noise", SIAM J. Sci. Comput. 33 (2011), 1292-1314.

    Examples
    --------
    >>> exact = precision(lambda t: np.exp(1 + t))
    >>> single = precision(lambda t: np.float64(np.exp(np.float32(1 + t))))
    >>> exact < 1e-15 < 1e-9 < single < 1e-6
    True
    """
    order, h = 4, 2.0**-20
    try:
        values = np.array([along(k * h) for k in range(14)])
    except (ArithmeticError, ValueError):  # the line leads out of where the function is defined, as math.log tells it
        return float(np.finfo(np.float64).eps)
    own = float(np.finfo(values.dtype).eps)
    largest = float(np.max(np.abs(values)))
    if not 0 < largest < np.inf:
        return own
    shrink = math.factorial(order) ** 2 / math.factorial(2 * order)
    level = np.sqrt(shrink * np.mean(np.diff(values.astype(np.float64), n=order) ** 2))
    return max(own, float(level) / largest)


def central(along: Along, eps: float, step: float | None, steps: Sequence[float]) -> Slope:
    """Return the central difference with the best step, or with the given one, and how far it may be off."""
    with np.errstate(all="ignore"):
        if step is None:
            return best(slopes(along, steps, eps))
        found = slopes(along, (step, step / 2), eps)
    if len(found) < 2:
        return best(found)
    one, half = found
    return Slope(one.value, np.abs(one.value - half.value) * 4 / 3 + one.error)


def finer(along: Along, coarse: Slope, got: float) -> Slope:
    """Return the slope with much smaller steps if these agree with ``got`` and ``coarse`` is vague, else ``coarse``.

    Where a function swings faster than the steps are long, large steps agree with each other by chance.

    Examples
    --------
    >>> swing = lambda t: np.sin(1e6 * t)
    >>> coarse = Slope(np.asarray(100.0), np.asarray(80.0))
    >>> round(float(finer(swing, coarse, 1e6).value)), round(float(finer(swing, coarse, 2e6).value))
    (1000000, 100)
    """
    if abs(got - coarse.value) <= 2 * coarse.error or coarse.error <= 1e-3 * abs(coarse.value):
        return coarse
    with np.errstate(all="ignore"):
        fine = best(slopes(along, FINER))
    sure = fine.error <= LOOSE * abs(fine.value)
    agrees = abs(got - fine.value) <= 2 * fine.error + 1e-5 * abs(got)
    return fine if sure and agrees else coarse


def complex_step(problem: Problem, point: Array, direction: Array, h: float = COMPLEX_STEP) -> float:
    """Return the derivative along a direction by a complex step.

    Source: W. Squire and G. Trapp, "Using complex variables to estimate derivatives of real functions", SIAM Rev. 40
    (1998), 110-112.

    Raises
    ------
    ValueError
        If the function does not carry the imaginary part of its argument to its result.
    """
    refusal = "method='complex' needs a function that also computes with complex numbers, and this one does not"
    usual = "Look for abs, comparisons, max, .real, float(), a real array that is written to, or compiled code; or take"
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("error", np.exceptions.ComplexWarning)
        try:
            result = np.asarray(problem.complex_value(point + 1j * h * direction))
        except Exception as error:
            told = str(error).rstrip(".")
            raise ValueError(f"{refusal}: {type(error).__name__}: {told}. {usual} method='central'.") from error
    if result.dtype.kind != "c":
        raise ValueError(f"{refusal}: its result is real. {usual} method='central'.")
    return float(result.imag) / h


def require_complex_step(problem: Problem, point: Array, direction: Array) -> None:
    """Refuse a function whose complex step differs from its central difference.

    Raises
    ------
    ValueError
        If they differ, or for torch code; or see :func:`complex_step`.
    """
    if problem.torch:
        raise ValueError("method='complex' is for NumPy functions. Take method='central' for torch code.")
    along = line(problem, point, direction)
    real = central(along, precision(along), None, STEPS[8])
    got = complex_step(problem, point, direction)
    if abs(got - real.value) > 1e-4 * abs(real.value) + 3 * real.error:
        raise ValueError(
            f"method='complex' does not fit this function: along a random direction it gives {got:.6g}, and central "
            f"differences give {real.value:.6g}. Part of the function drops the imaginary part (abs, a norm, .real, "
            "conj) or compares. Take method='central'."
        )
