"""The dot-product test: it tells whether one linear map is the adjoint of another."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from operator import matmul
from typing import Any, NamedTuple

import numpy as np

from .problem import Array, is_tensor, to_array
from .report import Report, Verdict, Words, below, counted, number

TOLERANCE = {8: 1e-9, 4: 1e-4}
Map = Callable[[Any], Any]


@dataclass(frozen=True, repr=False, eq=False)
class DotProductTest(Report):
    """What :func:`dot_product_test` found; true if the second map is the adjoint of the first.

    Attributes
    ----------
    verdict, sentence, notes
        See :class:`Report`.
    guess : str or None
        The kind of the fault, if one fits.
    forward, adjoint : arrays, one number for each trial
        <A x, y> and <x, Aᵀ y>.
    errors : array
        Their relative differences.
    """

    guess: str | None
    forward: Array
    adjoint: Array
    errors: Array

    def _table(self) -> Words:
        if not len(self.errors):
            return []
        rows = [("trial", "<A x, y>", "<x, Aᵀ y>", "relative error below")]
        for k, (left, right, error) in enumerate(zip(self.forward, self.adjoint, self.errors, strict=True)):
            rows.append((str(k), _told(left), _told(right), below(max(float(error), 2e-16))))
        return rows


def dot_product_test(
    forward: Any,
    adjoint: Map | None = None,
    x: Any = None,
    y: Any = None,
    *,
    trials: int = 3,
    rtol: float | None = None,
    seed: int = 0,
) -> DotProductTest:
    """Say whether <A x, y> = <x, Aᵀ y> for random x and y, as it is only for the adjoint Aᵀ of a linear map A.

    For complex numbers the adjoint is the conjugate transpose, and <a, b> is the sum of conj(b) · a. If only one side
    is complex, the real parts are compared.

    Parameters
    ----------
    forward : callable, or scipy.sparse.linalg.LinearOperator, or matrix
        The map A, from arrays like ``x`` to arrays like ``y``. It must be linear, and this is looked at first.
    adjoint : callable, optional
        The map Aᵀ, from arrays like ``y`` to arrays like ``x``. A LinearOperator or a matrix brings its own.
    x : array, tensor or shape
        An example of what A takes: its shape, dtype and kind count, not its numbers. A shape, such as ``(3, 4)`` or
        ``5``, means float64 arrays.
    y : array, tensor or shape, optional
        The same for what A gives; by default what it gives for ``x``.
    trials : int
        How many pairs of random vectors.
    rtol : float, optional
        What relative difference is still right; by default 1e-9, and 1e-4 in single precision.
    seed : int
        Of the random vectors.

    Returns
    -------
    DotProductTest

    Raises
    ------
    TypeError, ValueError
        If an argument does not fit, or if one of the maps returns another shape, or numbers that are not finite.

    Examples
    --------
    >>> A = np.array([[1.0, 2.0, 0.0], [0.0, 1.0, 3.0]])
    >>> bool(dot_product_test(lambda x: A @ x, lambda y: A.T @ y, x=(3,)))
    True
    >>> dot_product_test(np.cumsum, np.cumsum, x=4, trials=1)
    Not the adjoint: <A x, y> and <x, Aᵀ y> differ in 1 of 1 trial.
      trial  <A x, y>  <x, Aᵀ y>  relative error below
      0      -1.27747    0.84323                   1e1
    A guess: adjoint is forward once more, and A is not symmetric. Is it not transposed?
    """
    A, B, x, y = _maps(forward, adjoint, x, y)
    if trials < 1:
        raise ValueError(f"trials must be 1 or more; got {trials}.")
    rng = np.random.default_rng(seed)
    source = _space("x", x)
    target = _space("y", A(source.draw(rng)) if y is None else y)
    tested = _Tested(A, B, source, target)
    single = max(np.finfo(space.dtype).eps for space in (source, target)) > 1e-10
    tolerance = TOLERANCE[4 if single else 8] if rtol is None else rtol
    if problem := tested.nonlinear(rng, tolerance):
        nothing = np.zeros(0)
        return DotProductTest("undecided", problem, (), None, nothing, nothing, nothing)
    return _judge([tested.trial(rng) for _ in range(trials)], tolerance)


class _Trial(NamedTuple):
    left: complex
    right: complex
    rounding: float
    other: dict[str, complex]


class _Space(NamedTuple):
    """Arrays of one shape and dtype, in NumPy or in torch."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    example: Any

    def draw(self, rng: np.random.Generator) -> Any:
        drawn = rng.standard_normal(self.shape)
        if self.dtype.kind == "c":
            drawn = drawn + 1j * rng.standard_normal(self.shape)
        return self.made(drawn)

    def made(self, array: Array) -> Any:
        array = np.asarray(array).astype(self.dtype)
        if is_tensor(self.example):
            import torch

            return torch.as_tensor(array, device=self.example.device)
        return array


