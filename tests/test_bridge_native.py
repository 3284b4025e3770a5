"""The bridge's ops beside the same functions written in torch: the same numbers on every route of torch."""

import copy
import pickle
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import autograd, func
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.checkpoint import checkpoint

from helpers import ExternalFunction, MissingDerivative, differentiable, rosenbrock

Tensor = torch.Tensor

# --- patients: NumPy functions, and the same functions in torch


def log_sum_exp(x):
    weights = np.exp(x)
    return np.log(weights.sum()), weights / weights.sum()


def log_sum_exp_hvp(x, t):
    p = log_sum_exp(x)[1]
    return p * t - p * (p @ t)


def solve(a, b):
    return np.linalg.solve(a, b)


def solve_vjp(a, b, g):
    w = solve(a.T, g)
    return -np.outer(w, solve(a, b)), w


def solve_jvp(a, b, s, t):
    return solve(a, t - s @ solve(a, b))


def solve_hvp(a, b, g, s, t):
    u, w = solve(a, b), solve(a.T, g)
    dw = -solve(a.T, s.T @ w)
    return -np.outer(dw, u) - np.outer(w, solve_jvp(a, b, s, t)), dw


def mixed(x, y):
    return np.array([x[0] * y[0], np.sin(x[1]) * y[1] ** 2]), x @ x * y[0]


def mixed_jac(x, y):
    first = np.diag([y[0], np.cos(x[1]) * y[1] ** 2]), np.diag([x[0], 2 * np.sin(x[1]) * y[1]])
    return first, (2 * x * y[0], np.array([x @ x, 0.0]))


def mixed_hvp(x, y, g, h, s, t):
    sin, cos = np.sin(x[1]), np.cos(x[1])
    for_x = 2 * h * (s * y[0] + x * t[0])
    for_x += g * np.array([t[0], -sin * y[1] ** 2 * s[1] + 2 * cos * y[1] * t[1]])
    return for_x, np.array([g[0] * s[0] + 2 * h * x @ s, 2 * g[1] * (cos * s[1] * y[1] + sin * t[1])])


def mixed_torch(x, y):
    return torch.stack([x[0] * y[0], torch.sin(x[1]) * y[1] ** 2]), x @ x * y[0]


def polar(r, a):
    return r * np.cos(a), r * np.sin(a)


def polar_vjp(r, a, g, h):
    return g * np.cos(a) + h * np.sin(a), r * (h * np.cos(a) - g * np.sin(a))


def polar_jvp(r, a, s, t):
    return s * np.cos(a) - r * np.sin(a) * t, s * np.sin(a) + r * np.cos(a) * t


def polar_hvp(r, a, g, h, s, t):
    across = h * np.cos(a) - g * np.sin(a)
    return t * across, s * across - r * t * (g * np.cos(a) + h * np.sin(a))


class Cubic(ExternalFunction):
    """Solve y + y³ = x; the slope at the root is the state."""

    def forward(self, x):
        y = np.cbrt(x)
        for _ in range(50):
            y = y - (y + y**3 - x) / (1 + 3 * y**2)
        return y, (y, 1 / (1 + 3 * y**2))

    def adjoint(self, state, g):
        return g * state[1]

    def tangent(self, state, t):
        return t * state[1]

    def hvp(self, state, g, t):
        y, slope = state
        return -6 * y * slope**3 * g * t


class CubicBatch(Cubic):
    batch, signature = "vectorized", "(n)->(n)"


def cubic_torch(x):
    return 2 / 3**0.5 * torch.sinh(torch.asinh(3**1.5 / 2 * x) / 3)


def solve_torch(a, b):
    return (torch.linalg.inv(a) @ b[..., None])[..., 0]  # torch.linalg.solve takes a batch of vectors for a matrix


def rosenbrock_torch(x):
    return (1 - x[..., 0]) ** 2 + 5 * (x[..., 1] - x[..., 0] ** 2) ** 2


def rosen(**options):
    return differentiable(rosenbrock.value, grad=rosenbrock.gradient, hvp=rosenbrock.hvp, **options)


SOLVE = {"vjp": solve_vjp, "jvp": solve_jvp, "hvp": solve_hvp}


