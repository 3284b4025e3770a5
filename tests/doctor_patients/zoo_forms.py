"""Healthy functions written in every form that torch allows: arguments, in-place work, nests, rules for torch.func."""

import numpy as np
import torch
from torch.autograd import Function

from .case import Case, healthy
from .zoo_data import array, normal, tensor, tracked, uniform


@healthy()
def optional_bias_left_out():
    class Linear(Function):
        @staticmethod
        def forward(ctx, x, weight, bias=None):
            ctx.save_for_backward(x, weight)
            ctx.has_bias = bias is not None
            return x @ weight.T if bias is None else x @ weight.T + bias

        @staticmethod
        def backward(ctx, g):
            x, weight = ctx.saved_tensors
            return g @ weight, g.T @ x, g.sum(0) if ctx.has_bias else None

    return Case(Linear, normal(170, 4, 3), normal(171, 2, 3), None)


@healthy()
def optional_bias_given():
    class Linear(Function):
        @staticmethod
        def forward(ctx, x, weight, bias=None):
            ctx.save_for_backward(x, weight, bias)
            return x @ weight.T if bias is None else x @ weight.T + bias

        @staticmethod
        def backward(ctx, g):
            x, weight, _ = ctx.saved_tensors
            to_x = g @ weight if ctx.needs_input_grad[0] else None
            to_weight = g.T @ x if ctx.needs_input_grad[1] else None
            to_bias = g.sum(0) if ctx.needs_input_grad[2] else None
            return to_x, to_weight, to_bias

    return Case(Linear, normal(172, 4, 3), normal(173, 2, 3), normal(174, 2))


@healthy()
def words_and_numbers_among_the_arguments():
    class Norm(Function):
        @staticmethod
        def forward(ctx, x, kind, power, axis):
            ctx.kind, ctx.power, ctx.axis = kind, power, axis
            ctx.save_for_backward(x)
            total = x.abs().pow(power).sum(axis)
            return total if kind == "sum" else total / x.shape[axis]

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            slope = ctx.power * x.abs().pow(ctx.power - 1) * x.sign()
            if ctx.kind == "mean":
                slope = slope / x.shape[ctx.axis]
            return g.unsqueeze(ctx.axis) * slope, None, None, None

    return Case(Norm, normal(175, 3, 4), "mean", 3, 1)


@healthy()
def data_that_needs_no_gradient():
    class WeightedError(Function):
        @staticmethod
        def forward(ctx, prediction, target, weight):
            ctx.save_for_backward(prediction, target, weight)
            return (weight * (prediction - target) ** 2).sum()

        @staticmethod
        def backward(ctx, g):
            prediction, target, weight = ctx.saved_tensors
            return 2 * g * weight * (prediction - target), None, None

    return Case(WeightedError, tracked(normal(176, 5)), normal(177, 5), uniform(178, 5))


@healthy()
def list_of_plain_numbers():
    class Polynomial(Function):
        @staticmethod
        def forward(ctx, x, coefficients):
            ctx.save_for_backward(x)
            ctx.coefficients = coefficients
            return sum(c * x**k for k, c in enumerate(coefficients))

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * sum(k * c * x ** (k - 1) for k, c in enumerate(ctx.coefficients) if k), None

    return Case(Polynomial, normal(179, 4), [1.0, -2.0, 0.5, 0.25])


@healthy()
def numpy_array_as_data():
    class Project(Function):
        @staticmethod
        def forward(ctx, x, directions):
            ctx.directions = directions
            return tensor(directions @ array(x), x)

        @staticmethod
        def backward(ctx, g):
            return torch.from_numpy(ctx.directions.T) @ g, None

    return Case(Project, normal(180, 3), np.array([[1.0, 2.0, 0.0], [0.5, -1.0, 3.0]]))


@healthy()
def in_place_exponential_marked_dirty():
    class Exp_(Function):
        @staticmethod
        def forward(ctx, x):
            x.exp_()
            ctx.mark_dirty(x)
            ctx.save_for_backward(x)
            return x

        @staticmethod
        def backward(ctx, g):
            (y,) = ctx.saved_tensors
            return g * y

    return Case(lambda x: Exp_.apply(x * 1.0), normal(181, 4))


@healthy()
def view_of_the_input():
    class FirstRows(Function):
        @staticmethod
        def forward(ctx, x, rows):
            ctx.shape = x.shape
            return x[:rows].clone()

        @staticmethod
        def backward(ctx, g):
            return torch.cat([g, g.new_zeros(ctx.shape[0] - g.shape[0], ctx.shape[1])]), None

    return Case(FirstRows, normal(182, 4, 2), 3)


