"""check_noisy_gradient keeps its confidence, sees faults, and says when it could not have seen one."""

import math

import numpy as np
import pytest
import torch

from helpers import NoisyPair, UniformFactor, check_noisy_gradient, rosenbrock

X = np.array([0.1, 0.1])


def pair(seed=0, draws="independent", width=0.5):
    return NoisyPair(rosenbrock.value, rosenbrock.gradient, UniformFactor(width), seed, draws)


def spoiled(spoil, seed=0):
    noisy = pair(seed)
    return noisy.value, lambda x: spoil(noisy.gradient(x))


def seeded(x, rng):
    return rosenbrock.value(x) * rng.uniform(0.5, 1.5)


def seeded_gradient(x, rng):
    return rosenbrock.gradient(x) * rng.uniform(0.5, 1.5)


# --- right and wrong


@pytest.mark.parametrize("x", [X, rosenbrock.optimum()], ids=["a slope", "the optimum"])
@pytest.mark.parametrize("draws", ["independent", "evaluation"])
def test_an_unbiased_gradient_is_right(draws, x):
    noisy = pair(draws=draws)
    found = check_noisy_gradient(noisy.value, noisy.gradient, x, exact=rosenbrock.gradient)
    assert found, found
    assert "1000 draws, confidence 99%" in found.sentence


SPOILS = {
    "a tenth": lambda g: 1.1 * g,
    "sign": lambda g: -g,
    "one sign": lambda g: g * [1, -1],
    "swapped": lambda g: g[::-1],
    "a constant": lambda g: g + 0.1,
    "zeros": lambda g: 0 * g,
}


@pytest.mark.parametrize("x", [X, rosenbrock.optimum()], ids=["a slope", "the optimum"])
@pytest.mark.parametrize("spoil", SPOILS.values(), ids=SPOILS)
def test_a_wrong_mean_is_found_with_the_exact_gradient(spoil, x):
    found = check_noisy_gradient(*spoiled(spoil), x, exact=rosenbrock.gradient)
    assert found.verdict == "wrong"
    assert np.any(found.shown.wrong)


@pytest.mark.parametrize("name", ["sign", "one sign", "swapped", "zeros"])
def test_a_wrong_mean_is_found_by_differences(name):
    assert check_noisy_gradient(*spoiled(SPOILS[name]), X).verdict == "wrong"


def test_a_right_gradient_passes_by_differences_with_enough_draws():
    rng = np.random.default_rng(1)
    noisy = lambda x: (x @ x) * rng.uniform(0.8, 1.2)  # noqa: E731
    gradient = lambda x: 2 * x * rng.uniform(0.8, 1.2)  # noqa: E731
    found = check_noisy_gradient(noisy, gradient, [1.0, 2.0], samples=6000)
    assert found, found


def test_with_a_generator_both_ends_share_a_draw():
    found = check_noisy_gradient(seeded, seeded_gradient, X, rng=0)
    assert found, found
    at = found.means[0]
    drawing = check_noisy_gradient(pair().value, pair().gradient, X).means[0]
    assert np.all(at.expected_error < drawing.expected_error / 4)
    assert found.correlation is None
    assert check_noisy_gradient(seeded, lambda x, rng: 1.2 * seeded_gradient(x, rng), X, rng=0).verdict == "wrong"


def test_the_bend_of_the_function_accuses_nobody():
    bent = lambda x, rng: np.exp(3 * x[0]) + 1e-3 * rng.standard_normal()  # noqa: E731
    gradient = lambda x, rng: 3 * np.exp(3 * x) + 1e-3 * rng.standard_normal()  # noqa: E731
    found = check_noisy_gradient(bent, gradient, [0.5], rng=0, step=0.2)
    assert found.verdict != "wrong"
    assert np.all(found.means[0].bend > 0)


@pytest.mark.parametrize("seed", range(4))
def test_a_step_that_is_too_large_accuses_nobody_and_is_named(seed):
    rng = np.random.default_rng(seed)
    swing = lambda x: np.sin(10 * x).sum() + 0.05 * rng.standard_normal()  # noqa: E731
    gradient = lambda x: 10 * np.cos(10 * x) + 0.05 * rng.standard_normal(2)  # noqa: E731
    found = check_noisy_gradient(swing, gradient, [1.0, 0.5], samples=300)
    assert found.verdict == "undecided", found
    assert "step is so large" in found.sentence
    assert "Pass a smaller step=" in found.sentence
    assert check_noisy_gradient(swing, lambda x: -gradient(x), [1.0, 0.5], samples=300).verdict == "wrong"


