"""What a patient of the doctor is: a function that builds it, and the mistake that must be named first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from helpers import diagnose


class Case:
    """A function with its example inputs: ``diagnose(function, *inputs, **options)``."""

    def __init__(self, function: Any, *inputs: Any, **options: Any) -> None:
        self.function, self.inputs, self.options = function, inputs, options

    def diagnose(self):
        return diagnose(self.function, *self.inputs, **self.options)


class Loop:
    """A training loop: ``diagnose.training(optimizer, closure)``."""

    def __init__(self, optimizer: Any, closure: Any, **options: Any) -> None:
        self.optimizer, self.closure, self.options = optimizer, closure, options

    def diagnose(self):
        return diagnose.training(self.optimizer, self.closure, **self.options)


class Patient:
    """A named patient: ``build()`` makes a fresh one."""

    def __init__(self, slug: str, build: Callable[[], Case | Loop], severity: str | None) -> None:
        self.slug, self.build, self.severity = slug, build, severity
        self.name = f"{slug}-{build.__name__}"


PATIENTS: list[Patient] = []
HEALTHY: list[Patient] = []


def patient(slug: str, severity: str | None = None):
    """Register a sick patient: the doctor must name ``slug`` first."""

    def register(build):
        PATIENTS.append(Patient(slug, build, severity))
        return build

    return register


def healthy(severity: str | None = None):
    """Register a healthy one: no finding may be worse than ``severity`` (None: no finding at all but of style)."""

    def register(build):
        HEALTHY.append(Patient("healthy", build, severity))
        return build

    return register
