"""Exercises of lesson 03: requires_grad."""

import torch

from .engine import Exercise, judge_bools, same_number


def _leaves(t1: object, t2: object, t3: object, t4: object) -> str | None:
    return judge_bools(
        (t1, True, "t1 is made from numbers and requires a gradient. What else would a leaf need?"),
        (t2, False, "t2 is the result of an addition, even if the addition changes no number."),
        (t3, True, "t3 does its arithmetic first and switches requires_grad on last. Is there any record before that?"),
        (t4, False, "t4 has no record behind it, but detach() switched requires_grad off: it collects nothing."),
    )


def _start(x: object) -> str | None:
    if not isinstance(x, torch.Tensor):
        return f"Adam needs a tensor; yours is of type {type(x).__name__}."
    if not x.requires_grad:
        return "Your tensor does not require a gradient. Switch it on in the last step."
    if not x.is_leaf:
        return "Adam would refuse: your tensor is no leaf. First the arithmetic, then requires_grad."
    if x.shape != (2,):
        return f"x0 has two numbers; your tensor has the shape {tuple(x.shape)}."
    if not torch.allclose(x.detach().double(), torch.tensor([0.2, 0.2], dtype=torch.float64)):
        return f"It must start at (0.2, 0.2); yours starts at {x.tolist()}."
    return None


def _first_entry(answer: object) -> str | None:
    if same_number(answer, -5.94):
        return None
    if same_number(answer, -1.98):
        return "That is one gradient. backward does not replace .grad: what does it do with what is there?"
    if same_number(answer, 2.7):
        return "That is the second entry; the first was asked."
    if same_number(answer, 5.94):
        return "The size is right; look at the sign."
    return "Write one number: each backward adds (-1.98, 0.9) to what x.grad holds, three times."


def _collects(t1: bool, t2: bool, t3: bool, t4: bool) -> str:
    return f'collects = {{"t1": {t1}, "t2": {t2}, "t3": {t3}, "t4": {t4}}}'


EXERCISES = {
    "3.1": Exercise(
        title="which tensors are leaves that collect a gradient",
        judge=_leaves,
        hint="Ask for each one: is it the result of a recorded operation, and does it require a gradient?",
        solution=_collects(True, False, True, False),
        why="t1 and t3 were made before any record began; t2 is a result, and t4 requires nothing.",
        wrong={
            _collects(False, False, True, False): "made from numbers",
            _collects(True, True, True, False): "result of an addition",
            _collects(True, False, False, False): "arithmetic first",
            _collects(True, False, True, True): "collects nothing",
        },
    ),
    "3.2": Exercise(
        title="a parameter that starts at (0.2, 0.2)",
        judge=_start,
        hint="First 2 * x0, then a tensor, then requires_grad.",
        solution="start = torch.tensor(2 * x0, requires_grad=True)",
        why="The arithmetic is done before the record begins, so your tensor is a leaf.",
        wrong={
            "start = 2 * torch.tensor(x0, requires_grad=True)": "no leaf",
            "start = torch.tensor(2 * x0)": "does not require a gradient",
            "start = 2 * x0": "needs a tensor",
            "start = torch.tensor([0.2], requires_grad=True)": "two numbers",
            "start = torch.tensor(x0, requires_grad=True)": "must start at (0.2, 0.2)",
        },
    ),
    "3.3": Exercise(
        title="the first entry after three backward calls",
        judge=_first_entry,
        hint="Section 2 shows it for two calls.",
        solution="first_entry = -5.94",
        why="Three times -1.98 is -5.94: backward adds to .grad.",
        wrong={
            "first_entry = -1.98": "That is one gradient",
            "first_entry = 2.7": "second entry",
            "first_entry = 5.94": "look at the sign",
            "first_entry = -3.96": "three times",
            "first_entry = [-5.94, 2.7]": "Write one number",
        },
    ),
}
