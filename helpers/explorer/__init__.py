"""The explorer: an optimiser on the noisy surface, with sliders, simulated and drawn in the page."""

from .simulation import Settings, simulate
from .widget import Explorer, explore_adam

__all__ = ["Explorer", "Settings", "explore_adam", "simulate"]
