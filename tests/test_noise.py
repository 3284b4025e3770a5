"""The noise: its size, which draws belong together, and that a seed fixes it everywhere."""

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import GaussianFactor, NoisyPair, UniformFactor, rosenbrock

DRAWS = ["independent", "evaluation", "step"]
every_kind = pytest.mark.parametrize("draws", DRAWS)
X = np.array([0.1, 0.1])
BATCH = np.random.default_rng(5).normal(size=(3, 4, 2))
modest = settings(max_examples=30, deadline=None)


def pair(draws="independent", seed=0, factor=None):
    factor = UniformFactor(0.5) if factor is None else factor
    return NoisyPair(rosenbrock.value, rosenbrock.gradient, factor, seed, draws)


def value_factor(noisy, x=X):
    return (noisy.value(x) / rosenbrock.value(x))[()]


def gradient_factor(noisy, x=X):
    factors = noisy.gradient(x) / rosenbrock.gradient(x)
    np.testing.assert_allclose(factors[..., 0], factors[..., 1], rtol=1e-12)
    return factors[..., 0][()]


def some_numbers(draws, seed):
    """Return what a worker computes: values and gradients in turn."""
    noisy = pair(draws, seed)
    return [[float(noisy.value(X)), *noisy.gradient(X).tolist()] for _ in range(3)]


# --- the factors


@modest
@given(st.floats(0, 1), st.integers(0, 2**32 - 1))
def test_a_uniform_factor_stays_in_its_range(width, seed):
    factors = UniformFactor(width).draw(np.random.default_rng(seed), (200,))
    assert 1 - width <= factors.min()
    assert factors.max() <= 1 + width


@pytest.mark.parametrize(
    ("factor", "spread"),
    [(UniformFactor(0.5), 0.5 / np.sqrt(3)), (UniformFactor(1.0), 1 / np.sqrt(3)), (GaussianFactor(0.25), 0.25)],
)
def test_a_factor_has_mean_1_and_its_spread(factor, spread):
    factors = factor.draw(np.random.default_rng(0), (200_000,))
    assert factors.mean() == pytest.approx(1, abs=5 * spread / np.sqrt(factors.size))
    assert factors.std() == pytest.approx(spread, rel=0.01)


def test_a_uniform_factor_fills_its_range():
    factors = UniformFactor(0.5).draw(np.random.default_rng(0), (10_000,))
    assert factors.min() < 0.51
    assert factors.max() > 1.49


def test_the_default_is_the_noise_of_the_question():
    assert UniformFactor() == UniformFactor(0.5)


def test_a_wide_gaussian_factor_changes_signs_sometimes():
    assert (GaussianFactor(0.5).draw(np.random.default_rng(0), (10_000,)) < 0).any()


@pytest.mark.parametrize("factor", [UniformFactor(0.0), GaussianFactor(0.0)])
@every_kind
def test_no_noise_is_exact(factor, draws):
    noisy = pair(draws, factor=factor)
    assert np.array_equal(noisy.value(BATCH), rosenbrock.value(BATCH))
    assert np.array_equal(noisy.gradient(BATCH), rosenbrock.gradient(BATCH))


@pytest.mark.parametrize("width", [-0.1, 1.1, np.nan, np.inf])
def test_a_width_outside_0_to_1_is_refused(width):
    with pytest.raises(ValueError, match="width must lie between 0 and 1; got"):
        UniformFactor(width)


@pytest.mark.parametrize("sd", [-0.1, np.nan, np.inf])
def test_a_bad_standard_deviation_is_refused(sd):
    with pytest.raises(ValueError, match="sd must be a finite number, 0 or more; got"):
        GaussianFactor(sd)


@pytest.mark.parametrize(("factor", "size"), [(UniformFactor(0.2), "width"), (GaussianFactor(0.2), "sd")])
def test_a_factor_cannot_be_changed(factor, size):
    with pytest.raises(AttributeError):
        setattr(factor, size, 9.0)


