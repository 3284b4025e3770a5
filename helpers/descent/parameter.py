"""The one tensor that a trajectory follows."""

import numpy as np
import torch

from .trajectory import Array


def only_parameter(optimizer: torch.optim.Optimizer) -> torch.Tensor:
    """Return the tensor that the optimiser holds; refuse several, and one that no trajectory can follow."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    if len(parameters) != 1:
        raise ValueError(
            f"A trajectory follows one tensor, and this optimiser holds {len(parameters)}. "
            "Put your variables into one tensor, or write the loop yourself."
        )
    parameter: torch.Tensor = parameters[0]
    if not parameter.is_floating_point():
        raise TypeError(
            f"The parameter must hold real floating-point numbers; got {parameter.dtype}. "
            "Write a complex number as two real ones, and whole numbers as floats."
        )
    if parameter.is_meta:
        raise ValueError("The parameter is on the meta device and holds no numbers: make it on the cpu or a GPU.")
    if any(group.get("fused") for group in optimizer.param_groups) and _has_gaps(parameter):
        raise ValueError(
            "The parameter is a slice with gaps in memory, and a fused step of torch takes the gaps for entries. "
            "Make a parameter of its own with x.detach().clone(), or leave fused out."
        )
    return parameter


def _has_gaps(x: torch.Tensor) -> bool:
    return not x.is_contiguous() and torch.empty_like(x).stride() != x.stride()


class Numbers:
    """The numbers of a tensor. NumPy's view of them is made anew only when the tensor has other memory (x.data = y)."""

    def __init__(self, x: torch.Tensor) -> None:
        self._x = x
        self._memory: tuple[object, ...] | None = None
        self._view = np.empty(0)

    def copy(self) -> Array:
        """Return them as they are now, in an array that nothing else writes into."""
        x = self._x
        if not (x.is_cpu and x.dtype is torch.float64):
            return copy_of(x)
        memory = (x.data_ptr(), x.shape, x.stride())
        if memory != self._memory:
            self._view, self._memory = x.detach().numpy(), memory
        return self._view.copy()


def copy_of(x: torch.Tensor) -> Array:
    """Return the numbers of any tensor as float64."""
    numbers: Array = x.detach().cpu().double().numpy().copy()
    return numbers
