"""Worker processes that are fit for solvers."""

import contextlib
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.context import SpawnContext, SpawnProcess

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def process_pool(workers: int | None = None) -> ProcessPoolExecutor:
    """Return a pool of worker processes for ``executor=``.

    It is a :class:`concurrent.futures.ProcessPoolExecutor` with three settings that solvers want. The workers are not
    forked from this process, whose threads (torch has some) a fork may leave in a deadlock. Each computes with one
    thread, so that they do not fight for the cores. And Ctrl-C stops the waiting here, not the workers, so the pool
    can be used again.

    Parameters
    ----------
    workers : int, optional
        How many processes; the number of cores by default.

    Returns
    -------
    ProcessPoolExecutor
        Use it in a ``with`` block, or call its ``shutdown()``. The processes start with the first task. They import
        the functions that they get, so these must stand in a module, not in a notebook. They import the main program,
        too: what it does belongs under ``if __name__ == "__main__":``, and so does ``import torch``, which would take
        each of them seconds and some 300 MB.

    Raises
    ------
    ValueError
        If ``workers`` is less than 1.

    Examples
    --------
    >>> import math
    >>> with process_pool(2) as pool:
    ...     list(pool.map(math.sqrt, [4.0, 9.0]))
    [2.0, 3.0]
    """
    if workers is not None and workers < 1:
        raise ValueError(f"workers must be 1 or more; got {workers}.")
    return ProcessPoolExecutor(workers or os.cpu_count(), mp_context=_Context(), initializer=_ignore_ctrl_c)


class _OneThread(SpawnProcess):
    """A process that is born with the settings: a program that imports NumPy at its top does so before any other."""

    def start(self) -> None:
        with _settings(dict.fromkeys(THREADS, "1")):
            super().start()


class _Context(SpawnContext):
    Process = _OneThread


@contextlib.contextmanager
def _settings(variables: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _ignore_ctrl_c() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
