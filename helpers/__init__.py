"""Helpers of the course "Bring your own gradient": everything that the lessons import.

Names are loaded when they are first used, so ``from helpers import rosenbrock`` needs neither torch nor matplotlib.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from . import (
        bars,
        bridge,
        checking,
        curves,
        descent,
        diagrams,
        doctor,
        explorer,
        fields,
        heat_maps,
        listing,
        many_runs,
        noise,
        plots,
        rosenbrock,
        solvers,
        time_series,
        timelines,
    )
    from .bridge import ExternalFunction, FailedSamples, MissingDerivative, WrongDerivative, differentiable
    from .checking import check_gradient, check_noisy_gradient, dot_product_test, step_size_curve
    from .descent import Trajectory, descend, descend_many, descend_with_gradient
    from .doctor import Diagnosis, Finding, diagnose
    from .exercises import check, hint, solution
    from .explorer import explore_adam
    from .noise import GaussianFactor, GaussianTerm, NoisyPair, UniformFactor
    from .picture import Picture
    from .pools import process_pool
    from .progress import with_progress
    from .requirements import check_environment

_MODULES = [
    "bars",
    "bridge",
    "checking",
    "curves",
    "descent",
    "diagrams",
    "doctor",
    "explorer",
    "fields",
    "heat_maps",
    "listing",
    "many_runs",
    "noise",
    "plots",
    "rosenbrock",
    "solvers",
    "time_series",
    "timelines",
]
_HOME = {
    "Diagnosis": "doctor",
    "ExternalFunction": "bridge",
    "FailedSamples": "bridge",
    "Finding": "doctor",
    "GaussianFactor": "noise",
    "GaussianTerm": "noise",
    "MissingDerivative": "bridge",
    "NoisyPair": "noise",
    "Picture": "picture",
    "Trajectory": "descent",
    "UniformFactor": "noise",
    "WrongDerivative": "bridge",
    "check": "exercises",
    "check_environment": "requirements",
    "check_gradient": "checking",
    "check_noisy_gradient": "checking",
    "descend": "descent",
    "descend_many": "descent",
    "descend_with_gradient": "descent",
    "diagnose": "doctor",
    "differentiable": "bridge",
    "dot_product_test": "checking",
    "explore_adam": "explorer",
    "hint": "exercises",
    "process_pool": "pools",
    "solution": "exercises",
    "step_size_curve": "checking",
    "with_progress": "progress",
}

__all__ = [
    "Diagnosis",
    "ExternalFunction",
    "FailedSamples",
    "Finding",
    "GaussianFactor",
    "GaussianTerm",
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
    "check_gradient",
    "check_noisy_gradient",
    "checking",
    "curves",
    "descend",
    "descend_many",
    "descend_with_gradient",
    "descent",
    "diagnose",
    "diagrams",
    "differentiable",
    "doctor",
    "dot_product_test",
    "explore_adam",
    "explorer",
    "fields",
    "heat_maps",
    "hint",
    "listing",
    "many_runs",
    "noise",
    "plots",
    "process_pool",
    "rosenbrock",
    "solution",
    "solvers",
    "step_size_curve",
    "time_series",
    "timelines",
    "with_progress",
]


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return import_module(f".{name}", __name__)
    if name in _HOME:
        return getattr(import_module(f".{_HOME[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
