"""What the workers of executor.py do: NumPy and SciPy, no torch, so that a worker process starts quickly."""

import os
import threading
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from helpers.solvers import HeatEquation, LotkaVolterra, PredatorPrey, RungeKutta

Array = NDArray[np.float64]

NAP = 0.05
CELLS = 64
HEAT = HeatEquation(CELLS)
RATES, ANIMALS = np.array([1.0, 0.5, 0.8, 0.4]), np.array([2.0, 1.0])
ODES = {
    "Lotka-Volterra, solve_ivp": LotkaVolterra(np.linspace(0.5, 10, 20)),
    "Lotka-Volterra, Runge-Kutta": RungeKutta(PredatorPrey(), np.linspace(0.5, 10, 20), step=0.05),
}


class Sleeper:
    """A solver whose adjoint waits for something else than the processor, as for a licence or another machine."""

    signature = "(n)->(n)"

    def forward(self, x: Array) -> tuple[Array, None]:
        """Return 2 x."""
        return 2 * x, None

    def adjoint(self, state: None, g: Array) -> Array:
        """Sleep, and return 2 g."""
        time.sleep(NAP)
        return 2 * g


class Timed:
    """:func:`misfit`, which also notes when it is at work, in a file that all workers write to."""

    def __init__(self, notes: str) -> None:
        self.notes = notes

    def __call__(self, m: Array) -> tuple[float, Array]:
        """Return value and gradient. The first number of m names the sample."""
        began = time.monotonic()
        found = misfit(m)
        line = f"{os.getpid()}.{threading.get_ident()} {m[0, 0]:.0f} {began} {time.monotonic()}\n"
        with Path(self.notes).open("a", encoding="ascii") as notes:
            notes.write(line)
        return found


def nothing(x: Array) -> tuple[float, Array]:
    """Return a value and a gradient that cost nothing."""
    return 0.0, x


def misfit(m: Array) -> tuple[float, Array]:
    """Return half the sum of the squared readings, and its gradient: one solve and one adjoint."""
    y, state = HEAT.forward(m)
    return 0.5 * float(np.sum(y * y)), HEAT.adjoint(state, y)


def spin(turns: int) -> int:
    """Keep one core busy with Python code."""
    total = 0
    for turn in range(turns):
        total += turn
    return total


def plates(count: int) -> Array:
    """Return log-conductivities (count, CELLS, CELLS)."""
    return 0.5 * np.random.default_rng(0).standard_normal((count, CELLS, CELLS))


def animals(count: int) -> tuple[Array, Array]:
    """Return rates (count, 4) and starting numbers (count, 2)."""
    factors = np.random.default_rng(1).uniform(0.9, 1.1, (count, 1))
    return factors * RATES, factors * ANIMALS
