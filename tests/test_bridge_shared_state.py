"""A solver that remembers its latest solve: each gradient is that of its own value, or the bridge refuses."""

import copy
import functools
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from bridge_catalogue import GRADIENT, HESSIAN, OTHER, POINT, same_or_refused
from bridge_forms import at, cube, cube_gradient, normal, same

from helpers import ExternalFunction, differentiable, rosenbrock

# --- functions of one solver


class Remembers:
    """Rosenbrock by a solver whose gradient is that at its latest solve."""

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


# --- the class form


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
