"""The lessons as files: their form, their anatomy, their links, and the numbers in their prose."""

import ast
import json
import re

import nbformat
import pytest
from lessons import NAMES, NOTEBOOKS, PATHS, code_cells, exercise_number, minutes, output_text, prose, read, tags

from helpers.exercises.engine import Exercise, find
from tools import run_notebooks

TAGS = {"raises-exception", "exercise", "nbval-ignore-output"}
REPAIR_COURSE = [
    "00_start_here",
    "01_the_broken_attempt",
    "02_static_forward",
    "03_requires_grad",
    "04_tensor_conversion",
    "05_closure",
    "06_the_working_version",
]
ALL = pytest.mark.parametrize("name", NAMES)
FROM_01 = pytest.mark.parametrize("name", [name for name in NAMES if not name.startswith("00")])


def test_the_repair_course_is_there():
    assert set(REPAIR_COURSE) <= set(NAMES)


# Form


@ALL
def test_lesson_is_a_valid_notebook(name):
    nbformat.validate(read(name))


@ALL
def test_file_has_the_form_in_which_lessons_are_stored(name):
    text = (NOTEBOOKS / f"{name}.ipynb").read_text(encoding="utf-8")
    assert text == run_notebooks.text(nbformat.from_dict(json.loads(text)))


@ALL
def test_cells_ran_once_from_top_to_bottom(name):
    counts = [cell.execution_count for cell in code_cells(read(name))]
    assert counts == list(range(1, len(counts) + 1))


@ALL
def test_cell_metadata_is_tags_and_nothing_else(name):
    for cell in read(name).cells:
        assert set(cell.metadata) <= {"tags"}
        assert set(tags(cell)) <= TAGS


@ALL
def test_cells_have_ids_of_their_own(name):
    ids = [cell.id for cell in read(name).cells]
    assert len(set(ids)) == len(ids)


@ALL
def test_errors_stand_in_tagged_cells_and_only_there(name):
    for cell in code_cells(read(name)):
        raised = any(output.output_type == "error" for output in cell.outputs)
        assert raised == ("raises-exception" in tags(cell)), cell.source


@ALL
def test_output_is_ignored_only_where_it_is_the_learners_or_the_machines(name):
    for cell in code_cells(read(name)):
        ignored = "nbval-ignore-output" in tags(cell)
        assert ignored == ("exercise" in tags(cell) or "check_environment()" in cell.source), cell.source
        assert "NBVAL" not in cell.source


@ALL
def test_no_path_of_this_machine_is_stored(name):
    stored = (NOTEBOOKS / f"{name}.ipynb").read_text(encoding="utf-8")
    found = re.findall(r"(?:/(?:home|root|tmp|work|Users|opt|usr)/|[A-Z]:\\\\)[^\s\"]*", stored)
    assert not found
    assert "ipykernel_" not in stored


@ALL
def test_pictures_carry_alt_text_a_description_and_a_sentence(name):
    for cell in code_cells(read(name)):
        for output in cell.outputs:
            if "image/png" not in output.get("data", {}):
                continue
            alt = output.metadata["image/png"]["alt"]
            assert alt.strip()
            assert output.data["text/plain"].startswith(f"Picture: {alt}\naxes 1:")
            assert alt in " ".join(output_text(cell).replace(output.data["text/plain"], "").split())


# Anatomy


@FROM_01
def test_lesson_says_at_its_top_what_it_is(name):
    top = read(name).cells[0].source
    assert top.startswith(f"# {name[:2]} · ")
    for part in ("**You will do:**", "**You will learn:**", "**You need:**", "### TL;DR"):
        assert part in top
    assert "```python" in top.split("### TL;DR")[1]


@ALL
def test_lesson_ends_with_a_take_away_and_the_way_on(name):
    end = read(name).cells[-1].source
    assert end.startswith("## Take-away")
    assert 2 <= len(re.findall(r"^- ", end, re.MULTILINE)) <= 5
    assert "**In practice.**" in end
    assert "**Next:**" in end or "**Where to go next.**" in end


@FROM_01
def test_every_failing_cell_is_predicted_first_and_explained_after(name):
    cells = read(name).cells
    for place, cell in enumerate(cells):
        if "raises-exception" not in tags(cell):
            continue
        before = [other.source for other in cells[max(0, place - 3) : place] if other.cell_type == "markdown"]
        after = [other.source for other in cells[place + 1 : place + 3] if other.cell_type == "markdown"]
        assert any("**Predict.**" in text or "We run them" in text for text in before), cell.source
        assert len("".join(after)) > 60, cell.source


@FROM_01
def test_predictions_have_a_place_to_write(name):
    text = prose(read(name))
    assert text.count("**Predict.**") == text.count("*Your prediction:* …") >= 4


@FROM_01
def test_every_lesson_marks_what_is_new(name):
    assert sum(cell.source.count("# NEW") for cell in code_cells(read(name))) >= 1


