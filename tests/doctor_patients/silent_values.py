"""Patients whose value is right and whose backward hands back a wrong gradient, without an error."""

import numpy as np
import torch
from scipy import sparse
from torch.autograd import Function

from .case import Case, patient


def leaf(values, dtype=torch.float64):
    return torch.tensor(values, dtype=dtype, requires_grad=True)


def normal(*shape, seed, dtype=torch.float64):
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


# --- grad-output-ignored


def rosenbrock_jac(x, y, a=1.0, b=5.0):
    return np.array([-2 * (a - x) - 4 * b * x * (y - x**2), 2 * b * (y - x**2)])


class Rosenbrock(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        x0, x1 = x.detach().numpy()
        return x.new_tensor((1 - x0) ** 2 + 5 * (x1 - x0**2) ** 2)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return torch.from_numpy(rosenbrock_jac(*x.detach().numpy()))


@patient("grad-output-ignored")
def rosenbrock_returns_its_jacobian():
    return Case(Rosenbrock, leaf([0.1, 0.1]))


@patient("grad-output-ignored")
def activation_returns_its_slope():
    class Swish(Function):
        @staticmethod
        def forward(x):
            return x * torch.sigmoid(x)

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            s = torch.sigmoid(x)
            return s * (1 + x * (1 - s))

    return Case(Swish.apply, normal(3, 4, seed=1))


@patient("grad-output-ignored")
def gaussian_forgets_upstream_for_its_scale_only():
    readings = normal(8, seed=2)

    class NegativeLogLikelihood(Function):
        @staticmethod
        def forward(ctx, loc, log_scale):
            ctx.save_for_backward(loc, log_scale)
            return (0.5 * ((readings - loc) / log_scale.exp()) ** 2 + log_scale).sum()

        @staticmethod
        def backward(ctx, upstream):
            loc, log_scale = ctx.saved_tensors
            z = (readings - loc) / log_scale.exp()
            return upstream * -(z / log_scale.exp()).sum(), (1 - z**2).sum()

    return Case(lambda loc, log_scale: NegativeLogLikelihood.apply(loc, log_scale) / 8, leaf(0.3), leaf(-0.4))


# --- full-jacobian


@patient("full-jacobian")
def polar_returns_its_jacobian():
    class PolarToCartesian(Function):
        @staticmethod
        def forward(ctx, p):
            ctx.save_for_backward(p)
            r, phi = p.numpy()
            return torch.from_numpy(np.array([r * np.cos(phi), r * np.sin(phi)]))

        @staticmethod
        def backward(ctx, grad_xy):
            r, phi = ctx.saved_tensors[0].detach().numpy()
            return torch.from_numpy(np.array([[np.cos(phi), -r * np.sin(phi)], [np.sin(phi), r * np.cos(phi)]]))

    return Case(PolarToCartesian, leaf([1.7, 0.6]))


@patient("full-jacobian")
def lorenz_multiplies_instead_of_contracting():
    class Lorenz(Function):
        """Right-hand side of the Lorenz system."""

        @staticmethod
        def forward(ctx, state, sigma=10.0, rho=28.0, beta=8 / 3):
            ctx.save_for_backward(state)
            ctx.constants = sigma, rho, beta
            x, y, z = state
            return torch.stack([sigma * (y - x), x * (rho - z) - y, x * y - beta * z])

        @staticmethod
        def backward(ctx, grad):
            x, y, z = ctx.saved_tensors[0]
            sigma, rho, beta = ctx.constants
            zero, one = torch.zeros_like(x), torch.ones_like(x)
            rows = [-sigma * one, sigma * one, zero], [rho - z, -one, -x], [y, x, -beta * one]
            jacobian = torch.stack([torch.stack(row) for row in rows])
            return grad * jacobian, None, None, None

    return Case(lambda state: Lorenz.apply(state), torch.tensor([1.2, -0.7, 20.0], dtype=torch.float64))


@patient("full-jacobian")
def residuals_of_a_decay_return_all_rows():
    t = np.linspace(0.0, 2.0, 5)
    counts = np.array([3.1, 1.9, 1.2, 0.7, 0.5])

    class Residuals(Function):
        @staticmethod
        def forward(theta):
            amplitude, rate = theta.numpy(force=True)
            return torch.from_numpy(amplitude * np.exp(-rate * t) - counts)

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, grad_residuals):
            amplitude, rate = ctx.saved_tensors[0].numpy(force=True)
            decay = np.exp(-rate * t)
            return torch.from_numpy(np.column_stack([decay, -amplitude * t * decay]))

    return Case(Residuals, leaf([3.0, 0.8]))


