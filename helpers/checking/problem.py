"""A function and its gradient, in NumPy or in torch, as functions of one flat NumPy vector.

torch is never imported for NumPy functions.
"""

import sys
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Function = Callable[..., Any]

NO_GRADIENT = (
    "Without grad, fun must be torch code: autograd gives its gradient. For a NumPy function pass the gradient too, or "
    "grad=True if fun returns (value, gradient)."
)


def is_tensor(thing: object) -> bool:
    """Say whether something is a torch tensor, without importing torch."""
    return "torch" in sys.modules and isinstance(thing, sys.modules["torch"].Tensor)


def to_array(thing: Any) -> Array:
    """Return a number, an array or a tensor as an array of its own."""
    return np.array(thing.detach().cpu().resolve_conj().resolve_neg().numpy() if is_tensor(thing) else thing)


class Problem:
    """A scalar function of real arguments and its gradient; all arguments together are one flat vector.

    Parameters
    ----------
    fun : callable, the arguments -> one number
        NumPy or torch code.
    grad : callable, None or True
        None: autograd's gradient of ``fun`` is meant. True: ``fun`` returns (value, gradient), as in SciPy.
    x : array_like, tensor, or tuple of several of them
        The arguments. A tuple of plain numbers is one point.
    extra : tuple
        What ``fun`` and ``grad`` get after the arguments when we find out whether they speak torch or NumPy.

    Raises
    ------
    TypeError
        If ``fun`` or ``grad`` is not callable, if ``x`` does not hold floating-point numbers, or if ``grad`` is
        missing for a function that autograd cannot differentiate.
    ValueError
        If ``x`` is empty or not finite.
    """

    def __init__(self, fun: Function, grad: Function | bool | None, x: Any, extra: tuple[Any, ...] = ()) -> None:
        if not callable(fun):
            raise TypeError(f"fun must be a function of x; got {type(fun).__name__}. Pass it without brackets.")
        if grad is not None and grad is not True and not callable(grad):
            raise TypeError(
                f"grad must be a function of x, not its result: got {type(grad).__name__}. Pass it without brackets, "
                "or None for the gradient of autograd."
            )
        self.fun, self.grad = fun, grad
        several = isinstance(x, tuple) and any(np.ndim(part) or is_tensor(part) for part in x)
        self._given = list(x) if several else [x]
        self._several = several
        arrays = [_real("x" if not several else f"argument {k}", part) for k, part in enumerate(self._given)]
        self.shapes = [array.shape for array in arrays]
        self._dtypes = [array.dtype for array in arrays]
        self._ends = np.cumsum([array.size for array in arrays]).tolist()
        self.x: Array = np.concatenate([array.ravel() for array in arrays])
        if self.x.size == 0:
            raise ValueError("x is empty: there is no entry to check.")
        self._device = next((part.device for part in self._given if is_tensor(part)), None)
        tensors = any(map(is_tensor, self._given))
        self.torch = grad is None or self._speaks_torch(fun, tensors, extra)
        self._torch_grad = callable(grad) and self._speaks_torch(grad, tensors or self.torch, extra)
        if grad is None:
            self._differentiated(self.x, *extra)  # a NumPy function is told apart here

    def in_double(self) -> "Problem":
        """Return the same problem with its arguments in float64."""
        doubled = [part.double() if is_tensor(part) else np.asarray(part, dtype=np.float64) for part in self._given]
        return Problem(self.fun, self.grad, tuple(doubled) if self._several else doubled[0])

    def name(self, index: int) -> str:
        """Return how an entry of the flat vector is written."""
        which = int(np.searchsorted(self._ends, index, side="right"))
        start = 0 if which == 0 else self._ends[which - 1]
        place = np.unravel_index(index - start, self.shapes[which])
        argument = f"x{which}" if self._several else "x"
        return f"{argument}[{', '.join(map(str, place))}]" if self.shapes[which] else argument

    def value(self, flat: Array, *extra: Any) -> np.generic:
        """Return the value at a flat vector, as one NumPy number."""
        result = self.fun(*self._arguments(flat, self.torch), *extra)
        return _scalar(self._first(result) if self.grad is True else result)

    def gradient(self, flat: Array, *extra: Any) -> Array:
        """Return the gradient at a flat vector, flat."""
        if callable(self.grad):
            return self._flat_gradient(self.grad(*self._arguments(flat, self._torch_grad), *extra))
        return self.both(flat, *extra)[1]

    def both(self, flat: Array, *extra: Any) -> tuple[np.generic, Array]:
        """Return value and gradient, from one evaluation where they come together."""
        if callable(self.grad):
            return self.value(flat, *extra), self.gradient(flat, *extra)
        if self.grad is True:
            result = self.fun(*self._arguments(flat, self.torch), *extra)
            return _scalar(self._first(result)), self._flat_gradient(result[1])
        return self._differentiated(flat, *extra)

    def complex_value(self, flat: Array) -> np.generic | complex:
        """Return the value at a flat complex vector, unchecked; NumPy only."""
        result = self.fun(*self._arguments(flat, False))
        return cast(np.generic, np.asarray(result).reshape(())[()])

    def _arguments(self, flat: Array, torch: bool) -> list[Any]:
        """Return the arguments, new ones for every call: a function that writes into them harms nobody."""
        starts = [0, *self._ends[:-1]]
        kind = None if flat.dtype.kind == "c" else self._dtypes
        arrays = [
            flat[start:end].reshape(shape).astype(flat.dtype if kind is None else kind[k])
            for k, (start, end, shape) in enumerate(zip(starts, self._ends, self.shapes, strict=True))
        ]
        if not torch:
            return [array[()] if array.ndim == 0 else array for array in arrays]
        import torch as library

        return [library.as_tensor(array, device=self._device) for array in arrays]

    def _speaks_torch(self, function: Function, first: bool, extra: tuple[Any, ...]) -> bool:
        """Say whether a function takes tensors. It is tried with what ``x`` is made of, then with the other."""
        try:
            function(*self._arguments(self.x, first), *extra)
            return first
        except (TypeError, AttributeError, RuntimeError) as error:
            if "torch" not in sys.modules:
                raise
            try:
                function(*self._arguments(self.x, not first), *extra)
            except Exception:
                raise error from None
            return not first

    def _differentiated(self, flat: Array, *extra: Any) -> tuple[np.generic, Array]:
        import torch

        tensors = [tensor.requires_grad_() for tensor in self._arguments(flat, True)]
        try:
            with torch.enable_grad():
                result = self.fun(*tensors, *extra)
        except (TypeError, AttributeError, RuntimeError) as error:
            raise TypeError(f"{NO_GRADIENT} fun failed with tensors that require a gradient: {error}") from error
        value = _scalar(result)
        if not is_tensor(result) or not result.requires_grad:
            raise TypeError(f"{NO_GRADIENT} The result of fun does not hang on x by a graph.")
        found = torch.autograd.grad(result.reshape(()), tensors, allow_unused=True)
        gradients = tuple(torch.zeros_like(x) if one is None else one for x, one in zip(tensors, found, strict=True))
        return value, self._flat_gradient(gradients if self._several else gradients[0])

    def _first(self, result: Any) -> Any:
        if not isinstance(result, (tuple, list)) or len(result) != 2:
            raise TypeError(f"With grad=True, fun must return (value, gradient); got {type(result).__name__}.")
        return result[0]

    def _flat_gradient(self, result: Any) -> Array:
        if result is None:
            raise TypeError("grad returned None. Is a return missing?")
        if self._several and (not isinstance(result, (tuple, list)) or len(result) != len(self.shapes)):
            raise ValueError(
                f"grad must return a tuple with one gradient for each of the {len(self.shapes)} arguments."
            )
        parts = [to_array(part) for part in (result if self._several else [result])]
        for part, shape in zip(parts, self.shapes, strict=True):
            _check_gradient_part(part, shape)
        flat = np.concatenate([part.ravel() for part in parts])
        if not np.all(np.isfinite(flat)):
            bad = int(np.argmin(np.isfinite(flat)))
            raise ValueError(
                f"The gradient is {flat[bad]} at {self.name(bad)}. Look for a division by 0, or a root or logarithm "
                "at the edge of its domain; or check at another x."
            )
        return flat


