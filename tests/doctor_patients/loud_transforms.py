"""Patients that use torch.func, vmap, forward mode or gradcheck where it has to refuse."""

import numpy as np
import torch
from torch import func
from torch.autograd import Function, forward_ad, gradcheck

from .case import Case, patient


def point(*values):
    return torch.tensor(values, dtype=torch.float64, requires_grad=True)


class Logistic(Function):
    """In ctx style, with torch operations only."""

    @staticmethod
    def forward(ctx, x):
        y = 1 / (1 + torch.exp(-x))
        ctx.save_for_backward(x)
        return y.sum()

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        y = 1 / (1 + torch.exp(-x))
        return g * y * (1 - y)


class Rosenbrock(Function):
    """In setup_context style, with torch operations only."""

    @staticmethod
    def forward(x):
        return (1 - x[0]) ** 2 + 5 * (x[1] - x[0] ** 2) ** 2

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        across = x[1] - x[0] ** 2
        return g * torch.stack([-2 * (1 - x[0]) - 20 * x[0] * across, 10 * across])


class HeatStep(Function):
    """In setup_context style, with NumPy on both ways."""

    matrix = np.eye(5) + 0.25 * (np.eye(5, k=1) + np.eye(5, k=-1) - 2 * np.eye(5))

    @staticmethod
    def forward(u):
        return torch.from_numpy(HeatStep.matrix @ u.detach().numpy())

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, g):
        return torch.from_numpy(HeatStep.matrix.T @ g.detach().numpy())


# --- func-old-style


@patient("func-old-style")
def gradient_of_logistic():
    return Case(func.grad(Logistic.apply), point(0.4, -1.2))


@patient("func-old-style")
def newton_step_with_func_hessian():
    def newton_step(x):
        gradient = func.grad(lambda t: Logistic.apply(t) + 0.5 * t @ t)(x)
        hessian = func.hessian(lambda t: Logistic.apply(t) + 0.5 * t @ t)(x)
        return x - torch.linalg.solve(hessian, gradient)

    return Case(newton_step, point(0.9, 0.1))


@patient("func-old-style")
def jacobian_of_a_projection():
    class Projection(Function):
        @staticmethod
        def forward(ctx, v):
            ctx.save_for_backward(v)
            return v / v.norm()

        @staticmethod
        def backward(ctx, g):
            (v,) = ctx.saved_tensors
            unit = v / v.norm()
            return (g - unit * (unit @ g)) / v.norm()

    def sensitivity(v):
        return func.jacrev(Projection.apply)(v).square().sum()

    return Case(sensitivity, point(0.3, -1.1, 0.8))


# --- func-numpy-backward


@patient("func-numpy-backward")
def gradient_of_a_heat_misfit():
    def misfit(u):
        return (HeatStep.apply(u) ** 2).sum()

    return Case(func.grad(misfit), point(0.0, 0.4, 1.0, 0.3, 0.1))


@patient("func-numpy-backward")
def value_and_gradient_of_a_log_likelihood():
    class CauchyLogLikelihood(Function):
        @staticmethod
        def forward(location, data):
            return torch.as_tensor(-np.log1p((data - location.item()) ** 2).sum())

        @staticmethod
        def setup_context(ctx, inputs, output):
            location, ctx.data = inputs
            ctx.save_for_backward(location)

        @staticmethod
        def backward(ctx, upstream):
            (location,) = ctx.saved_tensors
            r = ctx.data - location.detach().numpy()
            return torch.as_tensor(upstream.numpy() * (2 * r / (1 + r**2)).sum()), None

    data = np.array([0.3, 1.9, -0.4])

    def ascent_step(location):
        slope, value = func.grad_and_value(lambda t: CauchyLogLikelihood.apply(t, data))(location)
        return location + 0.1 * slope - 0 * value

    return Case(ascent_step, torch.tensor(0.5, dtype=torch.float64, requires_grad=True))


@patient("func-numpy-backward")
def sensitivity_of_a_quantile_by_jacrev():
    class Sorted(Function):
        @staticmethod
        def forward(values):
            return torch.from_numpy(np.sort(values.detach().numpy()))

        @staticmethod
        def setup_context(ctx, inputs, output):
            (values,) = inputs
            ctx.save_for_backward(values.argsort())

        @staticmethod
        def backward(ctx, g):
            (order,) = ctx.saved_tensors
            scattered = np.zeros(len(order))
            scattered[order.numpy()] = g.detach().numpy()
            return torch.from_numpy(scattered)

    def sensitivity(values):
        return func.jacrev(lambda v: Sorted.apply(v).square())(values)

    return Case(sensitivity, point(0.7, -0.3, 0.2))


