"""Healthy functions that are hard to examine: huge, tiny, stiff, slow, large, constant or talkative."""

import functools
import logging
import time

import numpy as np
import torch
from torch.autograd import Function

from .case import Case, healthy
from .zoo_data import array, normal, tensor, uniform


class Power(Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x)
        ctx.scale = scale
        return scale * (x**3).sum()

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 3 * g * ctx.scale * x**2, None


@healthy()
def huge_values():
    return Case(Power, normal(120, 4), 1e12)


@healthy()
def tiny_values():
    return Case(Power, normal(121, 4), 1e-12)


@healthy()
def small_slope_on_a_large_offset():
    # The value has only seven digits of the part that depends on x.
    class Offset(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return 1e9 + torch.sin(x).sum()

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * torch.cos(x)

    return Case(Offset, torch.tensor([0.4, 1.1], dtype=torch.float64))


@healthy()
def inputs_of_very_different_units():
    class OrbitalPeriod(Function):
        @staticmethod
        def forward(ctx, radius, mass):
            period = 2 * torch.pi * torch.sqrt(radius**3 / (6.674e-11 * mass))
            ctx.save_for_backward(radius, mass)
            return period

        @staticmethod
        def backward(ctx, g):
            radius, mass = ctx.saved_tensors
            period = 2 * torch.pi * torch.sqrt(radius**3 / (6.674e-11 * mass))
            return g * 1.5 * period / radius, -0.5 * g * period / mass

    return Case(OrbitalPeriod, torch.tensor(7.1e6, dtype=torch.float64), torch.tensor(5.97e24, dtype=torch.float64))


@healthy()
def entries_of_very_different_size():
    class Rates(Function):
        @staticmethod
        def forward(ctx, k):
            ctx.save_for_backward(k)
            return k.log().square().sum()

        @staticmethod
        def backward(ctx, g):
            (k,) = ctx.saved_tensors
            return 2 * g * k.log() / k

    return Case(Rates, torch.tensor([4e-9, 3e-2, 5e7], dtype=torch.float64))


@healthy()
def rosenbrock_far_out():
    class Rosenbrock(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return (1 - x[0]) ** 2 + 100 * (x[1] - x[0] ** 2) ** 2

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            r = x[1] - x[0] ** 2
            return g * torch.stack([-2 * (1 - x[0]) - 400 * x[0] * r, 200 * r])

    return Case(Rosenbrock, torch.tensor([50.0, -40.0], dtype=torch.float64))


@healthy()
def steep_exponential():
    class Exponential(Function):
        @staticmethod
        def forward(ctx, x):
            y = torch.exp(20 * x)
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx, g):
            (y,) = ctx.saved_tensors
            return 20 * g * y

    return Case(Exponential, torch.tensor([0.5, 1.2, -0.3], dtype=torch.float64))


@healthy()
def fast_oscillation():
    class Wave(Function):
        @staticmethod
        def forward(ctx, x, frequency):
            ctx.save_for_backward(x)
            ctx.frequency = frequency
            return torch.sin(frequency * x).sum()

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * ctx.frequency * torch.cos(ctx.frequency * x), None

    return Case(Wave, torch.tensor([0.3, 1.7], dtype=torch.float64), 1000.0)


@healthy("fragile")
def stiff_reaction_by_implicit_euler():
    class React(Function):
        @staticmethod
        def forward(ctx, y):
            end = array(y)
            for _ in range(20):
                end = end / (1 + 0.01 * rates)
            return tensor(end, y)

        @staticmethod
        def backward(ctx, g):
            return tensor(array(g) / (1 + 0.01 * rates) ** 20, g)

    rates = np.array([1.0, 1e3, 1e6])
    return Case(React, torch.tensor([1.0, 2.0, 0.5], dtype=torch.float64))


@healthy()
def constant_function():
    class StepCount(Function):
        @staticmethod
        def forward(ctx, x):
            return x.new_full((), 42.0)

        @staticmethod
        def backward(ctx, g):
            return g.new_zeros(3)

    return Case(StepCount, normal(122, 3))


@healthy()
def function_that_ignores_one_input():
    class First(Function):
        @staticmethod
        def forward(ctx, x, unused):
            ctx.save_for_backward(x)
            return x.square().sum()

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return 2 * g * x, None

    return Case(First, normal(123, 3), normal(124, 2))


@healthy("fragile")
def slow_simulation():
    class Simulation(Function):
        @staticmethod
        def forward(ctx, x):
            time.sleep(0.05)
            ctx.save_for_backward(x)
            return tensor(np.sum(np.cosh(array(x))), x)

        @staticmethod
        def backward(ctx, g):
            time.sleep(0.05)
            (x,) = ctx.saved_tensors
            return g * tensor(np.sinh(array(x)), g)

    return Case(Simulation, normal(125, 4))


@healthy()
def million_inputs():
    class SumOfSquares(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x @ x

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return 2 * g * x

    return Case(SumOfSquares, normal(126, 1_000_000))


@healthy()
def many_outputs():
    class Wave(Function):
        @staticmethod
        def forward(ctx, amplitude, t):
            ctx.save_for_backward(t)
            return amplitude[:, None] * torch.sin(t)

        @staticmethod
        def backward(ctx, g):
            (t,) = ctx.saved_tensors
            return g @ torch.sin(t), None

    return Case(lambda amplitude: Wave.apply(amplitude, grid), normal(127, 3))


grid = torch.linspace(0, 1, 20_000, dtype=torch.float64)


@healthy()
def prints_and_logs():
    log = logging.getLogger("simulation")

    class Verbose(Function):
        @staticmethod
        def forward(ctx, x):
            print(f"forward at {x.tolist()}")
            log.warning("one more evaluation")
            ctx.save_for_backward(x)
            return torch.sin(x).sum()

        @staticmethod
        def backward(ctx, g):
            print("backward")
            (x,) = ctx.saved_tensors
            return g * torch.cos(x)

    return Case(Verbose, normal(128, 3))


@healthy("fragile")
def value_and_gradient_in_an_lru_cache():
    @functools.lru_cache(maxsize=32)
    def value_and_gradient(x):
        x = np.array(x)
        return np.prod(x), np.prod(x) / x

    class Product(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.new_tensor(value_and_gradient(tuple(x.tolist()))[0])

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * x.new_tensor(value_and_gradient(tuple(x.tolist()))[1])

    return Case(Product, uniform(129, 4, low=0.5, high=2.0))


@healthy()
def counter_of_calls():
    class Counted(Function):
        calls = 0

        @staticmethod
        def forward(ctx, x):
            Counted.calls += 1
            ctx.save_for_backward(x)
            return x**2

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return 2 * g * x

    return Case(Counted, normal(130, 3))


@healthy()
def flat_to_rounding():
    # The truth at this point is 4e-25, which no finite difference sees.
    class Logistic(Function):
        @staticmethod
        def forward(ctx, x):
            y = torch.sigmoid(x)
            ctx.save_for_backward(x)
            return y

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * torch.sigmoid(x) * torch.sigmoid(-x)

    return Case(Logistic, torch.tensor([56.0, 0.3], dtype=torch.float64))


@healthy()
def exact_optimum_of_a_right_gradient():
    class Bowl(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return ((x - 1) ** 2).sum()

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return 2 * g * (x - 1)

    return Case(Bowl, torch.ones(3, dtype=torch.float64))
