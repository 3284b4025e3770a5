"""Whose numbers are these? Calls in both orders, buffers that live on, inputs that change before backward."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from .diagnosis import few
from .exam import Exam, Failed, Run, upstream
from .inputs import Array, beside, numbers
from .messages import explain
from .patient import graph_functions

Tensor = torch.Tensor
CLOSE = 1e-7


def look_at_state(exam: Exam) -> None:
    """Find state that one call leaves for another; the gradient alone has been compared before."""
    here = exam.inputs.points
    near = beside(here, True, 0.05, np.random.default_rng(3))
    try:
        exam.run(near)
    except Failed:
        near = here
    for look in (_mutated, _two_calls, _two_backwards, _changed_between, _backward_again):
        try:
            look(exam, here, near)
        except Failed:
            continue


def _mutated(exam: Exam, here: list[Array], near: list[Array]) -> None:
    """Find inputs that a call changes."""
    args = exam.inputs.fresh(here, exam.dtype)
    kept = [numbers(each) if isinstance(each, Tensor) else _array(each) for each in args]
    versions = [each._version if isinstance(each, Tensor) else 0 for each in args]
    run = exam.run(args=args)
    returned = {y.data_ptr() for y in run.outputs}
    for k, (each, before) in enumerate(zip(args, kept, strict=True)):
        now = numbers(each) if isinstance(each, Tensor) else _array(each)
        if before is None or now is None or np.array_equal(before, now, equal_nan=True):
            continue
        if isinstance(each, Tensor) and each.data_ptr() in returned and each._version > versions[k]:
            continue  # an operation in place, which torch knows of
        names = exam.patient.names
        name = names[k] if k < len(names) else f"input {k}"
        if exam.patient.function_class is None and exam.trace.changed():
            return  # after it was used: the comparison of the gradient says so
        exam.add(
            "argument-mutated",
            f"The call changes {name} itself: the NumPy code writes into the array that the tensor lives in. torch "
            "does not notice.",
            evidence={"before": few(before), "after": few(now)},
            where=exam.patient.place("forward"),
            rank=-1,
        )


def _array(value: Any) -> Array | None:
    return value.copy() if isinstance(value, np.ndarray) and not value.dtype.hasobject else None


def _two_calls(exam: Exam, here: list[Array], near: list[Array]) -> None:
    """Find results that a second call overwrites, and gradients that follow the second call's state."""
    if near is here:
        return
    solo_run = exam.run(here)
    gs = upstream(solo_run.tracked, 0)
    solo = exam.arrays(solo_run, exam.vjp(solo_run, gs))
    first = exam.run(here)
    values = [numbers(y) for y in first.outputs]
    second = exam.run(near)
    after = [numbers(y) for y in first.outputs]
    if not all(np.array_equal(a, b, equal_nan=True) for a, b in zip(values, after, strict=True)):
        exam.add(
            "reused-buffer",
            "The second call overwrites the result of the first: both are one array of the solver.",
            evidence={"got": few(after[0]), "expected": few(values[0])},
            where=exam.patient.place("forward"),
            rank=-1,
        )
        return
    got = exam.arrays(first, exam.vjp(first, gs))
    exam.vjp(second, upstream(second.tracked, 0))
    if not _close(got, solo):
        exam.add(
            "shared-solver-state",
            "After a second call, the gradient of the first one is another: backward reads a state that the second "
            "call has overwritten. A sum of two losses gets wrong gradients.",
            evidence={"got": _some(got), "expected": _some(solo)},
            where=exam.patient.place("backward"),
            rank=-1,
        )


def _two_backwards(exam: Exam, here: list[Array], near: list[Array]) -> None:
    """Find gradients that live in a buffer of the backward."""
    run = exam.run(here)
    mine = exam.vjp(run, upstream(run.tracked, 0))
    kept = exam.arrays(run, mine)
    other = exam.run(near)
    next_ones = exam.vjp(other, [g * 1.5 for g in upstream(other.tracked, 5)])
    now = exam.arrays(run, mine)
    shared = any(
        one is not None and two is not None and one.numel() and one.data_ptr() == two.data_ptr()
        for one, two in zip(mine, next_ones, strict=True)
    )
    if shared or not all(np.array_equal(a, b, equal_nan=True) for a, b in zip(kept, now, strict=True)):
        exam.add(
            "gradient-buffer-shared",
            "Two backward passes return one and the same array. x.grad IS that array, and changes with the next one.",
            evidence={"got": _some(now), "expected": _some(kept)},
            where=exam.patient.place("backward"),
            rank=-1,
        )


