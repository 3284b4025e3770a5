"""Whether there is noise, whether value and gradient share a draw, and whether the gradient is right in the mean."""

from __future__ import annotations

import ast
import contextlib
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from . import reading
from .exam import Exam, Failed, upstream
from .inputs import Array, beside, moved
from .points import input_names, spread
from .probes import Probe, directions
from .wrongness import entry_name

SAMPLES = 1000
FEWEST = 10
CONFIDENCE = 0.999
STEP = 1e-4
SHARP = 0.1  # relative; sampling ends when a fault of this size would have been seen
ALIKE = 1e-6  # relative; two values that differ less are called rough, not noisy


@dataclass(frozen=True)
class Noise:
    """What repeated calls have shown."""

    value: bool
    gradient: bool
    repeatable: bool
    backward_draws: bool

    @property
    def any(self) -> bool:
        """Whether anything differs from call to call."""
        return self.value or self.gradient


def listen(exam: Exam) -> Noise:
    """Call the patient several times at one point, and say what differs."""
    points = exam.inputs.points
    one, two = exam.values(points), exam.values(points)
    value = _differ(one, two)
    gradients = [exam.gradient(points) for _ in range(2)]
    gradient = any(_differ(a, b) for a, b in zip(*gradients, strict=True))
    if not value and not gradient:
        return Noise(False, False, True, False)
    again = []
    for _ in range(2):
        exam.restart_noise(1)
        again.append(exam.values(points))
    run = exam.run(points)
    gs = upstream(run.tracked, 0)
    twice = []
    with contextlib.suppress(Failed):
        for _ in range(2):
            twice.append(exam.arrays(run, exam.vjp(run, gs, retain_graph=True)))
    draws = len(twice) == 2 and any(_differ(a, b) for a, b in zip(*twice, strict=True))
    return Noise(value, gradient, not _differ(*again), draws)


def _differ(one: Array, two: Array) -> bool:
    size = max(np.abs(one).max(initial=0.0), np.abs(two).max(initial=0.0))
    return one.shape != two.shape or bool(np.any(np.abs(one - two) > ALIKE * size + 1e-300))


def name_noise(exam: Exam, noise: Noise) -> None:
    """Say that the patient is noisy, and where value and gradient come from different draws."""
    if noise.backward_draws:
        if _uses_checkpoint(exam):
            exam.add(
                "checkpoint-noise",
                "A checkpoint runs forward again in backward, with another draw: value and gradient belong to "
                "different functions. It restores torch's random numbers only.",
                severity="wrong",
                where=_checkpoint_place(exam),
                rank=-1,
            )
        else:
            exam.add(
                "independent-noise",
                "backward draws noise of its own: two backward passes through one graph give two gradients, and "
                "neither belongs to the value.",
                severity="style" if exam.noise else "fragile",
                where=exam.patient.place("backward"),
            )
    elif not exam.noise:
        exam.add(
            "gradcheck-noise",
            "The function is noisy: two calls at one point differ. gradcheck would say 'not reentrant' or 'mismatch', "
            "whether the gradient is right or not.",
            where=exam.patient.place("forward"),
        )


def _uses_checkpoint(exam: Exam) -> bool:
    return _checkpoint_place(exam) is not None


def _checkpoint_place(exam: Exam) -> Any:
    for code in reading.codes(*exam.patient.roots):
        for name, node in code.calls():
            if "checkpoint" in name.rpartition(".")[2]:
                return code.place(node)
    return None


def examine_the_mean(exam: Exam, noise: Noise) -> None:
    """Compare the mean gradient with the slope of the mean value, by t values."""
    seconds = exam.budget.left * 0.45
    points = [exam.inputs.points, beside(exam.inputs.points, True, 0.05, np.random.default_rng(2))]
    tested = 0
    for at in points:
        try:
            sample = _sample(exam, at, noise, seconds / 2)
        except Failed as failed:
            if tested == 0:
                exam.unfinished = f"it raised {failed.text} on a repeated call"
            continue
        if sample is None:
            continue
        tested += 1
        _judge(exam, noise, *sample)
        exam.unfinished = ""
    if not tested and exam.unfinished.startswith("its gradient"):
        exam.unfinished = "there was no time to average the noise"


def _sample(exam: Exam, at: list[Array], noise: Noise, seconds: float) -> tuple[list[Probe], Array, Array] | None:
    """Return samples of what the gradient says along some probes, and of the slopes: (samples, probes) each."""
    rng = np.random.default_rng(5)
    probes, _ = directions(at, rng, most=10, some=2, random=2)
    step = STEP if noise.repeatable else 0.1
    end = time.monotonic() + seconds
    got: list[list[float]] = []
    slopes: list[list[float]] = []
    for k in range(SAMPLES if noise.repeatable else 10 * SAMPLES):
        if time.monotonic() > end or (k % 20 == 0 and k and _is_decided(np.array(got), np.array(slopes))):
            break
        gradients = _seeded_gradient(exam, at, 1000 + k, noise)
        g = gradients[1]
        got.append([np.sum(np.real(np.conj(gradients[0][p.which]) * p.direction)) for p in probes])
        if exam.reference is not None:
            slopes.append(_slope_of_reference(exam, at, probes, g))
        else:
            slopes.append([_slope(exam, at, probe, g, step, 1000 + k, noise) for probe in probes])
    if len(got) < FEWEST:
        return None
    return probes, np.array(got), np.array(slopes)


