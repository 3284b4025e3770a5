"""Mistakes at which plain torch raises: a bridge does what was meant, or says what to write instead.

A test bears the slug of its row in the catalogue, which bridge_catalogue describes.
"""

import numpy as np
import pytest
import torch
from bridge_catalogue import GRADIENT, POINT, VALUE, KeepsX, complete, gradient_of
from bridge_forms import FORMS, at, every_form, same

from helpers import differentiable, rosenbrock


def test_instance_called():
    assert KeepsX()(at()).item() == pytest.approx(VALUE, rel=1e-15)


def test_undefined_name():
    op = differentiable(rosenbrock.value, grad=lambda x: rosenbrock.gradient(x) * g_rand)  # noqa: F821
    with pytest.raises(NameError, match="g_rand") as caught:
        gradient_of(op)
    assert caught.value.__notes__ == ["Raised inside the grad of value."]
    with pytest.raises(NameError, match="g_rand"):
        differentiable(
            rosenbrock.value,
            grad=lambda x: g_rand,  # noqa: F821
            check="first",
        )(at())


def test_apply_without_input():
    with pytest.raises(TypeError, match="value needs a tensor, and got nothing"):
        torch.optim.SGD([at()]).step(complete())


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.bool], ids=str)
def test_integer_input(dtype):
    with pytest.raises(TypeError, match=r"whole numbers \(torch\..*\).*Pass x\.double\(\)"):
        complete()(torch.ones(2, dtype=dtype))


@pytest.mark.parametrize(
    "result",
    [float, np.float64, np.float32, lambda y: np.array(float(y)), np.longdouble],
    ids=["float", "float64", "float32", "array", "longdouble"],
)
@every_form
def test_numpy_result(form, result):
    op = FORMS[form](lambda x: result(rosenbrock.value(x)), rosenbrock.gradient)
    y = op(at())
    same(y.detach(), float(result(VALUE)), 1e-6 if result is np.float32 else 1e-12)
    same(gradient_of(op), GRADIENT)


@pytest.mark.parametrize(
    ("result", "words"),
    [
        ({"loss": 1.0}, "must return real numbers; it returned dict"),
        (None, "returned None. Is a return statement missing"),
        ("text", "must return real numbers"),
        ([[1.0], [2.0, 3.0]], "rows of different lengths"),
        (np.ma.masked_array(1.0, True), "masked array"),
        (torch.ones(()), "returned a torch tensor"),
        (np.datetime64("2020-01-01"), "must return real numbers"),
        (True, "must return real numbers"),
    ],
    ids=["dict", "None", "str", "ragged", "masked", "tensor", "date", "bool"],
)
@pytest.mark.parametrize("form", ["vjp", "grad", "class"])
def test_result_that_is_no_number(form, result, words):
    op = FORMS[form](lambda x: result, rosenbrock.gradient)
    with pytest.raises((TypeError, ValueError), match=words):
        op(at())


def test_list_result_is_an_array():
    op = differentiable(lambda x: [x[1], x[0]], vjp=lambda x, g: [g[1], g[0]])
    x = at()
    op(x)[0].backward()
    same(x.grad, [0.0, 1.0])


@every_form
def test_numpy_gradient(form):
    same(gradient_of(FORMS[form](rosenbrock.value, rosenbrock.gradient)), GRADIENT)
    x = at(3.0)
    FORMS[form](lambda x: x[0] ** 2, lambda x: np.array([2.0 * x[0]]))(x).backward()
    same(x.grad, [6.0])


def test_numpy_gradient_as_a_list():
    same(gradient_of(differentiable(rosenbrock.value, grad=lambda x: rosenbrock.gradient(x).tolist())), GRADIENT)


@pytest.mark.parametrize("form", ["grad", "vjp", "value_and_grad"])
@pytest.mark.parametrize("count", [1, 3])
def test_gradient_count(form, count):
    def value(a, b):
        return float(a @ b)

    def gradients(a, b):
        return (b, a, a)[:count]

    op = {
        "grad": lambda: differentiable(value, grad=gradients),
        "vjp": lambda: differentiable(value, vjp=lambda a, b, g: gradients(a, b)),
        "value_and_grad": lambda: differentiable(value_and_grad=lambda a, b: (value(a, b), gradients(a, b))),
    }[form]()
    with pytest.raises(ValueError, match=f"must return 2 arrays, one for each real tensor.*returned {count} of them"):
        op(at(), at()).backward()


def test_gradient_count_of_one_input():
    op = differentiable(rosenbrock.value, grad=lambda x: tuple(rosenbrock.gradient(x)))
    with pytest.raises(ValueError, match=r"its grad must return one array, .*it returned 2 of them"):
        gradient_of(op)


def test_gradient_for_non_tensor():
    op = differentiable(lambda x, a: a * float(x @ x), grad=lambda x, a: (2 * a * x, float(x @ x)))
    with pytest.raises(ValueError, match="one for each real tensor argument, in their order; it returned 2"):
        op(at(), 2.0).backward()


@every_form
@pytest.mark.parametrize("shape", [(3,), (1, 2), (), (2, 1)], ids=str)
def test_gradient_shape(form, shape):
    with pytest.raises(ValueError, match="shape"):
        gradient_of(FORMS[form](rosenbrock.value, lambda x: np.ones(shape)))


def test_saved_then_changed():
    x = at()
    shifted = x * 1
    y = complete()(shifted)
    shifted += 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


def test_backward_twice_is_right_when_the_graph_is_kept():
    for form in FORMS.values():
        x = at()
        y = form(rosenbrock.value, rosenbrock.gradient)(x)
        y.backward(retain_graph=True)
        y.backward()
        same(x.grad, 2 * GRADIENT)


@every_form
def test_func_old_style(form):
    op = FORMS[form](rosenbrock.value, rosenbrock.gradient)
    same(torch.func.grad(op)(at().detach()), GRADIENT)


@every_form
def test_no_vmap_rule(form):
    op = FORMS[form](rosenbrock.value, rosenbrock.gradient)
    same(torch.func.vmap(torch.func.grad(op))(torch.tensor([POINT, POINT], dtype=torch.float64)), GRADIENT.expand(2, 2))


def test_gradcheck_float32():
    assert "agrees" in complete().verify(at(dtype=torch.float32))
