"""Can the checks see? Change every stored output, and the code of some cells, and see the lessons turn red.

Nothing here is a test of the lessons. It is a test of the tests: strict nbval, the sanitize file and the guards of
``conftest.py`` must notice every changed number, error text and plotted point.
"""

import copy
import os
import re
import shutil
import subprocess
import sys

import nbformat
import pytest
from lessons import NAMES, ROOT, code_cells, read, tags


def failed_cells(notebook, folder, *options):
    """Run strict nbval on a notebook as CI does, and return the numbers of the cells that failed."""
    path = folder / "mutant.ipynb"
    nbformat.write(notebook, path)
    shutil.copy(ROOT / "conftest.py", folder)
    command = [
        *(sys.executable, "-m", "pytest", "--rootdir", str(folder), "-c", os.devnull, "-p", "no:cacheprovider"),
        *("--nbval", "--nbval-sanitize-with", str(ROOT / "tests" / "sanitize.cfg"), "-q", "-rf", *options, str(path)),
    ]
    answer = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)
    assert answer.returncode in (0, 1), answer.stdout + answer.stderr
    return {int(number) for number in re.findall(r"^FAILED .*::Cell (\d+)", answer.stdout, re.MULTILINE)}


def compared(cell):
    """Say whether nbval compares the cell's outputs."""
    return "nbval-ignore-output" not in tags(cell) and cell.outputs


def change_digit(words):
    """Return words with their last digit changed, or None if they hold none (an address is no number)."""
    places = [match.start() for match in re.finditer(r"\d", words.replace("0xADDRESS", "_" * 9))]
    if not places:
        return None
    last = places[-1]
    return f"{words[:last]}{(int(words[last]) + 1) % 10}{words[last + 1 :]}"


def change_word(words):
    """Return words with their longest word spelled backwards."""
    longest = max(re.findall(r"[A-Za-z]{3,}", words.replace("ADDRESS", "")), key=len)
    return words.replace(longest, longest[::-1] + "x", 1)


def mutate(output):
    """Change one thing that a reader sees in an output; a number if there is one."""
    if output.output_type == "stream":
        output.text = change_digit(output.text) or change_word(output.text)
    elif output.output_type == "error":
        output.evalue = change_word(output.evalue)
    else:
        words = output.data["text/plain"]
        output.data["text/plain"] = change_digit(words) or change_word(words)


@pytest.mark.parametrize("name", NAMES)
def test_a_change_in_any_stored_output_turns_its_cell_red(name, tmp_path):
    notebook = read(name)
    expected = set()
    for number, cell in enumerate(code_cells(notebook)):
        if compared(cell):
            mutate(cell.outputs[number % len(cell.outputs)])
            expected.add(number)
    assert failed_cells(notebook, tmp_path) == expected


CODE = {
    "another learning rate moves the plotted path": ("00", "lr=0.1", "lr=0.11"),
    "another seed": ("00", "seed=0", "seed=1"),
    "another start": ("05", "[0.1, 0.1]", "[0.1, 0.11]"),
    "another number of steps": ("05", "steps=200", "steps=199"),
    "a repaired error": ("02", "return g * grad_of_parabola(x)  # no such function", "return g * 2 * x"),
    "another error": ("03", "torch.tensor([1, 2], requires_grad=True)", "torch.tensor([1, 2], requires_grad=1 / 0)"),
    "a gradient with another factor": ("04", "d1 = 10 * ", "d1 = 11 * "),
    "another title on a picture": ("06", "20 seeds: f without noise", "20 seeds: f with noise"),
    "a warning that is gone": ("04", "print(g * array)", "print(g * torch.tensor(array))"),
}


@pytest.mark.parametrize("change", CODE)
def test_a_change_in_the_code_turns_the_lesson_red(change, tmp_path):
    name, old, new = CODE[change]
    notebook = read(name)
    cells = [cell for cell in code_cells(notebook) if old in cell.source]
    assert cells
    cells[0].source = cells[0].source.replace(old, new)
    assert failed_cells(notebook, tmp_path, "-x")


def test_stripped_notebook_is_red(tmp_path):
    notebook = read("02")
    for cell in code_cells(notebook):
        cell.outputs, cell.execution_count = [], None
    assert failed_cells(notebook, tmp_path) == set(range(len(code_cells(notebook))))


def test_error_stored_in_a_cell_that_no_longer_raises_is_red(tmp_path):
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("x = 1", execution_count=1)])
    notebook.cells[0].metadata.tags = ["raises-exception"]
    assert failed_cells(notebook, tmp_path) == {0}


def test_untouched_lesson_is_green(tmp_path):
    assert failed_cells(copy.deepcopy(read("03")), tmp_path) == set()
