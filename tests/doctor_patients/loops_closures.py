"""Training loops whose closure forgets a line, or does one line too many."""

from functools import partial

import numpy as np
import torch
from torch.autograd import Function
from torch.nn.functional import mse_loss
from torch.optim import LBFGS, SGD, Adam, AdamW, RMSprop

from .case import Loop, patient


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


def line_data():
    t = torch.linspace(-1, 1, 8, dtype=torch.float64)[:, None]
    return t, 0.7 * t - 0.3 + 0.1 * torch.sin(9 * t)


def small_network():
    generator = torch.Generator().manual_seed(8)
    network = torch.nn.Sequential(torch.nn.Linear(1, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1)).double()
    with torch.no_grad():
        for p in network.parameters():
            p.copy_(0.5 * torch.randn(p.shape, generator=generator, dtype=p.dtype))
    return network


# --- closure-without-zero-grad


@patient("closure-without-zero-grad")
def adam_on_the_valley():
    x = point(0.1, 0.1)
    optimizer = Adam([x], lr=0.05)

    def closure():
        loss = Rosenbrock.apply(x)
        loss.backward()
        return loss

    return Loop(optimizer, closure)


@patient("closure-without-zero-grad")
def momentum_on_a_network():
    t, y = line_data()
    network = small_network()
    optimizer = SGD(network.parameters(), lr=0.02, momentum=0.9)

    def closure():
        prediction = network(t)
        loss = mse_loss(prediction, y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 5.0)
        return loss

    return Loop(optimizer, closure)


@patient("closure-without-zero-grad")
def lbfgs_on_a_likelihood():
    counts = torch.tensor([3.0, 1.0, 4.0, 1.0], dtype=torch.float64)
    log_rate = point(0.0, 0.2, 0.4, 0.6)
    optimizer = LBFGS([log_rate], lr=0.5, max_iter=10)

    def negative_log_likelihood():
        with torch.enable_grad():
            loss = (log_rate.exp() - counts * log_rate).sum() + 0.1 * (log_rate.diff() ** 2).sum()
            loss.backward()
        return loss

    return Loop(optimizer, negative_log_likelihood)


@patient("closure-without-zero-grad")
def only_one_of_two_groups_is_cleared():
    t, y = line_data()
    slope, offset = point(0.0), point(0.5)
    optimizer = Adam([{"params": [slope], "lr": 0.1}, {"params": [offset], "lr": 0.01}])

    def closure():
        if slope.grad is not None:
            slope.grad.zero_()
        loss = ((slope * t + offset - y) ** 2).mean()
        loss.backward()
        return loss

    return Loop(optimizer, closure)


@patient("closure-without-zero-grad")
def only_the_other_optimiser_is_cleared():
    encoder, decoder = point(0.4, -0.2), point(1.1, 0.3)
    optimizer = SGD([encoder], lr=0.01)
    other = SGD([decoder], lr=0.01)

    def closure():
        other.zero_grad()
        loss = ((torch.tanh(encoder) * decoder - torch.tensor([0.2, -0.1])) ** 2).sum()
        loss.backward()
        return loss

    return Loop(optimizer, closure)


# --- closure-without-backward


@patient("closure-without-backward")
def no_backward_at_all():
    x = point(0.1, 0.1)
    optimizer = Adam([x], lr=0.01)

    def closure():
        optimizer.zero_grad()
        return Rosenbrock.apply(x)

    return Loop(optimizer, closure)


@patient("closure-without-backward")
def no_backward_in_a_method():
    class Fit:
        def __init__(self):
            self.t, self.y = line_data()
            self.network = small_network()
            self.optimizer = LBFGS(self.network.parameters(), max_iter=5)

        def closure(self):
            self.optimizer.zero_grad()
            self.loss = mse_loss(self.network(self.t), self.y)
            return self.loss

    fit = Fit()
    return Loop(fit.optimizer, fit.closure)


@patient("closure-without-backward")
def cleared_after_backward():
    x = point(-0.5, 0.8)
    optimizer = SGD([x], lr=0.01, momentum=0.9)

    def closure():
        loss = rosenbrock(x)
        loss.backward()
        optimizer.zero_grad()
        return loss

    return Loop(optimizer, closure)


