"""``executor=`` with a Dask cluster: two worker processes of two threads each, on this machine."""

import logging
import os
import sys
import threading

import dask
import distributed
import executor_functions as functions
import numpy as np
import pytest
import torch

from helpers import FailedSamples, differentiable

pytest_plugins = ["executor_pools"]

SLOPE = torch.from_numpy(functions.A.sum(0))


@pytest.fixture(scope="module")
def cluster(importable):
    with (
        dask.config.set({"distributed.worker.daemon": True, "distributed.comm.timeouts.connect": "30s"}),
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=2,
            processes=True,
            host="127.0.0.1",
            dashboard_address=None,
            silence_logs=logging.CRITICAL,
        ) as cluster,
    ):
        yield cluster


@pytest.fixture(scope="module")
def client(cluster):
    with distributed.Client(cluster, set_as_default=False) as client:
        yield client


@pytest.fixture(scope="module")
def pool(client):
    return client.get_executor()


def batch(*negative, count=4):
    x = torch.arange(1, 3 * count + 1, dtype=torch.float64).reshape(count, 3)
    for index in negative:
        x[index, 0] = -1.0
    return x


def everything(op):
    """Return value, gradient, and a second derivative."""
    x = batch().requires_grad_()
    y = op(x)
    (g,) = torch.autograd.grad((y**2).sum(), x, create_graph=True)
    (h,) = torch.autograd.grad((g**2).sum(), x)
    per_sample = torch.func.vmap(torch.func.jacrev(op))(x.detach())
    return y.detach(), g.detach(), h, per_sample


KINDS = {
    "grad": lambda **options: differentiable(
        functions.quartic, grad=functions.quartic_gradient, hvp=functions.quartic_hvp, batch="loop", **options
    ),
    "vjp": lambda **options: differentiable(
        functions.cube,
        vjp=functions.cube_vjp,
        jvp=functions.cube_jvp,
        hvp=functions.cube_hvp,
        batch="loop",
        signature="(n)->(n)",
        **options,
    ),
    "solver": lambda **options: differentiable(functions.Cubic(), batch="loop", **options),
    "recompute": lambda **options: differentiable(functions.Cubic(), batch="loop", state="recompute", **options),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_numbers_are_those_without_an_executor(kind, pool):
    found, wanted = everything(KINDS[kind](executor=pool)), everything(KINDS[kind]())
    assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))


def test_the_samples_are_computed_by_several_processes(pool):
    op = differentiable(functions.pid, grad=functions.pid_gradient, batch="loop", executor=pool)
    found = {pid for _ in range(3) for pid in op(batch(count=8)).tolist()}
    assert len(found) == 2
    assert os.getpid() not in found


def test_workers_do_not_load_torch(pool):
    op = differentiable(functions.loads_torch, grad=functions.ones, batch="loop", executor=pool)
    assert op(batch(count=8)).tolist() == [0.0] * 8


@pytest.mark.parametrize("kind", ["object", "global"])
def test_solvers_that_remember_are_right_in_workers_with_several_threads(kind, pool):
    op = {
        "object": lambda: differentiable(functions.Remembering(), batch="loop", executor=pool),
        "global": lambda: differentiable(
            functions.forgetful_cube,
            vjp=functions.reads_the_latest_slowly,
            batch="loop",
            signature="(n)->(n)",
            executor=pool,
        ),
    }[kind]()
    for seed in range(2):
        x = torch.rand(8, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).requires_grad_()
        y, z = op(x), op(2 * x)
        (y.sum() + z.sum()).backward()
        assert torch.allclose(x.grad, 27 * x.detach() ** 2 * SLOPE)


def test_another_op_does_not_disturb_a_solver_that_remembers(pool):
    op = differentiable(
        functions.forgetful_cube,
        vjp=functions.reads_the_latest_slowly,
        batch="loop",
        signature="(n)->(n)",
        executor=pool,
    )
    other = differentiable(functions.disturbs, grad=functions.ones, batch="loop", executor=pool)
    x, done = batch(count=12).requires_grad_(), threading.Event()
    op(x).sum().backward()

    def disturb():
        while not done.is_set():
            other(batch(count=12))

    thread = threading.Thread(target=disturb)
    thread.start()
    try:
        for _ in range(3):
            x.grad = None
            op(x).sum().backward()
            assert torch.allclose(x.grad, 3 * batch(count=12) ** 2 * SLOPE)
    finally:
        done.set()
        thread.join()


