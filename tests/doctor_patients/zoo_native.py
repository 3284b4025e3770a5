"""Operations of torch itself, callables of every kind, custom operators, and operations that the bridge makes."""

import functools

import numpy as np
import torch
from torch import nn

from helpers import ExternalFunction, differentiable, rosenbrock

from .case import Case, healthy
from .zoo_data import normal, spd, tracked, uniform


@healthy()
def sine_of_torch():
    return Case(torch.sin, normal(200, 4))


@healthy()
def cross_entropy_with_integer_classes():
    return Case(nn.functional.cross_entropy, normal(201, 5, 3), torch.tensor([0, 2, 1, 1, 0]))


@healthy()
def layer_norm_of_torch():
    return Case(nn.functional.layer_norm, normal(202, 3, 4), (4,))


@healthy()
def module_with_parameters():
    torch_state = torch.random.get_rng_state()
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1)).double()
    torch.random.set_rng_state(torch_state)
    return Case(network, normal(203, 4, 3))


@healthy()
def module_in_single_precision():
    torch_state = torch.random.get_rng_state()
    torch.manual_seed(1)
    network = nn.Sequential(nn.Linear(2, 4), nn.SiLU(), nn.Linear(4, 1))
    torch.random.set_rng_state(torch_state)
    return Case(network, normal(204, 6, 2, dtype=torch.float32))


@healthy()
def batch_norm_that_keeps_statistics():
    return Case(nn.BatchNorm1d(3).double(), normal(205, 8, 3))


@healthy()
def eigenvalues_with_gaps():
    def spectrum(A):
        return torch.linalg.eigh(A + A.mT).eigenvalues

    return Case(spectrum, normal(206, 3, 3) + torch.diag(torch.tensor([0.0, 4.0, 9.0], dtype=torch.float64)))


@healthy()
def singular_values():
    return Case(torch.linalg.svdvals, normal(207, 4, 3))


@healthy()
def lambda_of_two_tensors():
    return Case(lambda a, b: (a * b).sin().sum(), normal(208, 3), normal(209, 3))


@healthy()
def partial_with_a_keyword():
    return Case(functools.partial(nn.functional.huber_loss, target=normal(210, 6), delta=0.8), normal(211, 6))


class Spring:
    def __init__(self, stiffness):
        self.stiffness = stiffness

    def energy(self, x):
        return 0.5 * self.stiffness * (x**2).sum() + 0.1 * (x**4).sum()

    def __call__(self, x):
        return self.energy(x)


@healthy()
def bound_method():
    return Case(Spring(3.0).energy, normal(212, 3))


@healthy()
def callable_object():
    return Case(Spring(0.5), normal(213, 3))


@healthy()
def closure_over_data_that_is_not_tracked():
    times, readings = torch.linspace(0, 2, 8, dtype=torch.float64), normal(214, 8)

    def misfit(theta):
        return (theta[0] * torch.exp(-theta[1] * times) - readings).square().sum()

    return Case(misfit, torch.tensor([1.2, 0.4], dtype=torch.float64))


@healthy()
def tracked_parameter_that_the_closure_reads_rightly():
    # A torch function may read a tracked tensor; only a Function may not.
    weight = tracked(normal(215, 3))

    def score(x):
        return torch.tanh(x @ weight)

    return Case(score, normal(216, 4, 3))


def decay(x: torch.Tensor, rate: torch.Tensor) -> torch.Tensor:
    return torch.exp(-rate * x) * x


@healthy()
def function_scripted_by_torchscript():
    return Case(torch.jit.script(decay), normal(217, 3), uniform(218, 3))


@healthy()
def gradient_penalty_through_torch_operations():
    def rosenbrock_value(x):
        return (1 - x[0]) ** 2 + 5 * (x[1] - x[0] ** 2) ** 2

    def penalised(x):
        slope = torch.func.grad(rosenbrock_value)(x)
        return rosenbrock_value(x) + slope @ slope

    return Case(penalised, torch.tensor([0.3, 0.5], dtype=torch.float64))


@healthy()
def number_read_for_a_decision_only():
    # The value is compared, never used in the result.
    def scaled(x):
        if x.detach().abs().max().item() > 100:
            raise ValueError("x is out of range.")
        return x.square().sum()

    return Case(scaled, normal(219, 4))


@healthy()
def detached_scale_that_cancels():
    def log_sum_exp(x):
        top = x.detach().max()
        return top + (x - top).exp().sum().log()

    return Case(log_sum_exp, normal(220, 5))


