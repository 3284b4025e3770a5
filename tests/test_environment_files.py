"""environment.yml and pyproject.toml ask for the same packages."""

import tomllib
from pathlib import Path

import pytest
import yaml
from rattler import MatchSpec

from tools.project import parse_requirement, read_project

ROOT = Path(__file__).resolve().parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
ENVIRONMENT = yaml.safe_load((ROOT / "environment.yml").read_text("utf-8"))
SPECS = [entry for entry in ENVIRONMENT["dependencies"] if isinstance(entry, str)]

CONDA_NAMES = {"torch": "pytorch-cpu", "matplotlib": "matplotlib-base"}
EXPECTED = [
    "torch",
    "numpy",
    "scipy",
    "matplotlib",
    "jupyterlab",
    "ipywidgets",
    "nbval",
    "distributed",
    "torchdiffeq",
    "anywidget",
]


def test_pyproject_depends_on_exactly_these_packages_each_once():
    names = [parse_requirement(line).name for line in read_project()["dependencies"]]
    assert sorted(names) == sorted(EXPECTED)


def test_extras_are_plain_requirements_each_once():
    names = [
        parse_requirement(line).name for lines in read_project()["optional-dependencies"].values() for line in lines
    ]
    assert len(names) == len(set(names))
    assert not set(names) & set(EXPECTED)


def test_every_requirement_can_be_compared_by_start_py():
    project = read_project()
    lines = [*project["dependencies"], *(line for extra in project["optional-dependencies"].values() for line in extra)]
    for line in lines:
        requirement = parse_requirement(line)
        assert str(requirement) == line.replace(" ", "")
        assert requirement.accepts(requirement.lowest.partition("==")[2])


def test_conda_asks_for_the_same_names_and_bounds():
    project = read_project()
    wanted = [parse_requirement(line) for line in project["dependencies"]]
    expected = {f"python{project['requires-python']}", "pip"}
    expected |= {CONDA_NAMES.get(item.name, item.name) + item.bounds for item in wanted}
    assert sorted(spec.replace(" ", "") for spec in SPECS) == sorted(expected)


@pytest.mark.parametrize("spec", SPECS)
def test_conda_can_read_each_spec(spec):
    parsed = MatchSpec(spec)
    assert parsed.name is not None
    assert spec.startswith(parsed.name.normalized)


def test_shape_of_the_conda_file():
    assert list(ENVIRONMENT) == ["name", "channels", "dependencies"]
    assert ENVIRONMENT["name"] == PYPROJECT["project"]["name"]
    assert ENVIRONMENT["channels"] == ["conda-forge"]
    assert [entry for entry in ENVIRONMENT["dependencies"] if not isinstance(entry, str)] == [{"pip": ["-e ."]}]
