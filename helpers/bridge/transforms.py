"""The function and its derivatives as Functions of torch that know each other's derivatives.

Each class computes one thing with NumPy, and says in torch's terms what its own derivatives are: always another of
these classes. So torch.func, forward mode and every order of differentiation find their way, down to the third
derivative, which nobody was given: it raises.

=============== ============== ================================================================
class           computes       its derivative for x; for the others
=============== ============== ================================================================
:class:`Value`  F(x)           :class:`Vjp` backward, :class:`Jvp` forward
:class:`Vjp`    Jᵀ g           :class:`Hvp`; for g :class:`Jvp`
:class:`Jvp`    J t            :class:`Bend` forward, :class:`Hvp` backward; for t :class:`Vjp`
:class:`Hvp`    Σ gₖ Hₖ t      none; for g :class:`Bend`, for t :class:`Hvp`
:class:`Bend`   (tᵀ Hₖ s)ₖ     none; for t and s :class:`Hvp`
=============== ============== ================================================================
"""

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch.autograd import Function

from .arrays import Array
from .call import Call
from .errors import MissingDerivative
from .evaluation import Evaluation
from .torch_state import is_legacy_batched, is_plain, put_back_legacy_batches, take_out_legacy_batches

Tensor = torch.Tensor
Group = list[Tensor]
THIRD = (
    "{label}: a third derivative was asked for, and hvp is the last that can be given. If you need only the second, "
    "leave out one create_graph=True, or one of the nested torch.func transforms."
)


