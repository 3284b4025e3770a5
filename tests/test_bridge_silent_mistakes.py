"""Mistakes that give wrong numbers without a word are right or loud with a bridge.

A test bears the slug of its row in the catalogue, which bridge_catalogue describes.
"""

import numpy as np
import pytest
import torch
from bridge_catalogue import GRADIENT, HESSIAN, POINT, VALUE, A, complete, gradient_of, without_hvp
from bridge_forms import FORMS, ONES, at, every_form, same
from torch.autograd import forward_ad

from helpers import ExternalFunction, MissingDerivative, WrongDerivative, differentiable, rosenbrock


def rosenbrock_of_torch(x):
    return (1 - x[0]) ** 2 + 5 * (x[1] - x[0] ** 2) ** 2


def test_the_catalogue_s_numbers_are_true():
    x = at()
    same(rosenbrock_of_torch(x).detach(), VALUE)
    same(torch.func.grad(rosenbrock_of_torch)(x.detach()), GRADIENT)
    same(torch.func.hessian(rosenbrock_of_torch)(x.detach()), HESSIAN)


# --- second derivatives


HESSIANS = {
    "autograd.functional": lambda op: torch.autograd.functional.hessian(op, at()),
    "torch.func": lambda op: torch.func.hessian(op)(at().detach()),
    "reverse over reverse": lambda op: torch.func.jacrev(torch.func.jacrev(op))(at().detach()),
    "vectorize": lambda op: torch.autograd.functional.hessian(op, at(), vectorize=True),
}


@pytest.mark.parametrize("way", HESSIANS)
def test_zero_hessian(way):
    same(HESSIANS[way](complete()), HESSIAN)
    with pytest.raises(MissingDerivative, match=r"value has no hvp.*hvp="):
        HESSIANS[way](without_hvp())


def test_gradient_penalty():
    def penalty(op):
        x = at()
        y = op(x)
        (g,) = torch.autograd.grad(y, x, create_graph=True)
        (y + g @ g).backward()
        return x.grad

    same(penalty(complete()), [-7.956, 26.82])
    with pytest.raises(MissingDerivative, match="hvp"):
        penalty(without_hvp())


def test_once_differentiable_leaks():
    def second_derivative(op):
        x = at(2.0)
        (first,) = torch.autograd.grad((op(x) * x).sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), x)
        return second

    cube = {"vjp": lambda x, g: 3 * x**2 * g}
    op = differentiable(lambda x: x**3, **cube, jvp=lambda x, t: 3 * x**2 * t, hvp=lambda x, g, t: 6 * x * g * t)
    same(second_derivative(op), [48.0])
    with pytest.raises(MissingDerivative, match="hvp"):
        second_derivative(differentiable(lambda x: x**3, **cube))


@pytest.mark.parametrize("way", HESSIANS)
def test_product_hessian(way):
    same(HESSIANS[way](lambda x: complete()(x) ** 2), [[8.8614, -6.966], [-6.966, 18.63]])
    with pytest.raises(MissingDerivative, match="hvp"):
        HESSIANS[way](lambda x: without_hvp()(x) ** 2)


def test_product_hessian_digits_are_the_catalogue_s():
    f, g = VALUE, GRADIENT
    same((2 * torch.outer(g, g) + 2 * f * HESSIAN).round(decimals=1), [[8.9, -7.0], [-7.0, 18.6]])


class Exponential(ExternalFunction):
    """Σ e²ˣ, whose adjoint uses the e²ˣ that forward computed."""

    def forward(self, x):
        kept = np.exp(x)
        return kept @ kept, kept

    def adjoint(self, kept, g):
        return 2 * g * kept * kept


class ExponentialTwice(Exponential):
    def hvp(self, kept, g, t):
        return 4 * g * kept * kept * t


def test_saved_intermediate():
    truth = np.diag(4 * np.exp(2 * np.array(POINT)))
    same(torch.autograd.functional.hessian(ExponentialTwice(), at()), truth)
    with pytest.raises(MissingDerivative, match=r"Exponential has no hvp.*hvp"):
        torch.autograd.functional.hessian(Exponential(), at())


# --- a wrong adjoint


def checked(value=rosenbrock.value, **derivatives):
    return differentiable(value, **derivatives, check="first")


@pytest.mark.parametrize("form", ["grad", "value_and_grad", "jac"])
def test_grad_output_ignored(form):
    op = FORMS[form](rosenbrock.value, rosenbrock.gradient)
    same(gradient_of(lambda x: 3 * op(x)), 3 * GRADIENT)


def test_grad_output_ignored_by_a_vjp():
    with pytest.raises(WrongDerivative, match="its vjp does not agree with finite differences"):
        checked(vjp=lambda x, g: rosenbrock.gradient(x))(at())


