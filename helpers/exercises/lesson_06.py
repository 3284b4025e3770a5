"""Exercises of lesson 06: the working version."""

import torch

from .. import rosenbrock
from .engine import Exercise, plain, same_number


def _final_value(answer: object, x: torch.Tensor) -> str | None:
    if isinstance(answer, torch.Tensor) and answer.requires_grad:
        return "That is a number with a graph attached. Leave the graph before you call f."
    if answer is None:
        return "Write the expression alone, without print: print hands nothing back."
    right = float(rosenbrock.value(x.detach().cpu().numpy()))
    if same_number(answer, right, 1e-12):
        return None
    return "It should be f at the end of the run: f of the numbers of x_tensor, outside the graph."


def _wrong_entry(answer: object) -> str | None:
    if same_number(answer, 0) or plain(answer) in ("d0", "0"):
        return None
    if same_number(answer, 1) or plain(answer) in ("d1", "1"):
        return "Entry 1 agrees with the differences. Put one point into both and compare the other one."
    return "Answer 0 or 1: the place in the array that suspicious returns."


def _spread(answer: object) -> str | None:
    if same_number(answer, 0.1, 0.01):
        return None
    if same_number(answer, 0):
        return "That would be true of a factor. Here the noise is added to f, whatever f is."
    if same_number(answer, 0.01):
        return "That is the variance. np.random.normal takes the standard deviation, and that is the spread."
    return "f is 0 at (1, 1), so only the added number is left. What is its standard deviation, as a number?"


EXERCISES = {
    "6.1": Exercise(
        title="the last line of the published answer",
        judge=_final_value,
        hint="The error message of section 1 names the method that is missing.",
        solution="final_value = f(x_tensor.detach().numpy())",
        why="detach leaves the graph, and then the tensor becomes an array.",
        wrong={
            "final_value = f(x_tensor)": "a graph attached",
            "final_value = print(f(x_tensor.detach().numpy()))": "without print",
            "final_value = x_tensor.detach().numpy()": "f at the end of the run",
            "final_value = 0.8505": "f at the end of the run",
        },
    ),
    "6.2": Exercise(
        title="the entry that is wrong",
        judge=_wrong_entry,
        hint="Compare suspicious(x0) with rosenbrock.gradient(x0), or call gradcheck on function_of(...) and read "
        "the two blocks of numbers.",
        solution="wrong_entry = 0",
        why="The chain rule gives 2 · 5 · 2x₀ = 20x₀ in the first entry; here it says 10: a factor 2 is missing.",
        wrong={"wrong_entry = 1": "agrees with the differences", "wrong_entry = 10": "Answer 0 or 1"},
    ),
    "6.3": Exercise(
        title="the spread of added noise at (1, 1)",
        judge=_spread,
        hint="f(1, 1) is 0. What is left of f + noise?",
        solution="spread = 0.1",
        why="Added noise is as large at the optimum as anywhere else. It does not vanish there.",
        wrong={
            "spread = 0": "true of a factor",
            "spread = 0.01": "That is the variance",
            "spread = 0.5": "only the added number is left",
        },
    ),
}
