"""verify and check="first": a wrong derivative is told from a right one, whatever the units, dtype and domain."""

import numpy as np
import pytest
import torch
from bridge_forms import (
    FORMS,
    cube,
    cube_gradient,
    cube_op,
    cube_product,
    every_dtype,
    every_form,
    normal,
    power,
    power_gradient,
    tensor,
)

from helpers import UniformFactor, WrongDerivative, differentiable, rosenbrock

# --- verify


@every_form
def test_verify_right(form):
    text = cube_op(form, name="f").verify(normal(3))
    assert text.startswith("f: its ")
    assert text.count("agrees with finite differences") == (2 if form in ("class", "vjp") else 3)


@every_form
@pytest.mark.parametrize("where", ["gradient", "hvp"])
@pytest.mark.parametrize("wrong", [2.0, 1.001, -1.0, 0.0])
def test_verify_wrong(form, where, wrong):
    def gradient(x):
        return (wrong if where == "gradient" else 1) * cube_gradient(x)

    def hvp(x, t):
        return (wrong if where == "hvp" else 1) * cube_product(x, t)

    words = "hvp" if where == "hvp" else "grad|vjp|jac|adjoint|value_and_grad"
    with pytest.raises(WrongDerivative, match=f"its ({words}) does not agree with finite differences"):
        FORMS[form](cube, gradient, hvp).verify(normal(3))


def test_verify_a_wrong_jvp():
    op = differentiable(lambda x: 2 * x, vjp=lambda x, g: 2 * g, jvp=lambda x, t: 3 * t)
    with pytest.raises(WrongDerivative, match="its jvp does not agree"):
        op.verify(normal(3))


def test_verify_two_inputs_and_two_outputs():
    right = differentiable(
        lambda a, b: (a * b, np.sum(a)),
        vjp=lambda a, b, g, h: (g * b + h, g * a),
        jvp=lambda a, b, s, t: (s * b + a * t, np.sum(s)),
        hvp=lambda a, b, g, h, s, t: (g * t, g * s),
    )
    assert right.verify(normal(3), normal(3, seed=1)).count("agrees") == 3
    with pytest.raises(WrongDerivative):
        differentiable(lambda a, b: (a * b, np.sum(a)), vjp=lambda a, b, g, h: (g * b, g * a)).verify(
            normal(3), normal(3, seed=1)
        )


@pytest.mark.parametrize("near", [1e-1, 1e-2, 1e-3, 1e-4, 1e-6])
@pytest.mark.parametrize("n", [1, 2, 5, 20])
@pytest.mark.filterwarnings("ignore:invalid value", "ignore:divide by zero")
def test_verify_near_the_edge_of_a_domain(near, n):
    right = differentiable(lambda x: np.sum(np.log(x)), grad=lambda x: 1 / x)
    assert "agrees" in right.verify(torch.full((n,), near, dtype=torch.float64))


@pytest.mark.parametrize("near", [1e-1, 1e-2, 1e-3])
def test_verify_where_the_solver_raises_outside_its_domain(near):
    class OutOfDomainError(RuntimeError):
        pass

    def value(x):
        if np.any(x <= 0):
            raise OutOfDomainError
        return np.sum(np.log(x))

    assert "agrees" in differentiable(value, grad=lambda x: 1 / x).verify(tensor([near, 1.0]))


@every_form
@pytest.mark.parametrize("scale", [1e-12, 1e-6, 1.0, 1e9])
def test_verify_whatever_the_units(form, scale):
    def op(factor):
        return FORMS[form](lambda x: scale * cube(x), lambda x: factor * scale * cube_gradient(x))

    assert "agrees" in op(1).verify(normal(3))
    with pytest.raises(WrongDerivative, match="does not agree"):
        op(2).verify(normal(3))


@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_verify_whatever_the_size_of_x(scale):
    op = cube_op("grad")
    assert "agrees" in op.verify(scale * normal(3, grad=False))


