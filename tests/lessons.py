"""Read the lessons: what the tests of notebooks share."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = ROOT / "notebooks"
PATHS = sorted(NOTEBOOKS.glob("*.ipynb"))
NAMES = [path.stem for path in PATHS]


def read(name: str) -> nbformat.NotebookNode:
    """Return the lesson whose name begins like this."""
    (path,) = NOTEBOOKS.glob(f"{name}*.ipynb")
    return nbformat.read(path, as_version=4)


def minutes(name: str) -> tuple[int, int]:
    """Return how many minutes a lesson says that it takes: to read and run, and for its exercises."""
    said = r"\*\*About (\d+) minutes\*\*, and (\d+) (?:minutes? )?for the exercises?\."
    match = re.search(said, read(name).cells[0].source)
    assert match, f"{name} does not say how long it takes"
    return int(match[1]), int(match[2])


def code_cells(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    """Return the cells that hold code."""
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def exercise_number(cell: nbformat.NotebookNode) -> str | None:
    """Return the number of the exercise that a cell checks, None if it checks none."""
    match = re.search(r'^check\("([\d.]+)"', cell.source, re.MULTILINE)
    return match and match[1]


def tags(cell: nbformat.NotebookNode) -> list[str]:
    """Return a cell's tags."""
    return list(cell.metadata.get("tags", []))


def prose(notebook: nbformat.NotebookNode) -> str:
    """Return all Markdown of a lesson."""
    return "\n\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")


def output_text(cell: nbformat.NotebookNode) -> str:
    """Return all words that a cell put out."""
    words = []
    for output in cell.get("outputs", []):
        words.append(output.get("text", ""))
        words.append(output.get("evalue", ""))
        words.extend(content for kind, content in output.get("data", {}).items() if kind.startswith("text/"))
    return "\n".join(words)
