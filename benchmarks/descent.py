"""What a step costs, in units of plain autograd: python benchmarks/descent.py.

All ways run in one process, one after the other in each round, so that a busy machine slows all of them alike. The
figures are medians over the rounds. Read the ratios; the microseconds are this machine's. The unit is a loop as torch's
own pages write it: zero_grad, loss, backward, step with the default Adam, and no path kept.
"""

import time
from collections.abc import Callable
from statistics import median

import numpy as np
import torch

from helpers import NoisyPair, Trajectory, UniformFactor, descend, descend_with_gradient, rosenbrock

STEPS = 200
ROUNDS = 15
SEEDS = 256


class Rosenbrock(torch.autograd.Function):
    """The Function of lesson 04."""

    @staticmethod
    def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
        """Return the value as a tensor."""
        ctx.save_for_backward(x)
        return torch.tensor(rosenbrock.value(x.detach().cpu().numpy()), dtype=x.dtype, device=x.device)

    @staticmethod
    def backward(ctx: object, g: torch.Tensor) -> torch.Tensor:
        """Return the gradient as a tensor."""
        (x,) = ctx.saved_tensors
        return g * torch.tensor(rosenbrock.gradient(x.detach().cpu().numpy()), dtype=x.dtype, device=x.device)


def in_torch(x: torch.Tensor) -> torch.Tensor:
    """Return f(x), written with tensors."""
    return (1 - x[0]) ** 2 + 5 * (x[1] - x[0] ** 2) ** 2


def start(*shape: int) -> torch.Tensor:
    """Return a parameter at (0.1, 0.1), or many of them."""
    return torch.full((*shape, 2), 0.1, dtype=torch.float64, requires_grad=True)


def formula(x: np.ndarray) -> np.ndarray:
    """Return the gradient of f, as a user writes it: one point, no checks."""
    across = x[1] - x[0] ** 2
    return np.array([-2 * (1 - x[0]) - 20 * x[0] * across, 10 * across])


def bare_loop(loss_of: Callable[[torch.Tensor], torch.Tensor], *, fused: bool = False) -> Callable[[], None]:
    """Return a run of Adam that keeps nothing."""

    def run() -> None:
        x = start()
        adam = torch.optim.Adam([x], lr=0.1, fused=fused)
        for _ in range(STEPS):
            adam.zero_grad()
            loss = loss_of(x)
            loss.backward()
            adam.step()

    return run


def by_closure(loss_of: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[], Trajectory]:
    """Return a run of the default Adam by closure, with its path kept."""

    def run() -> Trajectory:
        x = start()
        adam = torch.optim.Adam([x], lr=0.1)

        def closure() -> torch.Tensor:
            adam.zero_grad()
            loss = loss_of(x)
            loss.backward()
            return loss

        return descend(adam, closure, STEPS)

    return run


def by_gradient(gradient: Callable[[np.ndarray], np.ndarray], *, fused: bool) -> Callable[[], Trajectory]:
    """Return a run that writes the gradient into x.grad, with its path kept."""
    return lambda: descend_with_gradient(torch.optim.Adam([start()], lr=0.1, fused=fused), gradient, STEPS)


def step_alone() -> None:
    """Call step again and again on one gradient: no loop over ``adam.step()`` is quicker than this."""
    x = start()
    adam = torch.optim.Adam([x], lr=0.1, fused=True)
    x.grad = torch.ones_like(x)
    for _ in range(STEPS):
        adam.step()


def many_seeds() -> object:
    """Run 256 noisy starts as one tensor."""
    noisy = NoisyPair(rosenbrock.value, rosenbrock.gradient, UniformFactor(0.5), seed=0)
    x = start(SEEDS)
    return descend_with_gradient(torch.optim.Adam([x], lr=0.1), noisy.gradient, STEPS)


BARE = "plain autograd, a bare loop"
BY_DESCEND = "plain autograd, by closure with `descend`"
WAYS: dict[str, Callable[[], object]] = {
    BARE: bare_loop(in_torch),
    BY_DESCEND: by_closure(in_torch),
    "plain autograd, fused Adam, a bare loop": bare_loop(in_torch, fused=True),
    "Function around NumPy, a bare loop": bare_loop(Rosenbrock.apply),
    "Function around NumPy, by closure with `descend`": by_closure(Rosenbrock.apply),
    "writing x.grad, default Adam, `rosenbrock.gradient`": by_gradient(rosenbrock.gradient, fused=False),
    "writing x.grad, default Adam, the formula in NumPy": by_gradient(formula, fused=False),
    "writing x.grad, fused Adam, `rosenbrock.gradient`": by_gradient(rosenbrock.gradient, fused=True),
    "writing x.grad, fused Adam, the formula in NumPy": by_gradient(formula, fused=True),
    "nothing but `step()` of the fused Adam": step_alone,
    f"writing x.grad, default Adam, {SEEDS} noisy seeds in one tensor": many_seeds,
}


def measure() -> dict[str, float]:
    """Return microseconds a step for each way."""
    times: dict[str, list[float]] = {name: [] for name in WAYS}
    for _ in range(ROUNDS + 1):
        for name, way in WAYS.items():
            began = time.perf_counter()
            way()
            times[name].append((time.perf_counter() - began) / STEPS * 1e6)
    return {name: median(rounds[1:]) for name, rounds in times.items()}


def distance() -> float:
    """Return how far the fused path with a written gradient ever is from that of the Function by closure."""
    fused = by_gradient(rosenbrock.gradient, fused=True)()
    return float(np.max(np.abs(fused.points - by_closure(Rosenbrock.apply)().points)))


def main() -> None:
    """Print the table."""
    torch.set_num_threads(1)
    found = measure()
    print("| a step of Adam | µs here | times as fast as the bare loop | as `descend` |\n|---|---|---|---|")
    for name, time_here in found.items():
        print(f"| {name} | {time_here:.0f} | {found[BARE] / time_here:.2f} | {found[BY_DESCEND] / time_here:.2f} |")
    print(f"\nfrom the fused path with a written gradient to that of the Function by closure: {distance():.0e} at most")
    points = np.full((100_000, 2), 0.1)
    began = time.perf_counter()
    rosenbrock.gradient(points)
    print(f"\nrosenbrock.gradient of 100,000 points: {(time.perf_counter() - began) * 1e3:.1f} ms")


if __name__ == "__main__":
    main()
