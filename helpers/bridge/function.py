"""`differentiable`: the short form, for a function whose derivatives need nothing but its arguments."""

import contextlib
import itertools
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import DTypeLike

from ..noise import Draws, Factor, NoisyPair
from .arrays import Array, as_numbers
from .captured import captured_noise, captured_parameter, share_state
from .draws import Seed
from .eager import DTYPES, apply_one
from .evaluation import Evaluation, explain, fitting, one_for_each, run
from .external import ExternalFunction
from .torch_state import is_ordinary

Function = Callable[..., Any]


class Point:
    """Where a function was computed: its arguments, and what came with the value."""

    __slots__ = ("args", "gradient", "inputs", "jacobian", "kwargs", "lead", "outputs", "serial")

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any], inputs: list[Array], lead: int) -> None:
        self.args, self.kwargs, self.inputs, self.lead = args, kwargs, inputs, lead
        self.gradient: Any = None
        self.jacobian: list[list[Array]] | None = None
        self.outputs: list[Array] = []
        self.serial = 0


class FunctionOp(ExternalFunction):
    """What :func:`differentiable` returns: an ExternalFunction made of functions."""

    _direct: bool
    _may_be_direct: bool

    def __init__(self, fun: Function | None, derivatives: dict[str, Function], options: dict[str, Any]) -> None:
        self._fun, self._derivatives = fun, derivatives
        self._scalar = bool({"grad", "value_and_grad"} & set(derivatives))
        (self._kind,) = {"grad", "vjp", "jac", "value_and_grad"} & set(derivatives)
        self._main: Function = fun or derivatives["value_and_grad"]
        for name, value in options.items():
            setattr(self, name, value)
        self.name = self.name or getattr(self._main, "__name__", type(self._main).__name__)
        self.__doc__ = self._main.__doc__
        functions = [function for function in (fun, *derivatives.values()) if function is not None]
        self._stateful = self._kind != "value_and_grad" and share_state(functions)
        self._turn = _Turn()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the output for tensors, differentiably."""
        if len(args) == 1 and not kwargs and self._direct and is_ordinary(args[0]) and args[0].dtype in DTYPES:
            return apply_one(self, args[0])
        return super().__call__(*args, **kwargs)

    def _forward(self, args: tuple[Any, ...], kwargs: dict[str, Any], inputs: list[Array], lead: int) -> Any:
        point = Point(args, kwargs, inputs, lead)
        if self._stateful:
            with self._turn.lock:
                point.serial = self._turn.latest = next(self._turn.serials)
                found = run(self, self._called("forward"), self._main, *args, **kwargs)
        else:
            found = run(self, self._called("forward"), self._main, *args, **kwargs)
        if self._kind == "value_and_grad":
            found, point.gradient = self._pair(found, "(value, gradient)")
        y, aux = self._pair(found, "(value, aux)") if self.aux else (found, None)
        if self._kind in ("grad", "value_and_grad"):
            self._check_scalar(y, lead)
        if point.gradient is not None:
            gradients = one_for_each(self, point.gradient, inputs, "gradient")
            point.gradient = tuple(
                None if each is None else np.array(as_numbers(each, f"{self.label}: its gradient"))
                for each in gradients
            )
        elif self._kind == "jac":
            point.outputs = [np.asarray(each) for each in (y if isinstance(y, tuple) else (y,))]
        return y, point, aux

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
        self._check_scalar(found, 0)
        return as_numbers(found, f"{self.label}: its function"), gradient

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
            with self._solved_at(point):
                return self._derivatives["vjp"](*point.args, *gs, **point.kwargs)
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
            with self._solved_at(point):
                return self._derivatives["jvp"](*point.args, *ts, **point.kwargs)
        if self._kind == "jac":
            flat = [_flat(t, point.lead)[..., np.newaxis] for t in ts]
            return tuple(
                sum((block @ t)[..., 0] for block, t in zip(row, flat, strict=True)).reshape(y.shape)  # type: ignore[union-attr]
                for row, y in zip(self._jacobian(point), point.outputs, strict=True)
            )
        total: Any = 0.0
        for gradient, t in zip(self._gradients(point), ts, strict=True):
            if gradient is None:
                raise TypeError(f"{self.label}: its gradient holds None for an input that has a tangent.")
            total = total + np.sum(gradient * t, axis=tuple(range(point.lead, t.ndim)))
        return total

    def hvp(self, point: Point, *gs_and_ts: Array) -> Any:
        """Return the derivative of the adjoint along t."""
        function = self._derivatives["hvp"]
        if self._kind in ("vjp", "jac"):
            with self._solved_at(point):
                return function(*point.args, *gs_and_ts, **point.kwargs)
        g, *ts = gs_and_ts
        with self._solved_at(point):
            found = function(*point.args, *ts, **point.kwargs)
        products = one_for_each(self, found, point.inputs, "hvp")
        return tuple(_times(g, as_numbers(each, f"{self.label}: its hvp")) for each in products)

    def _gradients(self, point: Point) -> Sequence[Any]:
        """Return the gradient for each real input."""
        if point.gradient is not None:
            gradients: Sequence[Any] = point.gradient
            return gradients
        with self._solved_at(point):
            found = self._derivatives["grad"](*point.args, **point.kwargs)
        if type(found) is np.ndarray and len(point.inputs) == 1:
            return (found,)
        gradients = one_for_each(self, found, point.inputs, "grad")
        return [each if each is None else as_numbers(each, f"{self.label}: its grad") for each in gradients]

    def _jacobian(self, point: Point) -> list[list[Array]]:
        """Return the Jacobian as matrices, one for each output and input; computed once a point."""
        if point.jacobian is None:
            with self._solved_at(point):
                found = self._derivatives["jac"](*point.args, **point.kwargs)
            rows = found if isinstance(found, tuple) and len(point.outputs) > 1 else (found,)
            if len(rows) != len(point.outputs):
                raise ValueError(f"{self.label}: its jac must return one row for each of {len(point.outputs)} outputs.")
            point.jacobian = [
                [
                    self._matrix(block, y, x, point.lead)
                    for block, x in zip(one_for_each(self, row, point.inputs, "jac"), point.inputs, strict=True)
                ]
                for row, y in zip(rows, point.outputs, strict=True)
            ]
        return point.jacobian

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

    @contextlib.contextmanager
    def _solved_at(self, point: Point) -> Iterator[None]:
        """Bring an object that remembers its latest solve back to this point."""
        if not self._stateful:
            yield
            return
        with self._turn.lock:
            if self._turn.latest != point.serial:
                run(self, self._called("forward"), self._main, *point.args, **point.kwargs)
                self._turn.latest = point.serial
            yield

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

    def _hand_out(self, state: Any) -> Any:
        return state

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

    def _use_first(self, call: Any, tensors: Any) -> None:
        self._look_at_functions()
        super()._use_first(call, tensors)
        self.__dict__["_direct"] = self._may_be_direct and not self._unused

    def _ready_to_compile(self) -> None:
        super()._ready_to_compile()
        self._look_at_functions()

    def _look_at_functions(self) -> None:
        """Refuse tensors, and warn of noise, that the functions reach from outside."""
        for role, function in {"function": self._main, **self._derivatives}.items():
            if name := captured_parameter(function):
                raise TypeError(
                    f"{self.label}: its {role} reaches the tensor {name} from outside, whose gradient would be lost. "
                    f"Pass {name} as an argument of its own."
                )
            if source := captured_noise(function):
                warnings.warn(
                    f"{self.label}: its {role} draws from {source}. The bridge cannot repeat such a draw, so two "
                    "backward passes differ. Give the noiseless functions and noise=UniformFactor(0.5), rng=0.",
                    stacklevel=5,
                )

    def _remember(self, layout: Any, arrays: Any, evaluation: Any, axes: Any) -> None:
        if not self._scalar:
            super()._remember(layout, arrays, evaluation, axes)

    def _output_shapes(self, layout: Any, inputs: Any) -> list[tuple[int, ...]]:
        return [()] if self._scalar else super()._output_shapes(layout, inputs)

    def _prepare(self) -> None:
        super()._prepare()
        self.__dict__["_direct"] = False
        options = (self.aux, self.batch, self.compute_dtype, self.finite, self.noise)
        self.__dict__["_may_be_direct"] = (
            self._kind in ("grad", "value_and_grad") and not self._stateful and not any(options)
        )


class _Turn:
    """Who may use a solver that remembers, and what it solved last."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.serials = itertools.count(1)
        self.latest = 0

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return _Turn, ()


