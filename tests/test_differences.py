"""Central differences along a line are within the errors that they state."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.differences import STEPS, best, slopes

modest = settings(max_examples=50, deadline=None)


@modest
@given(st.lists(st.floats(-3, 3), min_size=2, max_size=6))
def test_the_slope_of_a_polynomial_is_within_twice_its_error(coefficients):
    """Its error is an estimate, from two slopes: chance can make it a little too small."""
    value, error = best(slopes(lambda t: np.float64(np.polyval(coefficients, 0.5 + t))))
    truth = np.polyval(np.polyder(coefficients), 0.5)
    assert abs(value - truth) <= 2 * error + 1e-12
    assert error < 1e-6


def test_each_step_has_the_central_difference():
    found = slopes(lambda t: np.exp(t), steps=(0.5, 0.1))
    np.testing.assert_allclose([s.value for s in found], [math.sinh(0.5) / 0.5, math.sinh(0.1) / 0.1])
    assert all(s.error < 1e-14 for s in found)


def test_each_entry_has_a_step_of_its_own():
    value, error = best(slopes(lambda t: np.array([np.sin(t), np.sin(1e3 * t)])))
    np.testing.assert_allclose(value, [1, 1e3], rtol=1e-4)
    assert np.all(np.abs(value - [1, 1e3]) <= 2 * error)


def test_the_precision_of_the_answer_counts():
    double, single = (slopes(lambda t, kind=kind: kind(1 + t))[0].error for kind in (np.float64, np.float32))
    assert single == pytest.approx(double * 2.0**29)
    assert slopes(lambda t: np.float64(1 + t), eps=1e-3)[0].error > single


@pytest.mark.parametrize(
    "function",
    [
        lambda t: math.sqrt(t + 1e-3),
        lambda t: np.float64(np.nan if abs(t) > 1e-3 else t),
        lambda t: 1 / max(0, 1e-3 - abs(t)),
    ],
    ids=["raises ValueError", "is not finite", "raises ZeroDivisionError"],
)
def test_steps_that_leave_the_domain_are_left_out(function):
    found = slopes(function)
    assert 2 <= len(found) < len(STEPS)
    assert np.isfinite(best(found).value)


@pytest.mark.parametrize("steps", [(), (0.1,)], ids=["none", "one"])
def test_of_fewer_than_two_steps_nothing_is_said(steps):
    value, error = best(slopes(lambda t: np.float64(t), steps=steps))
    assert np.isnan(value)
    assert np.isinf(error)
