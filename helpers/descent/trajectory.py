"""The path of an optimiser, and the values along it."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Trajectory:
    """The path of an optimiser. It keeps copies of its arrays, and nobody can write into them.

    Parameters
    ----------
    points : array, shape (steps + 1, ...)
        The parameter before the first step and after each one.
    losses : array, shape (steps,) or (steps, ...)
        What each ``step`` returned: the loss *before* that step. NaN where the closure returned nothing.
    values : array, shape (steps + 1,) or (steps + 1, ...), or None
        The noiseless function at each point, where :func:`descend` was given it.
    label : str
        A short name, for pictures.

    Raises
    ------
    ValueError
        If ``points`` is empty or a single number, or if ``losses`` or ``values`` does not go with it in length.

    Examples
    --------
    >>> path = Trajectory(np.zeros((3, 2)), np.array([1.0, 0.5]), label="two steps")
    >>> path.steps, path.start.tolist(), path.end.tolist()
    (2, [0.0, 0.0], [0.0, 0.0])
    """

    points: Array
    losses: Array
    values: Array | None = None
    label: str = ""

    def __post_init__(self) -> None:
        for name in ("points", "losses", "values"):
            array = getattr(self, name)
            if array is not None:
                object.__setattr__(self, name, _read_only(array))
        if self.points.ndim == 0 or len(self.points) == 0:
            raise ValueError(
                f"points must hold the start and the point after each step; got shape {self.points.shape}."
            )
        for name, wanted in (("losses", self.steps), ("values", self.steps + 1)):
            array = getattr(self, name)
            if array is not None and (array.ndim == 0 or len(array) != wanted):
                raise ValueError(
                    f"{len(self.points)} points go with {wanted} {name} along the first axis; got shape {array.shape}."
                )

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self.points, self.losses, self.values, self.label)  # read-only in the copy too

    @property
    def steps(self) -> int:
        """How many steps were taken."""
        return len(self.points) - 1

    @property
    def start(self) -> Array:
        """The first point."""
        start: Array = self.points[0]
        return start

    @property
    def end(self) -> Array:
        """The last point."""
        end: Array = self.points[-1]
        return end

    def __repr__(self) -> str:
        name = f"{self.label}: " if self.label else ""
        if self.points.ndim > 2:
            return f"Trajectory({name}{self.steps} steps of a parameter of shape {self.start.shape})"
        last = "" if self.values is None or self.values.ndim > 1 else f", f = {self.values[-1]:.1e}"
        return f"Trajectory({name}{self.steps} steps from {_point(self.start)} to {_point(self.end)}{last})"


def values_along(function: Callable[[Array], ArrayLike], points: Array, name: str = "value") -> Array:
    """Return the values at all points of a path; refuse a function that takes only one point."""

    def refusal(what: str) -> str:
        return (
            f"{name} must take many points along the first axis and give each its value; {what}. "
            "For a function f of one point, use lambda points: np.array([f(x) for x in points])."
        )

    try:
        values = np.asarray(function(points.copy()), dtype=np.float64)
    except Exception as error:
        error.add_note(refusal(f"it was called on the whole path, of shape {points.shape}"))
        raise
    if values.ndim == 0 or len(values) != len(points):
        raise ValueError(refusal(f"for points of shape {points.shape} it gave shape {values.shape}"))
    try:
        alone = np.asarray(function(points[-1:].copy()), dtype=np.float64)
    except Exception as error:
        raise ValueError(refusal(f"for points of shape {points[-1:].shape} it failed")) from error
    # The same function may sum in another order, and in float32.
    little = 1e-6 * np.max(np.abs(values[np.isfinite(values)]), initial=0.0)
    if alone.shape != values[-1:].shape or not np.allclose(alone, values[-1:], rtol=1e-5, atol=little, equal_nan=True):
        raise ValueError(refusal("at the last point it gave another value alone than among the others"))
    return values


def _read_only(array: ArrayLike) -> Array:
    copy = np.array(array, dtype=np.float64)
    copy.flags.writeable = False
    return copy


def _point(x: Array) -> str:
    return "(" + ", ".join(f"{entry:.3f}" for entry in np.ravel(x)) + ")"