def differentiable(
    fun: Function | None = None,
    *,
    grad: Function | None = None,
    vjp: Function | None = None,
    jac: Function | None = None,
    value_and_grad: Function | None = None,
    jvp: Function | None = None,
    hvp: Function | None = None,
    aux: bool = False,
    batch: Literal["loop", "vectorized"] | None = None,
    signature: str | None = None,
    compute_dtype: DTypeLike | None = None,
    finite: Literal["raise"] | None = None,
    check: Literal["first"] | None = None,
    noise: Factor | None = None,
    rng: Seed | None = None,
    draws: Draws = "evaluation",
    out_shape: Any = None,
    name: str | None = None,
) -> Any:
    r"""Make an operation of torch from a NumPy function and its derivative.

    The result takes tensors, and behaves as torch's own operations do: ``backward``, ``torch.func``, forward mode,
    ``vmap``, checkpoints, ``torch.compile``. dtype and device follow the input.

    Parameters
    ----------
    fun : callable
        NumPy code. Tensors in the call arrive as read-only arrays; other arguments arrive as they are. It returns a
        number or an array; with ``vjp`` or ``jac`` also a tuple of them, for several outputs.
    grad : callable, (x, ...) -> gradient
        For a ``fun`` that returns one number. It is called with the same arguments, and returns an array of the shape
        of x; for several tensors, a tuple of arrays.
    vjp : callable, (x, ..., g) -> gradient
        For any output: the adjoint. ``g`` has the shape of the output (one ``g`` for each output), and the result is
        the transposed Jacobian times ``g``.
    jac : callable, (x, ...) -> Jacobian
        For small outputs: an array of shape ``output.shape + x.shape``; for several tensors, a tuple of them.
    value_and_grad : callable, (x, ...) -> (value, gradient)
        Instead of ``fun`` and ``grad``, where one computation gives both.
    jvp : callable, (x, ..., t) -> tangent, optional
        With ``vjp``: the Jacobian times ``t``. Forward mode needs it, unless the output is one number.
    hvp : callable, optional
        For second derivatives. With ``grad`` or ``value_and_grad``: ``hvp(x, ..., t)``, the Hessian times ``t``
        (SciPy's ``hessp``). With ``vjp`` or ``jac``: ``hvp(x, ..., g, t)``, the derivative of ``vjp`` along ``t``.
        For several tensors there is one ``t`` for each, and the result is a tuple.
    aux : bool
        ``fun`` returns ``(output, aux)``, and so does the operation. ``aux`` may be anything; it has no gradient.
    batch : {None, "loop", "vectorized"}
        Whether more axes than one sample has are a batch, and whether the functions are called once for each sample,
        or once with the whole batch.
    signature : str
        The axes of one sample, as NumPy writes them: ``"(n)->()"`` (the default for one tensor), ``"(n),(k)->(m)"``.
    compute_dtype : dtype
        What the functions get and give, such as ``"float64"``, whatever the dtype of the tensors.
    finite : {None, "raise"}
        Raise FloatingPointError for NaN or Inf in a value or a derivative.
    check : {None, "first"}
        Compare the derivatives with finite differences when the operation is used first; see ``verify``.
    noise : UniformFactor, GaussianFactor or the like
        Multiply the value and its derivatives by random factors with mean 1, one for each sample. ``fun`` and its
        derivatives are the noiseless ones. The draw of an evaluation is kept for all of its derivatives.
    rng : int, numpy.random.SeedSequence or numpy.random.Generator
        The seed of the noise.
    draws : {"evaluation", "independent", "step"}
        Value and derivatives of an evaluation share a draw; have one each; or share one with all evaluations until
        ``advance()``.
    out_shape : tuple, or callable from the shapes of the inputs to a tuple
        The shape of the output. Only ``torch.compile`` asks for it, of an operation that it meets uncalled.
    name : str
        The name in messages; the name of ``fun`` by default.

    Returns
    -------
    ExternalFunction
        A callable. Besides the call it has ``verify(x)``, ``advance()`` and ``spawn(count)``. It can be pickled and
        copied if the functions can. Without ``fun`` and ``value_and_grad``, a decorator.

    Raises
    ------
    TypeError, ValueError
        If the derivatives do not go together. When it is used: if an argument or a result does not fit, with the
        reason; what the functions raise comes through unchanged, with a note.
    MissingDerivative
        When it is used: if a derivative is asked for that was not given.

    Examples
    --------
    A function of one vector, with its gradient:

    >>> import torch
    >>> rosen = differentiable(
    ...     lambda x: (1 - x[0]) ** 2 + 5 * (x[1] - x[0] ** 2) ** 2,
    ...     grad=lambda x: np.array([-2 * (1 - x[0]) - 20 * x[0] * (x[1] - x[0] ** 2), 10 * (x[1] - x[0] ** 2)]),
    ... )
    >>> x = torch.tensor([0.1, 0.1], dtype=torch.float64, requires_grad=True)
    >>> rosen(x).backward()
    >>> x.grad
    tensor([-1.9800,  0.9000], dtype=torch.float64)

    A linear solve with its adjoint; two inputs, so the adjoint returns two gradients:

    >>> def solve(A, b):
    ...     return np.linalg.solve(A, b)
    >>> def adjoint(A, b, g):
    ...     w = np.linalg.solve(A.T, g)
    ...     return -np.outer(w, solve(A, b)), w
    >>> op = differentiable(solve, vjp=adjoint)
    >>> A = torch.tensor([[2.0, 1.0], [0.0, 4.0]], dtype=torch.float64, requires_grad=True)
    >>> b = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
    >>> torch.autograd.gradcheck(op, (A, b))
    True

    As a decorator, with the Hessian-vector product:

    >>> @differentiable(grad=lambda x: 4 * x**3, hvp=lambda x, t: 12 * x**2 * t)
    ... def quartic(x):
    ...     return np.sum(x**4)
    >>> torch.func.hessian(quartic)(torch.tensor([1.0, 2.0], dtype=torch.float64))
    tensor([[12.,  0.],
            [ 0., 48.]], dtype=torch.float64)
    """
    given = {"grad": grad, "vjp": vjp, "jac": jac, "value_and_grad": value_and_grad, "jvp": jvp, "hvp": hvp}
    derivatives = {role: function for role, function in given.items() if function is not None}
    options = {
        "aux": aux,
        "batch": batch,
        "signature": signature,
        "compute_dtype": compute_dtype,
        "finite": finite,
        "check": check,
        "noise": noise,
        "rng": rng,
        "draws": draws,
        "out_shape": out_shape,
        "name": name,
    }
    _check_functions(fun, derivatives)
    if fun is None and value_and_grad is None:
        return lambda function: differentiable(function, **derivatives, **options)  # type: ignore[arg-type]
    return FunctionOp(fun, derivatives, options)


