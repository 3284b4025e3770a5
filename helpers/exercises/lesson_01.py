"""Exercises of lesson 01: the broken attempt."""

import torch

from .engine import Exercise, plain, same_number


def _who_raised(answer: object) -> str | None:
    name = plain(answer)
    if "call" in name:
        return None
    if name.endswith("forward"):
        return "forward never ran: none of its lines stands in the traceback. Look at the last entry."
    if name.endswith("step"):
        return "step stands in the traceback, but it called something. Look at the entry below it."
    if name.endswith("__init__"):
        return "Making the object only warned. Which method ran when the object was called?"
    return 'Look at the last entry of the traceback, or at the cell that printed "raised in".'


def _how_far(forward_calls: object, backward_calls: object) -> str | None:
    if not all(isinstance(calls, int) for calls in (forward_calls, backward_calls)):
        return "Write a whole number for each."
    if not same_number(forward_calls, 0):
        return "Look for a line of forward in the traceback. Is there one?"
    if not same_number(backward_calls, 0):
        return "backward can only run after a forward, and somebody must call it. Did anything do so?"
    return None


def _fixed_x(x: object) -> str | None:
    if not isinstance(x, torch.Tensor):
        return f"PyTorch needs a tensor here; yours is of type {type(x).__name__}."
    if not x.requires_grad:
        return "Your tensor does not require a gradient: backward would find no graph."
    if not x.is_leaf:
        return "Your tensor is the result of a recorded operation. Write requires_grad=True last, or in torch.tensor."
    if x.dtype != torch.float64:
        return f"Your tensor has dtype {x.dtype}. A NumPy array such as x0, or dtype=torch.float64, gives float64."
    if x.tolist() == torch.tensor([0.1, 0.1], dtype=torch.float32).tolist():
        return "Your numbers were rounded to float32 first. Give torch.tensor the dtype, or the NumPy array x0."
    if x.tolist() != [0.1, 0.1]:
        return f"The program starts at (0.1, 0.1); yours is {x.tolist()}."
    return None


EXERCISES = {
    "1.1": Exercise(
        title="the method that raised the error",
        judge=_who_raised,
        hint='The last entry of a traceback is where the error was raised. The cell that prints "raised in" shows it.',
        solution='answer = "__call__"',
        why="step called the object, Python ran its __call__, and that method always raises.",
        wrong={
            'answer = "forward"': "forward never ran",
            'answer = "step"': "Look at the entry below it",
            'answer = "__init__"': "only warned",
            'answer = "backward"': "last entry of the traceback",
        },
    ),
    "1.2": Exercise(
        title="how often forward and backward ran",
        judge=_how_far,
        hint="Which functions stand in the traceback? A function that never ran cannot stand there.",
        solution="forward_calls = 0\nbackward_calls = 0",
        why="The error came before either of them: nothing of the class was used but its __call__.",
        wrong={
            "forward_calls = 1\nbackward_calls = 0": "a line of forward",
            "forward_calls = 0\nbackward_calls = 1": "only run after a forward",
            "forward_calls = 200\nbackward_calls = 200": "a line of forward",
            'forward_calls = "never"\nbackward_calls = 0': "Write a whole number",
        },
    ),
    "1.3": Exercise(
        title="a tensor that collects a gradient",
        judge=_fixed_x,
        hint="The `# NEW` line of section 2 does it. x0 is a NumPy array of float64 numbers.",
        solution="fixed_x = torch.tensor(x0, requires_grad=True)",
        why="It is float64, it requires a gradient, and you made it yourself: an optimiser can hold it.",
        wrong={
            "fixed_x = torch.tensor(x0)": "does not require a gradient",
            "fixed_x = x0": "needs a tensor",
            "fixed_x = torch.tensor([0.1, 0.1], requires_grad=True)": "gives float64",
            "fixed_x = torch.tensor([1.0, 1.0], dtype=torch.float64, requires_grad=True) * 0.1": "a recorded operation",
            "fixed_x = torch.tensor([0.1, 0.1]).double().requires_grad_()": "rounded to float32 first",
            "fixed_x = torch.tensor([1.0, 1.0], dtype=torch.float64, requires_grad=True)": "starts at (0.1, 0.1)",
        },
    ),
}
