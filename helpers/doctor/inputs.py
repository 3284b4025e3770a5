"""Example inputs: fresh copies of them, points beside them, and directions in which they may move."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

Array = npt.NDArray[Any]
Tensor = torch.Tensor


@dataclass(frozen=True)
class Inputs:
    """The example inputs as a user gave them, and which of them are differentiated.

    If one of the tensors wants a gradient, only those that do are differentiated; otherwise all of floating point or
    complex dtype are.
    """

    given: tuple[Any, ...]

    @property
    def wanted(self) -> list[int]:
        """The places of the tensors that are differentiated."""
        tensors = [k for k, each in enumerate(self.given) if isinstance(each, Tensor) and _is_real(each)]
        asked = [k for k in tensors if self.given[k].requires_grad]
        return asked or tensors

    @property
    def asked(self) -> bool:
        """Whether the user said which tensors want a gradient."""
        return any(isinstance(each, Tensor) and each.requires_grad for each in self.given)

    @property
    def points(self) -> list[Array]:
        """The numbers of the tensors that are differentiated, in double precision."""
        return [numbers(self.given[k]) for k in self.wanted]

    @property
    def dtype(self) -> torch.dtype:
        """The least precise dtype among the tensors that are differentiated."""
        dtypes: list[torch.dtype] = [self.given[k].dtype for k in self.wanted]
        return max(dtypes, key=lambda dtype: torch.finfo(dtype).eps)

    def fresh(
        self, points: Sequence[Array] | None = None, dtype: torch.dtype | None = None, tracked: bool = True
    ) -> list[Any]:
        """Return new inputs: copies of the given ones, or with other numbers, in another floating dtype.

        All that is not a tensor is copied too, where it can be.
        """
        args = []
        for k, each in enumerate(self.given):
            if isinstance(each, Tensor):
                number = None if points is None or k not in self.wanted else points[self.wanted.index(k)]
                args.append(_copy(each, number, dtype, tracked and k in self.wanted))
            else:
                args.append(_copy_plain(each))
        return args

    def leaves(self, args: Sequence[Any]) -> list[Tensor]:
        """Return those of some fresh inputs that are differentiated."""
        return [args[k] for k in self.wanted]


def numbers(tensor: Tensor) -> Array:
    """Return a tensor's numbers as an array of double precision."""
    tensor = tensor if tensor.layout is torch.strided else tensor.to_dense()
    array = tensor.detach().cpu().resolve_conj().to(torch.complex128 if tensor.is_complex() else torch.float64)
    return np.array(array.numpy())


def held_tensors(value: Any, depth: int = 3) -> list[Tensor]:
    """Return the tensors inside a list, a tuple or a dict that is an argument; not the argument itself."""
    if depth == 0 or not isinstance(value, (list, tuple, dict)):
        return []
    inside = list(value.values()) if isinstance(value, dict) else list(value)
    found = [each for each in inside if isinstance(each, Tensor)]
    return found + [tensor for each in inside for tensor in held_tensors(each, depth - 1)]


def moved(points: Sequence[Array], distance: float, direction: Sequence[Array]) -> list[Array]:
    """Return points + distance * direction."""
    return [x + distance * t for x, t in zip(points, direction, strict=True)]


def beside(points: Sequence[Array], relative: bool, size: float, rng: np.random.Generator) -> list[Array]:
    """Return a point near the given one; symmetric matrices stay symmetric, what sums to 1 goes on to do so."""
    found = []
    for x in points:
        scale = np.abs(x) + (0 if relative else 1)
        found.append(x + keep_form(x, size * scale * draw(x, rng)))
    return found


def draw(x: Array, rng: np.random.Generator) -> Array:
    """Return random numbers of the shape and the kind of x."""
    real = rng.standard_normal(x.shape)
    return np.asarray(real + 1j * rng.standard_normal(x.shape) if np.iscomplexobj(x) else real)


def is_symmetric(x: Array) -> bool:
    """Return whether x is a symmetric or Hermitian matrix, or a batch of such, of more than one row."""
    square = x.ndim >= 2 and x.shape[-1] == x.shape[-2] > 1
    return bool(square and np.allclose(x, np.conj(np.swapaxes(x, -1, -2)), rtol=1e-12, atol=0))


def keep_form(x: Array, step: Array) -> Array:
    """Return a step that leaves a symmetric matrix symmetric, and the sum of a distribution 1."""
    if is_symmetric(x):
        return np.asarray((step + np.conj(np.swapaxes(step, -1, -2))) / 2)
    if x.ndim >= 1 and x.shape[-1] > 1 and np.all(x.real >= 0) and np.allclose(x.sum(-1), 1, rtol=1e-6):
        return np.asarray(step - step.mean(-1, keepdims=True))
    return step


def _is_real(tensor: Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def _copy(tensor: Tensor, number: Array | None, dtype: torch.dtype | None, tracked: bool) -> Tensor:
    new = tensor.detach().clone()
    if number is not None:
        new.copy_(torch.as_tensor(number).reshape(new.shape))
    if dtype is not None and _is_real(tensor):
        new = new.to(dtype.to_complex() if tensor.is_complex() and not dtype.is_complex else dtype)
        if number is not None:  # from the full precision of the numbers, not by way of the old dtype
            new.copy_(torch.as_tensor(number).reshape(new.shape))
    return new.requires_grad_(tracked)


def _copy_plain(value: Any) -> Any:
    """Return a copy of an argument that is no tensor; tensors in it become leaves of their own."""
    if isinstance(value, list):
        return [_copy_plain(each) for each in value]
    if isinstance(value, tuple) and type(value) is tuple:
        return tuple(_copy_plain(each) for each in value)
    if isinstance(value, dict):
        return {key: _copy_plain(each) for key, each in value.items()}
    if isinstance(value, Tensor):
        return value.detach().clone().requires_grad_(value.requires_grad)
    if isinstance(value, np.ndarray):
        return copy.copy(value)
    return value