def test_noise_that_is_added_is_tested_too():
    rng = np.random.default_rng(0)
    noisy = lambda x: rosenbrock.value(x) + 0.1 * rng.standard_normal()  # noqa: E731
    gradient = lambda x: rosenbrock.gradient(x) + 0.1 * rng.standard_normal(2)  # noqa: E731
    assert check_noisy_gradient(noisy, gradient, X, exact=rosenbrock.gradient)


def test_a_torch_function_that_draws_is_tested():
    generator = torch.Generator().manual_seed(0)

    def noisy(x):
        factor = 0.5 + torch.rand((), generator=generator, dtype=x.dtype)
        return ((1 - x[0]) ** 2 + 5 * (x[1] - x[0] ** 2) ** 2) * factor

    found = check_noisy_gradient(noisy, None, torch.tensor(X), exact=rosenbrock.gradient, samples=400)
    assert found, found
    assert abs(found.correlation) > 0.99


def test_value_and_gradient_can_come_together():
    rng = np.random.default_rng(0)

    def both(x):
        factor = rng.uniform(0.5, 1.5)
        return factor * rosenbrock.value(x), factor * rosenbrock.gradient(x)

    found = check_noisy_gradient(both, True, X, exact=rosenbrock.gradient)
    assert found
    assert "share a draw" in found.notes[-1]


# --- the statistics


@pytest.mark.parametrize("entries", [1, 6])
def test_a_right_gradient_passes_as_often_as_the_confidence_says(entries):
    """Of 300 tests at 90 %, about 30 are false alarms: 10 to 55 leaves chance one in a thousand."""
    rng = np.random.default_rng(0)
    slope = np.ones(entries)
    noisy = lambda x: x @ slope + rng.standard_normal()  # noqa: E731
    gradient = lambda x: slope + rng.standard_normal(entries)  # noqa: E731
    alarms = sum(
        check_noisy_gradient(noisy, gradient, slope, exact=slope, samples=20, confidence=0.9).verdict == "wrong"
        for _ in range(300)
    )
    assert 10 <= alarms <= 55


def test_t_and_its_limit_are_those_of_the_book():
    noisy = pair()
    found = check_noisy_gradient(noisy.value, noisy.gradient, X, exact=rosenbrock.gradient(X), samples=50)
    (at,) = found.means
    again = pair()
    draws = np.array([(again.value(X), again.gradient(X))[1] for _ in range(52)])  # two more tell the functions apart
    np.testing.assert_allclose(at.limit, 2.9397, rtol=1e-3)  # scipy.stats.t.ppf(1 - 0.01 / 4, 49)
    sizes = draws.std(axis=0, ddof=1) / np.sqrt(50)
    np.testing.assert_allclose(at.got_error, sizes, rtol=0.2)
    np.testing.assert_allclose(at.t, (at.got - at.expected) / at.got_error)


@pytest.mark.parametrize("samples", [50, 1000])
def test_too_few_draws_are_told_with_how_many_it_takes(samples):
    noisy = pair()
    found = check_noisy_gradient(noisy.value, noisy.gradient, X, samples=samples)
    assert found.verdict == "undecided"
    assert not found
    assert "a fault of 10% in x[1] at x could hide" in found.sentence
    assert 5000 < np.max(found.means[0].needed) < 60000


def test_the_number_of_draws_that_it_asks_for_is_enough():
    rng = np.random.default_rng(0)
    noisy = lambda x: x @ x + rng.standard_normal()  # noqa: E731
    gradient = lambda x: 2 * x + rng.standard_normal(2)  # noqa: E731
    exact = lambda x: 2 * x  # noqa: E731
    first = check_noisy_gradient(noisy, gradient, [1.0, 2.0], exact=exact, samples=100, near=0)
    needed = int(np.max(first.means[0].needed))
    assert first.verdict == "undecided"
    wrong = lambda x: gradient(x) * [1.1, 1]  # noqa: E731
    found = [
        check_noisy_gradient(noisy, wrong, [1.0, 2.0], exact=exact, samples=needed, near=0).verdict for _ in range(20)
    ]
    assert found.count("wrong") >= 11  # 16 of 20 are expected


