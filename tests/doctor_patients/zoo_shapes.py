"""Healthy functions of unusual tensors: several outputs, odd layouts and shapes, other dtypes, batches."""

import numpy as np
import torch
from torch.autograd import Function

from .case import Case, healthy
from .zoo_data import array, normal, tensor, tracked, uniform


@healthy()
def two_outputs():
    class PolarToCartesian(Function):
        @staticmethod
        def forward(ctx, r, phi):
            ctx.save_for_backward(r, phi)
            return r * phi.cos(), r * phi.sin()

        @staticmethod
        def backward(ctx, gx, gy):
            r, phi = ctx.saved_tensors
            return gx * phi.cos() + gy * phi.sin(), r * (gy * phi.cos() - gx * phi.sin())

    return Case(PolarToCartesian, uniform(140, 3, low=0.5, high=2), normal(141, 3))


@healthy()
def auxiliary_output_marked_as_such():
    class FitWithResidual(Function):
        @staticmethod
        def forward(ctx, slope):
            residual = slope * times - readings
            norm = residual.norm()
            ctx.mark_non_differentiable(norm)
            ctx.save_for_backward(slope)
            return 0.5 * (residual @ residual), norm

        @staticmethod
        def backward(ctx, g, _):
            (slope,) = ctx.saved_tensors
            return g * (times @ (slope * times - readings))

    times, readings = torch.linspace(0, 1, 5, dtype=torch.float64), normal(142, 5)
    return Case(FitWithResidual, torch.tensor(0.8, dtype=torch.float64))


@healthy()
def values_and_integer_indices():
    class TopTwo(Function):
        @staticmethod
        def forward(ctx, x):
            values, at = x.topk(2)
            ctx.mark_non_differentiable(at)
            ctx.save_for_backward(at)
            ctx.shape = x.shape
            return values, at

        @staticmethod
        def backward(ctx, g, _):
            (at,) = ctx.saved_tensors
            return g.new_zeros(ctx.shape).index_put((at,), g)

    return Case(TopTwo, normal(143, 5))


