"""A NumPy function that behaves like a native torch op.

:func:`differentiable` for functions, :class:`ExternalFunction` for code that carries a state from its solve to its
adjoint. The path of one value and one gradient: :mod:`.external` (the call), then :mod:`.eager` (ordinary tensors),
:mod:`.transforms` (torch.func, forward mode, second derivatives) or :mod:`.compiled` (torch.compile), and all of them
end in :mod:`.evaluation`, where the mathematics is. With an executor, :mod:`.workers` computes the samples of a batch.
"""

from .errors import FailedSamples, MissingDerivative, WrongDerivative
from .external import ExternalFunction
from .function import differentiable

__all__ = ["ExternalFunction", "FailedSamples", "MissingDerivative", "WrongDerivative", "differentiable"]
