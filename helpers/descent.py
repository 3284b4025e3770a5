"""Run a torch optimiser step by step and keep the path it takes.

Two ways lead a gradient of your own into ``torch.optim``:

* a **closure** that calls a loss and ``loss.backward()`` (:func:`descend`), or
* writing the gradient into ``x.grad`` yourself (:func:`descend_with_gradient`).

Both return a :class:`Trajectory`.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Trajectory:
    """The path of an optimiser. It keeps copies of its arrays, and nobody can write into them.

    Parameters
    ----------
    points : array, shape (steps + 1, ...)
        The parameter before the first step and after each one.
    losses : array, shape (steps,) or (steps, ...)
        What each ``step`` returned: the loss *before* that step. NaN where the closure returned nothing.
    values : array, shape (steps + 1,) or (steps + 1, ...), or None
        The noiseless function at each point, where :func:`descend` was given it.
    label : str
        A short name, for pictures.

    Examples
    --------
    >>> path = Trajectory(np.zeros((3, 2)), np.array([1.0, 0.5]), label="two steps")
    >>> path.steps, path.start.tolist(), path.end.tolist()
    (2, [0.0, 0.0], [0.0, 0.0])
    """

    points: Array
    losses: Array
    values: Array | None = None
    label: str = ""

    def __post_init__(self) -> None:
        for name in ("points", "losses", "values"):
            array = getattr(self, name)
            if array is not None:
                object.__setattr__(self, name, _read_only(array))

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self.points, self.losses, self.values, self.label)  # read-only in the copy too

    @property
    def steps(self) -> int:
        """How many steps were taken."""
        return len(self.points) - 1

    @property
    def start(self) -> Array:
        """The first point."""
        start: Array = self.points[0]
        return start

    @property
    def end(self) -> Array:
        """The last point."""
        end: Array = self.points[-1]
        return end

    def __repr__(self) -> str:
        name = f"{self.label}: " if self.label else ""
        if self.points.ndim > 2:
            return f"Trajectory({name}{self.steps} steps of a parameter of shape {self.start.shape})"
        last = "" if self.values is None or self.values.ndim > 1 else f", f = {self.values[-1]:.1e}"
        return f"Trajectory({name}{self.steps} steps from {_point(self.start)} to {_point(self.end)}{last})"


def descend(
    optimizer: torch.optim.Optimizer,
    closure: Callable[[], torch.Tensor | None],
    steps: int,
    *,
    value: Callable[[Array], ArrayLike] | None = None,
    label: str = "",
) -> Trajectory:
    """Call ``optimizer.step(closure)`` again and again, and keep the path.

    Parameters
    ----------
    optimizer : torch.optim.Optimizer
        Any of torch's, or your own. It must hold one parameter tensor, of any shape.
    closure : callable, no arguments -> loss
        Clears the gradient, computes the loss, calls ``backward`` and returns the loss.
    steps : int, 0 or more
        How many steps to take.
    value : callable, points of shape (steps + 1, ...) -> values, optional
        The noiseless function, such as ``rosenbrock.value``. It is called once, on the whole path.
    label : str
        A short name, for pictures.

    Returns
    -------
    Trajectory

    Raises
    ------
    TypeError
        If ``closure`` cannot be called: a loss was passed, or the result of the closure.
    ValueError
        If the optimiser does not hold exactly one tensor, or ``steps`` is negative.

    Whatever the closure raises comes through unchanged.

    Examples
    --------
    >>> x = torch.tensor([3.0], dtype=torch.float64, requires_grad=True)
    >>> optimizer = torch.optim.SGD([x], lr=0.25)
    >>> def closure():
    ...     optimizer.zero_grad()
    ...     loss = (x**2).sum()
    ...     loss.backward()
    ...     return loss
    >>> descend(optimizer, closure, steps=2).points.ravel().tolist()
    [3.0, 1.5, 0.75]
    """
    if not callable(closure):
        raise TypeError(
            f"closure must be a function that step can call; got {type(closure).__name__}. "
            "Pass the function itself: closure, not closure() and not the loss."
        )
    return _follow(optimizer, lambda: optimizer.step(closure), steps, value, label)  # type: ignore[arg-type]


def descend_with_gradient(
    optimizer: torch.optim.Optimizer,
    gradient: Callable[[Array], ArrayLike],
    steps: int,
    *,
    value: Callable[[Array], ArrayLike] | None = None,
    label: str = "",
) -> Trajectory:
    """Write ``gradient(x)`` into ``x.grad`` before each step: no graph, no Function, no backward.

    Parameters
    ----------
    optimizer : torch.optim.Optimizer
        One that asks for no closure (not LBFGS), with one parameter tensor.
    gradient : callable, array of the parameter's shape -> array of the same shape
        NumPy code. Its argument is a copy: what it writes there changes nothing.
    steps, value, label
        See :func:`descend`.

    Returns
    -------
    Trajectory
        Its ``losses`` are NaN: nothing computes the loss.

    Raises
    ------
    TypeError
        If the gradient does not hold real numbers.
    ValueError
        If the gradient has another shape than the parameter; and see :func:`descend`.

    Examples
    --------
    >>> x = torch.tensor([3.0], dtype=torch.float64)
    >>> optimizer = torch.optim.SGD([x], lr=0.25)
    >>> descend_with_gradient(optimizer, lambda x: 2 * x, steps=2).points.ravel().tolist()
    [3.0, 1.5, 0.75]
    """
    x = _only_parameter(optimizer)

    def step() -> None:
        given = np.asarray(gradient(_copy(x)))
        if given.dtype.kind not in "iuf":
            raise TypeError(f"The gradient must hold real numbers; got dtype {given.dtype}.")
        if given.shape != tuple(x.shape):
            raise ValueError(f"The gradient has shape {given.shape}, the parameter {tuple(x.shape)}: they must agree.")
        x.grad = torch.tensor(given, dtype=x.dtype, device=x.device)
        optimizer.step()

    return _follow(optimizer, step, steps, value, label)


def _follow(
    optimizer: torch.optim.Optimizer,
    step: Callable[[], object],
    steps: int,
    value: Callable[[Array], ArrayLike] | None,
    label: str,
) -> Trajectory:
    if steps < 0:
        raise ValueError(f"steps must be 0 or more; got {steps}.")
    x = _only_parameter(optimizer)
    points, losses = [_copy(x)], []
    for _ in range(steps):
        losses.append(_number(step()))
        points.append(_copy(x))
    path = np.stack(points)
    return Trajectory(
        points=path,
        losses=np.array(losses, dtype=np.float64),
        values=None if value is None else np.asarray(value(path.copy()), dtype=np.float64),
        label=label,
    )


def _only_parameter(optimizer: torch.optim.Optimizer) -> torch.Tensor:
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    if len(parameters) != 1:
        raise ValueError(
            f"A trajectory follows one tensor, and this optimiser holds {len(parameters)}. "
            "Put your variables into one tensor, or write the loop yourself."
        )
    parameter: torch.Tensor = parameters[0]
    return parameter


def _copy(x: torch.Tensor) -> Array:
    copy: Array = x.detach().to("cpu", torch.float64, copy=True).numpy()
    return copy


def _number(loss: object) -> Array:
    if loss is None:
        return np.array(np.nan)
    return _copy(loss) if isinstance(loss, torch.Tensor) else np.asarray(loss, dtype=np.float64)


def _read_only(array: ArrayLike) -> Array:
    copy = np.array(array, dtype=np.float64)
    copy.flags.writeable = False
    return copy


def _point(x: Array) -> str:
    return "(" + ", ".join(f"{entry:.3f}" for entry in np.ravel(x)) + ")"
