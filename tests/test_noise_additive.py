"""Noise that is added: its size and its mean, that value and gradient belong together, and who refuses it."""

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest

from helpers import NoisyPair, UniformFactor, rosenbrock
from helpers.noise import GaussianTerm

DRAWS = ["independent", "evaluation", "step"]
every_kind = pytest.mark.parametrize("draws", DRAWS)
X = np.array([0.1, 0.7])
BATCH = np.random.default_rng(5).normal(size=(3, 4, 2))
MANY = np.tile(X, (20_000, 1))


def pair(draws="independent", seed=0, sd=0.1):
    return NoisyPair(rosenbrock.value, rosenbrock.gradient, GaussianTerm(sd), seed, draws)


def slope(noisy, x=X):
    """Return what is added to the gradient."""
    return noisy.gradient(x) - rosenbrock.gradient(x)


def added(noisy, x=X):
    """Return what is added to the value."""
    return noisy.value(x) - rosenbrock.value(x)


def some_numbers(draws, seed):
    """Return what a worker computes: values and gradients in turn."""
    noisy = pair(draws, seed)
    return [[float(noisy.value(X)), *noisy.gradient(X).tolist()] for _ in range(3)]


# --- size and mean


@pytest.mark.parametrize("sd", [0.1, 2.0])
def test_slopes_have_mean_0_their_spread_and_nothing_in_common(sd):
    slopes = slope(pair(sd=sd), MANY)
    np.testing.assert_allclose(slopes.mean(axis=0), 0, atol=5 * sd / np.sqrt(len(MANY)))
    np.testing.assert_allclose(slopes.std(axis=0), sd, rtol=0.03)
    assert abs(np.corrcoef(slopes.T)[0, 1]) < 5 / np.sqrt(len(MANY))


def test_what_is_added_to_the_value_has_mean_0_and_a_spread_that_grows_with_x():
    values = added(pair(sd=0.1), MANY)
    assert abs(values.mean()) < 5 * values.std() / np.sqrt(len(MANY))
    assert values.std() == pytest.approx(0.1 * np.linalg.norm(X), rel=0.03)


def test_it_does_not_vanish_at_the_optimum():
    assert np.all(pair().gradient(rosenbrock.optimum()) != 0)


@every_kind
def test_no_noise_is_exact(draws):
    noisy = pair(draws, sd=0.0)
    assert np.array_equal(noisy.value(BATCH), rosenbrock.value(BATCH))
    assert np.array_equal(noisy.gradient(BATCH), rosenbrock.gradient(BATCH))


@every_kind
def test_shapes_are_those_of_the_functions(draws):
    noisy = pair(draws)
    assert np.shape(noisy.value(X)) == ()
    noisy.advance()
    assert noisy.value(BATCH).shape == (3, 4)
    assert noisy.gradient(BATCH).shape == (3, 4, 2)


def test_each_point_of_a_batch_has_slopes_of_its_own():
    slopes = slope(pair(), BATCH).round(12)
    assert len(np.unique(slopes)) == slopes.size


# --- which draws belong together


@pytest.mark.parametrize("draws", ["evaluation", "step"])
def test_the_gradient_is_that_of_the_noisy_value(draws):
    noisy = pair(draws)
    np.testing.assert_allclose(added(noisy, BATCH), np.sum(slope(noisy, BATCH) * BATCH, axis=-1), atol=1e-13)


def test_independent_draws_of_value_and_gradient_differ():
    noisy = pair("independent")
    assert abs(added(noisy) - slope(noisy) @ X) > 1e-3
    assert np.all(slope(noisy) != slope(noisy))


def test_a_new_evaluation_has_a_new_slope():
    noisy = pair("evaluation")
    first = added(noisy)
    assert added(noisy) != first


def test_a_step_keeps_its_slope_at_all_points_until_advance():
    noisy = pair("step")
    before = slope(noisy)
    np.testing.assert_allclose(slope(noisy, X + 1.0), before, atol=1e-13)
    np.testing.assert_allclose(added(noisy, X + 1.0), before @ (X + 1.0), atol=1e-13)
    noisy.advance()
    assert np.all(np.abs(slope(noisy) - before) > 1e-6)


def test_another_batch_within_a_step_is_refused():
    noisy = pair("step")
    noisy.value(BATCH)
    with pytest.raises(ValueError, match=r"Call advance\(\) before you change the batch"):
        noisy.value(X)


def test_a_gradient_before_its_value_is_refused():
    with pytest.raises(ValueError, match=r"call value\(x\) first"):
        pair("evaluation").gradient(X)


# --- one seed


@every_kind
def test_a_seed_fixes_the_numbers_in_another_process_too(draws):
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        assert pool.submit(some_numbers, draws, 3).result() == some_numbers(draws, 3)
    assert some_numbers(draws, 4) != some_numbers(draws, 3)


def test_spawned_pairs_have_slopes_of_their_own():
    one, two = pair().spawn(2)
    assert np.all(slope(one) != slope(two))


# --- refusals


@pytest.mark.parametrize("sd", [-0.1, np.nan, np.inf], ids=["negative", "nan", "infinite"])
def test_a_spread_must_be_a_finite_number(sd):
    with pytest.raises(ValueError, match="sd must be a finite number, 0 or more; got"):
        GaussianTerm(sd)


def test_what_neither_multiplies_nor_is_added_is_refused_and_both_ways_are_named():
    with pytest.raises(TypeError, match=r"draw method.*got object\. Noise to be added has a method slope"):
        NoisyPair(rosenbrock.value, rosenbrock.gradient, object(), seed=0)


def test_any_object_with_a_slope_serves():
    class Up:
        def slope(self, rng, shape):
            return np.ones(shape)

    noisy = NoisyPair(rosenbrock.value, rosenbrock.gradient, Up(), seed=0)
    np.testing.assert_allclose(slope(noisy), [1.0, 1.0])
    assert added(noisy) == pytest.approx(X.sum())


def test_the_bridge_refuses_it_when_the_op_is_made():
    from helpers import differentiable  # here, since it loads torch, and the workers above need none

    with pytest.raises(TypeError, match=r"draw method, such as UniformFactor\(0\.5\); got GaussianTerm\(sd=0\.1\)"):
        differentiable(rosenbrock.value, grad=rosenbrock.gradient, noise=GaussianTerm(0.1), rng=0)


def test_a_factor_has_no_slope_and_a_term_no_factor():
    assert not hasattr(UniformFactor(), "slope")
    assert not hasattr(GaussianTerm(), "draw")
