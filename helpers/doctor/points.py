"""A run at one point: its upstream gradients, its gradients, and the finite differences beside them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from . import probes, wrongness
from .exam import Exam, Run, flat, upstream
from .inputs import Array, numbers
from .probes import Slopes
from .wrongness import Comparison, compare

Tensor = torch.Tensor


class Point:
    """A run at one point with its upstream gradients, its gradients and the finite differences beside them."""

    def __init__(self, exam: Exam, points: list[Array], seed: int, seconds: float) -> None:
        self.points = points
        run = exam.run(points)
        self.weights = [y.requires_grad for y in run.outputs]
        gs = upstream(run.tracked, seed)
        self.raw = exam.vjp(run, gs)
        self.gradients = exam.arrays(run, self.raw)
        self.g = spread(run, gs)
        self.value = flat(run.outputs)
        self.outputs = [tuple(y.shape) for y in run.outputs]
        self.slopes = expected_slopes(exam, points, seconds)

    def compared(self, exam: Exam) -> Comparison:
        """Return the comparison at this point."""
        relative = wrongness.RELATIVE if precision(exam) < 1e-10 else 2e-2
        return compare(self.slopes, self.g, self.gradients, relative)


def precision(exam: Exam) -> float:
    """Return the distance from 1 to the next number in the precision in which the patient computes."""
    return float(torch.finfo(exam.precise).eps)


def spread(run: Run, gs: Sequence[Tensor]) -> Array:
    """Return the upstream gradients of all outputs as one array, zeros for those that are not tracked."""
    waiting = list(gs)
    parts = [
        numbers(waiting.pop(0)).reshape(-1) if y.requires_grad else np.zeros(y.numel(), numbers(y).dtype)
        for y in run.outputs
    ]
    return np.concatenate(parts)


def expected_slopes(exam: Exam, points: list[Array], seconds: float) -> Slopes:
    """Return finite differences at a point, of the patient or of the reference that the user gave."""
    rng = np.random.default_rng(1)
    if exam.reference is not None:
        return _slopes_of_reference(exam, points, rng)
    chosen, complete = probes.directions(points, rng)
    found = probes.slopes(exam.values, points, chosen, complete, precision(exam), seconds)
    if not np.any(found.errors <= 0.05 * np.abs(found.values)):  # a small slope on a large value needs large steps
        coarse = probes.slopes(exam.values, points, chosen, complete, precision(exam), seconds, probes.COARSE_STEPS)
        found = coarse if np.nanmedian(coarse.errors) < np.nanmedian(found.errors) else found
    if not np.isfinite(found.errors).any():  # it may refuse matrices that are not symmetric, sums that are not 1
        found = probes.slopes(exam.values, points, probes.formed(points, rng), False, precision(exam), seconds)
    return found


def _slopes_of_reference(exam: Exam, points: list[Array], rng: np.random.Generator) -> Slopes:
    chosen, complete = probes.directions(points, rng)
    run = exam.run(points, call=exam.reference)
    numbers_of_all = torch.cat([y.reshape(-1) for y in run.outputs])
    rows = np.zeros((len(chosen), numbers_of_all.numel()), dtype=numbers(numbers_of_all).dtype)
    for k in range(numbers_of_all.numel()):
        gradients = torch.autograd.grad(numbers_of_all[k], run.leaves, retain_graph=True, allow_unused=True)
        arrays = exam.arrays(run, list(gradients))
        rows[:, k] = [np.sum(np.real(np.conj(arrays[p.which]) * p.direction)) for p in chosen]
    return Slopes(list(points), chosen, rows, 1e-9 * np.abs(rows), [row[None] for row in rows], complete)


def units(comparison: Comparison, k: int, numbers_: Array) -> float:
    """Return a number of the comparison as a derivative by the entry itself."""
    probe = comparison.slopes.probes[k]
    return float(numbers_[k] / (np.abs(probe.direction).max() if probe.entry is not None else 1))


def input_names(exam: Exam) -> list[str]:
    """Return the names of the inputs that are differentiated."""
    names = exam.patient.names
    return [names[k] if k < len(names) else f"input {k}" for k in exam.inputs.wanted]
