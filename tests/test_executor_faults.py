"""``executor=`` when something fails: what is said, what is kept, and that nothing waits for ever."""

import contextlib
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import threading
import traceback
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor, ThreadPoolExecutor

import executor_functions as functions
import loky
import numpy as np
import pytest
import torch

from helpers import FailedSamples, MissingDerivative, differentiable, process_pool

pytest_plugins = ["executor_pools"]

EVERY = ["threads", "process_pool", "fork", "loky", "late"]
PROCESSES = ["process_pool", "fork", "loky"]
LIMIT = 60.0  # seconds until a test that hangs is a failed one


def number(fun, executor, grad=functions.slow_gradient, **options):
    return differentiable(fun, grad=grad, batch="loop", executor=executor, **options)


def vector(executor, **options):
    options = {"vjp": functions.cube_vjp, "jvp": functions.cube_jvp, "hvp": functions.cube_hvp} | options
    return differentiable(functions.cube, batch="loop", signature="(n)->(n)", executor=executor, **options)


def batch(*negative, count=4):
    x = torch.arange(1, 3 * count + 1, dtype=torch.float64).reshape(count, 3)
    for index in negative:
        x[index, 0] = -1.0
    return x


def failed(call, *args):
    with pytest.raises(FailedSamples) as caught:
        call(*args)
    return caught.value


def whole_text(error):
    return "".join(traceback.format_exception(error))


@pytest.mark.parametrize("executor", EVERY)
def test_one_sample_raises(executor, pools):
    op = number(functions.fails_at_negative, pools(executor), functions.gradient_fails_at_negative)
    error = failed(op, batch(2))
    assert list(error.samples) == [2]
    its_own = error.samples[2]
    assert error.__cause__ is its_own
    assert type(its_own) is np.linalg.LinAlgError
    assert str(its_own) == "x[0] = -1 is negative"
    assert "fails_at_negative" in str(its_own.__notes__)
    assert 'raise np.linalg.LinAlgError(f"x[0] = {x[0]:g} is negative")' in whole_text(its_own)
    assert "1 of 4 samples" in str(error)
    assert "Sample 2: LinAlgError: x[0] = -1 is negative" in str(error)
    assert {place: float(values[0]) for place, values in error.results.items()} == {
        place: float((batch()[place] ** 2).sum()) for place in (0, 1, 3)
    }


@pytest.mark.parametrize("executor", EVERY)
def test_several_samples_raise_in_a_batch_of_two_axes(executor, pools):
    op = number(functions.fails_at_negative, pools(executor), functions.gradient_fails_at_negative)
    error = failed(op, batch(1, 3, 4, 5, count=6).reshape(2, 3, 3))
    assert list(error.samples) == [(0, 1), (1, 0), (1, 1), (1, 2)]  # in their order
    assert error.__cause__ is error.samples[0, 1]
    assert set(error.results) == {(0, 0), (0, 2)}
    assert "4 of 6" in str(error)
    assert "(0, 1), (1, 0), (1, 1) and 1 more" in str(error)


@pytest.mark.parametrize("executor", EVERY)
def test_a_derivative_of_one_sample_raises(executor, pools):
    op = differentiable(functions.FailsAdjointAtNegative(), batch="loop", executor=pools(executor))
    x = batch(1).requires_grad_()
    y = op(x)
    error = failed(y.sum().backward)
    assert list(error.samples) == [1]
    assert type(error.samples[1]) is np.linalg.LinAlgError
    assert "no adjoint at -1" in whole_text(error.samples[1])
    slope = 3 * batch() ** 2 * torch.from_numpy(functions.A.sum(0))
    assert set(error.results) == {0, 2, 3}
    assert all(np.allclose(error.results[i][0], slope[i]) for i in error.results)
    op(batch().requires_grad_()).sum().backward()  # it can be used again


@pytest.mark.parametrize("executor", [None, *EVERY])
def test_a_missing_derivative_has_its_own_type(executor, pools):
    pool = executor and pools(executor)
    x = batch().requires_grad_()
    op = vector(pool, jvp=None, hvp=None)
    with pytest.raises(MissingDerivative, match="jvp"):
        torch.func.jvp(op, (x.detach(),), (x.detach(),))
    with pytest.raises(MissingDerivative, match="hvp"):
        torch.autograd.grad(op(x).sum(), x, create_graph=True)[0].sum().backward()


