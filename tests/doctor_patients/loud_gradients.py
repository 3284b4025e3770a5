"""Patients whose backward returns what torch refuses: the wrong type, number, place or shape."""

import numpy as np
import torch
from scipy import special
from scipy.interpolate import CubicSpline
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from .case import Case, patient


def point(*values):
    return torch.tensor(values, dtype=torch.float64, requires_grad=True)


def tensor(*values):
    return torch.tensor(values, dtype=torch.float64)


# --- numpy-gradient


@patient("numpy-gradient")
def spline_slope_as_array():
    class Spline(Function):
        curve = CubicSpline([0.0, 1.0, 2.0, 3.0], [0.0, 0.8, 0.9, 0.1])

        @staticmethod
        def forward(ctx, t):
            ctx.save_for_backward(t)
            return torch.from_numpy(Spline.curve(t.numpy()))

        @staticmethod
        def backward(ctx, g):
            (t,) = ctx.saved_tensors
            return g.numpy() * Spline.curve(t.numpy(), 1)

    return Case(Spline, point(0.4, 1.7, 2.2))


@patient("numpy-gradient")
def rosenbrock_gradient_as_array():
    class MyFunction(Function):
        @staticmethod
        def forward(ctx, x):
            x_np = x.detach().numpy()
            ctx.point = x_np.copy()
            return torch.tensor((1 - x_np[0]) ** 2 + 5 * (x_np[1] - x_np[0] ** 2) ** 2, dtype=x.dtype)

        @staticmethod
        def backward(ctx, grad_output):
            x0, x1 = ctx.point
            jac = np.array([-2 * (1 - x0) - 20 * x0 * (x1 - x0**2), 10 * (x1 - x0**2)])
            return grad_output.item() * jac

    return Case(MyFunction, point(0.1, 0.1))


@patient("numpy-gradient")
def bessel_slope_as_float():
    class BesselJ0(Function):
        @staticmethod
        def forward(x):
            return x.new_tensor(special.j0(x.item()))

        @staticmethod
        def setup_context(ctx, inputs, output):
            (ctx.x,) = (float(inputs[0]),)

        @staticmethod
        @once_differentiable
        def backward(ctx, upstream):
            return float(upstream) * -special.j1(ctx.x)

    return Case(BesselJ0.apply, torch.tensor(1.3, dtype=torch.float64, requires_grad=True))


@patient("numpy-gradient")
def array_times_tensor():
    class LogSumExp(Function):
        @staticmethod
        def forward(ctx, scores):
            s = scores.numpy()
            ctx.weights = special.softmax(s)
            return scores.new_tensor(special.logsumexp(s))

        @staticmethod
        def backward(ctx, g):
            return ctx.weights * g

    return Case(LogSumExp, point(0.2, 1.1, -0.6))


@patient("numpy-gradient")
def second_gradient_of_two_is_an_array():
    class Affine(Function):
        @staticmethod
        def forward(ctx, slope, offset, t):
            ctx.t = t
            return slope * torch.as_tensor(t) + offset

        @staticmethod
        def backward(ctx, g):
            return (g * torch.as_tensor(ctx.t)).sum(), np.sum(g.numpy()), None

    slope, offset = (torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in (0.7, -0.2))
    return Case(Affine, slope, offset, np.linspace(0.0, 1.0, 6))


# --- gradient-count


@patient("gradient-count")
def linear_solve_forgets_the_matrix():
    class Solve(Function):
        @staticmethod
        def forward(ctx, matrix, rhs):
            ctx.save_for_backward(matrix)
            return torch.linalg.solve(matrix, rhs)

        @staticmethod
        def backward(ctx, g):
            (matrix,) = ctx.saved_tensors
            return torch.linalg.solve(matrix.T, g)

    matrix = torch.tensor([[2.0, 0.3], [-0.4, 1.5]], dtype=torch.float64)
    return Case(Solve, matrix, point(0.7, -1.2))


@patient("gradient-count")
def huber_forgets_none_for_delta():
    class Huber(Function):
        @staticmethod
        def forward(residual, delta=1.0):
            a = residual.abs()
            return torch.where(a < delta, 0.5 * residual**2, delta * (a - 0.5 * delta))

        @staticmethod
        def setup_context(ctx, inputs, output):
            residual, ctx.delta = inputs
            ctx.save_for_backward(residual)

        @staticmethod
        def backward(ctx, g):
            (residual,) = ctx.saved_tensors
            return g * residual.clamp(-ctx.delta, ctx.delta)

    return Case(Huber.apply, point(0.3, -2.0, 0.9, 4.1), 1.5)


@patient("gradient-count")
def one_gradient_too_many():
    class Pendulum(Function):
        @staticmethod
        def forward(ctx, angle, velocity):
            ctx.save_for_backward(angle, velocity)
            return 0.5 * velocity**2 + 9.81 * (1 - torch.cos(angle))

        @staticmethod
        def backward(ctx, g):
            angle, velocity = ctx.saved_tensors
            return g * 9.81 * torch.sin(angle), g * velocity, g * torch.ones_like(angle)

    angle, velocity = (torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in (0.4, -0.8))
    return Case(Pendulum, angle, velocity)


