"""The mathematics, in NumPy: a function solved at one point or many, and every derivative there.

For a function y = F(x) with Jacobian J, four linear maps are all that torch ever asks for:

========= ================ ============================================================
``vjp``   g -> Jᵀ g        backward
``jvp``   t -> J t         forward mode, and the derivative of ``vjp`` for g
``hvp``   g, t -> Σ gₖ Hₖ t  the derivative of ``vjp`` for x
``bend``  t, s -> (tᵀ Hₖ s)ₖ  the derivative of ``jvp`` for x
========= ================ ============================================================

(Hₖ is the Hessian of output k.) A :class:`Sample` is one point; an :class:`Evaluation` is one point or a batch.
"""

import math
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ..states import keep
from .arguments import Layout
from .arrays import Array, as_numbers
from .errors import FailedSamples, MissingDerivative
from .questions import all_of, current
from .stacking import copied, flattened, joined, moved, moved_back, scaled, stack
from .turn import NOBODYS_TURN

if TYPE_CHECKING:
    from .external import ExternalFunction

Arrays = Sequence[Array]
Found = TypeVar("Found")
READ_ONLY = re.compile(r"(assignment destination|array|buffer) is read-only")  # as NumPy says it


def run(op: "ExternalFunction", role: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call the user's code. What it raises comes through, with a note that says who called it."""
    try:
        return function(*args, **kwargs)
    except Exception as error:
        explain(op, role, error)
        raise


def explain(op: "ExternalFunction", role: str, error: Exception) -> None:
    """Add to an error of the user's code where it happened; raise another one where NumPy's own does not help."""
    if isinstance(error, ValueError) and READ_ONLY.search(str(error)):
        raise ValueError(
            f"{op.label}: its {role} writes into an array that it was given. Let it work on x.copy()."
        ) from error
    note = f"Raised inside the {role} of {op.label}."
    if note not in getattr(error, "__notes__", ()):
        error.add_note(note)


def one_for_each(op: "ExternalFunction", found: Any, inputs: Arrays, role: str) -> Sequence[Any]:
    """Return what the user's code gave as a sequence with one entry for each real input."""
    count = len(inputs)
    if count == 1 and not isinstance(found, tuple):
        return (found,)
    if not isinstance(found, (tuple, list)) or len(found) != count:
        got = f"{len(found)} of them" if isinstance(found, (tuple, list)) else f"one {type(found).__name__}"
        arrays = "one array" if count == 1 else f"{count} arrays"
        raise ValueError(
            f"{op.label}: its {role} must return {arrays}, one for each real tensor argument, in their order; "
            f"it returned {got}."
        )
    return found


def fitting(op: "ExternalFunction", result: Any, like: Array, role: str, place: str) -> Array:
    """Return a derivative as an array of the shape that it must have."""
    if type(result) is not np.ndarray or result.dtype.kind != "f":
        result = as_numbers(result, f"{op.label}: its {role}")
    if result.shape != like.shape:
        raise ValueError(
            f"{op.label}: its {role} returned shape {result.shape}, and {place} has shape {like.shape}. They must be "
            "equal; torch would silently sum or stretch."
        )
    array: Array = result
    return array


class Sample:
    """The function solved at one point (or, if it is vectorised, at a whole batch in one call)."""

    __slots__ = (
        "args",
        "aux",
        "inputs",
        "kwargs",
        "lead",
        "op",
        "outputs",
        "serial",
        "single",
        "state",
        "with_gradient",
    )

    def __init__(
        self,
        op: "ExternalFunction",
        layout: Layout,
        arrays: Arrays,
        real: Sequence[int],
        lead: int,
        *,
        with_gradient: bool = False,
    ) -> None:
        self.args, self.kwargs = layout.fill(arrays)
        self.op, self.lead, self.with_gradient = op, lead, with_gradient
        self.inputs = [arrays[index] for index in real]
        watch = op._watch if current() is None else NOBODYS_TURN
        with watch.solving(lambda: b"".join(each.tobytes() for each in self.inputs)) as self.serial:
            y, self.state, self.aux = self._solve()
            if self.serial:
                y = keep(y)  # before another thread's solve writes into it
        self.single = not isinstance(y, tuple)
        self.outputs = [as_numbers(each, f"{op.label}: its forward") for each in ((y,) if self.single else y)]
        if lead:
            self._check_lead()
        if op.finite:
            self._check_finite(self.outputs, "value")

    def _solve(self) -> Any:
        return self.op._forward(self.args, self.kwargs, self.inputs, self.lead, self.with_gradient)

    def _derivative(self, role: str, *directions: Array) -> Any:
        """Call the user's derivative at this point: "adjoint", "tangent" or "hvp"."""
        op = self.op
        watch = op._watch if current() is None else NOBODYS_TURN
        with watch.solved(self.serial, self._solve):
            found = run(op, op._called(role), op._map(role), op._hand_out(self.state), *directions)
            return keep(found) if watch.remembers else found

    def vjp(self, gs: Arrays, wanted: Sequence[bool] | None = None) -> list[Array | None]:
        """Return Jᵀ g for each input that is wanted, None for the others."""
        op = self.op
        found = one_for_each(op, self._derivative("adjoint", *gs), self.inputs, op._called("adjoint"))
        return [
            self._fits(gradient, x, op._called("adjoint"), index) if wanted is None or wanted[index] else None
            for index, (gradient, x) in enumerate(zip(found, self.inputs, strict=True))
        ]

    def jvp(self, ts: Arrays) -> list[Array]:
        """Return J t for each output."""
        op = self.op
        if not op._offers("tangent"):
            return self._jvp_by_adjoint(ts)
        found = self._derivative("tangent", *ts)
        found = (found,) if self.single and not isinstance(found, tuple) else found
        if not isinstance(found, (tuple, list)) or len(found) != len(self.outputs):
            raise ValueError(f"{op.label}: its tangent must return one array for each of {len(self.outputs)} outputs.")
        return [
            self._fits(tangent, y, op._called("tangent"), None) for tangent, y in zip(found, self.outputs, strict=True)
        ]

    def hvp(self, gs: Arrays, ts: Arrays, wanted: Sequence[bool] | None = None) -> list[Array | None]:
        """Return the derivative of Jᵀ g along t, for each input that is wanted, None for the others."""
        op = self.op
        if not op._offers("hvp"):
            raise MissingDerivative(op._cure("hvp"))
        found = one_for_each(op, self._derivative("hvp", *gs, *ts), self.inputs, "hvp")
        return [
            self._fits(product, x, "hvp", index) if wanted is None or wanted[index] else None
            for index, (product, x) in enumerate(zip(found, self.inputs, strict=True))
        ]

    def bend(self, ts: Arrays, ss: Arrays) -> list[Array]:
        """Return tᵀ Hₖ s for each entry k of each output, from one Hessian-vector product an entry."""
        wanted = [bool(np.any(s)) for s in ss]
        return self._by_entry(lambda gs: self._dot(self.hvp(gs, ts, wanted), ss))

    def _jvp_by_adjoint(self, ts: Arrays) -> list[Array]:
        """Return J t for outputs of one entry each, whose adjoint is all of J."""
        if any(math.prod(y.shape[self.lead :]) > 1 for y in self.outputs):
            raise MissingDerivative(self.op._cure("tangent"))
        wanted = [bool(np.any(t)) for t in ts]
        return self._by_entry(lambda gs: self._dot(self.vjp(gs, wanted), ts))

    def _by_entry(self, scalar: Callable[[Arrays], Array]) -> list[Array]:
        """Return an array for each output, entry by entry, of what a function gives for the unit vectors g."""
        results = []
        for which, y in enumerate(self.outputs):
            result = np.empty(y.shape, np.result_type(y, np.float32))
            for entry in np.ndindex(y.shape[self.lead :]):
                units = [np.zeros(each.shape, np.result_type(each, np.float32)) for each in self.outputs]
                units[which][(..., *entry)] = 1
                result[(..., *entry)] = scalar([_read_only(unit) for unit in units])
            results.append(result)
        return results

    def _dot(self, left: Sequence[Array | None], right: Arrays) -> Array:
        """Return the inner product over all inputs that are not None, one number a sample."""
        total: Any = np.zeros(self.inputs[0].shape[: self.lead])
        for a, b in zip(left, right, strict=True):
            if a is None:
                continue
            total = total + np.sum(a * b, axis=tuple(range(self.lead, a.ndim)))
        return np.asarray(total)

    def _fits(self, result: Any, like: Array, role: str, index: int | None) -> Array:
        place = "the output" if index is None else "the input" if len(self.inputs) == 1 else f"input {index + 1}"
        array = fitting(self.op, result, like, role, place)
        if self.op.finite:
            self._check_finite([array], role)
        return array

    def _check_finite(self, arrays: Arrays, role: str) -> None:
        for array in arrays:
            if not np.all(np.isfinite(array)):
                where = ", ".join(np.array2string(x, threshold=4, precision=4) for x in self.inputs)
                raise FloatingPointError(f"{self.op.label}: its {role} holds NaN or Inf at x = {where}.")

    def _check_lead(self) -> None:
        wanted = self.inputs[0].shape[: self.lead]
        for y in self.outputs:
            if y.shape[: self.lead] != wanted:
                raise ValueError(
                    f'{self.op.label}: batch="vectorized" and a batch of shape {wanted} ask for outputs that begin '
                    f'with these axes; it returned shape {y.shape}. A function of one sample takes batch="loop".'
                )


class Evaluation:
    """One call, solved: at one point, or at every sample of a batch.

    Leading axes are of two kinds. Along a *sample* axis the point changes, and each sample is solved. Along a *probe*
    axis only g and t change, as for the rows of a Jacobian: the point is solved once.

    Parameters
    ----------
    axes : tuple of bool
        The leading axes of ``arrays``, True for a sample axis and False for a probe axis.
    factors : pair of arrays, or None
        The noise of the value and of its derivatives, one factor a sample.
    with_gradient : bool
        Whether a gradient will be asked for, so that a worker can compute it together with the value.
    """

    __slots__ = ("aux", "factors", "inputs", "outputs", "samples", "shape", "single", "vectorized")

    def __init__(
        self,
        op: "ExternalFunction",
        layout: Layout,
        arrays: Arrays,
        real: Sequence[int],
        axes: tuple[bool, ...] = (),
        factors: Callable[[tuple[int, ...]], tuple[Array, Array]] | None = None,
        *,
        with_gradient: bool = False,
    ) -> None:
        if axes:
            point = tuple(slice(None) if sample else 0 for sample in axes)
            arrays = [array[point] for array in arrays]
        depth = sum(axes)
        self.shape = arrays[real[0]].shape[:depth]
        self.inputs = [arrays[index] for index in real]
        self.vectorized = op.batch == "vectorized" and depth > 0
        if self.vectorized or not depth:
            self.samples = [Sample(op, layout, arrays, real, depth)]
            self.outputs = self.samples[0].outputs
            self.aux = self.samples[0].aux
        else:
            flat = [array.reshape(-1, *array.shape[depth:]) for array in arrays]

            def solve(i: int) -> tuple[Sample, list[Array]]:
                sample = Sample(op, layout, [a[i] for a in flat], real, 0, with_gradient=with_gradient)
                return sample, copied(sample.outputs)

            solved = self._each(op, solve, "forward", lambda found: found[1])
            self.samples, rows = [sample for sample, _ in solved], [row for _, row in solved]
            self.outputs = stack(rows, self.shape, op.label) if rows else self._nothing(op, arrays, depth)
            self.aux = [sample.aux for sample in self.samples]
        self.single = self.samples[0].single if self.samples else True
        self.factors = factors(self.shape) if factors else None
        if self.factors:
            self.outputs = [scaled(y, self.factors[0]) for y in self.outputs]

    def _each(
        self, op: "ExternalFunction", job: Callable[[int], Found], what: str, plain: Callable[[Found], Any]
    ) -> list[Found]:
        """Return what a job gives for each sample; computed by the op's workers, if it has some."""
        count = math.prod(self.shape)
        if op._workers is None:
            return [job(index) for index in range(count)]
        try:
            return op._workers.each(job, count, what, self._place)
        except FailedSamples as error:
            error.samples = {self._place(index): each for index, each in error.samples.items()}
            error.results = {self._place(index): plain(found) for index, found in error.results.items()}
            raise

    def _place(self, index: int) -> int | tuple[int, ...]:
        """Return a sample's place in the batch."""
        return index if len(self.shape) == 1 else tuple(map(int, np.unravel_index(index, self.shape)))

    def _nothing(self, op: "ExternalFunction", arrays: Arrays, depth: int) -> list[Array]:
        """Return the outputs of a batch without samples."""
        try:
            shapes = op._shapes.of([array.shape[depth:] for array in arrays])
        except ValueError:
            shapes = [()]  # as the default signature says
        return [np.zeros(self.shape + shape) for shape in shapes]

    @classmethod
    def known(cls, op: "ExternalFunction", state: Any, inputs: list[Array]) -> "Evaluation":
        """Return the evaluation of a function of one number whose value was computed before."""
        sample = Sample.__new__(Sample)
        sample.op, sample.lead, sample.inputs, sample.state = op, 0, inputs, state
        sample.args, sample.kwargs, sample.serial = tuple(inputs), {}, 0
        sample.outputs, sample.single, sample.aux = [np.zeros((), inputs[0].dtype)], True, None
        evaluation = cls.__new__(cls)
        evaluation.samples, evaluation.outputs, evaluation.single = [sample], sample.outputs, True
        evaluation.inputs = inputs
        evaluation.aux, evaluation.shape, evaluation.vectorized, evaluation.factors = None, (), False, None
        return evaluation

    def derivative(self, kind: str, axes: tuple[bool, ...], *groups: Arrays, **options: Any) -> list[Any]:
        """Return one of the four linear maps: ``kind`` is "vjp", "jvp", "hvp" or "bend"."""
        if not axes:
            results = getattr(self.samples[0], kind)(*groups, **options)
            return results if self.factors is None else [scaled(each, self.factors[1]) for each in results]
        if not self.samples:
            return [np.zeros_like(each) for each in (self.outputs if kind in ("jvp", "bend") else self.inputs)]
        order = sorted(range(len(axes)), key=axes.__getitem__)  # probe axes first; sorted keeps the order within a kind
        groups = tuple([moved(array, order) for array in group] for group in groups)
        probes = groups[-1][0].shape[: axes.count(False)]
        rows = self._at_each_sample(kind, groups, list(np.ndindex(probes)), options)
        return [
            None if first is None else moved_back(joined(rows, place, probes), order)
            for place, first in enumerate(rows[0])
        ]

    def _at_each_sample(
        self, kind: str, groups: Sequence[Arrays], probes: list[tuple[int, ...]], options: dict[str, Any]
    ) -> list[list[Any]]:
        """Return a row of results for each probe. A sample has all its probes before the next: it is solved there."""
        depth = len(self.shape)
        if self.vectorized or not depth:
            (sample,) = self.samples
            rows = [
                copied(getattr(sample, kind)(*([each[probe] for each in group] for group in groups), **options))
                for probe in probes
            ]
        else:
            flat = [[flattened(each, len(probes[0]), depth) for each in group] for group in groups]

            def differentiate(i: int) -> list[list[Any]]:
                at = [[[each[(*probe, i)] for each in group] for group in flat] for probe in probes]
                linear_map = partial(getattr(self.samples[i], kind), **options)
                return [copied(found) for found in all_of([partial(linear_map, *directions) for directions in at])]

            op, count = self.samples[0].op, len(self.samples)
            if all(op._knows(sample.state, kind) for sample in self.samples):
                table = [differentiate(index) for index in range(count)]
            else:
                table = self._each(op, differentiate, kind, lambda found: found[0])
            rows = [stack([of_sample[p] for of_sample in table], self.shape, "") for p in range(len(probes))]
        if self.factors is None:
            return rows
        return [[scaled(each, self.factors[1]) for each in row] for row in rows]


def _read_only(array: Array) -> Array:
    array.flags.writeable = False
    return array
