"""The first run: one forward, one backward."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from . import inside
from .cuts import name_the_cut
from .diagnosis import few
from .exam import Exam, Failed, Run, upstream
from .inputs import numbers
from .messages import explain
from .patient import graph_functions, method_place
from .trace import Step

Tensor = torch.Tensor


def run_forward(exam: Exam) -> Run | None:
    """Call the patient once, and find what is wrong with the call itself and with what it returns."""
    run = _first_call(exam)
    if run is None:
        return None
    if not run.outputs:
        _no_tensor(exam, run.result)
        return None
    _look_at_dtypes(exam, run)
    if exam.patient.function_class is not None and isinstance(run.result, (list, dict)):
        _no_tensor(exam, run.result)
        return None
    if not run.tracked:
        _no_graph(exam, run)
        return None
    return run


def _first_call(exam: Exam) -> Run | None:
    """Call the patient as the user would; then in double precision if the user's is lower and the patient allows it."""
    given = exam.inputs.dtype
    failed: Failed | None = None
    for exam.by_clone in (False, True):  # what changes its argument in place cannot take a leaf
        exam.trace.clear()
        try:
            with inside.noted([] if exam.patient.function_class else exam.patient.functions, exam.trace) as exam.inner:
                run = exam.run(dtype=given, trace=exam.patient.compiled is None)
        except Failed as error:
            if failed is None or "leaf Variable" in str(failed):
                failed = error
            continue
        exam.dtype = given
        return run if given == torch.float64 else _in_double(exam, run)
    assert failed is not None
    exam.by_clone = False
    _name_error(exam, failed, "forward" if exam.patient.function_class else "the call")
    return None


def _in_double(exam: Exam, run: Run) -> Run:
    try:
        double = exam.run(dtype=torch.float64)
    except Failed:
        return run
    if len(double.outputs) == len(run.outputs) and double.tracked:
        exam.dtype = torch.float64
        return double
    return run


def _name_error(exam: Exam, failed: Failed, where: str) -> None:
    """Note the mistake behind an error, or that the patient cannot be examined because of it."""
    known = explain(failed.error)
    exam.unfinished = f"{where} raised {failed.text}"
    if known is None:
        return
    message, match = known
    slug = message.slug
    if slug == "numpy-gradient" and where != "backward":
        slug = "numpy-on-tracked"
    words: dict[str, Any] = {key: value for key, value in match.groupdict().items() if value}
    if slug == "apply-without-input":
        exam.unfinished += ". Hand diagnose one example input for each argument of forward."
        return
    if slug == "gradient-wrong":
        slug = _why_gradcheck_fails(exam, failed)
    if slug in ("gradcheck-noise", "gradcheck-float32") and "Gradcheck" not in type(failed.error).__name__:
        return
    if slug == "numpy-on-tracked" and not exam.inputs.asked:
        _in_forward_mode_only(exam)
    exam.add(
        slug,
        f"{where[0].upper()}{where[1:]} raises {failed.text} {message.meaning}",
        severity="wrong",
        evidence={"torch says": failed.text, **words},
        where=failed.where,
        method=where,
        **words,
    )


def _why_gradcheck_fails(exam: Exam, failed: Failed) -> str:
    """Return the mistake behind a mismatch: single precision, noise (another mismatch next time), or the gradient."""
    if exam.inputs.dtype == torch.float32:
        return "gradcheck-float32"
    texts = {str(failed)}
    for _ in range(2):
        try:
            exam.run(dtype=exam.inputs.dtype)
        except Failed as again:
            texts.add(str(again.error))
    return "gradcheck-noise" if len(texts) > 1 else "gradient-wrong"


def _in_forward_mode_only(exam: Exam) -> None:
    """Examine an operation that cannot be tracked in forward mode, if it can be called at all."""
    from .uses import look_at_forward_mode

    try:
        exam.tracking = False
        exam.run(tracked=False)
    except Failed:
        return
    look_at_forward_mode(exam)


def _no_tensor(exam: Exam, result: Any) -> None:
    integer = _all_tensors(result) if isinstance(result, (Tensor, tuple)) else []
    kind = type(result).__module__.partition(".")[0] + "." + type(result).__name__
    kind = kind.removeprefix("builtins.")
    if integer:
        exam.add(
            "integer-result",
            f"The result holds {integer[0].dtype}. Integers have no gradient, and torch says nothing.",
            evidence={"got": str(integer[0].dtype), "expected": str(exam.inputs.dtype)},
            where=_forward_place(exam),
        )
    elif result is None:
        exam.unfinished = "it returned None, so there is nothing to differentiate"
    elif exam.patient.function_class is None and not isinstance(result, (float, complex, np.ndarray, np.generic)):
        exam.unfinished = (
            f"it returned a {kind}. Hand over a function that returns the tensors in it, such as lambda x: f(x).loss"
        )
    elif isinstance(result, (bool, str)):
        exam.unfinished = f"it returned {result!r}, which is not a tensor"
    else:
        exam.add(
            "numpy-result",
            f"{exam.patient.label} returns a {kind}, not a tensor. .apply hands it on as it is: there is no graph, and "
            f"result.backward() ends in \"'{kind}' object has no attribute 'backward'\".",
            evidence={"got": kind, "expected": "torch.Tensor"},
            where=_forward_place(exam),
        )


