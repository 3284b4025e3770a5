"""What the bridge raises on its own account."""

from collections.abc import Mapping, Sequence
from typing import Any, Self


class MissingDerivative(RuntimeError):
    """A derivative was asked for that the function was not given. The message names the missing piece and the cure."""


class WrongDerivative(ValueError):
    """A derivative does not agree with finite differences of what it is said to be the derivative of."""


class FailedSamples(ExceptionGroup[Exception]):
    """Some samples of a batch that an executor computed have failed; the others have not.

    Attributes
    ----------
    samples : dict
        The error of each sample that failed, by its place in the batch. Each keeps the traceback of its worker.
    results : dict
        What the other samples gave, by their place in the batch: lists of arrays.
    """

    samples: Mapping[Any, Exception]
    results: Mapping[Any, Any]

    def __new__(cls, message: str, exceptions: Sequence[Exception]) -> Self:
        """Make the group; the bridge adds what belongs to which sample."""
        group = super().__new__(cls, message, exceptions)
        group.samples, group.results = {}, {}
        return group

    def derive(self, exceptions: Sequence[Exception]) -> ExceptionGroup[Exception]:  # type: ignore[override]
        """Return a part of the group, as ``except*`` and ``split`` ask for it."""
        return ExceptionGroup(self.message, exceptions)
