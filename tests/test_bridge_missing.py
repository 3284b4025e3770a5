"""A missing ingredient is an error that names the cure, on every route; what needs it not is right."""

import pytest
import torch
from bridge_patients import (
    PATIENTS,
    Cubic,
    assert_same,
    fresh,
    gradient,
    log_sum_exp,
    mixed,
    mixed_jac,
    numbers,
    polar,
    polar_vjp,
    scalar,
    solve,
    solve_hvp,
    solve_jvp,
    solve_torch,
    solve_vjp,
    stacked,
    tangents,
)
from bridge_routes import along_cotangents_and_tangents, dual_numbers, first_order, gradient_penalty
from torch import autograd, func
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.checkpoint import checkpoint

from helpers import ExternalFunction, MissingDerivative, differentiable, rosenbrock

# --- ops without an hvp or a jvp


class Root(Cubic):
    """Without the optional methods."""

    tangent, hvp = ExternalFunction.tangent, ExternalFunction.hvp


NO_HVP = {
    "grad": (differentiable(rosenbrock.value, grad=rosenbrock.gradient), (numbers(2),)),
    "value_and_grad": (differentiable(value_and_grad=log_sum_exp), (numbers(3),)),
    "vjp": (differentiable(solve, vjp=solve_vjp, jvp=solve_jvp), PATIENTS["vjp"].xs),
    "jac": (differentiable(mixed, jac=mixed_jac), PATIENTS["jac_several"].xs),
    "class": (type("OnlyTangent", (Cubic,), {"hvp": ExternalFunction.hvp})(), (numbers(3),)),
    "batch": (differentiable(rosenbrock.value, grad=rosenbrock.gradient, batch="loop"), (numbers(3, 2),)),
}
REFERENCES = ["grad", "value_and_grad", "vjp", "jac_several", "state", "loop"]
NO_JVP = {
    "vjp": (differentiable(solve, vjp=solve_vjp, hvp=solve_hvp), PATIENTS["vjp"].xs),
    "several": (differentiable(polar, vjp=polar_vjp), PATIENTS["vjp_several"].xs),
    "class": (Root(), (numbers(3),)),
}


# --- routes


def norm_of_gradient(f, xs, *, times=1):
    """Return |∇|∇…|∇f|²…|²|², with a graph."""
    value = scalar(f)(*xs)
    for _ in range(times):
        value = sum((g**2).sum() for g in autograd.grad(value, xs, create_graph=True))
    return value


def forward_over_reverse(f, xs):
    with forward_ad.dual_level():
        at = [forward_ad.make_dual(x, t) for x, t in zip(fresh(xs), tangents(xs), strict=True)]
        return autograd.grad(scalar(f)(*at), at)


def batched_second(f, xs):
    xs = fresh(xs)
    first = autograd.grad(scalar(f)(*xs), xs, create_graph=True)[0]
    rows = torch.eye(first.numel(), dtype=first.dtype).reshape(-1, *first.shape)
    return autograd.grad(first, xs, rows, is_grads_batched=True)


