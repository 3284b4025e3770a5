"""The samples of a batch, computed at the same time on an executor of the user's.

:class:`Workers` hands out tasks, waits for them, and says what happened to each. :class:`Threads` runs the code of each
sample in a thread of a pool. :class:`~helpers.bridge.remote.Remote` is for everything else.
"""

import contextvars
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent import futures
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from ..tasks import told
from .errors import FailedSamples, MissingDerivative

if TYPE_CHECKING:
    from .external import ExternalFunction

Result = TypeVar("Result")
Place = Callable[[int], object]
Task = futures.Future[Any]
LOOK_AFTER = 1.0  # seconds after which we see whether the pool is still there
SHOWN = 3  # so many errors, and so many samples of each, stand in a message

_thread = threading.local()


@dataclass(frozen=True)
class Traffic:
    """What travelled for the latest map over a batch, in bytes and seconds.

    Attributes
    ----------
    tasks : int
        How many tasks were sent.
    functions : int
        The size of the functions (or the solver). They go with every task.
    sent, received : int
        All that went to the workers, and all that came back.
    states : int
        The part of it that is the states of solves.
    busy, wall : float
        The time that workers spent in tasks, added up, and the time until the last answer.
    """

    tasks: int = 0
    functions: int = 0
    sent: int = 0
    received: int = 0
    states: int = 0
    busy: float = 0.0
    wall: float = 0.0


class Workers:
    """Runs one job for each sample of a batch.

    Parameters
    ----------
    op : ExternalFunction
    executor : concurrent.futures.Executor
    timeout : float or None
        How many seconds to wait for the next sample to be done.
    """

    def __init__(self, op: "ExternalFunction", executor: futures.Executor, timeout: float | None) -> None:
        self.op, self.executor = op, executor
        self.timeout = threading.TIMEOUT_MAX if timeout is None else timeout
        self.traffic = Traffic()
        self._until = futures.ALL_COMPLETED if timeout is None else futures.FIRST_COMPLETED
        self._process = os.getpid()

    def each(self, job: Callable[[int], Result], count: int, what: str, place: Place) -> list[Result]:
        """Return what a job gives for each of the numbers below ``count``.

        Raises
        ------
        FailedSamples
            If some of them fail, when all are done.
        RuntimeError
            If the executor takes no tasks.
        """
        if getattr(_thread, "is_worker", False) or _is_a_thread_of(self.executor):
            return [job(index) for index in range(count)]  # threads that wait for threads of their pool wait for ever
        if os.getpid() != self._process:
            raise RuntimeError(
                f"{self.op.label}: its executor belongs to the process in which it was made, and this is another one. "
                "Make the executor and the operation here."
            )
        results, failures = self._run(job, count)
        if failures:
            raise self._error(results, dict(sorted(failures.items())), count, what, place)
        return [results[index] for index in range(count)]

    def _run(self, job: Callable[[int], Result], count: int) -> tuple[dict[int, Result], dict[int, Exception]]:
        """Return the results, and the errors of those samples that have none."""
        raise NotImplementedError

    def _gather(self, calls: Mapping[int, Sequence[Any]]) -> tuple[dict[int, Any], dict[int, Exception]]:
        """Hand out a task for each sample, a function and its arguments; return what they gave, and the errors."""
        sent: dict[Task, int] = {}
        errors: dict[int, Exception] = {}
        try:
            for index, (function, *args) in calls.items():
                sent[self._submit(function, *args)] = index
        except futures.BrokenExecutor as error:
            if not sent:
                raise RuntimeError(
                    f"{self.op.label}: the pool of its executor is broken, since a worker died. Make a new pool, and "
                    "a new operation with it."
                ) from error
            errors = {index: _failure(error) for index in calls if index not in sent.values()}
        except BaseException:
            _cancel(sent)
            raise
        found, more = self._wait_for(sent)
        return found, errors | more

    def _submit(self, function: Callable[..., Any], *args: Any) -> Task:
        try:
            return self.executor.submit(function, *args)
        except futures.BrokenExecutor:
            raise
        except Exception as error:
            raise RuntimeError(
                f"{self.op.label}: its executor takes no more tasks ({told(error)}). Is it closed? Inside a `with` "
                "block the backward pass must come before the end of the block, too."
            ) from error

    def _wait_for(self, sent: Mapping[Task, int]) -> tuple[dict[int, Any], dict[int, Exception]]:
        found: dict[int, Any] = {}
        errors: dict[int, Exception] = {}
        waiting, since = set(sent), time.monotonic()
        try:
            while waiting:
                done, waiting = futures.wait(waiting, min(self.timeout, LOOK_AFTER), self._until)
                for task in done:
                    error = None if task.cancelled() else task.exception()
                    if error is not None or task.cancelled():
                        errors[sent[task]] = _failure(error)
                    else:
                        found[sent[task]] = task.result()
                since = time.monotonic() if done else since
                lost: Exception | None = None
                if not done and _is_broken(self.executor):  # before Python 3.12 it may forget tasks that wait
                    lost = _failure(futures.BrokenExecutor())
                elif time.monotonic() - since >= self.timeout:
                    lost = self._too_late()
                if lost:
                    errors |= dict.fromkeys((sent[task] for task in waiting), lost)
                    break
        finally:
            _cancel(waiting)
        return found, errors

    def _too_late(self) -> TimeoutError:
        return TimeoutError(
            f"It was not done, and no sample had been done for {self.timeout:g} s (timeout=). Its worker may still be "
            "busy with it."
        )

    def _error(
        self, results: Mapping[int, Any], failures: Mapping[int, Exception], count: int, what: str, place: Place
    ) -> Exception:
        first = next(iter(failures.values()))
        if all(isinstance(error, MissingDerivative) for error in failures.values()):
            return first
        alike: dict[str, list[str]] = {}
        for index, each in failures.items():
            alike.setdefault(told(each), []).append(str(place(index)))
        said = [f"{_samples(names)}: {_closed(text)}" for text, names in list(alike.items())[:SHOWN]]
        said += ["And others."] if len(alike) > SHOWN else []
        said += ["See .results for what the others gave."] if results else []
        head = f"{self.op.label}: the {what} of {len(failures)} of {count} samples failed."
        error = FailedSamples(" ".join([head, *said]))
        error.samples, error.results, error.__cause__ = dict(failures), dict(results), first
        return error


