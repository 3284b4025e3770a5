"""Run a torch optimiser step by step and keep the path it takes.

Two ways lead a gradient of your own into ``torch.optim``:

* a **closure** that calls a loss and ``loss.backward()`` (:func:`descend`), or
* writing the gradient into ``x.grad`` yourself (:func:`descend_with_gradient`).

Both return a :class:`Trajectory`.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
AfterStep = Callable[[int, Array], "bool | None"]
_DOUBLE = np.dtype(np.float64)


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

    Raises
    ------
    ValueError
        If ``points`` is empty or a single number, or if ``losses`` or ``values`` does not go with it in length.

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
        if self.points.ndim == 0 or len(self.points) == 0:
            raise ValueError(
                f"points must hold the start and the point after each step; got shape {self.points.shape}."
            )
        for name, wanted in (("losses", self.steps), ("values", self.steps + 1)):
            array = getattr(self, name)
            if array is not None and (array.ndim == 0 or len(array) != wanted):
                raise ValueError(
                    f"{len(self.points)} points go with {wanted} {name} along the first axis; got shape {array.shape}."
                )

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
    after_step: AfterStep | None = None,
) -> Trajectory:
    """Call ``optimizer.step(closure)`` again and again, and keep the path.

    Parameters
    ----------
    optimizer : torch.optim.Optimizer
        Any of torch's, or your own. It must hold one parameter tensor of real floating-point numbers, of any shape.
    closure : callable, no arguments -> loss
        Clears the gradient, computes the loss, calls ``backward`` and returns the loss.
    steps : int, 0 or more
        How many steps to take.
    value : callable, points of shape (steps + 1, ...) -> values, optional
        The noiseless function, such as ``rosenbrock.value``. It is called on the whole path, and once more on the last
        point alone, in a batch of one, to see that it takes many points along the first axis.
    label : str
        A short name, for pictures.
    after_step : callable, (steps taken, copy of the point) -> bool or None, optional
        It is called after every step: the place for a scheduler's ``step()``, for ``noisy.advance()`` and for early
        stopping. If it returns True, the run ends there and the trajectory is shorter. The path keeps what it writes
        into the parameter itself.

    Returns
    -------
    Trajectory

    Raises
    ------
    TypeError
        If ``closure`` cannot be called: a loss was passed, or the result of the closure. Or if the parameter does not
        hold real floating-point numbers, or ``after_step`` returns something else than True, False or None.
    ValueError
        If the optimiser does not hold exactly one tensor, if that tensor holds no data, or has gaps in memory that a
        fused step would not see, if ``steps`` is negative, or if ``value`` does not give every point its value.

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

    It goes on from there, and ends early:

    >>> descend(optimizer, closure, steps=100, after_step=lambda taken, x: x[0] < 0.1).points.ravel().tolist()
    [0.75, 0.375, 0.1875, 0.09375]

    A scheduler halves the learning rate after every step:

    >>> scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    >>> path = descend(optimizer, closure, steps=2, after_step=lambda taken, x: scheduler.step())
    >>> scheduler.get_last_lr()
    [0.0625]
    """
    if not callable(closure):
        raise TypeError(
            f"closure must be a function that step can call; got {type(closure).__name__}. "
            "Pass the function itself: closure, not closure() and not the loss."
        )
    return _follow(optimizer, lambda point: optimizer.step(closure), steps, value, label, after_step)  # type: ignore[arg-type]


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
    x = _only_parameter(optimizer)
    if _needs_a_closure(optimizer):
        raise ValueError(
            f"{type(optimizer).__name__} calls a closure in its step, and a written gradient has none: use descend, "
            "with a closure that writes the gradient into x.grad and returns the loss."
        )

    quick_step = _quick_step_of(optimizer)

    def step(point: Array) -> None:
        x.grad = _as_gradient_of(x, _real_numbers(gradient(point.copy()), point.shape))
        quick_step()

    return _follow(optimizer, step, steps, value, label, after_step)


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


def _quick_step_of(optimizer: torch.optim.Optimizer) -> Callable[[], object]:
    """Return ``optimizer.step``, but past torch's wrapper of it as long as nobody listens there.

    The wrapper calls hooks and marks the step for the profiler. For a small parameter it costs almost as much as Adam.
    """
    step: Any = type(optimizer).step
    if _WRAPPER is None or getattr(step, "__code__", None) is not _WRAPPER:
        return lambda: optimizer.step()
    hooks = (
        optimizer._optimizer_step_pre_hooks,
        optimizer._optimizer_step_post_hooks,
        step.__globals__["_global_optimizer_pre_hooks"],
        step.__globals__["_global_optimizer_post_hooks"],
    )
    own, profiler = vars(optimizer), torch.autograd.profiler

    def quick_step() -> None:
        is_replaced = "step" in own or type(optimizer).step is not step
        if is_replaced or any(hooks) or getattr(profiler, "_is_profiler_enabled", True):
            optimizer.step()
        else:
            step.__wrapped__(optimizer)

    return quick_step


def _known_wrapper() -> object:
    """Return the code of torch's wrapper of every ``step``, if it uses no other names than the one that we have read.

    So a wrapper that does more, in another version of torch, is never passed by.
    """
    wrap = getattr(torch.optim.Optimizer, "profile_hook_step", None)
    code = getattr(wrap and wrap(lambda optimizer: None), "__code__", None)
    hooks = {f"_{whose}_{when}_hooks" for whose in ("optimizer_step", "global_optimizer") for when in ("pre", "post")}
    mark = {"torch", "autograd", "profiler", "record_function", "_optimizer_step_code", "__class__", "__name__"}
    checks = {"cast", "Optimizer", "chain", "values", "isinstance", "tuple", "len", "RuntimeError"}
    return code if code and set(code.co_names) == hooks | mark | checks else None


_WRAPPER = _known_wrapper()


def _follow(
    optimizer: torch.optim.Optimizer,
    step: Callable[[Array], object],
    steps: int,
    value: Callable[[Array], ArrayLike] | None,
    label: str,
    after_step: AfterStep | None,
) -> Trajectory:
    if steps < 0:
        raise ValueError(f"steps must be 0 or more; got {steps}.")
    if after_step is not None and not callable(after_step):
        raise TypeError(
            f"after_step must be a function of the steps taken and the point; got {type(after_step).__name__}. "
            "For a scheduler, use lambda taken, x: scheduler.step()."
        )
    numbers = _Numbers(_only_parameter(optimizer))
    points, losses = [numbers.copy()], []
    for taken in range(1, steps + 1):
        losses.append(_number(step(points[-1])))
        points.append(numbers.copy())
        if after_step is not None:
            ends = _is_true(after_step(taken, points[-1].copy()))
            points[-1] = numbers.copy()  # it may have moved the parameter
            if ends:
                break
    path = np.array(points)
    return Trajectory(
        points=path,
        losses=np.array(losses, dtype=np.float64),
        values=None if value is None else values_along(value, path),
        label=label,
    )


class _Numbers:
    """The numbers of a tensor. NumPy's view of them is made anew only when the tensor has other memory (x.data = y)."""

    def __init__(self, x: torch.Tensor) -> None:
        self._x = x
        self._memory: tuple[object, ...] | None = None
        self._view = np.empty(0)

    def copy(self) -> Array:
        x = self._x
        if not (x.is_cpu and x.dtype is torch.float64):
            return _copy(x)
        memory = (x.data_ptr(), x.shape, x.stride())
        if memory != self._memory:
            self._view, self._memory = x.detach().numpy(), memory
        return self._view.copy()