# --- per-sample-gradient


@patient("per-sample-gradient")
def logistic_regression_keeps_the_samples():
    class LogLoss(Function):
        @staticmethod
        def forward(ctx, w, features, labels):
            ctx.save_for_backward(w, features, labels)
            logits = features @ w
            return torch.nn.functional.softplus(logits).sub(labels * logits).mean()

        @staticmethod
        def backward(ctx, grad_output):
            w, features, labels = ctx.saved_tensors
            error = torch.sigmoid(features @ w) - labels
            return grad_output * error[:, None] * features, None, None

    labels = torch.tensor([0, 1, 1, 0, 1, 0], dtype=torch.float64)
    return Case(LogLoss, leaf([0.4, -0.9]), normal(6, 2, seed=3), labels)


@patient("per-sample-gradient")
def centre_of_captured_points():
    points = np.random.default_rng(4).normal(size=(7, 3))

    class MeanDistance(Function):
        @staticmethod
        def forward(ctx, centre):
            ctx.save_for_backward(centre)
            return centre.new_tensor(np.mean(np.linalg.norm(points - centre.numpy(), axis=1)))

        @staticmethod
        def backward(ctx, g):
            away = ctx.saved_tensors[0].detach().numpy() - points
            return g * torch.from_numpy(away / np.linalg.norm(away, axis=1, keepdims=True))

    return Case(MeanDistance, torch.tensor([0.2, -0.1, 0.5], dtype=torch.float64))


@patient("per-sample-gradient")
def root_mean_square_of_a_polynomial():
    t = torch.linspace(-1, 1, 9, dtype=torch.float64)
    design = torch.stack([torch.ones_like(t), t, t**2], dim=1)
    measured = torch.cos(2 * t)

    class RootMeanSquare(Function):
        @staticmethod
        def forward(coefficients):
            residual = design @ coefficients - measured
            return residual.square().mean().sqrt()

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs, output)

        @staticmethod
        def backward(ctx, g):
            coefficients, rms = ctx.saved_tensors
            return g * (design @ coefficients - measured)[:, None] * design / rms

    return Case(RootMeanSquare, leaf([0.7, 0.2, -1.1]))


# --- not-transposed


@patient("not-transposed")
def upwind_step_runs_forward_in_backward():
    n, courant = 6, 0.4
    step = sparse.diags_array([(1 - courant) * np.ones(n), courant * np.ones(n - 1)], offsets=[0, -1]).tocsr()

    class Upwind(Function):
        @staticmethod
        def forward(ctx, concentration):
            return torch.from_numpy(step @ concentration.numpy())

        @staticmethod
        def backward(ctx, grad):
            return torch.from_numpy(step @ grad.numpy())

    return Case(Upwind, normal(n, seed=5))


CIRCUIT = np.array([[3.0, -1.0, 0.5], [-0.2, 2.0, -0.8], [0.0, 0.4, 1.5]])


@patient("not-transposed")
def circuit_solves_with_the_same_matrix():
    class NodeVoltages(Function):
        @staticmethod
        def forward(ctx, currents):
            return torch.as_tensor(np.linalg.solve(CIRCUIT, currents.detach().numpy()))

        @staticmethod
        def backward(ctx, grad_voltages):
            return torch.as_tensor(np.linalg.solve(CIRCUIT, grad_voltages.detach().numpy()))

    return Case(lambda currents: (NodeVoltages.apply(currents) ** 2).sum(), leaf([1.0, -0.3, 0.6]))