@patient("closure-without-backward")
def gradient_zeroed_in_place_after_backward():
    stiffness = point(1.2, 0.4, 2.0)
    measured = torch.tensor([0.9, 2.1, 0.6], dtype=torch.float64)
    optimizer = Adam([stiffness], lr=0.02)

    def misfit():
        loss = ((1 / stiffness - measured) ** 2).sum()
        loss.backward()
        for p in optimizer.param_groups[0]["params"]:
            p.grad.zero_()
        return loss

    return Loop(optimizer, misfit)


@patient("closure-without-backward")
def optimiser_of_a_copy():
    x = point(0.1, 0.1)
    optimizer = Adam([x.detach().clone().requires_grad_()], lr=0.01)

    def closure():
        optimizer.zero_grad()
        loss = Rosenbrock.apply(x)
        loss.backward()
        return loss

    return Loop(optimizer, closure)


@patient("closure-without-backward")
def optimiser_of_another_network():
    t, y = line_data()
    network = small_network()
    optimizer = SGD(network.parameters(), lr=0.1, weight_decay=0.0)
    trained = small_network()
    trained.load_state_dict(network.state_dict())

    def closure():
        optimizer.zero_grad()
        loss = mse_loss(trained(t), y)
        loss.backward()
        return loss

    return Loop(optimizer, closure)


@patient("closure-without-backward")
def parameter_made_again_in_the_closure():
    start = np.array([0.1, 0.1])
    x = torch.tensor(start, requires_grad=True)
    optimizer = RMSprop([x], lr=0.01)

    def closure():
        x = torch.tensor(start, requires_grad=True)
        optimizer.zero_grad()
        loss = rosenbrock(x)
        loss.backward()
        return loss

    return Loop(optimizer, closure)


@patient("closure-without-backward")
def parameter_rewrapped_from_its_values():
    weights = torch.nn.Parameter(torch.tensor([0.5, -0.3, 0.8], dtype=torch.float64))
    features = torch.linspace(0, 1, 12, dtype=torch.float64).reshape(4, 3) ** 2
    target = torch.tensor([0.1, 0.4, 0.2, 0.9], dtype=torch.float64)
    optimizer = Adam([weights], lr=0.05)

    def closure():
        optimizer.zero_grad()
        current = torch.nn.Parameter(weights.data.clone())
        loss = ((features @ current - target) ** 2).mean()
        loss.backward()
        return loss

    return Loop(optimizer, closure)


@patient("closure-without-backward")
def loss_wrapped_with_requires_grad():
    x = point(0.1, 0.1)
    optimizer = Adam([x], lr=0.01)

    def f(x):
        x = x.detach().numpy()
        return (1 - x[0]) ** 2 + 5 * (x[1] - x[0] ** 2) ** 2

    def closure():
        optimizer.zero_grad()
        loss = torch.tensor(f(x), requires_grad=True)
        loss.backward()
        return loss

    return Loop(optimizer, closure)


@patient("closure-without-backward")
def loss_item_made_a_tensor_again():
    t, y = line_data()
    network = small_network()
    optimizer = LBFGS(network.parameters(), line_search_fn="strong_wolfe")

    def closure():
        optimizer.zero_grad()
        errors = (network(t) - y).abs().mean().item()
        loss = torch.tensor([errors], requires_grad=True)
        loss.backward()
        return loss

    return Loop(optimizer, closure)


# --- step-inside-closure


@patient("step-inside-closure")
def adam_steps_twice():
    x = point(0.1, 0.1)
    optimizer = Adam([x], lr=0.01)

    def closure():
        optimizer.zero_grad()
        loss = Rosenbrock.apply(x)
        loss.backward()
        optimizer.step()
        return loss

    return Loop(optimizer, closure)


@patient("step-inside-closure")
def train_step_handed_to_step():
    t, y = line_data()
    network = small_network()
    optimizer = SGD(network.parameters(), lr=0.05, momentum=0.8, nesterov=True)

    def train_step(inputs, targets):
        network.train()
        optimizer.zero_grad(set_to_none=False)
        loss = mse_loss(network(inputs), targets)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return Loop(optimizer, partial(train_step, t, y))


@patient("step-inside-closure")
def another_optimiser_steps_inside_lbfgs():
    x = point(-0.4, 0.9)
    optimizer = LBFGS([x], max_iter=4)
    refine = SGD([x], lr=1e-3)

    def closure():
        optimizer.zero_grad()
        loss = rosenbrock(x)
        loss.backward()
        refine.step()
        return loss

    return Loop(optimizer, closure)


# --- stale-loss


