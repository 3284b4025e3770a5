"""The table of lesson 00: what is installed, what is needed, and whether it serves."""

import re
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from helpers import check_environment, requirements
from helpers.requirements import Environment, Row

PROJECT = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
GOOD, BAD = Row("good", "1.0", ">=1"), Row("bad", "0.9", ">=1")


@pytest.mark.parametrize(
    ("found", "needed", "ok"),
    [
        ("2.13.0", ">=2.13,<3", True),
        ("2.13.0+cpu", ">=2.13,<3", True),
        ("2.9.1", ">=2.13,<3", False),  # 9 is less than 13
        ("3.0.0", ">=2.13,<3", False),
        ("2.14.0rc1", ">=2.13,<3", True),
        ("2.14.0.dev20260101", ">=2.13,<3", True),
        ("2.13.0rc1", ">=2.13,<3", False),
        (None, ">=2.13,<3", False),
        ("1.0", "", True),
    ],
)
def test_a_version_serves_or_not(found, needed, ok):
    assert Row("torch", found, needed).ok is ok


@pytest.mark.parametrize(("rows", "ok"), [((), True), ((GOOD,), True), ((GOOD, BAD), False), ((BAD, GOOD), False)])
def test_an_environment_serves_if_every_row_does(rows, ok):
    assert Environment(rows).ok is ok


def test_a_good_environment_says_so():
    assert Environment((GOOD,)).verdict() == "Everything the course needs is here."


def test_a_bad_environment_names_the_bad_packages_only_and_the_cure():
    verdict = Environment((GOOD, BAD, Row("gone", None, ">=1"))).verdict()
    assert "bad, gone" in verdict
    assert "good" not in verdict
    assert "python3 start.py" in verdict


def test_the_table_for_a_terminal_has_one_line_for_each_package():
    heading, good, gone, verdict = repr(Environment((GOOD, Row("gone", None, ">=2")))).splitlines()
    assert heading.split() == ["package", "found", "needed", "ok"]
    assert good.split() == ["good", "1.0", ">=1", "yes"]
    assert gone.split() == ["gone", "missing", ">=2", "NO"]
    assert verdict.startswith("Missing")


def test_the_table_for_a_notebook_has_the_same_words():
    environment = Environment((GOOD, Row("gone", None, ">=2")))
    cells = re.findall(r"<td>(.*?)</td>", environment._repr_html_())
    assert cells == ["good", "1.0", "&gt;=1", "yes", "gone", "missing", "&gt;=2", "NO"]
    assert environment.verdict() in environment._repr_html_()


@pytest.mark.parametrize("row", [Row("<i>", None, ">=1"), Row("a", None, "<3"), Row("a&b", "2", "<3")])
def test_nothing_in_the_table_is_read_as_html(row):
    shown = re.sub(r"</?(table|tr|td|th|p)>", "", Environment((row,))._repr_html_())
    assert not re.search(r"[<>]|&(?!lt;|gt;|amp;|#)", shown)


def test_the_rows_are_python_and_what_pyproject_asks_for():
    asked = {req.name: req.specifier for req in map(Requirement, PROJECT["dependencies"])}
    asked["python"] = SpecifierSet(PROJECT["requires-python"])
    rows = check_environment().rows
    assert len(rows) == len(asked)
    assert {row.package: SpecifierSet(row.needed) for row in rows} == asked


def test_the_versions_found_are_those_installed():
    python, *others = check_environment().rows
    assert python.found == ".".join(map(str, sys.version_info[:3]))
    assert {row.package: row.found for row in others} == {row.package: metadata.version(row.package) for row in others}


def test_a_package_that_is_not_installed_is_missing(monkeypatch):
    monkeypatch.setattr(metadata, "requires", lambda name: ["no-such-package-here>=1.0"])
    (missing,) = check_environment().rows[1:]
    assert missing == Row("no-such-package-here", None, ">=1.0")


def test_what_an_extra_needs_is_left_out(monkeypatch):
    monkeypatch.setattr(metadata, "requires", lambda name: ["numpy>=2.1", 'no-such-package-here; extra == "test"'])
    assert [row.package for row in check_environment().rows] == ["python", "numpy"]


def test_a_course_that_is_not_installed_is_said_with_the_cure(monkeypatch):
    monkeypatch.setattr(requirements, "DISTRIBUTION", "no-such-package-here")
    with pytest.raises(RuntimeError, match=r"The course is not installed here.*python3 start\.py"):
        check_environment()
