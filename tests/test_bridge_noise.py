"""The noise of the bridge: which evaluation has which draw, and that everything torch computes again repeats it."""

import copy
import functools
import multiprocessing
import pickle
import threading
import traceback
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pytest
import torch
from bridge_patients import assert_same, cotangents, numbers, rosenbrock_torch, solve, solve_torch, solve_vjp
from torch import autograd, func
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset, get_worker_info

from helpers import ExternalFunction, GaussianFactor, UniformFactor, differentiable, rosenbrock

X = numbers(2)
MANY = numbers(4, 2, seed=3)
EXACT = {"value": rosenbrock_torch, "slope": func.grad(rosenbrock_torch), "bend": func.hessian(rosenbrock_torch)}
DRAWS = ["independent", "evaluation", "step"]
every_kind = pytest.mark.parametrize("draws", DRAWS)
both_checkpoints = pytest.mark.parametrize("reentrant", [True, False], ids=["reentrant", "not_reentrant"])
shared = pytest.mark.parametrize("draws", ["evaluation", "step"])


def noisy(draws="evaluation", seed=0, noise=None, **options):
    return differentiable(
        rosenbrock.value,
        grad=rosenbrock.gradient,
        hvp=rosenbrock.hvp,
        noise=noise or UniformFactor(0.5),
        rng=seed,
        draws=draws,
        **options,
    )


class Noisy(ExternalFunction):
    noise, rng = UniformFactor(0.5), 7

    def forward(self, x):
        return np.sinh(x), x

    def adjoint(self, x, g):
        return g * np.cosh(x)

    def hvp(self, x, g, t):
        return g * t * np.sinh(x)

    def tangent(self, x, t):
        return t * np.cosh(x)


def factor_of(found, exact):
    """Return the one factor that all entries have in common."""
    kept = exact.abs() > 1e-9
    factors = (found.detach() / exact)[kept]
    assert_same(factors, factors[0].expand(factors.shape))
    return float(factors[0])


def factors_of(y, x):
    """Return the factors of a value and of its gradient."""
    (slope,) = autograd.grad(y, x, retain_graph=True)
    return factor_of(y, EXACT["value"](x.detach())), factor_of(slope, EXACT["slope"](x.detach()))


def leaf(x=X):
    return x.clone().requires_grad_()


def run(op, times=3):
    """Return the factors of values and gradients, one pair a call."""
    found = []
    for _ in range(times):
        x = leaf()
        found.append(factors_of(op(x), x))
    return found


def close(one, other):
    assert one == pytest.approx(other, abs=1e-12)


def apart(factors):
    """Say that no two factors are equal."""
    assert np.diff(np.sort(factors)).min() > 1e-9


# --- which draws belong together


def test_independent_draws():
    apart([factor for pair in run(noisy("independent")) for factor in pair])


def test_one_draw_for_an_evaluation():
    pairs = run(noisy())
    for value, slope in pairs:
        close(value, slope)
    apart([value for value, _ in pairs])


def test_one_draw_for_a_step():
    op = noisy("step")
    seen = []
    for _ in range(3):
        found = [factor for pair in run(op) for factor in pair]
        close(found, [found[0]] * 6)
        seen.append(found[0])
        op.advance()
    apart(seen)


def test_a_gradient_after_advance_has_the_draw_of_its_value():
    op, x = noisy("step"), leaf()
    y = op(x)
    op.advance()
    op(leaf()).backward()
    close(*factors_of(y, x))


@pytest.mark.parametrize("noise", [UniformFactor(0.2), GaussianFactor(0.1)], ids=["uniform", "gaussian"])
def test_the_factor_is_that_of_the_noise(noise):
    op = noisy("step", noise=noise)
    values = [float(op(X)) / float(EXACT["value"](X)) for _ in range(200) if not op.advance()]
    assert np.std(values) == pytest.approx({"U": 0.2 / 3**0.5, "G": 0.1}[type(noise).__name__[0]], rel=0.15)


# --- seeds

SEEDS = {
    "int": lambda: 5,
    "SeedSequence": lambda: np.random.SeedSequence(5),
    "spawned": lambda: np.random.SeedSequence(5).spawn(2)[1],
    "Generator": lambda: np.random.default_rng(5),
}