# --- no-vmap-rule


@patient("no-vmap-rule")
def rosenbrock_over_a_batch():
    points = torch.tensor([[0.1, 0.1], [0.8, 0.5], [-0.4, 1.2]], dtype=torch.float64, requires_grad=True)
    return Case(torch.vmap(Rosenbrock.apply), points)


@patient("no-vmap-rule")
def heat_steps_of_several_rods():
    def total_heat(rods):
        return torch.vmap(HeatStep.apply, in_dims=1, out_dims=1)(rods).sum(0)

    rods = torch.rand(5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    return Case(total_heat, rods.requires_grad_())


@patient("no-vmap-rule")
def per_sample_gradients():
    def loss(weight, sample):
        return Rosenbrock.apply(weight * sample)

    def mean_gradient(weight, samples):
        return func.vmap(func.grad(loss), in_dims=(None, 0))(weight, samples).mean(0)

    samples = torch.rand(4, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    return Case(mean_gradient, point(0.3, 0.7), samples)


# --- no-jvp-rule


@patient("no-jvp-rule")
def directional_slope_by_func_jvp():
    def slope_along_the_valley(x):
        return func.jvp(Rosenbrock.apply, (x,), (torch.tensor([1.0, 2.0], dtype=x.dtype),))[1]

    return Case(slope_along_the_valley, point(0.1, 0.1))


@patient("no-jvp-rule")
def dual_numbers_of_logistic():
    def tangent(x):
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(x, torch.ones_like(x))
            return forward_ad.unpack_dual(Logistic.apply(dual)).tangent

    return Case(tangent, point(0.6, -0.3))


@patient("no-jvp-rule")
def linearised_heat_step():
    def response_to_a_pulse(u):
        pulse = torch.zeros_like(u).index_fill(0, torch.tensor([2]), 1.0)
        value, response = func.jvp(lambda v: HeatStep.apply(v) ** 2, (u,), (pulse,))
        return value + 0.01 * response

    return Case(response_to_a_pulse, point(0.0, 0.4, 1.0, 0.3, 0.1))


# --- gradcheck-float32


@patient("gradcheck-float32")
def rosenbrock_checked_in_single_precision():
    def check(x):
        p = x.detach().clone().requires_grad_()
        gradcheck(Rosenbrock.apply, (p,))
        return Rosenbrock.apply(x)

    return Case(check, torch.tensor([0.1, 0.1], requires_grad=True))


@patient("gradcheck-float32")
def network_layer_checked_in_single_precision():
    class Softsign(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x / (1 + x.abs())

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g / (1 + x.abs()) ** 2

    layer = torch.nn.Linear(3, 2)
    with torch.no_grad():
        layer.weight.copy_(torch.linspace(-1, 1, 6).reshape(2, 3))
        layer.bias.copy_(torch.tensor([0.3, -0.2]))

    def checked_layer(x):
        assert gradcheck(lambda t: Softsign.apply(layer(t)), x.detach().requires_grad_(), eps=1e-6)
        return Softsign.apply(layer(x))

    return Case(checked_layer, torch.tensor([0.4, -0.7, 1.9], requires_grad=True))


# --- gradcheck-noise


class NoisyQuadratic(Function):
    """Every call draws its own factor, on both ways."""

    generator = np.random.default_rng(11)

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return NoisyQuadratic.generator.uniform(0.5, 1.5) * (x**2).sum()

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * NoisyQuadratic.generator.uniform(0.5, 1.5) * 2 * x


@patient("gradcheck-noise")
def noisy_quadratic_checked():
    def check(x):
        gradcheck(NoisyQuadratic.apply, (x.detach().requires_grad_(),), atol=1e-3)
        return (x**2).sum()

    return Case(check, point(0.4, -0.7))


@patient("gradcheck-noise")
def monte_carlo_expectation_checked():
    class Expectation(Function):
        """The mean of (x + noise)^2 over fresh samples; the gradient draws again."""

        rng = torch.Generator().manual_seed(2)

        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            samples = torch.randn(64, 1, dtype=x.dtype, generator=Expectation.rng)
            return ((x + samples) ** 2).mean(0)

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            samples = torch.randn(64, 1, dtype=x.dtype, generator=Expectation.rng)
            return g * 2 * (x + samples).mean(0)

    def estimate(x):
        if not gradcheck(Expectation.apply, x.detach().clone().requires_grad_(), eps=1e-4, atol=1e-2):
            raise AssertionError("the gradient is wrong")
        return (x**2 + 1).sum()

    return Case(estimate, point(0.5, 1.5, -0.3))
