"""The explorer in a real JupyterLab with a kernel: traits, torch, other cells, themes, a restart."""

import os

import explorer_pages
import live_lab
import nbformat
import pytest
from explorer_pages import Explorer
from lessons import NOTEBOOKS

from helpers import explore_adam

pytestmark = pytest.mark.skipif(
    live_lab.find_browser() is None and not os.environ.get("CI"),
    reason="needs Chromium or Chrome on the PATH (in CI this is no excuse)",
)
LESSON = nbformat.read(NOTEBOOKS / "07_adam_on_a_noisy_surface.ipynb", as_version=4)
FIGURES = 20


def lesson_cell(words):
    """Return the source of the lesson's first code cell with these words."""
    return next(cell.source for cell in LESSON.cells if cell.cell_type == "code" and words in cell.source)


BEGIN = """import torch
import matplotlib.pyplot as plt
from helpers import explore_adam
_ = torch.optim.Adam([torch.zeros(1)])
def draw():
    figure, axes = plt.subplots(figsize=(0.8, 0.5))
    for k in range(30):
        axes.plot([0, k], [k, 1])
    plt.show()"""
PLAIN_FORM = "\n".join(lesson_cell(words) for words in ("torch.optim.Adam", "def adam(", "interactive_output"))
END = "print(explorer.lr, explorer.noise, explorer.start, explorer.trajectory.steps)"
BESIDE = """display(explore_adam())
print("my own words")
display(explorer)
plt.plot([0, 1])
plt.show()"""
CELLS = [BEGIN, "explorer = explore_adam()\nexplorer", PLAIN_FORM, *["draw()"] * FIGURES, BESIDE, END]
SHOWN = """() => Array.from(window.jupyterapp.shell.currentWidget.content.model.cells)
    .filter(cell => cell.type === 'code')
    .map(cell => cell.outputs.toJSON().map(output => output.text ?? output.data['image/png'] ?? output.output_type))"""
ACTIVATE = """index => {
    const { content } = window.jupyterapp.shell.currentWidget;
    content.activeCellIndex = index < 0 ? content.widgets.length + index : index;
}"""


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """Run JupyterLab over a notebook with an explorer, open it, and run all its cells."""
    folder = tmp_path_factory.mktemp("lab")
    name = explorer_pages.notebook(folder, *CELLS)
    explorer_pages.stored_notebook(folder, explore_adam())
    settings = str(tmp_path_factory.mktemp("settings"))
    with (
        live_lab.server(folder, JUPYTERLAB_SETTINGS_DIR=settings) as address,
        live_lab.browser_page(tmp_path_factory.mktemp("profile"), height=3000) as page,  # all cells are in view
    ):
        page.sent = []
        page.on("websocket", lambda socket: socket.on("framesent", lambda frame: page.sent.append(frame)))
        with explorer_pages.watched(page) as page.seen:
            live_lab.open_lesson(page, address, name)
            cells = live_lab.run_all(page)
            assert not any(cell["errors"] for cell in cells)
            page.wait_for_selector(".byg-explorer[data-pictures]")
            yield page


@pytest.fixture
def explorer(page):
    """Return the explorer, in view."""
    one = Explorer(page)
    one.root.scroll_into_view_if_needed()
    return one


def comm_messages(page):
    """Return how many messages of widgets went to the kernel."""
    frames = [frame if isinstance(frame, bytes) else frame.encode() for frame in page.sent]
    return sum(b"comm_msg" in frame for frame in frames)


def command(page, name, **arguments):
    """Run a command of JupyterLab; do not wait for its end."""
    page.evaluate("([name, given]) => void window.jupyterapp.commands.execute(name, given)", [name, arguments])


def run_last_cell(page):
    """Run the last cell and return what it prints."""
    page.evaluate(ACTIVATE, -1)
    page.evaluate("() => window.jupyterapp.commands.execute('notebook:run-cell')")
    page.wait_for_function(live_lab.ALL_CELLS_RAN)
    return page.evaluate(SHOWN)[-1][0].strip()