# --- which draws belong together


def test_independent_draws_differ_at_every_call():
    noisy = pair("independent")
    factors = [float(draw(noisy)) for draw in (value_factor, gradient_factor) * 3]
    assert len(np.unique(np.round(factors, 9))) == 6


def test_one_evaluation_shares_its_draw_and_the_next_has_a_new_one():
    noisy = pair("evaluation")
    evaluations = [(value_factor(noisy), gradient_factor(noisy), gradient_factor(noisy)) for _ in range(3)]
    for of_value, *of_gradients in evaluations:
        assert of_gradients == pytest.approx([of_value, of_value], rel=1e-12)
    assert len({round(float(of_value), 9) for of_value, *_ in evaluations}) == 3


def test_one_step_shares_its_draw_until_advance():
    noisy = pair("step")
    first = [value_factor(noisy), gradient_factor(noisy), value_factor(noisy), value_factor(noisy, np.zeros(2))]
    noisy.advance()
    second = [gradient_factor(noisy), value_factor(noisy)]
    assert first == pytest.approx([first[0]] * 4, rel=1e-12)
    assert second == pytest.approx([second[0]] * 2, rel=1e-12)
    assert first[0] != pytest.approx(second[0], rel=1e-6)


def test_advance_changes_nothing_where_every_call_draws():
    plain, advanced = pair("independent"), pair("independent")
    for _ in range(3):
        advanced.advance()
        assert plain.value(X) == advanced.value(X)


def test_a_gradient_before_any_value_is_refused():
    with pytest.raises(ValueError, match=r"call value\(x\) first"):
        pair("evaluation").gradient(X)


def test_after_advance_the_gradient_needs_a_value_again():
    noisy = pair("evaluation")
    noisy.value(X)
    noisy.advance()
    with pytest.raises(ValueError, match=r"call value\(x\) first"):
        noisy.gradient(X)


@pytest.mark.parametrize("draws", ["evaluation", "step"])
def test_a_kept_draw_does_not_serve_another_batch(draws):
    noisy = pair(draws)
    noisy.value(BATCH)
    with pytest.raises(ValueError, match=r"batch of shape \(3, 4\), and this call needs \(\)\. Call advance\(\)"):
        noisy.gradient(X)


def test_after_advance_a_step_takes_another_batch():
    noisy = pair("step")
    noisy.value(BATCH)
    noisy.advance()
    assert noisy.gradient(X).shape == (2,)


# --- batches


@every_kind
def test_each_point_of_a_batch_has_its_own_draw(draws):
    factors = value_factor(pair(draws), BATCH)
    assert factors.shape == (3, 4)
    assert len(np.unique(np.round(factors, 9))) == 12


@every_kind
def test_the_entries_of_one_gradient_share_a_draw_and_points_do_not(draws):
    noisy = pair(draws)
    noisy.value(BATCH)
    factors = gradient_factor(noisy, BATCH)
    assert factors.shape == (3, 4)
    assert len(np.unique(np.round(factors, 9))) == 12


@pytest.mark.parametrize("draws", ["evaluation", "step"])
def test_in_a_batch_value_and_gradient_agree_point_by_point(draws):
    noisy = pair(draws)
    assert value_factor(noisy, BATCH) == pytest.approx(gradient_factor(noisy, BATCH), rel=1e-12)


@every_kind
def test_an_empty_batch_gives_an_empty_result(draws):
    noisy = pair(draws)
    assert noisy.value(np.empty((0, 2))).shape == (0,)
    assert noisy.gradient(np.empty((0, 2))).shape == (0, 2)


def test_at_the_optimum_the_noise_has_nothing_to_multiply():
    noisy = pair()
    assert noisy.value(rosenbrock.optimum()) == 0
    assert np.array_equal(noisy.gradient(rosenbrock.optimum()), [0, 0])


def test_the_noisy_gradient_is_right_on_average():
    many = np.broadcast_to(X, (40_000, 2))
    assert pair().gradient(many).mean(axis=0) == pytest.approx(rosenbrock.gradient(X), rel=0.01)


