"""check_gradient finds what is wrong, names it, and accuses nobody who is right."""

import math
import re
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import check_gradient, rosenbrock
from helpers.checking import probes
from helpers.checking.report import number

modest = settings(max_examples=25, deadline=None)
X = np.array([0.1, 0.1])
W = np.array([[1.0, 2.0, -1.0], [0.5, 0.0, 3.0]])


def plain(x):
    """Return the Rosenbrock function, in the precision and the kind of numbers that x has."""
    return (1 - x[0]) ** 2 + 5 * (x[1] - x[0] ** 2) ** 2


BUFFER = np.zeros(2)


def reused(x):
    BUFFER[:] = rosenbrock.gradient(x)
    return BUFFER


RIGHT = {
    "rosenbrock": (rosenbrock.value, rosenbrock.gradient, X),
    "at the optimum": (rosenbrock.value, rosenbrock.gradient, rosenbrock.optimum()),
    "a list": (rosenbrock.value, rosenbrock.gradient, [0.1, 0.1]),
    "one number": (lambda x: x**3, lambda x: 3 * x**2, 0.7),
    "a matrix": (lambda x: np.sum(W * x**2), lambda x: 2 * W * x, np.ones((2, 3))),
    "two arguments": (lambda a, b: a @ W @ b, lambda a, b: (W @ b, a @ W), (np.ones(2), np.arange(3.0))),
    "small entries": (lambda x: np.sum(np.log(x)), lambda x: 1 / x, np.array([1e-5, 2e-8, 0.3])),
    "large entries": (lambda x: np.sum(x**2), lambda x: 2 * x, np.array([1e6, 1e-3, -40.0])),
    "a large constant": (lambda x: 1e8 + x @ x, lambda x: 2 * x, np.array([1.0, 2.0])),
    "a dead entry": (lambda x: x[0] ** 3, lambda x: np.array([3 * x[0] ** 2, 0.0]), np.array([1.0, 2.0])),
    "value and gradient": (lambda x: (rosenbrock.value(x), rosenbrock.gradient(x)), True, X),
    "a kink": (lambda x: np.maximum(x, 0).sum(), lambda x: 1.0 * (x > 0), np.array([0.0, 1.0, -1.0])),
    "single precision inside": (lambda x: float(np.sum(np.float32(x) ** 3)), lambda x: 3 * x**2, np.array([1.0, 0.3])),
    "float32": (plain, lambda x: rosenbrock.gradient(x).astype(np.float32), X.astype(np.float32)),
    "autograd": (plain, None, torch.tensor(X)),
    "autograd, float32": (plain, None, torch.tensor(X).float()),
    "autograd, from an array": (plain, None, X),
    "torch and NumPy": (plain, rosenbrock.gradient, torch.tensor(X)),
    "a torch gradient": (plain, lambda x: torch.func.grad(plain)(x), torch.tensor(X)),
    "two tensors": (lambda a, b: (a @ b).sum(), None, (torch.eye(2).double(), torch.ones(2).double())),
    "an argument that is written to": (lambda x: float(np.sum(np.square(x, out=x))), lambda x: 2 * x, X),
    "a gradient that reuses its array": (rosenbrock.value, reused, X),
}
# Along a direction all entries move: that leads over a kink, and out of where a logarithm is defined.
SMOOTH = {name: case for name, case in RIGHT.items() if name not in ("a kink", "small entries")}
WRONG = {
    "sign": (lambda g: -g, "The sign is flipped"),
    "factor": (lambda g: 3 * g, "It is 3 times what it should be"),
    "mean for sum": (lambda g: g / 3, "is a mean taken for a sum"),
    "degrees": (lambda g: g * np.pi / 180, "degrees and radians"),
    "zeros": (lambda g: 0 * g, "zero everywhere"),
    "reversed": (lambda g: g[::-1], "reverse order"),
    "swapped": (lambda g: g[[1, 0, 2]], r"The entries x\[0\] and x\[1\] are swapped"),
    "constant": (lambda g: g + 2, "too large by {} in every entry"),
    "one sign": (lambda g: g * [1, 1, -1], r"Only the entry x\[2\] is wrong: its sign is flipped"),
    "one factor": (lambda g: g * [1, 2, 1], r"Only the entry x\[1\] is wrong: it is 2 times what it should be"),
    "one zero": (lambda g: g * [0, 1, 1], r"Only the entry x\[0\] is wrong: it is 0"),
    "a little": (lambda g: g * [1 + 1e-4, 1, 1], r"Only the entry x\[0\] is wrong"),
}


def cubic(x):
    return np.sum(np.array([1.0, 2.0, 4.0]) * x**3) + x[0] * x[1]