@dataclass(frozen=True)
class Patient:
    op: Any
    reference: Any
    xs: tuple[Tensor, ...]


def numbers(*shape, seed=0):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


MATRIX = numbers(2, 2) + 3 * torch.eye(2)
PATIENTS = {
    "grad": Patient(rosen(), rosenbrock_torch, (numbers(2),)),
    "value_and_grad": Patient(
        differentiable(value_and_grad=log_sum_exp, hvp=log_sum_exp_hvp), lambda x: torch.logsumexp(x, 0), (numbers(3),)
    ),
    "vjp": Patient(differentiable(solve, **SOLVE), solve_torch, (MATRIX, numbers(2))),
    "vjp_loop": Patient(
        differentiable(solve, **SOLVE, batch="loop", signature="(n,n),(n)->(n)"),
        solve_torch,
        (torch.stack([MATRIX, MATRIX.T + 1]), numbers(2)),
    ),
    "vjp_several": Patient(
        differentiable(polar, vjp=polar_vjp, jvp=polar_jvp, hvp=polar_hvp),
        lambda r, a: (r * torch.cos(a), r * torch.sin(a)),
        (numbers(3), numbers(3, seed=1)),
    ),
    "jac_several": Patient(
        differentiable(mixed, jac=mixed_jac, hvp=mixed_hvp), mixed_torch, (numbers(2), numbers(2, seed=1))
    ),
    "state": Patient(Cubic(), cubic_torch, (numbers(3),)),
    "state_vectorized": Patient(CubicBatch(), cubic_torch, (numbers(2, 3),)),
    "loop": Patient(rosen(batch="loop"), rosenbrock_torch, (numbers(3, 2),)),
    "vectorized": Patient(rosen(batch="vectorized"), rosenbrock_torch, (numbers(3, 2),)),
}

# --- tools


def leaves(tree):
    if isinstance(tree, Tensor):
        return [tree]
    return [leaf for branch in tree for leaf in leaves(branch)]


def assert_same(found, expected, tolerance=1e-10):
    found, expected = leaves(found), leaves(expected)
    assert any(each.abs().max() > 1e-3 for each in expected), "nothing but zeros: this would show nothing"
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.detach(), other.detach(), rtol=tolerance, atol=tolerance)


def fresh(xs):
    return tuple(x.detach().clone().requires_grad_() for x in xs)


def outputs(y):
    return (y,) if isinstance(y, Tensor) else tuple(y)


def cotangents(y):
    return tuple(torch.linspace(1, 2, each.numel()).to(each).reshape(each.shape) for each in outputs(y))


def tangents(xs):
    return tuple(torch.linspace(-1, 2, x.numel()).to(x).reshape(x.shape) for x in xs)


def scalar(f):
    """Return a number of all outputs: its second derivatives need those of f, and products of first ones (f²)."""

    def number(*xs):
        y = outputs(f(*xs))
        return sum((g * each + each**2).sum() for g, each in zip(cotangents(y), y, strict=True))

    return number


def stacked(xs):
    return tuple(torch.stack([x, 1.1 * x + 0.05]) for x in xs)


def every(xs):
    return tuple(range(len(xs)))


# --- routes: each takes a function and its inputs, and returns numbers

ROUTES = {}


def route(function):
    ROUTES[function.__name__] = function
    return function


def backward(f, xs):
    xs = fresh(xs)
    scalar(f)(*xs).backward()
    return [x.grad for x in xs]


def pull_back(f, xs):
    y, pull = func.vjp(f, *xs)
    return y, pull(cotangents(y) if isinstance(y, tuple) else cotangents(y)[0])


def gradient(f, xs):
    return func.grad(scalar(f), every(xs))


@route
def first_order(f, xs):
    return [
        backward(f, xs),
        gradient(f, xs)(*xs),
        func.grad_and_value(scalar(f), every(xs))(*xs),
        pull_back(f, xs),
        func.jvp(f, xs, tangents(xs)),
        func.jacrev(f, every(xs))(*xs),
        func.jacfwd(f, every(xs))(*xs),
        func.jacrev(f, len(xs) - 1, chunk_size=1)(*xs),
    ]