def _changed_between(exam: Exam, here: list[Array], near: list[Array]) -> None:
    """Find a backward that reads the input's new numbers when it was changed after forward."""
    if near is here or exam.by_clone or (exam.patient.function_class is None and not _has_functions(exam)):
        return
    right = exam.gradient(here)
    for which in range(len(here)):
        _changed_input(exam, here, near, which, right)


def _changed_input(exam: Exam, here: list[Array], near: list[Array], which: int, right: list[Array]) -> None:
    run = exam.run(here)
    gs = upstream(run.tracked, 0)
    new = exam.gradient([near[k] if k == which else x for k, x in enumerate(here)])
    nodes = list(graph_functions(run.tracked))
    leaf = run.leaves[which]
    with torch.no_grad():
        leaf.copy_(torch.as_tensor(near[which]).reshape(leaf.shape))
    try:
        got = exam.arrays(run, exam.vjp(run, gs))
    except Failed:
        return  # torch, or the patient, refuses: as it should be
    if _close(got, right) or _close(right, new):
        return
    tensors = [value for node, _ in nodes for value in _on_ctx(node) if isinstance(value, Tensor)]
    slug = "tensor-on-ctx" if any(_shares(value, run.leaves) for value in tensors) else "numpy-alias"
    what = (
        "keeps the tensor itself on ctx" if slug == "tensor-on-ctx" else "keeps an array that shares the input's memory"
    )
    exam.add(
        slug,
        f"forward {what}. When the input is changed before backward (an optimiser's step is enough), the gradient "
        "is that of the new point, without a word.",
        evidence={"got": _some(got), "expected": _some(right)},
        where=exam.patient.place("forward"),
    )


def _backward_again(exam: Exam, here: list[Array], near: list[Array]) -> None:
    """Find a backward that can run twice because it keeps its state where torch does not see it."""
    run = exam.run(here)
    if not _keeps_state(run, exam.run(near)) or any(
        y.grad_fn is not None and _is_native(y.grad_fn) for y in run.tracked
    ):
        return
    gs = upstream(run.tracked, 0)
    exam.vjp(run, gs, retain_graph=False)
    try:
        exam.vjp(run, gs, retain_graph=False)
    except Failed:
        return
    exam.add(
        "ctx-double-backward",
        "A second backward() on one graph passes without a word and doubles the gradient: the state is kept on ctx "
        "as a plain attribute, where torch does not see it. With save_for_backward torch refuses.",
        evidence={"got": "twice the gradient", "expected": "Trying to backward through the graph a second time"},
        where=exam.patient.place("forward"),
    )


def _keeps_state(run: Run, other: Run) -> bool:
    """Return whether ctx holds arrays that are others at another point: data that stay the same are no state."""
    kept = [[value for node, _ in graph_functions(each.tracked) for value in _on_ctx(node)] for each in (run, other)]
    return len(kept[0]) == len(kept[1]) and any(_differ(a, b) for a, b in zip(*kept, strict=True))


def _differ(one: Any, two: Any) -> bool:
    if isinstance(one, Tensor) and isinstance(two, Tensor):
        return one.shape != two.shape or not torch.equal(one, two)
    if isinstance(one, np.ndarray) and isinstance(two, np.ndarray):
        return not np.array_equal(one, two)
    return isinstance(one, float) and isinstance(two, float) and one != two


def _is_native(node: Any) -> bool:
    return getattr(type(node), "_forward_cls", None) is None


def _on_ctx(node: Any) -> list[Any]:
    found = []
    for value in vars(node).values() if hasattr(node, "__dict__") else []:
        found += list(value) if isinstance(value, (list, tuple)) else [value]
    return found


def _shares(tensor: Tensor, leaves: list[Tensor]) -> bool:
    try:
        return any(tensor.untyped_storage().data_ptr() == leaf.untyped_storage().data_ptr() for leaf in leaves)
    except (RuntimeError, NotImplementedError):
        return False


def _has_functions(exam: Exam) -> bool:
    return bool(exam.patient.functions)


def _close(one: list[Array], other: list[Array]) -> bool:
    size = max((float(np.abs(each).max(initial=0.0)) for each in other), default=0.0)
    return all(
        np.allclose(a, b, rtol=CLOSE, atol=CLOSE * size, equal_nan=True) for a, b in zip(one, other, strict=True)
    )


def _some(gradients: list[Array]) -> Array:
    return few(next((each for each in gradients if each.size), np.zeros(0)))


def refused(failed: Failed) -> str:
    """Return the row of a use that is refused, with the plain meaning where it is known."""
    known = explain(failed.error)
    return f"refused: {known[0].meaning}" if known else f"refused: {failed.text}"