@every_kind
@pytest.mark.parametrize("seed", SEEDS.values(), ids=SEEDS.keys())
def test_the_same_seed_gives_the_same_numbers(seed, draws):
    first = run(noisy(draws, seed()))
    assert first == run(noisy(draws, seed())) != run(noisy(draws, 6))


def test_two_ops_of_one_generator_differ_and_the_generator_is_as_it_was_used():
    rng = np.random.default_rng(5)
    apart([value for _ in range(2) for value, _ in run(noisy(seed=rng))])


def test_the_seed_sequence_of_a_user_is_not_changed():
    seed = np.random.SeedSequence(5)
    run(noisy(seed=seed))
    noisy(seed=seed).spawn(2)
    assert seed.n_children_spawned == 0


def test_torch_seeds_do_not_matter():
    found = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        found.append(run(noisy()))
    assert found[0] == found[1]


# --- derivatives repeat the draw


@shared
def test_all_orders_have_the_draw_of_their_evaluation(draws):
    op, x = noisy(draws), leaf()
    y = op(x)
    op(leaf())
    (slope,) = autograd.grad(y, x, create_graph=True)
    bend = torch.stack([autograd.grad(slope, x, row, retain_graph=True)[0] for row in torch.eye(2, dtype=x.dtype)])
    close(
        [factor_of(slope, EXACT["slope"](X)), factor_of(bend, EXACT["bend"](X))], [factor_of(y, EXACT["value"](X))] * 2
    )


def test_an_independent_derivative_keeps_its_own_draw():
    op, x = noisy("independent"), leaf()
    y = op(x)
    (slope,) = autograd.grad(y, x, create_graph=True)
    bend = torch.stack([autograd.grad(slope, x, row, retain_graph=True)[0] for row in torch.eye(2, dtype=x.dtype)])
    close(factor_of(bend, EXACT["bend"](X)), factor_of(slope, EXACT["slope"](X)))
    assert abs(factor_of(slope, EXACT["slope"](X)) - factor_of(y, EXACT["value"](X))) > 1e-9


@every_kind
@pytest.mark.parametrize("make", [noisy, None], ids=["function", "class"])
def test_two_backwards_have_one_draw(make, draws):
    op, x = (make(draws) if make else Noisy()), leaf()
    y = op(x)
    y.sum().backward(retain_graph=True)
    first = x.grad.clone()
    op(leaf())
    y.sum().backward()
    assert_same(x.grad, 2 * first, 1e-14)


@shared
def test_func_transforms_have_one_draw(draws):
    op = noisy(draws)
    slope, value = func.grad_and_value(op)(X)
    close(factor_of(slope, EXACT["slope"](X)), factor_of(value, EXACT["value"](X)))
    value, tangent = func.jvp(op, (X,), (X,))
    close(factor_of(tangent, EXACT["slope"](X) @ X), factor_of(value, EXACT["value"](X)))
    both = lambda x: (func.grad_and_value(op)(x),) * 2  # noqa: E731
    (bend, _), (slope, value) = func.jacrev(both, has_aux=True)(X)
    found = [factor_of(bend, EXACT["bend"](X)), factor_of(slope, EXACT["slope"](X))]
    close(found, [factor_of(value, EXACT["value"](X))] * 2)


def linear_system(seed=0, **options):
    return differentiable(solve, vjp=solve_vjp, noise=UniformFactor(0.5), rng=seed, **options)


def test_all_rows_of_a_jacobian_have_one_draw():
    matrix, right = numbers(2, 2) + 3 * torch.eye(2), numbers(2)
    for jacobian in (func.jacrev, lambda f: lambda b: autograd.functional.jacobian(f, b, vectorize=True)):
        op = linear_system()
        found = jacobian(functools.partial(op, matrix))(right)
        value = linear_system()(matrix, right)
        close(factor_of(found, torch.linalg.inv(matrix)), factor_of(value, solve_torch(matrix, right)))


@pytest.mark.parametrize("over", ["vmap", "loop", "vectorized"])
def test_each_sample_has_its_own_draw(over):
    op = noisy(batch=None if over == "vmap" else over)
    many = leaf(MANY)
    y = func.vmap(op)(many) if over == "vmap" else op(many)
    y.sum().backward()
    values = [factor_of(*pair) for pair in zip(y, rosenbrock_torch(MANY), strict=True)]
    slopes = [factor_of(g, EXACT["slope"](x)) for g, x in zip(many.grad, MANY, strict=True)]
    close(values, slopes)
    apart(values)