@patient("not-transposed")
def stiffness_is_symmetric_in_the_example():
    class Displacements(Function):
        @staticmethod
        def forward(ctx, stiffness, load):
            u = torch.linalg.solve(stiffness, load)
            ctx.save_for_backward(stiffness, u)
            return u

        @staticmethod
        def backward(ctx, g):
            stiffness, u = ctx.saved_tensors
            adjoint = torch.linalg.solve(stiffness, g)
            return -torch.outer(adjoint, u), adjoint

    stiffness = [[2.1, -1.0, 0.0], [-1.0, 2.4, -1.0], [0.0, -1.0, 1.3]]
    return Case(Displacements, leaf(stiffness), leaf([0.5, 1.0, -0.2]))


@patient("not-transposed")
def reaction_rates_at_equal_concentrations():
    class Rates(Function):
        """Rates a²b and ab² of two reactions."""

        @staticmethod
        def forward(ctx, c):
            ctx.save_for_backward(c)
            a, b = c.detach().numpy()
            return torch.tensor(np.array([a * a * b, a * b * b]))

        @staticmethod
        def backward(ctx, grad):
            a, b = ctx.saved_tensors[0].detach().numpy()
            jacobian = np.array([[2 * a * b, a * a], [b * b, 2 * a * b]])
            return torch.from_numpy(jacobian @ grad.numpy())

    return Case(Rates.apply, leaf([0.7, 0.7]))


@patient("not-transposed")
def square_layer_multiplies_by_the_weight():
    class Linear(Function):
        @staticmethod
        def forward(x, weight):
            return x @ weight

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, grad_out):
            x, weight = ctx.saved_tensors
            return grad_out @ weight, x.T @ grad_out

    return Case(Linear, normal(4, 3, seed=6), normal(3, 3, seed=7))


# --- swapped-gradients


@patient("swapped-gradients")
def ratio_in_the_wrong_order():
    class Ratio(Function):
        @staticmethod
        def forward(ctx, top, bottom):
            ctx.save_for_backward(top, bottom)
            return top / bottom

        @staticmethod
        def backward(ctx, g):
            top, bottom = ctx.saved_tensors
            grad_top, grad_bottom = g / bottom, -g * top / bottom**2
            return grad_bottom, grad_top

    return Case(Ratio, normal(4, seed=8), 2 + normal(4, seed=9).abs())


@patient("swapped-gradients")
def gaussian_swaps_mean_and_log_sigma():
    class GaussianNLL(Function):
        @staticmethod
        def forward(ctx, y, mu, log_sigma):
            ctx.save_for_backward(y, mu, log_sigma)
            z = (y - mu).numpy() / np.exp(log_sigma.numpy())
            return torch.tensor(np.sum(0.5 * z**2 + log_sigma.numpy()))

        @staticmethod
        def backward(ctx, grad_output):
            y, mu, log_sigma = (saved.detach().numpy() for saved in ctx.saved_tensors)
            sigma = np.exp(log_sigma)
            z = (y - mu) / sigma
            d_mu, d_log_sigma = torch.from_numpy(-z / sigma), torch.from_numpy(1 - z**2)
            return None, grad_output * d_log_sigma, grad_output * d_mu

    return Case(GaussianNLL, normal(5, seed=10), leaf([0.1, 0.4, -0.2, 0.3, 0.0]), leaf([-0.3, 0.2, 0.5, 0.1, -0.6]))


@patient("swapped-gradients")
def oscillator_swaps_damping_and_stiffness():
    class Amplitude(Function):
        """Amplitude of a driven oscillator, 1 / |k - m ω² + i c ω|."""

        @staticmethod
        def forward(omega, mass, damping, stiffness):
            return 1 / torch.sqrt((stiffness - mass * omega**2) ** 2 + (damping * omega) ** 2)

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.omega, *tensors = inputs
            ctx.save_for_backward(*tensors, output)

        @staticmethod
        def backward(ctx, g):
            mass, damping, stiffness, amplitude = ctx.saved_tensors
            by_stiffness = -g * amplitude**3 * (stiffness - mass * ctx.omega**2)
            by_damping = -g * amplitude**3 * damping * ctx.omega**2
            return None, -by_stiffness * ctx.omega**2, by_stiffness, by_damping

    return Case(Amplitude, 1.3, leaf(0.9), leaf(0.25), leaf(2.2))


