"""``differentiable(solver)``: an object with forward and adjoint, which knows nothing of torch, as an operation."""

import copy
import pickle
import subprocess
import sys

import executor_functions as functions
import numpy as np
import pytest
import torch

from helpers import ExternalFunction, MissingDerivative, differentiable

pytest_plugins = ["executor_pools"]

SLOPE = torch.from_numpy(functions.A.sum(0))


def points(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


class Plain:
    """Only what is needed."""

    def forward(self, x):
        return x**2, x

    def adjoint(self, x, g):
        return 2 * x * g


class Slotted(Plain):
    __slots__ = ("factor",)

    def __init__(self, factor):
        self.factor = factor

    def forward(self, x):
        return self.factor * x**2, x

    def adjoint(self, x, g):
        return 2 * self.factor * x * g


class Delegating:
    """Its methods come by ``__getattr__``, as those of a proxy."""

    def __init__(self, solver):
        self._solver = solver

    def __getattr__(self, name):
        if name.startswith("__") or name == "_solver":
            raise AttributeError(name)
        return getattr(self._solver, name)


class OnFunctions:
    """The roles are attributes that hold functions."""

    def __init__(self):
        self.forward = lambda x: (x**3, x)
        self.adjoint = lambda x, g: 3 * x**2 * g
        self.tangent = lambda x, t: 3 * x**2 * t
        self.hvp = lambda x, g, t: 6 * x * t * g


SOLVERS = {"its own class": functions.Cubic(), "a proxy": Delegating(functions.Cubic()), "functions": OnFunctions()}


@pytest.mark.parametrize("kind", SOLVERS)
def test_it_has_all_derivatives_that_the_object_has(kind):
    op, x = differentiable(SOLVERS[kind]), points(3).requires_grad_()
    assert isinstance(op, ExternalFunction)
    assert torch.autograd.gradcheck(op, (x,), check_forward_ad=True, check_batched_grad=True)
    assert torch.autograd.gradgradcheck(op, (x,))
    hessian = torch.func.hessian(lambda x: (op(x) ** 2).sum())(x.detach())
    assert torch.allclose(hessian, hessian.T)
    assert "agrees" in op.verify(x.detach())


def test_the_least_that_is_needed():
    op, x = differentiable(Plain()), points(4).requires_grad_()
    op(x).sum().backward()
    assert torch.equal(x.grad, 2 * x.detach())
    with pytest.raises(MissingDerivative, match=r"Plain has no tangent"):
        torch.func.jvp(op, (x.detach(),), (x.detach(),))
    with pytest.raises(MissingDerivative, match=r"Plain has no hvp"):
        torch.autograd.grad(op(x).sum(), x, create_graph=True)[0].sum().backward()


@pytest.mark.parametrize("batch", [None, "loop", "vectorized"])
def test_the_options_are_those_of_functions(batch):
    op = differentiable(Plain(), batch=batch, signature="(n)->(n)", compute_dtype="float64", finite="raise")
    x = torch.ones((2, 3) if batch else (3,), dtype=torch.float32, requires_grad=True)
    y = op(x)
    y.sum().backward()
    assert y.dtype == x.grad.dtype == torch.float32
    assert torch.equal(x.grad, 2 * x.detach())
    with pytest.raises(FloatingPointError, match="Plain"):
        op(x * torch.nan)


def test_names_and_signature_come_from_the_object_and_options_win():
    assert repr(differentiable(functions.Cubic())) == "<SolverOp Cubic>"
    assert "product" in repr(differentiable(functions.TwoInputs()))
    assert "mine" in repr(differentiable(functions.TwoInputs(), name="mine"))
    assert differentiable(functions.Cubic(), batch="loop")(points(2, 3)).shape == (2, 3)
    with pytest.raises(ValueError, match="Cubic"):
        differentiable(functions.Cubic(), batch="loop", signature="(n)->()")(points(2, 3))
    assert differentiable(functions.Cubic()).__doc__ == functions.Cubic.__doc__


def test_several_inputs_and_named_arguments():
    op = differentiable(functions.TwoInputs(), batch="loop")
    x, b = points(2, 3).requires_grad_(), points(3, seed=1).requires_grad_()
    assert torch.autograd.gradcheck(lambda x, b: op(x, b, times=0.5), (x, b))
    assert torch.equal(op(x, b=b, times=2.0), op(x, b, 2.0))


def test_aux_is_the_third_result():
    op = differentiable(functions.WithAux(), aux=True)
    x = points(3).requires_grad_()
    y, aux = op(x)
    y.sum().backward()
    assert aux == float(x[0].detach())
    assert torch.allclose(x.grad, 3 * x.detach() ** 2 * SLOPE)


def test_two_solves_before_their_backwards():
    for solver in (functions.Cubic(), functions.Remembering()):
        op, a, b = differentiable(solver), points(3).requires_grad_(), points(3, seed=1).requires_grad_()
        y, z = op(a), op(b)
        (y.sum() + z.sum()).backward()
        assert torch.allclose(a.grad, 3 * a.detach() ** 2 * SLOPE)
        assert torch.allclose(b.grad, 3 * b.detach() ** 2 * SLOPE)


def test_two_ops_of_one_object_that_remembers():
    solver = functions.Remembering()
    one, other = differentiable(solver), differentiable(solver)
    a, b = points(3).requires_grad_(), points(3, seed=1).requires_grad_()
    y, _ = one(a), other(b)
    y.sum().backward()
    assert torch.allclose(a.grad, 3 * a.detach() ** 2 * SLOPE)


@pytest.mark.parametrize("solver", [functions.Cubic(), Slotted(3.0)], ids=["plain", "slots"])
def test_it_can_be_pickled_and_copied(solver):
    op, x = differentiable(solver), points(3)
    for twin in (pickle.loads(pickle.dumps(op)), copy.deepcopy(op), copy.copy(op)):
        assert torch.equal(twin(x), op(x))
        assert torch.equal(torch.func.jacrev(twin)(x), torch.func.jacrev(op)(x))
    assert copy.deepcopy(op).solver is not solver


def test_what_is_changed_on_the_object_counts(pools):
    solver, x = Slotted(1.0), points(2, 3)
    for executor in (None, pools("threads"), pools("late")):
        solver.factor = 1.0
        op = differentiable(solver, batch="loop", signature="(n)->(n)", executor=executor)
        assert torch.allclose(op(x), x**2)
        solver.factor = 5.0
        assert torch.allclose(op(x), 5 * x**2)


def test_the_object_is_not_changed_by_workers(pools):
    solver = functions.Remembering()
    op = differentiable(solver, batch="loop", executor=pools("process_pool"))
    op(points(3, 3))
    assert solver.slope is None


def test_results_of_a_buffer_are_kept():
    class Buffered(Plain):
        def __init__(self):
            self.y, self.g = np.empty(3), np.empty(3)

        def forward(self, x):
            self.y[:] = x**2
            return self.y, x

        def adjoint(self, x, g):
            self.g[:] = 2 * x * g
            return self.g

    op = differentiable(Buffered(), batch="loop", signature="(n)->(n)")
    x = points(4, 3).requires_grad_()
    y = op(x)
    y.sum().backward()
    assert torch.equal(y.detach(), torch.from_numpy(x.detach().numpy() ** 2))
    assert torch.equal(x.grad, 2 * x.detach())


REFUSED = {
    "a class": (functions.Cubic, "derivative|object"),
    "forward alone": (type("Half", (), {"forward": lambda self, x: (x, None)})(), "derivative|adjoint"),
    "a function": (functions.quartic, "derivative"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_solver_is_refused(case):
    thing, said = REFUSED[case]
    with pytest.raises(TypeError, match=said):
        differentiable(thing)


@pytest.mark.parametrize("option", ["hvp", "jvp"])
def test_a_solver_brings_its_own_derivatives(option):
    with pytest.raises(TypeError):
        differentiable(functions.Cubic(), **{option: functions.cube_hvp})


def test_a_forward_that_forgets_the_state_is_told():
    class Forgets(Plain):
        def forward(self, x):
            return x**2

    with pytest.raises(TypeError, match=r"Forgets: its forward must return \(y, state\)"):
        differentiable(Forgets())(points(3))


def test_the_object_needs_no_torch(importable):
    code = (
        "import sys, pickle, executor_functions as f; y, state = f.Cubic().forward(f.A[0]);"
        "pickle.loads(pickle.dumps(f.Cubic())).adjoint(state, y); import helpers.tasks, helpers.pools;"
        "print('torch' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert found.stdout.strip() == "False", found.stderr


def test_workers_do_not_import_torch_for_functions_and_solvers(new_pool):
    pool, x = new_pool(), points(2, 3).requires_grad_()
    differentiable(functions.Cubic(), batch="loop", executor=pool)(x).sum().backward()
    differentiable(functions.quartic, grad=functions.quartic_gradient, batch="loop", executor=pool)(x).sum().backward()
    op = differentiable(functions.loads_torch, grad=functions.ones, batch="loop", executor=pool)
    assert op(x).tolist() == [0.0, 0.0]
