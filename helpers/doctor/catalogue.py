"""The mistakes: how bad each is, which lesson explains it, and the code that cures it."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from .diagnosis import Severity

if TYPE_CHECKING:
    from .patient import Patient


class Mistake(NamedTuple):
    """One row of the catalogue; the cure is a template whose braces are filled with the user's own names."""

    severity: Severity
    lesson: str
    cure: str


MISTAKES: dict[str, Mistake] = {
    # --- loud: torch stops, but its text often points elsewhere
    "instance-called": Mistake("wrong", "02", "y = {f}.apply({args})  # on the class, without {f}()"),
    "nonstatic-forward": Mistake("style", "02", "@staticmethod\ndef {method}({signature}): ..."),
    "undefined-name": Mistake("wrong", "02", "{name} = ...  # or correct the name in {method}"),
    "apply-without-input": Mistake(
        "wrong",
        "05",
        "def closure():\n    {opt}.zero_grad()\n    loss = {f}.apply(x)\n    loss.backward()\n    return loss\n\n"
        "{opt}.step(closure)",
    ),
    "step-of-a-loss": Mistake(
        "wrong",
        "05",
        "def closure():\n    {opt}.zero_grad()\n    loss = ...\n    loss.backward()\n    return loss\n\n"
        "{opt}.step(closure)  # the function itself, without parentheses",
    ),
    "no-requires-grad": Mistake("wrong", "03", "{x}.requires_grad_(True)  # before {f} is called"),
    "integer-parameter": Mistake("wrong", "03", "{x} = {x}.to(torch.float64).requires_grad_(True)"),
    "nonleaf-parameter": Mistake(
        "wrong",
        "03",
        "{x} = {x}.detach().clone().requires_grad_(True)  # a leaf, after .to(device) and all arithmetic\n"
        "{opt} = torch.optim.Adam([{x}])",
    ),
    "numpy-result": Mistake("wrong", "04", "return torch.as_tensor(result, dtype={x}.dtype, device={x}.device)"),
    "numpy-gradient": Mistake(
        "wrong", "04", "return {g} * torch.as_tensor(gradient, dtype={g}.dtype, device={g}.device)"
    ),
    "numpy-on-tracked": Mistake(
        "wrong",
        "04",
        "array = {x}.detach().cpu().numpy()  # inside forward of a Function, so that the gradient is not lost",
    ),
    "gradient-count": Mistake(
        "wrong", "02", "return {gradients}  # one for each argument of forward, None for the rest"
    ),
    "gradient-for-non-tensor": Mistake("wrong", "02", "return {gradients}  # None for each argument that is no tensor"),
    "gradient-shape": Mistake("wrong", "09", "return gradient.reshape({x}.shape)  # after summing over the outputs"),
    "saved-then-changed": Mistake("wrong", "05", "y = y + 1  # a new tensor, where now stands y += 1 or y.add_(1)"),
    "backward-twice": Mistake("wrong", "05", "loss = ...  # compute the loss anew before each backward()"),
    "func-old-style": Mistake(
        "wrong",
        "10",
        "@staticmethod\ndef forward({args}): ...\n\n@staticmethod\ndef setup_context({ctx}, inputs, output):\n"
        "    {ctx}.save_for_backward(*inputs)\n\n# or: op = helpers.differentiable(fun, grad=gradient)",
    ),
    "func-numpy-backward": Mistake(
        "wrong", "10", "op = helpers.differentiable(fun, grad=gradient)  # its backward is an op of its own"
    ),
    "no-vmap-rule": Mistake(
        "wrong",
        "10",
        "class {f}(torch.autograd.Function):\n    generate_vmap_rule = True  # if all is torch code\n\n"
        '# around NumPy: op = helpers.differentiable(fun, grad=gradient, batch="loop")',
    ),
    "no-jvp-rule": Mistake(
        "wrong", "10", "@staticmethod\ndef jvp({ctx}, *tangents): ...  # the derivative along the tangents"
    ),
    "lbfgs-without-closure": Mistake("wrong", "05", "{opt}.step(closure)"),
    "closure-returns-none": Mistake("wrong", "05", "loss.backward()\nreturn loss  # the last line of the closure"),
    "gradcheck-float32": Mistake(
        "wrong", "09", "torch.autograd.gradcheck({f}, {x}.detach().double().requires_grad_(True))"
    ),
    "gradcheck-noise": Mistake(
        "style", "09", "diagnose({f}, {x}, noise=True)  # and gradcheck of the function without its noise"
    ),
    # --- silent: no error, a wrong or useless result
    "zero-hessian": Mistake(
        "fragile",
        "10",
        "@staticmethod\ndef backward({ctx}, {g}):\n    ({x},) = {ctx}.saved_tensors\n"
        "    return {f}Gradient.apply({x}, {g})  # a second Function: its backward holds the hvp, or raises\n\n"
        "# or: op = helpers.differentiable(fun, grad=gradient, hvp=hvp)",
    ),
    "gradient-penalty": Mistake(
        "wrong", "10", "op = helpers.differentiable(fun, grad=gradient, hvp=hvp)  # then take the penalty of op"
    ),
    "once-differentiable-leaks": Mistake(
        "fragile",
        "10",
        "@staticmethod\ndef backward({ctx}, {g}):\n    ({x},) = {ctx}.saved_tensors\n"
        "    return {f}Gradient.apply({x}, {g})  # a second Function: its backward holds the hvp, or raises",
    ),
    "product-hessian": Mistake(
        "fragile", "10", "op = helpers.differentiable(fun, grad=gradient, hvp=hvp)  # in place of the inner Function"
    ),
    "saved-intermediate": Mistake(
        "fragile",
        "10",
        "{ctx}.save_for_backward({args})  # inputs only; compute the intermediate again in backward, with torch",
    ),
    "rewrapped-result": Mistake(
        "wrong", "04", "term = MyTerm.apply({x})  # a Function with forward and backward, in place of torch.as_tensor"
    ),
    "numpy-alias": Mistake(
        "fragile",
        "04",
        "{ctx}.save_for_backward({x})  # in forward\n({x},) = {ctx}.saved_tensors  # in backward: torch refuses if it "
        "was changed",
    ),
    "tensor-on-ctx": Mistake(
        "fragile",
        "04",
        "{ctx}.save_for_backward({x})  # in forward, in place of {ctx}.{x} = {x}\n({x},) = {ctx}.saved_tensors",
    ),
    "changed-through-data": Mistake(
        "wrong", "05", "with torch.no_grad():\n    {x}.add_(step)  # after backward(), and not through .data or NumPy"
    ),
    "argument-mutated": Mistake(
        "wrong", "04", "array = {x}.detach().numpy().copy()  # the function may write into this"
    ),
    "reused-buffer": Mistake("wrong", "04", "return torch.as_tensor(result.copy())"),
    "gradient-buffer-shared": Mistake("wrong", "04", "return {g} * torch.as_tensor(gradient.copy())"),
    "grad-output-edited": Mistake("wrong", "04", "{g} = {g}.clone()  # before anything is written into it"),
    "shared-solver-state": Mistake(
        "wrong",
        "10",
        "{ctx}.solution = solver.solution.copy()  # keep the state of each solve on its own ctx\n\n"
        "# or: a helpers.ExternalFunction, which notices a solver that remembers",
    ),
    "grad-output-ignored": Mistake("wrong", "09", "return {g} * gradient  # the chain rule"),
    "full-jacobian": Mistake("wrong", "09", "return jacobian.T @ {g}  # of the shape of {x}"),
    "per-sample-gradient": Mistake(
        "wrong", "09", "return {g} * per_sample.mean(0)  # .sum(0) if forward sums over the samples"
    ),
    "not-transposed": Mistake("wrong", "09", "return A.T @ {g}  # for a solve: solve(A.T, {g})"),
    "swapped-gradients": Mistake("wrong", "09", "return {gradients}  # in the order of forward's arguments"),
    "no-gradient-returned": Mistake("wrong", "02", "return {g} * gradient  # the last line of backward"),
    "checked-at-optimum": Mistake("wrong", "09", "diagnose({f}, {x} + 0.1)  # check where the gradient is not zero"),
    "hidden-tensor": Mistake("wrong", "03", "{f}.apply({args}, hidden)  # each tensor as an argument of its own"),
    "dtype-forced": Mistake("wrong", "04", "torch.as_tensor(number, dtype={x}.dtype, device={x}.device)"),
    "integer-result": Mistake("wrong", "04", "return result.to({x}.dtype)"),
    "auxiliary-output": Mistake("wrong", "10", "{ctx}.mark_non_differentiable(auxiliary)  # in forward"),
    "nan-gradient": Mistake(
        "wrong", "09", "gradient = torch.where(singular, torch.zeros_like(gradient), gradient)  # choose a value there"
    ),
    "forward-mode-detour": Mistake(
        "fragile", "10", "op = helpers.differentiable(fun, grad=gradient)  # it has reverse and forward mode"
    ),
    "custom-op-jvp": Mistake(
        "fragile", "10", "op = helpers.differentiable(fun, grad=gradient)  # custom ops have no forward mode"
    ),
    "compiled-func-grad": Mistake(
        "wrong", "10", "op = helpers.differentiable(fun, grad=gradient)\ncompiled = torch.compile(torch.func.grad(op))"
    ),
    "compiled-jvp": Mistake("fragile", "10", "torch.func.jvp(f, (x,), (t,))  # without torch.compile"),
    "independent-noise": Mistake(
        "fragile", "08", "{ctx}.draw = draw  # in forward; backward uses {ctx}.draw in place of a new draw"
    ),
    "checkpoint-noise": Mistake(
        "fragile",
        "08",
        "factor = torch.rand(...)  # torch's own generator: checkpoint replays it\n\n"
        "# or: helpers.differentiable(fun, grad=gradient, noise=helpers.UniformFactor(0.5), rng=0)",
    ),
    "wrong-seed": Mistake(
        "style",
        "08",
        "rng = np.random.default_rng(0)  # a generator of your own, with its seed\nfactor = rng.uniform(...)",
    ),
    "forked-noise": Mistake("wrong", "08", "rng = np.random.default_rng([seed, worker])  # one stream for each worker"),
    "closure-without-zero-grad": Mistake("wrong", "05", "{opt}.zero_grad()  # the first line of the closure"),
    "closure-without-backward": Mistake(
        "wrong",
        "05",
        "{fix}",
    ),
    "step-inside-closure": Mistake("wrong", "05", "{opt}.step(closure)  # outside; inside only zero_grad and backward"),
    "stale-loss": Mistake(
        "wrong",
        "05",
        "loss = ...  # computed inside the closure, at the present parameters\nloss.backward()\nreturn loss",
    ),
    "ctx-double-backward": Mistake(
        "fragile",
        "04",
        "{ctx}.save_for_backward(torch.as_tensor(state))  # then torch refuses a second backward on one graph",
    ),
    "no-grad-around": Mistake("wrong", "03", "y = ...  # call it outside `with torch.no_grad():`"),
    "graph-cut": Mistake("wrong", "03", "{x}[0]  # keep the tensor: no float(), .item(), .tolist(), math.sin()"),
    "complex-conjugate": Mistake("wrong", "09", "return {g} * derivative.conj()"),
    # --- not in the catalogue of known mistakes
    "gradient-wrong": Mistake("wrong", "09", "{hint}"),
    "value-wrong": Mistake("wrong", "09", "helpers.check_gradient(fun, gradient, {x})  # and compare the values first"),
}