@pytest.mark.parametrize("executor", ["process_pool", "late"])
@pytest.mark.parametrize(
    ("fun", "said"),
    [
        (functions.raises_awkwardly_at_negative, "one and two"),
        (functions.raises_no_text, "NoText"),
        (functions.raises_what_turns_into_text, "TurnsIntoText"),
        (functions.raises_what_stays, "StaysInItsProcess"),
    ],
    ids=["needs arguments", "cannot be printed", "no error when unpickled", "cannot be unpickled here"],
)
def test_errors_that_cannot_travel_are_told_all_the_same(fun, said, executor, pools):
    error = failed(number(fun, pools(executor)), batch(1))
    assert list(error.samples) == [1]
    assert set(error.results) == {0, 2, 3}
    assert said in whole_text(error.samples[1])
    assert said in str(error)
    assert fun.__name__ in whole_text(error.samples[1])  # where it happened


@pytest.mark.parametrize(
    ("fun", "said"),
    [(functions.aux_is_a_lock, "lock"), (functions.aux_stays_at_home, "cannot be sent back|rebuilt")],
    ids=["cannot be pickled", "cannot be unpickled here"],
)
def test_results_that_cannot_travel(fun, said, pools):
    error = failed(number(fun, pools("process_pool"), aux=True), batch(1))
    assert list(error.samples) == [1]
    assert set(error.results) == {0, 2, 3}
    assert re.search(said, str(error))


def test_a_generator_is_no_result_and_is_named(pools):
    error = failed(number(functions.returns_a_generator, pools("process_pool")), batch())
    assert "generator" in str(error)


def test_a_state_that_cannot_travel_names_the_cure(pools):
    op = differentiable(functions.Locked(), batch="loop", executor=pools("process_pool"))
    error = failed(op, batch())
    assert 'state="recompute"' in str(error)
    assert "lock" in str(error)
    op = differentiable(functions.StateStaysAtHome(), batch="loop", executor=pools("process_pool"))
    x = batch().requires_grad_()
    with contextlib.suppress(FailedSamples):  # by chance a worker may get a state of its own
        op(x).sum().backward()
        assert torch.allclose(x.grad, 3 * batch() ** 2 * torch.from_numpy(functions.A.sum(0)))


def test_threads_share_a_state_that_cannot_travel(pools):
    op, x = differentiable(functions.Locked(), batch="loop", executor=pools("threads")), batch().requires_grad_()
    op(x).sum().backward()
    assert torch.allclose(x.grad, 3 * batch() ** 2 * torch.from_numpy(functions.A.sum(0)))


@pytest.mark.parametrize("executor", EVERY)
def test_arguments_are_not_written_into(executor, pools):
    x = batch()
    error = failed(number(functions.writes_into_its_argument, pools(executor)), x)
    assert "x.copy()" in str(error)
    assert torch.equal(x, batch())


def test_an_argument_that_cannot_travel(pools):
    op = number(functions.counting, pools("process_pool"), functions.counting_gradient, signature="(n)->()")
    with pytest.raises(TypeError, match="argument cannot be sent to a worker"):
        op(batch(), threading.Lock())
    error = failed(op, batch(), functions.KeptAtHome())
    assert "way to the worker" in str(error.samples[0].__notes__)
    assert "inside the its" not in str(error.samples[0].__notes__)


@pytest.mark.parametrize("executor", EVERY)
def test_sys_exit_in_a_worker_is_an_error_of_its_sample(executor, pools):
    op = number(functions.leaves_at_negative, pools(executor))
    error = failed(op, batch(2))
    assert list(error.samples) == [2]
    assert "SystemExit" in str(error)
    assert set(error.results) == {0, 1, 3}
    assert op(batch()).shape == (4,)  # the pool is as good as before


