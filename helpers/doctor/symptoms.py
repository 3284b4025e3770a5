"""What a user sees: torch's texts as a reader meets them, and the symptoms where torch says nothing."""

from typing import NamedTuple

SAYS = [
    "Legacy autograd function with non-static forward method is deprecated",
    "should not be instantiated. Methods on autograd functions are all static",
    "forward() missing 1 required positional argument: 'x'",
    "'Tensor' object is not callable",
    "name 'g_rand' is not defined",
    "Only Tensors of floating point and complex dtype can require gradients",
    "can't optimize a non-leaf Tensor",
    "'numpy.float64' object has no attribute 'backward'",
    "expected Variable or None (got numpy.ndarray)",
    "unsupported operand type(s) for *: 'numpy.ndarray' and 'Tensor'",
    "Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.",
    "returned an incorrect number of gradients (expected 2, got 1)",
    "returned a gradient different than None at position 2, but the corresponding forward input was not a Variable",
    "returned an invalid gradient at index 0 - got [3] but expected shape compatible with [2]",
    "one of the variables needed for gradient computation has been modified by an inplace operation",
    "Trying to backward through the graph a second time",
    "it must override the setup_context staticmethod",
    "Cannot access data pointer of Tensor that doesn't have storage",
    "it does not have vmap support",
    "you must implement the jvp function",
    "step() missing 1 required positional argument: 'closure'",
    "float() argument must be a string or a real number, not 'NoneType'",
    "Backward is not reentrant, i.e., running backward with same input and grad_output gives different values",
    "Jacobian mismatch for output 0 with respect to input 0",
    "Numerical gradient for function expected to be zero",
    "'MyFunctionBackward' object has no attribute 'factor'",
    "can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host memory first.",
    "trying to differentiate twice a function that was marked with @once_differentiable",
    "cannot register a hook on a tensor that doesn't require gradient",
    "element 0 of tensors does not require grad and does not have a grad_fn",
]
"""What torch says, as a reader meets it: at least one text for each pattern of ``MESSAGES``."""


class Symptom(NamedTuple):
    """What a user sees who gets no error, what is behind it, and what ``gradcheck`` says about it."""

    words: str
    mistake: str
    gradcheck: str


SEES, BLIND, PUZZLE, NOT_ASKED = "finds it", "passes", "fails with a puzzling text", "not for this"
IN_ALL = "finds it if asked about the whole loss"

