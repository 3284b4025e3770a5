"""Name what is wrong with a Function, a closure or an optimiser, above all where torch is silent."""

from .diagnosis import Diagnosis, Finding
from .entry import diagnose

__all__ = ["Diagnosis", "Finding", "diagnose"]