class _Tested(NamedTuple):
    A: Map
    B: Map
    source: _Space
    target: _Space

    def forward(self, x: Array) -> Array:
        return _result("forward", self.A(self.source.made(x)), self.target)

    def adjoint(self, y: Array) -> Array:
        return _result("adjoint", self.B(self.target.made(y)), self.source)

    def nonlinear(self, rng: np.random.Generator, tolerance: float) -> str | None:
        """Return a sentence if one of the maps is not linear."""
        for name, act, space in (("forward", self.forward, self.source), ("adjoint", self.adjoint, self.target)):
            one, two = to_array(space.draw(rng)), to_array(space.draw(rng))
            apart, together = act(one) + 2 * act(two), act(one + 2 * two)
            gap = float(np.linalg.norm(together - apart)) / max(float(np.linalg.norm(apart)), 1e-300)
            if gap <= 10 * tolerance:
                continue
            if np.linalg.norm(act(one) - act(one)) > tolerance * np.linalg.norm(act(one)):
                return f"Not decided: {name} is noisy. Two calls with the same argument differ."
            told = f"Not decided: {name} is not linear, and only a linear map has an adjoint."
            if np.linalg.norm(act(0 * one)) > tolerance * np.linalg.norm(act(one)):
                return f"{told} It does not map 0 to 0: subtract {name}(0)."
            return (
                f"{told} A(x₁ + 2 x₂) differs from A x₁ + 2 A x₂ by {number(gap)} of its size. Test its "
                "derivative at a fixed point instead."
            )
        return None

    def trial(self, rng: np.random.Generator) -> _Trial:
        x, y = to_array(self.source.draw(rng)), to_array(self.target.draw(rng))
        Ax, By = self.forward(x), self.adjoint(y)
        mixed = (
            "c" not in (self.source.dtype.kind, self.target.dtype.kind)
            or self.source.dtype.kind != self.target.dtype.kind
        )
        inner = (lambda a, b: complex(np.vdot(b, a)).real) if mixed else (lambda a, b: complex(np.vdot(b, a)))
        size = max(np.linalg.norm(Ax) * np.linalg.norm(y), np.linalg.norm(x) * np.linalg.norm(By))
        other = {}
        if self.source.shape == self.target.shape:
            other["transposed"] = inner(x, self.forward(y)) if self.source.dtype == self.target.dtype else np.nan
        if not mixed:
            other["conjugate"] = inner(x, np.conj(self.adjoint(np.conj(y))))
        eps = max(float(np.finfo(a.dtype).eps) for a in (Ax, By))
        return _Trial(inner(Ax, y), inner(x, By), 10 * eps * float(size), other)


def _maps(forward: Any, adjoint: Map | None, x: Any, y: Any) -> tuple[Map, Map, Any, Any]:
    """Return forward and adjoint as functions, with the examples that a matrix or an operator implies."""
    for name, given in (("forward", forward), ("adjoint", adjoint)):
        if not (callable(given) or hasattr(given, "shape") or given is None):
            raise TypeError(f"{name} must be a function, a LinearOperator or a matrix; got {type(given).__name__}.")
    if adjoint is not None and not callable(adjoint):
        adjoint = partial(matmul, adjoint)
    if hasattr(forward, "matvec") or not callable(forward):
        if len(forward.shape) != 2:
            raise ValueError(f"A matrix has two axes; forward has shape {forward.shape}.")
        rows, columns = forward.shape
        dtype = np.dtype(getattr(forward, "dtype", None) or np.float64) if not is_tensor(forward) else None
        own = getattr(forward, "rmatvec", None) or (lambda y: forward.conj().T @ y)
        x = _vector(columns, dtype, forward) if x is None else x
        y = _vector(rows, dtype, forward) if y is None else y
        return partial(matmul, forward), adjoint or own, x, y
    if adjoint is None:
        raise TypeError("adjoint is missing. Only a LinearOperator or a matrix brings its own.")
    if x is None:
        raise TypeError("x is missing: pass an example of what forward takes, or its shape, such as x=(3, 4).")
    return forward, adjoint, x, y


