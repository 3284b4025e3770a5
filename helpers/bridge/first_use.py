"""Compare the derivatives of an op with finite differences, along one random direction."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from .. import differences
from ..differences import STEPS, Slope
from .arguments import Layout
from .arrays import Array, to_array
from .errors import WrongDerivative
from .evaluation import Evaluation

if TYPE_CHECKING:
    from .external import ExternalFunction

SHIFTS = (0.1, 0.01, 0.001)
TOLERANCE = 1e-4


def verify(op: "ExternalFunction", layout: Layout, tensors: Sequence[torch.Tensor], depth: int) -> str:
    """Return a verdict on all derivatives of an op, near the given tensors, in double precision where it takes that.

    ``depth`` is the number of batch axes. Of a batch in a loop, one sample is looked at.
    """
    real = [index for index, tensor in enumerate(tensors) if tensor.is_floating_point()]
    axes = () if op.batch == "loop" else (True,) * depth
    sample = (0,) * depth if op.batch == "loop" else ()
    double = op._numpy_dtype or np.dtype(np.float64)
    arrays = [to_array(tensor, double if tensor.is_floating_point() else None)[sample] for tensor in tensors]
    try:
        return check_derivatives(op, layout, arrays, real, axes)
    except TypeError:  # a solver may take no other dtype than that of the tensors
        if op._numpy_dtype is not None:
            raise
        return check_derivatives(op, layout, [to_array(tensor)[sample] for tensor in tensors], real, axes)


def check_derivatives(
    op: "ExternalFunction", layout: Layout, arrays: Sequence[Array], real: Sequence[int], axes: tuple[bool, ...]
) -> str:
    """Return a verdict on all derivatives that the op was given.

    They are compared near the given point, not at it: at an optimum a wrong gradient is zero too. If the function
    cannot be computed there, we go nearer. Central differences are taken with several steps, and the best counts.

    Raises
    ------
    WrongDerivative
        If one of them does not agree with finite differences, or these do not agree among themselves.
    """
    verdicts = []
    for which in [None] if len(real) == 1 else [None, *range(len(real))]:  # all inputs together, then one by one
        verdicts.append(_check_along(op, layout, arrays, real, axes, which))
    return verdicts[0]


def _check_along(
    op: "ExternalFunction",
    layout: Layout,
    arrays: Sequence[Array],
    real: Sequence[int],
    axes: tuple[bool, ...],
    which: int | None,
) -> str:
    """Return the verdict along a direction in which all inputs move, or only one."""
    rng = np.random.default_rng(0)
    line = _Line(op, layout, arrays, real, axes, rng)
    if which is not None:
        line.direction = [t if k == which else np.zeros_like(t) for k, t in enumerate(line.direction)]
    evaluation = line.solve(0.0)
    gs = [rng.standard_normal(y.shape).astype(y.dtype) for y in evaluation.outputs]
    slopes = line.slopes(lambda where: _inner(gs, where.outputs))
    got = {op._called("adjoint"): _inner(evaluation.derivative("vjp", axes, gs), line.direction)}
    if op._offers("tangent"):
        got[op._called("tangent")] = _inner(gs, evaluation.derivative("jvp", axes, line.direction))
    verdicts = [_verdict(op, role, number, slopes) for role, number in got.items()]
    if op._offers("hvp"):
        weights = [rng.standard_normal(x.shape).astype(x.dtype) for x in line.direction]
        product = _inner(weights, evaluation.derivative("hvp", axes, gs, line.direction))
        bends = line.slopes(lambda where: _inner(weights, where.derivative("vjp", axes, gs)))
        verdicts.append(_verdict(op, "hvp", product, bends))
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
        self.arrays, self.dtype = list(arrays), np.result_type(*(arrays[index] for index in real))
        self.inputs = [np.asarray(arrays[index]) for index in real]
        self.random = [(rng.standard_normal(x.shape), rng.standard_normal(x.shape)) for x in self.inputs]
        for relative, shift in [(False, s) for s in SHIFTS] + [(True, s) for s in SHIFTS] + [(True, 0.0), (False, 0.0)]:
            sizes = [np.abs(x) + (0 if relative else 1) for x in self.inputs]
            self.direction = [self._cast(size * along) for size, (along, _) in zip(sizes, self.random, strict=True)]
            self.point = [
                self._cast(x + shift * size * away)
                for x, size, (_, away) in zip(self.inputs, sizes, self.random, strict=True)
            ]
            if all(np.any(t) for t in self.direction) and self._can_be_computed():
                break

    def solve(self, distance: float) -> Evaluation:
        """Return the evaluation at a distance along the direction."""
        for index, x, t in zip(self.real, self.point, self.direction, strict=True):
            moved = self._cast(x + distance * t)
            moved.flags.writeable = False
            self.arrays[index] = moved
        return Evaluation(self.op, self.layout, list(self.arrays), self.real, self.axes)

    def slopes(self, number: Callable[[Evaluation], float]) -> list[Slope]:
        """Return central differences of a number with each of the steps, and how far rounding may shift them."""

        def along(h: float) -> float:
            try:
                where = self.solve(h)
            except Exception as error:  # whatever the solver raises outside its domain: this step is left out
                raise ArithmeticError from error
            return number(where)

        return differences.slopes(along, STEPS, float(np.finfo(self.dtype).eps))

    def _cast(self, array: Array) -> Array:
        return np.array(array, self.dtype)

    def _can_be_computed(self) -> bool:
        try:
            with np.errstate(all="ignore"):
                return all(
                    bool(np.all(np.isfinite(y))) for h in (0.0, STEPS[1], -STEPS[1]) for y in self.solve(h).outputs
                )
        except Exception:  # whatever the solver raises outside its domain
            return False


def _verdict(op: "ExternalFunction", role: str, got: float, slopes: Sequence[Slope]) -> str:
    best, error = map(float, differences.best(slopes))
    size = max(abs(got), abs(best))
    if not np.isfinite(got + best) or error > 0.05 * size:
        told = ", ".join(f"{slope:.6g}" for slope, _ in slopes) or "nothing"
        raise WrongDerivative(
            f"{op.label}: its {role} could not be compared. It gives {got:.6g}, and finite differences with smaller "
            f"and smaller steps give {told}. Check at another point, and whether the function is noisy."
        )
    if abs(best - got) > TOLERANCE * size + error:
        raise WrongDerivative(
            f"{op.label}: its {role} does not agree with finite differences. Along a random direction near x it gives "
            f"{got:.6g}, and finite differences give {best:.6g}. If the function is noisy, give the noiseless one and "
            "noise=; otherwise mend the derivative."
        )
    return f"{op.label}: its {role} agrees with finite differences: {got:.6g} and {best:.6g}."


def _inner(left: Sequence[Any], right: Sequence[Any]) -> float:
    return float(sum(np.sum(a * b) for a, b in zip(left, right, strict=True)))
