"""The short way: one value and one gradient, with the numbers at hand and nothing else going on.

:class:`One` is the Function of lesson 06 again, for the question's case: one tensor in, one number out. It adds four
things. The array is a copy, results own their memory, what the user's code gives is checked, and a gradient that shall
be differentiated again is made by :mod:`.transforms`. :class:`Several` does the same for everything else.

Which torch functions are called matters here: each one that is not warm in the processor's cache costs more than the
mathematics. ``tolist`` and ``from_numpy`` are the cheapest ways in and out for a few numbers.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.autograd import Function

from .arguments import ONE_TENSOR
from .call import Call
from .torch_state import graph_is_kept, is_alone, refuse_half_a_recording
from .transforms import vjp_with_graph

if TYPE_CHECKING:
    from .function_op import FunctionOp

Tensor = torch.Tensor
A_FEW = 16
DTYPES: dict[torch.dtype, np.dtype[Any]] = {torch.float64: np.dtype(np.float64), torch.float32: np.dtype(np.float32)}


class One(Function):
    """F(x), for one tensor in and one number out."""

    @staticmethod
    def forward(ctx: Any, op: "FunctionOp", x: Tensor) -> Tensor:
        """Return the value."""
        array = np.array(x.tolist() if 0 < x.numel() <= A_FEW else x.numpy(), DTYPES[x.dtype], order="C")
        array.flags.writeable = False
        value, ctx.gradient = op._value_at(array)
        ctx.op, ctx.array = op, array
        ctx.save_for_backward(x)
        return torch.from_numpy(np.array(value, array.dtype))

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Any, ...]:
        """Return the gradient times g."""
        (x,) = ctx.saved_tensors  # torch raises here if the graph was freed, or if x was changed in place
        refuse_half_a_recording(ctx.op.label)
        if not is_alone(g):
            evaluation = ctx.op._known(ctx.array, ctx.gradient)
            return None, *vjp_with_graph(Call(ctx.op, ONE_TENSOR, (x,)), evaluation, (True,), (x,), (g,))
        gradient = ctx.op._gradient_at(ctx.array) if ctx.gradient is None else ctx.gradient
        if not graph_is_kept():
            ctx.array = ctx.gradient = None
        return None, torch.from_numpy(np.asarray(gradient * g.tolist()))  # the product is new memory


# torch's own apply first looks for leftovers of torch.func, and that costs more than the mathematics.
apply_one: Any = super(Function, One).apply


class Several(Function):
    """F(x), for any number of tensors, in and out."""

    @staticmethod
    def forward(ctx: Any, call: Call, *xs: Tensor) -> Any:
        """Return the output, or a tuple of outputs."""
        evaluation = call.evaluate(call.arrays(xs))
        ctx.call, ctx.evaluation = call, evaluation
        ctx.save_for_backward(*xs)
        outputs = call.output_tensors(evaluation.outputs)
        return outputs[0] if evaluation.single else outputs

    @staticmethod
    def backward(ctx: Any, *gs: Tensor) -> tuple[Any, ...]:
        """Return the transposed Jacobian times g."""
        xs = ctx.saved_tensors  # see above
        call, evaluation = ctx.call, ctx.evaluation
        wanted = [ctx.needs_input_grad[1 + index] for index in call.real]
        refuse_half_a_recording(call.op.label)
        if not all(map(is_alone, gs)):
            return None, *vjp_with_graph(call, evaluation, wanted, xs, gs)
        found = evaluation.derivative("vjp", call.axes, call.directions(gs), wanted=wanted)
        if not graph_is_kept():
            ctx.evaluation = call.pinned = None  # the solver's state may be large, and the output may live on
        gradients: list[Any] = [None] * (1 + len(xs))
        for index, gradient in zip(call.real, found, strict=True):
            if gradient is not None:
                gradients[1 + index] = call.to_tensor(gradient, xs[index].dtype, xs[index].device)
        return tuple(gradients)
