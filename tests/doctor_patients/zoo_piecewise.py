"""Healthy functions with kinks: their slopes jump, and their second derivative is zero almost everywhere."""

import numpy as np
import torch
from torch.autograd import Function

from .case import Case, healthy
from .zoo_data import array, normal, tensor, tracked


class Relu(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clamp(min=0)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * (x > 0)


@healthy()
def relu():
    return Case(Relu, torch.tensor([-1.3, 0.4, 2.1, -0.2], dtype=torch.float64))


@healthy()
def relu_with_entries_at_the_kink():
    # Zero is one of its subgradients, and the one that torch takes.
    return Case(Relu, torch.tensor([-1.3, 0.0, 2.1, 0.0], dtype=torch.float64))


@healthy()
def relu_of_a_negative_point():
    # The gradient is zero, and so is the truth.
    return Case(Relu, torch.tensor([-1.3, -0.4], dtype=torch.float64))


@healthy()
def huber_loss_of_a_prediction():
    class Huber(Function):
        @staticmethod
        def forward(prediction, target, delta):
            r = prediction - target
            small = r.abs() <= delta
            return torch.where(small, 0.5 * r**2, delta * (r.abs() - 0.5 * delta)).mean()

        @staticmethod
        def setup_context(ctx, inputs, output):
            prediction, target, delta = inputs
            ctx.save_for_backward(prediction, target)
            ctx.delta = delta

        @staticmethod
        def backward(ctx, g):
            prediction, target = ctx.saved_tensors
            slope = (prediction - target).clamp(-ctx.delta, ctx.delta)
            return g * slope / slope.numel(), None, None

    return Case(Huber, tracked(normal(1, 7)), 3 * normal(2, 7), 1.5)


@healthy()
def clamp_with_plain_bounds():
    class Clamp(Function):
        @staticmethod
        def forward(ctx, x, low, high):
            ctx.save_for_backward((x >= low) & (x <= high))
            return x.clamp(low, high)

        @staticmethod
        def backward(ctx, g):
            (inside,) = ctx.saved_tensors
            return g.masked_fill(~inside, 0.0), None, None

    return Case(Clamp, torch.tensor([[-1.4, 0.3], [0.8, 2.5]], dtype=torch.float64), -1.0, 1.0)


@healthy()
def hinge_loss_with_integer_labels():
    class Hinge(Function):
        @staticmethod
        def forward(ctx, score, label):
            ctx.save_for_backward(score, label)
            return (1 - label * score).clamp(min=0).sum()

        @staticmethod
        def backward(ctx, g):
            score, label = ctx.saved_tensors
            active = label * score < 1
            return -g * label * active, None

    return Case(Hinge, normal(3, 6), torch.tensor([1, -1, 1, 1, -1, -1]))


@healthy()
def maximum_of_each_row():
    class RowMaximum(Function):
        @staticmethod
        def forward(ctx, x):
            values, at = x.max(dim=1)
            ctx.save_for_backward(at)
            ctx.shape = x.shape
            return values

        @staticmethod
        def backward(ctx, g):
            (at,) = ctx.saved_tensors
            zeros = torch.zeros(ctx.shape, dtype=g.dtype)
            return zeros.scatter(1, at[:, None], g[:, None])

    return Case(RowMaximum, normal(4, 3, 5))


@healthy()
def soft_threshold_with_a_learned_threshold():
    class SoftThreshold(Function):
        @staticmethod
        def forward(ctx, x, lam):
            ctx.save_for_backward(x, lam)
            return x.sign() * (x.abs() - lam).clamp(min=0)

        @staticmethod
        def backward(ctx, g):
            x, lam = ctx.saved_tensors
            outside = x.abs() > lam
            return g * outside, -(g * x.sign() * outside).sum()

    return Case(SoftThreshold, 2 * normal(5, 8), torch.tensor(0.7, dtype=torch.float64))


@healthy("fragile")
def pinball_loss_in_numpy():
    class Pinball(Function):
        @staticmethod
        def forward(ctx, q, y, tau):
            ctx.save_for_backward(q, y)
            ctx.tau = tau
            r = y.numpy() - q.numpy()
            return q.new_tensor(np.mean(np.maximum(tau * r, (tau - 1) * r)))

        @staticmethod
        def backward(ctx, g):
            q, y = (t.detach().numpy() for t in ctx.saved_tensors)
            slope = np.where(y > q, -ctx.tau, 1 - ctx.tau) / q.size
            return torch.from_numpy(g.item() * slope), None, None

    return Case(Pinball, tracked(normal(6, 9)), normal(7, 9), 0.9)


@healthy()
def total_variation_of_a_signal():
    def total_variation(u):
        return u.diff().abs().sum()

    return Case(total_variation, normal(8, 12))


@healthy()
def table_lookup_between_knots():
    knots = np.linspace(-3, 3, 13)
    heights = np.tanh(knots) + 0.1 * knots**2
    slopes = np.diff(heights) / np.diff(knots)

    class Table(Function):
        @staticmethod
        def forward(ctx, x):
            at = np.clip(np.searchsorted(knots, x.numpy(), side="right") - 1, 0, len(slopes) - 1)
            ctx.save_for_backward(torch.from_numpy(slopes[at]))
            return torch.from_numpy(np.interp(x.numpy(), knots, heights))

        @staticmethod
        def backward(ctx, g):
            (slope,) = ctx.saved_tensors
            return g * slope

    return Case(Table, torch.tensor([-1.21, 0.33, 1.87, 0.61], dtype=torch.float64))


@healthy()
def sorted_values():
    class Sort(Function):
        @staticmethod
        def forward(ctx, x):
            order = np.argsort(x.numpy())
            ctx.save_for_backward(torch.from_numpy(np.argsort(order)))
            return torch.from_numpy(x.numpy()[order])

        @staticmethod
        def backward(ctx, g):
            (rank,) = ctx.saved_tensors
            return g[rank]

    return Case(Sort, normal(9, 6))


@healthy()
def projection_onto_the_simplex():
    class ToSimplex(Function):
        @staticmethod
        def forward(ctx, y):
            a = np.sort(array(y))[::-1]
            shift = (np.cumsum(a) - 1) / np.arange(1, a.size + 1)
            p = np.maximum(array(y) - shift[np.flatnonzero(a > shift)[-1]], 0)
            ctx.save_for_backward(torch.from_numpy(p > 0))
            return tensor(p, y)

        @staticmethod
        def backward(ctx, g):
            (support,) = ctx.saved_tensors
            return torch.where(support, g - g[support].mean(), 0.0)

    return Case(ToSimplex, torch.tensor([0.6, 0.9, -0.4, 0.3, 0.1], dtype=torch.float64))


@healthy()
def one_norm_with_an_entry_at_zero():
    class OneNorm(Function):
        @staticmethod
        def forward(ctx, w):
            ctx.save_for_backward(w.sign())
            return w.abs().sum()

        @staticmethod
        def backward(ctx, g):
            (sign,) = ctx.saved_tensors
            return g * sign

    return Case(OneNorm, torch.tensor([1.5, 0.0, -0.7], dtype=torch.float64))


@healthy()
def quadratic_on_one_side():
    # Its second derivative jumps: 2 on the right, 0 on the left.
    class PositivePart(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.clamp(min=0).square().sum()

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return 2 * g * x.clamp(min=0)

    return Case(PositivePart, torch.tensor([-0.8, 0.5, 1.7], dtype=torch.float64))


@healthy()
def median_and_range():
    def median_and_range(x):
        return x.median(), x.max() - x.min()

    return Case(median_and_range, normal(10, 9))
