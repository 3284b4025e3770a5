"""Paths of torch's optimisers: equal to a loop written by hand, and safe from whatever is done to them later."""

import copy
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from helpers import Trajectory, descend, descend_with_gradient, rosenbrock

OPTIMISERS = {
    "Adam": lambda x: torch.optim.Adam([x], lr=0.05),
    "fused Adam": lambda x: torch.optim.Adam([x], lr=0.05, fused=True),
    "SGD": lambda x: torch.optim.SGD([x], lr=0.01, momentum=0.5),
    "RMSprop": lambda x: torch.optim.RMSprop([x], lr=0.02),
    "AdamW": lambda x: torch.optim.AdamW([x], lr=0.05),
    "LBFGS": lambda x: torch.optim.LBFGS([x], lr=0.5, max_iter=3),
}
STARTS = {"()": 0.3, "(2,)": [0.1, 0.1], "(N, 2)": [[0.1, 0.1], [-0.5, 0.8], [1.5, 1.0]]}
STEPS = 6

every_optimiser = pytest.mark.parametrize("make", OPTIMISERS.values(), ids=OPTIMISERS)
without_lbfgs = pytest.mark.parametrize(
    "make", [make for name, make in OPTIMISERS.items() if name != "LBFGS"], ids=[n for n in OPTIMISERS if n != "LBFGS"]
)
every_shape = pytest.mark.parametrize("start", STARTS.values(), ids=STARTS)
modest = settings(max_examples=15, deadline=None)


def parameter(start=(0.1, 0.1), dtype=torch.float64):
    return torch.tensor(start, dtype=dtype, requires_grad=True)


def loss_of(x):
    if x.ndim == 0:
        return (x - 1) ** 2
    return ((1 - x[..., 0]) ** 2 + 5 * (x[..., 1] - x[..., 0] ** 2) ** 2).sum()


def gradient(x):
    return 2 * (x - 1) if np.ndim(x) == 0 else rosenbrock.gradient(x)


def closure_of(optimizer, x, loss=loss_of):
    def closure():
        optimizer.zero_grad()
        result = loss(x)
        result.backward()
        return result

    return closure


def run(make, start=(0.1, 0.1), steps=STEPS, dtype=torch.float64, **options):
    x = parameter(start, dtype)
    optimizer = make(x)
    return descend(optimizer, closure_of(optimizer, x), steps, **options)


def a_path(**fields):
    given = {"points": np.arange(6.0).reshape(3, 2), "losses": np.array([2.0, 1.0]), "label": "mine"}
    return Trajectory(**(given | fields))


# --- the path


@every_optimiser
@every_shape
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_the_path_is_exactly_that_of_a_loop_by_hand(make, start, dtype):
    x = parameter(start, dtype)
    optimizer = make(x)
    closure = closure_of(optimizer, x)
    points, losses = [x.tolist()], []
    for _ in range(STEPS):
        losses.append(optimizer.step(closure).item())
        points.append(x.tolist())

    path = run(make, start, dtype=dtype)
    assert path.points.tolist() == points
    assert path.losses.tolist() == losses


@without_lbfgs
@every_shape
def test_a_written_gradient_takes_the_path_of_a_closure(make, start):
    x = parameter(start)
    written = descend_with_gradient(make(x), gradient, STEPS)
    assert written.points == pytest.approx(run(make, start).points, rel=1e-12)


def test_a_float32_parameter_takes_a_float64_gradient():
    make, x = OPTIMISERS["Adam"], parameter(dtype=torch.float32)
    path = descend_with_gradient(make(x), gradient, STEPS)
    assert x.dtype == x.grad.dtype == torch.float32
    assert path.points == pytest.approx(run(make).points, abs=1e-5)
    assert path.points.dtype == np.float64


@without_lbfgs
def test_an_ensemble_in_one_tensor_walks_like_separate_runs(make):
    together = run(make, STARTS["(N, 2)"])
    separate = [run(make, start) for start in STARTS["(N, 2)"]]
    assert together.points == pytest.approx(np.stack([path.points for path in separate], axis=1), rel=1e-12)


def test_an_ensemble_keeps_one_loss_a_member_where_the_closure_returns_them():
    x = parameter(STARTS["(N, 2)"])
    optimizer = torch.optim.SGD([x], lr=0.01)

    def closure():
        optimizer.zero_grad()
        losses = (x**2).sum(dim=-1)
        losses.sum().backward()
        return losses

    path = descend(optimizer, closure, 4)
    assert path.losses.shape == (4, 3)
    assert path.losses == pytest.approx((path.points[:-1] ** 2).sum(axis=-1))


