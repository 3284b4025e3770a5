"""What happens in other uses: forward mode, torch.func, vmap, checkpoints, single precision, the compiler."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.checkpoint import checkpoint

from .. import differences
from .diagnosis import few
from .exam import Exam, Failed, flat, tensors, upstream
from .inputs import Array, draw, keep_form, moved, numbers
from .patient import graph_functions, graph_nodes, method_place
from .probes import scales
from .state import refused

Tensor = torch.Tensor


def look_at_forward_mode(exam: Exam) -> None:
    """Compare the tangent of forward mode with finite differences."""
    points = exam.inputs.points
    looked_at = _tracked_entries(exam)
    rng = np.random.default_rng(11)
    direction = [keep_form(x, scales(x) * draw(x, rng)) for x in points]
    slope = differences.best(differences.slopes(lambda h: exam.values(moved(points, h, direction))))
    for name, forward in (("torch.func.jvp", _func_jvp), ("forward-mode AD", _dual)):
        try:
            got = forward(exam, direction)
        except Failed as failed:
            exam.uses[name] = refused(failed)
            continue
        if got.shape != slope.value.shape or not np.isfinite(slope.error).all():
            continue
        got, value = got[looked_at], slope.value[looked_at]
        size = np.abs(value).max(initial=0.0)
        if np.all(np.abs(got - value) <= 1e-3 * size + 20 * slope.error[looked_at]):
            exam.uses[name] = "right"
            continue
        exam.uses[name] = "silently wrong"
        _name_forward(exam, name, got, value)


def _tracked_entries(exam: Exam) -> Array:
    """Return which of all output numbers belong to outputs that are differentiable."""
    run = exam.run()
    differentiable = [np.full(y.numel(), y.requires_grad or not exam.tracking) for y in run.outputs]
    return np.concatenate(differentiable)


def _func_jvp(exam: Exam, direction: Sequence[Array]) -> Array:
    args = exam.inputs.fresh(None, exam.dtype, tracked=False)
    leaves = exam.inputs.leaves(args)
    tangents = [torch.as_tensor(t).to(x.dtype).reshape(x.shape) for t, x in zip(direction, leaves, strict=True)]
    with exam.watched():
        pair: Any = torch.func.jvp(lambda *primals: _call(exam, args, primals), tuple(leaves), tuple(tangents))
    return flat(tensors(pair[1]))


def _dual(exam: Exam, direction: Sequence[Array], call: Any = None) -> Array:
    """Return the tangent by forward-mode AD; torch.func.jvp makes the compiler step aside, and this does not."""
    forward_ad: Any = torch.autograd.forward_ad
    args = exam.inputs.fresh(None, exam.dtype, tracked=False)
    leaves = exam.inputs.leaves(args)
    with exam.watched(), forward_ad.dual_level():
        duals = [
            forward_ad.make_dual(x, torch.as_tensor(t).to(x.dtype).reshape(x.shape))
            for t, x in zip(direction, leaves, strict=True)
        ]
        found = [(y, forward_ad.unpack_dual(y).tangent) for y in tensors(_call(exam, args, duals, call))]
        return flat([torch.zeros_like(y) if tangent is None else tangent.clone() for y, tangent in found])


def _call(exam: Exam, args: list[Any], leaves: Sequence[Tensor], call: Any = None) -> Any:
    handed = list(args)
    for k, leaf in zip(exam.inputs.wanted, leaves, strict=True):
        handed[k] = leaf
    return (call or exam.patient.call)(*handed)


def is_custom_op(call: Any) -> bool:
    """Return whether a callable is an op of torch.library."""
    kinds = (torch._ops.OpOverload, torch._ops.OpOverloadPacket)
    return isinstance(call, kinds) or type(call).__name__ == "CustomOpDef"


def _name_forward(exam: Exam, name: str, got: Array, expected: Array) -> None:
    evidence = {"got": few(got), "expected": few(expected), "use": name}
    if is_custom_op(exam.patient.handed) or _has_custom_op(exam):
        exam.add(
            "custom-op-jvp",
            f"{name} of a custom op is silently {'zero' if not np.abs(got).any() else 'wrong'}. torch.library knows "
            "reverse mode only.",
            evidence=evidence,
        )
    elif exam.patient.functions and any("jvp" in vars(each) for each in exam.patient.functions):
        exam.add(
            "gradient-wrong",
            f"{name} gives a wrong tangent: jvp is not the derivative of the value.",
            severity="wrong",
            evidence=evidence,
            where=method_place(exam.patient.functions[0], "jvp"),
            hint="return jacobian @ tangent  # in jvp",
        )
    else:
        steps = exam.trace.outside("array", "detach", "data", "scalar")
        if exam.tracking and not steps:
            exam.uses[name] = "another tangent"
            return
        exam.add(
            "forward-mode-detour",
            f"{name} loses what is computed on the way through NumPy, without a word.",
            severity="fragile" if exam.tracking else "wrong",
            evidence=evidence,
            where=steps[0].where if steps else None,
            rank=-1,
        )


def _has_custom_op(exam: Exam) -> bool:
    try:
        run = exam.run()
    except Failed:
        return False
    return any(type(node).__name__.startswith("GeneratedBackwardFor") for node in graph_nodes(run.tracked))


def look_at_func(exam: Exam, points: list[Array], right: list[Array]) -> None:
    """Take the gradient by torch.func.grad."""
    args = exam.inputs.fresh(points, exam.dtype, tracked=False)
    leaves = exam.inputs.leaves(args)

    def weighted(*xs: Tensor) -> Tensor:
        outputs = tensors(_call(exam, args, xs))
        parts = [torch.sum(torch.real(y * g.conj())) for y, g in zip(outputs, upstream(outputs, 0), strict=True)]
        return torch.stack(parts).sum()

    try:
        with exam.watched():
            got = torch.func.grad(weighted, argnums=tuple(range(len(leaves))))(*leaves)
    except Failed as failed:
        exam.uses["torch.func"] = refused(failed)
        return
    arrays = [numbers(each) for each in got]
    same = all(np.allclose(a, b, rtol=1e-5, atol=1e-8) for a, b in zip(arrays, right, strict=True))
    exam.uses["torch.func"] = "right" if same else "another gradient"


def look_at_vmap(exam: Exam, points: list[Array], near: list[Array]) -> None:
    """Compare a batch by torch.func.vmap with a loop."""
    args = exam.inputs.fresh(points, exam.dtype, tracked=False)
    leaves = exam.inputs.leaves(args)
    others = exam.inputs.leaves(exam.inputs.fresh(near, exam.dtype, tracked=False))
    batch = [torch.stack([one, two]) for one, two in zip(leaves, others, strict=True)]
    try:
        with exam.watched(), torch.no_grad():
            together = tensors(torch.func.vmap(lambda *xs: tensors(_call(exam, args, xs)))(*batch))
            single = [tensors(_call(exam, args, xs)) for xs in (leaves, others)]
    except Failed as failed:
        exam.uses["torch.func.vmap"] = refused(failed)
        return
    loop = [torch.stack(pair) for pair in zip(*single, strict=True)]
    same = all(
        a.shape == b.shape and np.allclose(numbers(a), numbers(b), rtol=1e-6, atol=1e-9)
        for a, b in zip(together, loop, strict=True)
    )
    exam.uses["torch.func.vmap"] = "right" if same else "a batch gives other numbers than a loop"
    if not same and not exam.noise:
        exam.add(
            "gradient-wrong",
            "A batch under torch.func.vmap gives other numbers than a loop over its samples.",
            severity="fragile",
            evidence={"got": few(numbers(together[0])), "expected": few(numbers(loop[0]))},
            hint='op = helpers.differentiable(fun, grad=gradient, batch="loop")',
        )


def look_at_checkpoint(exam: Exam, points: list[Array], noisy: bool) -> None:
    """Compare value and gradient under a checkpoint with those outside, with the same noise at the start."""
    try:
        exam.restart_noise(3)
        plain = exam.run(points)
        gs = upstream(plain.tracked, 0)
        expected = exam.arrays(plain, exam.vjp(plain, gs))
        exam.restart_noise(3)
        again = exam.run(points, call=lambda *xs: checkpoint(exam.patient.call, *xs, use_reentrant=False))
        value = flat(again.outputs)
        got = exam.arrays(again, exam.vjp(again, gs))
        if _close(got, expected):
            exam.restart_noise(3)
            again = exam.run(points, call=lambda *xs: checkpoint(exam.patient.call, *xs, use_reentrant=True))
            value = flat(again.outputs)
            if len(again.tracked) == len(plain.tracked):  # it does not track tensors in containers
                with exam.watched():
                    torch.autograd.backward(again.tracked, gs)
                got = exam.arrays(again, [leaf.grad for leaf in again.leaves])
    except Failed as failed:
        exam.uses["checkpoint"] = refused(failed)
        return
    same_value = np.allclose(value, flat(plain.outputs), rtol=1e-9)
    same = _close(got, expected)
    other = "another draw of the noise in backward" if noisy else "another gradient"
    exam.uses["checkpoint"] = "right" if same else other
    if noisy and same_value and not same:
        exam.add(
            "checkpoint-noise",
            "Under torch.utils.checkpoint, forward runs again with another draw: value and gradient belong to "
            "different functions. checkpoint restores torch's random numbers only.",
            evidence={"got": few(got[0]), "expected": few(expected[0])},
        )


def _close(one: Sequence[Array], other: Sequence[Array]) -> bool:
    return all(np.allclose(a, b, rtol=1e-6, atol=1e-9) for a, b in zip(one, other, strict=True))


def look_at_single_precision(exam: Exam, points: list[Array], right: list[Array]) -> None:
    """Compare the gradient in float32 with that in float64."""
    if exam.precise != torch.float64:
        return
    try:
        run = exam.run(points, dtype=torch.float32)
        gs = upstream(run.tracked, 0)
        got = exam.arrays(run, exam.vjp(run, gs))
        double = exam.run(points)
    except Failed as failed:
        exam.uses["float32"] = refused(failed)
        return
    value, truth = flat(run.outputs), flat(double.outputs)
    if value.shape != truth.shape or not np.allclose(value, truth, rtol=1e-3, atol=1e-3 * np.abs(truth).max(initial=0)):
        exam.uses["float32"] = "the value itself is another"
        return
    size = max((float(np.abs(each).max(initial=0)) for each in right), default=0.0)
    same = all(np.allclose(a, b, rtol=5e-2, atol=5e-2 * size) for a, b in zip(got, right, strict=True))
    dtypes = {str(y.dtype) for y in run.outputs}
    exam.uses["float32"] = ("right" if same else "wrong") + (
        "" if dtypes == {"torch.float32"} else f" (its result is {', '.join(sorted(dtypes))})"
    )
    if not same:
        exam.add(
            "gradient-wrong",
            "The gradient is right in float64 and wrong in float32.",
            severity="wrong" if exam.inputs.dtype == torch.float32 else "fragile",
            evidence={"got": few(got[0]), "expected": few(right[0])},
            hint="# a difference step or a tolerance is too small for float32: compute in float64 inside",
        )


def look_at_compiled(exam: Exam) -> None:
    """Compare a compiled patient with what was compiled."""
    original = exam.patient.compiled
    if original is None:
        return
    try:
        compiled = exam.run(tracked=False)
    except Failed as failed:
        exam.uses["torch.compile"] = refused(failed)
        return
    try:
        eager = exam.run(tracked=False, call=original)
    except Failed as failed:
        exam.add(
            "compiled-func-grad",
            f"The compiled function answers, and the function itself raises: {failed.text} What the compiler returns "
            "is not its result.",
            evidence={"got": few(flat(compiled.outputs)), "expected": failed.text},
            rank=-1,
        )
        return
    got, expected = flat(compiled.outputs), flat(eager.outputs)
    custom = any("jvp" in vars(each) for each in exam.patient.functions)
    if got.shape != expected.shape or not np.allclose(got, expected, rtol=1e-5, atol=1e-8, equal_nan=True):
        exam.add(
            "compiled-jvp" if custom else "compiled-func-grad",
            "The compiled function gives other numbers than the function itself"
            + (": the compiler drops the jvp of a Function inside." if custom else "."),
            severity="wrong",
            evidence={"got": few(got), "expected": few(expected)},
            rank=-1,
        )


def look_at_compiled_forward_mode(exam: Exam) -> None:
    """Compare forward mode through a compiled function with forward mode through the function itself."""
    original = exam.patient.compiled
    run = exam.run()
    custom = [each for _, each in graph_functions(run.tracked)] + exam.patient.functions
    if original is None or not any("jvp" in vars(each) for each in custom):
        return
    rng = np.random.default_rng(11)
    direction = [draw(x, rng) for x in exam.inputs.points]
    seen: Any
    try:
        right = _dual(exam, direction, original)
        got = _dual(exam, direction)
    except Failed as failed:
        seen = failed.text
    else:
        seen = few(got)
        if np.allclose(got, right, rtol=1e-5, atol=1e-8):
            return
    exam.add(
        "compiled-jvp",
        "A Function inside defines jvp, and the compiler drops or refuses it: forward mode works without torch.compile "
        "only.",
        evidence={"got": seen, "expected": "the tangent of the function itself"},
    )
