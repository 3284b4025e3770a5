"""Subclasses, wrappers that have left their transform, sparse, fake and other unusual tensors: right or refused."""

import math

import numpy as np
import pytest
import torch
from bridge_forms import OPS, at, cube, cube_gradient, every_op, same
from torch._subclasses.fake_tensor import FakeTensorMode

from helpers import differentiable

# --- wrappers and subclasses


def leaked(transform):
    """Return a tensor of torch.func that has left its transform."""
    kept = []

    def keep(x):
        kept.append(x)
        return (x**2).sum()

    transform(keep)
    return kept[0]


LEAKS = {
    "grad": lambda: leaked(lambda f: torch.func.grad(f)(at(1.0, 2.0, grad=False))),
    "grad of grad": lambda: leaked(lambda f: torch.func.hessian(f)(at(1.0, 2.0, grad=False))),
    "jvp": lambda: leaked(lambda f: torch.func.jvp(f, (at(1.0, 2.0, grad=False),), (torch.ones(2).double(),))),
}


@every_op
@pytest.mark.parametrize("leak", LEAKS)
@pytest.mark.parametrize("warm", [False, True])
def test_a_dead_wrapper(kind, leak, warm):
    op, x = OPS[kind](), LEAKS[leak]()
    if warm:
        op(at(1.0)).backward()
    try:
        y = op(x)
    except (RuntimeError, TypeError) as error:
        assert str(error)  # noqa: PT017 - loud is right too
    else:
        assert y.item() == 9
        w = at(2.0, 1.0)
        op(x * w).backward()
        same(w.grad, 3 * torch.tensor([1.0, 8.0]).double() * torch.tensor([4.0, 1.0]).double())


@every_op
def test_a_batched_tensor_that_has_left_vmap(kind):
    x = leaked(lambda f: torch.func.vmap(f)(torch.ones(3, 2, dtype=torch.float64)))
    op = OPS[kind]()
    op(at(1.0)).backward()
    with pytest.raises((RuntimeError, TypeError, ValueError)):
        op(x).item()


class Subclass(torch.Tensor):
    """A tensor with a name of its own, as libraries have them."""


@every_op
@pytest.mark.parametrize("warm", [False, True])
def test_a_subclass(kind, warm):
    op = OPS[kind]()
    if warm:
        op(at(1.0)).backward()
    x = at(1.0, 2.0, grad=False).as_subclass(Subclass).requires_grad_()
    y = op(x)
    assert y.item() == 9
    y.backward()
    same(x.grad.as_subclass(torch.Tensor), [3.0, 12.0])


@every_op
def test_a_parameter_and_a_buffer(kind):
    op = OPS[kind]()
    for x in (torch.nn.Parameter(at(1.0, 2.0, grad=False)), torch.nn.Buffer(at(1.0, 2.0, grad=False))):
        y = op(x)
        assert y.item() == 9
        assert y.requires_grad == x.requires_grad


# --- tensors that are refused


REFUSED = {
    "meta": (lambda: torch.ones(2, device="meta"), TypeError, "is on the meta device and holds no numbers"),
    "sparse": (lambda: torch.eye(2).to_sparse(), TypeError, r"is not a dense tensor.*Pass x\.to_dense\(\)"),
    "sparse rows": (lambda: torch.eye(2).to_sparse_csr(), TypeError, r"is not a dense tensor.*Pass x\.to_dense\(\)"),
    "complex": (lambda: torch.ones(2, dtype=torch.complex64), TypeError, "is complex"),
    "conjugate": (lambda: torch.ones(2, dtype=torch.complex64).conj(), TypeError, "is complex"),
    "whole": (lambda: torch.ones(2, dtype=torch.int64), TypeError, "whole numbers"),
    "boolean": (lambda: torch.ones(2, dtype=torch.bool), TypeError, "whole numbers"),
    "8 bits": (lambda: torch.ones(2).to(torch.float8_e5m2), TypeError, r"float8_e5m2.*Pass float32 or float64"),
    "quantised": (
        lambda: torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8),
        TypeError,
        "qint8",
    ),
    "nested": (
        lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged),
        TypeError,
        "is not a dense tensor",
    ),
}


@every_op
@pytest.mark.parametrize("which", REFUSED)
@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.filterwarnings("ignore:Sparse CSR", "ignore:.*quantiz.*")
def test_a_tensor_that_is_refused(kind, which, warm):
    make, error, words = REFUSED[which]
    op = OPS[kind]()
    if warm:
        op(at(1.0)).backward()
    with pytest.raises(error, match=words):
        op(make())


# --- fake tensors, unusual numbers


def test_fake_tensors():
    op = differentiable(cube, grad=cube_gradient)
    op(at(1.0)).backward()
    with FakeTensorMode():
        y = op(torch.ones(3, dtype=torch.float32))
    assert y.shape == ()
    assert y.dtype == torch.float32
    assert type(y).__name__ == "FakeTensor"


def test_fake_tensors_of_an_unknown_shape():
    op = differentiable(lambda x: x[:2], vjp=lambda x, g: np.concatenate([g, 0 * x[2:]]))
    with FakeTensorMode(), pytest.raises(ValueError, match=r"Call .* once before you compile it, or give out_shape="):
        op(torch.ones(3))


def test_huge_and_tiny_numbers():
    op = differentiable(cube, grad=cube_gradient)
    for number in (0.0, -0.0, 5e-324, 1e300, -math.inf, math.inf, math.nan):
        x = at(number)
        with np.errstate(all="ignore"):
            y = op(x)
            y.backward()
        torch.testing.assert_close(y.detach(), x.detach()[0] ** 3, rtol=0, atol=0, equal_nan=True)
        torch.testing.assert_close(x.grad, 3 * x.detach() ** 2, rtol=0, atol=0, equal_nan=True)
