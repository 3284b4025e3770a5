"""State that lies behind more than one op, or where a function is not seen to keep it: right all the same.

Every case is solved at one point, then at another, and then both backwards run: an adjoint that reads what the latest
solve has left behind would give the first point the gradient of the second.
"""

import collections
import threading
import types

import numpy as np
import pytest
import scipy.sparse
import torch
from bridge_forms import same
from torch.fx.experimental.proxy_tensor import make_fx

from helpers import ExternalFunction, WrongDerivative, differentiable


def leaf(*numbers):
    return torch.tensor(numbers, dtype=torch.float64, requires_grad=True)


def interleaved(first, second):
    """Return the gradients of two calls whose backwards run after both: the truth is 2x for each."""
    one, two = leaf(1.0, 2.0), leaf(10.0, 20.0)
    (first(one) + second(two)).backward()
    return one.grad.tolist(), two.grad.tolist()


class Solver:
    def solve(self, x):
        self.u = x.copy()
        return np.sum(x**2)

    def slope(self, x):
        return 2 * self.u


class Wrapped(ExternalFunction):
    def __init__(self, solver):
        self.solver = solver

    def forward(self, x):
        return self.solver.solve(x), None

    def adjoint(self, state, g):
        return g * self.solver.slope(None)


class OnTheClass(Solver):
    def solve(self, x):
        type(self).u = x.copy()
        return np.sum(x**2)


class Slots:
    __slots__ = ("u",)


class InheritedSlots(Slots):
    __slots__ = ("other",)
    solve, slope = Solver.solve, Solver.slope


def of(solver):
    return differentiable(solver.solve, grad=solver.slope)


def two_functions():
    kept = {}

    def solve(x):
        kept["x"] = x.copy()
        return np.sum(x**2)

    return [differentiable(solve, vjp=lambda x, g: 2 * kept["x"] * g) for _ in range(2)]


def two_of_the_class_form():
    solver = Solver()
    return Wrapped(solver), Wrapped(solver)


def method_and_lambda():
    solver = Solver()
    return of(solver), differentiable(lambda x: solver.solve(x), grad=lambda x: solver.slope(x))


def one_that_only_disturbs():
    solver = Solver()
    return of(solver), differentiable(lambda x: solver.solve(x), grad=lambda x: 2 * x)


def both(op):
    return op, op


def in_a_deque():
    kept = collections.deque(maxlen=1)

    def solve(x):
        kept.append(x.copy())
        return np.sum(x**2)

    return both(differentiable(solve, grad=lambda x: 2 * kept[0]))


def in_a_sparse_matrix():
    matrix = scipy.sparse.csr_matrix(np.eye(2))

    def solve(x):
        matrix.data[:] = x
        return np.sum(x**2)

    return both(differentiable(solve, grad=lambda x: 2 * matrix.data))


def in_a_thread_local():
    local = threading.local()

    def solve(x):
        local.x = x.copy()
        return np.sum(x**2)

    return both(differentiable(solve, grad=lambda x: 2 * local.x))


def in_a_module():
    module = types.ModuleType("a_solver_of_the_user")
    code = (
        "def solve(x):\n    global u\n    u = x.copy()\n    return (x**2).sum()\n\n\ndef slope(x):\n    return 2 * u\n"
    )
    exec(code, vars(module))
    return both(differentiable(lambda x: module.solve(x), grad=lambda x: module.slope(x)))


def solved_before():
    class Buffered(Solver):
        def __init__(self):
            self.u = np.zeros(2)

        def solve(self, x):
            self.u[:] = x
            return np.sum(x**2)

    solver = Buffered()
    solver.solve(np.array([1.0, 2.0]))
    op = of(solver)
    for _ in range(4):
        op(leaf(1.0, 2.0))
    return both(op)


CASES = {
    "two functions over one dict": two_functions,
    "two ops of the class form over one solver": two_of_the_class_form,
    "methods beside lambdas": method_and_lambda,
    "one that remembers and one that only disturbs": one_that_only_disturbs,
    "attribute of the class": lambda: both(of(OnTheClass())),
    "inherited slots": lambda: both(of(InheritedSlots())),
    "deque": in_a_deque,
    "sparse matrix": in_a_sparse_matrix,
    "thread local": in_a_thread_local,
    "module": in_a_module,
    "solved before at the same point": solved_before,
}


@pytest.mark.parametrize("case", CASES)
def test_each_backward_has_its_own_solve(case):
    assert interleaved(*CASES[case]()) == ([2.0, 4.0], [20.0, 40.0])


def test_data_that_is_only_read_is_no_state():
    matrix, calls = np.array([[1.0, 2.0], [0.0, 3.0]]), []

    def value(x):
        calls.append(1)
        return np.sum((matrix @ x) ** 2)

    op = differentiable(value, grad=lambda x: 2 * matrix.T @ (matrix @ x))
    points = [leaf(1.0 + k, 2.0) for k in range(10)]
    sum(op(x) for x in points).backward()
    assert len(calls) == len(points)


# --- what else the review found


def test_a_list_that_is_changed_before_backward_is_not_the_one_that_was_given():
    weights = [1.0, 2.0]
    op = differentiable(lambda x, w: x @ np.array(w), grad=lambda x, w: np.array(w))
    x = leaf(1.0, 2.0)
    y = op(x, weights)
    weights[0] = 100.0
    y.backward()
    same(x.grad, [1.0, 2.0])


@pytest.mark.parametrize(
    ("value", "slope", "options"),
    [
        (lambda x: np.sum(x**2) + 1000, lambda x: 0 * x, {"compute_dtype": "float32"}),
        (lambda x: np.sum(x**2) + 1e12, lambda x: -5 * x, {}),
    ],
    ids=["lost in float32", "lost in a large constant"],
)
def test_verify_does_not_choose_the_step_that_flatters(value, slope, options):
    with pytest.raises(WrongDerivative):
        differentiable(value, grad=slope, **options).verify(leaf(1.0, 2.0))


def test_verify_looks_at_each_input_alone():
    op = differentiable(lambda x, w: 1e6 * np.sum(x) + np.sum(w), grad=lambda x, w: (1e6 + 0 * x, -1 + 0 * w))
    with pytest.raises(WrongDerivative):
        op.verify(leaf(1.0, 2.0), leaf(3.0, 4.0))


def test_a_recording_that_begins_after_the_call_is_refused():
    x = leaf(1.0, 2.0)
    y = differentiable(lambda x: x**2, vjp=lambda x, g: 2 * x * g)(x)
    with pytest.raises(RuntimeError, match="Record the call too"):
        make_fx(lambda g: torch.autograd.grad(y, x, g, retain_graph=True)[0])(torch.ones_like(x))


def test_outputs_that_are_not_as_the_signature_says_are_refused():
    op = differentiable(lambda x: x**2, vjp=lambda x, g: 2 * x * g, batch="vectorized", signature="(n)->()")
    with pytest.raises(ValueError, match="signature '\\(n\\)->\\(\\)' asks for outputs"):
        op(leaf(1.0, 2.0))


def test_a_program_of_another_process_is_refused():
    x = torch.ones(2, dtype=torch.float64)
    with pytest.raises(RuntimeError, match="an op of the bridge that is not there"):
        torch.ops.bring_your_own_gradient.value([x], "the number of another process|", [])


def test_the_note_of_an_error_stands_there_once():
    fault = ValueError("no such file")

    def value(x):
        raise fault

    op = differentiable(value, grad=lambda x: x)
    for _ in range(2):
        with pytest.raises(ValueError, match="no such file"):
            op(leaf(1.0, 2.0))
    assert len(fault.__notes__) == 1
