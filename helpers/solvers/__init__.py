"""Solvers with adjoints of their own, in NumPy and SciPy: no torch here, so a worker process starts fast.

A *solver* is an object with ``forward(...) -> (y, state)``, ``adjoint(state, g)``, and where it makes sense
``tangent(state, t)`` and ``hvp(state, g, t)``. It keeps nothing from a solve on itself.
"""

from .grid import centres, lattice
from .heat import HeatEquation
from .lotka_volterra import LotkaVolterra, PredatorPrey
from .ode import Equation, SolveFailed
from .runge_kutta import RungeKutta
from .smoothness import Smoothness
from .solve_ivp import SolveIVP
from .sparse import Count, count_solves

__all__ = [
    "Count",
    "Equation",
    "HeatEquation",
    "LotkaVolterra",
    "PredatorPrey",
    "RungeKutta",
    "Smoothness",
    "SolveFailed",
    "SolveIVP",
    "centres",
    "count_solves",
    "lattice",
]
