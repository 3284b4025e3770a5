"""An ordinary differential equation with its derivatives: what every ODE solver of this package takes.

Write your own equation as a subclass of :class:`Equation`. The solvers see nothing else of it.
"""

import abc
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Method = TypeVar("Method", bound=Callable[..., Any])

SAME = 1e-5  # how far a trajectory of a batch may be from the same one alone: an equation may compute in float32
FURTHER = {"rhs": (), "vjp": (0,), "jvp": (0, 1), "hvp": (0, 0, 1)}  # arguments after theta: like u (0), like theta (1)
CURE = 'Unpack u.T and theta.T, so that the coordinates come first, or make the op with batch="loop".'


class SolveFailed(RuntimeError):
    """A solver could not compute a solution; the message says why, and what may help."""


class Equation(abc.ABC):
    """The equation du/dt = f(t, u, θ), with the derivatives of f.

    All arguments and results are arrays: ``u`` and ``w`` of shape (..., n), ``theta`` of shape (..., p), and ``t`` is a
    number. The leading axes are a batch. With ``u.T`` and ``theta.T`` the coordinates come first, so the same lines
    work for one trajectory and for many. An equation for one trajectory at a time may leave the batch out.

    Methods that you write:

    ``rhs(t, u, theta)``
        The right-hand side f, with the shape of ``u``.
    ``vjp(t, u, theta, w) -> (of u, of theta)``
        The two transposed Jacobians of f times ``w``, with the shapes of ``u`` and ``theta``.
    ``jvp(t, u, theta, du, dtheta)`` (optional)
        The derivative of f along (``du``, ``dtheta``), for forward mode. Without it a solver has no ``tangent``.
    ``hvp(t, u, theta, w, du, dtheta) -> (of u, of theta)`` (optional)
        The derivative of ``vjp`` along (``du``, ``dtheta``) for a fixed ``w``, for second derivatives. Without it, or
        without ``jvp``, a solver has no ``hvp``.
    ``check(theta, u0)`` (optional)
        Raise ValueError where the equation makes no sense.

    Examples
    --------
    Decay, du/dt = -θ u:

    >>> class Decay(Equation):
    ...     def rhs(self, t, u, theta):
    ...         return -theta * u
    ...     def vjp(self, t, u, theta, w):
    ...         return -theta * w, -u * w
    >>> theta, u, w = np.array([2.0]), np.array([3.0]), np.array([1.0])
    >>> Decay().rhs(0.0, u, theta), Decay().vjp(0.0, u, theta, w)
    (array([-6.]), (array([-2.]), array([-3.])))
    """

    @abc.abstractmethod
    def rhs(self, t: float, u: Array, theta: Array) -> Array:
        """Return f(t, u, θ)."""

    @abc.abstractmethod
    def vjp(self, t: float, u: Array, theta: Array, w: Array) -> tuple[Array, Array]:
        """Return the transposed Jacobians of f times w."""

    def jvp(self, t: float, u: Array, theta: Array, du: Array, dtheta: Array) -> Array:
        """Return the derivative of f along (du, dtheta). Optional."""
        raise NotImplementedError(
            f"{type(self).__name__} has no jvp, which tangents and second derivatives need. Write jvp(self, t, u, "
            "theta, du, dtheta), which returns the derivative of rhs along (du, dtheta)."
        )

    def hvp(self, t: float, u: Array, theta: Array, w: Array, du: Array, dtheta: Array) -> tuple[Array, Array]:
        """Return the derivative of vjp along (du, dtheta). Optional."""
        raise NotImplementedError(
            f"{type(self).__name__} has no hvp, which second derivatives need. Write hvp(self, t, u, theta, w, du, "
            "dtheta), which returns the derivative of vjp along (du, dtheta)."
        )

    def check(self, theta: Array, u0: Array) -> None:  # noqa: B027 - nothing to check is a fair answer
        """Raise ValueError where the equation makes no sense. Optional."""


class needs:
    """Make a method of a solver that is there only if its equation has other methods; else the attribute is missing.

    So whoever asks a solver for what it offers, as the bridge does, gets the answer for its equation.
    """

    def __init__(self, *parts: str) -> None:
        self._parts = parts

    def __call__(self, method: Method) -> Method:
        """Take the method: the decorator."""
        self._method = method
        return self  # type: ignore[return-value]

    def __get__(self, solver: Any, kind: type) -> Any:
        if solver is None:
            return self._method
        lacking = [part for part in self._parts if not has(solver.equation, part)]
        if lacking:
            equation, what = type(solver.equation).__name__, " and ".join(lacking)
            raise AttributeError(
                f"{type(solver).__name__} of {equation} has no {self._method.__name__}: that needs {what} of the "
                "equation. The docstring of Equation says what to write."
            )
        return self._method.__get__(solver)


