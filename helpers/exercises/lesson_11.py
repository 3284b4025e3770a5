"""Exercises of lesson 11: an adjoint without tensors."""

from typing import Any

import numpy as np

from .engine import TODO, Exercise, same_number

POINTS, WHERE = 19, [5, 12]
CELLS, HEATERS = 64 * 64, 9


class _Factors:
    """A factorisation that notes a solve without the transpose: the numbers of a symmetric matrix do not tell."""

    def __init__(self, lu: Any) -> None:
        self.lu, self.plain = lu, False

    def __getattr__(self, name: str) -> Any:
        return getattr(self.lu, name)

    def solve(self, right: Any, trans: str = "N") -> Any:
        self.plain = self.plain or trans == "N"
        return self.lu.solve(right, trans)


def _size(points: int) -> str:
    return f"g has one number for each sensor. Pᵀ g brings it to the {points} points, where u and λ are."


def _count(adjoint: object, differences: object) -> str | None:
    if same_number(adjoint, 2 * HEATERS):
        return "That counts the forward solve as well. Asked for is what the gradient adds."
    if same_number(adjoint, 1):
        return "One for each heater: each has its own temperatures, so it has its own λ."
    if not same_number(adjoint, HEATERS):
        return "Look at what count_solves said of the adjoint in section 2. Does the number of cells matter?"
    if same_number(differences, CELLS):
        return "There are as many forward calls as unknowns, and each of them counts 9 solves."
    if not same_number(differences, CELLS * HEATERS):
        return "The adjoint is right. Differences: one forward for each of the 64 · 64 unknowns, 9 solves in each."
    return None


def _adjoint(answer: Any) -> object:
    if not isinstance(answer, type):
        return "Pass the class itself: check('11.2', WithAdjoint), without brackets after WithAdjoint."
    solver, c = answer(), np.linspace(1.0, 40.0, POINTS)
    _, state = solver.forward(c)
    lu, u = state
    g, used = np.array([1.0, -2.0]), _Factors(lu)
    try:
        found = solver.adjoint((used, u), g)
    except ValueError as error:
        return f"{_size(POINTS)} Your answer raised ValueError: {error}"
    if found is Ellipsis:
        return TODO
    if found is None:
        return "Your adjoint returns nothing. Is a return missing?"
    found = np.asarray(found)
    if found.shape != c.shape:
        return f"The gradient has one entry for each c: shape {c.shape}. Yours has {found.shape}."
    spread = np.zeros(POINTS)
    spread[WHERE] = g
    lam = lu.solve(spread, trans="T")
    right = -lam * u
    for wrong, thought in (
        (-right, "The sign is flipped. Line 1 of section 1: A du = -dA u."),
        (lam, "That is λ. dL = -λᵀ dA u, and dA has the change of c on its diagonal: one factor is missing."),
        (-lam, "That is -λ. dL = -λᵀ dA u, and dA has the change of c on its diagonal: one factor is missing."),
        (-u * spread, "g went back to the points, but the solve is missing: λ solves Aᵀ λ = Pᵀ g."),
        (right * c, "Almost: here c itself is the unknown. The factor k of the rod came from k = exp(m)."),
    ):
        if np.allclose(found, wrong):
            return thought
    if not np.allclose(found, right):
        return "Write it in two lines: solve Aᵀ λ = Pᵀ g; then dL = -λᵀ dA u with dA = diag(dc)."
    if used.plain:
        print("You solved without the transpose. It is right for this symmetric matrix; write trans='T' all the same.")
    return None


