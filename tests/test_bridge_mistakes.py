"""Every row of the catalogue of mistakes that a bridge can meet is right or loud.

A test bears the slug of its row. It states the true value from the catalogue and compares. What a bridge cannot meet,
since it happens outside of the function that is bridged:

================================= ====================================================================
row                               why
================================= ====================================================================
closure-* , stale-loss            what the optimiser's closure does with the loss; the bridge made the
                                  loss and sees no more of it
step-inside-closure               the same
step-of-a-loss                    the same
lbfgs-without-closure             the optimiser's own argument
nonleaf-parameter                 refused by the optimiser before the function is called
integer-parameter                 refused by torch before the function is called
no-grad-around                    no_grad asks for no graph, and torch's own operations obey as well
no-requires-grad                  the same for an x that wants no gradient; torch's error is kept
================================= ====================================================================
"""

import functools
import math
import types
import warnings
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_all_start_methods, get_context

import numpy as np
import pytest
import torch
from torch.autograd import forward_ad
from torch.utils.checkpoint import checkpoint

from helpers import ExternalFunction, MissingDerivative, UniformFactor, WrongDerivative, differentiable, rosenbrock

VALUE = 0.8505
GRADIENT = torch.tensor([-1.98, 0.9], dtype=torch.float64)
HESSIAN = torch.tensor([[0.6, -2.0], [-2.0, 10.0]], dtype=torch.float64)
POINT, OTHER = (0.1, 0.1), (1.5, -2.0)
A = np.array([[1.0, 2.0], [3.0, 5.0]])
ONES = torch.ones(2, dtype=torch.float64)


def at(*numbers, dtype=torch.float64):
    """Return a tensor that wants a gradient."""
    return torch.tensor(numbers or POINT, dtype=dtype, requires_grad=True)


def without_hvp():
    return differentiable(rosenbrock.value, grad=rosenbrock.gradient)


def complete():
    return differentiable(rosenbrock.value, grad=rosenbrock.gradient, hvp=rosenbrock.hvp)


def gradient_of(op, x=None, *rest):
    x = at() if x is None else x
    op(x, *rest).backward()
    return x.grad


def same(found, truth, tolerance=1e-12):
    """Compare numbers, shape and dtype with the truth."""
    torch.testing.assert_close(found, torch.as_tensor(truth, dtype=torch.float64), rtol=tolerance, atol=tolerance)


def same_or_refused(compute, truth):
    """Accept the true value, or an error that says where it happened; nothing else."""
    try:
        found = compute()
    except (TypeError, ValueError, RuntimeError, AttributeError) as error:
        text = "\n".join([str(error), *getattr(error, "__notes__", [])])
        assert any(word in text for word in ("value", "Writes", "Keeps", "draw")), text
    else:
        same(found, truth)


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


# --- what is a tensor and what is an array


def test_rewrapped_result():
    op = complete()
    same(gradient_of(lambda x: torch.as_tensor(op(x)) + x.sum()), GRADIENT + 1)
    wrapping = differentiable(lambda x: torch.as_tensor(rosenbrock.value(x)), grad=rosenbrock.gradient)
    with pytest.raises(TypeError, match=r"returned a torch tensor.*return an array or a number"):
        wrapping(at())


def test_rewrapped_gradient():
    op = differentiable(rosenbrock.value, grad=lambda x: torch.from_numpy(rosenbrock.gradient(x)))
    with pytest.raises(TypeError, match="its grad returned a torch tensor"):
        gradient_of(op)


def test_graph_cut():
    def value(x):
        x0, x1 = x.tolist()
        return math.pow(1 - x0, 2) + 5 * (float(x[1]) - x0**2) ** 2 + 0 * math.sin(x1)

    same(gradient_of(differentiable(value, grad=rosenbrock.gradient)), GRADIENT)


@pytest.mark.parametrize(
    "wrong",
    [lambda op, x: op(x.tolist()), lambda op, x: op(float(x[0])), lambda op, x: op(x.detach().numpy())],
    ids=["tolist", "float", "numpy"],
)
@pytest.mark.filterwarnings("ignore:Converting a tensor")
def test_graph_cut_before_the_call(wrong):
    with pytest.raises(TypeError, match=r"value needs a tensor, and got (list|float|ndarray).*Pass torch"):
        wrong(complete(), at())


