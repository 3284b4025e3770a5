"""A sparse matrix, factorised once and solved with often; and a count of both."""

import contextlib
import contextvars
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import splu  # type: ignore[import-untyped]

Array = NDArray[np.float64]

# Diagonal pivots, and an ordering of A + Aᵀ: half the fill of SuperLU's defaults on a grid. It is stable for the
# matrices here, whose diagonal is at least the sum of the rest of its column.
OPTIONS: dict[str, Any] = {
    "permc_spec": "MMD_AT_PLUS_A",
    "diag_pivot_thresh": 0.0,
    "options": {"SymmetricMode": True},
}


class Count:
    """How many matrices were factorised and how many systems were solved.

    Attributes
    ----------
    factorisations : int
        Sparse LU factorisations.
    solves : int
        Solves with a factorised matrix, one for each right-hand side.
    """

    def __init__(self) -> None:
        self.factorisations = self.solves = 0

    def __repr__(self) -> str:
        return f"factorisations: {self.factorisations}, solves: {self.solves}"


_counts: contextvars.ContextVar[tuple[Count, ...]] = contextvars.ContextVar("counts", default=())


@contextlib.contextmanager
def count_solves() -> Iterator[Count]:
    """Count what the solvers of this package do inside a ``with`` block, in the calling thread.

    Yields
    ------
    Count

    Examples
    --------
    >>> from helpers.solvers import HeatEquation
    >>> with count_solves() as count:
    ...     y, state = HeatEquation(8).forward(np.zeros((8, 8)))
    >>> count
    factorisations: 1, solves: 1
    """
    count = Count()
    token = _counts.set((*_counts.get(), count))
    try:
        yield count
    finally:
        _counts.reset(token)


class Factorised:
    """A sparse LU factorisation, for any number of right-hand sides, with the matrix or with its transpose.

    SuperLU's factors cannot be pickled. The matrix travels instead, and is factorised again where it arrives.

    Parameters
    ----------
    matrix : scipy.sparse.csc_array
        A square matrix.

    Raises
    ------
    ValueError
        If the matrix is singular in double precision.
    """

    def __init__(self, matrix: Any) -> None:
        self.matrix = matrix
        try:
            self._lu = splu(matrix, **OPTIONS)
        except RuntimeError as error:
            raise ValueError(
                "The matrix of the equation is singular: are conductivities so small that heat cannot leave? "
                "Keep m nearer to 0."
            ) from error
        for count in _counts.get():
            count.factorisations += 1

    def __reduce__(self) -> tuple[type["Factorised"], tuple[Any]]:
        return type(self), (self.matrix,)

    def solve(self, right: Array, *, transposed: bool = False) -> Array:
        """Return the solutions for right-hand sides of shape (count, unknowns), in the same shape.

        Raises
        ------
        ValueError
            If a solution is not finite.
        """
        solution: Array = self._lu.solve(right.T, trans="T" if transposed else "N").T
        for count in _counts.get():
            count.solves += len(right)
        if not np.all(np.isfinite(solution)):
            raise ValueError(
                "The solution is not finite: a source or g is too large, or conductivities are too small. "
                "Keep m nearer to 0, and sources of moderate size."
            )
        return solution
