r"""Runge-Kutta methods with a fixed step, and their discrete adjoint: the exact derivative of what they compute.

A step of size h with the stages k_i = f(t + c_i h, U_i, θ) is

.. math:: U_i = u + h \sum_{j < i} a_{ij} k_j, \qquad u_+ = u + h \sum_i b_i k_i.

The adjoint walks the same steps backward. From λ, the derivative for u₊, it gets with w_i, that for k_i,

.. math:: w_i = h \Big(b_i λ + \sum_{j > i} a_{ji} v_j\Big), \quad v_i = (∂f/∂u)^{T} w_i, \quad λ_- = λ + \sum_i v_i,

and the sum of (∂f/∂θ)ᵀ w_i is the gradient for θ.

Source: W. W. Hager, "Runge-Kutta methods in optimal control and the transformed adjoint system",
Numerische Mathematik 87 (2000), 247-282.
"""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from .ode import Array, Equation, SolveFailed, alike, evaluated, needs, numbers, observation_times, positive

Row = tuple[float, ...]


class Tableau(NamedTuple):
    """The numbers of an explicit method: ``a`` row by row, ``b``, and ``c``."""

    a: tuple[Row, ...]
    b: Row
    c: Row


METHODS = {
    "euler": Tableau(((),), (1.0,), (0.0,)),
    "midpoint": Tableau(((), (0.5,)), (0.0, 1.0), (0.0, 0.5)),
    "rk4": Tableau(((), (0.5,), (0.0, 0.5), (0.0, 0.0, 1.0)), (1 / 6, 1 / 3, 1 / 3, 1 / 6), (0.0, 0.5, 0.5, 1.0)),
}


class Steps(NamedTuple):
    """What an adjoint needs of a solve: the parameters, and U_i for each step and stage, (steps, stages, ..., n)."""

    theta: Array
    stages: Array


