"""Noise for a value and its gradient, from explicit random generators.

The question's noise multiplies: ``f(x) * U(0.5, 1.5)`` and ``jac(x) * U(0.5, 1.5)``. Its mean is 1, so the noisy
gradient is right on average, and both vanish where the noiseless ones do.

Noise may also be *added*. :class:`GaussianTerm` adds a random linear function: ``f(x) + sd * ξ @ x``, with the
gradient ``jac(x) + sd * ξ``. It is right on average too, and does not vanish at the optimum.

A :class:`NoisyPair` also says *which draws belong together*, and that matters as much as their size:

============== =========================================================================================
``draws``      meaning
============== =========================================================================================
"independent"  a fresh draw for every call: value and gradient disagree (the question's case)
"evaluation"   the gradient uses the draw of the value computed before it: they agree at each evaluation
"step"         one draw for all calls until ``advance()``: value and gradient agree over a whole step
============== =========================================================================================
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
Draws = Literal["independent", "evaluation", "step"]

CURE = "A function f of one point takes many as lambda x: np.apply_along_axis(f, -1, x)."


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


class Term(Protocol):
    """A random slope with mean 0, added to a gradient. Any object with such a ``slope`` serves."""

    def slope(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        """Return slopes of the given shape."""


@dataclass(frozen=True)
class GaussianTerm:
    """Add a random linear function, sd ξ @ x with ξ from N(0, 1), to the value, and its slope sd ξ to the gradient.

    So with one ξ for both, the noisy gradient is the gradient of the noisy value. Its spread is the same everywhere.

    Parameters
    ----------
    sd : float, 0 or more
        The standard deviation of each entry of the gradient. That of the value is sd times the length of x.

    Raises
    ------
    ValueError
        If ``sd`` is negative, NaN or Inf.

    Examples
    --------
    >>> noisy = NoisyPair(lambda x: x @ x, lambda x: 2 * x, GaussianTerm(0.1), seed=0, draws="evaluation")
    >>> x = np.array([1.0, 2.0])
    >>> added = noisy.value(x) - 5.0
    >>> np.allclose(added, (noisy.gradient(x) - np.array([2.0, 4.0])) @ x)
    True
    """

    sd: float = 0.1

    def __post_init__(self) -> None:
        if not 0 <= self.sd < np.inf:
            raise ValueError(f"sd must be a finite number, 0 or more; got {self.sd}.")

    def slope(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        """Return slopes of the given shape, that of the points."""
        return np.asarray(rng.normal(0.0, self.sd, shape))


class NoisyPair:
    """A value and its gradient, with noise that multiplies them or is added to them.

    A pair sent to several workers repeats its draws: each gets a copy that goes on where the pair stood. Send each one
    a pair of its own, from :meth:`spawn`.

    Parameters
    ----------
    value : callable, x of shape (..., d) -> array of shape (...)
        The noiseless function. The first batch is also used to see that it takes many points.
    gradient : callable, x of shape (..., d) -> array of shape (..., d)
        Its gradient.
    noise : UniformFactor, GaussianFactor, GaussianTerm or the like
        The noise. Each point in a batch has a draw of its own. All entries of one gradient share a factor; of a term
        each has its own slope.
    seed : int, numpy.random.SeedSequence or numpy.random.Generator
        Where the draws come from. The same seed gives the same draws, also in another process.
    draws : {"independent", "evaluation", "step"}
        Which calls share a draw; the table at the top of this module says what each means.

    Raises
    ------
    ValueError
        If ``draws`` is none of the three; or, with ``draws="evaluation"``, if a gradient is asked for before a value,
        or for another batch shape than the value had; or if ``value`` or ``gradient`` gives another shape than above,
        or for a batch something else than for its points one by one.
    TypeError
        If ``seed`` is none of the three: a forgotten seed makes a result that nobody can repeat. Or if ``noise`` has
        neither ``draw`` nor ``slope``, or is a class.

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
        noise: Factor | Term,
        seed: int | np.random.SeedSequence | np.random.Generator,
        draws: Draws = "independent",
    ) -> None:
        if draws not in get_args(Draws):
            raise ValueError(f"draws must be one of {', '.join(map(repr, get_args(Draws)))}; got {draws!r}.")
        if isinstance(noise, type):
            raise TypeError(f"noise must be an object, not a class: {noise.__name__}(...), not {noise.__name__}.")
        draw: Any = getattr(noise, "draw", None)
        slope: Any = getattr(noise, "slope", None)
        if not callable(draw) and not callable(slope):
            raise TypeError(
                f"noise must have a draw method, as UniformFactor(0.5) has; got {type(noise).__name__}. "
                "Noise to be added has a method slope in its place, as GaussianTerm(0.1) has."
            )
        kinds = (int, np.integer, np.random.SeedSequence, np.random.Generator)
        if not isinstance(seed, kinds) or isinstance(seed, bool):
            raise TypeError(
                f"seed must be an int, a numpy.random.SeedSequence or a numpy.random.Generator; got "
                f"{type(seed).__name__}."
            )
        self._value, self._gradient, self._draws = value, gradient, draws
        self._multiplies = callable(draw)
        self._fresh: Callable[[np.random.Generator, tuple[int, ...]], Array] = draw if callable(draw) else slope
        self._rng = np.random.default_rng(seed)
        self._kept: Array | None = None
        self._seen_a_batch: set[str] = set()

    def value(self, x: ArrayLike) -> Array:
        """Return the noisy value, of shape (...)."""
        x = np.asarray(x, dtype=np.float64)
        exact = self._exact("value", self._value, x)
        if self._draws == "evaluation":
            self.advance()
        if self._multiplies:
            return exact * self._draw(exact.shape)
        noisy: Array = exact + np.sum(self._draw(x.shape) * x, axis=-1)
        return noisy

    def gradient(self, x: ArrayLike) -> Array:
        """Return the noisy gradient, of the shape of ``x``."""
        exact = self._exact("gradient", self._gradient, np.asarray(x, dtype=np.float64))
        if self._draws == "evaluation" and self._kept is None:
            raise ValueError('With draws="evaluation" the gradient uses the draw of the value: call value(x) first.')
        if self._multiplies:
            return exact * self._draw(exact.shape[:-1])[..., np.newaxis]
        return exact + self._draw(exact.shape)

    def advance(self) -> None:
        """Forget the kept draw: the next call makes a new one."""
        self._kept = None

    def spawn(self, count: int) -> list["NoisyPair"]:
        """Return pairs like this one with independent draws, such as one for each worker.

        The draws of this pair stay as they are; each call of ``spawn`` gives other pairs.

        Examples
        --------
        >>> noisy = NoisyPair(lambda x: x @ x, lambda x: 2 * x, UniformFactor(0.5), seed=0)
        >>> one, two = noisy.spawn(2)
        >>> x = np.array([1.0, 2.0])
        >>> bool(one.value(x) == two.value(x))
        False
        """
        pairs = []
        for rng in self._rng.spawn(count):
            pair = copy.copy(self)
            pair._rng, pair._kept, pair._seen_a_batch = rng, None, set(self._seen_a_batch)
            pairs.append(pair)
        return pairs

    def _exact(self, name: str, function: Callable[[Array], ArrayLike], x: Array) -> Array:
        """Return what the noiseless function gives; refuse one that takes only one point where there are many."""
        exact = np.asarray(function(x))
        wanted = x.shape[:-1] if name == "value" else x.shape
        if x.ndim == 0:
            raise ValueError(f"x must be a point or an array of points, of shape (..., d); got the number {x}.")
        if exact.shape != wanted:
            raise ValueError(
                f"For x of shape {x.shape}, {name} must give shape {wanted}; it gave {exact.shape}. {CURE}"
            )
        if np.prod(x.shape[:-1]) > 1:
            self._check_first_point(name, function, x, exact)
        return exact

    def _check_first_point(self, name: str, function: Callable[[Array], ArrayLike], x: Array, exact: Array) -> None:
        if name in self._seen_a_batch:
            return
        first = x[(slice(0, 1),) * (x.ndim - 1)]
        refusal = (
            f"{name} gives the first point of a batch of shape {x.shape} something else than that point alone. {CURE}"
        )
        try:
            alone = np.asarray(function(first.copy()))
        except Exception as error:
            raise ValueError(refusal) from error
        among = exact[(slice(0, 1),) * (x.ndim - 1)]
        little = 1e-6 * np.max(np.abs(exact[np.isfinite(exact)]), initial=0.0)
        if alone.shape != among.shape or not np.allclose(alone, among, rtol=1e-5, atol=little, equal_nan=True):
            raise ValueError(refusal)
        self._seen_a_batch.add(name)

    def _draw(self, shape: tuple[int, ...]) -> Array:
        if self._draws == "independent":
            return self._fresh(self._rng, shape)
        if self._kept is None:
            self._kept = self._fresh(self._rng, shape)
        if self._kept.shape != shape:
            raise ValueError(
                f"The kept draw is for a batch of shape {self._kept.shape}, and this call needs {shape}. "
                "Call advance() before you change the batch."
            )
        return self._kept
