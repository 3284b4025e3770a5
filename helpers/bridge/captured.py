"""What a Python function reaches besides its arguments: closure, globals, defaults, the object it is a method of.

A gradient for such things is lost, and noise or a state in them is not repeated. Nothing of it shows when the function
is called, so we look before; for a state we look again after, and see whether a call has changed anything.
"""

import dis
import functools
import hashlib
import inspect
import random
import sys
import types
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch

Reached = Iterator[tuple[str, Any]]
DEPTH = 6
MANY = 5000
LIBRARIES = {"numpy", "scipy", "torch", "matplotlib", "pandas", "helpers"} | set(sys.stdlib_module_names)
LOCAL_GENERATORS = {"default_rng", "Generator", "RandomState", "SeedSequence"}
GENERATORS = (np.random.Generator, np.random.RandomState, random.Random, torch.Generator)


def reached(*roots: Any) -> Reached:
    """Yield the name and the value of everything that functions or objects reach, each value once.

    Libraries are not looked into, and not more than some thousand values.
    """
    seen: dict[int, Any] = {}
    waiting: list[tuple[str, Any, int]] = [("", root, 0) for root in roots]
    while waiting and len(seen) < MANY:
        name, value, depth = waiting.pop(0)
        if id(value) in seen:
            continue
        seen[id(value)] = value
        yield name, value
        if depth < DEPTH:
            waiting += [(inner or name, each, depth + 1) for inner, each in _inside(value)]


def look_at(label: str, functions: Mapping[str, Any]) -> None:
    """Refuse tensors, and warn of noise, that functions reach from outside.

    Raises
    ------
    TypeError
        If one of them reaches a tensor that wants a gradient.
    """
    for role, function in functions.items():
        if name := captured_parameter(function):
            raise TypeError(
                f"{label}: its {role} reaches the tensor {name} from outside, whose gradient would be lost. "
                f"Pass {name} as an argument of its own."
            )
        if source := captured_noise(function):
            warnings.warn(
                f"{label}: its {role} draws from {source}. The bridge cannot repeat such a draw, so two backward "
                "passes differ. Give the noiseless functions and noise=UniformFactor(0.5), rng=0.",
                stacklevel=5,
            )


def captured_parameter(*functions: Callable[..., Any]) -> str | None:
    """Return the name of a captured tensor that wants a gradient, None if there is none."""
    for name, value in reached(*functions):
        if isinstance(value, torch.Tensor) and value.requires_grad:
            return name
    return None


def captured_noise(*functions: Callable[..., Any]) -> str | None:
    """Return where functions get random numbers from, None if they are not seen to."""
    for name, value in reached(*functions):
        if isinstance(value, GENERATORS):
            return f"the generator {name}"
        if isinstance(value, types.FunctionType) and not _is_of_a_library(value):
            names = set(_names(value.__code__))
            scope = [value.__globals__.get(each) for each in names]
            if names & LOCAL_GENERATORS:
                continue
            if any(each is np for each in scope) and "random" in names:
                return "np.random"
            if any(each is np.random or each is random for each in scope):
                return "a random module"
    return None


def fingerprint(*roots: Any) -> bytes:
    """Return a number that changes when anything that the functions or objects reach is changed."""
    digest = hashlib.blake2b(digest_size=16)
    for name, value in reached(*roots):
        digest.update(name.encode())
        digest.update(str(id(value)).encode())
        if isinstance(value, np.ndarray) and value.dtype != object:
            digest.update(np.ascontiguousarray(value).view(np.uint8).data if value.size else b"")
        elif isinstance(value, (int, float, complex, str)):
            digest.update(repr(value).encode())
    return digest.digest()


def owner_of(function: Any) -> Any:
    """Return the object that a function is a method of, or the callable object itself; None if there is none."""
    function = _without_partial(function)
    owner = getattr(function, "__self__", None)
    if isinstance(owner, types.ModuleType):
        return None
    if owner is None and not isinstance(function, (types.FunctionType, types.BuiltinFunctionType, type, np.ufunc)):
        return function
    return owner


def is_opaque(value: Any) -> bool:
    """Say whether an object keeps its state where we cannot look, as compiled code does."""
    return value is not None and not isinstance(value, type) and not hasattr(value, "__dict__")


def _inside(value: Any) -> Iterable[tuple[str, Any]]:
    """Return what a value holds, with names where it has names for it."""
    if isinstance(value, functools.partial):
        return [("", value.func), *(("of its partial", each) for each in value.args), *value.keywords.items()]
    if isinstance(value, types.MethodType):
        return [("self", value.__self__), ("", value.__func__)]
    if isinstance(value, types.FunctionType):
        return [] if _is_of_a_library(value) else list(_inside_function(value))
    if isinstance(value, (str, bytes, np.ndarray, torch.Tensor, types.ModuleType)):
        return []
    if isinstance(value, Mapping):
        return [(str(key), each) for key, each in list(value.items())[:MANY]]
    if isinstance(value, (list, tuple, set, frozenset)):
        return [("", each) for each in list(value)[:MANY]]
    if isinstance(value, torch.nn.Module):
        return list(value.named_parameters())
    if isinstance(value, type):
        return [] if _is_of_a_library(value) else list(vars(value).items())
    if _is_of_a_library(type(value)) and not isinstance(value, types.SimpleNamespace):
        return []
    slots = [(slot, getattr(value, slot, None)) for slot in getattr(type(value), "__slots__", ())]
    methods = [("", inspect.getattr_static(type(value), "__call__", None))]
    return [*getattr(value, "__dict__", {}).items(), *slots, ("", type(value)), *methods]


def _inside_function(function: types.FunctionType) -> Reached:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # not filled yet
            continue
    for name in _globals(function.__code__):
        if name in function.__globals__:
            yield name, function.__globals__[name]
    for parameter in inspect.signature(function).parameters.values():
        if parameter.default is not parameter.empty:
            yield parameter.name, parameter.default
    yield from vars(function).items()


def _without_partial(function: Any) -> Any:
    while isinstance(function, functools.partial):
        function = function.func
    return function


def _is_of_a_library(value: Any) -> bool:
    module = getattr(value, "__module__", None) or ""
    return str(module).partition(".")[0] in LIBRARIES - {"__main__"}


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def _globals(code: types.CodeType) -> list[str]:
    found = [
        str(each.argval)
        for inner in _codes(code)
        for each in dis.get_instructions(inner)
        if each.opname in ("LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL")
    ]
    return list(dict.fromkeys(found))


def _names(code: types.CodeType) -> Iterator[str]:
    for inner in _codes(code):
        yield from inner.co_names
