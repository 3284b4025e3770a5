"""Training loops whose parameter cannot be trained, or whose ``step`` gets something that is no closure."""

import numpy as np
import torch
from torch.autograd import Function
from torch.optim import LBFGS, SGD, Adam

from .case import Loop, patient


def point(*values):
    return torch.tensor(values, dtype=torch.float64, requires_grad=True)


class StyblinskiTang(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        p = x.detach().numpy()
        return x.new_tensor(0.5 * (p**4 - 16 * p**2 + 5 * p).sum())

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * (2 * x**3 - 16 * x + 2.5)


def closure_of(optimizer, loss_function):
    """The usual closure."""

    def closure():
        optimizer.zero_grad()
        loss = loss_function()
        loss.backward()
        return loss

    return closure


# --- nonleaf-parameter


@patient("nonleaf-parameter")
def start_scaled_after_requires_grad():
    x = 0.01 * torch.tensor([10.0, 10.0], dtype=torch.float64, requires_grad=True)

    def make_optimizer():
        return Adam([x], lr=0.01)

    def closure():
        loss = StyblinskiTang.apply(x)
        loss.backward()
        return loss

    return Loop(make_optimizer, closure)


@patient("nonleaf-parameter")
def double_after_requires_grad():
    weights = torch.ones(3, requires_grad=True).to(torch.float64)

    def closure():
        weights.grad = None
        loss = ((weights - torch.arange(3.0)) ** 2).sum()
        loss.backward()
        return loss

    return Loop(lambda: LBFGS([weights], max_iter=10), closure)


@patient("nonleaf-parameter")
def network_weight_times_a_mask():
    layer = torch.nn.Linear(2, 2, bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[0.5, -0.1], [0.3, 0.8]]))
    masked = layer.weight * torch.tensor([[1.0, 0.0], [1.0, 1.0]])
    inputs = torch.tensor([[1.0, 2.0], [0.5, -1.0]])

    def closure():
        loss = (inputs @ masked.T).square().mean()
        loss.backward()
        return loss

    return Loop(lambda: SGD([{"params": [masked]}], lr=0.1, momentum=0.5), closure)


@patient("nonleaf-parameter")
def two_numbers_stacked():
    a, b = (torch.tensor(v, requires_grad=True) for v in (0.3, 1.7))
    theta = torch.stack([a, b])

    def closure():
        loss = torch.exp(-theta).sum() + theta.square().sum()
        loss.backward()
        return loss

    return Loop(lambda: Adam([theta]), closure)


# --- no-requires-grad


@patient("no-requires-grad")
def plain_tensor_as_parameter():
    x = torch.tensor([0.1, 0.1], dtype=torch.float64)
    optimizer = Adam([x], lr=0.01)
    return Loop(optimizer, closure_of(optimizer, lambda: StyblinskiTang.apply(x)))


@patient("no-requires-grad")
def array_as_parameter():
    amplitudes = torch.from_numpy(np.array([1.0, 0.5, 0.25]))
    optimizer = LBFGS([amplitudes], line_search_fn="strong_wolfe")
    return Loop(optimizer, closure_of(optimizer, lambda: ((amplitudes.cumsum(0) - 1) ** 2).sum()))


@patient("no-requires-grad")
def whole_network_still_frozen():
    network = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Sigmoid(), torch.nn.Linear(3, 1))
    with torch.no_grad():
        for p in network.parameters():
            p.copy_(torch.linspace(-0.5, 0.7, p.numel()).reshape(p.shape))
    network.requires_grad_(False)
    inputs = torch.tensor([[0.1, 0.9], [1.2, -0.3]])
    optimizer = SGD(network.parameters(), lr=0.1)
    return Loop(optimizer, closure_of(optimizer, lambda: (network(inputs) - 1).square().mean()))


