"""Compare a gradient with finite differences, at x and near it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np

from ..differences import Slope
from .guess import Seen, guess
from .probes import (
    LOOSE,
    STEPS,
    Method,
    Probe,
    central,
    complex_step,
    entries,
    entry,
    finer,
    line,
    near_point,
    precision,
    require_complex_step,
    sizes,
    small_direction,
)
from .probes import (
    directions as random_directions,
)
from .problem import Array, Function, Problem
from .report import Report, Verdict, Words, below, counted, number

MOST_ENTRIES = 2000
ROWS = 10
NOISY = {8: 1e-6, 4: 1e-4}
TOLERANCE = {8: 1e-5, 4: 1e-3}


@dataclass(frozen=True, eq=False)
class Comparison:
    """A gradient and finite differences at one point, entry by entry (or direction by direction).

    Attributes
    ----------
    where : str
        "at x" or "near x".
    point : array
        The point, flat.
    names : tuple of str
        How the entries are written.
    got, expected, error : arrays
        What the gradient gives, what finite differences give, and how far these may be off.
    wrong : array of bool
        Where the two differ by more than that, and more than the tolerance.
    """

    where: str
    point: Array
    names: tuple[str, ...]
    got: Array
    expected: Array
    error: Array
    wrong: Array

    @property
    def worst(self) -> int:
        """The entry where the two differ most, for the size of its error and of the gradient."""
        gap = np.abs(self.got - self.expected) / (self.error + 1e-3 * np.maximum(abs(self.got), abs(self.expected)))
        return int(np.argmax(np.nan_to_num(np.where(self.wrong, 1e9 + gap, gap), nan=-1.0)))


@dataclass(frozen=True, repr=False, eq=False)
class GradientCheck(Report):
    """What :func:`check_gradient` found; true if the gradient is right.

    Attributes
    ----------
    verdict, sentence, notes
        See :class:`Report`.
    guess : str or None
        The kind of the fault, if one fits.
    method : str
        What the gradient was compared with.
    comparisons : tuple of Comparison
        At x and near it.
    shown : Comparison
        The one of them that the table shows: the first that decides.
    """

    guess: str | None
    method: str
    comparisons: tuple[Comparison, ...]
    shown: Comparison

    def _table(self) -> Words:
        shown = self.shown
        rows = [(f"{shown.where}", "got", "expected", "error below", "")]
        order = np.lexsort((np.arange(len(shown.got)), ~shown.wrong))[:ROWS]
        for k in sorted(order) if len(shown.got) <= ROWS else order:
            error = float(shown.error[k])
            hidden = error / 1e3 if np.isfinite(error) else 0.0
            got, expected = number(float(shown.got[k]), hidden), number(float(shown.expected[k]), error)
            rows.append((shown.names[k], got, expected, below(error), "wrong" if shown.wrong[k] else ""))
        if len(shown.got) > ROWS:
            rows.append((f"and {len(shown.got) - ROWS} more", "", "", "", ""))
        return rows


def check_gradient(
    fun: Function,
    grad: Function | bool | None,
    x: Any,
    *,
    directions: int | None = None,
    method: Method = "central",
    step: float | None = None,
    near: float = 0.1,
    rtol: float | None = None,
    seed: int = 0,
) -> GradientCheck:
    """Say whether a gradient is right, at x and at a random point near it.

    Near it, too, because at an optimum every gradient is zero, a wrong one as well. The expected value is a central
    difference with the best of several steps, and its error is estimated from the next step, from rounding, and from
    how exactly ``fun`` turns out to be computed.

    Parameters
    ----------
    fun : callable, x -> one number
        The function, in NumPy or in torch.
    grad : callable, None or True
        Its gradient, in NumPy or in torch. None: the gradient of autograd is checked, and ``fun`` must be torch code.
        True: ``fun`` returns (value, gradient).
    x : array_like or tensor of float64 or float32, or a tuple of several
        Where to check. A tuple holds several arguments; the gradient is then a tuple, too.
    directions : int, optional
        Look along so many random directions, instead of at every entry. Needed from 2000 entries on.
    method : {"central", "complex"}
        "complex" takes a complex step: exact to rounding, for NumPy functions that compute with complex numbers.
    step : float, optional
        One step for the central differences, in units of about 1 + |x|, instead of the best of several.
    near : float
        How far away the second point is, in units of 1 + |x|; nearer if ``fun`` cannot be computed there. 0: only at x.
    rtol : float, optional
        What relative difference is still right; by default 1e-5, and 1e-3 in float32.
    seed : int
        Of the random directions and of the point near x.

    Returns
    -------
    GradientCheck
        True if the gradient is right. It is neither right nor wrong if the differences are too inexact to tell.

    Raises
    ------
    TypeError, ValueError
        If an argument does not fit; if ``fun`` returns no single finite number or ``grad`` not the shape of x; if one
        of them is noisy (see :func:`check_noisy_gradient`); or if the method does not fit ``fun``.

    Examples
    --------
    >>> check_gradient(lambda x: x @ x, lambda x: 2 * x, np.array([1.0, 2.0]))
    The gradient is right: all 2 entries agree with central differences, at x and near x.
      at x  got  expected  error below
      x[0]    2         2        1e-12
      x[1]    4         4        1e-12
    """
    if method not in get_args(Method):
        raise ValueError(f"method must be 'central' or 'complex'; got {method!r}.")
    for name, given, good in (("near", near, near >= 0), ("step", step, step is None or step > 0)):
        if not good:
            raise ValueError(f"{name} must not be negative, and step not 0; got {given}.")
    problem = Problem(fun, grad, x)
    rng = np.random.default_rng(seed)
    many = problem.x.size > MOST_ENTRIES
    if directions is None and many:
        raise ValueError(f"x has {problem.x.size} entries, too many to try them all: pass directions=10, say.")
    points = _points(problem, near, rng)
    looks = [_look(problem, where, point, directions, method, step, rng) for where, point in points]
    return _judge(problem, looks, method, rtol, full=directions is None, asked_near=near > 0)


def _points(problem: Problem, near: float, rng: np.random.Generator) -> list[tuple[str, Array]]:
    value = problem.value(problem.x)
    if not np.isfinite(value):
        raise ValueError(f"fun is {value} at x. Check at a point where it is defined.")
    points = [("at x", problem.x)]
    if near and (point := near_point(problem, problem.x, near, rng)) is not None:
        points.append(("near x", point))
    for _, point in points:
        _require_no_noise(problem, point)
    return points


def _require_no_noise(problem: Problem, point: Array) -> None:
    """Refuse what differs between two calls. Less than that is found by its precision."""
    limit = NOISY[min(problem.x.dtype.itemsize, 8)]
    cure = (
        "A difference would measure the noise. Check the functions without noise, or use check_noisy_gradient, which "
        "tests the mean."
    )
    one, two = float(problem.value(point)), float(problem.value(point))
    if abs(one - two) > limit * max(abs(one), abs(two)):
        raise ValueError(f"fun is noisy: two calls with the same x gave {one:.6g} and {two:.6g}. {cure}")
    first, second = problem.gradient(point), problem.gradient(point)
    gap = np.abs(first - second)
    if np.any(gap > limit * max(np.max(np.abs(first)), np.max(np.abs(second)))):
        k = int(np.argmax(gap))
        raise ValueError(
            f"The gradient is noisy: two calls with the same x gave {first[k]:.6g} and {second[k]:.6g} for "
            f"{problem.name(k)}. {cure}"
        )


def _look(
    problem: Problem,
    where: str,
    point: Array,
    count: int | None,
    method: Method,
    step: float | None,
    rng: np.random.Generator,
) -> Comparison:
    """Take all differences at one point; nothing is judged yet."""
    test = small_direction(point, rng)
    with np.errstate(all="ignore"):
        eps = precision(line(problem, point, test))
    if method == "complex":
        require_complex_step(problem, point, test)
    probes = entries(problem, point) if count is None else random_directions(point, count, rng)
    gradient = problem.gradient(point).astype(np.float64)
    got = [gradient @ probe.direction / probe.size for probe in probes]
    found = [
        _difference(problem, point, probe, method, step, eps, float(one))
        for probe, one in zip(probes, got, strict=True)
    ]
    value, error = (np.array([float(getattr(slope, name)) for slope in found]) for name in ("value", "error"))
    names = tuple(probe.name for probe in probes)
    return Comparison(where, point, names, np.array(got), value, error, np.zeros(len(probes), dtype=bool))


def _difference(
    problem: Problem, point: Array, probe: Probe, method: Method, step: float | None, eps: float, got: float
) -> Slope:
    """Return the derivative along a probe, for one unit of its entry; ``got`` is what the gradient says."""
    if method == "complex":
        value = complex_step(problem, point, probe.direction)
        return Slope(np.asarray(value / probe.size), np.asarray(4 * eps * abs(value / probe.size)))
    steps = STEPS[min(point.dtype.itemsize, 8)]
    slope = central(line(problem, point, probe.direction), eps, step, steps)
    k = probe.entry
    if k is not None and point[k] and abs(point[k]) < 1 and not slope.error <= LOOSE * abs(slope.value):
        # The step may be too large for a small entry, such as 1e-6 within a logarithm.
        smaller = Probe(probe.name, probe.direction * point.dtype.type(abs(point[k])), k)
        other = central(line(problem, point, smaller.direction), eps, step, steps)
        if other.error / smaller.size < slope.error / probe.size:
            slope, probe = other, smaller
    if step is None and point.dtype.itemsize >= 8:
        slope = finer(line(problem, point, probe.direction), slope, got * probe.size)
    return Slope(slope.value / probe.size, slope.error / probe.size)


def _judge(
    problem: Problem,
    looks: Sequence[Comparison],
    method: Method,
    rtol: float | None,
    *,
    full: bool,
    asked_near: bool,
) -> GradientCheck:
    itemsize = min(problem.x.dtype.itemsize, 8)
    tolerance = TOLERANCE[itemsize] if rtol is None else rtol
    finite = [np.where(np.abs(one.expected) > 2 * one.error, np.abs(one.expected), 0) for one in looks]
    scale = max(float(np.max(np.maximum(f, abs(one.got)))) for f, one in zip(finite, looks, strict=True))
    notes: list[str] = []
    comparisons, unsure = [], []
    for one in looks:
        size = np.maximum(np.abs(one.got), np.abs(one.expected))
        own = _scale_of_entries(looks, one, scale) if full else scale
        allowed = tolerance * size + 2 * one.error + 100 * np.finfo(problem.x.dtype).eps * own
        wrong = np.abs(one.got - one.expected) > allowed
        loose = ~(one.error <= LOOSE * np.maximum(size, 1e-3 * own)) & ~wrong
        if full:
            for k in np.flatnonzero(wrong | loose):
                if kink := _kink(problem, one, int(k)):
                    wrong[k] = loose[k] = False
                    notes.append(kink)
        comparisons.append(Comparison(one.where, one.point, one.names, one.got, one.expected, one.error, wrong))
        unsure.append(loose)
    at_optimum = _is_zero(comparisons[0], scale, tolerance)
    if at_optimum and scale:
        notes.append("At x the gradient is zero, and there a wrong gradient can be zero too: only near x can it show.")
    if asked_near and len(looks) == 1:
        notes.append("fun cannot be computed near x, so the check was made at x only.")
    verdict, sentence = _verdict(comparisons, unsure, scale, method, full, only_zero=at_optimum and len(looks) == 1)
    told = None
    if verdict == "wrong":
        seen = [Seen(c.point, c.got, c.expected, c.error, c.wrong) for c in comparisons if np.any(c.wrong)]
        told = guess(problem, seen, entries=full)
        notes.insert(0, f"A guess: {told}") if told else None
    decides = [np.any(c.wrong) for c in comparisons] if verdict == "wrong" else [np.any(loose) for loose in unsure]
    first = next((c for c, yes in zip(comparisons, decides, strict=True) if yes), comparisons[-at_optimum])
    return GradientCheck(verdict, sentence, tuple(notes), told, method, tuple(comparisons), first)


def _scale_of_entries(looks: Sequence[Comparison], one: Comparison, scale: float) -> Array:
    """Return what counts as large for each entry: what moves fun as much as the entry that moves it most.

    An entry of x that is 1e16 times as large as another has a gradient that is 1e16 times as small.
    """
    most = max(float(np.max(np.abs(look.got) * sizes(look.point.astype(np.float64)))) for look in looks)
    return np.minimum(scale, most / sizes(one.point.astype(np.float64)))


def _is_zero(one: Comparison, scale: float, tolerance: float) -> bool:
    zero = np.abs(one.got) + np.abs(one.expected) <= 1e-2 * tolerance * scale + 2 * one.error
    return bool(np.all(zero & np.isfinite(one.error)))


def _kink(problem: Problem, one: Comparison, k: int) -> str | None:
    """Return a sentence if the function has a kink at the point and the gradient lies between its two slopes."""
    probe = entry(problem, one.point, k)
    along = line(problem, one.point, probe.direction)
    sides = []
    try:
        with np.errstate(all="ignore"):
            for h in STEPS[8][2:4]:
                sides.append([(float(along(h)) - float(along(0.0))) / h, (float(along(0.0)) - float(along(-h))) / h])
    except (ArithmeticError, ValueError):
        return None
    (right, left), (nearer_right, nearer_left) = np.array(sides) / probe.size
    jump, nearer = abs(right - left), abs(nearer_right - nearer_left)
    large = 1e-2 * max(abs(right), abs(left))
    low, high = sorted((nearer_right, nearer_left))
    if nearer > large and nearer > 0.8 * jump and low - 0.01 * jump <= one.got[k] <= high + 0.01 * jump:
        return (
            f"{one.names[k]} stands on a kink {one.where}: the slope is {number(nearer_left, large)} on one side and "
            f"{number(nearer_right, large)} on the other, and the gradient {number(float(one.got[k]))} is one of many "
            "that fit."
        )
    return None


def _verdict(
    comparisons: Sequence[Comparison],
    unsure: Sequence[Array],
    scale: float,
    method: str,
    full: bool,
    only_zero: bool,
) -> tuple[Verdict, str]:
    what = ("entry", "entries") if full else ("random direction", "random directions")
    differences = "central differences" if method == "central" else "complex steps"
    for one in comparisons:
        if bad := int(np.sum(one.wrong)):
            k, total = one.worst, len(one.got)
            many = f"{bad} of {counted(total, *what)}" if total > 1 else f"its only {what[0]}"
            return "wrong", (
                f"The gradient is wrong at {many}, {one.where}. Worst is {one.names[k]}: got "
                f"{number(float(one.got[k]))}, expected {number(float(one.expected[k]), float(one.error[k]))}."
            )
    if only_zero:
        return "undecided", "Not decided: the gradient is zero at x, and a wrong one can be zero there, too."
    if not scale and all(np.all(np.abs(c.expected) <= 2 * c.error) for c in comparisons):
        return "undecided", "Not decided: fun does not change around x, so there is nothing to compare."
    for one, loose in zip(comparisons, unsure, strict=True):
        if np.any(loose):
            names = [one.names[k] for k in np.flatnonzero(loose)]
            told = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
            return "undecided", (
                f"Not decided: the differences for {told} are too inexact {one.where}. Is fun computed exactly, "
                "smooth, and defined on both sides of x? Otherwise choose another x, or step=."
            )
    where = " and ".join(one.where for one in comparisons)
    total = len(comparisons[0].got)
    many = f"all {total} {what[1]} agree" if total > 1 else f"its only {what[0]} agrees"
    return "right", f"The gradient is right: {many} with {differences}, {where}."
