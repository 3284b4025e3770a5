"""A time budget that also ends code that would go on for ever in small steps."""

import ctypes
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
        watch = _Watchdog(seconds, sys._getframe(2))
        try:
            yield
        finally:
            sys.settrace(tracing)
            watch.stop()
            sys.settrace(tracing)


class _Watchdog:
    """Raises OutOfTime in the thread that made it, after some seconds, and again until it is stopped.

    It also ends when the function whose ``with`` it watches has returned: an interruption may fall into :meth:`stop`.
    """

    def __init__(self, seconds: float, frame: types.FrameType) -> None:
        self.target, self._frame = threading.get_ident(), frame
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, args=(seconds,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Interrupt no more; an interruption that is on its way arrives here and is swallowed."""
        _overdue.discard(self)
        try:
            with self._lock:
                self._stopped.set()
            for _ in range(3):
                pass
        except OutOfTime:
            self._stopped.set()
        self._thread.join()  # a thread that is left over can abort the process at its exit

    def _watch(self, seconds: float) -> None:
        self._stopped.wait(seconds)
        self._raise_once()
        while not self._stopped.wait(AGAIN) and self.is_running():
            self._raise_once()
        _overdue.discard(self)

    def _raise_once(self) -> None:
        with self._lock:
            if not self._stopped.is_set() and self.is_running():
                _overdue.add(self)
                _interrupt(self.target, _Interruption)

    def is_running(self) -> bool:
        """Return whether the watched function has not returned."""
        frame = sys._current_frames().get(self.target)
        while frame is not None and frame is not self._frame:
            frame = frame.f_back
        return frame is not None


_overdue: set[_Watchdog] = set()


def _interrupt(thread: int, error: type[BaseException]) -> None:
    # Never with NULL, to take it back: CPython 3.11 then asks for pending exceptions at every step, for ever.
    raise_in: Callable[..., Any] = ctypes.pythonapi.PyThreadState_SetAsyncExc
    raise_in(ctypes.c_ulong(thread), ctypes.py_object(error))
