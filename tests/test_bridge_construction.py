"""An op as an object: how it is made, its name, its copies, and what is refused at construction."""

import copy
import pickle

import numpy as np
import pytest
import torch
from bridge_forms import (
    Gather,
    Power,
    SinCos,
    cube,
    cube_gradient,
    cube_of_torch,
    cube_op,
    cube_product,
    every_form,
    normal,
    same,
    same_as_torch,
    tensor,
)

from helpers import ExternalFunction, UniformFactor, differentiable

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
    "noise": (lambda: differentiable(cube, grad=cube, noise=0.5, rng=0), "noise must be a factor with a draw"),
    "noise class": (lambda: differentiable(cube, grad=cube, noise=UniformFactor, rng=0), "noise must be a factor"),
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
OPTIONS = ("name", "batch", "finite", "check", "signature", "compute_dtype", "aux", "draws", "out_shape")
module_noisy = differentiable(cube, grad=cube_gradient, noise=UniformFactor(0.5), rng=3)


def test_a_decorator_makes_the_op_of_a_call():
    made = differentiable(grad=cube_gradient, hvp=cube_product, batch="loop", finite="raise", name="f")(cube)
    assert type(made) is type(module_level)
    assert [getattr(made, name) for name in OPTIONS] == [getattr(module_level, name) for name in OPTIONS]
    same_as_torch(made, module_level, normal(2, 3))
    same(torch.func.hessian(decorated)(normal(3, grad=False)), torch.diag(6 * normal(3, grad=False)))
    assert "agrees" in documented.verify(normal(3))


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


def test_a_pickle_of_a_lambda_says_why():
    with pytest.raises((pickle.PicklingError, AttributeError), match="lambda"):
        pickle.dumps(differentiable(lambda x: x, grad=lambda x: x))
