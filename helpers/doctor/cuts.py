"""Where the graph was cut: the step that led out of it."""

from __future__ import annotations

from typing import Any

from .exam import Exam

MEANT = "If that is meant (a stop-gradient), say what is right with reference=."


def name_the_cut(exam: Exam, evidence: dict[str, Any], seen: str) -> bool:
    """Name the step that led out of the graph, and return whether one was found."""
    steps = exam.trace
    scalars = [step for step in steps.outside("scalar") if step.tracked]
    no_grad, arrays = steps.outside("no-grad"), steps.outside("array", "detach", "data")
    new = steps.outside("new")
    if arrays and all(step.kind == "detach" for step in arrays) and not (new or no_grad or scalars):
        exam.add(
            "graph-cut",
            f"{seen}: it is detached, so it counts as a constant. {MEANT}",
            severity="fragile",
            evidence=evidence,
            where=arrays[0].where,
        )
    elif no_grad:
        exam.add(
            "no-grad-around",
            f"{seen}: a part is computed under torch.no_grad(), so it counts as a constant. {MEANT}",
            evidence=evidence,
            where=no_grad[0].where,
        )
    elif arrays and (new or not scalars):
        exam.add(
            "rewrapped-result",
            f"{seen}: a NumPy result is made a tensor again outside a Function. Its numbers are right and its graph is "
            "gone.",
            evidence=evidence,
            where=(new or arrays)[-1].where,
        )
    elif scalars:
        exam.add(
            "graph-cut",
            f"{seen}: {_call(scalars[0].name)} takes a plain number out of a tracked tensor. What follows counts as a "
            "constant.",
            evidence=evidence,
            where=scalars[0].where,
        )
    elif new:
        exam.add(
            "rewrapped-result",
            f"{seen}: a number that is no tensor is made a tensor again. Its graph is gone.",
            evidence=evidence,
            where=new[-1].where,
        )
    return bool(no_grad or arrays or scalars or new)


def _call(name: str) -> str:
    return {"__float__": "float(x)", "__int__": "int(x)"}.get(name, f".{name}()")
