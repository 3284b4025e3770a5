"""A step without torch's wrapper around it, where that would do nothing."""

from collections.abc import Callable
from typing import Any

import torch


def quick_step_of(optimizer: torch.optim.Optimizer) -> Callable[[], object]:
    """Return ``optimizer.step``, but past torch's wrapper of it as long as nobody listens there.

    The wrapper calls hooks and marks the step for the profiler. For a small parameter it costs almost as much as Adam.
    """
    step: Any = type(optimizer).step
    if _WRAPPER is None or getattr(step, "__code__", None) is not _WRAPPER:
        return lambda: optimizer.step()
    hooks = (
        optimizer._optimizer_step_pre_hooks,
        optimizer._optimizer_step_post_hooks,
        step.__globals__["_global_optimizer_pre_hooks"],
        step.__globals__["_global_optimizer_post_hooks"],
    )
    own, profiler = vars(optimizer), torch.autograd.profiler

    def quick_step() -> None:
        is_replaced = "step" in own or type(optimizer).step is not step
        if is_replaced or any(hooks) or getattr(profiler, "_is_profiler_enabled", True):
            optimizer.step()
        else:
            step.__wrapped__(optimizer)

    return quick_step


def _known_wrapper() -> object:
    """Return the code of torch's wrapper of every ``step``, if it uses the same names as that of torch 2.13.

    So a wrapper that does more, in another version of torch, is never passed by.
    """
    wrap = getattr(torch.optim.Optimizer, "profile_hook_step", None)
    code = getattr(wrap and wrap(lambda optimizer: None), "__code__", None)
    hooks = {f"_{whose}_{when}_hooks" for whose in ("optimizer_step", "global_optimizer") for when in ("pre", "post")}
    mark = {"torch", "autograd", "profiler", "record_function", "_optimizer_step_code", "__class__", "__name__"}
    checks = {"cast", "Optimizer", "chain", "values", "isinstance", "tuple", "len", "RuntimeError"}
    return code if code and set(code.co_names) == hooks | mark | checks else None


_WRAPPER = _known_wrapper()
