"""Exercises of lesson 08: what noise does to an optimiser."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .engine import TODO, Exercise, judge_bools, same_number

POINTS = np.random.default_rng(8).normal(size=(6, 3, 2)) + 5
KEEP = 0.75


def _unbiased(factor: object, quotient: object, term: object, squares: object, product: object) -> str | None:
    return judge_bools(
        (factor, True, "u * g: the mean of u is 1, and g is a constant. So what is the mean of the product?"),
        (quotient, False, "g / u: draw 100,000 values of 1 / u and take their mean. It is not 1."),
        (term, True, "g + 0.1 * ξ: the mean of ξ is 0, so nothing is left of the term on average."),
        (squares, False, "g + 0.1 * ξ**2: a square is never below 0. So what is its mean?"),
        (product, True, "u * v * g: two independent draws. The mean of such a product is the product of the means."),
    )


def _learning_rate(answer: object) -> str | None:
    if same_number(answer, 5e-5, 1e-7):
        return None
    thoughts = {
        1e-4: "That is right for one direction. There are two, and each adds its lr s² / 4.",
        1e-5: "That is what you get with s in place of s². The floor of SGD has the square of the noise.",
        2.5e-5: "That counts four directions, or has s² / 4 twice. Two directions make lr s² / 2 in all.",
        5e-6: "That is Adam's formula for one direction, lr s / 4, or a factor 10. Here it is SGD: lr s² / 4.",
        2e-8: "That is the floor for lr = 1e-6. The question is the other way round: which lr has the floor 1e-6?",
    }
    for number, thought in thoughts.items():
        if same_number(answer, number, 1e-9):
            return thought
    return "Set 2 · lr s² / 4 equal to 1e-6 and solve for lr, as a number."


def _running(points: NDArray[np.float64], keep: float) -> NDArray[np.float64]:
    means = points.copy()
    for k in range(1, len(points)):
        means[k] = keep * means[k - 1] + (1 - keep) * points[k]
    return means


def _running_average(answer: Any) -> object:
    if not callable(answer):
        return "Pass the function itself, without brackets after its name."
    given = POINTS.copy()
    found = answer(given, KEEP)
    if found is Ellipsis:
        return TODO
    if found is None:
        return "Your function returns nothing. Is a return missing?"
    if np.shape(found) == (POINTS.shape[0], POINTS.shape[2]):
        return "Your function takes the mean over the runs. Each run has an average of its own, over its points."
    if np.shape(found) == POINTS.shape[1:]:
        return "Return the mean after every point, not only the last one: as many means as points."
    if np.shape(found) != POINTS.shape:
        return f"For points of shape {POINTS.shape} the answer has the same shape; yours has {np.shape(found)}."
    if not np.array_equal(given, POINTS):
        return "Your function writes into points, which belong to the caller. Fill a copy."
    if np.allclose(found, _running(POINTS, KEEP)):
        return None
    if np.allclose(found, _running(POINTS, 1 - KEEP)):
        return "The weights are swapped: keep belongs to the old mean, 1 - keep to the new point."
    counts = np.arange(1, len(POINTS) + 1)[:, np.newaxis, np.newaxis]
    if np.allclose(found, np.cumsum(POINTS, axis=0) / counts):
        return "That is the average of section 5, which never forgets. Here the old mean is multiplied by keep."
    if np.allclose(found, _running(np.concatenate([0 * POINTS[:1], POINTS]), KEEP)[1:]):
        return "Your mean starts at zero, and is too small for many steps. Start it at points[0]."
    if np.allclose(found[1:], KEEP * POINTS[:-1] + (1 - KEEP) * POINTS[1:]):
        return "You mix each point with the point before it. Mix it with the mean before it."
    return "Follow the two rules: the first mean is points[0]; then keep * mean + (1 - keep) * point, again and again."


def _answers(*truths: bool) -> str:
    names = ("factor", "quotient", "term", "squares", "product")
    return "\n".join(f"{name} = {truth}" for name, truth in zip(names, truths, strict=True))


def _loop(first: str, update: str, result: str = "means") -> str:
    return f"""def running_average(points, keep):
    means = {first}
    for k in range(1, len(points)):
        means[k] = {update}
    return {result}"""


EXERCISES = {
    "8.1": Exercise(
        title="which noisy gradients are right on average",
        judge=_unbiased,
        hint="The mean passes through sums, through constant factors, and through products of independent draws. It "
        "does not pass through 1 / u or a square.",
        solution=_answers(True, False, True, False, True),
        why="The mean of 1 / u is ln 3, about 1.1, and that of ξ² is 1, so the fourth is too large by 0.1. Not every "
        "bias does harm: g / u points the right way on average and is only too long, so SGD still ends at the optimum. "
        "With g + 0.1 * ξ**2 it does not.",
        wrong={
            _answers(False, False, True, False, True): "the mean of u is 1",
            _answers(True, True, True, False, True): "100,000 values of 1 / u",
            _answers(True, False, False, False, True): "nothing is left of the term",
            _answers(True, False, True, True, True): "never below 0",
            _answers(True, False, True, False, False): "the product of the means",
        },
    ),
    "8.2": Exercise(
        title="the learning rate for a floor of one millionth",
        judge=_learning_rate,
        hint="Each direction adds lr s² / 4. How much is that for two, with s = 0.2?",
        solution="learning_rate = 1e-6 / (2 * 0.2**2 / 4)",
        why="Two directions make lr s² / 2, and with s² = 0.04 a millionth needs lr = 0.00005.",
        wrong={
            "learning_rate = 1e-6 / (0.2**2 / 4)": "right for one direction",
            "learning_rate = 1e-6 / (2 * 0.2 / 4)": "in place of s²",
            "learning_rate = 1e-6 / 0.2**2": "counts four directions",
            "learning_rate = 0.02": "solve for lr",
        },
    ),
    "8.3": Exercise(
        title="a running average that forgets",
        judge=_running_average,
        hint="points[k] holds the points of all runs after step k. Start with means = points.copy(), loop over k from "
        "1 on, and fill means[k] from means[k - 1] and points[k].",
        solution=_loop("points.copy()", "keep * means[k - 1] + (1 - keep) * points[k]"),
        why="Each old point counts less from step to step, so the steps before the floor are soon forgotten.",
        wrong={
            _loop("points.copy()", "(1 - keep) * means[k - 1] + keep * points[k]"): "swapped",
            _loop("points", "keep * means[k - 1] + (1 - keep) * points[k]"): "writes into points",
            _loop("points.copy()", "keep * points[k - 1] + (1 - keep) * points[k]"): "the mean before it",
            _loop("points.copy()", "keep * means[k - 1] + (1 - keep) * points[k]", "means[-1]"): "as many means",
            "def running_average(points, keep):\n    return points.mean(axis=1)": "over the runs",
            "def running_average(points, keep):\n"
            "    counts = np.arange(1, len(points) + 1)[:, None, None]\n"
            "    return np.cumsum(points, axis=0) / counts": "never forgets",
            "def running_average(points, keep):\n"
            "    means, mean = [], 0\n"
            "    for point in points:\n"
            "        mean = keep * mean + (1 - keep) * point\n"
            "        means.append(mean)\n"
            "    return np.array(means)": "starts at zero",
        },
    ),
}
