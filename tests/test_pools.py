"""``process_pool``: worker processes that are fit for solvers."""

import multiprocessing
import os
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor

import executor_functions as functions
import pytest

from helpers import process_pool

pytest_plugins = ["executor_pools"]


@pytest.fixture(scope="module")
def worker(pools):
    """Return what a worker of a pool says of itself."""
    return pools("process_pool").submit(functions.how_this_worker_is, 0).result()


def test_it_is_an_executor_of_processes(pools, worker):
    assert isinstance(pools("process_pool"), ProcessPoolExecutor)
    assert worker["pid"] != os.getpid()


def test_its_workers_compute_with_one_thread(worker):
    assert worker["variables"] == ["1", "1", "1"]
    assert worker["threads"] == 1
    assert worker["big"] == 400.0


def test_its_workers_leave_ctrl_c_to_this_process(worker):
    assert worker["ignores"]


def test_its_workers_do_not_import_torch(worker):
    assert "torch" in sys.modules  # they are not copies of this process
    assert not worker["torch"]


def test_it_changes_nothing_here(worker):
    assert multiprocessing.get_start_method(allow_none=True) in (None, "fork", "spawn", "forkserver")
    before = dict(os.environ)
    with process_pool(1) as pool:
        assert pool.submit(os.getpid).result() != os.getpid()
    assert dict(os.environ) == before


@pytest.mark.parametrize("workers", [0, -1], ids=str)
def test_a_pool_without_workers_is_refused(workers):
    with pytest.raises(ValueError, match="workers must be 1 or more"):
        process_pool(workers)


def test_the_default_is_a_worker_for_each_core():
    with process_pool() as pool:
        assert pool._max_workers == os.cpu_count()


PROGRAM = """
import numpy as np
import executor_functions as functions
from helpers import process_pool

if __name__ == "__main__":
    with process_pool(1) as pool:
        print(pool.submit(functions.how_this_worker_is, 0).result()["threads"])
"""


def test_one_thread_also_where_the_program_itself_imports_numpy_first(tmp_path, importable):
    """A worker reads the program's file, and with it NumPy, before anything else."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    environment = {name: value for name, value in os.environ.items() if name not in names}
    found = subprocess.run([sys.executable, program], capture_output=True, text=True, env=environment, timeout=60)
    assert found.stdout.strip() == "1", found.stderr
