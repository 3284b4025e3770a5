"""Solvers that remember their latest solve: whose turn it is, and how to bring one back to an earlier point.

An adjoint that reads what its solver has left behind is right only directly after its own solve. We find such solvers
by looking: if one of the first calls of the function changes anything that the derivatives of the op reach, the solver
*remembers*. From then on one thread uses it at a time, and where another solve came between, we solve again. If a call
changes only what the function itself reaches, it may *disturb* another op that remembers, so that one is told.

What compiled code keeps to itself cannot be seen; an object of compiled code is taken to remember.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from .. import turns
from ..reached import fingerprint, is_method_of_compiled_code

LOOKS = 3
LOOKS_AT_ONE_POINT = 8


class Watch:
    """Looks whether the calls of an op's function change what derivatives reach.

    Parameters
    ----------
    solver : tuple
        What is called to solve, and whatever else that may change.
    derivatives : tuple
        The user's derivatives, and whatever else they may read.
    """

    def __init__(self, solver: tuple[Any, ...], derivatives: tuple[Any, ...]) -> None:
        self.solver, self.derivatives = solver, derivatives
        self.remembers = bool(derivatives) and any(map(is_method_of_compiled_code, solver))
        self.disturbs = self.remembers
        self.looks, self.more, self.point = LOOKS, LOOKS_AT_ONE_POINT, b""

    @property
    def is_quiet(self) -> bool:
        """Whether nothing is left to look at, and nothing was found."""
        return not (self.looks or self.disturbs)

    @contextlib.contextmanager
    def solving(self, point: Callable[[], bytes]) -> Iterator[int]:
        """Take the turn for a solve at a point (a function that gives its bytes), and yield its serial number."""
        if self.is_quiet:
            yield 0
            return
        with turns.lock:
            if not self.is_quiet:  # another thread may have looked meanwhile
                yield from self._alone(point)
                return
        yield 0

    def _alone(self, point: Callable[[], bytes]) -> Iterator[int]:
        serial = turns.begin()
        if not self.looks:
            yield serial
            return
        before = self._prints()
        yield serial
        derivatives, everything = self._prints()
        self.remembers |= derivatives != before[0]
        self.disturbs |= self.remembers or everything != before[1]
        here = point()
        if here != self.point or self.more == 0:  # a second solve at one point may change nothing
            self.looks -= 1
        else:
            self.more -= 1
        self.point = here

    @contextlib.contextmanager
    def solved(self, serial: int, solve_again: Callable[[], object]) -> Iterator[None]:
        """Take the turn for a derivative, at the point of an earlier solve."""
        if not self.remembers:
            yield
            return
        with turns.lock:
            if not turns.is_latest(serial):
                turns.begin()  # if the solver fails half-way, it is nowhere
                solve_again()
                turns.give_back(serial)
            yield

    def _prints(self) -> tuple[bytes, bytes]:
        derivatives = fingerprint(*self.derivatives) if self.derivatives else b""
        return derivatives, fingerprint(*self.solver)


class _Quiet(Watch):
    def __init__(self) -> None:
        super().__init__((), ())
        self.looks = 0


NOBODYS_TURN = _Quiet()  # for solvers in other processes, which tasks.py looks at