def test_grad_output_ignored_by_a_class():
    class Solver(ExternalFunction):
        check = "first"

        def forward(self, x):
            return rosenbrock.value(x), x

        def adjoint(self, x, g):
            return rosenbrock.gradient(x)

    with pytest.raises(WrongDerivative, match="Solver: its adjoint does not agree"):
        Solver()(at())


def test_full_jacobian():
    op = differentiable(lambda x: A @ x, vjp=lambda x, g: A)
    with pytest.raises(ValueError, match=r"its vjp returned shape \(2, 2\), and the input has shape \(2,\)"):
        gradient_of(lambda x: op(x).sum())
    same(gradient_of(lambda x: differentiable(lambda x: A @ x, jac=lambda x: A)(x).sum()), A.sum(0))


@every_form
def test_per_sample_gradient(form):
    data = np.arange(6.0).reshape(3, 2)

    def value(x):
        return np.sum((data @ x) ** 2)

    op = FORMS[form](value, lambda x: 2 * (data @ x)[:, np.newaxis] * data)
    with pytest.raises(ValueError, match=r"shape \(3, 2\).*shape \(2,\)"):
        gradient_of(op)
    op = FORMS[form](value, lambda x: 2 * data.T @ (data @ x))
    same(gradient_of(op), 2 * data.T @ data @ np.array(POINT))


def test_gradient_that_torch_would_stretch():
    op = differentiable(lambda x: float(np.sum(x**2)), grad=lambda x: np.array([1.0]))
    with pytest.raises(ValueError, match=r"shape \(1,\).*silently sum or stretch"):
        gradient_of(op)


def test_not_transposed():
    with pytest.raises(WrongDerivative, match="its vjp does not agree"):
        checked(lambda x: A @ x, vjp=lambda x, g: A @ g)(at())
    op = checked(lambda x: A @ x, vjp=lambda x, g: A.T @ g)
    same(gradient_of(lambda x: op(x)[0]), A[0])


def test_swapped_gradients():
    def value(a, b):
        return float(a @ a + 3 * b @ b)

    with pytest.raises(WrongDerivative, match="its grad does not agree"):
        checked(value, grad=lambda a, b: (6 * b, 2 * a))(at(1.0, 2.0), at(3.0, 4.0))


@pytest.mark.parametrize("form", ["grad", "vjp", "jac", "value_and_grad"])
@pytest.mark.parametrize("call", ["as written", "turned", "second by name"])
def test_swapped_gradients_by_the_order_of_keywords(form, call):
    def value(a, b):
        return float(a @ a + 3 * b @ b)

    def gradient(a, b):
        return 2 * a, 6 * b

    op = {
        "grad": lambda: differentiable(value, grad=gradient),
        "vjp": lambda: differentiable(value, vjp=lambda a, b, g: (2 * g * a, 6 * g * b)),
        "jac": lambda: differentiable(value, jac=gradient),
        "value_and_grad": lambda: differentiable(value_and_grad=lambda a, b: (value(a, b), gradient(a, b))),
    }[form]()
    a, b = at(1.0, 2.0), at(3.0, 4.0)
    {"as written": lambda: op(a=a, b=b), "turned": lambda: op(b=b, a=a), "second by name": lambda: op(a, b=b)}[
        call
    ]().backward()
    same(a.grad, [2.0, 4.0])
    same(b.grad, [18.0, 24.0])


@every_form
def test_no_gradient_returned(form):
    value, nothing = rosenbrock.value, (lambda x: None)
    op = {
        "vjp": lambda: differentiable(value, vjp=lambda x, g: None),
        "class": lambda: no_gradient_class(),
    }.get(form, lambda: FORMS[form](value, nothing))()
    with pytest.raises(TypeError, match=r"returned None\. Is a return statement missing"):
        gradient_of(op)


def no_gradient_class():
    class Solver(ExternalFunction):
        def forward(self, x):
            return rosenbrock.value(x), x

        def adjoint(self, x, g):
            rosenbrock.gradient(x)

    return Solver()


@every_form
def test_checked_at_optimum(form):
    op = FORMS[form](rosenbrock.value, lambda x: 2 * rosenbrock.gradient(x), check="first")
    with pytest.raises(WrongDerivative, match="does not agree with finite differences"):
        op(at(1.0, 1.0))


# --- what comes out


@every_form
def test_dtype_forced(form):
    op = FORMS[form](lambda x: float(rosenbrock.value(x)), rosenbrock.gradient)
    y = op(at())
    assert y.dtype == torch.float64
    assert y.item() == float(rosenbrock.value(POINT))
    assert op(at(dtype=torch.float32)).dtype == torch.float32


@every_form
def test_dtype_forced_by_the_gradient(form):
    for dtype in (torch.float64, torch.float32):
        x = at(dtype=dtype)
        FORMS[form](rosenbrock.value, lambda x: rosenbrock.gradient(x).astype(np.longdouble))(x).backward()
        assert x.grad.dtype == dtype
        torch.testing.assert_close(x.grad, GRADIENT.to(dtype))


