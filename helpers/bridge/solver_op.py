"""`SolverOp`: the ExternalFunction that :func:`differentiable` makes of a solver object."""

from collections.abc import Callable
from typing import Any

from .external import ExternalFunction


def is_solver(thing: object) -> bool:
    """Say whether an object solves and has an adjoint."""
    return not isinstance(thing, type) and all(callable(getattr(thing, name, None)) for name in ("forward", "adjoint"))


class SolverOp(ExternalFunction):
    """An ExternalFunction whose methods are those of another object, which knows nothing of torch."""

    def __init__(self, solver: Any, options: dict[str, Any]) -> None:
        self.solver = solver
        for name, value in options.items():
            setattr(self, name, value)
        self.name = self.name or getattr(solver, "name", None) or type(solver).__name__
        self.signature = self.signature or getattr(solver, "signature", None)
        self.__doc__ = type(solver).__doc__

    @property
    def _solver(self) -> Any:
        return self.solver.forward

    def _method(self, role: str) -> Callable[..., Any]:
        method: Callable[..., Any] = getattr(self.solver, role)
        return method

    def _offers(self, what: str) -> bool:
        return callable(getattr(self.solver, what, None))

    def _functions(self) -> dict[str, Any]:
        return self._shipped()

    def _watched(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        methods = self._shipped()
        return (methods.pop("forward"),), tuple(methods.values())
