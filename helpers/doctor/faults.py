"""The kinds of a wrong gradient: each function here looks for one, and names it if it fits."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from . import reading, wrongness
from .cuts import name_the_cut
from .exam import Exam, Failed, Run, upstream
from .inputs import Array
from .points import Point, input_names, spread, units
from .wrongness import Comparison, compare

Tensor = torch.Tensor


def name_the_fault(exam: Exam, points: Sequence[Point], bad: Sequence[Comparison], every: Sequence[Comparison]) -> None:
    """Name the fault of a wrong gradient."""
    first, comparison = points[0], bad[0]
    k = comparison.worst
    evidence: dict[str, Any] = {
        "got": units(comparison, k, comparison.got),
        "expected": units(comparison, k, comparison.expected),
        "entry": wrongness.entry_name(comparison.slopes.probes[k], input_names(exam)),
    }
    kinds = [_penalty, _none_at_all, _summed, _ignored, _auxiliary, _conjugate, _transposed, _swapped]
    for kind in kinds:
        if kind(exam, first, comparison, evidence):
            return
    if exam.patient.function_class is None and (exam.wrong or _changed_behind(exam, evidence)):
        return  # a Function inside, or a tensor that was changed, is the cause
    cut = exam.patient.function_class is None and _missing(comparison)
    if cut and name_the_cut(exam, evidence, "A part of the gradient is missing"):
        return
    hint = wrongness.guess(bad, [point.value for point in points])
    if hint:
        evidence["guess"] = hint
    some = "" if len(bad) == len(every) else f" It is right at {len(every) - len(bad)} of {len(every)} points."
    if exam.has("argument-mutated", "grad-output-edited", "reused-buffer", "shared-solver-state"):
        return  # what the finding before it has already explained
    exam.add(
        "gradient-wrong",
        f"The gradient is not the derivative of the value{': ' + hint if hint else ''}.{some}",
        evidence=evidence,
        where=exam.patient.place("backward"),
        hint=_advice(exam, hint),
    )


def _changed_behind(exam: Exam, evidence: dict[str, Any]) -> bool:
    """Name a tensor that was used, and then changed with nothing that torch could notice."""
    where = exam.trace.changed()
    if where is not None:
        exam.add(
            "changed-through-data",
            "A tensor is used, and then changed through .data or an array that shares its memory. torch does not "
            "notice, and backward computes with the new numbers.",
            evidence=evidence,
            where=where,
            rank=-1,
        )
    return where is not None


def _advice(exam: Exam, hint: str) -> str:
    g = exam.words.get("g", "g")
    if "sign" in hint and "factor" not in hint:
        return f"return -{g} * gradient"
    if found := re.search(r"chain factor (.+) is missing", hint):
        return f"return {g} * gradient * ({found[1]})  # the derivative of the inner function"
    if found := re.search(r"factor (\S+) (too large|too small|is too much)", hint):
        return f"return {g} * gradient {'*' if found[2] == 'too small' else '/'} {found[1]}"
    return f"helpers.step_size_curve(value, gradient, {exam.words.get('x', 'x')})  # and derive this entry again"


def _none_at_all(exam: Exam, point: Point, comparison: Comparison, evidence: dict[str, Any]) -> bool:
    """Name gradients that backward does not return."""
    if exam.patient.function_class is None:
        return False
    missing = [k for k, gradient in enumerate(point.raw) if gradient is None]
    slopes = comparison.slopes
    lost = [k for k in missing if any(comparison.bad[j] and p.which == k for j, p in enumerate(slopes.probes))]
    if not lost:
        return False
    every = len(lost) == len(point.raw)
    names = ", ".join(input_names(exam)[k] for k in lost)
    exam.add(
        "no-gradient-returned",
        f"backward returns None for {names}, and the value depends on {'them' if len(lost) > 1 else 'it'}. "
        f"{names}.grad stays None, and an optimiser never moves it.",
        severity="wrong" if every or exam.inputs.asked else "fragile",
        evidence={**evidence, "got": "None"},
        where=exam.patient.place("backward"),
    )
    other = [j for j, p in enumerate(slopes.probes) if comparison.bad[j] and p.which not in lost]
    return not other


def _summed(exam: Exam, point: Point, comparison: Comparison, evidence: dict[str, Any]) -> bool:
    """Name gradients of another shape than their input's, which torch sums without a word."""
    for k, (slug, name, shape) in exam.summed.items():
        if not any(comparison.bad[j] and p.which == k for j, p in enumerate(comparison.slopes.probes)):
            continue
        what = "the whole Jacobian" if slug == "full-jacobian" else "one gradient for each sample"
        exam.add(
            slug,
            f"backward returns {what}, of shape {shape}, for {name} of shape {point.points[k].shape}. torch sums it to "
            "that shape without a word.",
            evidence={**evidence, "shape got": shape, "shape expected": point.points[k].shape},
            where=exam.patient.place("backward"),
            x=name,
        )
        return True
    return False


