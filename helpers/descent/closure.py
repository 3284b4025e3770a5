"""The lane of closures: ``optimizer.step(closure)``, again and again."""

from collections.abc import Callable

import torch
from numpy.typing import ArrayLike

from .path import AfterStep, follow
from .trajectory import Array, Trajectory


def descend(
    optimizer: torch.optim.Optimizer,
    closure: Callable[[], torch.Tensor | None],
    steps: int,
    *,
    value: Callable[[Array], ArrayLike] | None = None,
    label: str = "",
    after_step: AfterStep | None = None,
) -> Trajectory:
    """Call ``optimizer.step(closure)`` again and again, and keep the path.

    Parameters
    ----------
    optimizer : torch.optim.Optimizer
        Any of torch's, or your own. It must hold one parameter tensor of real floating-point numbers, of any shape.
    closure : callable, no arguments -> loss
        Clears the gradient, computes the loss, calls ``backward`` and returns the loss.
    steps : int, 0 or more
        How many steps to take.
    value : callable, points of shape (steps + 1, ...) -> values, optional
        The noiseless function, such as ``rosenbrock.value``. It is called on the whole path, and once more on the last
        point alone, in a batch of one, to see that it takes many points along the first axis.
    label : str
        A short name, for pictures.
    after_step : callable, (steps taken, copy of the point) -> bool or None, optional
        It is called after every step: the place for a scheduler's ``step()``, for ``noisy.advance()`` and for early
        stopping. If it returns True, the run ends there and the trajectory is shorter. The path keeps what it writes
        into the parameter itself.

    Returns
    -------
    Trajectory

    Raises
    ------
    TypeError
        If ``closure`` cannot be called: a loss was passed, or the result of the closure. Or if the parameter does not
        hold real floating-point numbers, or ``after_step`` returns something else than True, False or None.
    ValueError
        If the optimiser does not hold exactly one tensor, if that tensor holds no data, or has gaps in memory that a
        fused step would not see, if ``steps`` is negative, or if ``value`` does not give every point its value.

    Whatever the closure raises comes through unchanged.

    Examples
    --------
    >>> x = torch.tensor([3.0], dtype=torch.float64, requires_grad=True)
    >>> optimizer = torch.optim.SGD([x], lr=0.25)
    >>> def closure():
    ...     optimizer.zero_grad()
    ...     loss = (x**2).sum()
    ...     loss.backward()
    ...     return loss
    >>> descend(optimizer, closure, steps=2).points.ravel().tolist()
    [3.0, 1.5, 0.75]

    It goes on from there, and ends early:

    >>> descend(optimizer, closure, steps=100, after_step=lambda taken, x: x[0] < 0.1).points.ravel().tolist()
    [0.75, 0.375, 0.1875, 0.09375]

    A scheduler halves the learning rate after every step:

    >>> scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    >>> path = descend(optimizer, closure, steps=2, after_step=lambda taken, x: scheduler.step())
    >>> scheduler.get_last_lr()
    [0.0625]
    """
    if not callable(closure):
        raise TypeError(
            f"closure must be a function that step can call; got {type(closure).__name__}. "
            "Pass the function itself: closure, not closure() and not the loss."
        )
    return follow(optimizer, lambda point: optimizer.step(closure), steps, value, label, after_step)  # type: ignore[arg-type]
