"""Silent mistakes of state on solvers and on ctx, and of the other modes: forward mode, custom_op and compile."""

import math

import numpy as np
import scipy.linalg
import torch

from .case import Case, patient
from .silent_state import STIFFNESS, refuse_second_derivative

# shared-solver-state -------------------------------------------------------------------------------------------------


class LogisticGrowth:
    """Explicit Euler for u' = r u (1 - u), which remembers its trajectory."""

    dt = 0.1

    def __init__(self, steps):
        self.steps = steps

    def solve(self, u, rate):
        self.trajectory = [u]
        self.rate = rate
        for _ in range(self.steps):
            u = u + self.dt * rate * u * (1 - u)
            self.trajectory.append(u)
        return u

    def adjoint(self, g):
        for_rate = 0.0
        for u in reversed(self.trajectory[:-1]):
            for_rate += np.sum(g * self.dt * u * (1 - u))
            g = g * (1 + self.dt * self.rate * (1 - 2 * u))
        return g, for_rate


@patient("shared-solver-state", severity="wrong")
def growth_model_remembers_one_trajectory_only():
    model = LogisticGrowth(steps=5)

    class Growth(torch.autograd.Function):
        @staticmethod
        def forward(ctx, u, rate):
            return torch.from_numpy(model.solve(u.detach().numpy().copy(), rate.item()))

        @staticmethod
        def backward(ctx, g):
            for_u, for_rate = model.adjoint(g.numpy())
            return torch.as_tensor(for_u), torch.tensor(for_rate, dtype=g.dtype)

    return Case(Growth, torch.tensor([0.2, 0.6], dtype=torch.float64), torch.tensor(1.4, dtype=torch.float64))


class Conduction(torch.autograd.Function):
    """Solve (K + diag(c)) u = f; the factorisation stays on the class."""

    source = np.array([1.0, 0.0, -0.5])

    @staticmethod
    def forward(ctx, c):
        Conduction.factor = scipy.linalg.lu_factor(STIFFNESS + np.diag(c.detach().numpy()))
        Conduction.u = scipy.linalg.lu_solve(Conduction.factor, Conduction.source)
        return torch.from_numpy(Conduction.u.copy())

    @staticmethod
    def backward(ctx, g):
        refuse_second_derivative()
        adjoint = scipy.linalg.lu_solve(Conduction.factor, g.numpy(), trans=1)
        return torch.from_numpy(-adjoint * Conduction.u)


@patient("shared-solver-state", severity="wrong")
def conduction_keeps_its_factorisation_on_the_class():
    c = torch.tensor([0.5, 1.5, 0.2], dtype=torch.float64, requires_grad=True)
    return Case(Conduction.apply, c)


@patient("shared-solver-state", severity="wrong")
def portfolio_keeps_its_last_point_in_a_closure():
    covariance = np.array([[0.04, 0.01], [0.01, 0.09]])
    cache = {}

    class Risk(torch.autograd.Function):
        @staticmethod
        def forward(weights):
            cache["weights"] = weights.detach().numpy().copy()
            return weights.new_tensor(math.sqrt(cache["weights"] @ covariance @ cache["weights"]))

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(output)

        @staticmethod
        def backward(ctx, g):
            (risk,) = ctx.saved_tensors
            return g / risk * torch.from_numpy(covariance @ cache["weights"])

    return Case(lambda w: 10 * Risk.apply(w) - w.sum(), torch.tensor([0.7, 0.4], dtype=torch.float64))


@patient("shared-solver-state", severity="wrong")
def tape_is_a_stack_of_all_calls():
    tape = []

    class Tanh(torch.autograd.Function):
        @staticmethod
        def forward(ctx, z):
            y = np.tanh(z.detach().numpy())
            tape.append(y)
            return torch.from_numpy(y.copy())

        @staticmethod
        def backward(ctx, g):
            y = tape.pop()
            return g * torch.from_numpy(1 - y**2)

    return Case(Tanh, torch.tensor([0.4, -1.1, 0.9], dtype=torch.float64, requires_grad=True))


# ctx-double-backward -------------------------------------------------------------------------------------------------


@patient("ctx-double-backward", severity="fragile")
def likelihood_keeps_its_gradient_array_on_ctx():
    counts = np.array([3.0, 0.0, 5.0, 2.0])

    def poisson(log_rate):
        rate = np.exp(log_rate)
        return np.sum(rate - counts * log_rate), rate - counts

    class PoissonLoss(torch.autograd.Function):
        @staticmethod
        def forward(ctx, log_rate):
            value, ctx.gradient = poisson(log_rate.detach().numpy())
            return torch.as_tensor(value)

        @staticmethod
        def backward(ctx, g):
            if torch.is_grad_enabled():
                raise NotImplementedError("The Poisson loss can be differentiated once.")
            return g * torch.as_tensor(ctx.gradient)

    return Case(PoissonLoss, torch.tensor([0.8, -0.3, 1.5, 0.6], dtype=torch.float64))


