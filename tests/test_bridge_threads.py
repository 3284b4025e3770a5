"""Threads and processes share an op: each gets the gradient of its own point."""

import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_all_start_methods, get_context

import numpy as np
import pytest
import torch
from bridge_forms import OPS, Remembers, at, cube, cube_gradient, cube_product, every_op, same, with_state

from helpers import UniformFactor, differentiable

# --- threads


def in_threads(work, count=8):
    """Run work(number) in so many threads that begin at the same time; return what they give."""
    barrier = threading.Barrier(count)

    def begin(number):
        barrier.wait(timeout=60)
        return work(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(begin, range(count)))


@pytest.fixture
def eager_switching():
    """Let Python change threads as often as it can."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


@every_op
@pytest.mark.usefixtures("eager_switching")
def test_eight_threads_share_an_op(kind):
    op = OPS[kind]()

    def work(number):
        wrong = 0
        for step in range(60):
            x = at(number + 1.0, step - 30.0)
            y = op(x)
            y.backward()
            wrong += not torch.equal(x.grad, 3 * x.detach() ** 2) or y.item() != cube(x.detach().numpy())
        return wrong

    assert in_threads(work) == [0] * 8


@pytest.mark.usefixtures("eager_switching")
@pytest.mark.parametrize("form", ["grad", "vjp"])
def test_eight_threads_share_a_solver_that_hands_out_its_buffers(form):
    """The next solve, in another thread, writes into the arrays that this one has returned."""

    class Solver:
        def __init__(self):
            self.y, self.slope = np.zeros(200), np.zeros(200)

        def value(self, x):
            self.slope[:] = 3 * x**2
            self.y[:] = x**3
            return self.y if form == "vjp" else self.y[..., 0]

        def gradient(self, x):
            cube_gradient = self.slope
            cube_gradient[1:] = 0
            return cube_gradient

        def vjp(self, x, g):
            self.slope *= g
            return self.slope

    solver = Solver()
    derivative = {"grad": solver.gradient} if form == "grad" else {"vjp": solver.vjp}
    op = differentiable(solver.value, **derivative)

    def work(number):
        wrong = 0
        for step in range(40):
            x = torch.full((200,), number + 1.0 + step, dtype=torch.float64, requires_grad=True)
            y = op(x)
            (slope,) = torch.autograd.grad(y.sum(), x)
            entries = slice(None) if form == "vjp" else slice(1)
            wrong += not torch.equal(y.detach().expand(200)[entries], x.detach()[entries] ** 3)
            wrong += not torch.equal(slope[entries], 3 * x.detach()[entries] ** 2)
        return wrong

    assert in_threads(work) == [0] * 8


@pytest.mark.usefixtures("eager_switching")
def test_eight_threads_share_a_first_check():
    op = differentiable(cube, grad=cube_gradient, hvp=cube_product, check="first")

    def work(number):
        x = at(number + 1.0)
        return torch.autograd.functional.hessian(op, x).item()

    op(at(1.0))
    assert in_threads(work) == [6.0 * (number + 1) for number in range(8)]


@pytest.mark.usefixtures("eager_switching")
@pytest.mark.parametrize("draws", ["evaluation", "step"])
def test_eight_threads_share_the_noise(draws):
    op = differentiable(cube, grad=cube_gradient, noise=UniformFactor(0.5), rng=0, draws=draws)

    def work(number):
        factors = []
        for _ in range(40):
            x = at(number + 1.0)
            y = op(x)
            y.backward()
            factors.append(y.item() / (number + 1.0) ** 3)
            assert x.grad.item() == pytest.approx(factors[-1] * 3 * (number + 1.0) ** 2, rel=1e-12)
        return factors

    found = {round(factor, 9) for factors in in_threads(work) for factor in factors}
    assert len(found) == (1 if draws == "step" else 8 * 40)


@pytest.mark.usefixtures("eager_switching")
def test_forward_in_one_thread_and_backward_in_another():
    op = with_state()
    xs = [at(number + 1.0) for number in range(8)]
    ys = in_threads(lambda number: op(xs[number]))
    in_threads(lambda number: ys[7 - number].backward())
    assert [x.grad.item() for x in xs] == [3.0 * (number + 1) ** 2 for number in range(8)]


def test_a_solver_that_calls_its_own_op():
    """The lock of a solver with a memory must let its own thread in again."""

    class Solver(Remembers):
        def gradient(self, x):
            inner = at(*x.tolist())
            op(inner)
            return super().gradient(x)

    solver = Solver()
    op = differentiable(solver.value, grad=solver.gradient)
    x = at(2.0)
    op(x).backward()
    same(x.grad, [12.0])


@pytest.mark.parametrize("allowed", [True, False])
def test_multithreading_of_backward(allowed):
    for make in OPS.values():
        x = at(1.0, 2.0)
        with torch.autograd.set_multithreading_enabled(allowed):
            make()(x).backward()
        same(x.grad, [3.0, 12.0])


# --- other processes


def value_and_gradient_in_a_worker(op):
    x = at(1.0, 2.0)
    y = op(x)
    y.backward()
    return y.item(), x.grad.tolist()


@pytest.mark.parametrize("method", [method for method in get_all_start_methods() if method == "fork"])
@pytest.mark.filterwarnings("ignore:This process")
def test_fork_after_use(method):
    """A forked process inherits ops, graphs and locks in the middle of their use."""
    solver = Remembers()
    op = differentiable(solver.value, grad=solver.gradient)
    x = at(1.0, 2.0)
    y = op(x)
    queue = get_context(method).SimpleQueue()

    def child():
        y.backward()
        queue.put((x.grad.tolist(), value_and_gradient_in_a_worker(op)))

    process = get_context(method).Process(target=child)
    process.start()
    assert queue.get() == ([3.0, 12.0], (9.0, [3.0, 12.0]))
    process.join(60)
    assert process.exitcode == 0
    assert x.grad is None