@healthy()
def outputs_of_which_one_may_be_unused():
    class Statistics(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(False)
            ctx.save_for_backward(x)
            return x.mean(), x.square().mean()

        @staticmethod
        def backward(ctx, g_mean, g_square):
            (x,) = ctx.saved_tensors
            total = torch.zeros_like(x)
            if g_mean is not None:
                total = total + g_mean / x.numel()
            if g_square is not None:
                total = total + 2 * g_square * x / x.numel()
            return total

    return Case(Statistics, normal(144, 6))


class Cube(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 3 * g * x**2


@healthy()
def transposed_input():
    return Case(Cube, normal(145, 4, 3).T)


@healthy()
def every_second_entry_of_a_longer_tensor():
    return Case(Cube, normal(146, 10)[::2])


@healthy()
def expanded_input():
    # All rows share their memory.
    return Case(Cube, normal(147, 3).expand(4, 3))


@healthy()
def number_without_axes():
    return Case(Cube, torch.tensor(-0.7, dtype=torch.float64))


@healthy()
def one_entry():
    return Case(Cube, torch.tensor([[1.3]], dtype=torch.float64))


@healthy()
def empty_input():
    return Case(Cube, torch.empty(0, 3, dtype=torch.float64))


@healthy()
def input_that_is_a_parameter():
    return Case(Cube, torch.nn.Parameter(normal(148, 3)))


@healthy()
def tracked_result_of_earlier_operations():
    return Case(Cube, 2 * tracked(normal(149, 3)) + 1)


@healthy()
def single_precision():
    return Case(Cube, normal(150, 4, dtype=torch.float32))


@healthy()
def code_that_takes_single_precision_only():
    class Saturate(Function):
        @staticmethod
        def forward(ctx, x):
            if x.dtype != torch.float32:
                raise TypeError(f"this kernel is written for float32; got {x.dtype}.")
            ctx.save_for_backward(x)
            return x / (1 + x.abs())

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g / (1 + x.abs()) ** 2

    return Case(Saturate, normal(151, 5, dtype=torch.float32))


@healthy()
def dtype_of_the_input_kept_through_numpy():
    class Softplus(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return tensor(np.logaddexp(0, array(x).astype(np.float64)), x)

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * torch.sigmoid(x)

    return Case(Softplus, normal(152, 3, dtype=torch.float32))


@healthy()
def expanded_output():
    class Fill(Function):
        @staticmethod
        def forward(ctx, level, n):
            return level.clone().expand(n)

        @staticmethod
        def backward(ctx, g):
            return g.sum(), None

    return Case(Fill, torch.tensor(0.4, dtype=torch.float64), 5)


@healthy()
def transposed_output():
    class Outer(Function):
        @staticmethod
        def forward(ctx, a, b):
            ctx.save_for_backward(a, b)
            return torch.outer(b, a).T

        @staticmethod
        def backward(ctx, g):
            a, b = ctx.saved_tensors
            return g @ b, a @ g

    return Case(Outer, normal(153, 3), normal(154, 4))


def complex_normal(seed, *shape):
    return torch.complex(normal(seed, *shape), normal(seed + 1, *shape))


@healthy()
def complex_product():
    class Multiply(Function):
        @staticmethod
        def forward(ctx, z, w):
            ctx.save_for_backward(z, w)
            return z * w

        @staticmethod
        def backward(ctx, g):
            z, w = ctx.saved_tensors
            return g * w.conj(), g * z.conj()

    return Case(Multiply, complex_normal(155, 3), complex_normal(157, 3))


@healthy()
def intensity_of_a_complex_field():
    class Intensity(Function):
        @staticmethod
        def forward(ctx, z):
            ctx.save_for_backward(z)
            return z.real**2 + z.imag**2

        @staticmethod
        def backward(ctx, g):
            (z,) = ctx.saved_tensors
            return 2 * g * z

    return Case(Intensity, complex_normal(159, 4))


@healthy()
def complex_result_of_real_phases():
    class Phasor(Function):
        @staticmethod
        def forward(ctx, phase):
            z = torch.polar(torch.ones_like(phase), phase)
            ctx.save_for_backward(z)
            return z

        @staticmethod
        def backward(ctx, g):
            (z,) = ctx.saved_tensors
            return (g * (1j * z).conj()).real

    return Case(Phasor, normal(161, 3))


@healthy()
def batch_of_points_with_one_parameter():
    class Gaussians(Function):
        @staticmethod
        def forward(ctx, points, width):
            density = torch.exp(-0.5 * (points / width).square().sum(-1))
            ctx.save_for_backward(points, width)
            return density

        @staticmethod
        def backward(ctx, g):
            points, width = ctx.saved_tensors
            weight = g * torch.exp(-0.5 * (points / width).square().sum(-1))
            to_points = -weight[:, None] * points / width**2
            return to_points, (weight[:, None] * points**2 / width**3).sum(0)

    return Case(Gaussians, normal(163, 6, 2), torch.tensor([0.8, 1.7], dtype=torch.float64))


@healthy()
def samples_summed_into_a_parameter():
    class LogisticLoss(Function):
        @staticmethod
        def forward(ctx, w):
            ctx.save_for_backward(w)
            return torch.nn.functional.softplus(-labels * (samples @ w)).sum()

        @staticmethod
        def backward(ctx, g):
            (w,) = ctx.saved_tensors
            return -g * (labels * torch.sigmoid(-labels * (samples @ w))) @ samples

    samples, labels = normal(164, 12, 2), normal(165, 12).sign()
    return Case(LogisticLoss, torch.tensor([0.4, -0.6], dtype=torch.float64))


@healthy("fragile")
def rosenbrock_of_a_batch_in_numpy():
    class Rosenbrock(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            a, b = array(x)[..., 0], array(x)[..., 1]
            return tensor((1 - a) ** 2 + 5 * (b - a**2) ** 2, x)

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            a, b = array(x)[..., 0], array(x)[..., 1]
            slope = np.stack([-2 * (1 - a) - 20 * a * (b - a**2), 10 * (b - a**2)], axis=-1)
            return g[..., None] * tensor(slope, g)

    return Case(Rosenbrock, normal(166, 5, 2))


@healthy()
def gradient_that_broadcasts_to_its_input():
    # torch reduces a (3, 1) input's gradient of shape (3, 4) by a sum, which is right here.
    class AddColumn(Function):
        @staticmethod
        def forward(ctx, column, matrix):
            return column + matrix

        @staticmethod
        def backward(ctx, g):
            return g, g

    return Case(AddColumn, normal(167, 3, 1), normal(168, 3, 4))