@patient("no-requires-grad")
def requires_grad_set_after_the_loss():
    x = torch.tensor([0.4, -1.1], dtype=torch.float64)
    loss = StyblinskiTang.apply(x)
    x.requires_grad_()
    optimizer = Adam([x], lr=0.1)

    def closure():
        optimizer.zero_grad()
        loss.backward()
        return loss

    return Loop(optimizer, closure)


# --- integer-parameter


@patient("integer-parameter")
def whole_numbers_as_start():
    x = torch.tensor([3, -1])
    optimizer = Adam([x], lr=0.1)
    return Loop(optimizer, closure_of(optimizer, lambda: ((0.5 * x - 1.2) ** 2).sum()))


@patient("integer-parameter")
def array_of_integers_as_start():
    start = np.arange(4)
    made = {}

    def make_optimizer():
        made["x"] = torch.from_numpy(start).requires_grad_()
        return SGD([made["x"]], lr=0.1)

    def closure():
        loss = (made["x"] ** 2 - 2.0).abs().sum()
        loss.backward()
        return loss

    return Loop(make_optimizer, closure)


@patient("integer-parameter")
def parameter_of_integers_in_a_module():
    class Shift(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.shift = torch.nn.Parameter(torch.tensor([1, 2, 3]))

        def forward(self, inputs):
            return inputs + self.shift

    made = {}

    def make_optimizer():
        made["model"] = Shift()
        return Adam(made["model"].parameters(), lr=0.01)

    def closure():
        loss = made["model"](torch.ones(3)).square().sum()
        loss.backward()
        return loss

    return Loop(make_optimizer, closure)


# --- step-of-a-loss


@patient("step-of-a-loss")
def loss_handed_to_step():
    x = point(0.1, 0.1)
    optimizer = Adam([x], lr=0.01)
    optimizer.zero_grad()
    loss = StyblinskiTang.apply(x)
    loss.backward()
    return Loop(optimizer, loss)


@patient("step-of-a-loss")
def closure_called_on_the_way():
    x = point(-0.7, 0.4, 1.2)
    optimizer = LBFGS([x], max_iter=20)
    closure = closure_of(optimizer, lambda: StyblinskiTang.apply(x))
    return Loop(optimizer, closure())


@patient("step-of-a-loss")
def value_without_its_graph():
    rate = torch.nn.Parameter(torch.tensor(0.5))
    optimizer = SGD([rate], lr=0.1, momentum=0.9)
    closure = closure_of(optimizer, lambda: (torch.exp(-rate) - 0.4) ** 2)
    return Loop(optimizer, closure().detach())


# --- apply-without-input


@patient("apply-without-input")
def adam_steps_with_apply():
    x = point(0.1, 0.1)
    return Loop(Adam([x], lr=0.01), StyblinskiTang.apply)


@patient("apply-without-input")
def lbfgs_steps_with_an_alias_of_apply():
    class LogBarrier(Function):
        @staticmethod
        def forward(slack, weight):
            return -(weight * torch.log(slack)).sum()

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, g):
            slack, weight = ctx.saved_tensors
            return -g * weight / slack, -g * torch.log(slack)

    log_barrier = LogBarrier.apply
    slack = point(0.5, 1.5)
    assert log_barrier(slack, torch.ones(2)).requires_grad
    return Loop(LBFGS([slack]), log_barrier)


@patient("apply-without-input")
def sgd_of_a_layer_steps_with_apply():
    class Hinge(Function):
        @staticmethod
        def forward(ctx, margin):
            ctx.save_for_backward(margin)
            return (1 - margin).clamp(min=0).mean()

        @staticmethod
        def backward(ctx, grad_output):
            (margin,) = ctx.saved_tensors
            return -grad_output * (margin < 1).to(margin) / margin.numel()

    layer = torch.nn.Linear(3, 1)
    torch.nn.init.constant_(layer.weight, 0.5)
    torch.nn.init.zeros_(layer.bias)
    optimizer = SGD(layer.parameters(), lr=0.1)
    return Loop(optimizer, Hinge.apply)