@route
def second_order(f, xs):
    all_, number = every(xs), scalar(f)
    return [
        func.hessian(number, all_)(*xs),
        func.jacrev(func.jacrev(f, all_), all_)(*xs),
        func.jacfwd(func.jacfwd(f, all_), all_)(*xs),
        func.jacrev(func.jacfwd(f, all_), all_)(*xs),
        func.jacfwd(func.jacrev(f, all_), all_)(*xs),
    ]


@route
def directional_second_order(f, xs):
    ts = tangents(xs)
    return [
        func.jvp(gradient(f, xs), xs, ts),
        func.jvp(lambda *xs: func.jvp(f, xs, ts), xs, ts),
        func.grad(scalar(lambda *xs: func.jvp(f, xs, ts)[1]), every(xs))(*xs),
        func.grad(scalar(lambda *xs: pull_back(f, xs)[1]), every(xs))(*xs),
        func.vjp(gradient(f, xs), *xs)[1](ts),
    ]


@route
def along_cotangents_and_tangents(f, xs):
    y, pull = func.vjp(f, *xs)
    back = (lambda *gs: pull(gs)) if isinstance(y, tuple) else (lambda g: pull(g))
    forth = lambda *ts: func.jvp(f, xs, ts)[1]  # noqa: E731
    return [
        func.jacrev(lambda g: back(g, *cotangents(y)[1:]))(cotangents(y)[0]),
        func.jacfwd(lambda g: back(g, *cotangents(y)[1:]))(cotangents(y)[0]),
        func.jacrev(forth, every(xs))(*tangents(xs)),
        func.jacfwd(forth, every(xs))(*tangents(xs)),
    ]


@route
def vmap_of_first_order(f, xs):
    many = stacked(xs)
    shared = (0,) + (None,) * (len(xs) - 1)
    at_the_end = tuple(x.movedim(0, -1) for x in many)
    twice = tuple(torch.stack([x, x + 0.1]) for x in many)
    return [
        func.vmap(f)(*many),
        func.vmap(f, in_dims=shared)(many[0], *xs[1:]),
        func.vmap(f, in_dims=-1, out_dims=-1)(*at_the_end),
        func.vmap(func.vmap(f))(*twice),
        func.vmap(gradient(f, xs))(*many),
        func.vmap(func.jacrev(f, every(xs)), in_dims=shared)(many[0], *xs[1:]),
        func.vmap(func.jacfwd(f, every(xs)))(*many),
        func.vmap(lambda *ts: func.jvp(f, xs, ts))(*stacked(tangents(xs))),
        func.vmap(f, chunk_size=2)(*many),
    ]


@route
def vmap_of_second_order(f, xs):
    many, all_ = stacked(xs), every(xs)
    together = func.vmap(f)
    return [
        func.vmap(func.hessian(scalar(f), all_))(*many),
        func.vmap(func.jacfwd(func.jacfwd(f, all_), all_))(*many),
        func.hessian(scalar(together), all_)(*many),
        func.jacrev(func.jacfwd(together))(*many),
    ]


@route
def autograd_functional(f, xs):
    api, number, ts = autograd.functional, scalar(f), tangents(xs)
    y = f(*xs)
    forward = {"vectorize": True, "outer_jacobian_strategy": "forward-mode"}
    return [
        api.jacobian(f, xs),
        api.jacobian(f, xs, vectorize=True),
        api.jacobian(f, xs, vectorize=True, strategy="forward-mode"),
        api.hessian(number, xs),
        api.hessian(number, xs, vectorize=True),
        api.hessian(number, xs, **forward),
        api.vhp(number, xs, ts),
        api.jvp(f, xs, ts),
        api.vjp(f, xs, cotangents(y) if isinstance(y, tuple) else cotangents(y)[0]),
    ]


@route
def hvp_by_two_backwards(f, xs):
    return autograd.functional.hvp(scalar(f), xs, tangents(xs))


@route
def gradient_penalty(f, xs):
    xs = fresh(xs)
    loss = scalar(f)(*xs)
    gradients = autograd.grad(loss, xs, create_graph=True)
    (loss + sum((g**2).sum() for g in gradients)).backward()
    return [x.grad for x in xs]


