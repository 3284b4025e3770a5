"""Second derivatives: right, refused, or silently wrong."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import torch

from . import differences_of_gradient as bends
from .diagnosis import few
from .exam import Exam, Failed, Run, upstream
from .inputs import Array
from .patient import FunctionClass, graph_functions, method_place
from .state import refused

Tensor = torch.Tensor
USE = "second derivative"


def look_at_second_derivative(exam: Exam, points: list[Array]) -> None:
    """Differentiate the gradient again, and compare with finite differences of the gradient."""
    if exam.by_backward:
        exam.uses[USE] = "not looked at: torch.autograd.grad is refused"
        return
    truth = bends.bends(exam, points)
    if truth is None:
        return
    run = exam.run(points)
    gs = [g.requires_grad_(False) for g in upstream(run.tracked, 0)]
    functions = [function_class for _, function_class in graph_functions(run.tracked)]
    try:
        got, has_graph = _twice(exam, run, gs, truth)
    except Failed as failed:
        exam.uses[USE] = refused(failed)
        return
    size = max(float(np.abs(truth.values).max(initial=0.0)), float(np.abs(got).max(initial=0.0)))
    if not np.isfinite(got).all():
        exam.uses[USE] = "not a number"
        return
    off = np.abs(got - truth.values) > 1e-3 * size + 20 * truth.errors
    if not off.any():
        exam.uses[USE] = "right" if has_graph or size > 0 else "zero, as it should be"
        return
    zero = not np.abs(got).any()
    exam.uses[USE] = "silently zero" if zero else "silently wrong"
    _name(exam, functions, got, truth, zero)


def _twice(exam: Exam, run: Run, gs: list[Tensor], truth: bends.Bends) -> tuple[Array, bool]:
    gradients = exam.vjp(run, gs, create_graph=True)
    known = [(g, w) for g, w in zip(gradients, truth.weights, strict=True) if g is not None and g.requires_grad]
    if not known:
        return np.zeros(len(truth.directions)), False
    with exam.watched():
        parts = [torch.sum(torch.real(g * torch.as_tensor(np.conj(w)).to(g.dtype))) for g, w in known]
        total = torch.stack(parts).sum()
        seconds = torch.autograd.grad(total, run.leaves, allow_unused=True)
    arrays = exam.arrays(run, seconds)
    return np.array(
        [
            sum(float(np.sum(np.real(np.conj(a) * t))) for a, t in zip(arrays, direction, strict=True))
            for direction in truth.directions
        ]
    ), True


def _name(exam: Exam, functions: list[FunctionClass], got: Array, truth: bends.Bends, zero: bool) -> None:
    evidence: dict[str, Any] = {"got": few(got), "expected": few(truth.values), "compared": truth.what}
    once = next((each for each in functions if is_once_differentiable(each)), None)
    place = method_place(functions[0], "backward") if functions else exam.patient.where()
    if once is not None:
        exam.add(
            "once-differentiable-leaks",
            f"{once.__name__} is marked once_differentiable, and yet its second derivative is silently "
            f"{'zero' if zero else 'wrong'} as long as the upstream gradient has no graph.",
            evidence=evidence,
            where=method_place(once, "backward"),
        )
    elif zero:
        exam.add(
            "zero-hessian",
            "The gradient is right, and its own derivative is silently zero: backward computes outside torch's graph. "
            "torch.autograd.functional.hessian gives zeros.",
            evidence=evidence,
            where=place,
        )
    elif exam.patient.function_class is None:
        exam.add(
            "product-hessian",
            "The gradient is right, and only a part of the second derivative is there: what torch itself computes has "
            "one, the Function inside has none.",
            evidence=evidence,
            where=place,
        )
    else:
        exam.add(
            "saved-intermediate",
            "The gradient is right, and its own derivative is not: backward reuses a number from forward as if it were "
            "a constant.",
            evidence=evidence,
            where=method_place(exam.patient.function_class, "forward"),
        )


def is_once_differentiable(function_class: FunctionClass) -> bool:
    """Return whether a backward is wrapped by torch's ``once_differentiable``."""
    backward = inspect.getattr_static(function_class, "backward", None)
    function = getattr(backward, "__func__", backward)
    code = getattr(function, "__code__", None)
    return (
        hasattr(function, "__wrapped__")
        and code is not None
        and code.co_filename.replace("\\", "/").endswith("autograd/function.py")
    )