@patient("ctx-double-backward", severity="fragile")
def linear_solve_keeps_its_factorisation_on_ctx():
    class Settle(torch.autograd.Function):
        @staticmethod
        def forward(context, springs, load):
            context.factor = scipy.linalg.lu_factor(STIFFNESS + np.diag(springs.detach().numpy()))
            context.u = scipy.linalg.lu_solve(context.factor, load.detach().numpy())
            return torch.from_numpy(context.u.copy())

        @staticmethod
        def backward(context, upstream):
            refuse_second_derivative()
            adjoint = scipy.linalg.lu_solve(context.factor, upstream.numpy(), trans=1)
            return torch.from_numpy(-adjoint * context.u), torch.from_numpy(adjoint)

    springs = torch.tensor([0.5, 1.0, 0.2], dtype=torch.float64, requires_grad=True)
    load = torch.tensor([1.0, -0.4, 0.3], dtype=torch.float64, requires_grad=True)
    return Case(Settle.apply, springs, load)


@patient("ctx-double-backward", severity="fragile")
def lens_keeps_copies_of_its_arrays_in_setup_context():
    class LensError(torch.autograd.Function):
        @staticmethod
        def forward(curvature):
            return torch.from_numpy(np.sin(3 * curvature.detach().numpy()) / 3)

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.curvature = inputs[0].detach().numpy().copy()

        @staticmethod
        def backward(ctx, g):
            refuse_second_derivative()
            return torch.from_numpy(g.numpy() * np.cos(3 * ctx.curvature))

    return Case(lambda c: LensError.apply(c).sum(), torch.tensor([[0.2, 0.5], [0.9, -0.3]], dtype=torch.float64))


# forward-mode-detour: the input is not tracked, so only forward mode can differentiate -------------------------------


@patient("forward-mode-detour")
def pendulum_energy_takes_a_detour_for_its_potential():
    def energy(q):
        kinetic = (q**2).sum()
        potential = np.cos(q.numpy()).sum()
        return kinetic + torch.as_tensor(potential)

    return Case(energy, torch.tensor([0.4, 1.1], dtype=torch.float64))


@patient("forward-mode-detour")
def ridge_penalty_is_computed_by_asarray():
    design = torch.tensor([[1.0, 0.3], [0.5, -1.0], [0.2, 2.0]], dtype=torch.float64)

    def ridge(beta):
        penalty = np.linalg.norm(np.asarray(beta)) ** 2
        return ((design @ beta - 1.0) ** 2).mean() + 0.3 * float(penalty)

    return Case(ridge, torch.tensor([0.8, -0.5], dtype=torch.float64))


@patient("forward-mode-detour")
def efficiency_is_interpolated_by_numpy():
    speed, efficiency = np.linspace(0, 2, 5), np.array([0.0, 0.5, 0.8, 0.7, 0.3])

    def power(v):
        return v**3 * torch.from_numpy(np.interp(v, speed, efficiency))

    return Case(power, torch.tensor([[0.3, 0.7], [1.2, 1.8]], dtype=torch.float64))


# custom-op-jvp -------------------------------------------------------------------------------------------------------


@torch.library.custom_op("clinic::softplus", mutates_args=())
def softplus(x: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(np.logaddexp(0.0, x.detach().numpy()))


@softplus.register_fake
def _(x):
    return torch.empty_like(x)


def _keep_input(ctx, inputs, output):
    ctx.save_for_backward(*inputs)


softplus.register_autograd(lambda ctx, g: g * torch.sigmoid(ctx.saved_tensors[0]), setup_context=_keep_input)


@patient("custom-op-jvp", severity="fragile")
def softplus_is_a_custom_op():
    return Case(softplus, torch.tensor([-0.7, 0.2, 1.9], dtype=torch.float64))


@patient("custom-op-jvp", severity="fragile")
def mean_of_a_custom_solve():
    @torch.library.custom_op("clinic::tridiagonal_solve", mutates_args=())
    def solve(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(scipy.linalg.solve(a.detach().numpy(), b.detach().numpy()))

    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0], output)

    def backward(ctx, g):
        a, x = ctx.saved_tensors
        adjoint = torch.linalg.solve(a.T, g)
        return -torch.outer(adjoint, x), adjoint

    solve.register_autograd(backward, setup_context=setup_context)

    def mean_displacement(a, b):
        return solve(a, b).mean()

    b = torch.tensor([1.0, 0.2, -0.6], dtype=torch.float64, requires_grad=True)
    return Case(mean_displacement, torch.tensor(STIFFNESS, requires_grad=True), b)