@dataclass(frozen=True, eq=False)
class RungeKutta:
    """A Runge-Kutta method with a fixed step, and its discrete adjoint, for one trajectory or many at once.

    Value, adjoint, tangent and hvp are derivatives of one computation: they agree to rounding, whatever the step. How
    far the *value* is from the true solution, the step decides (the error of "rk4" falls with its fourth power):
    compare with half of it. The leading axes of ``theta`` and ``u0`` are a batch; as an op of torch it takes
    ``batch="vectorized"``.

    Parameters
    ----------
    equation : Equation
        The right-hand side with its derivatives.
    times : array_like, shape (T,)
        When the solution is wanted; increasing, from ``start`` on.
    step : float
        The largest step. From each time to the next there are as few equal steps as this allows.
    start : float
        The time of u0.
    method : {"rk4", "midpoint", "euler"}
        Of order 4, 2 and 1.

    Raises
    ------
    TypeError, ValueError
        If an argument does not fit; for theta and u0 when they are given.
    SolveFailed
        If the solution is not finite, as with a step that is too large, or if the equation raises ArithmeticError.

    Examples
    --------
    >>> from helpers.solvers import PredatorPrey
    >>> solver = RungeKutta(PredatorPrey(), times=[1.0, 2.0], step=0.1)
    >>> y, state = solver.forward([1.0, 0.5, 0.8, 0.4], [2.0, 1.0])
    >>> y.round(4).tolist()
    [[3.1695, 1.2544], [3.6548, 2.3475]]

    Two trajectories at once, and the gradient of the sum of all their numbers:

    >>> y, state = solver.forward([[1.0, 0.5, 0.8, 0.4]] * 2, [[2.0, 1.0], [1.0, 1.0]])
    >>> of_theta, of_u0 = solver.adjoint(state, np.ones((2, 2, 2)))
    >>> y.shape, of_theta.shape, of_u0.shape
    ((2, 2, 2), (2, 4), (2, 2))
    """

    signature: ClassVar[str] = "(p),(n)->(t,n)"

    equation: Equation
    times: ArrayLike
    step: float
    _: KW_ONLY
    start: float = 0.0
    method: str = "rk4"
    _tableau: Tableau = field(init=False, repr=False)
    _steps: list[tuple[float, float]] = field(init=False, repr=False)
    _observed: list[int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.equation, Equation):
            raise TypeError(f"equation must be an Equation, with rhs and vjp; got {type(self.equation).__name__}.")
        if self.method not in METHODS:
            raise ValueError(f"method must be one of {', '.join(METHODS)}; got {self.method!r}.")
        step, times = positive("step", self.step), observation_times(self.times, self.start)
        steps: list[tuple[float, float]] = []
        observed = []
        for begin, end in zip([self.start, *times[:-1]], times, strict=True):
            count = int(np.ceil((end - begin) / step * (1 - 1e-12)))  # a rounding is no reason for one step more
            steps += [(begin + k * (end - begin) / count, (end - begin) / count) for k in range(count)]
            observed.append(len(steps))
        for name, known in (
            ("times", times),
            ("_tableau", METHODS[self.method]),
            ("_steps", steps),
            ("_observed", observed),
        ):
            object.__setattr__(self, name, known)

    def forward(self, theta: ArrayLike, u0: ArrayLike) -> tuple[Array, Steps]:
        """Solve.

        Parameters
        ----------
        theta : array_like, shape (..., p)
            The parameters.
        u0 : array_like, shape (..., n)
            The solution at ``start``, with the same leading axes.

        Returns
        -------
        y : array, shape (..., T, n)
            The solution at the times.
        state : Steps
            What ``adjoint``, ``tangent`` and ``hvp`` need.
        """
        theta, u = np.array(numbers("theta", theta)), numbers("u0", u0)  # a copy: the state must not change
        if not theta.ndim or not u.ndim or theta.shape[:-1] != u.shape[:-1]:
            raise ValueError(
                f"theta and u0 must have the same leading axes; got the shapes {theta.shape} and {u.shape}. "
                "Stretch one of them with numpy.broadcast_to."
            )
        self.equation.check(theta, u)
        alike(self.equation, "rhs", self.start, u, theta)
        evaluated(self.equation, "rhs", self.start, u, theta)
        stages = np.empty((len(self._steps), len(self._tableau.b), *u.shape))
        path = [u]
        try:
            with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is refused below, in words
                for (t, h), inner in zip(self._steps, stages, strict=True):
                    path.append(self._forward_step(t, h, path[-1], theta, inner))
        except ArithmeticError as error:
            raise SolveFailed(f"{self._name}: the equation failed at t = {t:g}: {error}") from error
        y = self._at_times(path)
        if not np.all(np.isfinite(path[-1])):
            lost = next(t for (t, _), u in zip(self._steps, path[1:], strict=True) if not np.all(np.isfinite(u)))
            raise SolveFailed(
                f"{self._name} became NaN or Inf after t = {lost:g}. Take a smaller step than {self.step:g}, or look "
                "at the parameters: perhaps the solution grows without bound."
            )
        return y, Steps(theta, stages)

    def adjoint(self, state: Steps, g: ArrayLike) -> tuple[Array, Array]:
        """Return the transposed Jacobian times g, of shape (..., T, n): the gradients of theta and of u0."""
        theta, stages = state
        g = self._weights(stages, g)
        alike(self.equation, "vjp", self.start, stages[0, 0], theta)
        a, b, c = self._tableau
        of_u, of_theta = np.zeros(stages.shape[2:]), np.zeros_like(theta)
        weights = dict(zip(self._observed, np.moveaxis(g, -2, 0), strict=True))
        for number in reversed(range(len(self._steps))):
            of_u = of_u + weights.get(number + 1, 0.0)
            t, h = self._steps[number]
            into: list[Array] = [b_i * of_u for b_i in b]
            for i in reversed(range(len(b))):
                at = (t + c[i] * h, stages[number, i], theta)
                v, w_theta = evaluated(self.equation, "vjp", *at, h * into[i])
                of_u, of_theta = of_u + v, of_theta + w_theta
                _spread(a[i], v, into)
        return of_theta, of_u + weights.get(0, 0.0)

    @needs("jvp")
    def tangent(self, state: Steps, dtheta: ArrayLike, du0: ArrayLike) -> Array:
        """Return the Jacobian times (dtheta, du0), of shape (..., T, n)."""
        return self._at_times(self._tangents(state, dtheta, du0)[0])

    @needs("jvp", "hvp")
    def hvp(self, state: Steps, g: ArrayLike, dtheta: ArrayLike, du0: ArrayLike) -> tuple[Array, Array]:
        """Return the derivative of the adjoint along (dtheta, du0) for a fixed g: for theta and for u0."""
        theta, stages = state
        g = self._weights(stages, g)
        alike(self.equation, "hvp", self.start, stages[0, 0], theta)
        _, dstages = self._tangents(state, dtheta, du0)
        dtheta = np.asarray(dtheta, dtype=np.float64)
        a, b, c = self._tableau
        of_u, d_u, d_theta = np.zeros(stages.shape[2:]), np.zeros(stages.shape[2:]), np.zeros_like(theta)
        weights = dict(zip(self._observed, np.moveaxis(g, -2, 0), strict=True))
        for number in reversed(range(len(self._steps))):
            of_u = of_u + weights.get(number + 1, 0.0)
            t, h = self._steps[number]
            into, d_into = [b_i * of_u for b_i in b], [b_i * d_u for b_i in b]
            for i in reversed(range(len(b))):
                at = (t + c[i] * h, stages[number, i], theta)
                v, _ = evaluated(self.equation, "vjp", *at, h * into[i])
                dv, dw_theta = evaluated(self.equation, "vjp", *at, h * d_into[i])
                more, more_theta = evaluated(self.equation, "hvp", *at, h * into[i], dstages[number, i], dtheta)
                dv = dv + more
                of_u, d_u, d_theta = of_u + v, d_u + dv, d_theta + dw_theta + more_theta
                _spread(a[i], v, into)
                _spread(a[i], dv, d_into)
        return d_theta, d_u

    def _forward_step(self, t: float, h: float, u: Array, theta: Array, inner: Array) -> Array:
        """Return u after one step; write the stages U_i into ``inner``."""
        a, b, c = self._tableau
        slopes: list[Array] = []
        for i, row in enumerate(a):
            inner[i] = _moved(u, h, row, slopes)
            slopes.append(np.asarray(self.equation.rhs(t + c[i] * h, inner[i], theta)))
        return _moved(u, h, b, slopes)

    def _tangents(self, state: Steps, dtheta: ArrayLike, du0: ArrayLike) -> tuple[list[Array], Array]:
        """Return the tangents of the path, and those of the stages."""
        theta, stages = state
        dtheta, du = numbers("dtheta", dtheta, theta.shape), numbers("du0", du0, stages.shape[2:])
        alike(self.equation, "jvp", self.start, stages[0, 0], theta)
        a, b, c = self._tableau
        path, dstages = [du], np.empty_like(stages)
        for number, (t, h) in enumerate(self._steps):
            slopes: list[Array] = []
            for i, row in enumerate(a):
                dstages[number, i] = _moved(path[-1], h, row, slopes)
                at = (t + c[i] * h, stages[number, i], theta)
                slopes += evaluated(self.equation, "jvp", *at, dstages[number, i], dtheta)
            path.append(_moved(path[-1], h, b, slopes))
        return path, dstages

    def _weights(self, stages: Array, g: ArrayLike) -> Array:
        shape = stages.shape[2:]
        return numbers("g", g, (*shape[:-1], len(self._observed), shape[-1]))

    def _at_times(self, path: Sequence[Array]) -> Array:
        return np.stack([path[number] for number in self._observed], axis=-2)

    @property
    def _name(self) -> str:
        return f"RungeKutta of {type(self.equation).__name__}"


def _moved(u: Array, h: float, row: Row, slopes: Sequence[Array]) -> Array:
    """Return u + h times the weighted sum of the slopes."""
    for weight, slope in zip(row, slopes, strict=True):
        if weight:
            u = u + (h * weight) * slope
    return u


def _spread(row: Row, v: Array, into: list[Array]) -> None:
    """Add to each earlier stage's weight what a later stage hands back: the transpose of ``_moved``."""
    for j, weight in enumerate(row):
        if weight:
            into[j] = into[j] + weight * v
