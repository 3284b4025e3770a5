"""Which steps of a patient lead out of torch's graph, and on which line."""

import sys
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from .diagnosis import Where

SCALARS = {"item", "tolist", "__float__", "__int__", "__complex__", "__index__"}
ARRAYS = {"numpy", "__array__"}
NEW = {"tensor", "as_tensor", "asarray", "scalar_tensor"}
LIBRARIES = tuple(
    str(Path(sys.modules[name].__file__ or "").parent) for name in ("torch", "numpy", "helpers", "contextlib")
)
PLAIN = (torch.Tensor, torch.nn.Parameter)
SMALL = 10_000  # numbers: of larger tensors it is not noted what they hold


@dataclass(frozen=True)
class Step:
    """One step out of torch's graph, or back into torch.

    ``kind`` is "scalar" (float(x), x.item(), x.tolist()), "array" (x.numpy()), "detach", "data", "new" (torch.as_tensor
    of something that is no tensor), "no-grad", or "grad" (autograd.grad with create_graph).
    """

    kind: str
    name: str
    where: Where | None
    tracked: bool
    in_function: bool


class Trace(TorchFunctionMode):
    """Records the steps of whatever runs inside it. It changes nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[Step] = []
        self.used: dict[int, tuple[torch.Tensor, torch.Tensor, int, Where | None]] = {}
        self.seen_changed: Where | None = None

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Note the step, and do it."""
        kwargs = kwargs or {}
        kind = _kind(func, args, kwargs)
        if kind:
            tracked = any(isinstance(each, torch.Tensor) and each.requires_grad for each in args)
            where, in_function = position()
            self.steps.append(Step(kind, getattr(func, "__name__", ""), where, tracked, in_function))
        else:
            self._compare(args)
            self.note_use(args)
        result = func(*args, **kwargs)
        self._follow(args)
        return result

    def clear(self) -> None:
        """Forget everything."""
        self.steps.clear()
        self.used.clear()
        self.seen_changed = None

    def changed(self) -> Where | None:
        """Return where a tensor was used whose numbers have changed since, with nothing that torch could notice."""
        self._compare([tensor for tensor, *_ in self.used.values()])
        return self.seen_changed

    def _compare(self, args: Sequence[Any]) -> None:
        for each in args:
            if isinstance(each, torch.Tensor) and id(each) in self.used and self.seen_changed is None:
                tensor, numbers, version, where = self.used[id(each)]
                same = torch.equal(tensor.detach().nan_to_num(), numbers.nan_to_num())
                self.seen_changed = where if tensor._version == version and not same else None

    def _follow(self, args: tuple[Any, ...]) -> None:
        """Note what torch's own call has just written into its arguments."""
        for each in args:
            if isinstance(each, torch.Tensor) and id(each) in self.used:
                tensor, numbers, version, where = self.used[id(each)]
                if not torch.equal(tensor.detach(), numbers):
                    self.used[id(each)] = tensor, tensor.detach().clone(), version, where

    def note_use(self, args: Sequence[Any], by_function: bool = False) -> None:
        """Note what the tensors among some arguments hold now."""
        for each in args:
            plain = type(each) in PLAIN and each.layout is torch.strided and not each.is_meta
            if not plain or wrapped(each) or each.is_inference() or each.numel() > SMALL or id(each) in self.used:
                continue
            where, in_function = position()
            if (by_function or not in_function) and each.is_floating_point():
                self.used[id(each)] = each, each.detach().clone(), each._version, where

    def outside(self, *kinds: str) -> list[Step]:
        """Return the steps of these kinds that were not made inside forward or backward of a Function."""
        return [step for step in self.steps if step.kind in kinds and not step.in_function]


def modes() -> int:
    """Return how many modes such as :class:`Trace` torch is in."""
    stack: Any = torch.overrides
    return int(stack._len_torch_function_stack())


def leave_modes(until: int) -> None:
    """Leave the modes that an interruption, or the patient, has left behind."""
    stack: Any = torch.overrides
    while modes() > until:
        stack._pop_mode()


def wrapped(tensor: torch.Tensor) -> bool:
    """Return whether a tensor belongs to torch.func, which hides its numbers."""
    return bool(torch._C._functorch.is_functorch_wrapped_tensor(tensor))


def position() -> tuple[Where | None, bool]:
    """Return the line of the user's code that runs now, and whether it runs inside a Function."""
    frame: types.FrameType | None = sys._getframe(1)
    where, in_function = None, False
    while frame is not None:
        code = frame.f_code
        if code.co_name == "apply" and code.co_filename.replace("\\", "/").endswith("autograd/function.py"):
            in_function = True
        if where is None and not is_library(code.co_filename):
            where = (code.co_filename, frame.f_lineno)
        frame = frame.f_back
    return where, in_function


def is_library(file: str) -> bool:
    """Return whether a file belongs to torch, NumPy, the standard library or the doctor."""
    return file.startswith(LIBRARIES) or file.startswith("<frozen") or "site-packages" in file


def _kind(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    name = getattr(func, "__name__", "")
    if name in SCALARS:
        return "scalar"
    if name in ARRAYS:
        return "array"
    if name in ("detach", "detach_"):
        return "detach"
    if name == "__get__" and func == torch.Tensor.data.__get__:  # type: ignore[attr-defined]
        return "data"
    if name in NEW and args and not isinstance(args[0], torch.Tensor):
        return "new"
    if name == "_set_grad_enabled" and args == (False,):
        return "no-grad"
    if name == "grad" and kwargs.get("create_graph"):
        return "grad"
    return ""