@route
def create_graph_chain(f, xs):
    xs = fresh(xs)
    first = autograd.grad(scalar(f)(*xs), xs, create_graph=True)
    along = sum((g * t).sum() for g, t in zip(first, tangents(xs), strict=True))
    second = autograd.grad(along, xs, retain_graph=True)
    return [first, second, autograd.grad(along, xs)]


@route
def batched_gradients(f, xs):
    xs = fresh(xs)
    y = outputs(f(*xs))[0]
    rows = torch.eye(y.numel(), dtype=y.dtype).reshape(-1, *y.shape)
    first = autograd.grad(y, xs, rows, is_grads_batched=True, create_graph=True, allow_unused=True)
    second = autograd.grad(sum((each**2).sum() for each in first), xs)
    return [first, second]


@route
def dual_numbers(f, xs):
    with forward_ad.dual_level():
        duals = [forward_ad.make_dual(x, t) for x, t in zip(xs, tangents(xs), strict=True)]
        forward = [forward_ad.unpack_dual(y) for y in outputs(f(*duals))]
        at = [forward_ad.make_dual(x, t) for x, t in zip(fresh(xs), tangents(xs), strict=True)]
        over_reverse = [forward_ad.unpack_dual(g) for g in autograd.grad(scalar(f)(*at), at)]
    return [forward, over_reverse]


def recorded_programs(f, xs):
    elsewhere = tuple(x + 0.1 for x in xs)
    y, push = func.linearize(f, *xs)
    return [
        y,
        push(*tangents(xs)),
        make_fx(f)(*xs)(*elsewhere),
        make_fx(gradient(f, xs))(*xs)(*elsewhere),
        make_fx(func.hessian(scalar(f)))(*xs)(*elsewhere),
        make_fx(func.vmap(f))(*stacked(xs))(*stacked(elsewhere)),
    ]


@route
def checkpoints(f, xs):
    found = []
    for reentrant in (True, False):
        recomputed = lambda *xs: checkpoint(f, *xs, use_reentrant=reentrant)  # noqa: E731, B023
        found.append(backward(recomputed, xs))
    leaf = fresh(xs)
    (g, *_) = autograd.grad(scalar(recomputed)(*leaf), leaf, create_graph=True)
    (g**2).sum().backward()
    return [found, leaf[0].grad]


ALL_PATIENTS = pytest.mark.parametrize("patient", PATIENTS.values(), ids=PATIENTS.keys())


@ALL_PATIENTS
@pytest.mark.parametrize("route", ROUTES.values(), ids=ROUTES.keys())
def test_a_route_gives_the_numbers_of_torch(route, patient):
    patient.op(*patient.xs)
    assert_same(route(patient.op, patient.xs), route(patient.reference, patient.xs))


@pytest.mark.parametrize("name", ["vjp", "jac_several", "state"])
def test_recorded_programs_give_the_numbers_of_torch(name):
    patient = PATIENTS[name]
    patient.op(*patient.xs)
    assert_same(recorded_programs(patient.op, patient.xs), recorded_programs(patient.reference, patient.xs))


@ALL_PATIENTS
def test_gradcheck(patient):
    options = {"check_batched_grad": True, "check_forward_ad": True, "check_batched_forward_grad": True}
    assert autograd.gradcheck(patient.op, fresh(patient.xs), **options)


@ALL_PATIENTS
def test_gradgradcheck(patient):
    options = {"check_fwd_over_rev": True, "check_rev_over_rev": True, "check_batched_grad": True}
    assert autograd.gradgradcheck(patient.op, fresh(patient.xs), **options)


# --- modes, hooks, graphs


each_op = pytest.mark.parametrize(("f", "xs"), [(p.op, p.xs) for p in PATIENTS.values()], ids=PATIENTS.keys())


@each_op
def test_no_grad_and_inference_mode_give_the_value_alone(f, xs):
    expected = f(*xs)
    for mode in (torch.no_grad(), torch.inference_mode()):
        with mode:
            y = f(*fresh(xs))
        assert_same(y, expected, 0)
        assert not any(each.requires_grad for each in outputs(y))
    assert all(each.is_inference() for each in outputs(y))


