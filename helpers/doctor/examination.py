"""One examination, from the first look to the last use, each part within its share of the time."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import torch

from . import cuts, first_run, gradient, handed_over, noisy, second, state, uses
from .budget import Budget, OutOfTime
from .diagnosis import Diagnosis
from .exam import Exam, Failed
from .inputs import Inputs, beside
from .patient import Patient
from .trace import leave_modes, modes
from .undisturbed import undisturbed


def examine(handed: Any, given: tuple[Any, ...], *, reference: Any, noise: bool, seconds: float) -> Diagnosis:
    """Return the diagnosis of a Function or an operation on tensors."""
    try:
        patient = Patient.of(handed)
    except TypeError as error:
        return Diagnosis(f"this {type(handed).__name__}", unfinished=str(error))
    except Exception as error:  # whatever a strange object raises when it is looked at
        return Diagnosis(f"this {type(handed).__name__}", unfinished=f"looking at it raises {type(error).__name__}")
    import_module("torch._dynamo")  # torch's checkpoint asks for it: a second that is not the patient's
    exam = Exam(patient, Inputs(given), Budget(seconds), noise, reference)
    with undisturbed(*patient.roots, *given), exam.budget.listening(), torch.inference_mode(False), torch.enable_grad():
        try:
            _examine(exam)
        except OutOfTime:
            exam.cut_short = exam.cut_short or f"after {seconds:g} s"
        except Exception as error:  # stranger than we thought: a doctor that falls over helps nobody
            exam.unfinished = f"it could not be examined: {type(error).__name__}"
    return exam.diagnosis()


def _examine(exam: Exam) -> None:
    handed_over.look_at_what_is_handed_over(exam)
    _part(exam, "the code", lambda: handed_over.read_the_code(exam))
    if not any(isinstance(each, torch.Tensor) for each in exam.inputs.given):
        exam.unfinished = "no tensor was given. Hand over one example input for each argument"
        if exam.has("hidden-tensor"):
            exam.unfinished = "all tensors are hidden in another object"
        return
    if not exam.inputs.wanted:
        return
    _part(exam, "the compiled function", lambda: uses.look_at_compiled(exam))
    runs: list[Any] = []
    _part(exam, "forward", lambda: runs.append(first_run.run_forward(exam)), say=True)
    run = runs[0] if runs else None
    if run is None:
        noisy.read_about_noise(exam)
        return
    exam.precise = _coarsest(exam, run)
    inner = look_inside(exam)
    back: list[bool] = []
    _part(exam, "backward", lambda: back.append(first_run.run_backward(exam, run)), say=True)
    if not back or not back[0]:
        noisy.read_about_noise(exam)
        return
    noisy.read_about_noise(exam)
    if exam.has("forked-noise"):
        exam.unfinished = "it starts worker processes, so it was not called again and again"
        return
    heard: list[noisy.Noise] = []
    _part(exam, "noise", lambda: heard.append(noisy.listen(exam)), say=True)
    if not heard:
        return
    if heard[0].any:
        _noisy(exam, heard[0])
    else:
        _still(exam)
    for each in inner:
        exam.take(each, "fragile", "style")


def look_inside(exam: Exam) -> list[Exam]:
    """Examine the Functions inside an operation by themselves; what is wrong with them is wrong with it."""
    found = []
    for function_class, inputs in exam.inner:
        budget = Budget(exam.budget.left * 0.25)
        inner = Exam(Patient.of(function_class), inputs, budget, exam.noise)
        _part(exam, f"the Function {function_class.__name__} inside", functools.partial(_examine, inner))
        if inner.has("numpy-result"):  # and yet the operation returns a tensor
            cuts.name_the_cut(exam, {"got": "no graph for this part"}, "A Function returns a number")
        exam.take(inner, "wrong")
        found.append(inner)
    return found


def _coarsest(exam: Exam, run: Any) -> torch.dtype:
    dtypes = [y.dtype for y in (*run.outputs, *run.leaves)]
    coarsest: torch.dtype = max(dtypes, key=lambda dtype: torch.finfo(dtype).eps)
    return coarsest


def _noisy(exam: Exam, noise: noisy.Noise) -> None:
    noisy.name_noise(exam, noise)
    _part(exam, "the mean of the noise", lambda: noisy.examine_the_mean(exam, noise))
    if noise.repeatable and not noise.backward_draws:
        _part(exam, "a checkpoint", lambda: uses.look_at_checkpoint(exam, exam.inputs.points, noisy=True))


def _still(exam: Exam) -> None:
    compared: list[Any] = []
    _part(exam, "the reference", lambda: gradient.look_at_reference(exam))
    _part(exam, "the state", lambda: state.look_at_state(exam))
    _part(exam, "the gradient", lambda: compared.extend(gradient.look_at_gradient(exam)))
    if exam.patient.compiled is not None:
        _part(exam, "forward mode of the compiled function", lambda: uses.look_at_compiled_forward_mode(exam))
    if exam.wrong or exam.has("graph-cut") or not compared:
        return
    # beside the example: at an optimum, or on a kink, nothing shows
    point = compared[1] if len(compared) > 1 else compared[0]
    points, right = point.points, None
    with contextlib.suppress(Failed, OutOfTime):
        right = exam.gradient(points)
    if right is None:
        return
    near = beside(points, True, 0.03, np.random.default_rng(9))
    parts: list[tuple[str, Callable[[], None]]] = [
        ("the second derivative", lambda: second.look_at_second_derivative(exam, points)),
        ("forward mode", lambda: uses.look_at_forward_mode(exam)),
        ("torch.func", lambda: uses.look_at_func(exam, points, right)),
        ("torch.func.vmap", lambda: uses.look_at_vmap(exam, points, near)),
        ("a checkpoint", lambda: uses.look_at_checkpoint(exam, points, noisy=False)),
        ("float32", lambda: uses.look_at_single_precision(exam, points, right)),
    ]
    if exam.reference is not None:  # differences of the value say nothing where the reference means something else
        parts = [part for part in parts if part[0] not in ("the second derivative", "forward mode")]
    for name, look in parts:
        _part(exam, name, look)


def _part(exam: Exam, name: str, look: Callable[[], None], say: bool = False) -> None:
    """Do one part of the examination; what the patient raises in it ends the part, not the examination."""
    depth = modes()
    try:
        with exam.budget.part(0.6):
            look()
    except OutOfTime:
        leave_modes(depth)
        exam.cut_short = exam.cut_short or f"{name} did not end in its share of {exam.budget.seconds:g} s"
        if say:
            exam.unfinished = f"{name} did not end in time"
    except Failed as failed:
        if say:
            exam.unfinished = f"{name}: {failed.text}"
    except Exception as error:
        # The patient is stranger than we thought. A doctor that falls over helps nobody.
        if name in ("the gradient", "the mean of the noise"):
            exam.unfinished = f"{name} could not be looked at: {type(error).__name__}"
        exam.uses[name] = (
            f"could not be looked at ({type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''})"
        )
