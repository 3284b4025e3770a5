"""Healthy solvers: state kept where it belongs, values as rough as a tolerance, gradients by the implicit function."""

import functools

import numpy as np
import scipy.integrate
import scipy.linalg
import scipy.optimize
import scipy.sparse
import scipy.sparse.linalg
import torch
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from .case import Case, healthy
from .zoo_data import array, normal, spd, tensor, uniform


@healthy()
def kepler_equation_by_newton():
    class EccentricAnomaly(Function):
        @staticmethod
        def forward(ctx, M, e):
            E = M.clone()
            for _ in range(30):
                E = E - (E - e * E.sin() - M) / (1 - e * E.cos())
            ctx.save_for_backward(E, e)
            return E

        @staticmethod
        def backward(ctx, g):
            E, e = ctx.saved_tensors
            w = g / (1 - e * E.cos())
            return w, (w * E.sin()).sum()

    return Case(EccentricAnomaly, uniform(90, 4, low=0.3, high=2.8), torch.tensor(0.3, dtype=torch.float64))


@healthy("fragile")
def fixed_point_of_a_network_layer():
    class Equilibrium(Function):
        @staticmethod
        def forward(ctx, W, b):
            z, change = np.zeros(b.shape), 1.0
            while change > 1e-8:
                new = np.tanh(array(W) @ z + array(b))
                change, z = np.abs(new - z).max(), new
            ctx.save_for_backward(W, tensor(z, b))
            return tensor(z, b)

        @staticmethod
        @once_differentiable
        def backward(ctx, g):
            W, z = map(array, ctx.saved_tensors)
            slope = 1 - z**2
            w = slope * np.linalg.solve(np.eye(z.size) - (slope[:, None] * W).T, array(g))
            return tensor(np.outer(w, z), g), tensor(w, g)

    return Case(Equilibrium, 0.3 * normal(91, 3, 3), normal(92, 3))


def conjugate_gradients(A, b, tolerance):
    x, _ = scipy.sparse.linalg.cg(A, b, rtol=tolerance, atol=0.0)
    return x


@healthy()
def conjugate_gradients_for_a_fixed_matrix():
    A = array(spd(93, 6))

    class Solve(Function):
        @staticmethod
        def forward(ctx, b):
            return tensor(conjugate_gradients(A, array(b), 1e-8), b)

        @staticmethod
        def backward(ctx, g):
            return Solve.apply(g)

    return Case(Solve, normal(94, 6))


@healthy("fragile")
def conjugate_gradients_stopped_early():
    A = array(spd(95, 12))

    class Compliance(Function):
        @staticmethod
        def forward(ctx, scale, b):
            u = conjugate_gradients(A * scale.item(), array(b), 1e-6)
            ctx.save_for_backward(tensor(u, b))
            return b @ tensor(u, b)

        @staticmethod
        @once_differentiable
        def backward(ctx, g):
            (u,) = ctx.saved_tensors
            return -g * (u @ tensor(A, u) @ u), 2 * g * u

    return Case(Compliance, torch.tensor(1.7, dtype=torch.float64), normal(96, 12))


class HeatSolver:
    """One implicit step of the heat equation; the factorisation is made once, for a fixed matrix."""

    def __init__(self, n, dt):
        laplacian = np.diag(np.full(n, 2.0)) - np.diag(np.ones(n - 1), 1) - np.diag(np.ones(n - 1), -1)
        laplacian[0, 1] = -2.0
        self.factor = scipy.linalg.lu_factor(np.eye(n) + dt * laplacian)

    def solve(self, u, trans=0):
        return scipy.linalg.lu_solve(self.factor, u, trans=trans)


@healthy()
def heat_step_with_a_kept_factorisation():
    solver = HeatSolver(6, 0.4)

    class Step(Function):
        @staticmethod
        def forward(ctx, u, trans):
            ctx.trans = trans
            return tensor(solver.solve(array(u), trans), u)

        @staticmethod
        def backward(ctx, g):
            return Step.apply(g, 1 - ctx.trans), None

    return Case(lambda u: Step.apply(u, 0), normal(97, 6))


@healthy("fragile")
def factorisation_of_the_input_kept_on_ctx():
    class LUSolve(Function):
        @staticmethod
        def forward(ctx, A, b):
            ctx.lu = scipy.linalg.lu_factor(array(A))
            ctx.x = scipy.linalg.lu_solve(ctx.lu, array(b))
            return tensor(ctx.x, b)

        @staticmethod
        def backward(ctx, g):
            w = scipy.linalg.lu_solve(ctx.lu, array(g), trans=1)
            return tensor(-np.outer(w, ctx.x), g), tensor(w, g)

    return Case(LUSolve, normal(98, 4, 4) + 3 * torch.eye(4, dtype=torch.float64), normal(99, 4))