def cubic_gradient(x):
    return 3 * np.array([1.0, 2.0, 4.0]) * x**2 + np.array([x[1], x[0], 0.0])


# --- right


@pytest.mark.parametrize(("fun", "grad", "x"), RIGHT.values(), ids=RIGHT)
def test_a_right_gradient_passes(fun, grad, x):
    found = check_gradient(fun, grad, x)
    assert found, found
    assert found.guess is None


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("fun", "grad", "x"), SMOOTH.values(), ids=SMOOTH)
def test_a_right_gradient_passes_along_directions(fun, grad, x, seed):
    assert check_gradient(fun, grad, x, directions=3, seed=seed)


@modest
@given(st.integers(1, 6), st.integers(0, 2**31), st.floats(1e-3, 1e3))
def test_a_right_gradient_of_a_random_polynomial_passes(n, seed, scale):
    rng = np.random.default_rng(seed)
    A, b, x = rng.standard_normal((n, n)), rng.standard_normal(n), scale * rng.standard_normal(n)
    assert check_gradient(lambda x: x @ A @ x + b @ x, lambda x: (A + A.T) @ x + b, x, seed=seed)


@modest
@given(st.integers(2, 6), st.integers(0, 2**31), st.floats(1.001, 100))
def test_a_wrong_entry_is_found_wherever_it_is(n, seed, factor):
    rng = np.random.default_rng(seed)
    A, k, x = rng.standard_normal((n, n)), rng.integers(n), rng.standard_normal(n)
    right = lambda x: (A + A.T) @ x + 1  # noqa: E731
    wrong = lambda x: np.where(np.arange(n) == k, factor * right(x), right(x))  # noqa: E731
    found = check_gradient(lambda x: x @ A @ x + x.sum(), wrong, x)
    assert found.verdict == "wrong"
    assert found.shown.names[found.shown.worst] == f"x[{k}]"
    assert check_gradient(lambda x: x @ A @ x + x.sum(), wrong, x, directions=3).verdict == "wrong"


def test_the_numbers_are_kept():
    found = check_gradient(rosenbrock.value, rosenbrock.gradient, X)
    at, near = found.comparisons
    assert (at.where, near.where) == ("at x", "near x")
    assert at.names == ("x[0]", "x[1]")
    np.testing.assert_allclose(at.got, [-1.98, 0.9])
    np.testing.assert_allclose(near.expected, rosenbrock.gradient(near.point), rtol=1e-8)
    for one in found.comparisons:
        assert np.all(np.abs(one.expected - rosenbrock.gradient(one.point)) <= one.error)
        assert np.all(one.error < 1e-7)


