"""Compare the derivatives of an op with finite differences, along one random direction."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .arguments import Layout
from .arrays import Array
from .errors import WrongDerivative
from .evaluation import Evaluation

if TYPE_CHECKING:
    from .external import ExternalFunction

STEPS = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6)
SHIFTS = (0.1, 0.01, 0.001, 0.0)
TOLERANCE = 1e-4


def check_derivatives(
    op: "ExternalFunction", layout: Layout, arrays: Sequence[Array], real: Sequence[int], axes: tuple[bool, ...]
) -> str:
    """Return a verdict on all derivatives that the op was given.

    They are compared near the given point, not at it: at an optimum a wrong gradient is zero too. If the function
    cannot be computed there, we go nearer. Central differences are taken with several steps, and the best counts.

    Raises
    ------
    WrongDerivative
        If one of them does not agree with finite differences.
    """
    rng = np.random.default_rng(0)
    at = _Line(op, layout, arrays, real, axes, rng)
    evaluation = at.solve(0.0)
    gs = [rng.standard_normal(y.shape) for y in evaluation.outputs]
    gradient = evaluation.derivative("vjp", axes, gs)
    found = {op._called("adjoint"): _inner(gradient, at.direction)}
    slope = at.slope(lambda where: _inner(gs, where.outputs))
    if op._offers("tangent"):
        found[op._called("tangent")] = _inner(gs, evaluation.derivative("jvp", axes, at.direction))
    verdicts = [_verdict(op, role, got, slope) for role, got in found.items()]
    if op._offers("hvp"):
        weights = [rng.standard_normal(x.shape) for x in at.direction]
        product = _inner(weights, evaluation.derivative("hvp", axes, gs, at.direction))
        bend = at.slope(lambda where: _inner(weights, where.derivative("vjp", axes, gs)))
        verdicts.append(_verdict(op, "hvp", product, bend))
    return "\n".join(verdicts)


class _Line:
    """The function along a random direction through a point near the given one."""

    def __init__(
        self,
        op: "ExternalFunction",
        layout: Layout,
        arrays: Sequence[Array],
        real: Sequence[int],
        axes: tuple[bool, ...],
        rng: np.random.Generator,
    ) -> None:
        self.op, self.layout, self.real, self.axes = op, layout, real, axes
        inputs = [np.asarray(arrays[index], np.float64) for index in real]
        self.sizes = [1 + np.abs(x) for x in inputs]
        self.direction = [rng.standard_normal(x.shape) * size for x, size in zip(inputs, self.sizes, strict=True)]
        away = [rng.standard_normal(x.shape) * size for x, size in zip(inputs, self.sizes, strict=True)]
        self.arrays = list(arrays)
        for shift in SHIFTS:
            self.point = [x + shift * step for x, step in zip(inputs, away, strict=True)]
            if shift == 0 or self._can_be_computed():
                break

    def solve(self, distance: float) -> Evaluation:
        """Return the evaluation at a distance along the direction."""
        for index, x, t in zip(self.real, self.point, self.direction, strict=True):
            moved = x + distance * t
            moved.flags.writeable = False
            self.arrays[index] = moved
        return Evaluation(self.op, self.layout, list(self.arrays), self.real, self.axes)

    def slope(self, number: Callable[[Evaluation], float]) -> list[float]:
        """Return central differences of a number, with each of the steps."""
        slopes = []
        for h in STEPS:
            try:
                slopes.append((number(self.solve(h)) - number(self.solve(-h))) / (2 * h))
            except (ArithmeticError, ValueError):  # the step leads out of where the function is defined
                continue
        return slopes

    def _can_be_computed(self) -> bool:
        try:
            with np.errstate(all="ignore"):
                return all(
                    bool(np.all(np.isfinite(y))) for h in (0.0, STEPS[1], -STEPS[1]) for y in self.solve(h).outputs
                )
        except Exception:  # whatever the solver raises outside its domain
            return False


def _verdict(op: "ExternalFunction", role: str, got: float, slopes: Sequence[float]) -> str:
    numbers = [slope for slope in slopes if np.isfinite(slope)]
    if not numbers or not np.isfinite(got):
        raise WrongDerivative(
            f"{op.label}: its {role} could not be compared with finite differences: it gave {got}, and finite "
            f"differences gave {list(slopes)}. Check at another point."
        )
    best = min(numbers, key=lambda slope: abs(slope - got))
    size = max(abs(got), abs(best))
    difference = abs(got - best) / size if size else 0.0
    if difference > TOLERANCE and abs(got - best) > 1e-9:
        raise WrongDerivative(
            f"{op.label}: its {role} does not agree with finite differences. Along a random direction near x it gives "
            f"{got:.6g}, and finite differences give {best:.6g}. If the function is noisy, give the noiseless one and "
            "noise=; otherwise mend the derivative."
        )
    return f"{op.label}: its {role} agrees with finite differences: {got:.6g} and {best:.6g}."


def _inner(left: Sequence[Any], right: Sequence[Any]) -> float:
    return float(sum(np.sum(a * b) for a, b in zip(left, right, strict=True)))
