"""The run of an optimiser on the noisy Rosenbrock function, in NumPy.

``simulation.js`` holds the same run for the page, with the same names in the same order; the draws are those of
``numpy.random.default_rng(seed)`` in both. A :class:`~helpers.noise.NoisyPair` makes them too, call by call, so a run
in torch meets the same noise.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import rosenbrock
from ..descent import Trajectory

Array = NDArray[np.float64]
State = tuple[Array, Array, Array]
KINDS = ("factor", "term")
DRAWS = ("independent", "shared")


@dataclass(frozen=True)
class Settings:
    """What decides a run.

    Attributes
    ----------
    noise : float, 0 to 1
        How far a draw may lie from its mean.
    lr : float
        The learning rate, for both optimisers.
    steps, seed : int
        How many steps, and where the draws come from.
    start : (float, float)
        The first point.
    beta1, beta2 : float, from 0 to below 1
        How slowly Adam and AdamW forget; the other optimisers have torch's own defaults.
    optimizer, compare : str
        Names from ``OPTIMIZERS``; ``compare`` may be None.
    kind : {"factor", "term"}
        Noise multiplies, by a draw from U(1 - noise, 1 + noise); or a slope from U(-noise, noise) is added to each
        entry of the gradient, and the same linear function to the value.
    draws : {"independent", "shared"}
        A draw each for value and gradient, or one for both.
    seeds : int, 0 to 64
        How many seeds, from ``seed`` on, make the band.
    """

    noise: float = 0.5
    lr: float = 0.1
    steps: int = 200
    seed: int = 0
    start: tuple[float, float] = (0.1, 0.1)
    beta1: float = 0.9
    beta2: float = 0.999
    optimizer: str = "Adam"
    compare: str | None = None
    kind: str = "factor"
    draws: str = "independent"
    seeds: int = 0


def uniforms(settings: Settings, seed: int) -> Array:
    """Return the draws of a run, shape (steps, calls, width): for each step the value's first, the gradient's last."""
    width = 1 if settings.kind == "factor" else 2  # numbers in one draw
    calls = 2 if settings.draws == "independent" else 1  # draws in one step: value and gradient, or one for both
    return np.random.default_rng(seed).random((settings.steps, calls, width))


# --- the optimisers, each as torch.optim has it

EPS = 1e-8


def sgd(x: Array, g: Array, m: Array, v: Array, t: int, lr: Any, beta1: float, beta2: float) -> State:
    """Step along the gradient."""
    x = x - lr * g
    return x, m, v


def momentum(x: Array, g: Array, m: Array, v: Array, t: int, lr: Any, beta1: float, beta2: float) -> State:
    """Step along a sum of gradients that forgets; torch's SGD with momentum=0.9."""
    m = 0.9 * m + g
    x = x - lr * m
    return x, m, v


def rmsprop(x: Array, g: Array, m: Array, v: Array, t: int, lr: Any, beta1: float, beta2: float) -> State:
    """Divide the gradient by the root of its mean square."""
    v = 0.99 * v + (1 - 0.99) * g * g
    x = x - lr * g / (np.sqrt(v) + EPS)
    return x, m, v


def adam(x: Array, g: Array, m: Array, v: Array, t: int, lr: Any, beta1: float, beta2: float) -> State:
    """Divide the gradient's mean by the root of its mean square, both corrected for their start at 0.

    Source: D. P. Kingma and J. Ba, "Adam: a method for stochastic optimization" (2015), algorithm 1.
    """
    size = lr / (1 - beta1**t)
    root = np.sqrt(1 - beta2**t)
    m = m + (1 - beta1) * (g - m)
    v = beta2 * v + (1 - beta2) * g * g
    x = x - size * m / (np.sqrt(v) / root + EPS)
    return x, m, v


def adamw(x: Array, g: Array, m: Array, v: Array, t: int, lr: Any, beta1: float, beta2: float) -> State:
    """Shrink the point a little, then step as Adam does."""
    x = x * (1 - lr * 0.01)
    return adam(x, g, m, v, t, lr, beta1, beta2)


OPTIMIZERS: dict[str, Callable[..., State]] = {
    "SGD": sgd,
    "momentum": momentum,
    "RMSprop": rmsprop,
    "Adam": adam,
    "AdamW": adamw,
}


# --- the run


def simulate(
    settings: Settings,
    *,
    optimizer: str | None = None,
    seeds: Sequence[int] | None = None,
    lr: float | Array | None = None,
) -> Trajectory:
    """Return the trajectory of a run, or of many runs at once.

    Parameters
    ----------
    settings : Settings
        What decides the run.
    optimizer : str, optional
        Another optimiser than that of the settings.
    seeds : sequence of int, optional
        A run for each of these seeds, in place of the one of the settings.
    lr : float, or array of shape (runs, 1), optional
        Another learning rate, or one for each run.

    Returns
    -------
    Trajectory
        Its ``points`` have shape (steps + 1, 2), of many runs (steps + 1, runs, 2). Its ``losses`` are noisy, its
        ``values`` are not.

    Examples
    --------
    >>> simulate(Settings(steps=1, noise=0.0)).end.round(3).tolist()
    [0.2, 0.0]
    """
    noise, steps, kind = settings.noise, settings.steps, settings.kind
    update = OPTIMIZERS[optimizer or settings.optimizer]
    rate: Any = settings.lr if lr is None else lr
    if seeds is None:
        u = uniforms(settings, settings.seed)
    else:
        u = np.stack([uniforms(settings, seed) for seed in seeds], axis=2)  # (steps, calls, runs, width)
    low, high = (1 - noise, 1 + noise) if kind == "factor" else (-noise, noise)
    drawn = low + (high - low) * u

    runs = np.broadcast_shapes(np.shape(rate)[:-1], u.shape[2:-1])
    x = np.broadcast_to(np.array(settings.start, dtype=np.float64), (*runs, 2))
    m, v = np.zeros((*runs, 2)), np.zeros((*runs, 2))
    points, losses = [x], []
    with np.errstate(all="ignore"):  # NaN and Inf in the answer say it
        for t in range(1, steps + 1):
            first, second = drawn[t - 1, 0], drawn[t - 1, -1]  # the value's draw, the gradient's draw
            if kind == "factor":
                losses.append(rosenbrock.value(x) * first[..., 0])
                g = rosenbrock.gradient(x) * second
            else:
                losses.append(rosenbrock.value(x) + np.sum(first * x, axis=-1))
                g = rosenbrock.gradient(x) + second
            x, m, v = update(x, g, m, v, t, rate, settings.beta1, settings.beta2)
            points.append(x)
    path = np.array(points)
    return Trajectory(path, np.array(losses), np.asarray(rosenbrock.value(path)), optimizer or settings.optimizer)


def largest_difference(path: Trajectory, other: Trajectory) -> float:
    """Return how far two paths lie apart at most, relative to a coordinate where that is larger than 1.

    NaN beside NaN, and Inf beside the same Inf, are no difference; beside a number they are an infinite one.

    Examples
    --------
    >>> settings = Settings(steps=3)
    >>> largest_difference(simulate(settings), simulate(settings))
    0.0
    """
    a, b = path.points, other.points
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(all="ignore"):
        apart = np.where(same, 0.0, np.abs(a - b) / np.maximum(1.0, np.abs(b)))
    return float(np.max(np.where(np.isnan(apart), np.inf, apart)))
