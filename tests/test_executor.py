"""``executor=``: the same numbers as without it, whatever the executor and however the derivatives are asked for."""

import copy
import pickle
import threading
from pathlib import Path

import executor_functions as functions
import numpy as np
import pytest
import torch
from torch import func
from torch.utils.checkpoint import checkpoint

from helpers import ExternalFunction, FailedSamples, differentiable
from helpers.noise import GaussianFactor

pytest_plugins = ["executor_pools"]

EVERY = ["threads", "process_pool", "fork", "loky", "late", "in_this_process"]
ONE_OF_EACH = ["threads", "process_pool"]


class Subclass(ExternalFunction):
    """A solver written as an ExternalFunction."""

    batch, signature = "loop", "(n)->(n)"

    def __init__(self, executor=None, state="travel"):
        self.solver, self.executor, self.state = functions.Cubic(), executor, state

    def forward(self, x):
        return self.solver.forward(x)

    def adjoint(self, state, g):
        return self.solver.adjoint(state, g)

    def tangent(self, state, t):
        return self.solver.tangent(state, t)

    def hvp(self, state, g, t):
        return self.solver.hvp(state, g, t)


def scalar(**derivatives):
    return lambda **options: differentiable(**derivatives, hvp=functions.quartic_hvp, batch="loop", **options)


def vector(**derivatives):
    return lambda **options: differentiable(
        functions.cube, **derivatives, hvp=functions.cube_hvp, batch="loop", signature="(n)->(n)", **options
    )


def solver(kind, **state):
    return lambda **options: differentiable(kind(), batch="loop", **state, **options)


KINDS = {
    "grad": scalar(fun=functions.quartic, grad=functions.quartic_gradient),
    "value_and_grad": scalar(value_and_grad=functions.quartic_pair),
    "vjp": vector(vjp=functions.cube_vjp, jvp=functions.cube_jvp),
    "jac": vector(jac=functions.cube_jacobian),
    "solver": solver(functions.Cubic),
    "solver_recompute": solver(functions.Cubic, state="recompute"),
    "locked_recompute": solver(functions.Locked, state="recompute"),
    "subclass": Subclass,
    "subclass_recompute": lambda **options: Subclass(state="recompute", **options),
    "number_vjp": lambda **options: differentiable(
        functions.sum_of_cubes, vjp=functions.sum_of_cubes_vjp, jvp=functions.sum_of_cubes_jvp, batch="loop", **options
    ),
    "number_solver": solver(functions.SumOfCubes),
    "number_solver_recompute": solver(functions.SumOfCubes, state="recompute"),
}
LOCAL = {"locked_recompute": "solver_recompute"}
WITHOUT_HVP = {"number_vjp"}


