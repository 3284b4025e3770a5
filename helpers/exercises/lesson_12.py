"""Exercises of lesson 12: an equation's adjoint, rates above zero, and which adjoint to take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from .engine import TODO, Exercise, plain

Array = NDArray[np.float64]

R, K = 0.7, 2.0
U, W = np.array([0.5, 1.5, 2.5]), np.array([1.0, -2.0, 0.5])


def _logistic(equation: Callable[[], Any]) -> object:
    answer = equation().vjp(0.0, U.copy(), np.array([R, K]), W.copy())
    if answer is None:
        return "vjp returns nothing. It must end with: return of_u, of_theta."
    of_u, of_theta = answer
    if of_u is Ellipsis or of_theta is Ellipsis:
        return TODO
    of_u, of_theta = (_numbers(part) for part in (of_u, of_theta))
    if of_u.shape != U.shape:
        return f"of_u has shape {of_u.shape}, and u has {U.shape}: one number for each population."
    return _of_u(of_u) or _of_theta(of_theta)


def _of_u(of_u: Array) -> str | None:
    slope = R * (1 - 2 * U / K)
    if np.allclose(of_u, slope * W):
        return None
    if np.allclose(of_u, slope):
        return (
            "of_u is the derivative of f for u. The adjoint is that times w: how much does somebody care about du/dt?"
        )
    if np.allclose(of_u, R * (1 - U / K) * W):
        return "of_u: f is a product, and u stands in both factors. You differentiated the first one only."
    if np.allclose(of_u, np.sum(slope * W)):
        return "of_u: the populations do not meet, so each has a number of its own. Sum only over what they share."
    return f"of_u is not right yet. For u = {U[0]} and w = {W[0]} it is {slope[0] * W[0]:.3f}; yours is {of_u[0]:.3f}."


def _of_theta(of_theta: Array) -> str | None:
    of_r, of_k = U * (1 - U / K), R * U**2 / K**2
    right = np.array([np.sum(of_r * W), np.sum(of_k * W)])
    if of_theta.shape == (2, *U.shape) and np.allclose(of_theta, [of_r * W, of_k * W]):
        return "of_theta: all populations have the same r and K, so what each asks of them is added up. Sum over u."
    if of_theta.shape != (2,):
        return f"of_theta must have the shape of theta, (2,); yours has {of_theta.shape}."
    if np.allclose(of_theta, right):
        return None
    if np.allclose(of_theta, right[::-1]):
        return "of_theta: theta is (r, K), in this order, and so is its gradient."
    if np.allclose(of_theta, [of_r.sum(), of_k.sum()]):
        return "of_theta is the sum of the derivatives. Each population counts with its own w."
    if np.allclose(of_theta, right * [1, -1]):
        return (
            "of_theta: look at the sign for K. A larger K means more room: does the population grow faster or slower?"
        )
    wrong = "r" if not np.isclose(of_theta[0], right[0]) else "K"
    return (
        f"of_theta: the number for {wrong} is not right yet. Differentiate r u (1 - u/K) for {wrong}, times w, summed."
    )


def _numbers(part: object) -> Array:
    return np.asarray(part, dtype=np.float64)


def _positive(positive: Callable[[torch.Tensor], object]) -> object:
    raw = torch.linspace(-20, 20, 81, dtype=torch.float64, requires_grad=True)
    found = positive(raw)
    if found is Ellipsis:
        return TODO
    if not isinstance(found, torch.Tensor):
        return f"The network learns through this function: return a tensor, made of raw; got {type(found).__name__}."
    if found.shape != raw.shape:
        return f"One rate for each number of raw: the shape must be {tuple(raw.shape)}; yours is {tuple(found.shape)}."
    if not found.requires_grad:
        return "What comes back has no graph, so no gradient gets through to the network."
    lowest = int(found.argmin())
    if not bool((found > 0).all()):
        return f"For raw = {raw[lowest].item():g} it gives {found[lowest].item():g}. The solver wants rates above 0."
    if not bool(torch.isfinite(found).all()):
        return "Somewhere between -20 and 20 it gives NaN or Inf."
    if found.max() <= 1.001:
        return f"The largest rate that it can give is {found.max().item():.3g}, and rates above 1 must be possible."
    (slope,) = torch.autograd.grad(found.sum(), raw)
    flat = torch.isnan(slope) | (slope == 0)
    if bool(flat.any()):
        where = raw[int(flat.nonzero()[0])].item()
        return f"At raw = {where:g} the slope is 0 or NaN: a network that gets there learns nothing more."
    return None


SITUATIONS = {
    "A": (
        "discrete",
        "A: a line search compares values with slopes. Which gradient fits the values, rough as they are?",
    ),
    "B": ("continuous", "B: the discrete adjoint walks the same stages backward. Can you see them?"),
    "C": ("continuous", "C: look at the two pictures of section 4. Which one is off though every formula is right?"),
    "D": (
        "discrete",
        "D: gradgradcheck compares with differences of what was computed. Which adjoint is exact for that?",
    ),
}


def _adjoints(*answers: object) -> str | None:
    for answer, (letter, (kind, thought)) in zip(answers, SITUATIONS.items(), strict=True):
        words = plain(answer)
        if words not in ("discrete", "continuous"):
            return f'{letter}: {answer!r} is neither. Write "discrete" or "continuous".'
        if words != kind:
            return thought
    return None


def _equation(of_u: str, of_theta: str, end: str = "return of_u, of_theta") -> str:
    return f"""class Logistic(Equation):
    def rhs(self, t, u, theta):
        r, K = theta
        return r * u * (1 - u / K)

    def vjp(self, t, u, theta, w):
        r, K = theta
        of_u = {of_u}
        of_theta = {of_theta}
        {end}"""


def _function(line: str) -> str:
    return f"def positive(raw):\n    return {line}"


def _choices(**changed: str) -> str:
    right = {letter: kind for letter, (kind, _) in SITUATIONS.items()} | changed
    return "\n".join(["adjoints = {", *(f'    "{letter}": "{kind}",' for letter, kind in right.items()), "}"])


OF_U = "r * (1 - 2 * u / K) * w"
OF_R, OF_K = "np.sum(u * (1 - u / K) * w)", "np.sum(r * u**2 / K**2 * w)"

EXERCISES = {
    "12.1": Exercise(
        title="an equation of your own",
        judge=_logistic,
        hint="Differentiate r u - r u²/K for u, for r and for K. Multiply each by w. r and K are shared by all "
        "populations, so their two numbers are sums.",
        solution=_equation(OF_U, f"np.array([{OF_R}, {OF_K}])"),
        why="f and this are all that either solver needs: the adjoint of the whole trajectory follows.",
        wrong={
            _equation("r * (1 - 2 * u / K)", f"np.array([{OF_R}, {OF_K}])"): "times w",
            _equation("r * (1 - u / K) * w", f"np.array([{OF_R}, {OF_K}])"): "u stands in both factors",
            _equation(
                "np.full(u.shape, np.sum(r * (1 - 2 * u / K) * w))", f"np.array([{OF_R}, {OF_K}])"
            ): "do not meet",
            _equation("np.sum(r * (1 - 2 * u / K) * w)", f"np.array([{OF_R}, {OF_K}])"): "of_u has shape",
            _equation("-r * w", f"np.array([{OF_R}, {OF_K}])"): "of_u is not right yet",
            _equation(OF_U, "np.array([u * (1 - u / K) * w, r * u**2 / K**2 * w])"): "Sum over u",
            _equation(OF_U, OF_R): "the shape of theta",
            _equation(OF_U, f"np.array([{OF_K}, {OF_R}])"): "in this order",
            _equation(OF_U, "np.array([np.sum(u * (1 - u / K)), np.sum(r * u**2 / K**2)])"): "its own w",
            _equation(OF_U, f"np.array([{OF_R}, -{OF_K}])"): "sign for K",
            _equation(OF_U, f"np.array([{OF_R}, 2 * {OF_K}])"): "the number for K",
            _equation(OF_U, f"np.array([{OF_R}, {OF_K}])", end="of_u, of_theta"): "returns nothing",
        },
    ),
    "12.2": Exercise(
        title="above zero",
        judge=_positive,
        hint="It must always rise or always fall, and stay above 0. Think of relu, which is flat on the left: "
        "torch.nn.functional has a smooth relative of it.",
        solution=_function("torch.nn.functional.softplus(raw)"),
        why="It is above 0, goes above 1, and its slope is never 0.",
        wrong={
            _function("raw"): "The solver wants rates above 0",
            _function("raw.abs()"): "For raw = 0",
            _function("torch.relu(raw)"): "The solver wants rates above 0",
            _function("raw.clamp(min=1e-3)"): "learns nothing more",
            _function("raw**2 + 1e-3"): "learns nothing more",
            _function("torch.sigmoid(raw)"): "rates above 1",
            _function("raw.detach().exp()"): "no graph",
            _function("np.exp(raw.detach().numpy())"): "return a tensor",
            _function("raw.exp().sum()"): "One rate for each",
            _function("1e300 ** raw.exp()"): "NaN or Inf",
        },
    ),
    "12.3": Exercise(
        title="which adjoint",
        judge=_adjoints,
        hint="Ask of each: must the gradient fit the computed value to the last digit, and can you see the solver's "
        "stages?",
        solution=_choices(),
        why="The discrete one belongs to the computation, the continuous one to the equation.",
        wrong={
            _choices(A="continuous"): "A: a line search",
            _choices(B="discrete"): "Can you see them",
            _choices(C="discrete"): "though every formula is right",
            _choices(D="continuous"): "gradgradcheck compares",
            _choices(A="both"): "is neither",
        },
    ),
}
