"""Test whether a noisy gradient is right on average."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from .probes import Probe, entries
from .probes import directions as random_directions
from .problem import Array, Function, Problem, to_array
from .report import Report, Verdict, Words, counted

MOST_ENTRIES = 30
ROWS = 10
FAULT = 0.1  # the relative fault that a test should be able to see
POWER = 0.8  # how often it should see it
HALVED = 1.5  # how much more than the change from a step to its half the step may be off
SHARED = 6.0  # how many standard errors a correlation must be away from 0


@dataclass(frozen=True, eq=False)
class Means:
    """Means over many draws at one point, entry by entry (or direction by direction).

    Attributes
    ----------
    where : str
        "at x" or "near x".
    point : array
        The point, flat.
    names : tuple of str
        How the entries are written.
    got, got_error : arrays
        The mean of the gradient, and its standard error.
    expected, expected_error : arrays
        What it should be, and its standard error: 0 if it is given exactly.
    bend : array
        How far the differences may be off because fun bends within a step; 0 if exact.
    t : array
        The difference over its standard error, after ``bend`` is taken off.
    limit : array
        Beyond this, |t| is not chance, at the stated confidence for all entries together.
    needed : array
        How many draws would show a fault of a tenth.
    """

    where: str
    point: Array
    names: tuple[str, ...]
    got: Array
    got_error: Array
    expected: Array
    expected_error: Array
    bend: Array
    t: Array
    limit: Array
    needed: Array

    @property
    def wrong(self) -> Array:
        """Where the mean of the gradient is wrong."""
        return np.abs(self.t) > self.limit


@dataclass(frozen=True, repr=False, eq=False)
class NoisyGradientCheck(Report):
    """What :func:`check_noisy_gradient` found; true if the mean is right and the test could have seen a fault.

    Attributes
    ----------
    verdict, sentence, notes
        See :class:`Report`.
    samples : int
        How many draws.
    confidence : float
        How often a right gradient passes, all entries together.
    correlation : float or None
        Of value and gradient from one evaluation: near 1 or -1 if they share a draw, near 0 if not; None if one of them
        has no noise, or if they get a generator.
    means : tuple of Means
        At x and near it.
    shown : Means
        The one of them that the table shows: the first that decides.
    """

    samples: int
    confidence: float
    correlation: float | None
    means: tuple[Means, ...]
    shown: Means

    def _table(self) -> Words:
        m = self.shown
        rows: list[tuple[str, ...]] = [
            (m.where, "mean", "std. error", "expected", "std. error", "t", "|t| allowed", "")
        ]
        order = np.lexsort((np.arange(len(m.got)), ~m.wrong))[:ROWS]
        for k in sorted(order) if len(m.got) <= ROWS else order:
            rounding = 1e-9 * max(abs(m.got[k]), abs(m.expected[k]))
            numbers = [m.got[k], m.got_error[k], m.expected[k], m.expected_error[k]]
            told = [f"{0.0 if abs(one) <= rounding else one:.3g}" for one in numbers]
            t = f"{round(m.t[k], 2) + 0.0:.2f}"  # no -0.00
            rows.append((m.names[k], *told, t, f"{m.limit[k]:.2f}", "wrong" if m.wrong[k] else ""))
        if len(m.got) > ROWS:
            rows.append((f"and {len(m.got) - ROWS} more", *[""] * 7))
        return rows


def check_noisy_gradient(
    fun: Function,
    grad: Function | bool | None,
    x: Any,
    *,
    exact: Any = None,
    samples: int = 1000,
    confidence: float = 0.99,
    rng: int | np.random.Generator | None = None,
    directions: int | None = None,
    step: float = 0.1,
    near: float = 0.1,
    seed: int = 0,
) -> NoisyGradientCheck:
    """Say whether a noisy gradient is right on average, at x and at a random point near it.

    The mean of many gradients is compared with ``exact``, or with differences of many values. A t test says whether
    they differ by more than chance. Its limit is Bonferroni's: a right gradient passes with the stated confidence, all
    entries and both points together.

    Parameters
    ----------
    fun, grad, x
        As in :func:`check_gradient`; both are noisy. They draw inside, or get a generator (see ``rng``).
    exact : callable or array, optional
        The gradient without noise: a function of x, or its value at x (then only x is looked at).
    samples : int
        How many draws of each value and gradient, 10 or more.
    confidence : float, between 0 and 1
        How often a right gradient passes.
    rng : int or numpy.random.Generator, optional
        If given, ``fun(x, rng)`` and ``grad(x, rng)`` are called with a generator, and both ends of a difference get
        the same draw, which makes it much sharper. For functions that draw inside leave it out.
    directions : int, optional
        Look along so many random directions, instead of at every entry. Needed from 30 entries on without ``exact``.
    step : float
        Of the differences, in units of about 1 + |x|. A small step makes the noise large, a large one leads far away.
    near : float
        How far away the second point is, in units of 1 + |x|. 0: only at x.
    seed : int
        Of the random directions and of the point near x.

    Returns
    -------
    NoisyGradientCheck
        True if no fault was seen and one of a tenth would have been, in four of five tests. If the noise is too large
        for that, it is undecided and says how many samples are needed.

    Raises
    ------
    TypeError, ValueError
        If an argument does not fit, if nothing is noisy, or if a value or a gradient is not finite.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> f = lambda x: (x @ x) * rng.uniform(0.5, 1.5)
    >>> check_noisy_gradient(f, lambda x: 2 * x * rng.uniform(0.5, 1.5), [1.0, 2.0], exact=lambda x: 2 * x).verdict
    'right'
    >>> check_noisy_gradient(f, lambda x: 3 * x * rng.uniform(0.5, 1.5), [1.0, 2.0]).verdict
    'wrong'
    """
    if samples < 10:
        raise ValueError(f"samples must be 10 or more, for a mean and its standard error; got {samples}.")
    for name, good, wanted in (
        ("confidence", 0 < confidence < 1, "between 0 and 1"),
        ("step", 0 < step < np.inf, "above 0"),
        ("near", 0 <= near < np.inf, "0 or more"),
    ):
        if not good:
            raise ValueError(f"{name} must lie {wanted}.")
    draws = None if rng is None else np.random.default_rng(rng)
    problem = Problem(fun, grad, x, () if draws is None else (np.random.default_rng(0),))
    sampler = _Sampler(problem, samples, draws)
    places = np.random.default_rng(seed)
    if directions is None and exact is None and problem.x.size > MOST_ENTRIES:
        raise ValueError(
            f"x has {problem.x.size} entries, too many to draw differences for each: pass directions=10, say, or "
            "exact=."
        )
    points = [("at x", problem.x)]
    if near and (exact is None or callable(exact)):
        away = (1 + np.abs(problem.x)) * places.standard_normal(problem.x.shape)
        points.append(("near x", (problem.x + near * away).astype(problem.x.dtype)))
    looks = []
    for where, point in points:
        probes = entries(problem, point) if directions is None else random_directions(point, directions, places)
        looks.append(_look(sampler, where, point, probes, exact, step))
    if not any(look.noisy for look in looks):
        raise ValueError("Neither fun nor grad is noisy here: use check_gradient, which is much sharper.")
    if exact is None:
        chance = (1 - confidence) / sum(len(look.names) for look in looks)
        looks = [_with_half_steps(sampler, look, _test(look, samples, chance).wrong, step) for look in looks]
    return _judge(looks, samples, confidence, seeded=draws is not None)


class _Sampler:
    """Draws values and gradients; with a generator each draw can be had again."""

    def __init__(self, problem: Problem, samples: int, rng: np.random.Generator | None) -> None:
        self.problem, self.samples, self._rng = problem, samples, rng

    def extras(self) -> Iterator[Callable[[], tuple[Any, ...]]]:
        """Return, for each sample, what gives the arguments of one draw again and again."""
        for _ in range(self.samples):
            if self._rng is None:
                yield tuple
            else:
                yield partial(_generator, int(self._rng.integers(2**63)))

    def both(self, point: Array) -> tuple[Array, Array]:
        """Return values of shape (samples,) and gradients of shape (samples, n)."""
        pairs = [self._pair(point, extra) for extra in self.extras()]
        return np.array([float(v) for v, _ in pairs]), np.array([g for _, g in pairs], dtype=np.float64)

    def _pair(self, point: Array, extra: Callable[[], tuple[Any, ...]]) -> tuple[Any, Array]:
        if callable(self.problem.grad):
            return self.problem.value(point, *extra()), self.problem.gradient(point, *extra())
        return self.problem.both(point, *extra())

    def differences(self, point: Array, probe: Probe, step: float) -> tuple[Array, Array]:
        """Return differences of order 4, one for each sample, and for each the part that the order 2 would lack."""
        h = step
        ends = [(point + point.dtype.type(k * h) * probe.direction) for k in (-2, -1, 1, 2)]
        refusal = f"fun is not finite within two steps of {2 * step:g} around x. Pass a smaller step=, or exact=."
        try:
            values = np.array([[float(self.problem.value(end, *extra())) for end in ends] for extra in self.extras()])
        except (ArithmeticError, ValueError) as error:
            raise ValueError(f"{refusal} It said: {error}") from error
        if not np.all(np.isfinite(values)):
            raise ValueError(refusal)
        far, close = (values[:, 3] - values[:, 0]) / (4 * h), (values[:, 2] - values[:, 1]) / (2 * h)
        return (4 * close - far) / 3 / probe.size, (close - far) / 3 / probe.size


def _generator(seed: int) -> tuple[np.random.Generator]:
    return (np.random.default_rng(seed),)


class _Look(NamedTuple):
    where: str
    point: Array
    names: tuple[str, ...]
    got: Array  # (samples, probes)
    expected: Array  # (samples, probes), or (probes,) if exact
    bend: Array  # (probes,)
    values: Array  # (samples,)
    probes: Sequence[Probe]

    @property
    def noisy(self) -> bool:
        spread = (
            np.ptp(self.got, axis=0),
            np.ptp(self.expected, axis=0) if self.expected.ndim == 2 else 0,
            np.ptp(self.values),
        )
        return any(np.any(one > 0) for one in spread)


def _look(sampler: _Sampler, where: str, point: Array, probes: Sequence[Probe], exact: Any, step: float) -> _Look:
    values, gradients = sampler.both(point)
    if not np.all(np.isfinite(values)):
        raise ValueError(f"fun is not finite in some of its draws, {where}. Check where it is defined.")
    table = np.stack([probe.direction / probe.size for probe in probes], axis=1).astype(np.float64)
    names = tuple(probe.name for probe in probes)
    if exact is not None:
        given = exact(*sampler.problem._arguments(point, False)) if callable(exact) else exact
        flat = np.concatenate([to_array(part).ravel() for part in (given if isinstance(given, tuple) else (given,))])
        if flat.shape != point.shape or not np.all(np.isfinite(flat)):
            raise ValueError(f"exact must give a finite gradient with the shape of x; got shape {np.shape(given)}.")
        return _Look(where, point, names, gradients @ table, flat @ table, np.zeros(len(probes)), values, probes)
    found = [sampler.differences(point, probe, step) for probe in probes]
    expected = np.stack([one for one, _ in found], axis=1)
    bend = np.abs(np.mean([part for _, part in found], axis=1))
    return _Look(where, point, names, gradients @ table, expected, bend, values, probes)


def _with_half_steps(sampler: _Sampler, look: _Look, wrong: Array, step: float) -> _Look:
    """Return the look with the change from the step to its half as a bound of bend, for entries that seem wrong."""
    bend = look.bend.copy()
    for k in np.flatnonzero(wrong):
        half, _ = sampler.differences(look.point, look.probes[int(k)], step / 2)
        bend[k] = max(bend[k], HALVED * abs(float(np.mean(look.expected[:, k]) - np.mean(half))))
    return look._replace(bend=bend)


def _judge(looks: Sequence[_Look], samples: int, confidence: float, *, seeded: bool) -> NoisyGradientCheck:
    tests = sum(len(look.names) for look in looks)
    means = [_test(look, samples, (1 - confidence) / tests) for look in looks]
    found = [c for look in looks if (c := _correlation(look)) is not None]
    correlation = found[0] if found and not seeded else None  # what gets the same generator shares its draw anyhow
    notes = []
    if correlation is not None:
        share = abs(correlation) * np.sqrt(samples) > SHARED
        told = "share a draw" if share else "have draws of their own"
        notes.append(f"Value and gradient of one evaluation {told}: their correlation is {correlation:.2f}.")
    wrong = sum(int(np.sum(m.wrong)) for m in means)
    blind = [m for m in means if np.any(m.needed > samples)]
    verdict: Verdict
    if wrong:
        verdict, shown = "wrong", next(m for m in means if np.any(m.wrong))
        k = int(np.argmax(np.abs(shown.t) / shown.limit))
        sentence = (
            f"The mean of the gradient is wrong in {wrong} of {counted(tests, 'test')}. Worst is {shown.names[k]} "
            f"{shown.where}: mean {shown.got[k]:.3g}, expected {shown.expected[k]:.3g}, t = {shown.t[k]:.1f}."
        )
    elif blind:
        verdict, shown = "undecided", blind[0]
        k = int(np.argmax(shown.needed))
        most = max(float(np.max(m.needed)) for m in blind)
        if np.isfinite(shown.needed[k]):
            reason, cure = "the noise is", f"samples={_rounded_up(most)} would show it."
        else:
            reason, cure = "step is", "Pass a smaller step=, and more samples=, or exact=."
        sentence = (
            f"Not decided: no fault was seen, but {reason} so large that a fault of {FAULT:.0%} in "
            f"{shown.names[k]} {shown.where} could hide. {cure}"
        )
    elif not any(np.any(m.got) or np.any(m.expected) for m in means):
        verdict, shown = "undecided", means[0]
        sentence = "Not decided: the gradient is zero at x, and a wrong one can be zero there, too."
    else:
        verdict = "right"
        shown = next(m for m in means if np.any(m.got) or np.any(m.expected))
        where = " and ".join(m.where for m in means)
        sentence = (
            f"The mean of the gradient is right, {where}: {counted(samples, 'draw')}, confidence {confidence:.0%}. A "
            f"fault of {FAULT:.0%} would have been seen."
        )
    return NoisyGradientCheck(verdict, sentence, tuple(notes), samples, confidence, correlation, tuple(means), shown)


def _test(look: _Look, samples: int, chance: float) -> Means:
    """Test each entry with Welch's t test at the given chance of a false alarm."""
    from scipy import stats  # type: ignore[import-untyped]

    got, got_error = np.mean(look.got, axis=0), np.std(look.got, axis=0, ddof=1) / np.sqrt(samples)
    if look.expected.ndim == 2:
        expected = np.mean(look.expected, axis=0)
        expected_error = np.std(look.expected, axis=0, ddof=1) / np.sqrt(samples)
    else:
        expected, expected_error = look.expected, np.zeros_like(look.expected)
    error = np.hypot(got_error, expected_error)
    size = np.maximum(np.abs(got), np.abs(expected))
    scale = float(np.max(size, initial=0.0))
    # Where there is no noise, rounding is left: it counts as an error, too.
    error = np.maximum(error, 1e-9 * np.maximum(size, 1e-3 * scale) + 1e-300)
    split = np.stack([got_error, expected_error]) / error
    freedom = (samples - 1) / np.maximum(np.sum(split**4, axis=0), 1e-12)
    limit = stats.t.ppf(1 - chance / 2, np.maximum(freedom, samples - 1))
    gap = got - expected
    t = np.sign(gap) * np.maximum(np.abs(gap) - look.bend, 0) / error
    seen = FAULT * np.maximum(size, 0.1 * scale) - look.bend
    with np.errstate(divide="ignore"):
        ratio = np.where(seen > 0, (limit + stats.norm.ppf(POWER)) * error / np.maximum(seen, 1e-300), np.inf)
    needed = np.where((scale == 0) | (ratio < 1), 0, samples * ratio**2)
    return Means(
        look.where, look.point, look.names, got, got_error, expected, expected_error, look.bend, t, limit, needed
    )


def _correlation(look: _Look) -> float | None:
    """Return the correlation of the value with the entry of the gradient that follows it most closely."""
    value = look.values - np.mean(look.values)
    gradient = look.got - np.mean(look.got, axis=0)
    sizes = np.linalg.norm(value) * np.linalg.norm(gradient, axis=0)
    moving = sizes > 1e-9 * len(value) * np.max(np.abs(look.values)) * np.max(np.abs(look.got), axis=0)
    if not np.any(moving):
        return None
    found = (value @ gradient)[moving] / sizes[moving]
    return float(found[np.argmax(np.abs(found))])


def _rounded_up(count: float) -> str:
    if not np.isfinite(count):
        return "more, with a smaller step,"
    size = 10 ** max(0, len(str(int(count))) - 2)
    return str(int(np.ceil(count / size) * size))
