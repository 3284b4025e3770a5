"""Noise for a value and its gradient, from explicit random generators.

The question's noise multiplies: ``f(x) * U(0.5, 1.5)`` and ``jac(x) * U(0.5, 1.5)``. Its mean is 1, so the noisy
gradient is right on average, and both vanish where the noiseless ones do.

A :class:`NoisyPair` also says *which draws belong together*, and that matters as much as their size:

============== =========================================================================================
``draws``      meaning
============== =========================================================================================
"independent"  a fresh draw for every call: value and gradient disagree (the question's case)
"evaluation"   the gradient uses the draw of the value computed before it: they agree at each evaluation
"step"         one draw for all calls until ``advance()``: value and gradient agree over a whole step
============== =========================================================================================
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
Draws = Literal["independent", "evaluation", "step"]


class Factor(Protocol):
    """A random factor with mean 1. Any object with such a ``draw`` serves."""

    def draw(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        """Return factors of the given shape."""


@dataclass(frozen=True)
class UniformFactor:
    """Multiply by a draw from U(1 - width, 1 + width).

    Parameters
    ----------
    width : float, from 0 to 1
        0 is no noise; 0.5 is the question's U(0.5, 1.5).

    Raises
    ------
    ValueError
        If ``width`` lies outside 0 to 1: the factor could change the sign of the gradient.

    Examples
    --------
    >>> factor = UniformFactor(0.5).draw(np.random.default_rng(0), (1000,))
    >>> bool(0.5 <= factor.min() and factor.max() < 1.5)
    True
    """

    width: float = 0.5

    def __post_init__(self) -> None:
        if not 0 <= self.width <= 1:
            raise ValueError(f"width must lie between 0 and 1; got {self.width}.")

    def draw(self, rng: np.random.Generator, shape: tuple[int, ...] = ()) -> Array:
        """Return factors of the given shape."""
        return np.asarray(rng.uniform(1 - self.width, 1 + self.width, shape))


@dataclass(frozen=True)
class GaussianFactor:
    """Multiply by a draw from N(1, sd²).

    Parameters
    ----------
    sd : float, 0 or more
        The standard deviation. From about 0.3 on, some factors are negative and turn the gradient round.

    Raises
    ------
    ValueError
        If ``sd`` is negative, NaN or Inf.

    Examples
    --------
    >>> float(GaussianFactor(0.0).draw(np.random.default_rng(0)))
    1.0
    """

    sd: float = 0.25

    def __post_init__(self) -> None:
        if not 0 <= self.sd < np.inf:
            raise ValueError(f"sd must be a finite number, 0 or more; got {self.sd}.")

    def draw(self, rng: np.random.Generator, shape: tuple[int, ...] = ()) -> Array:
        """Return factors of the given shape."""
        return np.asarray(rng.normal(1.0, self.sd, shape))


class NoisyPair:
    """A value and its gradient, each multiplied by noise.

    Parameters
    ----------
    value : callable, x of shape (..., d) -> array of shape (...)
        The noiseless function.
    gradient : callable, x of shape (..., d) -> array of shape (..., d)
        Its gradient.
    factor : UniformFactor, GaussianFactor or the like
        The noise. Each point in a batch has a draw of its own; all entries of one gradient share theirs.
    seed : int or numpy.random.Generator
        Where the draws come from. The same seed gives the same draws, also in another process.
    draws : {"independent", "evaluation", "step"}
        Which calls share a draw; the table at the top of this module says what each means.

    Raises
    ------
    ValueError
        If ``draws`` is none of the three; or, with ``draws="evaluation"``, if a gradient is asked for before a value,
        or for another batch shape than the value had.
    TypeError
        If ``seed`` is neither an int nor a Generator: a forgotten seed makes a result that nobody can repeat.

    Examples
    --------
    >>> noisy = NoisyPair(lambda x: x @ x, lambda x: 2 * x, UniformFactor(0.5), seed=0, draws="evaluation")
    >>> x = np.array([1.0, 2.0])
    >>> factor = noisy.value(x) / 5.0
    >>> np.allclose(noisy.gradient(x), factor * np.array([2.0, 4.0]))
    True
    """

    def __init__(
        self,
        value: Callable[[Array], ArrayLike],
        gradient: Callable[[Array], ArrayLike],
        factor: Factor,
        seed: int | np.random.Generator,
        draws: Draws = "independent",
    ) -> None:
        if draws not in get_args(Draws):
            raise ValueError(f"draws must be one of {', '.join(map(repr, get_args(Draws)))}; got {draws!r}.")
        if not isinstance(seed, (int, np.integer, np.random.Generator)) or isinstance(seed, bool):
            raise TypeError(f"seed must be an int or a numpy.random.Generator; got {type(seed).__name__}.")
        self._value, self._gradient, self._factor, self._draws = value, gradient, factor, draws
        self._rng = np.random.default_rng(seed)
        self._kept: Array | None = None

    def value(self, x: ArrayLike) -> Array:
        """Return the noisy value, of shape (...)."""
        exact = np.asarray(self._value(np.asarray(x, dtype=np.float64)))
        if self._draws == "evaluation":
            self.advance()
        return exact * self._draw(exact.shape)

    def gradient(self, x: ArrayLike) -> Array:
        """Return the noisy gradient, of the shape of ``x``."""
        exact = np.asarray(self._gradient(np.asarray(x, dtype=np.float64)))
        if self._draws == "evaluation" and self._kept is None:
            raise ValueError('With draws="evaluation" the gradient uses the draw of the value: call value(x) first.')
        return exact * self._draw(exact.shape[:-1])[..., np.newaxis]

    def advance(self) -> None:
        """Forget the kept draw: the next call makes a new one."""
        self._kept = None

    def _draw(self, shape: tuple[int, ...]) -> Array:
        if self._draws == "independent":
            return self._factor.draw(self._rng, shape)
        if self._kept is None:
            self._kept = self._factor.draw(self._rng, shape)
        if self._kept.shape != shape:
            raise ValueError(
                f"The kept draw is for a batch of shape {self._kept.shape}, and this call needs {shape}. "
                "Call advance() before you change the batch."
            )
        return self._kept
