"""What it costs to compute the samples of a batch on an executor: python benchmarks/executor.py.

    python benchmarks/executor.py                      the tables and the targets
    python benchmarks/executor.py --save               the same, written to executor.json beside this file
    mpiexec -n 5 python -m mpi4py.futures benchmarks/executor.py         with the rows of MPI, on 4 workers

All ways run one after the other in each round; a number is the median over the rounds. Other programs take cores away,
and then two workers cannot be twice as fast as one. So each measurement waits, for --patience seconds at most, until
the machine is quiet (on Linux, which tells), and beside the speed-ups stands what two programs that have nothing to do
with each other gained by running at the same time, in the same rounds: no executor can do better. Executors that are
not installed are left out, and a line says so.
"""

import argparse
import contextlib
import itertools
import json
import platform
import tempfile
from collections.abc import Callable
from concurrent.futures import Executor
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from rivals import workload
from rivals.executors import CORES, NAPPERS, PROCESSES, THREADS, few, many, opened
from rivals.quiet import Watch, seconds
from rivals.timing import ratio

# Worker processes import this file, too: nothing up here loads torch, so that they start quickly.

Row = dict[str, Any]

SERIAL = "none: one after the other"
EMPTY, LARGE = 64, 125_000
ROUNDS, PATIENCE = 7, 3.0
RUNGE_KUTTA = "Lotka-Volterra, Runge-Kutta"
PACKAGES = ("torch", "numpy", "scipy", "loky", "distributed", "mpi4py")
HERE = Path(__file__).resolve().parent


def tensor(array: Any, *, grad: bool = True) -> Any:
    """Return a tensor."""
    import torch

    return torch.tensor(array, requires_grad=grad)


def loop(fun: Any = None, executor: Executor | None = None, **options: Any) -> Any:
    """Return the op that computes sample by sample, on an executor if one is given."""
    from helpers import differentiable

    return differentiable(fun, batch="loop", executor=executor, **options)


def back(y: Any) -> Callable[[], object]:
    """Return one backward through a graph that is kept."""
    total = y.sum()
    return lambda: total.backward(retain_graph=True)


def sleeping(pools: dict[str, Executor], watch: Watch) -> list[Row]:
    """Return eight sleeping adjoints in one backward, in units of one of them."""
    x = np.random.default_rng(0).standard_normal((NAPPERS, 3))
    unit = "one adjoint"
    ways = {unit: back(loop(workload.Sleeper())(tensor(x[:1]))), SERIAL: back(loop(workload.Sleeper())(tensor(x)))}
    for name, pool in pools.items():
        ways[name] = back(loop(workload.Sleeper(), pool)(tensor(x)))
    times = watch(ways)
    return [
        {"executor": name, "ratio": round(ratio(times, name, unit), 3), "milliseconds": in_ms(times[name])}
        for name in ways
    ]


def in_ms(times: list[float]) -> float:
    """Return the median of microseconds, in milliseconds."""
    return round(median(times) / 1e3, 2)


def gradients(pools: dict[str, Executor]) -> dict[str, dict[str, Callable[[], object]]]:
    """Return one value and gradient of eight samples for each problem, serial and on each executor."""
    m, animals = tensor(workload.plates(NAPPERS)), [tensor(each) for each in workload.animals(NAPPERS)]
    plates = {"signature": "(n,n)->()"}

    def problems(pool: Executor | None) -> dict[str, Callable[[], object]]:
        heat = loop(workload.HEAT, pool, signature="(n,n)->(s)", state="recompute")
        joint = loop(executor=pool, value_and_grad=workload.misfit, **plates)
        found = {
            "heat, value and gradient in one task": lambda: joint(m).sum().backward(),
            "heat, solve and adjoint in two tasks": lambda: (heat(m) ** 2).sum().backward(),
        }
        ode = loop(workload.ODES[RUNGE_KUTTA], pool)
        return found | {RUNGE_KUTTA: lambda: (ode(*animals) ** 2).sum().backward()}

    table = {SERIAL: problems(None)} | {name: problems(pool) for name, pool in pools.items()}
    return {problem: {name: ways[problem] for name, ways in table.items()} for problem in table[SERIAL]}


def both_cores(pool: Executor) -> Callable[[], float]:
    """Return what measures how much two programs gain by running at the same time, of 2."""
    turns = 1_000_000

    def gain() -> float:
        alone = seconds(lambda: pool.submit(workload.spin, turns).result())
        together = seconds(lambda: list(pool.map(workload.spin, [turns] * CORES)))
        return CORES * alone / together

    return gain


