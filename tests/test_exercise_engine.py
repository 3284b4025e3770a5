"""``check``, ``hint`` and ``solution`` on a lesson made up for the purpose."""

import sys
from types import ModuleType

import numpy as np
import pytest
import torch

from helpers import check, hint, solution
from helpers.exercises.engine import TODO, Exercise, Folded, plain, same_number


def judge_number(answer):
    return None if same_number(answer, 42.0) else "Think of the question."


def judge_by(behaviour):
    def judge(*answers):
        return behaviour(*answers)

    return judge


def raising(error):
    def behaviour(*answers):
        raise error

    return behaviour


class CannotSayItself(Exception):
    def __str__(self):
        raise RuntimeError

    __repr__ = __str__


class Hostile:
    """An answer that fails at everything one can do with it."""

    def _fail(self, *_):
        raise RuntimeError("hostile")

    __eq__ = __bool__ = __float__ = __str__ = __repr__ = __len__ = __iter__ = __getattr__ = _fail
    __hash__ = None


@pytest.fixture(autouse=True)
def _lesson(monkeypatch):
    def exercise(judge):
        return Exercise("find the number", judge, "It is <even> & small.", "answer = 6 * 7 < 50", "It says why.")

    lesson = ModuleType("helpers.exercises.lesson_99")
    lesson.EXERCISES = {
        "99.1": exercise(judge_number),
        "99.2": exercise(judge_by(lambda *answers: TODO)),
        "99.3": exercise(judge_by(lambda answer: answer())),
        "99.4": exercise(judge_by(lambda answer: f"{answer} == {answer}" if answer == 0 else None)),
    }
    monkeypatch.setitem(sys.modules, lesson.__name__, lesson)


@pytest.fixture
def said(capsys):
    """Return what check prints."""

    def call(*arguments):
        assert check(*arguments) is None
        out, err = capsys.readouterr()
        assert err == ""
        assert out.endswith("\n")
        return out.removesuffix("\n")

    return call


# --- three verdicts


def test_a_right_answer_is_told_why(said):
    assert said("99.1", 42) == "99.1 right. It says why."


def test_a_wrong_answer_gets_the_sentence_of_its_judge(said):
    assert said("99.1", 41) == "99.1 not yet. Think of the question."


TO_DO = "99.1 to do: find the number. Write your answer in place of the ... and run the cell again."


@pytest.mark.parametrize("answers", [(), (...,), (..., 42), (42, ...)])
def test_a_blank_stub_is_to_do(said, answers):
    assert said("99.1", *answers) == TO_DO


def test_a_judge_may_call_an_answer_blank(said):
    assert said("99.2", 42).startswith("99.2 to do: find the number.")


@pytest.mark.parametrize(
    "answer",
    [np.array([..., 1], dtype=object), np.zeros(3), torch.zeros(3), [...], (), "", 0, None, False, "..."],
    ids=repr,
)
def test_only_the_ellipsis_itself_counts_as_blank(said, answer):
    assert said("99.1", answer) == "99.1 not yet. Think of the question."


# --- it never raises


@pytest.mark.parametrize(
    "answer",
    [
        np.zeros(3),
        np.array("text"),
        torch.zeros(2, 2),
        torch.ones(3, requires_grad=True),
        None,
        {},
        [],
        object(),
        lambda: 1,
        torch.Tensor,
        float("nan"),
        1j,
        10**400,
        "a word",
        b"\xff",
    ],
    ids=lambda answer: str(answer)[:20],
)
def test_an_answer_of_any_kind_is_judged_wrong_and_raises_nothing(said, answer):
    assert said("99.1", answer) == "99.1 not yet. Think of the question."


def test_an_answer_that_fails_at_everything_is_told_how(said):
    assert said("99.1", Hostile()) == "99.1 not yet. Think of the question."


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ValueError("too small"), "ValueError: too small"),
        (KeyError("x"), "KeyError: 'x'"),
        (RecursionError(), "RecursionError: "),
        (SystemExit(3), "SystemExit: 3"),
        (AssertionError("no"), "AssertionError: no"),
        (CannotSayItself(), "CannotSayItself"),
    ],
    ids=lambda part: type(part).__name__,
)
def test_an_answer_that_raises_is_told_how(said, error, words):
    assert said("99.3", raising(error)) == f"99.3 not yet. Your answer raised {words}"


