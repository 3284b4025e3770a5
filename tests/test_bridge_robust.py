"""Threads, memory, failures half-way, other processes, and every unusual kind of tensor or mode of torch."""

import gc
import math
import sys
import threading
import weakref
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_all_start_methods, get_context

import numpy as np
import psutil
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks

from helpers import ExternalFunction, UniformFactor, differentiable, rosenbrock

GRADIENT = torch.tensor([-1.98, 0.9], dtype=torch.float64)


def tensor(*numbers, dtype=torch.float64, grad=True):
    return torch.tensor(numbers or (0.1, 0.1), dtype=dtype, requires_grad=grad)


def same(found, truth, tolerance=1e-12):
    torch.testing.assert_close(
        found.detach(), torch.as_tensor(truth, dtype=torch.float64), rtol=tolerance, atol=tolerance
    )


def value(x):
    return np.sum(x**3)


def gradient(x):
    return 3 * x**2


def product(x, t):
    return 6 * x * t


class Remembers:
    """A solver whose gradient is that at its latest solve."""

    def value(self, x):
        self.x = x
        return value(x)

    def gradient(self, x):
        return gradient(self.x)


class Cube(ExternalFunction):
    def forward(self, x):
        return value(x), {"x": x, "slope": 3 * x**2}

    def adjoint(self, state, g):
        return g * state["slope"]


class Big:
    """A factorisation or the like: an object that the bridge keeps as it is."""

    def __init__(self, x):
        self.slope = 3 * x**2


class CubeWithObject(ExternalFunction):
    def forward(self, x):
        return value(x), Big(x)

    def adjoint(self, state, g):
        return g * state.slope


def with_state():
    solver = Remembers()
    return differentiable(solver.value, grad=solver.gradient)


OPS = {
    "grad": lambda: differentiable(value, grad=gradient),
    "value_and_grad": lambda: differentiable(value_and_grad=lambda x: (value(x), gradient(x))),
    "vjp": lambda: differentiable(value, vjp=lambda x, g: g * gradient(x)),
    "jac": lambda: differentiable(value, jac=gradient),
    "solver with a memory": with_state,
    "class": Cube,
    "class with an object": CubeWithObject,
}
every_op = pytest.mark.parametrize("kind", OPS)


# --- threads


def in_threads(work, count=8):
    """Run work(number) in so many threads that begin at the same time; return what they give."""
    barrier = threading.Barrier(count)

    def begin(number):
        barrier.wait(timeout=60)
        return work(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(begin, range(count)))


