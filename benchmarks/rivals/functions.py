"""The two NumPy functions that every way is built on, and the same two for many dimensions.

``value`` only indexes and computes, so it can be given a tensor or an array of HIPS autograd as well.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def value(x: Any) -> Any:
    """Return f(x) = (1 - x0)² + 5 (x1 - x0²)²."""
    return (1 - x[0]) ** 2 + 5 * (x[1] - x[0] ** 2) ** 2


def gradient(x: Array) -> Array:
    """Return the gradient of `value`, shape (2,)."""
    across = x[1] - x[0] ** 2
    return np.array([-2 * (1 - x[0]) - 20 * x[0] * across, 10 * across])


def chain(x: Any) -> Any:
    """Return the Rosenbrock function of n variables: the sum of 100 (x[i+1] - x[i]²)² + (1 - x[i])²."""
    return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


def chain_gradient(x: Array) -> Array:
    """Return the gradient of `chain`, shape (n,)."""
    across = x[1:] - x[:-1] ** 2
    result = np.zeros_like(x)
    result[1:] = 200 * across
    result[:-1] -= 400 * x[:-1] * across + 2 * (1 - x[:-1])
    return result
