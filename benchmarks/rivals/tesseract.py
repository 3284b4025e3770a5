"""tesseract-torch, in process: python -m rivals.tesseract, in an environment of its own (Python 3.12 or newer).

It prints, as JSON, the microseconds of each round for the Tesseract and for the two ways that it is compared with.
This module is the Tesseract's own description of itself, too: `InputSchema`, `apply` and so on are names it expects.
"""

import json
import platform
import sys
from importlib.metadata import version
from typing import Any

import torch
from pydantic import BaseModel
from tesseract_core import Tesseract
from tesseract_core.runtime import Array, Differentiable, Float64
from tesseract_torch import apply_tesseract

from .by_hand import PLAIN, SHORTEST, by_backward, shortest, start
from .functions import gradient, value
from .timing import Way, interleave

NAME = "tesseract-torch, in process"


class InputSchema(BaseModel):
    """One point."""

    x: Differentiable[Array[(2,), Float64]]


class OutputSchema(BaseModel):
    """The value there."""

    y: Differentiable[Float64]


def apply(inputs: InputSchema) -> OutputSchema:
    """Return the value."""
    return OutputSchema(y=value(inputs.x))


def abstract_eval(abstract_inputs: Any) -> dict[str, Any]:
    """Return shape and dtype of the value."""
    return {"y": {"shape": (), "dtype": "float64"}}


def vector_jacobian_product(
    inputs: InputSchema, vjp_inputs: set[str], vjp_outputs: set[str], cotangent_vector: dict[str, Any]
) -> dict[str, Any]:
    """Return the gradient."""
    return {"x": cotangent_vector["y"] * gradient(inputs.x)}


def ways() -> dict[str, Way]:
    """Return the Tesseract, and what it is compared with."""
    served = Tesseract.from_tesseract_api(sys.modules[__name__])
    return {
        NAME: by_backward(lambda x: apply_tesseract(served, {"x": x})["y"], start()),
        SHORTEST: by_backward(shortest(value, gradient), start()),
        PLAIN: by_backward(value, start()),
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    names = ["tesseract-torch", "tesseract-core", "torch", "numpy"]
    versions = {"python": platform.python_version(), **{name: version(name) for name in names}}
    times = interleave(ways(), rounds=int(sys.argv[1]), calls=int(sys.argv[2]))
    print(json.dumps({"versions": versions, "times": times}))