def _is_decided(got: Array, slopes: Array) -> bool:
    """Return whether more samples would not change the verdict: t is far from the limit, and the mean is sharp."""
    apart = got - slopes
    error = apart.std(0, ddof=1) / np.sqrt(len(got)) + 1e-300
    size = np.abs(slopes.mean(0)).max(initial=0.0)
    t = np.abs(apart.mean(0)) / error
    return bool(np.all(4 * error <= SHARP * size) and np.all((t < 2.5) | (t > 8) | (error < 1e-9 * size)))


def _seeded_gradient(exam: Exam, at: list[Array], seed: int, noise: Noise) -> tuple[list[Array], Array]:
    if noise.repeatable:
        exam.restart_noise(seed)
    run = exam.run(at)
    gs = upstream(run.tracked, 0)
    return exam.arrays(run, exam.vjp(run, gs)), spread(run, gs)


def _slope(exam: Exam, at: list[Array], probe: Probe, g: Array, step: float, seed: int, noise: Noise) -> float:
    direction = [probe.direction if k == probe.which else np.zeros_like(x) for k, x in enumerate(at)]
    values = []
    for h in (step, -step):
        if noise.repeatable:
            exam.restart_noise(seed)
        values.append(float(np.sum(np.real(np.conj(g) * exam.values(moved(at, h, direction))))))
    return (values[0] - values[1]) / (2 * step)


def _slope_of_reference(exam: Exam, at: list[Array], probes: list[Probe], g: Array) -> list[float]:
    run = exam.run(at, call=exam.reference)
    flat = torch.cat([y.reshape(-1) for y in run.outputs])
    total = torch.sum(torch.real(flat * torch.as_tensor(np.conj(g)).to(flat.dtype)))
    gradients = exam.arrays(run, list(torch.autograd.grad(total, run.leaves, allow_unused=True)))
    return [float(np.sum(np.real(np.conj(gradients[p.which]) * p.direction))) for p in probes]


def _judge(exam: Exam, noise: Noise, probes: list[Probe], got: Array, slopes: Array) -> None:
    count = len(got)
    apart = got - slopes
    size = np.abs(slopes.mean(0)).max(initial=0.0)
    spread = apart.std(0, ddof=1) / np.sqrt(count)
    shared = bool(np.all(np.abs(apart) <= 1e-4 * np.maximum(np.abs(slopes), size) + 1e-9))
    with np.errstate(all="ignore"):
        t = np.where(np.abs(apart.mean(0)) <= 1e-6 * size, 0.0, apart.mean(0) / spread)
    import scipy.stats  # type: ignore[import-untyped]  # a second of imports, for noise only

    limit = float(scipy.stats.t.ppf(1 - (1 - CONFIDENCE) / (2 * len(probes)), count - 1))
    k = int(np.argmax(np.abs(t)))
    told = f"largest |t| {abs(t[k]):.2f}, limit {limit:.2f} at confidence {CONFIDENCE}, {count} samples"
    exam.uses["gradient in the mean"] = ("right: " if abs(t[k]) <= limit else "wrong: ") + told
    if noise.repeatable:
        apart_because = "come from different draws" if noise.backward_draws else "do not share a draw"
        exam.uses["value and gradient"] = "share a draw" if shared else apart_because
    detectable = limit * spread.max() / size if size else np.inf
    if abs(t[k]) <= limit or abs(apart.mean(0)[k]) < 1e-3 * size:
        smallest = "below 0.01" if detectable < 1e-4 else f"of {100 * detectable:.2g}"
        exam.uses["gradient in the mean"] += f"; a fault {smallest} % would have been seen"
        return
    unit = np.abs(probes[k].direction).max() if probes[k].entry is not None else 1.0
    exam.add(
        "gradient-wrong",
        f"The mean of the gradient is not the gradient of the mean: {told}.",
        evidence={
            "got in the mean": got.mean(0)[k] / unit,
            "expected in the mean": slopes.mean(0)[k] / unit,
            "standard error": spread[k] / unit,
            "t": t[k],
            "entry": entry_name(probes[k], input_names(exam)),
        },
        where=exam.patient.place("backward"),
        hint="helpers.check_noisy_gradient(value, gradient, {x})".replace("{x}", exam.words.get("x", "x")),
    )


_FORKED = (
    "Worker processes are started, and the noise comes from {}. A forked worker inherits that state, so all of them "
    "draw the same numbers."
)


def read_about_noise(exam: Exam) -> None:
    """Find seeds that do not reach the noise, and noise that forked workers share, by reading the code."""
    codes = reading.codes(*exam.patient.roots)
    workers = _first(codes, reading.starts_workers)
    if workers and exam.generators:
        exam.add("forked-noise", _FORKED.format("a generator that lives in the parent process"), where=workers)
    drawing = next(((code, node) for code in codes if (node := reading.draws_from_numpy(code))), None)
    if drawing is None:
        return
    code, node = drawing
    if workers:
        exam.add("forked-noise", _FORKED.format("np.random's global state"), where=workers)
    seed = _first(codes, _torch_seed)
    exam.add(
        "wrong-seed",
        "torch.manual_seed is called, and the noise comes from NumPy's global state: the seed does not reach it."
        if seed
        else "The noise comes from np.random's global state: torch.manual_seed does not repeat it, any other code "
        "moves it, and forked workers share it.",
        severity="wrong" if seed else "style",
        where=seed or code.place(node),
        rank=0 if seed else 1,
    )


def _first(codes: list[reading.Code], find: Any) -> Any:
    return next((code.place(node) for code in codes if (node := find(code))), None)


def _torch_seed(code: reading.Code) -> ast.AST | None:
    seeds = [
        node for name, node in code.calls() if name in ("torch.manual_seed", "manual_seed", "torch.random.manual_seed")
    ]
    numpy_seeds = [name for name, _ in code.calls() if name.endswith("random.seed")]
    return seeds[0] if seeds and not numpy_seeds else None