def _all_tensors(result: Any) -> list[Tensor]:
    if isinstance(result, Tensor):
        return [result]
    return [each for one in result for each in _all_tensors(one)] if isinstance(result, (list, tuple)) else []


def _forward_place(exam: Exam) -> Any:
    function_class = exam.patient.function_class
    return method_place(function_class, "forward") if function_class else None


def _look_at_dtypes(exam: Exam, run: Run) -> None:
    dtypes = {leaf.dtype for leaf in run.leaves}
    if dtypes != {torch.float64}:
        return
    low = [y for y in run.outputs if y.dtype in (torch.float32, torch.float16, torch.bfloat16, torch.complex64)]
    if low and len(low) == len(run.outputs):
        given = exam.inputs.dtype == torch.float64
        exam.add(
            "dtype-forced",
            f"The inputs are torch.float64, the result is {low[0].dtype}: about 7 digits are left, and the dtype of "
            "everything after it changes. torch.tensor(number) makes float32 of a Python float.",
            severity="wrong" if given else "fragile",
            evidence={"got": str(low[0].dtype), "expected": "torch.float64"},
            where=_step_place(exam.trace.steps, "new") or _forward_place(exam),
        )


def _step_place(steps: list[Step], *kinds: str) -> Any:
    places = [step.where for step in steps if step.kind in kinds and step.where]
    return places[-1] if places else None


def _no_graph(exam: Exam, run: Run) -> None:
    """Find why no output is connected to the inputs."""
    if exam.patient.function_class is None:
        name_the_cut(exam, {"got": "no graph", "expected": "a result with grad_fn"}, "The result has no graph")
        return
    exam.add(
        "no-gradient-returned",
        f"{exam.patient.label} returns tensors that are cut off from its inputs: nothing gets a gradient.",
        evidence={"got": "requires_grad is False", "expected": "requires_grad is True"},
        where=_forward_place(exam),
    )


def run_backward(exam: Exam, run: Run) -> bool:
    """Run backward once, and find what it raises or what is missing; return whether gradients came back."""
    gs = upstream(run.tracked, 0)
    kept = [g.clone() for g in gs]
    before = [numbers(each) for each in run.args if isinstance(each, Tensor)]
    try:
        with exam.watched():
            torch.autograd.grad(run.tracked, run.leaves, gs, allow_unused=True)
    except Failed as failed:
        if "use_reentrant=True" in str(failed) and ".grad()" in str(failed):
            exam.by_backward = True
            return True
        _name_error(exam, failed, "backward")
        return False
    if any(not torch.equal(g, old) for g, old in zip(gs, kept, strict=True)):
        _edited(exam, gs, kept)
    after = [numbers(each) for each in run.args if isinstance(each, Tensor)]
    if any(not np.array_equal(x, y, equal_nan=True) for x, y in zip(before, after, strict=True)):
        exam.add(
            "argument-mutated",
            "backward changes the input itself: the NumPy code writes into the array that the tensor lives in.",
            where=exam.patient.place("backward"),
            rank=-1,
        )
    _look_at_raw_gradients(exam, kept)
    return True


def _edited(exam: Exam, gs: list[Tensor], kept: list[Tensor]) -> None:
    exam.add(
        "grad-output-edited",
        "backward writes into the upstream gradient that it is given. That tensor belongs to the caller, and other "
        "branches of the graph read it.",
        evidence={"got": few(numbers(gs[0])), "expected": few(numbers(kept[0]))},
        where=exam.patient.place("backward"),
        rank=-1,
    )


def _look_at_raw_gradients(exam: Exam, gs: list[Tensor]) -> None:
    """Look at what backward itself returns, before torch sums it to the shape of the input."""
    function_class = exam.patient.function_class
    if function_class is None:
        return
    run = exam.run()
    nodes = list(graph_functions(run.tracked))
    if len(nodes) != 1 or len(run.tracked) != len(run.outputs):
        return
    node = nodes[0][0]
    try:
        with exam.watched(), torch.no_grad():
            raw = function_class.backward(node, *[g.clone() for g in gs])
    except Failed:
        return  # the call through torch will say it
    raw = raw if isinstance(raw, tuple) else (raw,)
    for k, leaf in zip(exam.inputs.wanted, run.leaves, strict=True):
        if k >= len(raw) or not isinstance(raw[k], Tensor) or raw[k].shape == leaf.shape:
            continue
        _name_shape(exam, run, k, leaf, raw[k])


def _name_shape(exam: Exam, run: Run, k: int, leaf: Tensor, raw: Tensor) -> None:
    y = run.tracked[0]
    shape = tuple(raw.shape)
    if raw.dim() <= leaf.dim() and raw.numel() <= leaf.numel():
        return  # a gradient that is broadcast to the input's shape: torch expands it
    leading = {each.shape[0] for j, each in enumerate(run.args) if isinstance(each, Tensor) and each.dim() and j != k}
    is_jacobian = shape in (tuple(y.shape) + tuple(leaf.shape), tuple(leaf.shape) + tuple(y.shape)) and y.dim() > 0
    per_sample = not is_jacobian or (len(leading) > 0 and shape[0] in leading and shape[:1] != leaf.shape[:1])
    name = (exam.patient.names or ["x"] * (k + 1))[min(k, len(exam.patient.names or "x") - 1)]
    exam.summed[exam.inputs.wanted.index(k)] = ("per-sample-gradient" if per_sample else "full-jacobian", name, shape)
