"""`FunctionOp`: the ExternalFunction that :func:`differentiable` makes of functions.

Its state is the :class:`Point` where the function was computed; the derivatives are called with the same arguments.
"""

import contextlib
import importlib
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from ..states import keep
from .arrays import Array, as_numbers
from .eager import DTYPES, apply_one
from .evaluation import Evaluation, explain, fitting, one_for_each, run
from .external import ExternalFunction
from .questions import current
from .torch_state import is_ordinary

Function = Callable[..., Any]


class Point:
    """Where a function was computed: its arguments, and what came with the value."""

    __slots__ = ("args", "gradient", "inputs", "jacobian", "kwargs", "lead", "outputs")

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any], inputs: list[Array], lead: int) -> None:
        self.args, self.kwargs, self.inputs, self.lead = args, kwargs, inputs, lead
        self.gradient: Any = None
        self.jacobian: list[list[Array]] | None = None
        self.outputs: list[Array] = []


class FunctionOp(ExternalFunction):
    """What :func:`differentiable` returns: an ExternalFunction made of functions."""

    _has_state = False
    _direct: bool
    _may_be_direct: bool

    def __init__(self, fun: Function | None, derivatives: dict[str, Function], options: dict[str, Any]) -> None:
        self._derivatives = derivatives
        self._scalar = bool({"grad", "value_and_grad"} & set(derivatives))
        (self._kind,) = {"grad", "vjp", "jac", "value_and_grad"} & set(derivatives)
        self._main: Function = fun or derivatives["value_and_grad"]
        for name, value in options.items():
            setattr(self, name, value)
        self.name = self.name or getattr(self._main, "__name__", type(self._main).__name__)
        self.__doc__ = self._main.__doc__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the output for tensors, differentiably."""
        if not torch.compiler.is_compiling():
            if not self._direct:
                self._settle()
            elif len(args) == 1 and not kwargs and is_ordinary(args[0]) and args[0].dtype in DTYPES:
                return apply_one(self, args[0])
        return super().__call__(*args, **kwargs)

    @property
    def _solver(self) -> Any:
        return self._main

    def _forward(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], inputs: list[Array], lead: int, with_gradient: bool
    ) -> Any:
        point = Point(args, kwargs, inputs, lead)
        found, *derivative = self._solved(point, with_gradient and self._kind in ("grad", "jac"))
        if self._kind == "value_and_grad":
            found, point.gradient = self._pair(found, "(value, gradient)")
        y, aux = self._pair(found, "(value, aux)") if self.aux else (found, None)
        aux = keep(aux)
        if self._scalar:
            self._check_scalar(y if isinstance(y, tuple) else as_numbers(y, f"{self.label}: its function"), lead)
        if self._kind == "value_and_grad":
            gradients = one_for_each(self, point.gradient, inputs, "gradient")
            point.gradient = tuple(
                None if each is None else np.array(as_numbers(each, f"{self.label}: its gradient"))
                for each in gradients
            )
        elif self._kind == "jac":
            point.outputs = [np.array(each) for each in (y if isinstance(y, tuple) else (y,))]
        with contextlib.suppress(Exception):  # what is wrong with a derivative is told when one is asked for
            if derivative and self._kind == "jac":
                point.jacobian = self._matrices(point, *derivative)
            elif derivative:
                point.gradient = keep(list(self._one_for_each(point, *derivative)))
        return y, point, aux

    def _solved(self, point: Point, with_derivative: bool) -> list[Any]:
        """Return the value at a point; with the derivative, if that is wanted in the same task and succeeds."""
        questions = current()
        if questions is not None:
            roles = ["forward", self._kind] if with_derivative else ["forward"]
            return questions.ask(*((role, point.args, point.kwargs) for role in roles), needed=1)
        found = [run(self, self._called("forward"), self._main, *point.args, **point.kwargs)]
        with contextlib.suppress(Exception):
            if with_derivative:
                found.append(self._derivatives[self._kind](*point.args, **point.kwargs))
        return found

    def _at(self, point: Point, role: str, *directions: Array) -> Any:
        """Return a derivative of the user's at a point, computed here or by a worker."""
        questions, args = current(), (*point.args, *directions)
        if questions is None:
            return self._derivatives[role](*args, **point.kwargs)
        return questions.ask((role, args, point.kwargs), solve=("forward", point.args, point.kwargs))[0]

    def _value_at(self, x: Array) -> tuple[Any, Array | None]:
        """Return the number at one array, and the gradient if it comes with it."""
        try:
            found = self._main(x)
        except Exception as error:
            explain(self, "function", error)
            raise
        if type(found) is np.float64:
            return found, None
        gradient = None
        if self._kind == "value_and_grad":
            found, gradient = self._pair(found, "(value, gradient)")
            gradient = np.array(self._fitting(gradient, x))  # a copy, since it may be a buffer
        found = as_numbers(found, f"{self.label}: its function")
        self._check_scalar(found, 0)
        return found, gradient

    def _gradient_at(self, x: Array) -> Array:
        """Return the gradient at one array."""
        try:
            gradient = self._derivatives["grad"](x)
        except Exception as error:
            explain(self, "grad", error)
            raise
        if type(gradient) is np.ndarray and gradient.shape == x.shape and gradient.dtype == x.dtype:
            return gradient
        return self._fitting(gradient, x)

    def _fitting(self, gradient: Any, x: Array) -> Array:
        (gradient,) = one_for_each(self, gradient, [x], self._kind)
        return fitting(self, gradient, x, self._kind, "the input").astype(x.dtype)

    def _known(self, x: Array, gradient: Array | None) -> Evaluation:
        """Return the evaluation at an array whose value was computed before."""
        point = Point((x,), {}, [x], 0)
        point.gradient = None if gradient is None else (gradient,)
        return Evaluation.known(self, point, [x])

    def adjoint(self, point: Point, *gs: Array) -> Any:
        """Return the transposed Jacobian times g."""
        if self._kind == "vjp":
            return self._at(point, "vjp", *gs)
        if self._kind == "jac":
            rows = self._jacobian(point)
            flat = [_flat(g, point.lead)[..., np.newaxis, :] for g in gs]
            return tuple(
                sum((g @ row[place])[..., 0, :] for g, row in zip(flat, rows, strict=True)).reshape(x.shape)  # type: ignore[union-attr]
                for place, x in enumerate(point.inputs)
            )
        gradients = self._gradients(point)
        return tuple(None if each is None else _times(gs[0], each) for each in gradients)

    def tangent(self, point: Point, *ts: Array) -> Any:
        """Return the Jacobian times t."""
        if self._kind == "vjp":
            return self._at(point, "jvp", *ts)
        if self._kind == "jac":
            flat = [_flat(t, point.lead)[..., np.newaxis] for t in ts]
            return tuple(
                sum((block @ t)[..., 0] for block, t in zip(row, flat, strict=True)).reshape(y.shape)  # type: ignore[union-attr]
                for row, y in zip(self._jacobian(point), point.outputs, strict=True)
            )
        total: Any = np.zeros(point.inputs[0].shape[: point.lead])
        for gradient, t in zip(self._gradients(point), ts, strict=True):
            if gradient is None:
                if np.any(t):
                    raise TypeError(f"{self.label}: its gradient holds None for an input that has a tangent.")
                continue
            total = total + np.sum(gradient * t, axis=tuple(range(point.lead, t.ndim)))
        return total

    def hvp(self, point: Point, *gs_and_ts: Array) -> Any:
        """Return the derivative of the adjoint along t."""
        if self._kind in ("vjp", "jac"):
            return self._at(point, "hvp", *gs_and_ts)
        g, *ts = gs_and_ts
        found = self._at(point, "hvp", *ts)
        products = one_for_each(self, found, point.inputs, "hvp")
        return tuple(
            None if each is None else _times(g, as_numbers(each, f"{self.label}: its hvp")) for each in products
        )

    def _gradients(self, point: Point) -> Sequence[Any]:
        """Return the gradient for each real input."""
        if point.gradient is not None:
            gradients: Sequence[Any] = point.gradient
            return gradients
        found = self._one_for_each(point, self._at(point, "grad"))
        if current() is not None:
            point.gradient = keep(list(found))  # the next one that asks need not send for it
        return found

    def _one_for_each(self, point: Point, found: Any) -> Sequence[Any]:
        """Return what grad gave as one array or None for each real input."""
        if type(found) is np.ndarray and len(point.inputs) == 1:
            return (found,)
        gradients = one_for_each(self, found, point.inputs, "grad")
        return [each if each is None else as_numbers(each, f"{self.label}: its grad") for each in gradients]

    def _jacobian(self, point: Point) -> list[list[Array]]:
        """Return the Jacobian as matrices, one for each output and input; computed once a point."""
        if point.jacobian is None:
            point.jacobian = self._matrices(point, self._at(point, "jac"))
        return point.jacobian

    def _matrices(self, point: Point, found: Any) -> list[list[Array]]:
        """Return what jac gave as matrices, one for each output and input."""
        rows = found if isinstance(found, tuple) and len(point.outputs) > 1 else (found,)
        if len(rows) != len(point.outputs):
            raise ValueError(f"{self.label}: its jac must return one row for each of {len(point.outputs)} outputs.")
        return [
            [
                self._matrix(block, y, x, point.lead)
                for block, x in zip(one_for_each(self, row, point.inputs, "jac"), point.inputs, strict=True)
            ]
            for row, y in zip(rows, point.outputs, strict=True)
        ]

    def _matrix(self, block: Any, y: Array, x: Array, lead: int) -> Array:
        jacobian = as_numbers(block, f"{self.label}: its jac")
        wanted = y.shape + x.shape[lead:]
        if jacobian.shape != wanted:
            raise ValueError(
                f"{self.label}: its jac returned shape {jacobian.shape}, and an output of shape {y.shape} with an "
                f"input of shape {x.shape} asks for {wanted}."
            )
        batch = y.shape[:lead]
        return np.array(jacobian).reshape(*batch, int(np.prod(y.shape[lead:])), int(np.prod(x.shape[lead:])))

    def _check_scalar(self, y: Any, lead: int) -> None:
        if isinstance(y, tuple):
            raise ValueError(f"{self.label} returns several outputs, and grad= is for one number. Give vjp= or jac=.")
        if np.ndim(y) != lead:
            raise ValueError(
                f"{self.label} returned shape {np.shape(y)}, and grad= is for one number"
                f'{" a sample" if lead else ""}. If x holds many points, add batch="vectorized" (or "loop"); for an '
                "output of several numbers give vjp= or jac= instead of grad=."
            )

    def _pair(self, found: Any, form: str) -> tuple[Any, Any]:
        if not isinstance(found, tuple) or len(found) != 2:
            raise TypeError(f"{self.label} must return {form}; it returned {type(found).__name__}.")
        return found

    def _map(self, role: str) -> Function:
        return self._method(role)  # it asks by itself, for the user's functions

    def _shipped(self) -> dict[str, Function]:
        derivatives = {role: function for role, function in self._derivatives.items() if role != "value_and_grad"}
        return {"forward": self._main, **derivatives}

    def _hand_out(self, state: Any) -> Any:
        return state

    def _knows(self, point: Point, kind: str) -> bool:
        return kind in ("vjp", "jvp") and (point.gradient is not None or point.jacobian is not None)

    def _offers(self, what: str) -> bool:
        if what == "hvp":
            return "hvp" in self._derivatives
        return self._kind != "vjp" or "jvp" in self._derivatives

    def _called(self, role: str) -> str:
        return {"forward": "function", "adjoint": self._kind, "tangent": "jvp"}.get(role, role)

    def _cure(self, what: str) -> str:
        if what == "tangent":
            return (
                f"{self.label} has no jvp, which forward mode and some second derivatives need. Give "
                "differentiable(..., jvp=...), where jvp(x, t) returns the Jacobian times t."
            )
        form = "hvp(x, g, t) returns the derivative of vjp(x, g) along t"
        if self._kind in ("grad", "value_and_grad"):
            form = "hvp(x, t) returns the Hessian times t"
        return (
            f"{self.label} has no hvp, which a second derivative needs. Give differentiable(..., hvp=...), where "
            f"{form}; or leave out create_graph=True if the first derivative is enough."
        )

    def __reduce_ex__(self, protocol: Any) -> Any:
        module, name = getattr(self._main, "__module__", None), getattr(self._main, "__qualname__", "")
        if getattr(sys.modules.get(module or ""), name, None) is self:  # a decorator has taken the function's place
            return _find, (module, name)
        return super().__reduce_ex__(protocol)

    def _settle(self) -> None:
        """Take the direct way from now on, once it is known that nothing is to be watched."""
        if self._may_be_direct and not self._unused and self._watch.is_quiet:
            self.__dict__["_direct"] = True

    def _functions(self) -> dict[str, Any]:
        return {"function": self._main, **self._derivatives}

    def _watched(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        reading = [function for role, function in self._derivatives.items() if role != "value_and_grad"]
        return (self._main,), tuple(reading)

    def _default_shapes(self) -> list[tuple[int, ...]] | None:
        return [()] if self._scalar else None

    def _prepare(self) -> None:
        super()._prepare()
        self.__dict__["_direct"] = False
        options = (self.aux, self.batch, self.compute_dtype, self.finite, self.noise)
        self.__dict__["_may_be_direct"] = self._kind in ("grad", "value_and_grad") and not any(options)


def _find(module: str, name: str) -> Any:
    return getattr(importlib.import_module(module), name)


def _times(g: Array, gradient: Array) -> Array:
    product: Array = g.reshape(g.shape + (1,) * (gradient.ndim - g.ndim)) * gradient if g.ndim else g * gradient
    return product


def _flat(array: Array, lead: int) -> Array:
    return array.reshape(*array.shape[:lead], -1)
