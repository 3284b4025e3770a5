"""What a Python function reaches besides its arguments: its closure, its globals, the object it is a method of.

A gradient for such things is lost, and noise or state in them is not repeated. Nothing of it shows when the function is
called, so we look before.
"""

import dis
import functools
import inspect
import random
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

PLAIN = (int, float, complex, str, bytes, bool, type(None), type, types.ModuleType, types.FunctionType)
LOCAL_GENERATORS = {"default_rng", "Generator", "RandomState", "SeedSequence"}


def captured(function: Callable[..., Any]) -> Iterator[tuple[str, Any]]:
    """Yield the name and the value of everything that a function reaches by closure, as a global, or by ``self``."""
    for code, scope, cells, owner in _codes(function):
        yield from cells
        for name in _globals_of(code):
            if name in scope:
                yield name, scope[name]
        if owner is not None and not isinstance(owner, (types.ModuleType, type)):
            yield from getattr(owner, "__dict__", {}).items()


def captured_parameter(function: Callable[..., Any]) -> str | None:
    """Return the name of a captured tensor that wants a gradient, None if there is none."""
    for name, value in captured(function):
        if isinstance(value, torch.Tensor) and value.requires_grad:
            return name
    return None


def captured_noise(function: Callable[..., Any]) -> str | None:
    """Return where a function gets random numbers from, None if it is not seen to."""
    for name, value in captured(function):
        if isinstance(value, (np.random.Generator, np.random.RandomState, random.Random, torch.Generator)):
            return f"the generator {name}"
    for code, scope, *_ in _codes(function):
        names = set(_names_of(code))
        reached = [scope.get(name) for name in _globals_of(code)]
        if any(each is np for each in reached) and "random" in names and not names & LOCAL_GENERATORS:
            return "np.random"
        if any(each is np.random or each is random for each in reached) and not names & LOCAL_GENERATORS:
            return "a random module"
    return None


def share_state(functions: list[Callable[..., Any]]) -> bool:
    """Say whether functions may hand each other numbers behind our back: one object, one cell, one global.

    Arrays count, since a buffer can be written into. Numbers, strings, modules and functions do not.
    """
    seen: set[int] = set()
    for function in functions:
        own = {id(value) for _, value in captured(function) if _is_changeable(value)}
        own |= {id(owner) for *_, owner in _codes(function) if owner is not None and _is_changeable(owner)}
        own |= {hash((id(scope), name)) for code, scope, *_ in _codes(function) for name in _written_globals(code)}
        read = {hash((id(scope), name)) for code, scope, *_ in _codes(function) for name in _globals_of(code)}
        if seen & (own | read):
            return True
        seen |= own
    return False


def _codes(function: Any) -> list[tuple[types.CodeType, dict[str, Any], list[tuple[str, Any]], Any]]:
    """Return the code, globals, closure and owner of a function; empty for what is not written in Python."""
    owner = None
    while isinstance(function, functools.partial):
        function = function.func
    if not isinstance(function, (types.FunctionType, types.MethodType)):
        method = inspect.getattr_static(type(function), "__call__", None)
        if isinstance(method, types.FunctionType):
            function, owner = method, function
    if isinstance(function, types.MethodType):
        owner, function = function.__self__, function.__func__
    code = getattr(function, "__code__", None)
    if code is None:
        return []
    cells = []
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        try:
            cells.append((name, cell.cell_contents))
        except ValueError:  # not filled yet
            continue
    return [(code, function.__globals__, cells, owner)]


def _instructions(code: types.CodeType) -> Iterator[dis.Instruction]:
    yield from dis.get_instructions(code)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _instructions(constant)


def _globals_of(code: types.CodeType) -> set[str]:
    return {str(each.argval) for each in _instructions(code) if each.opname in ("LOAD_GLOBAL", "LOAD_NAME")}


def _written_globals(code: types.CodeType) -> set[str]:
    return {str(each.argval) for each in _instructions(code) if each.opname == "STORE_GLOBAL"}


def _names_of(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names_of(constant)


def _is_changeable(value: Any) -> bool:
    return not isinstance(value, PLAIN) and not isinstance(value, types.BuiltinFunctionType)
