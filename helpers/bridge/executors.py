"""Which workers an operation has."""

import threading
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import TYPE_CHECKING

from .remote import Remote
from .workers import Threads, Workers

if TYPE_CHECKING:
    from .external import ExternalFunction


def workers_of(op: "ExternalFunction") -> Workers | None:
    """Return what runs the samples of an operation, None if it has no executor.

    Raises
    ------
    TypeError
        If the executor is none, or if the functions cannot be sent to its workers.
    ValueError
        If the other options do not go with an executor.
    """
    executor = op.executor
    if executor is None:
        return None
    if not isinstance(executor, Executor):
        got = executor.__name__ if isinstance(executor, type) else type(executor).__name__
        raise TypeError(
            f"{op.label}: executor must be a concurrent.futures.Executor, such as process_pool(2) or, of a client of "
            f"Dask's, client.get_executor(); got {got}."
        )
    if op.batch != "loop":
        raise ValueError(f'{op.label}: executor= computes the samples of a batch one by one. Add batch="loop".')
    if op.state not in ("travel", "recompute"):
        raise ValueError(f'{op.label}: state must be "travel" or "recompute"; got {op.state!r}.')
    timeout = _seconds(op)
    if isinstance(executor, ThreadPoolExecutor):
        return Threads(op, executor, timeout)
    return Remote(op, executor, timeout, op.state if op._has_state else None)


def _seconds(op: "ExternalFunction") -> float | None:
    timeout = op.timeout
    if timeout is None:
        return None
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not timeout > 0:
        raise ValueError(f"{op.label}: timeout must be a positive number of seconds; got {timeout!r}.")
    return min(float(timeout), threading.TIMEOUT_MAX)
