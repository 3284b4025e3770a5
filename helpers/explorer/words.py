"""What is said below the picture, and the tasks: the same words and rules as in ``explorer.js``."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..descent import Trajectory
from .simulation import Array, Settings, simulate

BELOW = 1e-6
NOTCHES = [float(f"{10 ** (notch / 50 - 3):.3g}") for notch in range(151)]
"""The positions of the slider for the learning rate."""


@dataclass(frozen=True)
class Task:
    """Something to reach with the sliders.

    Attributes
    ----------
    text : str
        What to reach.
    solved : bool
        Whether the settings reach it.
    """

    text: str
    solved: bool


def ending(path: Trajectory) -> str:
    """Say where a path ends.

    Examples
    --------
    >>> ending(simulate(Settings()))
    'ends at (1.000, 1.000), f = 1.3e-06.'
    """
    x0, x1 = path.end.tolist()
    lost = np.flatnonzero(~np.isfinite(path.points).all(axis=1))
    gone = f" Not finite from step {lost[0]} on." if lost.size else ""
    return f"ends at ({_coordinate(x0)}, {_coordinate(x1)}), f = {_last_value(path):.1e}.{gone}"


def sentence(settings: Settings, paths: list[Trajectory], ends: Array) -> str:
    """Return the text below the picture.

    Parameters
    ----------
    settings : Settings
        What decided the runs.
    paths : list of Trajectory
        The path, and perhaps the one beside it.
    ends : array, shape (seeds,)
        The noiseless value at the end for each seed of the band; empty without one.
    """
    main, *others = paths
    words = [
        f"{main.label}, lr {settings.lr:#.3g}, noise {settings.noise:.2f}, {settings.steps} steps: {ending(main)}",
        *(f"{other.label}: {ending(other)}" for other in others),
    ]
    if ends.size:
        words.append(f"Of {main.label}'s {ends.size} seeds, {int(np.sum(ends < BELOW))} end below 1e-6.")
    return " ".join(words)


def tasks(settings: Settings, path: Trajectory) -> list[Task]:
    """Return the tasks, judged by these settings and their path."""
    return [Task(text, solved(settings, path)) for text, solved in _TASKS.items()]


def _is_fast_and_low(settings: Settings, path: Trajectory) -> bool:
    as_asked = settings.noise == 0.5 and settings.steps <= 100 and tuple(settings.start) == (0.1, 0.1)
    return as_asked and bool(_last_value(path) < BELOW)


def _is_the_first_to_diverge(settings: Settings, path: Trajectory) -> bool:
    if np.isfinite(path.points).all() or settings.lr not in NOTCHES:
        return False
    below = [lr for lr in NOTCHES if lr < settings.lr]
    if not below:
        return True
    smaller = simulate(settings, seeds=[settings.seed] * len(below), lr=np.array(below)[:, np.newaxis])
    return bool(np.isfinite(smaller.points).all())


LOW = "Get f below 1e-6 within 100 steps at noise 0.50, from the start (0.10, 0.10)."
FIRST = (
    "Choose an optimiser that diverges: its path ends in NaN or Inf. Find the smallest learning rate at which it does."
)
_TASKS: dict[str, Callable[[Settings, Trajectory], bool]] = {LOW: _is_fast_and_low, FIRST: _is_the_first_to_diverge}


def _last_value(path: Trajectory) -> float:
    assert path.values is not None  # simulate gives them
    return float(path.values[-1])


def _coordinate(number: float) -> str:
    return f"{number + 0.0:.3f}" if abs(number) < 1e4 else f"{number:.1e}"
