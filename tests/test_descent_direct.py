"""The direct lane writes x.grad: every short cut in it leads to the same place as a loop by hand."""

import functools
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from test_descent import OPTIMISERS, STEPS, both_ways, closure_of, every_shape, gradient, parameter, run, without_lbfgs
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from helpers import descend, descend_with_gradient, rosenbrock
from helpers.descent import quick_step
from helpers.descent.parameter import Numbers


def by_hand(optimizer, x, function, steps):
    """Walk without a short cut: what descend_with_gradient must equal, bit for bit."""
    points = [x.tolist()]
    for _ in range(steps):
        answer = torch.tensor(function(x.detach().double().numpy().copy()), dtype=x.dtype)
        x.grad = torch.empty_like(x, requires_grad=False).copy_(answer)
        optimizer.step()
        points.append(x.tolist())
    return points


@without_lbfgs
@every_shape
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_the_direct_lane_is_bit_for_bit_a_loop_by_hand(make, start, dtype):
    x, y = parameter(start, dtype), parameter(start, dtype)
    assert descend_with_gradient(make(x), gradient, STEPS).points.tolist() == by_hand(make(y), y, gradient, STEPS)
    assert torch.equal(x.grad, y.grad)


class AroundNumPy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.tensor(rosenbrock.value(x.detach().numpy()))

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * torch.tensor(rosenbrock.gradient(x.detach().numpy()))


def test_two_hundred_fused_steps_with_a_written_gradient_are_those_of_a_function_by_closure():
    x = parameter()
    adam = torch.optim.Adam([x], lr=0.1)
    by_closure = descend(adam, closure_of(adam, x, AroundNumPy.apply), 200)
    written = descend_with_gradient(torch.optim.Adam([parameter()], lr=0.1, fused=True), rosenbrock.gradient, 200)
    assert written.points == pytest.approx(by_closure.points, rel=1e-12, abs=1e-12)


SQUARE = [[0.1, 0.2], [-0.5, 0.8]]
WITH_GAPS = {
    "the first of each pair": lambda x: torch.stack([x, x], dim=-1)[..., 0],
    "every other row": lambda x: torch.stack([x, x], dim=1)[:, 0],
}
LAYOUTS = WITH_GAPS | {"transposed": lambda x: x.T.contiguous().T}
ALLOWED = [(name, how) for name in OPTIMISERS for how in LAYOUTS if (name, how in WITH_GAPS) != ("fused Adam", True)]


