"""The sliders that lesson 07 lets its reader build: the lesson's own cells, and their callback called directly.

In a notebook an exception in a callback goes into an Output widget, and no cell fails. Here nothing catches it.
"""

import io
import itertools

import numpy as np
import pytest
from lessons import code_cells, read
from matplotlib.backends.backend_agg import FigureCanvasAgg
from PIL import Image

from helpers import rosenbrock


@pytest.fixture(scope="module")
def names():
    """Run the lesson down to the cell with the sliders, and return what it defined."""
    names = {}
    for cell in code_cells(read("07")):
        lines = [line for line in cell.source.splitlines() if not line.startswith("%")]
        exec(compile("\n".join(lines), "lesson 07", "exec"), names)
        if "interactive_output" in cell.source:
            return names
    raise AssertionError("lesson 07 builds no sliders")


def corners(names):
    noise, lr = names["noise_slider"], names["lr_slider"]
    return list(itertools.product((noise.min, noise.max), (lr.base**lr.min, lr.base**lr.max)))


def pixels(names):
    return np.asarray(Image.open(io.BytesIO(names["picture"].value)).convert("RGB"), dtype=float)


def test_the_ranges_are_those_of_the_instrument(names):
    assert corners(names) == [(0, 0.001), (0, 1), (1, 0.001), (1, 1)]


@pytest.mark.parametrize("number", range(4), ids=["calm-slow", "calm-fast", "noisy-slow", "noisy-fast"])
def test_the_callback_draws_and_tells_the_run_at_each_corner(names, number):
    noise, lr = corners(names)[number]
    names["show"](noise, lr)
    end = rosenbrock.value(names["adam"](noise, lr)[-1])
    assert np.isfinite(end)
    assert names["words"].value == f"noise {noise:.2f}, learning rate {lr:.3f}: f = {end:.1e}"
    assert pixels(names).shape == (540, 800, 3)


def test_the_four_corners_are_four_pictures(names):
    pictures = []
    for corner in corners(names):
        names["show"](*corner)
        pictures.append(pixels(names))
    for one, other in itertools.combinations(pictures, 2):
        assert np.abs(one - other).max() > 50


def test_moving_a_slider_calls_the_callback(names):
    names["lr_slider"].value = 0.01
    names["noise_slider"].value = 0.25
    assert names["words"].value.startswith("noise 0.25, learning rate 0.010: f = ")


def test_a_move_draws_no_contour_again(names, monkeypatch):
    monkeypatch.setattr(FigureCanvasAgg, "draw", lambda *arguments: pytest.fail("the whole figure is drawn again"))
    names["show"](1.0, 0.1)


def test_a_path_leaves_no_trace_in_the_next_picture(names):
    names["show"](0.5, 0.1)
    before = names["picture"].value
    names["show"](1.0, 1.0)
    names["show"](0.5, 0.1)
    assert names["picture"].value == before


def test_a_fault_in_the_callback_is_not_silent_here(names, monkeypatch):
    monkeypatch.setitem(names, "adam", lambda noise, lr: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        names["noise_slider"].value = 0.75


def test_the_reader_sees_the_sliders_the_picture_and_the_errors(names):
    (cell,) = [cell for cell in code_cells(read("07")) if "interactive_output" in cell.source]
    assert cell.source.splitlines()[-1] == "widgets.VBox([noise_slider, lr_slider, picture, words, errors])"
    assert len([line for line in cell.source.splitlines() if line.strip()]) <= 32


def test_the_learners_adam_is_torchs_for_all_noises_and_rates(names):
    torch, UniformFactor = names["torch"], names["UniformFactor"]
    for noise, lr in [*corners(names), (0.5, 0.1), (0.5, 0.03)]:
        factors = iter(UniformFactor(noise).draw(np.random.default_rng(3), (200,)))
        x = torch.tensor([0.1, 0.1], dtype=torch.float64)
        path = names["descend_with_gradient"](
            torch.optim.Adam([x], lr=lr), lambda point, rows=factors: next(rows) * rosenbrock.gradient(point), 200
        )
        np.testing.assert_allclose(names["adam"](noise, lr, seed=3), path.points, rtol=0, atol=1e-9)


def test_the_stored_script_of_the_instrument_is_whole():
    """What is stored is sanitised, and in a script too, a number that looks like an address would be replaced."""
    scripts = [
        output.data["text/html"]
        for cell in code_cells(read("07"))
        for output in cell.outputs
        if "<script" in output.get("data", {}).get("text/html", "")
    ]
    assert scripts
    assert not [script for script in scripts if "ADDRESS" in script]