@modest
@given(hnp.arrays(np.float64, 2, elements=st.floats(-2, 2)), st.integers(0, 5))
def test_the_path_has_one_point_more_than_steps_and_begins_at_the_start(start, steps):
    path = run(OPTIMISERS["SGD"], start.tolist(), steps)
    assert (path.steps, len(path.points), len(path.losses)) == (steps, steps + 1, steps)
    assert np.array_equal(path.start, start)
    assert np.array_equal(path.end, path.points[-1])


def test_a_loss_is_the_one_before_its_step():
    path = run(OPTIMISERS["Adam"])
    assert path.losses == pytest.approx(rosenbrock.value(path.points[:-1]), rel=1e-12)


def test_the_parameter_ends_where_the_path_ends():
    x = parameter()
    optimizer = OPTIMISERS["Adam"](x)
    path = descend(optimizer, closure_of(optimizer, x), STEPS)
    assert path.end.tolist() == x.tolist()


def test_a_second_call_goes_on_with_the_state_of_the_optimiser():
    x = parameter()
    optimizer = OPTIMISERS["Adam"](x)
    closure = closure_of(optimizer, x)
    first, second = descend(optimizer, closure, 2), descend(optimizer, closure, 4)
    assert [*first.points.tolist(), *second.points.tolist()[1:]] == run(OPTIMISERS["Adam"]).points.tolist()


@every_optimiser
def test_no_step_is_a_path_of_one_point(make):
    path = run(make, steps=0, value=rosenbrock.value)
    assert path.points.tolist() == [[0.1, 0.1]]
    assert path.losses.shape == (0,)
    assert path.values == pytest.approx([0.8505])


def test_no_step_calls_no_gradient():
    calls = []
    descend_with_gradient(torch.optim.SGD([parameter()], lr=0.1), calls.append, 0)
    assert calls == []


def test_a_closure_that_returns_nothing_gives_losses_of_nan_and_the_same_path():
    x = parameter()
    optimizer = OPTIMISERS["Adam"](x)
    closure = closure_of(optimizer, x)
    path = descend(optimizer, lambda: closure() and None, STEPS)
    assert path.losses.shape == (STEPS,)
    assert np.isnan(path.losses).all()
    assert path.points.tolist() == run(OPTIMISERS["Adam"]).points.tolist()


def test_a_written_gradient_gives_losses_of_nan():
    path = descend_with_gradient(torch.optim.SGD([parameter()], lr=0.01), gradient, 3)
    assert path.losses.shape == (3,)
    assert np.isnan(path.losses).all()


def test_a_closure_may_return_a_python_number():
    x = parameter()
    optimizer = OPTIMISERS["SGD"](x)
    closure = closure_of(optimizer, x)
    path = descend(optimizer, lambda: closure().item(), 2)
    assert path.losses.tolist() == run(OPTIMISERS["SGD"], steps=2).losses.tolist()


def test_a_path_that_diverges_is_kept_to_its_end():
    path = run(lambda x: torch.optim.SGD([x], lr=10.0), steps=10)
    assert len(path.points) == 11
    assert not np.isfinite(path.end).all()


# --- the noiseless values


def test_values_are_those_of_the_function_and_it_is_called_once_and_for_the_last_point():
    calls = []

    def value(points):
        calls.append(points.shape)
        return rosenbrock.value(points)

    path = run(OPTIMISERS["Adam"], value=value)
    assert calls == [(STEPS + 1, 2), (1, 2)]
    assert np.array_equal(path.values, rosenbrock.value(path.points))


def test_a_value_function_that_writes_into_its_argument_changes_no_point():
    def value(points):
        points *= 0
        return points.sum(axis=-1)

    assert run(OPTIMISERS["Adam"], value=value).points.tolist() == run(OPTIMISERS["Adam"]).points.tolist()


def test_without_a_function_there_are_no_values():
    assert run(OPTIMISERS["Adam"]).values is None


def of_one_point(x):
    return (1 - x[0]) ** 2 + 5 * (x[1] - x[0] ** 2) ** 2


NOT_VECTORISED = {
    "by index": of_one_point,
    "a sum": lambda x: np.sum(x**2),
    "a product": lambda x: x @ x,
    "a mean of all": lambda x: np.full(len(x), np.mean(x**2)),
}


