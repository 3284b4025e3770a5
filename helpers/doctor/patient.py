"""Who is examined: a Function, an instance of one, or any callable on tensors."""

from __future__ import annotations

import functools
import inspect
import linecache
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast

import torch

from ..reached import reached
from .diagnosis import Where
from .trace import is_library

Function = torch.autograd.Function
FunctionClass = type[torch.autograd.Function]


@dataclass(frozen=True)
class Patient:
    """A callable on tensors, and what is known of it without running it.

    ``function_class`` is the Function if the patient is one itself; ``instance`` says that an object of it was handed
    over; ``compiled`` holds what the user gave to ``torch.compile``.
    """

    call: Callable[..., Any]
    label: str
    function_class: FunctionClass | None = None
    instance: bool = False
    compiled: Any = None
    handed: Any = None

    @classmethod
    def of(cls, handed: Any) -> Patient:
        """Return the patient in what a user hands over.

        Raises
        ------
        TypeError
            If it cannot be called on tensors.
        """
        if isinstance(handed, type) and issubclass(handed, Function):
            return cls(handed.apply, handed.__name__, handed, handed=handed)
        if isinstance(handed, Function):
            kind = type(handed)
            return cls(kind.apply, kind.__name__, kind, instance=True, handed=handed)
        owner = getattr(handed, "__self__", None)
        if isinstance(owner, type) and issubclass(owner, Function) and getattr(handed, "__name__", "") == "apply":
            return cls(owner.apply, owner.__name__, owner, handed=handed)
        if not callable(handed):
            raise TypeError(
                f"diagnose examines a Function or a callable on tensors; got {_kind(handed)}. "
                "Pass the function itself, not its name or its result."
            )
        compiled = getattr(handed, "_torchdynamo_orig_callable", None) or getattr(handed, "_orig_mod", None)
        return cls(handed, _label(handed), compiled=compiled, handed=handed)

    @property
    def functions(self) -> list[FunctionClass]:
        """The Functions that the patient is, or reaches by name."""
        if self.function_class is not None:
            return [self.function_class]
        values = [value for _, value in reached(self.handed, *_module_classes(self.handed))]
        found = [value for value in values if isinstance(value, type) and issubclass(value, Function)]
        found += [
            owner
            for value in values
            if isinstance(owner := getattr(value, "__self__", None), type) and issubclass(owner, Function)
        ]
        return [each for each in dict.fromkeys(found) if each is not Function and not is_library(_file(each))]

    @property
    def roots(self) -> list[Any]:
        """Whatever the patient is made of: where its state, its random numbers and its code are found."""
        roots = [self.handed, self.compiled, *_module_classes(self.handed), *self.functions]
        return [each for each in roots if each is not None]

    @property
    def names(self) -> list[str]:
        """The names of the arguments, in the user's own words; empty if they cannot be known."""
        function = self.function_class.forward if self.function_class else self.compiled or self.handed
        try:
            parameters = list(inspect.signature(function).parameters.values())
        except (TypeError, ValueError):
            return []
        names = [each.name for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
        if self.function_class is not None and not has_setup_context(self.function_class):
            names = names[1 + (not is_static(self.function_class, "forward")) :] if names else []
        return names

    def place(self, method: str) -> Where | None:
        """Return where a method of the first Function is written, or the patient itself if there is none."""
        functions = self.functions
        return method_place(functions[0], method) if functions else self.where()

    def where(self) -> Where | None:
        """Return where the patient is defined."""
        return definition(self.function_class or self.compiled or self.handed)


def _module_classes(handed: Any) -> list[type]:
    """Return the user's own classes of all modules that are reached, and the classes that these hold."""
    roots = [value for _, value in reached(handed) if isinstance(value, torch.nn.Module)]
    modules = [module for root in roots for module in root.modules()]
    kinds = [kind for kind in dict.fromkeys(map(type, modules)) if not is_library(_file(kind))]
    return [*kinds, *(value for module in modules for value in vars(module).values() if isinstance(value, type))]


def has_setup_context(function_class: FunctionClass) -> bool:
    """Return whether a Function is written in the newer form, with ``setup_context``."""
    base = cast(Any, Function)._SingleLevelFunction if hasattr(Function, "_SingleLevelFunction") else None
    inherited = {getattr(Function, "setup_context", None), getattr(base, "setup_context", None)}
    return function_class.setup_context not in inherited


def is_static(function_class: FunctionClass, method: str) -> bool:
    """Return whether a method is static (or of the class), as torch asks for; a missing one counts as static."""
    raw = inspect.getattr_static(function_class, method, None)
    return not isinstance(raw, types.FunctionType)


def definition(thing: Any) -> Where | None:
    """Return file and first line of a function or class, None if they cannot be known."""
    while isinstance(thing, functools.partial):
        thing = thing.func
    thing = inspect.unwrap(thing) if callable(thing) else thing
    if not isinstance(thing, (type, types.FunctionType, types.MethodType)):
        thing = type(thing)
    code = getattr(thing, "__code__", None) or getattr(getattr(thing, "__func__", None), "__code__", None)
    if code is not None:
        return code.co_filename, code.co_firstlineno
    methods = [each for each in vars(thing).values() if hasattr(_inner(each), "__code__")]
    codes = [_inner(each).__code__ for each in methods]
    return (codes[0].co_filename, min(code.co_firstlineno for code in codes)) if codes else None


def method_place(function_class: FunctionClass, name: str) -> Where | None:
    """Return where a method of a Function is written."""
    method = inspect.unwrap(getattr(function_class, name, None) or (lambda: None))
    code = getattr(method, "__code__", None)
    if code is None or is_library(code.co_filename):
        return definition(function_class)
    return code.co_filename, _line_of_def(code)


def _line_of_def(code: types.CodeType) -> int:
    """Return the line of ``def``, which stands below the decorators."""
    lines = linecache.getlines(code.co_filename)
    for line in range(code.co_firstlineno, min(code.co_firstlineno + 10, len(lines) + 1)):
        if lines[line - 1].lstrip().startswith(("def ", "async def ")):
            return line
    return code.co_firstlineno


def graph_functions(outputs: list[torch.Tensor]) -> Iterator[tuple[Any, FunctionClass]]:
    """Yield the nodes in the graph of some outputs that belong to custom Functions, each with its class."""
    for node in graph_nodes(outputs):
        function_class = getattr(type(node), "_forward_cls", None)
        if function_class is not None:
            yield node, function_class


def graph_nodes(outputs: list[torch.Tensor]) -> Iterator[Any]:
    """Yield all nodes in the graph of some outputs, each once."""
    waiting: list[Any] = [y.grad_fn for y in outputs]
    seen: set[Any] = set()
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        yield node
        waiting.extend(following for following, _ in node.next_functions)


def _inner(method: Any) -> Any:
    return inspect.unwrap(getattr(method, "__func__", method))


def _file(function_class: type) -> str:
    place = definition(function_class)
    return place[0] if place else ""


def _label(handed: Any) -> str:
    while isinstance(handed, functools.partial):
        handed = handed.func
    name = getattr(handed, "__qualname__", "") or type(handed).__name__
    return "the lambda" if "<lambda>" in name else name.rpartition("<locals>.")[2]


def _kind(thing: Any) -> str:
    return "None" if thing is None else f"a {type(thing).__name__}"
