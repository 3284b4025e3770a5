"""A preference for smooth fields, with its derivatives."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Smoothness:
    """weight / 2 · ∫ |grad m|² for a field m on the unit square (Tikhonov's regularisation of first order).

    On the line or in the cube it is the same; m has one axis for each dimension. Along an axis with n cells, a
    derivative is n times the difference of two neighbours, and each pair of them stands for the volume of one cell. So
    a weight means the same on every grid.

    Parameters
    ----------
    weight : float
        How much it counts; 0 or more.

    Raises
    ------
    ValueError
        If ``weight`` is negative or not finite; by the methods, if m has no axis or holds numbers that are not finite.

    Examples
    --------
    >>> smoothness = Smoothness(2.0)
    >>> smoothness.value([[0.0, 1.0], [0.0, 1.0]])
    2.0
    >>> smoothness.gradient([[0.0, 1.0], [0.0, 1.0]])
    array([[-2.,  2.],
           [-2.,  2.]])
    """

    weight: float = 1.0

    def __post_init__(self) -> None:
        if not (np.isfinite(self.weight) and self.weight >= 0):
            raise ValueError(f"weight must be a finite number, 0 or more; got {self.weight!r}.")

    def value(self, m: ArrayLike) -> float:
        """Return the penalty of a field."""
        field = _field(m)
        squares = [self._factor(field, axis) * np.sum(np.diff(field, axis=axis) ** 2) for axis in range(field.ndim)]
        return float(sum(squares)) / 2

    def gradient(self, m: ArrayLike) -> Array:
        """Return the gradient, in the shape of m."""
        field = _field(m)
        result = np.zeros_like(field)
        for axis in range(field.ndim):
            slope = self._factor(field, axis) * np.diff(field, axis=axis)
            along = np.moveaxis(result, axis, 0)  # a view: what is added arrives in result
            along[1:] += np.moveaxis(slope, axis, 0)
            along[:-1] -= np.moveaxis(slope, axis, 0)
        return result

    def hvp(self, m: ArrayLike, t: ArrayLike) -> Array:
        """Return the Hessian times t. The penalty is quadratic, so this is the gradient at t, whatever m is."""
        if np.shape(t) != np.shape(m):
            raise ValueError(f"t must have the shape of m, {np.shape(m)}; got {np.shape(t)}.")
        return self.gradient(t)

    def _factor(self, field: Array, axis: int) -> float:
        return self.weight * float(field.shape[axis]) ** 2 / field.size


def _field(m: ArrayLike) -> Array:
    field = np.asarray(m, dtype=np.float64)
    if field.ndim == 0 or field.size == 0:
        raise ValueError(f"m must be a field with one axis or more, and not empty; got shape {field.shape}.")
    if not np.all(np.isfinite(field)):
        raise ValueError("m holds NaN or infinity. Did an earlier step diverge?")
    return field
