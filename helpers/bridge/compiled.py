"""The way under ``torch.compile``: custom ops that a compiled program can hold.

A compiler runs our Python once, with tensors that have shapes and no numbers, and writes down the ops that it meets. So
the NumPy code must hide inside an op. One op computes the value; the other computes a linear map of
:mod:`.transforms`, whose rules for derivatives serve here too. The ops find the function by a key, and the evaluation
by a ticket, which travels through the program as a tensor: the index of the noise, and a number under which the solved
evaluation waits for its gradient.
"""

import itertools
import secrets
import weakref
from collections import OrderedDict
from collections.abc import Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch

from .arguments import Layout, split
from .call import Call, Seen
from .torch_state import SingleLevelFunction, below_this_level, constant_for_compilers, single_level_functions
from .transforms import Bend, Guard, Hvp, Jvp, Level, Value, Vjp

if TYPE_CHECKING:
    from .external import ExternalFunction

Tensor = torch.Tensor
SPACE = "bring_your_own_gradient"
CONSTANTS = (bool, int, float, str, type(None))
WAITING = 4  # solved evaluations that wait for their gradient; a solver's state may be large

_library: Any = torch.library.Library(SPACE, "DEF")  # type: ignore[no-untyped-call]
_library.define("value(Tensor[] xs, str key, int[] axes) -> Tensor[]")
_library.define(
    "level(str name, Tensor[] tensors, Tensor ticket, str key, int[] axes, bool[] wanted) -> Tensor[]",
)
_library.define("guard(Tensor x, str message) -> Tensor")
_value_op, _level_op = torch.ops.bring_your_own_gradient.value, torch.ops.bring_your_own_gradient.level

_ops: "weakref.WeakValueDictionary[str, ExternalFunction]" = weakref.WeakValueDictionary()
_layouts: dict[str, Layout] = {}
_calls, _tickets = itertools.count(1), itertools.count(1)
_waiting: "OrderedDict[int, Seen]" = OrderedDict()


def register(op: "ExternalFunction") -> str:
    """Give an op the name by which compiled programs find it."""
    name = secrets.token_hex(8)  # a program of another process must not find this op under another's name
    _ops[name] = op
    return name