def test_picture_that_stands_in_is_hidden_where_the_explorer_runs(page, explorer):
    outputs = page.locator(".jp-Cell").nth(1).locator(".jp-OutputArea-child")
    assert [outputs.nth(i).is_visible() for i in range(outputs.count())] == [True, False, False]


def test_only_what_stands_in_is_hidden(page):
    cell = page.locator(".jp-Cell").nth(-2)
    cell.locator("[data-alive]").nth(1).wait_for()
    outputs = cell.locator(".jp-OutputArea-child")
    visible = [outputs.nth(i).is_visible() for i in range(outputs.count())]
    assert visible == [True, False, False, True, True, False, False, True]
    assert outputs.nth(3).inner_text().strip() == "my own words"


def test_shortcuts_with_ctrl_reach_the_notebook(page, explorer):
    dirty = "() => window.jupyterapp.shell.currentWidget.context.model.dirty"
    explorer.press("noise", "ArrowRight")
    assert page.evaluate(dirty)
    page.keyboard.press("Control+s")
    page.wait_for_function(dirty.replace("=> ", "=> !"))
    explorer.press("noise", "ArrowLeft")


def test_two_views_hear_their_own_answers(page):
    first, second = Explorer(page), Explorer(page, 2)  # of one explorer; between them stands another one
    first.press("steps", "ArrowRight")
    first.saved()
    assert second.label("steps") == first.label("steps") == "210"
    first.root.locator(".byg-run").click()
    first.root.locator(".byg-answer", has_text="largest difference").wait_for()
    assert second.answer == ""
    first.press("steps", "ArrowLeft")
    first.saved()


def test_nothing_is_sent_while_the_hand_moves_and_the_traits_follow_when_it_lets_go(page, explorer):
    before = comm_messages(page)
    slider = explorer.control("noise")
    box = slider.bounding_box()
    height = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] / 2, height)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"], height, steps=20)
    explorer.painted()
    assert explorer.label("noise") == "1.00"
    assert comm_messages(page) == before
    page.mouse.up()
    explorer.press("lr", "ArrowRight", 2)
    explorer.saved()
    assert run_last_cell(page) == "0.11 1.0 [0.1, 0.1] 200"
    assert comm_messages(page) > before


def test_a_held_key_saves_once(page, explorer):
    before = comm_messages(page)
    explorer.control("seed").focus()
    for _ in range(10):
        page.keyboard.down("ArrowRight")
    explorer.painted()
    assert comm_messages(page) == before
    page.keyboard.up("ArrowRight")
    explorer.saved()
    assert explorer.label("seed") == "10"
    assert 1 <= comm_messages(page) - before <= 2


def test_arrow_keys_reach_the_slider_and_not_the_notebook(page, explorer):
    active = page.evaluate("() => window.jupyterapp.shell.currentWidget.content.activeCellIndex")
    explorer.press("steps", "ArrowUp", 2)
    explorer.press("steps", "ArrowDown", 2)
    assert explorer.label("steps") == "200"
    assert page.evaluate("() => window.jupyterapp.shell.currentWidget.content.activeCellIndex") == active


@pytest.mark.parametrize("optimizer", ["RMSprop", "Adam"])
def test_torch_is_run_and_laid_over_the_picture(page, explorer, optimizer):
    explorer.control("optimizer").select_option(optimizer)
    explorer.painted()
    pixels = explorer.pixels()
    explorer.root.locator(".byg-run").click()
    page.wait_for_function("() => document.querySelector('.byg-answer').innerText.includes('difference')")
    explorer.painted()
    assert explorer.answer.startswith(f"torch.optim.{optimizer}, same draws: largest difference ")
    assert float(explorer.answer.split()[-1].rstrip(".")) < 1e-9
    assert explorer.pixels() != pixels
    explorer.press("steps", "ArrowRight")
    assert explorer.answer == ""
    explorer.press("steps", "ArrowLeft")
    assert explorer.pixels() == pixels


