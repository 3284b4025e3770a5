"""The heat equation with an unknown conductivity: solve, adjoint, tangent and second derivative.

-div(k grad u) + div(v u) = f on the unit square, u = 0 on its boundary, and k = exp(m) for the unknown field m.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from .grid import Array, Conductances, Grid, check_field, check_size, grid, interpolation, lattice
from .sparse import Factorised

LARGEST = 300.0
WIDEST = 34.0


class State(NamedTuple):
    """What a solve leaves for its derivatives.

    Attributes
    ----------
    conductances : Conductances
        Of each face, with their derivatives for m.
    factorised : Factorised
        The matrix, ready to be solved with: the adjoint uses the same one.
    u : array, (steps, sources, cells)
        The temperatures.
    """

    conductances: Conductances
    factorised: Factorised
    u: Array


class HeatEquation:
    """Heat in a plate: from the log-conductivity m of each cell to the temperatures at the sensors.

    Steady, or over time by implicit Euler if ``steps`` and ``dt`` are given. The edge of the plate is kept at the
    temperature 0, so heat always finds a way out and the steady equation has one solution. Finite volumes: in each
    cell, what flows out through its faces is what its source brings. Between two cells the flux is the harmonic mean
    of their conductivities times the difference of temperature (Patankar, "Numerical Heat Transfer and Fluid Flow",
    1980, section 4.2-3); what moves with the flow takes the temperature of the cell it comes from (upwind).

    **The adjoint.** Write all cells as a vector u. The equation is A(m) u = b, and the readings are y = P u. Change m
    a little: A du + dA u = 0, so dy = -P A⁻¹ dA u. For a loss with dL = gᵀ dy this is dL = -λᵀ dA u, where λ solves
    Aᵀ λ = Pᵀ g: **one more solve, with the transposed matrix**, for any number of unknowns. Here A = Dᵀ diag(c(m)) D +
    flow, with D the differences across faces and c their conductances, so dL = -Σ (Dλ) (Du) dc. Over time, step k
    solves (A + s) u_k = b + s u_{k-1}, with s the heat stored in a cell for each unit of time; its adjoint runs
    backwards, (A + s)ᵀ λ_k = Pᵀ g_k + s λ_{k+1}, and the sum is over all k. Each is the usual derivation from a
    Lagrangian (Plessix, Geophysical Journal International 167, 2006).

    Parameters
    ----------
    n : int
        Cells along each side.
    sensors : array, (sensors, 2), optional
        Their positions (x, y). Between the centres of cells they read by bilinear interpolation. By default 5 x 5.
    sources : array, (..., n, n), optional
        f: heat for each unit of area. Several fields are several experiments on the same plate. By default one: 1
        everywhere.
    flow : pair of numbers
        The velocity (vx, vy) of something that moves through the plate and takes heat along. With a flow, the matrix
        is no longer symmetric.
    steps, dt : int and number, optional
        How many steps of which length, instead of the steady state. The heat capacity is 1.
    start : array, (n, n), optional
        The temperatures at the time 0; by default 0. Only with ``steps``.

    Attributes
    ----------
    y_shape : tuple
        The shape of the readings: (..., sensors), where ... are the first axes of ``sources``; over time
        (steps, ..., sensors).

    Raises
    ------
    TypeError, ValueError
        If an argument does not fit.

    Notes
    -----
    An instance keeps nothing from a solve, can be pickled, and is not changed by its use. One LU factorisation serves
    all sources, all steps, and all derivatives at one m. The cost is one factorisation and, for each source and
    step, one solve in ``forward`` and ``tangent``, one in ``adjoint`` and three in ``hvp``.

    Examples
    --------
    >>> heat = HeatEquation(16, sensors=[(0.5, 0.5)])
    >>> y, state = heat.forward(np.zeros((16, 16)))
    >>> y.round(4)
    array([0.0734])
    >>> heat.adjoint(state, np.ones(1)).sum().round(4)
    np.float64(-0.0734)

    The second number has to be so: if all conductivities are k times as large, u is u / k.
    """

    def __init__(
        self,
        n: int = 64,
        *,
        sensors: ArrayLike | None = None,
        sources: ArrayLike | None = None,
        flow: tuple[float, float] = (0.0, 0.0),
        steps: int | None = None,
        dt: float | None = None,
        start: ArrayLike | None = None,
    ) -> None:
        self.n = check_size(n)
        self.sensors = np.array(lattice(5) if sensors is None else sensors, dtype=np.float64)
        self._reading = interpolation(n, self.sensors)
        self.sources = check_field("sources", np.ones((n, n)) if sources is None else sources, n, lead=None)
        self.flow = _velocity(flow)
        self.steps, self.dt = _check_time(steps, dt)
        if start is not None and steps is None:
            raise ValueError("start goes with steps= and dt=: the steady state does not depend on it.")
        self.start = np.zeros(()) if start is None else check_field("start", start, n)  # it goes to every worker
        lead = self.sources.shape[:-2] if steps is None else (self.steps, *self.sources.shape[:-2])
        self.y_shape = (*lead, len(self.sensors))
        for array in (self.sensors, self.sources, self.start):
            array.flags.writeable = False

    def __repr__(self) -> str:
        time = "steady" if self.dt is None else f"{self.steps} steps of {self.dt:g}"
        return f"<HeatEquation {self.n} x {self.n}, {time}, readings {self.y_shape}>"

    # --- the protocol: forward, and what is built on its state

    def forward(self, m: ArrayLike) -> tuple[Array, State]:
        """Solve.

        Parameters
        ----------
        m : array, (n, n)
            The logarithm of the conductivity of each cell.

        Returns
        -------
        y : array of shape ``y_shape``
            The readings.
        state : State

        Raises
        ------
        TypeError, ValueError
            If m has another shape, holds NaN, or is too large or too uneven for double precision.
        """
        conductances = self._grid.conductances(self._field("m", m, conductivity=True).ravel())
        stored = self._storage
        factorised = Factorised(self._grid.matrix(conductances.value, self._carried, stored))
        heat = self.sources.reshape(-1, self.n**2) / self.n**2
        before = np.broadcast_to(self.start.reshape(-1), heat.shape)
        u = np.empty((self.steps, *heat.shape))
        for k in range(self.steps):
            u[k] = before = factorised.solve(heat + stored * before)
        return self._read(u), State(conductances, factorised, u)

    def adjoint(self, state: State, g: ArrayLike) -> Array:
        """Return the transposed Jacobian times g: the gradient for m of a loss whose gradient for y is g."""
        load, weight = self._load(g), np.zeros_like(state.conductances.value)
        after = np.zeros_like(state.u[0])
        for k in reversed(range(self.steps)):
            after = self.solve_transposed(state, load[k] + self._storage * after)
            weight = weight - self._across(after, state.u[k])
        return self._grid.pull(state.conductances, weight).reshape(self.n, self.n)

    def tangent(self, state: State, t: ArrayLike) -> Array:
        """Return the Jacobian times t: how the readings change if m changes along t."""
        change = self._grid.push(state.conductances, self._field("t", t).ravel())
        return self._read(self._changes(state, change))

    def hvp(self, state: State, g: ArrayLike, t: ArrayLike) -> Array:
        """Return the derivative of ``adjoint(state, g)`` along t: the Hessian of gᵀ y, times t.

        Differentiate the equations of u, of λ and of the gradient once more. The first two have the same matrix:
        A du = -dA u and Aᵀ dλ = -dAᵀ λ.
        """
        grid, c = self._grid, state.conductances
        along = self._field("t", t).ravel()
        change = grid.push(c, along)
        du = self._changes(state, change)
        load, weight, moved = self._load(g), np.zeros_like(c.value), np.zeros_like(c.value)
        after, change_after = np.zeros_like(state.u[0]), np.zeros_like(state.u[0])
        for k in reversed(range(self.steps)):
            after = self.solve_transposed(state, load[k] + self._storage * after)
            change_after = self.solve_transposed(state, self._storage * change_after - self._conducted(change, after))
            weight = weight - self._across(after, state.u[k])
            moved = moved - self._across(change_after, state.u[k]) - self._across(after, du[k])
        return (grid.pull_change(c, weight, along) + grid.pull(c, moved)).reshape(self.n, self.n)

    def solve_transposed(self, state: State, right: Array) -> Array:
        """Solve with the transposed matrix, for right-hand sides (sources, cells): the heart of the adjoint."""
        return state.factorised.solve(right, transposed=True)

    def temperatures(self, m: ArrayLike) -> Array:
        """Return u in every cell, of shape (..., n, n), or (steps, ..., n, n) over time."""
        return self.forward(m)[1].u.reshape(*self.y_shape[:-1], self.n, self.n)

    # --- the parts

    @property
    def signature(self) -> str:
        """What one sample is, in NumPy's notation, for a batch of fields in the bridge."""
        return f"(n,n)->({','.join('abcdefgh'[: len(self.y_shape) - 1])},s)".replace("(,", "(")

    @property
    def _grid(self) -> Grid:
        return grid(self.n)

    @property
    def _storage(self) -> float:
        return 0.0 if self.dt is None else 1 / (self.n**2 * self.dt)

    @property
    def _carried(self) -> Array:
        carried: Array = self._grid.normal @ np.array(self.flow) / self.n
        return carried

    def _changes(self, state: State, change: Array) -> Array:
        """Return how the temperatures change with the conductances."""
        du = np.empty_like(state.u)
        before = np.zeros_like(state.u[0])
        for k in range(self.steps):
            right = self._storage * before - self._conducted(change, state.u[k])
            du[k] = before = state.factorised.solve(right)
        return du

    def _conducted(self, conductance: Array, u: Array) -> Array:
        """Return what each cell loses by conduction: Dᵀ diag(conductance) D u."""
        lost: Array = (self._grid.divergence @ (conductance[:, None] * (self._grid.difference @ u.T))).T
        return lost

    def _across(self, one: Array, other: Array) -> Array:
        """Return the product of the differences of two fields across each face, summed over the sources."""
        difference = self._grid.difference
        product: Array = np.einsum("fs,fs->f", difference @ one.T, difference @ other.T)
        return product

    def _read(self, u: Array) -> Array:
        readings: Array = (self._reading @ u.reshape(-1, self.n**2).T).T
        return readings.reshape(self.y_shape)

    def _load(self, g: ArrayLike) -> Array:
        """Return Pᵀ g, of shape (steps, sources, cells)."""
        array = np.asarray(g, dtype=np.float64)
        if array.shape != self.y_shape:
            raise ValueError(f"g must have the shape of the readings, {self.y_shape}; got {array.shape}.")
        if not np.all(np.isfinite(array)):
            raise ValueError("g holds NaN or infinity. Look at the loss that comes after the solver.")
        load: Array = (self._reading.T @ array.reshape(-1, len(self.sensors)).T).T
        return load.reshape(self.steps, -1, self.n**2)

    def _field(self, name: str, field: ArrayLike, *, conductivity: bool = False) -> Array:
        array = check_field(name, field, self.n)
        if not conductivity:
            return array
        low, high = float(array.min()), float(array.max())
        if max(-low, high) > LARGEST or high - low > WIDEST:
            raise ValueError(
                f"m runs from {low:.3g} to {high:.3g}, and the conductivity is exp(m). Keep m within ±{LARGEST:g}, and "
                f"its largest and smallest number within {WIDEST:g} of each other: beyond that, double precision "
                "cannot solve the equation. Did an optimiser take too long a step?"
            )
        return array


def _velocity(flow: Any) -> tuple[float, float]:
    velocity = np.asarray(flow, dtype=np.float64)
    if velocity.shape != (2,) or not np.all(np.isfinite(velocity)):
        raise ValueError(f"flow must be a velocity (vx, vy) of two finite numbers; got {flow!r}.")
    return float(velocity[0]), float(velocity[1])


def _check_time(steps: int | None, dt: float | None) -> tuple[int, float | None]:
    if (steps is None) != (dt is None):
        raise ValueError("steps and dt go together: how many steps, and how long each is. Without both: steady state.")
    if steps is None or dt is None:
        return 1, None
    if not isinstance(steps, (int, np.integer)) or steps < 1:
        raise ValueError(f"steps must be a whole number of 1 or more; got {steps!r}.")
    if not (np.isfinite(dt) and dt > 0):
        raise ValueError(f"dt must be a finite number above 0; got {dt!r}.")
    return int(steps), float(dt)
