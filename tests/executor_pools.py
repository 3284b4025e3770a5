"""The executors that the tests of ``executor=`` share; a test module names this one in ``pytest_plugins``."""

import multiprocessing
import os
import random
import threading
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import loky
import pytest

from helpers import process_pool

TESTS = Path(__file__).parent
PATH = os.pathsep.join([str(TESTS.parent), str(TESTS)])


class Late(Executor):
    """An executor of nobody's: it begins late, in the wrong order, in a thread of this process."""

    def __init__(self, delay=0.001):
        self._delay, self._random = delay, random.Random(0)
        self._lock, self._tasks, self._timer = threading.Lock(), [], None

    def submit(self, fn, /, *args, **kwargs):
        future = Future()
        with self._lock:
            self._tasks.append((future, fn, args, kwargs))
            if self._timer is None:
                self._timer = threading.Timer(self._delay, self._work)
                self._timer.start()
        return future

    def _work(self):
        with self._lock:
            tasks, self._tasks, self._timer = self._tasks, [], None
        self._random.shuffle(tasks)
        for future, function, args, kwargs in tasks:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(function(*args, **kwargs))
                except BaseException as error:
                    future.set_exception(error)


class InThisProcess(Executor):
    """Threads, but no ThreadPoolExecutor: so does Dask work with ``processes=False``."""

    def __init__(self, workers):
        self._pool = ThreadPoolExecutor(workers)

    def submit(self, fn, /, *args, **kwargs):
        return self._pool.submit(fn, *args, **kwargs)

    def shutdown(self, wait=True, **options):
        self._pool.shutdown(wait, **options)


MAKERS = {
    "threads": lambda: ThreadPoolExecutor(4),
    "process_pool": lambda: process_pool(2),
    "fork": lambda: ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("fork")),
    "loky": lambda: loky.get_reusable_executor(2),
    "late": Late,
    "in_this_process": lambda: InThisProcess(4),
}


@pytest.fixture(scope="session")
def importable():
    """Let workers import what lies beside the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", PATH)
        yield


@pytest.fixture(scope="session")
def pools(importable):
    """Return a function from a name of MAKERS to the executor of that name."""
    made = {}

    def get(name):
        if name not in made:
            made[name] = MAKERS[name]()
        return made[name]

    yield get
    for pool in made.values():
        pool.shutdown()


@pytest.fixture
def new_pool(importable):
    """Return a function that makes a pool which a test may break."""
    made = []

    def new(make=process_pool, count=1):
        made.append(make(count))
        return made[-1]

    yield new
    for pool in made:
        pool.shutdown(wait=False)
