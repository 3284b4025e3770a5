"""Functions whose gradient is not that of their value, and is meant so.

Nobody can tell this from running them, so the doctor says "wrong"; with the ``reference`` that says what is meant, it
must be satisfied. A reference is a torch function with the same value, and the gradient that is wanted.
"""

import torch
from torch.autograd import Function

from .case import Case, Patient
from .zoo_data import normal

ON_PURPOSE = []  # without a reference: "wrong"
EXPLAINED = []  # with it: no finding but of style


def on_purpose(reference):
    """Register a case twice: as it is, and with the reference that explains it."""

    def register(build):
        def explained():
            case = build()
            return Case(case.function, *case.inputs, reference=reference, **case.options)

        explained.__name__ = build.__name__
        ON_PURPOSE.append(Patient("on-purpose", build, "wrong"))
        EXPLAINED.append(Patient("explained", explained, None))
        return build

    return register


def with_gradient_of(surrogate, value):
    """Return the value of one, with the gradient of the other."""
    return surrogate + (value - surrogate).detach()


@on_purpose(lambda x: with_gradient_of(x, x.round()))
def straight_through_rounding():
    class Round(Function):
        @staticmethod
        def forward(ctx, x):
            return x.round()

        @staticmethod
        def backward(ctx, g):
            return g

    return Case(Round, normal(240, 5))


@on_purpose(lambda x: with_gradient_of(x.clamp(-1, 1), (x >= 0).double() * 2 - 1))
def binarised_weights_with_a_clipped_gradient():
    class Binarise(Function):
        @staticmethod
        def forward(ctx, w):
            ctx.save_for_backward(w)
            return (w >= 0).to(w.dtype) * 2 - 1

        @staticmethod
        def backward(ctx, g):
            (w,) = ctx.saved_tensors
            return g * (w.abs() <= 1)

    return Case(Binarise, torch.tensor([0.3, -0.6, 1.7, -0.1], dtype=torch.float64))


@on_purpose(lambda x, strength: with_gradient_of(-strength * x, x))
def gradient_reversal_layer():
    class ReverseGradient(Function):
        @staticmethod
        def forward(ctx, x, strength):
            ctx.strength = strength
            return x.view_as(x)

        @staticmethod
        def backward(ctx, g):
            return -ctx.strength * g, None

    return Case(ReverseGradient, normal(241, 2, 3), 0.7)


@on_purpose(lambda x: with_gradient_of(torch.atan(torch.pi * x) / torch.pi, (x > 0).double()))
def spike_with_a_surrogate_slope():
    class Spike(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return (x > 0).to(x.dtype)

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g / (1 + (torch.pi * x) ** 2)

    return Case(Spike, normal(242, 4))


@on_purpose(lambda x, scale: with_gradient_of(scale * x, x))
def gradient_scaled_down():
    class ScaleGradient(Function):
        @staticmethod
        def forward(ctx, x, scale):
            ctx.scale = scale
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            return ctx.scale * g, None

    return Case(ScaleGradient, normal(243, 3), 0.1)


@on_purpose(lambda x: with_gradient_of(x, x.clamp(0, 1)).sum())
def clamp_that_lets_the_gradient_through():
    class PassThroughClamp(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.shape = x.shape
            return x.clamp(0, 1).sum()

        @staticmethod
        def backward(ctx, g):
            return g.expand(ctx.shape)

    return Case(PassThroughClamp, torch.tensor([-0.4, 0.5, 1.3], dtype=torch.float64))
