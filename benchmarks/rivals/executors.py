"""The executors that executor.py compares, started and stopped."""

import contextlib
import logging
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor

from helpers import process_pool

from . import workload

Make = Callable[[], contextlib.AbstractContextManager[Executor]]
THREADS, PROCESSES = "threads", "process_pool"
CORES, NAPPERS = 2, 8


class NotStarted(Exception):
    """An executor needs something that this run does not have."""


@contextlib.contextmanager
def loky_pool(workers: int) -> Iterator[Executor]:
    """Yield loky's executor."""
    import loky

    pool = loky.ProcessPoolExecutor(workers)
    try:
        yield pool
    finally:
        pool.shutdown()


@contextlib.contextmanager
def dask_pool(processes: int, threads: int) -> Iterator[Executor]:
    """Yield the executor of a Dask cluster on this machine."""
    from distributed import Client, LocalCluster

    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    options = {"dashboard_address": "127.0.0.1:0", "silence_logs": logging.CRITICAL}
    with LocalCluster(n_workers=processes, threads_per_worker=threads, **options) as cluster, Client(cluster) as client:
        yield client.get_executor()


@contextlib.contextmanager
def mpi_pool() -> Iterator[Executor]:
    """Yield the executor of the MPI processes that this program was started with."""
    from mpi4py.futures import MPIPoolExecutor

    with MPIPoolExecutor() as pool:
        yield pool


def many() -> dict[str, Make]:
    """Return the executors with room for eight samples at once (MPI: four)."""
    return {
        THREADS: lambda: ThreadPoolExecutor(NAPPERS),
        PROCESSES: lambda: process_pool(NAPPERS),
        "loky": lambda: loky_pool(NAPPERS),
        "Dask, 2 processes of 4 threads": lambda: dask_pool(2, 4),
        "MPI, 4 processes": mpi_pool,
    }


def few() -> dict[str, Make]:
    """Return the executors with one worker for each core."""
    return {
        THREADS: lambda: ThreadPoolExecutor(CORES),
        PROCESSES: lambda: process_pool(CORES),
        "loky": lambda: loky_pool(CORES),
        "Dask": lambda: dask_pool(CORES, 1),
    }


@contextlib.contextmanager
def opened(makers: dict[str, Make]) -> Iterator[tuple[dict[str, Executor], list[str]]]:
    """Start executors; yield those that are there, and why the others are not. At the end, stop them."""
    with contextlib.ExitStack() as stack:
        found, missing = {}, []
        for name, make in makers.items():
            try:
                if name.startswith("MPI") and "OMPI_COMM_WORLD_SIZE" not in os.environ and "PMI_SIZE" not in os.environ:
                    raise NotStarted("needs mpi4py, and a start by mpiexec")
                pool = stack.enter_context(make())
                list(pool.map(workload.spin, [10**6] * NAPPERS * 2))  # all workers are up, with their modules
            except (ImportError, NotStarted) as error:
                missing.append(f"{name}: {error}")
            else:
                found[name] = pool
        yield found, missing
