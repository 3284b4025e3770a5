"""torch.compile of NumPy code: the function is traced and differentiated by torch, and its gradient is not used."""

import torch

from .by_hand import by_backward, start
from .functions import value
from .timing import Way


def ways() -> dict[str, Way]:
    """Return the compiled function; its first call compiles, with a C++ compiler."""
    op = torch.compile(torch.compiler.wrap_numpy(value), fullgraph=True)
    return {"torch.compile of wrap_numpy": by_backward(op, start())}
