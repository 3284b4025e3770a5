"""The bridge's ops under torch.compile(fullgraph=True): the numbers of torch, and the errors of the plain call."""

import numpy as np
import pytest
import torch
from bridge_patients import (
    PATIENTS,
    Cubic,
    assert_same,
    backward,
    cubic_torch,
    every,
    gradient,
    log_sum_exp,
    mixed,
    mixed_torch,
    numbers,
    rosen,
    rosenbrock_torch,
    scalar,
    stacked,
    tangents,
)
from torch import func
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.checkpoint import checkpoint

from helpers import ExternalFunction, UniformFactor, differentiable, rosenbrock


@pytest.fixture(autouse=True)
def _forget_programs():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def compiled(function, **options):
    return torch.compile(function, fullgraph=True, backend="aot_eager", **options)


def some(*names):
    return pytest.mark.parametrize("patient", [PATIENTS[name] for name in names], ids=names)


# --- the numbers


def first_derivatives(f, xs):
    def program(*xs):
        return [
            f(*xs),
            gradient(f, xs)(*xs),
            func.jvp(f, xs, tangents(xs)),
            func.jacrev(f, every(xs))(*xs),
            func.jacfwd(f, every(xs))(*xs),
            func.vmap(f)(*stacked(xs)),
            func.vmap(f, in_dims=(0,) + (None,) * (len(xs) - 1))(torch.stack([xs[0], 2 * xs[0]]), *xs[1:]),
        ]

    return program


def second_derivatives(f, xs):
    def program(*xs):
        return [func.hessian(scalar(f), every(xs))(*xs), func.jacfwd(func.jacfwd(f))(*xs)]

    return program


def more_second_derivatives(f, xs):
    def program(*xs):
        many = stacked(xs)
        return [
            func.jacrev(func.jacfwd(f))(*xs),
            func.jacrev(func.jacrev(f))(*xs),
            func.vmap(func.jacfwd(func.jacfwd(f)))(*many),  # torch itself cannot compile vmap(hessian)
            func.hessian(lambda *xs: (func.vmap(f)(*xs) ** 2).sum())(*many),
        ]

    return program


@some("jac_several", "loop")
def test_values_and_first_derivatives(patient):
    patient.op(*patient.xs)
    program = compiled(first_derivatives(patient.op, patient.xs))
    for xs in (patient.xs, tuple(x + 0.1 for x in patient.xs)):
        assert_same(program(*xs), first_derivatives(patient.reference, xs)(*xs))


SECOND = [("jac_several", second_derivatives), ("state", more_second_derivatives)]


@pytest.mark.parametrize(("name", "routes"), SECOND, ids=[name for name, _ in SECOND])
def test_second_derivatives(name, routes):
    patient = PATIENTS[name]
    patient.op(*patient.xs)
    program = compiled(routes(patient.op, patient.xs))
    for xs in (patient.xs, tuple(x + 0.1 for x in patient.xs)):
        assert_same(program(*xs), routes(patient.reference, xs)(*xs))


@some("grad", "vjp_loop", "state_vectorized")
def test_backward_over_a_compiled_function(patient):
    patient.op(*patient.xs)
    program = compiled(patient.op)
    for shift in (0.0, 0.1):
        xs = tuple(x + shift for x in patient.xs)
        assert_same(backward(program, xs), backward(patient.reference, xs))


def test_backward_over_a_compiled_tangent():
    patient = PATIENTS["jac_several"]
    patient.op(*patient.xs)

    def tangent(f):
        return lambda *xs: func.jvp(f, xs, tangents(xs))[1]

    assert_same(backward(compiled(tangent(patient.op)), patient.xs), backward(tangent(patient.reference), patient.xs))


def test_a_whole_loss_with_its_backward_in_the_program():
    op = rosen(batch="vectorized")
    layer = torch.nn.Linear(3, 2, dtype=torch.float64)

    def loss(f):
        return lambda x: (f(torch.tanh(layer(x))) ** 2).mean()

    found, expected = [], []
    for function, grads in ((compiled(loss(op)), found), (loss(rosenbrock_torch), expected)):
        layer.zero_grad()
        function(numbers(4, 3)).backward()
        grads += [parameter.grad.clone() for parameter in layer.parameters()]
    assert_same(found, expected)


