"""One function in every form of the bridge, and the small tools of its tests."""

import numpy as np
import pytest
import torch

from helpers import ExternalFunction, differentiable

ONES = torch.ones(2, dtype=torch.float64)
DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
every_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)


def at(*numbers, dtype=torch.float64, grad=True):
    """Return a vector that wants a gradient, by default the point of the catalogue of mistakes."""
    return torch.tensor(numbers or (0.1, 0.1), dtype=dtype, requires_grad=grad)


def tensor(numbers, dtype=torch.float64, grad=True):
    return torch.tensor(numbers, dtype=dtype, requires_grad=grad)


def normal(*shape, seed=0, dtype=torch.float64, grad=True):
    numbers = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return numbers.to(dtype).requires_grad_(grad)


def same(found, truth, tolerance=1e-12):
    truth = torch.as_tensor(truth, dtype=torch.float64).detach()
    torch.testing.assert_close(found.detach(), truth, rtol=tolerance, atol=tolerance)


def same_as_torch(op, twin, *tensors, tolerance=1e-12):
    """Compare outputs, and the gradients of a weighted sum of them, with torch's own."""
    results = []
    for function in (op, twin):
        inputs = [x.detach().clone().requires_grad_(x.requires_grad) for x in tensors]
        ys = function(*inputs)
        ys = ys if isinstance(ys, tuple) else (ys,)
        wanted = [x for x in inputs if x.requires_grad]
        weights = [normal(*y.shape, seed=7, grad=False).to(y.dtype) for y in ys]
        results.append([*ys, *torch.autograd.grad(ys, wanted, weights)])
    for found, truth in zip(*results, strict=True):
        assert found.shape == truth.shape
        assert found.dtype == truth.dtype
        torch.testing.assert_close(found.detach(), truth.detach(), rtol=tolerance, atol=tolerance)


# --- a function of one number, in every form


def weighted(g, gradient):
    return g.reshape(g.shape + (1,) * (gradient.ndim - g.ndim)) * gradient


class Solver(ExternalFunction):
    """A function of one number in the class form."""

    def __init__(self, value, gradient, product=None, **options):
        self.value, self.gradient, self.product = value, gradient, product
        vars(self).update(options)

    def forward(self, x):
        return self.value(x), x

    def adjoint(self, x, g):
        return weighted(g, self.gradient(x))


class SolverTwice(Solver):
    def hvp(self, x, g, t):
        return weighted(g, self.product(x, t))


def pair_form(f, df, ddf=None, **options):
    return differentiable(value_and_grad=lambda x: (f(x), df(x)), hvp=ddf, **{"name": "value", **options})


FORMS = {
    "grad": lambda f, df, ddf=None, **o: differentiable(f, grad=df, hvp=ddf, **o),
    "value_and_grad": pair_form,
    "vjp": lambda f, df, ddf=None, **o: differentiable(
        f, vjp=lambda x, g: weighted(g, df(x)), hvp=ddf and (lambda x, g, t: weighted(g, ddf(x, t))), **o
    ),
    "jac": lambda f, df, ddf=None, **o: differentiable(
        f, jac=df, hvp=ddf and (lambda x, g, t: weighted(g, ddf(x, t))), **o
    ),
    "class": lambda f, df, ddf=None, **o: (SolverTwice if ddf else Solver)(f, df, ddf, **o),
}
every_form = pytest.mark.parametrize("form", FORMS)


def cube(x):
    return np.sum(x**3)


def cube_gradient(x):
    return 3 * x**2


def cube_product(x, t):
    return 6 * x * t


def cube_of_torch(x):
    return (x**3).sum()


def cube_op(form, **options):
    return FORMS[form](cube, cube_gradient, cube_product, **options)


# --- the cube in every form, and by solvers that keep something


class Remembers:
    """A solver whose gradient is that at its latest solve."""

    def value(self, x):
        self.x = x
        return cube(x)

    def gradient(self, x):
        return cube_gradient(self.x)


class Cube(ExternalFunction):
    def forward(self, x):
        return cube(x), {"x": x, "slope": 3 * x**2}

    def adjoint(self, state, g):
        return g * state["slope"]


class Big:
    """A factorisation or the like: an object that the bridge keeps as it is."""

    def __init__(self, x):
        self.slope = 3 * x**2


class CubeWithObject(ExternalFunction):
    def forward(self, x):
        return cube(x), Big(x)

    def adjoint(self, state, g):
        return g * state.slope


def with_state():
    solver = Remembers()
    return differentiable(solver.value, grad=solver.gradient)


OPS = {
    "grad": lambda: differentiable(cube, grad=cube_gradient),
    "value_and_grad": lambda: differentiable(value_and_grad=lambda x: (cube(x), cube_gradient(x))),
    "vjp": lambda: differentiable(cube, vjp=lambda x, g: g * cube_gradient(x)),
    "jac": lambda: differentiable(cube, jac=cube_gradient),
    "solver with a memory": with_state,
    "class": Cube,
    "class with an object": CubeWithObject,
}
every_op = pytest.mark.parametrize("kind", OPS)


class StopHereError(Exception):
    pass


# --- two outputs


def sincos(x):
    return np.sin(x), np.cos(x)


def sincos_vjp(x, g, h):
    return np.cos(x) * g - np.sin(x) * h


class SinCos(ExternalFunction):
    def forward(self, x):
        return (np.sin(x), np.cos(x)), x

    def adjoint(self, x, g, h):
        return sincos_vjp(x, g, h)

    def tangent(self, x, t):
        return np.cos(x) * t, -np.sin(x) * t

    def hvp(self, x, g, h, t):
        return (-np.sin(x) * g - np.cos(x) * h) * t


SINCOS = {
    "vjp": lambda **o: differentiable(sincos, vjp=sincos_vjp, **o),
    "jac": lambda **o: differentiable(sincos, jac=lambda x: (np.diag(np.cos(x)), np.diag(-np.sin(x))), **o),
    "class": SinCos,
}


# --- arguments that are no real tensors


def power(x, p=3.0, *, scale=1.0, mode="sum"):
    return scale * getattr(np, mode)(x**p)


def power_gradient(x, p=3.0, *, scale=1.0, mode="sum"):
    return scale * p * x ** (p - 1) / (1 if mode == "sum" else x.size)


class Power(ExternalFunction):
    def forward(self, x, p=3.0, *, scale=1.0, mode="sum"):
        return power(x, p, scale=scale, mode=mode), (x, p, scale, mode)

    def adjoint(self, state, g):
        x, p, scale, mode = state
        return g * power_gradient(x, p, scale=scale, mode=mode)


def gather(x, index):
    return x[index]


def gather_vjp(x, index, g):
    gradient = np.zeros_like(x)
    np.add.at(gradient, index, g)
    return gradient


class Gather(ExternalFunction):
    def forward(self, x, index):
        return x[index], (x.shape, index)

    def adjoint(self, state, g):
        shape, index = state
        return gather_vjp(np.zeros(shape), index, g)
