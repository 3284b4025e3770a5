r"""SciPy's ODE solver with the continuous adjoint.

For du/dt = f(t, u, θ) and outputs y_i = u(t_i) with weights g_i, the adjoint λ solves, backward in time,

.. math:: \dot λ = -\left(\frac{∂f}{∂u}\right)^{T} λ, \qquad λ \text{ jumps by } g_i \text{ at } t_i,

and the gradients are λ at the start, for u(start), and the integral of (∂f/∂θ)ᵀ λ, for θ.

Source: L. S. Pontryagin and others, "The Mathematical Theory of Optimal Processes" (1962); for observations at single
times Y. Cao, S. Li, L. Petzold, R. Serban, SIAM J. Sci. Comput. 24 (2003), 1076-1089.
"""

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.integrate import OdeSolution, solve_ivp  # type: ignore[import-untyped]

from .ode import Array, Equation, SolveFailed, evaluated, needs, numbers, observation_times, positive

METHODS = ("DOP853", "RK45", "RK23", "Radau", "BDF")
DEGREE = 7  # of the polynomials between the steps, at most: that of DOP853
NODES = np.cos(np.pi * (2 * np.arange(DEGREE + 1) + 1) / (2 * DEGREE + 2))
TO_POWERS = np.linalg.inv(np.vander(NODES, increasing=True)).T
EXPONENTS = np.arange(DEGREE + 1)
GROWTH = 1.3  # of the first step tried after an observation: without it, one short step would make all others short


class Solved(NamedTuple):
    """What an adjoint needs of a solve: the parameters, and the trajectory at all times."""

    theta: Array
    trajectory: "Trajectory"


class Trajectory:
    """The dense output of a solve as powers of time: an evaluation costs a tenth of SciPy's own.

    Parameters
    ----------
    solution : scipy.integrate.OdeSolution
        From ``solve_ivp(..., dense_output=True)``, with polynomials of a degree up to 7.
    """

    def __init__(self, solution: OdeSolution) -> None:
        edges = np.asarray(solution.ts)
        self._edges = edges.tolist()
        self._centres, self._halves = (edges[1:] + edges[:-1]) / 2, np.diff(edges) / 2
        values = [
            piece(centre + half * NODES)
            for piece, centre, half in zip(solution.interpolants, self._centres, self._halves, strict=True)
        ]
        self._powers = np.array(values) @ TO_POWERS

    def __call__(self, t: float) -> Array:
        """Return u at one time."""
        step = min(max(bisect_right(self._edges, t) - 1, 0), len(self._centres) - 1)
        u: Array = self._powers[step] @ ((t - self._centres[step]) / self._halves[step]) ** EXPONENTS
        return u