def test_checking_loads_neither_torch_nor_matplotlib_nor_scipy():
    program = """
import sys
import numpy as np
from helpers import check_gradient, dot_product_test, step_size_curve
A = np.eye(3)
assert check_gradient(lambda x: x @ x, lambda x: 2 * x, [1.0, 2.0]) and dot_product_test(A)
step_size_curve(lambda x: x @ x, lambda x: 2 * x, [1.0, 2.0])
print(*({"torch", "matplotlib", "scipy"} & set(sys.modules)))
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.split() == []


# --- wrong


@pytest.mark.parametrize(("spoil", "told"), WRONG.values(), ids=WRONG)
@pytest.mark.parametrize("scale", [1.0, 1e-3, 1e4])
def test_a_fault_is_found_and_named(spoil, told, scale):
    x = np.array([0.3, -0.7, 1.1])
    found = check_gradient(lambda x: scale * cubic(x), lambda x: spoil(cubic_gradient(x)) * scale, x)
    assert found.verdict == "wrong"
    assert re.search(told.format(number(2 * scale)), found.guess)


def test_a_transposed_gradient_is_named():
    x, A = np.arange(4.0).reshape(2, 2), np.array([[1.0, 2.0], [3.0, 4.0]])
    found = check_gradient(lambda x: np.sum(A * x**2), lambda x: (2 * A * x).T, x)
    assert found.guess == "It is transposed."


def test_swapped_arguments_are_named():
    found = check_gradient(lambda a, b: np.sum(a * b**2), lambda a, b: (2 * a * b, b**2), (X, 3 * X + 1))
    assert found.guess == "The gradients of the two arguments are swapped."


def test_a_missing_regulariser_is_named():
    found = check_gradient(lambda x: cubic(x) + 0.25 * x @ x, cubic_gradient, np.array([0.3, -0.7, 1.1]))
    assert found.guess == "It is too small by 0.5 · x in every entry: a term of its own."


def test_a_missing_outer_derivative_is_named():
    found = check_gradient(lambda x: np.log(3 + cubic(x) ** 2), lambda x: cubic(x) * cubic_gradient(x), np.ones(3))
    assert found.guess.startswith("All entries are off by one factor, and it depends on x")


@pytest.mark.parametrize("spoil", [lambda g: -g, lambda g: 3 * g, lambda g: g * [1, -1], lambda g: g[::-1]])
def test_at_an_optimum_the_fault_is_seen_near_it(spoil):
    wrong = lambda x: spoil(rosenbrock.gradient(x))  # noqa: E731
    found = check_gradient(rosenbrock.value, wrong, rosenbrock.optimum())
    assert found.verdict == "wrong"
    assert found.shown.where == "near x"
    assert "At x the gradient is zero" in found.notes[-1]
    assert not np.any(found.comparisons[0].wrong)


def test_at_an_optimum_alone_nothing_is_decided():
    found = check_gradient(rosenbrock.value, lambda x: -rosenbrock.gradient(x), rosenbrock.optimum(), near=0)
    assert found.verdict == "undecided"
    assert not found
    assert "zero at x" in found.sentence


def test_a_wrong_gradient_in_single_precision_is_found():
    wrong = lambda x: np.float32(1.01) * rosenbrock.gradient(x).astype(np.float32)  # noqa: E731
    assert check_gradient(plain, wrong, X.astype(np.float32)).verdict == "wrong"


def test_a_function_of_torch_with_a_wrong_gradient_is_found():
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return (x**2).sum()

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return 4 * g * x

    found = check_gradient(Twice.apply, None, torch.tensor(X))
    assert found.guess == "It is 2 times what it should be: a constant factor."


def test_a_value_that_does_not_change_proves_nothing():
    found = check_gradient(lambda x: 3.0, lambda x: 0 * x, X)
    assert found.verdict == "undecided"
    assert "does not change" in found.sentence


def test_a_function_at_the_edge_of_its_domain_is_not_decided():
    found = check_gradient(lambda x: np.sqrt(x).sum(), lambda x: x, np.zeros(2))
    assert found.verdict == "undecided"
    assert "defined on both sides" in found.sentence
    assert "at x only" in found.notes[-1]


def test_a_kink_is_told_with_its_two_slopes():
    found = check_gradient(*RIGHT["a kink"])
    assert found.notes == (
        "x[0] stands on a kink at x: the slope is 0 on one side and 1 on the other, and the gradient 0 is one of many "
        "that fit.",
    )
    beyond = check_gradient(RIGHT["a kink"][0], lambda x: 1.0 * (x > 0) + 2 * (x == 0), RIGHT["a kink"][2])
    assert beyond.verdict == "wrong"


@pytest.mark.parametrize("ratio", [1e6, 1e16], ids=["1e6", "1e16"])
def test_a_fault_is_found_whatever_the_units_of_the_entries(ratio):
    size = math.sqrt(ratio)
    fun, x = lambda x: x[0] * size + x[1] / size, np.array([1 / size, size])
    assert check_gradient(fun, lambda x: np.array([size, 1 / size]), x)
    found = check_gradient(fun, lambda x: np.array([size, -1 / size]), x)
    assert found.verdict == "wrong"
    np.testing.assert_array_equal(found.shown.wrong, [False, True])
    assert "1 times" not in str(found.guess)


@pytest.mark.parametrize(
    "frequency", [1e4, 1e5, 1e6, 1e7, math.tau * 2**20], ids=["1e4", "1e5", "1e6", "1e7", "tau 2^20"]
)
def test_a_function_that_swings_fast_is_not_accused(frequency):
    fun, x = lambda x: np.sin(frequency * x).sum(), np.array([0.3, -1.2])
    found = check_gradient(fun, lambda x: frequency * np.cos(frequency * x), x)
    assert found.verdict == "right", found
    assert check_gradient(fun, lambda x: -frequency * np.cos(frequency * x), x).verdict == "wrong"


def test_an_error_next_to_the_edge_of_the_domain_is_told_as_such():
    fun, x = lambda x: math.log(x) + math.sqrt(1 - x), 1 - 1e-10
    found = check_gradient(fun, lambda x: 1 / x + 0.5 / math.sqrt(1 - x), x)
    assert found.verdict == "undecided"
    assert "defined on both sides of x? Otherwise choose another x" in found.sentence
    assert repr(found).splitlines()[2].split()[:2] == ["x", "50001"]
    assert check_gradient(fun, lambda x: 1 / x - 0.5 / math.sqrt(1 - x), x).verdict != "wrong"


# --- steps and methods


def test_a_chosen_step_has_the_error_of_that_step():
    found = check_gradient(lambda x: np.exp(x).sum(), np.exp, X, step=0.5)
    at = found.comparisons[0]
    np.testing.assert_allclose(at.expected, np.exp(X) * np.sinh(0.5) / 0.5, rtol=1e-10)
    assert np.all(np.abs(at.expected - np.exp(X)) <= at.error * 1.1)


def test_a_complex_step_is_exact():
    found = check_gradient(plain, rosenbrock.gradient, X, method="complex")
    assert found
    assert max(np.max(np.abs(one.got - one.expected)) for one in found.comparisons) < 1e-14
    assert "complex steps" in found.sentence


COMPLEX = {
    "abs": (lambda x: abs(x[0]) + x[1] ** 2, "does not fit this function"),
    "a norm": (lambda x: np.linalg.norm(x), "its result is real"),
    "float": (lambda x: sum(float(entry) ** 2 for entry in x), "needs a function"),
    "real array": (lambda x: np.sum(np.stack([x[0] ** 2, x[1]]).astype(float)), "needs a function"),
    "refuses complex": (rosenbrock.value, "needs a function"),
}


@pytest.mark.parametrize(("fun", "told"), COMPLEX.values(), ids=COMPLEX)
def test_a_complex_step_is_refused_where_it_does_not_fit(fun, told):
    with pytest.raises(ValueError, match=rf"method='complex' .*{told}.*method='central'"):
        check_gradient(fun, lambda x: 2 * x, X + 1, method="complex")


def test_a_complex_step_is_refused_for_torch():
    with pytest.raises(ValueError, match="is for NumPy functions"):
        check_gradient(plain, None, torch.tensor(X), method="complex")


def test_the_precision_of_a_function_is_measured():
    rng = np.random.default_rng(0)
    found = [probes.precision(lambda t: 1 + t + 1e-9 * rng.standard_normal()) for _ in range(200)]
    assert 0.9e-9 < np.mean(found) < 1.1e-9
    assert 1e-9 / 10 < min(found) < max(found) < 3e-9
    assert probes.precision(lambda t: np.exp(1 + t)) < 1e-15


def test_many_entries_want_directions():
    x = np.ones(3000)
    with pytest.raises(ValueError, match="pass directions=10"):
        check_gradient(lambda x: x @ x, lambda x: 2 * x, x)
    assert check_gradient(lambda x: x @ x, lambda x: 2 * x, x, directions=4)


# --- what is refused


def test_a_noisy_function_is_sent_to_the_other_check():
    rng = np.random.default_rng(0)
    noisy = lambda x: rosenbrock.value(x) * rng.uniform(0.5, 1.5)  # noqa: E731
    for x in (X, rosenbrock.optimum()):  # at the optimum the noise is 0
        with pytest.raises(ValueError, match=r"fun is noisy: two calls.*check_noisy_gradient"):
            check_gradient(noisy, rosenbrock.gradient, x)
    with pytest.raises(ValueError, match=r"The gradient is noisy.*check_noisy_gradient"):
        check_gradient(rosenbrock.value, lambda x: rosenbrock.gradient(x) * rng.uniform(0.5, 1.5), X)


REFUSED = {
    "no function": ((5, rosenbrock.gradient, X), TypeError, "fun must be a function of x; got int"),
    "no gradient function": ((plain, rosenbrock.gradient(X), X), TypeError, "not its result: got ndarray"),
    "no gradient": ((rosenbrock.value, None, X), TypeError, "Without grad, fun must be torch code"),
    "a cut graph": ((lambda x: x.detach().sum(), None, X), TypeError, "does not hang on x by a graph"),
    "integers": ((plain, rosenbrock.gradient, [1, 1]), TypeError, "x holds integers"),
    "an integer argument": ((plain, rosenbrock.gradient, (X, np.arange(2))), TypeError, "argument 1 holds integers"),
    "complex": ((plain, rosenbrock.gradient, 1j * X), TypeError, "x is complex"),
    "half precision": ((plain, rosenbrock.gradient, X.astype(np.float16)), TypeError, "float64 or float32"),
    "words": ((plain, rosenbrock.gradient, "x"), TypeError, "must hold float64"),
    "nothing": ((plain, rosenbrock.gradient, np.zeros(0)), ValueError, "x is empty"),
    "nan": ((plain, rosenbrock.gradient, [np.nan, 1.0]), ValueError, "x holds NaN or Inf"),
    "not a number": ((lambda x: x, rosenbrock.gradient, X), ValueError, r"fun returned shape \(2,\)"),
    "value and gradient": ((lambda x: (1.0, x), lambda x: x, X), TypeError, "pass grad=True"),
    "no value": ((lambda x: None, lambda x: x, X), TypeError, "fun returned None. Is a return missing"),
    "an integer value": ((lambda x: int(x[0]), lambda x: x, X), TypeError, "real floating-point number; got dtype int"),
    "a complex value": ((lambda x: 1j * x[0], lambda x: x, X), TypeError, "got a complex number"),
    "a value of nan": ((lambda x: np.nan * x[0], lambda x: x, X), ValueError, "fun is nan at x"),
    "no gradient value": ((plain, lambda x: None, X), TypeError, "grad returned None"),
    "a gradient of nan": ((plain, lambda x: x * [1, np.nan], X), ValueError, r"The gradient is nan at x\[1\]"),
    "a Jacobian": ((plain, rosenbrock.hessian, X), ValueError, "for each of 2 samples"),
    "a column": ((plain, lambda x: x[:, None], X), ValueError, r"shape \(2, 1\) for x of shape \(2,\).*reshape"),
    "a complex gradient": ((plain, lambda x: 1j * x, X), TypeError, "must return real numbers"),
    "one gradient of two": ((lambda a, b: a @ b, lambda a, b: a, (X, X)), ValueError, "each of the 2 arguments"),
    "not a pair": ((lambda x: 1.0, True, X), TypeError, r"must return \(value, gradient\)"),
}


@pytest.mark.parametrize(("arguments", "kind", "told"), REFUSED.values(), ids=REFUSED)
def test_bad_input_is_refused_with_its_cause(arguments, kind, told):
    with pytest.raises(kind, match=told):
        check_gradient(*arguments)


@pytest.mark.parametrize("options", [{"method": "forward"}, {"step": 0.0}, {"near": -1.0}], ids=str)
def test_bad_options_are_refused(options):
    with pytest.raises(ValueError, match="must"):
        check_gradient(rosenbrock.value, rosenbrock.gradient, X, **options)


def test_an_error_of_the_function_itself_stays_as_it_is():
    def broken(x):
        raise KeyError("mesh")

    with pytest.raises(KeyError, match="mesh"):
        check_gradient(broken, rosenbrock.gradient, X)


# --- print


def test_a_wrong_gradient_prints_its_numbers():
    found = check_gradient(rosenbrock.value, lambda x: rosenbrock.gradient(x) * [1, -1], X)
    assert repr(found).splitlines() == [
        "The gradient is wrong at 1 of 2 entries, at x. Worst is x[1]: got -0.9, expected 0.9.",
        "  at x    got  expected  error below",
        "  x[0]  -1.98     -1.98         1e-9",
        "  x[1]   -0.9       0.9        1e-12  wrong",
        "A guess: Only the entry x[1] is wrong: its sign is flipped.",
    ]
    assert str(found) == repr(found)


def test_a_notebook_shows_a_table():
    shown = check_gradient(rosenbrock.value, lambda x: -rosenbrock.gradient(x), X)._repr_html_()
    assert shown.startswith("<p><b>The gradient is wrong")
    assert shown.count("<tr>") == 3
    assert "<td>x[1]</td><td>-0.9</td><td>0.9</td>" in shown
    assert "<p>A guess: The sign is flipped.</p>" in shown


def test_a_long_table_is_cut_with_the_wrong_entries_first():
    x = np.linspace(1, 2, 40)
    wrong = lambda x: np.where(np.arange(40) == 30, 0, 2 * x)  # noqa: E731
    lines = repr(check_gradient(lambda x: x @ x, wrong, x)).splitlines()
    assert lines[2].startswith("  x[30]")
    assert lines[2].endswith("wrong")
    assert lines[-2] == "  and 30 more"
    assert len(lines) == 14


def test_the_same_call_says_the_same():
    one, two = (repr(check_gradient(cubic, cubic_gradient, np.ones(3), directions=3)) for _ in range(2))
    assert one == two
    assert repr(check_gradient(cubic, cubic_gradient, np.ones(3), directions=3, seed=1)) != one


def test_nothing_of_the_learners_is_changed():
    x, t = X.copy(), torch.tensor(X, requires_grad=True)
    state, torch_state = np.random.get_state()[1].copy(), torch.get_rng_state()  # noqa: NPY002
    check_gradient(lambda x: float(np.sum(np.square(x, out=x))), lambda x: 2 * x, x)
    check_gradient(plain, None, t)
    np.testing.assert_array_equal(x, X)
    assert t.grad is None
    np.testing.assert_array_equal(np.random.get_state()[1], state)  # noqa: NPY002
    assert torch.equal(torch.get_rng_state(), torch_state)