def call_compiled(op: "ExternalFunction", args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Compute the output by custom op. A compiler reads this function, so it is written in the words that it knows."""
    if not torch.compiler.is_compiling():
        layout, given = split(op.label, args, kwargs)  # it refuses what does not fit, and keeps arrays
        args, kwargs = layout.fill(given)
    tensors = [each for each in args if isinstance(each, Tensor)]
    tensors += [each for each in kwargs.values() if isinstance(each, Tensor)]
    places: list[Any] = [place for place, each in enumerate(args) if isinstance(each, Tensor)]
    places += [name for name, each in kwargs.items() if isinstance(each, Tensor)]
    fixed = tuple([None if isinstance(each, Tensor) else _constant(op, each) for each in args])
    named = {name: None if isinstance(each, Tensor) else _constant(op, each) for name, each in kwargs.items()}
    key = make_key(op._number, fixed, named, tuple(places))
    if not any(each.is_floating_point() for each in tensors) or any(each.is_complex() for each in tensors):
        raise TypeError(f"{op.label} needs a tensor of real numbers, and takes no complex one.")
    depth = 0
    if op.batch is not None:
        depth, stretched = op._to_batch(tuple(tensors))
        tensors = list(stretched)
    *outputs, _ = _value_op(tensors, key, [1] * depth)
    return outputs[0] if len(outputs) == 1 and returns_one(key) else tuple(outputs)


def _constant(op: "ExternalFunction", value: Any) -> Any:
    """Return an argument that is no tensor as a constant of the program."""
    if not torch.compiler.is_compiling():
        return value
    if not isinstance(value, CONSTANTS):
        raise TypeError(
            f"{op.label}: inside torch.compile an argument is a tensor or a constant, and this one is neither, such as "
            "an array. Pass torch.from_numpy(array)."
        )
    if isinstance(value, int):
        (value,) = tuple({value: 0})  # as a key, a whole number becomes a constant; otherwise torch lets it vary
    return value


@constant_for_compilers
def make_key(number: str, fixed: tuple[Any, ...], named: dict[str, Any], places: tuple[Any, ...]) -> str:
    """Return the text by which a compiled program finds the function and the arguments that are no tensors."""
    op, layout = _ops[number], Layout(fixed, named, places)
    op._ready_to_compile()
    layout = op._in_order(layout)
    alike = not op._noise and all(isinstance(each, CONSTANTS) for each in [*fixed, *named.values()])
    twin = "" if alike else f"|{next(_calls)}"  # or two draws, or two arrays that print alike, are taken for one
    key = f"{number}|{layout!r}{twin}"
    _layouts[key] = layout
    return key


@constant_for_compilers
def returns_one(key: str) -> bool:
    """Say whether the function returns one output, not a tuple of them."""
    return _op_of(key)._shapes.single


def _op_of(key: str) -> "ExternalFunction":
    op = _ops.get(key.partition("|")[0])
    if op is None or key not in _layouts:
        raise RuntimeError(
            "This program calls an op of the bridge that is not there: it was made in another process, or the op was "
            "deleted. Compile it here, and keep the op."
        )
    return op


class TracedCall:
    """One call inside a program: as much of :class:`~helpers.bridge.call.Call` as the rules for derivatives need."""

    def __init__(self, key: str, axes: Sequence[int], xs: Sequence[Tensor], ticket: Tensor | None = None) -> None:
        self.key, self.axes, self.ticket = key, list(axes), ticket
        self.op, self.layout = _op_of(key), _layouts[key]
        self.real = [place for place, x in enumerate(xs) if x.is_floating_point()]

    def apply(self, level: type[Level], wanted: Sequence[bool], tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Apply a level by custom op."""
        return tuple(_level_op(level.__name__, list(tensors), self.ticket, self.key, self.axes, list(wanted)))

    def guard(self, message: str, x: Tensor) -> Tensor:
        """Return x, with a derivative that raises."""
        guarded: Tensor = torch.ops.bring_your_own_gradient.guard(x, message)
        return guarded


# --- what the ops compute


@torch.library.impl(_library, "value", "CompositeExplicitAutograd")
def _compute_value(xs: list[Tensor], key: str, axes: list[int]) -> list[Tensor]:
    op = _op_of(key)
    draw = op._draw(tuple(xs))
    call, ticket = Call(op, _layouts[key], xs, tuple(map(bool, axes)), draw), next(_tickets)
    expected = [each.shape for each in _empty_outputs(xs, key, axes)]
    outputs = Value.forward(call, (), *xs)
    if [each.shape for each in outputs] != expected:
        raise ValueError(
            f"{op.label}: the program was compiled for outputs of shape {expected}, and the function returned "
            f"{[each.shape for each in outputs]}. Mend out_shape=, or do not compile a function whose shapes vary."
        )
    _waiting[ticket] = call.seen
    if len(_waiting) > WAITING:
        _waiting.popitem(last=False)
    return [*outputs, torch.tensor([call.draw, ticket], device="cpu")]


@torch.library.impl(_library, "level", "CompositeExplicitAutograd")
def _compute_level(
    name: str, tensors: list[Tensor], ticket: Tensor, key: str, axes: list[int], wanted: list[bool]
) -> list[Tensor]:
    layout = _layouts[key]
    draw, number = ticket.tolist()
    call = Call(_op_of(key), layout, tensors[: len(layout.places)], tuple(map(bool, axes)), draw)
    call.seen = _waiting.pop(number, call.seen)
    return list(LEVELS[name].forward(call, tuple(wanted), *tensors))


@torch.library.impl(_library, "guard", "CompositeExplicitAutograd")
def _compute_guard(x: Tensor, message: str) -> Tensor:
    return x.clone()


# --- their shapes


@torch.library.register_fake(f"{SPACE}::value", lib=_library)  # type: ignore[untyped-decorator]
def _shape_of_value(xs: list[Tensor], key: str, axes: list[int]) -> list[Tensor]:
    return [*_empty_outputs(xs, key, axes), torch.empty(2, dtype=torch.int64, device="cpu")]


@torch.library.register_fake(f"{SPACE}::level", lib=_library)  # type: ignore[untyped-decorator]
def _shape_of_level(
    name: str, tensors: list[Tensor], ticket: Tensor, key: str, axes: list[int], wanted: list[bool]
) -> list[Tensor]:
    xs = tensors[: len(_layouts[key].places)]
    if name in ("Jvp", "Bend"):
        return _empty_outputs(xs, key, axes)
    real = [x for x in xs if x.is_floating_point()]
    return [torch.empty_like(x) for x, want in zip(real, wanted, strict=True) if want]


@torch.library.register_fake(f"{SPACE}::guard", lib=_library)  # type: ignore[untyped-decorator]
def _shape_of_guard(x: Tensor, message: str) -> Tensor:
    return torch.empty_like(x)


def _empty_outputs(xs: list[Tensor], key: str, axes: list[int]) -> list[Tensor]:
    call = Call(_op_of(key), _layouts[key], xs)
    lead = tuple(xs[call.real[0]].shape[: len(axes)])
    shapes = call.op._shapes.of([tuple(x.shape[len(axes) :]) for x in xs])
    return [torch.empty(lead + shape, dtype=call.dtype, device=call.device) for shape in shapes]


# --- their derivatives


class TracedValue(SingleLevelFunction):
    """The value in a program, with the ticket as its last output."""

    @staticmethod
    def forward(call: TracedCall, *xs: Tensor) -> tuple[Tensor, ...]:
        """Go on below autograd."""
        with below_this_level():
            return tuple(_value_op(list(xs), call.key, call.axes))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        """Keep inputs and ticket."""
        ctx.call = inputs[0]
        ctx.mark_non_differentiable(output[-1])
        ctx.save_for_backward(*inputs[1:], output[-1])
        ctx.save_for_forward(*inputs[1:], output[-1])

    @staticmethod
    def backward(ctx: Any, *gs: Tensor) -> tuple[Any, ...]:
        """Use the rule of Value."""
        return Value.backward(_as_level(ctx, (), (False, *ctx.needs_input_grad)), *gs[:-1])[1:]

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> tuple[Any, ...]:
        """Use the rule of Value."""
        return (*Value.jvp(_as_level(ctx, (), ()), None, *tangents), None)


def _traced(level: type[Level]) -> type[SingleLevelFunction]:
    class Traced(SingleLevelFunction):
        @staticmethod
        def forward(call: TracedCall, wanted: tuple[bool, ...], *tensors: Tensor) -> tuple[Tensor, ...]:
            *rest, ticket = tensors
            with below_this_level():
                return tuple(_level_op(level.__name__, rest, ticket, call.key, call.axes, list(wanted)))

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: object) -> None:
            ctx.call, ctx.wanted = inputs[:2]
            ctx.save_for_backward(*inputs[2:])
            ctx.save_for_forward(*inputs[2:])

        @staticmethod
        def backward(ctx: Any, *gs: Tensor) -> tuple[Any, ...]:
            return (*level.backward(_as_level(ctx, ctx.wanted, ctx.needs_input_grad[:-1]), *gs), None)

        @staticmethod
        def jvp(ctx: Any, *tangents: Any) -> tuple[Tensor, ...]:
            found: tuple[Tensor, ...] = level.jvp(_as_level(ctx, ctx.wanted, ()), *tangents[:-1])
            return found

    return Traced


