"""The progress bar: the same characters for the same length, a mark as soon as it is due, and nothing else changed."""

import io
import subprocess
import sys

import pytest

from helpers.progress import MARKS, with_progress


@pytest.mark.parametrize("count", [1, 7, 19, 20, 21, 100, 1000])
def test_a_full_loop_prints_one_closed_line(count, capsys):
    assert list(with_progress(range(count), "runs")) == list(range(count))
    assert capsys.readouterr().out == f"runs [{'=' * MARKS}] {count} of {count}\n"


def test_without_a_label_the_line_begins_with_the_bar(capsys):
    list(with_progress([1, 2]))
    assert capsys.readouterr().out == f"[{'=' * MARKS}] 2 of 2\n"


def test_marks_appear_while_the_loop_runs(capsys):
    seen = [capsys.readouterr().out for _ in with_progress(range(10), "runs")]
    assert seen == ["runs [", *["=="] * 9]
    assert capsys.readouterr().out == "==] 10 of 10\n"


def test_each_mark_is_flushed(monkeypatch):
    class Stream(io.StringIO):
        waiting = 0

        def write(self, text):
            self.waiting += len(text)
            return super().write(text)

        def flush(self):
            self.waiting = 0

    monkeypatch.setattr(sys, "stdout", Stream())
    for _ in with_progress(range(40)):
        assert sys.stdout.waiting == 0
    assert sys.stdout.waiting == 0


def test_a_loop_that_ends_early_leaves_its_line_open_and_prints_nothing_later(capsys):
    bar = with_progress(range(10), "runs")
    for item in bar:
        if item == 5:
            break
    bar.close()
    assert capsys.readouterr().out == f"runs [{'=' * 10}"


def test_nothing_to_do_is_said_at_once(capsys):
    assert list(with_progress([], "runs")) == []
    assert capsys.readouterr().out == "runs [] 0 of 0\n"


def test_what_the_loop_raises_comes_through():
    def work():
        for _ in with_progress(range(3)):
            raise RuntimeError("of the loop")

    with pytest.raises(RuntimeError, match="of the loop"):
        work()


def test_items_without_a_length_are_refused_before_the_loop_and_before_anything_is_printed(capsys):
    with pytest.raises(TypeError, match=r"items has no length.*got generator\. .*with_progress\(list\(items\)\)"):
        with_progress(item for item in range(3))
    assert capsys.readouterr().out == ""


def test_it_uses_letters_that_every_terminal_knows():
    program = "from helpers.progress import with_progress\nfor _ in with_progress(range(3), 'runs'): pass"
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, env={"PYTHONIOENCODING": "ascii"}, check=True
    )
    assert run.stdout.decode("ascii").split() == ["runs", f"[{'=' * MARKS}]", "3", "of", "3"]