def _penalty(exam: Exam, point: Point, comparison: Comparison, evidence: dict[str, Any]) -> bool:
    """Name a gradient penalty: the patient differentiates inside, and that gradient has no derivative."""
    steps = exam.trace.outside("grad")
    if not steps or not exam.inner:
        return False
    exam.add(
        "gradient-penalty",
        "The function takes a gradient inside, with create_graph=True, and a Function in it cannot be differentiated "
        "twice: the penalty's own gradient is missing.",
        evidence=evidence,
        where=steps[0].where,
    )
    return True


def _ignored(exam: Exam, point: Point, comparison: Comparison, evidence: dict[str, Any]) -> bool:
    """Name a backward that ignores the upstream gradient, for one input at least: another one gives the same."""
    if exam.patient.function_class is None:
        return False
    run = exam.run(point.points)
    gs = upstream(run.tracked, 0)
    try:
        one = exam.arrays(run, exam.vjp(run, gs, retain_graph=True))
        two = exam.arrays(run, exam.vjp(run, [2.5 * g for g in gs]))
    except Failed:
        return False
    probes = comparison.slopes.probes
    same = [
        k
        for k, (a, b) in enumerate(zip(one, two, strict=True))
        if np.abs(a).max(initial=0) > 0
        and np.allclose(a, b, rtol=1e-9, atol=0)
        and any(comparison.bad[j] and p.which == k for j, p in enumerate(probes))
    ]
    if not same:
        return False
    exam.add(
        "grad-output-ignored",
        "backward returns the same whatever the upstream gradient is: the chain rule's factor is left out.",
        evidence={**evidence, "upstream gradient": float(np.real(point.g[np.argmax(np.abs(point.g))]))},
        where=exam.patient.place("backward"),
    )
    return True


def _auxiliary(exam: Exam, point: Point, comparison: Comparison, evidence: dict[str, Any]) -> bool:
    """Name an output whose gradient is ignored while another one's is right."""
    if len(point.outputs) < 2:
        return False
    ignored, right = [], 0
    for number in range(len(point.outputs)):
        if not point.weights[number]:
            continue
        run = exam.run(point.points)
        gs = [g if j == number else torch.zeros_like(g) for j, g in _tracked_gs(run, 0)]
        single = compare(point.slopes, spread(run, gs), exam.arrays(run, exam.vjp(run, gs)))
        right += single.right
        if not single.right and np.allclose(single.got, 0):
            ignored.append(number)
    if not ignored or not right:
        return False
    exam.add(
        "auxiliary-output",
        f"Output {ignored[0]} depends on the inputs, and backward ignores its gradient. Whoever uses it gets no "
        "gradient, and no word of it.",
        evidence=evidence,
        where=exam.patient.place("backward"),
    )
    return True


def _tracked_gs(run: Run, seed: int) -> list[tuple[int, Tensor]]:
    places = [k for k, y in enumerate(run.outputs) if y.requires_grad]
    return list(zip(places, upstream(run.tracked, seed), strict=True))


def _conjugate(exam: Exam, point: Point, comparison: Comparison, evidence: dict[str, Any]) -> bool:
    """Name a missing conjugate: with it the gradient is right."""
    if not any(np.iscomplexobj(x) for x in point.points):
        return False
    jacobians = _complex_candidates(point)
    if not any(compare(comparison.slopes, point.g, each).right for each in jacobians) and _conjugates(exam):
        return False
    exam.add(
        "complex-conjugate",
        "For complex inputs the gradient must hold the conjugate of the derivative, and here it is missing.",
        evidence={
            "got": complex(point.gradients[0].reshape(-1)[0]),
            "expected": complex(_conjugated(point).reshape(-1)[0]),
        },
        where=exam.patient.place("backward"),
    )
    return True


def _conjugates(exam: Exam) -> bool:
    """Return whether backward takes a conjugate anywhere, or whether its code cannot be read."""
    if exam.patient.function_class is None:
        return True
    codes = reading.codes(exam.patient.function_class.backward)
    words = {node.attr for code in codes for node in ast.walk(code.tree) if isinstance(node, ast.Attribute)}
    return not codes or bool(words & {"conj", "conjugate", "H", "mH", "adjoint", "vdot", "ifft", "conj_physical"})


def _conjugated(point: Point) -> Array:
    """Return the gradient of the first input by finite differences."""
    slope, _ = point.slopes.expected(point.g)
    gradient = np.zeros_like(point.points[0])
    for k, probe in enumerate(point.slopes.probes):
        if probe.which == 0 and probe.entry is not None:
            unit = np.abs(probe.direction).max()
            gradient[probe.entry] += slope[k] / unit * (1j if probe.imaginary else 1)
    return gradient


