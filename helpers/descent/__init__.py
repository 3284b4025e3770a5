"""Run a torch optimiser step by step and keep the path it takes.

Two ways lead a gradient of your own into ``torch.optim``:

* a **closure** that calls a loss and ``loss.backward()`` (:func:`descend`), or
* writing the gradient into ``x.grad`` yourself (:func:`descend_with_gradient`).

Both return a :class:`Trajectory`. :func:`descend_many` takes the second way for many runs at once, in one tensor.
"""

from .closure import descend
from .direct import descend_with_gradient
from .ensemble import descend_many
from .trajectory import Trajectory, values_along

__all__ = ["Trajectory", "descend", "descend_many", "descend_with_gradient", "values_along"]