@each_op
def test_a_kept_graph_gives_the_same_gradient_again(f, xs):
    xs = fresh(xs)
    loss = scalar(f)(*xs)
    first = autograd.grad(loss, xs, retain_graph=True)
    assert_same(autograd.grad(loss, xs, create_graph=True), first, 0)
    assert_same(autograd.grad(loss, xs), first, 0)


@each_op
def test_a_freed_graph_is_refused(f, xs):
    y = f(*fresh(xs))
    autograd.backward(outputs(y), cotangents(y))
    with pytest.raises(RuntimeError, match="second time"):
        autograd.backward(outputs(y), cotangents(y))


@each_op
def test_an_input_changed_in_place_is_refused(f, xs):
    at = tuple(x * 1 for x in fresh(xs))
    y = f(*at)
    at[-1].add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        autograd.backward(outputs(y), cotangents(y))


@ALL_PATIENTS
def test_hooks_see_and_change_gradients(patient):
    def run(f):
        xs, seen = fresh(patient.xs), []
        y = f(*xs)
        outputs(y)[0].register_hook(lambda g: 2 * g)
        xs[0].register_hook(lambda g: g + 1)
        xs[-1].register_post_accumulate_grad_hook(lambda x: seen.append(x.grad.clone()))
        autograd.backward(outputs(y), cotangents(y))
        assert len(seen) == 1
        return [seen, [x.grad for x in xs]]

    assert_same(run(patient.op), run(patient.reference))


@ALL_PATIENTS
def test_saved_tensors_can_be_packed(patient):
    packed = []
    with autograd.graph.saved_tensors_hooks(lambda x: packed.append(x) or x.numpy(), torch.from_numpy):
        found = backward(patient.op, patient.xs)
    assert packed
    assert_same(found, backward(patient.reference, patient.xs))


def test_a_tensor_may_be_given_by_name():
    patient = PATIENTS["vjp_several"]
    assert_same(backward(lambda r, a: patient.op(r, a=a), patient.xs), backward(patient.reference, patient.xs))


def test_one_of_two_inputs_may_want_no_gradient():
    a, b = PATIENTS["vjp"].xs
    for wanted in (0, 1):
        xs = [a.clone(), b.clone()]
        xs[wanted].requires_grad_()
        scalar(PATIENTS["vjp"].op)(*xs).backward()
        assert_same(xs[wanted].grad, func.grad(scalar(solve_torch), wanted)(a, b))
        assert xs[1 - wanted].grad is None


def test_one_of_two_outputs_may_be_left_unused():
    patient = PATIENTS["jac_several"]
    for used in (0, 1):
        pick = lambda f: lambda *xs: f(*xs)[used]  # noqa: E731, B023
        for route_ in (first_order, second_order, gradient_penalty):
            assert_same(route_(pick(patient.op), patient.xs), route_(pick(patient.reference), patient.xs))


def test_an_input_may_have_no_gradient_at_all():
    def along(x, w):
        return x @ x * w[0]

    op = differentiable(along, grad=lambda x, w: (2 * x * w[0], None), hvp=lambda x, w, t, s: (2 * t * w[0], None))
    x, w = numbers(2), numbers(2, seed=1)
    for route_ in (first_order, second_order, directional_second_order):
        assert_same(route_(lambda x: op(x, w), (x,)), route_(lambda x: along(x, w), (x,)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_autocast_changes_nothing_inside_the_op(dtype):
    x = numbers(2)
    at = x.to(dtype).requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = PATIENTS["grad"].op(at)
        y.backward()
    expected = x.to(dtype).float().requires_grad_()
    rosenbrock_torch(expected).backward()
    assert y.dtype is at.grad.dtype is dtype
    tolerance = 1e-5 if dtype is torch.float32 else 2**-7
    assert_same(at.grad.float(), expected.grad, tolerance)


def test_autocast_around_layers_and_the_op():
    layer = torch.nn.Linear(2, 2, dtype=torch.float32)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[1.0, 0.5], [-0.5, 0.25]]))
        layer.bias.zero_()
    x = torch.tensor([0.5, 2.0])  # all products are exact in bfloat16
    with torch.autocast("cpu", dtype=torch.bfloat16):
        h = layer(x)
        y = PATIENTS["grad"].op(h)
    y.backward()
    slope = rosenbrock.gradient(h.detach().double().numpy())
    assert h.dtype is y.dtype is torch.bfloat16
    assert_same(layer.weight.grad, torch.from_numpy(np.outer(slope, x)).float(), 2**-7)


