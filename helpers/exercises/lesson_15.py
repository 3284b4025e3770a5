"""Exercises of lesson 15: the clinic."""

from typing import Any

import numpy as np
import torch

from .engine import Exercise, judge_bools, plain

NAMES = {
    "reused-buffer",
    "gradient-buffer-shared",
    "closure-without-zero-grad",
    "grad-output-ignored",
    "graph-cut",
    "nan-gradient",
    "shared-solver-state",
}
RIGHT = {
    "A": ("gradient-buffer-shared", "The values of the loss are fine. Which arrays are equal in the end, then?"),
    "B": ("graph-cut", "Read the one line of code: what does math.sqrt return, a tensor or a number?"),
    "C": ("closure-without-zero-grad", "The first step is right, and the later ones are not. What adds up?"),
    "D": (
        "shared-solver-state",
        "Alone each solve is right. What does the first backward find after two?",
    ),
}


def _names(*answers: object) -> str | None:
    known = {_letters(name): name for name in NAMES}
    for (letter, (right, thought)), answer in zip(RIGHT.items(), answers, strict=True):
        name = known.get(_letters(answer))
        if name is None:
            return f"{letter}: write one of the seven names, as text; {answer!r} is not among them."
        if name != right:
            return f"{letter}: {thought}"
    return None


def _letters(name: object) -> str:
    """Return a name's letters only: hyphens, underscores or spaces, all mean the same."""
    return plain(name).replace("_", "")


def _entropy(answer: Any) -> str | None:
    if not (isinstance(answer, type) and issubclass(answer, torch.autograd.Function)):
        return "Pass the class itself: check('15.2', Entropy), without brackets after Entropy."
    start, step = [0.2, 0.3, 0.5], torch.tensor([0.1, 0.1, -0.2], dtype=torch.float64)
    p = torch.tensor(start, dtype=torch.float64, requires_grad=True)
    entropy: Any = answer.apply
    value = entropy(p)
    if not isinstance(value, torch.Tensor) or not np.isclose(value.item(), -np.sum(start * np.log(start))):
        return "The value is not the entropy any more: -Σ p log p."
    (gradient,) = torch.autograd.grad(3 * value, p)
    expected = -(np.log(start) + 1)
    if np.allclose(gradient.numpy(), expected):
        return "For 3 times the entropy the gradient must be 3 times as long, and yours is the same. Where is g?"
    if not np.allclose(gradient.numpy(), 3 * expected):
        return "Now the gradient is wrong even without a step in between. Leave the formula as it was."
    loss = entropy(p)
    with torch.no_grad():
        p += step
    try:
        (late,) = torch.autograd.grad(loss, p)
    except RuntimeError as error:
        return None if "modified by an inplace operation" in str(error) else f"backward raised: {error}"
    if np.allclose(late.numpy(), expected):
        return None
    return "After a step in place, the gradient still belongs to the new p. Does what you keep share the memory of p?"


def _reading(train: object, penalty: object, exit_code: object) -> str | None:
    return judge_bools(
        (train, True, "1: Adam needs the first derivative. What does the diagnosis say about that one?"),
        (penalty, False, "2: A penalty on the gradient is differentiated once more. Read the row 'second derivative'."),
        (exit_code, False, "3: Exit code 1 stands for a finding that is *wrong*. What is the word on this card?"),
    )


def _mailbox(a: str, b: str, c: str, d: str) -> str:
    return f'names = {{\n    "A": "{a}",\n    "B": "{b}",\n    "C": "{c}",\n    "D": "{d}",\n}}'


def _class(keep: str, use: str, last: str = "-g * (torch.log(p) + 1)") -> str:
    return f"""class Entropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, p):
        {keep}
        array = p.detach().numpy()
        return -torch.as_tensor(np.sum(array * np.log(array)))

    @staticmethod
    def backward(ctx, g):
        {use}
        return {last}"""


def _three(train: str, penalty: str, code: str) -> str:
    return f"train_with_adam = {train}\ngradient_penalty = {penalty}\nexit_code_1 = {code}"


SAVE, LOAD = "ctx.save_for_backward(p)", "(p,) = ctx.saved_tensors"

EXERCISES = {
    "15.1": Exercise(
        title="the names of four mistakes",
        judge=_names,
        hint="A and D are questions of memory: in A of what backward returns, in D of what forward leaves behind. B is "
        "a question of the graph, C one of the loop.",
        solution=_mailbox("gradient-buffer-shared", "graph-cut", "closure-without-zero-grad", "shared-solver-state"),
        why="All four are right in the first call, or in the value, and that is why no test of one call sees them.",
        wrong={
            _mailbox("reused-buffer", "graph-cut", "closure-without-zero-grad", "shared-solver-state"): "A: The values",
            _mailbox(
                "gradient-buffer-shared", "nan-gradient", "closure-without-zero-grad", "shared-solver-state"
            ): "B: Read the one line",
            _mailbox(
                "gradient-buffer-shared", "graph-cut", "grad-output-ignored", "shared-solver-state"
            ): "C: The first step",
            _mailbox("gradient-buffer-shared", "graph-cut", "closure-without-zero-grad", "reused-buffer"): "D: Alone",
            _mailbox("numpy", "graph-cut", "closure-without-zero-grad", "shared-solver-state"): "A: write one of",
        },
    ),
    "15.2": Exercise(
        title="an Entropy that keeps its own point",
        judge=_entropy,
        hint="p.detach().numpy() is the memory of p. Let torch keep p: save_for_backward in forward, saved_tensors in "
        "backward. Then it notices a change in place. Or keep a copy.",
        solution=_class(SAVE, LOAD),
        why="With save_for_backward torch refuses a p that has changed in place, so that the fault is loud. A copy is "
        "the old p, and the gradient belongs to it.",
        wrong={
            _class("ctx.p = p", "p = ctx.p"): "share the memory of p",
            _class("ctx.p = p.detach().numpy()", "p = torch.as_tensor(ctx.p)"): "share the memory of p",
            _class(SAVE, LOAD, "-(torch.log(p) + 1)"): "Where is g",
            _class(SAVE, LOAD, "g * (torch.log(p) + 1)"): "Leave the formula",
            "Entropy = -1": "Pass the class itself",
        },
    ),
    "15.3": Exercise(
        title="three questions about a diagnosis",
        judge=_reading,
        hint="Look at the word at the top of the card (wrong or fragile), and at the rows of the uses.",
        solution=_three("True", "False", "False"),
        why="Fragile means: right for Adam, silently wrong for a penalty, and an exit code of 0 unless you ask for "
        "--strict.",
        wrong={
            _three("False", "False", "False"): "1: Adam needs",
            _three("True", "True", "False"): "2: A penalty",
            _three("True", "False", "True"): "3: Exit code 1",
        },
    ),
}
