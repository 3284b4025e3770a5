"""What a Python function reaches besides its arguments: closure, globals, defaults, the object it is a method of.

It asks for no torch, so that worker processes can look too. Where torch is loaded, tensors and modules are known.
"""

import collections
import concurrent.futures
import dis
import functools
import hashlib
import os
import sys
import threading
import types
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

Reached = Iterator[tuple[str, Any]]
DEPTH = 6
MANY = 5000
LARGE = 2**20  # entries: of a larger array we look at a sample
LIBRARIES = {"numpy", "scipy", "torch", "matplotlib", "pandas", "helpers", *sys.stdlib_module_names} - {"__main__"}
CUT_OFF = object()


def reached(*roots: Any) -> Reached:
    """Yield the name and the value of everything that functions or objects reach, each value once.

    Libraries are not looked into. After some thousand values it ends, with :data:`CUT_OFF`.
    """
    seen: dict[int, Any] = {}
    waiting: collections.deque[tuple[str, Any, int]] = collections.deque(("", root, 0) for root in roots)
    while waiting:
        name, value, depth = waiting.popleft()
        if id(value) in seen:
            continue
        if len(seen) >= MANY:
            yield name, CUT_OFF
            return
        seen[id(value)] = value
        yield name, value
        if depth < DEPTH:
            waiting.extend((inner or name, each, depth + 1) for inner, each in _inside(value))


def fingerprint(*roots: Any) -> bytes:
    """Return a number that changes when anything that the functions or objects reach is changed.

    If they reach more than can be looked at, it changes every time.
    """
    digest = hashlib.blake2b(digest_size=16)
    for name, value in reached(*roots):
        digest.update(name.encode())
        if value is CUT_OFF:
            return os.urandom(16)
        value = _numbers(value)
        if isinstance(value, np.ndarray) and not value.dtype.hasobject:
            digest.update(str((id(value), value.shape)).encode())
            digest.update(_sample(value).tobytes())
        elif isinstance(value, (int, float, complex, str)) or _is_of_numbers(value):
            digest.update(repr(value).encode())
        else:
            digest.update(str(id(value)).encode())
    return digest.digest()


def _numbers(value: Any) -> Any:
    """Return the numbers of a tensor; anything else as it is."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(value, torch.Tensor) or value.is_meta or value.layout is not torch.strided:
        return value
    return value.detach().cpu().view(torch.uint8).numpy() if value.is_contiguous() and value.ndim else None


def _sample(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return array if array.size <= LARGE else array.reshape(-1)[:: array.size // 4096]


def _is_of_numbers(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and len(value) > 0 and isinstance(value[0], (int, float, complex))


def is_method_of_compiled_code(function: Any) -> bool:
    """Say whether a function belongs to an object that keeps its state where we cannot look."""
    while isinstance(function, functools.partial):
        function = function.func
    owner = getattr(function, "__self__", None)
    if owner is None and not isinstance(function, (types.FunctionType, types.BuiltinFunctionType, type, np.ufunc)):
        owner = function
    plain = owner is None or isinstance(owner, (types.ModuleType, type, np.ufunc))
    return not plain and not hasattr(owner, "__dict__") and not hasattr(type(owner), "__slots__")


def _inside(value: Any) -> Iterable[tuple[str, Any]]:
    """Return what a value holds, with names where it has names for it."""
    if isinstance(value, functools.partial):
        return [("", value.func), *(("of its partial", each) for each in value.args), *value.keywords.items()]
    if isinstance(value, types.MethodType):
        return [("self", value.__self__), ("", value.__func__)]
    if isinstance(value, (staticmethod, classmethod, property)):
        return [("", getattr(value, "__func__", None) or getattr(value, "fget", None))]
    if isinstance(value, types.FunctionType):
        return [] if is_of_a_library(value) else list(_inside_function(value))
    torch = sys.modules.get("torch")
    closed = (str, bytes, np.ndarray, concurrent.futures.Executor, *([torch.Tensor] if torch else []))
    if isinstance(value, closed) or _is_of_numbers(value):
        return []
    if isinstance(value, types.ModuleType):
        inside = {} if value.__name__.partition(".")[0] in LIBRARIES else vars(value)
        return [(name, each) for name, each in inside.items() if not name.startswith("__")]
    if isinstance(value, Mapping):
        return [(str(key), each) for key, each in list(value.items())[:MANY]]
    if isinstance(value, (list, tuple, set, frozenset, collections.deque)):
        return [("", each) for each in list(value)[:MANY]]
    if torch and isinstance(value, torch.nn.Module):
        return list(value.named_parameters())
    if isinstance(value, type):
        return [] if is_of_a_library(value) else list(vars(value).items())
    attributes = list(getattr(value, "__dict__", {}).items())
    if is_of_a_library(type(value)) and not isinstance(value, (types.SimpleNamespace, threading.local)):
        return [(name, each) for name, each in attributes if isinstance(each, (np.ndarray, list, dict))]
    classes = [each for each in type(value).__mro__ if not is_of_a_library(each)]
    names = [name for each in classes for name in _slots(each)]
    slots = [(name, getattr(value, name, None)) for name in names if name not in ("__dict__", "__weakref__")]
    return [*attributes, *slots, *(("", each) for each in classes)]


def _slots(kind: type) -> tuple[str, ...]:
    slots = vars(kind).get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _inside_function(function: types.FunctionType) -> Reached:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # not filled yet
            continue
    for name in _globals(function.__code__):
        if name in function.__globals__:
            yield name, function.__globals__[name]
    yield from (("of its defaults", each) for each in function.__defaults__ or ())
    yield from (function.__kwdefaults__ or {}).items()
    yield from vars(function).items()


def is_of_a_library(value: Any) -> bool:
    """Say whether a function or class comes from a library that is not looked into."""
    module = getattr(value, "__module__", None) or ""
    return str(module).partition(".")[0] in LIBRARIES


def code_objects(code: types.CodeType) -> Iterator[types.CodeType]:
    """Yield a code and all codes inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from code_objects(constant)


def _globals(code: types.CodeType) -> list[str]:
    found = [
        str(each.argval)
        for inner in code_objects(code)
        for each in dis.get_instructions(inner)
        if each.opname in ("LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL")
    ]
    return list(dict.fromkeys(found))