# --- modules


class Model(torch.nn.Module):
    def __init__(self, op):
        super().__init__()
        self.layer = torch.nn.Linear(3, 2, dtype=torch.float64)
        self.op = op

    def forward(self, x):
        return self.op(torch.tanh(self.layer(x)))


def model(op):
    built = Model(op)
    with torch.no_grad():
        for index, parameter in enumerate(built.parameters()):
            parameter.copy_(numbers(*parameter.shape, seed=index))
    return built


def parameter_gradients(module, x):
    module.zero_grad()
    module(x).sum().backward()
    return [parameter.grad.clone() for parameter in module.parameters()]


COPIES = {
    "itself": lambda m: m,
    "deepcopy": copy.deepcopy,
    "pickle": lambda m: pickle.loads(pickle.dumps(m)),
    "copy": copy.copy,
}


@pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES.keys())
@pytest.mark.parametrize("name", ["grad", "vectorized", "state"])
def test_a_module_holds_an_op(copied, name):
    patient = PATIENTS[name]
    x = numbers(4, 3) if name == "vectorized" else numbers(3, seed=1)
    module, reference = copied(model(patient.op)), model(patient.reference)
    assert_same(parameter_gradients(module, x), parameter_gradients(reference, x))
    assert list(module.state_dict()) == ["layer.weight", "layer.bias"]
    module.load_state_dict({name: 0.5 * tensor for name, tensor in reference.state_dict().items()})
    reference.load_state_dict(module.state_dict())
    assert_same(parameter_gradients(module, x), parameter_gradients(reference, x))


def test_functional_call():
    x = numbers(4, 3)
    found, expected = (
        func.vmap(func.grad(lambda p, x: func.functional_call(m, p, (x,))), in_dims=(None, 0))(  # noqa: B023
            dict(m.named_parameters()), x
        )
        for m in (model(PATIENTS["grad"].op), model(rosenbrock_torch))
    )
    assert_same([found[name] for name in expected], list(expected.values()))


def test_full_backward_hooks():
    seen = []
    for f in (PATIENTS["vectorized"].op, rosenbrock_torch):
        module = model(f)
        module.register_full_backward_hook(lambda m, gi, go: seen.append([gi[0].clone(), go[0].clone()]))
        module(numbers(4, 3).requires_grad_()).sum().backward()
    assert_same(*seen)


def test_distributed_data_parallel_on_one_process(tmp_path):
    distributed = torch.distributed
    store = distributed.FileStore(str(tmp_path / "store"), 1)
    distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        parallel = torch.nn.parallel.DistributedDataParallel(model(PATIENTS["vectorized"].op))
        x = numbers(4, 3)
        for _ in range(2):
            assert_same(parameter_gradients(parallel, x), parameter_gradients(model(rosenbrock_torch), x))
    finally:
        distributed.destroy_process_group()


# --- missing ingredients: an error that names the cure, on every route


class Root(Cubic):
    """Without the optional methods."""

    tangent, hvp = ExternalFunction.tangent, ExternalFunction.hvp


