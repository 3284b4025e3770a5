"""Workers in other processes: only the calls of the user's functions go out, as bytes.

:mod:`helpers.tasks` is the other side, :mod:`.questions` is how the code of a sample asks, and :mod:`.packing` makes
the bytes.
"""

import pickle
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Any

from ..reached import is_method_of_compiled_code
from ..tasks import (
    SOLVE,
    UNPACKING,
    Call,
    Failure,
    Order,
    Parcel,
    Reply,
    SolveAgain,
    WorkerTraceback,
    perform,
    told,
)
from .evaluation import explain
from .packing import Packer
from .questions import Questions, Waiting, asking
from .workers import Result, Traffic, Workers

if TYPE_CHECKING:
    from .external import ExternalFunction

LOOKS = 3


class Remote(Workers):
    """Worker processes, here or elsewhere."""

    def __init__(self, op: "ExternalFunction", executor: Executor, timeout: float | None, state: Any) -> None:
        super().__init__(op, executor, timeout)
        self.state = state
        self.packer = Packer(op.label, executor)
        self._remembers = any(map(is_method_of_compiled_code, op._shipped().values()))
        self._disturbs = self._remembers
        self._looked_at: set[int] = set()
        self._functions()  # what cannot be sent is told now

    @property
    def remembers(self) -> bool:
        """Whether a derivative may read what the latest solve has left behind."""
        return self._remembers or self.op._watch.remembers

    @property
    def disturbs(self) -> bool:
        """Whether a solve changes what derivatives of this or another operation may read."""
        return self._disturbs or self.remembers or self.op._watch.disturbs

    def _functions(self) -> bytes:
        shipped = self.op._shipped()
        return self.packer.functions(shipped, {role: self.op._called(role) for role in shipped})

    def _run(self, job: Callable[[int], Result], count: int) -> tuple[dict[int, Result], dict[int, Exception]]:
        questions = [Questions() for _ in range(count)]
        results: dict[int, Result] = {}
        failures: dict[int, Exception] = {}
        waiting = list(range(count))
        while waiting:
            asked: dict[int, Waiting] = {}
            for index in waiting:
                try:
                    with asking(questions[index]):
                        results[index] = job(index)
                except Waiting as question:
                    asked[index] = question
                except Exception as error:
                    failures[index] = error
            answers = self._send(asked, failures) if asked else {}
            for index, found in answers.items():
                questions[index].answer(asked[index].calls, found)
            waiting = list(answers)
        return results, failures

    def _send(self, asked: Mapping[int, Waiting], failures: dict[int, Exception]) -> dict[int, list[Any]]:
        """Send the questions of all samples; return the answers, and note the errors of those that have none."""
        began = time.perf_counter()
        functions, look = self._functions(), len(self._looked_at) < LOOKS
        before = {index: (q.solve,) if q.solve and self.remembers else () for index, q in asked.items()}
        orders = {
            index: self.packer.arguments(
                Order((*before[index], *question.calls), self.state, look=look, alone=self.disturbs)
            )
            for index, question in asked.items()
        }
        found, errors = self._gather({index: (perform, functions, order) for index, order in orders.items()})
        failures |= errors
        replies = dict(self._opened(found, failures))
        if look:
            self._remembers |= any(reply.remembers for reply in replies.values())
            self._disturbs |= any(reply.disturbs for reply in replies.values())
            self._looked_at |= {hash(orders[index]) for index, reply in replies.items() if not reply.failure}
        answers = {}
        for index, reply in replies.items():
            results = reply.results[len(before[index]) :]
            if reply.failure and len(results) < asked[index].needed:
                failures[index] = self._raised(reply.failure)
            else:
                answers[index] = self._answers(asked[index].calls, results)
        self.traffic = Traffic(
            tasks=len(orders),
            functions=len(functions),
            sent=sum(len(functions) + len(order) for order in orders.values()),
            received=sum(map(len, found.values())),
            states=_size_of_states(asked.values(), replies.values()),
            busy=sum(reply.seconds for reply in replies.values()),
            wall=time.perf_counter() - began,
        )
        return answers

    def _opened(self, found: Mapping[int, bytes], failures: dict[int, Exception]) -> Iterator[tuple[int, Reply]]:
        """Open the replies; note as failed what cannot be rebuilt in this process."""
        for index, data in found.items():
            try:
                yield index, pickle.loads(data)
            except Exception as error:
                failures[index] = TypeError(f"What the worker sent back cannot be rebuilt here: {told(error)}")
                failures[index].__cause__ = error

    def _answers(self, calls: Sequence[Call], results: Sequence[Any]) -> list[Any]:
        """Return what calls gave. A state that did not travel, or would not be enough, becomes a recipe for it."""
        again = self.state == "recompute" or (self.state and self.remembers)
        return [
            (found[0], SolveAgain(args, kwargs), *found[2:]) if again and role == SOLVE and _has_state(found) else found
            for (role, args, kwargs), found in zip(calls, results, strict=False)
        ]

    def _raised(self, failure: Failure) -> Exception:
        """Return what a worker's function raised, as it would be raised here."""
        error = failure.rebuilt()
        error.__cause__ = WorkerTraceback(f"in the worker:\n{failure.traceback}")
        if failure.role == UNPACKING:
            error.add_note(f"Raised on the way to the worker, where it unpacked what {self.op.label} needs.")
            if isinstance(error, ImportError):
                error.add_note("A worker looks for modules where this process looked when the worker started.")
            return error
        try:
            explain(self.op, self.op._called(failure.role), error)
        except ValueError as clearer:
            return clearer
        return error


def _has_state(found: Any) -> bool:
    return isinstance(found, tuple) and len(found) > 1


def _size_of_states(asked: Any, replies: Any) -> int:
    sent = [each for question in asked for _, args, _ in question.calls for each in args[:1]]
    received = [found[1] for reply in replies for found in reply.results if _has_state(found)]
    return sum(len(each.data) for each in [*sent, *received] if isinstance(each, Parcel))