def _source(answer: Any) -> object:
    if not callable(answer):
        return "Pass the function itself, without brackets after its name."
    from scipy import sparse  # type: ignore[import-untyped]
    from scipy.sparse.linalg import splu  # type: ignore[import-untyped]

    matrix = np.diag(np.arange(2.0, 6.0)) + np.diag([1.0, -0.5, 0.3], 1)
    pick, g = sparse.csr_array(np.eye(4)[[0, 2]]), np.array([1.0, 3.0])
    lu = splu(sparse.csc_array(matrix))
    try:
        found = answer(lu, pick, g)
    except ValueError as error:
        return f"{_size(len(matrix))} Your answer raised ValueError: {error}"
    if found is Ellipsis:
        return TODO
    if found is None:
        return "Your function returns nothing. Is a return missing?"
    found = np.asarray(found)
    if found.shape != (4,):
        return f"The gradient has one entry for each entry of b: shape (4,). Yours has {found.shape}."
    right = np.linalg.solve(matrix.T, pick.T @ g)
    for wrong, thought in (
        (-right, "The sign is that of section 1, where dA was on the left. Here A du = db, without a minus."),
        (np.linalg.solve(matrix, pick.T @ g), "That solves with A itself. This A is not symmetric: trans='T'."),
        (pick.T @ g, "That is the gradient for u. From u to b there is one solve."),
    ):
        if np.allclose(found, wrong):
            return thought
    if not np.allclose(found, right):
        return "dL = gᵀ P du and du = A⁻¹ db. Which vector stands before db?"
    return None


def _class(*lines: str) -> str:
    body = "\n".join(f"        {line}" for line in lines)
    return f"""class WithAdjoint(Cooled):
    def adjoint(self, state, g):
        lu, u = state
{body}"""


def _function(result: str) -> str:
    return f"""def source_gradient(lu, P, g):
    return {result}"""


_LAM = 'lam = lu.solve(P.T @ g, trans="T")'

EXERCISES = {
    "11.1": Exercise(
        title="how many solves a gradient adds",
        judge=_count,
        hint="The adjoint solves once for each right-hand side of the forward solve. Differences repeat the forward "
        "solve for each unknown.",
        solution="adjoint_adds = 9\ndifferences_add = 64 * 64 * 9",
        why="The adjoint adds as many solves as forward had. Differences add that for each of the 4096 unknowns.",
        wrong={
            "adjoint_adds = 18\ndifferences_add = 36864": "counts the forward solve",
            "adjoint_adds = 1\ndifferences_add = 36864": "its own λ",
            "adjoint_adds = 4096\ndifferences_add = 36864": "Does the number of cells matter",
            "adjoint_adds = 9\ndifferences_add = 4096": "each of them counts 9",
            "adjoint_adds = 9\ndifferences_add = 9": "The adjoint is right",
        },
    ),
    "11.2": Exercise(
        title="the adjoint of -u'' + c u = 1",
        judge=_adjoint,
        hint="A = K + diag(c), so dA = diag(dc). Solve for λ as Rod does, then put dA into dL = -λᵀ dA u.",
        solution=_class(_LAM, "return -lam * u"),
        why="dA is diagonal, so entry i of the gradient is -λᵢ uᵢ.",
        wrong={
            _class(_LAM, "return lam * u"): "The sign is flipped",
            _class(_LAM, "return -lam"): "one factor is missing",
            _class(_LAM, "return lam"): "That is λ",
            _class("return -u * (P.T @ g)"): "the solve is missing",
            _class("return lu.solve(P.T @ u[[5, 12]])"): "in two lines",
            _class("return P @ u"): "one entry for each c",
            _class('return -lu.solve(g, trans="T") * u'): "one number for each sensor",
        },
    ),
    "11.3": Exercise(
        title="the gradient for the heater b",
        judge=_source,
        hint="dL = gᵀ P du = (gᵀ P A⁻¹) db. The row in the brackets has a name.",
        solution=_function('lu.solve(P.T @ g, trans="T")'),
        why="It is λ itself. Whatever else the solver depends on, the same solve serves its gradient, too.",
        wrong={
            _function("lu.solve(P.T @ g)"): "not symmetric",
            _function('-lu.solve(P.T @ g, trans="T")'): "without a minus",
            _function("P.T @ g"): "one solve",
            _function('lu.solve(P.T @ g, trans="T")[:2]'): "one entry for each entry of b",
            _function('lu.solve(P @ g, trans="T")'): "one number for each sensor",
            _function('2 * lu.solve(P.T @ g, trans="T")'): "Which vector stands before db",
        },
    ),
}
