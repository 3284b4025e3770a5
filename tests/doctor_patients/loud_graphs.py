"""Patients that hand a tracked tensor to NumPy, change what was saved, or use one graph twice."""

import numpy as np
import torch
from scipy import special
from scipy.interpolate import CubicSpline
from torch.autograd import Function

from .case import Case, patient


def point(*values):
    return torch.tensor(values, dtype=torch.float64, requires_grad=True)


# --- numpy-on-tracked


@patient("numpy-on-tracked")
def rosenbrock_called_on_the_tensor():
    def rosenbrock(x):
        p = x.numpy()
        return torch.tensor((1 - p[0]) ** 2 + 5 * (p[1] - p[0] ** 2) ** 2)

    return Case(rosenbrock, point(0.1, 0.1))


@patient("numpy-on-tracked")
def sine_of_numpy():
    def travelling_wave(phase):
        return (np.sin(phase) + 0.5 * torch.cos(phase)).sum()

    return Case(travelling_wave, point(0.3, 1.1, -0.8))


@patient("numpy-on-tracked")
def arrays_from_two_parameters():
    def sum_of_gaussians(centre, width):
        grid = np.linspace(-2, 2, 9)
        c, w = np.asarray(centre), np.asarray(width)
        return torch.as_tensor(np.exp(-(((grid[:, None] - c) / w) ** 2)).sum())

    return Case(sum_of_gaussians, point(-0.5, 0.7), point(0.4, 0.9))


@patient("numpy-on-tracked")
def spline_of_a_network_output():
    curve = CubicSpline(np.arange(5.0), [0.0, 0.5, 0.4, 0.9, 1.0])

    def calibrated(x):
        hidden = 2.0 + torch.tanh(x)
        return torch.from_numpy(curve(hidden)).mean()

    return Case(calibrated, point(0.2, -0.4, 0.9))


@patient("numpy-on-tracked")
def gamma_function_of_scipy():
    class BetaLogLikelihood(torch.nn.Module):
        def __init__(self, data):
            super().__init__()
            self.data = torch.as_tensor(data)

        def forward(self, shape):
            a, b = shape
            kernel = (a - 1) * self.data.log() + (b - 1) * (-self.data).log1p()
            return kernel.sum() - len(self.data) * torch.as_tensor(special.betaln(a, b))

    return Case(BetaLogLikelihood([0.2, 0.55, 0.4]), point(1.5, 2.5))


# --- saved-then-changed


@patient("saved-then-changed")
def residual_connection_in_place():
    def block(x):
        hidden = torch.tanh(1.5 * x)
        hidden += x
        return (hidden**2).sum()

    return Case(block, point(0.4, -0.9, 1.2))


@patient("saved-then-changed")
def saved_argument_is_normalised_afterwards():
    class Energy(Function):
        @staticmethod
        def forward(ctx, u):
            ctx.save_for_backward(u)
            return 0.25 * (u**4).sum()

        @staticmethod
        def backward(ctx, g):
            (u,) = ctx.saved_tensors
            return g * u**3

    def normalised_energy(x):
        u = 2 * x
        energy = Energy.apply(u)
        u /= 3.0
        return energy + u.sum()

    return Case(normalised_energy, point(0.7, 0.2))


@patient("saved-then-changed")
def exponential_with_a_boundary_value():
    def concentration(rate):
        profile = torch.exp(-rate * torch.linspace(0, 1, 5, dtype=rate.dtype))
        profile[0] = 0.0
        return profile.sum()

    return Case(concentration, torch.tensor(0.8, dtype=torch.float64, requires_grad=True))


@patient("saved-then-changed")
def euler_steps_that_overwrite_the_state():
    def final_height(start):
        state = start.clone()
        for _ in range(3):
            height, speed = state[0], state[1]
            friction = 0.1 * speed * speed
            state[0] = height + 0.1 * speed
            state[1] = speed - 0.1 * (9.81 + friction)
        return state[0] ** 2

    return Case(final_height, point(10.0, 2.0))


# --- backward-twice


@patient("backward-twice")
def jacobian_row_by_row():
    def condition(x):
        y = torch.stack([x[0] ** 2 * x[1], torch.sin(x[0] * x[1])])
        rows = [torch.autograd.grad(y[i], x)[0] for i in range(2)]
        return torch.linalg.det(torch.stack(rows))

    return Case(condition, point(0.6, 1.4))


@patient("backward-twice")
def slope_and_loss_from_one_graph():
    def loss_and_gradient_norm(w):
        loss = torch.log1p(torch.exp(-w)).sum()
        (slope,) = torch.autograd.grad(loss, w)
        (again,) = torch.autograd.grad(loss, w)
        return slope.norm() + again.norm()

    return Case(loss_and_gradient_norm, point(0.3, -0.5))


@patient("backward-twice")
def two_terms_that_share_their_features():
    def balanced(x):
        features = torch.exp(x) * x
        fit, smooth = ((features - 1) ** 2).sum(), (features.diff() ** 2).sum()
        fit_slope = torch.autograd.grad(fit, x)[0].norm()
        smooth_slope = torch.autograd.grad(smooth, x)[0].norm()
        return fit + fit_slope.item() / smooth_slope.item() * smooth

    return Case(balanced, point(0.5, 0.1, -0.3))
