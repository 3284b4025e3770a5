"""What the solvers and their derivatives cost: python benchmarks/solvers.py.

    python benchmarks/solvers.py                       the tables and the targets
    python benchmarks/solvers.py --save                the same, written to solvers.json beside this file

A solve and its derivatives run one after the other in each round, so that a busy machine slows all of them alike. A
ratio is the median over the rounds, a time the least of them. Memory is what a process of its own grows by, from before
the first solve to its peak; only Linux tells it. Read the ratios; the milliseconds are this machine's.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from rivals.timing import Way, interleave, ratio

from helpers.solvers import HeatEquation, LotkaVolterra, PredatorPrey, RungeKutta

Case = tuple[Any, tuple[Any, ...]]  # a solver, and what its forward takes
Row = dict[str, Any]

SIZES = (32, 64, 128, 256)
RATES, ANIMALS = np.array([1.0, 0.5, 0.8, 0.4]), np.array([2.0, 1.0])
TIMES = np.linspace(0.5, 10, 20)
LIMIT = 3.0
VISIBLE = 4.0  # MB: less than that is hidden by what a first call loads
PACKAGES = ("numpy", "scipy")
HERE = Path(__file__).resolve().parent


def heat(n: int, **options: Any) -> Case:
    """Return the heat equation, and a conductivity that varies by a factor of about 1000."""
    return HeatEquation(n, **options), (np.random.default_rng(0).standard_normal((n, n)),)


CASES: dict[str, Callable[[], Case]] = {
    **{f"heat, {n} x {n}": lambda n=n: heat(n) for n in SIZES},
    "heat, 64 x 64, with flow": lambda: heat(64, flow=(10.0, 5.0)),
    "heat, 64 x 64, 9 sources": lambda: heat(64, sources=np.random.default_rng(1).random((9, 64, 64))),
    "heat, 64 x 64, 20 steps of time": lambda: heat(64, steps=20, dt=0.01),
    "Lotka-Volterra, solve_ivp": lambda: (LotkaVolterra(TIMES), (RATES, ANIMALS)),
    "Lotka-Volterra, Runge-Kutta": lambda: (RungeKutta(PredatorPrey(), TIMES, step=0.05), (RATES, ANIMALS)),
}


def ways(case: Case) -> dict[str, Way]:
    """Return the solve and the derivatives that the solver has, at one point."""
    solver, point = case
    y, state = solver.forward(*point)
    rng = np.random.default_rng(2)
    g, along = rng.standard_normal(y.shape), [rng.standard_normal(part.shape) for part in point]
    found: dict[str, Way] = {
        "forward": lambda: solver.forward(*point),
        "adjoint": lambda: solver.adjoint(state, g),
        "tangent": lambda: solver.tangent(state, *along),
    }
    if hasattr(solver, "hvp"):
        found["hvp"] = lambda: solver.hvp(state, g, *along)
    return found


def row(name: str, rounds: int) -> Row:
    """Return the time of one solve and its peak memory, and what each derivative costs in units of the solve."""
    times = interleave(ways(CASES[name]()), rounds, calls=1)
    costs = {way: round(ratio(times, way, "forward"), 3) for way in times if way != "forward"}
    return {
        "solver": name,
        "milliseconds": round(min(times["forward"]) / 1e3, 3),
        **costs,
        "megabytes": memory(name),
    }


def memory(name: str) -> float:
    """Return by how many megabytes a new process grows for one solve with its adjoint."""
    command = [sys.executable, __file__, "--memory", name]
    done = subprocess.run(command, env=os.environ | {"OMP_NUM_THREADS": "1"}, check=True, stdout=subprocess.PIPE)
    return round(float(done.stdout), 1)


def growth_of_memory(name: str) -> float:
    """Return the megabytes, in the process that is measured."""
    solver, point = CASES[name]()
    before = memory_of_this_process("VmRSS")
    y, state = solver.forward(*point)
    solver.adjoint(state, np.ones_like(y))
    return memory_of_this_process("VmHWM") - before


def memory_of_this_process(which: str) -> float:
    """Return the memory in megabytes, now (VmRSS) or at its peak (VmHWM), as Linux counts it."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(which):
            return float(line.split()[1]) / 2**10
    raise LookupError(f"/proc/self/status has no {which}.")


