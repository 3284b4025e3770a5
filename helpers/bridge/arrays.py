"""Tensor to array and back: always a copy, never another dtype or device than asked for."""

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import DTypeLike, NDArray

Array = NDArray[Any]
Tensor = torch.Tensor

NUMPY_DTYPES: dict[torch.dtype, np.dtype[Any]] = {
    torch.float64: np.dtype(np.float64),
    torch.float32: np.dtype(np.float32),
    torch.float16: np.dtype(np.float16),
    torch.bfloat16: np.dtype(np.float32),  # NumPy has no bfloat16; every bfloat16 is a float32
}


def numpy_dtype(dtype: torch.dtype) -> np.dtype[np.generic]:
    """Return the NumPy dtype in which a tensor's numbers are handed over.

    Raises
    ------
    TypeError
        For floating-point dtypes that hold no plain numbers, such as the 8-bit ones.
    """
    try:
        return NUMPY_DTYPES[dtype]
    except KeyError as error:
        raise TypeError(f"{dtype} cannot be handed to NumPy. Use float32 or float64.") from error


def to_array(tensor: Tensor, dtype: np.dtype[np.generic] | None = None) -> Array:
    """Return a read-only copy of a tensor as an array.

    It is a copy, so a step of the optimiser does not change what a solver still needs; and it is read-only, so a solver
    that writes into its argument is told.
    """
    if tensor.dtype is torch.bfloat16:
        tensor = tensor.float()
    array: Array = np.array(tensor.numpy(force=True), dtype, order="C")
    array.flags.writeable = False
    return array


def as_numbers(result: object, what: str) -> Array:
    """Return what a function gave as an array of real numbers; refuse everything else, and say why.

    Raises
    ------
    TypeError
        If it is None, a tensor, a masked array, or holds no real numbers.
    """
    if result is None:
        raise TypeError(
            f"{what} returned None. Is a return statement missing, or is this an input that needs a gradient?"
        )
    if isinstance(result, torch.Tensor):
        raise TypeError(f"{what} returned a torch tensor. The bridge calls NumPy code: return an array or a number.")
    if isinstance(result, np.ma.MaskedArray):
        raise TypeError(f"{what} returned a masked array, and torch knows no masks. Fill it, as with np.ma.filled.")
    try:
        array = np.asarray(result)
    except ValueError as error:
        raise TypeError(f"{what} returned rows of different lengths. Return one array of numbers.") from error
    if array.dtype.kind not in "fiu":
        cure = " Split it into real and imaginary part." if array.dtype.kind == "c" else ""
        raise TypeError(f"{what} must return real numbers; it returned {_kind(result, array)}.{cure}")
    return array


def to_tensor(array: Array, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return a tensor with its own copy of the numbers."""
    wanted = numpy_dtype(dtype)
    if array.dtype == wanted:
        own = np.array(array, order="C")
    else:
        with np.errstate(over="ignore"):
            own = np.array(array, wanted, order="C")
    tensor = torch.from_numpy(own)
    return tensor if device.type == "cpu" and tensor.dtype is dtype else tensor.to(device=device, dtype=dtype)


def _kind(result: object, array: Array) -> str:
    return type(result).__name__ if array.dtype == object else f"dtype {array.dtype}"


def digest(tensors: Sequence[Tensor]) -> bytes:
    """Return a short mark of the numbers in tensors."""
    mark = hashlib.blake2b(digest_size=8)
    for tensor in tensors:
        mark.update(to_array(tensor).tobytes())
    return mark.digest()


def real_dtype(dtype: DTypeLike) -> "np.dtype[np.generic]":
    """Return the dtype that is meant; refuse one that holds no real numbers."""
    if isinstance(dtype, torch.dtype):
        dtype = str(dtype).removeprefix("torch.")
    found = np.dtype(dtype)
    if found.kind != "f":
        raise TypeError(f"compute_dtype must be a real floating-point dtype, such as 'float64'; got {found}.")
    return found
