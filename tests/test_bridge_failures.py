"""Errors of the user's code come through as they are, say where they happened, and leave nothing behind."""

import traceback

import pytest
import torch
from bridge_forms import (
    FORMS,
    Remembers,
    StopHereError,
    at,
    cube,
    cube_gradient,
    cube_product,
    every_form,
    normal,
    same,
)

from helpers import differentiable

# --- what is raised


class MeshError(Exception):
    """An error with an __init__ of its own, as libraries have them."""

    def __init__(self, code, *, place):
        super().__init__(f"mesh {code} at {place}")
        self.code = code


def fails(*args, **kwargs):
    raise MeshError(7, place="corner")  # the user's line


@every_form
@pytest.mark.parametrize("where", ["value", "gradient", "hvp"])
def test_errors_of_the_user_s_code_come_through(form, where):
    parts = [cube, cube_gradient, cube_product]
    parts[["value", "gradient", "hvp"].index(where)] = fails
    op, x = FORMS[form](*parts, name="f"), normal(3)
    with pytest.raises(MeshError, match=r"mesh 7 at corner") as caught:
        torch.autograd.functional.hessian(op, x)
    assert caught.value.code == 7
    (note,) = caught.value.__notes__
    assert note.startswith("Raised inside the ")
    assert note.endswith(" of f.")
    assert "the user's line" in "".join(traceback.format_exception(caught.value))


@every_form
def test_errors_in_the_fast_way_come_through(form):
    def gradient(x):
        if x.size > 3:
            fails()
        return cube_gradient(x)

    op = FORMS[form](cube, gradient, name="f")
    op(normal(3)).backward()
    with pytest.raises(MeshError) as caught:
        op(normal(4)).backward()
    assert len(caught.value.__notes__) == 1
    assert "the user's line" in "".join(traceback.format_exception(caught.value))


def test_a_note_is_added_once_when_a_solver_is_asked_again():
    class Solver:
        def value(self, x):
            self.x = x
            if getattr(self, "broken", False):
                fails()
            return cube(x)

        def gradient(self, x):
            return cube_gradient(self.x)

    solver = Solver()
    op = differentiable(solver.value, grad=solver.gradient)
    first, _ = op(normal(3)), op(normal(3, seed=1))
    solver.broken = True
    with pytest.raises(MeshError) as caught:
        first.backward()
    assert caught.value.__notes__[0] == "Raised inside the function of value."


# --- failures half-way


def failing(op_of, error):
    """Return an op whose parts fail when their name is in the returned set."""
    broken = set()

    def part(name, function):
        def call(*args):
            if name in broken:
                raise error
            return function(*args)

        return call

    return op_of(part("value", cube), part("gradient", cube_gradient)), broken


FAILING = {**FORMS, "loop": lambda f, df: differentiable(f, grad=df, batch="loop")}
ERRORS = [StopHereError("stop"), KeyboardInterrupt("stop"), SystemExit("stop"), MemoryError("stop")]


@pytest.mark.parametrize("form", FAILING)
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("warm", [False, True], ids=["first call", "later"])
def test_errors_come_through_and_leave_nothing_behind(form, error, warm):
    op, broken = failing(FAILING[form], error)
    if warm:
        op(at(1.0, 2.0)).backward()
    x = at(1.0, 2.0)

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
    x = at(1.0, 2.0)
    y = op(x)
    broken.add("gradient")
    with pytest.raises(StopHereError):
        y.backward(retain_graph=True)
    broken.clear()
    y.backward()
    same(x.grad, [3.0, 12.0])


@pytest.mark.parametrize("transform", [torch.func.grad, torch.func.hessian, torch.func.vmap, torch.func.jacfwd])
def test_a_failure_inside_a_transform_leaves_nothing_behind(transform):
    op, broken = failing(lambda f, df: differentiable(f, grad=df, hvp=cube_product), StopHereError("stop"))
    broken.add("value")
    with pytest.raises(StopHereError):
        transform(op)(torch.ones(2, 2, dtype=torch.float64))
    broken.clear()
    x = at(1.0, 2.0)
    op(x).backward()
    same(x.grad, [3.0, 12.0])
    same(torch.func.hessian(op)(x.detach()), [[6.0, 0.0], [0.0, 12.0]])


def test_a_failed_first_check_is_not_forgotten():
    op, broken = failing(
        lambda f, df: differentiable(f, grad=lambda x: 2 * df(x), check="first"), StopHereError("stop")
    )
    broken.add("gradient")
    with pytest.raises(StopHereError):
        op(at(1.0, 2.0))
    broken.clear()
    with pytest.raises(ValueError, match="does not agree"):
        op(at(1.0, 2.0))


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
    x = at(1.0, 2.0)
    y = op(x)
    solver.broken = True
    with pytest.raises(type(error)):
        op(at(5.0, 6.0))
    solver.broken = False
    y.backward()
    same(x.grad, [3.0, 12.0])
