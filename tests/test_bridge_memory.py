"""Nothing lives longer than its graph, and no memory is lost over many calls."""

import gc
import mmap
import weakref
from pathlib import Path

import numpy as np
import pytest
import torch
from bridge_forms import (
    FORMS,
    OPS,
    Big,
    CubeWithObject,
    at,
    cube,
    cube_gradient,
    cube_product,
    every_form,
    every_op,
    same,
)

from helpers import ExternalFunction, UniformFactor, differentiable

# --- arrays, states and ops die


def dead(references):
    return [reference() is None for reference in references]


@pytest.fixture
def no_collector():
    """Show what lives on by itself, without the collector of cycles."""
    gc.disable()
    yield
    gc.enable()


def watched_op(form, references):
    """Return an op that notes its arrays, and in the class form its states."""

    def watch(thing):
        references.append(weakref.ref(thing))
        return thing

    class Watched(ExternalFunction):
        def forward(self, x):
            return cube(x), watch(Big(watch(x)))

        def adjoint(self, state, g):
            return g * state.slope

    def value(x):
        return cube(watch(x))

    return Watched() if form == "class" else FORMS[form](value, cube_gradient)


@every_form
@pytest.mark.usefixtures("no_collector")
def test_everything_dies_with_the_graph(form):
    references = []

    def once(backward):
        op = watched_op(form, references)
        for n in (2, 40):
            for _ in range(2):
                x = at(*np.ones(n))
                y = op(x)
                if backward:
                    y.backward()
                references.extend([weakref.ref(x), weakref.ref(y)])

    for backward in (False, True):
        once(backward)
        assert len(references) >= 12
        assert all(dead(references))


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize(
    "use",
    [
        lambda op, x: torch.autograd.functional.hessian(op, x),
        lambda op, x: torch.func.hessian(op)(x.detach()),
        lambda op, x: torch.func.vmap(torch.func.grad(op))(torch.stack([x, x]).detach()),
        lambda op, x: torch.func.jvp(op, (x.detach(),), (x.detach(),)),
        lambda op, x: torch.utils.checkpoint.checkpoint(op, x, use_reentrant=False).backward(),
        lambda op, x: torch.autograd.gradcheck(op, x),
    ],
    ids=["hessian", "func.hessian", "vmap", "jvp", "checkpoint", "gradcheck"],
)
def test_arrays_die_after_every_use(use):
    references = []

    def watched(x):
        references.append(weakref.ref(x))
        return cube(x)

    op = differentiable(watched, grad=cube_gradient, hvp=cube_product)
    use(op, at(1.0, 2.0))
    gc.collect()  # torch.func itself makes cycles
    assert references
    assert all(dead(references))


@every_form
@pytest.mark.parametrize("n", [2, 1000])
@pytest.mark.usefixtures("no_collector")
def test_the_state_is_released_after_backward_although_the_output_lives(form, n):
    """As torch frees its saved tensors."""
    references = []
    op = watched_op(form, references)
    op(at(*np.ones(n))).backward()
    references.clear()
    x = at(*np.ones(n))
    y = op(x)
    assert not any(dead(references))
    y.backward(retain_graph=True)
    y.backward()
    assert all(dead(references))
    assert y.item() == n
    assert x.grad.sum().item() == 6 * n


@pytest.mark.usefixtures("no_collector")
def test_the_state_is_released_after_a_second_derivative():
    references = []

    class Watched(CubeWithObject):
        def forward(self, x):
            y, state = super().forward(x)
            references.append(weakref.ref(state))
            return y, state

        def hvp(self, state, g, t):
            return 2 * g * np.sqrt(3 * state.slope) * t

    x = at(1.0, 2.0)
    y = Watched()(x)
    (first,) = torch.autograd.grad(y, x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    same(second, [6.0, 12.0])
    del first
    y.backward()
    assert all(dead(references))


@pytest.mark.usefixtures("no_collector")
def test_an_op_dies_when_it_is_dropped():
    for make in OPS.values():
        op = make()
        x = at(1.0, 2.0)
        op(x).backward()
        reference = weakref.ref(op)
        del op
        assert reference() is None


# --- no memory is lost


def resident():
    """Return how many MiB of memory the process has; where the system does not tell, the most that it has had."""
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text().split()[1]) * mmap.PAGESIZE / 2**20
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # macOS counts bytes


def growth(work, rounds):
    """Return how many MiB of memory the process has won in the second half of the rounds."""
    gc.freeze()  # else each collection walks through all of torch
    sizes = []
    for _ in range(2):
        for _ in range(rounds // 2):
            work()
        gc.collect()
        sizes.append(resident())
    gc.unfreeze()
    return sizes[1] - sizes[0]


def test_no_leak_over_1e5_values():
    op, x = OPS["grad"](), at(1.0, 2.0)

    def work():
        with torch.no_grad():
            for _ in range(1000):
                op(x)

    assert growth(work, 100) < 8


@every_op
def test_no_leak_over_many_gradients(kind):
    """Each graph holds 800 kB or more, so 30 leaked ones would be 24 MB."""
    op, x = OPS[kind](), at(*np.ones(100_000))

    def work():
        x.grad = None
        op(x).backward()

    assert growth(work, 60) < 12


def test_no_leak_of_noise():
    op, x = differentiable(cube, grad=cube_gradient, noise=UniformFactor(0.5), rng=0), at(*np.ones(100_000))

    def work():
        x.grad = None
        op(x).backward()

    assert growth(work, 60) < 12


def test_no_leak_of_failures():
    def fails(x):
        if fails.on:
            raise ArithmeticError("no")
        return cube_gradient(x)

    fails.on = False
    op, x = differentiable(cube, grad=fails), at(*np.ones(100_000))
    op(x).backward()
    fails.on = True

    def work():
        y = op(x)
        with pytest.raises(ArithmeticError):
            y.backward()

    assert growth(work, 60) < 12