class Threads(Workers):
    """A pool of threads: they are at work together where the solver releases Python's lock, as compiled code may."""

    def _run(self, job: Callable[[int], Result], count: int) -> tuple[dict[int, Result], dict[int, Exception]]:
        began = time.perf_counter()
        context = contextvars.copy_context()  # NumPy keeps its settings for errors there
        found, errors = self._gather(
            {index: (context.copy().run, _as_worker, job, index) for index in range(count)},
        )
        busy = sum(seconds for _, seconds in found.values())
        self.traffic = Traffic(tasks=count, busy=busy, wall=time.perf_counter() - began)
        return {index: result for index, (result, _) in found.items()}, errors


def _as_worker(job: Callable[[int], Result], index: int) -> tuple[Result, float]:
    """Do a job in a thread of the pool, and say how long it took."""
    began, _thread.is_worker = time.perf_counter(), True
    try:
        return job(index), time.perf_counter() - began
    finally:
        _thread.is_worker = False


def _is_a_thread_of(executor: futures.Executor) -> bool:
    """Say whether a pool of threads runs this very code, by its name: the pool's own list lags behind."""
    prefix = getattr(executor, "_thread_name_prefix", "")
    return bool(prefix) and threading.current_thread().name.startswith(f"{prefix}_")


def _cancel(tasks: Iterable[Task]) -> None:
    for task in tasks:
        task.cancel()


def _failure(error: BaseException | None) -> Exception:
    """Return what to say of a task that gave nothing: it raised, or it was cancelled."""
    if isinstance(error, Exception) and not isinstance(error, futures.BrokenExecutor):
        return error
    if error is None:
        said = "The task was cancelled."
    elif isinstance(error, futures.BrokenExecutor):
        said = (
            "A worker process died before this sample was done: it was killed, ran out of memory, or crashed in "
            "compiled code. The pool is of no use any more; make a new one, and a new operation with it."
        )
    else:
        said = f"The worker was stopped by {type(error).__name__}."
    failure = RuntimeError(said)
    failure.__cause__ = error
    return failure


def _is_broken(executor: futures.Executor) -> bool:
    """Say whether a pool of processes is broken; end what is left of it, for which nobody else would care."""
    if not getattr(executor, "_broken", False):
        return False
    for process in list((getattr(executor, "_processes", None) or {}).values()):
        process.kill()
    return True


def _closed(sentence: str) -> str:
    return sentence if sentence.endswith((".", ":", "!", "?")) else f"{sentence}."


def _samples(names: Sequence[str]) -> str:
    if len(names) == 1:
        return f"Sample {names[0]}"
    return f"Samples {', '.join(names[:SHOWN])}" + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
