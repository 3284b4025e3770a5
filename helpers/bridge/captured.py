"""What the user's functions must not reach from outside: tensors that want a gradient, and noise.

A gradient for such a tensor is lost, and the noise is not repeated. Nothing of it shows when a function is called, so
we look before.
"""

import random
import types
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch

from ..reached import code_objects, is_of_a_library, reached

LOCAL_GENERATORS = {"default_rng", "Generator", "RandomState", "SeedSequence"}
GENERATORS = (np.random.Generator, np.random.RandomState, random.Random, torch.Generator)


def look_at(label: str, functions: Mapping[str, Any]) -> None:
    """Refuse tensors, and warn of noise, that functions reach from outside.

    Raises
    ------
    TypeError
        If one of them reaches a tensor that wants a gradient.
    """
    for role, function in functions.items():
        if name := captured_parameter(function):
            raise TypeError(
                f"{label}: its {role} reaches the tensor {name} from outside, whose gradient would be lost. "
                f"Pass {name} as an argument of its own."
            )
        if source := captured_noise(function):
            warnings.warn(
                f"{label}: its {role} draws from {source}. The bridge cannot repeat such a draw, so two backward "
                "passes differ. Give the noiseless functions and noise=UniformFactor(0.5), rng=0.",
                stacklevel=5,
            )


def captured_parameter(*functions: Callable[..., Any]) -> str | None:
    """Return the name of a captured tensor that wants a gradient, None if there is none."""
    for name, value in reached(*functions):
        if isinstance(value, torch.Tensor) and value.requires_grad:
            return name
    return None


def captured_noise(*functions: Callable[..., Any]) -> str | None:
    """Return where functions get random numbers from, None if they are not seen to."""
    for name, value in reached(*functions):
        if isinstance(value, GENERATORS):
            return f"the generator {name}"
        if isinstance(value, types.FunctionType) and not is_of_a_library(value):
            names = set(_names(value.__code__))
            scope = [value.__globals__.get(each) for each in names]
            if names & LOCAL_GENERATORS:
                continue
            if any(each is np for each in scope) and "random" in names:
                return "np.random"
            if any(each is np.random or each is random for each in scope):
                return "a random module"
    return None


def _names(code: types.CodeType) -> Iterator[str]:
    for inner in code_objects(code):
        yield from inner.co_names
