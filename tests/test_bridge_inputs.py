"""Tensors of every shape, memory layout and dtype give torch's own numbers, in every form."""

import numpy as np
import pytest
import torch
from bridge_forms import (
    DTYPES,
    FORMS,
    cube,
    cube_gradient,
    cube_of_torch,
    cube_op,
    every_dtype,
    every_form,
    normal,
    same,
    same_as_torch,
    tensor,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import differentiable

modest = settings(max_examples=15, deadline=None)


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