def test_two_ops_in_one_program():
    first, second = PATIENTS["grad"], PATIENTS["value_and_grad"]

    def both(f, g):
        return lambda x: f(x) * g(torch.cat([x, f(x)[None] / 9])) + f(2 * x)

    args = (numbers(2) / 2,)
    program = compiled(func.grad_and_value(both(first.op, second.op)))
    assert_same(program(*args), func.grad_and_value(both(first.reference, second.reference))(*args))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_the_dtype_follows_the_input(dtype):
    (x,) = PATIENTS["grad"].xs
    at = x.to(dtype).requires_grad_()
    y = compiled(PATIENTS["grad"].op)(at)
    y.backward()
    assert y.dtype is at.grad.dtype is dtype
    tolerance = 1e-5 if dtype is torch.float32 else 2**-6
    assert_same(at.grad.double(), torch.from_numpy(rosenbrock.gradient(at.detach().double().numpy())), tolerance)


# --- arguments, definitions, shapes


def power(x, exponent, *, scale, shift=0.0):
    return scale * np.sum(x**exponent) + shift


def power_gradient(x, exponent, *, scale, shift=0.0):
    return scale * exponent * x ** (exponent - 1)


CASES = {"fixed": [(3, 2.0)] * 2, "floats": [(3, 2.0), (3, 0.5), (3, 2.0)], "integers": [(3, 2.0), (2, 2.0), (4, 2.0)]}


@pytest.mark.parametrize("cases", CASES.values(), ids=CASES.keys())
def test_arguments_that_are_no_tensors(cases):
    op = differentiable(power, grad=power_gradient)
    x = numbers(3)

    def program(exponent, scale):
        return func.grad_and_value(lambda x: op(x, exponent, scale=scale, shift=1.0))

    run = compiled(lambda x, exponent, scale: program(exponent, scale)(x))
    for exponent, scale in cases:
        assert_same(run(x, exponent, scale), (scale * exponent * x ** (exponent - 1), scale * (x**exponent).sum() + 1))


def test_tensors_given_by_name():
    op = differentiable(lambda x, by: x @ by, grad=lambda x, by: (by, x))
    x, by = numbers(2), numbers(2, seed=1)
    assert_same(backward(compiled(lambda x, by: op(x, by=by)), (x, by)), backward(torch.dot, (x, by)))


def test_a_cell_that_is_run_again_takes_the_new_function():
    def cell(factor):
        return differentiable(lambda x: factor * x @ x, grad=lambda x: 2 * factor * x, name="f")

    scope = {"f": cell(1.0)}
    exec("def loss(x):\n    return f(x)", scope)
    loss, x = compiled(scope["loss"]), numbers(3)
    for factor in (1.0, 5.0, 7.0):
        scope["f"] = cell(factor)
        value = factor * x @ x
        assert_same([loss(x), backward(loss, (x,))], [value, (1 + 2 * value) * 2 * factor * x])


def shifted(x, by):
    return x + by.sum()


def sum_of(result):
    return lambda *args: result(*args).sum()


@pytest.mark.parametrize(
    "arrays",
    [
        (np.full(3, 0.123456789), np.full(3, 0.1234567891)),
        (np.zeros(5000), np.where(np.arange(5000) == 2500, 7.0, 0.0)),
    ],
    ids=["that print alike", "that are too long to print"],
)
def test_two_programs_with_different_arrays(arrays):
    op = differentiable(shifted, vjp=lambda x, by, g: g)
    x = numbers(2)
    programs = []
    for by in arrays:
        op(x, by)
        programs.append(make_fx(lambda x: op(x, by))(x))  # noqa: B023
    for program, by in zip(programs, arrays, strict=True):
        assert_same(program(x), x + by.sum(), 1e-13)


def test_an_array_as_argument_of_a_compiled_call_names_the_cure():
    op = differentiable(shifted, vjp=lambda x, by, g: g)
    x, by = numbers(2), np.ones(3)
    op(x, by)
    with pytest.raises(Exception, match=r"shifted: .*array.*torch.from_numpy"):
        compiled(lambda x: op(x, by))(x)


UNKNOWN = r"shifted: a compiler asks for the shape of the output.*Call shifted once before you compile it, or give out_"
COLUMN = torch.ones(2, dtype=torch.float64)


def test_an_output_of_unknown_shape_names_the_cures():
    op = differentiable(shifted, vjp=lambda x, by, g: (g, np.full_like(by, g.sum())))
    with pytest.raises(Exception, match=UNKNOWN):
        compiled(op)(numbers(3), COLUMN)