def busy(pools: dict[str, Executor], watch: Watch) -> list[Row]:
    """Return how many times as fast as serial each executor is, for solves that keep a core busy."""
    gain = both_cores(pools[PROCESSES])
    rows = []
    for problem, ways in gradients(pools).items():
        cores: list[float] = []
        ways = ways | {"both cores": lambda cores=cores: cores.append(gain())}
        times = watch(ways)
        rows += [
            {
                "problem": problem,
                "executor": name,
                "faster": round(ratio(times, SERIAL, name), 2),
                "milliseconds": in_ms(times[name]),
                "cores": round(median(cores), 2),
            }
            for name in ways
            if name != "both cores"
        ]
    return rows


def overhead(pools: dict[str, Executor], watch: Watch) -> list[Row]:
    """Return the microseconds of one sample of an empty function, and what one more megabyte each way adds."""
    small, large = np.zeros((EMPTY, 8)), np.zeros((8, LARGE))
    rng = np.random.default_rng(0)
    ways: dict[str, Callable[[], object]] = {}
    for name, pool in {SERIAL: None, **pools}.items():
        op = loop(executor=pool, value_and_grad=workload.nothing, signature="(n)->()")
        for size, x in (("small", small), ("large", large)):
            x = tensor(x + rng.standard_normal(x.shape))
            ways[f"{size} {name}"] = lambda op=op, x=x: op(x).sum().backward()
    times = watch(ways)
    rows = []
    for name in (SERIAL, *pools):
        each, heavy = median(times[f"small {name}"]) / EMPTY, median(times[f"large {name}"]) / len(large)
        rows.append({"executor": name, "microseconds": round(each), "per_megabyte": round(heavy - each)})
    return rows


def travels(pool: Executor) -> list[Row]:
    """Return what travels for one sample, and how long its round trips and its solves take."""
    m, animals = tensor(workload.plates(NAPPERS)), [tensor(each) for each in workload.animals(NAPPERS)]
    heat = {"signature": "(n,n)->(s)"}
    cases: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
        "heat, value and gradient in one task": (
            lambda **more: loop(value_and_grad=workload.misfit, signature="(n,n)->()", **more),
            (m,),
        ),
        'heat, state="travel"': (lambda **more: loop(workload.HEAT, **heat, **more), (m,)),
        'heat, state="recompute"': (lambda **more: loop(workload.HEAT, state="recompute", **heat, **more), (m,)),
    }
    for name, solver in workload.ODES.items():
        for state in ("travel", "recompute"):
            cases[f'{name}, state="{state}"'] = (
                lambda solver=solver, state=state, **more: loop(solver, state=state, **more),
                tuple(animals),
            )
    return [{"problem": name} | journey(make, inputs, pool) for name, (make, inputs) in cases.items()]


def journey(make: Callable[..., Any], inputs: tuple[Any, ...], pool: Executor) -> Row:
    """Return kilobytes and milliseconds for one sample of one op."""
    from helpers import FailedSamples

    op = make(executor=pool)
    try:
        op(*inputs)
    except FailedSamples as error:
        return {"refused": str(error.__cause__).partition(":")[0]}
    serial = make()
    own = median(seconds(lambda: (serial(*inputs) ** 2).sum().backward()) for _ in range(3)) / NAPPERS
    y = op(*inputs)
    there = op.traffic
    (y**2).sum().backward()
    maps = [there] if op.traffic is there else [there, op.traffic]
    sent, received, states = (
        sum(getattr(one, what) for one in maps) / NAPPERS / 1e3 for what in ("sent", "received", "states")
    )
    return {
        "tasks": sum(one.tasks for one in maps) // NAPPERS,
        "functions_kB": round(there.functions / 1e3, 1),
        "sent_kB": round(sent, 1),
        "received_kB": round(received, 1),
        "states_kB": round(states, 1),
        "own_milliseconds": round(own * 1e3, 2),
    }


def timelines(pools: dict[str, Executor], watch: Watch) -> dict[str, list[Row]]:
    """Return which worker was at work on which sample when, for eight gradients of the heat equation."""
    array = workload.plates(NAPPERS)
    array[:, 0, 0] = range(NAPPERS)
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        notes = Path(folder, "notes")
        for name, pool in ((SERIAL, None), (THREADS, pools[THREADS]), (PROCESSES, pools[PROCESSES])):
            op = loop(executor=pool, value_and_grad=workload.Timed(str(notes)), signature="(n,n)->()")
            for turn in range(3):  # the first times, the bridge looks on, and modules are loaded
                notes.write_text("", encoding="ascii")
                watch.wait()
                op(tensor(array + 1e-9 * turn))
            found[name] = spans(notes.read_text(encoding="ascii"))
    return found


