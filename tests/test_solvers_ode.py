"""The ODE solvers: values, adjoints, tangents, second derivatives, cost, and what they refuse."""

import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch

from helpers import differentiable, dot_product_test, step_size_curve
from helpers.bridge import MissingDerivative
from helpers.solvers import Equation, LotkaVolterra, PredatorPrey, RungeKutta, SolveFailed, SolveIVP

THETA, U0 = np.array([1.0, 0.5, 0.8, 0.4]), np.array([2.0, 1.0])
TIMES = np.linspace(0.5, 10.0, 20)
BOTH = np.concatenate([THETA, U0])


class Counted(PredatorPrey):
    """Counts its calls."""

    def __init__(self):
        self.calls = {"rhs": 0, "vjp": 0}

    def rhs(self, *args):
        self.calls["rhs"] += 1
        return super().rhs(*args)

    def vjp(self, *args):
        self.calls["vjp"] += 1
        return super().vjp(*args)


class Damped(Equation):
    """du/dt = -θ t u, so u = u0 exp(-θ (t² - start²) / 2): it depends on the time, and its solution is known."""

    def rhs(self, t, u, theta):
        return -theta * t * u

    def vjp(self, t, u, theta, w):
        return -theta * t * w, -t * u * w


class Pendulum(Equation):
    """A damped pendulum, for one at a time: an angle and a speed, θ = (stiffness, friction)."""

    def rhs(self, t, u, theta):
        (x, v), (stiffness, friction) = u, theta
        return np.array([v, -stiffness * np.sin(x) - friction * v])

    def vjp(self, t, u, theta, w):
        (x, v), (stiffness, friction), (p, q) = u, theta, w
        return np.array([-stiffness * np.cos(x) * q, p - friction * q]), np.array([-np.sin(x) * q, -v * q])


class Explosion(Equation):
    """du/dt = θ u², which leaves every bound at t = 1 / (θ u0)."""

    def rhs(self, t, u, theta):
        return theta * u**2

    def vjp(self, t, u, theta, w):
        return 2 * theta * u * w, u**2 * w


def rk(equation=None, step=0.1, times=TIMES, **options):
    return RungeKutta(equation or PredatorPrey(), times, step, **options)


SOLVERS = {
    "solve_ivp": LotkaVolterra(TIMES),
    "rk4": rk(),
    "rk4-large-steps": rk(step=0.5),
    "midpoint": rk(method="midpoint"),
    "euler": rk(method="euler"),
    "from-the-start-on": LotkaVolterra([0.0, 0.1, 3.0]),
    "rk4-from-the-start-on": rk(times=[0.0, 0.1, 3.0]),
    "late-start": LotkaVolterra([3.0, 4.0], start=2.0),
}
every_solver = pytest.mark.parametrize("solver", SOLVERS.values(), ids=SOLVERS.keys())


def linear_maps(solver, theta=THETA, u0=U0):
    """Return the tangent and the adjoint at a point, each as a function of one vector."""
    y, state = solver.forward(theta, u0)
    return (
        lambda t: solver.tangent(state, t[:4], t[4:]).ravel(),
        lambda g: np.concatenate(solver.adjoint(state, g.reshape(y.shape))),
    )


def gradient_of_sum(solver, theta=THETA, u0=U0):
    y, state = solver.forward(theta, u0)
    return np.concatenate(solver.adjoint(state, np.ones_like(y)))


# The equation

DRAWN = np.random.default_rng(0).uniform(0.5, 1.5, (3, 4)), np.random.default_rng(1).uniform(0.5, 1.5, (3, 2))


def directions(seed, count):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((3, length)) for length in (4, 2, 2)[:count]]


def test_jvp_of_the_equation_is_the_complex_step_of_rhs():
    (theta, u), (dtheta, du) = DRAWN, directions(2, 2)
    step = PredatorPrey().rhs(0, u + 1e-30j * du, theta + 1e-30j * dtheta).imag / 1e-30
    np.testing.assert_allclose(PredatorPrey().jvp(0, u, theta, du, dtheta), step, rtol=1e-14)