@patient("gradient-count")
def gradients_stacked_in_one_tensor():
    class LineMisfit(Function):
        @staticmethod
        def forward(ctx, slope, offset, t, y):
            residual = slope * t + offset - y
            ctx.save_for_backward(residual, t)
            return (residual**2).mean()

        @staticmethod
        def backward(ctx, dl):
            residual, t = ctx.saved_tensors
            d_slope, d_offset = 2 * (residual * t).mean(), 2 * residual.mean()
            return dl * torch.stack([d_slope, d_offset])

    slope, offset = (torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in (1.2, 0.1))
    return Case(LineMisfit, slope, offset, tensor(0.0, 1.0, 2.0), tensor(0.4, 1.1, 2.9))


# --- gradient-for-non-tensor


@patient("gradient-for-non-tensor")
def weight_decay_with_a_gradient_for_its_strength():
    class Ridge(Function):
        @staticmethod
        def forward(ctx, w, strength):
            ctx.save_for_backward(w)
            ctx.strength = strength
            return 0.5 * strength * (w**2).sum()

        @staticmethod
        def backward(ctx, g):
            (w,) = ctx.saved_tensors
            return g * ctx.strength * w, g * 0.5 * (w**2).sum()

    return Case(Ridge, point(0.5, -1.0, 2.0), 0.1)


@patient("gradient-for-non-tensor")
def data_as_an_array_with_a_gradient():
    class Misfit(Function):
        @staticmethod
        def forward(ctx, prediction, observed):
            residual = prediction - torch.from_numpy(observed)
            ctx.save_for_backward(residual)
            return 0.5 * (residual**2).sum()

        @staticmethod
        def backward(ctx, g):
            (residual,) = ctx.saved_tensors
            return g * residual, -g * residual

    return Case(Misfit.apply, point(1.0, 2.5), np.array([0.8, 2.2]))


@patient("gradient-for-non-tensor")
def power_with_a_gradient_for_the_integer_exponent():
    class Power(Function):
        @staticmethod
        def forward(x, n):
            return x**n

        @staticmethod
        def setup_context(ctx, inputs, output):
            x, ctx.n = inputs
            ctx.save_for_backward(x, output)

        @staticmethod
        def backward(ctx, g):
            x, y = ctx.saved_tensors
            return g * ctx.n * x ** (ctx.n - 1), (g * y * x.log()).sum()

    return Case(Power, point(0.5, 1.7, 2.0), 3)


# --- gradient-shape


@patient("gradient-shape")
def transposed_gradient_of_a_matrix():
    class MatVec(Function):
        @staticmethod
        def forward(ctx, weight, v):
            ctx.save_for_backward(weight, v)
            return weight @ v

        @staticmethod
        def backward(ctx, g):
            weight, v = ctx.saved_tensors
            return torch.outer(v, g), weight.T @ g

    weight = torch.tensor([[0.1, 0.4, -0.3], [0.8, -0.5, 0.2]], dtype=torch.float64, requires_grad=True)
    return Case(MatVec, weight, point(1.0, -2.0, 0.5))


@patient("gradient-shape")
def residual_returned_for_the_parameters():
    class LeastSquares(Function):
        design = np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]])
        data = np.array([0.2, 0.9, 2.3])

        @staticmethod
        def forward(ctx, beta):
            ctx.residual = LeastSquares.design @ beta.numpy() - LeastSquares.data
            return beta.new_tensor(0.5 * ctx.residual @ ctx.residual)

        @staticmethod
        def backward(ctx, g):
            return g * torch.from_numpy(ctx.residual)

    return Case(LeastSquares, point(0.1, 0.8))


@patient("gradient-shape")
def column_for_a_vector():
    class Quadratic(Function):
        @staticmethod
        def forward(ctx, x, A):
            ctx.save_for_backward(x, A)
            column = x[:, None]
            return (column.T @ A @ column).squeeze()

        @staticmethod
        def backward(ctx, grad_output):
            x, A = ctx.saved_tensors
            return grad_output * (A + A.T) @ x[:, None], None

    A = torch.tensor([[2.0, 0.5, 0.0], [0.1, 3.0, 1.0], [0.0, 0.4, 1.0]], dtype=torch.float64)
    return Case(Quadratic, point(0.3, -0.6, 0.2), A)


@patient("gradient-shape")
def gradient_summed_to_a_scalar():
    class LogBarrier(Function):
        @staticmethod
        def forward(slack):
            return -torch.log(slack).sum()

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, g):
            (slack,) = ctx.saved_tensors
            return (-g / slack).sum()

    return Case(LogBarrier, point(0.5, 1.5, 2.0))