def _check_functions(fun: Function | None, derivatives: dict[str, Function]) -> None:
    main = [role for role in ("grad", "vjp", "jac", "value_and_grad") if role in derivatives]
    if not main:
        raise TypeError("differentiable needs the derivative: grad=, vjp=, jac= or value_and_grad=.")
    if len(main) > 1:
        raise TypeError(f"differentiable takes one of grad, vjp, jac and value_and_grad; got {' and '.join(main)}.")
    if main == ["value_and_grad"] and fun is not None:
        raise TypeError("value_and_grad= gives the value too: leave out the first argument, or give grad= instead.")
    if "jvp" in derivatives and main != ["vjp"]:
        raise TypeError(f"jvp= goes with vjp=; with {main[0]}= the bridge has all that it needs.")
    for role, function in {"fun": fun, **derivatives}.items():
        if function is not None and not callable(function):
            raise TypeError(f"{role} must be a function; got {type(function).__name__}. Pass f itself, not f(x).")
        if isinstance(getattr(function, "__self__", None), NoisyPair):
            raise TypeError(
                f"{role} belongs to a NoisyPair, whose draws cannot be repeated in a second backward. Give the "
                "noiseless functions, and noise=UniformFactor(0.5), rng=0, draws=... to differentiable."
            )


def _times(g: Array, gradient: Array) -> Array:
    product: Array = g.reshape(g.shape + (1,) * (gradient.ndim - g.ndim)) * gradient if g.ndim else g * gradient
    return product


def _flat(array: Array, lead: int) -> Array:
    return array.reshape(*array.shape[:lead], -1)
