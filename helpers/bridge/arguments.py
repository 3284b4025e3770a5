"""The arguments of a call: which are tensors, which are not, and how the NumPy function gets them back in place."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, NamedTuple

import numpy as np
import torch

from ..states import keep

Tensor = torch.Tensor
REAL = frozenset({torch.float64, torch.float32, torch.float16, torch.bfloat16})
WHOLE = frozenset({torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool})


class Layout(NamedTuple):
    """Where the tensors of a call stand among its arguments. The other arguments are kept as they are."""

    positional: tuple[Any, ...]
    named: dict[str, Any]
    places: tuple[int | str, ...]

    def fill(self, arrays: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments with arrays (or whatever is given) in the places of the tensors."""
        positional, named = list(self.positional), dict(self.named)
        for place, array in zip(self.places, arrays, strict=True):
            if isinstance(place, int):
                positional[place] = array
            else:
                named[place] = array
        return tuple(positional), named

    def describe(self, index: int) -> str:
        """Return what to call a tensor argument in a message."""
        place = self.places[index]
        return f"argument {place + 1}" if isinstance(place, int) else f"argument {place}"


ONE_TENSOR = Layout((None,), {}, (0,))


class Marked:
    """Stands for a tensor where only the order of arguments matters."""


def in_order(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return a call's arguments with tensors given by name in the places that the function has for them.

    Gradients come in the order of the function's parameters, and a vjp gets g after the positional ones.
    """
    tensors = (Tensor, Marked)
    if not any(isinstance(value, tensors) for value in kwargs.values()):
        return args, kwargs
    try:
        bound = inspect.signature(function).bind(*args, **kwargs)
    except (TypeError, ValueError):  # the call itself says what does not fit
        return args, kwargs
    positional, named = list(bound.args), dict(bound.kwargs)
    while len(positional) > len(args) and not isinstance(positional[-1], tensors):
        positional.pop()
    names = list(bound.arguments)[len(positional) :]
    return tuple(positional), {name: kwargs[name] for name in [*names, *named] if name in kwargs}


def layout_in_order(name: str, function: Callable[..., Any], layout: Layout) -> Layout:
    """Return a layout with tensors given by name in the places that the function has for them.

    Raises
    ------
    TypeError
        If the tensors would change their order.
    """
    marks = [Marked() for _ in layout.places]
    args, kwargs = in_order(function, *layout.fill(marks))
    items = [*enumerate(args), *kwargs.items()]
    found = [(place, value) for place, value in items if isinstance(value, Marked)]
    if [value for _, value in found] != marks:
        raise TypeError(f"{name}: inside torch.compile give tensors in the order of the function's parameters.")
    return Layout(
        tuple(None if isinstance(value, Marked) else value for value in args),
        {key: None if isinstance(value, Marked) else value for key, value in kwargs.items()},
        tuple(place for place, _ in found),
    )


def split(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Layout, tuple[Tensor, ...]]:
    """Return the layout of a call and its tensors.

    Raises
    ------
    TypeError
        If no argument is a tensor of real floating-point numbers, if one is complex, sparse or holds no data, or if a
        tensor hides inside a list, tuple, set or dict, where its gradient would be lost.
    """
    if len(args) == 1 and not kwargs and isinstance(args[0], Tensor):
        layout = ONE_TENSOR
        tensors: tuple[Tensor, ...] = (args[0],)
    else:
        items: list[tuple[int | str, Any]] = [*enumerate(args), *kwargs.items()]
        found = [(place, value) for place, value in items if isinstance(value, Tensor)]
        for place, value in items:
            _refuse_hidden_tensors(name, place, value)
        tensors = tuple(value for _, value in found)
        layout = Layout(
            tuple(None if isinstance(value, Tensor) else _kept(value) for value in args),
            {key: None if isinstance(value, Tensor) else _kept(value) for key, value in kwargs.items()},
            tuple(place for place, _ in found),
        )
    real = False
    for index, tensor in enumerate(tensors):
        if tensor.dtype in REAL and tensor.layout is torch.strided and not tensor.is_meta:
            real = True
        else:
            _refuse_unfit(name, layout.describe(index), tensor)
    if not real:
        _refuse_no_real_tensor(name, args, tensors)
    return layout, tensors


def _kept(value: Any) -> Any:
    return keep(value) if isinstance(value, (np.ndarray, list, dict)) else value  # derivatives need it as it is now


def _refuse_unfit(name: str, which: str, tensor: Tensor) -> None:
    if tensor.is_meta:
        raise TypeError(f"{name}: {which} is on the meta device and holds no numbers.")
    if tensor.layout is not torch.strided:
        raise TypeError(f"{name}: {which} is not a dense tensor ({tensor.layout}). Pass x.to_dense().")
    if tensor.is_complex():
        raise TypeError(
            f"{name}: {which} is complex ({tensor.dtype}), and the gradient of a complex input needs a convention. "
            "Pass torch.view_as_real(x), so that real and imaginary part are real inputs."
        )
    if tensor.dtype not in WHOLE:
        raise TypeError(f"{name}: {which} holds {tensor.dtype}. Pass float32 or float64.")


def _refuse_no_real_tensor(name: str, args: tuple[Any, ...], tensors: tuple[Tensor, ...]) -> None:
    if tensors:
        raise TypeError(
            f"{name}: x holds whole numbers ({tensors[0].dtype}), and a gradient needs real ones. Pass x.double()."
        )
    given = type(args[0]).__name__ if args else "nothing"
    cure = "torch.from_numpy(x)" if args and isinstance(args[0], np.ndarray) else "torch.tensor(x, dtype=torch.float64)"
    raise TypeError(f"{name} needs a tensor, and got {given}: without one there is no graph. Pass {cure}.")


def _refuse_hidden_tensors(name: str, place: int | str, value: Any) -> None:
    if holds_tensor(value):
        which = f"argument {place + 1}" if isinstance(place, int) else f"argument {place}"
        raise TypeError(
            f"{name}: {which} is a {type(value).__name__} with a tensor inside, whose gradient would be lost. "
            "Pass each tensor as an argument of its own."
        )


def holds_tensor(value: Any) -> bool:
    """Say whether a container holds a tensor, at any depth."""
    if isinstance(value, (str, bytes, Tensor)):
        return False
    if isinstance(value, Mapping):
        value = value.values()
    elif not isinstance(value, (list, tuple, AbstractSet)):
        return False
    return any(isinstance(item, Tensor) or holds_tensor(item) for item in value)