LOOP = "optimizer.zero_grad()\nloss = ...\nloss.backward()\nreturn loss"


class _Words(dict[str, str]):
    def __missing__(self, key: str) -> str:
        return {
            "f": "f",
            "x": "x",
            "g": "g",
            "ctx": "ctx",
            "opt": "optimizer",
            "fix": LOOP,
            "args": "x",
            "gradients": "gradient",
        }.get(key, "...")


def cure(slug: str, words: Mapping[str, str]) -> str:
    """Return the code that cures a mistake, with the user's own names in it."""
    return MISTAKES[slug].cure.format_map(_Words(words))


def words(patient: Patient) -> dict[str, str]:
    """Return the user's own names for what the cures speak of."""
    found: dict[str, str] = {}
    if patient.label.isidentifier():
        found["f"] = patient.label
    names = patient.names
    if names:
        found |= {"x": names[0], "args": ", ".join(names), "gradients": ", ".join(f"grad_{name}" for name in names)}
    functions = patient.functions
    if functions:
        found.setdefault("f", functions[0].__name__)
        if patient.function_class is None:
            found["f"] = functions[0].__name__
        backward = inspect.unwrap(functions[0].backward)
        try:
            parameters = list(inspect.signature(backward).parameters)
        except (TypeError, ValueError):
            parameters = []
        if len(parameters) >= 2:
            found |= {"ctx": parameters[0], "g": parameters[1]}
    return found
