"""A closure, called again and again: what it returns, what it leaves in ``.grad``, and what it changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.overrides import TorchFunctionMode

from . import reading
from .diagnosis import few
from .exam import Exam
from .inputs import numbers
from .inside import noted
from .loop_numbers import direction_of, is_even, parallel, random_direction, same
from .patient import definition

Tensor = torch.Tensor
MARK = 1e6  # a gradient that no closure can bring about by itself
STEP = 1e-3  # relative


class _Watch(TorchFunctionMode):
    """Notes each backward and each zero_grad, in their order, and the parameters when they are first used."""

    def __init__(self, parameters: list[Tensor]) -> None:
        super().__init__()
        self.events: list[str] = []
        self.parameters = parameters
        self.used: dict[int, Tensor] = {}
        self.start = [p.detach().clone() for p in parameters]
        self.changed = False  # a parameter was used, and then changed before backward

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = getattr(func, "__name__", "")
        if name in ("backward", "grad"):
            self.events.append("backward")
            before = [self.used.get(k, start) for k, start in enumerate(self.start)]
            self.changed |= any(not torch.equal(p, old) for p, old in zip(self.parameters, before, strict=True))
        elif name not in ("__get__", "detach") and torch.is_grad_enabled():
            for k, p in enumerate(self.parameters):
                if k not in self.used and any(each is p for each in args):
                    self.used[k] = p.detach().clone()
        return func(*args, **(kwargs or {}))


@dataclass
class _Call:
    """One call of the closure: what it returned, what it did, and the gradients after it."""

    loss: Any
    gradients: list[np.ndarray[Any, Any] | None]
    events: list[str]
    steps: int
    moved: bool
    versions_moved: bool
    changed: bool
    marked: list[bool] = field(default_factory=list)

    @property
    def number(self) -> float:
        """The returned loss as a number, NaN if it is none."""
        try:
            return float(self.loss)
        except (TypeError, ValueError, RuntimeError):
            return float("nan")


class Loop:
    """An optimiser and its closure, called again and again."""

    def __init__(self, exam: Exam, optimizer: torch.optim.Optimizer, closure: Any, parameters: list[Tensor]) -> None:
        self.exam, self.optimizer, self.closure = exam, optimizer, closure
        self.parameters = [p for p in parameters if p.requires_grad]
        self.start = [p.detach().clone() for p in self.parameters]
        self.needs_loss = isinstance(optimizer, torch.optim.LBFGS)

    def look(self) -> None:
        """Call the closure in several ways, and name what shows."""
        exam = self.exam
        with noted(exam.patient.functions, exam.trace) as exam.inner:
            first = self.call(None)
        if self._stepped(first) or self._changed(first):
            exam.unfinished = ""
        self.put(0.0)
        marked = self.call(MARK)
        exam.unfinished = ""
        if self._without_backward(first, marked):
            return
        self._piled_up(first, marked)
        self._nothing_returned(first)
        self._not_finite(first)
        if not exam.wrong:
            self._moved()

    def call(self, mark: float | None) -> _Call:
        """Call the closure with no gradients, or with gradients that are marked; steps inside are counted."""
        for p in self.parameters:
            p.grad = None if mark is None else torch.full_like(p, mark)
        before = [(p.detach().clone(), p._version) for p in self.parameters]
        watch = _Watch(self.parameters)
        with self._count_steps() as steps, self._note_zero_grad(watch):
            self.exam.restart_noise(1)
            with self.exam.budget.part(), self.exam.watched(), watch:
                loss = self.closure()
        gradients = [None if p.grad is None else numbers(p.grad) for p in self.parameters]
        moved = [not torch.equal(p, old) for p, (old, _) in zip(self.parameters, before, strict=True)]
        versions = [p._version != v for p, (_, v) in zip(self.parameters, before, strict=True)]
        marked = [g is not None and bool(np.any(np.abs(g) > MARK / 2)) for g in gradients]
        return _Call(
            loss,
            gradients,
            watch.events,
            len(steps),
            any(moved),
            any(v for m, v in zip(moved, versions, strict=True) if m),
            watch.changed,
            marked,
        )

    @contextmanager
    def _count_steps(self) -> Iterator[list[Any]]:
        seen: list[Any] = []
        mine = {id(p) for p in self.parameters}

        def note(optimizer: torch.optim.Optimizer, *_: Any) -> None:
            if any(id(p) in mine for group in optimizer.param_groups for p in group["params"]):
                seen.append(optimizer)

        handle = register_optimizer_step_pre_hook(note)
        try:
            yield seen
        finally:
            handle.remove()

    @contextmanager
    def _note_zero_grad(self, watch: _Watch) -> Iterator[None]:
        own = type(self.optimizer).zero_grad
        optimizer: Any = self.optimizer

        def zero_grad(*args: Any, **kwargs: Any) -> Any:
            watch.events.append("zero_grad")
            return own(optimizer, *args, **kwargs)

        optimizer.zero_grad = zero_grad
        try:
            yield
        finally:
            optimizer.__dict__.pop("zero_grad", None)

    def put(self, distance: float, direction: list[Tensor] | None = None) -> None:
        """Move the parameters to start + distance * direction, in place as an optimiser does."""
        with torch.no_grad():
            for k, (p, old) in enumerate(zip(self.parameters, self.start, strict=True)):
                p.copy_(old if direction is None else old + distance * direction[k])

    # --- what can be wrong

    def _stepped(self, call: _Call) -> bool:
        if not call.steps:
            return False
        self.exam.add(
            "step-inside-closure",
            "The closure itself calls step. step calls the closure, so each step is taken more than once, at other "
            "points than you think.",
            evidence={"steps inside one call": call.steps},
            where=self._place_of_call("step"),
        )
        return True

    def _changed(self, call: _Call) -> bool:
        if call.steps or not call.moved or not call.changed:
            return False
        through = "in place" if call.versions_moved else "through .data or an array that shares its memory"
        self.exam.add(
            "changed-through-data",
            f"The closure changes the parameters {through}. backward then computes with other numbers than forward, "
            "and torch does not notice."
            if not call.versions_moved
            else f"The closure changes the parameters {through}.",
            severity=None if not call.versions_moved else "fragile",
            where=self._place_of_call("data"),
        )
        return True

    def _without_backward(self, first: _Call, marked: _Call) -> bool:
        nothing = all(g is None for g in first.gradients)
        zero = all(g is None or not np.any(g) for g in first.gradients)
        events = first.events
        cleared_last = (
            "backward" in events and "zero_grad" in events[len(events) - 1 - events[::-1].index("backward") :]
        )
        if not nothing and not (zero and (cleared_last or self._matters())):
            return False
        message, fix = self._why(first, cleared_last)
        self.exam.add(
            "closure-without-backward",
            f"After the closure no parameter has a gradient, so the optimiser never moves them. {message}",
            evidence={"got": "no gradient" if nothing else "zero", "expected": "a gradient in each .grad"},
            fix=fix,
        )
        return True

    def _matters(self) -> bool:
        """Return whether the loss changes when the parameters do, though the gradients are all zero."""
        losses = []
        for h in (0.0, 1e-2, -2e-2):
            self.put(h, [torch.ones_like(p) * max(float(p.abs().max()), 1.0) for p in self.parameters])
            self.call(None)
            losses.append(self.call(None).number)
        self.put(0.0)
        return len({round(each, 12) for each in losses}) == 3 and not is_even(losses)

    def _why(self, call: _Call, cleared_last: bool) -> tuple[str, str]:
        """Return the reason in words, and the cure as code."""
        order = "optimizer.zero_grad()  # first\nloss = ...\nloss.backward()  # then, and nothing after it\nreturn loss"
        if cleared_last:
            return "zero_grad is called after backward, and deletes what backward has computed.", order
        if "backward" not in call.events:
            return "The closure does not call backward.", "loss.backward()  # before the last line\nreturn loss"
        if any(g is not None for g in call.gradients):
            return "The gradients are set to zero after backward has computed them.", order
        loss = call.loss
        if isinstance(loss, Tensor) and loss.is_leaf:
            return (
                "The loss is a new leaf (torch.tensor(f, requires_grad=True)): it has no connection to the parameters.",
                "loss = op(x)  # around NumPy: op = helpers.differentiable(f, grad=gradient)\nloss.backward()",
            )
        return (
            "The loss is not computed from the optimiser's own parameters: they are a copy, or the closure makes new "
            "tensors.",
            "optimizer = torch.optim.Adam([x])  # the very tensor from which the closure computes its loss",
        )

    def _piled_up(self, first: _Call, marked: _Call) -> None:
        kept = any(marked.marked)
        if not kept and not same(first.gradients, marked.gradients):  # clipped, so that the mark is small
            kept = same(first.gradients, self.call(None).gradients)
        if kept:
            self.exam.add(
                "closure-without-zero-grad",
                "The closure adds to the gradients of the call before: they pile up from step to step.",
                evidence={"kept from the call before": f"{sum(marked.marked)} of {len(marked.marked)} gradients"},
            )

    def _nothing_returned(self, call: _Call) -> None:
        if call.loss is None:
            self.exam.add(
                "closure-returns-none",
                "The closure returns None. LBFGS needs the loss; Adam does not complain, and step() returns None.",
                severity="wrong" if self.needs_loss else "fragile",
                evidence={"got": "None", "expected": "the loss"},
            )

    def _not_finite(self, call: _Call) -> None:
        for k, g in enumerate(call.gradients):
            if g is not None and not np.all(np.isfinite(g)):
                self.exam.add(
                    "nan-gradient",
                    "A gradient is not finite: the first step writes it into the parameter, and it stays there.",
                    evidence={"got": few(g), "parameter": k, "loss": call.number},
                )

    def _moved(self) -> None:
        """Move the parameters as a step does, and see whether the loss and the gradient follow."""
        first = self.call(None)
        again = self.call(None)
        if isinstance(first.loss, Tensor) and first.loss.dim() and first.loss.numel() > 1:
            return
        direction = [direction_of(g, p) for g, p in zip(first.gradients, self.parameters, strict=True)]
        slope = sum(
            float(np.sum(np.real(np.conj(g) * numbers(t))))
            for g, t in zip(first.gradients, direction, strict=True)
            if g is not None
        )
        self.put(STEP, direction)
        here, once_more = self.call(None), self.call(None)
        self.put(-STEP, direction)
        there = self.call(None)
        there = self.call(None)
        self.put(0.0)
        if first.loss is None or not np.isfinite(first.number):
            return
        if self._stale(first, again, here, once_more, slope):
            return
        repeats = first.number == again.number and here.number == once_more.number
        if repeats:
            self._compare(first, here, there, direction)

    def _stale(self, first: _Call, again: _Call, here: _Call, once_more: _Call, slope: float) -> bool:
        size = abs(first.number) + 1e-30
        expected = abs(slope) * STEP
        enough = expected > 1e-5 * size if self._single() else expected > 1e-11 * size
        frozen = here.number == first.number and once_more.number == first.number and enough
        late = here.number == again.number and once_more.number != here.number
        if not (frozen or late):
            return False
        self.exam.add(
            "stale-loss",
            "The parameters have moved, and the closure still returns the loss of before. LBFGS compares losses, so it "
            "stops or wanders.",
            evidence={"loss": first.number, "loss after a step": here.number, "expected change": slope * STEP},
            rank=-1,
        )
        return True

    def _single(self) -> bool:
        return any(p.dtype in (torch.float32, torch.float16, torch.bfloat16) for p in self.parameters)

    def _compare(self, first: _Call, here: _Call, there: _Call, direction: list[Tensor]) -> None:
        """Compare the slope of the loss along the gradient, and along a random direction, with the gradient."""
        exam = self.exam
        rng = np.random.default_rng(3)
        directions = [direction]
        for _ in range(2):
            directions.append([random_direction(p, rng) for p in self.parameters])
        single = self._single()
        step = 1e-2 if single else 1e-5
        got, expected, error = [], [], []
        for each in directions:
            slopes = []
            for h in (step, step / 2):
                self.put(h, each)
                self.call(None)
                up = self.call(None).number
                self.put(-h, each)
                self.call(None)
                down = self.call(None).number
                slopes.append((up - down) / (2 * h))
            self.put(0.0)
            expected.append(slopes[1])
            error.append(abs(slopes[0] - slopes[1]) + (1e-6 if single else 1e-15) * abs(first.number) / step)
            got.append(
                sum(
                    float(np.sum(np.real(np.conj(g) * numbers(t))))
                    for g, t in zip(first.gradients, each, strict=True)
                    if g is not None
                )
            )
        if not np.all(np.isfinite([*got, *expected])):
            return
        a, b, e = np.array(got), np.array(expected), np.array(error)
        if parallel(a, b, e):  # clipped, or scaled on purpose
            return
        off = np.abs(a - b) > 5e-2 * np.maximum(np.abs(a), np.abs(b)) + 10 * e
        if off.any():
            k = int(np.argmax(np.where(off, np.abs(a - b), -1)))
            exam.add(
                "gradient-wrong",
                "The gradients that the closure leaves are not the derivative of the loss that it returns. If that is "
                "meant (clipping, noise, a part left out on purpose), all is well; LBFGS needs the derivative.",
                severity="wrong" if self.needs_loss else "fragile",
                evidence={"got": a[k], "expected": b[k], "along": "a direction of all parameters"},
                hint="diagnose(MyFunction, x)  # each Function by itself",
            )

    def _place_of_call(self, name: str) -> Any:
        for code in reading.codes(self.closure):
            for called, node in code.calls():
                if called.rpartition(".")[2] == name:
                    return code.place(node)
        return definition(self.closure)
