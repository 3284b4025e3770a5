"""Many runs in one tensor: each row moves as it would alone, and an optimiser that mixes the rows is refused."""

import numpy as np
import pytest
import torch

from helpers import NoisyPair, Trajectory, UniformFactor, descend_with_gradient, rosenbrock
from helpers.descent import descend_many

RUNS, STEPS = 100, 200
START = np.array([0.1, 0.1])
FACTORS = UniformFactor(0.5).draw(np.random.default_rng(0), (STEPS, RUNS))
ELEMENTWISE = {
    "Adam": lambda x: torch.optim.Adam([x], lr=0.1),
    "Adam fused": lambda x: torch.optim.Adam([x], lr=0.1, fused=True),
    "AdamW": lambda x: torch.optim.AdamW([x], lr=0.1),
    "SGD": lambda x: torch.optim.SGD([x], lr=0.02),
    "SGD with momentum": lambda x: torch.optim.SGD([x], lr=0.01, momentum=0.5, nesterov=True),
    "RMSprop": lambda x: torch.optim.RMSprop([x], lr=0.01),
    "Adagrad": lambda x: torch.optim.Adagrad([x], lr=0.1),
    "Rprop": lambda x: torch.optim.Rprop([x], lr=0.01),
}
MIXING = {
    "Adafactor": lambda x: torch.optim.Adafactor([x], lr=0.1),
    "Muon": lambda x: torch.optim.Muon([x], lr=0.1),
}


def adam(x):
    return torch.optim.Adam([x], lr=0.1)


def noisy_gradients(factors):
    """Return a gradient that multiplies by the next row of the factors in each step."""
    rows = iter(factors)
    return lambda points: rosenbrock.gradient(points) * next(rows)[:, np.newaxis]


@pytest.mark.parametrize("optimizer", ELEMENTWISE.values(), ids=ELEMENTWISE)
def test_a_hundred_rows_move_as_a_hundred_single_runs(optimizer):
    steps = 25
    many = descend_many(optimizer, noisy_gradients(FACTORS), START, RUNS, steps)
    for run in range(RUNS):
        x = torch.tensor(START)
        factors = iter(FACTORS[:, run])
        alone = descend_with_gradient(
            optimizer(x),
            lambda point, factors=factors: rosenbrock.gradient(point) * next(factors),
            steps,
        )
        np.testing.assert_allclose(many.points[:, run], alone.points, rtol=1e-9, atol=1e-12)


def test_two_hundred_steps_of_adam_are_those_of_single_runs():
    many = descend_many(adam, noisy_gradients(FACTORS), START, RUNS, STEPS)
    for run in (0, 57, 99):
        alone = descend_many(adam, noisy_gradients(FACTORS[:, run : run + 1]), START, 1, STEPS)
        np.testing.assert_allclose(many.points[:, run], alone.points[:, 0], rtol=0, atol=1e-9)


def test_the_trajectory_holds_every_run():
    many = descend_many(adam, rosenbrock.gradient, START, 3, 5, value=rosenbrock.value, label="three")
    assert isinstance(many, Trajectory)
    assert many.points.shape == (6, 3, 2)
    assert many.values.shape == (6, 3)
    assert many.label == "three"
    assert np.array_equal(many.values, rosenbrock.value(many.points))


def test_runs_may_start_at_places_of_their_own():
    starts = np.array([[0.1, 0.1], [1.0, 1.0], [-0.5, 2.0]])
    many = descend_many(adam, rosenbrock.gradient, starts, 3, 1)
    assert np.array_equal(many.start, starts)
    assert np.array_equal(many.end[1], [1.0, 1.0])


def test_a_noisy_pair_draws_for_each_run():
    noisy = NoisyPair(rosenbrock.value, rosenbrock.gradient, UniformFactor(0.5), seed=0)
    many = descend_many(lambda x: torch.optim.SGD([x], lr=0.01), noisy.gradient, START, 50, 1)
    assert len(np.unique(many.end[:, 0])) == 50