SECOND = {
    "functional.hessian": lambda f, xs: autograd.functional.hessian(scalar(f), xs),
    "functional.hessian vectorized": lambda f, xs: autograd.functional.hessian(scalar(f), xs, vectorize=True),
    "functional.hvp": lambda f, xs: autograd.functional.hvp(scalar(f), xs, tangents(xs)),
    "func.hessian": lambda f, xs: func.hessian(scalar(f))(*xs),
    "jacrev jacrev": lambda f, xs: func.jacrev(func.jacrev(f))(*xs),
    "jacfwd jacfwd": lambda f, xs: func.jacfwd(func.jacfwd(f))(*xs),
    "jacrev jacfwd": lambda f, xs: func.jacrev(func.jacfwd(f))(*xs),
    "jacfwd jacrev": lambda f, xs: func.jacfwd(func.jacrev(f))(*xs),
    "create_graph": lambda f, xs: norm_of_gradient(f, at := fresh(xs)).backward(inputs=at),
    "gradient penalty": gradient_penalty,
    "gradgradcheck": lambda f, xs: autograd.gradgradcheck(f, fresh(xs)),
    "vmap hessian": lambda f, xs: func.vmap(func.hessian(scalar(f)))(*stacked(xs)),
    "hessian vmap": lambda f, xs: func.hessian(scalar(func.vmap(f)))(*stacked(xs)),
    "dual numbers": forward_over_reverse,
    "is_grads_batched": batched_second,
    "jvp grad": lambda f, xs: func.jvp(gradient(f, xs), xs, tangents(xs)),
    "linearize grad": lambda f, xs: func.linearize(gradient(f, xs), *xs)[1](*tangents(xs)),
    "make_fx hessian": lambda f, xs: make_fx(func.hessian(scalar(f)))(*xs)(*xs),
    "checkpoint": lambda f, xs: gradient_penalty(lambda *xs: checkpoint(f, *xs, use_reentrant=False), xs),
}
TANGENT = {
    "func.jvp": lambda f, xs: func.jvp(f, xs, tangents(xs)),
    "jacfwd": lambda f, xs: func.jacfwd(f)(*xs),
    "dual numbers": lambda f, xs: dual_numbers(f, xs),
    "linearize": lambda f, xs: func.linearize(f, *xs)[1](*tangents(xs)),
    "functional.jvp": lambda f, xs: autograd.functional.jvp(f, xs, tangents(xs)),
    "functional.jacobian": lambda f, xs: autograd.functional.jacobian(f, xs, vectorize=True, strategy="forward-mode"),
    "vmap jacfwd": lambda f, xs: func.vmap(func.jacfwd(f))(*stacked(xs)),
    "jvp vmap": lambda f, xs: func.jvp(func.vmap(f), stacked(xs), stacked(tangents(xs))),
    "gradcheck": lambda f, xs: autograd.gradcheck(f, fresh(xs), check_forward_ad=True),
    "derivative for the cotangent": lambda f, xs: along_cotangents_and_tangents(f, xs),
}
THIRD = {
    "grad grad grad": lambda f, xs: norm_of_gradient(f, at := fresh(xs), times=2).backward(inputs=at),
    "create_graph": lambda f, xs: autograd.grad(norm_of_gradient(f, at := fresh(xs), times=2), at),
    "func.grad": lambda f, xs: func.jacrev(func.jacrev(gradient(f, xs)))(*xs),
    "jacfwd jacfwd jacfwd": lambda f, xs: func.jacfwd(func.jacfwd(func.jacfwd(f)))(*xs),
    "jacrev hessian": lambda f, xs: func.jacrev(func.hessian(scalar(f)))(*xs),
    "jacfwd hessian": lambda f, xs: func.jacfwd(func.hessian(scalar(f)))(*xs),
    "hessian grad": lambda f, xs: func.hessian(gradient(f, xs))(*xs),
    "jacrev jacfwd jacfwd": lambda f, xs: func.jacrev(func.jacfwd(func.jacfwd(f)))(*xs),
    "jacfwd jacrev jacfwd": lambda f, xs: func.jacfwd(func.jacrev(func.jacfwd(f)))(*xs),
    "functional.hessian": lambda f, xs: autograd.functional.hessian(lambda *xs: gradient(f, xs)(*xs)[0].sum(), xs),
    "gradgradcheck": lambda f, xs: autograd.gradgradcheck(gradient(f, xs), fresh(xs)),
    "dual numbers": lambda f, xs: forward_over_reverse(lambda *xs: gradient(f, xs)(*xs), xs),
    "vmap": lambda f, xs: func.vmap(func.jacrev(func.hessian(scalar(f))))(*stacked(xs)),
    "is_grads_batched": lambda f, xs: batched_second(gradient(f, xs), xs),
    "make_fx": lambda f, xs: make_fx(func.jacrev(func.hessian(scalar(f))))(*xs)(*xs),
}


def each_of(ops, routes):
    cases = [(f, xs, take) for f, xs in ops.values() for take in routes.values()]
    ids = [f"{name}-{way}".replace(" ", "_") for name in ops for way in routes]
    return pytest.mark.parametrize(("f", "xs", "take"), cases, ids=ids)


# --- the errors


@each_of(NO_HVP, SECOND)
def test_a_second_derivative_without_hvp_is_an_error(f, xs, take):
    f(*xs)
    with pytest.raises(MissingDerivative, match=r"has no hvp.*(Give differentiable\(..., hvp=|Write hvp\(self)"):
        take(f, xs)


@each_of(NO_JVP, TANGENT)
def test_a_tangent_without_jvp_is_an_error(f, xs, take):
    f(*xs)
    match = r"has no (jvp|tangent).*(Give differentiable\(..., jvp=|Write tangent\(self)"
    with pytest.raises(MissingDerivative, match=match):
        take(f, xs)


@each_of({name: (PATIENTS[name].op, PATIENTS[name].xs) for name in ("grad", "jac_several", "state")}, THIRD)
def test_a_third_derivative_is_an_error(f, xs, take):
    f(*xs)
    with pytest.raises(MissingDerivative, match="third derivative was asked for, and hvp is the last"):
        take(f, xs)


@pytest.mark.parametrize(("name", "twin"), [*zip(NO_HVP, REFERENCES, strict=True)], ids=NO_HVP)
def test_without_hvp_all_first_derivatives_are_there(name, twin):
    f, xs = NO_HVP[name]
    assert_same(first_order(f, xs), first_order(PATIENTS[twin].reference, xs))


def test_the_tangent_by_two_backwards_needs_no_hvp():
    f, xs = NO_HVP["vjp"]
    api = autograd.functional
    assert_same(api.jvp(f, xs, tangents(xs)), api.jvp(solve_torch, xs, tangents(xs)))