# --- gradient-wrong


@patient("gradient-wrong")
def poisson_has_the_sign_of_the_likelihood():
    clicks = torch.tensor([2.0, 0.0, 5.0, 1.0], dtype=torch.float64)

    class PoissonLoss(Function):
        @staticmethod
        def forward(ctx, log_rate):
            ctx.save_for_backward(log_rate)
            return (log_rate.exp() - clicks * log_rate).sum()

        @staticmethod
        def backward(ctx, grad_output):
            (log_rate,) = ctx.saved_tensors
            return grad_output * (clicks - log_rate.exp())

    return Case(PoissonLoss, leaf([0.2, -0.5, 1.4, 0.3]))


@patient("gradient-wrong")
def misfit_lost_its_two():
    forward_operator = np.random.default_rng(12).normal(size=(5, 3))
    data = np.random.default_rng(13).normal(size=5)

    class Misfit(Function):
        @staticmethod
        def forward(ctx, model):
            ctx.save_for_backward(model)
            residual = forward_operator @ model.numpy() - data
            return model.new_tensor(residual @ residual)

        @staticmethod
        def backward(ctx, g):
            residual = forward_operator @ ctx.saved_tensors[0].detach().numpy() - data
            return g * torch.from_numpy(forward_operator.T @ residual)

    return Case(Misfit, normal(3, seed=14))


@patient("gradient-wrong")
def brier_score_forgets_the_slope_of_the_sigmoid():
    class Brier(Function):
        @staticmethod
        def forward(logits, outcome):
            return (torch.sigmoid(logits) - outcome).square().mean()

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, g):
            logits, outcome = ctx.saved_tensors
            return g * 2 * (torch.sigmoid(logits) - outcome) / logits.numel(), None

    return Case(Brier, leaf([0.8, -1.2, 0.1]), torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64))


@patient("gradient-wrong")
def pendulum_step_forgets_the_cosine():
    class Kick(Function):
        @staticmethod
        def forward(ctx, angle, speed):
            return speed - 0.1 * 9.81 * torch.from_numpy(np.sin(angle.numpy()))

        @staticmethod
        def backward(ctx, grad):
            return -0.1 * 9.81 * grad, grad

    return Case(Kick.apply, leaf([0.9, -1.3]), leaf([0.0, 0.4]))


@patient("gradient-wrong")
def softmax_without_its_coupling():
    class Softmax(Function):
        @staticmethod
        def forward(ctx, scores):
            p = torch.softmax(scores, dim=-1)
            ctx.save_for_backward(p)
            return p

        @staticmethod
        def backward(ctx, grad_p):
            (p,) = ctx.saved_tensors
            return grad_p * p

    return Case(Softmax, normal(2, 5, seed=15))


@patient("gradient-wrong")
def chain_of_springs_with_one_wrong_end():
    class Energy(Function):
        @staticmethod
        def forward(ctx, positions):
            ctx.save_for_backward(positions)
            stretch = np.diff(positions.numpy()) - 1
            return positions.new_tensor(np.sum(stretch**2 / 2 + stretch**4 / 4))

        @staticmethod
        def backward(ctx, grad_energy):
            stretch = np.diff(ctx.saved_tensors[0].detach().numpy()) - 1
            force = stretch + stretch**3
            grad = np.zeros(40)
            grad[1:-1] = force[:-1] - force[1:]
            grad[0], grad[-1] = -force[0], -force[-1]
            return grad_energy * torch.from_numpy(grad)

    return Case(Energy, torch.arange(40, dtype=torch.float64) + 0.2 * normal(40, seed=16))


