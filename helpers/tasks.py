"""What a worker does for an operation of the bridge: it calls the user's functions with the arrays that arrive.

A worker is another process, perhaps on another machine. Everything travels as bytes, so both sides know how much it
is. This module asks for no torch, and a worker starts quickly.
"""

import contextlib
import pickle
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from . import turns
from .reached import fingerprint
from .states import hand_out, keep

Call = tuple[str, tuple[Any, ...], dict[str, Any]]  # which function, its arguments, its named arguments
Functions = Mapping[str, Callable[..., Any]]
SOLVE = "forward"  # the function that solves; all others are derivatives
UNPACKING = ""  # the role of what happens before any function is called


@dataclass(frozen=True)
class Order:
    """One task: calls to make one after another, on the same objects.

    Attributes
    ----------
    calls : tuple of (role, args, kwargs)
    state : {"travel", "recompute"} or None
        What becomes of the state that a solve returns. None if the function returns none.
    look : bool
        Whether to see if the solve changes anything that the functions reach.
    alone : bool
        Whether no other solver that remembers, or disturbs one, may run in this process at the same time.
    errors : dict
        NumPy's settings for floating-point errors.
    """

    calls: tuple[Call, ...]
    state: Literal["travel", "recompute"] | None = None
    look: bool = False
    alone: bool = False
    errors: Any = field(default_factory=np.geterr)


@dataclass(frozen=True)
class Parcel:
    """A state that travels: only a worker opens it."""

    data: bytes


@dataclass(frozen=True)
class SolveAgain:
    """A state that does not travel: these arguments give it again."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


@dataclass(frozen=True)
class Failure:
    """What a function raised: the pickled error, its first line, and its traceback."""

    role: str
    error: bytes
    said: str
    traceback: str

    def rebuilt(self) -> Exception:
        """Return the error as it was, or one that tells of it where it cannot be rebuilt."""
        with contextlib.suppress(Exception):
            error = pickle.loads(self.error)
            if isinstance(error, Exception) and self.said.startswith(type(error).__name__):
                return error
        return RuntimeError(self.said)


@dataclass(frozen=True)
class Reply:
    """What came of an order.

    Attributes
    ----------
    results : tuple
        What the calls gave, up to the one that failed.
    failure : Failure or None
    remembers, disturbs : bool
        Whether the solve changed what derivatives reach, or what the functions reach at all.
    seconds : float
        How long it took.
    """

    results: tuple[Any, ...] = ()
    failure: Failure | None = None
    remembers: bool = False
    disturbs: bool = False
    seconds: float = 0.0


class WorkerTraceback(Exception):
    """Where in a worker an error happened: its text is the traceback there."""


def perform(functions: bytes, order: bytes) -> bytes:
    """Carry out an order, whatever the user's functions do. Both sides are pickled; so is the :class:`Reply`.

    Examples
    --------
    >>> order = Order(calls=(("forward", (np.array([3.0, 4.0]),), {}),))
    >>> pickle.loads(perform(pickle.dumps({"forward": np.sum}), pickle.dumps(order))).results
    (np.float64(7.0),)
    """
    began = time.perf_counter()
    work = _Work()
    try:
        work.carry_out(pickle.loads(functions), pickle.loads(order))
    except BaseException as error:  # a worker must answer, also after sys.exit() or Ctrl-C
        work.failure = _failure(work.role, error)
    try:
        return pickle.dumps(work.reply(began))
    except Exception as error:
        work.results = []
        work.failure = _failure(work.role, TypeError(f"What it returned cannot be sent back: {error}"))
        return pickle.dumps(work.reply(began))


class _Work:
    """An order on its way: what has been done of it, and what is being done."""

    def __init__(self) -> None:
        self.results: list[Any] = []
        self.failure: Failure | None = None
        self.role = UNPACKING
        self.remembers = self.disturbs = False
        self.solved: dict[int, Any] = {}

    def reply(self, began: float) -> Reply:
        seconds = time.perf_counter() - began
        return Reply(tuple(self.results), self.failure, self.remembers, self.disturbs, seconds)

    def carry_out(self, functions: Functions, order: Order) -> None:
        guarded = order.look or order.alone
        with turns.lock if guarded else contextlib.nullcontext(), np.errstate(**order.errors):
            if guarded:
                turns.begin()
            for role, args, kwargs in order.calls:
                args = tuple(self.unpacked(functions, each) for each in args)
                self.role = role
                with self.looking(functions, role) if order.look else contextlib.nullcontext():
                    found = functions[role](*args, **{name: _read_only(each) for name, each in kwargs.items()})
                if order.state and role == SOLVE and isinstance(found, tuple) and len(found) > 1:
                    found = (found[0], _packed(found[1]) if order.state == "travel" else None, *found[2:])
                self.results.append(found)

    @contextlib.contextmanager
    def looking(self, functions: Functions, role: str) -> Iterator[None]:
        """See what a solve changes."""
        if role != SOLVE:
            yield
            return
        derivatives = [function for each, function in functions.items() if each != SOLVE]
        before = fingerprint(*derivatives), fingerprint(*functions.values())
        yield
        self.remembers |= fingerprint(*derivatives) != before[0]
        self.disturbs |= self.remembers or fingerprint(*functions.values()) != before[1]

    def unpacked(self, functions: Functions, argument: Any) -> Any:
        """Return an argument; a state that travelled, or that is solved for again here (once an order)."""
        if isinstance(argument, Parcel):
            return pickle.loads(argument.data)
        if isinstance(argument, SolveAgain):
            if id(argument) not in self.solved:
                self.role = SOLVE
                named = {name: _read_only(each) for name, each in argument.kwargs.items()}
                found = functions[SOLVE](*map(_read_only, argument.args), **named)
                self.solved[id(argument)] = keep(found[1])
            return hand_out(self.solved[id(argument)])
        return _read_only(argument)


def _packed(state: Any) -> Parcel:
    try:
        data = pickle.dumps(state)
    except Exception as error:
        if "cloudpickle" in sys.modules:  # what came with its code may bring a class of its own for its state
            with contextlib.suppress(Exception):
                return Parcel(sys.modules["cloudpickle"].dumps(state))
        raise TypeError(
            f'its state cannot travel: {error}. With state="recompute" the worker of the adjoint solves again; or '
            "return a state of arrays and numbers."
        ) from error
    return Parcel(data)


def _read_only(argument: Any) -> Any:
    if isinstance(argument, np.ndarray):
        argument.flags.writeable = False
    return argument


def _failure(role: str, error: BaseException) -> Failure:
    text = "".join(traceback.format_exception(error))
    if not isinstance(error, Exception):
        return Failure(role, b"", f"The worker was stopped by {type(error).__name__}.", text)
    try:
        data = pickle.dumps(error)
    except Exception:
        data = b""
    return Failure(role, data, told(error), text)


def told(error: BaseException) -> str:
    """Return the kind and the first line of an error, whatever its text does."""
    try:
        lines = str(error).strip().splitlines()
    except Exception:
        lines = ["(its text cannot be shown)"]
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
