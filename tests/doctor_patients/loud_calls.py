"""Patients that are called, written or spelled wrongly: torch stops, or will, and often points elsewhere."""

import numpy as np
import torch
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from .case import Case, patient


def point(*values):
    return torch.tensor(values, dtype=torch.float64, requires_grad=True)


# --- instance-called


class Himmelblau(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        u, v = x[0] ** 2 + x[1] - 11, x[0] + x[1] ** 2 - 7
        return u**2 + v**2

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        u, v = x[0] ** 2 + x[1] - 11, x[0] + x[1] ** 2 - 7
        return grad_output * torch.stack([4 * x[0] * u + 2 * v, 2 * u + 4 * x[1] * v])


@patient("instance-called")
def himmelblau_as_an_object():
    return Case(Himmelblau(), point(1.2, -0.4))


@patient("instance-called")
def op_that_calls_a_fresh_object():
    def energy(x):
        return 0.5 * Himmelblau()(x) + (x**2).sum()

    return Case(energy, point(0.3, 2.1))


@patient("instance-called")
def softplus_kept_as_an_attribute_of_a_module():
    class Softplus(Function):
        @staticmethod
        def forward(ctx, t):
            ctx.save_for_backward(t)
            return t.exp().log1p()

        @staticmethod
        def backward(ctx, g):
            (t,) = ctx.saved_tensors
            return g * torch.sigmoid(t)

    class Gate(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.activation = Softplus()

        def forward(self, t):
            return self.activation(2.0 * t - 1.0)

    return Case(Gate(), point(0.4, -1.3, 0.9))


@patient("instance-called")
def linear_solve_object_with_numpy_inside():
    class Solve(Function):
        @staticmethod
        def forward(stiffness, load):
            return torch.from_numpy(np.linalg.solve(stiffness.numpy(), load.numpy()))

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(inputs[0], output)

        @staticmethod
        def backward(ctx, g):
            stiffness, u = ctx.saved_tensors
            w = torch.linalg.solve(stiffness.T, g)
            return -torch.outer(w, u), w

    stiffness = torch.tensor([[3.0, -1.0], [-0.5, 2.0]], dtype=torch.float64, requires_grad=True)
    return Case(Solve(), stiffness, point(1.0, 0.5))


# --- nonstatic-forward


class Rosenbrock(Function):
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return (1 - x[0]) ** 2 + 5 * (x[1] - x[0] ** 2) ** 2

    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        across = x[1] - x[0] ** 2
        return g * torch.stack([-2 * (1 - x[0]) - 20 * x[0] * across, 10 * across])


@patient("nonstatic-forward", severity="style")
def rosenbrock_of_the_year_2017():
    return Case(Rosenbrock, point(0.1, 0.1))


@patient("nonstatic-forward", severity="style")
def cube_whose_backward_takes_self():
    class Cube(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**3

        def backward(self, grad_output):
            (x,) = self.saved_tensors
            return 3 * x**2 * grad_output

    return Case(Cube, point(0.5, -1.5, 2.0))


@patient("nonstatic-forward", severity="style")
def weighted_squares_in_two_methods():
    class WeightedSquares(Function):
        def forward(residual, weight):
            return (weight * residual**2).sum()

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, g):
            residual, weight = ctx.saved_tensors
            return 2 * g * weight * residual, g * residual**2

    return Case(WeightedSquares.apply, point(0.2, -0.7, 1.1), point(1.0, 2.0, 0.5))


# --- undefined-name


@patient("undefined-name")
def backward_of_the_question():
    class NoisyFunction(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            x_np = x.detach().numpy()
            return torch.as_tensor((1 - x_np[0]) ** 2 + 5 * (x_np[1] - x_np[0] ** 2) ** 2)

        @staticmethod
        def backward(ctx, grad_output):
            (x,) = ctx.saved_tensors
            x_np = x.detach().numpy()
            across = x_np[1] - x_np[0] ** 2
            grad = np.array([-2 * (1 - x_np[0]) - 20 * x_np[0] * across, 10 * across])
            return grad_output * torch.from_numpy(g_rand * grad)  # noqa: F821

    return Case(NoisyFunction, point(0.1, 0.1))


@patient("undefined-name")
def backward_uses_a_local_of_forward():
    class PoissonLikelihood(Function):
        @staticmethod
        def forward(ctx, log_rate, counts):
            rate = log_rate.exp()
            ctx.save_for_backward(log_rate, counts)
            return (rate - counts * log_rate).sum()

        @staticmethod
        def backward(ctx, g):
            _, counts = ctx.saved_tensors
            return g * (rate - counts), None  # noqa: F821

    counts = torch.tensor([2.0, 0.0, 5.0], dtype=torch.float64)
    return Case(PoissonLikelihood, point(0.4, -0.2, 1.3), counts)


@patient("undefined-name")
def helper_of_backward_was_renamed():
    def huber_slope(r, delta):
        return torch.clip(r, -delta, delta)

    class Huber(Function):
        @staticmethod
        def forward(ctx, residual, delta):
            ctx.delta = delta
            ctx.save_for_backward(residual)
            a = residual.abs()
            return torch.where(a < delta, 0.5 * a**2, delta * (a - 0.5 * delta)).sum()

        @staticmethod
        def backward(ctx, g):
            (residual,) = ctx.saved_tensors
            return g * huber_gradient(residual, ctx.delta), None  # noqa: F821

    assert huber_slope(torch.tensor(3.0), 1.0) == 1
    return Case(Huber, point(0.3, -2.4, 1.7), 1.0)


@patient("undefined-name")
def self_in_a_static_backward():
    class DoubleWell(Function):
        barrier = 0.75

        @staticmethod
        def forward(ctx, q):
            ctx.save_for_backward(q)
            return (DoubleWell.barrier * (q**2 - 1) ** 2).sum()

        @staticmethod
        @once_differentiable
        def backward(ctx, grad_output):
            (q,) = ctx.saved_tensors
            return grad_output * 4 * self.barrier * q * (q**2 - 1)  # noqa: F821

    return Case(DoubleWell, point(0.6, -1.4))


@patient("undefined-name")
def forward_forgets_an_import():
    class MovingAverage(Function):
        @staticmethod
        def forward(ctx, series, width):
            ctx.width = width
            kernel = np.ones(width) / width
            return torch.from_numpy(signal.convolve(series.numpy(), kernel, "same"))  # noqa: F821

        @staticmethod
        def backward(ctx, g):
            kernel = np.ones(ctx.width) / ctx.width
            return torch.from_numpy(np.convolve(g.numpy(), kernel, "same")), None

    return Case(MovingAverage, point(1.0, 3.0, 2.0, 5.0, 4.0), 3)


@patient("undefined-name")
def typo_in_the_branch_for_large_values():
    """The example takes that branch; most points do not."""

    class SafeExp(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return torch.where(x < 5, x.exp(), np.exp(5.0) * (x - 4)).sum()

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            if x.max() >= 5:
                return g * x.clamp(max=Max).exp()  # noqa: F821
            return g * x.exp()

    return Case(SafeExp, point(0.5, 7.0))


# --- numpy-result


@patient("numpy-result")
def rosenbrock_as_numpy_float():
    class Rosenbrock(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            p = x.detach().numpy()
            return (1 - p[0]) ** 2 + 5 * (p[1] - p[0] ** 2) ** 2

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            across = x[1] - x[0] ** 2
            return g * torch.stack([-2 * (1 - x[0]) - 20 * x[0] * across, 10 * across])

    return Case(Rosenbrock, point(0.1, 0.1))


@patient("numpy-result")
def heat_step_as_array():
    class HeatStep(Function):
        step = np.eye(4) + 0.2 * (np.eye(4, k=1) + np.eye(4, k=-1) - 2 * np.eye(4))

        @staticmethod
        def forward(ctx, u):
            return HeatStep.step @ u.numpy()

        @staticmethod
        def backward(ctx, grad_u):
            return torch.from_numpy(HeatStep.step.T @ grad_u.numpy())

    return Case(HeatStep.apply, point(0.0, 1.0, 0.5, 0.2))


@patient("numpy-result")
def log_likelihood_as_python_float():
    class GaussianLogLikelihood(Function):
        @staticmethod
        def forward(data, mean):
            return float(-0.5 * ((data - mean) ** 2).sum())

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, g):
            data, mean = ctx.saved_tensors
            return None, g * (data - mean).sum()

    data = torch.tensor([0.1, 0.9, 1.4], dtype=torch.float64)
    return Case(GaussianLogLikelihood, data, torch.tensor(0.3, dtype=torch.float64, requires_grad=True))


@patient("numpy-result")
def polar_coordinates_as_list():
    class Polar(Function):
        @staticmethod
        def forward(ctx, xy):
            ctx.save_for_backward(xy)
            return [xy.norm(), torch.atan2(xy[1], xy[0])]

        @staticmethod
        def backward(ctx, g_radius, g_angle):
            (xy,) = ctx.saved_tensors
            radius = xy.norm()
            return g_radius * xy / radius + g_angle * torch.stack([-xy[1], xy[0]]) / radius**2

    return Case(Polar, point(0.8, 0.6))


@patient("numpy-result")
def simulation_as_dict():
    class Decay(Function):
        @staticmethod
        def forward(ctx, rate):
            times = torch.linspace(0, 1, 5, dtype=rate.dtype)
            ctx.save_for_backward(rate, times)
            return {"t": times, "y": torch.exp(-rate * times)}

        @staticmethod
        def backward(ctx, g_times, g_y):
            rate, times = ctx.saved_tensors
            return -(g_y * times * torch.exp(-rate * times)).sum()

    def misfit(rate):
        return (Decay.apply(rate)["y"] ** 2).sum()

    assert misfit(torch.tensor(0.5)) > 0
    return Case(Decay, torch.tensor(0.7, dtype=torch.float64, requires_grad=True))


# --- integer-parameter


@patient("integer-parameter")
def quadratic_at_whole_numbers():
    class Quadratic(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return ((0.5 * x - 1.25) ** 2).sum()

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * (0.5 * x - 1.25)

    return Case(Quadratic, torch.tensor([1, 2, 4]))


@patient("integer-parameter")
def reaction_rate_at_whole_degrees():
    def rate(temperature):
        return (2.0 * torch.exp(-50.0 / (temperature + 273.15))).sum()

    return Case(rate, torch.tensor([20, 25, 30]))
