"""What a hostile reader of the doctor found, each kept as a test: the process, threads, depth, and false alarms."""

import subprocess
import sys
import threading
import warnings
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import nn

from helpers import diagnose
from helpers.doctor.budget import Budget, OutOfTime

X = torch.tensor([0.3, -0.8, 1.1], dtype=torch.float64)


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * 3 * x**2


class Linear(torch.autograd.Function):
    """Its gradient by the weight is twice too large."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x @ weight

    @staticmethod
    def backward(ctx, g):
        x, weight = ctx.saved_tensors
        return g @ weight.T, x.T @ g * 2


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.weight = nn.Parameter(torch.randn(3, 2, dtype=torch.float64, generator=generator))

    def forward(self, x):
        return Linear.apply(x, self.weight)


# The process


def test_a_budget_that_ends_early_leaves_no_library_half_imported():
    program = """
import torch
from helpers import diagnose
class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3
    @staticmethod
    def backward(ctx, g):
        return g * 3 * ctx.saved_tensors[0]**2
diagnose(lambda v: Cube.apply(v) * 2, torch.ones(3, dtype=torch.float64), seconds=0.3)
print(torch.compile(lambda v: v + 1, backend="eager")(torch.ones(1)).item())
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert run.stdout.strip() == "2.0", run.stderr


def test_watchdogs_that_start_while_another_one_fires_do_not_block():
    rng = np.random.default_rng(0)
    for _ in range(60):
        try:
            with Budget(rng.uniform(0.002, 0.02)).part():
                while True:
                    with Budget(5).part(0.6):
                        sum(range(50))
        except OutOfTime:
            continue
    assert len([thread for thread in threading.enumerate() if thread.name == "the doctor's clock"]) == 1
    assert sys.gettrace() is None or "_raise_again" not in repr(sys.gettrace())


