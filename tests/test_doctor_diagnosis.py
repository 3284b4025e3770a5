"""A Diagnosis says what it must, as an object, in a terminal and in a notebook; and so does the call itself."""

from pathlib import Path

import numpy as np
import pytest
import torch

from helpers import Diagnosis, Finding, diagnose, differentiable, rosenbrock

WRONG = Finding(
    "swapped-gradients", "wrong", "They are swapped.", {"got": 1.0, "expected": 2.0}, "return b, a", ("a.py", 7), "09"
)
FRAGILE = Finding("zero-hessian", "fragile", "It is <zero>.")
X = torch.tensor([0.1, 0.1], dtype=torch.float64)


class Valley(torch.autograd.Function):
    """Right, but its upstream gradient is forgotten."""

    @staticmethod
    def forward(context, position):
        context.save_for_backward(position)
        return torch.as_tensor(rosenbrock.value(position.numpy()))

    @staticmethod
    def backward(context, upstream):
        (position,) = context.saved_tensors
        return torch.as_tensor(rosenbrock.gradient(position.numpy()))


def test_it_is_true_when_nothing_is_wrong():
    assert Diagnosis("f")
    assert Diagnosis("f", (FRAGILE,))
    assert not Diagnosis("f", (WRONG,))
    assert not Diagnosis("f", unfinished="no time")


def test_it_prints_the_finding_with_place_evidence_and_cure():
    text = repr(Diagnosis("f", (WRONG, FRAGILE), {"vmap": "refused"}))
    assert "f: 1 wrong, 1 fragile (worst: swapped-gradients)" in text
    assert "WRONG: swapped-gradients  (a.py, line 7)" in text
    for part in ("They are swapped.", "got: 1", "expected: 2", "return b, a", "vmap", "refused"):
        assert part in text


def test_its_html_is_escaped_and_holds_the_same():
    page = Diagnosis("f<T>", (WRONG, FRAGILE), {"vmap": "refused"})._repr_html_()
    for part in ("f&lt;T&gt;", "It is &lt;zero&gt;.", "swapped-gradients", "return b, a", "lesson 09", "refused"):
        assert part in page
    assert "<zero>" not in page


def test_what_was_not_finished_is_said():
    diagnosis = Diagnosis("f", unfinished="it raised", cut_short="after 1 s")
    assert "f: not known" in repr(diagnosis)
    for text in (repr(diagnosis), diagnosis._repr_html_()):
        assert "it raised" in text
        assert "after 1 s" in text


@pytest.mark.parametrize("patient", [Valley, Valley.apply, lambda p: Valley.apply(p)], ids=["class", "apply", "lambda"])
def test_a_function_is_known_in_every_form(patient):
    finding = diagnose(patient, X).findings[0]
    assert finding.slug == "grad-output-ignored"
    assert finding.evidence["expected"] == pytest.approx(
        finding.evidence["got"] * finding.evidence["upstream gradient"]
    )


def test_the_cure_and_the_place_use_the_users_own_names():
    finding = diagnose(Valley, X).findings[0]
    assert "upstream * gradient" in finding.cure
    file, line = finding.where
    assert file == __file__
    assert "def backward" in Path(file).read_text(encoding="utf-8").splitlines()[line - 1]


def test_an_instance_is_named_and_still_examined():
    with pytest.warns(DeprecationWarning, match="should not be instantiated"):
        instance = Valley()
    assert diagnose(instance, X).slugs == ("instance-called", "grad-output-ignored")


def test_a_reference_decides_what_is_right():
    right = differentiable(rosenbrock.value, grad=rosenbrock.gradient)
    assert diagnose(right, X, reference=lambda x: (1 - x[0]) ** 2 + 5 * (x[1] - x[0] ** 2) ** 2)
    other = diagnose(right, X, reference=lambda x: (1 - x[0]) ** 2 + 4 * (x[1] - x[0] ** 2) ** 2)
    assert other.slugs[0] == "value-wrong"


def test_a_wrong_entry_is_shown_with_its_numbers():
    def half_of_the_second(x):
        return rosenbrock.gradient(x) * np.array([1.0, 0.5])

    class Half(Valley):
        @staticmethod
        def backward(context, upstream):
            return upstream * torch.as_tensor(half_of_the_second(context.saved_tensors[0].numpy()))

    finding = diagnose(Half, X).findings[0]
    assert finding.slug == "gradient-wrong"
    assert finding.evidence["entry"] == "position[1]"
    assert finding.evidence["got"] == pytest.approx(0.5 * finding.evidence["expected"], rel=1e-6)
    assert "factor 2 too small in these entries" in finding.evidence["guess"]


@pytest.mark.parametrize("seconds", [0, -1, float("nan")])
def test_a_budget_that_is_no_time_is_refused(seconds):
    with pytest.raises(ValueError, match="seconds must be a positive number"):
        diagnose(Valley, X, seconds=seconds)
    with pytest.raises(ValueError, match="seconds must be a positive number"):
        diagnose.training(torch.optim.SGD([X.clone().requires_grad_()], lr=0.1), lambda: None, seconds=seconds)


def test_two_diagnoses_are_the_same():
    assert repr(diagnose(Valley, X)) == repr(diagnose(Valley, X))


def test_the_uses_say_what_a_healthy_function_can_do():
    uses = diagnose(differentiable(rosenbrock.value, grad=rosenbrock.gradient, hvp=rosenbrock.hvp), X).uses
    assert (
        uses["second derivative"] == uses["torch.func"] == uses["torch.func.vmap"] == uses["torch.func.jvp"] == "right"
    )