@pytest.mark.parametrize("make", [process_pool, loky.ProcessPoolExecutor], ids=["process_pool", "loky"])
def test_a_killed_worker_is_an_error_that_names_the_samples(make, new_pool):
    op = number(functions.dies_at_negative, new_pool(make))
    op(batch())
    error = failed(op, batch(0))
    assert 0 in error.samples
    assert "A worker process died" in str(error)
    assert isinstance(error.samples[0].__cause__, BrokenExecutor)
    with pytest.raises(RuntimeError, match="Make a new pool"):
        op(batch())


def test_a_worker_that_dies_while_tasks_are_still_handed_out(new_pool):
    op = number(functions.dies_at_negative, new_pool(), functions.ones)
    op(batch())
    many = torch.ones(1500, 2000, dtype=torch.float32)
    many[0, 0] = -1
    error = failed(op, many)
    assert 0 in error.samples
    assert "A worker process died" in str(error)


def test_a_pool_that_breaks_after_a_timeout_ends_the_waiting(new_pool):
    pool = new_pool()
    late = number(functions.naps, pool, functions.ones, timeout=0.2)
    other = number(functions.quartic, pool, functions.quartic_gradient, timeout=LIMIT / 10)
    other(batch())
    failed(late, torch.tensor([[2 * LIMIT], *[[0.0]] * 7]))  # tasks that were cancelled still stand in the pool
    found, already = [], pool._queue_count
    thread = threading.Thread(target=lambda: found.append(failed(other, batch())))
    thread.start()
    while pool._queue_count < already + 4 and thread.is_alive():
        threading.Event().wait(0.01)
    for pid in list(pool._processes):  # someone ends the process that hangs
        os.kill(pid, signal.SIGKILL)
    thread.join()
    assert "A worker process died" in str(found[0])


def test_a_worker_that_dies_between_the_passes(new_pool):
    pool = new_pool()
    op, x = vector(pool), batch().requires_grad_()
    y = op(x)
    for pid in list(pool._processes):
        os.kill(pid, signal.SIGKILL)
    with pytest.raises((FailedSamples, RuntimeError), match="pool"):
        y.sum().backward()
    assert x.grad is None


@pytest.mark.parametrize("make", [process_pool, ThreadPoolExecutor], ids=["process_pool", "threads"])
def test_a_pool_that_was_shut_down(make, new_pool):
    pool = new_pool(make)
    op, known, x = vector(pool), number(functions.slow, pool), batch().requires_grad_()
    y, z = op(x), known(x)
    pool.shutdown()
    with pytest.raises(RuntimeError, match=r"cube: its executor takes no more tasks.*`with`"):
        y.sum().backward()
    assert x.grad is None
    z.sum().backward()  # its gradient has come with the value
    assert torch.equal(x.grad, 2 * batch())
    with pytest.raises(RuntimeError, match="cube: its executor takes no more tasks"):
        op(x)


@pytest.mark.parametrize("make", [process_pool, ThreadPoolExecutor], ids=["process_pool", "threads"])
def test_a_sample_that_takes_too_long(make, new_pool):
    op = number(functions.hangs_at_negative, new_pool(make, 2), timeout=1.0)
    error = failed(op, batch(3))
    assert type(error.samples[3]) is TimeoutError
    assert "timeout=" in str(error)
    assert all(isinstance(each, TimeoutError) for each in error.samples.values())
    assert set(error.samples) | set(error.results) == {0, 1, 2, 3}


def test_time_outs_are_between_samples_and_not_for_the_whole_batch(new_pool):
    op = number(functions.naps, new_pool(ThreadPoolExecutor), functions.ones, timeout=1.5)
    assert op(torch.full((8, 1), 0.2, dtype=torch.float64)).shape == (8,)


@pytest.mark.parametrize("timeout", [float("inf"), 1e12], ids=["inf", "very long"])
def test_a_time_out_without_end_is_no_time_out(timeout, pools):
    for executor in ("threads", "process_pool"):
        assert number(functions.slow, pools(executor), timeout=timeout)(batch()).shape == (4,)