@every_kind
def test_the_point_is_not_changed(draws):
    x = X.copy()
    noisy = pair(draws)
    noisy.value(x)
    noisy.gradient(x)
    assert np.array_equal(x, X)


def test_any_object_that_draws_serves_as_noise():
    class Double:
        def draw(self, rng, shape):
            return np.full(shape, 2.0)

    assert np.array_equal(pair(factor=Double()).gradient(BATCH), 2 * rosenbrock.gradient(BATCH))


# --- seeds


@every_kind
def test_the_same_seed_gives_the_same_numbers_and_another_seed_others(draws):
    assert some_numbers(draws, 7) == some_numbers(draws, 7)
    assert some_numbers(draws, 7) != some_numbers(draws, 8)


def test_an_int_and_its_generator_give_the_same_numbers():
    assert some_numbers("independent", 7) == some_numbers("independent", np.random.default_rng(7))


def test_a_numpy_integer_is_a_seed():
    assert some_numbers("independent", np.int64(7)) == some_numbers("independent", 7)


@pytest.fixture(scope="module")
def workers():
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        yield pool


@every_kind
def test_another_process_draws_the_same_numbers(workers, draws):
    assert workers.submit(some_numbers, draws, 7).result() == some_numbers(draws, 7)


def test_a_pair_sent_to_a_worker_goes_on_where_it_stood(workers):
    noisy = pair("step")
    noisy.value(X)
    sent = workers.submit(noisy.gradient, X).result()
    assert np.array_equal(sent, noisy.gradient(X))


@every_kind
def test_the_global_random_state_is_not_read(draws):
    np.random.seed(0)  # noqa: NPY002
    first = some_numbers(draws, 7)
    np.random.seed(1)  # noqa: NPY002
    assert some_numbers(draws, 7) == first


@every_kind
@pytest.mark.parametrize("factor", [UniformFactor(), GaussianFactor()])
def test_the_global_random_state_is_not_changed(draws, factor):
    np.random.seed(0)  # noqa: NPY002
    expected = np.random.random(3)  # noqa: NPY002
    np.random.seed(0)  # noqa: NPY002
    noisy = pair(draws, factor=factor)
    noisy.value(X)
    noisy.gradient(X)
    assert np.array_equal(np.random.random(3), expected)  # noqa: NPY002


def test_a_seed_sequence_is_a_seed():
    assert some_numbers("independent", np.random.SeedSequence(7)) == some_numbers("independent", 7)


@every_kind
def test_spawned_pairs_draw_their_own_and_the_same_each_time(draws):
    def factors(seed):
        noisy = pair(draws, seed)
        noisy.value(X)
        return [float(value_factor(one)) for one in [*noisy.spawn(2), *noisy.spawn(2)]]

    assert len(set(factors(7))) == 4
    assert factors(7) == factors(7)


def test_spawning_leaves_the_draws_of_the_pair_and_its_kept_draw():
    one, other = pair("step", 7), pair("step", 7)
    kept = one.value(X)
    (child,) = one.spawn(1)
    child.advance()
    assert one.value(X) == kept == other.value(X)
    one.advance()
    other.advance()
    assert one.value(X) == other.value(X)


def test_spawned_pairs_draw_the_same_in_a_worker(workers):
    sent = [workers.submit(one.value, X).result() for one in pair(seed=7).spawn(2)]
    assert sent == [one.value(X) for one in pair(seed=7).spawn(2)]


# --- mistakes


def value_of_one_point(x):
    return (1 - x[0]) ** 2 + 5 * (x[1] - x[0] ** 2) ** 2


def gradient_of_one_point(x):
    d1 = 10 * (x[1] - x[0] ** 2)
    return np.array([-2 * (1 - x[0]) - 2 * x[0] * d1, d1])


