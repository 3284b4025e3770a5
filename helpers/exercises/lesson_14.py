"""Exercises of lesson 14: the routes around autograd."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray

from .. import rosenbrock
from .engine import TODO, Exercise, plain

Array = NDArray[np.float64]

LONG, SHORT, NONE = (3.0, -4.0), (0.3, -0.4), (0.0, 0.0)


def _clip(hook: Callable[[torch.Tensor], object]) -> object:
    clipped = []
    for gradient in (LONG, SHORT, NONE):
        given = torch.tensor(gradient, dtype=torch.float64)
        answer = hook(given)
        if answer is Ellipsis:
            return TODO
        if given.tolist() != list(gradient):
            return "The hook wrote into the gradient that it got. Others may read that one too: return a new tensor."
        if answer is None:
            return "The hook returns nothing, so the gradient stays as it was. Return the new one."
        if not isinstance(answer, torch.Tensor):
            return f"Autograd wants a tensor back from a hook; this one returned {type(answer).__name__}."
        if answer.shape != given.shape:
            return f"The gradient has shape {tuple(given.shape)}, and what comes back has {tuple(answer.shape)}."
        clipped.append(answer.tolist())
    long, short, none = clipped
    if long == [1.0, -1.0]:
        return "Each entry is limited now, so the direction changed, and the norm is not 1. Scale the whole vector."
    if np.isnan(none).any():
        return "A zero gradient became NaN: you divide by its norm. Divide only where the norm is above 1."
    if np.allclose(long, LONG):
        return "The gradient (3, -4) has the norm 5, and it came through as it was."
    if not np.allclose(long, (0.6, -0.8)):
        return f"(3, -4) has the norm 5, so it should become (0.6, -0.8); yours is {tuple(np.round(long, 4).tolist())}."
    if not np.allclose(short, SHORT) or none != [0.0, 0.0]:
        return "A gradient whose norm is below 1 must stay as it is: (0.3, -0.4) has the norm 0.5."
    return None


def _handover(value_and_gradient: Callable[[Array], object]) -> object:
    point, other = np.array([0.1, 0.1]), np.array([-0.4, 0.7])
    answer = value_and_gradient(point)
    if answer is Ellipsis:
        return TODO
    if not isinstance(answer, tuple) or len(answer) != 2:
        return "With jac=True, SciPy takes two things from one call: return value, gradient."
    value, gradient = answer
    if np.ndim(value) == 1 and np.ndim(gradient) == 0:
        return "The order matters: the value comes first, then the gradient."
    if isinstance(value, torch.Tensor) or isinstance(gradient, torch.Tensor):
        return "SciPy knows no tensors. Return a number, with item(), and an array, with numpy()."
    if not isinstance(gradient, np.ndarray):
        return "The gradient is missing: what stands in x.grad after backward, as an array?"
    f, g = float(rosenbrock.value(point)), rosenbrock.gradient(point)
    if np.isclose(value, f):
        return "That is f. The function to minimise here is loss, the logarithm of 1 + f."
    if gradient.dtype != np.float64 or not np.isclose(value, np.log(1 + f), rtol=1e-12):
        if np.isclose(value, np.log(1 + f), rtol=1e-5):
            return "These are numbers of float32: half of the digits are lost. SciPy computes in float64."
        return f"At (0.1, 0.1) the loss is {np.log(1 + f):.4f}; yours is {float(value):.4f}."
    if not np.allclose(gradient, g / (1 + f), rtol=1e-9):
        return "The gradient is not that of loss. Call backward on what loss returned, and read x.grad."
    kept = gradient.copy()
    value_and_gradient(other)
    if not np.array_equal(gradient, kept):
        return "A second call changed the gradient of the first: SciPy keeps both. Make a new tensor, or return a copy."
    if not np.allclose(np.asarray(value_and_gradient(point)[1]), kept):  # type: ignore[index]
        return "The gradient grows from call to call: backward adds to what x.grad held. Make a new tensor each time."
    return None


ROUTES = ("x.grad", "hook", "custom_op", "wrap_numpy", "minimize", "differentiable")

SITUATIONS = {
    "A": ("x.grad", "A: nothing comes after f, and Adam reads one thing only. Which?"),
    "B": ("differentiable", "B: one network stands before the solver and another one after it: it is inside a graph."),
    "C": ("hook", "C: torch has the gradient already. You only want to change it on its way."),
    "D": ("wrap_numpy", "D: nobody has written a gradient. Which route differentiates NumPy code by itself?"),
    "E": ("minimize", "E: no noise, few variables, many digits: which optimiser needs few evaluations?"),
}


def _routes(*answers: object) -> str | None:
    named = " ".join(ROUTES)
    for answer, (letter, (route, thought)) in zip(answers, SITUATIONS.items(), strict=True):
        words = plain(answer)
        if words not in ROUTES:
            return f"{letter}: {answer!r} is none of the six routes. Write one of: {named}."
        if words != route:
            return thought
    return None


def _hook_code(*lines: str) -> str:
    return "def clip(g):\n" + "\n".join(f"    {line}" for line in lines)


def _handover_code(*lines: str) -> str:
    return "def value_and_gradient(a):\n" + "\n".join(f"    {line}" for line in lines)


def _routes_code(**changed: str) -> str:
    right = {letter: route for letter, (route, _) in SITUATIONS.items()} | changed
    lines = [f'    "{letter}": "{route}",' for letter, route in right.items()]
    return "\n".join(["routes = {", *lines, "}"])


TENSOR, LOSS, BACK = "x = torch.tensor(a, requires_grad=True)", "value = loss(x)", "value.backward()"
ONE_TENSOR = "x = torch.zeros(2, dtype=torch.float64, requires_grad=True)\n\n\n"
FILL = ("with torch.no_grad():", "    x.copy_(torch.from_numpy(a))")

EXERCISES = {
    "14.1": Exercise(
        title="a hook that clips",
        judge=_clip,
        hint="g.norm() is the length. Divide by it where it is above 1, and by 1 elsewhere: clamp(min=1) makes one "
        "expression of both.",
        solution=_hook_code("return g / g.norm().clamp(min=1)"),
        why="A long gradient keeps its direction and gets the norm 1; a short one stays as it is.",
        wrong={
            _hook_code("return g / g.norm()"): "A zero gradient became NaN",
            _hook_code("return g / (g.norm() + 1e-12)"): "must stay as it is",
            _hook_code("return g.clamp(-1, 1)"): "Each entry is limited",
            _hook_code("g / g.norm().clamp(min=1)"): "returns nothing",
            _hook_code("g /= g.norm().clamp(min=1)", "return g"): "wrote into the gradient",
            _hook_code("return (g / g.norm().clamp(min=1)).numpy()"): "wants a tensor back",
            _hook_code("return g.norm().clamp(max=1)"): "has shape",
            _hook_code("return g if g.norm() > 1 else g / g.norm().clamp(min=1)"): "came through as it was",
            _hook_code("return g / g.abs().sum().clamp(min=1)"): "should become (0.6, -0.8)",
        },
    ),
    "14.2": Exercise(
        title="the hand-over to SciPy",
        judge=_handover,
        hint="Four steps: a new tensor from a, the loss, backward, and then a number and an array.",
        solution=_handover_code(TENSOR, LOSS, BACK, "return value.item(), x.grad.numpy()"),
        why="Each call has a tensor and a gradient of its own, in float64, and SciPy gets a number and an array.",
        wrong={
            _handover_code(TENSOR, LOSS, BACK, "return value, x.grad"): "knows no tensors",
            _handover_code(TENSOR, LOSS, BACK, "return value.item()"): "takes two things",
            _handover_code(TENSOR, LOSS, BACK, "return x.grad.numpy(), value.item()"): "order matters",
            _handover_code(TENSOR, LOSS, "return value.item(), x.grad"): "The gradient is missing",
            _handover_code(TENSOR, "value = f(x)", BACK, "return value.item(), x.grad.numpy()"): "That is f",
            _handover_code(
                "x = torch.tensor(a, dtype=torch.float32, requires_grad=True)",
                LOSS,
                BACK,
                "return value.item(), x.grad.numpy()",
            ): "numbers of float32",
            _handover_code(TENSOR, "value = 2 * loss(x)", BACK, "return value.item(), x.grad.numpy()"): "the loss is",
            _handover_code(TENSOR, LOSS, "f(x).backward()", "return value.item(), x.grad.numpy()"): "not that of loss",
            ONE_TENSOR
            + _handover_code(*FILL, LOSS, BACK, "return value.item(), x.grad.numpy()"): "second call changed",
            ONE_TENSOR
            + _handover_code(
                *FILL, LOSS, BACK, "return value.item(), x.grad.numpy().copy()"
            ): "grows from call to call",
        },
    ),
    "14.3": Exercise(
        title="which route",
        judge=_routes,
        hint="Ask three questions of each: who computes the gradient? Does anything come after f? Who moves x?",
        solution=_routes_code(),
        why="Only one of the five needs f inside a graph.",
        wrong={
            _routes_code(A="differentiable"): "A: nothing comes after f",
            _routes_code(B="x.grad"): "inside a graph",
            _routes_code(C="x.grad"): "torch has the gradient already",
            _routes_code(D="custom_op"): "nobody has written a gradient",
            _routes_code(E="x.grad"): "few evaluations",
            _routes_code(A="Adam"): "none of the six routes",
        },
    ),
}
