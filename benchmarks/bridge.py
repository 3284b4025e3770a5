"""What a gradient of your own costs, way by way: python benchmarks/bridge.py.

    python benchmarks/bridge.py                        the tables and the targets
    python benchmarks/bridge.py --profile              where the time of one evaluation goes, too
    python benchmarks/bridge.py --save                 all of it, written to bridge.json beside this file
    python benchmarks/bridge.py --tesseract PYTHON     with the row of an environment that has tesseract-torch

All ways run in one process, one after the other in each round, so that a busy machine slows all of them alike. A ratio
is the median over the rounds. Read the ratios; the microseconds are this machine's. Rivals that are not installed are
left out, and a line says so.
"""

import argparse
import json
import os
import platform
import subprocess
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from rivals import by_hand, functions, ladder
from rivals.by_hand import PLAIN, SHORTEST, by_backward, shortest, start
from rivals.timing import Way, interleave, ratio

from helpers import differentiable

FLOOR = "value and gradient in NumPy, no torch"
EMPTY = "the same, with an empty Function beside it"
SAFE = "differentiable(value, grad=gradient)"
BOTH = "differentiable(value_and_grad=both)"
RIVALS = ("hips", "jax_callback", "compiled")
PACKAGES = ("torch", "numpy", "autograd", "jax", "tesseract-torch")
SIZES = (100_000, 1_000_000)
ROUNDS, CALLS = 25, 200
HERE = Path(__file__).resolve().parent

Times = dict[str, list[float]]
Row = dict[str, Any]


def both(x: functions.Array) -> tuple[float, functions.Array]:
    """Return value and gradient in one call."""
    return functions.value(x), functions.gradient(x)


def adjoint(x: functions.Array, g: functions.Array) -> functions.Array:
    """Return g times the gradient."""
    return g * functions.gradient(x)


def in_numpy(value: Callable[[Any], Any], gradient: Callable[[Any], Any], x: functions.Array) -> Way:
    """Return one evaluation without torch: nothing around NumPy can be faster."""

    def once() -> object:
        value(x)
        return gradient(x)

    return once


def small_ways() -> tuple[dict[str, Way], list[str]]:
    """Return the ways to the value and gradient of two variables, and what is missing and why."""
    ways = {
        FLOOR: in_numpy(functions.value, functions.gradient, np.full(2, 0.1)),
        EMPTY: ladder.beside(functions.value, functions.gradient, np.full(2, 0.1)),
        SAFE: by_backward(differentiable(functions.value, grad=functions.gradient), start()),
        f"{SAFE[:-1]}, finite='raise')": by_backward(
            differentiable(functions.value, grad=functions.gradient, finite="raise"), start()
        ),
        BOTH: by_backward(differentiable(value_and_grad=both), start()),
        "differentiable(value, vjp=adjoint)": by_backward(differentiable(functions.value, vjp=adjoint), start()),
        **by_hand.ways(),
    }
    missing = []
    for name in RIVALS:
        try:
            more = import_module(f"rivals.{name}").ways()
            for way in more.values():
                way()
        except Exception as error:  # a rival may fail in its own ways, such as a compiler that is not there
            missing.append(f"rivals/{name}.py: {type(error).__name__}: {error}".splitlines()[0])
        else:
            ways |= more
    for name, way in ways.items():
        np.testing.assert_allclose(np.asarray(way()), functions.gradient(np.full(2, 0.1)), err_msg=name)
    return ways, missing


def large_ways(n: int) -> dict[str, Way]:
    """Return the ways to the value and gradient of n variables."""
    x = np.random.default_rng(0).uniform(-1, 1, n)

    def parameter() -> torch.Tensor:
        return torch.tensor(x, requires_grad=True)

    ways = {
        FLOOR: in_numpy(functions.chain, functions.chain_gradient, x),
        EMPTY: ladder.beside(functions.chain, functions.chain_gradient, x),
        SAFE: by_backward(differentiable(functions.chain, grad=functions.chain_gradient), parameter()),
        SHORTEST: by_backward(shortest(functions.chain, functions.chain_gradient), parameter()),
        PLAIN: by_backward(functions.chain, parameter()),
    }
    for name, way in ways.items():
        np.testing.assert_allclose(np.asarray(way()), functions.chain_gradient(x), err_msg=name, rtol=1e-9, atol=1e-9)
    return ways


def rows(times: Times, unit: str) -> list[Row]:
    """Return ratio and microseconds of each way."""
    return [
        {"way": name, "ratio": round(ratio(times, name, unit), 3), "microseconds": round(median(times[name]), 1)}
        for name in times
    ]


