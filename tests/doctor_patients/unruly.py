"""Patients that are sick in their behaviour: no slug is asserted, but the doctor must survive each and clean up.

``UNRULY`` lists functions that build a ``Case`` or a ``Loop``. What must be as before afterwards is named by
attributes of the returned object: ``watched``, tensors whose values and ``.grad`` count; ``kept``, a list in which
the patient keeps what it was given; ``threads``, a list of the threads that it started.
"""
# ruff: noqa: E722, NPY002 - bare excepts and the global np.random are a part of what is shown

from __future__ import annotations

import functools
import math
import os
import sys
import threading
import time
import warnings

import numpy as np
import torch
from torch.utils.checkpoint import checkpoint

from .case import Case, Loop

UNRULY = []


def unruly(build):
    """Register a patient that the doctor must survive."""
    UNRULY.append(build)
    return build


def point():
    return torch.tensor([0.3, -0.7], dtype=torch.float64, requires_grad=True)


def function(forward, backward=None):
    """Return a Function of one tensor, by default the squared norm, with some misconduct before it."""

    class Patient(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            forward(x)
            return (x**2).sum()

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            if backward is not None:
                backward(x)
            return g * 2 * x

    return Patient


def nothing(x):
    pass


# never ending --------------------------------------------------------------------------------------------------------


def never_converge(x):
    while True:
        time.sleep(0.001)


@unruly
def forward_never_converges():
    return Case(function(never_converge), point())


@unruly
def forward_computes_without_end():
    def iterate(x):
        residual = np.ones(3)
        while residual.max() > 1e-300:
            residual = 0.5 * residual + 0.5

    return Case(function(iterate), point())


@unruly
def backward_never_converges():
    return Case(function(nothing, backward=never_converge), point())


@unruly
def second_call_never_returns():
    calls = []

    def forward(x):
        calls.append(1)
        if len(calls) > 1:
            never_converge(x)

    return Case(function(forward), point())


@unruly
def solver_swallows_every_exception():
    def forward(x):
        attempts = 0
        while True:
            try:
                time.sleep(0.001)
                return np.linalg.inv(np.zeros((2, 2)))
            except:
                attempts += 1

    return Case(function(forward), point())


@unruly
def op_waits_for_an_answer():
    return Case(lambda x: x * float(input("step size? ")), point())


@unruly
def closure_never_returns():
    x = point()
    return Loop(torch.optim.Adam([x]), lambda: never_converge(x))


# loud ----------------------------------------------------------------------------------------------------------------


@unruly
def forward_prints_ten_megabytes():
    line = "residual " + "0.123456789 " * 80

    def forward(x):
        for _ in range(10_000):
            print(line)

    return Case(function(forward), point())


@unruly
def backward_writes_to_stderr_and_to_the_descriptor():
    def backward(x):
        print("iteration 1", file=sys.stderr)
        os.write(1, b"written past sys.stdout\n")

    return Case(function(nothing, backward), point())


@unruly
def forward_warns_without_end():
    def forward(x):
        for k in range(500):
            warnings.warn(f"iteration {k} has not converged", stacklevel=2)

    return Case(function(forward), point())


# exits and errors ----------------------------------------------------------------------------------------------------


def raising(error):
    def misconduct(x):
        raise error

    return misconduct


class SpeechlessError(Exception):
    def __str__(self):
        raise RuntimeError("this error has no words")

    __repr__ = __str__


def recurse_without_end(x):
    return recurse_without_end(0.5 * x)


ENDINGS = {
    "exits": lambda x: sys.exit("no licence found"),
    "is_interrupted": raising(KeyboardInterrupt()),
    "recurses_without_end": recurse_without_end,
    "has_no_memory": raising(MemoryError()),
    "stops_iteration": raising(StopIteration()),
    "raises_a_base_exception": raising(BaseException("out of band")),
    "raises_without_words": raising(SpeechlessError()),
}


def _ending(name, ending, place):
    def build():
        if place == "closure":
            x = point()
            return Loop(torch.optim.SGD([x], lr=0.1), lambda: ending(x))
        return Case(function(ending) if place == "forward" else function(nothing, ending), point())

    build.__name__ = f"{place}_{name}"
    return build


UNRULY += [
    _ending(name, ending, place) for place in ("forward", "backward", "closure") for name, ending in ENDINGS.items()
]


# odd objects ---------------------------------------------------------------------------------------------------------


class Nameless:
    """A callable whose repr raises and whose unknown attributes raise the wrong error."""

    def __call__(self, x):
        return (x**2).sum()

    def __repr__(self):
        raise RuntimeError("no representation")

    def __getattr__(self, name):
        raise KeyError(name)


@unruly
def callable_object_without_a_representation():
    return Case(Nameless(), point())


@unruly
def argument_without_a_representation():
    def scaled(x, options):
        return (x**2).sum() * 2.0

    return Case(scaled, point(), Nameless())


@unruly
def class_without_backward():
    class Forward(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

    return Case(Forward, point())


@unruly
def forward_takes_any_number_of_tensors():
    class Total(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *tensors):
            ctx.count = len(tensors)
            return torch.stack(tensors).sum()

        @staticmethod
        def backward(ctx, g):
            return tuple(g.expand(2) for _ in range(ctx.count))

    return Case(Total, point(), point(), point())


@unruly
def forward_takes_keywords_only():
    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, *, scale):
            ctx.scale = scale
            return x * scale

        @staticmethod
        def backward(ctx, g):
            return g * ctx.scale

    return Case(Scaled, point())


@unruly
def source_does_not_exist():
    namespace = {"torch": torch}
    source = """
class Generated(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 3
    @staticmethod
    def backward(ctx, g):
        return g * 4
"""
    exec(source, namespace)
    return Case(namespace["Generated"], point())


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor([0.5, 1.5], dtype=torch.float64))

    def forward(self, x):
        return (self.weight * x).sum()

    def energy(self, x):
        return 0.5 * (self.weight * x**2).sum()


