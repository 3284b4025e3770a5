"""dot_product_test tells an adjoint from what is none, in NumPy, SciPy and torch, real and complex."""

import numpy as np
import pytest
import scipy.sparse
import scipy.sparse.linalg
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import dot_product_test

modest = settings(max_examples=25, deadline=None)
RNG = np.random.default_rng(0)
A = RNG.standard_normal((3, 4))
C = A + 1j * RNG.standard_normal((3, 4))
S = RNG.standard_normal((4, 4))
T = torch.tensor(A)


def rfft_adjoint(y):
    """Return the adjoint of np.fft.rfft for signals of length 8, as real numbers see it."""
    return 8 * np.fft.irfft(y / [1, 2, 2, 2, 1], 8)


RIGHT = {
    "functions": lambda: dot_product_test(lambda x: A @ x, lambda y: A.T @ y, x=4),
    "examples": lambda: dot_product_test(lambda x: A @ x, lambda y: A.T @ y, np.zeros(4), np.zeros(3)),
    "a matrix": lambda: dot_product_test(A),
    "two matrices": lambda: dot_product_test(A, A.T),
    "a complex matrix": lambda: dot_product_test(C),
    "a sparse matrix": lambda: dot_product_test(scipy.sparse.csr_array(A)),
    "an operator": lambda: dot_product_test(scipy.sparse.linalg.aslinearoperator(C)),
    "single precision": lambda: dot_product_test(A.astype(np.float32)),
    "torch": lambda: dot_product_test(lambda x: T @ x, lambda y: T.T @ y, T.new_zeros(4)),
    "a torch matrix": lambda: dot_product_test(T),
    "torch in single precision": lambda: dot_product_test(T.float()),
    "complex torch": lambda: dot_product_test(torch.tensor(C)),
    "from real to complex": lambda: dot_product_test(np.fft.rfft, rfft_adjoint, x=8),
    "many axes": lambda: dot_product_test(
        lambda x: np.diff(x, axis=1), lambda y: -np.diff(y, axis=1, prepend=0, append=0), x=(2, 3, 4)
    ),
    "a number": lambda: dot_product_test(lambda x: np.sum(x), lambda y: y * np.ones((2, 3)), x=(2, 3)),
    "vjp and jvp of torch": lambda: dot_product_test(
        lambda t: torch.func.jvp(torch.sin, (T[0],), (t,))[1],
        lambda g: torch.func.vjp(torch.sin, T[0])[1](g)[0],
        T[0],
    ),
    "an argument that is written to": lambda: dot_product_test(lambda x: np.multiply(x, 2, out=x), lambda y: 2 * y, 3),
}
WRONG = {
    "not transposed": (lambda: dot_product_test(lambda x: S @ x, lambda y: S @ y, x=4), "Is it not transposed"),
    "factor": (lambda: dot_product_test(lambda x: A @ x, lambda y: 2 * A.T @ y, x=4), "2 times the right one"),
    "sign": (lambda: dot_product_test(lambda x: A @ x, lambda y: -A.T @ y, x=4), "sign is flipped"),
    "zeros": (lambda: dot_product_test(lambda x: A @ x, lambda y: np.zeros(4), x=4), "returns zeros"),
    "conjugate": (lambda: dot_product_test(C, C.T), "conjugate is missing"),
    "inverse": (lambda: dot_product_test(np.fft.fft, np.fft.ifft, np.zeros(8, complex)), "0.125 times the right one"),
    "one entry": (lambda: dot_product_test(A, (A * (1 + 1e-3 * (A[1, 2] == A))).T), None),
    "torch": (lambda: dot_product_test(lambda x: T @ x, lambda y: 2 * T.T @ y, T.new_zeros(4)), "2 times"),
    "single precision": (lambda: dot_product_test(A.astype("f4"), 1.001 * A.T.astype("f4")), "1.001 times"),
}


@pytest.mark.parametrize("test", RIGHT.values(), ids=RIGHT)
def test_an_adjoint_passes(test):
    found = test()
    assert found, found
    np.testing.assert_allclose(found.forward, found.adjoint, rtol=1e-3)
    assert len(found.errors) == 3
    assert np.all(found.errors < 1e-3)


@pytest.mark.parametrize(("test", "told"), WRONG.values(), ids=WRONG)
def test_what_is_no_adjoint_is_found_and_named(test, told):
    found = test()
    assert found.verdict == "wrong"
    assert found.guess is None if told is None else told in found.guess