@pytest.mark.parametrize(
    "slider", ['.byg-explorer [data-name="noise"]', ".noUi-handle"], ids=["explorer", "plain form"]
)
def test_sliders_moved_while_cells_run_leave_every_output_whole(page, explorer, slider):
    whole = page.evaluate(SHOWN)
    assert len({figure[0] for figure in whole[3:-2]}) == 1  # each cell draws the same
    page.evaluate(ACTIVATE, 3)
    counts = [cell["count"] for cell in page.evaluate(live_lab.OUTPUTS)]
    command(page, "notebook:run-all-below")
    moved = 0
    while [cell["count"] for cell in page.evaluate(live_lab.OUTPUTS)][-1] in (counts[-1], None):
        page.locator(slider).first.press(("ArrowLeft", "ArrowRight")[moved % 2])
        moved += 1
    page.wait_for_function(live_lab.ALL_CELLS_RAN)
    page.wait_for_timeout(300)
    assert moved >= FIGURES / 2
    assert page.evaluate(SHOWN)[3:-2] == whole[3:-2]


def test_plain_form_follows_its_slider(page, explorer):
    form = page.locator(".jp-Cell").nth(2)
    words, picture = form.locator(".widget-label", has_text="learning rate 0.100"), form.locator("img.widget-image")
    assert words.inner_text().startswith("noise 0.")
    before = picture.get_attribute("src")
    form.locator(".noUi-handle").nth(1).press("ArrowRight")
    form.locator(".widget-label", has_text="learning rate 0.112").wait_for()
    assert picture.get_attribute("src") != before


def test_dark_theme_and_a_narrow_window(page, explorer):
    pixels = explorer.pixels()
    page.evaluate("() => window.jupyterapp.commands.execute('apputils:change-theme', { theme: 'JupyterLab Dark' })")
    page.set_viewport_size({"width": 1024, "height": 768})
    page.wait_for_selector('.byg-explorer[data-dark="true"]')
    page.wait_for_timeout(600)
    assert explorer.pixels() != pixels
    area = page.locator(".jp-Cell").nth(1).locator(".jp-OutputArea")
    assert area.evaluate("area => area.scrollWidth <= area.clientWidth + 1")


def test_a_kernel_restart_leaves_the_page_usable(page, explorer):
    page.evaluate("() => window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart()")
    page.wait_for_function(live_lab.KERNEL_IS_IDLE)
    summary = explorer.summary
    explorer.press("noise", "ArrowLeft", 3)
    assert explorer.summary != summary
    explorer.root.locator(".byg-run").click()
    assert explorer.answer == "The kernel behind this explorer is gone. Run its cell again."


def test_a_stored_notebook_shows_the_picture_until_it_is_trusted(page):
    live_lab.open_lesson(page, page.url.split("/lab")[0], "stored.ipynb")
    page.wait_for_selector(".jp-OutputArea-child img")
    assert page.locator(".byg-explorer").count() == 0
    assert page.locator(".jp-OutputArea-child img").is_visible()
    assert explore_adam().summary in page.locator(".jp-OutputArea").inner_text()
    page.evaluate(
        """async () => {
            const { content } = window.jupyterapp.shell.currentWidget;
            for (const cell of content.model.cells) {
                cell.trusted = true;
                const outputs = cell.outputs.toJSON();
                cell.outputs.fromJSON(outputs);
            }
        }"""
    )
    page.wait_for_selector(".byg-explorer[data-pictures]")
    explorer = Explorer(page)
    explorer.press("noise", "ArrowRight")
    assert "noise 0.51" in explorer.summary
    assert explorer.root.locator("button").is_disabled()
    assert not page.locator(".jp-OutputArea-child img").is_visible()
