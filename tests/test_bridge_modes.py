"""Modes, hooks and graphs of torch: an op in them is like torch's own operations."""

import math

import numpy as np
import pytest
import torch
from bridge_forms import OPS, StopHereError, at, cube, every_op, same
from bridge_patients import (
    ALL_PATIENTS,
    PATIENTS,
    assert_same,
    backward,
    cotangents,
    fresh,
    numbers,
    outputs,
    rosenbrock_torch,
    scalar,
)
from torch import autograd
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks

from helpers import differentiable, rosenbrock

# --- no_grad, inference, autocast


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


@every_op
def test_inference_mode(kind):
    op = OPS[kind]()
    with torch.inference_mode():
        y = op(torch.ones(3, dtype=torch.float64))
    assert y.item() == 3
    assert not y.requires_grad


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


# --- graphs


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


# --- saved tensors


@ALL_PATIENTS
def test_saved_tensors_can_be_packed(patient):
    packed = []
    with autograd.graph.saved_tensors_hooks(lambda x: packed.append(x) or x.numpy(), torch.from_numpy):
        found = backward(patient.op, patient.xs)
    assert packed
    assert_same(found, backward(patient.reference, patient.xs))


@every_op
@pytest.mark.parametrize("warm", [False, True])
def test_saved_tensors_hooks(kind, warm):
    op, packed, unpacked = OPS[kind](), [], []
    if warm:
        op(at(1.0)).backward()

    def pack(x):
        packed.append(x)
        return x.detach().clone()

    def unpack(x):
        unpacked.append(x)
        return x

    x = at(1.0, 2.0)
    with saved_tensors_hooks(pack, unpack):
        y = op(x * 1)
    y.backward()
    same(x.grad, [3.0, 12.0])
    assert packed
    assert unpacked


@every_op
def test_save_on_cpu(kind):
    x = at(1.0, 2.0)
    with save_on_cpu():
        y = OPS[kind]()(x)
    y.backward()
    same(x.grad, [3.0, 12.0])


def test_saved_tensors_hooks_disabled():
    x = at(1.0, 2.0)
    with torch.autograd.graph.disable_saved_tensors_hooks("none here"):
        OPS["grad"]()(x).backward()
    same(x.grad, [3.0, 12.0])


# --- anomalies


@every_op
@pytest.mark.filterwarnings("ignore:Anomaly Detection", "ignore:Error detected")
def test_anomaly_mode(kind):
    op, x = OPS[kind](), at(1.0, 2.0)
    with torch.autograd.detect_anomaly():
        op(x).backward()
    same(x.grad, [3.0, 12.0])
    with torch.autograd.detect_anomaly(), pytest.raises(RuntimeError, match="returned nan values"):
        op(at(math.nan)).backward()


@pytest.mark.filterwarnings("ignore:Anomaly Detection", "ignore:Error detected")
def test_anomaly_mode_and_an_error_of_the_user_s_code():
    def fails(x):
        raise StopHereError("stop")

    op = differentiable(cube, grad=fails)
    with torch.autograd.detect_anomaly(), pytest.raises(StopHereError, match="stop"):
        op(at(1.0)).backward()


# --- defaults


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
        x = at(1.0, 3.0, dtype=dtype)
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
    x = at(1.0, 2.0)
    OPS[kind]()(x).backward()
    same(x.grad, [3.0, 12.0])


@every_op
def test_strict_floating_point(kind):
    """NumPy's own error state is the user's: the bridge computes nothing that trips it."""
    op = OPS[kind]()
    for dtype in (torch.float64, torch.float32, torch.float16):
        x = at(1.0, 2.0, dtype=dtype)
        with np.errstate(all="raise"):
            op(x).backward()
        assert x.grad.tolist() == [3.0, 12.0]


# --- hooks, and backward passes inside others


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


@every_op
def test_tensor_hooks_and_graph_hooks(kind):
    seen = []
    x = at(1.0, 2.0)
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
    op, x, other = OPS[kind](), at(1.0, 2.0), at(3.0)
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

    op, x = differentiable(cube, grad=torch_gradient), at(1.0, 2.0)
    for _ in range(2):
        x.grad = None
        op(x).backward()
        same(x.grad, [3.0, 12.0])
