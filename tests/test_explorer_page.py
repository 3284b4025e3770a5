"""The explorer in pages without a kernel: the hand, the words, the numbers, and nothing from the network."""

import itertools
import os
from dataclasses import asdict, replace

import explorer_pages
import live_lab
import nbformat
import numpy as np
import pytest
from explorer_pages import Explorer, run_in_page, static_page, watched
from nbconvert import HTMLExporter

from helpers.descent import Trajectory
from helpers.explorer import Settings, explore_adam, simulate
from helpers.explorer.simulation import OPTIMIZERS, largest_difference
from helpers.explorer.torch_run import run_in_torch

pytestmark = pytest.mark.skipif(
    live_lab.find_browser() is None and not os.environ.get("CI"),
    reason="needs Chromium or Chrome on the PATH (in CI this is no excuse)",
)
FAR = 1e6  # where a path runs away it doubles its rounding errors with every step


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """Open one browser for all tests here."""
    with live_lab.browser_page(tmp_path_factory.mktemp("profile")) as page:
        yield page


@pytest.fixture(autouse=True)
def quiet(page):
    """Let no test leave an error, or ask anything of the network."""
    with watched(page):
        yield


@pytest.fixture
def opened(page, tmp_path):
    """Return a function that opens a page with explorers and returns the first."""

    def open_page(*explorers):
        page.emulate_media(color_scheme="light")
        page.set_viewport_size({"width": 1100, "height": 900})
        page.goto(static_page(tmp_path, *(explorers or [explore_adam()])))
        page.wait_for_function(
            "() => document.querySelectorAll('[data-alive]').length && !document.querySelector('[data-byg-settings]')"
        )
        first = Explorer(page)
        first.painted()
        return first

    return open_page


# --- the numbers


@pytest.mark.parametrize("seed", [0, 1, 100, 12345, 2**32 - 1])
def test_draws_are_those_of_numpy(page, seed):
    page.goto("about:blank")
    found = page.evaluate(
        "([source, seed]) => Array.from(new Function(`${source}; return uniforms`)()(seed, 500))",
        [explorer_pages.SIMULATION, seed],
    )
    assert found == np.random.default_rng(seed).random(500).tolist()


def grid():
    """Return settings over all ranges, each optimiser's."""
    kinds = (("factor", "independent"), ("term", "shared"))
    for number, (noise, lr, (kind, draws)) in enumerate(itertools.product((0.0, 0.5, 1.0), (0.003, 0.1, 1.0), kinds)):
        start = ((0.1, 0.1), (-0.5, 1.5), (1.6, -0.4))[number % 3]
        yield Settings(noise=noise, lr=lr, kind=kind, draws=draws, seed=number, start=start, steps=50)
    usual = Settings(steps=200)
    yield usual
    yield replace(usual, kind="term", draws="shared", seed=99, noise=0.2, lr=0.02, steps=100)
    yield replace(usual, beta1=0.5, beta2=0.99, steps=100)
    yield replace(usual, beta1=0.98, beta2=0.95, steps=100)


def near(path):
    """Return how many points lie before the path runs away."""
    return int(np.argmax(np.append(~(np.abs(path.points).max(axis=1) < FAR), True)))


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_page_and_torch_walk_the_same_path(page, optimizer):
    page.goto("about:blank")
    settings = [replace(each, optimizer=optimizer) for each in grid()]
    answers = run_in_page(page, [asdict(each) for each in settings])
    for each, answer in zip(settings, answers, strict=True):
        found = Trajectory(answer["points"].reshape(-1, 2), answer["losses"], answer["values"])
        wanted = run_in_torch(each)
        kept = near(wanted)
        assert kept == near(found)
        for one in (found, simulate(each)):
            apart = largest_difference(
                Trajectory(one.points[:kept], np.zeros(kept - 1)), Trajectory(wanted.points[:kept], np.zeros(kept - 1))
            )
            assert apart < 1e-9, each
            np.testing.assert_allclose(one.losses[: kept - 1], wanted.losses[: kept - 1], rtol=1e-7, atol=1e-9)
        assert np.isfinite(found.end).all() == np.isfinite(wanted.end).all()


# --- words and pictures


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"noise": 0.0, "lr": 0.00123, "steps": 500, "seed": 3},
        {"optimizer": "SGD", "lr": 1.0, "noise": 1.0},
        {"optimizer": "momentum", "compare": "RMSprop", "seeds": 64},
        {"optimizer": "AdamW", "kind": "term", "draws": "shared", "beta1": 0.5, "beta2": 0.9, "start": (-0.5, 1.5)},
    ],
    ids=["usual", "no noise", "diverges", "two and a band", "everything else"],
)
def test_page_and_python_say_the_same(opened, settings):
    explorer = explore_adam(**settings)
    assert opened(explorer).summary == explorer.summary


