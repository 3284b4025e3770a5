"""The examining room: run the patient on fresh inputs, catch what it raises, note what is found."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from . import catalogue
from .budget import Budget, OutOfTime
from .diagnosis import Diagnosis, Finding, Severity, Where
from .inputs import Array, Inputs, numbers
from .inside import Calls
from .patient import Patient
from .trace import Trace, is_library
from .undisturbed import generators, seed_all

Tensor = torch.Tensor
SECOND = ("zero-hessian", "once-differentiable-leaks", "product-hessian", "saved-intermediate", "gradient-penalty")


class Failed(Exception):
    """The patient raised; ``error`` is what, ``where`` the user's line."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(_words_of(error))
        self.error, self.where = error, place_of(error)

    @property
    def text(self) -> str:
        """The kind of the error and the first line of its message."""
        lines = str(self).strip().splitlines()
        return f"{type(self.error).__name__}: {lines[0] if lines else ''}"


def _words_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # an error of the user's own class, whose text itself fails
        return ""


@dataclass
class Run:
    """One call of the patient: its inputs, and the tensors that it returned."""

    args: list[Any]
    leaves: list[Tensor]
    result: Any
    outputs: list[Tensor]
    tracked: list[Tensor] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.tracked = [y for y in self.outputs if y.requires_grad]


