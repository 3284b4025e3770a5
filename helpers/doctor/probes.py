"""What the gradient should be: finite differences of the patient along single entries or random directions."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from .. import differences
from .inputs import Array, draw, keep_form, moved

COARSE_STEPS = (3e-1, 1e-1, 3e-2, 1e-2, 3e-3, 1e-3)  # for functions in single precision
FULL = 64  # numbers in the inputs, up to which each is moved by itself
SOME = 8  # of more numbers, how many are moved by themselves
RANDOM = 4  # and how many random directions there are for each input
Value = Callable[[Sequence[Array]], Array]


@dataclass(frozen=True)
class Probe:
    """A direction in which one input moves; ``entry`` if it is a single number of it (``imaginary``: that part)."""

    which: int
    direction: Array
    entry: tuple[int, ...] | None = None
    imaginary: bool = False


@dataclass(frozen=True)
class Slopes:
    """Finite differences of all outputs along each probe at one point, with how far they may be off.

    ``values`` and ``errors`` have one row for each probe. ``tried`` holds, for each probe, the slopes by every step.
    """

    points: list[Array]
    probes: list[Probe]
    values: Array
    errors: Array
    tried: list[Array]
    complete: bool

    def expected(self, g: Array) -> tuple[Array, Array]:
        """Return the derivative of Re <g, outputs> along each probe, and how far it may be off."""
        weights = np.abs(g.real) + np.abs(g.imag)
        used = weights > 0  # an output that nobody weighs may be anything
        return np.real(self.values[:, used] @ np.conj(g[used])), self.errors[:, used] @ weights[used]

    def nearest(self, g: Array, got: Array) -> Array:
        """Return, for each probe, the smallest distance of a number to the slopes by any of the steps."""
        return np.array(
            [
                np.min(np.abs(np.real(tried[:, g != 0] @ np.conj(g[g != 0])) - number), initial=np.inf)
                for tried, number in zip(self.tried, got, strict=True)
            ]
        )

    def got(self, gradients: Sequence[Array]) -> Array:
        """Return what some gradients say of the derivative along each probe."""
        return np.array([np.sum(np.real(np.conj(gradients[probe.which]) * probe.direction)) for probe in self.probes])

    def jacobian(self, which: int) -> Array:
        """Return the Jacobian of all outputs by one input, (outputs, entries), scaled back to its units."""
        rows = [k for k, probe in enumerate(self.probes) if probe.which == which and not probe.imaginary]
        sizes = [np.abs(self.probes[k].direction).max() for k in rows]
        return np.stack([self.values[k] / size for k, size in zip(rows, sizes, strict=True)], axis=-1)


def directions(
    points: Sequence[Array], rng: np.random.Generator, most: int = FULL, some: int = SOME, random: int = RANDOM
) -> tuple[list[Probe], bool]:
    """Return probes for all inputs, and whether each number is moved by itself."""
    size = sum(x.size * (2 if np.iscomplexobj(x) else 1) for x in points)
    complete = size <= most
    probes = []
    for which, x in enumerate(points):
        if not x.size:
            continue
        units = scales(x)
        chosen = np.arange(x.size) if complete else rng.choice(x.size, min(x.size, some), replace=False)
        for place in chosen:
            entry = tuple(int(i) for i in np.unravel_index(place, x.shape))
            for imaginary in [False, True] if np.iscomplexobj(x) else [False]:
                direction = np.zeros_like(x)
                direction[entry] = units[entry] * (1j if imaginary else 1)
                probes.append(Probe(which, direction, entry, imaginary))
        if not complete:
            probes += [Probe(which, units * draw(x, rng)) for _ in range(random)]
    return probes, complete


def formed(points: Sequence[Array], rng: np.random.Generator) -> list[Probe]:
    """Return random directions that keep symmetric matrices symmetric and sums of 1 unchanged."""
    return [
        Probe(which, keep_form(x, np.max(scales(x)) * draw(x, rng)))
        for which, x in enumerate(points)
        for _ in range(RANDOM if x.size else 0)
    ]


def scales(x: Array) -> Array:
    """Return the unit in which each number of an input is moved."""
    largest = float(np.max(np.abs(x), initial=0.0)) or 1.0
    return np.asarray(np.maximum(np.abs(x), 1e-2 * largest))


def slopes(
    value: Value,
    points: Sequence[Array],
    probes: list[Probe],
    complete: bool,
    eps: float,
    seconds: float = np.inf,
    steps: Sequence[float] | None = None,
) -> Slopes:
    """Return the slopes along all probes; where time is over, nothing is known: NaN, with an infinite error."""
    steps = steps or (COARSE_STEPS if eps > 1e-10 else differences.STEPS)
    centre = value(points)
    end = time.monotonic() + seconds
    rows, errors, tried = [], [], []
    for probe in probes:
        found = [] if time.monotonic() > end else _along(value, points, probe, centre, steps, eps)
        slope = (
            differences.best(found)
            if len(found) > 1
            else differences.Slope(centre * np.nan, np.full(centre.shape, np.inf))
        )
        rows.append(slope.value)
        errors.append(slope.error)
        tried.append(np.array([each.value for each in found]).reshape(len(found), *centre.shape))
    shape = (len(probes), *centre.shape)
    return Slopes(list(points), probes, np.reshape(rows, shape), np.reshape(errors, shape), tried, complete)


def _along(
    value: Value, points: Sequence[Array], probe: Probe, centre: Array, steps: Sequence[float], eps: float
) -> list[differences.Slope]:
    seen: dict[float, Array] = {}

    def along(h: float) -> Array:
        direction = [probe.direction if k == probe.which else np.zeros_like(x) for k, x in enumerate(points)]
        try:
            seen[h] = value(moved(points, h, direction))
        except Exception as error:  # the step leads out of where the function is defined
            raise ValueError from error
        if seen[h].shape != centre.shape:
            raise ValueError("the number of outputs changes")
        return seen[h]

    found = differences.slopes(along, steps, eps)
    jump = _kink(seen, centre, eps)
    return [differences.Slope(slope.value, slope.error + jump) for slope in found]


def _kink(seen: dict[float, Array], centre: Array, eps: float) -> Array:
    """Return half the jump of the slope at the point itself, 0 where the function is smooth.

    (f(h) - 2 f(0) + f(-h)) / 2h goes to 0 with h for a smooth function, and to half the jump at a kink.
    """
    pairs = [h for h in sorted(seen) if h > 0 and -h in seen]
    if len(pairs) < 3:
        return np.zeros(centre.shape)
    halves = {h: np.abs(seen[h] - 2 * centre + seen[-h]) / (2 * h) for h in pairs}
    small, large = pairs[1], pairs[-1]
    rounding = 8 * eps * (np.abs(centre) + np.abs(seen[small])) / small
    there = (halves[small] > 0.3 * halves[large]) & (halves[small] > 10 * rounding)
    return np.where(there, halves[small], 0.0)