@healthy()
def reshape_that_returns_a_view():
    class Flatten(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.shape = x.shape
            return x.view(-1)

        @staticmethod
        def backward(ctx, g):
            return g.view(ctx.shape)

    return Case(lambda x: Flatten.apply(x.contiguous()).sin(), normal(183, 2, 3))


@healthy()
def identity_that_returns_its_input():
    class Identity(Function):
        @staticmethod
        def forward(ctx, x):
            return x.view_as(x)

        @staticmethod
        def backward(ctx, g):
            return g

    return Case(Identity, normal(184, 3))


@healthy()
def softmax_from_its_saved_output():
    class Softmax(Function):
        @staticmethod
        def forward(ctx, logits, axis):
            p = torch.softmax(logits, axis)
            ctx.save_for_backward(p)
            ctx.axis = axis
            return p

        @staticmethod
        def backward(ctx, g):
            (p,) = ctx.saved_tensors
            return p * (g - (g * p).sum(ctx.axis, keepdim=True)), None

    return Case(Softmax, normal(185, 2, 4), 1)


class Value(Function):
    """NumPy at all three levels, as the last lesson writes it."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.new_tensor(np.sum(array(x) ** 4))

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * Gradient.apply(x)


class Gradient(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return tensor(4 * array(x) ** 3, x)

    @staticmethod
    def backward(ctx, t):
        (x,) = ctx.saved_tensors
        return HessianProduct.apply(x, t)


class HessianProduct(Function):
    @staticmethod
    def forward(ctx, x, t):
        return tensor(12 * array(x) ** 2 * array(t), x)

    @staticmethod
    def backward(ctx, g):
        raise RuntimeError("Value has no third derivative.")


@healthy()
def value_gradient_and_hessian_product_in_numpy():
    return Case(Value, normal(186, 3))


@healthy()
def second_derivative_refused():
    class Simulate(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return tensor(np.arctan(array(x)), x)

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            # x goes in too: else a second derivative would be silently zero.
            return Slope.apply(x, g)

    class Slope(Function):
        @staticmethod
        def forward(ctx, x, g):
            return tensor(array(g) / (1 + array(x) ** 2), x)

        @staticmethod
        def backward(ctx, t):
            raise NotImplementedError("Simulate gives first derivatives only.")

    return Case(Simulate, normal(187, 3))


@healthy()
def every_rule_for_torch_func():
    class Tanh(Function):
        @staticmethod
        def forward(x):
            return torch.tanh(x)

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(output)
            ctx.save_for_forward(output)

        @staticmethod
        def backward(ctx, g):
            (y,) = ctx.saved_tensors
            return g * (1 - y**2)

        @staticmethod
        def jvp(ctx, t):
            (y,) = ctx.saved_tensors
            return t * (1 - y**2)

        @staticmethod
        def vmap(info, in_dims, x):
            return Tanh.apply(x), in_dims[0]

    return Case(Tanh, normal(188, 4))


@healthy()
def vmap_rule_generated():
    class Interaction(Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x, y):
            return x * torch.exp(-y)

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)
            ctx.save_for_forward(*inputs)

        @staticmethod
        def backward(ctx, g):
            x, y = ctx.saved_tensors
            decay = torch.exp(-y)
            return g * decay, -g * x * decay

        @staticmethod
        def jvp(ctx, dx, dy):
            x, y = ctx.saved_tensors
            return (dx - x * dy) * torch.exp(-y)

    return Case(Interaction, normal(189, 4), normal(190, 4))


@healthy()
def apply_instead_of_the_class():
    return Case(Value.apply, normal(191, 4))


@healthy()
def ctx_under_another_name():
    class Sigmoid(Function):
        @staticmethod
        def forward(self, inp):
            out = 1 / (1 + torch.exp(-inp))
            self.save_for_backward(out)
            return out

        @staticmethod
        def backward(self, grad):
            out = self.saved_tensors[0]
            return grad * out * (1 - out)

    return Case(Sigmoid, normal(192, 2, 2))


@healthy()
def class_methods_in_a_family():
    class Transfer(Function):
        power = 2

        @classmethod
        def forward(cls, ctx, x):
            ctx.save_for_backward(x)
            return x**cls.power

        @classmethod
        def backward(cls, ctx, g):
            (x,) = ctx.saved_tensors
            return g * cls.power * x ** (cls.power - 1)

    class CubicTransfer(Transfer):
        power = 3

    return Case(CubicTransfer, normal(193, 3))


@healthy()
def extra_gradients_for_arguments_left_out():
    class Shift(Function):
        @staticmethod
        def forward(ctx, x, offset=0.5, scale=2.0):
            ctx.scale = scale
            return scale * (x - offset)

        @staticmethod
        def backward(ctx, g):
            return ctx.scale * g, None, None

    return Case(Shift, normal(194, 3))


@healthy()
def gradient_by_autograd_inside_backward():
    class Checkpointed(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return energy(x)

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            again = torch.is_grad_enabled()
            with torch.enable_grad():
                (slope,) = torch.autograd.grad(energy(x), x, create_graph=again)
            return g * slope

    def energy(x):
        return (x.sin() * x.roll(1)).sum()

    return Case(Checkpointed, normal(195, 4))


@healthy()
def unused_branch_that_is_never_wrong():
    class Switch(Function):
        @staticmethod
        def forward(ctx, x, quadratic):
            ctx.quadratic = quadratic
            ctx.save_for_backward(x)
            return (x**2).sum() if quadratic else x.sum()

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            if not ctx.quadratic:
                return g.expand_as(x), None
            return 2 * g * x, None

    return Case(Switch, normal(196, 3), False)