NO_HVP = {
    "grad": (differentiable(rosenbrock.value, grad=rosenbrock.gradient), (numbers(2),)),
    "value_and_grad": (differentiable(value_and_grad=log_sum_exp), (numbers(3),)),
    "vjp": (differentiable(solve, vjp=solve_vjp, jvp=solve_jvp), PATIENTS["vjp"].xs),
    "jac": (differentiable(mixed, jac=mixed_jac), PATIENTS["jac_several"].xs),
    "class": (type("OnlyTangent", (Cubic,), {"hvp": ExternalFunction.hvp})(), (numbers(3),)),
    "batch": (differentiable(rosenbrock.value, grad=rosenbrock.gradient, batch="loop"), (numbers(3, 2),)),
}
REFERENCES = ["grad", "value_and_grad", "vjp", "jac_several", "state", "loop"]
NO_JVP = {
    "vjp": (differentiable(solve, vjp=solve_vjp, hvp=solve_hvp), PATIENTS["vjp"].xs),
    "several": (differentiable(polar, vjp=polar_vjp), PATIENTS["vjp_several"].xs),
    "class": (Root(), (numbers(3),)),
}


def norm_of_gradient(f, xs, *, times=1):
    """Return |∇|∇…|∇f|²…|²|², with a graph."""
    value = scalar(f)(*xs)
    for _ in range(times):
        value = sum((g**2).sum() for g in autograd.grad(value, xs, create_graph=True))
    return value


def forward_over_reverse(f, xs):
    with forward_ad.dual_level():
        at = [forward_ad.make_dual(x, t) for x, t in zip(fresh(xs), tangents(xs), strict=True)]
        return autograd.grad(scalar(f)(*at), at)


def batched_second(f, xs):
    xs = fresh(xs)
    first = autograd.grad(scalar(f)(*xs), xs, create_graph=True)[0]
    rows = torch.eye(first.numel(), dtype=first.dtype).reshape(-1, *first.shape)
    return autograd.grad(first, xs, rows, is_grads_batched=True)


SECOND = {
    "functional.hessian": lambda f, xs: autograd.functional.hessian(scalar(f), xs),
    "functional.hessian vectorized": lambda f, xs: autograd.functional.hessian(scalar(f), xs, vectorize=True),
    "functional.hvp": lambda f, xs: autograd.functional.hvp(scalar(f), xs, tangents(xs)),
    "func.hessian": lambda f, xs: func.hessian(scalar(f))(*xs),
    "jacrev jacrev": lambda f, xs: func.jacrev(func.jacrev(f))(*xs),
    "jacfwd jacfwd": lambda f, xs: func.jacfwd(func.jacfwd(f))(*xs),
    "jacrev jacfwd": lambda f, xs: func.jacrev(func.jacfwd(f))(*xs),
    "jacfwd jacrev": lambda f, xs: func.jacfwd(func.jacrev(f))(*xs),
    "create_graph": lambda f, xs: norm_of_gradient(f, at := fresh(xs)).backward(inputs=at),
    "gradient penalty": gradient_penalty,
    "gradgradcheck": lambda f, xs: autograd.gradgradcheck(f, fresh(xs)),
    "vmap hessian": lambda f, xs: func.vmap(func.hessian(scalar(f)))(*stacked(xs)),
    "hessian vmap": lambda f, xs: func.hessian(scalar(func.vmap(f)))(*stacked(xs)),
    "dual numbers": forward_over_reverse,
    "is_grads_batched": batched_second,
    "jvp grad": lambda f, xs: func.jvp(gradient(f, xs), xs, tangents(xs)),
    "linearize grad": lambda f, xs: func.linearize(gradient(f, xs), *xs)[1](*tangents(xs)),
    "make_fx hessian": lambda f, xs: make_fx(func.hessian(scalar(f)))(*xs)(*xs),
    "checkpoint": lambda f, xs: gradient_penalty(lambda *xs: checkpoint(f, *xs, use_reentrant=False), xs),
}
TANGENT = {
    "func.jvp": lambda f, xs: func.jvp(f, xs, tangents(xs)),
    "jacfwd": lambda f, xs: func.jacfwd(f)(*xs),
    "dual numbers": lambda f, xs: dual_numbers(f, xs),
    "linearize": lambda f, xs: func.linearize(f, *xs)[1](*tangents(xs)),
    "functional.jvp": lambda f, xs: autograd.functional.jvp(f, xs, tangents(xs)),
    "functional.jacobian": lambda f, xs: autograd.functional.jacobian(f, xs, vectorize=True, strategy="forward-mode"),
    "vmap jacfwd": lambda f, xs: func.vmap(func.jacfwd(f))(*stacked(xs)),
    "jvp vmap": lambda f, xs: func.jvp(func.vmap(f), stacked(xs), stacked(tangents(xs))),
    "gradcheck": lambda f, xs: autograd.gradcheck(f, fresh(xs), check_forward_ad=True),
    "derivative for the cotangent": lambda f, xs: along_cotangents_and_tangents(f, xs),
}
THIRD = {
    "grad grad grad": lambda f, xs: norm_of_gradient(f, at := fresh(xs), times=2).backward(inputs=at),
    "create_graph": lambda f, xs: autograd.grad(norm_of_gradient(f, at := fresh(xs), times=2), at),
    "func.grad": lambda f, xs: func.jacrev(func.jacrev(gradient(f, xs)))(*xs),
    "jacfwd jacfwd jacfwd": lambda f, xs: func.jacfwd(func.jacfwd(func.jacfwd(f)))(*xs),
    "jacrev hessian": lambda f, xs: func.jacrev(func.hessian(scalar(f)))(*xs),
    "jacfwd hessian": lambda f, xs: func.jacfwd(func.hessian(scalar(f)))(*xs),
    "hessian grad": lambda f, xs: func.hessian(gradient(f, xs))(*xs),
    "jacrev jacfwd jacfwd": lambda f, xs: func.jacrev(func.jacfwd(func.jacfwd(f)))(*xs),
    "jacfwd jacrev jacfwd": lambda f, xs: func.jacfwd(func.jacrev(func.jacfwd(f)))(*xs),
    "functional.hessian": lambda f, xs: autograd.functional.hessian(lambda *xs: gradient(f, xs)(*xs)[0].sum(), xs),
    "gradgradcheck": lambda f, xs: autograd.gradgradcheck(gradient(f, xs), fresh(xs)),
    "dual numbers": lambda f, xs: forward_over_reverse(lambda *xs: gradient(f, xs)(*xs), xs),
    "vmap": lambda f, xs: func.vmap(func.jacrev(func.hessian(scalar(f))))(*stacked(xs)),
    "is_grads_batched": lambda f, xs: batched_second(gradient(f, xs), xs),
    "make_fx": lambda f, xs: make_fx(func.jacrev(func.hessian(scalar(f))))(*xs)(*xs),
}


