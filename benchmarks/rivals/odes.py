"""An ODE solver inside torch: ours, with an adjoint in NumPy, beside torchdiffeq, whose equation is torch code.

Value and gradient of the same loss, for the parameters and the start of predators and prey; each way with how far its
gradient is from that of a solve with the tightest tolerances. ``measure`` is called by ``solvers.py``.
"""

from typing import Any

import numpy as np
import torch
from torchdiffeq import odeint_adjoint

from helpers import differentiable
from helpers.solvers import LotkaVolterra, PredatorPrey, RungeKutta

from .timing import Way, interleave, ratio

TIMES = np.linspace(0.5, 10, 20)
TOLERANCE, STEP, MANY = 1e-8, 0.05, 64
OURS = "LotkaVolterra, tolerance 1e-8"
OURS_FIXED = "RungeKutta, step 0.05"
THEIRS = "torchdiffeq, dopri5, tolerance 1e-8"
THEIRS_FIXED = "torchdiffeq, rk4, step 0.05"

Tensor = torch.Tensor
Row = dict[str, Any]


class Equation(torch.nn.Module):
    """Predators and prey in torch, for one trajectory or many; theta and u have their coordinates first."""

    def __init__(self, theta: Tensor) -> None:
        super().__init__()
        self.theta = torch.nn.Parameter(theta.movedim(-1, 0).clone())

    def forward(self, t: Tensor, u: Tensor) -> Tensor:
        """Return the right-hand side."""
        (x, y), (alpha, beta, gamma, delta) = u, self.theta
        return torch.stack([(alpha - beta * y) * x, (delta * x - gamma) * y])


def ours(solver: Any, theta: Tensor, u0: Tensor, **options: Any) -> Way:
    """Return one value and gradient through the bridge."""
    op = differentiable(solver, **options)

    def once() -> Tensor:
        inputs = theta.clone().requires_grad_(), u0.clone().requires_grad_()
        op(*inputs).square().mean().backward()
        return torch.cat([leaf.grad for leaf in inputs], dim=-1)  # type: ignore[misc]

    return once


def theirs(theta: Tensor, u0: Tensor, **options: Any) -> Way:
    """Return the same by torchdiffeq."""
    times = torch.tensor([0.0, *TIMES], dtype=torch.float64)

    def once() -> Tensor:
        equation, start = Equation(theta), u0.movedim(-1, 0).clone().requires_grad_()
        odeint_adjoint(equation, start, times, **options)[1:].square().mean().backward()
        return torch.cat([equation.theta.grad, start.grad]).movedim(0, -1)  # type: ignore[list-item]

    return once


def ways(theta: Tensor, u0: Tensor) -> dict[str, Way]:
    """Return the ways, for one trajectory or many."""
    batch = theta.ndim > 1
    tolerances, step = {"rtol": TOLERANCE, "atol": TOLERANCE}, {"options": {"step_size": STEP}}
    return {
        OURS: ours(LotkaVolterra(TIMES, **tolerances), theta, u0, batch="loop" if batch else None),
        OURS_FIXED: ours(RungeKutta(PredatorPrey(), TIMES, STEP), theta, u0, batch="vectorized" if batch else None),
        THEIRS: theirs(theta, u0, method="dopri5", **tolerances),
        THEIRS_FIXED: theirs(theta, u0, method="rk4", **step),
    }


def rows(theta: Tensor, u0: Tensor, rounds: int) -> list[Row]:
    """Measure the ways side by side."""
    found = ways(theta, u0)
    tight = LotkaVolterra(TIMES, rtol=1e-13, atol=1e-13)
    truth = ours(tight, theta, u0, batch="loop" if theta.ndim > 1 else None)()
    times = interleave(found, rounds, calls=1)
    return [
        {
            "way": name,
            "milliseconds": round(float(np.median(times[name])) / 1e3, 2),
            "ratio": round(ratio(times, name, OURS_FIXED), 2),
            "error": float(f"{float((way() - truth).norm() / truth.norm()):.1e}"),  # type: ignore[attr-defined]
        }
        for name, way in found.items()
    ]


def measure(rounds: int) -> dict[str, list[Row]]:
    """Return the rows for one trajectory, and for many at once."""
    theta, u0 = torch.tensor([1.0, 0.5, 0.8, 0.4], dtype=torch.float64), torch.tensor([2.0, 1.0], dtype=torch.float64)
    spread = torch.rand(MANY, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    many = torch.cat([theta, u0]) * (0.9 + 0.2 * spread)
    return {"one": rows(theta, u0, rounds), f"{MANY} at once": rows(many[:, :4], many[:, 4:], rounds)}
