"""Healthy functions of restricted arguments: a large step leaves the domain, and gives NaN or raises."""

import numpy as np
import scipy.special
import torch
from torch.autograd import Function

from .case import Case, healthy
from .zoo_data import array, tensor, uniform


@healthy()
def entropy_of_probabilities():
    class Entropy(Function):
        @staticmethod
        def forward(ctx, p):
            if abs(p.sum().item() - 1) > 1e-3 or p.min() <= 0:
                raise ValueError("p must be a probability distribution: positive, with sum 1.")
            ctx.save_for_backward(p)
            return -(p * p.log()).sum()

        @staticmethod
        def backward(ctx, g):
            (p,) = ctx.saved_tensors
            return -g * (p.log() + 1)

    return Case(Entropy, torch.tensor([0.5, 0.3, 0.15, 0.05], dtype=torch.float64))


@healthy()
def logarithm_of_a_small_number():
    class Log(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            with np.errstate(invalid="ignore"):
                return tensor(np.log(array(x)), x)

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g / x

    return Case(Log, torch.tensor([1e-4, 0.02, 3.0], dtype=torch.float64))


@healthy()
def square_root_saved_as_output():
    class Sqrt(Function):
        @staticmethod
        def forward(x):
            return x.sqrt()

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(output)

        @staticmethod
        def backward(ctx, g):
            (root,) = ctx.saved_tensors
            return g / (2 * root)

    return Case(Sqrt, torch.tensor([1e-4, 0.3, 40.0], dtype=torch.float64))


class Digamma(Function):
    @staticmethod
    def forward(ctx, x, order):
        ctx.save_for_backward(x)
        ctx.order = order
        return tensor(scipy.special.polygamma(order, array(x)), x)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * Digamma.apply(x, ctx.order + 1), None


class LogGamma(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return tensor(scipy.special.gammaln(array(x)), x)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * Digamma.apply(x, 0)


@healthy()
def log_gamma_of_scipy_with_every_derivative():
    return Case(LogGamma, torch.tensor([0.3, 1.7, 6.2], dtype=torch.float64))


@healthy()
def dirichlet_log_density():
    def log_density(p, alpha):
        return ((alpha - 1) * p.log()).sum() + LogGamma.apply(alpha.sum()) - LogGamma.apply(alpha).sum()

    return Case(
        log_density,
        torch.tensor([0.2, 0.7, 0.1], dtype=torch.float64),
        torch.tensor([1.3, 2.6, 0.8], dtype=torch.float64),
    )


@healthy()
def logit_close_to_one():
    class Logit(Function):
        @staticmethod
        def forward(ctx, p):
            if not ((p > 0) & (p < 1)).all():
                raise ValueError(f"probabilities must lie between 0 and 1; got {p.tolist()}.")
            ctx.save_for_backward(p)
            return torch.log(p) - torch.log1p(-p)

        @staticmethod
        def backward(ctx, g):
            (p,) = ctx.saved_tensors
            return g / (p * (1 - p))

    return Case(Logit, torch.tensor([0.002, 0.4, 0.9995], dtype=torch.float64))


@healthy()
def arc_cosine_of_cosines():
    class ArcCos(Function):
        @staticmethod
        def forward(ctx, c):
            ctx.save_for_backward(c)
            return torch.acos(c)

        @staticmethod
        def backward(ctx, g):
            (c,) = ctx.saved_tensors
            return -g / torch.sqrt(1 - c * c)

    return Case(ArcCos, torch.tensor([-0.98, 0.1, 0.95], dtype=torch.float64))


@healthy("fragile")
def black_scholes_call_in_numpy():
    class Call(Function):
        @staticmethod
        def forward(ctx, spot, vol):
            ctx.save_for_backward(spot, vol)
            s, v = array(spot), array(vol)
            if np.any(v <= 0):
                raise ValueError("the volatility must be positive.")
            d1 = np.log(s / 100) / v + v / 2
            return tensor(s * scipy.special.ndtr(d1) - 100 * scipy.special.ndtr(d1 - v), spot)

        @staticmethod
        def backward(ctx, g):
            s, v = map(array, ctx.saved_tensors)
            d1 = np.log(s / 100) / v + v / 2
            vega = s * np.exp(-(d1**2) / 2) / np.sqrt(2 * np.pi)
            return tensor(array(g) * scipy.special.ndtr(d1), g), tensor(array(g) * vega, g)

    return Case(Call, uniform(60, 4, low=80, high=120), uniform(61, 4, low=0.1, high=0.4))


@healthy()
def barrier_near_the_wall():
    class Barrier(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return -torch.log(1 - x).sum() - torch.log(1 + x).sum()

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return 2 * g * x / (1 - x * x)

    return Case(Barrier, torch.tensor([0.999, -0.2], dtype=torch.float64))


@healthy()
def geometric_mean_of_positive_numbers():
    class GeometricMean(Function):
        @staticmethod
        def forward(ctx, x):
            if (x <= 0).any():
                raise ValueError("the geometric mean needs positive numbers.")
            mean = x.log().mean().exp()
            ctx.save_for_backward(x, mean)
            return mean

        @staticmethod
        def backward(ctx, g):
            x, mean = ctx.saved_tensors
            return g * mean / (x * x.numel())

    return Case(GeometricMean, uniform(62, 6, low=0.5, high=4.0))


@healthy()
def mass_fractions_that_are_checked_exactly():
    # Only steps that keep the sum can be taken.
    def osmotic_pressure(y):
        if abs(y.sum().item() - 1) > 1e-9:
            raise ValueError("the mass fractions must sum to 1.")
        return (y * torch.log(y / y.new_tensor([0.5, 0.2, 0.3]))).sum()

    return Case(osmotic_pressure, torch.tensor([0.25, 0.5, 0.25], dtype=torch.float64))
