"""Exercises of lesson 07: what noise and the learning rate do to Adam."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from helpers import rosenbrock

from .engine import TODO, Exercise

Array = NDArray[np.float64]

START, NOISE, RATE = np.array([-0.5, 1.5]), 0.5, 0.1
ENOUGH, RUNS, STEPS, BELOW = 2 / 3, 256, 150, 1e-6
BEST = 0.034  # of the learning rates at noise 1 and 150 steps
POINT, GRADIENT, MEAN_SQUARE = np.array([0.3, -2.0]), np.array([0.5, -4.0]), np.array([0.09, 25.0])
SETTINGS = {"lr": 0.01, "alpha": 0.9, "eps": 0.1}


def _adam(noise: float, lr: float, start: Array, steps: int, runs: int, seed: int = 0) -> Array:
    """Return the points of many runs, shape (steps + 1, runs, 2): the loop of the lesson, all runs at once."""
    rng = np.random.default_rng(seed)
    x = np.tile(start, (runs, 1))
    m, v, points = np.zeros_like(x), np.zeros_like(x), [x]
    for k in range(1, steps + 1):
        g = rng.uniform(1 - noise, 1 + noise, (runs, 1)) * rosenbrock.gradient(x)
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        x = x - lr * (m / (1 - 0.9**k)) / (np.sqrt(v / (1 - 0.999**k)) + 1e-8)
        points.append(x)
    return np.array(points)


def _near(answer: Any, point: object, distance: float) -> bool:
    return bool(np.linalg.norm(np.asarray(answer, dtype=np.float64) - np.asarray(point)) <= distance)


def _path(first: Any, fifth: Any, last: Any) -> str | None:
    for name, answer in {"after_1": first, "after_5": fifth, "after_200": last}.items():
        if np.shape(answer) != (2,):
            return f"{name} must be a point, such as (0.5, 1.0); got {answer!r}."
    slope = rosenbrock.gradient(START)
    truth = _adam(NOISE, RATE, START, 200, 1)[:, 0]
    if not _near(first, truth[1], 0.01):
        if _near(first, START - RATE * slope, 0.3):
            return "after_1: that is a step of SGD, lr times the gradient. Adam divides by the size of the gradient."
        if _near(first, START + RATE * np.sign(slope), 0.01):
            return "after_1: the length is right. A step goes down, against the sign of the gradient."
        toward = (1 - START) / np.linalg.norm(1 - START)
        if _near(first, START + RATE * toward, 0.05) or _near(first, START + RATE * np.sign(toward), 0.01):
            return (
                "after_1: Adam does not know where the optimum lies. Its first step follows the signs of the gradient."
            )
        return (
            "after_1: each coordinate moves by lr, against the sign of its entry of the gradient. Print the gradient."
        )
    if not _near(fifth, truth[5], 0.25):
        return "after_5: the gradient keeps its signs for a while, so five steps are about five times the first one."
    if not _near(last, truth[200], 0.1):
        return (
            "after_200: the picture of 200 steps at noise 0.5 and lr 0.1 stands above. Does the start change its end?"
        )
    return None


def _learning_rate(answer: Any) -> str | None:
    lr = float(answer)
    if not 0 < lr <= 1:
        return "The learning rate lies between 0 and 1. The slider has 0.001 to 1."
    ends = _adam(1.0, lr, np.array([0.1, 0.1]), STEPS, RUNS)[-1]
    share = float(np.mean(rosenbrock.value(ends) < BELOW))
    if share >= ENOUGH:
        return None
    told = f"With {lr:g}, {round(100 * share)} of 100 runs end below 1e-6."
    if lr < BEST:
        return f"{told} The steps are too short for the way: take a larger learning rate."
    return f"{told} The runs are near soon, and then they swing: take a smaller learning rate."


def _rmsprop(x: Array, g: Array, v: Array, lr: float, alpha: float, eps: float) -> tuple[Array, Array]:
    v = alpha * v + (1 - alpha) * g**2
    return x - lr * g / (np.sqrt(v) + eps), v


def _rmsprop_step(answer: Any) -> object:
    if not callable(answer):
        return "Pass the function itself, without brackets after its name."
    given = POINT.copy(), GRADIENT.copy(), MEAN_SQUARE.copy()
    found = answer(*given, **SETTINGS)
    if found is None:
        return "Your function returns nothing. Is a return missing?"
    if not isinstance(found, tuple) or len(found) != 2:
        return "Return two things: the new x and the new v."
    if any(each is Ellipsis for each in found):
        return TODO
    if not all(np.array_equal(*pair) for pair in zip(given, (POINT, GRADIENT, MEAN_SQUARE), strict=True)):
        return "Your function writes into the arrays of its caller. Make new ones: v = ..., not v *= ..."
    x, v = found
    right_x, right_v = _rmsprop(POINT, GRADIENT, MEAN_SQUARE, **SETTINGS)
    lr, alpha, eps = SETTINGS.values()
    if not np.allclose(v, right_v):
        if np.allclose(v, (1 - alpha) * MEAN_SQUARE + alpha * GRADIENT**2):
            return "The weights are swapped: alpha belongs to the old v, 1 - alpha to the new square."
        if np.allclose(v, alpha * MEAN_SQUARE + (1 - alpha) * GRADIENT):
            return "v is a mean of the squares of the gradients: square g."
        return "v is a running mean of the squares: alpha * v + (1 - alpha) * g**2."
    if np.allclose(x, right_x):
        return None
    thoughts = {
        "The sign: a step goes against the gradient.": POINT + lr * GRADIENT / (np.sqrt(v) + eps),
        "eps belongs outside of the root: np.sqrt(v) + eps.": POINT - lr * GRADIENT / np.sqrt(v + eps),
        "x uses the old v. Compute the new v first, as Adam does.": (
            POINT - lr * GRADIENT / (np.sqrt(MEAN_SQUARE) + eps)
        ),
        "Divide by the root of v, not by v itself.": POINT - lr * GRADIENT / (right_v + eps),
        "That corrects v by 1 - alpha, as Adam does. RMSprop uses v as it is.": (
            POINT - lr * GRADIENT / (np.sqrt(right_v / (1 - alpha)) + eps)
        ),
    }
    for thought, wrong in thoughts.items():
        if np.allclose(x, wrong):
            return thought
    return "v is right. The new x is x - lr * g / (np.sqrt(v) + eps)."


def _points(first: object, fifth: object = (-1.0, 1.0), last: object = (1.0, 1.0)) -> str:
    return f"after_1 = {first}\nafter_5 = {fifth}\nafter_200 = {last}"


def _step(mean: str, step: str, result: str = "x, v") -> str:
    return f"def rmsprop_step(x, g, v, lr, alpha, eps):\n    {mean}\n    {step}\n    return {result}"


MEAN, STEP = "v = alpha * v + (1 - alpha) * g**2", "x = x - lr * g / (np.sqrt(v) + eps)"

EXERCISES = {
    "7.1": Exercise(
        title="where Adam is after 1, 5 and 200 steps",
        judge=_path,
        hint="rosenbrock.gradient((-0.5, 1.5)) gives the two signs. The first step has the length lr in each "
        "coordinate, and the noise changes nothing in it. For a few steps the signs stay.",
        solution=_points((-0.6, 1.4)),
        why="The run is at (-0.60, 1.40), (-0.96, 1.06) and (1.00, 0.99): first away from the optimum, since only the "
        "signs of the slope count.",
        wrong={
            _points((-1.45, 0.25)): "a step of SGD",
            _points((-0.4, 1.6)): "against the sign",
            _points((-0.4, 1.4)): "where the optimum lies",
            _points((-0.5, 1.5)): "Print the gradient",
            _points((-0.6, 1.4), (-0.6, 1.4)): "five times the first one",
            _points((-0.6, 1.4), (-1.0, 1.0), (-1.0, 1.0)): "Does the start change its end?",
            _points(0.1): "must be a point",
        },
    ),
    "7.2": Exercise(
        title="a learning rate for noise 1 and 150 steps",
        judge=_learning_rate,
        hint="The heat map has 200 steps. In its last row, which learning rates are the best two? With fewer steps the "
        "way has to be covered in longer ones. Try some numbers between: arrived(many(1.0, lr, steps=150)).",
        solution="learning_rate = 0.034",
        why="From about 0.031 to 0.041 it is two runs in three or more. Below, the steps are too short; above, the "
        "runs swing, and the noise keeps them swinging.",
        wrong={
            "learning_rate = 0.01": "too short",
            "learning_rate = 0.03": "larger learning rate",
            "learning_rate = 0.1": "smaller learning rate",
            "learning_rate = 10": "between 0 and 1",
        },
    ),
    "7.3": Exercise(
        title="one step of RMSprop",
        judge=_rmsprop_step,
        hint="Take the loop of section 1. Leave out m and both corrections, and call beta2 alpha.",
        solution=_step(MEAN, STEP),
        why="RMSprop is Adam without the mean of the gradients and without the corrections at the start.",
        wrong={
            _step("v = (1 - alpha) * v + alpha * g**2", STEP): "swapped",
            _step("v = alpha * v + (1 - alpha) * g", STEP): "square g",
            _step(MEAN, "x = x + lr * g / (np.sqrt(v) + eps)"): "against the gradient",
            _step(MEAN, "x = x - lr * g / np.sqrt(v + eps)"): "outside of the root",
            _step(MEAN, "x = x - lr * g / (v + eps)"): "not by v itself",
            _step(MEAN, "x = x - lr * g / (np.sqrt(v / (1 - alpha)) + eps)"): "uses v as it is",
            _step(STEP, MEAN): "the old v",
            _step(MEAN, STEP, "x"): "two things",
            _step("v *= alpha; v += (1 - alpha) * g**2", STEP): "arrays of its caller",
        },
    ),
}
