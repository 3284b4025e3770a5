"""What the bridge raises on its own account."""

from collections.abc import Mapping
from typing import Any


class MissingDerivative(RuntimeError):
    """A derivative was asked for that the function was not given. The message names the missing piece and the cure."""


class WrongDerivative(ValueError):
    """A derivative does not agree with finite differences of what it is said to be the derivative of."""


class FailedSamples(RuntimeError):
    """Some samples of a batch that an executor computed have failed; the others have not.

    The first of the errors is its ``__cause__``. (It is no ExceptionGroup: Jupyter shows those as plain text only.)

    Attributes
    ----------
    samples : dict
        The error of each sample that failed, by its place in the batch. Each keeps the traceback of its worker.
    results : dict
        What the other samples gave, by their place in the batch: lists of arrays.
    """

    samples: Mapping[Any, Exception]
    results: Mapping[Any, Any]

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.samples, self.results = {}, {}