CURES = {
    "called once": (None, lambda op: op(numbers(3), COLUMN)),
    "called under grad once": (None, lambda op: func.grad(sum_of(op))(numbers(3), COLUMN)),
    "called under vmap once": (None, lambda op: func.vmap(op, in_dims=(0, None))(numbers(5, 3), COLUMN)),
    "shape": ((3,), lambda op: None),
    "shape of shapes": (lambda x, by: x, lambda op: None),
}


@pytest.mark.parametrize(("out_shape", "prepare"), CURES.values(), ids=CURES.keys())
def test_each_cure_for_an_unknown_shape(out_shape, prepare):
    op = differentiable(shifted, vjp=lambda x, by, g: (g, np.full_like(by, g.sum())), out_shape=out_shape)
    prepare(op)
    args = (numbers(3), COLUMN)
    assert_same(compiled(func.grad_and_value(sum_of(op)))(*args), func.grad_and_value(sum_of(shifted))(*args))


KNOWN = {"out_shape": {"out_shape": [(2,), ()]}, "signature": {"signature": "(n),(n)->(n),()"}}


@pytest.mark.parametrize("known", KNOWN.values(), ids=KNOWN.keys())
def test_several_outputs_of_an_op_that_was_not_called(known):
    op = differentiable(mixed, jac=lambda x, y: pytest.fail("not needed"), **known)
    xs = PATIENTS["jac_several"].xs
    assert_same(compiled(lambda x, y: op(x, y))(*xs), mixed_torch(*xs))


class Doubled(ExternalFunction):
    """Elementwise; its sizes are free."""

    signature = "(n)->(n)"

    def forward(self, x):
        return np.sinh(x), x

    def adjoint(self, x, g):
        return g * np.cosh(x)


SIZES = {"signature": Doubled(), "one number": rosen(batch="vectorized"), "called with each": Cubic()}


@pytest.mark.parametrize("op", SIZES.values(), ids=SIZES.keys())
def test_sizes_that_change(op):
    reference = {"Doubled": torch.sinh, "Cubic": cubic_torch}.get(str(op.label), rosenbrock_torch)
    program = compiled(op, dynamic=True)
    for size in (3, 5, 8):
        x = numbers(size, 2) if reference is rosenbrock_torch else numbers(size)
        if isinstance(op, Cubic):
            op(x)
        assert_same([program(x), backward(program, (x,))], [reference(x), backward(reference, (x,))])


def test_a_size_that_was_never_seen_is_an_error():
    op = Cubic()
    op(numbers(3))
    program = compiled(op)
    program(numbers(3))
    with pytest.raises(Exception, match=r"Call Cubic once before you compile it, or give out_shape="):
        program(numbers(4))


# --- what is refused


def test_aux_is_refused():
    op = differentiable(lambda x: (x @ x, {"calls": 1}), grad=lambda x: 2 * x, aux=True, name="square")
    with pytest.raises(Exception, match=r"square: torch.compile lets only tensors through, and aux=True"):
        compiled(op)(numbers(3))


def test_a_check_on_first_use_is_refused():
    op = differentiable(lambda x: x @ x, grad=lambda x: 3 * x, check="first", name="square")
    with pytest.raises(Exception, match=r'square: check="first" needs a first call that is not compiled'):
        compiled(op)(numbers(3))


MISSING = {
    "hessian": (differentiable(value_and_grad=log_sum_exp), func.hessian, "log_sum_exp has no hvp.*hvp="),
    "jvp": (Cubic(), lambda f: func.jacfwd(func.jacfwd(func.jacfwd(f))), "Cubic: a third derivative was asked for"),
    "tangent": (Doubled(), lambda f: lambda x: func.jvp(f, (x,), (x,)), "Doubled has no tangent.*tangent.self, state"),
    "third": (rosen(), lambda f: func.jacrev(func.hessian(f)), "value: a third derivative was asked for"),
}


@pytest.mark.parametrize(("op", "transform", "message"), MISSING.values(), ids=MISSING.keys())
def test_a_missing_derivative_is_an_error(op, transform, message):
    x = numbers(2)
    op(x)
    with pytest.raises(Exception, match=message):
        compiled(transform(op))(x)


def test_a_tangent_is_missing_in_a_backward_over_it():
    op = differentiable(value_and_grad=log_sum_exp)
    program = compiled(lambda x: func.jvp(op, (x,), (torch.ones_like(x),))[1])
    with pytest.raises(Exception, match="log_sum_exp has no hvp"):
        program(numbers(3).requires_grad_()).backward()


def test_what_the_function_raises_comes_through():
    def fails(x):
        raise ZeroDivisionError("the solver broke down")

    op = differentiable(fails, grad=lambda x: x)
    with pytest.raises(Exception, match="the solver broke down"):
        compiled(op)(numbers(3))


