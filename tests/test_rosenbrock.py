"""The Rosenbrock function against finite differences, against torch, and against what people pass by mistake."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from helpers import rosenbrock

pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")
FUNCTIONS = {
    "value": rosenbrock.value,
    "gradient": rosenbrock.gradient,
    "hessian": rosenbrock.hessian,
    "hvp": lambda x, **constants: rosenbrock.hvp(x, [1.0, -2.0], **constants),
}
SHAPES = [(2,), (1, 2), (3, 2), (2, 3, 2), (0, 2)]

every_function = pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS.keys())
modest = settings(max_examples=25, deadline=None)
coordinate = st.floats(-3, 3)
constants = st.fixed_dictionaries({"a": st.floats(-2, 2), "b": st.floats(0.1, 100)})
points = st.sampled_from(SHAPES).flatmap(lambda shape: hnp.arrays(np.float64, shape, elements=coordinate))


def in_torch(x, a, b):
    return (a - x[..., 0]) ** 2 + b * (x[..., 1] - x[..., 0] ** 2) ** 2


def central_difference(function, x, step=1e-6):
    """Return the derivatives of function along each coordinate, in a new last axis."""
    shifts = step * np.eye(2)
    return np.stack([(function(x + shift) - function(x - shift)) / (2 * step) for shift in shifts], axis=-1)


def rows(x):
    return x.reshape(-1, 2)


# --- right values


def test_the_catalogue_of_mistakes_has_these_true_values():
    x = [0.1, 0.1]
    assert rosenbrock.value(x) == pytest.approx(0.8505, abs=1e-15)
    assert rosenbrock.gradient(x) == pytest.approx(np.array([-1.98, 0.9]), abs=1e-15)
    assert rosenbrock.hessian(x) == pytest.approx(np.array([[0.6, -2.0], [-2.0, 10.0]]), abs=1e-15)


def test_the_defaults_are_those_of_the_question():
    assert rosenbrock.value([0.3, -0.4]) == rosenbrock.value([0.3, -0.4], a=1.0, b=5.0)
    assert rosenbrock.value([0.3, -0.4]) != rosenbrock.value([0.3, -0.4], a=1.0, b=100.0)


@pytest.mark.parametrize("a", [1.0, -0.5, 2.0])
def test_the_optimum_has_value_0_gradient_0_and_a_positive_hessian(a):
    best = rosenbrock.optimum(a)
    assert rosenbrock.value(best, a=a) == 0
    assert rosenbrock.gradient(best, a=a).tolist() == [0, 0]
    assert np.linalg.eigvalsh(rosenbrock.hessian(best, a=a)).min() > 0


@modest
@given(points, constants)
def test_the_value_is_that_of_torch(x, constants):
    expected = in_torch(torch.tensor(x), **constants).numpy()
    assert rosenbrock.value(x, **constants) == pytest.approx(expected, rel=1e-13, abs=1e-13)


@modest
@given(points, constants)
def test_the_gradient_is_that_of_autograd(x, constants):
    leaf = torch.tensor(x, requires_grad=True)
    in_torch(leaf, **constants).sum().backward()
    assert rosenbrock.gradient(x, **constants) == pytest.approx(leaf.grad.numpy(), rel=1e-12, abs=1e-12)


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")  # torch.func uses it
@settings(modest, max_examples=15)
@given(points, constants)
def test_the_hessian_is_that_of_torch_func(x, constants):
    hessian = torch.func.hessian(lambda point: in_torch(point, **constants))
    expected = [hessian(torch.tensor(point)).numpy() for point in rows(x)]
    found = rosenbrock.hessian(x, **constants)
    assert found.shape == (*x.shape, 2)
    assert found.reshape(-1, 2, 2) == pytest.approx(np.array(expected).reshape(-1, 2, 2), rel=1e-12, abs=1e-12)


@modest
@given(points, constants)
def test_the_gradient_is_that_of_finite_differences(x, constants):
    expected = central_difference(lambda at: rosenbrock.value(at, **constants), x)
    assert rosenbrock.gradient(x, **constants) == pytest.approx(expected, rel=1e-5, abs=1e-4)


@modest
@given(points, constants)
def test_the_hessian_is_that_of_finite_differences(x, constants):
    expected = central_difference(lambda at: rosenbrock.gradient(at, **constants), x)
    assert rosenbrock.hessian(x, **constants) == pytest.approx(expected, rel=1e-5, abs=1e-4)


@modest
@given(points, hnp.arrays(np.float64, 2, elements=coordinate), constants)
def test_hvp_is_the_hessian_times_the_direction(x, v, constants):
    expected = rosenbrock.hessian(x, **constants) @ v
    assert rosenbrock.hvp(x, v, **constants) == pytest.approx(expected, rel=1e-12, abs=1e-9)


# --- shapes


@pytest.mark.parametrize("shape", SHAPES)
def test_leading_axes_stay(shape):
    x = np.ones(shape)
    assert np.shape(rosenbrock.value(x)) == shape[:-1]
    assert rosenbrock.gradient(x).shape == shape
    assert rosenbrock.hessian(x).shape == (*shape, 2)
    assert rosenbrock.hvp(x, x).shape == shape


@every_function
def test_a_batch_holds_the_results_of_its_points(function):
    x = np.random.default_rng(0).normal(size=(2, 3, 2))
    singly = [[function(x[i, j]) for j in range(3)] for i in range(2)]
    assert function(x).tolist() == np.array(singly).tolist()


@pytest.mark.parametrize(
    ("of_x", "of_v", "of_both"),
    [
        ((2,), (4, 2), (4, 2)),
        ((4, 2), (2,), (4, 2)),
        ((3, 1, 2), (4, 2), (3, 4, 2)),
        ((0, 2), (2,), (0, 2)),
    ],
)
def test_hvp_broadcasts_its_leading_axes(of_x, of_v, of_both):
    rng = np.random.default_rng(1)
    x, v = rng.normal(size=of_x), rng.normal(size=of_v)
    expected = np.einsum(
        "...ij,...j->...i", rosenbrock.hessian(np.broadcast_to(x, of_both)), np.broadcast_to(v, of_both)
    )
    assert rosenbrock.hvp(x, v) == pytest.approx(expected, rel=1e-12)


def test_hvp_refuses_axes_that_do_not_broadcast():
    with pytest.raises(ValueError, match="broadcast"):
        rosenbrock.hvp(np.ones((3, 2)), np.ones((4, 2)))


def test_the_value_of_one_point_is_a_number():
    assert isinstance(rosenbrock.value([0.1, 0.1]), np.float64)


# --- types


@every_function
@pytest.mark.parametrize(
    "given_as",
    [lambda x: x, tuple, lambda x: np.array(x, dtype=np.int32), lambda x: np.array(x, dtype=np.float32)],
    ids=["list", "tuple", "int32", "float32"],
)
def test_lists_ints_and_float32_count_as_float64(function, given_as):
    result = function(given_as([3, -2]))
    assert result.dtype == np.float64
    assert np.array_equal(result, function(np.array([3.0, -2.0])))


def test_float32_input_is_computed_in_float64():
    x = np.array([0.1, 0.1], dtype=np.float32)
    assert rosenbrock.value(x) == rosenbrock.value(x.astype(np.float64))


def test_small_integers_do_not_wrap_around():
    assert rosenbrock.value(np.array([100, 100], dtype=np.int8)) == rosenbrock.value([100.0, 100.0])


# --- no side effects


@every_function
@pytest.mark.parametrize("shape", [(2,), (3, 2)])
def test_the_input_stays_as_it_was(function, shape):
    x = np.random.default_rng(2).normal(size=shape)
    before = x.copy()
    function(x)
    assert np.array_equal(x, before)


@every_function
def test_a_read_only_input_serves(function):
    x = np.array([0.1, 0.1])
    x.flags.writeable = False
    assert np.isfinite(function(x)).all()


@pytest.mark.parametrize(
    "function", [rosenbrock.value, rosenbrock.gradient, rosenbrock.hessian, rosenbrock.hvp], ids=lambda f: f.__name__
)
@pytest.mark.parametrize("shape", [(2,), (3, 2)])
def test_a_result_shares_no_memory_with_the_input_or_another_result(function, shape):
    x, v = np.ones(shape), np.ones(shape)
    arguments = (x, v) if function is rosenbrock.hvp else (x,)
    first, second = np.asarray(function(*arguments)), np.asarray(function(*arguments))
    assert not any(np.shares_memory(first, other) for other in (x, v, second))


def test_a_result_can_be_written_to():
    x = np.array([0.1, 0.1])
    result = rosenbrock.gradient(x)
    result[:] = 7
    assert rosenbrock.gradient(x).tolist() != [7, 7]


def test_every_optimum_is_an_array_of_its_own():
    rosenbrock.optimum()[:] = 9
    assert rosenbrock.optimum().tolist() == [1, 1]


# --- far out, and not finite


@pytest.mark.parametrize("x", [(1e200, 1e200), (-1e200, 0.0), (1e308, -1e308)])
def test_far_out_the_result_overflows_and_is_not_a_number_of_its_own(x):
    assert rosenbrock.value(x) == np.inf
    assert not np.isfinite(rosenbrock.gradient(x)).any()
    assert rosenbrock.hessian(x)[0, 0] == np.inf
    assert not np.isfinite(rosenbrock.hvp(x, [1.0, -2.0])[0])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", [0, 1])
def test_value_and_gradient_of_a_point_that_is_not_finite_are_not_finite(bad, where):
    x = np.array([0.1, 0.1])
    x[where] = bad
    assert not np.isfinite(rosenbrock.value(x))
    assert not np.isfinite(rosenbrock.gradient(x)).any()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_each_hessian_entry_that_depends_on_a_bad_coordinate_is_not_finite(bad):
    of_x0, of_x1 = rosenbrock.hessian([bad, 0.1]), rosenbrock.hessian([0.1, bad])
    assert np.isfinite(of_x0).tolist() == [[False, False], [False, True]]
    assert np.isfinite(of_x1).tolist() == [[False, True], [True, True]]


@every_function
def test_one_bad_point_leaves_the_others_of_its_batch_alone(function):
    batch = function([[0.3, 0.2], [np.nan, np.inf], [1e200, 0.0]])
    assert np.array_equal(batch[0], function([0.3, 0.2]))


@every_function
def test_where_infinities_meet_the_result_is_nan_and_says_nothing_on_stderr(function):
    assert np.isnan(function([np.inf, np.inf])).any()


def test_an_optimum_too_far_out_is_inf():
    assert rosenbrock.optimum(1e200).tolist() == [1e200, np.inf]


def test_a_number_too_large_for_float64_is_inf():
    too_large = np.longdouble("1e400") if np.finfo(np.longdouble).max > 1e308 else np.inf
    assert rosenbrock.value(np.array([0, too_large])) == np.inf


# --- mistakes


@every_function
@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 3), (0,), (2, 0)])
def test_a_wrong_shape_is_named(function, shape):
    with pytest.raises(ValueError, match=r"x must have 2 coordinates in its last axis.*got shape \("):
        function(np.ones(shape))


@every_function
@pytest.mark.parametrize(
    ("x", "named"),
    [
        ("0.1, 0.1", "str"),
        (["0.1", "0.1"], "dtype <U3"),
        (None, "NoneType"),
        ([None, 1.0], "list"),
        (1j, "complex"),
        ([1j, 1.0], "dtype complex128"),
        (True, "bool"),
        ([True, False], "dtype bool"),
        ({"x": 1}, "dict"),
        (np.array(["2026-01-01"] * 2, dtype="datetime64[D]"), "dtype datetime64"),
    ],
)
def test_what_is_not_real_numbers_is_named(function, x, named):
    with pytest.raises(TypeError, match=rf"x must hold real numbers; got {named}"):
        function(x)


@every_function
def test_rows_of_different_length_are_refused(function):
    with pytest.raises(ValueError, match="rows differ in length"):
        function([[1.0, 2.0], [3.0]])


@every_function
@pytest.mark.parametrize("tracked", [False, True])
def test_a_torch_tensor_is_refused_with_the_cure(function, tracked):
    with pytest.raises(TypeError, match=r"x is a torch tensor.*Pass x\.detach\(\)\.numpy\(\)"):
        function(torch.ones(2, requires_grad=tracked))


@pytest.mark.parametrize(
    ("v", "error", "words"),
    [
        ([1.0, 2.0, 3.0], ValueError, "v must have 2 coordinates"),
        ("up", TypeError, "v must hold real numbers; got str"),
        (torch.ones(2), TypeError, r"Pass v\.detach"),
    ],
)
def test_hvp_names_a_bad_direction(v, error, words):
    with pytest.raises(error, match=words):
        rosenbrock.hvp([0.1, 0.1], v)
