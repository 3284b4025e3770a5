"""`ExternalFunction`: a NumPy function with its adjoint, as an operation of torch."""

import abc
import copy
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from numpy.typing import DTypeLike

from ..noise import Draws, Factor
from ..states import hand_out, keep
from .arguments import Layout, in_order, layout_in_order, split
from .arrays import Array, digest, real_dtype
from .batches import Signature, to_batch
from .call import Call
from .captured import look_at
from .compiled import call_compiled, register
from .draws import NoiseSource, Seed, noise_source
from .eager import Several
from .evaluation import run
from .executors import workers_of
from .first_use import verify
from .questions import current
from .shapes import OutputShapes
from .torch_state import is_plain, is_recording
from .transforms import Value
from .turn import Watch
from .workers import Traffic, Workers

Tensor = torch.Tensor


class _ReadyWhenBuilt(abc.ABCMeta):
    """Prepares and closes an instance after its ``__init__``, whatever a subclass does there."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        instance = super().__call__(*args, **kwargs)
        instance._prepare()
        return instance


class ExternalFunction(metaclass=_ReadyWhenBuilt):
    """Code that knows no tensors, as an operation of torch. Write a subclass with ``forward`` and ``adjoint``.

    Use it when the adjoint needs what the solve has computed: a factorisation, a trajectory, a tape. Where it needs
    only the inputs, :func:`differentiable` is shorter.

    Methods that you write. All arguments and results are NumPy arrays, or numbers.

    ``forward(self, *args, **kwargs) -> (y, state)``
        Solve. Arguments that are tensors in the call arrive as read-only arrays; all others arrive as they are.
        ``y`` is a number, an array, or a tuple of these. ``state`` is whatever ``adjoint`` will need; return it, and
        keep nothing on ``self``. With ``aux = True`` return ``(y, state, aux)``.
    ``adjoint(self, state, *g) -> gradients``
        The transposed Jacobian times ``g``, where ``g`` has the shape of ``y`` (one ``g`` for each output). Return one
        array for each real tensor argument, with its shape; None for one that never needs a gradient.
    ``tangent(self, state, *t) -> tangents`` (optional)
        The Jacobian times ``t``, for forward mode and some second derivatives.
    ``hvp(self, state, *g, *t) -> products`` (optional)
        The derivative of the adjoint along ``t``, for second derivatives.

    Options: attributes of the class, or set in ``__init__`` (an executor always there: a class travels to workers).
    See :func:`differentiable` for what each does.
    An instance cannot be changed after its ``__init__``: a state kept on it would be that of the latest solve. If
    ``forward`` changes an object that the adjoint reads, such as a solver of yours, it is called again where another
    call came between. A solve that you call yourself, and state that compiled code keeps, cannot be seen.

    Raises
    ------
    MissingDerivative
        If torch asks for a derivative that you did not write.
    TypeError, ValueError
        If an argument or a result does not fit; the message says which and why. What your own code raises comes
        through unchanged, with a note.

    Examples
    --------
    Solve K u = f for a diagonal K. The adjoint uses the solution u.

    >>> import torch
    >>> class Diagonal(ExternalFunction):
    ...     def forward(self, k):
    ...         u = 1 / k
    ...         return u, (k, u)
    ...     def adjoint(self, state, g):
    ...         k, u = state
    ...         return -g * u / k
    >>> k = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
    >>> Diagonal()(k).sum().backward()
    >>> k.grad
    tensor([-1.0000, -0.2500], dtype=torch.float64)
    """

    aux: bool = False
    batch: Literal["loop", "vectorized"] | None = None
    signature: str | None = None
    compute_dtype: DTypeLike | None = None
    finite: Literal["raise"] | None = None
    check: Literal["first"] | None = None
    noise: Factor | None = None
    rng: Seed | None = None
    draws: Draws = "evaluation"
    out_shape: Any = None
    name: str | None = None
    executor: Executor | None = None
    state: Literal["travel", "recompute"] = "travel"
    timeout: float | None = None

    _closed: ClassVar[bool] = False
    _has_state: ClassVar[bool] = True
    _noise: NoiseSource | None
    _number: str
    _own: dict[str, Any]
    _numpy_dtype: "np.dtype[np.generic] | None"
    _shapes: OutputShapes
    _signature: Signature | None
    _unused: bool
    _watch: Watch
    _workers: Workers | None

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Return the output and the state."""
        raise NotImplementedError(f"{self.label} has no forward. Write forward(self, x), which returns (y, state).")

    def adjoint(self, state: Any, *gs: Any) -> Any:
        """Return the transposed Jacobian times g."""
        raise NotImplementedError(
            f"{self.label} has no adjoint. Write adjoint(self, state, g), which returns the gradient."
        )

    def tangent(self, state: Any, *ts: Any) -> Any:
        """Return the Jacobian times t. Optional."""
        raise NotImplementedError

    def hvp(self, state: Any, *gs_and_ts: Any) -> Any:
        """Return the derivative of the adjoint along t. Optional."""
        raise NotImplementedError

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the output for tensors, differentiably.

        Returns
        -------
        A tensor, or a tuple of tensors if ``forward`` returns a tuple; with ``aux``, a pair of that and ``aux``.
        Its dtype and device are those of the real tensor arguments.
        """
        if torch.compiler.is_compiling() or is_recording():
            return call_compiled(self, args, kwargs)
        if kwargs:
            args, kwargs = in_order(self._solver, args, kwargs)
        layout, tensors = split(self.label, args, kwargs)
        axes: tuple[bool, ...] = ()
        if self.batch is not None:
            depth, tensors = self._to_batch(tensors)
            axes = (True,) * depth
        call = Call(self, layout, tensors, axes, self._draw(tensors))
        if self._unused:
            self._use_first(call, tensors)
        if is_plain():
            output = Several.apply(call, *tensors)  # type: ignore[no-untyped-call]
        else:
            outputs = Value.apply(call, (), *tensors)  # type: ignore[no-untyped-call]
            output = outputs[0] if call.seen.single else outputs
        return (output, call.take_aux()) if self.aux else output

    def verify(self, *args: Any, **kwargs: Any) -> str:
        """Compare every derivative with finite differences, along one random direction near the given tensors.

        Returns
        -------
        str
            What was compared, with the numbers.

        Raises
        ------
        WrongDerivative
            If one does not agree.

        Examples
        --------
        >>> import torch
        >>> class Square(ExternalFunction):
        ...     def forward(self, x):
        ...         return x @ x, x
        ...     def adjoint(self, x, g):
        ...         return 2 * g * x
        >>> print(Square().verify(torch.tensor([1.0, 2.0])))
        Square: its adjoint agrees with finite differences: 0.558631 and 0.558631.
        """
        if kwargs:
            args, kwargs = in_order(self._solver, args, kwargs)
        layout, tensors = split(self.label, args, kwargs)
        depth = 0
        if self.batch is not None:
            depth, tensors = self._to_batch(tensors)
        return verify(self, layout, tensors, depth)

    def advance(self) -> None:
        """Begin a new draw of the noise, with ``draws="step"``.

        Raises
        ------
        ValueError
            If there is no noise that waits for it.
        """
        if self._noise is None or self._noise.draws != "step":
            raise ValueError(f'{self.label}: advance() goes with noise= and draws="step".')
        self._noise.advance()

    def spawn(self, count: int) -> list[Self]:
        """Return ops like this one whose noise has draws of its own, such as one for each worker process.

        In the workers of a torch DataLoader the draws also follow the seed of the loader, so each epoch has its own.

        Raises
        ------
        ValueError
            If there is no noise.
        """
        if self._noise is None:
            raise ValueError(f"{self.label} has no noise: send the op itself to every worker.")
        ops = []
        for source in self._noise.spawn(count):
            op = copy.copy(self)
            op.__dict__["_noise"] = source
            ops.append(op)
        return ops

    @property
    def traffic(self) -> Traffic:
        """What travelled to the workers of ``executor=`` and back for the latest map; ValueError without workers."""
        if self._workers is None:
            raise ValueError(f"{self.label} has no executor=, so nothing travels.")
        return self._workers.traffic

    @property
    def _solver(self) -> Any:
        return self.forward

    @property
    def label(self) -> str:
        """The name in messages."""
        return self.name or type(self).__name__

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.label}>"

    # --- what the bridge itself calls

    def _prepare(self) -> None:
        """Read the options once, and close the instance."""
        if self.batch not in (None, "loop", "vectorized"):
            raise ValueError(f'{self.label}: batch must be None, "loop" or "vectorized"; got {self.batch!r}.')
        if self.finite not in (None, "raise"):
            raise ValueError(f'{self.label}: finite must be None or "raise"; got {self.finite!r}.')
        if self.check not in (None, "first"):
            raise ValueError(f'{self.label}: check must be None or "first"; got {self.check!r}.')
        own = self.__dict__
        own["_own"] = {key: value for key, value in own.items() if key != "executor"}
        own["_watch"] = Watch(*self._watched())
        own["_noise"] = noise_source(self.noise, self.rng, self.draws)
        own["_signature"] = None if self.signature is None else Signature.parse(self.signature)
        own["_numpy_dtype"] = None if self.compute_dtype is None else real_dtype(self.compute_dtype)
        own["_unused"] = True
        own["_number"] = register(self)
        own["_shapes"] = OutputShapes(self.label, self.out_shape, self._signature, self._default_shapes())
        own["_workers"] = workers_of(self)
        own["_closed"] = True

    def __setattr__(self, name: str, value: Any) -> None:
        if self._closed:
            raise AttributeError(
                f"{self.label} cannot be changed after its __init__ (here: {name}). Return what the adjoint needs as "
                "the state: on self it would be that of the latest solve, not of the one that is differentiated."
            )
        super().__setattr__(name, value)

    def __getstate__(self) -> dict[str, Any]:
        here = ("_number", "_unused", "_closed", "_workers", "executor")  # an executor does not travel
        return {key: value for key, value in self.__dict__.items() if key not in here}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _unused=True, _number=register(self), _workers=None, _closed=True)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        new = type(self).__new__(type(self))
        memo[id(self)] = new
        return self._dressed(new, {key: copy.deepcopy(value, memo) for key, value in self.__getstate__().items()})

    def __copy__(self) -> Self:
        return self._dressed(type(self).__new__(type(self)), self.__getstate__())

    def _dressed(self, new: Self, state: dict[str, Any]) -> Self:
        """Give a copy its state, and the executor of this one."""
        new.__setstate__(state)
        if self._workers is not None:
            new.__dict__["executor"] = self.executor
            new.__dict__["_workers"] = workers_of(new)
        return new

    def _forward(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], inputs: list[Array], lead: int, with_gradient: bool
    ) -> Any:
        """Return the output, the state and aux."""
        found = run(self, "forward", self._map("forward"), *args, **kwargs)
        wanted = 2 + self.aux
        if not isinstance(found, tuple) or len(found) != wanted:
            got = f"a tuple of {len(found)}" if isinstance(found, tuple) else type(found).__name__
            raise TypeError(f"{self.label}: its forward must return (y, state{', aux' * self.aux}); it returned {got}.")
        return found[0], keep(found[1]), keep(found[2]) if self.aux else None

    def _map(self, role: str) -> Callable[..., Any]:
        """Return what computes a role: a method of the user's, or the way to ask a worker for it."""
        questions = current()
        if questions is None:
            return self._method(role)
        return lambda *args, **kwargs: questions.ask((role, args, kwargs))[0]

    def _method(self, role: str) -> Callable[..., Any]:
        return getattr(self, role)  # type: ignore[no-any-return]

    def _shipped(self) -> dict[str, Callable[..., Any]]:
        """Return the functions that workers need."""
        roles = ["forward", "adjoint", *(role for role in ("tangent", "hvp") if self._offers(role))]
        return {role: self._method(role) for role in roles}

    def _hand_out(self, state: Any) -> Any:
        return hand_out(state)

    def _knows(self, state: Any, kind: str) -> bool:
        """Say whether a linear map needs no function of the user's: the solve has brought the derivative."""
        return False

    def _offers(self, what: str) -> bool:
        return getattr(type(self), what) is not getattr(ExternalFunction, what)

    def _called(self, role: str) -> str:
        """Return what the user calls a method of ours."""
        return role

    def _cure(self, what: str) -> str:
        """Return the message for a missing derivative."""
        if what == "tangent":
            return (
                f"{self.label} has no tangent, which forward mode and some second derivatives need. Write "
                "tangent(self, state, t), which returns the Jacobian times t."
            )
        return (
            f"{self.label} has no hvp, which a second derivative needs. Write hvp(self, state, g, t), which returns "
            "the derivative of the adjoint along t; or leave out create_graph=True if the first derivative is enough."
        )

    def _draw(self, tensors: tuple[Tensor, ...]) -> int | None:
        if self._noise is None:
            return None
        plain = is_plain() and not any(tensor.is_meta for tensor in tensors)
        return self._noise.index(digest(tensors) if plain else b"")

    def _in_order(self, layout: Layout) -> Layout:
        return layout_in_order(self.label, self._solver, layout)

    def _to_batch(self, tensors: tuple[Tensor, ...]) -> tuple[int, tuple[Tensor, ...]]:
        return to_batch(self.label, self._signature, tensors)

    def _default_shapes(self) -> list[tuple[int, ...]] | None:
        return None

    def _ready_to_compile(self) -> None:
        """Do now what a first call does, since a compiled program does not."""
        if self.aux:
            raise TypeError(f"{self.label}: torch.compile lets only tensors through, and aux=True gives other things.")
        if self._unused and self.check == "first":
            raise RuntimeError(f'{self.label}: check="first" needs a first call that is not compiled.')
        look_at(self.label, self._functions())

    def _watched(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Return the code that solves and the derivatives, each with what else it reaches."""
        kinds = [kind for kind in type(self).__mro__ if kind.__module__ not in (__name__, "builtins", "abc")]
        own = (self._own, *kinds)
        return (*own, type(self).forward), (*own, type(self).adjoint, type(self).tangent, type(self).hvp)

    def _functions(self) -> dict[str, Any]:
        """Return the user's code, by what it is called."""
        names = ["forward", "adjoint", *(name for name in ("tangent", "hvp") if self._offers(name))]
        return {name: getattr(type(self), name) for name in names} | {"self": self._own}

    def _use_first(self, call: Call, tensors: tuple[Tensor, ...]) -> None:
        look_at(self.label, self._functions())
        if self.check == "first":
            if not any(tensor.requires_grad for tensor in tensors) and is_plain():
                return
            if not is_plain():
                raise RuntimeError(
                    f'{self.label}: check="first" needs a first call outside torch.func. Call {self.label}.verify(x).'
                )
            verify(self, call.layout, tensors, len(call.axes))
        self.__dict__["_unused"] = False
