"""Name the kind of a fault from what the gradient gives and what it should be."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from .problem import Array, Problem
from .report import number

CLOSE = 1e-3


class Seen(NamedTuple):
    """A gradient that is wrong: the point, what was got and expected there, how far that may be off, and where."""

    point: Array
    got: Array
    expected: Array
    error: Array
    wrong: Array


def guess(problem: Problem, seen: Sequence[Seen], *, entries: bool) -> str | None:
    """Return the kind of fault that explains all that was seen, as a sentence; None if none does.

    ``entries`` says whether the numbers belong to the entries of the gradient, or to random directions.
    """
    seen = [one for one in seen if np.all(np.isfinite(one.expected)) and np.any(np.abs(one.expected) > 2 * one.error)]
    if not seen:
        return None
    kinds = [_factor(problem, seen)]
    if entries:
        kinds += [_order(problem, seen), _term(seen), _one_entry(problem, seen)]
    kinds.append(_outer(seen))
    return next((sentence for kind in kinds for sentence in kind), None)


def _fits(seen: Sequence[Seen], candidates: Sequence[Array]) -> bool:
    """Say whether candidates for the gradient explain what was got, all but a thousandth of the fault, everywhere."""
    for one, candidate in zip(seen, candidates, strict=True):
        left, fault = np.abs(one.got - candidate), np.max(np.abs(one.got - one.expected))
        growth = 1 + np.max(np.abs(candidate)) / np.max(np.abs(one.expected))
        if np.any(left > CLOSE * fault + 3 * growth * np.max(one.error)):
            return False
    return True


def _ratio(got: Array, expected: Array) -> float:
    """Return the factor that leads from one to the other, by least squares."""
    return float(np.vdot(expected, got) / np.vdot(expected, expected))


def _factor(problem: Problem, seen: Sequence[Seen]) -> Iterator[str]:
    if all(not np.any(one.got) for one in seen):
        yield "The gradient is zero everywhere. Is its result lost on the way, or the graph cut?"
        return
    factor = _ratio(*(np.concatenate([getattr(one, name) for one in seen]) for name in ("got", "expected")))
    compared = sum(int(np.sum(np.abs(one.expected) > 10 * one.error)) for one in seen)
    if compared < 2 or abs(factor - 1) < 1e-9 or not _fits(seen, [factor * one.expected for one in seen]):
        return
    size = problem.x.size
    if abs(factor + 1) < CLOSE:
        yield "The sign is flipped."
    elif abs(factor * np.pi / 180 - 1) < CLOSE or abs(factor * 180 / np.pi - 1) < CLOSE:
        yield "It is off by the factor of degrees and radians."
    elif size > 2 and (abs(factor * size - 1) < CLOSE or abs(factor / size - 1) < CLOSE):
        yield f"It is {number(factor)} times what it should be, and x has {size} entries: is a mean taken for a sum?"
    else:
        yield f"It is {number(factor)} times what it should be: a constant factor."


def _order(problem: Problem, seen: Sequence[Seen]) -> Iterator[str]:
    if len(problem.shapes) == 1 and len(problem.shapes[0]) == 2:
        rows, columns = problem.shapes[0]
        if _fits(seen, [one.expected.reshape(rows, columns).T.ravel() for one in seen]):
            yield "It is transposed."
        elif rows == columns and _fits(seen, [one.expected.reshape(rows, columns)[::-1, ::-1].ravel() for one in seen]):
            yield "It is turned round: rows and columns in reverse order."
    if len(problem.shapes) == 2 and problem.shapes[0] == problem.shapes[1]:
        half = problem.x.size // 2
        if _fits(seen, [np.roll(one.expected, half) for one in seen]):
            yield "The gradients of the two arguments are swapped."
    if problem.x.size > 1 and _fits(seen, [one.expected[::-1] for one in seen]):
        yield "The entries are in reverse order." if problem.x.size > 2 else "The two entries are swapped."
    bad = np.flatnonzero(np.any([one.wrong for one in seen], axis=0))
    if len(bad) == 2 and problem.x.size > 2:
        swapped = [one.expected.copy() for one in seen]
        for candidate in swapped:
            candidate[bad] = candidate[bad[::-1]]
        if _fits(seen, swapped):
            yield f"The entries {problem.name(int(bad[0]))} and {problem.name(int(bad[1]))} are swapped."


def _term(seen: Sequence[Seen]) -> Iterator[str]:
    """Look for a term that is the same everywhere, or proportional to x."""
    fault = np.concatenate([one.got - one.expected for one in seen])
    if len(fault) < 3:
        return
    for shape, words in ((np.ones_like(fault), ""), (np.concatenate([one.point for one in seen]), " · x")):
        size = _ratio(fault, shape) if np.any(shape) else 0.0
        terms = np.split(size * shape, len(seen))
        if size and _fits(seen, [one.expected + term for one, term in zip(seen, terms, strict=True)]):
            less = "too small" if size < 0 else "too large"
            yield f"It is {less} by {number(abs(size), 1e-5 * abs(size))}{words} in every entry: a term of its own."


def _one_entry(problem: Problem, seen: Sequence[Seen]) -> Iterator[str]:
    bad = np.flatnonzero(np.any([one.wrong for one in seen], axis=0))
    if len(bad) != 1 or problem.x.size == 1:
        return
    (k,) = bad
    got, expected = (np.array([getattr(one, name)[k] for one in seen]) for name in ("got", "expected"))
    told = ""
    if not np.any(got):
        told = ": it is 0"
    elif np.any(expected):
        factor = _ratio(got, expected)
        same = np.all(np.abs(got - factor * expected) <= CLOSE * np.abs(got - expected))
        if same and (len(seen) > 1 or abs(factor - round(factor)) < CLOSE * abs(factor)):
            told = (
                ": its sign is flipped"
                if abs(factor + 1) < CLOSE
                else f": it is {number(factor)} times what it should be"
            )
    yield f"Only the entry {problem.name(int(k))} is wrong{told}."


def _outer(seen: Sequence[Seen]) -> Iterator[str]:
    factors = [_ratio(one.got, one.expected) for one in seen]
    entries = all(len(one.got) > 1 for one in seen)
    if len(seen) > 1 and entries and _fits(seen, [f * one.expected for f, one in zip(factors, seen, strict=True)]):
        told = " and ".join(number(factor) for factor in factors)
        yield (
            f"All entries are off by one factor, and it depends on x ({told}): is the derivative of an outer function "
            "missing?"
        )
