"""Exercises of lesson 09: checking a gradient."""

from typing import Any

import numpy as np

from ..checking import dot_product_test
from .engine import TODO, Exercise, plain


def _central(central: Any) -> object:
    if not callable(central):
        return "Pass the function itself, without brackets after its name."
    x, d, h = np.array([0.5, 2.0]), np.array([1.0, -2.0]), 0.1
    kept = x.copy()
    answer = central(_cubic, x, d, h)
    if answer is Ellipsis:
        return TODO
    if answer is None:
        return "Your function returns nothing. Is a return missing?"
    if not np.array_equal(x, kept):
        return "Your function changes x itself. Write x + h * d, which makes a new array."
    ahead, here, behind = _cubic(x + h * d), _cubic(x), _cubic(x - h * d)
    unit = d / np.linalg.norm(d)
    if np.shape(answer) != ():
        return f"A derivative along a direction is one number; yours has shape {np.shape(answer)}."
    known = {
        (ahead - behind) / (2 * h): None,
        (ahead - here) / h: "That is the forward difference. Its other end is x - h d, not x.",
        (ahead - behind) / h: "The two ends are 2h apart, so divide by that.",
        (ahead - behind) / 2 * h: "Without brackets, / 2 * h divides by 2 and multiplies by h.",
        (behind - ahead) / (2 * h): "The sign: subtract the value behind from the value ahead.",
        (_cubic(x + h) - _cubic(x - h)) / (2 * h): "Your function moves every entry by h, and ignores d.",
        (_cubic(x + h * d / 2) - _cubic(x - h * d / 2)) / h: "A central difference, with half the step: move by h d, "
        "not by h d / 2.",
        (_cubic(x + h * unit) - _cubic(x - h * unit)) / (2 * h): "Your function divides d by its length. Take d as it "
        "is: along a direction twice as long the derivative is twice as large.",
        np.imag(_cubic(x + 1j * h * d)) / h: "That is a complex step, and many functions take no complex numbers. Here "
        "f shall be called at x + h d and x - h d only.",
    }
    for number, thought in known.items():
        if np.isclose(float(answer), number, rtol=1e-9, atol=0):
            return thought
    if np.isclose(float(answer), float(central(_cubic, x, d, 2 * h)), rtol=1e-9, atol=0):
        return "Your answer is the same for every h. Move x by the h that is handed to your function."
    return "Move x by h d to both sides, take the difference of f, and divide by how far apart the two points are."


def _cubic(x: Any) -> Any:
    return np.sum(x**3)


def _wrong_entries(*answers: object) -> str | None:
    right = (None, 1, 2)
    said = []
    for answer in answers:
        number = {"none": None, "0": 0, "1": 1, "2": 2}.get(plain(answer), "?")
        if number == "?":
            return f"Write 0, 1, 2 or None for each; {answer!r} is none of them."
        said.append(number)
    if tuple(said) == right:
        return None
    if said == [None, None, None]:
        return "At (1, 1, 1) all three pass gradcheck, since the gradient is zero there. Take another point."
    if said == [None, 1, None]:
        return "three is right where x[2] is above 1. Look on the other side, too."
    if said[0] is not None:
        return "one is right everywhere: check_gradient says so at any x."
    if said[1] != 1:
        return "two lacks a term. Check it at a point where x[0] is not 1; entries are counted from 0."
    return "three is wrong in the entry that np.sign belongs to; entries are counted from 0."


def _sums_adjoint(answer: Any) -> object:
    if not callable(answer):
        return "Pass the function itself, without brackets after its name."
    y = np.array([1.0, 10.0, 100.0])
    found = answer(y.copy())
    if found is Ellipsis:
        return TODO
    if found is None:
        return "Your function returns nothing. Is a return missing?"
    if np.shape(found) != y.shape:
        return (
            f"cumsum maps 5 numbers to 5 numbers, and so does its adjoint; for 3 yours gives shape {np.shape(found)}."
        )
    if np.allclose(found, np.cumsum(y)):
        return "That is cumsum itself. Its matrix has ones on and below the diagonal, so it is not symmetric."
    if np.allclose(found, np.concatenate([y[:1], np.diff(y)])):
        return "That undoes cumsum: it is the inverse. The dot-product test tells it from the adjoint."
    if np.allclose(found, np.cumsum(y[::-1])):
        return "Those are the right sums, in reverse order: the first entry of x is part of every sum."
    if np.allclose(found, np.cumsum(y)[::-1]):
        return "The sums begin at the wrong end, and turning them round afterwards comes too late. Which one holds y₀?"
    if np.allclose(found, y.sum() - np.cumsum(y)):
        return "Each sum lacks its own term: xⱼ is part of yⱼ, too."
    return None if dot_product_test(np.cumsum, answer, x=5) else "The dot-product test says that it is not the adjoint."


