r"""The Rosenbrock function and its derivatives, in plain NumPy.

.. math:: f(x) = (a - x_0)^2 + b\,(x_1 - x_0^2)^2

Its minimum is 0, at :math:`(a, a^2)`, at the end of a long curved valley. The defaults ``a=1, b=5`` are those of the
question that this course answers; Rosenbrock's own paper has ``b=100``.

Every function takes one point of shape ``(2,)`` or many, of shape ``(..., 2)``, and computes in float64.
A point that holds NaN or Inf gives what floating-point arithmetic gives: NaN or Inf, never an invented number.

Source: H. H. Rosenbrock, "An automatic method for finding the greatest or least value of a function",
The Computer Journal 3 (1960), 175-184.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

A = 1.0
B = 5.0


def value(x: ArrayLike, a: float = A, b: float = B) -> np.float64 | Array:
    """Return f(x).

    Parameters
    ----------
    x : array_like, shape (2,) or (..., 2)
        One point, or many.
    a, b : float
        Where the minimum lies, and how steep the walls of the valley are.

    Returns
    -------
    numpy.float64, or array of shape (...)

    Raises
    ------
    TypeError
        If ``x`` does not hold real numbers.
    ValueError
        If the last axis of ``x`` has not length 2.

    Examples
    --------
    >>> round(float(value([0.1, 0.1])), 4)
    0.8505
    >>> value([[1.0, 1.0], [0.0, 0.0]]).tolist()
    [0.0, 1.0]
    """
    if (point := _one_point(x)) is not None:
        return np.float64(_value(*point, a, b))
    x0, x1 = _coordinates(x)
    with _floating_point_rules():
        values: np.float64 | Array = _value(x0, x1, a, b)
        return values


def _value(x0: Any, x1: Any, a: float, b: float) -> Any:
    along, across = a - x0, x1 - x0 * x0
    return along * along + b * (across * across)


def gradient(x: ArrayLike, a: float = A, b: float = B) -> Array:
    """Return the gradient of f at x, with the shape of ``x``.

    Parameters, and what is raised: see :func:`value`.

    Examples
    --------
    >>> gradient([0.1, 0.1]).round(4).tolist()
    [-1.98, 0.9]
    """
    if (point := _one_point(x)) is not None:
        return np.array(_slopes(*point, a, b), dtype=np.float64)
    x0, x1 = _coordinates(x)
    with _floating_point_rules():
        result = np.empty((*np.shape(x0), 2))
        result[..., 0], result[..., 1] = _slopes(x0, x1, a, b)
        return result


def _slopes(x0: Any, x1: Any, a: float, b: float) -> tuple[Any, Any]:
    along, across = a - x0, x1 - x0 * x0
    return -2 * along - 4 * b * x0 * across, 2 * b * across


def hessian(x: ArrayLike, a: float = A, b: float = B) -> Array:
    """Return the matrix of second derivatives of f at x, of shape ``(..., 2, 2)``.

    Parameters, and what is raised: see :func:`value`.

    Examples
    --------
    >>> hessian([0.1, 0.1]).round(4).tolist()
    [[0.6, -2.0], [-2.0, 10.0]]
    """
    x0, x1 = _coordinates(x)
    with _floating_point_rules():
        d00 = 2 - 4 * b * (x1 - 3 * x0**2)
        d01 = -4 * b * x0
        d11 = np.full_like(x0, 2 * b)
        return np.stack([np.stack([d00, d01], axis=-1), np.stack([d01, d11], axis=-1)], axis=-2)


def hvp(x: ArrayLike, v: ArrayLike, a: float = A, b: float = B) -> Array:
    """Return the Hessian-vector product H(x) v, without a matrix.

    Parameters
    ----------
    x, v : array_like, shape (2,) or (..., 2)
        The point and the direction. Their leading axes broadcast.
    a, b : float
        See :func:`value`, also for what is raised.

    Returns
    -------
    array of the broadcast shape (..., 2)

    Examples
    --------
    >>> hvp([0.1, 0.1], [1.0, 0.0]).round(4).tolist()
    [0.6, -2.0]
    """
    x0, x1 = _coordinates(x)
    v0, v1 = _coordinates(v, "v")
    with _floating_point_rules():
        d01 = -4 * b * x0
        return np.stack([(2 - 4 * b * (x1 - 3 * x0**2)) * v0 + d01 * v1, d01 * v0 + 2 * b * v1], axis=-1)


def optimum(a: float = A) -> Array:
    """Return the point where f is 0.

    Examples
    --------
    >>> optimum().tolist()
    [1.0, 1.0]
    """
    with _floating_point_rules():
        return np.array([a, a * a], dtype=np.float64)


def _one_point(x: ArrayLike) -> tuple[float, float] | None:
    """Return the coordinates of a single point as Python's numbers: three times as fast as NumPy's, bit for bit."""
    if type(x) is np.ndarray and x.shape == (2,) and x.dtype == np.float64:
        x0, x1 = x.tolist()
        return x0, x1
    return None


def _coordinates(x: ArrayLike, name: str = "x") -> tuple[Array, Array]:
    """Split points into their two coordinates, as float64; refuse what is not an array of points."""
    if hasattr(x, "requires_grad"):
        raise TypeError(
            f"{name} is a torch tensor, and this function is NumPy code: torch would record nothing of it. "
            f"Pass {name}.detach().numpy()."
        )
    try:
        points = np.asarray(x)
    except ValueError as error:
        raise ValueError(
            f"{name} must be a point (2 numbers) or an array of points: its rows differ in length."
        ) from error
    if points.dtype.kind not in "iuf":
        raise TypeError(f"{name} must hold real numbers; got {_kind(x, points)}.")
    if points.ndim == 0 or points.shape[-1] != 2:
        raise ValueError(
            f"{name} must have 2 coordinates in its last axis, like (2,) or (N, 2); got shape {points.shape}."
        )
    if points.dtype != np.float64:
        with _floating_point_rules():
            points = points.astype(np.float64)
    # [()] makes a number of a single point's coordinate: with numbers NumPy is five times as fast as with 0-d arrays.
    return points[..., 0][()], points[..., 1][()]


def _kind(x: object, points: NDArray[np.generic]) -> str:
    return type(x).__name__ if points.dtype == object or points.ndim == 0 else f"dtype {points.dtype}"


def _floating_point_rules() -> np.errstate:
    # NaN and Inf in the answer already say that a point is too far out; a warning on stderr would say it twice.
    return np.errstate(over="ignore", invalid="ignore")
