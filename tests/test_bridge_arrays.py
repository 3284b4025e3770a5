"""Torch and the solver never share an array that one of them changes: results, arguments, buffers and states."""

import numpy as np
import pytest
import torch
from bridge_catalogue import POINT, A, KeepsX, gradient_of, without_hvp
from bridge_forms import FORMS, ONES, SINCOS, at, cube, cube_gradient, every_form, normal, same

from helpers import ExternalFunction, differentiable

# --- an argument changes between the forward and the backward


def steps(x, op):
    """Step x between the forward and the backward, as an optimiser does."""
    y = op(x)
    with torch.no_grad():
        x.sub_(1.0)
    y.backward()
    return x.grad


@pytest.mark.parametrize("n", [2, 40], ids=["few numbers", "many numbers"])
def test_numpy_alias(n):
    op = differentiable(lambda x: float(np.sum(x**2)), grad=lambda x: 2 * x)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        steps(at(*np.ones(n)), op)


def test_numpy_alias_in_an_argument_that_is_no_tensor():
    weights = np.array([1.0, 2.0])
    op = differentiable(lambda x, w: float(w @ x**2), grad=lambda x, w: 2 * w * x)
    x = at(1.0, 1.0)
    y = op(x, weights)
    weights[:] = 100.0
    y.backward()
    same(x.grad, [2.0, 4.0])


def test_tensor_on_ctx():
    for op in (KeepsX(), without_hvp()):
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            steps(at(), op)


@every_form
@pytest.mark.parametrize("n", [2, 40], ids=["few numbers", "many numbers"])
@pytest.mark.parametrize("change", ["data", "shared array"])
def test_changed_through_data(form, n, change):
    op = FORMS[form](lambda x: np.sum(x**3), lambda x: 3 * x**2)
    array = np.full(n, 2.0)
    x = torch.from_numpy(array).requires_grad_()
    y = op(x)
    if change == "data":
        x.data.zero_()
    else:
        array[:] = 0
    y.backward()
    same(x.grad, np.full(n, 12.0))


# --- what the solver gets is read-only


def doubles_in_place(x):
    x *= 2
    return np.sum(x)


WRITERS = {
    "augmented": doubles_in_place,
    "item": lambda x: (x.__setitem__(0, 3.0), np.sum(x))[1],
    "sort": lambda x: (x.sort(), np.sum(x))[1],
    "out": lambda x: np.sum(np.multiply(x, 2, out=x)),
    "fill": lambda x: (x.fill(0), np.sum(x))[1],
    "view": lambda x: np.sum(np.add(x.reshape(-1)[::-1], 1, out=x.reshape(-1)[::-1])),
    "copyto": lambda x: (np.copyto(x, 0.0), np.sum(x))[1],
    "shuffle": lambda x: (np.random.default_rng(0).shuffle(x), np.sum(x))[1],
}


@every_form
@pytest.mark.parametrize("way", WRITERS)
def test_argument_mutated(form, way):
    x = at()
    op = FORMS[form](WRITERS[way], lambda x: x * 0 + 1)
    message = r"its (function|value_and_grad|forward) writes into an array that it was given.*x\.copy\(\)"
    with pytest.raises(ValueError, match=message) as caught:
        op(x)
    assert "read-only" in str(caught.value.__cause__)
    assert x.tolist() == [*POINT]


@every_form
def test_argument_mutated_by_the_derivative(form):
    x = at()

    def gradient(x):
        x += 1
        return x

    with pytest.raises(ValueError, match=r"its \w+ writes into an array that it was given") as caught:
        gradient_of(FORMS[form](lambda x: np.sum(x), gradient), x)
    assert "read-only" in str(caught.value.__cause__)
    assert x.tolist() == [*POINT]


def test_grad_output_edited():
    def adjoint(x, g):
        g *= 2
        return g

    for out in (np.ones(2), 1.0):
        op = differentiable(lambda x, out=out: np.sum(x) * out, vjp=adjoint)
        y = op(at())
        g = torch.ones_like(y)
        with pytest.raises(ValueError, match="its vjp writes into an array that it was given") as caught:
            y.backward(g)
        assert isinstance(caught.value.__cause__, ValueError)
        assert torch.equal(g, torch.ones_like(y))


class EditsG(ExternalFunction):
    def forward(self, x):
        return 2 * x, None

    def adjoint(self, state, g):
        g[...] = 2 * g
        return g

    def tangent(self, state, t):
        t[...] = 2 * t
        return t


class EditsGTwice(EditsG):
    def adjoint(self, state, g):
        return 2 * g

    def hvp(self, state, g, t):
        g[...] = 2 * g
        return g


def test_grad_output_edited_in_every_map():
    with pytest.raises(ValueError, match="its adjoint writes into"):
        EditsG()(at()).sum().backward()
    with pytest.raises(ValueError, match="its tangent writes into"):
        torch.func.jvp(EditsG(), (at().detach(),), (ONES,))
    with pytest.raises(ValueError, match="its hvp writes into"):
        torch.func.jacrev(torch.func.jacrev(EditsGTwice()))(at().detach())


