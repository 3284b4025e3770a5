"""What torch is doing at the moment: the only place where the bridge looks at torch's private names.

Public torch says nothing of these four things, and a bridge that does not ask gives silent zeros.
"""

from collections.abc import Sequence

import torch
from torch.autograd import forward_ad

Tensor = torch.Tensor

_transforms_active = torch._C._are_functorch_transforms_active
_dispatch_modes = torch._C._len_torch_dispatch_stack
_is_legacy_batched = torch._C._functorch.is_legacy_batchedtensor


def is_plain() -> bool:
    """Say whether tensors hold their own numbers: no torch.func transform and no forward mode is at work."""
    return not _transforms_active() and forward_ad._current_level < 0


def is_recording() -> bool:
    """Say whether torch records operations as a program (make_fx, fake tensors): NumPy code would be a constant in it."""
    return bool(_dispatch_modes())


def is_in_backward() -> bool:
    """Say whether this thread is inside a backward pass, as it is when a checkpoint computes a forward again."""
    return bool(torch._C._current_graph_task_id() != -1)


def graph_is_kept() -> bool:
    """Say whether the backward pass at work leaves the graph usable (retain_graph=True)."""
    return bool(torch._C._autograd._get_current_graph_task_keep_graph())


def random_mark() -> int:
    """Take one number from torch's global generator, also under vmap, which otherwise asks what random means there."""
    with torch._C._DisableFuncTorch():
        return int(torch.randint(2**63 - 1, ()))


def is_legacy_batched(tensor: Tensor) -> bool:
    """Say whether a tensor is a batch in disguise, of the older vmap behind ``is_grads_batched=True``."""
    return bool(_is_legacy_batched(tensor))


def take_out_legacy_batches(tensors: Sequence[Tensor], batched: Sequence[bool]) -> tuple[list[Tensor], int]:
    """Return all tensors with the batch as their first axis, and the level that puts it back."""
    level = torch._C._vmapmode_increment_nesting() - 1
    torch._C._vmapmode_decrement_nesting()
    out = [torch._remove_batch_dim(t, level, 1, 0) if b else t for t, b in zip(tensors, batched, strict=True)]
    size = next(t.shape[0] for t, b in zip(out, batched, strict=True) if b)
    return [t if b else t.expand(size, *t.shape) for t, b in zip(out, batched, strict=True)], level


def put_back_legacy_batches(tensors: Sequence[Tensor], level: int) -> tuple[Tensor, ...]:
    """Undo :func:`take_out_legacy_batches`."""
    return tuple(torch._add_batch_dim(tensor, 0, level) for tensor in tensors)