@dataclass(frozen=True, eq=False)
class SolveIVP:
    """``scipy.integrate.solve_ivp`` with its continuous adjoint, for one trajectory.

    The adjoint solves a second equation, backward in time, along the dense output of the first. So it approximates the
    gradient of the *true* solution, and its error is that of two solves. With the default tolerances
    adjoint and tangent agree to 1e-10 or better. With ``rtol=1e-6`` they agree to about 1e-7, which is enough for Adam,
    and no dot-product test passes at 1e-10. For the exact gradient of what was computed take :class:`RungeKutta`.

    Parameters
    ----------
    equation : Equation
        The right-hand side with its derivatives.
    times : array_like, shape (T,)
        When the solution is wanted; increasing, from ``start`` on.
    start : float
        The time of u0.
    method : {"DOP853", "RK45", "RK23", "Radau", "BDF"}
        SciPy's name of the method; the last two are for stiff equations.
    rtol, atol : float
        SciPy's tolerances, for the solve and for its adjoint. Those of the adjoint hold for ``g`` scaled to size 1.
    limit : int
        How many evaluations of the right-hand side a solve may take.

    Raises
    ------
    TypeError, ValueError
        If an argument does not fit; for theta and u0 when they are given.
    SolveFailed
        If SciPy gives up, the equation raises ArithmeticError, or the limit is reached.

    Notes
    -----
    The adjoint begins anew at each observation. Where observations lie closer than the solver's own steps, it takes
    a dozen evaluations for each of them, and may cost more than three times its solve.

    Examples
    --------
    >>> from helpers.solvers import PredatorPrey
    >>> solver = SolveIVP(PredatorPrey(), times=[1.0, 2.0])
    >>> y, state = solver.forward([1.0, 0.5, 0.8, 0.4], [2.0, 1.0])
    >>> y.round(4).tolist()
    [[3.1695, 1.2544], [3.6548, 2.3475]]
    >>> of_theta, of_u0 = solver.adjoint(state, np.array([[0.0, 0.0], [1.0, 0.0]]))  # the gradient of the prey at t = 2
    >>> of_u0.round(4).tolist()
    [-0.6351, -2.5591]
    """

    signature: ClassVar[str] = "(p),(n)->(t,n)"

    equation: Equation
    times: ArrayLike
    _: KW_ONLY
    start: float = 0.0
    method: str = "DOP853"
    rtol: float = 1e-12
    atol: float = 1e-12
    limit: int = 100_000

    def __post_init__(self) -> None:
        if not isinstance(self.equation, Equation):
            raise TypeError(f"equation must be an Equation, with rhs and vjp; got {type(self.equation).__name__}.")
        if self.method not in METHODS:
            raise ValueError(f"method must be one of {', '.join(METHODS)}; got {self.method!r}.")
        for name in ("rtol", "atol", "limit"):
            positive(name, getattr(self, name))
        if self.rtol < 1e-13:
            raise ValueError(f"rtol must be 1e-13 or more: SciPy goes no further in float64; got {self.rtol:g}.")
        object.__setattr__(self, "times", observation_times(self.times, self.start))

    def forward(self, theta: ArrayLike, u0: ArrayLike) -> tuple[Array, Solved]:
        """Solve.

        Parameters
        ----------
        theta : array_like, shape (p,)
            The parameters.
        u0 : array_like, shape (n,)
            The solution at ``start``.

        Returns
        -------
        y : array, shape (T, n)
            The solution at the times.
        state : Solved
            What ``adjoint`` and ``tangent`` need.
        """
        theta, u0 = np.array(numbers("theta", theta)), numbers("u0", u0)  # a copy: the state must not change
        if theta.ndim != 1 or u0.ndim != 1:
            raise ValueError(
                f"SolveIVP solves for one theta and one u0, each a vector; got shapes {theta.shape} and {u0.shape}. "
                'For many, make the op with batch="loop", or take RungeKutta.'
            )
        self.equation.check(theta, u0)
        evaluated(self.equation, "rhs", self.start, u0, theta)
        times = np.asarray(self.times)
        found = self._solve(
            lambda t, u: self.equation.rhs(t, u, theta), self.start, times[-1], u0, t_eval=times, dense_output=True
        )
        return found.y.T.copy(), Solved(theta, Trajectory(found.sol))

    def adjoint(self, state: Solved, g: ArrayLike) -> tuple[Array, Array]:
        """Return the transposed Jacobian times g, of shape (T, n): the gradients of theta and of u0."""
        theta, trajectory = state
        n, times = len(trajectory(self.start)), np.asarray(self.times)
        g = numbers("g", g, (len(times), n))
        size = np.abs(g).max() or 1.0  # the equation is linear in g, and atol is meant for numbers of size 1
        both = np.zeros(n + len(theta))

        def backward(t: float, both: Array) -> Array:
            return -np.concatenate(evaluated(self.equation, "vjp", t, trajectory(t), theta, both[:n]))

        step = None
        for i in reversed(range(len(times))):
            both[:n] += g[i] / size
            before = times[i - 1] if i else self.start
            both, step = self._stretch(backward, times[i], before, both, step)
        return size * both[n:], size * both[:n]

    @needs("jvp")
    def tangent(self, state: Solved, dtheta: ArrayLike, du0: ArrayLike) -> Array:
        """Return the Jacobian times (dtheta, du0), of shape (T, n)."""
        theta, trajectory = state
        dtheta = numbers("dtheta", dtheta, theta.shape)
        du = numbers("du0", du0, trajectory(self.start).shape)
        size = max(np.abs(dtheta).max(), np.abs(du).max()) or 1.0
        along, du, step, before = dtheta / size, du / size, None, self.start
        tangents = []

        def forward(t: float, du: Array) -> Array:
            return evaluated(self.equation, "jvp", t, trajectory(t), theta, du, along)[0]

        for time in np.asarray(self.times):
            du, step = self._stretch(forward, before, time, du, step)
            tangents.append(size * du)
            before = time
        return np.array(tangents)

    def _stretch(
        self, rate: Callable[[float, Array], Array], begin: float, end: float, u: Array, step: float | None
    ) -> tuple[Array, float | None]:
        """Solve from one observation to the next; begin with the step that the stretch before has found."""
        if begin == end:
            return u, step
        first = None if step is None else min(step, abs(end - begin))
        found = self._solve(rate, begin, end, u, first_step=first)
        return found.y[:, -1].copy(), GROWTH * float(np.abs(np.diff(found.t)).max())

    def _solve(self, rate: Callable[[float, Array], Array], begin: float, end: float, u: Array, **options: Any) -> Any:
        left = int(self.limit)

        def counted(t: float, u: Array) -> Array:
            nonlocal left
            left -= 1
            if left < 0:
                raise SolveFailed(
                    f"{self._name} took {self.limit} evaluations from t = {begin:g}, and came to t = {t:g} of {end:g}. "
                    'The parameters may be far off, or the equation stiff: then take method="Radau". Or raise limit.'
                )
            return rate(t, u)

        try:
            with np.errstate(over="ignore", invalid="ignore"):  # what is not finite, SciPy answers with smaller steps
                found = solve_ivp(
                    counted, (begin, end), u, method=self.method, rtol=self.rtol, atol=self.atol, **options
                )
        except ArithmeticError as error:
            raise SolveFailed(
                f"{self._name}: the equation failed between t = {begin:g} and {end:g}: {error}"
            ) from error
        if not found.success or not np.all(np.isfinite(found.y)):
            reached = found.sol.t_max if found.sol is not None else found.t[-1]
            cause = RuntimeError(found.message)
            raise SolveFailed(
                f"{self._name} stopped at t = {reached:g} of {end:g}. SciPy says: {found.message} Perhaps the solution "
                'grows without bound, or the equation is stiff: look at the parameters, or take method="Radau".'
            ) from cause
        return found

    @property
    def _name(self) -> str:
        return f"{type(self).__name__} of {type(self.equation).__name__}"
