"""Is the gradient the derivative of the value? At the example, and at two points beside it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from . import wrongness
from .diagnosis import few
from .exam import Exam, Failed
from .faults import name_the_fault
from .inputs import beside, is_symmetric, numbers
from .points import Point, input_names, units
from .wrongness import Comparison

SIZES = ((False, 0.05), (True, 0.05), (True, 0.01), (True, 0.001))


def look_at_gradient(exam: Exam) -> list[Point]:
    """Compare the gradient with finite differences, and name the fault if they differ; return what was compared."""
    points = _points(exam)
    if not points:
        return []
    comparisons = [point.compared(exam) for point in points]
    known = [c.known or c.silent for c in comparisons]
    if any(known):
        exam.unfinished = ""
    else:
        exam.unfinished = "finite differences could not be compared: they do not agree among themselves"
    _look_for_nan(exam, points)
    bad = [k for k, comparison in enumerate(comparisons) if not comparison.right]
    if exam.has("nan-gradient") and all(_only_nan(comparisons[k]) for k in bad):
        bad = []
    if bad and _symmetric_only(exam, points, bad):
        bad = []
    if bad:
        _at_optimum(exam, points, comparisons)
        name_the_fault(exam, [points[k] for k in bad], [comparisons[k] for k in bad], comparisons)
    elif any(known):
        slopes = points[0].slopes
        some = sum(probe.entry is not None for probe in slopes.probes)
        of = sum(x.size for x in exam.inputs.points)
        looked = "" if slopes.complete else f": {some} of {of} entries, and {len(slopes.probes) - some} directions"
        exam.uses["gradient"] = f"right, at {len(points)} points{looked}"
        _off_symmetric(exam)
        _by_way_of_single_precision(exam, points)
    return points


def _points(exam: Exam) -> list[Point]:
    """Return the example and points beside it, as far as the patient can be computed there."""
    given = exam.inputs.points
    seconds = exam.budget.left * 0.12
    found = []
    try:
        found.append(Point(exam, given, 0, seconds))
    except Failed as failed:
        exam.unfinished = f"it raised {failed.text} when it was called again"
        return []
    for seed in (1, 2):
        for relative, size in SIZES:
            near = beside(given, relative, size, np.random.default_rng(seed))
            try:
                point = Point(exam, near, seed, seconds)
            except Failed:
                continue
            if np.all(np.isfinite(point.value)) and len(point.value) == len(found[0].value):
                found.append(point)
                break
    return found


def _look_for_nan(exam: Exam, points: Sequence[Point]) -> None:
    for point in points:
        if not np.all(np.isfinite(point.value)):
            continue
        for k, gradient in enumerate(point.gradients):
            if not np.all(np.isfinite(gradient)):
                places = np.argwhere(~np.isfinite(gradient))
                entry = tuple(int(i) for i in places[0])
                exam.add(
                    "nan-gradient",
                    f"The value is finite and the gradient is not: Adam would write {gradient[entry]} into the "
                    "parameter, and it stays there.",
                    evidence={
                        "got": gradient[entry],
                        "at": f"{input_names(exam)[k]}{list(entry) if entry else ''} = {point.points[k][entry]:.6g}",
                        "expected": "a finite number",
                    },
                    where=exam.patient.place("backward"),
                )


def _only_nan(comparison: Comparison) -> bool:
    return bool(np.all(~np.isfinite(comparison.got[comparison.bad])))


def _symmetric_only(exam: Exam, points: Sequence[Point], bad: Sequence[int]) -> bool:
    """Return whether the function reads one triangle of a symmetric matrix, and its gradient is right for such.

    Then finite differences of a single entry see what no user of symmetric matrices sees.
    """
    given = exam.inputs.points
    if not any(is_symmetric(x) for x in given):
        return False
    for k in bad:
        slopes = points[k].slopes
        if not slopes.complete:
            return False
        for which, x in enumerate(given):
            if not is_symmetric(x):
                continue
            slope, _ = slopes.expected(points[k].g)
            mine = [j for j, probe in enumerate(slopes.probes) if probe.which == which and not probe.imaginary]
            table = np.zeros(x.shape)
            for j in mine:
                probe = slopes.probes[j]
                if probe.entry is not None:
                    table[probe.entry] = slope[j] / np.abs(probe.direction).max()
            noise = 1e-6 * np.abs(table).max()
            one_triangle = np.all(np.abs(np.triu(table, 1)) <= noise) or np.all(np.abs(np.tril(table, -1)) <= noise)
            got = points[k].gradients[which]
            own, true = ((each + np.swapaxes(each, -1, -2)) / 2 for each in (np.real(got), table))
            if not one_triangle or not np.allclose(own, true, rtol=1e-3, atol=1e-3 * np.abs(true).max()):
                return False
    exam.uses["matrices that are not symmetric"] = "one triangle alone is read; right for symmetric matrices"
    return True


def _off_symmetric(exam: Exam) -> None:
    """Find a gradient that is right for symmetric matrices only, beside one that is not symmetric."""
    given = exam.inputs.points
    if not any(is_symmetric(x) for x in given) or all(is_symmetric(x) for x in given):
        return
    rng = np.random.default_rng(4)
    point = [x + 0.05 * np.abs(x).max() * rng.standard_normal(x.shape) if is_symmetric(x) else x for x in given]
    try:
        found = Point(exam, point, 1, exam.budget.left * 0.1)
    except Failed:
        return
    comparison = found.compared(exam)
    others = [k for k, probe in enumerate(found.slopes.probes) if not is_symmetric(given[probe.which])]
    if not comparison.bad[others].any():
        return
    k = others[int(np.argmax(np.abs(comparison.got - comparison.expected)[others]))]
    exam.add(
        "not-transposed",
        "The gradient is right for the symmetric matrix of the example, and wrong for one that is not symmetric: the "
        "transposed matrix is needed. If your matrices are always symmetric, all is well.",
        severity="fragile",
        evidence={
            "got": units(comparison, k, comparison.got),
            "expected": units(comparison, k, comparison.expected),
            "entry": wrongness.entry_name(found.slopes.probes[k], input_names(exam)),
        },
        where=exam.patient.place("backward"),
    )


def _by_way_of_single_precision(exam: Exam, points: Sequence[Point]) -> None:
    """Find gradients whose numbers all fit into float32, though they change from point to point."""
    if exam.precise != torch.float64 or len(points) < 3 or exam.has("dtype-forced"):
        return
    seen = []
    for point in points[1:]:
        run = exam.run(point.points)
        ones = [torch.ones_like(y) for y in run.tracked]
        seen.append([*exam.arrays(run, exam.vjp(run, ones, retain_graph=True)), *exam.gradient(point.points)])
    for k, (one, two) in enumerate(zip(*seen, strict=True)):
        parts = [part for each in (one, two) for part in (each.real, each.imag)]
        size = max(float(np.abs(each).max(initial=0.0)) for gradients in seen for each in gradients)
        same = np.array_equal(one, two) or np.abs(one).max(initial=0.0) < 1e-9 * size
        whole = all(np.array_equal(4096 * part, np.round(4096 * part)) for part in parts)  # 0, 1, 1/2: of no precision
        if one.size and not same and not whole and all(np.array_equal(part, part.astype(np.float32)) for part in parts):
            name = input_names(exam)[k % len(points[0].points)]
            exam.add(
                "dtype-forced",
                f"In torch.float64, the gradient of {name} has the digits of float32 only: it "
                "was made with torch.tensor(...) of Python floats, or by way of .float().",
                evidence={"got": few(one), "expected": "about 16 digits"},
                where=exam.patient.place("backward"),
                severity="wrong" if exam.inputs.dtype == torch.float64 else "fragile",
            )


def _at_optimum(exam: Exam, points: Sequence[Point], comparisons: Sequence[Comparison]) -> None:
    first = comparisons[0]
    if not (first.right and first.silent and len(comparisons) > 1):
        return
    other = next(c for c in comparisons if not c.right)
    k = other.worst
    exam.add(
        "checked-at-optimum",
        "At the example input the true gradient is zero, and so is this one: every check passes there. Beside it, the "
        "gradient is wrong.",
        evidence={
            "at the example": "both are zero",
            "got beside it": units(other, k, other.got),
            "expected beside it": units(other, k, other.expected),
        },
        where=exam.patient.place("backward"),
        rank=-1,
    )


def look_at_reference(exam: Exam) -> None:
    """Compare the value with the reference's."""
    if exam.reference is None:
        return
    try:
        own, other = (exam.run(call=call).outputs for call in (None, exam.reference))
    except Failed as failed:
        exam.unfinished = f"the reference raised {failed.text}"
        return
    for one, two in zip(own, other, strict=False):
        if one.shape != two.shape or not np.allclose(numbers(one), numbers(two), rtol=1e-6, atol=1e-9):
            exam.add(
                "value-wrong",
                "The value is not that of the reference.",
                evidence={"got": few(numbers(one)), "expected": few(numbers(two))},
            )
