"""Solvers that remember their latest solve: whose turn it is, and how to bring one back to an earlier point.

An adjoint that reads what its solver has left behind is right only directly after its own solve. We find such solvers
by looking: if one of the first calls of the function changes anything that the op or its derivatives reach, the solver
remembers. From then on one thread uses it at a time, and where another solve came between, we solve again.
"""

import contextlib
import itertools
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from .captured import fingerprint, is_opaque

LOOKS = 3
_turns: "weakref.WeakKeyDictionary[Any, Turn]" = weakref.WeakKeyDictionary()
_serials = itertools.count(1)


class Turn:
    """Who may use a solver, and which solve was its latest.

    Parameters
    ----------
    opaque : bool
        The solver is compiled code, into which we cannot look; it is taken to remember.
    """

    def __init__(self, opaque: bool = False) -> None:
        self.lock = threading.RLock()
        self.remembers, self.latest = opaque, 0

    @classmethod
    def of(cls, owner: Any) -> "Turn":
        """Return the turn of the object that does the solving: several ops may share it."""
        if owner is None:
            return cls()
        try:
            return _turns.setdefault(owner, cls(is_opaque(owner)))
        except TypeError:  # it cannot be a key
            return cls(is_opaque(owner))

    def __reduce__(self) -> tuple[type, tuple[bool]]:
        return Turn, (self.remembers,)


class Watch:
    """Looks whether the calls of an op's function change what its derivatives reach."""

    def __init__(self, turn: Turn, roots: tuple[Any, ...]) -> None:
        self.turn, self.roots, self.looks = turn, roots, LOOKS

    @contextlib.contextmanager
    def solving(self) -> Iterator[int]:
        """Take the turn for a solve, and yield its serial number."""
        turn = self.turn
        if not (self.looks or turn.remembers):
            yield 0
            return
        with turn.lock:
            serial = turn.latest = next(_serials)
            if turn.remembers:
                yield serial
                return
            before = fingerprint(*self.roots)
            yield serial
            self.looks -= 1
            turn.remembers = fingerprint(*self.roots) != before

    @contextlib.contextmanager
    def solved(self, serial: int, solve_again: Callable[[], object]) -> Iterator[None]:
        """Take the turn for a derivative, at the point of an earlier solve."""
        turn = self.turn
        if not turn.remembers:
            yield
            return
        with turn.lock:
            if turn.latest != serial:
                turn.latest = 0  # if the solver fails half-way, it is nowhere
                solve_again()
                turn.latest = serial
            yield