async def asynchronous(x):
    return (x**2).sum()


def one_by_one(x):
    yield from x


ODD_PATIENTS = {
    "string": "Rosenbrock",
    "none": None,
    "number": 3.5,
    "tensor": torch.ones(2),
    "module": math,
    "nn_module": Layer(),
    "nn_module_class": Layer,
    "bound_method": Layer().energy,
    "partial": functools.partial(torch.add, torch.ones(2, dtype=torch.float64)),
    "keyword_partial": functools.partial(torch.clamp, min=0.0),
    "builtin": torch.sin,
    "ufunc": np.sin,
    "type": int,
    "class_that_is_no_function": Nameless,
    "class_without_forward": type("Empty", (torch.autograd.Function,), {}),
    "base_function": torch.autograd.Function,
    "coroutine": asynchronous,
    "generator": one_by_one,
    "returns_none": nothing,
    "returns_its_argument": lambda x: x,
    "returns_nested": lambda x: {"loss": [x.sum(), None]},
    "returns_no_tensor_in_a_tuple": lambda x: ("text", 3, object()),
}


def _odd(name, odd_patient):
    def build():
        return Case(odd_patient, point())

    build.__name__ = f"patient_is_{name}"
    return build


UNRULY += [_odd(name, odd_patient) for name, odd_patient in ODD_PATIENTS.items()]


# odd inputs ----------------------------------------------------------------------------------------------------------


def norm(x):
    return (x**2).sum()


ODD_INPUTS = {
    "none_given": (),
    "too_many": (torch.ones(2), torch.ones(2)),
    "not_a_tensor": ("x0",),
    "none": (None,),
    "meta": (torch.ones(3, device="meta", requires_grad=True),),
    "empty": (torch.empty(0, dtype=torch.float64, requires_grad=True),),
    "empty_matrix": (torch.empty(0, 4, dtype=torch.float64),),
    "nan": (torch.full((2,), math.nan, dtype=torch.float64),),
    "infinite": (torch.full((2,), math.inf, dtype=torch.float64),),
    "huge_values": (torch.full((2,), 1e200, dtype=torch.float64),),
    "half": (torch.ones(2, dtype=torch.float16),),
    "bool": (torch.ones(2, dtype=torch.bool),),
    "complex": (torch.ones(2, dtype=torch.complex128),),
    "sparse": (torch.eye(3, dtype=torch.float64).to_sparse(),),
    "expanded": (torch.ones(1, dtype=torch.float64).expand(4),),
    "large": (torch.ones(200_000, dtype=torch.float64),),
    "numpy_array": (np.ones(2),),
    "list_of_tensors": ([torch.ones(2), torch.ones(2)],),
}


def _odd_input(name, inputs, form):
    def build():
        return Case(norm if form == "op" else function(nothing), *inputs)

    build.__name__ = f"{form}_with_inputs_{name}"
    return build


UNRULY += [_odd_input(name, inputs, form) for form in ("op", "class") for name, inputs in ODD_INPUTS.items()]


@unruly
def input_has_a_history():
    return Case(norm, point() * 2.0)


@unruly
def input_was_made_in_inference_mode():
    with torch.inference_mode():
        return Case(norm, torch.ones(2, dtype=torch.float64))


@unruly
def op_allows_backward_only():
    def reentrant(x):
        return checkpoint(norm, x, use_reentrant=True)

    return Case(reentrant, point())


# global state --------------------------------------------------------------------------------------------------------


def _changes(name, change):
    def build():
        return Case(function(lambda x: change(), backward=lambda x: change()), point())

    build.__name__ = f"patient_changes_{name}"
    return build


def _reassign_stdout():
    sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115


GLOBAL_CHANGES = {
    "numpy_seed": lambda: np.random.seed(0),
    "torch_seed": lambda: torch.manual_seed(0),
    "default_dtype": lambda: torch.set_default_dtype(torch.float64),
    "grad_mode": lambda: torch.set_grad_enabled(not torch.is_grad_enabled()),
    "warning_filters": lambda: warnings.simplefilter("error"),
    "threads": lambda: torch.set_num_threads(torch.get_num_threads() % 2 + 1),
    "working_folder": lambda: os.chdir(os.sep),
    "standard_output": _reassign_stdout,
    "numpy_errors": lambda: np.seterr(all="raise"),
    "print_options": lambda: torch.set_printoptions(precision=1),
    "anomaly_mode": lambda: torch.autograd.set_detect_anomaly(True),
    "deterministic_mode": lambda: torch.use_deterministic_algorithms(True),
    "environment": lambda: os.environ.update(UNRULY_PATIENT="1"),
    "recursion_limit": lambda: sys.setrecursionlimit(sys.getrecursionlimit() + 1),
}
UNRULY += [_changes(name, change) for name, change in GLOBAL_CHANGES.items()]


