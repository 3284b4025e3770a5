"""Which Functions run inside an operation, and with which inputs."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from .inputs import Inputs
from .patient import FunctionClass, has_setup_context, is_static
from .trace import Trace, wrapped

MOST = 16  # Functions that are looked at by themselves

Calls = list[tuple[FunctionClass, Inputs]]


@contextmanager
def noted(functions: Sequence[FunctionClass], trace: Trace) -> Iterator[Calls]:
    """Note the first call of each Function that runs inside, with copies of its inputs.

    Their ``forward`` is replaced for that time, since ``.apply`` may have been stored under another name before.
    """
    calls: Calls = []
    replaced = []
    for function_class in functions:
        if "forward" in vars(function_class) and is_static(function_class, "forward"):
            replaced.append((function_class, vars(function_class)["forward"]))
            _put(function_class, _noting(function_class, calls, trace))
    try:
        yield calls
    finally:
        for function_class, forward in replaced:
            _put(function_class, forward)


def _put(function_class: Any, forward: Any) -> None:
    function_class.forward = forward


def _noting(function_class: FunctionClass, calls: Calls, trace: Trace) -> Any:
    forward = function_class.forward
    skipped = 0 if has_setup_context(function_class) else 1

    @functools.wraps(forward)
    def spy(*args: Any, **kwargs: Any) -> Any:
        trace.note_use(args[skipped:], by_function=True)
        if not kwargs and len(calls) < MOST and all(each is not function_class for each, _ in calls):
            calls.append((function_class, Inputs(tuple(_copied(each) for each in args[skipped:]))))
        return forward(*args, **kwargs)

    return staticmethod(spy)


def _copied(value: Any) -> Any:
    """Return leaves with the numbers of tensors, which want a gradient if those do; also in lists and dicts."""
    if isinstance(value, torch.Tensor):
        if wrapped(value):
            return value
        return value.detach().clone().requires_grad_(value.requires_grad)
    if isinstance(value, (list, tuple)) and type(value) in (list, tuple):
        return type(value)(_copied(each) for each in value)
    if isinstance(value, dict):
        return {key: _copied(each) for key, each in value.items()}
    return value
