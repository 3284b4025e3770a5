"""The exercises inside their lessons: blank stub, right solution, and each wrong answer told its own fault."""

import nbformat
import pytest
from lessons import NAMES, NOTEBOOKS, code_cells, exercise_number, read, tags
from nbclient import NotebookClient

from helpers.exercises.engine import find


def answered(source, code):
    """Return an exercise cell with its stub replaced by code; the imports and the check stay."""
    kept = [line for line in source.splitlines() if line.startswith(("from helpers", "check("))]
    return "\n".join([code, *kept])


def printed(cell):
    """Return the last line that a cell printed, and insist that it did not raise."""
    assert not [output for output in cell.outputs if output.output_type == "error"], cell.outputs
    words = "".join(
        output.text for output in cell.outputs if output.output_type == "stream" and output.name == "stdout"
    )
    return words.splitlines()[-1]


@pytest.mark.parametrize("name", NAMES)
def test_exercises_are_judged_fairly_in_their_lesson(name):
    """Run the lesson in one kernel, and put every known answer into each exercise on the way."""
    notebook = nbformat.v4.new_notebook(cells=code_cells(read(name)))
    client = NotebookClient(notebook, timeout=120, allow_errors=True, resources={"metadata": {"path": str(NOTEBOOKS)}})
    judged = 0
    with client.setup_kernel():
        for place, cell in enumerate(notebook.cells):
            number, stub = exercise_number(cell), cell.source
            if "exercise" not in tags(cell):
                client.execute_cell(cell, place)
                continue

            def answer(code, cell=cell, place=place):
                cell.source = code
                return printed(client.execute_cell(cell, place))

            exercise = find(number)
            assert answer(stub).startswith(f"{number} to do")
            for wrong, thought in exercise.wrong.items():
                verdict = answer(answered(stub, wrong))
                assert verdict.startswith(f"{number} not yet"), (wrong, verdict)
                assert thought in verdict, (wrong, verdict)
            assert answer(answered(stub, exercise.solution)).startswith(f"{number} right")
            judged += 1
    assert judged >= (1 if name.startswith("00") else 2)


@pytest.mark.parametrize("name", NAMES)
def test_wrong_answers_get_hints_of_their_own(name):
    """Each of the thoughts that an exercise lists for wrong answers tells at least two of them apart."""
    for cell in code_cells(read(name)):
        if number := exercise_number(cell):
            assert len(set(find(number).wrong.values())) >= 2
