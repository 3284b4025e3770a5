"""Rules for the whole test run, and lessons that cannot pass unseen.

Strict nbval has blind spots: it passes a cell that was saved unrun and a whole notebook stripped of its outputs, it
does not ask whether an error cell still raises, and it compares neither tracebacks nor pictures. The guards below
close them, with the outputs that nbval has just computed: nothing runs twice.
"""

import base64
import importlib
import io
import os
import re
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

# Kernels inherit both. With more threads each of them would ask for all cores; and a lesson is tested with the
# helpers that lie beside it, whatever other copy of the course may be installed.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(Path(__file__).parent), os.environ.get("PYTHONPATH")]))

# Mean difference of the pixels, of 255. One version of matplotlib draws the same on every machine but for roundings;
# another one may place letters a little differently.
SAME_VERSION, OTHER_VERSION = 0.1, 4.0


def pytest_configure(config: pytest.Config) -> None:
    """Let matplotlib list its fonts before any lesson runs: in a lesson it would say so on stderr."""
    if not hasattr(config, "workerinput"):
        importlib.import_module("matplotlib.font_manager")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say how the doctor did with its patients: found, missed, false alarms."""
    reports = [report for group in terminalreporter.stats.values() for report in group]
    calls = [report for report in reports if getattr(report, "when", "") == "call"]
    said = [value for report in calls for name, value in report.user_properties if name == "doctor"]
    if said:
        found, missed, alarms = (said.count(word) for word in ("found", "missed", "false alarm"))
        terminalreporter.write_line(
            f"doctor: {found} of {found + missed} sick patients named first, {missed} missed; "
            f"{alarms} false alarms among {said.count('healthy') + alarms} healthy ones"
        )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Look at a lesson's cell beside nbval."""
    cell = getattr(item, "cell", None)
    if cell is None:
        return (yield)
    if cell.source.strip() and cell.execution_count is None:
        pytest.fail("This cell was saved unrun: run `python3 start.py write` and commit the outputs.", pytrace=False)
    result = yield
    tags = cell.metadata.get("tags", [])
    if "nbval-ignore-output" not in tags:
        for fault in faults(cell.outputs, item.test_outputs, must_raise="raises-exception" in tags):
            pytest.fail(fault, pytrace=False)
    return result


def faults(stored: list[Any], new: list[Any], *, must_raise: bool) -> Iterator[str]:
    """Say what nbval does not see: an error that is gone, another way to it, another picture."""
    for what, outputs in (("stored", stored), ("new", new)):
        if must_raise and not any(output["output_type"] == "error" for output in outputs):
            yield f"This cell is tagged raises-exception, and its {what} output holds no error."
    if own_frames(stored) != own_frames(new):
        yield f"The stored traceback leads through {own_frames(stored)}, the new one through {own_frames(new)}."
    for before, after in zip(pictures(stored), pictures(new), strict=True):
        apart = difference(before["data"]["image/png"], after["data"]["image/png"])
        if apart > (SAME_VERSION if software(before) == software(after) else OTHER_VERSION):
            yield f"The stored picture is not the one that the cell draws (mean difference {apart:.2f} of 255)."


def own_frames(outputs: list[Any]) -> list[str]:
    """Return the lesson's own lines that tracebacks lead through, and their last words."""
    frames = []
    for output in outputs:
        if output["output_type"] == "error":
            entries = [re.sub(r"\x1b\[[\d;]*m", "", entry) for entry in output["traceback"]]
            for entry in entries[:-1]:
                if entry.startswith("Cell In"):
                    frames += re.findall(r"^-+> (.*\S)", entry, re.MULTILINE)
            frames += entries[-1:]
    return frames


def pictures(outputs: list[Any]) -> list[Any]:
    """Return the outputs that hold a picture."""
    return [output for output in outputs if "image/png" in output.get("data", {})]


def software(output: Any) -> str | None:
    """Return what drew a picture."""
    found: str | None = output["metadata"].get("image/png", {}).get("software")
    return found


def difference(before: str, after: str) -> float:
    """Return the mean difference between the pixels of two pictures, 255 if their sizes differ."""
    import numpy as np
    from PIL import Image

    one, other = (
        np.asarray(Image.open(io.BytesIO(base64.b64decode(png))).convert("RGB"), dtype=float) for png in (before, after)
    )
    return float(np.abs(one - other).mean()) if one.shape == other.shape else 255.0