def test_a_symmetric_matrix_is_its_own_adjoint():
    assert dot_product_test(lambda x: (S + S.T) @ x, lambda y: (S + S.T) @ y, x=4)


@modest
@given(st.integers(1, 6), st.integers(1, 6), st.booleans(), st.integers(0, 2**31))
def test_any_matrix_and_its_adjoint_agree_and_another_does_not(rows, columns, is_complex, seed):
    rng = np.random.default_rng(seed)
    matrix = rng.standard_normal((rows, columns)) + (1j * rng.standard_normal((rows, columns)) if is_complex else 0)
    other = matrix.conj().T.copy()
    other[rng.integers(columns), rng.integers(rows)] += 1
    assert dot_product_test(matrix, seed=seed)
    assert not dot_product_test(matrix, other, seed=seed)


def test_the_numbers_are_the_inner_products():
    found = dot_product_test(C, seed=3, trials=2)
    again = dot_product_test(C, seed=3, trials=2)
    np.testing.assert_array_equal(found.forward, again.forward)
    assert found.forward.dtype == complex
    assert repr(found).splitlines()[0] == "It is the adjoint: <A x, y> and <x, Aᵀ y> agree in 2 trials."


def test_the_second_vector_is_conjugated():
    given = []

    def forward(x):
        given.append(x.copy())
        return C @ x

    def adjoint(y):
        given.append(y.copy())
        return C.conj().T @ y

    found = dot_product_test(forward, adjoint, np.zeros(4, complex), np.zeros(3, complex), trials=1)
    x = next(one for one in reversed(given) if one.shape == (4,) and not np.allclose(one, 0))
    candidates = [np.sum(np.conj(y) * (C @ x)) for y in given if y.shape == (3,)]
    assert any(np.isclose(found.forward[0], candidate) for candidate in candidates)


NOT_LINEAR = {
    "affine": (lambda x: A @ x + 1, "does not map 0 to 0: subtract forward(0)"),
    "square": (lambda x: A @ x**2, "forward is not linear"),
    "abs": (lambda x: A @ np.abs(x), "forward is not linear"),
    "noisy": (lambda x: A @ x * RNG.uniform(0.5, 1.5), "forward is noisy"),
}


@pytest.mark.parametrize(("forward", "told"), NOT_LINEAR.values(), ids=NOT_LINEAR)
def test_what_is_not_linear_is_not_decided(forward, told):
    found = dot_product_test(forward, lambda y: A.T @ y, x=4)
    assert found.verdict == "undecided"
    assert told in found.sentence
    assert "<tr>" not in found._repr_html_()
    back = dot_product_test(lambda x: A.T @ x, forward, x=3, y=4)
    assert told.replace("forward", "adjoint") in back.sentence


def test_two_maps_to_zero_prove_nothing():
    found = dot_product_test(lambda x: np.zeros(3), lambda y: np.zeros(4), x=4)
    assert found.verdict == "undecided"
    assert "give 0" in found.sentence


REFUSED = {
    "no adjoint": (lambda: dot_product_test(lambda x: x, x=3), TypeError, "adjoint is missing"),
    "no example": (lambda: dot_product_test(lambda x: x, lambda y: y), TypeError, "x is missing"),
    "no function": (lambda: dot_product_test("A", lambda y: y, x=3), TypeError, "forward must be a function"),
    "integers": (lambda: dot_product_test(np.sin, np.sin, np.arange(3)), TypeError, "x must hold real or complex"),
    "words": (lambda: dot_product_test(np.sin, np.sin, "three"), TypeError, "x must hold real or complex"),
    "wrong shape": (
        lambda: dot_product_test(lambda x: A @ x, lambda y: y, x=4),
        ValueError,
        r"must return shape \(4,\)",
    ),
    "nothing": (lambda: dot_product_test(lambda x: x, lambda y: None, x=4), TypeError, "adjoint returned None"),
    "nan": (lambda: dot_product_test(lambda x: x, lambda y: np.nan * y, x=4), ValueError, "not a finite number"),
    "complex": (lambda: dot_product_test(np.fft.rfft, np.fft.fft, 8, np.zeros(5)), TypeError, "complex numbers"),
    "cube": (lambda: dot_product_test(np.zeros((2, 2, 2))), ValueError, "A matrix has two axes"),
    "no trial": (lambda: dot_product_test(A, trials=0), ValueError, "trials must be 1 or more"),
}


@pytest.mark.parametrize(("test", "kind", "told"), REFUSED.values(), ids=REFUSED)
def test_bad_input_is_refused_with_its_cause(test, kind, told):
    with pytest.raises(kind, match=told):
        test()