class Level(Function):
    """What the five share: tensors in groups (x, g, t, s), and a vmap rule.

    ``forward(call, wanted, *tensors)``; ``wanted`` says for which of the real inputs a gradient is asked for.
    """

    groups: ClassVar[str]
    order: ClassVar[int] = 1

    @classmethod
    def of(cls, call: Any, wanted: Sequence[bool], *groups: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Apply the Function to groups of tensors."""
        groups = (_guarded(call, cls.order, groups[0]), *groups[1:])
        tensors = [tensor for group in groups for tensor in group]
        if not isinstance(call, Call):  # inside a compiled program
            traced: tuple[Tensor, ...] = call.apply(cls, wanted, tensors)
            return traced
        batched = [is_legacy_batched(tensor) for tensor in tensors]
        if any(batched):  # the older vmap has no rules, so we take its batch out and put it back
            tensors, level = take_out_legacy_batches(tensors, batched)
            lifted = call.lifted(any(batched[: len(call.layout.places)]))
            return put_back_legacy_batches(cls.of(lifted, wanted, tensors), level)
        found: tuple[Tensor, ...] = cls.apply(call, tuple(wanted), *tensors)  # type: ignore[no-untyped-call]
        return found

    @classmethod
    def split(cls, call: Call, tensors: Sequence[Any]) -> list[list[Any]]:
        """Return the tensors (or whatever stands for them) in their groups."""
        inputs, real = len(call.layout.places), len(call.real)
        fixed = {"x": inputs, "t": real, "s": real}
        fixed["g"] = len(tensors) - sum(fixed[group] for group in cls.groups if group != "g")
        found, rest = [], list(tensors)
        for group in cls.groups:
            found.append(rest[: fixed[group]])
            rest = rest[fixed[group] :]
        return found

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: object) -> None:
        """Keep what the derivatives need."""
        ctx.call, ctx.wanted, *tensors = inputs
        ctx.save_for_backward(*tensors)
        ctx.save_for_forward(*tensors)

    @classmethod
    def vmap(cls, info: Any, in_dims: tuple[int | None, ...], call: Call, wanted: Any, *tensors: Tensor) -> Any:
        """Make the batch a leading axis of every tensor."""
        dims = in_dims[2:]
        sample = any(dim is not None for dim in dims[: len(call.layout.places)])
        lifted = [
            tensor.expand(info.batch_size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
            for tensor, dim in zip(tensors, dims, strict=True)
        ]
        return cls.apply(call.lifted(sample), wanted, *lifted), 0  # type: ignore[no-untyped-call]


class Value(Level):
    """F(x)."""

    groups, order = "x", 0

    @staticmethod
    def forward(call: Call, wanted: Any, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Return the outputs."""
        return call.output_tensors(call.evaluation(tensors).outputs)

    @staticmethod
    def backward(ctx: Any, *gs: Tensor) -> tuple[Any, ...]:
        """Return Jᵀ g."""
        call, xs = ctx.call, ctx.saved_tensors
        wanted = [ctx.needs_input_grad[2:][index] for index in call.real]
        return None, None, *_in_places(call, wanted, Vjp.of(call, wanted, xs, gs))

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> tuple[Tensor, ...]:
        """Return J t."""
        call, xs = ctx.call, ctx.saved_tensors
        return Jvp.of(call, (), xs, _filled(call, xs, [tangents[2:][index] for index in call.real]))


class Vjp(Level):
    """Jᵀ g, for the wanted inputs."""

    groups = "xg"

    @staticmethod
    def forward(call: Call, wanted: Sequence[bool], *tensors: Tensor) -> tuple[Tensor, ...]:
        """Return the gradients."""
        xs, gs = Vjp.split(call, tensors)
        found = _solve(call, xs, "vjp", call.directions(gs), wanted=wanted)
        return call.input_tensors(found, [xs[index] for index in call.real])

    @staticmethod
    def backward(ctx: Any, *cs: Tensor) -> tuple[Any, ...]:
        """Return the second derivative along c for x, and J c for g."""
        call = ctx.call
        xs, gs = Vjp.split(call, ctx.saved_tensors)
        needs_x, needs_g = Vjp.split(call, ctx.needs_input_grad[2:])
        ts = _filled(call, xs, _spread(ctx.wanted, cs))
        for_x: list[Any] = [None] * len(xs)
        for_g: list[Any] = [None] * len(gs)
        if any(needs_x):
            for_x = _bent(call, needs_x, xs, gs, ts)
        if any(needs_g):
            for_g = list(Jvp.of(call, (), xs, ts))
        return None, None, *for_x, *for_g

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> tuple[Tensor, ...]:
        """Return how the gradient changes along tangents of x and g."""
        call = ctx.call
        xs, gs = Vjp.split(call, ctx.saved_tensors)
        of_x, of_g = Vjp.split(call, tangents[2:])
        of_x = [of_x[index] for index in call.real]
        parts = []
        if _any(of_x):
            parts.append(Hvp.of(call, ctx.wanted, xs, gs, _filled(call, xs, of_x)))
        if _any(of_g):
            parts.append(Vjp.of(call, ctx.wanted, xs, _zeros(gs, of_g)))
        return _sum(parts)


class Jvp(Level):
    """J t."""

    groups = "xt"

    @staticmethod
    def forward(call: Call, wanted: Any, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Return the tangents of the outputs."""
        xs, ts = Jvp.split(call, tensors)
        return call.output_tensors(_solve(call, xs, "jvp", call.directions(ts)))

    @staticmethod
    def backward(ctx: Any, *gs: Tensor) -> tuple[Any, ...]:
        """Return the second derivative along t for x, and Jᵀ g for t."""
        call = ctx.call
        xs, ts = Jvp.split(call, ctx.saved_tensors)
        needs_x, needs_t = Jvp.split(call, ctx.needs_input_grad[2:])
        for_x, for_t = [None] * len(xs), [None] * len(ts)
        if any(needs_x):
            for_x = _bent(call, needs_x, xs, gs, ts)
        if any(needs_t):
            for_t = _spread(needs_t, Vjp.of(call, needs_t, xs, gs))
        return None, None, *for_x, *for_t

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> tuple[Tensor, ...]:
        """Return how J t changes along tangents of x and t."""
        call = ctx.call
        xs, ts = Jvp.split(call, ctx.saved_tensors)
        of_x, of_t = Jvp.split(call, tangents[2:])
        of_x = [of_x[index] for index in call.real]
        parts = []
        if _any(of_x):
            parts.append(Bend.of(call, (), xs, ts, _filled(call, xs, of_x)))
        if _any(of_t):
            parts.append(Jvp.of(call, (), xs, _zeros(ts, of_t)))
        return _sum(parts)


class Hvp(Level):
    """Σ gₖ Hₖ t, for the wanted inputs."""

    groups, order = "xgt", 2

    @staticmethod
    def forward(call: Call, wanted: Sequence[bool], *tensors: Tensor) -> tuple[Tensor, ...]:
        """Return the products."""
        xs, gs, ts = Hvp.split(call, tensors)
        found = _solve(call, xs, "hvp", call.directions(gs), call.directions(ts), wanted=wanted)
        return call.input_tensors(found, [xs[index] for index in call.real])

    @staticmethod
    def backward(ctx: Any, *cs: Tensor) -> tuple[Any, ...]:
        """Return the derivatives for g and t; for x there is none."""
        call = ctx.call
        xs, gs, ts = Hvp.split(call, ctx.saved_tensors)
        needs_x, needs_g, needs_t = Hvp.split(call, ctx.needs_input_grad[2:])
        along = _filled(call, xs, _spread(ctx.wanted, cs))
        for_g = list(Bend.of(call, (), xs, ts, along)) if any(needs_g) else [None] * len(gs)
        for_t: list[Any] = [None] * len(ts)
        if any(needs_t):
            for_t = _spread(needs_t, Hvp.of(call, needs_t, xs, gs, along))
        return None, None, *_refused(xs, needs_x), *for_g, *for_t

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> tuple[Tensor, ...]:
        """Return how the product changes along tangents of g and t; for x there is none."""
        call = ctx.call
        xs, gs, ts = Hvp.split(call, ctx.saved_tensors)
        _, of_g, of_t = Hvp.split(call, tangents[2:])
        parts = []
        if _any(of_g):
            parts.append(Hvp.of(call, ctx.wanted, xs, _zeros(gs, of_g), ts))
        if _any(of_t):
            parts.append(Hvp.of(call, ctx.wanted, xs, gs, _zeros(ts, of_t)))
        return _sum(parts)


class Bend(Level):
    """tᵀ Hₖ s for each entry k of each output."""

    groups, order = "xts", 2

    @staticmethod
    def forward(call: Call, wanted: Any, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Return the numbers, in the shape of the outputs."""
        xs, ts, ss = Bend.split(call, tensors)
        return call.output_tensors(_solve(call, xs, "bend", call.directions(ts), call.directions(ss)))

    @staticmethod
    def backward(ctx: Any, *gs: Tensor) -> tuple[Any, ...]:
        """Return the derivatives for t and s; for x there is none."""
        call = ctx.call
        xs, ts, ss = Bend.split(call, ctx.saved_tensors)
        needs_x, needs_t, needs_s = Bend.split(call, ctx.needs_input_grad[2:])
        for_t: list[Any] = [None] * len(ts)
        for_s: list[Any] = [None] * len(ss)
        if any(needs_t):
            for_t = _spread(needs_t, Hvp.of(call, needs_t, xs, gs, ss))
        if any(needs_s):
            for_s = _spread(needs_s, Hvp.of(call, needs_s, xs, gs, ts))
        return None, None, *_refused(xs, needs_x), *for_t, *for_s

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> tuple[Tensor, ...]:
        """Return how the numbers change along tangents of t and s; for x there is none."""
        call = ctx.call
        xs, ts, ss = Bend.split(call, ctx.saved_tensors)
        _, of_t, of_s = Bend.split(call, tangents[2:])
        parts = []
        if _any(of_t):
            parts.append(Bend.of(call, (), xs, _zeros(ts, of_t), ss))
        if _any(of_s):
            parts.append(Bend.of(call, (), xs, ts, _zeros(ss, of_s)))
        return _sum(parts)


def vjp_with_graph(call: Call, evaluation: Evaluation, wanted: Sequence[bool], xs: Any, gs: Any) -> list[Any]:
    """Return Jᵀ g for every input, in a way that can be differentiated again."""
    return _in_places(call, wanted, Vjp.of(call.pin(evaluation), wanted, xs, gs))


def _solve(call: Call, xs: Sequence[Tensor], kind: str, *groups: Sequence[Array], **options: Any) -> list[Any]:
    return call.evaluation(xs).derivative(kind, call.axes, *groups, **options)


class Guard(Function):
    """x itself, for a computation whose derivative for x nobody can give: whoever asks for it is told.

    A backward does not know which of its gradients are wanted. torch's engine does: it comes here only if the one for x
    is.
    """

    @staticmethod
    def forward(message: str, x: Tensor) -> Tensor:
        """Return x."""
        return x.view_as(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: object) -> None:
        """Keep the message."""
        ctx.message = inputs[0]

    @staticmethod
    def backward(ctx: Any, *gs: Any) -> Any:
        """Raise."""
        raise MissingDerivative(ctx.message)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        """Raise."""
        raise MissingDerivative(ctx.message)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], message: str, x: Tensor) -> Any:
        """Return x, batched as it is."""
        return Guard.apply(message, x), in_dims[1]  # type: ignore[no-untyped-call]


