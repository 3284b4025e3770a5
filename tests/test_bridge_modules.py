"""An op inside a module: copies, state dicts, functional calls, hooks and data-parallel training."""

import copy
import pickle

import pytest
import torch
from bridge_forms import cube_op, normal, same
from bridge_patients import (
    PATIENTS,
    assert_same,
    numbers,
    rosenbrock_torch,
)
from torch import func


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


def test_inside_a_module():
    class Loss(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = torch.nn.Parameter(normal(3, grad=False))
            self.op = cube_op("grad")

        def forward(self):
            return self.op(self.w)

    loss = copy.deepcopy(Loss())
    loss().backward()
    same(loss.w.grad, 3 * loss.w**2)
    assert list(loss.state_dict()) == ["w"]
