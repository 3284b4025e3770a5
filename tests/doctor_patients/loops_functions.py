"""Training loops with a right closure around a wrong function or a wrong graph."""

import math

import numpy as np
import torch
from torch.autograd import Function
from torch.optim import LBFGS, SGD, Adam, RMSprop

from .case import Loop, patient


def point(*values):
    return torch.tensor(values, dtype=torch.float64, requires_grad=True)


class Valley(Function):
    """Torch operations only; the gradient is right."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return (1 - x[0]) ** 2 + 5 * (x[1] - x[0] ** 2) ** 2

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        across = x[1] - x[0] ** 2
        return g * torch.stack([-2 * (1 - x[0]) - 20 * x[0] * across, 10 * across])


def closure_of(optimizer, loss_function):
    """The usual closure."""

    def closure():
        optimizer.zero_grad()
        loss = loss_function()
        loss.backward()
        return loss

    return closure


# --- instance-called


@patient("instance-called")
def object_handed_to_step():
    x = point(0.1, 0.1)
    return Loop(Adam([x], lr=0.01), Valley())


@patient("instance-called")
def object_called_in_the_closure():
    x = point(0.1, 0.1)
    optimizer = LBFGS([x], max_iter=5)
    valley = Valley()
    return Loop(optimizer, closure_of(optimizer, lambda: valley(x)))


# --- undefined-name


@patient("undefined-name")
def backward_of_the_loss_has_a_typo():
    class Bowl(Function):
        @staticmethod
        def forward(ctx, centre):
            ctx.save_for_backward(centre)
            return (centre.cosh() - 1).sum()

        @staticmethod
        def backward(ctx, grad_out):
            (centre,) = ctx.saved_tensors
            return grad_output * centre.sinh()  # noqa: F821

    centre = point(0.5, -1.2)
    optimizer = SGD([centre], lr=0.1)
    return Loop(optimizer, closure_of(optimizer, lambda: Bowl.apply(centre)))


@patient("undefined-name")
def closure_names_an_optimiser_of_another_cell():
    x = point(0.3, 0.6)
    adam = Adam([x], lr=0.02)

    def closure():
        optimiser.zero_grad()  # noqa: F821
        loss = Valley.apply(x)
        loss.backward()
        return loss

    return Loop(adam, closure)


# --- backward-twice


@patient("backward-twice")
def loss_of_outside_the_closure():
    x = point(0.1, 0.1)
    optimizer = LBFGS([x], max_iter=5)
    loss = Valley.apply(x)

    def closure():
        optimizer.zero_grad()
        loss.backward()
        return loss

    return Loop(optimizer, closure)


@patient("backward-twice")
def two_losses_with_one_hidden_layer():
    inputs = torch.linspace(-1, 1, 6, dtype=torch.float64)[:, None]
    first, second = point(0.4, -0.7), point(1.1, 0.3)
    optimizer = Adam([first, second], lr=0.01)

    def closure():
        optimizer.zero_grad()
        hidden = torch.sigmoid(inputs * first)
        fit, size = ((hidden @ second - 0.4) ** 2).mean(), (hidden**2).mean()
        fit.backward()
        size.backward()
        return fit + size

    return Loop(optimizer, closure)


@patient("backward-twice")
def hidden_state_carried_over():
    class Recurrence:
        def __init__(self):
            self.weight = torch.nn.Parameter(torch.tensor([[0.5, -0.2], [0.1, 0.7]]))
            self.optimizer = SGD([self.weight], lr=0.1)
            self.state = torch.tensor([1.0, -0.5])

        def closure(self):
            self.optimizer.zero_grad()
            self.state = torch.tanh(self.weight @ self.state)
            loss = (self.state - 0.3).square().sum()
            loss.backward()
            return loss

    recurrence = Recurrence()
    return Loop(recurrence.optimizer, recurrence.closure)


# --- saved-then-changed


@patient("saved-then-changed")
def projection_between_forward_and_backward():
    x = point(1.4, -0.3)
    optimizer = Adam([x], lr=0.05)

    def closure():
        optimizer.zero_grad()
        loss = Valley.apply(x)
        with torch.no_grad():
            x.clamp_(-1, 1)
        loss.backward()
        return loss

    return Loop(optimizer, closure)


@patient("saved-then-changed")
def activation_scaled_in_place():
    weight = torch.nn.Parameter(torch.tensor([[0.2, -0.5], [0.9, 0.4]]))
    inputs = torch.tensor([[1.0, 0.3], [-0.6, 0.8], [0.1, 0.1]])
    optimizer = SGD([weight], lr=0.1, momentum=0.9)

    def loss():
        activation = torch.sigmoid(inputs @ weight)
        activation *= 2
        return (activation - 1.2).square().mean()

    return Loop(optimizer, closure_of(optimizer, loss))


# --- numpy-on-tracked


@patient("numpy-on-tracked")
def numpy_loss_of_the_parameter():
    x = point(0.1, 0.1)
    optimizer = Adam([x], lr=0.01)

    def loss():
        p = x.numpy()
        return torch.tensor((1 - p[0]) ** 2 + 5 * (p[1] - p[0] ** 2) ** 2, requires_grad=True)

    return Loop(optimizer, closure_of(optimizer, loss))


@patient("numpy-on-tracked")
def history_kept_as_arrays():
    x = point(0.7, -0.2)
    optimizer = RMSprop([x], lr=0.01)
    path = []

    def closure():
        optimizer.zero_grad()
        loss = Valley.apply(x)
        loss.backward()
        path.append(np.asarray(x))
        return loss

    return Loop(optimizer, closure)


# --- changed-through-data


@patient("changed-through-data")
def clamp_through_data_before_backward():
    x = point(1.4, -0.3)
    optimizer = SGD([x], lr=0.01)

    def closure():
        optimizer.zero_grad()
        loss = Valley.apply(x)
        x.data.clamp_(-1, 1)
        loss.backward()
        return loss

    return Loop(optimizer, closure)


@patient("changed-through-data")
def hand_made_decay_through_data():
    log_rates = torch.nn.Parameter(torch.tensor([0.5, 1.5, -0.8], dtype=torch.float64))
    counts = torch.tensor([2.0, 6.0, 1.0], dtype=torch.float64)
    optimizer = Adam([log_rates], lr=0.02)

    def closure():
        optimizer.zero_grad(set_to_none=True)
        loss = 0.5 * ((log_rates**2 - counts) ** 2).sum()
        for group in optimizer.param_groups:
            for p in group["params"]:
                p.data.mul_(0.9)
        loss.backward()
        return loss

    return Loop(optimizer, closure)


@patient("changed-through-data")
def buffer_shared_with_numpy():
    heights = np.array([0.8, 1.9, -0.4])
    x = torch.from_numpy(heights).requires_grad_()
    optimizer = LBFGS([x], max_iter=5)

    def closure():
        optimizer.zero_grad()
        loss = (x**4).sum() - x.prod()
        np.clip(heights, -1.0, 1.0, out=heights)
        loss.backward()
        return loss

    return Loop(optimizer, closure)


# --- nan-gradient


@patient("nan-gradient")
def distance_from_the_start():
    start = torch.tensor([0.5, -0.5], dtype=torch.float64)
    x = start.clone().requires_grad_()
    optimizer = Adam([x], lr=0.01)

    def loss():
        return Valley.apply(x) + 0.1 * torch.sqrt(((x - start) ** 2).sum())

    return Loop(optimizer, closure_of(optimizer, loss))


@patient("nan-gradient")
def where_around_a_logarithm():
    share = torch.nn.Parameter(torch.tensor([0.0, 0.3, 0.7], dtype=torch.float64))
    optimizer = SGD([share], lr=0.01, momentum=0.9)

    def entropy():
        return torch.where(share > 0, share * share.log(), torch.zeros_like(share)).sum() + share.square().sum()

    return Loop(optimizer, closure_of(optimizer, entropy))


@patient("nan-gradient")
def own_norm_divides_by_zero():
    class Norm(Function):
        @staticmethod
        def forward(ctx, v):
            ctx.save_for_backward(v)
            return v.norm()

        @staticmethod
        def backward(ctx, g):
            (v,) = ctx.saved_tensors
            return g * v / v.norm()

    slope, offset = point(1.0), point(0.2, 0.1)
    shift = torch.nn.Parameter(torch.zeros(2, dtype=torch.float64))
    optimizer = LBFGS([slope, offset, shift], max_iter=4)

    def loss():
        return ((slope * 2 - offset) ** 2).sum() + Norm.apply(shift)

    return Loop(optimizer, closure_of(optimizer, loss))


# --- numpy-result


@patient("numpy-result")
def function_hands_back_a_numpy_float():
    class ValleyInNumPy(Function):
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

    x = point(0.1, 0.1)
    optimizer = Adam([x], lr=0.01)
    return Loop(optimizer, closure_of(optimizer, lambda: ValleyInNumPy.apply(x)))


@patient("numpy-result")
def function_hands_back_a_python_float():
    class Rayleigh(Function):
        @staticmethod
        def forward(v, matrix):
            return float(v @ matrix @ v) / float(v @ v)

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)
            ctx.value = output

        @staticmethod
        def backward(ctx, g):
            v, matrix = ctx.saved_tensors
            return g * 2 * (matrix @ v - ctx.value * v) / (v @ v), None

    matrix = torch.tensor([[2.0, 0.5], [0.5, 1.0]], dtype=torch.float64)
    v = point(1.0, 0.3)
    optimizer = LBFGS([v], lr=0.5)
    return Loop(optimizer, closure_of(optimizer, lambda: Rayleigh.apply(v, matrix)))


# --- wrong-seed


@patient("wrong-seed")
def torch_seed_for_numpy_noise():
    x = point(0.1, 0.1)
    optimizer = Adam([x], lr=0.01)

    def closure():
        torch.manual_seed(0)
        optimizer.zero_grad()
        loss = np.random.uniform(0.5, 1.5) * Valley.apply(x)  # noqa: NPY002
        loss.backward()
        return loss

    return Loop(optimizer, closure)


@patient("wrong-seed")
def seed_everything_but_numpy():
    def seed_everything(seed):
        torch.manual_seed(seed)
        torch.use_deterministic_algorithms(False)

    weights = torch.nn.Parameter(torch.tensor([0.3, -0.8, 0.5], dtype=torch.float64))
    optimizer = SGD([weights], lr=0.05, momentum=0.5)
    features = torch.linspace(-1, 1, 60, dtype=torch.float64).reshape(20, 3) ** 3

    def loss():
        seed_everything(42)
        batch = np.random.permutation(20)[:5]  # noqa: NPY002
        return ((features[batch] @ weights - math.pi) ** 2).mean()

    return Loop(optimizer, closure_of(optimizer, loss))