def spans(notes: str) -> list[Row]:
    """Return the notes of workers as rows, in the order in which samples were begun; the first begins at 0."""
    lines = sorted((line.split() for line in notes.splitlines()), key=lambda parts: float(parts[2]))
    workers = list(dict.fromkeys(worker for worker, *_ in lines))
    zero = float(lines[0][2])
    return [
        {
            "worker": workers.index(worker),
            "sample": int(sample),
            "begin": round((float(begin) - zero) * 1e3, 2),
            "end": round((float(end) - zero) * 1e3, 2),
        }
        for worker, sample, begin, end in lines
    ]


def targets(asleep: list[Row], awake: list[Row]) -> list[Row]:
    """Return what the bridge promises, what was measured, and whether it holds."""
    found = [
        {
            "target": f"eight sleeping adjoints in one backward, {row['executor']}, in units of one",
            "at_most": 1.15,
            "measured": row["ratio"],
            "reached": row["ratio"] <= 1.15,
        }
        for row in asleep
        if row["executor"] in (THREADS, PROCESSES)
    ]
    for row in awake:
        if row["executor"] in (THREADS, PROCESSES) and row["problem"].endswith("in one task"):
            found.append(
                {
                    "target": f"heat on 2 cores, {row['executor']}, times as fast as serial",
                    "at_least": 1.7,
                    "measured": row["faster"],
                    "cores": row["cores"],
                    "reached": row["faster"] >= 1.7,
                }
            )
    return found


def versions() -> dict[str, str]:
    """Return the versions of what was measured."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def print_table(title: str, table: list[Row], names: dict[str, str]) -> None:
    """Print rows as Markdown. ``names`` says what the columns are called."""
    print(f"\n{title}\n\n| {' | '.join(names.values())} |\n|{'---|' * len(names)}")
    for row in table:
        print(f"| {' | '.join(str(row.get(key, '')) for key in names)} |")


def print_targets(found: list[Row]) -> None:
    """Print what was promised and what was measured."""
    print("\nTargets:\n")
    for each in found:
        limit = f"at most {each['at_most']}" if "at_most" in each else f"at least {each['at_least']}"
        beside = f" (two programs side by side: {each['cores']:.2f})" if "cores" in each else ""
        verdict = "reached" if each["reached"] else "missed"
        print(f"- {each['target']}: {each['measured']:.2f}{beside}, {limit}: {verdict}")


def by_executor(rows: list[Row]) -> list[Row]:
    """Return one row for each problem, with the executors as columns."""
    groups = itertools.groupby(rows, key=lambda row: row["problem"])
    return [
        {"problem": problem} | {key: value for row in group for key, value in _columns(row).items()}
        for problem, group in groups
    ]


def _columns(row: Row) -> Row:
    if row["executor"] == SERIAL:
        return {"serial": row["milliseconds"], "cores": row["cores"]}
    return {row["executor"]: row["faster"]}


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="What it costs to compute samples on an executor.")
    parser.add_argument("--save", action="store_true", help="write executor.json")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--patience", type=float, default=PATIENCE, help="seconds to wait for a quiet moment")
    return parser.parse_args()


def main() -> None:
    """Measure and print."""
    import torch

    asked = arguments()
    torch.set_num_threads(1)
    watch = Watch(asked.rounds, asked.patience)
    with opened(many()) as (pools, missing):
        asleep = sleeping(pools, watch)
        print_table("Eight sleeping adjoints of 50 ms", asleep, {"executor": "executor", "ratio": "ratio"})
    with opened(few()) as (pools, _):
        awake = busy(pools, watch)
        print_table(
            "Eight solves that keep a core busy, times as fast as serial",
            by_executor(awake),
            {"problem": "problem", "serial": "serial, ms here"} | {name: name for name in pools} | {"cores": "ideal"},
        )
        costs = overhead(pools, watch)
        names = {"executor": "executor", "microseconds": "µs for each sample", "per_megabyte": "and for each MB"}
        print_table("An empty function", costs, names)
        travel = travels(pools[PROCESSES])
        print_table("What travels for one sample", travel, {key: key for key in travel[0]} | {"refused": "refused"})
        times = timelines(pools, watch)
    report = {
        "versions": versions(),
        "rounds": asked.rounds,
        "quiet": round(watch.quiet / watch.all, 2),
        "sleeping": asleep,
        "busy": awake,
        "overhead": costs,
        "travels": travel,
        "timelines": times,
        "targets": targets(asleep, awake),
        "not_measured": missing,
    }
    print_targets(report["targets"])
    print(f"\n{report['quiet']:.0%} of the measurements began in a quiet moment.")
    for line in missing:
        print(f"\nNot measured: {line}")
    if asked.save:
        (HERE / "executor.json").write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