def each_of(ops, routes):
    cases = [(f, xs, take) for f, xs in ops.values() for take in routes.values()]
    ids = [f"{name}-{way}".replace(" ", "_") for name in ops for way in routes]
    return pytest.mark.parametrize(("f", "xs", "take"), cases, ids=ids)


@each_of(NO_HVP, SECOND)
def test_a_second_derivative_without_hvp_is_an_error(f, xs, take):
    f(*xs)
    with pytest.raises(MissingDerivative, match=r"has no hvp.*(Give differentiable\(..., hvp=|Write hvp\(self)"):
        take(f, xs)


@each_of(NO_JVP, TANGENT)
def test_a_tangent_without_jvp_is_an_error(f, xs, take):
    f(*xs)
    match = r"has no (jvp|tangent).*(Give differentiable\(..., jvp=|Write tangent\(self)"
    with pytest.raises(MissingDerivative, match=match):
        take(f, xs)


@each_of({name: (PATIENTS[name].op, PATIENTS[name].xs) for name in ("grad", "jac_several", "state")}, THIRD)
def test_a_third_derivative_is_an_error(f, xs, take):
    f(*xs)
    with pytest.raises(MissingDerivative, match="third derivative was asked for, and hvp is the last"):
        take(f, xs)


@pytest.mark.parametrize(("name", "twin"), [*zip(NO_HVP, REFERENCES, strict=True)], ids=NO_HVP)
def test_without_hvp_all_first_derivatives_are_there(name, twin):
    f, xs = NO_HVP[name]
    assert_same(first_order(f, xs), first_order(PATIENTS[twin].reference, xs))


def test_the_tangent_by_two_backwards_needs_no_hvp():
    f, xs = NO_HVP["vjp"]
    api = autograd.functional
    assert_same(api.jvp(f, xs, tangents(xs)), api.jvp(solve_torch, xs, tangents(xs)))