def in_its_own_process(python: str, rounds: int) -> tuple[Row, dict[str, str]]:
    """Return the row of tesseract-torch, measured by another Python beside plain autograd, and the versions there."""
    command = [python, "-m", "rivals.tesseract", str(rounds), "20"]
    done = subprocess.run(command, cwd=HERE, env=os.environ | {"PYTHONPATH": ""}, check=True, stdout=subprocess.PIPE)
    found = json.loads(done.stdout)
    row = rows(found["times"], PLAIN)[0]
    return row | {"shortest": round(ratio(found["times"], row["way"], SHORTEST), 1)}, found["versions"]


def targets(small: Times, large: dict[int, Times]) -> list[Row]:
    """Return what the bridge promises, what was measured, and whether it holds."""
    asked = [
        ("differentiable, in units of the shortest hand-written Function", ratio(small, SAFE, SHORTEST), 1.05),
        ("differentiable, in units of plain autograd", ratio(small, SAFE, PLAIN), 0.45),
        *(
            (f"differentiable, in units of raw NumPy, n = {n:,}", ratio(times, SAFE, FLOOR), 1.3)
            for n, times in large.items()
        ),
    ]
    return [
        {"target": what, "at_most": limit, "measured": round(found, 3), "reached": round(found, 3) <= limit}
        for what, found, limit in asked
    ]


def profile(rounds: int) -> list[Row]:
    """Return the parts of one evaluation through `differentiable`. They add up to all of it."""
    op = differentiable(functions.value, grad=functions.gradient)
    last = "what makes it safe"
    times = interleave(ladder.rungs() | {last: by_backward(op, start())}, rounds, CALLS)
    reached = {name: median(found) for name, found in times.items()}
    below = [0.0, *reached.values()]
    return [
        {"part": name, "microseconds": round(now - before, 2), "share": round((now - before) / reached[last], 3)}
        for (name, now), before in zip(reached.items(), below, strict=False)
    ]


def versions() -> dict[str, str]:
    """Return the versions of what was measured."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except ModuleNotFoundError:
            continue
    return found


def print_table(title: str, table: list[Row]) -> None:
    """Print rows as Markdown."""
    print(f"\n| {title} | ratio | µs here |\n|---|---|---|")
    for row in table:
        print(f"| {row['way']} | {row['ratio']:.3g} | {row['microseconds']:,.0f} |")


def print_targets(found: list[Row]) -> None:
    """Print what was promised and what was measured."""
    print("\nTargets:\n")
    for each in found:
        verdict = "reached" if each["reached"] else "missed"
        print(f"- {each['target']}: {each['measured']:.2f}, at most {each['at_most']}: {verdict}")


def print_profile(parts: list[Row]) -> None:
    """Print the parts of one evaluation."""
    print("\n| a part of one evaluation | µs here | share |\n|---|---|---|")
    for part in parts:
        print(f"| {part['part']} | {part['microseconds']:.1f} | {part['share']:.0%} |")
    print(f"| together | {sum(part['microseconds'] for part in parts):.1f} | 100% |")


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="What a gradient of your own costs, way by way.")
    parser.add_argument("--profile", action="store_true", help="show where the time of one evaluation goes")
    parser.add_argument("--save", action="store_true", help="measure everything and write bridge.json")
    parser.add_argument("--tesseract", metavar="PYTHON", help="a Python 3.12 or newer that has tesseract-torch")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    return parser.parse_args()


def main() -> None:
    """Measure and print."""
    asked = arguments()
    torch.set_num_threads(1)
    ways, missing = small_ways()
    small = interleave(ways, asked.rounds, CALLS)
    large = {n: interleave(large_ways(n), asked.rounds, max(1, SIZES[0] * 3 // n)) for n in SIZES}
    report: dict[str, Any] = {
        "versions": versions(),
        "rounds": asked.rounds,
        "small": rows(small, PLAIN),
        "large": {str(n): rows(times, FLOOR) for n, times in large.items()},
        "targets": targets(small, large),
    }
    if asked.tesseract:
        row, its_versions = in_its_own_process(asked.tesseract, asked.rounds)
        report["small"].append(row)
        report["tesseract_versions"] = its_versions
    else:
        missing.append("rivals/tesseract.py: not asked for (--tesseract PYTHON)")

    print_table("one value and gradient of two variables", report["small"])
    for n in SIZES:
        print_table(f"the same, n = {n:,}", report["large"][str(n)])
    print_targets(report["targets"])
    for line in missing:
        print(f"\nNot measured: {line}")
    if asked.profile or asked.save:
        report["profile"] = profile(asked.rounds)
        print_profile(report["profile"])
    if asked.save:
        (HERE / "bridge.json").write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