@unruly
def closure_switches_gradients_off():
    x = point()
    optimizer = torch.optim.SGD([x], lr=0.1)

    def closure():
        torch.set_grad_enabled(False)
        return (x**2).sum()

    return Loop(optimizer, closure)


# what belongs to others ----------------------------------------------------------------------------------------------


@unruly
def op_writes_into_captured_tensors():
    scale, history = torch.ones(2, dtype=torch.float64), np.zeros(2)
    weight = torch.nn.Parameter(torch.tensor([0.4, 0.9], dtype=torch.float64))
    weight.grad = torch.full_like(weight, 7.0)

    def op(x):
        scale.mul_(1.5)
        history[:] = x.detach().numpy()
        weight.data.add_(1.0)
        weight.grad.zero_()
        return (scale * weight * x).sum()

    case = Case(op, point())
    case.watched = (scale, torch.from_numpy(history), weight)
    return case


@unruly
def module_updates_its_parameters_and_buffers():
    norm_layer = torch.nn.BatchNorm1d(3, dtype=torch.float64)
    generator = torch.Generator().manual_seed(3)
    batch = torch.rand(5, 3, generator=generator, dtype=torch.float64)
    case = Case(lambda x: (norm_layer(x) ** 3).sum(), batch)
    case.watched = (*norm_layer.parameters(), *norm_layer.buffers())
    return case


@unruly
def op_runs_backward_into_captured_parameters():
    weight = torch.nn.Parameter(torch.tensor([0.4, 0.9], dtype=torch.float64))

    def op(x):
        loss = (weight * x).sum()
        loss.backward(retain_graph=True)
        return loss

    case = Case(op, point())
    case.watched = (weight,)
    return case


@unruly
def op_writes_the_gradient_of_its_input():
    def op(x):
        x.grad = torch.full_like(x, 5.0)
        return (x**2).sum()

    case = Case(op, point())
    case.watched = case.inputs
    return case


@unruly
def loop_resizes_its_parameter():
    x = point()
    optimizer = torch.optim.Adam([x], lr=0.1)

    def closure():
        optimizer.zero_grad()
        loss = (x**2).sum()
        loss.backward()
        optimizer.param_groups[0]["lr"] *= 10
        optimizer.add_param_group({"params": [torch.zeros(1, requires_grad=True)]})
        x.data = torch.cat([x.data, x.data])
        return loss

    loop = Loop(optimizer, closure)
    loop.watched = (x,)
    return loop


@unruly
def op_keeps_all_it_has_seen():
    kept = []

    def op(x):
        loss = (x**2).sum()
        kept.extend([x, loss])
        return loss

    case = Case(op, point())
    case.kept = kept
    return case


@unruly
def backward_starts_a_thread():
    threads = []

    def start(x):
        thread = threading.Thread(target=time.sleep, args=(0.05,), daemon=True)
        threads.append(thread)
        thread.start()

    case = Case(function(nothing, start), point())
    case.threads = threads
    return case


@unruly
def thread_changes_a_tensor_later():
    state, threads = torch.ones(2, dtype=torch.float64), []

    def op(x):
        timer = threading.Timer(0.01, state.mul_, args=(2.0,))
        threads.append(timer)
        timer.start()
        return (state * x).sum()

    case = Case(op, point())
    case.threads = threads
    return case


# odd loops -----------------------------------------------------------------------------------------------------------


ODD_LOOPS = {
    "nothing": lambda x: (None, None),
    "a_name": lambda x: ("adam", lambda: (x**2).sum()),
    "the_optimiser_class": lambda x: (torch.optim.Adam, lambda: (x**2).sum()),
    "swapped_arguments": lambda x: (lambda: (x**2).sum(), torch.optim.SGD([x], lr=0.1)),
    "a_closure_of_one_argument": lambda x: (torch.optim.SGD([x], lr=0.1), lambda loss: loss),
    "a_loss_of_nan": lambda x: (torch.optim.LBFGS([x]), lambda: (x * math.nan).sum()),
    "a_text_for_loss": lambda x: (torch.optim.LBFGS([x]), lambda: "0.85"),
    "a_maker_that_exits": lambda x: (lambda: sys.exit(1), lambda: (x**2).sum()),
    "a_maker_that_makes_nothing": lambda x: (lambda: None, lambda: (x**2).sum()),
}


def _odd_loop(name, arguments):
    def build():
        return Loop(*arguments(point()))

    build.__name__ = f"loop_has_{name}"
    return build


UNRULY += [_odd_loop(name, arguments) for name, arguments in ODD_LOOPS.items()]