@pytest.mark.parametrize("value", NOT_VECTORISED.values(), ids=NOT_VECTORISED)
@pytest.mark.parametrize("steps", [1, 2, STEPS])
def test_a_value_function_of_one_point_is_refused_with_the_cure(value, steps):
    with pytest.raises(ValueError, match=r"many points along the first axis|matmul") as caught:
        run(OPTIMISERS["Adam"], steps=steps, value=value)
    assert "lambda points: np.array([f(x) for x in points])" in str(
        [caught.value, *getattr(caught.value, "__notes__", [])]
    )


def test_the_cure_for_a_value_function_of_one_point_works():
    path = run(OPTIMISERS["Adam"], value=lambda points: np.array([of_one_point(x) for x in points]))
    assert path.values == pytest.approx(rosenbrock.value(path.points))


def test_what_the_value_function_raises_comes_through_with_a_note():
    error = OwnError("as it was")

    def value(points):
        raise error

    with pytest.raises(OwnError) as caught:
        run(OPTIMISERS["Adam"], value=value)
    assert caught.value is error
    assert "of shape (7, 2)" in error.__notes__[0]


@pytest.mark.parametrize(
    "value", [lambda p: np.float32(np.tanh(p[:, 0])), lambda p: np.full(len(p), np.nan), rosenbrock.value]
)
def test_a_value_function_that_is_right_is_not_refused(value):
    path = run(lambda x: torch.optim.SGD([x], lr=10.0), steps=10, value=value)
    assert path.values.shape == (11,)


# --- after each step


@pytest.mark.parametrize("way", [0, 1], ids=["closure", "gradient"])
def test_after_every_step_comes_the_number_of_steps_and_a_copy_of_the_point(way):
    seen = []

    def after_step(taken, x):
        seen.append((taken, x.tolist()))
        x[:] = 9.0

    path = both_ways(OPTIMISERS["SGD"](parameter()), 3, after_step=after_step)[way]()
    assert seen == list(enumerate(path.points.tolist()))[1:]


@pytest.mark.parametrize("way", [0, 1], ids=["closure", "gradient"])
@pytest.mark.parametrize("true", [True, np.True_])
def test_true_after_a_step_ends_the_run(way, true):
    path = both_ways(OPTIMISERS["SGD"](parameter()), 9, after_step=lambda taken, x: true if taken == 3 else None)[way]()
    assert (path.steps, path.losses.shape) == (3, (3,))


def test_false_after_a_step_goes_on():
    assert run(OPTIMISERS["SGD"], after_step=lambda taken, x: False).steps == STEPS


def test_what_is_written_into_the_parameter_after_a_step_is_in_the_path():
    x = parameter()
    optimizer = OPTIMISERS["SGD"](x)

    def after_step(taken, point):
        with torch.no_grad():
            x.clamp_(max=0.05)

    path = descend(optimizer, closure_of(optimizer, x), 2, after_step=after_step)
    assert path.points[1:].max() == 0.05
    assert path.end.tolist() == x.tolist()


@pytest.mark.parametrize(("answer", "kind"), [(1, "int"), (torch.tensor(True), "Tensor"), ("no", "str")])
def test_another_answer_after_a_step_is_refused(answer, kind):
    with pytest.raises(TypeError, match=rf"after_step must return True .*; got {kind}\."):
        run(OPTIMISERS["SGD"], after_step=lambda taken, x: answer)


def test_an_after_step_that_is_no_function_is_refused():
    with pytest.raises(TypeError, match=r"after_step must be a function .* got int\."):
        run(OPTIMISERS["SGD"], after_step=3)


def test_a_written_gradient_for_an_optimiser_that_needs_a_closure_is_refused():
    with pytest.raises(ValueError, match=r"LBFGS calls a closure in its step, .* use descend"):
        descend_with_gradient(OPTIMISERS["LBFGS"](parameter()), gradient, 1)


# --- side effects


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_gradient_that_writes_into_its_argument_changes_nothing(dtype):
    def writes(x):
        result = gradient(x)
        x[:] = 99.0
        return result

    paths = [
        descend_with_gradient(torch.optim.SGD([parameter(dtype=dtype)], lr=0.01), function, STEPS)
        for function in (gradient, writes)
    ]
    assert paths[0].points.tolist() == paths[1].points.tolist()


def test_a_gradient_in_a_reused_buffer_gives_the_same_path():
    buffer = np.empty(2)

    def reuses(x):
        buffer[:] = gradient(x)
        return buffer

    x = parameter()
    path = descend_with_gradient(OPTIMISERS["Adam"](x), reuses, STEPS)
    kept = x.grad.clone()
    buffer[:] = 99.0
    assert torch.equal(x.grad, kept)
    assert path.points == pytest.approx(run(OPTIMISERS["Adam"]).points, rel=1e-12)


