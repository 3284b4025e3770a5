"""Patients that fail in a second derivative, at a special point, or in complex numbers."""

import numpy as np
import torch
from scipy import special
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from .case import Case, patient
from .silent_values import leaf, normal

# --- zero-hessian


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
        return grad_output * torch.from_numpy(np.array([4 * x * first + 2 * second, 2 * first + 4 * y * second]))


@patient("zero-hessian", severity="fragile")
def himmelblau_in_numpy():
    return Case(Himmelblau, leaf([2.5, 1.0]))


class LogGamma(Function):
    @staticmethod
    def forward(x):
        return torch.from_numpy(special.gammaln(x.numpy(force=True)))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * torch.from_numpy(special.digamma(x.numpy(force=True)))


@patient("zero-hessian", severity="fragile")
def log_gamma_of_scipy():
    return Case(LogGamma, torch.tensor([[0.8, 1.9], [3.2, 5.5]], dtype=torch.float64))


@patient("zero-hessian", severity="fragile")
def log_determinant_detached_in_backward():
    coupling = torch.tensor([[0.0, 0.3, 0.1], [0.3, 0.0, -0.2], [0.1, -0.2, 0.0]], dtype=torch.float64)

    class LogDet(Function):
        """log det (diag(x) + coupling)."""

        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return torch.logdet(torch.diag(x) + coupling)

        @staticmethod
        def backward(ctx, g):
            x = ctx.saved_tensors[0].detach()
            return g * torch.linalg.inv(torch.diag(x) + coupling).diagonal()

    return Case(LogDet.apply, leaf([1.2, 0.9, 1.6]))


@patient("zero-hessian", severity="fragile")
def kepler_by_newton():
    def eccentric_anomaly(mean, e):
        angle = mean + e * np.sin(mean)
        for _ in range(20):
            angle = angle - (angle - e * np.sin(angle) - mean) / (1 - e * np.cos(angle))
        return angle

    class Kepler(Function):
        @staticmethod
        def forward(ctx, mean, e):
            ctx.save_for_backward(mean, e)
            return torch.from_numpy(eccentric_anomaly(mean.detach().numpy(), e.item()))

        @staticmethod
        def backward(ctx, grad):
            mean, e = ctx.saved_tensors
            angle = eccentric_anomaly(mean.detach().numpy(), e.item())
            slope = torch.from_numpy(1 / (1 - e.item() * np.cos(angle)))
            return grad * slope, (grad * slope * torch.from_numpy(np.sin(angle))).sum()

    return Case(Kepler, leaf([0.4, 1.9, 4.0]), leaf(0.3))


# --- once-differentiable-leaks