def function_forms(capture):
    """Return ops whose function reaches a tensor in some hidden way."""
    return {
        "closure": lambda w: differentiable(lambda x: float(w.numpy(force=True) @ x), grad=lambda x: x * 0 + 1),
        "closure of the derivative": lambda w: differentiable(
            lambda x: float(np.sum(x)), grad=lambda x: w.numpy(force=True)
        ),
    }[capture]


@pytest.mark.parametrize("capture", ["closure", "closure of the derivative"])
def test_hidden_tensor(capture):
    with pytest.raises(TypeError, match=r"reaches the tensor w from outside.*Pass w as an argument of its own"):
        function_forms(capture)(at())(at())


@pytest.mark.parametrize(
    "hide",
    [
        lambda x: [x, x],
        lambda x: (x, 1.0),
        lambda x: {"x": x},
        lambda x: [[1.0], {"deep": (x,)}],
        lambda x: types.MappingProxyType({"x": x}),
        lambda x: {x},
    ],
    ids=["list", "tuple", "dict", "nested", "mapping", "set"],
)
@pytest.mark.parametrize("named", [False, True], ids=["positional", "keyword"])
def test_hidden_tensor_in_a_container(hide, named):
    op = differentiable(lambda x, extra: float(x @ x), grad=lambda x, extra: 2 * x)
    which = "argument extra" if named else "argument 2"
    with pytest.raises(TypeError, match=f"{which} is a .* with a tensor inside.*argument of its own"):
        op(at(), extra=hide(at())) if named else op(at(), hide(at()))


hidden_global = torch.tensor([2.0, 3.0], dtype=torch.float64, requires_grad=True)


def reads_a_global(x):
    return float(hidden_global.numpy(force=True) @ x)


def test_hidden_tensor_global():
    op = differentiable(reads_a_global, grad=lambda x: np.array([2.0, 3.0]))
    with pytest.raises(TypeError, match="reaches the tensor hidden_global from outside"):
        op(at())


class Weighted:
    def __init__(self, weight):
        self.weight = weight

    def value(self, x):
        return float(self.weight.numpy(force=True) @ x)

    def gradient(self, x):
        return self.weight.numpy(force=True)


class WeightedClass(ExternalFunction):
    def __init__(self, weight):
        self.weight = weight

    def forward(self, x):
        return float(self.weight.numpy(force=True) @ x), None

    def adjoint(self, state, g):
        return g * self.weight.numpy(force=True)


def weighted(weights, x):
    return float(weights[0].numpy(force=True) @ x)


HIDDEN = {
    "self attribute": lambda w: differentiable(Weighted(w).value, grad=Weighted(w).gradient),
    "self attribute of the class form": WeightedClass,
    "list in a closure": lambda w: (
        lambda held: differentiable(lambda x: weighted(held, x), grad=lambda x: held[0].numpy(force=True))
    )([w]),
    "dict in a closure": lambda w: (
        lambda held: differentiable(lambda x: weighted(held, x), grad=lambda x: held[0].numpy(force=True))
    )({0: w}),
    "object in a closure": lambda w: (
        lambda held: differentiable(lambda x: held.value(x), grad=lambda x: held.gradient(x))
    )(Weighted(w)),
    "partial": lambda w: differentiable(
        functools.partial(weighted, [w]), grad=functools.partial(lambda w, x: w.numpy(force=True), w)
    ),
    "default argument": lambda w: differentiable(
        lambda x, w=w: float(w.numpy(force=True) @ x), grad=lambda x, w=w: w.numpy(force=True)
    ),
    "module": lambda w: (
        lambda held: differentiable(
            lambda x: float(held.weight.numpy(force=True)[0] @ x), grad=lambda x: held.weight.numpy(force=True)[0]
        )
    )(torch.nn.Linear(2, 1, dtype=torch.float64)),
}


@pytest.mark.parametrize("way", HIDDEN)
def test_hidden_tensor_elsewhere(way):
    with pytest.raises(TypeError, match=r"from outside|gradient would be lost"):
        HIDDEN[way](at(2.0, 3.0))(at())


