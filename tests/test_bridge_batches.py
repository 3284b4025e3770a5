"""Batches, in a loop and vectorised: torch's own numbers for every way in which leading axes broadcast."""

import numpy as np
import pytest
import torch
from bridge_forms import (
    FORMS,
    SINCOS,
    cube_gradient,
    cube_product,
    every_form,
    gather,
    gather_vjp,
    normal,
    same,
    same_as_torch,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import ExternalFunction, differentiable, rosenbrock

modest = settings(max_examples=15, deadline=None)


def dot(a, b):
    return np.sum(a * b, axis=-1)


def dot_vjp(a, b, g):
    return np.expand_dims(g, -1) * b, np.expand_dims(g, -1) * a


class Dot(ExternalFunction):
    def forward(self, a, b):
        return dot(a, b), (a, b)

    def adjoint(self, state, g):
        return dot_vjp(*state, g)


def dot_class(**options):
    class Solver(Dot):
        batch, signature = options["batch"], options["signature"]

    return Solver()


DOTS = {
    "vjp": lambda **o: differentiable(dot, vjp=dot_vjp, **o),
    "grad": lambda **o: differentiable(dot, grad=lambda a, b: (b, a), **o),
    "jac": lambda **o: differentiable(dot, jac=lambda a, b: (b, a), **o),
    "value_and_grad": lambda **o: differentiable(value_and_grad=lambda a, b: (dot(a, b), (b, a)), **o),
    "class": dot_class,
}
LEADS = {
    "none": ((), ()),
    "same": ((4,), (4,)),
    "first stretched": ((), (4,)),
    "second stretched": ((4,), ()),
    "sizes of one": ((4, 1), (1, 3)),
    "two and none": ((2, 3), ()),
    "two and one": ((2, 3), (3,)),
    "four axes": ((2, 1, 3, 1), (2, 1, 2)),
}


@pytest.mark.parametrize("form", DOTS)
@pytest.mark.parametrize("batch", ["loop", "vectorized"])
@pytest.mark.parametrize("leads", LEADS)
def test_broadcast(form, batch, leads):
    first, second = LEADS[leads]
    op = DOTS[form](batch=batch, signature="(n),(n)->()")
    same_as_torch(op, lambda a, b: (a * b).sum(-1), normal(*first, 3), normal(*second, 3, seed=1))


@every_form
@pytest.mark.parametrize("batch", ["loop", "vectorized"])
@pytest.mark.parametrize("lead", [(), (1,), (5,), (2, 3)], ids=str)
def test_batch_of_one_input(form, batch, lead):
    op = FORMS[form](lambda x: np.sum(x**3, axis=-1), cube_gradient, cube_product, batch=batch)
    x = normal(*lead, 4)
    y = op(x)
    same(y, (x**3).sum(-1))
    (gradient,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    same(gradient, 3 * x**2)
    same(torch.autograd.grad(gradient.sum(), x)[0], 6 * x)


@pytest.mark.parametrize("batch", ["loop", "vectorized"])
@pytest.mark.parametrize("form", ["grad", "vjp", "class"])
def test_a_batch_of_no_samples(batch, form):
    op = FORMS[form](lambda x: np.sum(x**3, axis=-1), cube_gradient, batch=batch)
    x = normal(0, 4)
    y = op(x)
    assert y.shape == (0,)
    y.sum().backward()
    assert x.grad.shape == (0, 4)


def count_calls(batch, samples=6):
    values, gradients = [], []

    def value(x):
        values.append(1)
        return np.sum(x**3, axis=-1)

    def gradient(x):
        gradients.append(1)
        return cube_gradient(x)

    differentiable(value, grad=gradient, batch=batch)(normal(samples, 2)).sum().backward()
    return len(values), len(gradients)


def test_a_loop_calls_once_a_sample_and_vectorized_once():
    assert count_calls("loop") == (6, 6)
    assert count_calls("vectorized") == (1, 1)


@pytest.mark.parametrize("batch", ["loop", "vectorized"])
def test_batch_of_matrices_and_vectors(batch):
    op = differentiable(
        lambda a, b: (a @ b[..., np.newaxis])[..., 0],
        vjp=lambda a, b, g: (
            g[..., :, np.newaxis] * b[..., np.newaxis, :],
            (np.swapaxes(a, -1, -2) @ g[..., np.newaxis])[..., 0],
        ),
        batch=batch,
        signature="(m,n),(n)->(m)",
    )
    same_as_torch(op, lambda a, b: (a @ b[..., None])[..., 0], normal(3, 2), normal(5, 2, seed=1))
    same_as_torch(op, lambda a, b: (a @ b[..., None])[..., 0], normal(5, 3, 2), normal(2, seed=1))


def test_batch_of_0d_samples():
    op = differentiable(lambda x: x**3, grad=cube_gradient, batch="vectorized", signature="()->()")
    same_as_torch(op, lambda x: x**3, normal(2, 3))


def test_batch_of_two_outputs():
    op = SINCOS["vjp"](batch="vectorized", signature="(n)->(n),(n)")
    same_as_torch(op, lambda x: (x.sin(), x.cos()), normal(3, 4))
    op = SINCOS["jac"](batch="loop")
    same_as_torch(op, lambda x: (x.sin(), x.cos()), normal(3, 4))


def test_a_batch_with_whole_numbers():
    op = differentiable(gather, vjp=gather_vjp, batch="loop", signature="(n),(k)->(k)")
    index = torch.tensor([[0, 1], [2, 2], [1, 0]])
    same_as_torch(lambda x: op(x, index), lambda x: x.expand(3, 4).gather(1, index), normal(4))


@pytest.mark.parametrize(
    ("options", "shapes", "words"),
    [
        ({"batch": "loop"}, [(3, 2), (2,)], "with 2 tensors a batch needs signature="),
        ({"batch": "loop", "signature": "(n)->()"}, [(2,), (2,)], "and 2 tensors do not go together"),
        ({"batch": "loop", "signature": "(m,n),(n)->()"}, [(2,), (2,)], "asks for 2 axes"),
        ({"batch": "loop", "signature": "(n),(n)->()"}, [(2,), (3,)], "axis 'n' of .* is 2 and 3 long"),
        ({"batch": "loop", "signature": "(n),(n)->()"}, [(4, 2), (3, 2)], "do not broadcast"),
    ],
    ids=["no signature", "count", "axes", "sizes", "leading axes"],
)
def test_a_batch_that_does_not_fit(options, shapes, words):
    op = differentiable(dot, vjp=dot_vjp, **options)
    with pytest.raises(ValueError, match=words):
        op(*(normal(*shape) for shape in shapes))


def test_a_function_of_one_sample_is_not_vectorized():
    op = differentiable(lambda x: np.sum(x), vjp=lambda x, g: x, batch="vectorized")
    with pytest.raises(ValueError, match=r"shape \(3,\) .*batch=\"loop\""):
        op(normal(3, 2))


def test_many_points_without_batch():
    with pytest.raises(ValueError, match=r"returned shape \(3,\).*add batch=\"vectorized\""):
        differentiable(rosenbrock.value, grad=rosenbrock.gradient)(normal(3, 2))


@pytest.mark.parametrize("form", DOTS)
@pytest.mark.parametrize("batch", ["loop", "vectorized"])
@modest
@given(st.data())
def test_any_broadcast(form, batch, data):
    full = data.draw(st.lists(st.integers(1, 3), max_size=3))
    leads = []
    for _ in range(2):
        sizes = [data.draw(st.sampled_from([1, size])) for size in full]
        leads.append(sizes[data.draw(st.integers(0, len(sizes))) :])
    n, seed = data.draw(st.integers(1, 4)), data.draw(st.integers(0, 1000))
    op = DOTS[form](batch=batch, signature="(n),(n)->()")
    a, b = normal(*leads[0], n, seed=seed), normal(*leads[1], n, seed=seed + 1)
    same_as_torch(op, lambda a, b: (a * b).sum(-1), a, b, tolerance=1e-10)