def test_state_edited():
    class Solver(ExternalFunction):
        def forward(self, x):
            return np.sum(x**2), {"x": [x.copy()]}

        def adjoint(self, state, g):
            state["x"][0] *= 2 * g
            return state["x"][0]

    with pytest.raises(ValueError, match="Solver: its adjoint writes into an array that it was given"):
        gradient_of(Solver())


def test_state_emptied():
    class Solver(ExternalFunction):
        def forward(self, x):
            return np.sum(x**2), [2 * x]

        def adjoint(self, state, g):
            return g * state.pop()

    x = at()
    y = Solver()(x)
    y.backward(retain_graph=True)
    y.backward()
    same(x.grad, [0.4, 0.4])


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


@pytest.mark.parametrize("where", ["list", "tuple"])
def test_the_state_is_read_only(where):
    with pytest.raises(ValueError, match=r"Writes: its adjoint writes into an array") as caught:
        Writes(where)(normal(3)).sum().backward()
    assert "read-only" in str(caught.value.__cause__)


def test_another_value_error_is_not_taken_for_a_write():
    def fun(x):
        raise ValueError("the mesh is empty")

    with pytest.raises(ValueError, match="the mesh is empty") as caught:
        differentiable(fun, grad=cube_gradient)(normal(3))
    assert str(caught.value) == "the mesh is empty"
    assert caught.value.__notes__ == ["Raised inside the function of fun."]


# --- a solver hands out the same arrays each time


def buffered(shape=()):
    """Return a cube and its gradient that hand out the same arrays each time."""
    value_buffer, gradient_buffer = np.zeros(shape), np.zeros(2)

    def value(x):
        value_buffer[...] = np.sum(x**3)
        return value_buffer

    def gradient(x):
        gradient_buffer[:] = 3 * x**2
        return gradient_buffer

    return value, gradient


ROWS = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], dtype=torch.float64)


@every_form
def test_reused_buffer(form):
    op = FORMS[form](*buffered())
    first, second = op(at(1.0, 2.0)), op(at(3.0, 4.0))
    same(first.detach(), 9.0)
    same(second.detach(), 91.0)


@every_form
def test_reused_buffer_in_a_loop(form):
    op = FORMS[form](*buffered(), batch="loop")
    x = ROWS.clone().requires_grad_()
    y = op(x)
    same(y.detach(), [9.0, 91.0, 341.0])
    y.sum().backward()
    same(x.grad, 3 * ROWS**2)


@every_form
def test_reused_buffer_under_vmap(form):
    op = FORMS[form](*buffered())
    same(torch.func.vmap(op)(ROWS), [9.0, 91.0, 341.0])
    same(torch.func.vmap(torch.func.grad(op))(ROWS), 3 * ROWS**2)


def test_reused_buffer_in_the_rows_of_a_jacobian():
    buffer = np.zeros(2)

    def adjoint(x, g):
        return np.matmul(A.T, g, out=buffer)

    op = differentiable(lambda x: A @ x, vjp=adjoint)
    same(torch.func.jacrev(op)(at().detach()), A)
    same(torch.autograd.functional.jacobian(op, at(), vectorize=True), A)
    x = at()
    rows = torch.autograd.grad(op(x), x, torch.eye(2, dtype=torch.float64), is_grads_batched=True)[0]
    same(rows, A)


def test_reused_buffer_in_the_columns_of_a_jacobian():
    buffer = np.zeros(2)
    op = differentiable(lambda x: A @ x, vjp=lambda x, g: A.T @ g, jvp=lambda x, t: np.matmul(A, t, out=buffer))
    same(torch.func.jacfwd(op)(at().detach()), A)


def test_reused_buffer_of_several_outputs():
    buffer = np.zeros(2)

    def both(x):
        buffer[:] = x
        return buffer, buffer[::-1]

    op = differentiable(both, vjp=lambda x, g, h: g + h[::-1])
    first, turned = op(at(1.0, 2.0))
    op(at(7.0, 8.0))
    same(first.detach(), [1.0, 2.0])
    same(turned.detach(), [2.0, 1.0])


@every_form
def test_gradient_buffer_shared(form):
    value, gradient = buffered()
    op = FORMS[form](value, gradient)
    x, y = at(1.0, 2.0), at(5.0, 6.0)
    op(x).backward()
    op(y).backward()
    gradient(np.zeros(2))
    same(x.grad, [3.0, 12.0])
    same(y.grad, [75.0, 108.0])


@every_form
def test_gradient_buffer_shared_between_two_graphs(form):
    op = FORMS[form](*buffered())
    x, y = at(1.0, 2.0), at(5.0, 6.0)
    first, second = op(x), op(y)
    first.backward()
    second.backward()
    same(x.grad, [3.0, 12.0])
    same(y.grad, [75.0, 108.0])


# --- results own their memory


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