def test_hidden_tensor_without_a_gradient_is_a_constant():
    w = torch.tensor([2.0, 3.0], dtype=torch.float64)
    op = differentiable(lambda x: float(w.numpy() @ x), grad=lambda x: w.numpy())
    same(gradient_of(op), w)


# --- memory


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


class KeepsX(ExternalFunction):
    def forward(self, x):
        return rosenbrock.value(x), x

    def adjoint(self, x, g):
        return g * rosenbrock.gradient(x)


def test_tensor_on_ctx():
    for op in (KeepsX(), without_hvp()):
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            steps(at(), op)


FORMS = {
    "grad": lambda value, gradient, **options: differentiable(value, grad=gradient, **options),
    "vjp": lambda value, gradient, **options: differentiable(value, vjp=lambda x, g: g * gradient(x), **options),
    "jac": lambda value, gradient, **options: differentiable(value, jac=gradient, **options),
    "value_and_grad": lambda value, gradient, **options: differentiable(
        value_and_grad=lambda x: (value(x), gradient(x)), name="value", **options
    ),
    "class": lambda value, gradient, **options: class_form(value, gradient, **options),
}


def class_form(value, gradient, **options):
    class Solver(ExternalFunction):
        def __init__(self):
            vars(self).update(options)

        def forward(self, x):
            return value(x), x

        def adjoint(self, x, g):
            return g.reshape(g.shape + (1,) * (x.ndim - g.ndim)) * gradient(x)

    return Solver()


every_form = pytest.mark.parametrize("form", FORMS)


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
    with pytest.raises(ValueError, match=r"writes into an array that it was given.*x\.copy\(\)") as caught:
        op(x)
    assert "read-only" in str(caught.value.__cause__)
    assert x.tolist() == [*POINT]


@every_form
def test_argument_mutated_by_the_derivative(form):
    x = at()

    def gradient(x):
        x += 1
        return x

    with pytest.raises(ValueError, match="writes into an array that it was given") as caught:
        gradient_of(FORMS[form](lambda x: np.sum(x), gradient), x)
    assert "read-only" in str(caught.value.__cause__)
    assert x.tolist() == [*POINT]


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


def test_grad_output_edited_in_every_map():
    with pytest.raises(ValueError, match="its adjoint writes into"):
        EditsG()(at()).sum().backward()
    with pytest.raises(ValueError, match="its tangent writes into"):
        torch.func.jvp(EditsG(), (at().detach(),), (ONES,))


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


# --- one solver, several solves


class Remembers:
    """A solver whose gradient is that at its latest solve."""

    def __init__(self):
        self.x = None

    def value(self, x):
        self.x = x
        return rosenbrock.value(x)

    def gradient(self, x):
        return rosenbrock.gradient(self.x)

    def product(self, x, t):
        return rosenbrock.hvp(self.x, t)


def bound_methods():
    solver = Remembers()
    return differentiable(solver.value, grad=solver.gradient)


def callable_object():
    class Solver(Remembers):
        def __call__(self, x):
            return self.value(x)

    solver = Solver()
    return differentiable(solver, grad=solver.gradient)


def inner_object():
    class Side:
        def __init__(self, solver):
            self.solver = solver

    solver = Remembers()
    one, two = Side(solver), Side(solver)
    return differentiable(lambda x: one.solver.value(x), grad=lambda x: two.solver.gradient(x))


def closures_and_dict():
    kept = {}

    def value(x):
        kept["x"] = x
        return rosenbrock.value(x)

    return differentiable(value, grad=lambda x: rosenbrock.gradient(kept["x"]))


def nonlocal_name():
    kept = None

    def value(x):
        nonlocal kept
        kept = x
        return rosenbrock.value(x)

    return differentiable(value, grad=lambda x: rosenbrock.gradient(kept))


global_buffer = np.zeros(2)
global_name = None


def value_with_buffer(x):
    global_buffer[:] = x
    return rosenbrock.value(x)


def gradient_with_buffer(x):
    return rosenbrock.gradient(global_buffer)


def value_with_name(x):
    global global_name
    global_name = x
    return rosenbrock.value(x)