def has(equation: Equation, part: str) -> bool:
    """Say whether an equation has an optional method."""
    return getattr(getattr(equation, part), "__func__", None) is not getattr(Equation, part)


def numbers(name: str, given: Any, shape: tuple[int, ...] | None = None) -> Array:
    """Return an array of finite float64 numbers; refuse what is none, or has another shape."""
    if hasattr(given, "requires_grad"):
        raise TypeError(
            f"{name} is a torch tensor, and a solver is NumPy code. Make an op of the solver with differentiable, or "
            f"pass {name}.detach().numpy()."
        )
    try:
        array = np.asarray(given)
    except ValueError as error:
        raise ValueError(f"{name} must be an array of numbers: its rows differ in length.") from error
    if array.dtype.kind not in "iuf":
        raise TypeError(f"{name} must hold real numbers; got {type(given).__name__} of dtype {array.dtype}.")
    if shape is not None and array.shape != shape:
        raise ValueError(f"{name} must have the shape {shape}; got {array.shape}.")
    if not np.all(np.isfinite(array)):
        raise ValueError(f"{name} holds NaN or Inf. Look at what computed it.")
    return array.astype(np.float64, copy=False)


def observation_times(given: Any, start: float) -> Array:
    """Return the times at which a solution is wanted, as an array that cannot be written to."""
    times = np.array(numbers("times", given))  # a copy: the solver's own
    if times.ndim != 1 or not len(times):
        raise ValueError(f"times must be a sequence of numbers; got the shape {times.shape}.")
    if not np.isfinite(start) or times[0] < start or np.any(np.diff(times) <= 0):
        raise ValueError(f"times must increase, from start={start:g} on. Sort them, and keep each only once.")
    if times[-1] == start:
        raise ValueError(f"times ends at start={start:g}, so there is nothing to solve. Add a later time.")
    times.setflags(write=False)
    return times


def positive(name: str, number: Any) -> float:
    """Return a float above 0, or say that it must be one."""
    if not isinstance(number, (int, float, np.number)) or not 0 < float(number) < np.inf:
        raise ValueError(f"{name} must be a number above 0; got {number!r}.")
    return float(number)


def evaluated(equation: Equation, method: str, t: float, u: Array, theta: Array, *along: Array) -> list[Array]:
    """Return what a method of an equation returns, as arrays, if the shapes fit: NumPy would stretch a wrong one."""
    found = getattr(equation, method)(t, u, theta, *along)
    like = (u,) if method in ("rhs", "jvp") else (u, theta)
    parts = [found] if len(like) == 1 or found is None else list(found)
    shapes, wanted = [np.shape(part) for part in parts], [array.shape for array in like]
    if shapes != wanted:
        raise ValueError(
            f"{type(equation).__name__}.{method} must return {_told(wanted)}, the shape of "
            f"{'u' if len(like) == 1 else 'u and that of theta'}; it returned "
            f"{'nothing' if found is None else _told(shapes)}."
        )
    return [np.asarray(part) for part in parts]


def _told(shapes: list[tuple[int, ...]]) -> str:
    return " and ".join(map(str, shapes))


def alike(equation: Equation, method: str, t: float, u: Array, theta: Array) -> None:
    """Refuse a method of an equation that mixes the trajectories of a batch: the first and the last are tried alone.

    An equation that unpacks ``u`` in place of ``u.T`` takes trajectories for coordinates. Where there are as many of
    the one as of the other, every shape fits, and nothing else would notice.
    """
    batch = u.shape[:-1]
    if not batch or 0 in batch:
        return
    of = [u, theta, *(_direction((u, theta)[which]) for which in FURTHER[method])]
    name, first, last = f"{type(equation).__name__}.{method}", (0,) * len(batch), (-1,) * len(batch)
    try:
        together = evaluated(equation, method, t, *of)
    except (ValueError, IndexError, TypeError) as error:
        evaluated(equation, method, t, *(array[first] for array in of))  # what fails alone too says why by itself
        cause = str(error).rstrip(". ")
        raise ValueError(f"{name} works for one trajectory, and not for a batch: {cause}. {CURE}") from error
    for place in (first, last):
        alone = evaluated(equation, method, t, *(array[place] for array in of))
        if not all(_near(part[place], own) for part, own in zip(together, alone, strict=True)):
            raise ValueError(f"{name} gives another result for a batch than for one trajectory. {CURE}")


def _direction(array: Array) -> Array:
    """Return numbers of which no two are equal."""
    return np.cos(np.arange(array.size)).reshape(array.shape)


def _near(part: Array, own: Array) -> bool:
    room = SAME * np.max(np.abs(own), initial=0.0)
    return not np.all(np.isfinite(own)) or np.allclose(part, own, rtol=0.0, atol=room)