def points(*shape, dtype=torch.float64, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def total(y):
    return (y**2).sum()


def backward(op, x):
    x = x.clone().requires_grad_()
    y = op(x)
    total(y).backward(retain_graph=True)
    once = x.grad.clone()
    total(y).backward()
    return y.detach(), once, x.grad


def second(op, x):
    x = x.clone().requires_grad_()
    (g,) = torch.autograd.grad(total(op(x)), x, create_graph=True)
    return torch.autograd.grad((g**2).sum(), x)


def recomputed(op, x):
    x = x.clone().requires_grad_()
    total(checkpoint(op, x, use_reentrant=False)).backward()
    return x.grad


FIRST = {
    "value": lambda op, x: op(x),
    "backward": backward,
    "vmap": lambda op, x: func.vmap(op)(x),
    "grad": lambda op, x: func.grad(lambda x: total(op(x)))(x),
    "vmap of grad": lambda op, x: func.vmap(func.grad(lambda x: total(op(x))))(x),
    "jacrev": lambda op, x: func.jacrev(op)(x),
    "vmap of jacrev": lambda op, x: func.vmap(func.jacrev(op))(x),
    "jvp": lambda op, x: func.jvp(op, (x,), (torch.cos(x),)),
    "jacfwd": lambda op, x: func.jacfwd(op)(x),
    "vmap of jacfwd": lambda op, x: func.vmap(func.jacfwd(op))(x),
    "checkpoint": recomputed,
    "batch of (2, 3)": lambda op, x: backward(op, torch.stack([x, 2 * x])),
    "vmap of a batch": lambda op, x: func.vmap(op)(torch.stack([x, 2 * x])),
    "batch of one": lambda op, x: backward(op, x[:1]),
    "one sample": lambda op, x: backward(op, x[0]),
    "empty batch": lambda op, x: backward(op, x[:0]),
    "float32": lambda op, x: backward(op, x.float()),
    "strided": lambda op, x: backward(op, x.t().contiguous().t()),
}
SECOND = {
    "twice": second,
    "hessian": lambda op, x: func.hessian(lambda x: total(op(x)))(x[:2]),
    "vmap of hessian": lambda op, x: func.vmap(func.hessian(lambda x: total(op(x))))(x[:2]),
}


def flat(found):
    return [found] if isinstance(found, torch.Tensor) else [each for part in found for each in flat(part)]


def same(found, wanted):
    found, wanted = flat(found), flat(wanted)
    return len(found) == len(wanted) and all(
        a.dtype == b.dtype and torch.equal(a, b) for a, b in zip(found, wanted, strict=True)
    )


def differing(routes, op, local, x):
    return [name for name, route in routes.items() if not same(route(op, x), route(local, x))]


@pytest.mark.parametrize("executor", ["threads", "fork"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_route_gives_the_numbers_that_it_gives_without_an_executor(kind, executor, pools):
    op, local = KINDS[kind](executor=pools(executor)), KINDS[LOCAL.get(kind, kind)]()
    routes = FIRST if kind in WITHOUT_HVP else FIRST | SECOND
    assert differing(routes, op, local, points(3, 3)) == []


@pytest.mark.parametrize("executor", ["process_pool", "loky", "late", "in_this_process"])
@pytest.mark.parametrize("kind", ["grad", "value_and_grad", "vjp", "jac", "solver", "locked_recompute"])
def test_other_executors_give_the_same_numbers_too(kind, executor, pools):
    op, local = KINDS[kind](executor=pools(executor)), KINDS[LOCAL.get(kind, kind)]()
    routes = {name: FIRST[name] for name in ("backward", "vmap of grad", "batch of (2, 3)")} | {"twice": second}
    assert differing(routes, op, local, points(3, 3)) == []


def test_a_subclass_travels_to_a_process_that_then_imports_torch(new_pool):
    op = Subclass(executor=new_pool())
    assert same(backward(op, points(2, 3)), backward(Subclass(), points(2, 3)))
    assert same(second(op, points(2, 3)), second(Subclass(), points(2, 3)))


@pytest.mark.parametrize("kind", ["grad", "jac", "solver_recompute", "number_solver"])
def test_gradcheck_and_gradgradcheck_pass(kind, pools):
    op, x = KINDS[kind](executor=pools("process_pool")), points(2, 3).requires_grad_()
    assert torch.autograd.gradcheck(op, (x,), check_forward_ad=True, check_batched_grad=True)
    assert torch.autograd.gradgradcheck(op, (x,))


@pytest.mark.parametrize("executor", EVERY)
def test_directions_that_are_numbers_do_not_get_each_others_answers(executor, pools):
    """A sample and its output are one number each: so are g and t, and probes differ in nothing else."""
    options = {"batch": "loop", "signature": "()->()"}
    make = lambda **executor: [  # noqa: E731
        differentiable(
            functions.cube_of_one,
            grad=functions.slope_of_one,
            hvp=functions.curvature_of_one,
            **options,
            **executor,
        ),
        differentiable(
            functions.cube_of_one,
            vjp=functions.pulled_back_at_one,
            jvp=functions.pulled_back_at_one,
            **options,
            **executor,
        ),
    ]
    x = torch.tensor([1.0, -2.0, 3.0], dtype=torch.float64)
    for op, local in zip(make(executor=pools(executor)), make(), strict=True):
        routes = {name: FIRST[name] for name in ("backward", "jacrev", "jacfwd", "vmap")}
        routes |= SECOND if op._offers("hvp") else {}
        assert differing(routes, op, local, x) == []
        assert torch.equal(func.jacrev(op)(x), torch.diag(3 * x**2))


@pytest.mark.parametrize("executor", EVERY)
def test_several_inputs_and_outputs_and_arguments_that_are_no_tensors(executor, pools):
    options = {"vjp": functions.mixed_vjp, "batch": "loop", "signature": "(n),(k)->(k),(m)"}
    op, local = (differentiable(functions.mixed, **options, executor=each) for each in (pools(executor), None))

    def gradients(op):
        a, b = points(2, 3, 2).requires_grad_(), points(3, 4, seed=1).requires_grad_()  # b has one batch axis less
        y, z = op(a, b, 3, scale=0.5)
        (total(y) + total(z)).backward()
        return y.detach(), z.detach(), a.grad, b.grad

    assert same(gradients(op), gradients(local))
    one = lambda a, b: total(op(a, b, 3, scale=0.5)[0])  # noqa: E731
    other = lambda a, b: total(local(a, b, 3, scale=0.5)[0])  # noqa: E731
    at = (points(3, 2), points(3, 4))
    assert same(func.vmap(func.grad(one, (0, 1)))(*at), func.vmap(func.grad(other, (0, 1)))(*at))


@pytest.mark.parametrize("executor", ONE_OF_EACH)
def test_a_gradient_may_be_none(executor, pools):
    op = differentiable(
        functions.only_first,
        grad=functions.gradient_of_the_first,
        batch="loop",
        signature="(n),(k)->()",
        executor=pools(executor),
    )
    a, b = points(3, 2).requires_grad_(), points(3, 1)
    op(a, b).sum().backward()
    assert torch.equal(a.grad, 2 * a.detach())


@pytest.mark.parametrize("executor", ONE_OF_EACH)
def test_other_arguments_arrive_as_they_are(executor, pools):
    op = differentiable(
        functions.weighted,
        grad=functions.weighted_gradient,
        batch="loop",
        signature="(n)->()",
        executor=pools(executor),
    )
    x, w = points(4, 3).requires_grad_(), np.array([1.0, 2.0, 3.0])
    y = op(x, {"w": w}, "five!", None)
    y.sum().backward()
    assert torch.allclose(y.detach(), (x.detach() ** 2 @ torch.from_numpy(w)) + 6)
    assert torch.allclose(x.grad, 2 * x.detach() * torch.from_numpy(w))


@pytest.mark.parametrize("executor", EVERY)
def test_aux_comes_in_the_order_of_the_batch(executor, pools):
    op = differentiable(
        functions.quartic_with_aux,
        grad=functions.quartic_gradient,
        aux=True,
        batch="loop",
        executor=pools(executor),
    )
    x = points(6, 3).requires_grad_()
    y, aux = op(x)
    y.sum().backward()
    assert [each["at"].tolist() for each in aux] == x.detach().tolist()
    assert torch.allclose(x.grad, 4 * x.detach() ** 3)


@pytest.mark.parametrize("executor", ONE_OF_EACH)
def test_aux_of_a_solver_is_no_part_of_its_state(executor, pools):
    op = differentiable(functions.WithAux(), aux=True, batch="loop", executor=pools(executor))
    x = points(3, 3).requires_grad_()
    y, aux = op(x)
    y.sum().backward()
    assert aux == x[:, 0].tolist()
    assert torch.allclose(x.grad, 3 * x.detach() ** 2 * torch.from_numpy(functions.A.sum(0)))


@pytest.mark.parametrize("executor", ONE_OF_EACH)
@pytest.mark.parametrize(("tensor", "compute", "size"), [("float32", None, 4), ("float32", "float64", 8)])
def test_functions_get_the_dtype_that_they_get_without_an_executor(tensor, compute, size, executor, pools):
    op = differentiable(
        functions.names_its_dtype, grad=functions.zeros, batch="loop", compute_dtype=compute, executor=pools(executor)
    )
    y = op(points(2, 3, dtype=getattr(torch, tensor)))
    assert y.tolist() == [size, size]
    assert y.dtype == torch.float32


@pytest.mark.parametrize("executor", EVERY)
def test_settings_of_numpy_for_errors_hold_in_workers(executor, pools):
    op = differentiable(functions.quartic, grad=functions.quartic_gradient, batch="loop", executor=pools(executor))
    x = torch.full((2, 3), 1e200, dtype=torch.float64)
    with np.errstate(over="ignore"):
        assert torch.isinf(op(x)).all()
    with np.errstate(over="raise"), pytest.raises(FailedSamples, match="overflow") as caught:
        op(x)
    assert {type(each) for each in caught.value.samples.values()} == {FloatingPointError}


def calls(folder):
    count = lambda what: sum(len(each.read_text()) for each in Path(folder).glob(f"{what}-*"))  # noqa: E731
    return count("value"), count("gradient")


@pytest.mark.parametrize("executor", EVERY)
def test_a_number_and_its_gradient_are_one_task(executor, pools, tmp_path):
    op = differentiable(
        functions.counting,
        grad=functions.counting_gradient,
        batch="loop",
        signature="(n)->()",
        executor=pools(executor),
    )
    x = points(5, 3).requires_grad_()
    y = op(x, str(tmp_path))
    after_forward = op.traffic
    assert after_forward.tasks == 5
    assert calls(tmp_path) == (5, 5)
    y.sum().backward()
    assert op.traffic is after_forward  # no other map
    assert calls(tmp_path) == (5, 5)
    with torch.no_grad():
        op(x, str(tmp_path))
    assert calls(tmp_path) == (10, 5)  # nobody will ask for this gradient


@pytest.mark.parametrize("executor", ["late", "process_pool"])
def test_a_map_for_the_values_and_a_map_for_the_derivatives(executor, pools, monkeypatch):
    pool, maps = pools(executor), []
    op = KINDS["vjp"](executor=pool)
    send = op._workers._send
    monkeypatch.setattr(op._workers, "_send", lambda *asked: maps.append(len(asked[0])) or send(*asked))
    x = points(4, 3).requires_grad_()
    y = op(x)
    assert maps == [4]
    total(y).backward()
    assert maps == [4, 4]
    assert op.traffic.tasks == 4
    maps.clear()
    func.vmap(func.jacrev(op))(x.detach())
    assert maps == [4, 4]  # all rows of a Jacobian in one


def test_a_gradient_that_nobody_asks_for_may_be_missing(pools):
    for executor in (None, pools("threads"), pools("process_pool")):
        op = differentiable(functions.quartic, grad=functions.gradient_is_not_written, batch="loop", executor=executor)
        x = points(2, 3)
        assert torch.equal(func.vmap(op)(x), op(x))
        assert torch.equal(op(x.clone().requires_grad_()).detach(), op(x))


def test_traffic_says_what_travelled(pools):
    op = KINDS["solver"](executor=pools("process_pool"))
    again = KINDS["solver_recompute"](executor=pools("process_pool"))
    x = points(4, 3).requires_grad_()
    for each, states in ((op, True), (again, False)):
        y = each(x)
        there = each.traffic
        y.sum().backward()
        back = each.traffic
        assert there.tasks == back.tasks == 4
        for traffic in (there, back):
            assert (traffic.states > 4 * 3 * 8) == states  # at least the arrays
            assert 4 * traffic.functions < traffic.sent
            assert traffic.states <= traffic.sent + traffic.received
            assert traffic.busy > 0
            assert traffic.wall > 0
    with pytest.raises(ValueError, match="executor="):
        _ = KINDS["solver"]().traffic


@pytest.mark.parametrize("draws", ["independent", "evaluation", "step"])
def test_noise_does_not_depend_on_the_number_of_workers(draws, importable):
    from concurrent.futures import ThreadPoolExecutor

    from executor_pools import Late

    def trained(executor):
        op = KINDS["grad"](noise=GaussianFactor(0.3), rng=7, draws=draws, executor=executor)
        torch.manual_seed(0)
        x = points(5, 3).requires_grad_()
        found = []
        for _ in range(3):
            y = op(x)
            (g,) = torch.autograd.grad(y.sum(), x)
            found += [y.detach(), g]
            if draws == "step":
                op.advance()
        return torch.cat([each.flatten() for each in found])

    executors = [ThreadPoolExecutor(count) for count in (1, 2, 8)]
    wanted = trained(None)
    assert wanted.unique().numel() > 20  # there is noise
    for executor in (*executors, Late()):
        assert torch.equal(trained(executor), wanted)
        executor.shutdown()


def test_noise_is_the_same_in_one_process_and_in_two(pools, new_pool):
    make = lambda executor: KINDS["vjp"](noise=GaussianFactor(0.3), rng=7, executor=executor)  # noqa: E731
    found = []
    for executor in (None, new_pool(count=1), pools("process_pool")):
        torch.manual_seed(0)
        found.append(backward(make(executor), points(4, 3)))
    assert same(found[0], found[1])
    assert same(found[0], found[2])


REMEMBERING = {
    "object": lambda **options: differentiable(functions.Remembering(), batch="loop", **options),
    "object_recompute": lambda **options: differentiable(
        functions.Remembering(), batch="loop", state="recompute", **options
    ),
    "global": lambda **options: differentiable(
        functions.forgetful_cube, vjp=functions.forgetful_vjp, batch="loop", signature="(n)->(n)", **options
    ),
    "buffer": lambda **options: differentiable(
        functions.writes_into_a_buffer, vjp=functions.reads_the_buffer, batch="loop", signature="(n)->(n)", **options
    ),
}


@pytest.mark.parametrize("executor", EVERY)
@pytest.mark.parametrize("kind", REMEMBERING)
def test_solvers_that_remember_are_right(kind, executor, pools):
    op = REMEMBERING[kind](executor=pools(executor))
    for seed in range(3):
        a, b = points(4, 3, seed=seed).requires_grad_(), points(4, 3, seed=seed + 9).requires_grad_()
        y, z = op(a), op(b)
        (y.sum() + 2 * z.sum()).backward()
        slope = torch.from_numpy(functions.A.sum(0))
        assert torch.allclose(a.grad, 3 * a.detach() ** 2 * slope)
        assert torch.allclose(b.grad, 6 * b.detach() ** 2 * slope)


@pytest.mark.parametrize("executor", ["threads", "in_this_process", "process_pool"])
def test_an_op_here_and_an_op_with_an_executor_may_share_what_they_remember(executor, pools):
    here, there = REMEMBERING["global"](), REMEMBERING["global"](executor=pools(executor))
    slope = torch.from_numpy(functions.A.sum(0))
    for seed in range(5):
        x = points(1, 3, seed=seed).requires_grad_()
        y = here(x)
        there(points(3, 3, seed=seed + 9))  # it writes over what the first solve has left in the module
        y.sum().backward()
        assert torch.allclose(x.grad, 3 * x.detach() ** 2 * slope)


@pytest.mark.parametrize("executor", ["threads", "in_this_process"])
def test_another_op_that_disturbs_a_solver_waits_for_its_turn(executor, pools):
    op = differentiable(
        functions.forgetful_cube,
        vjp=functions.reads_the_latest_slowly,
        batch="loop",
        signature="(n)->(n)",
        executor=pools(executor),
    )
    other = differentiable(functions.disturbs, grad=functions.ones, batch="loop", executor=pools(executor))
    many, done = points(6, 3), threading.Event()
    backward(op, many)

    def disturb():
        while not done.is_set():
            other(many)

    thread = threading.Thread(target=disturb)
    thread.start()
    try:
        found = [backward(op, many)[1] for _ in range(3)]
    finally:
        done.set()
        thread.join()
    wanted = backward(KINDS["vjp"](), many)[1]
    assert all(torch.allclose(each, wanted) for each in found)


def test_two_threads_may_use_one_op(pools):
    op, local = KINDS["solver"](executor=pools("process_pool")), KINDS["solver"]()
    found = {}

    def work(seed):
        found[seed] = [backward(op, points(3, 3, seed=seed)) for _ in range(4)]

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for seed in range(3):
        assert all(same(each, backward(local, points(3, 3, seed=seed))) for each in found[seed])


@pytest.mark.parametrize("kind", ["grad", "solver", "subclass"])
def test_a_module_is_copied_with_its_executor(kind, pools):
    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.op, self.weight = KINDS[kind](executor=pools("fork")), torch.nn.Parameter(points(3))

        def forward(self, x):
            return self.op(x * self.weight)

    layer = Layer()
    twin = copy.deepcopy(layer)
    assert twin.op is not layer.op
    x = points(4, 3)
    assert torch.equal(twin(x), layer(x))
    total(twin(x)).backward()
    assert twin.op.traffic.tasks == 4
    assert layer.weight.grad is None


@pytest.mark.parametrize("kind", ["grad", "vjp", "solver", "subclass"])
def test_a_pickled_op_has_no_executor(kind, pools):
    op = pickle.loads(pickle.dumps(KINDS[kind](executor=pools("process_pool"))))
    assert op.executor is None
    assert same(backward(op, points(3, 3)), backward(KINDS[kind](), points(3, 3)))
    with pytest.raises(ValueError, match="executor="):
        _ = op.traffic


def test_a_plain_copy_and_spawned_ops_keep_the_executor(pools):
    op = KINDS["grad"](executor=pools("process_pool"), noise=GaussianFactor(0.1), rng=0)
    for twin in (copy.copy(op), *op.spawn(2)):
        twin(points(3, 3))
        assert twin.traffic.tasks == 3


def test_a_compiled_program_gives_the_same_numbers(pools):
    op, x = KINDS["vjp"](executor=pools("process_pool")), points(3, 3)
    assert same(backward(torch.compile(op, backend="aot_eager"), x), backward(KINDS["vjp"](), x))


def test_verify_looks_at_an_op_with_an_executor(pools):
    for kind in ("grad", "solver", "jac"):
        assert "agrees" in KINDS[kind](executor=pools("process_pool")).verify(points(2, 3))