def growth(rows: list[Row]) -> list[Row]:
    """Return the factors of time and memory from each grid to the next, which has four times as many cells."""
    found = {each["solver"]: each for each in rows}
    steps = []
    for small, large in pairwise(SIZES):
        one, next_one = (found[f"heat, {n} x {n}"] for n in (small, large))
        step = {"from": small, "to": large, "time": round(next_one["milliseconds"] / one["milliseconds"], 2)}
        if one["megabytes"] >= VISIBLE:
            step["memory"] = round(next_one["megabytes"] / one["megabytes"], 2)
        steps.append(step)
    return steps


def targets(rows: list[Row]) -> list[Row]:
    """Return what the solvers promise, what was measured, and whether it holds."""
    return [
        {
            "target": f"{each['solver']}: adjoint, in units of its solve",
            "at_most": LIMIT,
            "measured": each["adjoint"],
            "reached": each["adjoint"] <= LIMIT,
        }
        for each in rows
    ]


def beside_torchdiffeq(rounds: int) -> dict[str, list[Row]]:
    """Return value and gradient inside torch, ours and torchdiffeq's: for one trajectory, and for many at once."""
    try:
        from rivals import odes
    except ModuleNotFoundError as error:
        print(f"\nLeft out, since {error.name} is not installed: the rows beside torchdiffeq.")
        return {}
    return odes.measure(rounds)


def print_rows(rows: list[Row]) -> None:
    """Print the rows as Markdown."""
    print("| solver | solve, ms here | adjoint / solve | tangent / solve | hvp / solve | memory, MB |")
    print("|---|---|---|---|---|---|")
    for each in rows:
        hvp = f"{each['hvp']:.2f}" if "hvp" in each else "none"
        costs = f"{each['adjoint']:.2f} | {each['tangent']:.2f} | {hvp}"
        print(f"| {each['solver']} | {each['milliseconds']:.3g} | {costs} | {each['megabytes']:.1f} |")


def print_growth(found: list[Row]) -> None:
    """Print the growth with the grid as Markdown."""
    print("\n| from n to n | time of a solve | memory |\n|---|---|---|")
    for each in found:
        memory_grows = f"x {each['memory']:.1f}" if "memory" in each else "too small to see"
        print(f"| {each['from']} to {each['to']} | x {each['time']:.1f} | {memory_grows} |")


def print_targets(found: list[Row]) -> None:
    """Print what was promised and what was measured."""
    print("\nTargets:\n")
    for each in found:
        verdict = "reached" if each["reached"] else "missed"
        print(f"- {each['target']}: {each['measured']:.2f}, at most {each['at_most']:.0f}: {verdict}")


def print_beside(found: dict[str, list[Row]]) -> None:
    """Print ours and torchdiffeq's as Markdown."""
    for count, rows in found.items():
        print(f"\n| value and gradient, trajectories: {count} | ratio | ms here | error of the gradient |")
        print("|---|---|---|---|")
        for each in rows:
            print(f"| {each['way']} | {each['ratio']:.3g} | {each['milliseconds']:,.0f} | {each['error']:.0e} |")


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="What the solvers and their derivatives cost.")
    parser.add_argument("--save", action="store_true", help="write solvers.json")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--memory", choices=CASES, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    """Measure and print."""
    asked = arguments()
    if asked.memory:
        print(growth_of_memory(asked.memory))
        return
    rows = [row(name, asked.rounds) for name in CASES]
    report = {
        "versions": {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}},
        "rounds": asked.rounds,
        "rows": rows,
        "growth": growth(rows),
        "targets": targets(rows),
        "torchdiffeq": beside_torchdiffeq(asked.rounds),
    }
    print_rows(rows)
    print_growth(report["growth"])
    print_targets(report["targets"])
    print_beside(report["torchdiffeq"])
    if asked.save:
        (HERE / "solvers.json").write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
