"""A real JupyterLab and a real Chromium for the tests: start both, open a lesson, run all its cells.

It is not called jupyterlab: where this folder is on the path, it would stand in for the package.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright

ROOT = Path(__file__).resolve().parent.parent
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "msedge")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]

KERNEL_IS_IDLE = """() => {
    const session = window.jupyterapp?.shell.currentWidget?.sessionContext?.session;
    return session?.kernel?.status === 'idle';
}"""
ALL_CELLS_RAN = """() => {
    const panel = window.jupyterapp.shell.currentWidget;
    const cells = Array.from(panel.content.model.cells).filter(cell => cell.type === 'code');
    return cells.every(cell => cell.executionCount !== null && cell.executionState !== 'running')
        && panel.sessionContext.session.kernel.status === 'idle';
}"""
OUTPUTS = """() => Array.from(window.jupyterapp.shell.currentWidget.content.model.cells)
    .filter(cell => cell.type === 'code')
    .map(cell => ({
        source: cell.sharedModel.getSource(),
        tags: cell.sharedModel.getMetadata().tags || [],
        count: cell.executionCount,
        errors: cell.outputs.toJSON().filter(output => output.output_type === 'error').map(output => output.evalue),
    }))"""


def find_browser() -> str | None:
    """Return the path of a Chromium, or None."""
    return next((path for name in BROWSERS if (path := shutil.which(name))), None)


@contextmanager
def server(folder: Path, **variables: str) -> Iterator[str]:
    """Run JupyterLab over a folder, on loopback, without a token (for tests only); yield its address."""
    port = _free_port()
    command = [
        *(sys.executable, "-m", "jupyterlab", "--no-browser", "--ServerApp.ip=127.0.0.1"),
        *(f"--ServerApp.port={port}", "--ServerApp.port_retries=0", "--IdentityProvider.token="),
        *(f"--ServerApp.root_dir={folder}", "--LabApp.expose_app_in_browser=True"),
        *("--LabApp.extension_manager=readonly", "--Application.log_level=ERROR"),
    ]
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        command.append("--allow-root")
    process = subprocess.Popen(command, env=os.environ | variables, stderr=subprocess.DEVNULL)
    try:
        address = f"http://127.0.0.1:{port}"
        _wait_for(address, process)
        yield address
    finally:
        process.terminate()
        process.wait(timeout=20)


def get_json(address: str) -> Any:
    """Return what the server answers."""
    with urllib.request.urlopen(address, timeout=10) as answer:
        return json.load(answer)


@contextmanager
def browser_page(profile: Path, *, height: int = 1000) -> Iterator[Page]:
    """Open a page in a fresh headless Chromium."""
    with sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(
            str(profile),
            executable_path=find_browser(),
            headless=True,
            args=FLAGS,
            viewport={"width": 1400, "height": height},
        )
        try:
            yield context.new_page()
        finally:
            context.close()


def open_lesson(page: Page, address: str, name: str) -> None:
    """Open a lesson and wait until its kernel is ready."""
    page.goto(f"{address}/lab/tree/{name}?reset")
    page.wait_for_selector(".jp-Notebook .jp-CodeCell", timeout=60_000)
    page.wait_for_function(KERNEL_IS_IDLE, timeout=60_000)


def run_all(page: Page) -> list[dict[str, Any]]:
    """Run all cells once more, in the same kernel, and return what each code cell shows."""
    page.evaluate("() => window.jupyterapp.commands.execute('notebook:run-all-cells')")
    page.wait_for_function(ALL_CELLS_RAN, timeout=120_000)
    page.wait_for_timeout(300)
    cells: list[dict[str, Any]] = page.evaluate(OUTPUTS)
    return cells


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_for(address: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"JupyterLab ended with status {process.returncode} before it answered.")
        try:
            get_json(f"{address}/api")
            return
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.1)
    raise RuntimeError("JupyterLab did not answer within a minute.")