def gradient_with_name(x):
    return rosenbrock.gradient(global_name)


def value_by_helpers(x):
    return value_with_name(x)


def gradient_by_helpers(x):
    return gradient_with_name(x)


def value_with_attribute(x):
    value_with_attribute.latest = x
    return rosenbrock.value(x)


def gradient_with_attribute(x):
    return rosenbrock.gradient(value_with_attribute.latest)


class Board:
    latest = None


def value_with_class(x):
    Board.latest = x
    return rosenbrock.value(x)


def gradient_with_class(x):
    return rosenbrock.gradient(Board.latest)


def shared_partial():
    def value(kept, x):
        kept["x"] = x
        return rosenbrock.value(x)

    def gradient(kept, x):
        return rosenbrock.gradient(kept["x"])

    kept = {}
    return differentiable(functools.partial(value, kept), grad=functools.partial(gradient, kept), name="value")


def shared_default():
    solver = Remembers()
    return differentiable(lambda x, s=solver: s.value(x), grad=lambda x, s=solver: s.gradient(x), name="value")


def shared_state_of_vjp():
    solver = Remembers()
    return differentiable(solver.value, vjp=lambda x, g: g * solver.gradient(x))


def shared_state_of_jac():
    solver = Remembers()
    return differentiable(solver.value, jac=solver.gradient)


SHARED = {
    "bound methods": bound_methods,
    "callable object": callable_object,
    "inner object": inner_object,
    "closures and a dict": closures_and_dict,
    "nonlocal name": nonlocal_name,
    "global buffer": lambda: differentiable(value_with_buffer, grad=gradient_with_buffer),
    "global name": lambda: differentiable(value_with_name, grad=gradient_with_name),
    "global name behind helpers": lambda: differentiable(value_by_helpers, grad=gradient_by_helpers),
    "function attribute": lambda: differentiable(value_with_attribute, grad=gradient_with_attribute),
    "class attribute": lambda: differentiable(value_with_class, grad=gradient_with_class),
    "partial": shared_partial,
    "default argument": shared_default,
    "vjp": shared_state_of_vjp,
    "jac": shared_state_of_jac,
}


@pytest.mark.parametrize("way", SHARED)
def test_shared_solver_state(way):
    op = SHARED[way]()
    x, other = at(), at(*OTHER)

    def compute():
        first, _ = op(x), op(other)
        first.backward()
        return x.grad

    same_or_refused(compute, GRADIENT)


@pytest.mark.parametrize("batch", ["loop", "vmap"])
def test_shared_solver_state_in_a_batch(batch):
    solver = Remembers()
    points = torch.tensor([POINT, OTHER], dtype=torch.float64)
    truth = rosenbrock.gradient(points.numpy())
    if batch == "loop":
        x = points.clone().requires_grad_()
        differentiable(solver.value, grad=solver.gradient, batch="loop")(x).sum().backward()
        same(x.grad, truth)
    else:
        same(torch.func.vmap(torch.func.grad(differentiable(solver.value, grad=solver.gradient)))(points), truth)


def test_shared_solver_state_of_the_hessian():
    solver = Remembers()
    op = differentiable(solver.value, grad=solver.gradient, hvp=solver.product)
    x, other = at(), at(*OTHER)
    y = op(x)
    (g,) = torch.autograd.grad(y, x, create_graph=True)
    op(other).backward()
    g[0].backward()
    same(x.grad, HESSIAN[0])


def test_shared_solver_state_with_value_and_grad_and_hvp():
    solver = Remembers()
    op = differentiable(
        value_and_grad=lambda x: (solver.value(x), solver.gradient(x)), hvp=solver.product, name="value"
    )
    x, other = at(), at(*OTHER)

    def compute():
        y = op(x)
        (g,) = torch.autograd.grad(y, x, create_graph=True)
        op(other)
        (row,) = torch.autograd.grad(g[0], x)
        return row

    same_or_refused(compute, HESSIAN[0])


