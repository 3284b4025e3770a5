"""Patients where the gradient of some input, or of some term, does not arrive, or comes in the wrong dtype."""

import math

import numpy as np
import torch
from scipy import special
from scipy.interpolate import CubicSpline
from scipy.spatial.distance import pdist
from torch.autograd import Function

from .case import Case, patient
from .silent_values import leaf, normal

# --- no-gradient-returned


@patient("no-gradient-returned")
def backward_only_prints():
    class Himmelblau(Function):
        @staticmethod
        def forward(ctx, p):
            ctx.save_for_backward(p)
            x, y = p.detach().numpy()
            return p.new_tensor((x**2 + y - 11) ** 2 + (x + y**2 - 7) ** 2)

        @staticmethod
        def backward(ctx, grad_output):
            x, y = ctx.saved_tensors[0].detach().numpy()
            first, second = x**2 + y - 11, x + y**2 - 7
            grad = grad_output * torch.tensor([4 * x * first + 2 * second, 2 * first + 4 * y * second])
            print("gradient:", grad)

    return Case(Himmelblau, leaf([2.5, 1.0]))


@patient("no-gradient-returned")
def kernel_ridge_has_none_for_the_width():
    class GaussianKernel(Function):
        @staticmethod
        def forward(ctx, distance, width):
            kernel = torch.exp(-0.5 * (distance / width) ** 2)
            ctx.save_for_backward(distance, width, kernel)
            return kernel

        @staticmethod
        def backward(ctx, g):
            distance, width, kernel = ctx.saved_tensors
            return -g * kernel * distance / width**2, None

    return Case(GaussianKernel.apply, leaf([0.3, 1.1, 1.8, 2.4]), leaf(0.8))