def test_a_scheduler_steps_after_each_step():
    many = descend_many(
        lambda x: torch.optim.SGD([x], lr=1.0),
        np.ones_like,
        [0.0],
        2,
        3,
        scheduler=lambda sgd: torch.optim.lr_scheduler.LambdaLR(sgd, lambda taken: 0.5**taken),
    )
    np.testing.assert_allclose(many.points[:, 0, 0], [0.0, -1.0, -1.5, -1.75])


@pytest.mark.parametrize("scheduled", [False, True], ids=["alone", "with a scheduler"])
def test_after_step_is_called_and_can_end_the_run(scheduled):
    seen = []

    def after_step(taken, points):
        seen.append((taken, points.shape))
        return taken == 2

    def constant(optimizer):
        return torch.optim.lr_scheduler.ConstantLR(optimizer)

    scheduler = constant if scheduled else None
    many = descend_many(adam, rosenbrock.gradient, START, 4, 9, scheduler=scheduler, after_step=after_step)
    assert seen == [(1, (4, 2)), (2, (4, 2))]
    assert many.steps == 2


def test_the_gradient_is_asked_for_the_runs_and_for_nothing_else():
    shapes = []

    def gradient(points):
        shapes.append(points.shape)
        return rosenbrock.gradient(points)

    descend_many(adam, gradient, START, 7, 3)
    assert shapes == [(7, 2)] * 3


# --- refusals


@pytest.mark.parametrize("optimizer", MIXING.values(), ids=MIXING)
def test_an_optimiser_that_mixes_the_runs_is_refused(optimizer):
    with pytest.raises(ValueError, match="one run changes another"):
        descend_many(optimizer, rosenbrock.gradient, START, 3, 1)


def test_an_optimiser_whose_hook_clips_all_runs_together_is_refused():
    def clipped(x):
        def clip(*_):
            torch.nn.utils.clip_grad_norm_([x], 1.0)

        optimizer = torch.optim.SGD([x], lr=0.1)
        optimizer.register_step_pre_hook(clip)
        return optimizer

    with pytest.raises(ValueError, match="one run changes another"):
        descend_many(clipped, rosenbrock.gradient, START, 3, 1)


def test_lbfgs_is_refused_with_the_way_that_leads_on():
    with pytest.raises(ValueError, match=r"LBFGS calls a closure.*loop over the seeds"):
        descend_many(lambda x: torch.optim.LBFGS([x]), rosenbrock.gradient, START, 3, 1)


def test_an_optimiser_of_another_tensor_is_refused():
    other = torch.zeros(3, 2, dtype=torch.float64)
    with pytest.raises(ValueError, match="another tensor than the one it was made for"):
        descend_many(lambda x: torch.optim.SGD([other], lr=0.1), rosenbrock.gradient, START, 3, 1)


@pytest.mark.parametrize("optimizer", [torch.optim.SGD([torch.zeros(2)], lr=0.1), 3], ids=["an optimiser", "a number"])
def test_what_makes_no_optimiser_is_refused(optimizer):
    with pytest.raises(TypeError, match=r"optimizer must be a function that makes one; got (SGD|int)\. .*lambda x"):
        descend_many(optimizer, rosenbrock.gradient, START, 3, 1)


@pytest.mark.parametrize("runs", [0, -1])
def test_there_must_be_a_run(runs):
    with pytest.raises(ValueError, match="runs must be 1 or more; got"):
        descend_many(adam, rosenbrock.gradient, START, runs, 1)


@pytest.mark.parametrize("start", [0.1, np.ones((2, 2)), np.ones((1, 3, 2)), []], ids=["0-d", "2 rows", "3-d", "empty"])
def test_a_start_of_another_shape_is_refused(start):
    with pytest.raises(ValueError, match=r"start must have shape \(d,\), or \(runs, d\) with runs = 3; got"):
        descend_many(adam, rosenbrock.gradient, start, 3, 1)
