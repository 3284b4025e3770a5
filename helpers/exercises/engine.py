"""How an exercise is judged, hinted at and solved. What each one asks stands in ``lesson_NN``."""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

TODO = object()
"""What a judge returns for an answer that is still the empty stub."""

Judge = Callable[..., object]


@dataclass(frozen=True)
class Exercise:
    """One exercise.

    Parameters
    ----------
    title : str
        What is asked, in a few words.
    judge : callable, the answers -> None, str or TODO
        None: right. A sentence: wrong, and it says what to think about. TODO: nothing written yet.
    hint : str
        The way to the answer, without the answer.
    solution : str
        Code for the cell, without the line that calls ``check``.
    why : str
        One sentence, said when the answer is right.
    wrong : mapping, code -> part of the sentence it gets
        Answers that people give. The tests run each of them.
    """

    title: str
    judge: Judge
    hint: str
    solution: str
    why: str
    wrong: Mapping[str, str] = field(default_factory=dict)


class Folded:
    """Words under a heading that a click opens; a terminal shows them at once."""

    def __init__(self, heading: str, words: str, *, code: bool = False) -> None:
        self.heading, self.words, self.code = heading, words, code

    def __repr__(self) -> str:
        return f"{self.heading}\n{self.words}"

    def _repr_html_(self) -> str:
        words = html.escape(self.words)
        body = f"<pre>{words}</pre>" if self.code else f"<p>{words}</p>"
        return f"<details><summary><b>{html.escape(self.heading)}</b></summary>{body}</details>"


def check(number: str, *answers: object) -> None:
    """Print whether the answer to an exercise is right. It never raises, whatever the answer is.

    Parameters
    ----------
    number : str
        The exercise, such as "1.2".
    *answers : object
        What you wrote. As long as it is ``...``, the exercise counts as to do.
    """
    exercise = find(number)
    if isinstance(exercise, str):
        print(exercise)
        return
    verdict = _judge(exercise, answers)
    if verdict is None:
        print(f"{number} right. {exercise.why}")
    elif verdict is TODO:
        print(f"{number} to do: {exercise.title}. Write your answer in place of the ... and run the cell again.")
    else:
        print(f"{number} not yet. {verdict}")


def hint(number: str) -> Folded:
    """Return the hint of an exercise, folded."""
    exercise = find(number)
    return Folded(f"Hint {number}", exercise if isinstance(exercise, str) else exercise.hint)


def solution(number: str) -> Folded:
    """Return the solution of an exercise, folded."""
    exercise = find(number)
    if isinstance(exercise, str):
        return Folded(f"Solution {number}", exercise)
    return Folded(f"Solution {number}", exercise.solution, code=True)


def find(number: str) -> Exercise | str:
    """Return the exercise with this number, or a sentence that says why there is none."""
    if not isinstance(number, (str, int, float)):
        return f'There is no such exercise: a number is text, like "1.2"; got {type(number).__name__}.'
    unknown = f'There is no exercise {number!r}. Numbers look like "1.2": lesson 1, exercise 2.'
    lesson = str(number).partition(".")[0]
    if not lesson.isdecimal() or len(lesson) > 3:
        return unknown
    try:
        module = import_module(f"{__package__}.lesson_{int(lesson):02d}")
    except ModuleNotFoundError:
        return unknown
    found: Exercise | None = module.EXERCISES.get(str(number))
    return unknown if found is None else found


def same_number(answer: object, right: float, tolerance: float = 1e-6) -> bool:
    """Say whether an answer is this number, whatever type of number it is."""
    try:
        number = answer.item() if hasattr(answer, "item") else answer  # float() warns of a tracked tensor
        return abs(float(number) - right) <= tolerance * max(1.0, abs(right))  # type: ignore[arg-type]
    except (TypeError, ValueError, RuntimeError, OverflowError):
        return False


def same_bool(answer: object, right: bool) -> bool | None:
    """Say whether an answer means True or False as asked; None if it means neither."""
    meant = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}.get(plain(answer))
    if hasattr(answer, "item") and meant is None:
        meant = {0: False, 1: True}.get(answer.item())
    return None if meant is None else meant is right


def judge_bools(*judged: tuple[object, bool, str]) -> str | None:
    """Judge answers of True or False in order: each with what is right and the thought that helps."""
    for answer, right, thought in judged:
        same = same_bool(answer, right)
        if same is None:
            return f"Write True or False for each; {answer!r} is neither."
        if not same:
            return thought
    return None


def plain(answer: object) -> str:
    """Return an answer in words as lower-case letters, digits, dots and underscores: spelling does not decide."""
    return "".join(letter for letter in str(answer).lower() if letter.isalnum() or letter in "._")


def _judge(exercise: Exercise, answers: tuple[Any, ...]) -> object:
    if not answers or any(answer is Ellipsis for answer in answers):
        return TODO
    try:
        return exercise.judge(*answers)
    except (Exception, SystemExit) as error:  # an answer may fail in any way, and the learner needs to hear how
        return f"Your answer raised {_told(error)}"


def _told(error: BaseException) -> str:
    name = type(error).__name__
    try:
        return f"{name}: {error}"
    except Exception:  # an exception of the learner's own may fail even at saying what it is
        return name
