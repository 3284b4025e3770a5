"""The heat equation: its derivatives against each other and against differences, its physics, and what it refuses."""

import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from helpers import ExternalFunction, check_gradient, dot_product_test, step_size_curve
from helpers.solvers import HeatEquation, Smoothness, centres, count_solves, lattice
from helpers.solvers.grid import grid, interpolation
from helpers.solvers.sparse import Factorised

pytestmark = [pytest.mark.filterwarnings("error"), pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")]
N = 5


def draw(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def sensors(count=4):
    return np.random.default_rng(7).random((count, 2))


KINDS = {
    "steady": {},
    "one-source": {"sources": np.ones((N, N))},
    "grid-of-sources": {"sources": draw(2, 3, N, N)},
    "flow": {"flow": (30.0, -20.0)},
    "time": {"steps": 3, "dt": 0.01},
    "time-and-flow": {"steps": 4, "dt": 0.02, "flow": (-5.0, 9.0), "start": draw(N, N, seed=3)},
}
every_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


def heat(kind):
    return HeatEquation(N, sensors=sensors(), **({"sources": draw(2, N, N, seed=2)} | kind))


class Op(ExternalFunction):
    """The solver as an op of torch."""

    def __init__(self, solver):
        self.solver = solver

    def forward(self, m):
        return self.solver.forward(m)

    def adjoint(self, state, g):
        return self.solver.adjoint(state, g)

    def tangent(self, state, t):
        return self.solver.tangent(state, t)

    def hvp(self, state, g, t):
        return self.solver.hvp(state, g, t)


# --- derivatives


@every_kind
def test_the_adjoint_is_the_transpose_of_the_tangent(kind):
    solver = heat(kind)
    _, state = solver.forward(draw(N, N))
    found = dot_product_test(
        lambda t: solver.tangent(state, t),
        lambda g: solver.adjoint(state, g),
        x=(N, N),
        y=solver.y_shape,
        rtol=1e-10,
    )
    assert found, found


@every_kind
def test_the_gradient_agrees_with_differences(kind):
    solver, m = heat(kind), draw(N, N)
    data = solver.forward(draw(N, N, seed=5))[0]

    def loss(m):
        return 0.5 * np.sum((solver.forward(m)[0] - data) ** 2)

    def gradient(m):
        y, state = solver.forward(m)
        return solver.adjoint(state, y - data)

    assert check_gradient(loss, gradient, m, directions=8)
    curve = step_size_curve(loss, gradient, m, methods=["forward", "central"])
    assert curve
    assert curve.best("central")[1] < 1e-8
    assert curve.best("central")[1] < curve.best("forward")[1]


@every_kind
def test_the_hvp_is_symmetric_and_the_slope_of_the_adjoint(kind):
    solver, m, h = heat(kind), draw(N, N), 1e-5
    g, one, other = draw(*solver.y_shape, seed=8), draw(N, N, seed=9), draw(N, N, seed=10)
    _, state = solver.forward(m)
    product = solver.hvp(state, g, one)
    np.testing.assert_allclose(np.sum(other * product), np.sum(one * solver.hvp(state, g, other)), rtol=1e-10)
    up, down = (solver.adjoint(solver.forward(m + step * one)[1], g) for step in (h, -h))
    np.testing.assert_allclose(product, (up - down) / (2 * h), atol=1e-7 * np.abs(product).max())


@pytest.mark.parametrize("kind", ["flow", "time-and-flow"])
def test_torch_finds_first_and_second_derivatives_right(kind):
    n = 3
    options = {**KINDS[kind], "start": draw(n, n)} if "start" in KINDS[kind] else KINDS[kind]
    op = Op(HeatEquation(n, sensors=sensors(2), sources=draw(2, n, n), **options))
    m = torch.tensor(draw(n, n), requires_grad=True)
    assert torch.autograd.gradcheck(op, m, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(op, m)


def test_an_adjoint_belongs_to_its_own_solve():
    solver = heat({})
    g = draw(*solver.y_shape)
    _, first = solver.forward(draw(N, N, seed=1))
    expected = solver.adjoint(first, g)
    solver.forward(draw(N, N, seed=2))
    np.testing.assert_array_equal(solver.adjoint(first, g), expected)


@pytest.mark.parametrize(("steps", "times"), [(None, 1), (5, 5)], ids=["steady", "time"])
def test_one_factorisation_serves_the_solve_and_every_derivative(steps, times):
    solver = HeatEquation(N, sources=np.ones((3, N, N)), steps=steps, dt=steps and 0.1)
    with count_solves() as count:
        y, state = solver.forward(np.zeros((N, N)))
        assert (count.factorisations, count.solves) == (1, 3 * times)
    with count_solves() as all_of_it:
        for derivative, solves in (
            (lambda: solver.adjoint(state, y), 1),
            (lambda: solver.tangent(state, draw(N, N)), 1),
            (lambda: solver.hvp(state, y, draw(N, N)), 3),
        ):
            with count_solves() as inside:
                derivative()
            assert (inside.factorisations, inside.solves) == (0, 3 * times * solves)
    assert all_of_it.solves == 15 * times


# --- the equation itself


def manufactured(n, flow):
    """Return log-conductivity, source and temperature of an exact solution at the centres."""
    x, y = centres(n)
    u, ux, uy = np.sin(np.pi * x) * np.sin(np.pi * y), 0, 0
    ux = np.pi * np.cos(np.pi * x) * np.sin(np.pi * y)
    uy = np.pi * np.sin(np.pi * x) * np.cos(np.pi * y)
    m = np.sin(3 * x) - y**2
    k, slope_x, slope_y = np.exp(m), 3 * np.cos(3 * x), -2 * y
    f = k * (2 * np.pi**2 * u - slope_x * ux - slope_y * uy) + flow[0] * ux + flow[1] * uy
    return m, f, u


@pytest.mark.parametrize(("flow", "order"), [((0, 0), 2), ((8, -4), 1)], ids=["conduction", "flow"])
def test_the_error_falls_with_the_grid_as_the_scheme_promises(flow, order):
    errors = []
    for n in (16, 32, 64):
        m, f, u = manufactured(n, flow)
        errors.append(np.sqrt(np.mean((HeatEquation(n, sources=f, flow=flow).temperatures(m) - u) ** 2)))
    rates = np.log2(np.array(errors[:-1]) / errors[1:])
    assert np.all(np.abs(rates - order) < 0.25), rates
    assert errors[-1] < 2e-3 if order == 2 else errors[-1] < 2e-2


def test_a_sine_cools_by_the_factor_of_implicit_euler():
    n, dt, steps = 12, 0.02, 4
    x, y = centres(n)
    sine = np.sin(np.pi * x) * np.sin(np.pi * y)
    solver = HeatEquation(n, sources=np.zeros((n, n)), steps=steps, dt=dt, start=sine)
    rate = 2 * 2 * n**2 * (1 - np.cos(np.pi / n))  # the sine is an eigenvector of the discrete equation, too
    for k, u in enumerate(solver.temperatures(np.zeros((n, n))), start=1):
        np.testing.assert_allclose(u, sine / (1 + dt * rate) ** k, rtol=1e-12)


def test_a_long_time_ends_in_the_steady_state():
    m, sources = draw(N, N), draw(2, N, N)
    over_time = HeatEquation(N, sources=sources, steps=50, dt=10.0, flow=(3, 1)).forward(m)[0]
    np.testing.assert_allclose(over_time[-1], HeatEquation(N, sources=sources, flow=(3, 1)).forward(m)[0], rtol=1e-10)


fields = st.integers(0, 2**32 - 1).map(lambda seed: 2 * draw(N, N, seed=seed))
quick = settings(max_examples=20, deadline=None, derandomize=True)


@quick
@given(m=fields, source=fields)
def test_what_the_sources_bring_leaves_through_the_edge(m, source):
    solver = HeatEquation(N, sources=source)
    _, state = solver.forward(m)
    edge = slice(grid(N).second.nnz, None)
    cells = grid(N).first.indices[edge]
    left = np.sum(state.conductances.value[edge] * state.u[0, 0, cells])
    np.testing.assert_allclose(left, np.mean(source), atol=1e-12 * np.abs(source).max())


@quick
@given(m=fields, one=st.integers(0, N * N - 1), other=st.integers(0, N * N - 1))
def test_heater_and_sensor_may_change_places(m, one, other):
    spots = np.eye(N * N).reshape(-1, N, N)
    u = HeatEquation(N, sources=spots[[one, other]]).temperatures(m).reshape(2, -1)
    np.testing.assert_allclose(u[0, other], u[1, one], rtol=1e-9)


@quick
@given(m=fields, source=fields, shift=st.floats(-5, 5), flow=st.tuples(st.floats(-30, 30), st.floats(-30, 30)))
def test_heat_warms_and_good_conductors_are_colder(m, source, shift, flow):
    solver = HeatEquation(N, sources=np.abs(source), flow=flow)
    assert solver.temperatures(m).min() >= 0
    still = HeatEquation(N, sources=source)
    np.testing.assert_allclose(still.temperatures(m + shift), still.temperatures(m) * np.exp(-shift), rtol=1e-8)


@quick
@given(m=fields, source=fields)
def test_a_mirrored_plate_has_mirrored_temperatures(m, source):
    u = HeatEquation(N, sources=source, flow=(7, 2)).temperatures(m)
    across = HeatEquation(N, sources=source[:, ::-1], flow=(-7, 2)).temperatures(m[:, ::-1])
    turned = HeatEquation(N, sources=source.T, flow=(2, 7)).temperatures(m.T)
    size = np.abs(u).max()
    np.testing.assert_allclose(across[:, ::-1], u, atol=1e-10 * size)
    np.testing.assert_allclose(turned.T, u, atol=1e-10 * size)


def test_the_largest_grid_of_the_course_works():
    n = 256
    solver, m = HeatEquation(n), 0.1 * draw(n, n)
    y, state = solver.forward(m)
    t = draw(n, n, seed=1)
    np.testing.assert_allclose(np.sum(solver.tangent(state, t) * y), np.sum(t * solver.adjoint(state, y)), rtol=1e-9)


# --- sensors, smoothness


def test_sensors_read_a_plane_exactly_between_the_centres():
    n, at = 8, 0.1 + 0.8 * sensors(20)
    x, y = centres(n)
    np.testing.assert_allclose(interpolation(n, at) @ (2 * x - y + 1).ravel(), 2 * at[:, 0] - at[:, 1] + 1)


def test_sensors_on_the_edge_read_its_temperature_and_half_way_to_the_first_centre_half():
    reading = interpolation(4, [(0, 0.5), (1, 1), (0.3, 0), (1 / 16, 0.5)])
    np.testing.assert_allclose(reading @ np.ones(16), [0, 0, 0, 0.5])


def test_a_sensor_at_a_centre_reads_its_cell():
    np.testing.assert_array_equal((interpolation(3, [(0.5, 1 / 6)]) @ np.arange(9.0)).round(12), [1])


@pytest.mark.parametrize("shape", [(9,), (4, 7), (3, 4, 5)], ids=["line", "square", "cube"])
def test_the_derivatives_of_the_smoothness_are_exact(shape):
    smoothness, m = Smoothness(3.0), draw(*shape)
    assert check_gradient(smoothness.value, smoothness.gradient, m)
    assert dot_product_test(lambda t: smoothness.hvp(m, t), lambda t: smoothness.hvp(m, t), x=shape, rtol=1e-10)
    np.testing.assert_allclose(np.sum(m * smoothness.hvp(m, m)), 2 * smoothness.value(m))


def test_the_smoothness_of_a_function_is_its_integral_whatever_the_grid():
    for n in (20, 200):
        x, y = centres(n)
        assert Smoothness(2.0).value(3 * x + y) == pytest.approx(10 * (n - 1) / n)
        assert Smoothness(2.0).value(0 * x + 5) == 0
        assert Smoothness(2.0).value(3 * x[0]) == pytest.approx(9 * (n - 1) / n)
        assert Smoothness(2.0).value((3 * x)[: n // 2]) == pytest.approx(9 * (n - 1) / n)


# --- as an object


@every_kind
def test_a_pickled_solver_solves_the_same(kind):
    solver = heat(kind)
    again = pickle.loads(pickle.dumps(solver))
    np.testing.assert_array_equal(again.forward(draw(N, N))[0], solver.forward(draw(N, N))[0])
    assert repr(again) == repr(solver)


@every_kind
def test_an_adjoint_can_follow_its_solve_in_another_process(kind):
    solver = heat(kind)
    y, state = solver.forward(draw(N, N))
    travelled = pickle.loads(pickle.dumps(state))
    np.testing.assert_array_equal(solver.adjoint(travelled, y), solver.adjoint(state, y))


def test_a_pickled_solver_is_not_much_larger_than_its_sources():
    solver = HeatEquation(64, sources=np.ones((9, 64, 64)))
    solver.forward(np.zeros((64, 64)))
    assert len(pickle.dumps(solver)) < 1.2 * solver.sources.nbytes


def test_the_arrays_of_a_solver_cannot_be_changed():
    with pytest.raises(ValueError, match="read-only"):
        heat({}).sources[0] = 1


def test_torch_and_matplotlib_stay_out():
    program = (
        "import sys, numpy as np; from helpers.solvers import HeatEquation; "
        "y, state = HeatEquation(4).forward(np.zeros((4, 4))); HeatEquation(4).adjoint(state, y); "
        "print([name for name in ('torch', 'matplotlib') if name in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


# --- what is refused

BAD = {
    "small-grid": (lambda: HeatEquation(1), "cells along a side"),
    "grid-of-half-cells": (lambda: HeatEquation(4.5), "whole number"),
    "sensor-outside": (lambda: HeatEquation(4, sensors=[(0.5, 0.5), (0.5, 1.2)]), r"Sensor 1 is at \[0.5, 1.2\]"),
    "sensor-nan": (lambda: HeatEquation(4, sensors=[(np.nan, 0.5)]), "Sensor 0"),
    "sensors-flat": (lambda: HeatEquation(4, sensors=[0.5, 0.5]), "positions"),
    "no-sensor": (lambda: HeatEquation(4, sensors=np.zeros((0, 2))), "count ≥ 1"),
    "lattice-of-none": (lambda: lattice(0), "1 or more"),
    "sources-shape": (lambda: HeatEquation(4, sources=np.ones((2, 3, 4))), r"sources must have shape \(…, 4, 4\)"),
    "sources-nan": (lambda: HeatEquation(2, sources=np.full((2, 2), np.nan)), "sources holds NaN"),
    "flow-one-number": (lambda: HeatEquation(4, flow=(1,)), "velocity"),
    "flow-infinite": (lambda: HeatEquation(4, flow=(1, np.inf)), "velocity"),
    "steps-alone": (lambda: HeatEquation(4, steps=3), "go together"),
    "dt-alone": (lambda: HeatEquation(4, dt=0.1), "go together"),
    "no-steps": (lambda: HeatEquation(4, steps=0, dt=0.1), "1 or more"),
    "dt-zero": (lambda: HeatEquation(4, steps=1, dt=0.0), "above 0"),
    "start-without-time": (lambda: HeatEquation(4, start=np.ones((4, 4))), "steady state"),
    "start-shape": (lambda: HeatEquation(4, steps=1, dt=1.0, start=np.ones(4)), "start must have shape"),
    "m-shape": (lambda: heat({}).forward(np.zeros(N)), r"m must have shape \(5, 5\)"),
    "m-batch": (lambda: heat({}).forward(np.zeros((2, N, N))), r"got \(2, 5, 5\)"),
    "m-nan": (lambda: heat({}).forward(np.full((N, N), np.nan)), "m holds NaN"),
    "m-overflow": (lambda: heat({}).forward(np.full((N, N), 1000.0)), "conductivity is exp"),
    "m-uneven": (lambda: heat({}).forward(40 * np.eye(N)), "double precision"),
    "g-shape": (lambda: heat({}).adjoint(heat({}).forward(np.zeros((N, N)))[1], np.ones(4)), "shape of the readings"),
    "g-nan": (lambda: heat({}).adjoint(heat({}).forward(np.zeros((N, N)))[1], np.full((2, 4), np.nan)), "g holds NaN"),
    "t-shape": (lambda: heat({}).tangent(heat({}).forward(np.zeros((N, N)))[1], np.ones(4)), "t must have shape"),
    "singular": (lambda: Factorised(sparse.csc_array(np.zeros((2, 2)))), "singular"),
    "negative-weight": (lambda: Smoothness(-1.0), "0 or more"),
    "smoothness-of-a-number": (lambda: Smoothness().value(4.0), "one axis or more"),
    "smoothness-nan": (lambda: Smoothness().gradient([[0, np.inf]]), "NaN or infinity"),
    "smoothness-hvp-shape": (lambda: Smoothness().hvp(np.zeros((2, 2)), np.zeros((2, 3))), "shape of m"),
}


@pytest.mark.parametrize(("attempt", "message"), BAD.values(), ids=BAD)
def test_what_cannot_be_right_is_refused_with_its_cause(attempt, message):
    with pytest.raises(ValueError, match=message):
        attempt()


def test_complex_fields_and_huge_sources_are_refused():
    with pytest.raises(TypeError, match="real numbers"):
        heat({}).forward(np.zeros((N, N), dtype=complex))
    with pytest.raises(ValueError, match="not finite"):
        HeatEquation(4, sources=np.full((4, 4), 1e300)).forward(np.full((4, 4), -50.0))
