"""The lessons in a real JupyterLab, in a real browser."""

import os
import shutil

import live_lab
import pytest
from lessons import NAMES, NOTEBOOKS

NEEDS_A_BROWSER = pytest.mark.skipif(
    live_lab.find_browser() is None and not os.environ.get("CI"),
    reason="needs Chromium or Chrome on the PATH (in CI this is no excuse)",
)


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """Run one JupyterLab over a copy of the lessons, with the user settings of somebody who has none."""
    folder = tmp_path_factory.mktemp("lab")
    shutil.copytree(NOTEBOOKS, folder / "lessons")
    with live_lab.server(folder / "lessons", JUPYTERLAB_SETTINGS_DIR=str(folder / "settings")) as address:
        yield address


@pytest.fixture(scope="module")
def page(lab, tmp_path_factory):
    """Open one page for all lessons."""
    assert live_lab.find_browser(), "CI must install Chromium: .ci/run does."
    with live_lab.browser_page(tmp_path_factory.mktemp("profile")) as page:
        yield page


def default_of(lab, plugin, setting):
    """Return the default that JupyterLab uses for a setting."""
    schema = live_lab.get_json(f"{lab}/lab/api/settings/@jupyterlab/apputils-extension:{plugin}")["schema"]
    return schema["properties"][setting]["default"]


def test_settings_of_the_course_take_effect(lab):
    assert default_of(lab, "kernels-settings", "commsOverSubshells") == "disabled"
    assert default_of(lab, "notification", "fetchNews") == "false"
    assert default_of(lab, "notification", "checkForUpdates") is False


@NEEDS_A_BROWSER
@pytest.mark.parametrize("name", NAMES)
def test_running_all_twice_leaves_only_the_errors_that_are_meant(page, lab, name):
    live_lab.open_lesson(page, lab, f"{name}.ipynb")
    for _ in range(2):
        cells = live_lab.run_all(page)
        for cell in cells:
            assert bool(cell["errors"]) == ("raises-exception" in cell["tags"]), (cell["source"], cell["errors"])
    assert [cell["count"] for cell in cells] == list(range(len(cells) + 1, 2 * len(cells) + 1))


@NEEDS_A_BROWSER
def test_page_shows_no_news_and_keeps_comms_on_the_main_thread(page, lab):
    live_lab.open_lesson(page, lab, "00_start_here.ipynb")
    page.wait_for_timeout(1500)
    assert page.locator(".Toastify__toast").count() == 0
    session = "window.jupyterapp.shell.currentWidget.sessionContext.session"
    assert page.evaluate(f"() => {session}.kernel.commsOverSubshells") == "disabled"


@NEEDS_A_BROWSER
def test_hint_and_solution_open_on_a_click(page, lab):
    live_lab.open_lesson(page, lab, "00_start_here.ipynb")
    live_lab.run_all(page)
    hint = page.locator("details", has_text="Hint 0.1").last
    hint.scroll_into_view_if_needed()
    assert not hint.locator("p").is_visible()
    hint.locator("summary").click()
    assert hint.locator("p").is_visible()


@NEEDS_A_BROWSER
def test_an_answer_typed_in_the_page_is_judged(page, lab):
    live_lab.open_lesson(page, lab, "00_start_here.ipynb")
    live_lab.run_all(page)
    cells = "window.jupyterapp.shell.currentWidget.content.model.cells"
    page.evaluate(
        f"""() => {{
            const cell = Array.from({cells}).find(cell => cell.sharedModel.getSource().includes('check("0.1"'));
            cell.sharedModel.setSource(cell.sharedModel.getSource().replace('...', '0'));
        }}"""
    )
    live_lab.run_all(page)
    assert page.get_by_text("0.1 right.").first.is_visible() or page.get_by_text("0.1 right.").count()