def _function(result: str) -> str:
    return f"""def central(f, x, d, h):
    return {result}"""


def _sums(result: str) -> str:
    return f"""def sums_adjoint(y):
    return {result}"""


def _entries(one: object, two: object, three: object) -> str:
    return f'wrong_entries = {{"one": {one}, "two": {two}, "three": {three}}}'


EXERCISES = {
    "9.1": Exercise(
        title="a central difference",
        judge=_central,
        hint="The two ends are x + h d and x - h d. How far apart are they, in units of d?",
        solution=_function("(f(x + h * d) - f(x - h * d)) / (2 * h)"),
        why="Both ends bend away in nearly the same way, so that most of the bend cancels.",
        wrong={
            _function("(f(x + h * d) - f(x)) / h"): "the forward difference",
            _function("(f(x + h * d) - f(x - h * d)) / h"): "2h apart",
            _function("(f(x + h * d) - f(x - h * d)) / 2 * h"): "Without brackets",
            _function("(f(x - h * d) - f(x + h * d)) / (2 * h)"): "The sign",
            _function("(f(x + h) - f(x - h)) / (2 * h)"): "ignores d",
            _function("(f(x + h * d / 2) - f(x - h * d / 2)) / h"): "not by h d / 2",
            _function("(f(x + 1e-5 * d) - f(x - 1e-5 * d)) / 2e-5"): "the same for every h",
            _function("np.imag(f(x + 1j * h * d)) / h"): "a complex step",
            "def central(f, x, d, h):\n    d = d / np.linalg.norm(d)\n"
            "    return (f(x + h * d) - f(x - h * d)) / (2 * h)": "divides d by its length",
        },
    ),
    "9.2": Exercise(
        title="which gradients are wrong, and where",
        judge=_wrong_entries,
        hint="check_gradient(energy, one, np.array([0.0, 0.5, 2.0])) looks at one point, and at one near it. The sign "
        "in three makes a branch at x[2] = 1: look on both sides.",
        solution="""from helpers import check_gradient

for gradient in (one, two, three):
    for x in (np.array([0.0, 0.0, 0.0]), np.array([2.0, 2.0, 2.0])):
        print(gradient.__name__, check_gradient(energy, gradient, x).sentence)

"""
        + _entries(None, 1, 2),
        why="two lacks a term that is zero at x[0] = 1, and three is wrong on one side of a branch.",
        wrong={
            _entries(None, None, None): "the gradient is zero there",
            _entries(None, 1, None): "Look on the other side",
            _entries(0, 1, 2): "one is right everywhere",
            _entries(None, 2, 2): "two lacks a term",
            _entries(None, 1, 3): "0, 1, 2 or None",
            _entries(None, 1, 0): "np.sign belongs to",
        },
    ),
    "9.3": Exercise(
        title="the adjoint of running sums",
        judge=_sums_adjoint,
        hint="x₀ is part of every sum, so its entry is y₀ + y₁ + …; the last entry of x is part of the last sum only. "
        "y[::-1] is y in reverse.",
        solution=_sums("np.cumsum(y[::-1])[::-1]"),
        why="The adjoint of sums from the left is sums from the right.",
        wrong={
            _sums("np.cumsum(y)"): "cumsum itself",
            _sums("np.cumsum(y[::-1])"): "in reverse order",
            _sums("np.concatenate([y[:1], np.diff(y)])"): "the inverse",
            _sums("np.diff(y)"): "5 numbers to 5 numbers",
            _sums("np.cumsum(y)[::-1]"): "the wrong end",
            _sums("y.sum() - np.cumsum(y)"): "lacks its own term",
            _sums("y.sum() - y"): "is not the adjoint",
        },
    ),
}
