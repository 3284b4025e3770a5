"""Exercises of lesson 02: static forward."""

import torch

from .engine import TODO, Exercise, judge_bools


def _four_calls(applied: object, made: object, called: object, stepped: object) -> str | None:
    return judge_bools(
        (applied, True, "Parabola.apply(x) is the right way; section 2 runs it."),
        (made, True, "Parabola() gives a warning, but a warning is no error: the line runs to its end."),
        (called, False, "Parabola()(x) makes an object and calls it. Section 1 runs just that."),
        (stepped, False, "step calls what it gets. Here it gets an object of a Function class: what happens to those?"),
    )


def _cube(function: object) -> object:
    if not (isinstance(function, type) and issubclass(function, torch.autograd.Function)):
        return "Pass the class itself: check('2.2', Cube), without brackets after Cube."
    x = torch.tensor([0.5, -2.0, 3.0], dtype=torch.float64, requires_grad=True)
    value = function.apply(x)  # type: ignore[no-untyped-call]
    if value is Ellipsis:
        return TODO
    if not isinstance(value, torch.Tensor):
        return f"forward must return a tensor; yours returned {type(value).__name__}."
    if value.shape != () or abs(value.item() - 19.125) > 1e-9:
        return "The value is not right yet. At (0.5, -2, 3) the sum of cubes is 0.125 - 8 + 27 = 19.125."
    # An upstream gradient other than 1 shows whether backward uses it.
    try:
        (2 * value).backward()  # type: ignore[no-untyped-call]
    except RuntimeError as error:
        if "ellipsis" in str(error):
            return TODO
        raise
    if x.grad is None:
        return "backward returned no gradient. Does it end with return?"
    right = 2 * 3 * x.detach() ** 2
    if torch.allclose(x.grad, right):
        return None
    if torch.allclose(x.grad, right / 2):
        return "backward does not use g. The gradient that arrives from above must be multiplied in."
    if torch.allclose(x.grad, 2 * 3 * x.detach()):
        return "The derivative of x³ is 3x²; yours looks like 3x."
    return "The gradient is not right yet. The derivative of x³ is 3x², times g."


def _cube_code(value: str, gradient: str) -> str:
    return f"""class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return {value}

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return {gradient}
"""


def _calls_code(applied: bool, made: bool, called: bool, stepped: bool) -> str:
    return f"""calls_run = {{
    "Parabola.apply(x)": {applied},
    "Parabola()": {made},
    "Parabola()(x)": {called},
    "opt.step(Parabola())": {stepped},
}}"""


EXERCISES = {
    "2.1": Exercise(
        title="which of four calls run",
        judge=_four_calls,
        hint="Making an object warns. Calling an object raises. step calls what it gets.",
        solution=_calls_code(True, True, False, False),
        why="Only calling the object raises, and step does call it.",
        wrong={
            _calls_code(False, True, False, False): "section 2 runs it",
            _calls_code(True, False, False, False): "a warning is no error",
            _calls_code(True, True, True, False): "makes an object and calls it",
            _calls_code(True, True, False, True): "step calls what it gets",
        },
    ),
    "2.2": Exercise(
        title="complete Cube",
        judge=_cube,
        hint="forward: the sum of x**3. backward: the derivative of each x³ is 3x², and g comes in as a factor.",
        solution=_cube_code("(x**3).sum()", "g * 3 * x**2"),
        why="Value and gradient agree, also when the loss goes on after your Function.",
        wrong={
            _cube_code("(x**3).sum()", "3 * x**2"): "does not use g",
            _cube_code("(x**3).sum()", "g * 3 * x"): "yours looks like 3x",
            _cube_code("x**3", "g * 3 * x**2"): "The value is not right yet",
            _cube_code("(x**3).sum()", "None"): "returned no gradient",
            _cube_code("(x**3).sum()", "-g * x"): "The gradient is not right yet",
            _cube_code("19.125", "g * 3 * x**2"): "must return a tensor",
            _cube_code("(x**3).sum()", "g * 3 * x**2") + "Cube = Cube()": "the class itself",
        },
    ),
}
