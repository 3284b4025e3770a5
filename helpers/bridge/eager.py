"""The short way: one value and one gradient, with the numbers at hand and nothing else going on.

This is the Function of lesson 06 again. What it adds to that one: the arrays are copies, the solver's state is kept
until the graph is freed, and a gradient that shall be differentiated again is made by :mod:`.transforms`.
"""

from typing import Any

import torch
from torch.autograd import Function

from .call import Call
from .torch_state import graph_is_kept, is_legacy_batched, is_plain
from .transforms import vjp_with_graph

Tensor = torch.Tensor


class Eager(Function):
    """F(x), for ordinary tensors."""

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
        """Return Jᵀ g."""
        xs = ctx.saved_tensors  # torch raises here if the graph was freed, or if an input was changed in place
        call, evaluation = ctx.call, ctx.evaluation
        wanted = [ctx.needs_input_grad[1 + index] for index in call.real]
        if torch.is_grad_enabled() or not is_plain() or any(map(is_legacy_batched, gs)):
            return None, *vjp_with_graph(call, evaluation, wanted, xs, gs)
        found = evaluation.derivative("vjp", call.axes, call.directions(gs), wanted=wanted)
        if not graph_is_kept():
            ctx.evaluation = None
        gradients = [None] * (1 + len(xs))
        for index, gradient in zip(call.real, found, strict=True):
            if gradient is not None:
                gradients[1 + index] = call.input_tensors([gradient], [xs[index]])[0]
        return tuple(gradients)
