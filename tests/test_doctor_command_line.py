"""The doctor from a shell: what it prints, and the exit codes that someone else's CI reads."""

import subprocess
import sys

import pytest

from helpers.doctor.__main__ import main

FILE = """
import torch

SCALE = 2.0


class Right(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return SCALE * x**2

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * 2 * SCALE * x


class Wrong(Right):
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * SCALE * x


class Aliased(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.x = x
        return x**2

    @staticmethod
    def backward(ctx, g):
        return 2 * g * ctx.x


def square(x):
    return SCALE * x**2


class Box:
    op = staticmethod(square)
"""
INPUT = ("--input", "torch.randn(3, dtype=torch.float64)")


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "my model.py"
    path.write_text(FILE, encoding="utf-8")
    return path


def test_what_is_right_exits_with_0(file, capsys):
    assert main([f"{file}:Right", *INPUT]) == 0
    assert "Right: healthy" in capsys.readouterr().out


def test_what_is_wrong_exits_with_1_and_says_why(file, capsys):
    assert main([f"{file}:Wrong", *INPUT]) == 1
    out = capsys.readouterr().out
    assert "WRONG: gradient-wrong  (my model.py, line 21)" in out
    assert "a factor 2 too small" in out


def test_what_is_fragile_fails_only_when_strict(file):
    assert main([f"{file}:Aliased", *INPUT]) == 0
    assert main([f"{file}:Aliased", *INPUT, "--strict"]) == 1


def test_names_of_the_file_may_stand_in_inputs_and_dots_in_the_name(file, capsys):
    assert main([f"{file}:Box.op", "--input", "torch.full((2,), SCALE, dtype=torch.float64)"]) == 0
    assert "square: healthy" in capsys.readouterr().out


def test_a_reference_can_stand_in_the_same_file(file):
    assert main([f"{file}:Right", *INPUT, "--reference", f"{file}:square"]) == 0
    assert main([f"{file}:Wrong", *INPUT, "--reference", f"{file}:square"]) == 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["{file}", *INPUT], "Write FILE.py:NAME"),
        (["{file}:Missing", *INPUT], "has no Missing"),
        (["nowhere.py:Right", *INPUT], "There is no file"),
        (["{file}:Right", "--input", "torch.randn(3"], "SyntaxError"),
        (["{file}:Right", "--input", "torch.rand_n(3)"], "AttributeError"),
    ],
)
def test_what_cannot_be_used_exits_with_2_and_says_why(file, capsys, arguments, says):
    assert main([each.format(file=file) if "{file}" in each else each for each in arguments]) == 2
    assert says in capsys.readouterr().err


def test_what_could_not_be_examined_exits_with_2(file, capsys):
    assert main([f"{file}:Right"]) == 2
    assert "no tensor was given" in capsys.readouterr().out


def test_a_file_that_cannot_be_imported_is_said(tmp_path, capsys):
    (tmp_path / "broken.py").write_text("import a_module_that_is_nowhere\n", encoding="utf-8")
    assert main([f"{tmp_path / 'broken.py'}:F", *INPUT]) == 2
    assert "a_module_that_is_nowhere" in capsys.readouterr().err


def test_it_runs_from_a_shell(file):
    command = [sys.executable, "-m", "helpers.doctor", f"{file}:Wrong", *INPUT]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 1, run.stderr
    assert "WRONG: gradient-wrong" in run.stdout