@patient("gradient-wrong")
def gaussian_peak_is_wrong_in_its_second_input():
    class Peak(Function):
        @staticmethod
        def forward(ctx, height, centre, width):
            grid = torch.linspace(-2, 2, 9, dtype=torch.float64)
            z = (grid - centre) / width
            ctx.save_for_backward(height, width, z)
            return height * torch.exp(-z * z / 2)

        @staticmethod
        def backward(ctx, g):
            height, width, z = ctx.saved_tensors
            bell = torch.exp(-z * z / 2)
            return (g * bell).sum(), (g * height * bell * z).sum(), (g * height * bell * z * z / width).sum()

    return Case(Peak, leaf(1.5), leaf(0.3), leaf(0.6))


@patient("gradient-wrong")
def huber_is_wrong_on_its_left_arm():
    class Huber(Function):
        @staticmethod
        def forward(ctx, r):
            ctx.save_for_backward(r)
            size = np.abs(r.numpy())
            return torch.from_numpy(np.where(size < 1, 0.5 * size**2, size - 0.5))

        @staticmethod
        def backward(ctx, grad):
            r = ctx.saved_tensors[0].detach().numpy()
            return grad * torch.from_numpy(np.where(np.abs(r) < 1, r, 1.0))

    return Case(Huber, leaf([0.4, 2.5, -0.3, -1.8, 1.2]))


@patient("gradient-wrong")
def jacobian_of_the_first_sample_serves_the_whole_batch():
    class Chirp(Function):
        """One row (frequency, chirp rate) a sample; five values a row."""

        t = torch.linspace(0, 1, 5, dtype=torch.float64)

        @staticmethod
        def forward(ctx, parameters):
            ctx.save_for_backward(parameters)
            frequency, rate = parameters[:, :1], parameters[:, 1:]
            return torch.sin(frequency * Chirp.t + rate * Chirp.t**2)

        @staticmethod
        def backward(ctx, grad):
            frequency, rate = ctx.saved_tensors[0][0]
            slope = torch.cos(frequency * Chirp.t + rate * Chirp.t**2)
            return grad @ torch.stack([slope * Chirp.t, slope * Chirp.t**2], dim=1)

    return Case(Chirp, leaf([[2.0, 1.0], [-1.0, 3.0]]))


@patient("gradient-wrong")
def distance_is_not_divided_by_itself():
    class Distance(Function):
        @staticmethod
        def forward(ctx, a, b):
            ctx.save_for_backward(a, b)
            return torch.linalg.vector_norm(a - b, dim=-1)

        @staticmethod
        def backward(ctx, g):
            a, b = ctx.saved_tensors
            return g[..., None] * (a - b), g[..., None] * (b - a)

    return Case(Distance, normal(3, 2, seed=17), 3 + normal(3, 2, seed=18))


@patient("gradient-wrong")
def difference_step_vanishes_in_float32():
    def wind_power(speed):
        return speed**3 / (1 + np.exp(speed - 3))

    class WindPower(Function):
        @staticmethod
        def forward(ctx, speed):
            ctx.save_for_backward(speed)
            return torch.from_numpy(wind_power(speed.detach().numpy()))

        @staticmethod
        def backward(ctx, grad, h=1e-8):
            speed = ctx.saved_tensors[0].detach().numpy()
            return grad * torch.from_numpy((wind_power(speed + h) - wind_power(speed - h)) / (2 * h))

    return Case(WindPower, leaf([1.5, 2.25, 3.5], dtype=torch.float32))


@patient("gradient-wrong")
def adjoint_takes_one_step_too_few():
    n, steps = 8, 5
    laplacian = np.diag(-2.0 * np.ones(n)) + np.diag(np.ones(n - 1), 1) + np.diag(np.ones(n - 1), -1)
    implicit = np.linalg.inv(np.eye(n) - 0.3 * laplacian)

    class Heat(Function):
        @staticmethod
        def forward(ctx, temperature):
            u = temperature.detach().numpy()
            for _ in range(steps):
                u = implicit @ u
            return torch.from_numpy(u)

        @staticmethod
        def backward(ctx, g):
            adjoint = g.detach().numpy()
            for _ in range(1, steps):
                adjoint = implicit.T @ adjoint
            return torch.from_numpy(adjoint)

    return Case(Heat, normal(n, seed=19))