@pytest.mark.parametrize(
    ("draws", "words", "low", "high"),
    [("independent", "have draws of their own", -0.2, 0.2), ("evaluation", "share a draw", 0.99, 1.01)],
    ids=["independent", "evaluation"],
)
def test_it_says_whether_value_and_gradient_share_a_draw(draws, words, low, high):
    noisy = pair(draws=draws)
    found = check_noisy_gradient(noisy.value, noisy.gradient, X, exact=rosenbrock.gradient)
    assert words in found.notes[-1]
    assert low < abs(found.correlation) < high


def test_directions_stand_for_many_entries():
    rng = np.random.default_rng(0)
    noisy = lambda x: (x @ x) * rng.uniform(0.9, 1.1)  # noqa: E731
    gradient = lambda x: -2 * x * rng.uniform(0.9, 1.1)  # noqa: E731
    x = np.linspace(1, 2, 40)
    with pytest.raises(ValueError, match="pass directions=10"):
        check_noisy_gradient(noisy, gradient, x)
    found = check_noisy_gradient(noisy, gradient, x, directions=2, samples=300)
    assert found.verdict == "wrong"
    assert found.means[0].names == ("direction 0", "direction 1")
    assert len(check_noisy_gradient(noisy, gradient, x, exact=lambda x: 2 * x, samples=50).means[0].names) == 40


# --- refused


def test_what_is_not_noisy_is_sent_to_the_other_check():
    with pytest.raises(ValueError, match="use check_gradient"):
        check_noisy_gradient(rosenbrock.value, rosenbrock.gradient, X)


def test_at_an_optimum_alone_nothing_is_decided():
    rng = np.random.default_rng(0)
    noisy = lambda x: rosenbrock.value(x) + rng.standard_normal()  # noqa: E731
    found = check_noisy_gradient(
        noisy, lambda x: -rosenbrock.gradient(x), rosenbrock.optimum(), exact=np.zeros(2), samples=20
    )
    assert found.verdict == "undecided"
    assert "zero at x" in found.sentence


REFUSED = {
    "few samples": (dict(samples=5), "samples must be 10 or more"),
    "confidence": (dict(confidence=99), "confidence must lie between 0 and 1"),
    "step": (dict(step=0.0), "step must lie above 0"),
    "near": (dict(near=-1.0), "near must lie 0 or more"),
    "exact shape": (dict(exact=np.zeros(3)), "exact must give a finite gradient"),
    "exact nan": (dict(exact=lambda x: np.nan * x), "exact must give a finite gradient"),
}


@pytest.mark.parametrize(("options", "told"), REFUSED.values(), ids=REFUSED)
def test_bad_options_are_refused(options, told):
    with pytest.raises(ValueError, match=told):
        check_noisy_gradient(pair().value, pair().gradient, X, **options)


def test_a_difference_that_leaves_the_domain_is_refused():
    rng = np.random.default_rng(0)
    noisy = lambda x: np.log(x[0]) * rng.uniform(0.5, 1.5) if x[0] > 0 else np.nan  # noqa: E731
    with pytest.raises(ValueError, match="Pass a smaller step="):
        check_noisy_gradient(noisy, lambda x: 1 / x, [0.1], samples=20, near=0)


def test_an_error_of_the_domain_within_a_step_is_refused_too():
    rng = np.random.default_rng(0)
    noisy = lambda x: math.log(x[0]) * rng.uniform(0.5, 1.5)  # noqa: E731
    with pytest.raises(ValueError, match=r"Pass a smaller step=") as caught:
        check_noisy_gradient(noisy, lambda x: 1 / x, [0.1], samples=20, near=0)
    assert isinstance(caught.value.__cause__, ValueError)


# --- print


def test_it_prints_means_errors_and_t():
    found = check_noisy_gradient(*spoiled(SPOILS["one sign"]), X, exact=rosenbrock.gradient)
    lines = repr(found).splitlines()
    assert lines[0].startswith("The mean of the gradient is wrong in 2 of 4 tests. Worst is x[1] at x: mean -0.")
    assert lines[1].split() == ["at", "x", "mean", "std.", "error", "expected", "std.", "error", "t", "|t|", "allowed"]
    assert lines[3].endswith("wrong")
    assert len(found._repr_html_().split("<tr>")) == 4
