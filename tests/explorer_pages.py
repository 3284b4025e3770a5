"""The explorer in a real browser: pages that hold one, and the hand that moves it."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
from playwright.sync_api import Locator, Page

from helpers.explorer import page as pages

KERNELSPEC = {"display_name": "Python 3", "language": "python", "name": "python3"}
SIMULATION = (pages.HERE / "simulation.js").read_text(encoding="utf-8")


class Explorer:
    """One explorer on a page."""

    def __init__(self, page: Page, which: int = 0) -> None:
        self.page = page
        self.root = page.locator(".byg-explorer").nth(which)

    def control(self, name: str) -> Locator:
        """Return a slider or a list."""
        return self.root.locator(f'[data-name="{name}"]')

    @property
    def summary(self) -> str:
        """The text below the picture."""
        return self.root.locator(".byg-summary").inner_text()

    @property
    def answer(self) -> str:
        """What stands beside the button."""
        return self.root.locator(".byg-answer").inner_text()

    @property
    def drawn(self) -> int:
        """How many pictures were drawn."""
        return int(self.root.get_attribute("data-pictures"))

    def label(self, name: str) -> str:
        """Return the value that a slider's label shows."""
        return self.root.locator(f'[data-value="{name}"]').inner_text()

    def pixels(self) -> str:
        """Return both pictures as data."""
        return self.root.evaluate("root => [...root.querySelectorAll('canvas')].map(c => c.toDataURL()).join('|')")

    def painted(self) -> None:
        """Wait until the next picture can be seen."""
        self.page.evaluate("() => new Promise(seen => requestAnimationFrame(() => requestAnimationFrame(seen)))")

    def saved(self) -> None:
        """Wait until the hand has let go, for the tasks, the screen reader and Python."""
        self.root.locator('.byg-summary[aria-busy="false"]').wait_for()

    def press(self, name: str, key: str, times: int = 1) -> None:
        """Press a key on a slider."""
        self.control(name).focus()
        for _ in range(times):
            self.page.keyboard.press(key)
        self.painted()

    def slide(self, name: str, low: float, high: float, moves: int = 5) -> None:
        """Drag a slider's thumb with the mouse, from one part of its length to another."""
        slider = self.control(name)
        slider.scroll_into_view_if_needed()
        box = slider.bounding_box()
        self.drag(*((box["x"] + part * box["width"], box["y"] + box["height"] / 2) for part in (low, high)), moves)

    def drag(self, start: tuple[float, float], end: tuple[float, float], moves: int = 5) -> None:
        """Press the mouse at one place, move it to another, and let go."""
        mouse = self.page.mouse
        mouse.move(*start)
        mouse.down()
        mouse.move(*end, steps=moves)
        mouse.up()
        self.painted()

    def put(self, name: str, value: float | str) -> None:
        """Set a control as a hand would: input, then change."""
        self.control(name).evaluate(
            """(control, value) => {
                control.value = value;
                for (const kind of ["input", "change"]) control.dispatchEvent(new Event(kind, { bubbles: true }));
            }""",
            str(value),
        )
        self.painted()


def static_page(folder: Path, *explorers: Any) -> str:
    """Write one page with several static forms; return its address."""
    forms = "\n".join(pages.static_form(explorer.static_state()) for explorer in explorers)
    path = folder / f"{len(list(folder.iterdir()))}.html"
    path.write_text(pages.PAGE.format(title="test", body=forms), encoding="utf-8")
    return path.as_uri()


def run_in_page(page: Page, jobs: list[dict[str, Any]]) -> list[dict[str, np.ndarray]]:
    """Simulate in the browser; numbers come back bit for bit."""
    answers = page.evaluate(
        """([source, jobs]) => {
            const simulate = new Function(`${source}; return simulate`)();
            return JSON.parse(jobs).map(settings => {
                const { points, values, losses } = simulate(settings);
                return [points, values, losses].map(numbers => Array.from(new BigUint64Array(numbers.buffer), String));
            });
        }""",
        [SIMULATION, json.dumps(jobs)],
    )
    names = ("points", "values", "losses")
    return [
        {
            name: np.array([int(bits) for bits in each], dtype=np.uint64).view(np.float64)
            for name, each in zip(names, answer, strict=True)
        }
        for answer in answers
    ]


def notebook(folder: Path, *cells: str) -> str:
    """Write a notebook with these cells; return its name."""
    made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    made.metadata = nbformat.from_dict({"kernelspec": KERNELSPEC})
    nbformat.write(made, folder / "explorer.ipynb")
    return "explorer.ipynb"


def stored_notebook(folder: Path, explorer: Any) -> Path:
    """Write a notebook as lessons are stored: with the form, the picture and its sentence, but nothing that is live."""
    v4 = nbformat.v4
    form = {"text/plain": repr(explorer), "text/html": pages.static_form(explorer.static_state())}
    outputs = [v4.new_output("display_data", form)]
    for bundle, metadata in explorer.stand_in():
        told = {kind: base64.b64encode(data).decode() if kind == "image/png" else data for kind, data in bundle.items()}
        outputs.append(v4.new_output("display_data", told, metadata=metadata))
    made = v4.new_notebook(cells=[v4.new_code_cell("explore_adam()", execution_count=1, outputs=outputs)])
    made.metadata = nbformat.from_dict({"kernelspec": KERNELSPEC})
    nbformat.write(made, folder / "stored.ipynb")
    return folder / "stored.ipynb"


@contextmanager
def watched(page: Page) -> Iterator[dict[str, list[str]]]:
    """Note errors of a page, and every request that leaves this machine."""
    seen: dict[str, list[str]] = {"errors": [], "requests": []}

    def note_request(request: Any) -> None:
        if not request.url.startswith(("file:", "data:", "blob:", "http://127.0.0.1", "ws://127.0.0.1")):
            seen["requests"].append(request.url)

    def note_message(message: Any) -> None:
        if message.type == "error":
            seen["errors"].append(message.text)

    listeners = {
        "request": note_request,
        "console": note_message,
        "pageerror": lambda error: seen["errors"].append(str(error)),
    }
    for event, listener in listeners.items():
        page.on(event, listener)
    yield seen
    for event, listener in listeners.items():
        page.remove_listener(event, listener)
    assert seen == {"errors": [], "requests": []}
