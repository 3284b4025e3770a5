"""What a step costs, in units of plain autograd: python benchmarks/descent.py.

All ways run in one process, one after the other in each round, so that a busy machine slows all of them alike. The
figures are medians over the rounds. Read the ratios; the microseconds are this machine's.
"""

import time
from collections.abc import Callable
from statistics import median

import numpy as np
import torch

from helpers import NoisyPair, UniformFactor, descend, descend_with_gradient, rosenbrock

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


def by_closure(loss_of: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[], object]:
    """Return a run of Adam by closure, with its path kept."""

    def run() -> object:
        x = start()
        adam = torch.optim.Adam([x], lr=0.1)

        def closure() -> torch.Tensor:
            adam.zero_grad()
            loss = loss_of(x)
            loss.backward()
            return loss

        return descend(adam, closure, STEPS)

    return run


def by_hand() -> None:
    """Run the loop of lesson 05 without keeping the path: what `descend` adds is the difference."""
    x = start()
    adam = torch.optim.Adam([x], lr=0.1)
    for _ in range(STEPS):
        adam.zero_grad()
        Rosenbrock.apply(x).backward()
        adam.step()


def by_gradient() -> object:
    """Write the gradient into x.grad."""
    x = start()
    return descend_with_gradient(torch.optim.Adam([x], lr=0.1), rosenbrock.gradient, STEPS)


def many_seeds() -> object:
    """Run 256 noisy starts as one tensor."""
    noisy = NoisyPair(rosenbrock.value, rosenbrock.gradient, UniformFactor(0.5), seed=0)
    x = start(SEEDS)
    return descend_with_gradient(torch.optim.Adam([x], lr=0.1), noisy.gradient, STEPS)


WAYS: dict[str, Callable[[], object]] = {
    "plain autograd, by closure": by_closure(in_torch),
    "Function around NumPy, by closure": by_closure(Rosenbrock.apply),
    "the same, a loop by hand without a kept path": by_hand,
    "writing x.grad": by_gradient,
    f"writing x.grad, {SEEDS} noisy seeds in one tensor": many_seeds,
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


def main() -> None:
    """Print the table."""
    torch.set_num_threads(1)
    found = measure()
    whole = found["plain autograd, by closure"]
    print("| a step of Adam | ratio | µs here |\n|---|---|---|")
    for name, microseconds in found.items():
        print(f"| {name} | {microseconds / whole:.2f} | {microseconds:.0f} |")
    points = np.full((100_000, 2), 0.1)
    began = time.perf_counter()
    rosenbrock.gradient(points)
    print(f"\nrosenbrock.gradient of 100,000 points: {(time.perf_counter() - began) * 1e3:.1f} ms")


if __name__ == "__main__":
    main()