@every_form
@pytest.mark.parametrize(
    "result", [int, np.int64, lambda y: np.array(int(y)), np.int8], ids=["int", "int64", "array", "int8"]
)
def test_integer_result(form, result):
    op = FORMS[form](lambda x: result(np.sum(x)), lambda x: np.ones(2, np.int64))
    x = at(1.0, 2.0)
    y = op(x)
    assert y.dtype == torch.float64
    assert y.requires_grad
    same(y.detach(), 3.0)
    y.backward()
    same(x.grad, [1.0, 1.0])


def test_auxiliary_output():
    def both(x):
        return rosenbrock.value(x), rosenbrock.gradient(x)

    with_aux = differentiable(both, grad=rosenbrock.gradient, aux=True)
    x = at()
    y, aux = with_aux(x)
    assert isinstance(aux, np.ndarray)  # no tensor, so nobody can expect a gradient of it
    y.backward()
    same(x.grad, GRADIENT)

    two_outputs = differentiable(
        both, vjp=lambda x, g, h: g * rosenbrock.gradient(x) + rosenbrock.hvp(x, np.asarray(h))
    )
    x = at()
    _, gradient = two_outputs(x)
    gradient[0].backward()
    same(x.grad, HESSIAN[0])


def test_auxiliary_output_not_declared():
    op = differentiable(lambda x: (rosenbrock.value(x), "aux"), grad=rosenbrock.gradient)
    with pytest.raises((TypeError, ValueError), match="several outputs"):
        op(at())


@every_form
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_nan_gradient(form, bad):
    op = FORMS[form](rosenbrock.value, lambda x: np.array([1.0, bad]), finite="raise")
    x = at()
    adam = torch.optim.Adam([x])
    with pytest.raises(FloatingPointError, match=r"(value|Solver): its \w+ holds NaN or Inf at x = \[0\.1 0\.1\]"):
        adam.step(lambda: op(x).backward())
    assert x.tolist() == [*POINT]


@every_form
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_nan_value(form, bad):
    op = FORMS[form](lambda x: bad * x[0], rosenbrock.gradient, finite="raise", name="f")
    with pytest.raises(FloatingPointError, match=r"f: its value holds NaN or Inf at x = \[0\.1 0\.1\]"):
        op(at())


# --- forward mode and compilers


@every_form
def test_forward_mode_detour(form):
    op = FORMS[form](rosenbrock.value, rosenbrock.gradient)
    with forward_ad.dual_level():
        x = forward_ad.make_dual(at().detach(), ONES)
        tangent = forward_ad.unpack_dual(x.sum() + op(x)).tangent
    same(tangent, 0.92)


def test_forward_mode_detour_without_a_jvp():
    op = differentiable(lambda x: A @ x, vjp=lambda x, g: A.T @ g)
    with forward_ad.dual_level(), pytest.raises(MissingDerivative, match=r"has no jvp.*jvp="):
        op(forward_ad.make_dual(at().detach(), ONES))


@every_form
def test_custom_op_jvp(form):
    op, x = FORMS[form](rosenbrock.value, rosenbrock.gradient), at().detach()
    value, tangent = torch.func.jvp(op, (x,), (ONES,))
    same(value, VALUE)
    same(tangent, -1.08)
    same(torch.func.jacfwd(op)(x), GRADIENT)


@pytest.fixture
def compiler():
    torch._dynamo.reset()
    yield lambda function: torch.compile(function, backend="aot_eager", fullgraph=True)
    torch._dynamo.reset()


def test_compiled_func_grad(compiler):
    op = complete()
    same(compiler(torch.func.grad(op))(at().detach()), GRADIENT)


def test_compiled_jvp(compiler):
    op = complete()
    value, tangent = compiler(lambda x, t: torch.func.jvp(op, (x,), (t,)))(at().detach(), ONES)
    same(value, VALUE)
    same(tangent, -1.08)


# --- backward twice, complex numbers


@every_form
def test_ctx_double_backward(form):
    x = at()
    y = FORMS[form](rosenbrock.value, rosenbrock.gradient)(x)
    y.backward()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        y.backward()
    same(x.grad, GRADIENT)


@every_form
def test_complex_conjugate(form):
    op = FORMS[form](lambda x: np.sum(x**2), lambda x: 2 * x)
    z = torch.tensor(1 + 2j, dtype=torch.complex128, requires_grad=True)
    with pytest.raises(TypeError, match=r"is complex.*Pass torch\.view_as_real\(x\)"):
        op(z)
    op(torch.view_as_real(z)).backward()
    assert z.grad.item() == 2 + 4j


def test_complex_result():
    op = differentiable(lambda x: np.sum(x) * 1j, vjp=lambda x, g: x)
    with pytest.raises(TypeError, match=r"must return real numbers; it returned dtype complex128.*imaginary part"):
        op(at())