def test_shared_solver_state_of_two_ops():
    solver = Remembers()
    one = differentiable(solver.value, grad=solver.gradient)
    two = differentiable(solver.value, vjp=lambda x, g: g * solver.gradient(x))
    x, other = at(), at(*OTHER)

    def compute():
        first, _ = one(x), two(other)
        first.backward()
        return x.grad

    same_or_refused(compute, GRADIENT)


def test_shared_solver_state_after_a_failed_solve():
    class Solver(Remembers):
        broken = False

        def value(self, x):
            found = super().value(x)
            if self.broken:
                raise ArithmeticError("the solver gave up")
            return found

    solver = Solver()
    op = differentiable(solver.value, grad=solver.gradient)
    x, other = at(), at(*OTHER)
    first, second = op(other), op(x)
    solver.broken = True
    with pytest.raises(ArithmeticError, match="the solver gave up"):
        first.backward()  # solves again at `other`, and fails half-way
    solver.broken = False
    second.backward()
    same(x.grad, GRADIENT)


class WritesToSelf(ExternalFunction):
    def forward(self, x):
        self.x = x
        return rosenbrock.value(x), None

    def adjoint(self, state, g):
        return g * rosenbrock.gradient(self.x)


class WritesIntoSelf(ExternalFunction):
    def __init__(self, kept):
        self.kept = kept

    def forward(self, x):
        self.kept[...] = x
        return rosenbrock.value(x), None

    def adjoint(self, state, g):
        return g * rosenbrock.gradient(self.kept)


class WritesIntoDict(WritesIntoSelf):
    def forward(self, x):
        self.kept["x"] = x
        return rosenbrock.value(x), None

    def adjoint(self, state, g):
        return g * rosenbrock.gradient(self.kept["x"])


class WritesIntoSolver(ExternalFunction):
    def __init__(self, solver):
        self.solver = solver

    def forward(self, x):
        return self.solver.value(x), self.solver

    def adjoint(self, solver, g):
        return g * solver.gradient(None)


@dataclass
class Kept:
    x: np.ndarray


class KeepsAnObject(ExternalFunction):
    def __init__(self):
        self.buffer = np.zeros(2)

    def forward(self, x):
        self.buffer[:] = x
        return rosenbrock.value(x), Kept(self.buffer)

    def adjoint(self, kept, g):
        return g * rosenbrock.gradient(kept.x)


class KeepsTheBuffer(KeepsAnObject):
    def forward(self, x):
        self.buffer[:] = x
        return rosenbrock.value(x), {"deep": [(self.buffer,)]}

    def adjoint(self, state, g):
        return g * rosenbrock.gradient(state["deep"][0][0])


WRITES = {
    "array on self": lambda: WritesIntoSelf(np.zeros(2)),
    "dict on self": lambda: WritesIntoDict({}),
    "solver on self": lambda: WritesIntoSolver(Remembers()),
    "buffer in an object": KeepsAnObject,
    "buffer in the state": KeepsTheBuffer,
}


def test_shared_solver_state_class_form():
    with pytest.raises(AttributeError, match=r"WritesToSelf cannot be changed after its __init__ \(here: x\).*state"):
        WritesToSelf()(at())


@pytest.mark.parametrize("way", WRITES)
def test_shared_solver_state_inside_self(way):
    op = WRITES[way]()
    x, other = at(), at(*OTHER)

    def compute():
        first, _ = op(x), op(other)
        first.backward()
        return x.grad

    same_or_refused(compute, GRADIENT)


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
    with pytest.raises(FloatingPointError, match=r"(value|Solver): its .* holds NaN or Inf at x = \[0\.1 0\.1\]"):
        adam.step(lambda: op(x).backward())
    assert x.tolist() == [*POINT]


@every_form
def test_nan_value(form):
    op = FORMS[form](lambda x: np.nan, rosenbrock.gradient, finite="raise")
    with pytest.raises(FloatingPointError, match="its value holds NaN or Inf at x"):
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


# --- noise


def noisy(seed=0, draws="evaluation"):
    return differentiable(
        rosenbrock.value, grad=rosenbrock.gradient, hvp=rosenbrock.hvp, noise=UniformFactor(0.5), rng=seed, draws=draws
    )


def factor_of(found, truth):
    """Return the one factor between found and true numbers."""
    factors = found / truth
    torch.testing.assert_close(factors, factors.reshape(-1)[0].expand_as(factors), rtol=1e-12, atol=0)
    return factors.reshape(-1)[0].item()


