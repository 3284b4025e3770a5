"""What can be seen in a patient's code without running it."""

from __future__ import annotations

import ast
import builtins
import inspect
import textwrap
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ..reached import code_objects, reached
from .diagnosis import Where
from .trace import is_library

WORKERS = {"Pool", "ProcessPoolExecutor", "Process", "DataLoader", "fork"}


@dataclass(frozen=True)
class Code:
    """The code of one function: its syntax tree, and the line from which it counts."""

    function: types.FunctionType
    tree: ast.AST
    file: str
    first: int

    def place(self, node: ast.AST) -> Where:
        """Return the file and the line of a node."""
        return self.file, self.first + getattr(node, "lineno", 1) - 1

    def calls(self) -> Iterator[tuple[str, ast.Call]]:
        """Yield all calls with the dotted name of what is called."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Call):
                yield dotted(node.func), node


def codes(*roots: Any) -> list[Code]:
    """Return the readable code of all of the user's functions that the roots reach."""
    return [code for _, value in reached(*roots) if isinstance(value, types.FunctionType) and (code := read(value))]


def read(function: Callable[..., Any]) -> Code | None:
    """Return the code of a function, None if it is a library's or cannot be read."""
    function = inspect.unwrap(function)
    if not isinstance(function, types.FunctionType) or is_library(function.__code__.co_filename):
        return None
    try:
        lines, first = inspect.getsourcelines(function)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, TypeError, SyntaxError):  # a lambda in the middle of a call cannot be parsed by itself
        return None
    return Code(function, tree, function.__code__.co_filename, max(first, 1))


def unknown_names(function: Callable[..., Any]) -> list[str]:
    """Return the names that a function uses and that exist nowhere, in the order of their use."""
    function = inspect.unwrap(function)
    if not isinstance(function, types.FunctionType):
        return []
    known = function.__globals__
    stored = {name for code in code_objects(function.__code__) for name in (*code.co_varnames, *code.co_cellvars)}
    used = [name for code in code_objects(function.__code__) for name in _loaded(code)]
    return [
        name for name in dict.fromkeys(used) if name not in known and not hasattr(builtins, name) and name not in stored
    ]


def draws_from_numpy(code: Code) -> ast.AST | None:
    """Return the first call that draws from NumPy's global random state."""
    made_local = {"default_rng", "Generator", "RandomState", "SeedSequence", "seed", "get_state", "set_state"}
    for name, node in code.calls():
        parts = name.split(".")
        if len(parts) >= 2 and parts[-2] == "random" and parts[-1] not in made_local and parts[0] != "torch":
            owner = code.function.__globals__.get(parts[0])
            if getattr(owner, "__name__", "numpy").partition(".")[0] == "numpy":
                return node
    return None


def starts_workers(code: Code) -> ast.AST | None:
    """Return the first call that starts worker processes."""
    for name, node in code.calls():
        last = name.rpartition(".")[2]
        if last in WORKERS and (last != "DataLoader" or any(word.arg == "num_workers" for word in node.keywords)):
            return node
    return None


def dotted(node: ast.AST) -> str:
    """Return ``a.b.c`` for such an expression; parts that are no names are left out."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return ""


def _loaded(code: types.CodeType) -> Iterator[str]:
    import dis

    for step in dis.get_instructions(code):
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            yield str(step.argval)
