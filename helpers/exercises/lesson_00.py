"""Exercise of lesson 00: start here."""

from .engine import Exercise, same_number


def _value_at_the_star(answer: object) -> str | None:
    if same_number(answer, 0.0):
        return None
    if same_number(answer, 1.0):
        return "That is f at (0, 0), or one coordinate of the star. Put x₀ = 1 and x₁ = 1 into the formula."
    return "Put x₀ = 1 and x₁ = 1 into the formula: what is left in each bracket?"


EXERCISES = {
    "0.1": Exercise(
        title="the value of f at (1, 1)",
        judge=_value_at_the_star,
        hint="Both brackets of the formula are differences. What is each of them at x₀ = 1, x₁ = 1?",
        solution="answer = 0",
        why="Both brackets are 0 at (1, 1), so f is 0 there, and nowhere is it lower.",
        wrong={
            "answer = 1": "f at (0, 0)",
            "answer = 5": "what is left in each bracket",
            'answer = "zero"': "what is left in each bracket",
        },
    )
}