def test_divergence_is_shown_as_what_it_is_and_the_axes_stay(page, opened):
    explorer = opened(explore_adam(optimizer="SGD", lr=0.001))
    axes = "root => root.querySelector('canvas').getContext('2d').getImageData(0, 0, 40, 300).data.join()"
    before = explorer.root.evaluate(axes)
    explorer.put("noise", 1)
    explorer.put("lr", 150)
    assert "lr 1.00, noise 1.00" in explorer.summary
    assert "ends at (nan, nan), f = nan. Not finite from step" in explorer.summary
    assert explorer.root.evaluate(axes) == before


SLIDERS = [
    ("noise", "0.50", "0.51", "noise 0.51"),
    ("lr", "0.100", "0.105", "lr 0.105"),
    ("steps", "200", "210", "210 steps"),
    ("seed", "0", "1", ""),
    ("beta1", "0.90", "0.91", ""),
    ("beta2", "0.999", "0.998", ""),
]


@pytest.mark.parametrize(("name", "before", "after", "said"), SLIDERS, ids=[row[0] for row in SLIDERS])
def test_a_key_moves_slider_words_and_picture(opened, name, before, after, said):
    explorer = opened()
    explorer.root.locator("details > summary").first.click()
    pixels, summary = explorer.pixels(), explorer.summary
    assert explorer.label(name) == before
    explorer.press(name, "ArrowLeft" if name == "beta2" else "ArrowRight")
    assert explorer.label(name) == after == explorer.control(name).get_attribute("aria-valuetext")
    assert said in explorer.summary != summary
    assert explorer.pixels() != pixels


@pytest.mark.parametrize("name", [row[0] for row in SLIDERS])
def test_the_mouse_moves_slider_words_and_picture(opened, name):
    explorer = opened()
    explorer.root.locator("details > summary").first.click()
    pixels, label, summary = explorer.pixels(), explorer.label(name), explorer.summary
    explorer.slide(name, 0.3, 0.6)
    assert explorer.label(name) != label
    assert explorer.summary != summary
    assert explorer.pixels() != pixels


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("optimizer", "RMSprop", "RMSprop, lr"),
        ("compare", "SGD", "SGD: ends"),
        ("kind", "term", ""),
        ("seeds", "64", "Of Adam's 64 seeds, 36 end"),
    ],
    ids=["optimizer", "compare", "kind", "seeds"],
)
def test_a_choice_changes_words_and_picture(opened, name, value, said):
    explorer = opened()
    pixels, summary = explorer.pixels(), explorer.summary
    explorer.control(name).select_option(value)
    explorer.painted()
    assert said in explorer.summary != summary
    assert explorer.pixels() != pixels


def test_what_changes_nothing_but_the_draws_changes_the_draws(opened):
    explorer = opened()
    summary = explorer.summary
    explorer.control("draws").select_option("shared")
    explorer.painted()
    assert explorer.summary == explore_adam(draws="shared").summary != summary


