"""What the second derivative should be: finite differences of the patient's own gradient."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from .. import differences
from .exam import Exam, Failed, upstream
from .inputs import Array, draw, keep_form, moved
from .probes import COARSE_STEPS, scales

FEW = 3  # numbers in the inputs, up to which each of them is moved by itself
STEPS = (1e-2, 1e-3, 1e-4, 1e-5)


@dataclass(frozen=True)
class Bends:
    """The derivative of <weights, gradient> along some directions, how far it may be off, and what it is in words."""

    directions: list[list[Array]]
    weights: list[Array]
    values: Array
    errors: Array
    what: str


def bends(exam: Exam, points: list[Array]) -> Bends | None:
    """Return finite differences of the gradient at some points, None if they tell nothing."""
    rng = np.random.default_rng(7)
    weights = [np.abs(draw(x, rng)) + 0.5 for x in points]
    count = sum(x.size for x in points)
    if len(points) == 1 and count <= FEW and not np.iscomplexobj(points[0]):
        directions = [[np.reshape(row, points[0].shape)] for row in np.eye(count)]
        what = "second derivatives, summed with random weights, by each number"
    else:
        directions = [[keep_form(x, scales(x) * draw(x, rng)) for x in points] for _ in range(3)]
        what = "second derivatives, summed with random weights, along random directions"
    run = exam.run(points)
    gs = upstream(run.tracked, 0)
    exact = float(torch.finfo(exam.precise).eps)

    def weighted(at: list[Array]) -> float:
        run = exam.run(at)
        gradients = exam.arrays(run, exam.vjp(run, gs))
        return float(sum(np.sum(np.real(np.conj(w) * g)) for w, g in zip(weights, gradients, strict=True)))

    values, errors = [], []
    for direction in directions:

        def along(h: float, direction: list[Array] = direction) -> float:
            try:
                return weighted(moved(points, h, direction))
            except Failed as failed:
                raise ValueError from failed

        slope = differences.best(differences.slopes(along, COARSE_STEPS if exact > 1e-10 else STEPS, exact))
        values.append(float(slope.value))
        errors.append(float(slope.error))
    found = Bends(directions, weights, np.array(values), np.array(errors), what)
    return found if np.isfinite(found.errors).any() else None