def test_an_answer_compared_elementwise_is_told_how_it_fails(said):
    assert "Your answer raised ValueError: The truth value of an array" in said("99.4", np.zeros(3))


def test_the_learner_can_still_interrupt_an_answer():
    with pytest.raises(KeyboardInterrupt):
        check("99.3", raising(KeyboardInterrupt()))


def test_too_many_answers_raise_nothing(said):
    assert said("99.1", 1, 2, 3).startswith("99.1 not yet. Your answer raised TypeError")


# --- numbers

UNKNOWN = ["99.9", "99", "98.1", "", ".", "1", "x", "one.two", "-99.1", "9" * 5000 + ".1", "²", "99.1\x00", " 99.1"]
NO_NUMBERS = [None, (), ["99.1"], b"99.1", np.array(99.1), torch.tensor(99.1), torch.ones(2), Hostile(), ..., object]


@pytest.mark.parametrize("number", UNKNOWN, ids=lambda number: repr(number)[:12])
def test_an_unknown_number_is_said_and_shows_what_numbers_look_like(said, number):
    words = said(number, 42)
    assert words == f'There is no exercise {number!r}. Numbers look like "1.2": lesson 1, exercise 2.'


@pytest.mark.parametrize("number", NO_NUMBERS, ids=lambda number: type(number).__name__)
def test_what_is_no_number_is_named(said, number):
    assert f'a number is text, like "1.2"; got {type(number).__name__}' in said(number, 42)


@pytest.mark.parametrize("function", [hint, solution])
@pytest.mark.parametrize("number", [*UNKNOWN, None, (), 99.1j], ids=lambda number: repr(number)[:12])
def test_hint_and_solution_of_an_unknown_number_say_so(function, number):
    assert "There is no" in function(number).words


# --- hint and solution


def test_a_hint_is_folded_words():
    folded = hint("99.1")
    assert folded.heading == "Hint 99.1"
    assert folded._repr_html_() == (
        "<details><summary><b>Hint 99.1</b></summary><p>It is &lt;even&gt; &amp; small.</p></details>"
    )


def test_a_solution_is_folded_code():
    folded = solution("99.1")
    assert folded.heading == "Solution 99.1"
    assert folded._repr_html_() == (
        "<details><summary><b>Solution 99.1</b></summary><pre>answer = 6 * 7 &lt; 50</pre></details>"
    )


def test_a_terminal_shows_the_words_as_they_are():
    assert repr(hint("99.1")) == "Hint 99.1\nIt is <even> & small."


def test_a_heading_is_not_read_as_html():
    assert "<script>" not in Folded("<script>", "words")._repr_html_()


def test_an_unknown_number_is_not_read_as_html():
    assert "<script>" not in hint("<script>.1")._repr_html_()


# --- the judges' tools


@pytest.mark.parametrize(
    "answer",
    [42, 42.0, "42", np.float32(42), np.array(42.0), np.array([42.0]), torch.tensor(42), torch.tensor([42.0])],
    ids=repr,
)
def test_a_number_is_known_whatever_its_type(answer):
    assert same_number(answer, 42.0)


@pytest.mark.filterwarnings("error")
def test_a_tracked_tensor_is_a_number_without_a_warning():
    assert same_number(torch.tensor(42.0, requires_grad=True), 42.0)


@pytest.mark.parametrize(
    ("answer", "tolerance", "same"),
    [(42.00001, 1e-6, True), (42.001, 1e-6, False), (42.3, 1e-2, True), (-42, 1e-6, False)],
)
def test_a_number_is_compared_within_its_tolerance(answer, tolerance, same):
    assert same_number(answer, 42.0, tolerance) is same


@pytest.mark.parametrize("answer", [np.ones(2), torch.ones(2), None, "x", 1j, 10**400, np.nan, np.inf], ids=str)
def test_what_is_not_one_finite_number_is_not_the_same(answer):
    assert not same_number(answer, 1.0)


@pytest.mark.parametrize("answer", ["x.grad", "  X.Grad ", "`x.grad`", "x.grad!", "(x.grad)"])
def test_spelling_does_not_decide(answer):
    assert plain(answer) == "x.grad"


def test_other_letters_do_decide():
    assert plain("x.grad") != plain("x_grad")
