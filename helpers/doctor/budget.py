"""A time budget that also ends code that would go on for ever in small steps."""

import contextlib
import ctypes
import os
import queue
import signal
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

AGAIN = 0.05  # seconds after which code that swallowed the interruption is interrupted again
HERE = str(Path(__file__).parent)


class OutOfTime(BaseException):
    """The time is over. It is no Exception, so a patient's ``except Exception`` does not swallow it."""


class _Interruption(OutOfTime):
    """What is raised in a running patient.

    Python makes the object when the patient's own ``except:`` catches it. Then the next line of the patient raises it
    again, and the next, until it is out of every handler.
    """

    def __init__(self) -> None:
        super().__init__()
        frame: types.FrameType | None = sys._getframe(1)
        while _is_overdue() and frame is not None and not frame.f_code.co_filename.startswith(HERE):
            frame.f_trace = _raise_again
            frame = frame.f_back
        if _is_overdue():
            sys.settrace(_raise_again)


def _raise_again(frame: types.FrameType, event: str, argument: Any) -> Any:
    if not _is_overdue():
        sys.settrace(None)
    elif _is_delicate(threading.get_ident()):
        return _raise_again
    elif not frame.f_code.co_filename.startswith(HERE):
        raise _Interruption
    return None


def _is_overdue() -> bool:
    """Return whether what this thread runs should have ended already."""
    mine = threading.get_ident()
    return any(watch.target == mine and watch.is_running() for watch in list(_overdue))


class Budget:
    """Seconds to spend, in parts: no part may take more than a share of what is left.

    Code is interrupted between two steps of Python, in whatever thread it runs; a single long call of compiled code
    (such as ``time.sleep(100)``) is waited for.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.interrupted = False
        self._end = time.monotonic() + seconds

    @property
    def left(self) -> float:
        """Return the seconds that are left, at least 0."""
        return max(0.0, self._end - time.monotonic())

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Set ``interrupted`` when the user presses Ctrl-C inside, to tell it from a patient that raises the same."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = signal.getsignal(signal.SIGINT)

        def on_interrupt(number: int, frame: Any) -> None:
            self.interrupted = True
            raise KeyboardInterrupt

        signal.signal(signal.SIGINT, on_interrupt)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    @contextmanager
    def part(self, share: float = 1.0) -> Iterator[None]:
        """Run what is inside for at most this share of the seconds that are left.

        Raises
        ------
        OutOfTime
            If they are over, inside or before.
        """
        seconds = self.left * share
        if seconds <= 0:
            raise OutOfTime
        tracing = sys.gettrace()
        watch = _Watch(seconds, sys._getframe(2))
        try:
            yield
        finally:
            sys.settrace(tracing)
            watch.stop()
            sys.settrace(tracing)


class _Watch:
    """Wants OutOfTime to be raised in the thread that made it, after some seconds, and again until it is stopped.

    It also ends when the function whose ``with`` it watches has returned: an interruption may fall into :meth:`stop`.
    """

    def __init__(self, seconds: float, frame: types.FrameType) -> None:
        self.target, self.due = threading.get_ident(), time.monotonic() + seconds
        self._frame = frame
        _clock.add(self)

    def stop(self) -> None:
        """Interrupt no more; an interruption that is on its way arrives here and is swallowed."""
        _overdue.discard(self)
        try:
            _clock.remove(self)
            for _ in range(3):
                pass
        except OutOfTime:
            _clock.remove(self)

    def is_running(self) -> bool:
        """Return whether the watched function has not returned.

        While we walk down its frames the thread may go on, and a generator that ends meanwhile leads to nowhere. So one
        look that does not find the function proves nothing; three in a row do.
        """
        return any(self._is_found() for _ in range(3))

    def _is_found(self) -> bool:
        frame = sys._current_frames().get(self.target)
        while frame is not None and frame is not self._frame:
            frame = frame.f_back
        return frame is not None


class _Clock:
    """The one thread that looks at all watches.

    It is started when nothing is watched: a thread that is being started still carries its parent's number, and would
    be interrupted in its parent's place. And it shares no lock with those that it interrupts, since Python's own locks
    may be left locked by an interruption: appending, removing and putting are single steps.
    """

    def __init__(self) -> None:
        self._watches: list[_Watch] = []
        self._news: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def add(self, watch: _Watch) -> None:
        """Begin to look at a watch."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="the doctor's clock", daemon=True)
            self._thread.start()
        self._watches.append(watch)
        self._news.put(None)

    def remove(self, watch: _Watch) -> None:
        """Look at a watch no more."""
        with contextlib.suppress(ValueError):
            self._watches.remove(watch)

    def _run(self) -> None:
        while True:
            now = time.monotonic()
            for watch in list(self._watches):
                if not watch.is_running():
                    self.remove(watch)
                elif watch.due <= now:
                    watch.due = now + AGAIN
                    self._ring(watch)
            waiting = [watch.due - now for watch in list(self._watches)]
            with contextlib.suppress(queue.Empty):
                self._news.get(timeout=max(0.0, min(waiting)) if waiting else None)

    def _ring(self, watch: _Watch) -> None:
        if not _is_delicate(watch.target) and watch in self._watches:
            _overdue.add(watch)
            _interrupt(watch.target, _Interruption)


_overdue: set[_Watch] = set()
_clock = _Clock()


def _forget_the_parent() -> None:
    """Begin anew in a forked process: the clock's thread stays in the parent."""
    global _clock
    _clock = _Clock()
    _overdue.clear()


if hasattr(os, "register_at_fork"):  # there is no fork on Windows
    os.register_at_fork(after_in_child=_forget_the_parent)


def _is_delicate(thread: int) -> bool:
    """Return whether a thread is importing or starting a thread: interrupted there, a module stays half imported."""
    frame = sys._current_frames().get(thread)
    while frame is not None:
        file, name = frame.f_code.co_filename, frame.f_code.co_name
        if file.startswith("<frozen importlib") or (name == "start" and file.endswith("threading.py")):
            return True
        frame = frame.f_back
    return False


def _interrupt(thread: int, error: type[BaseException]) -> None:
    # Never with NULL, to take it back: CPython 3.11 then asks for pending exceptions at every step, for ever.
    raise_in: Callable[..., Any] = ctypes.pythonapi.PyThreadState_SetAsyncExc
    raise_in(ctypes.c_ulong(thread), ctypes.py_object(error))
