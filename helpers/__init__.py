"""Helpers of the course "Bring your own gradient": everything that the lessons import.

Names are loaded when they are first used, so ``from helpers import rosenbrock`` needs neither torch nor matplotlib.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from . import bars, bridge, descent, diagrams, listing, noise, plots, rosenbrock
    from .bridge import ExternalFunction, MissingDerivative, WrongDerivative, differentiable
    from .descent import Trajectory, descend, descend_with_gradient
    from .exercises import check, hint, solution
    from .noise import GaussianFactor, NoisyPair, UniformFactor
    from .picture import Picture
    from .requirements import check_environment

_MODULES = ["bars", "bridge", "descent", "diagrams", "listing", "noise", "plots", "rosenbrock"]
_HOME = {
    "ExternalFunction": "bridge",
    "GaussianFactor": "noise",
    "MissingDerivative": "bridge",
    "NoisyPair": "noise",
    "Picture": "picture",
    "Trajectory": "descent",
    "UniformFactor": "noise",
    "WrongDerivative": "bridge",
    "check": "exercises",
    "check_environment": "requirements",
    "descend": "descent",
    "descend_with_gradient": "descent",
    "differentiable": "bridge",
    "hint": "exercises",
    "solution": "exercises",
}

__all__ = [
    "ExternalFunction",
    "GaussianFactor",
    "MissingDerivative",
    "NoisyPair",
    "Picture",
    "Trajectory",
    "UniformFactor",
    "WrongDerivative",
    "bars",
    "bridge",
    "check",
    "check_environment",
    "descend",
    "descend_with_gradient",
    "descent",
    "diagrams",
    "differentiable",
    "hint",
    "listing",
    "noise",
    "plots",
    "rosenbrock",
    "solution",
]


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return import_module(f".{name}", __name__)
    if name in _HOME:
        return getattr(import_module(f".{_HOME[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
