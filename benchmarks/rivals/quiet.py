"""Times taken when the machine has nothing else to do, as far as it tells."""

import time
from collections.abc import Callable
from pathlib import Path

QUIET = 0.85


def seconds(work: Callable[[], object]) -> float:
    """Return how long something takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


class Watch:
    """Takes times, one way after the other, when the machine is quiet.

    Parameters
    ----------
    rounds : int
        How often each way is timed.
    patience : float
        How many seconds to wait for a quiet moment, each time.
    """

    def __init__(self, rounds: int, patience: float) -> None:
        self.rounds, self.patience = rounds, patience
        self.quiet = self.all = 0

    def __call__(self, ways: dict[str, Callable[[], object]]) -> dict[str, list[float]]:
        """Return the microseconds of each way, a list over the rounds, after one call that is not counted."""
        for way in ways.values():
            way()
        times: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(self.rounds):
            for name, way in ways.items():
                self.wait()
                times[name].append(seconds(way) * 1e6)
        return times

    def wait(self) -> None:
        """Wait for a quiet moment."""
        end = time.monotonic() + self.patience
        while not (quiet := idle() > QUIET) and time.monotonic() < end:
            time.sleep(0.1)
        self.quiet, self.all = self.quiet + quiet, self.all + 1


def idle() -> float:
    """Return the share of the cores that has nothing to do, over a moment; 1 where no file tells."""
    file = Path("/proc/stat")
    if not file.exists():
        return 1.0
    before = ticks(file)
    time.sleep(0.1)
    after = ticks(file)
    passed = [now - then for now, then in zip(after, before, strict=True)]
    return (passed[3] + passed[4]) / max(1, sum(passed))


def ticks(file: Path) -> list[int]:
    """Return what the cores have done since the machine started: the fourth is nothing, the fifth is waiting."""
    return [int(word) for word in file.read_text(encoding="ascii").splitlines()[0].split()[1:]]
