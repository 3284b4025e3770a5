"""Exercises of lesson 04: tensor conversion."""

import numpy as np
import torch

from .engine import TODO, Exercise, judge_bools


def _sine(function: object) -> object:
    if not (isinstance(function, type) and issubclass(function, torch.autograd.Function)):
        return "Pass the class itself: check('4.1', Sine), without brackets after Sine."
    for dtype in (torch.float64, torch.float32):
        x = torch.tensor([0.5, 1.0], dtype=dtype, requires_grad=True)
        value = function.apply(x)  # type: ignore[no-untyped-call]
        if value is Ellipsis:
            return TODO
        if not isinstance(value, torch.Tensor):
            return f"apply hands back a {type(value).__name__}, not a tensor: the graph is lost."
        right = np.sin(x.detach().numpy()).sum()
        if value.shape != ():
            return f"The result should be one number; yours is a tensor of shape {tuple(value.shape)}."
        if abs(value.item() - right) > 1e-6:
            return f"The value is not right: at (0.5, 1.0) it should be {right:.4f}."
        if value.dtype != dtype:
            return f"For an input of {dtype} your result is {value.dtype}. Say which dtype it must have."
        if value.grad_fn is None:
            return "The result has no grad_fn. Return the tensor from forward without switching anything off."
    return None


def _shares(copied: object, from_numpy: object, as_tensor: object, other_dtype: object) -> str | None:
    return judge_bools(
        (copied, False, "torch.tensor always copies; section 5 says why that is good."),
        (from_numpy, True, "torch.from_numpy makes no copy: it is the way back of .numpy()."),
        (as_tensor, True, "torch.as_tensor copies only if it has to, and for this one it does not have to."),
        (other_dtype, False, "a holds float64. Numbers of another dtype cannot lie in the same memory."),
    )


def _end_point(array: object, x: torch.Tensor) -> str | None:
    if isinstance(array, torch.Tensor):
        return "That is still a tensor. Which method makes an array of it?"
    if not isinstance(array, np.ndarray):
        return f"A NumPy array is asked for; yours is of type {type(array).__name__}."
    here = x.detach().cpu().numpy()
    if array.dtype != here.dtype:
        return f"x holds {here.dtype}, and your array {array.dtype}: numbers were rounded."
    if array.shape != here.shape or not np.array_equal(array, here):
        return f"The numbers should be those of x: {here.tolist()}."
    if np.shares_memory(array, here):
        return "Your array looks into the memory of x, so it will move with x. It needs memory of its own."
    return None


def _sine_code(result: str) -> str:
    return f"""class Sine(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        result = np.sin(x.detach().cpu().numpy().astype(np.float64)).sum()
        return {result}

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * torch.cos(x)
"""


def _shares_code(copied: bool, from_numpy: bool, as_tensor: bool, other_dtype: bool) -> str:
    return f"""a = np.array([1.0, 2.0])

shares = {{
    "torch.tensor(a)": {copied},
    "torch.from_numpy(a)": {from_numpy},
    "torch.as_tensor(a)": {as_tensor},
    "torch.as_tensor(a, dtype=torch.float32)": {other_dtype},
}}"""


EXERCISES = {
    "4.1": Exercise(
        title="repair forward",
        judge=_sine,
        hint="Section 8 has the line. The result needs the dtype and the device of the input.",
        solution=_sine_code("torch.tensor(result, dtype=x.dtype, device=x.device)"),
        why="Value, dtype and graph follow the input; device=x.device does the same for a GPU.",
        wrong={
            _sine_code("result"): "not a tensor",
            _sine_code("float(result)"): "not a tensor",
            _sine_code("torch.tensor(float(result))"): "Say which dtype",
            _sine_code("torch.tensor(result)"): "Say which dtype",
            _sine_code("torch.tensor([result], dtype=x.dtype)"): "one number",
            _sine_code("torch.tensor(2 * result, dtype=x.dtype)"): "The value is not right",
            _sine_code("torch.sin(x)"): "one number",
            _sine_code("torch.tensor(result, dtype=x.dtype)") + "Sine = Sine.apply": "the class itself",
        },
    ),
    "4.2": Exercise(
        title="which tensors share memory with a",
        judge=_shares,
        hint="Try it in a cell of your own: make the tensor, change a[0], look at the tensor.",
        solution=_shares_code(False, True, True, False),
        why="Only as_tensor decides by itself: it shares if it can, and copies if dtype or device must change.",
        wrong={
            _shares_code(True, True, True, False): "always copies",
            _shares_code(False, False, True, False): "makes no copy",
            _shares_code(False, True, False, False): "only if it has to",
            _shares_code(False, True, True, True): "another dtype",
        },
    ),
    "4.3": Exercise(
        title="the end point as an array of its own",
        judge=_end_point,
        hint="Leave the graph, go to the CPU, become an array, and copy: one method for each.",
        solution="end_point = x.detach().cpu().numpy().copy()",
        why="It has the numbers of x and a memory of its own.",
        wrong={
            "end_point = x.detach()": "still a tensor",
            "end_point = x.tolist()": "A NumPy array is asked for",
            "end_point = x.detach().numpy()": "memory of x",
            "end_point = x.detach().numpy() + 1": "should be those of x",
            "end_point = x.detach().float().numpy()": "numbers were rounded",
        },
    ),
}