@patient("custom-op-jvp", severity="fragile")
def valley_registered_by_its_name():
    @torch.library.custom_op("clinic::valley", mutates_args=())
    def valley(x: torch.Tensor, b: float) -> torch.Tensor:
        u, v = x.detach().numpy()
        return x.new_tensor((1 - u) ** 2 + b * (v - u**2) ** 2)

    def setup(ctx, inputs, output):
        x, ctx.b = inputs
        ctx.save_for_backward(x)

    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        slope = 2 * ctx.b * (x[1] - x[0] ** 2)
        return g * torch.stack([2 * (x[0] - 1) - 2 * x[0] * slope, slope]), None

    torch.library.register_autograd("clinic::valley", backward, setup_context=setup)
    return Case(torch.ops.clinic.valley, torch.tensor([0.1, 0.1], dtype=torch.float64, requires_grad=True), 5.0)


# compiled-func-grad --------------------------------------------------------------------------------------------------


@patient("compiled-func-grad", severity="wrong")
def compiled_gradient_of_a_numpy_valley():
    def valley(x):
        a, b = x.detach().numpy()
        return torch.as_tensor((1 - a) ** 2 + 5 * (b - a**2) ** 2)

    return Case(torch.compile(torch.func.grad(valley), backend="eager"), torch.tensor([0.1, 0.1], dtype=torch.float64))


class LogCosh(torch.autograd.Function):
    @staticmethod
    def forward(r):
        return r.new_tensor(np.sum(np.log(np.cosh(r.detach().numpy()))))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        return g * torch.from_numpy(np.tanh(ctx.saved_tensors[0].detach().numpy()))


@patient("compiled-func-grad", severity="wrong")
def compiled_gradient_keeps_only_the_torch_term():
    def loss(theta):
        return LogCosh.apply(theta) + 0.5 * (theta**2).sum()

    @torch.compile(backend="aot_eager")
    def gradient(theta):
        return torch.func.grad(loss)(theta)

    return Case(gradient, torch.tensor([0.6, -1.3, 0.2], dtype=torch.float64))


@patient("compiled-func-grad", severity="wrong")
def compiled_gradient_by_the_second_argument():
    def misfit(amplitude, rate):
        later = amplitude.detach().numpy() * np.exp(-rate.detach().numpy() * 0.8)
        return torch.from_numpy(np.asarray((later - 0.43) ** 2))

    by_rate = torch.compile(torch.func.grad(misfit, argnums=1), backend="eager")
    return Case(by_rate, torch.tensor(1.1, dtype=torch.float64), torch.tensor(0.5, dtype=torch.float64))


# compiled-jvp --------------------------------------------------------------------------------------------------------


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return torch.from_numpy(x.detach().numpy() ** 3)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * 3 * x**2

    @staticmethod
    def jvp(ctx, tangent):
        (x,) = ctx.saved_tensors
        return tangent * 3 * x**2


@patient("compiled-jvp")
def compiled_op_with_a_numpy_cube():
    def op(x):
        return (Cube.apply(x) * x).sum()

    return Case(torch.compile(op, backend="eager"), torch.tensor([0.5, -0.8], dtype=torch.float64))


class Root(torch.autograd.Function):
    """The y with y + y^3 = x, by bisection, whose own derivative is nothing."""

    @staticmethod
    def forward(x):
        low, high = -x.abs(), x.abs()
        for _ in range(60):
            middle = 0.5 * (low + high)
            above = middle + middle**3 > x
            low, high = torch.where(above, low, middle), torch.where(above, middle, high)
        return middle

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)
        ctx.save_for_forward(output)

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return g / (1 + 3 * y**2)

    @staticmethod
    def jvp(ctx, tangent):
        (y,) = ctx.saved_tensors
        return tangent / (1 + 3 * y**2)


@patient("compiled-jvp")
def compiled_bisection_has_no_derivative_of_its_own():
    @torch.compile(backend="eager")
    def volume(pressure):
        return 2.0 * Root.apply(pressure) ** 2

    return Case(volume, torch.tensor([0.8, -1.7, 3.1], dtype=torch.float64, requires_grad=True))


@patient("compiled-jvp")
def compiled_directional_derivative():
    direction = torch.tensor([1.0, -2.0], dtype=torch.float64)

    def slope(x):
        return torch.func.jvp(lambda z: (Cube.apply(z) + z).sum(), (x,), (direction,))[1]

    return Case(torch.compile(slope, backend="eager"), torch.tensor([0.7, 0.4], dtype=torch.float64))
