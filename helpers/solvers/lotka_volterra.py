r"""Predators and prey: the equations of Lotka and Volterra, with their derivatives.

.. math:: \dot x = \alpha x - \beta x y, \qquad \dot y = \delta x y - \gamma y

x is the number of prey, y that of predators, in any unit, and θ = (α, β, γ, δ) are rates per unit of time: prey grow
(α) and are eaten (β); predators die (γ) and grow by what they eat (δ).

Sources: A. J. Lotka, "Elements of Physical Biology" (1925), chapter VIII; V. Volterra, "Fluctuations in the abundance
of a species considered mathematically", Nature 118 (1926), 558-560.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .ode import Array, Equation
from .solve_ivp import SolveIVP


class PredatorPrey(Equation):
    """The right-hand side, for ``theta`` = (α, β, γ, δ) of shape (..., 4) and ``u`` = (prey, predators), (..., 2).

    Rates and starting numbers must be above 0.

    Examples
    --------
    >>> PredatorPrey().rhs(0.0, np.array([2.0, 1.0]), np.array([1.0, 0.5, 0.8, 0.4])).tolist()
    [1.0, 0.0]
    """

    # Transposed, the coordinates come first, whatever axes a batch has.

    def rhs(self, t: float, u: Array, theta: Array) -> Array:
        """Return (αx - βxy, δxy - γy)."""
        (x, y), (alpha, beta, gamma, delta) = u.T, theta.T
        return np.array([(alpha - beta * y) * x, (delta * x - gamma) * y]).T

    def vjp(self, t: float, u: Array, theta: Array, w: Array) -> tuple[Array, Array]:
        """Return the transposed Jacobians times w."""
        (x, y), (alpha, beta, gamma, delta), (p, q) = u.T, theta.T, w.T
        of_u = [(alpha - beta * y) * p + delta * y * q, (delta * x - gamma) * q - beta * x * p]
        return np.array(of_u).T, np.array([x * p, -x * y * p, -y * q, x * y * q]).T

    def jvp(self, t: float, u: Array, theta: Array, du: Array, dtheta: Array) -> Array:
        """Return the derivative of rhs along (du, dtheta)."""
        (x, y), (alpha, beta, gamma, delta) = u.T, theta.T
        (dx, dy), (dalpha, dbeta, dgamma, ddelta) = du.T, dtheta.T
        of_x = (dalpha - dbeta * y - beta * dy) * x + (alpha - beta * y) * dx
        of_y = (ddelta * x + delta * dx - dgamma) * y + (delta * x - gamma) * dy
        return np.array([of_x, of_y]).T

    def hvp(self, t: float, u: Array, theta: Array, w: Array, du: Array, dtheta: Array) -> tuple[Array, Array]:
        """Return the derivative of vjp along (du, dtheta)."""
        (x, y), (_, beta, _, delta), (p, q) = u.T, theta.T, w.T
        (dx, dy), (dalpha, dbeta, dgamma, ddelta) = du.T, dtheta.T
        dxy = dx * y + x * dy
        of_u = [
            (dalpha - dbeta * y - beta * dy) * p + (ddelta * y + delta * dy) * q,
            (ddelta * x + delta * dx - dgamma) * q - (dbeta * x + beta * dx) * p,
        ]
        return np.array(of_u).T, np.array([dx * p, -dxy * p, -dy * q, dxy * q]).T

    def check(self, theta: Array, u0: Array) -> None:
        """Refuse other shapes, and rates or numbers that are not above 0."""
        for name, array, length in (("theta", theta, 4), ("u0", u0, 2)):
            if array.shape[-1:] != (length,):
                raise ValueError(f"{name} must have {length} numbers in its last axis; got the shape {array.shape}.")
            if np.any(array <= 0):
                raise ValueError(
                    f"{name} must be above 0; its smallest number is {array.min():.3g}. Let an optimiser or a network "
                    "move the logarithm, and pass its exp."
                )


class LotkaVolterra(SolveIVP):
    """The solver of predators and prey, with the continuous adjoint: ``SolveIVP(PredatorPrey(), times)``.

    Parameters
    ----------
    times : array_like, shape (T,)
        When the animals are counted; increasing, from ``start`` on.
    **options
        Those of :class:`SolveIVP`: ``start``, ``method``, ``rtol``, ``atol``, ``limit``.

    Examples
    --------
    Near the numbers (γ/δ, α/β), where nothing changes, one cycle takes about 2π/√(αγ):

    >>> solver = LotkaVolterra([3.5, 7.0])
    >>> y, state = solver.forward([1.0, 0.5, 0.8, 0.4], [2.2, 2.0])
    >>> y.round(2).tolist()
    [[1.81, 1.99], [2.2, 2.0]]
    >>> of_theta, of_u0 = solver.adjoint(state, np.ones((2, 2)))
    >>> of_theta.shape, of_u0.shape
    ((4,), (2,))
    """

    def __init__(self, times: ArrayLike, **options: Any) -> None:
        super().__init__(PredatorPrey(), times, **options)