REFUSED = {
    "no batch": (ValueError, 'batch="loop"', {"batch": None}),
    "vectorized": (ValueError, 'batch="loop"', {"batch": "vectorized"}),
    "a class": (TypeError, "executor must be", {"executor": ThreadPoolExecutor}),
    "a number": (TypeError, "executor must be", {"executor": 4}),
    "a multiprocessing module": (TypeError, "executor must be", {"executor": multiprocessing}),
    "no time": (ValueError, "timeout must be", {"timeout": 0}),
    "negative time": (ValueError, "timeout must be", {"timeout": -1.0}),
    "not a time": (ValueError, "timeout must be", {"timeout": float("nan")}),
    "time in words": ((TypeError, ValueError), "timeout must be", {"timeout": "5"}),
    "unknown state": (ValueError, "state must be", {"state": "stay"}),
}


@pytest.mark.parametrize("case", REFUSED)
def test_options_that_do_not_fit_are_refused(case, pools):
    kind, said, options = REFUSED[case]
    with pytest.raises(kind, match=said):
        differentiable(
            functions.quartic,
            grad=functions.quartic_gradient,
            **{"batch": "loop", "executor": pools("threads")} | options,
        )


class LikeAClientOfDask:
    """Its submit gives futures that are none of concurrent.futures."""

    def submit(self, function, *args):
        return object()


def test_a_client_is_no_executor():
    with pytest.raises(TypeError, match=r"executor must be.*get_executor"):
        number(functions.quartic, LikeAClientOfDask())


def local():
    def inner(x):
        return np.sum(x**2)

    return inner


UNPICKLABLE = {
    "lambda": (lambda x: np.sum(x**2), "function is a lambda"),
    "local": (local(), r"local\.<locals>\.inner"),
    "method with a lock": (functions.Holds().value, r"Holds\.value.*lock"),
}


@pytest.mark.parametrize("executor", ["process_pool", "fork"])
@pytest.mark.parametrize("case", UNPICKLABLE)
def test_a_function_that_cannot_travel_is_named_when_the_operation_is_made(case, executor, pools):
    function, said = UNPICKLABLE[case]
    with pytest.raises(TypeError, match=said) as caught:
        differentiable(function, grad=functions.slow_gradient, batch="loop", name="mine", executor=pools(executor))
    assert str(caught.value).startswith("mine: ")
    assert caught.value.__cause__ is not None
    with pytest.raises(TypeError, match="its hvp is a lambda"):
        number(functions.slow, pools(executor), hvp=lambda x, t: 2 * t)


def test_loky_sends_lambdas_but_no_locks(pools):
    op = differentiable(lambda x: np.sum(x**2), grad=lambda x: 2 * x, batch="loop", executor=pools("loky"))
    x = batch().requires_grad_()
    op(x).sum().backward()
    assert torch.equal(x.grad, 2 * batch())
    with pytest.raises(TypeError, match="lock"):
        number(functions.Holds().value, pools("loky"))


def in_a_subprocess(code, *options, stdin=None, **more):
    found = subprocess.run(
        [sys.executable, *options, *([] if stdin else ["-c", code])],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        check=False,
        **more,
    )
    return found.stdout, found.stderr


SESSION = """
import numpy as np, torch
from helpers import differentiable, process_pool
memory = {}
def fun(x):
    memory["x"] = x
    return factor * np.sum(x**2)
def grad(x):
    return factor * 2 * memory["x"]
factor = 3.0
try:
    differentiable(fun, grad=grad, batch="loop", executor=process_pool(1))
except TypeError as error:
    print(error)
"""
WITH_LOKY = """
import loky
op = differentiable(fun, grad=grad, batch="loop", executor=loky.get_reusable_executor(1))
for factor in (3.0, 5.0):
    x = torch.ones(3, 2, requires_grad=True)
    y = op(x)
    (y.sum() + op(2 * x).sum()).backward()
    print(y.tolist(), x.grad.tolist())
loky.get_reusable_executor(1).shutdown()
"""


def in_a_session(*options, **more):
    """Run a new Python that has no file of its own, and return its output."""
    found = subprocess.run(
        [sys.executable, *options],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        check=False,
        **more,
    )
    return found.stdout.splitlines() or [found.stderr]