def test_vjp_of_the_equation_is_the_transpose_of_jvp():
    (theta, u), (dtheta, du, w) = DRAWN, directions(3, 3)
    of_u, of_theta = PredatorPrey().vjp(0, u, theta, w)
    there = np.sum(w * PredatorPrey().jvp(0, u, theta, du, dtheta), axis=-1)
    np.testing.assert_allclose(np.sum(of_u * du, axis=-1) + np.sum(of_theta * dtheta, axis=-1), there, rtol=1e-13)


def test_hvp_of_the_equation_is_the_complex_step_of_vjp():
    (theta, u), (dtheta, du, w) = DRAWN, directions(4, 3)
    stepped = PredatorPrey().vjp(0, u + 1e-30j * du, theta + 1e-30j * dtheta, w)
    for found, step in zip(PredatorPrey().hvp(0, u, theta, w, du, dtheta), stepped, strict=True):
        np.testing.assert_allclose(found, step.imag / 1e-30, rtol=1e-13, atol=1e-15)


# Values


@pytest.mark.parametrize("solver", [LotkaVolterra(TIMES), rk(step=0.01)], ids=["solve_ivp", "rk4"])
def test_what_the_equations_conserve_is_conserved(solver):
    x, y = solver.forward(THETA, U0)[0].T
    alpha, beta, gamma, delta = THETA
    kept = delta * x - gamma * np.log(x) + beta * y - alpha * np.log(y)
    first = delta * U0[0] - gamma * np.log(U0[0]) + beta * U0[1] - alpha * np.log(U0[1])
    np.testing.assert_allclose(kept, first, rtol=1e-8)


@pytest.mark.parametrize(("method", "order"), [("euler", 1), ("midpoint", 2), ("rk4", 4)])
def test_error_falls_with_the_order_of_the_method(method, order):
    truth = LotkaVolterra(TIMES).forward(THETA, U0)[0]
    errors = [np.abs(rk(step=step, method=method).forward(THETA, U0)[0] - truth).max() for step in (0.5 / 32, 0.5 / 64)]
    assert np.log2(errors[0] / errors[1]) == pytest.approx(order, abs=0.15)


@pytest.mark.parametrize("make", [SolveIVP, lambda *a, **k: RungeKutta(*a, step=0.01, **k)], ids=["solve_ivp", "rk4"])
def test_an_equation_of_the_readers_own(make):
    times, theta, u0 = np.array([1.0, 1.5, 3.0]), np.array([0.7]), np.array([2.0])
    solver = make(Damped(), times, start=1.0)
    y, state = solver.forward(theta, u0)
    passed = (times**2 - 1) / 2
    truth = u0 * np.exp(-theta * passed)
    np.testing.assert_allclose(y[:, 0], truth, rtol=1e-8)
    of_theta, of_u0 = solver.adjoint(state, np.ones_like(y))
    np.testing.assert_allclose(of_theta, [-np.sum(passed * truth)], rtol=1e-8)
    np.testing.assert_allclose(of_u0, [np.sum(truth / u0)], rtol=1e-8)


def test_equal_steps_reach_every_time():
    solver = rk(times=[0.3, 1.0], step=0.1)
    assert len(solver._steps) == 3 + 7
    assert max(h for _, h in solver._steps) <= 0.1 * (1 + 1e-12)


# Derivatives


@every_solver
def test_adjoint_passes_the_dot_product_test_to_1e_10(solver):
    tangent, adjoint = linear_maps(solver)
    assert dot_product_test(tangent, adjoint, x=(6,), trials=3, rtol=1e-10)


@every_solver
def test_differences_come_near_over_the_step_sizes(solver):
    def value(both):
        return np.sum(solver.forward(both[:4], both[4:])[0])

    curve = step_size_curve(
        value,
        lambda both: gradient_of_sum(solver, both[:4], both[4:]),
        BOTH,
        methods=["central"],
        steps=10.0 ** -np.arange(2, 7),
    )
    assert curve
    assert curve.best("central")[1] < 1e-8


@pytest.mark.parametrize("tolerance", [1e-4, 1e-6], ids=str)
def test_with_loose_tolerances_the_continuous_adjoint_is_not_the_transpose(tolerance):
    loose = LotkaVolterra(TIMES, rtol=tolerance, atol=tolerance)
    tangent, adjoint = linear_maps(loose)
    assert not dot_product_test(tangent, adjoint, x=(6,), rtol=1e-10)  # its steps depend on g: not even linear
    rng = np.random.default_rng(0)
    x, g = rng.standard_normal(6), rng.standard_normal(40)
    there, back = tangent(x), adjoint(g)
    assert 1e-10 < abs(there @ g - x @ back) / (np.linalg.norm(there) * np.linalg.norm(g)) < tolerance