# --- noise


def noisy(seed=0, draws="evaluation", **options):
    options = {"noise": UniformFactor(0.5), "rng": seed, "draws": draws} | options
    return differentiable(rosenbrock.value, grad=rosenbrock.gradient, hvp=rosenbrock.hvp, **options)


X = numbers(2)
VALUE, SLOPE = rosenbrock_torch(X), func.grad(rosenbrock_torch)(X)
BEND = func.hessian(rosenbrock_torch)(X)


def factor_of(found, exact):
    """Return the one factor that all entries have in common."""
    factors = found / exact
    assert_same(factors, factors.flatten()[0].expand(factors.shape))
    return float(factors.flatten()[0])


def test_two_noisy_calls_in_a_program_have_two_draws_and_each_run_new_ones():
    op = noisy()
    program = compiled(lambda x: torch.stack([op(x), op(x)]))
    found = torch.cat([program(X) for _ in range(3)]) / VALUE
    twin = noisy()
    assert_same(found, torch.stack([twin(X) for _ in range(6)]) / VALUE)
    assert len(set(found.tolist())) == 6


def test_a_compiled_gradient_has_the_draw_of_its_value():
    op = noisy()
    program = compiled(func.grad_and_value(op))
    factors = set()
    for _ in range(3):
        slope, value = program(X)
        assert factor_of(slope, SLOPE) == pytest.approx(factor_of(value, VALUE), abs=1e-12)
        factors.add(factor_of(value, VALUE))
    x, y = X.clone().requires_grad_(), X.clone().requires_grad_()
    run = compiled(op)
    losses = [run(x), run(y)]
    losses[0].backward()
    losses[1].backward()
    for at, loss in zip((x, y), losses, strict=True):
        assert factor_of(at.grad, SLOPE) == pytest.approx(factor_of(loss.detach(), VALUE), abs=1e-12)
        factors.add(factor_of(at.grad, SLOPE))
    assert len(factors) == 5


def test_a_compiled_hessian_has_the_draw_of_its_value():
    op = noisy()
    program = compiled(lambda x: (func.hessian(op)(x), func.jvp(op, (x,), (x,))))
    bend, (value, slope) = program(X)
    assert factor_of(slope, SLOPE @ X) == pytest.approx(factor_of(value, VALUE), abs=1e-12)
    assert 0.5 <= factor_of(bend, BEND) != factor_of(value, VALUE)


def test_compiled_draws_of_each_kind():
    independent, step = noisy(draws="independent"), noisy(draws="step")
    slope, value = compiled(func.grad_and_value(independent))(X)
    assert abs(factor_of(slope, SLOPE) - factor_of(value, VALUE)) > 1e-3
    program = compiled(func.grad_and_value(step))
    seen = []
    for _ in range(2):
        found = [
            factor_of(each, exact) for _ in range(2) for each, exact in zip(program(X), (SLOPE, VALUE), strict=True)
        ]
        assert found == pytest.approx([found[0]] * 4, abs=1e-12)
        seen.append(found[0])
        step.advance()
    assert abs(seen[0] - seen[1]) > 1e-3


def test_a_compiled_batch_has_a_draw_for_each_sample():
    xs = numbers(5, 2, seed=3)
    op = noisy(batch="vectorized")
    slopes, values = compiled(lambda x: (func.grad(sum_of(op))(x), op(x)))(xs)
    exact = rosenbrock_torch(xs)
    factors = (slopes / func.grad(sum_of(rosenbrock_torch))(xs))[:, 0].tolist()
    assert len(set(factors)) == 5
    assert not set(factors) & set((values / exact).tolist())


def test_a_checkpoint_around_a_compiled_noisy_op_repeats_its_draw():
    op = noisy()
    program = compiled(op)
    for reentrant in (True, False):
        x = X.clone().requires_grad_()
        y = checkpoint(program, x, use_reentrant=reentrant)
        program(X)
        y.backward()
        assert factor_of(x.grad, SLOPE) == pytest.approx(factor_of(y.detach(), VALUE), abs=1e-12)


def test_a_checkpoint_inside_a_compiled_program():
    patient = PATIENTS["grad"]
    program = compiled(lambda x: checkpoint(lambda x: torch.sin(patient.op(x)), x, use_reentrant=False))
    assert_same(backward(program, patient.xs), backward(lambda x: torch.sin(rosenbrock_torch(x)), patient.xs))