@patient("once-differentiable-leaks", severity="fragile")
def cube_in_numpy():
    class Cube(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return torch.from_numpy(x.detach().numpy() ** 3)

        @staticmethod
        @once_differentiable
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * torch.from_numpy(3 * x.detach().numpy() ** 2)

    return Case(Cube, leaf([2.0, -0.6]))


@patient("once-differentiable-leaks", severity="fragile")
def compliance_with_a_torch_solve():
    load = torch.tensor([1.0, 0.0, -0.5], dtype=torch.float64)
    neighbours = torch.diag(torch.ones(2, dtype=torch.float64), 1)

    def stiffness(thickness):
        return torch.diag(2 + thickness**3) - neighbours - neighbours.T

    class Compliance(Function):
        @staticmethod
        def forward(thickness):
            return load @ torch.linalg.solve(stiffness(thickness), load)

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        @once_differentiable
        def backward(ctx, grad_output):
            (thickness,) = ctx.saved_tensors
            u = torch.linalg.solve(stiffness(thickness), load)
            return -3 * grad_output * thickness**2 * u**2

    return Case(Compliance, leaf([0.7, 1.1, 0.9]))


@patient("once-differentiable-leaks", severity="fragile")
def pairwise_energy_of_particles():
    class LennardJones(Function):
        @staticmethod
        def forward(ctx, distance, depth):
            ctx.save_for_backward(distance, depth)
            r = distance.numpy()
            return torch.as_tensor(4 * depth.item() * np.sum(r**-12.0 - r**-6.0))

        @staticmethod
        @once_differentiable
        def backward(ctx, upstream):
            distance, depth = ctx.saved_tensors
            r = distance.numpy(force=True)
            force = torch.as_tensor(4 * depth.item() * (-12 * r**-13.0 + 6 * r**-7.0))
            return upstream * force, upstream * 4 * np.sum(r**-12.0 - r**-6.0)

    return Case(LennardJones, leaf([1.1, 1.3, 0.98]), leaf(0.5))


# --- saved-intermediate


@patient("saved-intermediate", severity="fragile")
def swish_saves_its_sigmoid():
    class Swish(Function):
        @staticmethod
        def forward(ctx, x):
            s = torch.sigmoid(x)
            ctx.save_for_backward(x, s)
            return x * s

        @staticmethod
        def backward(ctx, g):
            x, s = ctx.saved_tensors
            return g * (s + x * s * (1 - s))

    return Case(Swish, normal(4, seed=30))


@patient("saved-intermediate", severity="fragile")
def saved_exponential():
    class WeightedSum(Function):
        """Σ w x eˣ."""

        @staticmethod
        def forward(ctx, x, w):
            growth = torch.exp(x)
            ctx.save_for_backward(x, w, growth)
            return w @ (x * growth)

        @staticmethod
        def backward(ctx, grad_output):
            x, w, growth = ctx.saved_tensors
            return grad_output * w * (1 + x) * growth, grad_output * x * growth

    return Case(WeightedSum, leaf([0.2, -0.4, 0.9]), leaf([1.0, 0.5, -0.3]))


@patient("saved-intermediate", severity="fragile")
def cube_of_a_norm_keeps_the_norm():
    class CubedNorm(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.length = x.norm()
            ctx.save_for_backward(x)
            return ctx.length**3

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return 3 * g * ctx.length * x

    return Case(CubedNorm.apply, leaf([0.6, -1.1, 0.4]))


# --- product-hessian


@patient("product-hessian", severity="fragile")
def squared_himmelblau():
    return Case(lambda p: Himmelblau.apply(p) ** 2 / 100, leaf([2.5, 1.0]))


@patient("product-hessian", severity="fragile")
def sum_of_squares_of_a_numpy_model():
    t = np.linspace(0, 1, 5)
    data = torch.tensor([1.9, 1.4, 1.1, 0.8, 0.7], dtype=torch.float64)

    class Decay(Function):
        @staticmethod
        def forward(ctx, theta):
            ctx.save_for_backward(theta)
            amplitude, rate = theta.detach().numpy()
            return torch.from_numpy(amplitude * np.exp(-rate * t))

        @staticmethod
        def backward(ctx, g):
            amplitude, rate = ctx.saved_tensors[0].detach().numpy()
            decay = np.exp(-rate * t)
            jacobian = torch.from_numpy(np.column_stack([decay, -amplitude * t * decay]))
            return jacobian.T @ g

    def loss(theta):
        return 0.5 * (Decay.apply(theta) - data).square().sum()

    return Case(loss, leaf([1.5, 0.6]))


@patient("product-hessian", severity="fragile")
def sine_of_log_gamma():
    def wave(x):
        return torch.sin(LogGamma.apply(x)).sum()

    return Case(wave, leaf([0.8, 1.9, 3.2]))


@patient("product-hessian", severity="fragile")
def product_of_two_functions():
    class Bell(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.new_tensor(np.exp(-0.5 * np.sum(x.detach().numpy() ** 2)))

        @staticmethod
        def backward(ctx, g):
            x = ctx.saved_tensors[0].detach().numpy()
            return g * torch.from_numpy(-x * np.exp(-0.5 * np.sum(x**2)))

    def damped(p):
        return Himmelblau.apply(p) * Bell.apply(p)

    return Case(damped, leaf([0.9, 0.5]))


# --- gradient-penalty


@patient("gradient-penalty")
def himmelblau_and_its_squared_gradient():
    def flat_minimum(p):
        value = Himmelblau.apply(p)
        (gradient,) = torch.autograd.grad(value, p, create_graph=True)
        return value + 0.01 * gradient @ gradient

    return Case(flat_minimum, leaf([2.5, 1.0]))


@patient("gradient-penalty")
def critic_with_a_numpy_head():
    weight = np.array([0.8, -1.3, 0.5])

    class Critic(Function):
        @staticmethod
        def forward(ctx, samples):
            ctx.save_for_backward(samples)
            return torch.from_numpy(np.tanh(samples.detach().numpy() @ weight))

        @staticmethod
        def backward(ctx, g):
            score = np.tanh(ctx.saved_tensors[0].detach().numpy() @ weight)
            return g[:, None] * torch.from_numpy((1 - score**2)[:, None] * weight)

    def critic_loss(samples):
        scores = Critic.apply(samples)
        (slopes,) = torch.autograd.grad(scores.sum(), samples, create_graph=True)
        return scores.mean() + 10 * (slopes.norm(dim=1) - 1).square().mean()

    return Case(critic_loss, leaf([[0.1, 0.4, -0.2], [0.7, -0.1, 0.3], [-0.5, 0.2, 0.6], [0.0, -0.3, 0.9]]))


@patient("gradient-penalty")
def physics_residual_of_a_numpy_solution():
    class Solution(Function):
        @staticmethod
        def forward(ctx, t, rate):
            ctx.save_for_backward(t, rate)
            return torch.from_numpy(np.exp(-rate.item() * t.detach().numpy() ** 2))

        @staticmethod
        def backward(ctx, grad):
            t, rate = (saved.detach().numpy() for saved in ctx.saved_tensors)
            u = np.exp(-rate * t**2)
            by_t, by_rate = torch.from_numpy(-2 * rate * t * u), torch.from_numpy(-(t**2) * u)
            return grad * by_t, (grad * by_rate).sum()

    def residual(t, rate):
        u = Solution.apply(t, rate)
        u_t = torch.autograd.grad(u, t, torch.ones_like(u), create_graph=True)[0]
        return (u_t + 0.5 * u).square().mean()

    return Case(residual, leaf([0.2, 0.6, 1.1]), leaf(0.8))


# --- checked-at-optimum


@patient("checked-at-optimum")
def rosenbrock_checked_where_it_is_zero():
    class Rosenbrock(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            x0, x1 = x.detach().numpy()
            return x.new_tensor((1 - x0) ** 2 + 5 * (x1 - x0**2) ** 2)

        @staticmethod
        def backward(ctx, grad_output):
            x0, x1 = ctx.saved_tensors[0].detach().numpy()
            valley = x1 - x0**2
            return grad_output * torch.from_numpy(np.array([-2 * (1 - x0) - 10 * x0 * valley, 10 * valley]))

    return Case(Rosenbrock, leaf([1.0, 1.0]))


@patient("checked-at-optimum")
def least_squares_checked_at_its_solution():
    rng = np.random.default_rng(31)
    design, observed = rng.normal(size=(7, 3)), rng.normal(size=7)
    solution = np.linalg.lstsq(design, observed, rcond=None)[0]

    class SumOfSquares(Function):
        @staticmethod
        def forward(ctx, beta):
            ctx.save_for_backward(beta)
            return torch.tensor(np.sum((design @ beta.detach().numpy() - observed) ** 2))

        @staticmethod
        def backward(ctx, g):
            residual = design @ ctx.saved_tensors[0].detach().numpy() - observed
            return g * torch.from_numpy(design.T @ residual)

    return Case(SumOfSquares, torch.from_numpy(solution).requires_grad_())


@patient("checked-at-optimum")
def likelihood_checked_at_its_maximum():
    counts = torch.tensor([3.0, 1.0, 4.0], dtype=torch.float64)

    class PoissonLoss(Function):
        @staticmethod
        def forward(log_rate):
            return (log_rate.exp() - counts * log_rate).sum()

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, g):
            (log_rate,) = ctx.saved_tensors
            return counts - log_rate.exp()

    return Case(PoissonLoss.apply, counts.log())


# --- nan-gradient


@patient("nan-gradient")
def distance_matrix_with_its_diagonal():
    class Distances(Function):
        @staticmethod
        def forward(ctx, points):
            ctx.save_for_backward(points)
            p = points.detach().numpy()
            return torch.from_numpy(np.linalg.norm(p[:, None] - p, axis=-1))

        @staticmethod
        def backward(ctx, grad):
            p = ctx.saved_tensors[0].detach().numpy()
            away = p[:, None] - p
            with np.errstate(invalid="ignore"):
                unit = torch.from_numpy(away / np.linalg.norm(away, axis=-1, keepdims=True))
            return ((grad + grad.T)[..., None] * unit).sum(dim=1)

    return Case(Distances, leaf([[0.0, 0.3], [1.2, -0.4], [0.5, 0.9]]))


@patient("nan-gradient")
def logistic_loss_overflows_in_backward():
    class LogisticLoss(Function):
        @staticmethod
        def forward(ctx, margin):
            ctx.save_for_backward(margin)
            return torch.from_numpy(np.logaddexp(0, -margin.detach().numpy())).sum()

        @staticmethod
        def backward(ctx, g):
            (margin,) = ctx.saved_tensors
            return -g * torch.exp(-margin) / (1 + torch.exp(-margin))

    return Case(LogisticLoss, leaf([2.0, -0.5, -900.0]))


@patient("nan-gradient")
def norm_at_the_centre():
    centre = torch.tensor([0.5, -0.2], dtype=torch.float64)

    def cone(x):
        return torch.sqrt(((x - centre) ** 2).sum()) + 0.1 * x.sum()

    return Case(cone, centre.clone().requires_grad_())


# --- complex-conjugate


@patient("complex-conjugate")
def joukowski_without_conjugate():
    class Joukowski(Function):
        @staticmethod
        def forward(ctx, z):
            ctx.save_for_backward(z)
            return z + 1 / z

        @staticmethod
        def backward(ctx, g):
            (z,) = ctx.saved_tensors
            return g * (1 - 1 / z**2)

    return Case(Joukowski, leaf([1.1 + 0.4j, -0.6 + 1.3j], dtype=torch.complex128))


@patient("complex-conjugate")
def phase_retrieval_transposes_only():
    rng = np.random.default_rng(32)
    optics = rng.normal(size=(4, 2)) + 1j * rng.normal(size=(4, 2))
    field = rng.normal(size=4) + 1j * rng.normal(size=4)

    class FieldMisfit(Function):
        @staticmethod
        def forward(z):
            residual = optics @ z.detach().numpy() - field
            return torch.tensor(np.vdot(residual, residual).real)

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, grad_output):
            residual = optics @ ctx.saved_tensors[0].detach().numpy() - field
            return 2 * grad_output * torch.from_numpy(optics.T @ residual)

    return Case(FieldMisfit, leaf([0.3 - 0.8j, 1.2 + 0.5j], dtype=torch.complex128))


@patient("complex-conjugate")
def spectrum_goes_forward_again():
    class Spectrum(Function):
        @staticmethod
        def forward(ctx, signal):
            return torch.from_numpy(np.fft.fft(signal.numpy(force=True)))

        @staticmethod
        def backward(ctx, grad):
            return torch.from_numpy(np.fft.fft(grad.numpy(force=True)))

    return Case(Spectrum, leaf([0.5 + 0.1j, -1.0 + 0.7j, 0.2 - 0.4j, 0.9j], dtype=torch.complex128))