@pytest.mark.parametrize("draws", ["independent", "evaluation", "step"])
def test_independent_noise(draws):
    x = at()
    y = noisy(draws=draws)(x)
    (first,) = torch.autograd.grad(y, x, retain_graph=True)
    (second,) = torch.autograd.grad(y, x, retain_graph=True)
    assert torch.equal(first, second)
    agree = factor_of(first, GRADIENT) == pytest.approx(y.item() / VALUE, rel=1e-12)
    assert agree == (draws != "independent")


def test_independent_noise_in_the_functions():
    rng = np.random.default_rng(0)
    op = differentiable(
        lambda x: rosenbrock.value(x) * rng.uniform(0.5, 1.5),
        grad=lambda x: rosenbrock.gradient(x) * rng.uniform(0.5, 1.5),
    )
    with pytest.warns(UserWarning, match="draws from the generator rng.*noise=UniformFactor"):
        op(at())


def test_independent_noise_of_numpy_s_global_generator():
    op = differentiable(
        lambda x: rosenbrock.value(x) * np.random.uniform(0.5, 1.5),  # noqa: NPY002 - the mistake
        grad=rosenbrock.gradient,
    )
    with pytest.warns(UserWarning, match=r"draws from np\.random"):
        op(at())


class DrawsInside(ExternalFunction):
    def __init__(self):
        self.generator = np.random.default_rng(0)

    def forward(self, x):
        return rosenbrock.value(x) * self.generator.uniform(0.5, 1.5), x

    def adjoint(self, x, g):
        return g * rosenbrock.gradient(x) * self.generator.uniform(0.5, 1.5)


def test_independent_noise_in_a_class():
    with pytest.warns(UserWarning, match="draws from"):
        DrawsInside()(at())


def test_no_warning_of_noise_without_noise():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        complete()(at())


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint_noise(reentrant):
    op, x = noisy(), at()
    ys = [checkpoint(op, x, use_reentrant=reentrant) for _ in range(3)]
    for y in reversed(ys):
        x.grad = None
        y.backward()
        assert factor_of(x.grad, GRADIENT) == pytest.approx(y.item() / VALUE, rel=1e-12)
    assert len({y.item() for y in ys}) == 3


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint_noise_with_one_seed_for_every_step(reentrant):
    op, x, ys = noisy(), at(), []
    for _ in range(2):
        torch.manual_seed(0)
        ys.append(checkpoint(op, x, use_reentrant=reentrant))

    def factor_of_the_gradient(y):
        x.grad = None
        y.backward()
        return torch.tensor(factor_of(x.grad, GRADIENT), dtype=torch.float64)

    for y in ys:
        same_or_refused(lambda y=y: factor_of_the_gradient(y), y.item() / VALUE)


def test_wrong_seed():
    def values(seed, torch_seed):
        torch.manual_seed(torch_seed)
        op = noisy(seed)
        return [op(at()).item() for _ in range(3)]

    assert values(0, 1) == values(0, 2)
    assert values(0, 1) != values(1, 1)
    with pytest.raises(TypeError, match="rng must be an int"):
        noisy(None)


def draw_in_worker(op):
    try:
        return op(at()).item()
    except RuntimeError as error:
        return str(error)


@pytest.mark.parametrize("method", [method for method in ("fork",) if method in get_all_start_methods()])
@pytest.mark.filterwarnings("ignore:This process")
def test_forked_noise(method):
    op = noisy()
    op(at())
    with ProcessPoolExecutor(2, mp_context=get_context(method)) as pool:
        refused = list(pool.map(draw_in_worker, [op, op]))
        drawn = list(pool.map(draw_in_worker, [*op.spawn(2), *op.spawn(2)]))
    assert all("op.spawn(count)" in text for text in refused)
    assert len(set(drawn)) == 4


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


# --- loud rows


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


def test_gradcheck_noise():
    assert torch.autograd.gradcheck(noisy(draws="step"), at())


def test_gradcheck_float32():
    assert "agrees" in complete().verify(at(dtype=torch.float32))
