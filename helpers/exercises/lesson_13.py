"""Exercises of lesson 13: many solves at once."""

import functools
import pickle
from typing import Any

import numpy as np

from ..solvers import HeatEquation
from .engine import TODO, Exercise, plain

CELLS = 24


def _halved(answer: Any) -> object:
    if not callable(answer):
        return "Pass the function itself, not what it returns."
    try:
        data = pickle.dumps(answer)
    except Exception:  # pickle complains in many ways
        inner = answer.func if isinstance(answer, functools.partial) else answer
        if "<lambda>" in getattr(inner, "__qualname__", ""):
            return "There is still a lambda in it, and a lambda has no name by which a worker could find it."
        return "This cannot be pickled. Which function is named in it, and does it stand in a module?"
    if b"__main__" in data:
        return "It can be pickled here, but it stands in this notebook, and a worker process cannot import that."
    m, measured = np.zeros((CELLS, CELLS)), np.linspace(0, 0.1, 25)
    try:
        value, gradients = pickle.loads(data)(m, measured)
    except (TypeError, ValueError) as error:
        said = str(error).rstrip(".")
        return f"It can be sent, but a worker cannot call it with m and measured: {said}. Name the argument, weight."
    y, state = HeatEquation(CELLS).forward(m)
    whole = np.sum((y - measured) ** 2)
    if np.isclose(value, whole):
        return "It can be sent, and returns the whole misfit. The weight is still 1."
    if not np.isclose(value, 0.5 * whole):
        return f"It can be sent. Its value is {value / whole:.3g} times the whole misfit; half of it is asked for."
    if not np.allclose(gradients[0], HeatEquation(CELLS).adjoint(state, y - measured)):
        return "The value is half of the misfit, and the gradient is not that of the value."
    return None


def _useful(answer: Any) -> object:
    if not callable(answer):
        return "Pass the function itself: check('13.2', useful_workers)."
    found = [answer(solve, trip) for solve, trip in ((10, 0.5), (10, 3), (1, 5), (6, 2), (1000, 1))]
    if Ellipsis in found:
        return TODO
    if None in found:
        return "Your function returns nothing. Is a return missing?"
    if found[0] <= 1 < found[2]:
        return "That is upside down. A long solve keeps many workers busy, a long trip few."
    twenty, four, one, three, thousand = found
    if twenty != 20:
        return f"A solve of 10 and a trip of 0.5: after 20 trips the first worker is free again. You say {twenty}."
    if four in (3, 10 / 3):
        return "A solve of 10 and a trip of 3: with 3 workers a sample takes 10/3, longer than the trip. Round up."
    if four != 4:
        return f"A solve of 10 and a trip of 3: the smallest whole number of workers is 4. You say {four}."
    if one != 1:
        return f"A solve of 1 and a trip of 5: one worker is always there, and no second one helps. You say {one}."
    if three != 3:
        return "A solve of 6 and a trip of 2: three workers are just enough, a fourth one would wait."
    if thousand != 1000:
        return "A solve of 1000 and a trip of 1: there is no largest number of workers. Leave the limit out."
    return None


CHOICES = ("none", "threads", "processes, travel", "processes, recompute", "Dask, travel", "Dask, recompute")
SITUATIONS = {
    "A": ("threads", "A: compiled code, and a state that cannot be pickled. Who shares one memory?"),
    "B": (
        "processes, travel",
        "B: Python's lock lets one thread at a time run a loop in Python. And 2 MB are quick to send after 30 s.",
    ),
    "C": ("none", "C: the trip to any executor takes longer than 20 µs."),
    "D": (
        "Dask, recompute",
        "D: forty machines, some of which vanish. And 2 GB out and back take 40 s on this network, a solve 1 s.",
    ),
    "E": ("Dask, travel", "E: a second solve would cost ten minutes, and 5 MB are nothing against that."),
}


def _choices(*answers: object) -> str | None:
    known = [plain(choice) for choice in CHOICES]
    for answer, (letter, (right, thought)) in zip(answers, SITUATIONS.items(), strict=True):
        if plain(answer) not in known:
            return f"{letter}: {answer!r} is none of the six. Write one of: {' | '.join(CHOICES)}."
        if plain(answer) != plain(right):
            return thought
    return None


def _code(result: str) -> str:
    return f"import math\n\n\ndef useful_workers(solve, trip):\n    return {result}"


def _choice_code(**changed: str) -> str:
    right = {letter: choice for letter, (choice, _) in SITUATIONS.items()} | changed
    return "\n".join(["choice = {", *(f'    "{letter}": "{choice}",' for letter, choice in right.items()), "}"])


def _partial(arguments: str) -> str:
    return f"from functools import partial\n\nhalved = partial({arguments})"


_LOCAL = """def halved(m, measured):
    return plates_work.misfit(m, measured, weight=0.5)"""

EXERCISES = {
    "13.1": Exercise(
        title="a function that can travel",
        judge=_halved,
        hint="Python's functools.partial(function, name=value) keeps a function together with one of its arguments. It "
        "can be pickled if the function can.",
        solution=_partial("plates_work.misfit, weight=0.5"),
        why="What travels is a name and one number: the worker imports the module and finds misfit there.",
        wrong={
            "halved = lambda m, measured: plates_work.misfit(m, measured, weight=0.5)": "still a lambda",
            _partial("lambda m, measured: plates_work.misfit(m, measured, weight=0.5)"): "still a lambda",
            _LOCAL: "it stands in this notebook",
            "halved = plates_work.misfit": "The weight is still 1",
            _partial("plates_work.misfit, weight=2"): "half of it is asked for",
            _partial("plates_work.misfit, 0.5"): "Name the argument",
            "halved = plates_work.misfit(m[0].detach().numpy(), measured[0].numpy())": "not what it returns",
        },
    ),
    "13.2": Exercise(
        title="how many workers are of use",
        judge=_useful,
        hint="The trips decide as soon as solve / workers is not longer than trip. math.ceil rounds up.",
        solution=_code("math.ceil(solve / trip)"),
        why="From there on every further worker waits for its next sample.",
        wrong={
            _code("solve / trip"): "Round up",
            _code("solve // trip"): "Round up",
            _code("max(1, round(solve / trip))"): "Round up",
            _code("math.ceil(trip / solve)"): "upside down",
            _code("math.ceil(solve / trip) + 1"): "You say 21",
            _code("math.floor(solve / trip) + 1"): "You say 21",
            _code("max(2, math.ceil(solve / trip))"): "no second one helps",
            _code("min(64, math.ceil(solve / trip))"): "Leave the limit out",
        },
    ),
    "13.3": Exercise(
        title="which executor, which state",
        judge=_choices,
        hint="Ask in this order: is a solve longer than a trip? Compiled code or Python? One machine or many? Then "
        "compare the time of the state's two journeys with the time of one more solve.",
        solution=_choice_code(),
        why="The trip decides whether, the code decides who, and the size of the state decides what travels.",
        wrong={
            _choice_code(A="processes, travel"): "a state that cannot be pickled",
            _choice_code(B="threads"): "one thread at a time",
            _choice_code(B="processes, recompute"): "quick to send",
            _choice_code(C="threads"): "takes longer than 20",
            _choice_code(D="Dask, travel"): "2 GB out and back",
            _choice_code(E="Dask, recompute"): "ten minutes",
            _choice_code(E="MPI"): "none of the six",
        },
    ),
}
