"""Rules for the whole test run: one torch thread, and lessons that cannot pass unseen.

Strict nbval has blind spots: it passes a cell that was saved unrun, a whole notebook stripped of its outputs, and it
runs an error cell without asking whether it should still raise. The guards below close them.
"""

import importlib
import os
from collections.abc import Generator

import pytest

# Kernels inherit this. With more threads each of them would ask for all cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_configure(config: pytest.Config) -> None:
    """Let matplotlib list its fonts before any lesson runs: in a lesson it would say so on stderr."""
    if not hasattr(config, "workerinput"):
        importlib.import_module("matplotlib.font_manager")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Refuse a lesson's cell that was saved unrun, or that must raise and does not."""
    cell = getattr(item, "cell", None)
    if cell is None:
        return (yield)
    if cell.source.strip() and cell.execution_count is None:
        pytest.fail("This cell was saved unrun: run `python3 start.py write` and commit the outputs.", pytrace=False)
    result = yield
    must_raise = "raises-exception" in cell.metadata.get("tags", [])
    for what, outputs in (("stored", cell.outputs), ("new", item.test_outputs)):
        if must_raise and not any(output["output_type"] == "error" for output in outputs):
            pytest.fail(f"This cell is tagged raises-exception, and its {what} output holds no error.", pytrace=False)
    return result
