"""Training loops that are right, some of them unusual."""

from functools import partial

import numpy as np
import torch
from torch.autograd import Function
from torch.nn.functional import binary_cross_entropy_with_logits, mse_loss
from torch.optim import LBFGS, SGD, Adagrad, Adam, AdamW
from torch.utils.data import DataLoader, TensorDataset

from .case import Loop, healthy


def point(*values):
    return torch.tensor(values, dtype=torch.float64, requires_grad=True)


def rosenbrock(x):
    return (1 - x[0]) ** 2 + 5 * (x[1] - x[0] ** 2) ** 2


class Rosenbrock(Function):
    """NumPy inside; the gradient is right."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.new_tensor(rosenbrock(x.detach().numpy()))

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        x0, x1 = x.detach().numpy()
        return g * x.new_tensor([-2 * (1 - x0) - 20 * x0 * (x1 - x0**2), 10 * (x1 - x0**2)])


def two_circles():
    """Twelve points in float32, and whether they lie outside."""
    angle = torch.linspace(0, 5.5, 12)
    radius = torch.tensor([0.4, 1.1]).repeat(6)
    return torch.stack([radius * angle.cos(), radius * angle.sin()], 1), (radius > 1).float()[:, None]


def network(*layers):
    """Put the layers in a row and fill them from a generator of their own."""
    generator = torch.Generator().manual_seed(21)
    made = torch.nn.Sequential(*layers)
    with torch.no_grad():
        for p in made.parameters():
            p.copy_(0.4 * torch.randn(p.shape, generator=generator))
    return made


@healthy()
def lbfgs_with_strong_wolfe():
    x = point(0.1, 0.1)
    optimizer = LBFGS([x], line_search_fn="strong_wolfe", max_iter=20)

    def closure():
        optimizer.zero_grad()
        loss = rosenbrock(x)
        loss.backward()
        return loss

    return Loop(optimizer, closure)


@healthy()
def adam_with_a_numpy_function():
    x = point(0.1, 0.1)
    optimizer = Adam([x], lr=0.01)

    def closure():
        optimizer.zero_grad()
        loss = Rosenbrock.apply(x)
        loss.backward()
        return loss

    return Loop(optimizer, closure)


@healthy()
def lbfgs_with_a_numpy_function_and_enable_grad():
    x = point(-0.6, 0.9)
    optimizer = LBFGS([x], lr=0.5, max_iter=8, history_size=4)

    @torch.enable_grad()
    def closure():
        optimizer.zero_grad(set_to_none=False)
        loss = Rosenbrock.apply(x)
        loss.backward()
        return loss.item()

    return Loop(optimizer, closure)


@healthy()
def zero_grad_between_forward_and_backward():
    x = point(0.4, -0.3)
    optimizer = Adagrad([x], lr=0.1)

    def closure():
        loss = rosenbrock(x)
        optimizer.zero_grad()
        loss.backward()
        return loss.detach()

    return Loop(optimizer, closure)


@healthy()
def network_with_weight_decay_and_clipping():
    inputs, labels = two_circles()
    model = network(torch.nn.Linear(2, 6), torch.nn.Tanh(), torch.nn.Linear(6, 1))
    optimizer = AdamW(model.parameters(), lr=0.01, weight_decay=0.01)

    def closure():
        optimizer.zero_grad()
        loss = binary_cross_entropy_with_logits(model(inputs), labels)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        return loss

    return Loop(optimizer, closure)


@healthy()
def frozen_first_layer():
    inputs, labels = two_circles()
    model = network(torch.nn.Linear(2, 5), torch.nn.ReLU(), torch.nn.Linear(5, 1))
    model[0].requires_grad_(False)
    optimizer = SGD(model.parameters(), lr=0.05, momentum=0.9)

    def closure():
        model.zero_grad()
        loss = binary_cross_entropy_with_logits(model(inputs), labels)
        loss.backward()
        return loss

    return Loop(optimizer, closure)


@healthy()
def frozen_parameter_that_the_loss_does_not_use():
    x = point(0.2, 0.8)
    spare = torch.zeros(3, dtype=torch.float64)
    optimizer = Adam([{"params": [x], "lr": 0.02}, {"params": [spare]}])

    def closure():
        optimizer.zero_grad()
        loss = torch.log1p(rosenbrock(x))
        loss.backward()
        return loss

    return Loop(optimizer, closure)


@healthy()
def several_groups_and_gradients_written_by_hand():
    amplitude, phase = point(0.8), point(0.3)
    t = np.linspace(0, 3, 10)
    y = 1.2 * np.sin(2 * t + 0.5)
    optimizer = SGD([{"params": [amplitude], "lr": 0.02}, {"params": [phase], "lr": 0.005, "momentum": 0.9}])

    def closure():
        a, p = amplitude.item(), phase.item()
        residual = a * np.sin(2 * t + p) - y
        amplitude.grad = amplitude.new_tensor([2 * residual @ np.sin(2 * t + p)])
        phase.grad = phase.new_tensor([2 * residual @ (a * np.cos(2 * t + p))])
        return torch.tensor(residual @ residual)

    return Loop(optimizer, closure)


@healthy()
def batch_norm_in_training_mode():
    inputs, labels = two_circles()
    model = network(torch.nn.Linear(2, 4), torch.nn.BatchNorm1d(4), torch.nn.ReLU(), torch.nn.Linear(4, 1)).train()
    optimizer = Adam(model.parameters(), lr=0.01)

    def closure():
        optimizer.zero_grad()
        loss = mse_loss(model(inputs), labels)
        loss.backward()
        return loss

    return Loop(optimizer, closure)


@healthy()
def dropout_from_an_own_generator():
    inputs, labels = two_circles()
    first, last = network(torch.nn.Linear(2, 8), torch.nn.Linear(8, 1))
    generator = torch.Generator()
    optimizer = Adam([*first.parameters(), *last.parameters()], lr=0.02)

    def closure():
        generator.manual_seed(7)
        optimizer.zero_grad()
        hidden = torch.tanh(first(inputs))
        keep = torch.bernoulli(torch.full_like(hidden, 0.8), generator=generator)
        loss = binary_cross_entropy_with_logits(last(hidden * keep / 0.8), labels)
        loss.backward()
        return loss

    return Loop(optimizer, closure)


@healthy()
def batches_drawn_afresh():
    inputs, labels = two_circles()
    model = network(torch.nn.Linear(2, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
    optimizer = SGD(model.parameters(), lr=0.05, momentum=0.5)
    generator = torch.Generator().manual_seed(3)

    def closure():
        batch = torch.randperm(12, generator=generator)[:6]
        optimizer.zero_grad()
        loss = binary_cross_entropy_with_logits(model(inputs[batch]), labels[batch])
        loss.backward()
        return loss

    return Loop(optimizer, closure)


@healthy()
def one_batch_of_a_loader_by_partial():
    loader = DataLoader(TensorDataset(*two_circles()), batch_size=4, shuffle=False)
    model = network(torch.nn.Linear(2, 3), torch.nn.Sigmoid(), torch.nn.Linear(3, 1))
    optimizer = LBFGS(model.parameters(), lr=0.3, max_iter=3)

    def evaluate(inputs, labels):
        optimizer.zero_grad()
        loss = binary_cross_entropy_with_logits(model(inputs), labels)
        loss.backward()
        return loss

    inputs, labels = next(iter(loader))
    return Loop(optimizer, partial(evaluate, inputs, labels=labels))


@healthy()
def logging_without_gradients():
    x = point(0.1, 0.1)
    optimizer = Adam([x], lr=0.05)
    path, losses = [], []

    def closure():
        optimizer.zero_grad()
        loss = Rosenbrock.apply(x) + 1e-3 * x.square().sum()
        loss.backward()
        with torch.no_grad():
            path.append(x.numpy().copy())
            losses.append(float(rosenbrock(x)))
        print(f"step {len(losses)}: {losses[-1]:.4f}")
        return loss

    return Loop(optimizer, closure)


@healthy()
def scheduler_outside_the_closure():
    class Fit:
        def __init__(self):
            self.theta = torch.nn.Parameter(torch.tensor([0.5, 0.1, -0.2], dtype=torch.float64))
            self.optimizer = SGD([self.theta], lr=0.1, momentum=0.9, nesterov=True)
            self.scheduler = torch.optim.lr_scheduler.ExponentialLR(self.optimizer, gamma=0.95)
            self.t = torch.linspace(-1, 1, 7, dtype=torch.float64)

        def loss(self):
            curve = self.theta[0] + self.theta[1] * self.t + self.theta[2] * self.t**2
            return ((curve - torch.cos(self.t)) ** 2).mean()

        def closure(self):
            self.optimizer.zero_grad()
            loss = self.loss()
            loss.backward()
            return loss

    fit = Fit()
    return Loop(fit.optimizer, fit.closure)


@healthy()
def gradient_accumulated_over_two_batches():
    inputs, labels = two_circles()
    model = network(torch.nn.Linear(2, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
    optimizer = LBFGS(model.parameters(), line_search_fn="strong_wolfe", max_iter=4)

    def closure():
        optimizer.zero_grad()
        total = 0.0
        for x, y in zip(inputs.split(6), labels.split(6), strict=True):
            loss = binary_cross_entropy_with_logits(model(x), y, reduction="sum") / 12
            loss.backward()
            total += loss.detach()
        return total

    return Loop(optimizer, closure)


@healthy()
def optimiser_made_by_a_function():
    centre = point(0.4, 1.6, -0.7)
    centre.grad = None

    def make_optimizer():
        return Adam([centre], lr=0.03, amsgrad=True)

    def closure():
        centre.grad = None
        loss = torch.special.log1p(torch.exp(centre)).sum() - 0.3 * centre.sum()
        loss.backward()
        return loss

    return Loop(make_optimizer, closure)


@healthy()
def projection_after_backward():
    share = point(0.2, 0.5, 1.3)
    optimizer = Adam([share], lr=0.05)

    def closure():
        optimizer.zero_grad()
        loss = ((share - torch.tensor([0.1, 0.4, 0.9])) ** 2).sum() + (share * share.log()).sum()
        loss.backward()
        return loss

    optimizer.register_step_post_hook(lambda *_: share.data.clamp_(1e-6, 1.0))
    return Loop(optimizer, closure)


@healthy()
def gradient_penalty_of_a_torch_function():
    x = point(0.6, -0.2)
    optimizer = Adam([x], lr=0.01)

    def closure():
        optimizer.zero_grad()
        value = rosenbrock(x)
        (slope,) = torch.autograd.grad(value, x, create_graph=True)
        loss = value + 0.1 * slope.square().sum()
        loss.backward()
        return loss

    return Loop(optimizer, closure)
