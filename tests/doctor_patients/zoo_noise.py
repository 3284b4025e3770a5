"""Functions that are noisy on purpose. Torch's own generator draws where a checkpoint must find the draw again."""

import numpy as np
import torch
from torch.autograd import Function

from helpers import GaussianFactor, UniformFactor, differentiable, rosenbrock

from .case import Case, healthy
from .zoo_data import array, normal, tensor


def point():
    return torch.tensor([0.3, -0.4], dtype=torch.float64)


@healthy()
def factor_shared_by_value_and_gradient():
    class NoisySquare(Function):
        @staticmethod
        def forward(ctx, x):
            factor = 0.5 + torch.rand((), dtype=x.dtype)
            ctx.save_for_backward(x, factor)
            return factor * (x**2).sum()

        @staticmethod
        def backward(ctx, g):
            x, factor = ctx.saved_tensors
            return g * factor * 2 * x

    return Case(NoisySquare, point(), noise=True)


@healthy()
def factors_drawn_independently():
    class NoisySquare(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return (0.5 + torch.rand((), dtype=x.dtype)) * (x**2).sum()

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * (0.5 + torch.rand((), dtype=x.dtype)) * 2 * x

    return Case(NoisySquare, point(), noise=True)


@healthy()
def noise_added_to_the_value_alone():
    class Measured(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return torch.sin(x).sum() + 0.1 * torch.randn((), dtype=x.dtype)

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * torch.cos(x)

    return Case(Measured, point(), noise=True)


@healthy()
def noise_added_to_value_and_gradient():
    class Measured(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return torch.exp(x) + 0.05 * torch.randn(x.shape, dtype=x.dtype)

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * (torch.exp(x) + 0.05 * torch.randn(x.shape, dtype=x.dtype))

    return Case(Measured, normal(70, 3), noise=True)


@healthy("fragile")
def draw_of_a_numpy_generator_kept_for_backward():
    rng = np.random.default_rng(5)

    class NoisyRosenbrock(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.factor = rng.uniform(0.5, 1.5)
            ctx.save_for_backward(x)
            return x.new_tensor(ctx.factor * rosenbrock.value(array(x)))

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * tensor(ctx.factor * rosenbrock.gradient(array(x)), g)

    return Case(NoisyRosenbrock, point(), noise=True)


@healthy("fragile")
def draws_of_a_numpy_generator_for_each_call():
    rng = np.random.default_rng(6)

    class NoisyRosenbrock(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.new_tensor(rng.uniform(0.5, 1.5) * rosenbrock.value(array(x)))

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * tensor(rng.uniform(0.5, 1.5) * rosenbrock.gradient(array(x)), g)

    return Case(NoisyRosenbrock, point(), noise=True)


@healthy()
def dropout_of_torch():
    def dropped(x, w):
        return torch.nn.functional.dropout(x * w, p=0.3).sum()

    return Case(dropped, normal(71, 8), normal(72, 8), noise=True)


@healthy()
def dropout_with_a_seed_of_its_own():
    class SeededDropout(Function):
        @staticmethod
        def forward(ctx, x, seed):
            keep = torch.rand(x.shape, generator=torch.Generator().manual_seed(seed)) > 0.4
            mask = keep.to(x.dtype) / 0.6
            ctx.save_for_backward(mask)
            return x * mask

        @staticmethod
        def backward(ctx, g):
            (mask,) = ctx.saved_tensors
            return g * mask, None

    return Case(SeededDropout, normal(73, 4, 5), 11)


@healthy()
def mask_drawn_again_from_the_same_seed():
    class Masked(Function):
        @staticmethod
        def forward(ctx, x):
            return x * Masked.mask(x)

        @staticmethod
        def backward(ctx, g):
            return g * Masked.mask(g)

        @staticmethod
        def mask(like):
            return torch.rand(like.shape, generator=torch.Generator().manual_seed(3), dtype=like.dtype)

    return Case(Masked, normal(74, 6))


@healthy()
def sample_by_reparameterisation():
    def expected_loss(mean, log_sd):
        sample = mean + log_sd.exp() * torch.randn(64, 2, dtype=mean.dtype)
        return (sample**2).sum(-1).mean()

    return Case(expected_loss, point(), torch.tensor([-1.0, -0.5], dtype=torch.float64), noise=True)


@healthy()
def loss_of_a_random_minibatch():
    design, response = normal(75, 100, 3), normal(76, 100)

    def minibatch_loss(beta):
        rows = torch.randint(100, (20,))
        return (design[rows] @ beta - response[rows]).square().mean()

    return Case(minibatch_loss, normal(77, 3), noise=True)


@healthy()
def monte_carlo_with_common_random_numbers():
    normals = normal(78, 500)

    def mean_payoff(spot, vol):
        return (spot * torch.exp(vol * normals - vol**2 / 2) - 1).clamp(min=0).mean()

    return Case(mean_payoff, torch.tensor(1.1, dtype=torch.float64), torch.tensor(0.2, dtype=torch.float64))


@healthy()
def exact_value_with_an_estimated_gradient():
    # Hutchinson: z (z . a) has the mean a.
    class Slope(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return 0.5 * (x**2).sum()

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            z = torch.randint(2, (32, x.numel())).to(x.dtype) * 2 - 1
            return g * ((z @ x)[:, None] * z).mean(0)

    return Case(Slope, normal(79, 3), noise=True)


@healthy()
def shared_draw_that_was_not_announced():
    # Style may say that this looks like noise; the gradient is that of the value which was seen.
    class NoisyCube(Function):
        @staticmethod
        def forward(ctx, x):
            factor = 0.9 + 0.2 * torch.rand((), dtype=x.dtype)
            ctx.save_for_backward(x, factor)
            return factor * x**3

        @staticmethod
        def backward(ctx, g):
            x, factor = ctx.saved_tensors
            return 3 * g * factor * x**2

    return Case(NoisyCube, normal(80, 3))


@healthy()
def rounding_that_differs_from_call_to_call():
    # As a sum on many threads does.
    class ParallelSum(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return (x[torch.randperm(x.numel())] ** 3).cumsum(0)[-1]

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return 3 * g * x**2

    return Case(ParallelSum, normal(81, 200))


@healthy()
def bridge_with_a_draw_for_each_evaluation():
    op = differentiable(rosenbrock.value, grad=rosenbrock.gradient, hvp=rosenbrock.hvp, noise=UniformFactor(0.5), rng=0)
    return Case(op, point(), noise=True)


@healthy()
def bridge_with_independent_draws():
    op = differentiable(
        rosenbrock.value,
        grad=rosenbrock.gradient,
        hvp=rosenbrock.hvp,
        noise=GaussianFactor(0.2),
        rng=1,
        draws="independent",
    )
    return Case(op, point(), noise=True)


@healthy()
def bridge_with_one_draw_until_the_next_step():
    op = differentiable(
        rosenbrock.value,
        grad=rosenbrock.gradient,
        hvp=rosenbrock.hvp,
        noise=UniformFactor(0.5),
        rng=2,
        draws="step",
    )
    return Case(op, point(), noise=True)