def test_both_adjoints_meet_as_the_steps_shrink():
    truth = gradient_of_sum(LotkaVolterra(TIMES))
    gaps = [np.linalg.norm(gradient_of_sum(rk(step=step)) - truth) for step in (0.1, 0.05)]
    assert np.log2(gaps[0] / gaps[1]) == pytest.approx(4, abs=0.3)


def test_tolerances_hold_for_any_size_of_g():
    y, state = LotkaVolterra(TIMES).forward(THETA, U0)
    large, small = (LotkaVolterra(TIMES).adjoint(state, size * np.ones_like(y)) for size in (1.0, 1e-20))
    np.testing.assert_allclose(np.concatenate(small) / 1e-20, np.concatenate(large), rtol=1e-13)
    assert not np.any(np.concatenate(LotkaVolterra(TIMES).adjoint(state, np.zeros_like(y))))


@pytest.mark.parametrize("method", ["RK45", "RK23", "Radau", "BDF"])
def test_other_methods_of_scipy_have_the_same_gradient(method):
    solver = SolveIVP(PredatorPrey(), [0.5, 1.0], method=method, rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(gradient_of_sum(solver), gradient_of_sum(LotkaVolterra([0.5, 1.0])), rtol=1e-4)


def tensors(*arrays):
    return tuple(torch.tensor(array, requires_grad=True) for array in arrays)


@pytest.mark.parametrize("method", ["rk4", "midpoint", "euler"])
def test_second_derivatives_of_runge_kutta(method):
    op = differentiable(rk(times=[0.2, 0.6], step=0.2, method=method))
    inputs = tensors(THETA, U0)
    assert torch.autograd.gradcheck(op, inputs, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(op, inputs)


def test_second_derivatives_of_many_trajectories_at_once():
    op = differentiable(rk(times=[0.4, 1.0], step=0.2), batch="vectorized")
    assert torch.autograd.gradgradcheck(op, tensors(*DRAWN))


def test_many_trajectories_are_the_same_as_one_after_another():
    theta, u0 = DRAWN
    solver = rk(times=[0.5, 2.0])
    y, state = solver.forward(theta, u0)
    g = np.random.default_rng(5).standard_normal(y.shape)
    together = solver.adjoint(state, g)
    for k in range(len(theta)):
        alone, own = solver.forward(theta[k], u0[k])
        np.testing.assert_allclose(y[k], alone, rtol=1e-14)
        for a, b in zip(together, solver.adjoint(own, g[k]), strict=True):
            np.testing.assert_allclose(a[k], b, rtol=1e-12)


def test_axes_of_a_batch_keep_their_order():
    theta, u0 = (np.random.default_rng(6).uniform(0.5, 1.5, (2, 3, n)) for n in (4, 2))
    solver = rk(times=[1.0])
    np.testing.assert_allclose(solver.forward(theta, u0)[0][1, 2], solver.forward(theta[1, 2], u0[1, 2])[0])


# What an equation leaves out

each_kind = pytest.mark.parametrize("make", [SolveIVP, lambda *a: RungeKutta(*a, step=0.1)], ids=["solve_ivp", "rk4"])
PLACE = np.array([2.0, 0.1]), np.array([1.0, 0.0])


@each_kind
def test_rhs_and_vjp_are_enough_for_verify_and_for_check_first(make):
    solver = make(Pendulum(), [1.0, 2.0])
    differentiable(solver).verify(*tensors(*PLACE))
    differentiable(solver, check="first")(*tensors(*PLACE)).sum().backward()
    assert not hasattr(solver, "tangent")
    assert not hasattr(solver, "hvp")
    assert hasattr(make(PredatorPrey(), [1.0]), "tangent")


@each_kind
def test_what_needs_more_of_the_equation_says_that_it_is_missing(make):
    op, inputs = differentiable(make(Pendulum(), [1.0, 2.0])), tensors(*PLACE)
    with pytest.raises(MissingDerivative, match="no tangent"):
        torch.func.jvp(op, tuple(map(torch.tensor, PLACE)), tuple(map(torch.tensor, PLACE)))
    with pytest.raises(MissingDerivative):
        torch.autograd.gradgradcheck(op, inputs)
    with pytest.raises(MissingDerivative, match="no hvp"):
        torch.autograd.functional.hessian(lambda theta: op(theta, inputs[1].detach()).sum(), inputs[0].detach())


def test_a_solver_without_tangent_can_be_pickled():
    solver = pickle.loads(pickle.dumps(rk(Pendulum(), times=[1.0])))
    assert np.array_equal(solver.forward(*PLACE)[0], rk(Pendulum(), times=[1.0]).forward(*PLACE)[0])


@each_kind
def test_lists_and_tuples_of_an_equation_are_arrays_to_the_solver(make):
    class Listed(PredatorPrey):
        def rhs(self, *args):
            return tuple(super().rhs(*args))

        def vjp(self, *args):
            return [part.tolist() for part in super().vjp(*args)]

        def jvp(self, *args):
            return super().jvp(*args).tolist()

    listed, solver = make(Listed(), [0.5, 1.0]), make(PredatorPrey(), [0.5, 1.0])
    assert np.array_equal(gradient_of_sum(listed), gradient_of_sum(solver))
    found, truth = ([a.forward(THETA, U0)[0], linear_maps(a)[0](BOTH)] for a in (listed, solver))
    assert all(map(np.array_equal, found, truth))


# A batch

ROWS = np.random.default_rng(7).uniform(0.5, 1.5, (3, 3))


def mixing(method):
    """Return predators and prey of which one derivative mixes the trajectories: it hands them back in reverse."""

    def mixed(self, *args):
        found = getattr(PredatorPrey, method)(self, *args)
        return found[::-1] if method == "jvp" else (found[0], found[1][::-1])

    return type("Mixing", (PredatorPrey,), {method: mixed})()


def test_trajectories_taken_for_coordinates_are_refused_though_every_shape_fits():
    solver = rk(Pendulum(), times=[1.0, 2.0])
    with pytest.raises(
        ValueError, match=r'Pendulum.rhs gives another result for a batch .* Unpack u.T .* batch="loop"'
    ):
        solver.forward(ROWS[:2, :2], ROWS[1:, :2])
    op, alone = differentiable(solver, batch="loop"), differentiable(solver)
    found = op(torch.tensor(ROWS[:2, :2]), torch.tensor(ROWS[1:, :2]))
    truth = [alone(torch.tensor(a), torch.tensor(b)) for a, b in zip(ROWS[:2, :2], ROWS[1:, :2], strict=True)]
    assert torch.equal(found, torch.stack(truth))


def test_an_equation_that_fails_for_a_batch_says_so():
    with pytest.raises(
        ValueError, match=r"Pendulum.rhs works for one trajectory, and not for a batch: .*unpack"
    ) as caught:
        rk(Pendulum(), times=[1.0]).forward(ROWS[:, :2], ROWS[:, 1:])
    assert "unpack" in str(caught.value.__cause__)


@pytest.mark.parametrize("method", ["vjp", "jvp", "hvp"])
def test_derivatives_that_mix_a_batch_are_refused(method):
    y, state = rk(times=[1.0]).forward(*DRAWN)
    calls = {"vjp": lambda s: s.adjoint(state, 0 * y), "jvp": lambda s: s.tangent(state, *DRAWN)}
    calls["hvp"] = lambda s: s.hvp(state, 0 * y, *DRAWN)
    with pytest.raises(ValueError, match=rf"Mixing.{method} gives another result for a batch"):
        calls[method](rk(mixing(method), times=[1.0]))


def test_an_equation_that_fails_for_each_trajectory_too_speaks_for_itself():
    class Picky(PredatorPrey):
        def rhs(self, t, u, theta):
            raise ValueError("no rates today")

    with pytest.raises(ValueError, match=r"^no rates today"):
        rk(Picky(), times=[1.0]).forward(*DRAWN)


def test_rounding_of_float32_in_a_batch_is_no_mixing():
    class Single(PredatorPrey):
        def rhs(self, t, u, theta):
            noise = 1e-7 * np.arange(u.size).reshape(u.shape)
            return super().rhs(t, u, theta) + noise

    assert np.all(np.isfinite(rk(Single(), times=[1.0]).forward(*DRAWN)[0]))


# Cost

CHEAP = {
    "solve_ivp": lambda equation: SolveIVP(equation, TIMES),
    "solve_ivp-loose": lambda equation: SolveIVP(equation, TIMES, rtol=1e-6, atol=1e-6),
    "rk4": rk,
}


@pytest.mark.parametrize("make", CHEAP.values(), ids=CHEAP.keys())
def test_adjoint_evaluates_at_most_1_5_times_as_often_as_its_solve(make):
    equation = Counted()
    gradient_of_sum(make(equation))
    assert 0 < equation.calls["vjp"] <= 1.5 * equation.calls["rhs"]


# State


@pytest.mark.parametrize("solver", [LotkaVolterra(TIMES), rk()], ids=["solve_ivp", "rk4"])
def test_each_solve_has_its_own_state(solver):
    truth = gradient_of_sum(solver)
    y, state = solver.forward(THETA, U0)
    solver.forward(2 * THETA, 2 * U0)
    assert np.array_equal(np.concatenate(solver.adjoint(state, np.ones_like(y))), truth)


@pytest.mark.parametrize("solver", [LotkaVolterra(TIMES), rk()], ids=["solve_ivp", "rk4"])
def test_the_state_does_not_follow_the_callers_arrays(solver):
    theta, u0 = THETA.copy(), U0.copy()
    y, state = solver.forward(theta, u0)
    theta *= 2
    u0 *= 2
    assert np.array_equal(np.concatenate(solver.adjoint(state, np.ones_like(y))), gradient_of_sum(solver))


@pytest.mark.parametrize("solver", [LotkaVolterra(TIMES), rk()], ids=["solve_ivp", "rk4"])
def test_a_solver_can_be_pickled_and_its_state_too(solver):
    y, state = solver.forward(THETA, U0)
    there, carried = pickle.loads(pickle.dumps((solver, state)))
    for a, b in zip(there.adjoint(carried, np.ones_like(y)), solver.adjoint(state, np.ones_like(y)), strict=True):
        assert np.array_equal(a, b)


def test_times_are_the_solvers_own():
    times = np.array([1.0, 2.0])
    solver = LotkaVolterra(times)
    times[0] = 1.5
    assert solver.times[0] == 1.0
    with pytest.raises(ValueError, match="read-only"):
        solver.times[0] = 0.5


def test_import_needs_neither_torch_nor_matplotlib():
    code = "import sys, helpers.solvers; assert not {'torch', 'matplotlib'} & set(sys.modules), 'imported'"
    subprocess.run([sys.executable, "-c", code], check=True)


# What they refuse

WRONG = {
    "not-increasing": (lambda: LotkaVolterra([1.0, 1.0]), ValueError, "Sort them"),
    "before-the-start": (lambda: rk(times=[-1.0, 1.0]), ValueError, "from start=0 on"),
    "no-time": (lambda: LotkaVolterra([]), ValueError, "must be a sequence"),
    "only-the-start": (lambda: LotkaVolterra([0.0]), ValueError, "Add a later time"),
    "times-of-two-axes": (lambda: rk(times=[[1.0, 2.0]]), ValueError, "must be a sequence"),
    "infinite-time": (lambda: rk(times=[1.0, np.inf]), ValueError, "NaN or Inf"),
    "unknown-method": (lambda: LotkaVolterra(TIMES, method="LSODA"), ValueError, "one of DOP853"),
    "unknown-rule": (lambda: rk(method="rk5"), ValueError, "one of euler"),
    "negative-tolerance": (lambda: LotkaVolterra(TIMES, rtol=-1.0), ValueError, "above 0"),
    "tolerance-below-float64": (lambda: LotkaVolterra(TIMES, rtol=1e-15), ValueError, "1e-13 or more"),
    "no-step": (lambda: rk(step=0.0), ValueError, "step must be a number above 0"),
    "no-equation": (lambda: SolveIVP(lambda t, u: u, TIMES), TypeError, "must be an Equation"),
    "no-equation-rk": (lambda: RungeKutta(np.sin, TIMES, 0.1), TypeError, "must be an Equation"),
    "negative-theta": (lambda: rk().forward(-THETA, U0), ValueError, "theta must be above 0"),
    "zero-prey": (lambda: LotkaVolterra(TIMES).forward(THETA, [0.0, 1.0]), ValueError, "u0 must be above 0"),
    "three-rates": (lambda: rk().forward(THETA[:3], U0), ValueError, "theta must have 4 numbers"),
    "nan": (lambda: rk().forward(THETA * np.nan, U0), ValueError, "theta holds NaN"),
    "text": (lambda: rk().forward(["a"] * 4, U0), TypeError, "real numbers"),
    "tensor": (lambda: rk().forward(torch.tensor(THETA), U0), TypeError, "torch tensor"),
    "ragged": (lambda: rk().forward([[1.0], [1.0, 2.0]], U0), ValueError, "differ in length"),
    "batch-for-solve_ivp": (lambda: LotkaVolterra(TIMES).forward(*DRAWN), ValueError, 'batch="loop"'),
    "uneven-batch": (lambda: rk().forward(DRAWN[0], U0), ValueError, "same leading axes"),
    "wrong-g": (lambda: rk().adjoint(rk().forward(THETA, U0)[1], np.ones(2)), ValueError, "g must have the shape"),
    "nan-g": (lambda: linear_maps(LotkaVolterra(TIMES))[1](np.full(40, np.nan)), ValueError, "g holds NaN"),
    "no-jvp": (
        lambda: SolveIVP(Damped(), [1.0]).tangent(SolveIVP(Damped(), [1.0]).forward([1.0], [1.0])[1], [1.0], [1.0]),
        AttributeError,
        "SolveIVP of Damped has no tangent: that needs jvp",
    ),
}


@pytest.mark.parametrize(("call", "kind", "words"), WRONG.values(), ids=WRONG.keys())
def test_what_does_not_fit_is_refused_in_words(call, kind, words):
    with pytest.raises(kind, match=words):
        call()


def test_scipys_failure_comes_through_with_its_message():
    with pytest.raises(SolveFailed, match=r"stopped at t = 0.5.* of 1.*SciPy says: .*step size") as caught:
        SolveIVP(Explosion(), [1.0]).forward([1.0], [2.0])
    assert "step size" in str(caught.value.__cause__)


def test_a_solution_that_explodes_is_no_number():
    with pytest.raises(SolveFailed, match=r"NaN or Inf after t = .* smaller step than 0.1"):
        rk(Explosion(), times=[1.0, 3.0]).forward([1.0], [2.0])


def test_a_solve_that_takes_too_long_ends():
    with pytest.raises(SolveFailed, match=r"took 100 evaluations .* Or raise limit"):
        LotkaVolterra(TIMES, limit=100).forward(THETA, U0)


@pytest.mark.parametrize("make", [SolveIVP, lambda *a: RungeKutta(*a, step=0.1)], ids=["solve_ivp", "rk4"])
def test_arithmetic_errors_of_the_equation_are_kept_as_the_cause(make):
    class Careful(Damped):
        def rhs(self, t, u, theta):
            return super().rhs(t, u, theta) * (1 / int(t < 0.5))

    with pytest.raises(SolveFailed, match="the equation failed") as caught:
        make(Careful(), [1.0]).forward([1.0], [1.0])
    assert isinstance(caught.value.__cause__, ArithmeticError)


@pytest.mark.parametrize("make", [SolveIVP, lambda *a: RungeKutta(*a, step=0.1)], ids=["solve_ivp", "rk4"])
def test_shapes_that_numpy_would_stretch_are_refused(make):
    class Wide(Damped):
        def rhs(self, t, u, theta):
            return np.sum(u)

    class Narrow(Damped):
        def vjp(self, t, u, theta, w):
            return -theta * t * w, np.sum(-t * u * w)

    with pytest.raises(ValueError, match=r"rhs must return \(2,\), the shape of u; it returned \(\)"):
        make(Wide(), [1.0]).forward([1.0, 1.0], [1.0, 1.0])
    with pytest.raises(ValueError, match=r"vjp must return .* the shape of u and that of theta"):
        gradient_of_sum(make(Narrow(), [1.0]), np.ones(2), np.ones(2))
