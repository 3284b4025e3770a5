"""Run lessons and store their outputs: the one way in which outputs are written.

    python tools/run_notebooks.py              every lesson
    python tools/run_notebooks.py 02 05        the lessons whose names begin like this
    python tools/run_notebooks.py --check      write nothing; say which lessons would change

Two runs on one machine store the same bytes: a fresh kernel, streams joined, no times, no paths, tags as the only
metadata. A lesson is stored only if exactly its cells tagged ``raises-exception`` raise.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbval.plugin import get_sanitize_patterns

__all__ = ["CellExecutionError", "run", "sanitize", "text"]

ROOT = Path(__file__).resolve().parent.parent
LESSONS = ROOT / "notebooks"
SANITIZE = ROOT / "tests" / "sanitize.cfg"
COVER = LESSONS / "pictures" / "adam.png"
LIVE = "application/vnd.jupyter.widget-view+json"  # needs the kernel that made it; its id is another one in each run
KERNELSPEC = {"display_name": "Python 3", "language": "python", "name": "python3"}


class PlainClient(NotebookClient):
    """A client that leaves every output in the cell that made it, also below an Output widget.

    nbval has no Output widget: what a lesson stores must be what nbval will see.
    """

    def register_output_hook(self, msg_id: str, hook: Any) -> None:
        """Register nothing."""

    def remove_output_hook(self, msg_id: str, hook: Any) -> None:
        """Remove nothing."""

    def clear_output(self, outs: list[Any], msg: Any, cell_index: int) -> None:
        """Clear nothing."""


def run(notebook: nbformat.NotebookNode, folder: Path = LESSONS) -> nbformat.NotebookNode:
    """Run a notebook in a fresh kernel and return it in the form in which lessons are stored.

    Raises
    ------
    CellExecutionError
        If a cell raises that is not tagged ``raises-exception``.
    ValueError
        If a cell tagged ``raises-exception`` does not raise.
    """
    notebook.metadata = nbformat.from_dict({"kernelspec": KERNELSPEC, "language_info": {"name": "python"}})
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    client = PlainClient(notebook, timeout=120, resources={"metadata": {"path": str(folder)}}, record_timing=False)
    client.store_widget_state = False
    client.execute()
    for cell in notebook.cells:
        _tidy(cell)
    notebook.metadata.language_info = nbformat.from_dict({"name": "python"})
    return notebook


def text(notebook: nbformat.NotebookNode) -> str:
    """Return the notebook as the text of its file."""
    return json.dumps(notebook, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def first_picture(notebook: nbformat.NotebookNode) -> bytes | None:
    """Return the first picture of a notebook, None if it has none; lesson 00's is also the README's."""
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if "image/png" in output.get("data", {}):
                return base64.b64decode(output.data["image/png"])
    return None


def sanitize(words: str) -> str:
    """Replace what differs from run to run, by the patterns that nbval uses too."""
    for pattern, replacement in get_sanitize_patterns(SANITIZE.read_text(encoding="utf-8")):
        words = re.sub(pattern, replacement, words)
    return words


def _tidy(cell: nbformat.NotebookNode) -> None:
    tags = cell.metadata.get("tags", [])
    cell.metadata = nbformat.from_dict({"tags": sorted(tags)} if tags else {})
    cell.source = cell.source.rstrip()
    if cell.cell_type != "code":
        return
    if "raises-exception" in tags and not any(output.output_type == "error" for output in cell.outputs):
        raise ValueError(f"This cell is tagged raises-exception and does not raise:\n{cell.source}")
    cell.outputs = list(_tidy_outputs(cell.outputs))


def _tidy_outputs(outputs: list[nbformat.NotebookNode]) -> Iterator[nbformat.NotebookNode]:
    """Join each run of streams into one text for stdout and one for stderr; clean all words."""
    streams: dict[str, str] = {}
    for output in outputs:
        if output.output_type == "stream":
            streams[output.name] = streams.get(output.name, "") + output.text
            continue
        yield from _joined(streams)
        streams = {}
        yield _clean(output)
    yield from _joined(streams)


def _joined(streams: dict[str, str]) -> Iterator[nbformat.NotebookNode]:
    for name in ("stdout", "stderr"):
        if name in streams:
            yield nbformat.v4.new_output("stream", name=name, text=sanitize(streams[name]))


def _clean(output: nbformat.NotebookNode) -> nbformat.NotebookNode:
    if output.output_type == "error":
        output.evalue = sanitize(output.evalue)
        output.traceback = [sanitize(line) for line in output.traceback]
    else:
        if len(output.data) > 1:
            output.data.pop(LIVE, None)
        for kind, content in output.data.items():
            if kind.startswith("text/"):
                output.data[kind] = sanitize(content)
    return output


def _chosen(names: list[str]) -> list[Path]:
    lessons = sorted(LESSONS.glob("*.ipynb"))
    for name in names:
        if not any(lesson.name.startswith(name) for lesson in lessons):
            sys.exit(f"There is no lesson {name!r}. There are: {', '.join(lesson.stem for lesson in lessons)}.")
    return [lesson for lesson in lessons if not names or any(lesson.name.startswith(name) for name in names)]


def main() -> int:
    """Run the lessons named on the command line; return 1 if ``--check`` finds one that would change."""
    parser = argparse.ArgumentParser(description="Run lessons and store their outputs.")
    parser.add_argument(
        "names", nargs="*", metavar="LESSON", help="how a lesson's name begins, such as 02; all if none"
    )
    parser.add_argument("--check", action="store_true", help="write nothing; say which lessons would change")
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    # The helpers that lie beside the lessons, whatever other copy of the course may be installed.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    changed = []
    for path in _chosen(options.names):
        before = path.read_text(encoding="utf-8")
        notebook = run(nbformat.reads(before, as_version=4))
        after = text(notebook)
        if before != after:
            changed.append(path.stem)
            if not options.check:
                path.write_text(after, encoding="utf-8", newline="\n")
                if path.stem == "00_start_here" and (cover := first_picture(notebook)):
                    COVER.write_bytes(cover)
        print(f"{path.stem}: {'unchanged' if before == after else 'would change' if options.check else 'stored'}")
    return 1 if options.check and changed else 0


if __name__ == "__main__":
    sys.exit(main())