def _complex_candidates(point: Point) -> list[list[Array]]:
    """Return the gradient with its conjugate, with the derivative's, and with g's."""
    plain = [np.conj(each) for each in point.gradients]
    g = point.g
    if len(g) == 1:  # got = g d: give back g conj(d), and conj(g) d
        derivative = [each / g[0] for each in point.gradients]
        return [plain, [g[0] * np.conj(d) for d in derivative], [np.conj(g[0]) * d * g[0] / g[0] for d in derivative]]
    if all(each.size == g.size for each in point.gradients):
        derivative = [each / g.reshape(each.shape) for each in point.gradients]
        return [plain, [g.reshape(d.shape) * np.conj(d) for d in derivative]]
    return [plain, _linear_conjugate(point)]


def _linear_conjugate(point: Point) -> list[Array]:
    """Return what a linear map's transpose would have been with the conjugate, where its Jacobian is known."""
    slopes, found = point.slopes, []
    for which, x in enumerate(point.points):
        if not slopes.complete or not np.iscomplexobj(x):
            return point.gradients
        jacobian = slopes.jacobian(which)
        without = (point.g @ jacobian).reshape(x.shape)
        right = (np.conj(jacobian).T @ point.g).reshape(x.shape)
        found.append(right if np.allclose(point.gradients[which], without, rtol=1e-4) else point.gradients[which])
    return found


def _transposed(exam: Exam, point: Point, comparison: Comparison, evidence: dict[str, Any]) -> bool:
    """Name J g in place of J^T g, or a matrix's gradient that is its own transpose."""
    slopes = comparison.slopes
    size = len(point.g)
    for which, (x, gradient) in enumerate(zip(point.points, point.gradients, strict=True)):
        mine = [k for k, probe in enumerate(slopes.probes) if probe.which == which]
        if not comparison.bad[mine].any():
            continue
        swapped = list(point.gradients)
        fits = False
        if slopes.complete and x.size == size and size > 1 and not np.iscomplexobj(x):
            jacobian = np.real(slopes.jacobian(which))
            product = jacobian @ np.real(point.g)
            fits = bool(np.allclose(gradient.reshape(-1), product, rtol=1e-3, atol=1e-5 * np.abs(product).max()))
        if not fits and slopes.complete and _batches(exam, point, which):
            fits = True
        if not fits and x.ndim >= 2 and x.shape[-1] == x.shape[-2]:
            swapped[which] = np.swapaxes(gradient, -1, -2)
            fits = bool(compare(slopes, point.g, swapped).bad[mine].sum() == 0)
        if fits:
            exam.add(
                "not-transposed",
                f"The gradient of {input_names(exam)[which]} is the Jacobian times the upstream gradient. It must "
                "be the transposed Jacobian times it; for a symmetric matrix nobody sees the difference.",
                evidence=evidence,
                where=exam.patient.place("backward"),
            )
            return True
    return False


def _batches(exam: Exam, point: Point, which: int) -> bool:
    """Return whether the rows of a batch each got J g in place of J^T g."""
    x, gradient = point.points[which], point.gradients[which]
    if x.ndim < 2 or len(point.outputs) != 1 or point.outputs[0][:1] != x.shape[:1] or np.iscomplexobj(x):
        return False
    n, size = x.shape[0], x[0].size
    if len(point.g) != n * size or size < 2:
        return False
    jacobian = np.real(point.slopes.jacobian(which)).reshape(n, size, n, size)
    g = np.real(point.g).reshape(n, size)
    product = np.stack([jacobian[k, :, k, :] @ g[k] for k in range(n)])
    return bool(np.allclose(gradient.reshape(n, size), product, rtol=1e-3, atol=1e-5 * np.abs(product).max()))


def _swapped(exam: Exam, point: Point, comparison: Comparison, evidence: dict[str, Any]) -> bool:
    """Name two gradients of equal shape in the wrong order."""
    count = len(point.points)
    for one in range(count):
        for other in range(one + 1, count):
            if point.points[one].shape != point.points[other].shape:
                continue
            order = list(point.gradients)
            order[one], order[other] = order[other], order[one]
            mine = [k for k, probe in enumerate(comparison.slopes.probes) if probe.which in (one, other)]
            if comparison.bad[mine].any() and not compare(comparison.slopes, point.g, order).bad[mine].any():
                names = input_names(exam)
                exam.add(
                    "swapped-gradients",
                    f"The gradients of {names[one]} and {names[other]} are in the wrong order. They have the same "
                    "shape, so torch cannot see it.",
                    evidence=evidence,
                    where=exam.patient.place("backward"),
                )
                return True
    return False


def _missing(comparison: Comparison) -> bool:
    """Return whether the gradient could be one with a part missing: it is not a multiple of the right one."""
    ratios = wrongness.ratios(comparison)
    return not (len(ratios) and np.allclose(ratios, ratios[0], rtol=1e-4) and abs(ratios[0]) > 1.0001) or bool(
        np.allclose(comparison.got[comparison.bad], 0)
    )
