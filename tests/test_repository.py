"""The repository as its readers find it: README, links, and nothing in it that belongs to one machine or person."""

import os
import re
import subprocess
import sys

import pytest
from lessons import NAMES, ROOT, minutes, read

from tools import run_notebooks

PATHS = os.environ | {"PYTHONPATH": str(ROOT)}
README = (ROOT / "README.md").read_text(encoding="utf-8")
REGISTRIES = re.compile(
    r"pypi\.org|pythonhosted\.org|registry\.npmjs|deb\.debian|conda\.anaconda|download\.pytorch\.org"
)


def files():
    """Return the tracked and the new text files."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=True,
    ).stdout.split("\n")
    return sorted(name for name in listed if name and not name.endswith(".png") and (ROOT / name).is_file())


def text(name):
    """Return a file's text."""
    return (ROOT / name).read_text(encoding="utf-8")


def test_readme_holds_the_two_commands_and_nothing_else_in_its_first_block():
    block = re.search(r"```sh\n(.*?)```", README, re.DOTALL)[1]
    assert block.splitlines() == ["python3 start.py", "python3 start.py test"]


@pytest.mark.parametrize("name", NAMES)
def test_readme_lists_each_lesson_with_its_minutes(name):
    whole, exercises = minutes(name)
    assert re.search(
        rf"\| \[{name[:2]} [^\]]+\]\(notebooks/{name}\.ipynb\) \|[^|]+\| {whole} \| {exercises} \|", README
    )


def test_repair_course_fits_into_about_an_hour():
    assert 50 <= sum(minutes(name)[0] for name in NAMES if "01" <= name < "07") <= 70


def test_links_of_the_readme_lead_to_files():
    for target in re.findall(r"\]\(([^)]+)\)", README):
        assert "://" in target or (ROOT / target).exists(), target
    for name in re.findall(r"^\| `([a-z.]+/)` \|", README, re.MULTILINE):
        assert any(file.startswith(name) for file in files()), f"{name} holds no file that a clone would have"


def test_picture_of_the_readme_has_alt_text():
    (alt, target) = re.search(r"!\[([^\]]+)\]\(([^)]+)\)", README).groups()
    assert len(alt) > 40
    assert (ROOT / target).read_bytes().startswith(b"\x89PNG")


def test_picture_of_the_readme_is_the_one_of_lesson_00():
    assert run_notebooks.COVER.read_bytes() == run_notebooks.first_picture(read("00"))


def test_code_of_the_readme_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    op, solver, path, doctor = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    names = {}
    exec(op, names)
    assert names["x"].grad.numpy().round(4).tolist() == [-1.98, 0.9]
    assert names["hessian"].numpy().round(4).tolist() == [[0.6, -2.0], [-2.0, 10.0]]
    program = tmp_path / "solve.py"
    program.write_text(solver + "    print(fields.grad.shape, bool((fields.grad != 0).all()))\n", encoding="utf-8")
    run = subprocess.run([sys.executable, program], capture_output=True, text=True, cwd=ROOT, env=PATHS)
    assert run.stdout == "torch.Size([8, 16, 16]) True\n", run.stderr
    exec(path, {})
    assert (tmp_path / "path.png").stat().st_size > 10_000
    exec(doctor, {})
    assert "WRONG: grad-output-ignored" in capsys.readouterr().out


@pytest.mark.parametrize("name", [name for name in files() if name != "tests/test_repository.py"])
def test_no_file_names_a_machine_or_a_registry(name):
    """PyTorch's own index of CPU builds stands in one place, since Linux gets them from nowhere else."""
    found = REGISTRIES.findall(text(name))
    assert found == {"tools/torch_build.py": ["download.pytorch.org"]}.get(name, [])
    assert not re.search(r"/(?:home|root|Users)/\w", text(name))


@pytest.mark.parametrize("name", files())
def test_no_file_holds_an_address_of_a_person(name):
    assert not re.search(r"[\w.]+@(?!v\d|example)[\w-]+\.(?:com|org|net|de|edu)\b", text(name))


@pytest.mark.parametrize("name", [name for name in files() if name.endswith(".py")])
def test_no_file_is_long(name):
    assert len(text(name).splitlines()) <= (600 if name.startswith("tests/") else 400)


def test_code_and_lessons_pass_ruff():
    for arguments in (["check"], ["format", "--check"]):
        answer = subprocess.run(
            [sys.executable, "-m", "ruff", *arguments, "."], capture_output=True, text=True, cwd=ROOT, check=False
        )
        assert answer.returncode == 0, answer.stdout[-3000:]
