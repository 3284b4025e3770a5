"""What torch is doing at the moment: the only place where the bridge looks at torch's private names.

Public torch says nothing of these things, and a bridge that does not ask gives silent zeros.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import torch
from torch.autograd import forward_ad

Tensor = torch.Tensor
SingleLevelFunction = torch.autograd.function._SingleLevelFunction  # a Function for the inside of an op
single_level_functions: Any = vars(torch._functorch.autograd_function)["enable_single_level_autograd_function"]
Answer = TypeVar("Answer", bound=Callable[..., Any])
ORDINARY = (torch.Tensor, torch.nn.Parameter)

_Mode = torch._C._TorchDispatchModeKey
RECORDERS = (_Mode.FAKE, _Mode.PROXY, _Mode.FUNCTIONAL)

_transforms_active = torch._C._are_functorch_transforms_active
_dispatch_modes = torch._C._len_torch_dispatch_stack
is_legacy_batched = torch._C._functorch.is_legacy_batchedtensor  # a batch of the vmap behind is_grads_batched=True


def is_plain() -> bool:
    """Say whether tensors hold their own numbers: no torch.func transform and no forward mode is at work."""
    return not _transforms_active() and forward_ad._current_level < 0


def is_recording() -> bool:
    """Say whether torch writes a program (make_fx, fake tensors): what NumPy computes would be a constant in it."""
    return bool(_dispatch_modes()) and any(torch._C._get_dispatch_mode(key) is not None for key in RECORDERS)


def is_in_backward() -> bool:
    """Say whether this thread is inside a backward pass, as it is when a checkpoint computes a forward again."""
    return bool(torch._C._current_graph_task_id() != -1)


def graph_is_kept() -> bool:
    """Say whether the backward pass at work leaves the graph usable (retain_graph=True)."""
    return bool(torch._C._autograd._get_current_graph_task_keep_graph())


def random_mark() -> int:
    """Take one number from torch's global generator, also under vmap, which otherwise asks what random means there."""
    with torch._C._DisableFuncTorch():
        return int(torch.randint(2**63 - 1, (), device="cpu"))


def refuse_half_a_recording(label: str) -> None:
    """Raise if torch writes a program and began after the call whose backward runs now."""
    if is_recording():
        raise RuntimeError(
            f"{label} was called before torch began to record, and its backward would be a constant in the program. "
            "Record the call too."
        )


def is_alone(g: Tensor) -> bool:
    """Say whether a backward pass may compute with the numbers of g: nobody will differentiate or batch that."""
    return not (
        torch.is_grad_enabled() or _transforms_active() or forward_ad._current_level >= 0 or is_legacy_batched(g)
    )


def is_ordinary(x: object) -> bool:
    """Say whether x is a dense tensor on the CPU and nothing but plain autograd is at work."""
    return (
        not torch.compiler.is_compiling()
        and type(x) in ORDINARY
        and not (_transforms_active() or _dispatch_modes() or forward_ad._current_level >= 0)
        and x.is_cpu  # type: ignore[attr-defined]
        and x.layout is torch.strided  # type: ignore[attr-defined]
        and not x.is_neg()  # type: ignore[attr-defined]
    )


def constant_for_compilers(function: Answer) -> Answer:
    """Let torch.compile run a function while it reads the program, and keep the answer.

    It is torch.compiler.assume_constant_result, without the second that the import of the compiler takes.
    """
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


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


@contextlib.contextmanager
def below_this_level() -> Iterator[None]:
    """Go on where an op's own autograd has done its work: at the next transform, or at the computation.

    A Function switches gradients off for its forward, and torch.func's next level would believe it.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch._C._AutoDispatchBelowAutograd())
        if _transforms_active():
            stack.enter_context(torch.enable_grad())
            stack.enter_context(forward_ad._set_fwd_grad_enabled(True))
        yield