@ALL
def test_cells_are_short(name):
    published = {hash(cell.source) for cell in code_cells(read(name)) if "dx1 = -2 * a" in cell.source}
    for cell in code_cells(read(name)):
        if hash(cell.source) not in published:
            lines = cell.source.splitlines()
            assert len(lines) <= 36
            assert max(map(len, lines)) <= 120


@ALL
def test_prose_does_not_belittle_the_reader(name):
    assert not re.findall(r"\b(?:simply|obviously|of course|trivial(?:ly)?|easy|easily|clearly)\b", prose(read(name)))


@ALL
def test_numbers_in_prose_stand_in_an_output_or_in_the_code(name):
    notebook = read(name)
    seen = "\n".join(cell.source + "\n" + output_text(cell) for cell in code_cells(notebook))
    numbers = set(re.findall(r"(?<![\w.])-?\d+(?:\.\d+)?", seen)) | set(
        re.findall(r"\d+(?:\.\d+)?", notebook.cells[0].source)
    )
    for number in re.findall(r"(?<![\w.(/])-?(?:\d+\.\d+|\d{3,})(?![\w.]*\d)|(?<=\()-?\d+\.\d+", prose(notebook)):
        assert any(same_digits(number, other) for other in numbers), f"{number} stands in the prose, and in no output"


def same_digits(written, printed):
    """Say whether a number is the printed one, or the printed one rounded to the digits that are written."""
    digits = len(written.partition(".")[2])
    return abs(float(written) - float(printed)) <= 0.5 * 10**-digits * (1 + 1e-9) if digits else written == printed


@ALL
def test_code_in_the_prose_parses(name):
    for block in re.findall(r"```python\n(.*?)```", prose(read(name)), re.DOTALL):
        ast.parse(block)


# Links


@ALL
def test_links_lead_to_files_that_exist(name):
    for target in re.findall(r"\]\(([^)#]+?)\)", prose(read(name))):
        assert "://" not in target, f"{target}: a lesson must work without a network"
        assert (NOTEBOOKS / target).is_file(), target


@ALL
def test_lesson_00_lists_every_lesson_with_its_minutes(name):
    if name.startswith("00"):
        return
    whole, exercises = minutes(name)
    row = rf"\| \[{name[:2]} [^\]]+\]\({name}\.ipynb\) \|[^|]+\| {whole} \| {exercises} \|"
    assert re.search(row, prose(read("00")))


# Exercises


def exercise_numbers(name):
    return [number for cell in code_cells(read(name)) if (number := exercise_number(cell))]


@FROM_01
def test_lesson_has_at_least_two_exercises_and_says_their_minutes(name):
    numbers = exercise_numbers(name)
    assert len(numbers) >= 2
    headings = re.findall(r"^### Exercise ([\d.]+) · .+ \((\d+) minutes?\)$", prose(read(name)), re.MULTILINE)
    assert [number for number, _ in headings] == numbers
    assert sum(int(parts) for _, parts in headings) == minutes(name)[1]


@ALL
def test_every_exercise_has_a_stub_then_hint_and_solution(name):
    cells = code_cells(read(name))
    for place, cell in enumerate(cells):
        number = exercise_number(cell)
        assert bool(number) == ("exercise" in tags(cell))
        if number:
            assert "..." in cell.source
            assert f"{number} to do" in output_text(cell), "the stub is not blank"
            following = cells[place + 1].source
            assert f'display(hint("{number}"), solution("{number}"))' in following


@ALL
def test_exercises_of_lesson_and_book_are_the_same(name):
    module = f"helpers.exercises.lesson_{name[:2]}"
    book = __import__(module, fromlist=["EXERCISES"]).EXERCISES
    assert list(book) == exercise_numbers(name)
    for number in book:
        assert isinstance(find(number), Exercise)


@ALL
def test_every_exercise_knows_at_least_two_wrong_answers(name):
    for number in exercise_numbers(name):
        assert len(find(number).wrong) >= 2


# Code in lessons


@ALL
def test_random_numbers_come_from_a_seed(name):
    source = "\n".join(cell.source for cell in code_cells(read(name)))
    if "np.random.uniform" in source:
        assert "np.random.seed(" in source
    assert "torch.rand" not in source or "torch.Generator" in source


@ALL
def test_cells_parse(name):
    for cell in code_cells(read(name)):
        ast.parse("\n".join(line for line in cell.source.splitlines() if not line.startswith("%")))


def test_environment_that_stored_the_lessons_was_complete():
    (cell,) = [cell for cell in code_cells(read("00")) if cell.source.endswith("check_environment()")]
    assert "Everything the course needs is here." in output_text(cell)


def test_no_other_file_lies_among_the_lessons():
    names = {path.name for path in NOTEBOOKS.iterdir()} - {".ipynb_checkpoints"}
    assert names == {path.name for path in PATHS} | {"pictures"}