@patient("stale-loss")
def lbfgs_gets_the_loss_of_before_the_loop():
    x = point(0.1, 0.1)
    optimizer = LBFGS([x], line_search_fn="strong_wolfe")
    loss = rosenbrock(x)

    def closure():
        optimizer.zero_grad()
        rosenbrock(x).backward()
        return loss

    return Loop(optimizer, closure)


@patient("stale-loss")
def method_returns_the_previous_loss():
    class Calibration:
        def __init__(self):
            self.t, self.y = line_data()
            self.theta = point(0.1, 0.4)
            self.optimizer = LBFGS([self.theta], lr=0.3, max_iter=6)
            self.loss = self.misfit().detach()

        def misfit(self):
            return ((self.theta[0] * self.t + self.theta[1] ** 3 - self.y) ** 2).sum()

        def closure(self):
            self.optimizer.zero_grad()
            current = self.misfit()
            current.backward()
            previous, self.loss = self.loss, current.detach()
            return previous

    calibration = Calibration()
    return Loop(calibration.optimizer, calibration.closure)


@patient("stale-loss")
def first_entry_of_the_history():
    x = point(0.6, -0.4, 1.3)
    optimizer = Adam([x], lr=0.03)
    history = []

    def closure():
        optimizer.zero_grad()
        loss = torch.log(torch.cosh(x - 0.2)).sum()
        loss.backward()
        history.append(loss.item())
        return history[0]

    return Loop(optimizer, closure)


@patient("stale-loss")
def graph_kept_for_the_whole_loop():
    """The cure that torch proposes for a second backward: the loss and its gradient stay those of the start."""

    class Valley(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.x0, ctx.x1 = x.tolist()
            return x.new_tensor(rosenbrock(x.tolist()))

        @staticmethod
        def backward(ctx, g):
            across = ctx.x1 - ctx.x0**2
            return g * g.new_tensor([-2 * (1 - ctx.x0) - 20 * ctx.x0 * across, 10 * across])

    x = point(0.1, 0.1)
    optimizer = SGD([x], lr=0.01)
    loss = Valley.apply(x)

    def closure():
        optimizer.zero_grad()
        loss.backward(retain_graph=True)
        return loss

    return Loop(optimizer, closure)


# --- closure-returns-none


@patient("closure-returns-none", severity="wrong")
def lbfgs_without_return():
    x = point(0.1, 0.1)
    optimizer = LBFGS([x], max_iter=20)

    def closure():
        optimizer.zero_grad()
        loss = Rosenbrock.apply(x)
        loss.backward()

    return Loop(optimizer, closure)


@patient("closure-returns-none", severity="wrong")
def lambda_that_returns_what_backward_returns():
    t, y = line_data()
    network = small_network()
    optimizer = LBFGS(network.parameters(), line_search_fn="strong_wolfe")

    def loss():
        optimizer.zero_grad()
        return mse_loss(network(t), y)

    return Loop(optimizer, lambda: loss().backward())


@patient("closure-returns-none", severity="fragile")
def adam_without_return():
    x = point(0.1, 0.1)
    optimizer = Adam([x], lr=0.01)

    def closure():
        optimizer.zero_grad()
        loss = Rosenbrock.apply(x)
        loss.backward()
        print(f"loss {loss.item():.4f}")

    return Loop(optimizer, closure)


@patient("closure-returns-none", severity="fragile")
def adamw_method_keeps_the_loss_to_itself():
    class Trainer:
        def __init__(self):
            self.t, self.y = line_data()
            self.network = small_network()
            self.optimizer = AdamW(self.network.parameters(), lr=0.01, weight_decay=1e-4)
            self.losses = []

        def closure(self):
            self.optimizer.zero_grad()
            loss = mse_loss(self.network(self.t), self.y)
            loss.backward()
            self.losses.append(loss.item())

    trainer = Trainer()
    return Loop(trainer.optimizer, trainer.closure)


# --- lbfgs-without-closure


@patient("lbfgs-without-closure")
def lbfgs_stepped_like_adam():
    x = point(0.1, 0.1)
    optimizer = LBFGS([x], lr=1)
    rosenbrock(x).backward()
    return Loop(optimizer, None)


@patient("lbfgs-without-closure")
def lbfgs_of_a_network_made_by_a_function():
    network = small_network()
    return Loop(lambda: LBFGS(network.parameters(), history_size=5, line_search_fn="strong_wolfe"), None)
