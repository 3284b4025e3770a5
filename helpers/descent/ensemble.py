"""Many runs as one tensor: one row a run, and the optimiser steps them all at once."""

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import ArrayLike

from .direct import descend_with_gradient, needs_a_closure
from .parameter import only_parameter
from .path import AfterStep
from .trajectory import Array, Trajectory

MakeOptimizer = Callable[[torch.Tensor], torch.optim.Optimizer]
MakeScheduler = Callable[[torch.optim.Optimizer], torch.optim.lr_scheduler.LRScheduler]

PROBE_STEPS = 3


def descend_many(
    optimizer: MakeOptimizer,
    gradient: Callable[[Array], ArrayLike],
    start: ArrayLike,
    runs: int,
    steps: int,
    *,
    scheduler: MakeScheduler | None = None,
    value: Callable[[Array], ArrayLike] | None = None,
    label: str = "",
    after_step: AfterStep | None = None,
) -> Trajectory:
    """Take many runs at once: one parameter of shape (runs, d), and one optimiser for it.

    An elementwise optimiser such as SGD, Adam or RMSprop updates each entry from this entry's own gradients. So row i
    moves as it would alone, and a hundred runs cost little more than one. An optimiser whose rows depend on one
    another, such as LBFGS or Adafactor, is refused: the runs are made apart and together on a small example first.

    Parameters
    ----------
    optimizer : callable, tensor of shape (runs, d) -> torch optimiser
        Makes the optimiser, such as ``lambda x: torch.optim.Adam([x], lr=0.1)``. It is called several times.
    gradient : callable, points of shape (runs, d) -> gradients of shape (runs, d)
        NumPy code that gives each point its gradient, such as ``noisy.gradient`` of a ``NoisyPair``, which draws for
        each run anew.
    start : array_like, shape (d,) or (runs, d)
        Where all runs start, or where each one does.
    runs : int, 1 or more
        How many.
    steps, value, label, after_step
        See :func:`descend`. Here ``value`` gets points of shape (steps + 1, runs, d).
    scheduler : callable, torch optimiser -> torch learning-rate scheduler, optional
        Makes the scheduler, which steps after each step.

    Returns
    -------
    Trajectory
        Its ``points`` have shape (steps + 1, runs, d), its ``values`` (steps + 1, runs).

    Raises
    ------
    TypeError
        If ``optimizer`` cannot be called: make it with ``lambda x: ...``.
    ValueError
        If the optimiser needs a closure, or one run changes another, or it holds another tensor than the one it was
        made for; if ``runs`` is below 1, or ``start`` has another shape; and see :func:`descend_with_gradient`.

    Examples
    --------
    >>> many = descend_many(lambda x: torch.optim.SGD([x], lr=0.25), lambda x: 2 * x, [[1.0], [3.0]], runs=2, steps=2)
    >>> many.points[..., 0].tolist()
    [[1.0, 3.0], [0.5, 1.5], [0.25, 0.75]]
    """
    if isinstance(optimizer, torch.optim.Optimizer) or not callable(optimizer):
        raise TypeError(
            f"optimizer must be a function that makes one; got {type(optimizer).__name__}. "
            "Write it as lambda x: torch.optim.Adam([x], lr=0.1)."
        )
    points = _starts(start, runs)
    _require_rows_apart(optimizer, points.shape[1])
    made = _made_for(optimizer, points)
    if scheduler is None:
        return descend_with_gradient(made, gradient, steps, value=value, label=label, after_step=after_step)
    schedule = scheduler(made)

    def step_both(taken: int, x: Array) -> bool | None:
        schedule.step()
        return None if after_step is None else after_step(taken, x)

    return descend_with_gradient(made, gradient, steps, value=value, label=label, after_step=step_both)


def _starts(start: ArrayLike, runs: int) -> Array:
    given = np.asarray(start, dtype=np.float64)
    if runs < 1:
        raise ValueError(f"runs must be 1 or more; got {runs}.")
    if given.ndim not in (1, 2) or given.shape[:-1] not in ((), (runs,)) or given.shape[-1] == 0:
        raise ValueError(f"start must have shape (d,), or (runs, d) with runs = {runs}; got {given.shape}.")
    return np.broadcast_to(given, (runs, given.shape[-1]))


def _made_for(optimizer: MakeOptimizer, points: Array) -> torch.optim.Optimizer:
    x = torch.tensor(points, dtype=torch.float64)
    made = optimizer(x)
    if needs_a_closure(made):
        raise ValueError(
            f"{type(made).__name__} calls a closure, whose one loss would be that of all runs together. "
            "Write a loop over the seeds, with an optimiser and a closure for each, and descend."
        )
    if only_parameter(made) is not x:
        raise ValueError("The optimiser holds another tensor than the one it was made for: hand on the x that you get.")
    return made


def _require_rows_apart(optimizer: MakeOptimizer, d: int) -> None:
    """Compare two runs in one tensor with the same two, each in a tensor of its own."""
    # Sizes far apart: an optimiser that divides by a size which the rows share would hide behind equal ones.
    gradients = np.random.default_rng(0).normal(size=(PROBE_STEPS, 2, d)) * np.array([[1.0], [30.0]])
    together = _ends(optimizer, gradients)
    apart = np.concatenate([_ends(optimizer, gradients[:, row : row + 1]) for row in range(2)])
    if not np.allclose(together, apart, rtol=1e-9, atol=0):
        raise ValueError(
            "In this optimiser one run changes another: two runs in one tensor end elsewhere than each alone. "
            "Write a loop over the seeds, with an optimiser for each, and descend_with_gradient."
        )


def _ends(optimizer: MakeOptimizer, gradients: Array) -> Array:
    steps = iter(gradients)
    made = _made_for(optimizer, np.ones(gradients.shape[1:]))
    return descend_with_gradient(made, lambda x: next(steps), len(gradients)).end
