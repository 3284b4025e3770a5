"""Exercises of lesson 05: the closure."""

from __future__ import annotations

from collections.abc import Callable

import torch

from .engine import TODO, Exercise, plain, same_number


def _missing(a: object, b: object, c: object) -> str | None:
    if "backward" not in plain(a):
        return "A does not move: x.grad is None all the time. Which line fills it?"
    if "return" not in plain(b):
        return "B's LBFGS tries to make a number of what the closure hands it. Which line hands it over?"
    if "zero" not in plain(c):
        return "C's steps grow: each gradient is added to all the old ones. Which line prevents that?"
    return None


def _closure(make_closure: Callable[..., Callable[[], object]]) -> object:
    x = torch.tensor([0.1, 0.1], dtype=torch.float64, requires_grad=True)
    optimizer = _Watching([x])
    closure = make_closure(x, optimizer)
    if not callable(closure):
        return "make_closure must return the function closure, without brackets."
    first, grad = closure(), x.grad
    if first is None and grad is None and not optimizer.zeroed:
        return TODO
    if optimizer.stepped:
        return "The closure must not step: optimizer.step calls the closure, and moves afterwards."
    if grad is None:
        cleared = " You clear it after backward." if optimizer.threw_away else ""
        return f"x.grad is None after the closure: Adam would never move.{cleared}"
    if isinstance(first, torch.Tensor) and first is not x and not same_number(first, 0.8505):
        return (
            f"The closure returned {first.item():.4f}. At the start the loss should be 0.8505: "
            "Rosenbrock.apply(x), not the noisy F."
        )
    grad = grad.clone()
    second = closure()
    if x.grad is None or not torch.allclose(x.grad, grad):
        return "The second call changed the gradient at the same point: clear it at the start of the closure."
    if first is None or second is None:
        return "The closure returns nothing: LBFGS would stop."
    if not isinstance(first, torch.Tensor) or not same_number(first, 0.8505):
        return "The closure must return the loss, Rosenbrock.apply(x): a tensor with the value 0.8505 at the start."
    if not torch.allclose(grad, torch.tensor([-1.98, 0.9], dtype=torch.float64)):
        return f"The gradient at the start should be (-1.98, 0.9); yours is {grad.tolist()}."
    return None


class _Watching(torch.optim.SGD):
    """An optimiser that notes what the closure does to it."""

    def __init__(self, parameters: list[torch.Tensor]) -> None:
        super().__init__(parameters, lr=0.1)
        self.zeroed = self.threw_away = self.stepped = False

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.zeroed = True
        self.threw_away |= any(p.grad is not None for group in self.param_groups for p in group["params"])
        super().zero_grad(set_to_none)

    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        self.stepped = True
        loss: float | None = super().step(closure)
        return loss


def _printed(answer: object) -> str | None:
    if same_number(answer, 0.8505, 1e-4):
        return None
    if same_number(answer, 0.967, 1e-4):
        return "That is the loss with noise, of section 1. Rosenbrock has none."
    if same_number(answer, 0.8505, 2e-3):
        return "Write it to four digits."
    if answer is None:
        return "step returns what the closure returned, and this closure returns its loss."
    return "step returns the loss that the closure computed. Where was x when the closure ran?"


def _closure_code(*lines: str) -> str:
    body = "\n".join(f"        {line}" for line in lines)
    return f"def make_closure(x, optimizer):\n    def closure():\n{body}\n\n    return closure\n"


CLEAR, COMPUTE, BACK, RETURN = (
    "optimizer.zero_grad()",
    "loss = Rosenbrock.apply(x)",
    "loss.backward()",
    "return loss",
)

EXERCISES = {
    "5.1": Exercise(
        title="which line is missing",
        judge=_missing,
        hint="Section 3 leaves out each line once; section 5 shows the message about float().",
        solution='missing = {"A": "backward", "B": "return", "C": "zero_grad"}',
        why="No movement: backward. LBFGS and float(): return. Growing steps: zero_grad.",
        wrong={
            'missing = {"A": "zero_grad", "B": "return", "C": "backward"}': "Which line fills it",
            'missing = {"A": "backward", "B": "zero_grad", "C": "return"}': "Which line hands it over",
            'missing = {"A": "backward", "B": "return", "C": "return"}': "Which line prevents that",
        },
    ),
    "5.2": Exercise(
        title="write the closure",
        judge=_closure,
        hint="Clear, compute, backward, return: one line each.",
        solution=_closure_code(CLEAR, COMPUTE, BACK, RETURN),
        why="It can be called as often as an optimiser likes, and gives the same gradient each time.",
        wrong={
            _closure_code(COMPUTE, BACK, RETURN): "clear it at the start",
            _closure_code(CLEAR, COMPUTE, RETURN): "Adam would never move",
            _closure_code(COMPUTE, BACK, CLEAR, RETURN): "You clear it after backward",
            _closure_code(CLEAR, COMPUTE, BACK): "returns nothing",
            _closure_code(CLEAR, COMPUTE, BACK, "optimizer.step()", RETURN): "must not step",
            _closure_code(CLEAR, COMPUTE, BACK, "return x"): "must return the loss",
            _closure_code(CLEAR, "loss = F.apply(x)", BACK, RETURN): "not the noisy F",
            _closure_code(CLEAR, "loss = 2 * Rosenbrock.apply(x)", BACK, "return loss / 2"): "should be (-1.98, 0.9)",
            _closure_code(CLEAR, COMPUTE, BACK, RETURN).replace("return closure\n", "return closure()\n"): "brackets",
        },
    ),
    "5.3": Exercise(
        title="what step returns",
        judge=_printed,
        hint="Section 1 shows whether the returned loss is from before or after the move; Rosenbrock has no noise.",
        solution="printed = 0.8505",
        why="The closure runs first and Adam moves afterwards: the loss is that of the starting point.",
        wrong={
            "printed = 0.0": "Where was x",
            "printed = None": "returns its loss",
            "printed = 0.967": "the loss with noise",
            "printed = 0.85": "four digits",
        },
    ),
}
