"""One call of an op, on its way through torch: all that is not a tensor."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from .arguments import Layout
from .arrays import Array, numpy_dtype, to_array, to_tensor
from .evaluation import Evaluation
from .torch_state import is_plain

if TYPE_CHECKING:
    from .external import ExternalFunction

Tensor = torch.Tensor


class Seen:
    """What has been solved in a call, by the bytes of the inputs: equal inputs have equal derivatives."""

    __slots__ = ("aux", "depth", "evaluations", "single")

    def __init__(self) -> None:
        self.evaluations: dict[tuple[tuple[tuple[int, ...], bytes], ...], Evaluation] = {}
        self.aux: Any = None
        self.depth, self.single = 0, True


class Call:
    """What the Functions of one call share.

    Parameters
    ----------
    op : ExternalFunction
    layout : Layout
        Where the tensors stand among the arguments.
    tensors : sequence of tensor
        They are only looked at for dtype and device.
    axes : tuple of bool
        The leading axes that all tensors have; see :class:`~helpers.bridge.evaluation.Evaluation`.
    draw : int or None
        The index of the noise.
    """

    __slots__ = ("axes", "device", "draw", "dtype", "layout", "op", "pinned", "real", "seen", "wants_gradient")

    def __init__(
        self,
        op: "ExternalFunction",
        layout: Layout,
        tensors: Sequence[Tensor],
        axes: tuple[bool, ...] = (),
        draw: int | None = None,
    ) -> None:
        self.op, self.layout, self.axes, self.draw = op, layout, axes, draw or 0
        self.real = [index for index, tensor in enumerate(tensors) if tensor.is_floating_point()]
        first = tensors[self.real[0]]
        self.dtype, self.device = first.dtype, first.device
        for index in self.real[1:]:
            self.dtype = torch.promote_types(self.dtype, tensors[index].dtype)
        self.pinned: Evaluation | None = None
        self.wants_gradient = op._workers is not None and (
            not is_plain() or (torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors))
        )
        self.seen = Seen()

    def lifted(self, sample: bool) -> "Call":
        """Return this call with one more leading axis, as torch's vmap makes it."""
        lifted = Call.__new__(Call)
        for name in Call.__slots__:
            setattr(lifted, name, getattr(self, name))
        lifted.axes = (sample, *self.axes)
        return lifted

    def pin(self, evaluation: Evaluation) -> "Call":
        """Return this call for tensors whose evaluation is known, whatever has been written into them since."""
        self.pinned = evaluation
        return self

    def arrays(self, tensors: Sequence[Tensor]) -> list[Array]:
        """Return the inputs as the NumPy function shall get them."""
        return [
            to_array(tensor, self.op._numpy_dtype or numpy_dtype(tensor.dtype) if tensor.is_floating_point() else None)
            for tensor in tensors
        ]

    def directions(self, tensors: Sequence[Tensor]) -> list[Array]:
        """Return g's or t's as the NumPy function shall get them."""
        return [to_array(tensor, self.op._numpy_dtype) for tensor in tensors]

    def evaluate(self, arrays: Sequence[Array]) -> Evaluation:
        """Solve."""
        op, noise = self.op, self.op._noise
        factors = None if noise is None else lambda shape: noise.factors(self.draw, shape)
        evaluation = Evaluation(
            op, self.layout, arrays, self.real, self.axes, factors, with_gradient=self.wants_gradient
        )
        self.seen.single = evaluation.single
        samples = sum(self.axes)
        inputs = [array.shape[len(self.axes) :] for array in arrays]
        outputs = [y.shape[samples:] for y in evaluation.outputs]
        op._shapes.check(inputs, outputs)
        op._shapes.remember(inputs, outputs, evaluation.single)
        if op.aux:
            self.seen.aux, self.seen.depth = evaluation.aux, len(self.axes)
        return evaluation

    def take_aux(self) -> Any:
        """Return what the function gave besides its output.

        Raises
        ------
        TypeError
            Under torch.func.vmap, which lets only tensors through.
        """
        if self.seen.depth > len(self.axes):
            raise TypeError(
                f"{self.op.label}: torch.func.vmap lets only tensors through, and aux=True gives other things. "
                'Use batch="loop", which returns a list of them.'
            )
        aux, self.seen.aux = self.seen.aux, None
        return aux

    def evaluation(self, tensors: Sequence[Tensor]) -> Evaluation:
        """Return the evaluation at these inputs: the kept one if they are the same, otherwise solve."""
        if self.pinned is not None:
            return self.pinned
        arrays = self.arrays(tensors)
        point = tuple(slice(None) if sample else 0 for sample in self.axes)
        key = tuple((array[point].shape, array[point].tobytes()) for array in arrays)
        if key not in self.seen.evaluations:
            self.seen.evaluations[key] = self.evaluate(arrays)
        return self.seen.evaluations[key]

    def output_tensors(self, arrays: Sequence[Array]) -> tuple[Tensor, ...]:
        """Return values or tangents as tensors."""
        return tuple(self.to_tensor(array, self.dtype, self.device) for array in arrays)

    def input_tensors(self, arrays: Sequence[Array | None], like: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Return gradients as tensors of their inputs' dtypes and devices; what is None is left out."""
        pairs = zip(arrays, like, strict=True)
        return tuple(self.to_tensor(array, x.dtype, x.device) for array, x in pairs if array is not None)

    def to_tensor(self, array: Array, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Return a result as a tensor; refuse numbers that it cannot hold, if that is asked for.

        Raises
        ------
        FloatingPointError
            With ``finite="raise"``, if a finite number becomes Inf in the dtype of the tensor.
        """
        tensor = to_tensor(array, dtype, device)
        narrower = array.dtype.itemsize > tensor.element_size()  # otherwise it was looked at before
        if self.op.finite and narrower and not torch.isfinite(tensor).all():
            raise FloatingPointError(
                f"{self.op.label}: a value or derivative is NaN or Inf in {dtype}. Scale the function down, or use "
                "tensors of a wider dtype."
            )
        return tensor