def values_along(function: Callable[[Array], ArrayLike], points: Array, name: str = "value") -> Array:
    """Return the values at all points of a path; refuse a function that takes only one point."""

    def refusal(what: str) -> str:
        return (
            f"{name} must take many points along the first axis and give each its value; {what}. "
            "For a function f of one point, use lambda points: np.array([f(x) for x in points])."
        )

    try:
        values = np.asarray(function(points.copy()), dtype=np.float64)
    except Exception as error:
        error.add_note(refusal(f"it was called on the whole path, of shape {points.shape}"))
        raise
    if values.ndim == 0 or len(values) != len(points):
        raise ValueError(refusal(f"for points of shape {points.shape} it gave shape {values.shape}"))
    try:
        alone = np.asarray(function(points[-1:].copy()), dtype=np.float64)
    except Exception as error:
        raise ValueError(refusal(f"for points of shape {points[-1:].shape} it failed")) from error
    # The same function may sum in another order, and in float32.
    little = 1e-6 * np.max(np.abs(values[np.isfinite(values)]), initial=0.0)
    if alone.shape != values[-1:].shape or not np.allclose(alone, values[-1:], rtol=1e-5, atol=little, equal_nan=True):
        raise ValueError(refusal("at the last point it gave another value alone than among the others"))
    return values


def _is_true(answer: object) -> bool:
    if answer is not None and not isinstance(answer, (bool, np.bool_)):
        raise TypeError(
            f"after_step must return True to end the run, or False or None to go on; got {type(answer).__name__}. "
            "Make a bool of a condition with bool(...), and end the function with return None otherwise."
        )
    return bool(answer)


def _needs_a_closure(optimizer: torch.optim.Optimizer) -> bool:
    try:  # the step of the class: a scheduler puts a wrapper of it, with another signature, into the object
        _, *parameters = inspect.signature(type(optimizer).step).parameters.values()
    except (TypeError, ValueError):  # no signature can be read
        return False
    several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return any(each.default is each.empty and each.kind not in several for each in parameters)


def _only_parameter(optimizer: torch.optim.Optimizer) -> torch.Tensor:
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


def _copy(x: torch.Tensor) -> Array:
    copy: Array = x.detach().cpu().double().numpy().copy()
    return copy


def _number(loss: object) -> float | Array:
    if loss is None:
        return np.nan
    return _copy(loss) if isinstance(loss, torch.Tensor) else np.asarray(loss, dtype=np.float64)


def _read_only(array: ArrayLike) -> Array:
    copy = np.array(array, dtype=np.float64)
    copy.flags.writeable = False
    return copy


def _point(x: Array) -> str:
    return "(" + ", ".join(f"{entry:.3f}" for entry in np.ravel(x)) + ")"
