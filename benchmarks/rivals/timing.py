"""Measure several ways side by side: a busy machine slows all of them alike, so their ratios stay."""

import gc
import time
from collections.abc import Callable
from statistics import median

Way = Callable[[], object]


def interleave(ways: dict[str, Way], rounds: int, calls: int) -> dict[str, list[float]]:
    """Return the microseconds of one call: a list over the rounds for each way.

    Each round runs every way, ``calls`` times in a row, after one call that is not counted.
    """
    for way in ways.values():
        way()
    gc.freeze()  # what was imported is not searched for garbage in the middle of a round
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            way()
            began = time.perf_counter()
            for _ in range(calls):
                way()
            times[name].append((time.perf_counter() - began) / calls * 1e6)
    return times


def ratio(times: dict[str, list[float]], name: str, unit: str) -> float:
    """Return how many times as long as ``unit`` a way took: the median over the rounds."""
    return median(mine / other for mine, other in zip(times[name], times[unit], strict=True))
