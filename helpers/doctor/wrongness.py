"""Compare the patient's gradient with what it should be, and guess the kind of the fault."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .inputs import Array
from .probes import Probe, Slopes

RELATIVE = 1e-4  # of the size of the derivative: a difference below it is not called wrong
NEAREST = 1e-3  # of a rough function: no step of finite differences may come nearer to the gradient than this, relative
ROUGH = 1e-7  # relative error of the differences, from which on a function is called rough
SAFETY = 10
NEGLIGIBLE = 1e-5  # of the largest derivative: a difference below it comes from a solver's tolerance


@dataclass(frozen=True)
class Comparison:
    """A gradient beside finite differences along the same probes; ``bad`` marks those that disagree."""

    slopes: Slopes
    got: Array
    expected: Array
    error: Array
    bad: Array

    @property
    def right(self) -> bool:
        """Whether none disagrees."""
        return not self.bad.any()

    @property
    def known(self) -> bool:
        """Whether finite differences could tell anything."""
        size = np.max(np.abs(self.expected), initial=0, where=np.isfinite(self.expected))
        return bool(np.any(np.isfinite(self.error) & (self.error <= 0.05 * np.abs(self.expected) + 1e-6 * size + 1e-9)))

    @property
    def worst(self) -> int:
        """The probe that disagrees most."""
        off = np.where(self.bad, np.abs(self.got - self.expected), -1)
        return int(np.argmax(off))

    @property
    def silent(self) -> bool:
        """Whether both are zero along all probes."""
        return bool(
            np.all(np.abs(self.got) <= 1e-9 + self.error) and np.all(np.abs(self.expected) <= 1e-7 + self.error)
        )


def compare(slopes: Slopes, g: Array, gradients: Sequence[Array], relative: float = RELATIVE) -> Comparison:
    """Return the comparison of gradients, for the upstream gradient g of all outputs."""
    got = slopes.got(gradients)
    expected, error = slopes.expected(g)
    size = np.max(np.abs(expected), initial=0.0, where=np.isfinite(expected))
    bigger = np.maximum(np.abs(got), np.abs(expected))
    apart = np.abs(got - expected)
    bad = apart > relative * bigger + SAFETY * error + NEGLIGIBLE * size
    near = np.where(error > ROUGH * bigger, max(NEAREST, relative), relative)
    bad &= slopes.nearest(g, got) > near * bigger
    bad |= ~np.isfinite(got) & np.isfinite(expected) & np.isfinite(error)
    return Comparison(slopes, got, expected, error, np.asarray(bad & np.isfinite(expected)))


def entry_name(probe: Probe, names: Sequence[str]) -> str:
    """Return how a user would write the entry, such as ``theta[0, 1]``."""
    name = names[probe.which]
    if probe.entry is None:
        return f"along a random direction of {name}"
    inside = ", ".join(map(str, probe.entry))
    return f"{name}[{inside}]" if inside else name


def guess(comparisons: Sequence[Comparison], values: Sequence[Array]) -> str:
    """Return a guess at the kind of a fault, from comparisons at several points; empty if none fits."""
    if factor := _constant_factor(comparisons):
        return factor
    if chain := _chain_factor(comparisons, values):
        return chain
    first = comparisons[0]
    count, bad = len(first.bad), int(first.bad.sum())
    if all(np.allclose(c.got[c.bad], 0) for c in comparisons):
        return "the terms of these entries are missing" if bad < count else "the gradient is zero"
    if term := _missing_term(comparisons):
        return term
    return f"{bad} of {count} probes are off, the others are right" if bad < count else ""


def _constant_factor(comparisons: Sequence[Comparison]) -> str:
    found = np.concatenate([ratios(c) for c in comparisons])
    if not len(found) or not np.allclose(found, found[0], rtol=1e-3):
        return ""
    partly = "" if all(c.bad[np.abs(c.expected) > 1e-9].all() for c in comparisons) else " in these entries"
    ratio = found[0]
    if abs(ratio + 1) < 1e-3:
        return f"the sign is flipped{partly}"
    for whole in (2, 3, 4, *{c.slopes.points[p.which].size for c in comparisons for p in c.slopes.probes}):
        if abs(ratio - whole) < 1e-3 * whole:
            return f"a factor {whole} too large{partly}"
        if abs(ratio * whole - 1) < 1e-3:
            return f"a factor {whole} too small{partly}"
        if abs(ratio + whole) < 1e-3 * whole or abs(ratio * whole + 1) < 1e-3:
            return f"the sign is flipped{partly}, and a factor {whole} is wrong"
    return f"a constant factor {ratio:.4g} is too much{partly}"


def ratios(comparison: Comparison) -> Array:
    """Return got / expected where they disagree and both are not zero."""
    with np.errstate(all="ignore"):
        every = comparison.got / comparison.expected
    found = every[comparison.bad & np.isfinite(every) & (np.abs(comparison.expected) > 1e-9)]
    return np.asarray(found[np.abs(found) > 1e-9])


FACTORS: dict[str, Callable[[Any, Any], Any]] = {
    "x": lambda x, y: x,
    "2x": lambda x, y: 2 * x,
    "x^2": lambda x, y: x**2,
    "3x^2": lambda x, y: 3 * x**2,
    "cos(x)": lambda x, y: np.cos(x),
    "-sin(x)": lambda x, y: -np.sin(x),
    "exp(x)": lambda x, y: np.exp(x),
    "1/x": lambda x, y: 1 / x,
    "y": lambda x, y: y,
    "2y": lambda x, y: 2 * y,
    "1/y": lambda x, y: 1 / y,
    "y (1 - y)": lambda x, y: y * (1 - y),
    "1 - y^2": lambda x, y: 1 - y**2,
}


def _chain_factor(comparisons: Sequence[Comparison], values: Sequence[Array]) -> str:
    """Return which inner derivative has been left out, if the ratio is one at all entries of all points."""
    for name, factor in FACTORS.items():
        fits, seen = True, 0
        for comparison, y in zip(comparisons, values, strict=True):
            for k in np.flatnonzero(comparison.bad):
                probe = comparison.slopes.probes[k]
                x = comparison.slopes.points[probe.which]
                if probe.entry is None or abs(comparison.got[k]) < 1e-12:
                    fits = False
                    break
                with np.errstate(all="ignore"):
                    own = y.reshape(x.shape)[probe.entry] if y.size == x.size else y.reshape(-1)[0]
                    ratio = np.real(factor(x[probe.entry], own))
                    fits &= abs(ratio) > 1e-9 and abs(ratio - 1) > 1e-9
                    fits &= bool(np.isclose(comparison.expected[k] / comparison.got[k], ratio, rtol=1e-3))
                seen += 1
        if fits and seen > 1:
            return f"the chain factor {name} is missing"
    return ""


def _missing_term(comparisons: Sequence[Comparison]) -> str:
    """Return that a term is missing, if the difference is the same at all points."""
    if len(comparisons) < 2 or any(len(c.got) != len(comparisons[0].got) for c in comparisons):
        return ""
    units = [np.array([np.abs(p.direction).max() for p in c.slopes.probes]) for c in comparisons]
    apart = [(c.expected - c.got) / unit for c, unit in zip(comparisons, units, strict=True)]
    if all(np.allclose(each, apart[0], rtol=1e-3, atol=1e-9) for each in apart[1:]):
        return "a constant term is missing: the difference is the same at every point"
    return ""