def test_the_points_do_not_follow_the_parameter():
    x = parameter()
    path = descend_with_gradient(torch.optim.SGD([x], lr=0.01), gradient, 2)
    before = path.points.tolist()
    with torch.no_grad():
        x.fill_(99.0)
    assert path.points.tolist() == before


# --- mistakes


@pytest.mark.parametrize(("closure", "kind"), [(torch.tensor(1.0), "Tensor"), (1.0, "float"), (None, "NoneType")])
def test_a_closure_that_cannot_be_called_is_named_with_the_cure(closure, kind):
    with pytest.raises(TypeError, match=rf"got {kind}\. Pass the function itself: closure, not closure\(\)"):
        descend(OPTIMISERS["Adam"](parameter()), closure, 1)


def both_ways(optimizer, steps, **options):
    return [
        lambda: descend(optimizer, lambda: None, steps, **options),
        lambda: descend_with_gradient(optimizer, gradient, steps, **options),
    ]


@pytest.mark.parametrize("way", [0, 1], ids=["closure", "gradient"])
@pytest.mark.parametrize("groups", [False, True])
def test_more_than_one_tensor_is_refused(way, groups):
    tensors = [parameter(), parameter()]
    optimizer = torch.optim.SGD([{"params": [t]} for t in tensors] if groups else tensors, lr=0.1)
    with pytest.raises(ValueError, match="follows one tensor, and this optimiser holds 2"):
        both_ways(optimizer, 1)[way]()


@pytest.mark.parametrize("way", [0, 1], ids=["closure", "gradient"])
def test_negative_steps_are_refused(way):
    with pytest.raises(ValueError, match="steps must be 0 or more; got -1"):
        both_ways(OPTIMISERS["SGD"](parameter()), -1)[way]()


@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 2), (1, 2)])
def test_a_gradient_of_another_shape_is_refused_before_the_step(shape):
    x = parameter()
    with pytest.raises(ValueError, match=r"The gradient has shape \(.*\), the parameter \(2,\)"):
        descend_with_gradient(OPTIMISERS["SGD"](x), lambda x: np.ones(shape), 1)
    assert x.tolist() == [0.1, 0.1]


@pytest.mark.parametrize(
    "given", [None, ["a", "b"], [1j, 1.0], np.array([1j, 1.0]), np.array([True, False]), np.array([1.0, 2.0], object)]
)
def test_a_gradient_that_is_not_real_is_refused(given):
    with pytest.raises(TypeError, match="The gradient must hold real numbers; got dtype"):
        descend_with_gradient(OPTIMISERS["SGD"](parameter()), lambda x: given, 1)


@pytest.mark.parametrize("given", [np.arange(4.0)[::-2], np.array([3, 1], np.longdouble), np.array([3.0, 1.0], ">f8")])
def test_a_gradient_of_any_strides_and_real_dtype_is_taken(given):
    x = parameter()
    descend_with_gradient(OPTIMISERS["SGD"](x), lambda x: given, 1)
    assert x.grad.tolist() == [3.0, 1.0]


def test_a_masked_gradient_is_refused():
    with pytest.raises(TypeError, match="masked array"):
        descend_with_gradient(OPTIMISERS["SGD"](parameter()), lambda x: np.ma.masked_less(x, 0), 1)


@pytest.mark.parametrize(
    ("dtype", "entry"), [(torch.float16, 1e5), (torch.float32, 1e39), (torch.float64, np.longdouble("1e400"))]
)
def test_a_finite_gradient_that_the_parameter_cannot_hold_is_refused(dtype, entry):
    x = parameter(dtype=dtype)
    if not np.isfinite(entry):
        pytest.skip("this machine's longdouble is a double")
    with pytest.raises(ValueError, match=f"a finite entry that {dtype} cannot hold"):
        descend_with_gradient(OPTIMISERS["SGD"](x), lambda x: np.array([entry, 0]), 1)
    assert x.grad is None


def test_a_gradient_that_is_infinite_itself_is_taken():
    x = parameter()
    descend_with_gradient(OPTIMISERS["SGD"](x), lambda x: np.array([np.inf, 1.0]), 1)
    assert x.grad.tolist() == [np.inf, 1.0]


