"""What shows before anything runs: an instance, missing ``@staticmethod``, integers, hidden tensors, unknown names."""

from __future__ import annotations

import ast
from typing import Any

import torch

from ..reached import reached
from . import reading
from .exam import Exam
from .inputs import held_tensors
from .patient import is_static, method_place

Tensor = torch.Tensor
METHODS = ("forward", "backward", "setup_context", "vjp", "jvp", "vmap")


def look_at_what_is_handed_over(exam: Exam) -> None:
    """Find what shows before anything runs: an instance, missing ``@staticmethod``, integers, tensors out of sight."""
    patient, inputs = exam.patient, exam.inputs
    if patient.instance:
        exam.add(
            "instance-called",
            f"An object of {patient.label} was handed over. Calling it raises 'Legacy autograd function with "
            "non-static forward', whether forward is static or not. Use .apply of the class.",
        )
    for function_class in patient.functions:
        for method in METHODS:
            if not is_static(function_class, method) and method in vars(function_class):
                words: dict[str, Any] = {"method": method, "signature": _signature(function_class, method)}
                exam.add(
                    "nonstatic-forward",
                    f"{function_class.__name__}.{method} is not static. It works today under .apply; torch 1.5 refused "
                    "it. Write @staticmethod above it.",
                    where=method_place(function_class, method),
                    **words,
                )
    if not inputs.wanted and any(isinstance(each, Tensor) for each in inputs.given):
        kinds = [str(each.dtype) for each in inputs.given if isinstance(each, Tensor)]
        exam.add(
            "integer-parameter",
            f"No input can have a gradient: the tensors hold {', '.join(dict.fromkeys(kinds))}. Only floating point "
            "and complex tensors can.",
            evidence={"dtype": ", ".join(kinds)},
        )
    _look_for_hidden_tensors(exam)


def _signature(function_class: Any, method: str) -> str:
    code = getattr(getattr(function_class, method), "__code__", None)
    return ", ".join(code.co_varnames[: code.co_argcount]) if code else "..."


def _look_for_hidden_tensors(exam: Exam) -> None:
    patient = exam.patient
    held = [tensor for each in exam.inputs.given for tensor in held_tensors(each) if tensor.is_floating_point()]
    handed = [id(each) for each in exam.inputs.given]
    deeper = [value for each in exam.inputs.given if not isinstance(each, Tensor) for _, value in reached(each)]
    wants = [each for each in deeper if isinstance(each, Tensor) and each.requires_grad and id(each) not in handed]
    if exam.inputs.asked or wants:
        held = wants
    if patient.function_class is not None and held:
        exam.add(
            "hidden-tensor",
            f"{patient.label} gets {len(held)} tensors inside another object, such as a list, a dict or a module. "
            "torch looks at the arguments themselves only, so these get no gradient.",
            severity="wrong" if wants else "fragile",
            evidence={"hidden tensors": len(held)},
        )
    for function_class in patient.functions:
        methods = [getattr(function_class, name) for name in METHODS[:3]]
        for name, value in reached(*methods):
            if isinstance(value, Tensor) and value.requires_grad:
                exam.add(
                    "hidden-tensor",
                    f"{function_class.__name__} reads the tensor {name or 'that it reaches'} from outside. It wants a "
                    "gradient and gets none: torch looks at the arguments of forward only.",
                    evidence={"hidden tensor": name, "shape": tuple(value.shape)},
                    where=method_place(function_class, "forward"),
                )


def read_the_code(exam: Exam) -> None:
    """Find names that exist nowhere, also in branches that did not run."""
    for function_class in exam.patient.functions:
        for method in METHODS:
            function = vars(function_class).get(method)
            function = getattr(function, "__func__", function)
            if function is None:
                continue
            for name in reading.unknown_names(function):
                where = _place_of_name(function, name) or method_place(function_class, method)
                exam.add(
                    "undefined-name",
                    f"{method} of {function_class.__name__} uses the name {name}, which does not exist. Python sees it "
                    f"only when that line runs"
                    + (", which is after forward has succeeded." if method == "backward" else "."),
                    evidence={"name": name},
                    where=where,
                    name=name,
                    method=method,
                )


def _place_of_name(function: Any, name: str) -> Any:
    code = reading.read(function)
    if code is None:
        return None
    found = [node for node in ast.walk(code.tree) if isinstance(node, ast.Name) and node.id == name]
    return code.place(found[0]) if found else None