def test_functions_of_a_notebook_travel_as_they_are_now(pool, monkeypatch):
    main = sys.modules["__main__"]
    code = "def fun(x):\n    return factor * (x @ x)\ndef grad(x):\n    return factor * 2 * x\nfactor = 3.0"
    session = {"__name__": "__main__"}
    exec(code, session)
    for name in ("fun", "grad"):
        monkeypatch.setattr(main, name, session[name], raising=False)
    op = differentiable(session["fun"], grad=session["grad"], batch="loop", executor=pool)
    for factor in (3.0, 5.0):
        session["factor"] = factor
        x = batch().requires_grad_()
        op(x).sum().backward()
        assert torch.equal(x.grad, factor * 2 * batch())
    op = differentiable(lambda x: x @ x, grad=lambda x: 2 * x, batch="loop", executor=pool)
    assert torch.equal(op(batch()), (batch() ** 2).sum(1))


def test_a_sample_that_fails_is_named_and_the_others_are_kept(pool):
    op = differentiable(
        functions.fails_at_negative, grad=functions.gradient_fails_at_negative, batch="loop", executor=pool
    )
    with pytest.raises(FailedSamples, match="Sample 2: LinAlgError: x") as caught:
        op(batch(2))
    assert type(caught.value.samples[2]) is np.linalg.LinAlgError
    assert "in fails_at_negative" in str(caught.value.samples[2].__cause__)
    assert set(caught.value.results) == {0, 1, 3}


def test_sys_exit_ends_no_worker(pool):
    op = differentiable(functions.leaves_at_negative, grad=functions.slow_gradient, batch="loop", executor=pool)
    with pytest.raises(FailedSamples, match=r"Sample 1: .*SystemExit"):
        op(batch(1))
    assert op(batch()).shape == (4,)


def test_a_client_is_refused_with_the_cure(client):
    with pytest.raises(TypeError, match=r"client\.get_executor\(\)"):
        differentiable(functions.slow, grad=functions.slow_gradient, batch="loop", executor=client)


def test_the_gradient_arrives_after_a_worker_was_killed_once(pool, tmp_path):
    op = differentiable(
        functions.dies_once, grad=functions.dies_once_gradient, batch="loop", signature="(n)->()", executor=pool
    )
    marker = tmp_path / "marker"
    x = batch(2).requires_grad_()
    op(x, str(marker)).sum().backward()
    assert marker.read_text() == "died"
    assert torch.equal(x.grad, 2 * x.detach())


def test_a_sample_that_always_kills_its_worker_is_named(cluster, pool, monkeypatch):
    monkeypatch.setattr(cluster.scheduler, "allowed_failures", 0)  # not three new workers, which take long to start
    op = differentiable(functions.dies_at_negative, grad=functions.slow_gradient, batch="loop", executor=pool)
    with pytest.raises(FailedSamples, match=r"Sample 2: KilledWorker") as caught:
        op(batch(2, count=3))
    assert set(caught.value.samples) >= {2}


def test_a_client_that_was_closed(cluster):
    with distributed.Client(cluster, set_as_default=False) as client:
        op = differentiable(functions.cube, vjp=functions.cube_vjp, batch="loop", executor=client.get_executor())
    with pytest.raises(RuntimeError, match="cube: its executor takes no more tasks"):
        op(batch())


def test_a_client_that_closes_in_the_middle_ends_the_waiting(cluster):
    client = distributed.Client(cluster, set_as_default=False)
    op = differentiable(functions.naps, grad=functions.ones, batch="loop", executor=client.get_executor(), timeout=60)
    timer = threading.Timer(0.3, client.close)
    timer.start()
    with pytest.raises(FailedSamples, match="cancelled"):
        op(torch.full((4, 1), 2.0))
    timer.join()
