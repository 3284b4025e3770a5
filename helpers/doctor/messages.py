"""What torch says, and the mistake behind it."""

from __future__ import annotations

import re
from typing import NamedTuple


class Message(NamedTuple):
    """One of torch's texts (a pattern), the mistake behind it, and what it means in plain words."""

    pattern: str
    slug: str
    meaning: str


MESSAGES = [
    Message(
        r"Legacy autograd function with non-static forward|should not be instantiated",
        "instance-called",
        "An object of the class was called. Your forward may well be static: torch says this whenever an instance is "
        "called. Use .apply on the class.",
    ),
    Message(
        r"forward\(\) missing \d+ required positional argument|missing a required argument: '",
        "apply-without-input",
        "forward was called without its input. The optimiser's step calls its argument with nothing: hand it a "
        "closure.",
    ),
    Message(
        r"'Tensor' object is not callable",
        "step-of-a-loss",
        "A loss was handed over where a function is needed. step calls its argument: hand it the closure itself.",
    ),
    Message(
        r"name '(?P<name>\w+)' is not defined",
        "undefined-name",
        "A name is used that does not exist. In backward it shows only when backward runs.",
    ),
    Message(
        r"Only Tensors of floating point and complex dtype can require gradients|"
        r"only Tensors of floating point dtype can require gradients",
        "integer-parameter",
        "The tensor holds integers. Only floating point and complex tensors have gradients.",
    ),
    Message(
        r"can't optimize a non-leaf Tensor",
        "nonleaf-parameter",
        "The parameter is the result of an operation (.to(device), * 0.01), not a leaf. Its gradient would never be "
        "kept.",
    ),
    Message(
        r"'(?:numpy\.\w+|float|int|list|dict|tuple)' object has no attribute '(?:backward|sum|mean|grad_fn)'",
        "numpy-result",
        "forward returned a number or an array, and .apply hands that on as it is, without a graph.",
    ),
    Message(
        r"expected (?:Variable|Tensor) or None \(got|expected Variable or None|"
        r"unsupported operand type\(s\) for .*: 'numpy.ndarray' and 'Tensor'",
        "numpy-gradient",
        "backward returned a number or an array. It must return tensors.",
    ),
    Message(
        r"Can't call numpy\(\) on Tensor that requires grad",
        "numpy-on-tracked",
        "NumPy was asked to read a tensor that torch is tracking. Inside forward this works; elsewhere detach() first, "
        "and know that the gradient is lost there.",
    ),
    Message(
        r"returned an incorrect number of gradients",
        "gradient-count",
        "backward must return one gradient for each argument of forward, None for those that are no tensors.",
    ),
    Message(
        r"returned a gradient different than None at position",
        "gradient-for-non-tensor",
        "backward returned a gradient for an argument that is no tensor. Return None there.",
    ),
    Message(
        r"returned an invalid gradient at index",
        "gradient-shape",
        "A gradient must have the shape of its input, or one that can be summed to it.",
    ),
    Message(
        r"modified by an inplace operation",
        "saved-then-changed",
        "A tensor that backward needs was changed in place after it was saved.",
    ),
    Message(
        r"Trying to backward through the graph a second time",
        "backward-twice",
        "backward ran twice on one graph. Compute the loss anew before each backward.",
    ),
    Message(
        r"must override the setup_context|setup_context staticmethod",
        "func-old-style",
        "torch.func needs forward without ctx, and setup_context beside it.",
    ),
    Message(
        r"Cannot access data pointer of Tensor|doesn't have storage",
        "func-numpy-backward",
        "NumPy was used where torch.func sends a wrapped tensor: every method but forward must be torch code.",
    ),
    Message(r"does not have vmap support", "no-vmap-rule", "The Function has no rule for torch.vmap."),
    Message(
        r"must implement the jvp function|jvp is not implemented|not implement.*forward mode",
        "no-jvp-rule",
        "The Function has no rule for forward mode (jvp).",
    ),
    Message(
        r"step\(\) missing 1 required positional argument: 'closure'|'NoneType' object is not callable",
        "lbfgs-without-closure",
        "LBFGS evaluates the loss several times a step, so it needs the closure.",
    ),
    Message(
        r"float\(\) argument must be .*'NoneType'|'NoneType' object has no attribute '(?:item|backward)'|"
        r"unsupported operand type.*'NoneType'",
        "closure-returns-none",
        "The closure returned nothing. Its last line must be `return loss`.",
    ),
    Message(
        r"not reentrant",
        "gradcheck-noise",
        "Two backward passes gave different numbers: the function draws noise. Check it without its noise, or in "
        "the mean.",
    ),
    Message(
        r"Jacobian mismatch|Numerical gradient for function expected to be zero|does not (?:match|agree).*numerical",
        "gradient-wrong",
        "The gradient is not the derivative of the value; or the check ran in float32, where differences are too "
        "coarse.",
    ),
    Message(
        r"'\w+Backward' object has no attribute '(?P<name>\w+)'",
        "undefined-name",
        "backward reads something from ctx that forward has not kept there. It shows only when backward runs.",
    ),
    Message(
        r"can't convert \S+ device type tensor to numpy",
        "numpy-on-tracked",
        "The tensor lives on another device, and NumPy reads the memory of the CPU only.",
    ),
    Message(
        r"marked with @once_differentiable",
        "once-differentiable-leaks",
        "Somebody differentiates the gradient, and it has no derivative. Here the decorator is loud; elsewhere it is "
        "silent.",
    ),
    Message(
        r"cannot register a hook on a tensor that doesn't require gradient",
        "no-requires-grad",
        "No gradient will ever arrive at this tensor: it does not require one, or its graph was cut.",
    ),
    Message(
        r"does not require grad and does not have a grad_fn|does not require grad",
        "no-requires-grad",
        "No graph was recorded: the parameter does not require a gradient, or the graph was cut before the loss.",
    ),
]


def explain(error: BaseException | str) -> tuple[Message, re.Match[str]] | None:
    """Return the mistake behind an error or its text, None if the text is not known."""
    try:
        text = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
    except Exception:  # an error of the user's own class, whose text itself fails
        return None
    for message in MESSAGES:
        if match := re.search(message.pattern, text, re.DOTALL):
            return message, match
    return None