def _guarded(call: Any, order: int, xs: Sequence[Tensor]) -> Sequence[Tensor]:
    """Return x so that a derivative that nobody can give is refused when it is asked for, and only then."""
    if order == 0 or (order == 1 and call.op._offers("hvp")) or (is_plain() and not torch.is_grad_enabled()):
        return xs
    message = call.op._cure("hvp") if order == 1 else THIRD.format(label=call.op.label)
    guard: Any = Guard.apply if isinstance(call, Call) else call.guard
    return [guard(message, x) if x.is_floating_point() else x for x in xs]


def _bent(call: Any, needs: Sequence[bool], xs: Sequence[Tensor], gs: Sequence[Tensor], ts: Group) -> list[Any]:
    """Return the second derivative along t for the inputs that need it."""
    if not call.op._offers("hvp"):
        return _refused(xs, needs)
    wanted = [needs[index] for index in call.real]
    return _in_places(call, wanted, Hvp.of(call, wanted, xs, gs, ts))


def _refused(xs: Sequence[Tensor], needs: Sequence[bool]) -> list[Any]:
    """Return something for a guard to refuse."""
    return [torch.zeros_like(x) if need else None for x, need in zip(xs, needs, strict=True)]


def _in_places(call: Call, wanted: Sequence[bool], found: Sequence[Tensor]) -> list[Any]:
    """Return gradients in the places of all inputs, None for those that have none."""
    places: list[Any] = [None] * len(call.layout.places)
    for index, gradient in zip(call.real, _spread(wanted, found), strict=True):
        places[index] = gradient
    return places


def _spread(wanted: Sequence[bool], found: Sequence[Tensor]) -> list[Any]:
    rest = iter(found)
    return [next(rest) if want else None for want in wanted]


def _filled(call: Call, xs: Sequence[Tensor], tangents: Sequence[Any]) -> Group:
    """Return tangents of the real inputs, zeros for None."""
    return _zeros([xs[index] for index in call.real], tangents)


def _zeros(like: Sequence[Tensor], tangents: Sequence[Any]) -> Group:
    return [torch.zeros_like(x) if t is None else t for x, t in zip(like, tangents, strict=True)]


def _any(tangents: Sequence[Any]) -> bool:
    return any(tangent is not None for tangent in tangents)


def _sum(parts: Sequence[tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
    return tuple(sum(rest, first) for first, *rest in zip(*parts, strict=True))