@pytest.mark.parametrize("way", [0, 1], ids=["closure", "gradient"])
@pytest.mark.parametrize("dtype", [torch.complex128, torch.int64])
def test_a_parameter_that_is_not_real_floating_point_is_refused(way, dtype):
    optimizer = torch.optim.SGD([torch.ones(2, dtype=dtype)], lr=0.1)
    with pytest.raises(TypeError, match=f"real floating-point numbers; got {dtype}"):
        both_ways(optimizer, 1)[way]()


@pytest.mark.parametrize("way", [0, 1], ids=["closure", "gradient"])
def test_a_parameter_without_numbers_is_refused(way):
    optimizer = torch.optim.SGD([torch.ones(2, device="meta")], lr=0.1)
    with pytest.raises(ValueError, match="on the meta device and holds no numbers"):
        both_ways(optimizer, 1)[way]()


class OwnError(Exception):
    pass


@every_optimiser
def test_what_the_closure_raises_comes_through_unchanged(make):
    error = OwnError("as it was")

    def closure():
        raise error

    with pytest.raises(OwnError) as caught:
        descend(make(parameter()), closure, 1)
    assert caught.value is error


def test_what_the_gradient_raises_comes_through_unchanged():
    error = OwnError("as it was")

    def raises(x):
        raise error

    with pytest.raises(OwnError) as caught:
        descend_with_gradient(OPTIMISERS["SGD"](parameter()), raises, 1)
    assert caught.value is error


# --- Trajectory


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"losses": np.ones(3)}, r"3 points go with 2 losses along the first axis; got shape \(3,\)"),
        ({"losses": 1.0}, r"2 losses .* got shape \(\)"),
        ({"values": np.ones(2)}, r"3 points go with 3 values along the first axis; got shape \(2,\)"),
        ({"points": 1.0}, r"points must hold the start .* got shape \(\)"),
        ({"points": np.empty((0, 2))}, r"points must hold the start .* got shape \(0, 2\)"),
    ],
)
def test_arrays_that_do_not_go_together_are_refused(fields, words):
    with pytest.raises(ValueError, match=words):
        a_path(**fields)


@pytest.mark.parametrize("field", ["points", "losses", "values", "label", "steps", "new"])
def test_no_field_of_a_trajectory_can_be_set(field):
    with pytest.raises(AttributeError):
        setattr(a_path(), field, None)


@pytest.mark.parametrize("made", [lambda p: p, lambda p: pickle.loads(pickle.dumps(p)), copy.copy, copy.deepcopy])
@pytest.mark.parametrize("field", ["points", "losses", "values", "start", "end"])
def test_no_array_of_a_trajectory_or_its_copy_can_be_written_to(made, field):
    path = made(a_path(values=np.ones(3)))
    with pytest.raises(ValueError, match="read-only"):
        getattr(path, field)[0] = 9.0


def test_the_arrays_of_the_caller_can_be_written_to_and_the_trajectory_stays():
    points, losses, values = np.zeros((3, 2)), np.zeros(2), np.zeros(3)
    path = Trajectory(points, losses, values)
    for array in (points, losses, values):
        array[:] = 9.0
    assert not any(array.any() for array in (path.points, path.losses, path.values))


@pytest.mark.parametrize("values", [None, np.ones(3)])
def test_a_trajectory_survives_a_pickle(values):
    path = a_path(values=values)
    again = pickle.loads(pickle.dumps(path))
    assert repr(again) == repr(path)
    assert again.label == path.label
    assert np.array_equal(again.points, path.points)
    assert np.array_equal(again.losses, path.losses)
    assert (again.values is None) if values is None else np.array_equal(again.values, values)


def test_trajectories_can_be_compared_and_kept_in_a_set():
    path = a_path()
    assert path == path
    assert path != a_path()
    assert path in {path}


@pytest.mark.parametrize(
    ("path", "words"),
    [
        (a_path(), "mine: 2 steps from (0.000, 1.000) to (4.000, 5.000)"),
        (a_path(label="", values=[3, 2, 0.5]), "2 steps from (0.000, 1.000) to (4.000, 5.000), f = 5.0e-01"),
        (a_path(values=np.ones((3, 2))), "mine: 2 steps from (0.000, 1.000) to (4.000, 5.000)"),
        (a_path(points=np.zeros(3)), "mine: 2 steps from (0.000) to (0.000)"),
        (a_path(points=np.zeros((3, 4, 2))), "mine: 2 steps of a parameter of shape (4, 2)"),
    ],
)
def test_a_trajectory_says_what_it_is(path, words):
    assert repr(path) == f"Trajectory({words})"