@pytest.mark.parametrize(("name", "layout"), [pair for pair in ALLOWED if pair[0] != "LBFGS"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_the_layout_of_a_parameter_in_memory_changes_nothing(name, layout, dtype):
    make, x = OPTIMISERS[name], LAYOUTS[layout](torch.tensor(SQUARE, dtype=dtype))
    assert not x.is_contiguous()
    dense = descend_with_gradient(make(parameter(SQUARE, dtype)), gradient, STEPS)
    assert descend_with_gradient(make(x), gradient, STEPS).points.tolist() == dense.points.tolist()


@pytest.mark.parametrize("layout", WITH_GAPS.values(), ids=WITH_GAPS)
@pytest.mark.parametrize("way", [0, 1], ids=["closure", "gradient"])
def test_a_fused_optimiser_of_a_parameter_with_gaps_is_refused(layout, way):
    x = layout(torch.tensor(SQUARE))
    with pytest.raises(ValueError, match=r"a slice with gaps in memory, .* x\.detach\(\)\.clone\(\)"):
        both_ways(OPTIMISERS["fused Adam"](x), 1)[way]()
    path = descend_with_gradient(OPTIMISERS["fused Adam"](x.detach().clone()), gradient, 1)
    assert path.steps == 1


@pytest.mark.parametrize("answer", [lambda g: g, np.asfortranarray, lambda g: g[::-1, ::-1].copy()[::-1, ::-1]])
@pytest.mark.parametrize("name", ["Adam", "fused Adam"])
def test_the_layout_of_a_gradient_in_memory_changes_nothing(answer, name):
    make = OPTIMISERS[name]
    path = descend_with_gradient(make(parameter(SQUARE)), lambda x: answer(gradient(x)), STEPS)
    assert path.points.tolist() == descend_with_gradient(make(parameter(SQUARE)), gradient, STEPS).points.tolist()


MOVES = {
    "other numbers": lambda data: data + 1.0,
    "transposed in the same memory": lambda data: data.T,
    "another dtype": lambda data: data.float(),
}


@pytest.mark.parametrize("move", MOVES.values(), ids=MOVES)
@pytest.mark.parametrize("way", [0, 1], ids=["closure", "gradient"])
def test_a_parameter_whose_data_is_replaced_is_followed(move, way):
    x, y, seen = parameter(SQUARE), parameter(SQUARE), []

    def watched(point):
        seen.append(point.tolist())
        return gradient(point)

    def closure():
        x.grad = torch.tensor(watched(x.detach().double().numpy()), dtype=x.dtype)

    def replace(taken, point):
        if taken == 2:
            x.data = move(x.data)

    optimizer = torch.optim.SGD([x], lr=0.01)
    step, function = ((descend, closure), (descend_with_gradient, watched))[way]
    path = step(optimizer, function, 4, after_step=replace)

    before = by_hand(torch.optim.SGD([y], lr=0.01), y, gradient, 2)
    y.data = move(y.data).clone()
    after = by_hand(torch.optim.SGD([y], lr=0.01), y, gradient, 2)
    assert path.points.tolist() == before[:2] + after
    assert seen == path.points[:-1].tolist()
    assert path.end.tolist() == x.tolist()


def test_the_numbers_of_a_parameter_are_those_of_its_part_if_it_is_cut():
    x = parameter(SQUARE)
    numbers = Numbers(x)
    assert numbers.copy().tolist() == SQUARE
    x.data = x.data[:1]  # in the same place, with the same strides
    assert numbers.copy().tolist() == SQUARE[:1]


def test_the_gradient_is_taken_where_after_step_has_put_the_parameter():
    x = parameter()
    seen = []

    def watched(point):
        seen.append(point.tolist())
        return gradient(point)

    def after_step(taken, point):
        with torch.no_grad():
            x.add_(taken)

    path = descend_with_gradient(OPTIMISERS["fused Adam"](x), watched, 3, after_step=after_step)
    assert seen == path.points[:-1].tolist()
    assert path.end.tolist() == x.tolist()


class Keeps(torch.optim.SGD):
    """An optimiser of a user: it keeps every gradient, and spoils or replaces x.grad after its step."""

    def __init__(self, x, then):
        super().__init__([x], lr=0.01)
        self.x, self.then, self.kept = x, then, []

    def step(self, closure=None):
        self.kept.append(self.x.grad)
        super().step()
        self.then(self.x)


@pytest.mark.parametrize("after_step", [False, True])
def test_a_gradient_that_somebody_keeps_stays_that_of_its_step(after_step):
    x, kept = parameter(), []
    optimizer = Keeps(x, lambda x: None)
    path = descend_with_gradient(optimizer, gradient, STEPS, after_step=lambda taken, _: kept.append(x.grad))
    if not after_step:
        kept = optimizer.kept
    assert [each.tolist() for each in kept] == rosenbrock.gradient(path.points[:-1]).tolist()


SPOILS = {
    "sets it to None": lambda x: setattr(x, "grad", None),
    "replaces it": lambda x: setattr(x, "grad", torch.full_like(x, 9.0)),
    "writes into it": lambda x: x.grad.fill_(9.0),
    "takes its memory": lambda x: x.grad.set_(),
}


@pytest.mark.parametrize("spoil", SPOILS.values(), ids=SPOILS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_whatever_is_done_to_x_grad_after_a_step_the_next_step_is_right(spoil, dtype):
    x, y, answers = parameter(dtype=dtype), parameter(dtype=dtype), []

    def keeps(point):
        answers.append(gradient(point))
        return answers[-1]

    path = descend_with_gradient(Keeps(x, spoil), keeps, STEPS)
    assert path.points.tolist() == by_hand(torch.optim.SGD([y], lr=0.01), y, gradient, STEPS)
    assert [answer.tolist() for answer in answers] == rosenbrock.gradient(path.points[:-1]).tolist()


# --- the direct lane passes by torch's wrapper of step, which calls the hooks and marks the step for the profiler


def quiet(monkeypatch):
    """Let torch's wrapper fail wherever it is gone through."""

    def fail(name):
        raise AssertionError(f"the wrapper was gone through: {name}")

    monkeypatch.setattr(torch.autograd.profiler, "record_function", fail)


@without_lbfgs
def test_the_wrapper_is_passed_by_where_nobody_listens(make, monkeypatch):
    optimizer = make(parameter())
    quiet(monkeypatch)
    descend_with_gradient(optimizer, gradient, 2)
    with pytest.raises(AssertionError, match="gone through"):
        optimizer.step()


def more_than(function, calls):
    @functools.wraps(function)
    def wrapper(*arguments):
        calls.append(1)
        return function(*arguments)

    return wrapper


def test_another_wrapper_than_the_known_one_is_gone_through(monkeypatch):
    optimizer, calls = OPTIMISERS["Adam"](parameter()), []
    monkeypatch.setattr(torch.optim.Adam, "step", more_than(torch.optim.Adam.step, calls))
    descend_with_gradient(optimizer, gradient, 2)
    assert calls == [1, 1]


def test_a_step_without_code_is_called_also_where_no_wrapper_is_known(monkeypatch):
    optimizer, calls = OPTIMISERS["SGD"](parameter()), []
    monkeypatch.setattr(torch.optim.SGD, "step", functools.partial(calls.append, 1))
    monkeypatch.setattr(quick_step, "_WRAPPER", None)
    descend_with_gradient(optimizer, gradient, 2)
    assert calls == [1, 1]


def test_a_torch_whose_wrapper_does_more_or_that_has_none_has_no_known_one(monkeypatch):
    code = quick_step._known_wrapper()
    assert code is torch.optim.Optimizer.profile_hook_step(len).__code__
    more = SimpleNamespace(__code__=code.replace(co_names=(*code.co_names, "one_more")))
    monkeypatch.setattr(torch.optim.Optimizer, "profile_hook_step", lambda function: more)
    assert quick_step._known_wrapper() is None
    monkeypatch.setattr(torch.optim.Optimizer, "profile_hook_step", lambda function: more_than(function, []))
    assert quick_step._known_wrapper() is None
    monkeypatch.delattr(torch.optim.Optimizer, "profile_hook_step")
    assert quick_step._known_wrapper() is None


@every_shape
def test_the_path_through_the_wrapper_is_the_same(start, monkeypatch):
    make = OPTIMISERS["fused Adam"]
    past = descend_with_gradient(make(parameter(start)), gradient, STEPS)
    monkeypatch.setattr(quick_step, "_WRAPPER", None)
    assert descend_with_gradient(make(parameter(start)), gradient, STEPS).points.tolist() == past.points.tolist()


HOOKS = {
    "before": lambda optimizer, hook: optimizer.register_step_pre_hook(hook),
    "after": lambda optimizer, hook: optimizer.register_step_post_hook(hook),
    "before any": lambda optimizer, hook: register_optimizer_step_pre_hook(hook),
    "after any": lambda optimizer, hook: register_optimizer_step_post_hook(hook),
}


@pytest.mark.parametrize("register", HOOKS.values(), ids=HOOKS)
def test_every_hook_is_called_also_one_that_comes_during_the_run(register):
    optimizer, calls, handles = OPTIMISERS["fused Adam"](parameter()), [], []

    def after_step(taken, x):
        if taken == 2:
            handles.append(register(optimizer, lambda *arguments: calls.append(arguments[0])))

    try:
        path = descend_with_gradient(optimizer, gradient, 5, after_step=after_step)
    finally:
        for handle in handles:
            handle.remove()
    assert calls == [optimizer] * 3
    without = descend_with_gradient(OPTIMISERS["fused Adam"](parameter()), gradient, 5)
    assert path.points.tolist() == without.points.tolist()


def test_a_hook_may_change_the_gradient_before_the_step():
    def double(*arguments):
        x.grad.mul_(2.0)

    x = parameter()
    optimizer = torch.optim.SGD([x], lr=0.01)
    optimizer.register_step_pre_hook(double)
    twice = descend_with_gradient(optimizer, gradient, STEPS)
    fast = descend_with_gradient(torch.optim.SGD([parameter()], lr=0.02), gradient, STEPS)
    assert twice.points == pytest.approx(fast.points, rel=1e-14)


def test_a_profiler_sees_every_step():
    optimizer = OPTIMISERS["fused Adam"](parameter())
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        descend_with_gradient(optimizer, gradient, 3)
    (mark,) = [event for event in profile.key_averages() if event.key == "Optimizer.step#Adam.step"]
    assert mark.count == 3


def test_a_scheduler_sees_every_step():
    optimizer = torch.optim.SGD([parameter()], lr=0.01)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # it warns when its step comes before the optimiser's
        descend_with_gradient(optimizer, gradient, 3, after_step=lambda taken, x: scheduler.step())
    assert scheduler.get_last_lr() == [0.01 / 8]


@pytest.mark.parametrize("whose", ["the object", "the class"])
@pytest.mark.parametrize("when", [0, 2])
def test_a_step_that_somebody_puts_in_its_place_is_called_from_then_on(whose, when, monkeypatch):
    optimizer, calls = OPTIMISERS["SGD"](parameter()), []
    owner = optimizer if whose == "the object" else torch.optim.SGD

    def replace(taken, x):
        if taken == when:
            monkeypatch.setattr(owner, "step", more_than(owner.step, calls))

    replace(0, None)
    path = descend_with_gradient(optimizer, gradient, STEPS, after_step=replace)
    assert calls == [1] * (STEPS - when)
    monkeypatch.undo()
    assert path.points.tolist() == run(OPTIMISERS["SGD"]).points.tolist()


@pytest.mark.parametrize("enabled", [False, True])
def test_the_mode_of_autograd_is_left_as_it_was(enabled):
    modes = []

    def watched(x):
        modes.append(torch.is_grad_enabled())
        return gradient(x)

    with torch.set_grad_enabled(enabled):
        descend_with_gradient(OPTIMISERS["fused Adam"](parameter()), watched, 3)
        assert torch.is_grad_enabled() is enabled
    assert modes == [enabled] * 3