def test_verify_at_a_kink():
    op = differentiable(lambda x: np.sum(np.abs(x)), grad=np.sign)
    assert "agrees" in op.verify(torch.zeros(4, dtype=torch.float64))
    with pytest.raises(WrongDerivative):
        differentiable(lambda x: np.sum(np.abs(x)), grad=lambda x: -np.sign(x)).verify(torch.zeros(4))


def single(x):
    if x.dtype != np.float32:
        raise TypeError(f"this solver takes float32, got {x.dtype}")
    return x


@pytest.mark.parametrize("compute", [None, "float32"], ids=["by the input", "by compute_dtype"])
def test_verify_a_solver_of_float32(compute):
    op = differentiable(
        lambda x: cube(single(x)), grad=lambda x: cube_gradient(single(x)), compute_dtype=compute, name="f"
    )
    dtype = torch.float32 if compute is None else torch.float64
    op(normal(3, dtype=dtype)).backward()
    assert "f: its grad agrees" in op.verify(normal(3, dtype=dtype))


def test_verify_a_solver_that_rounds_to_float32():
    right = differentiable(lambda x: cube(x.astype(np.float32)), grad=lambda x: cube_gradient(x.astype(np.float32)))
    assert "agrees" in right.verify(normal(3, dtype=torch.float32))
    with pytest.raises(WrongDerivative):
        differentiable(
            lambda x: cube(x.astype(np.float32)), grad=lambda x: 1.01 * cube_gradient(x.astype(np.float32))
        ).verify(normal(3, dtype=torch.float32))


def test_verify_with_other_arguments():
    op = differentiable(power, grad=power_gradient)
    assert "agrees" in op.verify(tensor([1.0, 2.0]), 4.0, scale=2.0)


@pytest.mark.parametrize("batch", ["loop", "vectorized"])
def test_verify_a_batch(batch):
    op = differentiable(rosenbrock.value, grad=rosenbrock.gradient, hvp=rosenbrock.hvp, batch=batch)
    assert "agrees" in op.verify(normal(5, 2))


def test_verify_a_noisy_op():
    op = differentiable(cube, grad=cube_gradient, noise=UniformFactor(0.5), rng=0)
    assert "agrees" in op.verify(normal(3))
    noisy = differentiable(lambda x: cube(x) * np.random.default_rng().uniform(0.5, 1.5), grad=cube_gradient)
    with pytest.raises(WrongDerivative, match="noisy"):
        noisy.verify(normal(3))


def test_verify_leaves_no_trace():
    op, x = cube_op("grad"), normal(3)
    op.verify(x)
    assert x.grad is None
    state = torch.random.get_rng_state()
    op.verify(x)
    assert torch.equal(state, torch.random.get_rng_state())


# --- check="first"


@every_form
@every_dtype
def test_check_first_is_silent_when_right(form, dtype):
    op = cube_op(form, check="first")
    x = tensor([1.5, -2.0], dtype)
    for _ in range(2):
        op(x).backward()
    torch.testing.assert_close(x.grad, 2 * tensor([6.75, 12.0], dtype, grad=False))


@every_form
@pytest.mark.parametrize("x", [[0.0, 0.0], [1.0, 2.0]], ids=["at the optimum", "elsewhere"])
def test_check_first_raises_at_the_first_use(form, x):
    op = FORMS[form](lambda x: np.sum(x**2), lambda x: x, check="first")
    for _ in range(2):
        with pytest.raises(WrongDerivative, match="does not agree"):
            op(tensor(x))


def test_check_first_checks_once():
    calls = []

    def value(x):
        calls.append(x)
        return cube(x)

    op = differentiable(value, grad=cube_gradient, check="first")
    op(normal(3))
    first = len(calls)
    op(normal(3))
    assert first > 1
    assert len(calls) == first + 1


def test_check_first_waits_for_a_gradient():
    calls = []

    def value(x):
        calls.append(x)
        return cube(x)

    op = differentiable(value, grad=lambda x: 2 * cube_gradient(x), check="first")
    op(normal(3, grad=False))
    assert len(calls) == 1
    with pytest.raises(WrongDerivative):
        op(normal(3))