@torch.library.custom_op("doctor_zoo::softsign", mutates_args=())
def softsign(x: torch.Tensor, sharpness: float) -> torch.Tensor:
    return torch.from_numpy(sharpness * x.detach().numpy() / (1 + np.abs(sharpness * x.detach().numpy())))


@softsign.register_fake
def _(x, sharpness):
    return torch.empty_like(x)


def _softsign_setup(ctx, inputs, output):
    x, ctx.sharpness = inputs
    ctx.save_for_backward(x)


def _softsign_backward(ctx, g):
    (x,) = ctx.saved_tensors
    return g * ctx.sharpness / (1 + (ctx.sharpness * x).abs()) ** 2, None


softsign.register_autograd(_softsign_backward, setup_context=_softsign_setup)


@healthy("fragile")
def custom_operator_with_its_gradient():
    # Forward mode of a custom operator is silently zero.
    return Case(softsign, normal(221, 4), 1.5)


@healthy()
def bridge_without_second_derivative():
    return Case(differentiable(rosenbrock.value, grad=rosenbrock.gradient), normal(222, 2))


@healthy()
def bridge_with_second_derivative():
    op = differentiable(rosenbrock.value, grad=rosenbrock.gradient, hvp=rosenbrock.hvp)
    return Case(op, torch.tensor([0.1, 0.1], dtype=torch.float64))


@healthy()
def bridge_over_a_batch():
    op = differentiable(rosenbrock.value, grad=rosenbrock.gradient, hvp=rosenbrock.hvp, batch="vectorized")
    return Case(op, normal(223, 4, 2))


@healthy()
def bridge_with_a_jacobian():
    op = differentiable(
        lambda x: np.array([x[0] * x[1], np.sin(x[0])]),
        jac=lambda x: np.array([[x[1], x[0]], [np.cos(x[0]), 0.0]]),
    )
    return Case(op, normal(224, 2))


@healthy()
def bridge_with_an_adjoint_of_two_inputs():
    def solve(A, b):
        return np.linalg.solve(A, b)

    def adjoint(A, b, g):
        w = np.linalg.solve(A.T, g)
        return -np.outer(w, solve(A, b)), w

    return Case(differentiable(solve, vjp=adjoint), spd(225, 3), normal(226, 3))


@healthy()
def bridge_with_auxiliary_result():
    op = differentiable(lambda x: (np.sum(x**3), {"norm": np.linalg.norm(x)}), grad=lambda x: 3 * x**2, aux=True)
    return Case(lambda x: op(x)[0], normal(227, 3))


@healthy()
def bridge_that_computes_in_double_precision():
    op = differentiable(rosenbrock.value, grad=rosenbrock.gradient, hvp=rosenbrock.hvp, compute_dtype="float64")
    return Case(op, torch.tensor([0.3, -0.2], dtype=torch.float32))


class HeatSteps(ExternalFunction):
    """Explicit heat steps; the trajectory is the state of the adjoint."""

    def forward(self, u, k):
        states = [u]
        for _ in range(5):
            states.append(states[-1] + 0.1 * k * self.laplacian(states[-1]))
        return states[-1], (states, k)

    def adjoint(self, state, g):
        states, k = state
        to_k = 0.0
        for u in states[-2::-1]:
            to_k += 0.1 * g @ self.laplacian(u)
            g = g + 0.1 * k * self.laplacian(g)
        return g, np.asarray(to_k)

    def tangent(self, state, t_u, t_k):
        states, k = state
        for u in states[:-1]:
            t_u = t_u + 0.1 * (k * self.laplacian(t_u) + t_k * self.laplacian(u))
        return t_u

    @staticmethod
    def laplacian(u):
        return np.roll(u, 1) - 2 * u + np.roll(u, -1)


@healthy()
def external_solver_with_a_trajectory():
    return Case(HeatSteps(), normal(228, 6), torch.tensor(0.7, dtype=torch.float64))


class Quartic(ExternalFunction):
    """All four methods, in closed form."""

    def forward(self, x):
        return np.sum(x**4), x

    def adjoint(self, x, g):
        return 4 * g * x**3

    def tangent(self, x, t):
        return np.asarray(4 * x**3 @ t)

    def hvp(self, x, g, t):
        return 12 * g * x**2 * t


@healthy()
def external_function_with_every_derivative():
    return Case(Quartic(), normal(229, 3))


@healthy()
def reference_that_agrees():
    def reference(x):
        return (1 - x[0]) ** 2 + 5 * (x[1] - x[0] ** 2) ** 2

    op = differentiable(rosenbrock.value, grad=rosenbrock.gradient, hvp=rosenbrock.hvp)
    return Case(op, torch.tensor([0.4, 0.2], dtype=torch.float64), reference=reference)