def test_functions_of_a_session_are_refused_by_a_process_pool_and_travel_with_loky(importable):
    refusal, three, five = in_a_session("-c", SESSION + WITH_LOKY)
    assert "needs what was written in this notebook or session" in refusal
    assert "loky" in refusal
    assert three == "[6.0, 6.0, 6.0] [[30.0, 30.0], [30.0, 30.0], [30.0, 30.0]]"
    assert five == "[10.0, 10.0, 10.0] [[50.0, 50.0], [50.0, 50.0], [50.0, 50.0]]"


def test_functions_that_come_by_standard_input_are_refused_too(importable):
    assert "needs what was written in this notebook or session" in in_a_session("-", input=SESSION)[0]


@pytest.mark.parametrize("executor", ["threads", "process_pool"])
def test_an_op_inside_a_task_of_the_same_pool_does_not_wait_for_itself(executor, new_pool, pools):
    pool = new_pool(ThreadPoolExecutor)
    inner = number(functions.quartic, pool if executor == "threads" else pools(executor), functions.quartic_gradient)

    def fun(x):
        return float(inner(torch.from_numpy(np.stack([x, 2 * x]))).sum())

    def grad(x):
        t = torch.from_numpy(x.copy()).requires_grad_()
        inner(torch.stack([t, 2 * t])).sum().backward()
        return t.grad.numpy()

    outer = number(fun, pool, grad, timeout=LIMIT / 6)
    x = batch().requires_grad_()
    y = outer(x)
    y.sum().backward()
    assert torch.allclose(y, (17 * x**4).sum(1))
    assert torch.allclose(x.grad, 68 * batch() ** 3)


def test_an_op_in_a_task_that_the_user_gives_to_the_pool_does_not_wait_for_itself(new_pool):
    pool = new_pool(ThreadPoolExecutor)
    op = number(functions.quartic, pool, functions.quartic_gradient, timeout=2.0)
    assert torch.equal(pool.submit(op, batch()).result(LIMIT), op(batch()))


@pytest.mark.parametrize("executor", ["threads", "process_pool"])
def test_an_executor_does_not_follow_into_a_forked_process(executor, pools):
    op = number(functions.quartic, pools(executor), functions.quartic_gradient)
    op(batch())
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork")) as pool:
        _forked["op"] = op
        said = pool.submit(_call_the_forked_op).result(LIMIT)
    assert "belongs to the process in which it was made" in said


_forked = {}


def _call_the_forked_op():
    try:
        return str(_forked["op"](batch()))
    except RuntimeError as error:
        return str(error)


INTERRUPTED = """
import sys
import executor_functions as functions

if __name__ == "__main__":
    import torch  # not at the top, since workers read this file too
    from concurrent.futures import ThreadPoolExecutor
    from helpers import differentiable, process_pool

    pool = {"threads": ThreadPoolExecutor, "process_pool": process_pool}[sys.argv[1]](2)
    op = differentiable(functions.naps, grad=functions.ones, batch="loop", executor=pool)
    op(torch.zeros(3, 1))
    print("ready", *getattr(pool, "_processes", ()), flush=True)
    try:
        op(torch.full((200, 1), 0.4))  # 40 s
    except KeyboardInterrupt:
        print("interrupted", op(torch.full((3, 1), 0.0)).tolist(), flush=True)
        pool.shutdown()
        raise
"""


@pytest.mark.parametrize("executor", ["threads", "process_pool"])
def test_control_c_ends_a_map_and_leaves_the_pool_in_order(executor, importable, tmp_path):
    script = tmp_path / "interrupted.py"
    script.write_text(INTERRUPTED)
    process = subprocess.Popen(
        [sys.executable, script, executor],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        start_new_session=True,
    )
    try:
        ready, *pids = process.stdout.readline().split()
        assert ready == "ready"
        threading.Event().wait(0.5)  # now it is in the middle of the map
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the workers, too
        out, err = process.communicate(timeout=20)  # half of what the whole map takes
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert out.strip() == "interrupted [0.0, 0.0, 0.0]"
    assert err.rstrip().endswith("KeyboardInterrupt")
    assert process.returncode == -signal.SIGINT
    assert len(pids) == (2 if executor == "process_pool" else 0)
    assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)