class Exam:
    """One patient, its example inputs, and the findings so far."""

    def __init__(
        self, patient: Patient, inputs: Inputs, budget: Budget, noise: bool = False, reference: Any = None
    ) -> None:
        self.patient, self.inputs, self.budget = patient, inputs, budget
        self.noise, self.reference = noise, reference
        self.uses: dict[str, str] = {}
        self.unfinished = "its gradient was not looked at"
        self.cut_short = ""
        self.dtype: torch.dtype | None = torch.float64
        self.precise = torch.float64
        self.tracking = True
        self.by_backward = False  # torch.autograd.grad is refused: a reentrant checkpoint
        self.by_clone = False  # the patient changes its argument in place, so it cannot take leaves
        self.summed: dict[int, tuple[str, str, tuple[int, ...]]] = {}  # gradients that torch sums to the input's shape
        self.trace = Trace()
        self.generators = generators(*patient.roots)
        self.inner: Calls = []  # the Functions inside an operation, with their inputs
        self._found: list[tuple[int, Finding]] = []

    # --- findings

    def add(
        self,
        slug: str,
        message: str,
        *,
        severity: Severity | None = None,
        evidence: Mapping[str, Any] | None = None,
        where: Where | None = None,
        rank: int = 0,
        **words: str,
    ) -> None:
        """Note a finding, once for each slug; ``words`` fill the cure's template."""
        if any(finding.slug == slug for _, finding in self._found):
            return
        mistake = catalogue.MISTAKES[slug]
        cure = catalogue.cure(slug, {**self.words, **words})
        place = where or self.patient.where()
        finding = Finding(
            slug, severity or mistake.severity, message, dict(evidence or {}), cure, place, mistake.lesson
        )
        self._found.append((rank, finding))

    def has(self, *slugs: str) -> bool:
        """Return whether one of the slugs has been found."""
        return any(finding.slug in slugs for _, finding in self._found)

    @property
    def wrong(self) -> bool:
        """Whether anything wrong has been found."""
        return any(finding.severity == "wrong" for _, finding in self._found)

    @property
    def words(self) -> dict[str, str]:
        """The user's own names, for cures."""
        return catalogue.words(self.patient)

    def take(self, other: Exam, *severities: Severity) -> None:
        """Take over findings of the examination of a Function inside."""
        for rank, finding in other._found:
            second = finding.slug in SECOND and self.has(*SECOND)
            if finding.severity in severities and not self.has(finding.slug) and not second:
                self._found.append((rank, finding))

    def restart_noise(self, seed: int) -> None:
        """Let all random numbers that the patient can reach start from a seed."""
        seed_all(seed, self.generators)

    def diagnosis(self) -> Diagnosis:
        """Return what was found, worst first."""
        order = {"wrong": 0, "fragile": 1, "style": 2}
        found = sorted(self._found, key=lambda pair: (order[pair[1].severity], pair[0]))
        return Diagnosis(
            self.patient.label, tuple(finding for _, finding in found), self.uses, self.unfinished, self.cut_short
        )

    # --- running the patient

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Run the user's code inside: what it raises becomes Failed, except the user's own Ctrl-C."""
        try:
            yield
        except (OutOfTime, Failed, GeneratorExit):
            raise
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt) and self.budget.interrupted:
                raise
            raise Failed(error) from error

    def run(
        self,
        points: Sequence[Array] | None = None,
        *,
        dtype: torch.dtype | None = None,
        tracked: bool | None = None,
        trace: bool = False,
        args: list[Any] | None = None,
        call: Callable[..., Any] | None = None,
    ) -> Run:
        """Call the patient on fresh inputs.

        Raises
        ------
        Failed
            If it raises.
        OutOfTime
            If it takes too long.
        """
        tracked = self.tracking if tracked is None else tracked
        args = self.inputs.fresh(points, dtype or self.dtype, tracked) if args is None else args
        leaves = self.inputs.leaves(args)
        handed = list(args)
        if self.by_clone and tracked:
            for k in self.inputs.wanted:
                handed[k] = args[k].clone()
        with self.watched(), torch.enable_grad(), self.trace if trace else contextlib.nullcontext():
            result = (call or self.patient.call)(*handed)
        return Run(args, leaves, result, tensors(result))

    def values(self, points: Sequence[Array], call: Callable[..., Any] | None = None) -> Array:
        """Return all real outputs at some points, as one flat array."""
        return flat(self.run(points, call=call).outputs)

    def vjp(
        self, run: Run, gs: Sequence[Tensor], *, create_graph: bool = False, retain_graph: bool | None = None
    ) -> list[Tensor | None]:
        """Return the gradients for some upstream gradients of the tracked outputs.

        Raises
        ------
        Failed, OutOfTime
            As for :meth:`run`.
        """
        if self.by_backward:
            with self.watched():
                torch.autograd.backward(run.tracked, [g.clone() for g in gs], retain_graph=True)
            gradients = [leaf.grad for leaf in run.leaves]
            for leaf in run.leaves:
                leaf.grad = None
            return gradients
        with self.watched():
            return list(
                torch.autograd.grad(
                    run.tracked,
                    run.leaves,
                    [g.clone() for g in gs],
                    create_graph=create_graph,
                    retain_graph=retain_graph,
                    allow_unused=True,
                )
            )

    def gradient(self, points: Sequence[Array], seed: int = 0) -> list[Array]:
        """Return the gradients at some points, for the upstream gradients of a seed; zeros where there is none."""
        run = self.run(points)
        return self.arrays(run, self.vjp(run, upstream(run.tracked, seed)))

    def arrays(self, run: Run, gradients: Sequence[Tensor | None]) -> list[Array]:
        """Return gradients as arrays, zeros where there is none."""
        return [
            np.zeros(x.shape, dtype=numbers(x).dtype) if g is None else numbers(g)
            for x, g in zip(run.leaves, gradients, strict=True)
        ]


def upstream(outputs: Sequence[Tensor], seed: int) -> list[Tensor]:
    """Return random upstream gradients, none of them near 0 or 1."""
    rng = np.random.default_rng(seed)
    gs = []
    for y in outputs:
        size = rng.uniform(1.3, 2.7, y.shape) * rng.choice([-1.0, 1.0], y.shape)
        number = size + (1j * rng.uniform(1.3, 2.7, y.shape) if y.is_complex() else 0)
        gs.append(torch.as_tensor(number).to(y.dtype).to(y.device))
    return gs


def tensors(result: Any) -> list[Tensor]:
    """Return the tensors of real or complex numbers in a result."""
    if isinstance(result, Tensor):
        return [result] if result.is_floating_point() or result.is_complex() else []
    inside = list(result.values()) if isinstance(result, Mapping) else result
    if isinstance(inside, (list, tuple)):
        return [tensor for each in inside for tensor in tensors(each)]
    return []


def flat(outputs: Sequence[Tensor]) -> Array:
    """Return all numbers of some tensors as one array."""
    return np.concatenate([numbers(y).reshape(-1) for y in outputs]) if outputs else np.zeros(0)


def place_of(error: BaseException) -> Where | None:
    """Return the innermost line of the user's own code that an error passed through."""
    places = [(frame.filename, frame.lineno or 0) for frame in traceback.extract_tb(error.__traceback__)]
    own = [place for place in places if not is_library(place[0])]
    return own[-1] if own else None