def _vector(length: int, dtype: np.dtype[Any] | None, like: Any) -> Any:
    if dtype is None:
        return like.new_zeros(length)
    return np.zeros(length, dtype if dtype.kind in "fc" else np.float64)


def _space(name: str, example: Any) -> _Space:
    if isinstance(example, (int, np.integer)):
        return _Space((int(example),), np.dtype(np.float64), None)
    if isinstance(example, (tuple, list)) and all(isinstance(length, (int, np.integer)) for length in example):
        return _Space(tuple(int(length) for length in example), np.dtype(np.float64), None)
    array = to_array(example)
    if array.dtype.kind not in "fc":
        raise TypeError(f"{name} must hold real or complex numbers, or be a shape; got {type(example).__name__}.")
    return _Space(array.shape, array.dtype, example)


def _result(name: str, result: Any, space: _Space) -> Array:
    if result is None:
        raise TypeError(f"{name} returned None. Is a return missing?")
    array = to_array(result)
    if array.shape != space.shape:
        raise ValueError(
            f"{name} must return shape {space.shape}; it returned {array.shape}. The adjoint leads back: it takes what "
            "forward gives, and gives what forward takes."
        )
    if array.dtype.kind not in "fciu" or not np.all(np.isfinite(array)):
        raise ValueError(f"{name} returned what is not a finite number.")
    if array.dtype.kind == "c" and space.dtype.kind != "c":
        raise TypeError(
            f"{name} returned complex numbers where its space is real. Return the real part; or, if the space is "
            "complex, pass a complex example."
        )
    return array if array.dtype.kind in "fc" else array.astype(np.float64)


def _judge(trials: Sequence[_Trial], tolerance: float) -> DotProductTest:
    left, right = np.array([t.left for t in trials]), np.array([t.right for t in trials])
    rounding, size = np.array([t.rounding for t in trials]), np.maximum(np.abs(left), np.abs(right))
    gap = np.abs(left - right)
    errors = np.divide(gap, size, out=np.zeros_like(gap), where=size > 0)
    wrong = gap > tolerance * size + rounding
    verdict: Verdict = "wrong" if np.any(wrong) else "right" if np.any(size) else "undecided"
    told = _guess(trials, tolerance) if verdict == "wrong" else None
    total = counted(len(trials), "trial")
    sentence = {
        "wrong": f"Not the adjoint: <A x, y> and <x, Aᵀ y> differ in {np.sum(wrong)} of {total}.",
        "right": f"It is the adjoint: <A x, y> and <x, Aᵀ y> agree in {total}.",
        "undecided": "Not decided: both maps give 0 for every random vector.",
    }[verdict]
    notes = (f"A guess: {told}",) if told else ()
    return DotProductTest(verdict, sentence, notes, told, left, right, errors)


def _guess(trials: Sequence[_Trial], tolerance: float) -> str | None:
    def same(one: complex, other: complex, trial: _Trial) -> bool:
        return bool(abs(one - other) <= 10 * (tolerance * max(abs(one), abs(other)) + trial.rounding))

    if not any(trial.right for trial in trials):
        return "adjoint returns zeros."
    if all(same(t.right, t.other.get("transposed", np.nan), t) for t in trials):
        return "adjoint is forward once more, and A is not symmetric. Is it not transposed?"
    if all(same(t.left, t.other.get("conjugate", np.nan), t) for t in trials):
        return "the conjugate is missing: for complex numbers the adjoint is the conjugate transpose."
    factor = trials[0].right / trials[0].left if trials[0].left else 0.0
    if len(trials) > 1 and factor and all(same(t.right, factor * t.left, t) for t in trials):
        return "the sign is flipped." if abs(factor + 1) < 1e-6 else f"adjoint is {_told(factor)} times the right one."
    return None


def _told(value: complex) -> str:
    if abs(value.imag) <= 1e-9 * abs(value):
        return number(value.real)
    return f"{number(value.real, 1e-9 * abs(value))}{value.imag:+.6g}j"