def test_start_is_dragged_with_the_mouse(opened):
    explorer = opened()
    handle = explorer.root.locator(".byg-start")
    box, pixels = handle.bounding_box(), explorer.pixels()
    middle = (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    explorer.drag(middle, (middle[0] - 60, middle[1] - 80))
    x0, x1 = (float(word.split()[1]) for word in handle.get_attribute("aria-valuetext").split(", "))
    assert x0 < 0 < 0.3 < x1
    assert explorer.summary == explore_adam(start=(x0, x1)).summary
    assert explorer.pixels() != pixels


def test_start_moves_with_the_arrow_keys_and_stays_in_the_picture(page, opened):
    explorer = opened()
    handle = explorer.root.locator(".byg-start")
    handle.focus()
    for key in ("ArrowRight", "ArrowUp", "Shift+ArrowUp"):
        page.keyboard.press(key)
    explorer.painted()
    assert handle.get_attribute("aria-valuetext") == "x₀ 0.15, x₁ 0.16"
    assert explorer.summary == explore_adam(start=(0.15, 0.16)).summary
    for _ in range(40):
        page.keyboard.press("ArrowDown")
    assert handle.get_attribute("aria-valuetext") == "x₀ 0.15, x₁ -0.60"


def test_tab_leads_through_every_control(page, opened):
    explorer = opened()
    explorer.control("noise").focus()
    visited = []
    for _ in range(12):
        visited.append(page.evaluate("() => document.activeElement.dataset.name ?? document.activeElement.className"))
        page.keyboard.press("Tab")
    assert visited[:9] == ["noise", "lr", "steps", "seed", "optimizer", "compare", "kind", "draws", "seeds"]
    assert "byg-start" in visited


def test_start_moves_with_its_own_keys_and_button_only(page, opened):
    explorer = opened()
    handle = explorer.root.locator(".byg-start")
    assert [handle.get_attribute(f"aria-value{end}") for end in ("min", "max")] == ["-0.7", "1.7"]
    handle.focus()
    page.keyboard.press("Control+ArrowRight")
    box = handle.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down(button="right")
    page.mouse.move(x + 60, y)
    page.mouse.up(button="right")
    assert handle.get_attribute("aria-valuetext") == "x₀ 0.10, x₁ 0.10"
    page.mouse.move(x + 8, y)  # taken at its rim it does not jump
    page.mouse.down()
    page.mouse.move(x + 9, y)
    page.mouse.up()
    explorer.painted()
    assert handle.get_attribute("aria-valuetext") in ("x₀ 0.10, x₁ 0.10", "x₀ 0.11, x₁ 0.10")


def test_settings_that_the_hand_cannot_reach_are_shown(opened):
    explorer = opened(explore_adam(seeds=10, steps=15, seed=12345))
    shown = [explorer.control(name).input_value() for name in ("seeds", "steps", "seed")]
    assert shown == ["10", "15", "12345"]
    explorer.press("steps", "ArrowRight")
    assert explorer.label("steps") == "16"


def test_a_path_that_runs_away_leaves_the_picture_where_it_does(page, opened):
    explorer = opened(explore_adam(optimizer="SGD", lr=1.0, noise=0.0, start=(1.7, -0.6), steps=10))
    inside = page.evaluate(
        """([source]) => {
            const [near, FAR] = new Function(`${source}; return [near, FAR]`)();
            const [from, to] = near(100, 50, -1e9, -1e8); // the slope must stay
            return [100 - to * 1e9, 50 - to * 1e8, near(2e4, 0, 0, 5), near(-2e4, -2e4, 4e4, 4e4), -FAR];
        }""",
        [(explorer_pages.pages.HERE / "picture.js").read_text(encoding="utf-8")],
    )
    x, y, beside, across, far = inside
    assert x == pytest.approx(far)
    assert y == pytest.approx(50 - (100 - far) / 10)
    assert beside is None
    assert across == pytest.approx([0.25, 0.75])
    assert "Not finite from step" in explorer.summary


def test_text_below_the_picture_is_a_live_region(opened):
    explorer = opened()
    region = explorer.root.locator(".byg-summary")
    assert region.get_attribute("aria-live") == "polite"
    explorer.control("noise").focus()
    explorer.page.keyboard.down("ArrowRight")
    assert region.get_attribute("aria-busy") == "true"  # a screen reader waits until the key is up
    explorer.page.keyboard.up("ArrowRight")
    explorer.saved()
    assert explorer.root.locator("canvas").first.get_attribute("aria-label").endswith(explorer.summary)


# --- tasks


def test_tasks_can_be_solved_by_hand(opened):
    explorer = opened()
    low, first = explorer.root.locator(".byg-tasks li").all()
    explorer.put("steps", 100)
    explorer.saved()
    assert low.get_attribute("data-solved") == "false"
    explorer.press("lr", "ArrowRight", 3)
    explorer.saved()
    assert explorer.label("lr") == "0.115"
    assert low.get_attribute("data-solved") == "true"
    assert "Solved: Adam, lr 0.115, noise 0.50, 100 steps, seed 0. It works with 1 of 64 seeds." in low.inner_text()

    explorer.control("optimizer").select_option("SGD")
    explorer.put("lr", 97)
    explorer.saved()
    assert "nan" in explorer.summary
    assert first.get_attribute("data-solved") == "false"  # it diverges, but at a smaller one too
    explorer.press("lr", "ArrowLeft")
    explorer.saved()
    assert first.get_attribute("data-solved") == "true"
    assert "Solved: SGD, lr 0.0832, noise 0.50, 100 steps, seed 0." in first.inner_text()


# --- where it stands


def test_what_was_solved_at_first_is_not_the_hands_work(page, opened):
    explorer = opened(explore_adam(steps=100, lr=0.115))
    low, _ = explorer.root.locator(".byg-tasks li").all()
    explorer.control("noise").focus()
    page.keyboard.press("Tab")
    page.wait_for_timeout(300)
    assert low.get_attribute("data-solved") == "false"


def test_button_says_that_torch_needs_a_kernel(opened):
    explorer = opened()
    assert explorer.root.locator("button").is_disabled()
    assert explorer.answer == "It needs a kernel: run the cell in JupyterLab."
    explorer.press("noise", "ArrowRight")
    assert explorer.answer == "It needs a kernel: run the cell in JupyterLab."


def test_an_exported_notebook_moves_without_kernel_and_network(page, tmp_path):
    stored = nbformat.read(explorer_pages.stored_notebook(tmp_path, explore_adam()), as_version=4)
    exported, _ = HTMLExporter().from_notebook_node(stored)
    (tmp_path / "stored.html").write_text(exported, encoding="utf-8")
    other = page.context.new_page()  # nbconvert's own scripts ask for the network, and get nothing
    other.route(lambda url: url.startswith("http"), lambda route: route.abort())
    other.goto((tmp_path / "stored.html").as_uri())
    other.wait_for_selector("[data-alive]")
    explorer = Explorer(other)
    explorer.press("lr", "ArrowRight")
    assert "lr 0.105" in explorer.summary
    assert not other.locator(".jp-OutputArea-child img").first.is_visible()
    assert not other.locator(".byg-instead").first.is_visible()
    other.close()


def test_a_white_page_stays_dark_on_light_where_the_system_is_dark(page, tmp_path):
    form = explorer_pages.pages.static_form(explore_adam().static_state())
    (tmp_path / "white.html").write_text(f"<!doctype html><meta charset='utf-8'>{form}", encoding="utf-8")
    page.emulate_media(color_scheme="dark")
    page.goto((tmp_path / "white.html").as_uri())
    page.wait_for_selector("[data-alive]")
    assert Explorer(page).root.get_attribute("data-dark") == "false"
    page.emulate_media(color_scheme="light")


def test_two_explorers_on_one_page_are_independent(page, opened):
    first = opened(explore_adam(), explore_adam(optimizer="SGD", lr=0.01))
    second = Explorer(page, 1)
    second.painted()
    pixels, summary = second.pixels(), second.summary
    first.press("noise", "ArrowRight", 3)
    assert (second.pixels(), second.summary) == (pixels, summary)
    second.press("lr", "ArrowRight")
    assert "lr 0.0105" in second.summary
    assert "lr 0.100" in first.summary


def luminance(explorer):
    """Return the mean brightness of the surface, 0 to 255, over a page of its colour."""
    return explorer.root.evaluate(
        """root => {
            const [red] = getComputedStyle(root.querySelector('select')).backgroundColor.match(/\\d+/g).map(Number);
            return red;
        }"""
    )


def test_dark_page_has_dark_grounds_and_light_lines(page, opened):
    explorer = opened()
    light, pixels = luminance(explorer), explorer.pixels()
    page.emulate_media(color_scheme="dark")
    explorer.painted()
    assert light > 200 > 60 > luminance(explorer)
    assert explorer.pixels() != pixels


@pytest.mark.parametrize("width", [1024, 640, 420])
def test_nothing_is_wider_than_the_page_and_no_text_is_small(page, opened, width):
    explorer = opened()
    page.set_viewport_size({"width": width, "height": 768})
    explorer.painted()
    assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
    sizes = explorer.root.evaluate(
        "root => [...root.querySelectorAll('*')].map(e => parseFloat(getComputedStyle(e).fontSize))"
    )
    assert min(sizes) >= 14
    if width == 1024:
        bottom = explorer.root.locator(".byg-summary").bounding_box()
        assert bottom["y"] + bottom["height"] <= 768


def test_pictures_are_sharp_on_a_screen_with_two_pixels_for_one(page, opened):
    explorer = opened()
    session = page.context.new_cdp_session(page)
    metrics = {"width": 1100, "height": 900, "deviceScaleFactor": 2, "mobile": False}
    session.send("Emulation.setDeviceMetricsOverride", metrics)
    explorer.press("noise", "ArrowRight")
    assert explorer.root.locator("canvas").first.evaluate(
        "canvas => canvas.width / canvas.clientWidth"
    ) == pytest.approx(2, abs=0.01)
    session.send("Emulation.clearDeviceMetricsOverride")


def test_pictures_are_drawn_again_where_the_page_is_zoomed(page, opened):
    explorer = opened()
    drawn = explorer.drawn
    page.evaluate("() => window.dispatchEvent(new Event('resize'))")
    explorer.painted()
    assert explorer.drawn == drawn + 1


def test_one_picture_for_many_changes_within_one_frame(opened):
    explorer = opened()
    drawn = explorer.drawn
    explorer.control("noise").evaluate(
        """slider => { for (const value of [0.1, 0.2, 0.3]) {
            slider.value = value;
            slider.dispatchEvent(new Event("input", { bubbles: true }));
        } }"""
    )
    explorer.painted()
    assert explorer.drawn == drawn + 1
    assert explorer.label("noise") == "0.30"


def test_contours_are_drawn_once(page, opened):
    explorer = opened()
    page.evaluate(
        """() => {
            window.sheets = 0;
            const original = CanvasRenderingContext2D.prototype.putImageData;
            CanvasRenderingContext2D.prototype.putImageData = function (...given) {
                window.sheets += 1;
                return original.apply(this, given);
            };
        }"""
    )
    explorer.press("noise", "ArrowRight", 3)
    assert page.evaluate("() => window.sheets") == 0
