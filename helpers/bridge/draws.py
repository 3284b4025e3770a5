"""The noise of an op: which evaluation has which draw, and how a draw is repeated.

A draw is a number, its *index*. From the seed and the index follow all factors of an evaluation, so whoever knows the
index can repeat them: a second derivative, a checkpoint that computes its forward again, a worker.
"""

import copy
import itertools
import os
import sys
from collections import OrderedDict
from typing import Any

import numpy as np

from ..noise import Array, Draws, Factor
from .torch_state import is_in_backward, random_mark

REMEMBERED = 2**16
Seed = int | np.random.SeedSequence | np.random.Generator


class NoiseSource:
    """Numbers the draws of one op, and turns a number into factors.

    Parameters
    ----------
    factor : UniformFactor, GaussianFactor or the like
    seed : int, numpy.random.SeedSequence or numpy.random.Generator
    draws : {"independent", "evaluation", "step"}
        Value and gradient of an evaluation have a draw each; share one; or share one with all evaluations until
        :meth:`advance`.
    """

    def __init__(self, factor: Factor, seed: Seed, draws: Draws) -> None:
        self.factor, self.draws = factor, draws
        if isinstance(seed, np.random.Generator):
            seed = np.random.SeedSequence([int(word) for word in seed.integers(2**32, size=4)])
        self._root = seed if isinstance(seed, np.random.SeedSequence) else np.random.SeedSequence(seed)
        self._next = itertools.count()
        self._step = next(self._next)
        self._indices_of: OrderedDict[tuple[int, bytes], list[int]] = OrderedDict()
        self._repeated: set[tuple[int, bytes]] = set()
        self._home: int | None = os.getpid()

    def index(self, inputs: bytes = b"") -> int:
        """Return the index of the draw for the evaluation that begins now.

        A checkpoint gives torch's random state back before it computes a forward again. So we take one number from it
        as a mark of where we are: the same mark and inputs inside a backward pass mean the same evaluation, and the
        same draw.

        Raises
        ------
        RuntimeError
            Inside a backward pass, if the evaluation that is repeated is not known; and in a process to which the op
            was copied, where it would repeat the draws of its twin.
        """
        self._check_process()
        mark = (random_mark(), inputs)
        if is_in_backward():
            known = self._indices_of.get(mark, [])
            if len(known) != 1:
                trouble = "could be one of several, made with one seed" if known else "is not known"
                raise RuntimeError(
                    f"A noisy function was computed inside a backward pass, and its draw {trouble}. A checkpoint "
                    "must keep torch's random state (preserve_rng_state=True, and not inside torch.compile), and the "
                    "seed must be set once, not before each evaluation."
                )
            self._repeated.add(mark)
            return known[0]
        index = self._step if self.draws == "step" else next(self._next)
        known = self._indices_of.setdefault(mark, [])
        if mark in self._repeated:  # that evaluation is over, and this is the same program again
            self._repeated.discard(mark)
            known.clear()
        if index not in known:
            known[:] = [*known[-1:], index]
        if len(self._indices_of) > REMEMBERED:
            self._repeated.discard(self._indices_of.popitem(last=False)[0])
        return index

    def advance(self) -> None:
        """Let the next evaluation begin a new draw, with ``draws="step"``."""
        self._step = next(self._next)

    def factors(self, index: int, shape: tuple[int, ...]) -> tuple[Array, Array]:
        """Return the factors of the value and of the derivatives, one for each sample."""
        key = (*self._root.spawn_key, 0, index, *self._worker())
        rng = np.random.default_rng(np.random.SeedSequence(self._root.entropy, spawn_key=key))
        value = np.asarray(self.factor.draw(rng, shape))
        return value, np.asarray(self.factor.draw(rng, shape)) if self.draws == "independent" else value

    def spawn(self, count: int) -> list["NoiseSource"]:
        """Return sources with draws of their own, which may be sent to other processes."""
        sources = []
        for _ in range(count):
            source = copy.copy(self)
            key = (*self._root.spawn_key, 1, next(self._next))
            source._root = np.random.SeedSequence(self._root.entropy, spawn_key=key)
            source._next, source._indices_of, source._home = itertools.count(), OrderedDict(), None
            source._repeated = set()
            source._step = next(source._next)
            sources.append(source)
        return sources

    def _worker(self) -> tuple[int, ...]:
        """Return the seed of torch's DataLoader worker that this is: it is another one in each epoch."""
        data = sys.modules.get("torch.utils.data")
        worker = data.get_worker_info() if data and self._home is None else None
        return (worker.seed,) if worker else ()

    def _check_process(self) -> None:
        if self._home is not None and self._home != os.getpid():
            raise RuntimeError(
                "A noisy op was copied into another process, where it would repeat the draws of its twin. "
                "Send each process one op from op.spawn(count)."
            )

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_next": next(copy.copy(self._next)), "_indices_of": OrderedDict(), "_repeated": set()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._next = itertools.count(state["_next"])


def noise_source(noise: Factor | None, rng: Seed | None, draws: Draws) -> NoiseSource | None:
    """Return the source for the options of an op, None if it has no noise.

    Raises
    ------
    TypeError
        If there is noise without a seed, a seed without noise, or if either is not of its kind.
    ValueError
        If ``draws`` is none of the three.
    """
    if noise is None:
        if rng is not None:
            raise TypeError("rng= is the seed of the noise, and there is no noise=. Add noise=UniformFactor(0.5).")
        return None
    if isinstance(noise, type) or not callable(getattr(noise, "draw", None)):
        raise TypeError(
            f"noise must be a factor with a draw method, such as UniformFactor(0.5); got {noise!r}. Added noise, as "
            "GaussianTerm draws it, goes with a NoisyPair."
        )
    if draws not in ("independent", "evaluation", "step"):
        raise ValueError(f"draws must be 'independent', 'evaluation' or 'step'; got {draws!r}.")
    if not isinstance(rng, (int, np.integer, np.random.SeedSequence, np.random.Generator)) or isinstance(rng, bool):
        raise TypeError(
            f"rng must be an int, a numpy.random.SeedSequence or a numpy.random.Generator, so that others can repeat "
            f"your result; got {type(rng).__name__}."
        )
    return NoiseSource(noise, rng, draws)