class TracedGuard(SingleLevelFunction):
    """The guard in a program."""

    @staticmethod
    def forward(message: str, x: Tensor) -> Tensor:
        """Go on below autograd."""
        with below_this_level():
            guarded: Tensor = torch.ops.bring_your_own_gradient.guard(x, message)
            return guarded

    setup_context = staticmethod(Guard.setup_context)
    backward = staticmethod(Guard.backward)
    jvp = staticmethod(Guard.jvp)


def _as_level(ctx: Any, wanted: Sequence[bool], needs: Sequence[bool]) -> SimpleNamespace:
    """Return a context as the rules of a level expect it: the ticket belongs to the call there."""
    *tensors, ticket = ctx.saved_tensors
    call = TracedCall(ctx.call.key, ctx.call.axes, tensors[: len(ctx.call.layout.places)], ticket)
    return SimpleNamespace(call=call, wanted=wanted, saved_tensors=tuple(tensors), needs_input_grad=tuple(needs))


LEVELS: dict[str, type[Level]] = {level.__name__: level for level in (Vjp, Jvp, Hvp, Bend)}
TRACED = {name: _traced(level) for name, level in LEVELS.items()}


@torch.library.impl(_library, "value", "Autograd")
def _differentiate_value(xs: list[Tensor], key: str, axes: list[int]) -> list[Tensor]:
    with single_level_functions():
        return list(TracedValue.apply(TracedCall(key, axes, xs), *xs))  # type: ignore[attr-defined]


@torch.library.impl(_library, "level", "Autograd")
def _differentiate_level(
    name: str, tensors: list[Tensor], ticket: Tensor, key: str, axes: list[int], wanted: list[bool]
) -> list[Tensor]:
    call = TracedCall(key, axes, tensors[: len(_layouts[key].places)])
    with single_level_functions():
        return list(TRACED[name].apply(call, tuple(wanted), *tensors, ticket))  # type: ignore[attr-defined]


@torch.library.impl(_library, "guard", "Autograd")
def _differentiate_guard(x: Tensor, message: str) -> Tensor:
    with single_level_functions():
        guarded: Tensor = TracedGuard.apply(message, x)  # type: ignore[attr-defined]
        return guarded


# --- their batches


def _batch_guard(info: Any, in_dims: Any, x: Tensor, message: str) -> Any:
    return torch.ops.bring_your_own_gradient.guard(x, message), in_dims[0]


def _batch_value(info: Any, in_dims: Any, xs: list[Tensor], key: str, axes: list[int]) -> Any:
    outputs = _value_op(_lifted(info, in_dims[0], xs), key, [1, *axes])
    return outputs, [0] * (len(outputs) - 1) + [None]


def _batch_level(
    info: Any, in_dims: Any, name: str, tensors: list[Tensor], ticket: Tensor, key: str, axes: list[int], wanted: Any
) -> Any:
    sample = any(dim is not None for dim in in_dims[1][: len(_layouts[key].places)])
    outputs = _level_op(name, _lifted(info, in_dims[1], tensors), ticket, key, [int(sample), *axes], wanted)
    return outputs, [0] * len(outputs)


def _lifted(info: Any, dims: Sequence[int | None], tensors: Sequence[Tensor]) -> list[Tensor]:
    return [
        tensor.expand(info.batch_size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
        for tensor, dim in zip(tensors, dims, strict=True)
    ]


torch.library.register_vmap(f"{SPACE}::guard", _batch_guard, lib=_library)
torch.library.register_vmap(f"{SPACE}::value", _batch_value, lib=_library)
torch.library.register_vmap(f"{SPACE}::level", _batch_level, lib=_library)
