"""Exercises of lesson 10: the bridge."""

from typing import Any

import numpy as np
import torch

from ..bridge import ExternalFunction, differentiable
from .engine import TODO, Exercise, plain


def _batch(answer: object) -> str | None:
    if plain(answer) == "loop":
        return None
    if plain(answer) == "vectorized":
        return "That calls the function once, with all three points at the same time. Yours takes one."
    if answer is None:
        return "None means that there is no batch: the function would receive an array of shape (3, 2)."
    return "Answer with one of the two words of section 3, as text."


def _quartic_hvp(hvp: Any) -> object:
    if not callable(hvp):
        return "Pass the function itself, without brackets after its name."
    x, t = np.array([1.0, 2.0, -1.0]), np.array([1.0, 0.0, 2.0])
    answer = hvp(x, t)
    if answer is Ellipsis:
        return TODO
    if answer is None:
        return "Your function returns nothing. Is a return missing?"
    answer = np.asarray(answer)
    if answer.shape == (3, 3):
        return "That is the whole Hessian. Asked for is its product with t: an array with the shape of x."
    if answer.shape != x.shape:
        return f"The product has the shape of x, {x.shape}; yours has {answer.shape}."
    if np.allclose(answer, 12 * x**2):
        return "Those are the entries of the Hessian: your function ignores t."
    if np.allclose(answer, 4 * x**3 * t):
        return "That is the gradient times t. Differentiate 4x³ once more, then multiply by t."
    if not np.allclose(answer, 12 * x**2 * t):
        return (
            "Differentiate 4x³ once more. The Hessian of this f is diagonal, so its product with t goes entry by entry."
        )
    op = differentiable(_quartic, grad=_quartic_gradient, hvp=hvp)
    hessian = torch.func.hessian(op)(torch.tensor(x))
    if np.allclose(hessian.numpy(), np.diag(12 * x**2)):
        return None
    return "It is right at one point, and torch's Hessian of the op is not. Does it use both x and t?"


def _quartic(x: Any) -> Any:
    return np.sum(x**4)


def _quartic_gradient(x: Any) -> Any:
    return 4 * x**3


def _filter(answer: Any) -> object:
    if not (isinstance(answer, type) and issubclass(answer, ExternalFunction)):
        return "Pass the class itself: check('10.3', Filter), without brackets after Filter."
    matrix, g = np.array([[1.0, 2.0, 0.0], [0.0, 1.0, 3.0]]), np.array([1.0, 10.0])
    try:
        found = answer().adjoint(None, g)
    except ValueError:
        return "The shapes do not fit: F leads from 3 numbers to 2, and the adjoint goes back from 2 to 3."
    if found is Ellipsis:
        return TODO
    if isinstance(found, torch.Tensor):
        return "The adjoint works with NumPy arrays, and yours returns a tensor."
    if isinstance(found, np.ndarray) and np.array_equal(found, matrix.T):
        return "That is the matrix alone. Multiply it by g."
    if isinstance(found, np.ndarray) and found.shape == matrix.T.shape:
        return "That is a matrix: * multiplies entry by entry. The product of a matrix and a vector is written @."
    if not isinstance(found, np.ndarray) or found.shape != (3,):
        return "The adjoint returns a gradient for x, so an array with the shape of x: (3,)."
    if not np.allclose(found, matrix.T @ g):
        return "The shape is right and the numbers are not. Which sum of the rows of F does g ask for?"
    x = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64, requires_grad=True)
    answer()(x).sum().backward()
    assert x.grad is not None
    if np.allclose(x.grad.numpy(), matrix.sum(axis=0)):
        return None
    return "adjoint is right, and the gradient of the whole op is not. Is forward still F @ x?"


def _class(result: str) -> str:
    return f"""class Filter(ExternalFunction):
    def forward(self, x):
        return F @ x, None

    def adjoint(self, state, g):
        return {result}"""


def _function(result: str) -> str:
    return f"""def quartic_hvp(x, t):
    return {result}"""


EXERCISES = {
    "10.1": Exercise(
        title="the value of batch",
        judge=_batch,
        hint="Section 3 has two values. One of them calls the function as often as there are points.",
        solution='batch = "loop"',
        why="The function is called three times, with one point each.",
        wrong={
            'batch = "vectorized"': "Yours takes one",
            "batch = None": "there is no batch",
            "batch = 3": "one of the two words",
        },
    ),
    "10.2": Exercise(
        title="the Hessian-vector product of Σ xᵢ⁴",
        judge=_quartic_hvp,
        hint="Entry i of the gradient is 4xᵢ³. Its derivative for xᵢ is 12xᵢ², and for every other entry of x it is 0.",
        solution=_function("12 * x**2 * t"),
        why="The Hessian is diagonal, with entries 12xᵢ², so its product with t goes entry by entry.",
        wrong={
            _function("12 * x**2"): "ignores t",
            _function("4 * x**3 * t"): "the gradient times t",
            _function("np.diag(12 * x**2)"): "the whole Hessian",
            _function("12 * x * t"): "Differentiate 4x³ once more",
        },
    ),
    "10.3": Exercise(
        title="the adjoint of y = F x",
        judge=_filter,
        hint="The adjoint of a matrix is its transpose. NumPy writes it F.T, and the product of matrix and vector @.",
        solution=_class("F.T @ g"),
        why="g has one entry for each row of F, and the gradient one for each column: the transpose leads from one to "
        "the other.",
        wrong={
            _class("F @ g"): "The shapes do not fit",
            _class("F.T * g"): "entry by entry",
            _class("g"): "the shape of x",
            _class("F.T"): "the matrix alone",
            _class("F.T @ g[::-1]"): "Which sum of the rows",
        },
    ),
}