SYMPTOMS: dict[str, Symptom] = {
    "nonstatic-forward": Symptom(
        "forward has no @staticmethod, and it works all the same.",
        "It works today, through .apply. torch's documentation asks for @staticmethod.",
        BLIND,
    ),
    "gradcheck-float32": Symptom(
        "gradcheck fails, and the gradient looks right.",
        "The check ran in float32, where finite differences are too coarse. A warning says so.",
        PUZZLE,
    ),
    "zero-hessian": Symptom(
        "The Hessian is zero; Newton's method divides by zero; an error bar is infinite.",
        "backward computes in NumPy, so torch takes the gradient for a constant.",
        BLIND,
    ),
    "gradient-penalty": Symptom(
        "A gradient penalty changes nothing.",
        "The penalty needs a second derivative, and it is silently zero.",
        IN_ALL,
    ),
    "once-differentiable-leaks": Symptom(
        "Marked with @once_differentiable, and the second derivative is still wrong without an error.",
        "The decorator is loud in some uses only.",
        BLIND,
    ),
    "product-hessian": Symptom(
        "The Hessian of f squared, or of f times g, is partly there, and wrong.",
        "The second derivative of the inner Function is missing from it.",
        BLIND,
    ),
    "saved-intermediate": Symptom(
        "Newton's method is slow; the Hessian is not zero, and not right.",
        "backward reuses a number from forward, which torch then takes for a constant.",
        BLIND,
    ),
    "rewrapped-result": Symptom(
        "A term of the loss has no effect on the result.",
        "A NumPy result was made a tensor again, outside a Function: right numbers, no graph.",
        IN_ALL,
    ),
    "numpy-alias": Symptom(
        "The gradient belongs to the point after the step.",
        "ctx keeps x.numpy(), which is the memory of x itself.",
        BLIND,
    ),
    "tensor-on-ctx": Symptom(
        "The gradient belongs to the point after the step, or memory grows.",
        "ctx.x = x keeps the tensor without torch's guard against changes.",
        BLIND,
    ),
    "changed-through-data": Symptom(
        "The gradient belongs to the point after the step, although x was saved with save_for_backward.",
        "x was changed through .data or through a NumPy array; torch does not count such changes.",
        BLIND,
    ),
    "argument-mutated": Symptom(
        "x itself changes when the function is called; float32 is right and float64 is wrong.",
        "The NumPy code writes into its argument, and that is the memory of the tensor.",
        "passes if a second call changes nothing more",
    ),
    "reused-buffer": Symptom(
        "The second call changes the first result.",
        "The solver hands out the same array each time.",
        BLIND,
    ),
    "gradient-buffer-shared": Symptom(
        "x.grad changes later, by itself.",
        "backward returned an array that lives on and is written again.",
        BLIND,
    ),
    "grad-output-edited": Symptom(
        "Another part of the loss has a gradient that is too large.",
        "backward writes into g, which belongs to its caller.",
        BLIND,
    ),
    "shared-solver-state": Symptom(
        "One call is right; two calls and then their backwards are wrong.",
        "The adjoint uses the state of the latest solve.",
        BLIND,
    ),
    "grad-output-ignored": Symptom(
        "It converges, but to the wrong place; the weight of a term has no effect.",
        "backward does not multiply by g.",
        SEES,
    ),
    "full-jacobian": Symptom(
        "The gradient is the sum of what should be its entries.",
        "backward returned the whole Jacobian, and torch summed its rows.",
        SEES,
    ),
    "per-sample-gradient": Symptom(
        "It works for one sample; with many the steps are too long.",
        "backward returned one gradient for each sample, and torch summed them.",
        SEES,
    ),
    "not-transposed": Symptom(
        "It works until the matrix is not symmetric any more.",
        "backward multiplies by A, or solves with it, where Aᵀ belongs.",
        "passes if A is symmetric",
    ),
    "swapped-gradients": Symptom(
        "Two parameters run away, each in the direction of the other.",
        "The gradients are not in the order of forward's arguments.",
        SEES,
    ),
    "no-gradient-returned": Symptom(
        "Adam does not move; x.grad is None.",
        "backward has no return, or returns None.",
        SEES,
    ),
    "checked-at-optimum": Symptom(
        "The check passed, and the gradient is wrong.",
        "It was checked where it is zero, and there a wrong sign is right.",
        BLIND,
    ),
    "hidden-tensor": Symptom(
        "One parameter never learns.",
        "The tensor came inside a list, or from outside: only arguments of .apply get a gradient.",
        BLIND,
    ),
    "dtype-forced": Symptom(
        "All is float64, and only seven digits are right.",
        "torch.tensor(a Python number) makes float32.",
        PUZZLE,
    ),
    "integer-result": Symptom(
        "The loss prints well and has no gradient.",
        "forward returned integers, which have none.",
        BLIND,
    ),
    "auxiliary-output": Symptom(
        "A loss on the second output trains nothing.",
        "Its gradient is ignored in backward, and it was not marked non-differentiable.",
        SEES,
    ),
    "nan-gradient": Symptom(
        "After many good steps the parameters are NaN.",
        "The gradient is NaN or infinite at a point where the value is not.",
        "finds it at that point only",
    ),
    "forward-mode-detour": Symptom(
        "jvp and jacfwd are wrong, and backward is right or refuses.",
        "A detour through NumPy loses the tangent.",
        NOT_ASKED,
    ),
    "custom-op-jvp": Symptom(
        "jvp of a custom op is zero.",
        "torch.library has no rule for forward mode, and does not say so.",
        "passes without check_forward_ad",
    ),
    "compiled-func-grad": Symptom(
        "The compiled gradient is zero.",
        "torch.compile traced NumPy code and lost its graph.",
        NOT_ASKED,
    ),
    "compiled-jvp": Symptom(
        "jvp changes, or fails, under torch.compile.",
        "The compiler drops the jvp of a Function.",
        NOT_ASKED,
    ),
    "independent-noise": Symptom(
        "Two backward passes through one graph differ.",
        "forward and backward draw noise of their own.",
        PUZZLE,
    ),
    "checkpoint-noise": Symptom(
        "Under a checkpoint the gradient belongs to another loss.",
        "The checkpoint runs forward again, and NumPy draws again.",
        PUZZLE,
    ),
    "wrong-seed": Symptom(
        "It worked yesterday; today the same seed gives another loss.",
        "torch.manual_seed does not seed NumPy.",
        PUZZLE,
    ),
    "forked-noise": Symptom(
        "All workers draw the same noise.",
        "Forked processes inherit one state of np.random.",
        NOT_ASKED,
    ),
    "closure-without-zero-grad": Symptom(
        "The loss goes down and up again, and does not settle.",
        "The gradients of all steps are added up.",
        NOT_ASKED,
    ),
    "closure-without-backward": Symptom(
        "Adam does not move, and nothing complains.",
        "No gradient reaches the tensors that the optimiser holds.",
        NOT_ASKED,
    ),
    "step-inside-closure": Symptom(
        "It converges slowly, and to a point beside the optimum.",
        "The closure steps, and then the optimiser steps too.",
        NOT_ASKED,
    ),
    "stale-loss": Symptom(
        "LBFGS stops at once, or wanders.",
        "The closure returns a loss that was computed earlier.",
        NOT_ASKED,
    ),
    "ctx-double-backward": Symptom(
        "The gradient is doubled.",
        "backward ran twice through one graph; with state as attributes of ctx torch does not refuse.",
        BLIND,
    ),
    "no-grad-around": Symptom(
        "A term of the loss has no effect.",
        "It is computed under torch.no_grad().",
        IN_ALL,
    ),
    "graph-cut": Symptom(
        "A part of the gradient is missing. At most a warning: Converting a tensor with requires_grad=True to a "
        "scalar may lead to unexpected behavior.",
        "float(x) or math.sin(x), of which torch warns once, or .item() or .tolist(), of which it does not, took the "
        "number out of the graph.",
        IN_ALL,
    ),
    "complex-conjugate": Symptom(
        "Real numbers are right and complex ones are not.",
        "The derivative must be conjugated in backward.",
        SEES,
    ),
    "value-wrong": Symptom(
        "The gradient fits the value, and the value is not what was meant.",
        "Only a reference can show it: diagnose(f, x, reference=slow_and_right).",
        BLIND,
    ),
}
