"""On every route of torch to a derivative the bridge's ops give the numbers of the same functions in torch."""

import pytest
from bridge_patients import ALL_PATIENTS, PATIENTS, assert_same, backward, fresh, numbers, scalar, solve_torch
from bridge_routes import (
    ROUTES,
    direct,
    directional_second_order,
    first_order,
    gradient_penalty,
    recorded_programs,
    second_order,
)
from torch import autograd, func

from helpers import differentiable


@ALL_PATIENTS
@pytest.mark.parametrize("route", ROUTES.values(), ids=ROUTES.keys())
def test_a_route_gives_the_numbers_of_torch(route, patient):
    patient.op(*patient.xs)
    assert_same(route(patient.op, patient.xs), route(patient.reference, patient.xs))


@pytest.mark.parametrize("name", ["vjp", "jac_several", "state"])
def test_recorded_programs_give_the_numbers_of_torch(name):
    patient = PATIENTS[name]
    patient.op(*patient.xs)
    assert_same(recorded_programs(patient.op, patient.xs), recorded_programs(patient.reference, patient.xs, direct))


@ALL_PATIENTS
def test_gradcheck(patient):
    options = {"check_batched_grad": True, "check_forward_ad": True, "check_batched_forward_grad": True}
    assert autograd.gradcheck(patient.op, fresh(patient.xs), **options)


@ALL_PATIENTS
def test_gradgradcheck(patient):
    options = {"check_fwd_over_rev": True, "check_rev_over_rev": True, "check_batched_grad": True}
    assert autograd.gradgradcheck(patient.op, fresh(patient.xs), **options)


def test_a_tensor_may_be_given_by_name():
    patient = PATIENTS["vjp_several"]
    assert_same(backward(lambda r, a: patient.op(r, a=a), patient.xs), backward(patient.reference, patient.xs))


def test_one_of_two_inputs_may_want_no_gradient():
    a, b = PATIENTS["vjp"].xs
    for wanted in (0, 1):
        xs = [a.clone(), b.clone()]
        xs[wanted].requires_grad_()
        scalar(PATIENTS["vjp"].op)(*xs).backward()
        assert_same(xs[wanted].grad, func.grad(scalar(solve_torch), wanted)(a, b))
        assert xs[1 - wanted].grad is None


def test_one_of_two_outputs_may_be_left_unused():
    patient = PATIENTS["jac_several"]
    for used in (0, 1):
        pick = lambda f: lambda *xs: f(*xs)[used]  # noqa: E731, B023
        for route_ in (first_order, second_order, gradient_penalty):
            assert_same(route_(pick(patient.op), patient.xs), route_(pick(patient.reference), patient.xs))


def test_an_input_may_have_no_gradient_at_all():
    def along(x, w):
        return x @ x * w[0]

    op = differentiable(along, grad=lambda x, w: (2 * x * w[0], None), hvp=lambda x, w, t, s: (2 * t * w[0], None))
    x, w = numbers(2), numbers(2, seed=1)
    for route_ in (first_order, second_order, directional_second_order):
        assert_same(route_(lambda x: op(x, w), (x,)), route_(lambda x: along(x, w), (x,)))