@pytest.fixture
def eager_switching():
    """Let Python change threads as often as it can."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


@every_op
@pytest.mark.usefixtures("eager_switching")
def test_eight_threads_share_an_op(kind):
    op = OPS[kind]()

    def work(number):
        wrong = 0
        for step in range(60):
            x = tensor(number + 1.0, step - 30.0)
            y = op(x)
            y.backward()
            wrong += not torch.equal(x.grad, 3 * x.detach() ** 2) or y.item() != value(x.detach().numpy())
        return wrong

    assert in_threads(work) == [0] * 8


@pytest.mark.usefixtures("eager_switching")
@pytest.mark.parametrize("form", ["grad", "vjp"])
def test_eight_threads_share_a_solver_that_hands_out_its_buffers(form):
    """The next solve, in another thread, writes into the arrays that this one has returned."""

    class Solver:
        def __init__(self):
            self.y, self.slope = np.zeros(200), np.zeros(200)

        def value(self, x):
            self.slope[:] = 3 * x**2
            self.y[:] = x**3
            return self.y if form == "vjp" else self.y[..., 0]

        def gradient(self, x):
            gradient = self.slope
            gradient[1:] = 0
            return gradient

        def vjp(self, x, g):
            self.slope *= g
            return self.slope

    solver = Solver()
    derivative = {"grad": solver.gradient} if form == "grad" else {"vjp": solver.vjp}
    op = differentiable(solver.value, **derivative)

    def work(number):
        wrong = 0
        for step in range(40):
            x = torch.full((200,), number + 1.0 + step, dtype=torch.float64, requires_grad=True)
            y = op(x)
            (slope,) = torch.autograd.grad(y.sum(), x)
            entries = slice(None) if form == "vjp" else slice(1)
            wrong += not torch.equal(y.detach().expand(200)[entries], x.detach()[entries] ** 3)
            wrong += not torch.equal(slope[entries], 3 * x.detach()[entries] ** 2)
        return wrong

    assert in_threads(work) == [0] * 8


@pytest.mark.usefixtures("eager_switching")
def test_eight_threads_share_a_first_check():
    op = differentiable(value, grad=gradient, hvp=product, check="first")

    def work(number):
        x = tensor(number + 1.0)
        return torch.autograd.functional.hessian(op, x).item()

    op(tensor(1.0))
    assert in_threads(work) == [6.0 * (number + 1) for number in range(8)]


@pytest.mark.usefixtures("eager_switching")
@pytest.mark.parametrize("draws", ["evaluation", "step"])
def test_eight_threads_share_the_noise(draws):
    op = differentiable(value, grad=gradient, noise=UniformFactor(0.5), rng=0, draws=draws)

    def work(number):
        factors = []
        for _ in range(40):
            x = tensor(number + 1.0)
            y = op(x)
            y.backward()
            factors.append(y.item() / (number + 1.0) ** 3)
            assert x.grad.item() == pytest.approx(factors[-1] * 3 * (number + 1.0) ** 2, rel=1e-12)
        return factors

    found = {round(factor, 9) for factors in in_threads(work) for factor in factors}
    assert len(found) == (1 if draws == "step" else 8 * 40)


@pytest.mark.usefixtures("eager_switching")
def test_forward_in_one_thread_and_backward_in_another():
    op = with_state()
    xs = [tensor(number + 1.0) for number in range(8)]
    ys = in_threads(lambda number: op(xs[number]))
    in_threads(lambda number: ys[7 - number].backward())
    assert [x.grad.item() for x in xs] == [3.0 * (number + 1) ** 2 for number in range(8)]


def test_a_solver_that_calls_its_own_op():
    """The lock of a solver with a memory must let its own thread in again."""

    class Solver(Remembers):
        def gradient(self, x):
            inner = tensor(*x.tolist())
            op(inner)
            return super().gradient(x)

    solver = Solver()
    op = differentiable(solver.value, grad=solver.gradient)
    x = tensor(2.0)
    op(x).backward()
    same(x.grad, [12.0])


@pytest.mark.parametrize("allowed", [True, False])
def test_multithreading_of_backward(allowed):
    for make in OPS.values():
        x = tensor(1.0, 2.0)
        with torch.autograd.set_multithreading_enabled(allowed):
            make()(x).backward()
        same(x.grad, [3.0, 12.0])


# --- memory


def dead(references):
    return [reference() is None for reference in references]


@pytest.fixture
def no_collector():
    """Show what lives on by itself, without the collector of cycles."""
    gc.disable()
    yield
    gc.enable()


@every_op
@pytest.mark.usefixtures("no_collector")
def test_everything_dies_with_the_graph(kind):
    references = []

    class Watched(ExternalFunction):
        def forward(self, x):
            state = Big(x)
            references.extend([weakref.ref(x), weakref.ref(state)])
            return value(x), state

        def adjoint(self, state, g):
            return g * state.slope

    def watched_value(x):
        references.append(weakref.ref(x))
        return value(x)

    def once(backward):
        ops = {
            "grad": lambda: differentiable(watched_value, grad=gradient),
            "value_and_grad": lambda: differentiable(value_and_grad=lambda x: (watched_value(x), gradient(x))),
            "vjp": lambda: differentiable(watched_value, vjp=lambda x, g: g * gradient(x)),
            "jac": lambda: differentiable(watched_value, jac=gradient),
            "class": Watched,
        }
        op = ops.get(kind, ops["class"])()
        for n in (2, 40):
            for _ in range(2):
                x = tensor(*np.ones(n))
                y = op(x)
                if backward:
                    y.backward()
                references.extend([weakref.ref(x), weakref.ref(y)])

    for backward in (False, True):
        once(backward)
        assert all(dead(references))


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize(
    "use",
    [
        lambda op, x: torch.autograd.functional.hessian(op, x),
        lambda op, x: torch.func.hessian(op)(x.detach()),
        lambda op, x: torch.func.vmap(torch.func.grad(op))(torch.stack([x, x]).detach()),
        lambda op, x: torch.func.jvp(op, (x.detach(),), (x.detach(),)),
        lambda op, x: torch.utils.checkpoint.checkpoint(op, x, use_reentrant=False).backward(),
        lambda op, x: torch.autograd.gradcheck(op, x),
    ],
    ids=["hessian", "func.hessian", "vmap", "jvp", "checkpoint", "gradcheck"],
)
def test_arrays_die_after_every_use(use):
    references = []

    def watched(x):
        references.append(weakref.ref(x))
        return value(x)

    op = differentiable(watched, grad=gradient, hvp=product)
    use(op, tensor(1.0, 2.0))
    gc.collect()  # torch.func itself makes cycles
    assert references
    assert all(dead(references))


@pytest.mark.parametrize("n", [2, 1000])
@pytest.mark.parametrize("kind", ["grad", "value_and_grad", "vjp", "jac", "class"])
@pytest.mark.usefixtures("no_collector")
def test_the_state_is_released_after_backward_although_the_output_lives(kind, n):
    """As torch frees its saved tensors."""
    references = []

    def watch(array):
        references.append(weakref.ref(array))
        return array

    class Watched(ExternalFunction):
        def forward(self, x):
            return value(x), watch(Big(watch(x)))

        def adjoint(self, state, g):
            return g * state.slope

    op = {
        "grad": lambda: differentiable(lambda x: value(watch(x)), grad=gradient),
        "value_and_grad": lambda: differentiable(value_and_grad=lambda x: (value(watch(x)), gradient(x))),
        "vjp": lambda: differentiable(lambda x: value(watch(x)), vjp=lambda x, g: g * gradient(x)),
        "jac": lambda: differentiable(lambda x: value(watch(x)), jac=gradient),
        "class": Watched,
    }[kind]()
    op(tensor(*np.ones(n))).backward()
    references.clear()
    x = tensor(*np.ones(n))
    y = op(x)
    assert not any(dead(references))
    y.backward(retain_graph=True)
    y.backward()
    assert all(dead(references))
    assert y.item() == n
    assert x.grad.sum().item() == 6 * n


@pytest.mark.usefixtures("no_collector")
def test_the_state_is_released_after_a_second_derivative():
    references = []

    class Watched(CubeWithObject):
        def forward(self, x):
            y, state = super().forward(x)
            references.append(weakref.ref(state))
            return y, state

        def hvp(self, state, g, t):
            return 2 * g * np.sqrt(3 * state.slope) * t

    x = tensor(1.0, 2.0)
    y = Watched()(x)
    (first,) = torch.autograd.grad(y, x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    same(second, [6.0, 12.0])
    del first
    y.backward()
    assert all(dead(references))


@pytest.mark.usefixtures("no_collector")
def test_an_op_dies_when_it_is_dropped():
    for make in OPS.values():
        op = make()
        x = tensor(1.0, 2.0)
        op(x).backward()
        reference = weakref.ref(op)
        del op
        assert reference() is None


def growth(work, rounds):
    """Return how many MiB of memory the process has won in the second half of the rounds."""
    process = psutil.Process()
    for _ in range(rounds // 2):
        work()
    gc.collect()
    before = process.memory_info().rss
    for _ in range(rounds // 2):
        work()
    gc.collect()
    return (process.memory_info().rss - before) / 2**20


def test_no_leak_over_1e5_values():
    op, x = OPS["grad"](), tensor(1.0, 2.0)

    def work():
        with torch.no_grad():
            for _ in range(1000):
                op(x)

    assert growth(work, 100) < 8


@every_op
def test_no_leak_over_many_gradients(kind):
    """Each graph holds 80 kB or more, so 150 leaked ones would be 12 MB."""
    op, x = OPS[kind](), tensor(*np.ones(10_000))

    def work():
        x.grad = None
        op(x).backward()

    assert growth(work, 300) < 6


def test_no_leak_of_noise():
    op, x = differentiable(value, grad=gradient, noise=UniformFactor(0.5), rng=0), tensor(*np.ones(10_000))

    def work():
        x.grad = None
        op(x).backward()

    assert growth(work, 300) < 6


def test_no_leak_of_failures():
    def fails(x):
        if fails.on:
            raise ArithmeticError("no")
        return gradient(x)

    fails.on = False
    op, x = differentiable(value, grad=fails), tensor(*np.ones(10_000))
    op(x).backward()
    fails.on = True

    def work():
        y = op(x)
        with pytest.raises(ArithmeticError):
            y.backward()

    assert growth(work, 300) < 6


# --- failures half-way


class StopHereError(Exception):
    pass


def failing(op_of, error):
    """Return an op whose parts fail when their name is in the returned set."""
    broken = set()

    def part(name, function):
        def call(*args):
            if name in broken:
                raise error
            return function(*args)

        return call

    return op_of(part("value", value), part("gradient", gradient)), broken


def failing_class(f, df):
    class Solver(ExternalFunction):
        def forward(self, x):
            return f(x), x

        def adjoint(self, x, g):
            return g * df(x)

    return Solver()


FAILING = {
    "grad": lambda f, df: differentiable(f, grad=df),
    "value_and_grad": lambda f, df: differentiable(value_and_grad=lambda x: (f(x), df(x))),
    "vjp": lambda f, df: differentiable(f, vjp=lambda x, g: g * df(x)),
    "jac": lambda f, df: differentiable(f, jac=df),
    "class": failing_class,
    "loop": lambda f, df: differentiable(f, grad=df, batch="loop"),
}
ERRORS = [StopHereError("stop"), KeyboardInterrupt("stop"), SystemExit("stop"), MemoryError("stop")]


@pytest.mark.parametrize("form", FAILING)
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("warm", [False, True], ids=["first call", "later"])
def test_errors_come_through_and_leave_nothing_behind(form, error, warm):
    op, broken = failing(FAILING[form], error)
    if warm:
        op(tensor(1.0, 2.0)).backward()
    x = tensor(1.0, 2.0)

    broken.add("value")
    with pytest.raises(type(error), match="stop"):
        op(x)
    broken.clear()
    assert torch.is_grad_enabled()

    broken.add("gradient")
    with pytest.raises(type(error), match="stop"):
        op(x).backward()
    assert x.grad is None
    broken.clear()

    op(x).backward()
    same(x.grad, [3.0, 12.0])


@pytest.mark.parametrize("form", [form for form in FAILING if form != "value_and_grad"])
def test_a_failed_backward_can_be_repeated_while_the_graph_is_kept(form):
    op, broken = failing(FAILING[form], StopHereError("stop"))
    x = tensor(1.0, 2.0)
    y = op(x)
    broken.add("gradient")
    with pytest.raises(StopHereError):
        y.backward(retain_graph=True)
    broken.clear()
    y.backward()
    same(x.grad, [3.0, 12.0])


@pytest.mark.parametrize("transform", [torch.func.grad, torch.func.hessian, torch.func.vmap, torch.func.jacfwd])
def test_a_failure_inside_a_transform_leaves_nothing_behind(transform):
    op, broken = failing(lambda f, df: differentiable(f, grad=df, hvp=product), StopHereError("stop"))
    broken.add("value")
    with pytest.raises(StopHereError):
        transform(op)(torch.ones(2, 2, dtype=torch.float64))
    broken.clear()
    x = tensor(1.0, 2.0)
    op(x).backward()
    same(x.grad, [3.0, 12.0])
    same(torch.func.hessian(op)(x.detach()), [[6.0, 0.0], [0.0, 12.0]])


def test_a_failed_first_check_is_not_forgotten():
    op, broken = failing(
        lambda f, df: differentiable(f, grad=lambda x: 2 * df(x), check="first"), StopHereError("stop")
    )
    broken.add("gradient")
    with pytest.raises(StopHereError):
        op(tensor(1.0, 2.0))
    broken.clear()
    with pytest.raises(ValueError, match="does not agree"):
        op(tensor(1.0, 2.0))


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_a_solver_with_a_memory_that_fails_half_way(error):
    class Solver(Remembers):
        broken = False

        def value(self, x):
            y = super().value(x)
            if self.broken:
                raise error
            return y

    solver = Solver()
    op = differentiable(solver.value, grad=solver.gradient)
    x = tensor(1.0, 2.0)
    y = op(x)
    solver.broken = True
    with pytest.raises(type(error)):
        op(tensor(5.0, 6.0))
    solver.broken = False
    y.backward()
    same(x.grad, [3.0, 12.0])


# --- other processes


def value_and_gradient_in_a_worker(op):
    x = tensor(1.0, 2.0)
    y = op(x)
    y.backward()
    return y.item(), x.grad.tolist()


module_level = differentiable(value, grad=gradient, hvp=product)


@pytest.mark.parametrize("method", sorted({"fork", "spawn"} & set(get_all_start_methods())))
@pytest.mark.filterwarnings("ignore:This process")
def test_workers(method):
    op = module_level
    op(tensor(1.0)).backward()
    with ProcessPoolExecutor(1, mp_context=get_context(method)) as pool:
        assert pool.submit(value_and_gradient_in_a_worker, op).result(timeout=60) == (9.0, [3.0, 12.0])


@pytest.mark.parametrize("method", [method for method in get_all_start_methods() if method == "fork"])
@pytest.mark.filterwarnings("ignore:This process")
def test_fork_after_use(method):
    """A forked process inherits ops, graphs and locks in the middle of their use."""
    solver = Remembers()
    op = differentiable(solver.value, grad=solver.gradient)
    x = tensor(1.0, 2.0)
    y = op(x)
    queue = get_context(method).SimpleQueue()

    def child():
        y.backward()
        queue.put((x.grad.tolist(), value_and_gradient_in_a_worker(op)))

    process = get_context(method).Process(target=child)
    process.start()
    assert queue.get() == ([3.0, 12.0], (9.0, [3.0, 12.0]))
    process.join(60)
    assert process.exitcode == 0
    assert x.grad is None


# --- unusual tensors


def leaked(transform):
    """Return a tensor of torch.func that has left its transform."""
    kept = []

    def keep(x):
        kept.append(x)
        return (x**2).sum()

    transform(keep)
    return kept[0]


LEAKS = {
    "grad": lambda: leaked(lambda f: torch.func.grad(f)(tensor(1.0, 2.0, grad=False))),
    "grad of grad": lambda: leaked(lambda f: torch.func.hessian(f)(tensor(1.0, 2.0, grad=False))),
    "jvp": lambda: leaked(lambda f: torch.func.jvp(f, (tensor(1.0, 2.0, grad=False),), (torch.ones(2).double(),))),
}


@every_op
@pytest.mark.parametrize("leak", LEAKS)
@pytest.mark.parametrize("warm", [False, True])
def test_a_dead_wrapper(kind, leak, warm):
    op, x = OPS[kind](), LEAKS[leak]()
    if warm:
        op(tensor(1.0)).backward()
    try:
        y = op(x)
    except (RuntimeError, TypeError) as error:
        assert str(error)  # noqa: PT017 - loud is right too
    else:
        assert y.item() == 9
        w = tensor(2.0, 1.0)
        op(x * w).backward()
        same(w.grad, 3 * torch.tensor([1.0, 8.0]).double() * torch.tensor([4.0, 1.0]).double())


@every_op
def test_a_batched_tensor_that_has_left_vmap(kind):
    x = leaked(lambda f: torch.func.vmap(f)(torch.ones(3, 2, dtype=torch.float64)))
    op = OPS[kind]()
    op(tensor(1.0)).backward()
    with pytest.raises((RuntimeError, TypeError, ValueError)):
        op(x).item()


class Subclass(torch.Tensor):
    """A tensor with a name of its own, as libraries have them."""


@every_op
@pytest.mark.parametrize("warm", [False, True])
def test_a_subclass(kind, warm):
    op = OPS[kind]()
    if warm:
        op(tensor(1.0)).backward()
    x = tensor(1.0, 2.0, grad=False).as_subclass(Subclass).requires_grad_()
    y = op(x)
    assert y.item() == 9
    y.backward()
    same(x.grad.as_subclass(torch.Tensor), [3.0, 12.0])


@every_op
def test_a_parameter_and_a_buffer(kind):
    op = OPS[kind]()
    for x in (torch.nn.Parameter(tensor(1.0, 2.0, grad=False)), torch.nn.Buffer(tensor(1.0, 2.0, grad=False))):
        y = op(x)
        assert y.item() == 9
        assert y.requires_grad == x.requires_grad


def sparse(numbers):
    return numbers.to_sparse()


def sparse_rows(numbers):
    return numbers.to_sparse_csr()


REFUSED = {
    "meta": (lambda: torch.ones(2, device="meta"), TypeError, "is on the meta device and holds no numbers"),
    "sparse": (lambda: sparse(torch.eye(2)), TypeError, r"is not a dense tensor.*Pass x\.to_dense\(\)"),
    "sparse rows": (lambda: sparse_rows(torch.eye(2)), TypeError, r"is not a dense tensor.*Pass x\.to_dense\(\)"),
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
        op(tensor(1.0)).backward()
    with pytest.raises(error, match=words):
        op(make())


def test_fake_tensors():
    op = differentiable(value, grad=gradient)
    op(tensor(1.0)).backward()
    with FakeTensorMode():
        y = op(torch.ones(3, dtype=torch.float32))
    assert y.shape == ()
    assert y.dtype == torch.float32
    assert type(y).__name__ == "FakeTensor"


def test_fake_tensors_of_an_unknown_shape():
    op = differentiable(lambda x: x[:2], vjp=lambda x, g: np.concatenate([g, 0 * x[2:]]))
    with FakeTensorMode(), pytest.raises(ValueError, match=r"Call .* once before you compile it, or give out_shape="):
        op(torch.ones(3))


@every_op
def test_inference_mode(kind):
    op = OPS[kind]()
    with torch.inference_mode():
        y = op(torch.ones(3, dtype=torch.float64))
    assert y.item() == 3
    assert not y.requires_grad


def test_huge_and_tiny_numbers():
    op = differentiable(value, grad=gradient)
    for number in (0.0, -0.0, 5e-324, 1e300, -math.inf, math.inf, math.nan):
        x = tensor(number)
        with np.errstate(all="ignore"):
            y = op(x)
            y.backward()
        torch.testing.assert_close(y.detach(), x.detach()[0] ** 3, rtol=0, atol=0, equal_nan=True)
        torch.testing.assert_close(x.grad, 3 * x.detach() ** 2, rtol=0, atol=0, equal_nan=True)


# --- modes of torch


@every_op
@pytest.mark.parametrize("warm", [False, True])
def test_saved_tensors_hooks(kind, warm):
    op, packed, unpacked = OPS[kind](), [], []
    if warm:
        op(tensor(1.0)).backward()

    def pack(x):
        packed.append(x)
        return x.detach().clone()

    def unpack(x):
        unpacked.append(x)
        return x

    x = tensor(1.0, 2.0)
    with saved_tensors_hooks(pack, unpack):
        y = op(x * 1)
    y.backward()
    same(x.grad, [3.0, 12.0])
    assert packed
    assert unpacked


@every_op
def test_save_on_cpu(kind):
    x = tensor(1.0, 2.0)
    with save_on_cpu():
        y = OPS[kind]()(x)
    y.backward()
    same(x.grad, [3.0, 12.0])


def test_saved_tensors_hooks_disabled():
    x = tensor(1.0, 2.0)
    with torch.autograd.graph.disable_saved_tensors_hooks("none here"):
        OPS["grad"]()(x).backward()
    same(x.grad, [3.0, 12.0])


@every_op
@pytest.mark.filterwarnings("ignore:Anomaly Detection", "ignore:Error detected")
def test_anomaly_mode(kind):
    op, x = OPS[kind](), tensor(1.0, 2.0)
    with torch.autograd.detect_anomaly():
        op(x).backward()
    same(x.grad, [3.0, 12.0])
    with torch.autograd.detect_anomaly(), pytest.raises(RuntimeError, match="returned nan values"):
        op(tensor(math.nan)).backward()


@pytest.mark.filterwarnings("ignore:Anomaly Detection", "ignore:Error detected")
def test_anomaly_mode_and_an_error_of_the_user_s_code():
    def fails(x):
        raise StopHereError("stop")

    op = differentiable(value, grad=fails)
    with torch.autograd.detect_anomaly(), pytest.raises(StopHereError, match="stop"):
        op(tensor(1.0)).backward()


@pytest.fixture(params=[torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
def default_dtype(request):
    usual = torch.get_default_dtype()
    torch.set_default_dtype(request.param)
    yield request.param
    torch.set_default_dtype(usual)


@every_op
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.usefixtures("default_dtype")
def test_default_dtype(kind, dtype):
    op = OPS[kind]()
    for _ in range(2):
        x = tensor(1.0, 3.0, dtype=dtype)
        y = op(x)
        y.backward()
        assert y.dtype == x.grad.dtype == dtype
        assert y.item() == 28
        assert x.grad.tolist() == [3.0, 27.0]


@every_op
def test_default_device(kind):
    op = OPS[kind]()
    with torch.device("meta"):
        for _ in range(2):
            x = torch.tensor([1.0, 2.0], device="cpu", requires_grad=True)
            y = op(x)
            y.backward()
    assert y.device.type == x.grad.device.type == "cpu"
    assert y.item() == 9
    assert x.grad.tolist() == [3.0, 12.0]


@pytest.fixture
def deterministic():
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@every_op
@pytest.mark.usefixtures("deterministic")
def test_deterministic_algorithms(kind):
    x = tensor(1.0, 2.0)
    OPS[kind]()(x).backward()
    same(x.grad, [3.0, 12.0])


@every_op
def test_strict_floating_point(kind):
    """NumPy's own error state is the user's: the bridge computes nothing that trips it."""
    op = OPS[kind]()
    for dtype in (torch.float64, torch.float32, torch.float16):
        x = tensor(1.0, 2.0, dtype=dtype)
        with np.errstate(all="raise"):
            op(x).backward()
        assert x.grad.tolist() == [3.0, 12.0]


@every_op
def test_tensor_hooks_and_graph_hooks(kind):
    seen = []
    x = tensor(1.0, 2.0)
    x.register_hook(lambda g: seen.append("x"))
    y = OPS[kind]()(x)
    y.register_hook(lambda g: 2 * g)
    y.grad_fn.register_hook(lambda *_: seen.append("node"))
    y.backward()
    same(x.grad, [6.0, 24.0])
    assert seen == ["x", "node"] or seen == ["node", "x"]


@every_op
def test_backward_inside_a_hook(kind):
    """A backward pass begun inside another one."""
    op, x, other = OPS[kind](), tensor(1.0, 2.0), tensor(3.0)
    z = op(other)
    y = op(x)
    y.register_hook(lambda g: z.backward())
    y.backward()
    same(x.grad, [3.0, 12.0])
    same(other.grad, [27.0])


@every_op
def test_backward_in_the_user_s_code(kind):
    """A solver that uses torch inside."""

    def torch_gradient(x):
        with torch.enable_grad():
            inner = torch.from_numpy(np.array(x)).requires_grad_()
            OPS[kind]()(inner).backward()
        return inner.grad.numpy()

    op, x = differentiable(value, grad=torch_gradient), tensor(1.0, 2.0)
    for _ in range(2):
        x.grad = None
        op(x).backward()
        same(x.grad, [3.0, 12.0])


def test_rosenbrock_after_all_of_this():
    x = tensor()
    differentiable(rosenbrock.value, grad=rosenbrock.gradient)(x).backward()
    same(x.grad, GRADIENT)