@every_kind
@pytest.mark.parametrize("shape", [(2, 2), (3, 2), (4, 3, 2), (2, 2, 2)])
def test_functions_of_one_point_are_refused_on_a_batch_with_the_cure(draws, shape):
    x = np.random.default_rng(0).normal(size=shape)
    noisy = NoisyPair(value_of_one_point, gradient_of_one_point, UniformFactor(), 0, draws)
    with pytest.raises(ValueError, match=r"^(For x|value gives).*np\.apply_along_axis\(f, -1, x\)"):
        noisy.value(x)
    noisy = NoisyPair(rosenbrock.value, gradient_of_one_point, UniformFactor(), 0, draws)
    noisy.value(x)
    with pytest.raises(ValueError, match=r"^(For x|gradient gives).*np\.apply_along_axis\(f, -1, x\)"):
        noisy.gradient(x)


@pytest.mark.parametrize("shape", [(2,), (2, 2), (4, 3, 2)])
def test_the_cure_for_functions_of_one_point_works(shape):
    x = np.random.default_rng(0).normal(size=shape)
    functions = (lambda x, f=f: np.apply_along_axis(f, -1, x) for f in (value_of_one_point, gradient_of_one_point))
    noisy = NoisyPair(*functions, UniformFactor(0.0), 0)
    assert noisy.value(x) == pytest.approx(rosenbrock.value(x))
    assert noisy.gradient(x) == pytest.approx(rosenbrock.gradient(x))


def test_only_the_first_batch_is_looked_at_and_no_single_point():
    calls = []

    def value(x):
        calls.append(x.shape)
        return rosenbrock.value(x)

    noisy = NoisyPair(value, rosenbrock.gradient, UniformFactor(), 0)
    for x in (X, BATCH[0, :1], BATCH, BATCH):
        noisy.value(x)
    assert calls == [(2,), (1, 2), (3, 4, 2), (1, 1, 2), (3, 4, 2)]


@pytest.mark.parametrize("wrong", [lambda x: x, lambda x: x.sum(), lambda x: rosenbrock.gradient(x)[..., :1]])
def test_a_gradient_of_another_shape_is_refused(wrong):
    with pytest.raises(ValueError, match=r"For x of shape \(2,\), gradient must give shape \(2,\); it gave"):
        NoisyPair(rosenbrock.value, lambda x: np.asarray(wrong(x))[None], UniformFactor(), 0).gradient(X)


def test_a_single_number_is_no_point():
    noisy = NoisyPair(lambda x: x**2, lambda x: 2 * x, UniformFactor(), 0)
    with pytest.raises(ValueError, match=r"shape \(\.\.\., d\); got the number 3"):
        noisy.gradient(3.0)


@pytest.mark.parametrize(
    ("factor", "words"),
    [
        (0.5, r"a draw method, as UniformFactor\(0\.5\) has; got float"),
        (UniformFactor, r"not a class: UniformFactor\(\.\.\.\)"),
    ],
)
def test_what_is_no_factor_is_refused_at_once(factor, words):
    with pytest.raises(TypeError, match=words):
        pair(factor=factor)


@pytest.mark.parametrize("draws", ["shared", "Independent", None, 3])
def test_an_unknown_kind_of_draws_is_refused_with_the_three_names(draws):
    with pytest.raises(ValueError, match="draws must be one of 'independent', 'evaluation', 'step'; got"):
        pair(draws)


@pytest.mark.parametrize(
    ("seed", "kind"), [(None, "NoneType"), (1.5, "float"), (True, "bool"), ("7", "str"), (np.random, "module")]
)
def test_what_is_no_seed_is_named(seed, kind):
    with pytest.raises(
        TypeError,
        match=rf"seed must be an int, a numpy\.random\.SeedSequence or a numpy\.random\.Generator; got {kind}",
    ):
        pair(seed=seed)


@every_kind
def test_what_the_function_raises_comes_through(draws):
    with pytest.raises(ValueError, match="x must have 2 coordinates"):
        pair(draws).value(np.ones(3))
