"""The ways that torch itself offers, each as short as it can be written."""

from collections.abc import Callable
from typing import Any

import torch

from .functions import Array, gradient, value
from .timing import Way

PLAIN = "plain torch autograd"
SHORTEST = "shortest hand-written Function"


def shortest(value: Callable[[Array], Any], gradient: Callable[[Array], Array]) -> Callable[[torch.Tensor], Any]:
    """Return the shortest Function around NumPy. It is safe only as long as nobody asks for a second derivative."""

    class Shortest(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x)
            return torch.as_tensor(value(x.numpy()))

        @staticmethod
        def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
            (x,) = ctx.saved_tensors
            return g * torch.as_tensor(gradient(x.numpy()))

    return Shortest.apply


class WithSetupContext(torch.autograd.Function):
    """The same in the form that torch.func asks for."""

    @staticmethod
    def forward(x: torch.Tensor) -> torch.Tensor:
        """Return the value as a tensor."""
        return torch.as_tensor(value(x.numpy()))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[torch.Tensor], output: torch.Tensor) -> None:
        """Keep x for backward."""
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
        """Return the gradient as a tensor."""
        (x,) = ctx.saved_tensors
        return g * torch.as_tensor(gradient(x.numpy()))


@torch.library.custom_op("bring_your_own_gradient::rosenbrock", mutates_args=())
def custom_op(x: torch.Tensor) -> torch.Tensor:
    """Return the value as a tensor."""
    return torch.as_tensor(value(x.numpy()))


def _keep(ctx: Any, inputs: tuple[torch.Tensor], output: torch.Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
    (x,) = ctx.saved_tensors
    return g * torch.as_tensor(gradient(x.numpy()))


custom_op.register_autograd(_backward, setup_context=_keep)


def start() -> torch.Tensor:
    """Return the parameter at (0.1, 0.1)."""
    return torch.full((2,), 0.1, dtype=torch.float64, requires_grad=True)


def by_backward(op: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> Way:
    """Return one evaluation of an op with its backward."""

    def once() -> object:
        x.grad = None
        y = op(x)
        y.backward()
        return x.grad

    return once


def by_x_grad() -> Way:
    """Return one evaluation that writes x.grad and builds no graph."""
    x = start()

    def once() -> object:
        x.grad = None
        array = x.detach().numpy()
        value(array)
        x.grad = torch.from_numpy(gradient(array))
        return x.grad

    return once


def ways() -> dict[str, Way]:
    """Return the ways that need nothing but torch."""
    return {
        "write x.grad directly": by_x_grad(),
        SHORTEST: by_backward(shortest(value, gradient), start()),
        "a Function with setup_context": by_backward(WithSetupContext.apply, start()),
        "torch.library.custom_op": by_backward(custom_op, start()),
        PLAIN: by_backward(value, start()),
    }
