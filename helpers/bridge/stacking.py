"""The arrays of a batch: taken apart for samples and probes, and put together again."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from .arrays import Array


def flattened(array: Array, probes: int, depth: int) -> Array:
    """Return an array with all its sample axes, which stand after the probe axes, made one."""
    return array.reshape(*array.shape[:probes], -1, *array.shape[probes + depth :])


def joined(rows: list[list[Any]], place: int, probes: tuple[int, ...]) -> Array:
    """Return the results of all probes as one array."""
    stacked = np.stack([row[place] for row in rows])
    return stacked.reshape(probes + stacked.shape[1:])


def copied(arrays: Sequence[Array | None]) -> list[Any]:
    """Return the arrays as they are now: the solver may hand out the same ones for the next sample."""
    return [None if array is None else np.array(array) for array in arrays]


def stack(rows: Sequence[Sequence[Array | None]], shape: tuple[int, ...], name: str) -> list[Any]:
    """Return the results of all samples as one array an output; None stays None."""
    stacked: list[Any] = []
    for place, first in enumerate(rows[0]):
        if first is None:
            stacked.append(None)
            continue
        column = [row[place] for row in rows]
        shapes = {each.shape for each in column if each is not None}
        if len(shapes) > 1:
            raise ValueError(f"{name}: the samples of a batch gave outputs of different shapes: {sorted(shapes)}.")
        stacked.append(np.stack(column).reshape(shape + first.shape))  # type: ignore[arg-type]
    return stacked


def scaled(array: Array | None, factor: Array) -> Any:
    """Return an array times a factor a sample."""
    if array is None:
        return None
    return array * factor.reshape(factor.shape + (1,) * (array.ndim - factor.ndim))


def moved(array: Array, order: Sequence[int]) -> Array:
    """Return an array with its leading axes in another order."""
    rest = range(len(order), array.ndim)
    return np.transpose(array, [*order, *rest])


def moved_back(array: Array, order: Sequence[int]) -> Array:
    """Undo :func:`moved`."""
    rest = range(len(order), array.ndim)
    return np.transpose(array, [*np.argsort(order), *rest])
