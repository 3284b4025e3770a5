"""A tensor that reaches the function past its arguments, or leaves torch before, is refused; inside, all is NumPy."""

import functools
import math
import types

import numpy as np
import pytest
import torch
from bridge_catalogue import GRADIENT, complete, gradient_of
from bridge_forms import at, same

from helpers import ExternalFunction, differentiable, rosenbrock

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


# --- tensors that are no arguments


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
