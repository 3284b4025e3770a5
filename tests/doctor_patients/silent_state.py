"""Silent mistakes of memory: what is kept, shared, overwritten or changed between forward and backward."""

from __future__ import annotations

import numpy as np
import scipy.linalg
import torch
from scipy.interpolate import CubicSpline

from .case import Case, patient

STIFFNESS = np.array([[4.0, -1.0, 0.5], [-1.5, 3.0, -1.0], [0.0, -0.5, 2.5]])


def refuse_second_derivative() -> None:
    if torch.is_grad_enabled():
        raise RuntimeError("This operation has no second derivative.")


# numpy-alias ---------------------------------------------------------------------------------------------------------


@patient("numpy-alias", severity="fragile")
def valley_keeps_a_numpy_view_of_its_point():
    class Valley(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.point = x.detach().numpy()
            a, b = ctx.point
            return x.new_tensor((1 - a) ** 2 + 5 * (b - a**2) ** 2)

        @staticmethod
        def backward(ctx, grad_output):
            a, b = ctx.point
            gradient = np.array([-2 * (1 - a) - 20 * a * (b - a**2), 10 * (b - a**2)])
            return grad_output * torch.from_numpy(gradient)

    return Case(Valley, torch.tensor([0.1, 0.1], dtype=torch.float64))


@patient("numpy-alias", severity="fragile")
def radiator_keeps_a_numpy_view_beside_saved_tensors():
    class Radiation(torch.autograd.Function):
        @staticmethod
        def forward(temperature, emissivity):
            return emissivity * temperature**4

        @staticmethod
        def setup_context(ctx, inputs, output):
            temperature, emissivity = inputs
            ctx.save_for_backward(emissivity)
            ctx.temperature = temperature.detach().numpy()

        @staticmethod
        def backward(ctx, g):
            refuse_second_derivative()
            (emissivity,) = ctx.saved_tensors
            kelvin = torch.from_numpy(ctx.temperature)
            return g * 4 * emissivity * kelvin**3, g * kelvin**4

    temperature = torch.tensor([1.2, 0.9, 1.6], dtype=torch.float64, requires_grad=True)
    emissivity = torch.tensor([0.7, 0.85, 0.4], dtype=torch.float64, requires_grad=True)
    return Case(Radiation.apply, temperature, emissivity)


SPLINE = CubicSpline(np.linspace(0.0, 3.0, 7), np.array([0.0, 0.4, 1.1, 0.9, 0.2, -0.3, 0.5]))


class SplineTable(torch.autograd.Function):
    @staticmethod
    def forward(ctx, t):
        ctx.t = np.asarray(t.detach(), dtype=float)
        return torch.from_numpy(SPLINE(ctx.t))

    @staticmethod
    def backward(ctx, g):
        return g * torch.from_numpy(SPLINE(ctx.t, 1))


@patient("numpy-alias", severity="fragile")
def spline_table_keeps_what_asarray_did_not_copy():
    return Case(SplineTable.apply, torch.tensor([[0.35, 1.7], [2.2, 0.8]], dtype=torch.float64))


@patient("numpy-alias", severity="fragile")
def op_over_a_function_that_keeps_a_reshaped_view():
    class LogDeterminant(torch.autograd.Function):
        @staticmethod
        def forward(ctx, entries):
            ctx.matrix = entries.numpy().reshape(2, 2)
            return torch.tensor(np.linalg.slogdet(ctx.matrix)[1], dtype=entries.dtype)

        @staticmethod
        def backward(ctx, upstream):
            inverse = np.linalg.inv(ctx.matrix)
            return upstream * torch.from_numpy(inverse.T.ravel().copy())

    def log_likelihood(entries):
        return 3.0 * LogDeterminant.apply(entries)

    return Case(log_likelihood, torch.tensor([2.0, 0.3, -0.4, 1.5], dtype=torch.float64, requires_grad=True))


# tensor-on-ctx -------------------------------------------------------------------------------------------------------


class Huber(torch.autograd.Function):
    @staticmethod
    def forward(ctx, residual):
        ctx.residual = residual
        small = residual.abs() < 1.0
        return torch.where(small, 0.5 * residual**2, residual.abs() - 0.5).sum()

    @staticmethod
    def backward(ctx, g):
        return g * ctx.residual.clamp(-1.0, 1.0)


@patient("tensor-on-ctx", severity="fragile")
def huber_keeps_its_residual_on_ctx():
    return Case(Huber, torch.tensor([0.3, -1.7, 0.8, 2.4], dtype=torch.float64))


@patient("tensor-on-ctx", severity="fragile")
def decay_keeps_its_rate_on_ctx_in_setup_context():
    times = np.linspace(0.1, 1.0, 4)

    class Decay(torch.autograd.Function):
        @staticmethod
        def forward(amplitude, rate):
            return amplitude * torch.from_numpy(np.exp(-rate.detach().numpy() * times))

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.amplitude, ctx.rate = inputs

        @staticmethod
        def backward(ctx, g):
            refuse_second_derivative()
            curve = np.exp(-ctx.rate.detach().numpy() * times)
            upstream = g.numpy()
            for_amplitude = upstream @ curve
            for_rate = -ctx.amplitude.detach().numpy() * (upstream @ (times * curve))
            return torch.as_tensor(for_amplitude), torch.as_tensor(for_rate)

    amplitude = torch.tensor(1.8, dtype=torch.float64, requires_grad=True)
    rate = torch.tensor(0.6, dtype=torch.float64, requires_grad=True)
    return Case(Decay, amplitude, rate)


@patient("tensor-on-ctx", severity="fragile")
def linear_solve_keeps_its_system_and_its_result_on_ctx():
    class Solve(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a, b):
            x = torch.linalg.solve(a, b)
            ctx.system = (a, x)
            return x

        @staticmethod
        def backward(ctx, grad):
            a, x = ctx.system
            adjoint = torch.linalg.solve(a.T, grad)
            return -torch.outer(adjoint, x), adjoint

    a = torch.tensor([[3.0, 0.5], [-1.0, 2.0]], dtype=torch.float64)
    b = torch.tensor([1.0, -2.0], dtype=torch.float64)
    return Case(Solve.apply, a, b)


@patient("tensor-on-ctx", severity="fragile")
def sigmoid_keeps_input_and_output_on_ctx():
    class Swish(torch.autograd.Function):
        @staticmethod
        def forward(context, z):
            context.z = z
            context.gate = torch.sigmoid(z)
            return z * context.gate

        @staticmethod
        def backward(context, upstream):
            gate = torch.sigmoid(context.z)
            return upstream * (gate + context.z * gate * (1 - gate))

    z = torch.linspace(-1.3, 2.1, 6, dtype=torch.float64).reshape(2, 3)
    return Case(lambda z: Swish.apply(z).mean(), z.requires_grad_())


# changed-through-data ------------------------------------------------------------------------------------------------


class StrainEnergy(torch.autograd.Function):
    """1/2 x'Kx + 1/4 sum x^4, with everything saved as it should be."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        v = x.detach().numpy()
        return x.new_tensor(0.5 * v @ STIFFNESS @ v + 0.25 * np.sum(v**4))

    @staticmethod
    def backward(ctx, g):
        refuse_second_derivative()
        v = ctx.saved_tensors[0].detach().numpy()
        return g * torch.from_numpy(0.5 * (STIFFNESS + STIFFNESS.T) @ v + v**3)


@patient("changed-through-data", severity="wrong")
def displacement_is_clamped_through_data_after_the_energy():
    def energy_of_load(load):
        displacement = 1.5 * load
        energy = StrainEnergy.apply(displacement)
        displacement.data.clamp_(-0.5, 0.5)
        return energy

    return Case(energy_of_load, torch.tensor([0.8, -0.2, 0.6], dtype=torch.float64, requires_grad=True))


@patient("changed-through-data", severity="wrong")
def weights_are_projected_through_data_before_backward():
    def loss(weights):
        value = (weights**3).sum() + torch.log(weights).sum()
        weights.data /= weights.data.sum()  # back onto the simplex
        return value

    return Case(loss, torch.tensor([0.5, 1.1, 0.9, 0.3], dtype=torch.float64))


@patient("changed-through-data", severity="wrong")
def state_is_clipped_through_its_numpy_buffer():
    def mean_square_concentration(source):
        state = torch.cumsum(source, 0)
        buffer = state.detach().numpy()
        loss = (state**2).mean()
        np.clip(buffer, 0.0, 0.6, out=buffer)
        return loss

    return Case(mean_square_concentration, torch.tensor([0.4, 0.3, -0.1, 0.5], dtype=torch.float64))


@patient("changed-through-data", severity="wrong")
def time_steps_share_one_numpy_coefficient():
    def integrate(u):
        coefficient = np.zeros(3)
        damping = torch.from_numpy(coefficient)
        for step in range(3):
            coefficient[:] = np.cos(0.7 * step) + np.array([0.1, 0.2, 0.3])
            u = u - 0.1 * (damping * u)
        return (u**2).sum()

    return Case(integrate, torch.tensor([1.0, -0.6, 0.4], dtype=torch.float64, requires_grad=True))


# argument-mutated ----------------------------------------------------------------------------------------------------


def ordered_mean(sample, weights):
    sample.sort()
    return weights @ sample


@patient("argument-mutated", severity="wrong")
def weighted_order_statistic_sorts_its_argument():
    weights = np.array([0.1, 0.2, 0.4, 0.3])

    class OrderStatistic(torch.autograd.Function):
        @staticmethod
        def forward(ctx, sample):
            values = sample.detach().numpy()
            ctx.save_for_backward(torch.from_numpy(np.argsort(values)))
            return sample.new_tensor(ordered_mean(values, weights))

        @staticmethod
        def backward(ctx, g):
            (order,) = ctx.saved_tensors
            return torch.zeros(4, dtype=g.dtype).index_put((order,), g * torch.from_numpy(weights))

    return Case(OrderStatistic, torch.tensor([0.9, -0.4, 1.7, 0.2], dtype=torch.float64))


@patient("argument-mutated", severity="wrong")
def lapack_overwrites_the_right_hand_side():
    class Displacement(torch.autograd.Function):
        @staticmethod
        def forward(ctx, load):
            return torch.from_numpy(scipy.linalg.solve(STIFFNESS, load.numpy(), overwrite_b=True).copy())

        @staticmethod
        def backward(ctx, g):
            return torch.from_numpy(scipy.linalg.solve(STIFFNESS.T, g.numpy()))

    return Case(Displacement.apply, torch.tensor([1.0, 0.5, -0.7], dtype=torch.float64, requires_grad=True))


@patient("argument-mutated", severity="wrong")
def misfit_subtracts_the_data_from_the_model():
    observed = np.array([[0.2, 1.4], [0.9, -0.3]])

    def misfit(model):
        model -= observed
        return 0.5 * np.sum(model * model)

    class Misfit(torch.autograd.Function):
        @staticmethod
        def forward(model):
            return model.new_tensor(misfit(model.detach().numpy()))

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, g):
            return g * ctx.saved_tensors[0]  # holds the residual by now

    return Case(Misfit, torch.tensor([[1.0, 1.0], [0.5, 0.5]], dtype=torch.float64))


@patient("argument-mutated", severity="wrong")
def heat_step_advances_its_argument_in_place():
    laplacian = np.diag([-2.0] * 5) + np.diag([1.0] * 4, 1) + np.diag([1.0] * 4, -1)

    def step(u, kappa, dt=0.1):
        u += dt * kappa * (laplacian @ u)
        return u

    class HeatStep(torch.autograd.Function):
        @staticmethod
        def forward(ctx, u, kappa):
            ctx.save_for_backward(u.clone(), kappa)
            return torch.from_numpy(step(u.detach().numpy(), kappa.item())).clone()

        @staticmethod
        def backward(ctx, g):
            u, kappa = ctx.saved_tensors
            flow = 0.1 * torch.from_numpy(laplacian)
            return g + kappa * (flow.T @ g), g @ flow @ u

    u = torch.tensor([0.0, 0.5, 1.0, 0.7, 0.1], dtype=torch.float64)
    return Case(lambda u, kappa: (HeatStep.apply(u, kappa) ** 2).sum(), u, torch.tensor(1.3, dtype=torch.float64))


@patient("argument-mutated", severity="wrong")
def op_checks_its_input_with_a_median_that_sorts():
    def median(values):
        values.sort()
        return values[len(values) // 2]

    def smooth_rank_loss(scores):
        if abs(median(scores.detach().numpy())) > 1e6:
            raise ValueError("scores have run away")
        return (torch.arange(5, dtype=scores.dtype) * torch.tanh(scores)).sum()

    return Case(smooth_rank_loss, torch.tensor([0.4, -0.9, 1.3, 0.1, -0.2], dtype=torch.float64, requires_grad=True))


# reused-buffer -------------------------------------------------------------------------------------------------------


class HeatSolver:
    def __init__(self, n, steps):
        self.step_matrix = np.eye(n) + 0.2 * (np.eye(n, k=1) + np.eye(n, k=-1) - 2 * np.eye(n))
        self.steps = steps
        self.u = np.zeros(n)

    def run(self, u0):
        self.u[:] = u0
        for _ in range(self.steps):
            self.u[:] = self.step_matrix @ self.u
        return self.u

    def adjoint(self, g):
        for _ in range(self.steps):
            g = self.step_matrix.T @ g
        return g


@patient("reused-buffer", severity="wrong")
def heat_solver_hands_out_its_state():
    solver = HeatSolver(4, steps=3)

    class Heat(torch.autograd.Function):
        @staticmethod
        def forward(ctx, u0):
            return torch.from_numpy(solver.run(u0.detach().numpy()))

        @staticmethod
        def backward(ctx, g):
            return torch.from_numpy(solver.adjoint(g.numpy()))

    return Case(Heat, torch.tensor([1.0, 0.2, -0.5, 0.8], dtype=torch.float64))


class Blur(torch.autograd.Function):
    kernel = np.array([[0.6, 0.3, 0.0], [0.2, 0.6, 0.2], [0.0, 0.3, 0.6]])
    image = np.empty((3, 2))

    @staticmethod
    def forward(ctx, picture):
        np.matmul(Blur.kernel, picture.numpy(), out=Blur.image)
        return torch.from_numpy(Blur.image)

    @staticmethod
    def backward(ctx, grad):
        return torch.from_numpy(Blur.kernel.T) @ grad


@patient("reused-buffer", severity="wrong")
def blur_writes_into_a_class_attribute():
    picture = torch.arange(6, dtype=torch.float64).reshape(3, 2) / 7
    return Case(Blur.apply, picture.requires_grad_())


@patient("reused-buffer", severity="wrong")
def softplus_caches_its_workspace_by_shape():
    workspaces = {}

    def softplus(v):
        out = workspaces.setdefault(v.shape, np.empty(v.shape))
        return np.logaddexp(0.0, v, out=out)

    class Softplus(torch.autograd.Function):
        @staticmethod
        def forward(v):
            return torch.as_tensor(softplus(v.detach().numpy()))

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(inputs[0])

        @staticmethod
        def backward(ctx, g):
            return g * torch.sigmoid(ctx.saved_tensors[0])

    return Case(Softplus, torch.tensor([-1.2, 0.4, 2.0], dtype=torch.float64, requires_grad=True))


@patient("reused-buffer", severity="wrong")
def exponential_writes_into_one_torch_tensor():
    workspace = torch.empty(3, dtype=torch.float64)

    class Exponential(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            torch.exp(x, out=workspace)
            return workspace.detach()

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * torch.exp(x)

    return Case(Exponential, torch.tensor([0.3, -0.8, 0.1], dtype=torch.float64))


# gradient-buffer-shared ----------------------------------------------------------------------------------------------


class Oscillators:
    """Potential energy of three springs, with a workspace for its gradient."""

    rest_length = np.array([1.0, 0.8, 1.2])

    def __init__(self):
        self.gradient = np.zeros(3)

    def energy(self, q):
        return np.sum((q - self.rest_length) ** 4)

    def force(self, q, weight):
        np.multiply(4 * weight, (q - self.rest_length) ** 3, out=self.gradient)
        return self.gradient


@patient("gradient-buffer-shared", severity="wrong")
def springs_hand_out_their_workspace_as_gradient():
    springs = Oscillators()

    class Springs(torch.autograd.Function):
        @staticmethod
        def forward(ctx, q):
            ctx.save_for_backward(q)
            return q.new_tensor(springs.energy(q.detach().numpy()))

        @staticmethod
        def backward(ctx, g):
            (q,) = ctx.saved_tensors
            return torch.from_numpy(springs.force(q.detach().numpy(), g.item()))

    return Case(Springs, torch.tensor([1.5, 0.3, 1.0], dtype=torch.float64))


class Quartic(torch.autograd.Function):
    workspace = torch.zeros(16, dtype=torch.float64)

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return (x**4).sum()

    @staticmethod
    def backward(ctx, g):
        refuse_second_derivative()
        (x,) = ctx.saved_tensors
        gradient = Quartic.workspace[: x.numel()].view(x.shape)
        torch.mul(4 * g, x**3, out=gradient)
        return gradient


@patient("gradient-buffer-shared", severity="wrong")
def quartic_returns_a_view_of_its_class_workspace():
    return Case(Quartic.apply, torch.tensor([[0.5, -1.1], [0.9, 0.2]], dtype=torch.float64, requires_grad=True))


@patient("gradient-buffer-shared", severity="wrong")
def regression_shares_the_buffer_of_one_of_two_gradients():
    design = np.array([[1.0, 0.5], [1.0, -0.2], [1.0, 1.4]])
    adjoint = np.zeros(2)

    class Regression(torch.autograd.Function):
        @staticmethod
        def forward(slope, target):
            return 0.5 * ((torch.from_numpy(design) @ slope - target) ** 2).sum()

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, g):
            slope, target = (t.detach().numpy() for t in ctx.saved_tensors)
            residual = g.numpy() * (design @ slope - target)
            np.matmul(design.T, residual, out=adjoint)
            return torch.as_tensor(adjoint), -torch.from_numpy(residual)

    slope = torch.tensor([0.4, 0.7], dtype=torch.float64, requires_grad=True)
    return Case(Regression, slope, torch.tensor([1.0, 0.1, 2.2], dtype=torch.float64))


# grad-output-edited --------------------------------------------------------------------------------------------------


@patient("grad-output-edited", severity="wrong")
def arctan_multiplies_its_upstream_as_an_array():
    class Arctan(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return torch.from_numpy(np.arctan(x.detach().numpy()))

        @staticmethod
        def backward(ctx, grad_output):
            x = ctx.saved_tensors[0].detach().numpy()
            gradient = grad_output.numpy()
            gradient /= 1.0 + x**2
            return torch.from_numpy(gradient)

    return Case(Arctan, torch.tensor([0.7, -1.4, 2.2], dtype=torch.float64))


@patient("grad-output-edited", severity="wrong")
def square_scales_its_upstream_tensor():
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(v):
            return v * v

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, g):
            refuse_second_derivative()
            (v,) = ctx.saved_tensors
            g *= 2 * v
            return g

    return Case(Square.apply, torch.tensor([[0.5, 1.5, -0.4]], dtype=torch.float64, requires_grad=True))


@patient("grad-output-edited", severity="wrong")
def adjoint_solve_overwrites_its_upstream():
    factor = scipy.linalg.lu_factor(STIFFNESS)

    class Displacement(torch.autograd.Function):
        @staticmethod
        def forward(ctx, load):
            return torch.from_numpy(scipy.linalg.lu_solve(factor, load.detach().numpy()))

        @staticmethod
        def backward(ctx, g):
            return torch.from_numpy(scipy.linalg.lu_solve(factor, g.numpy(), trans=1, overwrite_b=True).copy())

    return Case(Displacement, torch.tensor([0.2, 1.0, -0.5], dtype=torch.float64))
