"""A regular grid of square cells on the unit square: cells, faces, and the matrices between them.

Every array with two axes is indexed [row, column], as a picture is: row along y, column along x.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse  # type: ignore[import-untyped]
from scipy.special import expit  # type: ignore[import-untyped]

Array = NDArray[np.float64]
SMALLEST = 2


def centres(n: int) -> tuple[Array, Array]:
    """Return the coordinates x and y of the centres of n x n cells, each of shape (n, n).

    Raises
    ------
    ValueError
        If n is smaller than 2.

    Examples
    --------
    >>> x, y = centres(2)
    >>> x
    array([[0.25, 0.75],
           [0.25, 0.75]])
    """
    middle = (np.arange(check_size(n)) + 0.5) / n
    x, y = np.meshgrid(middle, middle)
    return x, y


def lattice(count: int) -> Array:
    """Return count x count positions (x, y), evenly spread inside the square: shape (count², 2).

    Raises
    ------
    ValueError
        If count is smaller than 1.

    Examples
    --------
    >>> lattice(1)
    array([[0.5, 0.5]])
    """
    if count < 1:
        raise ValueError(f"A lattice has 1 or more positions along each side; got {count}.")
    line = np.arange(1, count + 1) / (count + 1)
    x, y = np.meshgrid(line, line)
    return np.column_stack([x.ravel(), y.ravel()])


def interpolation(n: int, positions: ArrayLike) -> Any:
    """Return the sparse matrix (sensors, cells) that reads a field at positions (x, y) by bilinear interpolation.

    The field is known at the centres of the cells, and is 0 on the boundary of the square.

    Raises
    ------
    ValueError
        If the positions are not an array of shape (sensors, 2), or if one lies outside the square.
    """
    at = np.asarray(positions, dtype=np.float64)
    if at.ndim != 2 or at.shape[1] != 2 or len(at) == 0:
        raise ValueError(f"sensors must be positions (x, y), of shape (count, 2) with count ≥ 1; got {at.shape}.")
    outside = ~np.all((at >= 0) & (at <= 1), axis=1)
    if np.any(outside):
        k = int(np.argmax(outside))
        raise ValueError(f"Sensor {k} is at {at[k].tolist()}. Sensors stand in the unit square: 0 ≤ x ≤ 1, 0 ≤ y ≤ 1.")
    nodes = np.concatenate([[0.0], (np.arange(n) + 0.5) / n, [1.0]])
    left = np.clip(np.searchsorted(nodes, at, side="right") - 1, 0, n)
    right_weight = (at - nodes[left]) / (nodes[left + 1] - nodes[left])
    rows, columns, weights = [], [], []
    for dx, dy in ((0, 0), (1, 0), (0, 1), (1, 1)):
        side = np.array([dx, dy])
        node = left + side
        inside = np.all((node > 0) & (node <= n), axis=1)  # on the boundary the field is 0
        weight = np.prod(np.where(side, right_weight, 1 - right_weight), axis=1)
        rows.append(np.flatnonzero(inside))
        columns.append(((node[:, 1] - 1) * n + node[:, 0] - 1)[inside])
        weights.append(weight[inside])
    where = (np.concatenate(rows), np.concatenate(columns))
    return sparse.csr_array((np.concatenate(weights), where), shape=(len(at), n * n))


class Conductances(NamedTuple):
    """How well each face conducts, and how this depends on the field m.

    Attributes
    ----------
    value : array, one number for each face
        The flux of heat for a difference of temperature of 1.
    share : array, one number for each face
        d log(value) / dm of the first cell; that of the second is 1 - share.
    """

    value: Array
    share: Array


@dataclass(frozen=True, eq=False)
class Grid:
    """The faces of n x n cells, and the pattern of every matrix on them. Get it from :func:`grid`.

    A face lies between its first and its second cell; a face on the boundary has a first cell only.

    Attributes
    ----------
    n : int
        Cells along each side.
    first, second : sparse arrays, (faces, cells)
        They pick the value of the first or second cell of each face; where there is no second cell, 0.
    normal : array, (faces, 2)
        The direction (x, y) from the first cell outwards.
    """

    n: int
    first: Any
    second: Any
    normal: Array

    @cached_property
    def difference(self) -> Any:
        """The sparse matrix (faces, cells) of first minus second."""
        return (self.first - self.second).tocsr()

    @cached_property
    def divergence(self) -> Any:
        """The transpose of `difference`: what flows out of each cell."""
        return self.difference.T.tocsr()

    @cached_property
    def inner(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """The first and second cells of the faces inside; they come before those on the boundary."""
        return self.first.indices[: self.second.nnz], self.second.indices

    @cached_property
    def _pattern(self) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """The order in which (diagonal, first-second, second-first) entries are stored by column, and where."""
        a, b = self.inner
        cells = np.arange(self.n**2)
        rows, columns = np.concatenate([cells, a, b]), np.concatenate([cells, b, a])
        order = np.lexsort((rows, columns))
        starts = np.concatenate([[0], np.cumsum(np.bincount(columns))])
        return order, rows[order].astype(np.int32), starts.astype(np.int32)

    def matrix(self, conductance: Array, flow: Array, storage: float) -> Any:
        """Return the matrix of what leaves each cell: by conduction, with the flow, into storage. Sparse, by column.

        Parameters
        ----------
        conductance : array, one number for each face
            Heat conducted from the first to the second cell is this times their difference.
        flow : array, one number for each face
            What moves from the first to the second cell and carries heat with it: of the cell it comes from.
        storage : float
            Added to the diagonal.
        """
        order, rows, starts = self._pattern
        out, back = np.maximum(flow, 0), np.maximum(-flow, 0)
        diagonal = self.first.T @ (conductance + out) + self.second.T @ (conductance + back) + storage
        k = self.second.nnz
        entries = np.concatenate([diagonal, -(conductance + back)[:k], -(conductance + out)[:k]])
        return sparse.csc_array((entries[order], rows, starts), shape=(self.n**2, self.n**2))

    def conductances(self, m: Array) -> Conductances:
        """Return the conductance of each face for the field of log-conductivities, of shape (cells,).

        Between two cells: the harmonic mean of both conductivities (heat passes one half-cell after the other).
        At the boundary: twice that of the cell, since the way is half as long.
        """
        a, b = self.inner
        edge = m[self.first.indices[len(a) :]]
        inside = -np.logaddexp(-m[a], -m[b])  # log of 1 / (1/k_a + 1/k_b), without overflow
        share = np.concatenate([expit(m[b] - m[a]), np.ones(len(edge))])
        return Conductances(2 * np.exp(np.concatenate([inside, edge])), share)

    def push(self, c: Conductances, t: Array) -> Array:
        """Return the change of the conductances for a change t of m."""
        change: Array = c.value * (c.share * (self.first @ t) + (1 - c.share) * (self.second @ t))
        return change

    def pull(self, c: Conductances, w: Array) -> Array:
        """Return the transpose of `push`, applied to one number for each face."""
        flow = c.value * w
        pulled: Array = self.first.T @ (c.share * flow) + self.second.T @ ((1 - c.share) * flow)
        return pulled

    def pull_change(self, c: Conductances, w: Array, t: Array) -> Array:
        """Return how `pull` changes, for a fixed w, if m changes by t."""
        bend = c.value * c.share * (1 - c.share) * (self.second @ t - self.first @ t) * w
        change = self.push(c, t) * w
        pulled: Array = self.first.T @ (c.share * change + bend) + self.second.T @ ((1 - c.share) * change - bend)
        return pulled


@lru_cache(maxsize=8)
def grid(n: int) -> Grid:
    """Return the grid of n x n cells. It is built once."""
    cells = np.arange(n**2).reshape(n, n)
    inner = [(cells[:, :-1], cells[:, 1:], (1, 0)), (cells[:-1], cells[1:], (0, 1))]
    edge = [(cells[:, 0], (-1, 0)), (cells[:, -1], (1, 0)), (cells[0], (0, -1)), (cells[-1], (0, 1))]
    a = np.concatenate([one.ravel() for one, _, _ in inner] + [one for one, _ in edge])
    b = np.concatenate([two.ravel() for _, two, _ in inner])
    normal = np.concatenate(
        [np.tile(way, (one.size, 1)) for one, _, way in inner] + [np.tile(way, (one.size, 1)) for one, way in edge]
    )
    return Grid(n, _pick(a, len(a), n**2), _pick(b, len(a), n**2), normal.astype(np.float64))


def _pick(cells: NDArray[Any], faces: int, count: int) -> Any:
    where = (np.arange(len(cells)), cells)
    return sparse.csr_array((np.ones(len(cells)), where), shape=(faces, count))


def check_size(n: int) -> int:
    """Return n, or say why there is no such grid."""
    if not isinstance(n, (int, np.integer)) or n < SMALLEST:
        raise ValueError(f"n is the number of cells along a side, a whole number of {SMALLEST} or more; got {n!r}.")
    return int(n)


def check_field(name: str, field: ArrayLike, n: int, *, lead: Sequence[int] | None = ()) -> Array:
    """Return a field as float64, or say what is wrong with it. ``lead``: the axes before (n, n); None: any."""
    array = np.asarray(field)
    if array.dtype.kind not in "fiu":
        raise TypeError(f"{name} must hold real numbers; got {array.dtype}.")
    wanted = f"({n}, {n})" if lead == () else f"(…, {n}, {n})"
    if array.shape[-2:] != (n, n) or (lead is not None and array.shape[:-2] != tuple(lead)):
        raise ValueError(f"{name} must have shape {wanted}, one number for each cell; got {array.shape}.")
    if not np.all(np.isfinite(array)):
        raise ValueError(f"{name} holds NaN or infinity. Did an earlier step diverge?")
    return array.astype(np.float64)
