"""A training loop: the parameters, the closure, and what ``step`` will meet."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from . import catalogue, noisy, reading
from .budget import Budget, OutOfTime
from .diagnosis import Diagnosis, Finding
from .exam import Exam, Failed
from .examination import look_inside
from .inputs import Inputs
from .loop import Loop
from .messages import explain
from .patient import Patient
from .undisturbed import undisturbed

Tensor = torch.Tensor


def name_error(error: BaseException | str) -> Diagnosis:
    """Return the mistake behind an error or its text."""
    known = explain(error)
    text = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
    if known is None:
        return Diagnosis("this message", unfinished=f"the course does not know this text: {text}")
    message, match = known
    mistake = catalogue.MISTAKES[message.slug]
    words: dict[str, Any] = {key: value for key, value in match.groupdict().items() if value}
    finding = Finding(
        message.slug,
        mistake.severity,
        message.meaning,
        {"torch says": text, **words},
        catalogue.cure(message.slug, words),
        None,
        mistake.lesson,
    )
    return Diagnosis("torch's message", (finding,))


def examine(optimizer: Any, closure: Any, *, seconds: float) -> Diagnosis:
    """Return the diagnosis of an optimiser and of what is handed to its ``step``."""
    handed = closure if callable(closure) else _nothing
    exam = Exam(Patient(handed, _label(optimizer, closure), handed=handed), Inputs(()), Budget(seconds))
    exam.unfinished = "the closure was not called"
    with undisturbed(closure, optimizer), exam.budget.listening(), torch.enable_grad():
        try:
            _examine(exam, optimizer, closure)
        except OutOfTime:
            exam.cut_short = f"the closure did not end in {seconds:g} s"
            exam.unfinished = exam.unfinished or exam.cut_short
        except Exception as error:  # stranger than we thought: a doctor that falls over helps nobody
            exam.unfinished = f"it could not be examined: {type(error).__name__}"
    return exam.diagnosis()


def _nothing() -> None:
    return None


def _label(optimizer: Any, closure: Any) -> str:
    name = type(optimizer).__name__ if isinstance(optimizer, torch.optim.Optimizer) else "the optimiser"
    what = getattr(closure, "__name__", "") or type(closure).__name__
    return f"{name} with {'no closure' if closure is None else what}"


def _examine(exam: Exam, optimizer: Any, closure: Any) -> None:
    optimizer = _made(exam, optimizer)
    if optimizer is None:
        return
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    _look_at_parameters(exam, parameters)
    if not _can_be_called(exam, optimizer, closure) or exam.has("integer-parameter", "no-requires-grad"):
        return
    noisy.read_about_noise(exam)
    _read(exam, closure)
    loop = Loop(exam, optimizer, closure, parameters)
    try:
        loop.look()
        look_inside(exam)
    except Failed as failed:
        _name_error(exam, failed)


def _made(exam: Exam, optimizer: Any) -> torch.optim.Optimizer | None:
    if isinstance(optimizer, torch.optim.Optimizer):
        return optimizer
    if not callable(optimizer):
        exam.unfinished = f"{type(optimizer).__name__} is not an optimiser. Hand over one of torch.optim"
        return None
    try:
        with exam.budget.part(), exam.watched():
            made = optimizer()
    except Failed as failed:
        exam.unfinished = f"making the optimiser raised {failed.text}"
        _name_error(exam, failed)
        return None
    if not isinstance(made, torch.optim.Optimizer):
        exam.unfinished = f"the function that should make an optimiser returned {type(made).__name__}"
        return None
    return made


def _look_at_parameters(exam: Exam, parameters: list[Tensor]) -> None:
    wants = [p.requires_grad for p in parameters]
    integer = [p for p in parameters if not (p.is_floating_point() or p.is_complex())]
    if integer:
        exam.add(
            "integer-parameter",
            f"A parameter holds {integer[0].dtype}. Only floating point and complex tensors have gradients, so it can "
            "never be moved.",
            evidence={"dtype": str(integer[0].dtype)},
        )
    elif not any(wants):
        exam.add(
            "no-requires-grad",
            "No parameter of the optimiser has requires_grad: nothing that is computed from them is recorded.",
            evidence={"requires_grad": "False for all parameters"},
        )
    if any(not p.is_leaf for p in parameters):
        exam.add("nonleaf-parameter", "A parameter is the result of an operation: its gradient is never kept.")


def _can_be_called(exam: Exam, optimizer: torch.optim.Optimizer, closure: Any) -> bool:
    name = type(optimizer).__name__
    owner = getattr(closure, "__self__", None)
    if isinstance(closure, (Tensor, float, np.floating)):
        exam.add(
            "step-of-a-loss",
            f"step is given a {'tensor' if isinstance(closure, Tensor) else 'number'}: the result of a function, where "
            "it needs the function itself.",
            evidence={"got": type(closure).__name__, "expected": "a function without arguments"},
        )
    elif isinstance(closure, torch.autograd.Function):
        exam.add(
            "instance-called",
            f"step is given an object of {type(closure).__name__}. step calls it, and torch raises 'Legacy autograd "
            "function with non-static forward', whether forward is static or not.",
        )
    elif isinstance(owner, type) and issubclass(owner, torch.autograd.Function):
        exam.add(
            "apply-without-input",
            f"step is given {owner.__name__}.apply. step calls it with nothing, and forward needs its input.",
            f=owner.__name__,
        )
    elif closure is None and isinstance(optimizer, torch.optim.LBFGS):
        exam.add("lbfgs-without-closure", f"{name} evaluates the loss several times a step, so step needs the closure.")
    elif closure is None:
        exam.unfinished = "no closure was given; without one only the parameters can be looked at"
        if not exam.wrong:
            exam.unfinished = ""
    elif not callable(closure):
        exam.unfinished = f"step needs a function without arguments; got {type(closure).__name__}"
    else:
        return True
    if exam.wrong:
        exam.unfinished = ""
    return False


def _read(exam: Exam, closure: Any) -> None:
    for code in reading.codes(closure):
        for name in reading.unknown_names(code.function):
            exam.add(
                "undefined-name",
                f"{code.function.__name__} uses the name {name}, which does not exist.",
                evidence={"name": name},
                where=(code.file, code.first),
                name=name,
                method=code.function.__name__,
            )


def _name_error(exam: Exam, failed: Failed) -> None:
    known = explain(failed.error)
    exam.unfinished = exam.unfinished or f"it raised {failed.text}"
    if known is None:
        exam.unfinished = f"the closure raised {failed.text}"
        return
    message, match = known
    words: dict[str, Any] = {key: value for key, value in match.groupdict().items() if value}
    exam.unfinished = ""
    exam.add(
        message.slug,
        f"{failed.text} {message.meaning}",
        severity="wrong",
        evidence={"torch says": failed.text, **words},
        where=failed.where,
        **{"method": "the closure"} | words,
    )