@every_kind
def test_a_loop_and_a_vectorised_batch_have_the_same_draws(draws):
    found = []
    for batch in ("loop", "vectorized"):
        op, x = noisy(draws, batch=batch), leaf(MANY)
        y = op(x)
        (slope,) = autograd.grad(y.sum(), x, create_graph=True)
        (bend,) = autograd.grad((slope**2).sum(), x)
        found.append([y, slope, bend])
    assert_same(*found)


def test_vmap_of_a_hessian_has_a_draw_for_each_sample():
    bends = func.vmap(func.hessian(noisy()))(MANY)
    apart([factor_of(bend, EXACT["bend"](x)) for bend, x in zip(bends, MANY, strict=True)])


# --- checkpoints


@both_checkpoints
@every_kind
def test_a_checkpoint_repeats_the_draws_of_its_segment(draws, reentrant):
    def segments(op, wrap):
        x = leaf()
        once = wrap(lambda x: x * op(x) + x.sin() * op(x), x)
        twice = wrap(lambda x: x * op(x), once / 10)
        loss = (twice + once).sum()
        op(leaf())
        loss.backward()
        return [loss, x.grad]

    plain = segments(noisy(draws), lambda f, x: f(x))
    assert_same(segments(noisy(draws), lambda f, x: checkpoint(f, x, use_reentrant=reentrant)), plain)


@both_checkpoints
def test_segments_computed_again_in_reverse_order(reentrant):
    op, xs = noisy(), [leaf() for _ in range(4)]
    ys = [checkpoint(op, x, use_reentrant=reentrant) for x in xs]
    for x, y in [*zip(xs, ys, strict=True)][::-1]:
        y.backward()
        close(factor_of(x.grad, EXACT["slope"](X)), factor_of(y, EXACT["value"](X)))
    apart([factor_of(y, EXACT["value"](X)) for y in ys])


@both_checkpoints
def test_a_checkpoint_beside_torch_randomness(reentrant):
    generator_state = torch.get_rng_state()
    op, x = noisy(), leaf()

    def segment(x):
        return op(x) * torch.nn.functional.dropout(torch.ones(50, dtype=x.dtype)).sum() * op(x)

    y = checkpoint(segment, x, use_reentrant=reentrant)
    y.backward()
    assert_same(x.grad, 2 * y.detach() / EXACT["value"](X) * EXACT["slope"](X))
    torch.set_rng_state(generator_state)


@both_checkpoints
def test_a_checkpoint_without_the_random_state_is_an_error(reentrant):
    op, x = noisy(), leaf()
    y = checkpoint(lambda x: op(x).sin(), x, use_reentrant=reentrant, preserve_rng_state=False)
    with pytest.raises(RuntimeError, match=r"draw is not known.*preserve_rng_state=True"):
        y.backward()


@both_checkpoints
def test_segments_that_begin_with_the_same_torch_seed_are_right_or_an_error(reentrant):
    op, xs, ys = noisy(), [leaf(), leaf()], []
    segment = lambda x: op(x).exp().log()  # noqa: E731
    for x in xs:
        torch.manual_seed(0)
        ys.append(checkpoint(segment, x, use_reentrant=reentrant))
    try:
        ys[0].backward()
    except RuntimeError as error:
        assert "draw" in str(error)  # noqa: PT017
    else:
        close(factor_of(xs[0].grad, EXACT["slope"](X)), factor_of(ys[0], EXACT["value"](X)))


@both_checkpoints
def test_a_run_that_is_repeated_with_its_torch_seed_is_no_error(reentrant):
    op = noisy()
    for _ in range(2):
        torch.manual_seed(0)
        x = leaf()
        y = checkpoint(lambda x: op(x).exp().log(), x, use_reentrant=reentrant)
        y.backward()
        close(factor_of(x.grad, EXACT["slope"](X)), factor_of(y, EXACT["value"](X)))


def test_a_second_derivative_through_a_checkpoint_has_the_draw():
    op, x = noisy(), leaf()
    y = checkpoint(op, x, use_reentrant=False)
    (slope,) = autograd.grad(y, x, create_graph=True)
    (bend,) = autograd.grad(slope.sum(), x)
    close(factor_of(bend, EXACT["bend"](X).sum(0)), factor_of(y, EXACT["value"](X)))


# --- workers