def _real(name: str, given: Any) -> Array:
    try:
        array = to_array(given)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} must be an array of numbers or a tensor; got {type(given).__name__}.") from error
    if array.dtype.kind in "iub":
        raise TypeError(f"{name} holds integers, which cannot move a little. Write 1.0 for 1, or use .astype(float).")
    if array.dtype.kind == "c":
        raise TypeError(f"{name} is complex. Check with real and imaginary part as two real arguments.")
    if array.dtype.kind != "f" or array.dtype.itemsize < 4:
        raise TypeError(f"{name} must hold float64 or float32 numbers; got {array.dtype}. Use float64 for a check.")
    if not np.all(np.isfinite(array)):
        raise ValueError(f"{name} holds NaN or Inf. Check at a point where the function is defined.")
    return array


def _scalar(result: Any) -> np.generic:
    if result is None:
        raise TypeError("fun returned None. Is a return missing?")
    if isinstance(result, (tuple, list, dict)):
        raise TypeError(
            f"fun returned a {type(result).__name__}. A gradient belongs to one number: return that. If fun returns "
            "(value, gradient), pass grad=True."
        )
    value = to_array(result)
    if value.size != 1:
        raise ValueError(
            f"fun returned shape {value.shape}, and a gradient belongs to one number. Check a weighted sum of the "
            "entries instead: lambda x: (w * fun(x)).sum(), with random weights w."
        )
    if value.dtype.kind != "f":
        kind = {"c": "a complex number", "O": type(result).__name__}.get(value.dtype.kind, f"dtype {value.dtype}")
        raise TypeError(f"fun must return a real floating-point number; got {kind}.")
    number = value.reshape(())[()]
    return cast(np.generic, number)


def _check_gradient_part(part: Array, shape: Sequence[int]) -> None:
    if part.dtype.kind not in "fiu":
        raise TypeError(f"grad must return real numbers; got dtype {part.dtype}.")
    if part.shape == tuple(shape):
        return
    cure = "A gradient has the shape of x."
    if part.ndim == len(shape) + 1 and part.shape[1:] == tuple(shape):
        cure += f" Is it a gradient for each of {part.shape[0]} samples, which has to be summed, or a Jacobian?"
    elif part.size == np.prod(shape):
        cure += f" Reshape it: .reshape({tuple(shape)})."
    raise ValueError(f"grad returned shape {part.shape} for x of shape {tuple(shape)}. {cure}")
