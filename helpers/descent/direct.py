"""The direct lane: the gradient is written into ``x.grad``, and nothing else is done that a step can do without."""

import inspect
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from .parameter import only_parameter
from .path import AfterStep, follow
from .quick_step import quick_step_of
from .trajectory import Array, Trajectory

_DOUBLE = np.dtype(np.float64)


def descend_with_gradient(
    optimizer: torch.optim.Optimizer,
    gradient: Callable[[Array], ArrayLike],
    steps: int,
    *,
    value: Callable[[Array], ArrayLike] | None = None,
    label: str = "",
    after_step: AfterStep | None = None,
) -> Trajectory:
    """Write ``gradient(x)`` into ``x.grad`` before each step: no graph, no Function, no backward.

    Every step gets a new tensor as ``x.grad``, so whoever keeps one keeps the gradient of that step. The hooks of the
    optimiser are called as ever. For a small parameter the optimiser is most of the time, and
    ``torch.optim.Adam([x], fused=True)`` is the quickest: the same path but for rounding.

    Parameters
    ----------
    optimizer : torch.optim.Optimizer
        One that asks for no closure (not LBFGS), with one parameter tensor.
    gradient : callable, array of the parameter's shape -> array of the same shape
        NumPy code. Its argument is a copy: what it writes there changes nothing.
    steps, value, label, after_step
        See :func:`descend`.

    Returns
    -------
    Trajectory
        Its ``losses`` are NaN: nothing computes the loss.

    Raises
    ------
    TypeError
        If the gradient does not hold real numbers, or is a masked array; and see :func:`descend`.
    ValueError
        If the gradient has another shape than the parameter, if a finite entry is too large for the parameter's dtype,
        or if the optimiser's step needs a closure; and see :func:`descend`.

    Examples
    --------
    >>> x = torch.tensor([3.0], dtype=torch.float64)
    >>> optimizer = torch.optim.SGD([x], lr=0.25)
    >>> descend_with_gradient(optimizer, lambda x: 2 * x, steps=2).points.ravel().tolist()
    [3.0, 1.5, 0.75]
    """
    x = only_parameter(optimizer)
    if needs_a_closure(optimizer):
        raise ValueError(
            f"{type(optimizer).__name__} calls a closure in its step, and a written gradient has none: use descend, "
            "with a closure that writes the gradient into x.grad and returns the loss."
        )

    quick_step = quick_step_of(optimizer)

    def step(point: Array) -> None:
        x.grad = _as_gradient_of(x, _real_numbers(gradient(point.copy()), point.shape))
        quick_step()

    return follow(optimizer, step, steps, value, label, after_step)


def _as_gradient_of(x: torch.Tensor, given: NDArray[np.generic]) -> torch.Tensor:
    """Return a new tensor with the dtype, device and layout of x. It shares no memory with what was given."""
    if x.dtype is torch.float64 and given.itemsize <= 8:  # a double holds each of these numbers
        written = torch.from_numpy(np.array(given, dtype=np.float64, order="C"))
    else:
        written = _rounded(given, x.dtype)
    if x.is_cpu and x.is_contiguous():
        return written
    return torch.empty_like(x, requires_grad=False).copy_(written)  # fused optimisers pair entries as memory has them


def _real_numbers(answer: ArrayLike, shape: tuple[int, ...]) -> NDArray[np.generic]:
    if type(answer) is np.ndarray and answer.dtype == _DOUBLE and answer.shape == shape:  # as nearly always
        return answer
    if isinstance(answer, np.ma.MaskedArray):
        raise TypeError("The gradient is a masked array, and torch knows no masks: fill it, as with np.ma.filled.")
    given: NDArray[np.generic] = np.asarray(answer)
    if given.dtype.kind not in "iuf":
        raise TypeError(f"The gradient must hold real numbers; got dtype {given.dtype}.")
    if given.shape != shape:
        raise ValueError(f"The gradient has shape {given.shape}, the parameter {shape}: they must agree.")
    return given


def _rounded(given: NDArray[np.generic], dtype: torch.dtype) -> torch.Tensor:
    """Return the numbers in another dtype; refuse to make a finite one infinite."""
    with np.errstate(over="ignore"):
        double = np.array(given, dtype=np.float64, order="C")  # torch takes neither longdouble nor negative strides
    rounded = torch.from_numpy(double).to(dtype)
    if np.any(np.isfinite(given) & ~rounded.isfinite().numpy()):
        raise ValueError(
            f"The gradient has a finite entry that {dtype} cannot hold. "
            "Scale the function down, or give the parameter a wider dtype such as torch.float64."
        )
    return rounded


def needs_a_closure(optimizer: torch.optim.Optimizer) -> bool:
    """Say whether an optimiser's step must be given a closure."""
    try:  # the step of the class: a scheduler puts a wrapper of it, with another signature, into the object
        _, *parameters = inspect.signature(type(optimizer).step).parameters.values()
    except (TypeError, ValueError):  # no signature can be read
        return False
    several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return any(each.default is each.empty and each.kind not in several for each in parameters)
