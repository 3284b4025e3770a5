"""Patients of the bridge: NumPy functions beside the same functions in torch, and tools to compare the two."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import func

from helpers import ExternalFunction, differentiable, rosenbrock

Tensor = torch.Tensor


# --- NumPy functions, and the same functions in torch


def log_sum_exp(x):
    weights = np.exp(x)
    return np.log(weights.sum()), weights / weights.sum()


def log_sum_exp_hvp(x, t):
    p = log_sum_exp(x)[1]
    return p * t - p * (p @ t)


def solve(a, b):
    return np.linalg.solve(a, b)


def solve_vjp(a, b, g):
    w = solve(a.T, g)
    return -np.outer(w, solve(a, b)), w


def solve_jvp(a, b, s, t):
    return solve(a, t - s @ solve(a, b))


def solve_hvp(a, b, g, s, t):
    u, w = solve(a, b), solve(a.T, g)
    dw = -solve(a.T, s.T @ w)
    return -np.outer(dw, u) - np.outer(w, solve_jvp(a, b, s, t)), dw


def mixed(x, y):
    return np.array([x[0] * y[0], np.sin(x[1]) * y[1] ** 2]), x @ x * y[0]


def mixed_jac(x, y):
    first = np.diag([y[0], np.cos(x[1]) * y[1] ** 2]), np.diag([x[0], 2 * np.sin(x[1]) * y[1]])
    return first, (2 * x * y[0], np.array([x @ x, 0.0]))


def mixed_hvp(x, y, g, h, s, t):
    sin, cos = np.sin(x[1]), np.cos(x[1])
    for_x = 2 * h * (s * y[0] + x * t[0])
    for_x += g * np.array([t[0], -sin * y[1] ** 2 * s[1] + 2 * cos * y[1] * t[1]])
    return for_x, np.array([g[0] * s[0] + 2 * h * x @ s, 2 * g[1] * (cos * s[1] * y[1] + sin * t[1])])


def mixed_torch(x, y):
    return torch.stack([x[0] * y[0], torch.sin(x[1]) * y[1] ** 2]), x @ x * y[0]


def polar(r, a):
    return r * np.cos(a), r * np.sin(a)


def polar_vjp(r, a, g, h):
    return g * np.cos(a) + h * np.sin(a), r * (h * np.cos(a) - g * np.sin(a))


def polar_jvp(r, a, s, t):
    return s * np.cos(a) - r * np.sin(a) * t, s * np.sin(a) + r * np.cos(a) * t


def polar_hvp(r, a, g, h, s, t):
    across = h * np.cos(a) - g * np.sin(a)
    return t * across, s * across - r * t * (g * np.cos(a) + h * np.sin(a))


class Cubic(ExternalFunction):
    """Solve y + y³ = x; the slope at the root is the state."""

    def forward(self, x):
        y = np.cbrt(x)
        for _ in range(50):
            y = y - (y + y**3 - x) / (1 + 3 * y**2)
        return y, (y, 1 / (1 + 3 * y**2))

    def adjoint(self, state, g):
        return g * state[1]

    def tangent(self, state, t):
        return t * state[1]

    def hvp(self, state, g, t):
        y, slope = state
        return -6 * y * slope**3 * g * t


class CubicBatch(Cubic):
    batch, signature = "vectorized", "(n)->(n)"


def cubic_torch(x):
    return 2 / 3**0.5 * torch.sinh(torch.asinh(3**1.5 / 2 * x) / 3)


def solve_torch(a, b):
    return (torch.linalg.inv(a) @ b[..., None])[..., 0]  # torch.linalg.solve takes a batch of vectors for a matrix


def rosenbrock_torch(x):
    return (1 - x[..., 0]) ** 2 + 5 * (x[..., 1] - x[..., 0] ** 2) ** 2


def rosen(**options):
    return differentiable(rosenbrock.value, grad=rosenbrock.gradient, hvp=rosenbrock.hvp, **options)


SOLVE = {"vjp": solve_vjp, "jvp": solve_jvp, "hvp": solve_hvp}


@dataclass(frozen=True)
class Patient:
    op: Any
    reference: Any
    xs: tuple[Tensor, ...]


def numbers(*shape, seed=0):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


MATRIX = numbers(2, 2) + 3 * torch.eye(2)
PATIENTS = {
    "grad": Patient(rosen(), rosenbrock_torch, (numbers(2),)),
    "value_and_grad": Patient(
        differentiable(value_and_grad=log_sum_exp, hvp=log_sum_exp_hvp), lambda x: torch.logsumexp(x, 0), (numbers(3),)
    ),
    "vjp": Patient(differentiable(solve, **SOLVE), solve_torch, (MATRIX, numbers(2))),
    "vjp_loop": Patient(
        differentiable(solve, **SOLVE, batch="loop", signature="(n,n),(n)->(n)"),
        solve_torch,
        (torch.stack([MATRIX, MATRIX.T + 1]), numbers(2)),
    ),
    "vjp_several": Patient(
        differentiable(polar, vjp=polar_vjp, jvp=polar_jvp, hvp=polar_hvp),
        lambda r, a: (r * torch.cos(a), r * torch.sin(a)),
        (numbers(3), numbers(3, seed=1)),
    ),
    "jac_several": Patient(
        differentiable(mixed, jac=mixed_jac, hvp=mixed_hvp), mixed_torch, (numbers(2), numbers(2, seed=1))
    ),
    "state": Patient(Cubic(), cubic_torch, (numbers(3),)),
    "state_vectorized": Patient(CubicBatch(), cubic_torch, (numbers(2, 3),)),
    "loop": Patient(rosen(batch="loop"), rosenbrock_torch, (numbers(3, 2),)),
    "vectorized": Patient(rosen(batch="vectorized"), rosenbrock_torch, (numbers(3, 2),)),
}
ALL_PATIENTS = pytest.mark.parametrize("patient", PATIENTS.values(), ids=PATIENTS.keys())


# --- tools


def leaves(tree):
    if isinstance(tree, Tensor):
        return [tree]
    return [leaf for branch in tree for leaf in leaves(branch)]


def assert_same(found, expected, tolerance=1e-10):
    found, expected = leaves(found), leaves(expected)
    assert any(each.abs().max() > 1e-3 for each in expected), "nothing but zeros: this would show nothing"
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.detach(), other.detach(), rtol=tolerance, atol=tolerance)


def fresh(xs):
    return tuple(x.detach().clone().requires_grad_() for x in xs)


def outputs(y):
    return (y,) if isinstance(y, Tensor) else tuple(y)


def cotangents(y):
    return tuple(torch.linspace(1, 2, each.numel()).to(each).reshape(each.shape) for each in outputs(y))


def tangents(xs):
    return tuple(torch.linspace(-1, 2, x.numel()).to(x).reshape(x.shape) for x in xs)


def scalar(f):
    """Return a number of all outputs: its second derivatives need those of f, and products of first ones (f²)."""

    def number(*xs):
        y = outputs(f(*xs))
        return sum((g * each + each**2).sum() for g, each in zip(cotangents(y), y, strict=True))

    return number


def stacked(xs):
    return tuple(torch.stack([x, 1.1 * x + 0.05]) for x in xs)


def every(xs):
    return tuple(range(len(xs)))


def backward(f, xs):
    xs = fresh(xs)
    scalar(f)(*xs).backward()
    return [x.grad for x in xs]


def pull_back(f, xs):
    y, pull = func.vjp(f, *xs)
    return y, pull(cotangents(y) if isinstance(y, tuple) else cotangents(y)[0])


def gradient(f, xs):
    return func.grad(scalar(f), every(xs))
