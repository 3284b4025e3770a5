"""Several outputs, aux, and numbers that are not finite."""

import numpy as np
import pytest
import torch
from bridge_forms import (
    FORMS,
    SINCOS,
    cube,
    cube_gradient,
    cube_op,
    every_form,
    normal,
    same,
    same_as_torch,
    sincos,
    sincos_vjp,
    tensor,
)

from helpers import ExternalFunction, differentiable

# --- several outputs


@pytest.mark.parametrize("form", SINCOS)
def test_two_outputs(form):
    same_as_torch(SINCOS[form](), lambda x: (x.sin(), x.cos()), normal(4))


@pytest.mark.parametrize("form", SINCOS)
@pytest.mark.parametrize("used", [0, 1])
def test_one_of_two_outputs_used(form, used):
    op = SINCOS[form]()
    same_as_torch(lambda x: op(x)[used], lambda x: (x.sin(), x.cos())[used], normal(4))


def test_outputs_of_different_shapes_and_inputs_of_different_shapes():
    def fun(a, b):
        return a @ b, np.sum(a), b[:, np.newaxis] * b

    def adjoint(a, b, g, h, k):
        return np.outer(g, b) + h, a.T @ g + (k + k.T) @ b

    same_as_torch(
        differentiable(fun, vjp=adjoint),
        lambda a, b: (a @ b, a.sum(), torch.outer(b, b)),
        normal(3, 2),
        normal(2, seed=1),
    )


def test_a_tuple_of_one_output():
    op = differentiable(lambda x: (2 * x,), vjp=lambda x, g: 2 * g)
    (y,) = op(normal(3))
    assert y.shape == (3,)


# --- aux


AUX = {
    "grad": lambda **o: differentiable(lambda x: (cube(x), {"n": x.size}), grad=cube_gradient, aux=True, **o),
    "vjp": lambda **o: differentiable(
        lambda x: (cube(x), {"n": x.size}), vjp=lambda x, g: g * cube_gradient(x), aux=True, **o
    ),
    "jac": lambda **o: differentiable(lambda x: (cube(x), {"n": x.size}), jac=cube_gradient, aux=True, **o),
    "value_and_grad": lambda **o: differentiable(
        value_and_grad=lambda x: ((cube(x), {"n": x.size}), cube_gradient(x)), aux=True, **o
    ),
    "class": lambda **o: aux_class(**o),
}
every_aux = pytest.mark.parametrize("form", AUX)


def aux_class(**options):
    class Solver(ExternalFunction):
        aux = True

        def __init__(self):
            vars(self).update(options)

        def forward(self, x):
            return cube(x), x, {"n": x.size}

        def adjoint(self, x, g):
            return g * cube_gradient(x)

    return Solver()


@every_aux
def test_aux(form):
    op, x = AUX[form](), normal(3)
    for _ in range(2):
        y, aux = op(x)
        assert aux == {"n": 3}
        same(torch.autograd.grad(y, x)[0], 3 * x**2)


@every_aux
def test_aux_under_no_grad(form):
    with torch.no_grad():
        y, aux = AUX[form]()(normal(3))
    assert not y.requires_grad
    assert aux == {"n": 3}


@every_aux
def test_aux_under_func_grad(form):
    op, x, kept = AUX[form](), normal(3, grad=False), []

    def value(x):
        y, aux = op(x)
        kept.append(aux)
        return y

    same(torch.func.grad(value)(x), 3 * x**2)
    assert kept == [{"n": 3}]


def test_aux_of_tensors_under_func_grad():
    op = differentiable(lambda x: (cube(x), torch.tensor(1.0)), grad=cube_gradient, aux=True)
    x = normal(3, grad=False)
    gradient, aux = torch.func.grad(op, has_aux=True)(x)
    same(gradient, 3 * x**2)
    assert aux.item() == 1


@every_aux
def test_aux_in_a_loop(form):
    op, x = AUX[form](batch="loop"), normal(2, 3)
    y, aux = op(x)
    assert aux == [{"n": 3}] * 2
    same(torch.autograd.grad(y.sum(), x)[0], 3 * x**2)


@every_aux
def test_aux_under_vmap(form):
    with pytest.raises(TypeError, match=r"vmap lets only tensors through.*batch=\"loop\""):
        torch.func.vmap(lambda x: AUX[form]()(x)[0])(normal(2, 3, grad=False))


def test_aux_of_two_outputs():
    op = differentiable(lambda x: (sincos(x), "aux"), vjp=sincos_vjp, aux=True)
    (s, c), aux = op(normal(3))
    assert aux == "aux"
    same(s**2 + c**2, torch.ones(3))


@pytest.mark.parametrize("returned", [1.0, (1.0, None, None)], ids=["one", "three"])
def test_aux_that_does_not_come(returned):
    op = differentiable(lambda x: returned, grad=cube_gradient, aux=True, name="f")
    with pytest.raises(TypeError, match=r"f must return \(value, aux\)"):
        op(normal(3))


# --- finite


@every_form
def test_finite_hvp(form):
    op = FORMS[form](cube, cube_gradient, lambda x, t: t * np.nan, finite="raise", name="f")
    with pytest.raises(FloatingPointError, match="f: its hvp holds NaN or Inf"):
        torch.autograd.functional.hessian(op, tensor([1.0, 2.0]))


@every_form
def test_finite_overflow_of_the_dtype(form):
    """1e5³ is finite in float64 and too large for float16, in which the output is handed back."""
    op = cube_op(form, finite="raise", compute_dtype="float64")
    with pytest.raises(FloatingPointError, match="NaN or Inf"):
        op(tensor([6e4], torch.float16))


@every_form
def test_without_finite_nan_is_handed_on(form):
    x = tensor([1.0, 2.0])
    FORMS[form](cube, lambda x: x * np.nan)(x).backward()
    assert x.grad.isnan().all()
