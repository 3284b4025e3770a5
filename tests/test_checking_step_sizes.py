"""The V has its bottom where theory puts it, and its picture shows the numbers of the curve."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import rosenbrock, step_size_curve

modest = settings(max_examples=20, deadline=None)
X = np.array([0.1, 0.1])
EPS = {np.float64: 2.0**-52, np.float32: 2.0**-23}


def plain(x):
    return (1 - x[0]) ** 2 + 5 * (x[1] - x[0] ** 2) ** 2


def curve(dtype=np.float64, **options):
    return step_size_curve(plain, rosenbrock.gradient, X.astype(dtype), **options)


@pytest.mark.parametrize("dtype", EPS, ids=["float64", "float32"])
@pytest.mark.parametrize(("method", "power"), [("forward", 1 / 2), ("central", 1 / 3)])
def test_the_best_step_is_near_the_one_of_theory(dtype, method, power):
    found = curve(dtype)
    step, error = found.best(method)
    assert found
    assert found.rule(method) == pytest.approx(EPS[dtype] ** power)
    assert found.rule(method) / 30 < step < 30 * found.rule(method)
    assert error < 30 * EPS[dtype] ** (1 - power)


@pytest.mark.parametrize(("method", "order"), [("forward", 1), ("central", 2), ("complex", 2)])
def test_the_right_branch_has_the_slope_of_the_order(method, order):
    found = curve(steps=[1e-2, 1e-3])
    large, small = found.errors[method]
    assert np.log10(large / small) == pytest.approx(order, abs=0.05)


@pytest.mark.parametrize("method", ["forward", "central"])
def test_the_left_branch_rises_as_the_step_shrinks(method):
    found = curve(steps=np.geomspace(1e-14, 1e-10, 30))
    left, right = found.errors[method][-10:], found.errors[method][:10]
    assert np.median(left) > 100 * np.median(right)


def test_a_complex_step_has_no_left_branch():
    assert np.all(curve(steps=np.geomspace(1e-200, 1e-9, 30)).errors["complex"] < 1e-15)


def test_steps_are_kept_from_large_to_small():
    np.testing.assert_allclose(curve(steps=[1e-3, 1.0, 1e-2]).steps, [1.0, 1e-2, 1e-3])


def test_errors_are_those_of_the_differences():
    d = np.array([1.0, 2.0])
    found = step_size_curve(plain, rosenbrock.gradient, X, direction=d, steps=[1e-3], methods=["forward", "central"])
    truth = rosenbrock.gradient(X) @ d
    assert found.derivative == pytest.approx(truth)
    forward = (plain(X + 1e-3 * d) - plain(X)) / 1e-3
    central = (plain(X + 1e-3 * d) - plain(X - 1e-3 * d)) / 2e-3
    np.testing.assert_allclose(found.errors["forward"], abs(forward / truth - 1), rtol=1e-6)
    np.testing.assert_allclose(found.errors["central"], abs(central / truth - 1), rtol=1e-6)


@modest
@given(st.integers(1, 5), st.integers(0, 2**31))
def test_any_cubic_has_its_v(n, seed):
    rng = np.random.default_rng(seed)
    a, x = rng.uniform(1, 2, n), rng.uniform(1, 2, n)
    found = step_size_curve(lambda x: np.sum(a * x**3), lambda x: 3 * a * x**2, x, direction=np.ones(n))
    assert found
    assert found.best("complex")[1] <= found.best("central")[1] + 1e-15 < found.best("forward")[1] + 1e-7


def test_in_single_precision_the_gradient_is_asked_in_double():
    found = step_size_curve(lambda x: np.sum(x**3), lambda x: 3 * x**2, np.float32([0.1, 0.3]), direction=[1.0, 1.0])
    assert found.derivative == pytest.approx(3 * np.sum(np.float64(np.float32([0.1, 0.3])) ** 2), rel=1e-14)


def test_torch_code_has_no_complex_step():
    found = step_size_curve(plain, None, torch.tensor(X))
    assert found
    assert list(found.errors) == ["forward", "central"]
    assert step_size_curve(plain, None, torch.tensor(X).float()).dtype == np.float32


def test_a_wrong_gradient_never_gets_close():
    found = step_size_curve(plain, lambda x: 1.01 * rosenbrock.gradient(x), X)
    assert found.verdict == "wrong"
    assert "No step brings a difference to the gradient" in repr(found)


def test_where_the_function_cannot_be_computed_there_is_no_error():
    found = step_size_curve(lambda x: np.log(x[0]), lambda x: 1 / x, [0.1], direction=[1.0], methods=["central"])
    assert np.isnan(found.errors["central"][0])
    assert found.best("central")[1] < 1e-8


def test_it_prints_best_and_theory_side_by_side():
    lines = repr(curve()).splitlines()
    assert lines[1].split() == ["differences", "best", "step", "its", "error", "below", "theory's", "step"]
    assert "1.5e-08  eps^(1/2)" in lines[2]
    assert "6.1e-06  eps^(1/3)" in lines[3]
    assert "any small one" in lines[4]


REFUSED = {
    "unknown method": (dict(methods=["backward"]), "must be among 'forward', 'central', 'complex'"),
    "step 0": (dict(steps=[0.0]), "finite numbers above 0"),
    "no step": (dict(steps=[]), "finite numbers above 0"),
    "direction 0": (dict(direction=[0.0, 0.0]), "not all 0"),
    "direction too long": (dict(direction=[1.0, 0.0, 0.0]), "2 finite entries"),
    "orthogonal direction": (dict(direction=[0.9, 1.98]), "derivative along the direction is 0"),
}


@pytest.mark.parametrize(("options", "told"), REFUSED.values(), ids=REFUSED)
def test_bad_options_are_refused(options, told):
    with pytest.raises(ValueError, match=told):
        curve(**options)


def test_an_optimum_is_refused():
    with pytest.raises(ValueError, match="Choose another x, such as one that is not an optimum"):
        step_size_curve(plain, rosenbrock.gradient, rosenbrock.optimum())


def test_a_complex_step_that_does_not_fit_is_refused_if_asked_for():
    assert "complex" not in step_size_curve(rosenbrock.value, rosenbrock.gradient, X).errors
    with pytest.raises(ValueError, match="method='complex' needs"):
        step_size_curve(rosenbrock.value, rosenbrock.gradient, X, methods=["complex"])
