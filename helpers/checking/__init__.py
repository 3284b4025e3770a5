"""Is a gradient right? Four checks, for NumPy functions and for torch code.

:func:`check_gradient` compares a gradient with finite differences, :func:`step_size_curve` shows how good these can be,
:func:`dot_product_test` checks the adjoint of a linear map, and :func:`check_noisy_gradient` tests a gradient that is
random. Each result is true when all is right, prints its numbers, and keeps them.

In :mod:`.problem` a function and its gradient become functions of one flat vector, :mod:`.probes` takes the
differences, :mod:`.guess` names a likely fault, and :mod:`.report` prints.
"""

from .adjoint import DotProductTest, dot_product_test
from .gradient import Comparison, GradientCheck, check_gradient
from .noisy import NoisyGradientCheck, check_noisy_gradient
from .step_sizes import StepSizeCurve, step_size_curve

__all__ = [
    "Comparison",
    "DotProductTest",
    "GradientCheck",
    "NoisyGradientCheck",
    "StepSizeCurve",
    "check_gradient",
    "check_noisy_gradient",
    "dot_product_test",
    "step_size_curve",
]
