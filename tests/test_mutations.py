"""Can the checks see? Change every stored output, and the code of some cells, and see the lessons turn red.

Nothing here is a test of the lessons. It is a test of the tests: strict nbval, the sanitize file and the guards of
``conftest.py`` must notice every changed number, error text, picture and plotted point.
"""

import json
import os
import re
import shutil
import subprocess
import sys

import mutants
import nbformat
import pytest
from lessons import NAMES, ROOT, code_cells, read


def check(notebook, folder, *options, **variables):
    """Run strict nbval on a notebook as CI does, and return the numbers of the cells that failed."""
    path = folder / "mutant.ipynb"
    nbformat.write(notebook, path)
    shutil.copy(ROOT / "conftest.py", folder)
    command = [
        *(sys.executable, "-m", "pytest", "--rootdir", str(folder), "-c", os.devnull, "-p", "nbval.plugin"),
        *("--nbval", "--nbval-sanitize-with", str(ROOT / "tests" / "sanitize.cfg"), "-q", "-rf", *options, str(path)),
    ]
    variables["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    variables["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # nbval is all that is needed, and starts sooner alone
    answer = subprocess.run(
        command, capture_output=True, text=True, cwd=folder, env=os.environ | variables, check=False
    )
    assert answer.returncode in (0, 1), answer.stdout + answer.stderr
    return {int(number) for number in re.findall(r"^FAILED .*::Cell (\d+)", answer.stdout, re.MULTILINE)}


@pytest.mark.parametrize("name", NAMES)
def test_a_change_in_any_part_of_any_stored_output_is_seen(name, tmp_path):
    report = tmp_path / "report"
    assert check(read(name), tmp_path, "-p", "mutants", **{mutants.REPORT: str(report)}) == set()
    judged = [json.loads(line) for line in report.read_text(encoding="utf-8").splitlines()]
    assert len(judged) >= 3 * sum(bool(cell.outputs) for cell in code_cells(read(name))) - 10
    assert [mutant for mutant in judged if not mutant[-1]] == []


CODE = {
    "00": {"lr=0.1": "lr=0.11"},  # another path in the picture
    "02": {"return g * grad_of_parabola(x)  # no such function": "return g * 2 * x"},  # an error that is gone
    "03": {
        "torch.tensor([1, 2], requires_grad=True)": "torch.tensor([1, 2], requires_grad=1 / 0)",  # another error
        "leaf + 1": "leaf.detach()",  # another word in what is printed
    },
    "04": {
        "print(g * array)": "print(g * torch.tensor(array))",  # a warning that is gone
        "buffer[:] = 7.0": "buffer[:] = 7.5",  # another number
    },
    "05": {"optimizer.step()  # NEW: the outer": "optimizer.zero_grad()  # NEW: the outer"},  # another path
    "06": {"20 seeds: f without noise": "20 seeds: f with noise"},  # another title on a picture
    "07": {
        'lr=0.1, draws="shared")': 'lr=0.2, draws="shared")',  # another explorer
        "runs=256,  # NEW": "runs=255,  # NEW",  # another shape
    },
}


@pytest.mark.parametrize("name", CODE)
def test_a_change_in_the_code_turns_its_cell_red(name, tmp_path):
    notebook = read(name)
    changed = set()
    for old, new in CODE[name].items():
        (number,) = [place for place, cell in enumerate(code_cells(notebook)) if old in cell.source][:1]
        cell = code_cells(notebook)[number]
        cell.source = cell.source.replace(old, new)
        changed.add(number)
    assert changed <= check(notebook, tmp_path)


def test_a_changed_output_turns_its_cell_red_and_no_other(tmp_path):
    notebook = read("02")
    cells = code_cells(notebook)
    cells[3].outputs[0].text = mutants.change_digit(cells[3].outputs[0].text)
    assert check(notebook, tmp_path) == {3}


def test_stripped_notebook_is_red(tmp_path):
    notebook = read("02")
    for cell in code_cells(notebook):
        cell.outputs, cell.execution_count = [], None
    assert check(notebook, tmp_path) == set(range(len(code_cells(notebook))))


def test_error_stored_in_a_cell_that_no_longer_raises_is_red(tmp_path):
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("x = 1", execution_count=1)])
    notebook.cells[0].metadata.tags = ["raises-exception"]
    assert check(notebook, tmp_path) == {0}
