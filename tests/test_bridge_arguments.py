"""Several tensors, keywords, whole numbers and arguments that are no tensors arrive where they belong."""

import numpy as np
import pytest
import torch
from bridge_forms import (
    Gather,
    Power,
    cube,
    cube_gradient,
    cube_of_torch,
    cube_op,
    cube_product,
    gather,
    gather_vjp,
    normal,
    power,
    power_gradient,
    same,
    same_as_torch,
    tensor,
)

from helpers import ExternalFunction, differentiable

# --- several tensors


def product(a, b):
    return a @ b


def product_vjp(a, b, g):
    return np.outer(g, b).reshape(a.shape), a.T @ g


def test_two_inputs():
    same_as_torch(differentiable(product, vjp=product_vjp), lambda a, b: a @ b, normal(3, 2), normal(2, seed=1))


@pytest.mark.parametrize("which", [(True, False), (False, True), (True, True)], ids=str)
def test_only_the_inputs_that_want_a_gradient_need_one(which):
    def adjoint(a, b, g):
        return tuple(gradient if want else None for gradient, want in zip(product_vjp(a, b, g), which, strict=True))

    class Product(ExternalFunction):
        def forward(self, a, b):
            return a @ b, (a, b)

        def adjoint(self, state, g):
            return adjoint(*state, g)

    for op in (differentiable(product, vjp=adjoint), Product()):
        same_as_torch(op, lambda a, b: a @ b, normal(3, 2, grad=which[0]), normal(2, seed=1, grad=which[1]))


def test_none_for_an_input_that_wants_a_gradient():
    op = differentiable(product, vjp=lambda a, b, g: (None, a.T @ g))
    with pytest.raises(TypeError, match=r"its vjp returned None"):
        op(normal(3, 2), normal(2)).sum().backward()


def test_no_input_wants_a_gradient():
    def refuse(*_):
        raise AssertionError("nobody asked for a gradient")

    y = differentiable(product, vjp=refuse)(normal(3, 2, grad=False), normal(2, grad=False))
    assert not y.requires_grad
    assert y.grad_fn is None


@pytest.mark.parametrize("n", [1, 2, 40])
def test_no_grad(n):
    op = cube_op("grad")
    with torch.no_grad():
        y = op(normal(n))
    assert not y.requires_grad


def test_jac_of_several_inputs_and_outputs():
    def fun(a, b):
        return a * b, np.sum(a**2)

    def jacobian(a, b):
        return (np.diag(b), np.diag(a)), (2 * a, np.zeros_like(b))

    op = differentiable(fun, jac=jacobian)
    same_as_torch(op, lambda a, b: (a * b, (a**2).sum()), normal(3), normal(3, seed=1))
    assert torch.autograd.gradcheck(op, (normal(3), normal(3, seed=1)), check_forward_ad=True)


def test_a_scalar_input_and_a_vector_output():
    same_as_torch(
        differentiable(lambda a: a * np.arange(3.0), vjp=lambda a, g: np.sum(g * np.arange(3.0))),
        lambda a: a * torch.arange(3.0, dtype=torch.float64),
        tensor(2.0),
    )


def test_the_same_tensor_twice():
    op = differentiable(lambda a, b: np.sum(a**2 * b), grad=lambda a, b: (2 * a * b, a**2))
    same_as_torch(lambda x: op(x, x), lambda x: (x**3).sum(), normal(4))


# --- keywords and arguments that are no tensors


POWERS = {
    "grad": lambda: differentiable(power, grad=power_gradient),
    "value_and_grad": lambda: differentiable(
        value_and_grad=lambda *args, **kwargs: (power(*args, **kwargs), power_gradient(*args, **kwargs))
    ),
    "jac": lambda: differentiable(power, jac=power_gradient),
    "decorator": lambda: differentiable(grad=power_gradient)(power),
    "class": Power,
}
CALLS = {
    "plain": ((), {}),
    "positional": ((2.0,), {}),
    "keyword": ((), {"p": 2.0}),
    "keyword only": ((), {"scale": 5.0}),
    "all": ((4,), {"scale": 0.5, "mode": "mean"}),
    "array": ((np.array([2.0, 3.0, 4.0]),), {"scale": 2.0}),
}


@pytest.mark.parametrize("form", POWERS)
@pytest.mark.parametrize("call", CALLS)
def test_arguments_that_are_no_tensors(form, call):
    args, kwargs = CALLS[call]
    op, x = POWERS[form](), (normal(3, grad=False).abs() + 1).requires_grad_()
    p, scale, mode = (*args, kwargs.get("p", 3.0))[0], kwargs.get("scale", 1.0), kwargs.get("mode", "sum")
    y = op(x, *args, **kwargs)
    truth = scale * getattr(x ** torch.as_tensor(p), mode)()
    same(y, truth)
    same(torch.autograd.grad(y, x)[0], torch.autograd.grad(truth, x)[0])


@pytest.mark.parametrize("form", POWERS)
def test_the_tensor_by_keyword(form):
    op, x = POWERS[form](), normal(3)
    y = op(x=x)
    same(y, (x**3).sum())
    same(torch.autograd.grad(y, x)[0], 3 * x**2)


def test_the_tensor_by_keyword_with_a_vjp():
    op = differentiable(cube, vjp=lambda x, g: g * cube_gradient(x), hvp=lambda x, g, t: g * cube_product(x, t))
    x = normal(3)
    same(torch.autograd.grad(op(x=x), x)[0], 3 * x**2)
    same(torch.func.hessian(lambda x: op(x=x))(x.detach()), torch.diag(6 * x))


def test_the_tensor_last():
    op = differentiable(lambda k, x: k * cube(x), grad=lambda k, x: k * cube_gradient(x))
    same_as_torch(lambda x: op(3, x), lambda x: 3 * cube_of_torch(x), normal(3))


def test_a_vjp_gets_g_after_the_other_arguments():
    op = differentiable(lambda x, k: k * x, vjp=lambda x, k, g: k * g)
    same_as_torch(lambda x: op(x, 3.0), lambda x: 3 * x, normal(3))


def test_arguments_arrive_as_they_are():
    marks = {"a": [1], "b": object()}
    seen = []

    def fun(x, mark, *, other):
        seen.append((mark, other))
        return cube(x)

    differentiable(fun, grad=lambda x, mark, other: cube_gradient(x))(normal(3), marks, other=len)
    ((mark, other),) = seen
    assert mark["b"] is marks["b"]
    assert mark == marks
    assert other is len


# --- whole numbers


@pytest.mark.parametrize("op", [differentiable(gather, vjp=gather_vjp), Gather()], ids=["vjp", "class"])
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.uint8], ids=str)
def test_whole_numbers_beside_real_ones(op, dtype):
    index = torch.tensor([2, 0, 2], dtype=dtype)
    same_as_torch(lambda x: op(x, index), lambda x: x[index.long()], normal(4))
    same_as_torch(lambda x: op(x, index=index), lambda x: x[index.long()], normal(4))


def test_a_mask_beside_real_numbers():
    mask = torch.tensor([True, False, True])
    op = differentiable(lambda mask, x: np.sum(x[mask]), grad=lambda mask, x: mask.astype(x.dtype))
    same_as_torch(lambda x: op(mask, x), lambda x: x[mask].sum(), normal(3))