def test_spawned_ops_differ_and_are_repeatable():
    def all_runs(op):
        return [run(each, 2) for each in op.spawn(3)]

    first = all_runs(noisy())
    assert first == all_runs(noisy())
    apart([value for pairs in [*first, run(noisy(), 2)] for value, _ in pairs])
    again = noisy()
    apart([value for _ in range(2) for pairs in all_runs(again) for value, _ in pairs])
    nested = noisy().spawn(1)[0].spawn(2)
    apart([value for op in nested for value, _ in run(op, 2)])


@every_kind
def test_a_copy_in_the_same_process_goes_on_where_the_op_stood(draws):
    op = noisy(draws)
    run(op)
    copies = [copy.deepcopy(op), pickle.loads(pickle.dumps(op))]
    expected = run(op)
    assert [run(each) for each in copies] == [expected] * 2


PLAIN = differentiable(rosenbrock.value, grad=rosenbrock.gradient)


def answer(ops):
    found = []
    for op in ops:
        try:
            found.append(run(op, 2))
        except RuntimeError as error:
            found.append(str(error))
    return found


def ask(ops, method):
    """Return what the ops give in another process."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context(method)) as pool:
        return pool.submit(answer, ops).result()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("method", sorted({"fork", "spawn"} & set(multiprocessing.get_all_start_methods())))
def test_an_op_in_another_process_is_an_error_and_spawned_ops_are_the_cure(method):
    op = noisy()
    message, plain, *found = ask([op, PLAIN, *op.spawn(2)], method)
    assert "Send each process one op from op.spawn(count)" in message
    assert found == [run(each, 2) for each in noisy().spawn(2)]
    assert_same(torch.tensor(plain), torch.ones(2, 2), 1e-6)


class Samples(Dataset):
    def __init__(self, ops):
        self.ops = ops

    def __len__(self):
        return 8

    def __getitem__(self, index):
        worker = get_worker_info()
        return self.ops[worker.id](X)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_workers_of_a_loader():
    def load(ops):
        loader = DataLoader(Samples(ops), batch_size=2, num_workers=2, generator=torch.Generator().manual_seed(3))
        return (torch.cat([*loader]) / EXACT["value"](X)).tolist()

    found = load(noisy().spawn(2))
    apart(found)
    assert found == load(noisy().spawn(2))
    with pytest.raises(RuntimeError, match=r"Send each process one op from op.spawn\(count\)") as caught:
        load([noisy()] * 2)
    traceback.clear_frames(caught.tb)  # ends the workers now; the collector would wait 10 s for them


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("stay", [True, False], ids=["workers_stay", "new_workers"])
def test_a_second_epoch_has_new_draws_or_is_an_error(stay):
    ops = noisy().spawn(2)
    loader = DataLoader(Samples(ops), batch_size=2, num_workers=2, persistent_workers=stay)
    first = torch.cat([*loader])
    try:
        second = torch.cat([*loader])
    except RuntimeError as error:
        traceback.clear_frames(error.__traceback__)
        assert "spawn" in str(error)  # noqa: PT017
    else:
        apart([*first.tolist(), *second.tolist()])


# --- statistics and threads


@every_kind
def test_the_mean_of_many_noisy_gradients_is_the_gradient(draws):
    count = 4000
    op = noisy(draws, batch="vectorized")
    x = leaf(X.expand(count, 2))
    op(x).sum().backward()
    slopes = x.grad
    z = (slopes.mean(0) / EXACT["slope"](X) - 1) / (0.5 / 3**0.5 / count**0.5)
    assert float(z.abs().max()) < 4
    assert float((slopes / EXACT["slope"](X)).std(0).max()) == pytest.approx(0.5 / 3**0.5, rel=0.05)


@pytest.mark.parametrize("make", [noisy, Noisy], ids=["function", "class"])
def test_eight_threads_have_right_gradients_and_their_own_draws(make):
    op, found, failures = make(), [], []
    value, slope = (EXACT["value"], EXACT["slope"]) if make is noisy else (torch.sinh, torch.cosh)
    start = threading.Barrier(8)

    def work(index):
        start.wait()
        try:
            for step in range(25):
                at = X + 0.1 * index + 0.01 * step
                x = leaf(at)
                y = op(x)
                autograd.backward(y, cotangents(y))
                factor = factor_of(y, value(at))
                close(factor_of(x.grad, slope(at) * cotangents(y)[0]), factor)
                found.append(factor)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert len(found) == 200
    apart(found)
