"""Patients whose value is not that of the reference: the gradient fits the value, and both are of another function."""

import numpy as np
import torch

from .case import Case, patient


class ShortSeries(torch.autograd.Function):
    """The exponential function, by a series that is cut off too early."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return 1 + x + x**2 / 2 + x**3 / 6

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * (1 + x + x**2 / 2)


@patient("value-wrong")
def exponential_series_ends_too_early():
    return Case(ShortSeries, torch.tensor([0.3, 1.1], dtype=torch.float64), reference=torch.exp)


@patient("value-wrong")
def energy_is_not_halved():
    spring = np.array([2.0, 0.5, 1.5])

    class Energy(torch.autograd.Function):
        @staticmethod
        def forward(ctx, u):
            ctx.save_for_backward(u)
            return u.new_tensor(u.detach().numpy() ** 2 @ spring)

        @staticmethod
        def backward(ctx, g):
            (u,) = ctx.saved_tensors
            return g * 2 * u * torch.from_numpy(spring)

    def reference(u):
        return 0.5 * (u**2 * torch.from_numpy(spring)).sum()

    return Case(Energy, torch.tensor([0.2, -0.4, 0.9], dtype=torch.float64), reference=reference)
