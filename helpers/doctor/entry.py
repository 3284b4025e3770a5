"""``diagnose``: one call for a Function, one for a training loop, one for an error message."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .diagnosis import Diagnosis

SECONDS = 10.0


class _Diagnose:
    """Examine a Function or an operation on tensors, and name what is wrong with it.

    ``diagnose(function, *inputs)`` looks at one operation, ``diagnose.training(optimizer, closure)`` at a training
    loop, ``diagnose.error(error)`` at an error or its text.
    """

    def __call__(
        self,
        function: Any,
        *inputs: Any,
        reference: Callable[..., Any] | None = None,
        noise: bool = False,
        seconds: float = SECONDS,
    ) -> Diagnosis:
        """Return the diagnosis of a Function, or of any callable on tensors.

        The patient runs many times, on copies of the inputs: at them and beside them, with random upstream gradients,
        in both orders of calls, in float32 and float64, differentiated twice, under forward mode, torch.func, vmap and
        a checkpoint. Afterwards tensors, parameters, ``.grad``, random numbers and torch's settings are as before.
        What it prints is swallowed.

        Parameters
        ----------
        function : Function class, an instance of one, or a callable
            What to examine.
        *inputs
            Example inputs, as they would be handed to ``.apply``: tensors, and plain values for the rest. If some of
            the tensors have ``requires_grad``, only these are differentiated; otherwise all of floating dtype are.
            They need not be special, and should be small: every number is moved by itself up to 64 of them.
        reference : callable, optional
            What the function should compute, in torch. Without it the value is taken to be right, and the gradient
            is compared with finite differences of the value.
        noise : bool
            The function is noisy, and that is meant.
        seconds : float
            The most time to take. The diagnosis says if it was cut short.

        Returns
        -------
        Diagnosis
            True when nothing is wrong; ``.findings`` holds what was found, worst first.

        Raises
        ------
        ValueError
            If ``seconds`` is not a positive number.

        Examples
        --------
        >>> import torch
        >>> class Square(torch.autograd.Function):
        ...     @staticmethod
        ...     def forward(ctx, x):
        ...         ctx.save_for_backward(x)
        ...         return x**2
        ...     @staticmethod
        ...     def backward(ctx, g):
        ...         (x,) = ctx.saved_tensors
        ...         return 2 * x
        >>> diagnosis = diagnose(Square, torch.tensor([1.0, 2.0], dtype=torch.float64))
        >>> bool(diagnosis), diagnosis.findings[0].slug
        (False, 'grad-output-ignored')
        """
        from .examination import examine

        return examine(function, inputs, reference=reference, noise=noise, seconds=_seconds(seconds))

    def training(self, optimizer: Any, closure: Any = None, *, seconds: float = SECONDS) -> Diagnosis:
        """Return the diagnosis of a training loop: its parameters, its closure, its step.

        The closure is called several times. Afterwards the parameters, their ``.grad``, the optimiser's state and the
        random numbers are as before.

        Parameters
        ----------
        optimizer : torch.optim.Optimizer, or a function without arguments that makes one
            Hand over a function if making the optimiser is what fails.
        closure : anything
            What you hand to ``step``.
        seconds : float
            The most time to take.

        Returns
        -------
        Diagnosis
            True when nothing is wrong.

        Raises
        ------
        ValueError
            If ``seconds`` is not a positive number.

        Examples
        --------
        >>> import torch
        >>> x = torch.tensor([3.0], requires_grad=True)
        >>> optimizer = torch.optim.SGD([x], lr=0.1)
        >>> def closure():
        ...     loss = (x**2).sum()
        ...     loss.backward()
        ...     return loss
        >>> diagnose.training(optimizer, closure).slugs
        ('closure-without-zero-grad',)
        """
        from .training import examine

        return examine(optimizer, closure, seconds=_seconds(seconds))

    def error(self, error: BaseException | str) -> Diagnosis:
        """Return the mistake behind an error of torch, or behind its text.

        Parameters
        ----------
        error : exception or str
            What was raised, or its message, or a part of it.

        Returns
        -------
        Diagnosis
            With one finding if the text is known; without any, and false, if it is not.

        Examples
        --------
        >>> diagnose.error("can't optimize a non-leaf Tensor").slugs
        ('nonleaf-parameter',)
        """
        from .training import name_error

        return name_error(error)

    def __repr__(self) -> str:
        return "<diagnose(function, *inputs), diagnose.training(optimizer, closure), diagnose.error(error)>"


diagnose = _Diagnose()


def _seconds(seconds: float) -> float:
    if not seconds > 0:
        raise ValueError(f"seconds must be a positive number; got {seconds!r}.")
    return float(seconds)