@healthy("fragile")
def cache_that_is_keyed_by_the_input():
    class Simulator:
        def __init__(self):
            self.cache = {}

        def trajectory(self, x):
            key = x.tobytes()
            if key not in self.cache:
                states = [x]
                for _ in range(20):
                    states.append(states[-1] + 0.1 * np.sin(states[-1]))
                self.cache[key] = states
            return self.cache[key]

    simulator = Simulator()

    class Simulate(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return tensor(simulator.trajectory(array(x))[-1].copy(), x)

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            adjoint = array(g).copy()
            for state in reversed(simulator.trajectory(array(x))[:-1]):
                adjoint *= 1 + 0.1 * np.cos(state)
            return tensor(adjoint, g)

    return Case(Simulate, normal(100, 3))


@healthy("fragile")
def warm_start_from_the_last_solution():
    class CubicRoot:
        def __init__(self):
            self.guess = 1.0

        def solve(self, c):
            y = self.guess
            for _ in range(100):
                step = (y**3 + y - c) / (3 * y**2 + 1)
                y -= step
                if abs(step) < 1e-13:
                    break
            self.guess = y
            return y

    root = CubicRoot()

    class Response(Function):
        @staticmethod
        def forward(ctx, c):
            y = c.new_tensor(root.solve(c.item()))
            ctx.save_for_backward(y.clone())
            return y

        @staticmethod
        @once_differentiable
        def backward(ctx, g):
            (y,) = ctx.saved_tensors
            return g / (3 * y**2 + 1)

    return Case(Response, torch.tensor(2.2, dtype=torch.float64))


@healthy("fragile")
def root_by_bisection_to_a_millionth():
    # The value is a staircase with steps of 1e-6; the gradient is that of the exact root.
    class Equilibrium(Function):
        @staticmethod
        def forward(ctx, a, b):
            found = scipy.optimize.bisect(lambda y: y**3 + a.item() * y - b.item(), -10, 10, xtol=1e-6)
            ctx.save_for_backward(a, a.new_tensor(found))
            return a.new_tensor(found)

        @staticmethod
        @once_differentiable
        def backward(ctx, g):
            a, y = ctx.saved_tensors
            slope = 3 * y**2 + a
            return -g * y / slope, g / slope

    return Case(Equilibrium, torch.tensor(1.4, dtype=torch.float64), torch.tensor(3.0, dtype=torch.float64))


@healthy("fragile")
def adaptive_ode_with_sensitivities():
    def predator(t, y, rate):
        return [y[0] * (1 - y[1]), rate * y[1] * (y[0] - 1)]

    def with_sensitivity(t, y, rate):
        a, b, da, db = y
        return [*predator(t, (a, b), rate), da * (1 - b) - a * db, b * (a - 1) + rate * (db * (a - 1) + b * da)]

    @functools.cache
    def integrate(rate):
        start = [1.5, 0.8, 0.0, 0.0]
        return scipy.integrate.solve_ivp(with_sensitivity, (0, 2), start, args=(rate,), rtol=1e-6, atol=1e-8).y[:, -1]

    class Populations(Function):
        @staticmethod
        def forward(ctx, rate):
            y = integrate(rate.item())
            ctx.save_for_backward(rate.new_tensor(y[2:]))
            return rate.new_tensor(y[:2])

        @staticmethod
        @once_differentiable
        def backward(ctx, g):
            (sensitivity,) = ctx.saved_tensors
            return g @ sensitivity

    return Case(Populations, torch.tensor(0.9, dtype=torch.float64))


@healthy("fragile")
def trajectory_saved_for_its_adjoint():
    class Diffuse(Function):
        @staticmethod
        def forward(ctx, u, k):
            states = [array(u)]
            for _ in range(15):
                states.append(states[-1] + 0.1 * k.item() * laplacian(states[-1]))
            ctx.save_for_backward(k, tensor(np.stack(states), u))
            return tensor(states[-1], u)

        @staticmethod
        def backward(ctx, g):
            k, states = map(array, ctx.saved_tensors)
            adjoint, to_k = array(g), 0.0
            for state in states[-2::-1]:
                to_k += 0.1 * adjoint @ laplacian(state)
                adjoint = adjoint + 0.1 * k * laplacian(adjoint)
            return tensor(adjoint, g), g.new_tensor(to_k)

    def laplacian(u):
        return np.roll(u, 1) - 2 * u + np.roll(u, -1)

    return Case(Diffuse, normal(101, 8), torch.tensor(0.8, dtype=torch.float64))


@healthy("fragile")
def steps_recomputed_in_backward():
    def step(y, theta):
        return y + 0.1 * torch.tanh(theta @ y)

    class Rollout(Function):
        @staticmethod
        def forward(ctx, y, theta):
            ctx.save_for_backward(y, theta)
            for _ in range(10):
                y = step(y, theta)
            return y

        @staticmethod
        @once_differentiable
        def backward(ctx, g):
            y, theta = (t.detach().requires_grad_() for t in ctx.saved_tensors)
            with torch.enable_grad():
                end = y
                for _ in range(10):
                    end = step(end, theta)
            return torch.autograd.grad(end, (y, theta), g)

    return Case(Rollout, normal(102, 3), normal(103, 3, 3))


@healthy()
def buffer_copied_before_it_is_handed_out():
    class Filter:
        def __init__(self, n):
            self.buffer = np.empty(n)

        def run(self, x):
            self.buffer[0] = x[0]
            for i in range(1, len(x)):
                self.buffer[i] = 0.7 * self.buffer[i - 1] + x[i]
            return self.buffer

    smoother = Filter(6)

    class Smooth(Function):
        @staticmethod
        def forward(ctx, x, backwards):
            ctx.backwards = backwards
            signal = array(x)[::-1] if backwards else array(x)
            result = smoother.run(signal).copy()
            return tensor(result[::-1] if backwards else result, x)

        @staticmethod
        def backward(ctx, g):
            return Smooth.apply(g, not ctx.backwards), None

    return Case(Smooth, normal(104, 6), False)


@healthy("fragile")
def optimal_transport_by_sinkhorn():
    # The plan is the gradient of the regularised cost.
    class TransportCost(Function):
        @staticmethod
        def forward(ctx, cost):
            kernel = np.exp(-array(cost) / 0.5)
            rows, columns = np.ones(3) / 3, np.ones(4) / 4
            v, change = np.ones(4), 1.0
            while change > 1e-8:
                u = rows / (kernel @ v)
                new = columns / (kernel.T @ u)
                change, v = np.abs(new / v - 1).max(), new
            plan = u[:, None] * kernel * v
            ctx.save_for_backward(tensor(plan, cost))
            return cost.new_tensor((plan * (array(cost) + 0.5 * np.log(plan))).sum())

        @staticmethod
        @once_differentiable
        def backward(ctx, g):
            (plan,) = ctx.saved_tensors
            return g * plan

    return Case(TransportCost, uniform(105, 3, 4, low=0.1, high=1.5))


@healthy("fragile")
def nonnegative_least_squares_of_scipy():
    design = array(normal(106, 8, 4))

    class Fit(Function):
        @staticmethod
        def forward(ctx, y):
            weights, _ = scipy.optimize.nnls(design, array(y))
            ctx.save_for_backward(torch.from_numpy(np.flatnonzero(weights > 0)))
            return tensor(weights, y)

        @staticmethod
        def backward(ctx, g):
            (active,) = ctx.saved_tensors
            active = active.numpy()
            pseudo = np.linalg.pinv(design[:, active])
            return tensor(pseudo.T @ array(g)[active], g)

    return Case(Fit, normal(107, 8))


@healthy()
def ridge_regression_in_a_validation_loss():
    train, target, held_out, truth = normal(108, 10, 3), normal(109, 10), normal(110, 6, 3), normal(111, 6)

    def validation_loss(log_penalty):
        A = train.T @ train + log_penalty.exp() * torch.eye(3, dtype=torch.float64)
        return (held_out @ torch.linalg.solve(A, train.T @ target) - truth).square().mean()

    return Case(validation_loss, torch.tensor(0.3, dtype=torch.float64))


@healthy()
def largest_eigenvalue_by_power_iteration():
    class Largest(Function):
        @staticmethod
        def forward(ctx, A):
            S = 0.5 * (array(A) + array(A).T)
            v = np.ones(len(S))
            for _ in range(500):
                v = S @ v
                v /= np.linalg.norm(v)
            ctx.save_for_backward(A, tensor(v, A))
            return A.new_tensor(v @ S @ v)

        @staticmethod
        def backward(ctx, g):
            A, _ = ctx.saved_tensors
            v = torch.linalg.eigh(0.5 * (A + A.mT)).eigenvectors[:, -1]
            return g * torch.outer(v, v)

    gaps = torch.diag(torch.tensor([0.0, 1.0, 8.0], dtype=torch.float64))
    return Case(Largest, normal(112, 3, 3) + gaps)
