"""Mistakes with random numbers: a value and its gradient have one draw, or the bridge says why not.

A test bears the slug of its row in the catalogue, which bridge_catalogue describes.
"""

import warnings
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_all_start_methods, get_context

import numpy as np
import pytest
import torch
from bridge_catalogue import GRADIENT, VALUE, complete, same_or_refused
from bridge_forms import at
from torch.utils.checkpoint import checkpoint

from helpers import ExternalFunction, UniformFactor, differentiable, rosenbrock


def noisy(seed=0, draws="evaluation"):
    return differentiable(
        rosenbrock.value, grad=rosenbrock.gradient, hvp=rosenbrock.hvp, noise=UniformFactor(0.5), rng=seed, draws=draws
    )


def factor_of(found, truth):
    """Return the one factor between found and true numbers."""
    factors = found / truth
    torch.testing.assert_close(factors, factors.reshape(-1)[0].expand_as(factors), rtol=1e-12, atol=0)
    return factors.reshape(-1)[0].item()


@pytest.mark.parametrize("draws", ["independent", "evaluation", "step"])
def test_independent_noise(draws):
    x = at()
    y = noisy(draws=draws)(x)
    (first,) = torch.autograd.grad(y, x, retain_graph=True)
    (second,) = torch.autograd.grad(y, x, retain_graph=True)
    assert torch.equal(first, second)
    agree = factor_of(first, GRADIENT) == pytest.approx(y.item() / VALUE, rel=1e-12)
    assert agree == (draws != "independent")


def test_independent_noise_in_the_functions():
    rng = np.random.default_rng(0)
    op = differentiable(
        lambda x: rosenbrock.value(x) * rng.uniform(0.5, 1.5),
        grad=lambda x: rosenbrock.gradient(x) * rng.uniform(0.5, 1.5),
    )
    with pytest.warns(UserWarning, match="draws from the generator rng.*noise=UniformFactor"):
        op(at())


def test_independent_noise_of_numpy_s_global_generator():
    op = differentiable(
        lambda x: rosenbrock.value(x) * np.random.uniform(0.5, 1.5),  # noqa: NPY002 - the mistake
        grad=rosenbrock.gradient,
    )
    with pytest.warns(UserWarning, match=r"draws from np\.random"):
        op(at())


class DrawsInside(ExternalFunction):
    def __init__(self):
        self.generator = np.random.default_rng(0)

    def forward(self, x):
        return rosenbrock.value(x) * self.generator.uniform(0.5, 1.5), x

    def adjoint(self, x, g):
        return g * rosenbrock.gradient(x) * self.generator.uniform(0.5, 1.5)


def test_independent_noise_in_a_class():
    with pytest.warns(UserWarning, match="draws from"):
        DrawsInside()(at())


def test_no_warning_of_noise_without_noise():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        complete()(at())


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint_noise(reentrant):
    op, x = noisy(), at()
    ys = [checkpoint(op, x, use_reentrant=reentrant) for _ in range(3)]
    for y in reversed(ys):
        x.grad = None
        y.backward()
        assert factor_of(x.grad, GRADIENT) == pytest.approx(y.item() / VALUE, rel=1e-12)
    assert len({y.item() for y in ys}) == 3


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint_noise_with_one_seed_for_every_step(reentrant):
    op, x, ys = noisy(), at(), []
    for _ in range(2):
        torch.manual_seed(0)
        ys.append(checkpoint(op, x, use_reentrant=reentrant))

    def factor_of_the_gradient(y):
        x.grad = None
        y.backward()
        return torch.tensor(factor_of(x.grad, GRADIENT), dtype=torch.float64)

    for y in ys:
        same_or_refused(lambda y=y: factor_of_the_gradient(y), y.item() / VALUE)


def test_wrong_seed():
    def values(seed, torch_seed):
        torch.manual_seed(torch_seed)
        op = noisy(seed)
        return [op(at()).item() for _ in range(3)]

    assert values(0, 1) == values(0, 2)
    assert values(0, 1) != values(1, 1)
    with pytest.raises(TypeError, match="rng must be an int"):
        noisy(None)


def draw_in_worker(op):
    try:
        return op(at()).item()
    except RuntimeError as error:
        return str(error)


@pytest.mark.parametrize("method", [method for method in ("fork",) if method in get_all_start_methods()])
@pytest.mark.filterwarnings("ignore:This process")
def test_forked_noise(method):
    op = noisy()
    op(at())
    with ProcessPoolExecutor(2, mp_context=get_context(method)) as pool:
        refused = list(pool.map(draw_in_worker, [op, op]))
        drawn = list(pool.map(draw_in_worker, [*op.spawn(2), *op.spawn(2)]))
    assert all("op.spawn(count)" in text for text in refused)
    assert len(set(drawn)) == 4


def test_gradcheck_noise():
    assert torch.autograd.gradcheck(noisy(draws="step"), at())
