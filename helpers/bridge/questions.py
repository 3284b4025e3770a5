"""How a sample of a batch asks a worker, without knowing of it.

The code of a sample is written as if every function of the user's were here. With worker processes it is run until it
calls one; the call is noted as a question, and the code is left. When all samples have been left, their questions go
out together, and the code runs again, now with the answers. So no code has to wait, and all of it stays in one thread.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np

from ..tasks import Call

Found = TypeVar("Found")
MISSING = object()  # in place of a result that nobody needs yet

_here = threading.local()


class Waiting(BaseException):
    """A sample cannot go on before its questions are answered. It is no Exception: nobody shall take it for a fault."""

    def __init__(self, calls: Sequence[Call], solve: Call | None, needed: int | None = None) -> None:
        self.calls, self.solve = calls, solve
        self.needed = len(calls) if needed is None else needed


class Questions:
    """What a sample asks, and what has been answered so far."""

    def __init__(self) -> None:
        self.answers: dict[Any, Any] = {}

    def ask(self, *calls: Call, solve: Call | None = None, needed: int | None = None) -> list[Any]:
        """Return what the calls gave, which are made one after another in one worker.

        ``solve`` is the solve that came before, which a solver that remembers has to do again there. Only the first
        ``needed`` calls (by default, all) must succeed; the results of the others may be missing.

        Raises
        ------
        Waiting
            If they have not been made yet.
        """
        keys = [_key(call) for call in calls]
        if not all(key in self.answers for key in keys):
            raise Waiting(calls, solve, needed)
        return [found for key in keys if (found := self.answers[key]) is not MISSING]

    def answer(self, calls: Sequence[Call], results: Sequence[Any]) -> None:
        """Note what the calls gave."""
        results = [*results, *[MISSING] * (len(calls) - len(results))]
        self.answers |= {_key(call): result for call, result in zip(calls, results, strict=True)}


def _key(call: Call) -> Any:
    """Return what tells one call of a sample from another. Arguments that are no numbers are the same in all."""
    role, args, _ = call
    arrays = [np.asarray(each) for each in args if isinstance(each, (np.ndarray, np.generic, int, float))]
    return role, tuple((each.shape, each.dtype.str, each.tobytes()) for each in arrays)


def all_of(parts: Sequence[Callable[[], Found]]) -> list[Found]:
    """Return what each part gives. If parts have questions, those of all parts are asked together."""
    found, waiting = [], []
    for part in parts:
        try:
            found.append(part())
        except Waiting as question:
            waiting.append(question)
    if waiting:
        calls = [call for question in waiting for call in question.calls]
        raise Waiting(list({_key(call): call for call in calls}.values()), waiting[0].solve)
    return found


@contextlib.contextmanager
def asking(questions: Questions) -> Iterator[None]:
    """Let the code of a sample ask instead of call."""
    before, _here.questions = current(), questions
    try:
        yield
    finally:
        _here.questions = before


def current() -> Questions | None:
    """Return where to ask, or None if functions are called here."""
    return getattr(_here, "questions", None)