def test_two_examinations_in_two_threads_give_output_and_warnings_back():
    diagnose(torch.sin, X)  # imports that set filters of their own
    stream, filters = sys.stdout, list(warnings.filters)
    threads = [threading.Thread(target=lambda: diagnose(lambda x: (x**2).sum(), X)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sys.stdout is stream
    assert list(warnings.filters) == filters


def test_an_examination_inside_a_patient_ends():
    def nested(x):
        diagnose(torch.sin, x.detach(), seconds=0.2)
        return (x**2).sum()

    assert diagnose(nested, X, seconds=3).slugs == ()


def test_it_works_inside_inference_mode():
    with torch.inference_mode():
        assert diagnose(Cube, torch.ones(2, dtype=torch.float64) * 0.7)


# Depth


@pytest.mark.parametrize(
    "wrap",
    [lambda net: net, lambda net: lambda x: net(x).sum(), lambda net: {"op": net}["op"].forward],
    ids=["module", "lambda", "bound method"],
)
def test_a_function_inside_a_module_is_found_at_any_depth(wrap):
    finding = diagnose(wrap(Net()), torch.eye(3, dtype=torch.float64)[:2] + 0.1).findings[0]
    assert finding.slug == "gradient-wrong"
    assert finding.where[0] == __file__


def test_a_function_that_is_an_attribute_of_a_module_is_found():
    class Holder(nn.Module):
        def __init__(self):
            super().__init__()
            self.function = Linear
            self.weight = nn.Parameter(torch.ones(3, 2, dtype=torch.float64))

        def forward(self, x):
            return self.function.apply(x, self.weight) ** 2

    assert "gradient-wrong" in diagnose(Holder(), torch.eye(3, dtype=torch.float64)).slugs


def test_a_module_as_an_argument_of_a_function_hides_its_parameters():
    class Through(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, layer):
            ctx.layer = layer
            return layer(x)

        @staticmethod
        def backward(ctx, g):
            return g @ ctx.layer.weight, None

    layer = nn.Linear(3, 2, dtype=torch.float64)
    assert diagnose(Through, X.clone().requires_grad_(), layer).slugs[0] == "hidden-tensor"


# False alarms


def test_plain_data_in_a_list_is_no_hidden_tensor():
    class Chain(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, matrices):
            ctx.matrices = matrices
            return sum(matrix @ x for matrix in matrices)

        @staticmethod
        def backward(ctx, g):
            return sum(matrix.T @ g for matrix in ctx.matrices), None

    matrices = [torch.eye(3, dtype=torch.float64) + 0.1, torch.ones(3, 3, dtype=torch.float64)]
    assert diagnose(Chain, X.clone().requires_grad_(), matrices)


def test_single_precision_inside_a_function_for_single_precision_is_not_wrong():
    class Tanh(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return torch.from_numpy(np.tanh(x.detach().numpy().astype("f4"))).to(x.dtype)

        @staticmethod
        def backward(ctx, g):
            y = np.tanh(ctx.saved_tensors[0].numpy().astype("f4"))
            return torch.from_numpy(g.numpy().astype("f4") * (1 - y * y)).to(g.dtype)

    assert diagnose(Tanh, X.float())


def test_a_stop_gradient_is_fragile_and_the_way_to_say_so_is_named():
    def loss(x):
        return ((x.sin() - (x**2).detach()) ** 2).sum()

    diagnosis = diagnose(loss, X)
    assert diagnosis.findings[0].severity == "fragile"
    assert "reference=" in diagnosis.findings[0].message
    assert diagnose(loss, X, reference=loss).slugs == ()


@pytest.mark.parametrize(
    "op",
    [lambda x: [x.sin(), x.cos()], lambda x: {"sin": x.sin()}, lambda x: (x.sin(), [x.cos()])],
    ids=["list", "dict", "nested"],
)
def test_results_in_containers_are_not_called_noisy(op):
    assert diagnose(op, X).slugs == ()


def test_an_object_as_result_is_asked_for_its_tensor():
    @dataclass
    class Result:
        loss: torch.Tensor

    diagnosis = diagnose(lambda x: Result((x**2).sum()), X)
    assert diagnosis.slugs == ()
    assert "lambda x: f(x).loss" in diagnosis.unfinished


def test_a_sparse_input_is_examined():
    matrix = torch.eye(3, dtype=torch.float64).to_sparse()
    assert diagnose(lambda x: torch.sparse.mm(matrix, x[:, None]).sum(), X)


def loop(parameter, make, lr=0.1):
    optimizer = torch.optim.Adam([parameter], lr=lr)
    return diagnose.training(optimizer, make(optimizer))


def test_a_projection_before_forward_is_not_wrong():
    x = X.clone().requires_grad_()

    def make(optimizer):
        def closure():
            x.data.div_(x.data.norm())
            optimizer.zero_grad()
            loss = ((x - 3) ** 2).sum()
            loss.backward()
            return loss

        return closure

    assert loop(x, make)


def test_the_step_of_an_optimiser_of_other_parameters_is_not_wrong():
    x, other = X.clone().requires_grad_(), X.clone().requires_grad_()
    second = torch.optim.SGD([other], lr=0.1)

    def make(optimizer):
        def closure():
            second.zero_grad()
            (other**2).sum().backward()
            second.step()
            optimizer.zero_grad()
            loss = ((x - 1) ** 2).sum()
            loss.backward()
            return loss

        return closure

    assert loop(x, make)


def test_clipped_gradients_of_a_custom_function_are_not_wrong_and_a_sick_one_is():
    x = X.clone().requires_grad_()

    def make(function):
        def make_closure(optimizer):
            def closure():
                optimizer.zero_grad()
                loss = function.apply(x[None], torch.ones(3, 2, dtype=torch.float64, requires_grad=True)).sum()
                loss.backward()
                nn.utils.clip_grad_value_([x], 1e-2)
                return loss

            return closure

        return make_closure

    class Right(Linear):
        @staticmethod
        def backward(ctx, g):
            x, weight = ctx.saved_tensors
            return g @ weight.T, x.T @ g

    assert loop(x, make(Right))
    assert not loop(x, make(Linear))