@patient("no-gradient-returned")
def guard_against_double_backward_is_the_wrong_way_round():
    class Softplus(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return torch.from_numpy(np.logaddexp(0, x.detach().numpy()))

        @staticmethod
        def backward(ctx, g):
            if not torch.is_grad_enabled():  # no second derivatives
                return None
            (x,) = ctx.saved_tensors
            return g * torch.from_numpy(special.expit(x.detach().numpy()))

    return Case(Softplus, normal(5, seed=11))


# --- hidden-tensor


class Polynomial(Function):
    """c0 + c1 x + c2 x², with the coefficients in a list."""

    @staticmethod
    def forward(ctx, x, coefficients):
        ctx.save_for_backward(x, *coefficients)
        return sum(c * x**k for k, c in enumerate(coefficients))

    @staticmethod
    def backward(ctx, g):
        x, *coefficients = ctx.saved_tensors
        return g * sum(k * c * x ** (k - 1) for k, c in enumerate(coefficients) if k), None


@patient("hidden-tensor")
def coefficients_in_a_list():
    def curve(x, c0, c1, c2):
        return Polynomial.apply(x, [c0, c1, c2])

    return Case(curve, leaf([-0.5, 0.4, 1.2]), leaf(0.3), leaf(-1.1), leaf(0.7))


@patient("hidden-tensor")
def material_in_a_dict():
    class Stress(Function):
        @staticmethod
        def forward(ctx, strain, material):
            ctx.save_for_backward(strain, material["modulus"], material["hardening"])
            return material["modulus"] * strain + material["hardening"] * strain**3

        @staticmethod
        def backward(ctx, grad_stress):
            strain, modulus, hardening = ctx.saved_tensors
            return grad_stress * (modulus + 3 * hardening * strain**2), None

    return Case(Stress, leaf([0.1, -0.2, 0.3]), {"modulus": leaf(2.0), "hardening": leaf(-0.5), "name": "steel"})


@patient("hidden-tensor")
def discharge_coefficient_from_the_closure():
    discharge = leaf(0.6)

    class Outflow(Function):
        @staticmethod
        def forward(ctx, level):
            ctx.save_for_backward(level)
            return discharge * torch.sqrt(2 * 9.81 * level)

        @staticmethod
        def backward(ctx, g):
            (level,) = ctx.saved_tensors
            return g * discharge * torch.sqrt(0.5 * 9.81 / level)

    return Case(Outflow, leaf([0.4, 1.5]))


class Spring(Function):
    stiffness = torch.tensor([1.5, 0.8], dtype=torch.float64, requires_grad=True)

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        k = Spring.stiffness.detach().numpy()
        return x.new_tensor(0.5 * np.sum(k * x.numpy() ** 2))

    @staticmethod
    def backward(ctx, g):
        return g * torch.from_numpy(Spring.stiffness.detach().numpy() * ctx.saved_tensors[0].detach().numpy())


@patient("hidden-tensor")
def stiffness_is_a_class_attribute():
    return Case(Spring.apply, leaf([0.2, -0.9]))


@patient("hidden-tensor")
def module_hands_its_parameters_over_in_a_tuple():
    class Affine(Function):
        @staticmethod
        def forward(x, parameters):
            weight, bias = parameters
            return x @ weight.T + bias

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(inputs[1][0])

        @staticmethod
        def backward(ctx, g):
            (weight,) = ctx.saved_tensors
            return g @ weight, None

    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(normal(2, 3, seed=20))
            self.bias = torch.nn.Parameter(normal(2, seed=21))

        def forward(self, x):
            return Affine.apply(x, (self.weight, self.bias))

    return Case(Layer(), leaf([[0.5, -1.0, 0.3]]))


# --- dtype-forced


@patient("dtype-forced")
def value_goes_through_a_python_float():
    class Rosenbrock(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            x0, x1 = x.tolist()
            value = (1 - x0) ** 2 + 5 * (x1 - x0**2) ** 2
            return torch.tensor(value)

        @staticmethod
        def backward(ctx, grad_output):
            x0, x1 = ctx.saved_tensors[0].detach().numpy()
            grad = np.array([-2 * (1 - x0) - 20 * x0 * (x1 - x0**2), 10 * (x1 - x0**2)])
            return grad_output * torch.from_numpy(grad)

    return Case(Rosenbrock, leaf([0.1, 0.1]))


@patient("dtype-forced")
def gradient_is_built_from_a_list():
    class Quartic(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return (x**4).sum() / 4

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * torch.tensor([float(entry) ** 3 for entry in x])

    return Case(Quartic, leaf([0.7, -1.3, 0.4]))


@patient("dtype-forced")
def trajectory_is_filled_into_default_zeros():
    class Logistic(Function):
        """Five explicit steps of u' = u (1 - u), all kept."""

        @staticmethod
        def forward(ctx, u):
            out = torch.zeros(6)
            out[0] = u
            for k in range(5):
                out[k + 1] = out[k] + 0.2 * out[k] * (1 - out[k])
            ctx.save_for_backward(out)
            return out

        @staticmethod
        def backward(ctx, grad):
            (out,) = ctx.saved_tensors
            adjoint = grad[5].clone()
            for k in reversed(range(5)):
                adjoint = adjoint * (1.2 - 0.4 * out[k]) + grad[k]
            return adjoint

    return Case(Logistic, leaf(0.3))


@patient("dtype-forced")
def bessel_values_in_a_legacy_tensor():
    class Bessel(Function):
        @staticmethod
        def forward(x):
            return torch.FloatTensor(special.jv(1, x.detach().numpy()))

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, g):
            return g.double() * torch.as_tensor(special.jvp(1, ctx.saved_tensors[0].detach().numpy()))

    return Case(Bessel, torch.tensor([0.4, 2.1, 3.3], dtype=torch.float64))


# --- integer-result


@patient("integer-result")
def straight_through_quantiser_returns_its_levels():
    class Quantise(Function):
        @staticmethod
        def forward(ctx, x, levels=16):
            return (x.clamp(0, 1) * levels).round().to(torch.int64)

        @staticmethod
        def backward(ctx, grad):
            return 16 * grad, None

    return Case(lambda x: Quantise.apply(x), leaf([0.13, 0.58, 0.91]))


@patient("integer-result")
def count_of_points_inside_a_radius():
    distances = np.random.default_rng(22).uniform(0, 2, size=50)

    class Inside(Function):
        @staticmethod
        def forward(ctx, radius):
            ctx.save_for_backward(radius)
            return torch.as_tensor(np.count_nonzero(distances < radius.item()))

        @staticmethod
        def backward(ctx, g, bandwidth=0.1):
            z = (distances - ctx.saved_tensors[0].item()) / bandwidth
            density = np.exp(-(z**2) / 2).sum() / (bandwidth * math.sqrt(2 * math.pi))
            return g * density

    return Case(Inside, leaf(0.85))


@patient("integer-result")
def prices_are_truncated_by_an_integer_buffer():
    class Discount(Function):
        @staticmethod
        def forward(ctx, price, rate):
            ctx.save_for_backward(price, rate)
            cents = np.empty(len(price), dtype=int)
            cents[:] = 100 * price.numpy() * (1 - rate.item())
            return torch.from_numpy(cents)

        @staticmethod
        def backward(ctx, grad):
            price, rate = ctx.saved_tensors
            return grad * 100 * (1 - rate), -(grad * 100 * price).sum()

    return Case(Discount, leaf([12.345, 7.891]), leaf(0.15))


# --- auxiliary-output


@patient("auxiliary-output")
def residual_norm_comes_along():
    operator = normal(4, 3, seed=23)
    data = normal(4, seed=24)

    class LeastSquares(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            residual = operator @ x - data
            return 0.5 * residual @ residual, residual.norm()

        @staticmethod
        def backward(ctx, grad_loss, grad_norm):
            (x,) = ctx.saved_tensors
            return grad_loss * operator.T @ (operator @ x - data)

    return Case(LeastSquares, normal(3, seed=25))


@patient("auxiliary-output")
def work_array_of_the_ode_is_handed_out():
    class Cooling(Function):
        """Final temperature, and the whole history for a plot."""

        @staticmethod
        def forward(start, rate):
            t = np.linspace(0, 1, 6)
            history = start.detach().numpy() * np.exp(-rate.detach().numpy() * t)
            return torch.tensor(history[-1]), torch.from_numpy(history)

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs, output[0])

        @staticmethod
        def backward(ctx, g, _):
            start, _, final = ctx.saved_tensors
            return g * final / start, -g * final

    return Case(Cooling, leaf(80.0), leaf(0.7))


@patient("auxiliary-output")
def attention_returns_its_weights_too():
    class Attention(Function):
        @staticmethod
        def forward(ctx, scores, values):
            weights = torch.softmax(scores, dim=-1)
            ctx.save_for_backward(weights, values)
            return weights @ values, weights

        @staticmethod
        def backward(ctx, grad_out, grad_weights):
            weights, values = ctx.saved_tensors
            through = grad_out @ values.T
            grad_scores = weights * (through - (weights * through).sum(-1, keepdim=True))
            return grad_scores, weights.T @ grad_out

    return Case(Attention, normal(2, 4, seed=26), normal(4, 3, seed=27))


# --- rewrapped-result


@patient("rewrapped-result")
def curvature_of_a_spline_is_wrapped_again():
    knots = np.linspace(0, 1, 6)
    data = torch.tensor([0.0, 0.4, 0.9, 0.7, 0.2, 0.1], dtype=torch.float64)

    def smoothing_loss(heights):
        spline = CubicSpline(knots, heights.detach().numpy())
        bending = torch.as_tensor(spline(np.linspace(0, 1, 20), 2))
        return (heights - data).square().sum() + 1e-3 * bending.square().mean()

    return Case(smoothing_loss, leaf([0.1, 0.3, 1.0, 0.8, 0.3, 0.0]))


@patient("rewrapped-result")
def float_of_a_function_becomes_a_tensor_again():
    class LogGamma(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return special.gammaln(x.detach().numpy()).sum()

        @staticmethod
        def backward(ctx, g):
            return g * torch.from_numpy(special.digamma(ctx.saved_tensors[0].detach().numpy()))

    def negative_log_posterior(x):
        likelihood = torch.tensor(LogGamma.apply(x))
        prior = 0.5 * (x - 1).square().sum()
        return likelihood + prior

    return Case(negative_log_posterior, leaf([1.4, 2.7]))


@patient("rewrapped-result")
def residual_block_around_a_linear_solve():
    system = np.array([[2.0, -1.0, 0.0], [-1.0, 2.0, -1.0], [0.0, -1.0, 2.0]])

    def block(u):
        smoothed = torch.from_numpy(np.linalg.solve(system, u.detach().cpu().numpy()))
        return torch.tanh(u) + smoothed

    return Case(block, leaf([0.3, -0.8, 1.1]))


@patient("rewrapped-result")
def requires_grad_is_set_on_the_wrapped_spacing():
    def repulsion(points):
        energy = torch.tensor(np.sum(1 / pdist(points.detach().numpy())), requires_grad=True)
        return energy + 0.5 * points.square().sum()

    return Case(repulsion, leaf([[0.0, 1.0], [1.5, 0.2], [-0.7, -0.4]]))


# --- no-grad-around


class EntropyTerm(Function):
    """Σ x log x."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.special.xlogy(x, x).sum()

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * (x.log() + 1)


@patient("no-grad-around")
def free_energy_with_entropy_under_no_grad():
    energies = torch.tensor([0.2, 0.9, 1.7], dtype=torch.float64)

    def free_energy(p, temperature=0.5):
        with torch.no_grad():
            entropy = EntropyTerm.apply(p)
        return energies @ p + temperature * entropy

    return Case(free_energy, leaf([0.5, 0.3, 0.2]))


@patient("no-grad-around")
def decorated_penalty():
    class TotalVariation(Function):
        @staticmethod
        def forward(ctx, u):
            ctx.save_for_backward(u)
            return u.new_tensor(np.sqrt(np.diff(u.numpy()) ** 2 + 1e-2).sum())

        @staticmethod
        def backward(ctx, g):
            jumps = np.diff(ctx.saved_tensors[0].detach().numpy())
            slope = jumps / np.sqrt(jumps**2 + 1e-2)
            return g * torch.from_numpy(np.concatenate([-slope[:1], slope[:-1] - slope[1:], slope[-1:]]))

    @torch.no_grad()
    def penalty(u):
        return TotalVariation.apply(u)

    noisy = torch.tensor([0.1, 0.0, 1.1, 0.9], dtype=torch.float64)
    return Case(lambda u: 0.5 * (u - noisy).square().sum() + 0.3 * penalty(u), leaf([0.0, 0.2, 0.9, 1.0]))


@patient("no-grad-around")
def hybrid_model_left_in_evaluation_mode():
    class Drag(Function):
        @staticmethod
        def forward(v):
            return v * v.abs()

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, g):
            return 2 * g * ctx.saved_tensors[0].abs()

    def acceleration(v, thrust, training=False):
        with torch.set_grad_enabled(training):
            drag = Drag.apply(v)
        return thrust - 0.4 * drag - 0.1 * v

    return Case(acceleration, leaf([1.2, -0.5]), leaf([0.3, 0.6]))


# --- graph-cut


@patient("graph-cut")
def sine_of_the_math_module():
    def range_of_a_throw(launch):
        speed, angle = launch
        return speed**2 * math.sin(2 * angle) / 9.81

    return Case(range_of_a_throw, leaf([12.0, 0.6]))


@patient("graph-cut")
def prior_from_a_list():
    def objective(theta):
        a, b = theta.tolist()
        misfit = (theta[0] * torch.exp(-theta[1]) - 0.7) ** 2
        return misfit + 0.5 * (a - 1) ** 2 + 0.1 * b**2

    return Case(objective, leaf([1.6, 0.4]))


@patient("graph-cut")
def norm_by_item():
    def unit(v):
        return v / v.norm().item()

    return Case(unit, leaf([0.6, -1.1, 0.4]))


@patient("graph-cut")
def wind_chill_with_the_float_of_one_input():
    def wind_chill(temperature, wind):
        factor = float(wind) ** 0.16
        return 13.12 + 0.6215 * temperature - 11.37 * factor + 0.3965 * temperature * factor

    return Case(wind_chill, leaf([-5.0, 2.0]), leaf(20.0))
