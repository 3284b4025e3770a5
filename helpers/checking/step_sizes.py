"""How far a finite difference is off, step by step: the V-shaped curve, and its best step."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .probes import Along, complex_step, line, require_complex_step
from .problem import Array, Function, Problem
from .report import Report, Words, below, number

RULES = {"forward": ("eps^(1/2)", 1 / 2), "central": ("eps^(1/3)", 1 / 3)}
METHODS = ("forward", "central", "complex")
RIGHT = {8: 1e-6, 4: 1e-2}


@dataclass(frozen=True, repr=False, eq=False)
class StepSizeCurve(Report):
    """What :func:`step_size_curve` found; true if some step brings a difference to the derivative.

    Attributes
    ----------
    verdict, sentence, notes
        See :class:`Report`.
    dtype : numpy.dtype
        In which the function was computed.
    derivative : float
        The derivative along the direction, as the gradient gives it.
    steps : array
        The steps, from large to small.
    errors : mapping, method -> array
        The relative error of each step; NaN where the function could not be computed.
    """

    dtype: np.dtype[Any]
    derivative: float
    steps: Array
    errors: Mapping[str, Array]

    def best(self, method: str) -> tuple[float, float]:
        """Return the best step of a method and its relative error; of equally good ones the largest step."""
        k = int(np.nanargmin(self.errors[method]))
        return float(self.steps[k]), float(self.errors[method][k])

    def rule(self, method: str) -> float | None:
        """Return the step that theory advises, for a function and a point of size 1; None for "complex"."""
        return float(np.finfo(self.dtype).eps) ** RULES[method][1] if method in RULES else None

    def _table(self) -> Words:
        rows = [("differences", "best step", "its error below", "theory's step", "")]
        for method in self.errors:
            step, error = self.best(method)
            rule = self.rule(method)
            error_told = below(max(error, float(np.finfo(self.dtype).eps)))
            if rule is None:
                rows.append((method, "any small one", error_told, "", ""))
            else:
                rows.append((method, f"{step:.1e}", error_told, f"{rule:.1e}", RULES[method][0]))
        return rows


def step_size_curve(
    fun: Function,
    grad: Function | bool | None,
    x: Any,
    *,
    direction: npt.ArrayLike | None = None,
    methods: Sequence[str] | None = None,
    steps: npt.ArrayLike | None = None,
    seed: int = 0,
) -> StepSizeCurve:
    """Measure how far differences along one direction are off, for many steps h.

    A large step errs because the function bends, a small one because the computer rounds: the error of a difference
    draws a V. Theory puts its bottom near eps^(1/2) for forward and eps^(1/3) for central differences, where eps is
    the distance from 1 to the next number. A complex step subtracts nothing, so it has no rising branch.

    Parameters
    ----------
    fun, grad, x
        As in :func:`check_gradient`. Everything is computed in the dtype of ``x``, if ``fun`` keeps it; only ``grad``
        is asked in float64, where it takes that.
    direction : array_like, optional
        Along which to look; by default a random one of length 1.
    methods : sequence of {"forward", "central", "complex"}, optional
        By default all that fit ``fun``.
    steps : array_like, optional
        The steps, above 0; by default two for each power of 10, from 1 down to eps.
    seed : int
        Of the random direction.

    Returns
    -------
    StepSizeCurve
        True if the smallest error is small, as it is only when the gradient is right.
        ``curves.step_sizes`` draws it.

    Raises
    ------
    TypeError, ValueError
        If an argument does not fit, if "complex" is asked for and does not fit ``fun``, or if the derivative along
        the direction is 0, so that there is no relative error.

    Examples
    --------
    >>> curve = step_size_curve(lambda x: x @ x * x[0], lambda x: x @ x * np.array([1.0, 0]) + 2 * x[0] * x, [1.0, 2.0])
    >>> step, error = curve.best("central")
    >>> bool(curve), 1e-7 < step < 1e-4, error < 1e-9
    (True, True, True)
    """
    problem = Problem(fun, grad, x)
    unknown = set(methods or ()) - set(METHODS)
    if unknown:
        raise ValueError(f"methods must be among {', '.join(map(repr, METHODS))}; got {sorted(map(repr, unknown))}.")
    eps = float(np.finfo(problem.x.dtype).eps)
    hs = (
        10.0 ** np.arange(0, np.log10(eps), -0.5)
        if steps is None
        else np.sort(np.atleast_1d(steps).astype(float))[::-1]
    )
    if hs.size == 0 or not np.all((hs > 0) & np.isfinite(hs)):
        raise ValueError("steps must be finite numbers above 0.")
    along = _direction(problem, direction, np.random.default_rng(seed))
    chosen = _methods(problem, along, methods)
    derivative = _derivative(problem, along)
    errors = {
        method: np.array([_error(method, problem, along, h, derivative) for h in hs.tolist()]) for method in chosen
    }
    if all(np.all(np.isnan(one)) for one in errors.values()):
        raise ValueError("fun cannot be computed around x with any of the steps. Choose another x or smaller steps.")
    errors = {method: one for method, one in errors.items() if not np.all(np.isnan(one))}
    return _judge(problem.x.dtype, derivative, hs, errors)


def _judge(dtype: np.dtype[Any], derivative: float, steps: Array, errors: dict[str, Array]) -> StepSizeCurve:
    smallest = {method: max(float(np.nanmin(one)), float(np.finfo(dtype).eps)) for method, one in errors.items()}
    if all(error > RIGHT[min(dtype.itemsize, 8)] for error in smallest.values()):
        told = ", ".join(f"{method} {number(error, error / 10)}" for method, error in smallest.items())
        sentence = (
            f"No step brings a difference to the gradient, in {dtype}. Relative error at the best step: {told}. The "
            "gradient is wrong, or fun is noisy or inexact."
        )
        return StepSizeCurve("wrong", sentence, (), dtype, derivative, steps, errors)
    told = ", ".join(f"{method} {below(error)}" for method, error in smallest.items())
    sentence = f"Differences come close to the gradient, in {dtype}. Relative error at the best step, below: {told}."
    return StepSizeCurve("right", sentence, (), dtype, derivative, steps, errors)


def _direction(problem: Problem, given: npt.ArrayLike | None, rng: np.random.Generator) -> Array:
    if given is None:
        drawn = rng.standard_normal(problem.x.shape)
        return (drawn / np.linalg.norm(drawn)).astype(problem.x.dtype)
    direction = np.asarray(given, dtype=problem.x.dtype)
    if direction.size != problem.x.size or not np.any(direction) or not np.all(np.isfinite(direction)):
        raise ValueError(f"direction must have {problem.x.size} finite entries as x has, not all 0.")
    return direction.ravel()


def _methods(problem: Problem, direction: Array, asked: Sequence[str] | None) -> list[str]:
    chosen = list(METHODS if asked is None else dict.fromkeys(asked))
    if "complex" in chosen:
        try:
            require_complex_step(problem, problem.x, direction)
        except ValueError:
            if asked is not None:
                raise
            chosen.remove("complex")
    return chosen


def _derivative(problem: Problem, direction: Array) -> float:
    """Return what the gradient says, in float64 where it takes that."""
    try:
        gradient = problem.in_double().gradient(problem.x.astype(np.float64))
    except (TypeError, RuntimeError):  # such as a torch module with float32 weights
        gradient = problem.gradient(problem.x)
    terms = gradient.astype(np.float64) * direction.astype(np.float64)
    derivative = float(np.sum(terms))
    if abs(derivative) <= 1e-8 * float(np.sum(np.abs(terms))) or derivative == 0:
        raise ValueError(
            "The derivative along the direction is 0 at x, so there is no relative error. Choose another x, such as "
            "one that is not an optimum, or another direction."
        )
    return derivative


def _error(method: str, problem: Problem, direction: Array, h: float, derivative: float) -> float:
    along = line(problem, problem.x, direction)
    try:
        with np.errstate(all="ignore"):
            return abs(_difference(method, problem, along, direction, h) - derivative) / abs(derivative)
    except (ArithmeticError, ValueError):
        return float("nan")


def _difference(method: str, problem: Problem, along: Along, direction: Array, h: float) -> float:
    if method == "complex":
        return complex_step(problem, problem.x, direction, h)
    behind = 0.0 if method == "forward" else -h
    after, before = along(h), along(behind)
    return float(np.subtract(after, before)) / (h - behind)
