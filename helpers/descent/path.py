"""What both lanes have in common: step, keep the point, ask ``after_step``."""

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import ArrayLike

from .parameter import Numbers, copy_of, only_parameter
from .trajectory import Array, Trajectory, values_along

AfterStep = Callable[[int, Array], "bool | None"]


def follow(
    optimizer: torch.optim.Optimizer,
    step: Callable[[Array], object],
    steps: int,
    value: Callable[[Array], ArrayLike] | None,
    label: str,
    after_step: AfterStep | None,
) -> Trajectory:
    """Call ``step(point)`` again and again, and keep the path: see :func:`descend` for the rest."""
    if steps < 0:
        raise ValueError(f"steps must be 0 or more; got {steps}.")
    if after_step is not None and not callable(after_step):
        raise TypeError(
            f"after_step must be a function of the steps taken and the point; got {type(after_step).__name__}. "
            "For a scheduler, use lambda taken, x: scheduler.step()."
        )
    numbers = Numbers(only_parameter(optimizer))
    points, losses = [numbers.copy()], []
    for taken in range(1, steps + 1):
        losses.append(_number(step(points[-1])))
        points.append(numbers.copy())
        if after_step is not None:
            ends = _is_true(after_step(taken, points[-1].copy()))
            points[-1] = numbers.copy()  # it may have moved the parameter
            if ends:
                break
    path = np.array(points)
    return Trajectory(
        points=path,
        losses=np.array(losses, dtype=np.float64),
        values=None if value is None else values_along(value, path),
        label=label,
    )


def _is_true(answer: object) -> bool:
    if answer is not None and not isinstance(answer, (bool, np.bool_)):
        raise TypeError(
            f"after_step must return True to end the run, or False or None to go on; got {type(answer).__name__}. "
            "Make a bool of a condition with bool(...), and end the function with return None otherwise."
        )
    return bool(answer)


def _number(loss: object) -> float | Array:
    if loss is None:
        return np.nan
    return copy_of(loss) if isinstance(loss, torch.Tensor) else np.asarray(loss, dtype=np.float64)
