"""The one way in which outputs are written: byte-stable, without paths, and strict about errors."""

import nbformat
import pytest
from lessons import NOTEBOOKS, code_cells, read

from tools import run_notebooks


def notebook_of(*cells):
    """Return a notebook with these code cells, each given as (source, tags)."""
    made = [nbformat.v4.new_code_cell(source, id=f"c{place}") for place, (source, _) in enumerate(cells)]
    for cell, (_, tags) in zip(made, cells, strict=True):
        cell.metadata = nbformat.from_dict({"tags": list(tags), "collapsed": True, "ExecuteTime": "now"})
    return nbformat.v4.new_notebook(cells=made)


@pytest.fixture(scope="module")
def stored():
    """Return a small notebook, run and stored, with all kinds of outputs in it."""
    return run_notebooks.run(
        notebook_of(
            ("import sys\nprint('out', end='')\nprint('err', file=sys.stderr)\nprint('put')", ()),
            ("import warnings\nwarnings.warn('careful')\nobject()", ()),
            ("import torch\ntorch.zeros(2).backward()", ("raises-exception",)),
            ("from helpers import plots\nplots.surface()", ()),
        )
    )


def test_streams_are_joined(stored):
    assert [(output.name, output.text) for output in stored.cells[0].outputs] == [
        ("stdout", "output\n"),
        ("stderr", "err\n"),
    ]


def test_nothing_of_this_machine_is_stored(stored):
    text = run_notebooks.text(stored)
    assert "ipykernel_" not in text
    assert "CELL.py:2: UserWarning: careful" in text
    assert "<object at 0xADDRESS>" in text
    assert "/lib/" not in text
    assert "site-packages/torch" in text


def test_only_tags_are_kept(stored):
    assert [cell.metadata for cell in stored.cells] == [{}, {}, {"tags": ["raises-exception"]}, {}]
    assert stored.metadata == {"kernelspec": run_notebooks.KERNELSPEC, "language_info": {"name": "python"}}


def test_a_second_run_stores_the_same_bytes(stored):
    first = run_notebooks.text(stored)
    again = run_notebooks.run(nbformat.reads(first, as_version=4))
    assert run_notebooks.text(again) == first


def test_pictures_keep_their_alt_text(stored):
    (picture, sentence) = stored.cells[3].outputs
    assert picture.metadata["image/png"]["alt"] == " ".join(sentence.text.split())


def test_an_error_that_is_not_tagged_stops_the_writer():
    with pytest.raises(run_notebooks.CellExecutionError, match="ZeroDivisionError"):
        run_notebooks.run(notebook_of(("1 / 0", ())))


def test_a_tagged_cell_that_does_not_raise_stops_the_writer():
    with pytest.raises(ValueError, match="does not raise"):
        run_notebooks.run(notebook_of(("1 + 1", ("raises-exception",))))


@pytest.mark.parametrize("name", ["01_the_broken_attempt", "05_closure"])
def test_lessons_are_stored_as_the_writer_stores_them(name):
    """Everything but PNG bytes and tracebacks, which change with matplotlib's and torch's versions."""
    before = (NOTEBOOKS / f"{name}.ipynb").read_text(encoding="utf-8")
    after = run_notebooks.run(nbformat.reads(before, as_version=4))
    assert run_notebooks.text(comparable(after)) == run_notebooks.text(comparable(read(name)))


def comparable(notebook):
    """Return the notebook without what changes with versions."""
    for cell in code_cells(notebook):
        for output in cell.outputs:
            output.get("data", {}).pop("image/png", None)
            output.pop("traceback", None)
    return notebook


def test_unknown_lesson_is_told_what_there_is(monkeypatch):
    monkeypatch.setattr("sys.argv", ["run_notebooks.py", "99"])
    with pytest.raises(SystemExit, match=r"There is no lesson '99'\. There are: 00_start_here, 01_"):
        run_notebooks.main()


def test_check_writes_nothing_and_tells_what_would_change(monkeypatch, tmp_path, capsys):
    small = notebook_of(("print('new')", ()))
    path = tmp_path / "01_small.ipynb"
    path.write_text(run_notebooks.text(small), encoding="utf-8")
    monkeypatch.setattr(run_notebooks, "LESSONS", tmp_path)
    monkeypatch.setattr("sys.argv", ["run_notebooks.py", "--check"])
    assert run_notebooks.main() == 1
    assert path.read_text(encoding="utf-8") == run_notebooks.text(small)
    monkeypatch.setattr("sys.argv", ["run_notebooks.py", "01"])
    assert run_notebooks.main() == 0
    monkeypatch.setattr("sys.argv", ["run_notebooks.py", "--check"])
    assert run_notebooks.main() == 0
    assert capsys.readouterr().out.splitlines() == ["01_small: would change", "01_small: stored", "01_small: unchanged"]
