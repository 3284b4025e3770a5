"""How an op is called: arguments, results, dtypes, batches and options, in every form, against torch's own numbers."""

import copy
import pickle
import traceback

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import ExternalFunction, UniformFactor, WrongDerivative, differentiable, rosenbrock

modest = settings(max_examples=15, deadline=None)
DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
every_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)


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


# --- one function in every form


def weighted(g, gradient):
    return g.reshape(g.shape + (1,) * (gradient.ndim - g.ndim)) * gradient


class Scalar(ExternalFunction):
    """A function of one number in the class form."""

    def __init__(self, value, gradient, product=None, **options):
        self.value, self.gradient, self.product = value, gradient, product
        vars(self).update(options)

    def forward(self, x):
        return self.value(x), x

    def adjoint(self, x, g):
        return weighted(g, self.gradient(x))


class ScalarTwice(Scalar):
    def hvp(self, x, g, t):
        return weighted(g, self.product(x, t))


FORMS = {
    "grad": lambda f, df, ddf=None, **o: differentiable(f, grad=df, hvp=ddf, **o),
    "value_and_grad": lambda f, df, ddf=None, **o: differentiable(value_and_grad=lambda x: (f(x), df(x)), hvp=ddf, **o),
    "vjp": lambda f, df, ddf=None, **o: differentiable(
        f, vjp=lambda x, g: weighted(g, df(x)), hvp=ddf and (lambda x, g, t: weighted(g, ddf(x, t))), **o
    ),
    "jac": lambda f, df, ddf=None, **o: differentiable(
        f, jac=df, hvp=ddf and (lambda x, g, t: weighted(g, ddf(x, t))), **o
    ),
    "decorator": lambda f, df, ddf=None, **o: differentiable(grad=df, hvp=ddf, **o)(f),
    "class": lambda f, df, ddf=None, **o: (ScalarTwice if ddf else Scalar)(f, df, ddf, **o),
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


# --- shapes and memory layouts


INPUTS = {
    "0-d": lambda: tensor(1.5),
    "one": lambda: tensor([1.5]),
    "vector": lambda: normal(5),
    "17": lambda: normal(17),
    "matrix": lambda: normal(3, 4),
    "4-d": lambda: normal(2, 1, 3, 2),
    "transposed": lambda: normal(3, 4, grad=False).T.requires_grad_(),
    "large transposed": lambda: normal(30, 4, grad=False).T.requires_grad_(),
    "strided": lambda: normal(40, grad=False)[::2].requires_grad_(),
    "flipped view": lambda: normal(3, 40, grad=False)[1:, ::3].requires_grad_(),
    "expanded": lambda: normal(1, grad=False).expand(5).requires_grad_(),
    "expanded rows": lambda: normal(4, grad=False).expand(6, 4).requires_grad_(),
    "channels last": lambda: normal(2, 3, 4, 5, grad=False).to(memory_format=torch.channels_last).requires_grad_(),
    "parameter": lambda: torch.nn.Parameter(normal(4, grad=False)),
    "empty": lambda: normal(0),
    "empty rows": lambda: normal(0, 3),
}


@every_form
@pytest.mark.parametrize("which", INPUTS)
def test_every_shape_and_layout(form, which):
    x = INPUTS[which]()
    op = cube_op(form)
    op(normal(3))  # the first call goes another way than the rest
    y = op(x)
    same(y, cube_of_torch(x))
    (gradient,) = torch.autograd.grad(2 * y, x)
    same(gradient, 6 * x**2)
    assert gradient.shape == x.shape


@every_form
def test_a_tensor_that_is_not_a_leaf(form):
    op = cube_op(form)
    same_as_torch(lambda x: op((2 * x).T[1:]) * x.sum(), lambda x: cube_of_torch((2 * x).T[1:]) * x.sum(), normal(3, 4))


@every_form
def test_arrays_are_read_only_and_in_c_order(form):
    seen = []

    def value(x):
        seen.append(x)
        return cube(x)

    op = FORMS[form](value, cube_gradient)
    for n in (2, 40):
        for _ in range(2):
            op(normal(3, n, grad=False).T.requires_grad_())
    assert seen
    for x in seen:
        assert isinstance(x, np.ndarray)
        assert not x.flags.writeable
        assert x.flags.c_contiguous


@every_form
@pytest.mark.parametrize("n", [100_000], ids=["1e5"])
def test_large(form, n):
    same_as_torch(cube_op(form), cube_of_torch, normal(n), tolerance=1e-9)


@every_form
@pytest.mark.parametrize("kind", ["negative", "conjugate"])
@pytest.mark.parametrize("n", [2, 40])
def test_tensors_with_a_pending_sign(form, kind, n):
    """The imaginary part of a conjugate is a view with a flag that says: to be negated."""
    z = torch.complex(normal(n, grad=False), normal(n, seed=1, grad=False))
    x = z.conj().imag if kind == "negative" else torch.view_as_real(z.conj().resolve_conj())
    assert x.is_neg() == (kind == "negative")
    op = cube_op(form)
    op(normal(2))
    x = x.requires_grad_()
    y = op(x)
    same(y, (x.detach().clone() ** 3).sum())
    (gradient,) = torch.autograd.grad(y, x)
    same(gradient.resolve_neg(), 3 * x.detach().clone() ** 2)


# --- dtypes


@every_form
@every_dtype
def test_dtype_follows_the_input(form, dtype):
    x = tensor([1.5, -2.0], dtype)
    op = cube_op(form)
    for _ in range(2):
        x.grad = None
        y = op(x)
        y.backward()
        assert y.dtype == dtype
        assert x.grad.dtype == dtype
    torch.testing.assert_close(y.detach(), tensor(-4.625, dtype, grad=False))
    torch.testing.assert_close(x.grad, tensor([6.75, 12.0], dtype, grad=False))


def dtypes_seen(form, x, **options):
    seen = set()

    def value(x):
        seen.add(x.dtype)
        return cube(x)

    def gradient(x):
        seen.add(x.dtype)
        return cube_gradient(x)

    op = FORMS[form](value, gradient, **options)
    y = op(x)
    y.backward()
    assert y.dtype == x.grad.dtype == x.dtype
    return seen


@every_form
@every_dtype
def test_numpy_gets_the_tensor_s_dtype(form, dtype):
    expected = {torch.bfloat16: np.float32}.get(dtype) or np.dtype(str(dtype).removeprefix("torch."))
    assert dtypes_seen(form, tensor([1.5], dtype)) == {np.dtype(expected)}


@every_form
@every_dtype
@pytest.mark.parametrize("compute", ["float64", np.float32, torch.float64, np.dtype("float64")], ids=str)
def test_compute_dtype(form, dtype, compute):
    expected = np.float32 if compute is np.float32 else np.float64
    assert dtypes_seen(form, tensor([1.5], dtype), compute_dtype=compute) == {np.dtype(expected)}


def test_compute_dtype_reaches_g_and_t():
    seen = []

    def note(*arrays):
        seen.extend(np.asarray(array).dtype for array in arrays)
        return arrays[-1] * 2

    op = differentiable(lambda x: 2 * x, vjp=note, jvp=note, compute_dtype="float64")
    x = tensor([1.0, 2.0], torch.float32)
    op(x).sum().backward()
    torch.func.jvp(op, (x.detach(),), (x.detach(),))
    assert set(seen) == {np.dtype(np.float64)}


def test_compute_dtype_gains_digits():
    def value(x):
        return x[0] + x[1] - x[0]

    x = tensor([1e8, 1.0], torch.float32)
    plain, exact = (
        differentiable(value, grad=lambda x: np.array([0.0, 1.0]), compute_dtype=dtype)(x).item()
        for dtype in (None, "float64")
    )
    assert (plain, exact) == (0.0, 1.0)


@pytest.mark.parametrize("wrong", ["int32", "complex128", bool], ids=str)
def test_compute_dtype_must_be_real(wrong):
    with pytest.raises(TypeError, match=r"compute_dtype must be a real floating-point dtype"):
        cube_op("grad", compute_dtype=wrong)


def product(a, b):
    return a @ b


def product_vjp(a, b, g):
    return np.outer(g, b).reshape(a.shape), a.T @ g


@pytest.mark.parametrize("first", DTYPES, ids=str)
@pytest.mark.parametrize("second", DTYPES, ids=str)
def test_mixed_dtypes(first, second):
    op = differentiable(product, vjp=product_vjp)
    a, b = normal(3, 2, dtype=first), normal(2, seed=1, dtype=second)
    y = op(a, b)
    assert y.dtype == torch.promote_types(first, second)
    y.sum().backward()
    assert (a.grad.dtype, b.grad.dtype) == (first, second)
    torch.testing.assert_close(a.grad, b.detach().to(first).expand(3, 2), rtol=1e-2, atol=1e-2)


# --- several inputs and outputs


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


def test_jac_of_several_inputs_and_outputs():
    def fun(a, b):
        return a * b, np.sum(a**2)

    def jacobian(a, b):
        return (np.diag(b), np.diag(a)), (2 * a, np.zeros_like(b))

    op = differentiable(fun, jac=jacobian)
    same_as_torch(op, lambda a, b: (a * b, (a**2).sum()), normal(3), normal(3, seed=1))
    assert torch.autograd.gradcheck(op, (normal(3), normal(3, seed=1)), check_forward_ad=True)


def test_a_tuple_of_one_output():
    op = differentiable(lambda x: (2 * x,), vjp=lambda x, g: 2 * g)
    (y,) = op(normal(3))
    assert y.shape == (3,)


def test_a_scalar_input_and_a_vector_output():
    same_as_torch(
        differentiable(lambda a: a * np.arange(3.0), vjp=lambda a, g: np.sum(g * np.arange(3.0))),
        lambda a: a * torch.arange(3.0, dtype=torch.float64),
        tensor(2.0),
    )


# --- keywords and arguments that are no tensors


def power(x, p=3.0, *, scale=1.0, mode="sum"):
    return scale * getattr(np, mode)(x**p)


def power_gradient(x, p=3.0, *, scale=1.0, mode="sum"):
    return scale * p * x ** (p - 1) / (1 if mode == "sum" else x.size)


def power_vjp(x, p=3.0, g=None, *, scale=1.0, mode="sum"):
    return g * power_gradient(x, p, scale=scale, mode=mode)


class Power(ExternalFunction):
    def forward(self, x, p=3.0, *, scale=1.0, mode="sum"):
        return power(x, p, scale=scale, mode=mode), (x, p, scale, mode)

    def adjoint(self, state, g):
        x, p, scale, mode = state
        return g * power_gradient(x, p, scale=scale, mode=mode)


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


def test_the_same_tensor_twice():
    op = differentiable(lambda a, b: np.sum(a**2 * b), grad=lambda a, b: (2 * a * b, a**2))
    same_as_torch(lambda x: op(x, x), lambda x: (x**3).sum(), normal(4))


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


# --- batches


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


# --- memory


def pointers(tensors):
    return {each.data_ptr() for each in tensors}


@every_form
@pytest.mark.parametrize("n", [2, 40])
def test_results_own_their_memory(form, n):
    arrays = []

    def kept(array):
        arrays.append(array)
        return array

    op = FORMS[form](lambda x: kept(np.array(cube(x))), lambda x: kept(3 * x**2))
    x = normal(n)
    for _ in range(2):
        y = op(x)
        (gradient,) = torch.autograd.grad(y, x)
        for result in (y.detach(), gradient):
            assert not any(np.shares_memory(result.numpy(), array) for array in arrays)
        assert gradient.data_ptr() != x.data_ptr()


@pytest.mark.parametrize("form", SINCOS)
def test_outputs_own_their_memory(form):
    op, x = SINCOS[form](), normal(3)
    outputs = op(x)
    assert len(pointers([*outputs, x])) == 3
    first, second = torch.autograd.grad(outputs[0].sum(), x, retain_graph=True) + torch.autograd.grad(
        outputs[0].sum(), x
    )
    first.zero_()
    assert second.abs().sum() > 0


def test_a_result_that_is_the_argument():
    op = differentiable(lambda x: x, vjp=lambda x, g: g)
    x = normal(3)
    y = op(x)
    y.detach().zero_()
    assert x.abs().sum() > 0
    g = torch.ones(3, dtype=torch.float64)
    y.backward(g)
    x.grad.zero_()
    assert g.sum() == 3


def test_a_gradient_that_is_g_twice():
    op = differentiable(lambda a, b: a + b, vjp=lambda a, b, g: (g, g))
    a, b = normal(3), normal(3)
    op(a, b).sum().backward()
    a.grad.zero_()
    assert b.grad.tolist() == [1.0] * 3


def test_a_result_may_be_changed_in_place():
    x = normal(3)
    y = differentiable(lambda x: 2 * x, vjp=lambda x, g: 2 * g)(x)
    y += 1
    y.sum().backward()
    assert x.grad.tolist() == [2.0] * 3


READ_ONLY = {
    "argument": (lambda x: x.__setitem__(0, 1.0) or x, lambda x, g: g),
    "argument of the vjp": (lambda x: x, lambda x, g: x.__setitem__(0, 1.0) or g),
    "g": (lambda x: x, lambda x, g: g.__setitem__(0, 1.0) or g),
}


@pytest.mark.parametrize("way", READ_ONLY)
def test_what_the_solver_gets_is_read_only(way):
    fun, vjp = READ_ONLY[way]
    op = differentiable(fun, vjp=vjp, name="f")
    with pytest.raises(ValueError, match=r"f: its (function|vjp) writes into an array that it was given") as caught:
        op(normal(3)).sum().backward()
    assert isinstance(caught.value.__cause__, ValueError)
    assert "read-only" in str(caught.value.__cause__)


class Writes(ExternalFunction):
    def __init__(self, where):
        self.where = where

    def forward(self, x):
        return 2 * x, {"kept": [x.copy()], "pair": (x.copy(), 3)}

    def adjoint(self, state, g):
        if self.where == "list":
            state["kept"][0][0] = 1
        if self.where == "tuple":
            state["pair"][0][0] = 1
        return 2 * g

    def tangent(self, state, t):
        t[0] = 1
        return t

    def hvp(self, state, g, t):
        g[0] = 1
        return g


@pytest.mark.parametrize("where", ["list", "tuple"])
def test_the_state_is_read_only(where):
    with pytest.raises(ValueError, match=r"Writes: its adjoint writes into an array") as caught:
        Writes(where)(normal(3)).sum().backward()
    assert "read-only" in str(caught.value.__cause__)


def test_g_and_t_are_read_only_in_tangent_and_hvp():
    op, x = Writes(None), normal(3, grad=False)
    with pytest.raises(ValueError, match=r"Writes: its tangent writes"):
        torch.func.jvp(op, (x,), (x,))
    with pytest.raises(ValueError, match=r"Writes: its hvp writes"):
        torch.func.jacrev(torch.func.jacrev(op))(x)


def test_another_value_error_is_not_taken_for_a_write():
    def fun(x):
        raise ValueError("the mesh is empty")

    with pytest.raises(ValueError, match="the mesh is empty") as caught:
        differentiable(fun, grad=cube_gradient)(normal(3))
    assert str(caught.value) == "the mesh is empty"
    assert caught.value.__notes__ == ["Raised inside the function of fun."]


# --- errors of the user's code


class MeshError(Exception):
    """An error with an __init__ of its own, as libraries have them."""

    def __init__(self, code, *, place):
        super().__init__(f"mesh {code} at {place}")
        self.code = code


def fails(*args, **kwargs):
    raise MeshError(7, place="corner")  # the user's line


@every_form
@pytest.mark.parametrize("where", ["value", "gradient", "hvp"])
def test_errors_of_the_user_s_code_come_through(form, where):
    parts = [cube, cube_gradient, cube_product]
    parts[["value", "gradient", "hvp"].index(where)] = fails
    op, x = FORMS[form](*parts, name="f"), normal(3)
    with pytest.raises(MeshError, match=r"mesh 7 at corner") as caught:
        torch.autograd.functional.hessian(op, x)
    assert caught.value.code == 7
    (note,) = caught.value.__notes__
    assert note.startswith("Raised inside the ")
    assert note.endswith(" of f.")
    assert "the user's line" in "".join(traceback.format_exception(caught.value))


@every_form
def test_errors_in_the_fast_way_come_through(form):
    def gradient(x):
        if x.size > 3:
            fails()
        return cube_gradient(x)

    op = FORMS[form](cube, gradient, name="f")
    op(normal(3)).backward()
    with pytest.raises(MeshError) as caught:
        op(normal(4)).backward()
    assert len(caught.value.__notes__) == 1
    assert "the user's line" in "".join(traceback.format_exception(caught.value))


def test_a_note_is_added_once_when_a_solver_is_asked_again():
    class Solver:
        def value(self, x):
            self.x = x
            if getattr(self, "broken", False):
                fails()
            return cube(x)

        def gradient(self, x):
            return cube_gradient(self.x)

    solver = Solver()
    op = differentiable(solver.value, grad=solver.gradient)
    first, _ = op(normal(3)), op(normal(3, seed=1))
    solver.broken = True
    with pytest.raises(MeshError) as caught:
        first.backward()
    assert caught.value.__notes__[0] == "Raised inside the function of value."


# --- construction


WRONG = {
    "no derivative": (lambda: differentiable(cube), "needs the derivative: grad=, vjp=, jac= or value_and_grad="),
    "two": (lambda: differentiable(cube, grad=cube_gradient, jac=cube_gradient), "takes one of .*; got grad and jac"),
    "value twice": (lambda: differentiable(cube, value_and_grad=cube), "gives the value too"),
    "jvp with grad": (lambda: differentiable(cube, grad=cube_gradient, jvp=cube), "jvp= goes with vjp="),
    "called": (lambda: differentiable(cube(np.ones(2)), grad=cube_gradient), r"Pass f itself, not f\(x\)"),
    "gradient called": (lambda: differentiable(cube, grad=np.ones(2)), "grad must be a function; got ndarray"),
    "batch": (lambda: differentiable(cube, grad=cube, batch="vmap"), 'batch must be None, "loop" or "vectorized"'),
    "finite": (lambda: differentiable(cube, grad=cube, finite=True), 'finite must be None or "raise"'),
    "check": (lambda: differentiable(cube, grad=cube, check=True), 'check must be None or "first"'),
    "signature": (lambda: differentiable(cube, grad=cube, batch="loop", signature="n->"), "signature must look like"),
    "dtype": (lambda: differentiable(cube, grad=cube, compute_dtype="real"), "compute_dtype|data type"),
    "noise": (lambda: differentiable(cube, grad=cube, noise=0.5, rng=0), "noise must be an object with a draw"),
    "noise class": (lambda: differentiable(cube, grad=cube, noise=UniformFactor, rng=0), "noise must be an object"),
    "no seed": (lambda: differentiable(cube, grad=cube, noise=UniformFactor(0.5)), "rng must be"),
    "seed only": (lambda: differentiable(cube, grad=cube, rng=0), "there is no noise="),
    "draws": (lambda: differentiable(cube, grad=cube, noise=UniformFactor(), rng=0, draws="all"), "draws must be"),
}


@pytest.mark.parametrize("which", WRONG)
def test_errors_at_construction(which):
    make, words = WRONG[which]
    with pytest.raises((TypeError, ValueError), match=words):
        make()


def test_a_class_without_methods():
    class Nothing(ExternalFunction):
        pass

    with pytest.raises(NotImplementedError, match=r"Nothing has no forward. Write forward\(self, x\)"):
        Nothing()(normal(3))

    class Half(ExternalFunction):
        def forward(self, x):
            return cube(x), x

    with pytest.raises(NotImplementedError, match="Half has no adjoint"):
        Half()(normal(3)).backward()


@pytest.mark.parametrize("returned", [1.0, (1.0, 2.0, 3.0), [1.0, 2.0]], ids=["number", "three", "list"])
def test_a_forward_that_returns_something_else(returned):
    class Solver(ExternalFunction):
        def forward(self, x):
            return returned

        def adjoint(self, state, g):
            return g

    with pytest.raises(TypeError, match=r"Solver: its forward must return \(y, state\)"):
        Solver()(normal(3))


@every_form
@pytest.mark.parametrize("name", ["batch", "anything", "_fun"])
def test_an_instance_is_frozen(form, name):
    op = cube_op(form)
    with pytest.raises(AttributeError, match="cannot be changed after its __init__"):
        setattr(op, name, 1)


def test_a_class_may_set_itself_up():
    class Base(ExternalFunction):
        def __init__(self, power):
            self.power = power

        def forward(self, x):
            return np.sum(x**self.power), x

        def adjoint(self, x, g):
            return g * self.power * x ** (self.power - 1)

    class Derived(Base):
        def __init__(self):
            super().__init__(3)
            self.finite = "raise"

    same_as_torch(Derived(), cube_of_torch, normal(3))
    with pytest.raises(FloatingPointError, match="NaN or Inf"):
        Derived()(tensor([np.inf]))
    with pytest.raises(AttributeError, match="cannot be changed"):
        Derived().power = 2


# --- verify and check="first"


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


# --- finite


@every_form
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_finite_value(form, bad):
    op = FORMS[form](lambda x: bad * x[0], cube_gradient, finite="raise", name="f")
    with pytest.raises(FloatingPointError, match=r"f: its value holds NaN or Inf at x = \[1\. 2\.\]"):
        op(tensor([1.0, 2.0]))


@every_form
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_finite_gradient(form, bad):
    op = FORMS[form](cube, lambda x: x * bad, finite="raise", name="f")
    with pytest.raises(FloatingPointError, match=r"f: its \w+ holds NaN or Inf at x = \[1\. 2\.\]"):
        op(tensor([1.0, 2.0])).backward()


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


# --- names, pickles, copies


decorated = differentiable(grad=cube_gradient, hvp=cube_product)(cube)


@differentiable(grad=cube_gradient)
def documented(x):
    """Return the sum of cubes."""
    return np.sum(x**3)


def test_repr_name_and_doc():
    assert repr(documented).startswith("<")
    assert "documented" in repr(documented)
    assert documented.__doc__ == "Return the sum of cubes."
    assert documented.name == "documented"
    assert differentiable(cube, grad=cube_gradient, name="other").name == "other"
    assert "other" in repr(differentiable(cube, grad=cube_gradient, name="other"))
    assert "Gather" in repr(Gather())
    assert callable(documented)


def test_name_of_a_method_a_partial_and_an_object():
    class Model:
        def value(self, x):
            return cube(x)

        def __call__(self, x):
            return cube(x)

    model = Model()
    assert "value" in repr(differentiable(model.value, grad=cube_gradient))
    assert "Model" in repr(differentiable(model, grad=cube_gradient))


module_level = differentiable(cube, grad=cube_gradient, hvp=cube_product, batch="loop", finite="raise", name="f")
module_noisy = differentiable(cube, grad=cube_gradient, noise=UniformFactor(0.5), rng=3)
PICKLED = {
    "function form": lambda: module_level,
    "decorator as a call": lambda: decorated,
    "decorated": lambda: documented,
    "class form": SinCos,
    "used before": lambda: (module_level(normal(3)), module_level)[1],
    "with arguments": Power,
}


@pytest.mark.parametrize("which", PICKLED)
@pytest.mark.parametrize("how", ["pickle", "copy", "deepcopy"])
def test_copies(which, how):
    op = PICKLED[which]()
    clone = {
        "pickle": lambda: pickle.loads(pickle.dumps(op)),
        "copy": lambda: copy.copy(op),
        "deepcopy": lambda: copy.deepcopy(op),
    }[how]()
    assert repr(clone) == repr(op)
    x = normal(3)
    same_as_torch(clone, op, x)
    with pytest.raises(AttributeError, match="cannot be changed"):
        clone.batch = "loop"


@pytest.mark.parametrize("how", ["pickle", "copy", "deepcopy"])
def test_copies_of_a_noisy_op_repeat_or_refuse(how):
    op = copy.deepcopy(module_noisy)
    clone = {
        "pickle": lambda: pickle.loads(pickle.dumps(op)),
        "copy": lambda: copy.copy(op),
        "deepcopy": lambda: copy.deepcopy(op),
    }[how]()
    x = normal(3)
    y = clone(x)
    factor = y.item() / cube_of_torch(x).item()
    same(torch.autograd.grad(y, x)[0], factor * 3 * x.detach() ** 2)


def test_a_deep_copy_of_a_solver_has_its_own_state():
    class Solver:
        def value(self, x):
            self.x = x
            return cube(x)

        def gradient(self, x):
            return cube_gradient(self.x)

    solver = Solver()
    op = differentiable(solver.value, grad=solver.gradient)
    clone = copy.deepcopy(op)
    x, other = normal(3), normal(3, seed=1)
    first, _ = clone(x), op(other)
    solver.x = None
    first.backward()
    same(x.grad, 3 * x**2)


def test_a_pickle_of_a_lambda_says_why():
    with pytest.raises((pickle.PicklingError, AttributeError), match="lambda"):
        pickle.dumps(differentiable(lambda x: x, grad=lambda x: x))


def test_inside_a_module():
    class Loss(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = torch.nn.Parameter(normal(3, grad=False))
            self.op = cube_op("grad")

        def forward(self):
            return self.op(self.w)

    loss = copy.deepcopy(Loss())
    loss().backward()
    same(loss.w.grad, 3 * loss.w**2)
    assert list(loss.state_dict()) == ["w"]


# --- any shape, any cubic


@st.composite
def problems(draw):
    """Return the coefficients of a cubic polynomial, and a point of any shape."""
    shape = tuple(draw(st.lists(st.integers(1, 3), max_size=3)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n = int(np.prod(shape))
    linear, matrix, cubic = rng.normal(size=n), rng.normal(size=(n, n)), rng.normal(size=n)
    if draw(st.booleans()):
        cubic[:] = 0
    return linear, matrix, cubic, rng.normal(size=shape)


def polynomial(linear, matrix, cubic):
    """Return c·x + xᵀ Q x + Σ k x³ with its gradient and Hessian-vector product, in NumPy, and its twin in torch."""
    symmetric = matrix + matrix.T

    def value(x):
        x = x.reshape(-1)
        return linear @ x + x @ matrix @ x + cubic @ x**3

    def gradient(x):
        flat = x.reshape(-1)
        return (linear + symmetric @ flat + 3 * cubic * flat**2).reshape(x.shape)

    def hvp(x, t):
        flat, along = x.reshape(-1), t.reshape(-1)
        return (symmetric @ along + 6 * cubic * flat * along).reshape(x.shape)

    c, q, k = map(torch.from_numpy, (linear, matrix, cubic))

    def twin(x):
        x = x.reshape(-1)
        return c @ x + x @ q @ x + k @ x**3

    return value, gradient, hvp, twin


@every_form
@modest
@given(problems())
def test_any_cubic(form, problem):
    *coefficients, point = problem
    *parts, twin = polynomial(*coefficients)
    op, x = FORMS[form](*parts), torch.from_numpy(point).requires_grad_()
    same_as_torch(op, twin, x, tolerance=1e-10)
    same_as_torch(lambda x: op(x.sin()) ** 2, lambda x: twin(x.sin()) ** 2, x, tolerance=1e-10)
    same(torch.func.hessian(op)(x.detach()), torch.func.hessian(twin)(x.detach()), 1e-10)
    same(torch.func.jacfwd(op)(x.detach()), torch.func.jacrev(twin)(x.detach()), 1e-10)


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
