"""Where the time of one evaluation goes: Functions that each do one thing more than the one before.

The difference between two neighbours is what the added thing costs. Each step is taken as `helpers.bridge` takes it
for two numbers: lists and `from_numpy` are the cheapest ways in and out.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from .by_hand import by_backward, start
from .functions import Array, gradient, value
from .timing import Way

ONE, GRADIENT = torch.ones((), dtype=torch.float64), torch.ones(2, dtype=torch.float64)


def to_array(x: torch.Tensor) -> Array:
    """Return a copy of a few numbers as an array."""
    return np.array(x.tolist(), np.float64)


class Empty(torch.autograd.Function):
    """Nothing but a Function: the tensors it returns were there before."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        """Keep x, return a one."""
        ctx.save_for_backward(x)
        return ONE.detach()

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
        """Look at x, return ones."""
        ctx.saved_tensors  # noqa: B018  torch raises here if x was changed in place
        return GRADIENT.detach()


class AndArrays(torch.autograd.Function):
    """The same, and x and g become NumPy's."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        """Keep x and its array, return a one."""
        ctx.save_for_backward(x)
        ctx.array = to_array(x)
        return ONE.detach()

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
        """Look at x and g, return ones."""
        ctx.saved_tensors  # noqa: B018  torch raises here if x was changed in place
        g.tolist()
        return GRADIENT.detach()


class AndMathematics(torch.autograd.Function):
    """The same, and NumPy computes value and gradient, which nobody takes."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        """Compute the value, return a one."""
        ctx.save_for_backward(x)
        ctx.array = to_array(x)
        value(ctx.array)
        return ONE.detach()

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
        """Compute the gradient times g, return ones."""
        ctx.saved_tensors  # noqa: B018  torch raises here if x was changed in place
        gradient(ctx.array) * g.tolist()
        return GRADIENT.detach()


class AndTensors(torch.autograd.Function):
    """The same, and the numbers become tensors: now it is a complete Function."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        """Return the value."""
        ctx.save_for_backward(x)
        ctx.array = to_array(x)
        return torch.from_numpy(np.array(value(ctx.array)))

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
        """Return the gradient times g."""
        ctx.saved_tensors  # noqa: B018  torch raises here if x was changed in place
        return torch.from_numpy(gradient(ctx.array) * g.tolist())


def entrance(function: type[torch.autograd.Function]) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return ``function.apply`` without its look for leftovers of torch.func, as the bridge calls it."""
    return super(torch.autograd.Function, function).apply


def beside(value: Callable[[Any], Any], gradient: Callable[[Any], Any], x: Array) -> Way:
    """Return value and gradient in NumPy with an empty Function beside them: no Function can be faster."""
    parameter, enter = start(), entrance(Empty)

    def once() -> object:
        parameter.grad = None
        value(x)
        y = enter(parameter)
        found = gradient(x)
        y.backward()
        return found

    return once


def rungs() -> dict[str, Way]:
    """Return the rungs from the empty loop to the complete Function, each named by what it adds."""
    x, enter = start(), entrance(Empty)

    def forget() -> None:
        x.grad = None

    def forward_only() -> object:
        x.grad = None
        return enter(x)

    return {
        "forgetting the old gradient": forget,
        "entering an empty Function": forward_only,
        "y.backward() through it": by_backward(enter, start()),
        "tensor to array": by_backward(entrance(AndArrays), start()),
        "the mathematics": by_backward(entrance(AndMathematics), start()),
        "array to tensor": by_backward(entrance(AndTensors), start()),
    }
