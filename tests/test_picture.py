"""A picture's description says what is drawn, and its alt text and printed sentence reach the notebook."""

import re

import matplotlib as mpl
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgb
from matplotlib.patches import Circle

from helpers import Picture
from helpers.picture import LINE_COLOURS, LINE_STYLES, PALETTE, STYLE, new_figure, sentence_list, styled

modest = settings(max_examples=25, deadline=None)

BASE = {
    "x": [1.0, 2.0, 4.0],
    "y": [1.0, 3.0, 2.0],
    "color": PALETTE["blue"],
    "linestyle": "-",
    "marker": "",
    "label": "a line",
    "title": "A title",
    "xlabel": "step",
    "ylabel": "f",
    "xscale": "linear",
    "yscale": "linear",
    "levels": [1.0, 2.0, 4.0],
    "steepness": 1.0,
    "cmap": "Greys",
    "area": PALETTE["sky"],
    "marks": [(1.0, 2.0), (3.0, 1.0)],
    "bar": 2.0,
    "text": "here",
    "where": (1.0, 1.0),
    "legend": True,
    "image": 1.0,
    "heading": "All of it",
    "summary": "A line.",
    "xlim": None,
}


def make(**changes):
    """Draw a figure with one of everything."""
    o = BASE | changes
    figure = new_figure()
    axes = figure.axes[0]
    axes.imshow(np.array([[o["image"], 0.0]]), extent=(0, 1, 0, 1))
    x, y = np.meshgrid(np.linspace(0.5, 3, 5), np.linspace(0.5, 3, 5))
    axes.contourf(x, y, o["steepness"] * x * y, levels=o["levels"], cmap=o["cmap"])
    axes.plot(o["x"], o["y"], color=o["color"], linestyle=o["linestyle"], marker=o["marker"], label=o["label"])
    axes.fill_between([1, 2], [1, 1], [2, o["bar"]], color=o["area"], label="an area")
    axes.scatter(*np.transpose(o["marks"]), label="marks")
    axes.bar([1.0], [o["bar"]], color=o["area"])
    axes.annotate(o["text"], o["where"])
    axes.set(title=o["title"], xlabel=o["xlabel"], ylabel=o["ylabel"], xscale=o["xscale"], yscale=o["yscale"])
    axes.set_aspect("auto")
    if o["xlim"]:
        axes.set_xlim(o["xlim"])
    if o["legend"]:
        axes.legend()
    figure.suptitle(o["heading"])
    return Picture(figure, o["summary"])


CHANGES = [
    {"x": [1.0, 2.0, 5.0]},
    {"x": [1.0, 3.0, 4.0]},
    {"y": [1.5, 3.0, 2.0]},
    {"y": [1.0, 2.9, 2.0]},
    {"y": [1.0, 3.0, 2.5]},
    {"x": [1.0, 2.0, 3.0, 4.0], "y": [1.0, 3.0, 2.0, 2.0]},
    {"y": [1.0, np.nan, 2.0]},
    {"color": PALETTE["vermilion"]},
    {"linestyle": "--"},
    {"linestyle": "none"},
    {"marker": "o"},
    {"label": "another line"},
    {"title": "Another title"},
    {"title": ""},
    {"xlabel": "time"},
    {"ylabel": "g"},
    {"xscale": "log"},
    {"yscale": "log"},
    {"levels": [1.0, 2.0, 5.0]},
    {"levels": [1.0, 3.0, 4.0]},
    {"levels": [1.0, 2.0, 3.0, 4.0]},
    {"steepness": 1.1},
    {"cmap": "Blues"},
    {"area": PALETTE["green"]},
    {"marks": [(1.0, 2.0), (3.0, 1.5)]},
    {"marks": [(1.0, 2.0)]},
    {"bar": 2.5},
    {"text": "there"},
    {"where": (1.0, 2.0)},
    {"legend": False},
    {"image": 2.0},
    {"heading": "All of that"},
    {"summary": "Another line."},
    {"xlim": (0.1, 9.0)},
]


@pytest.fixture(scope="module")
def base():
    return make()


# --- the description


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_one_change_changes_the_description(base, change):
    assert make(**change).describe() != base.describe()


def test_the_same_picture_made_twice_has_the_same_description(base):
    assert make().describe() == base.describe()


@pytest.mark.parametrize("change", [{}, {"xscale": "log", "yscale": "log", "xlim": (0.5, 3)}], ids=str)
def test_drawing_changes_no_description(change):
    picture = make(**change)
    before = picture.describe()
    picture.png()
    assert picture.describe() == before


@modest
@given(
    st.lists(st.floats(-5, 5), min_size=2, max_size=8),
    st.integers(0, 7),
    st.floats(1, 5),
    st.sampled_from([-1, 1]),
    st.sampled_from(["x", "y"]),
)
def test_moving_any_one_point_of_a_line_changes_the_description(values, which, by, sign, along):
    def described(values):
        other = np.arange(len(values))
        figure = new_figure()
        figure.axes[0].plot(*((values, other) if along == "x" else (other, values)))
        return Picture(figure, "A line.").describe()

    moved = list(values)
    moved[which % len(values)] += sign * by
    assert described(moved) != described(values)


@pytest.mark.parametrize(
    ("draw", "words"),
    [
        (lambda axes: axes.plot([], []), "line unnamed #1f77b4 -: empty"),
        (lambda axes: axes.plot([0, 1], [np.nan, np.inf]), "y not finite, mean (0.5, nan)"),
        (lambda axes: axes.plot([0, 1], [np.nan, 2.0]), "first (0, nan), last (1, 2), x 0 to 1, y 2 to 2"),
        (lambda axes: axes.plot(["a", "b"], [1, 2]), "first (0, 1), last (1, 2)"),
        (lambda axes: axes.plot([0, 1], [1, 2], "s", color="red"), "#ff0000 no line marker s: n 2"),
        (lambda axes: axes.axvline(3.0, color="red"), "line unnamed #ff0000 -: n 2, first (3, 0), last (3, 1)"),
        (lambda axes: axes.hlines([1, 2], 0, 5, color="red"), "lines unnamed #ff0000: x 0 to 5, y 1 to 2"),
        (lambda axes: axes.scatter([1, 2], [3, 5], color="red"), "marks unnamed #ff0000: n 2, first (1, 3)"),
        (lambda axes: axes.scatter([1, 2], [3, 5], c=[7, 8]), "viridis 2 values, from 7 to 8, mean 7.5"),
        (lambda axes: axes.contour([[0, 1], [1, 2]], levels=[0.5, 1.5], colors="red"), "contours #ff0000: levels 0.5"),
        (lambda axes: axes.pcolormesh([[1.0, 2.0]]), "viridis 1x2 values, from 1 to 2"),
        (lambda axes: axes.imshow([[1.0, 4.0]]), "image: 1x2 values, from 1 to 4, mean 2.5"),
        (lambda axes: axes.bar([1], [3], width=0.5, color="red"), "shape unnamed #ff0000: x 0.75 to 1.25, y 0 to 3"),
        (lambda axes: axes.add_patch(Circle((1, 1), 0.5)), "shape unnamed #1f77b4: x 0.5 to 1.5, y 0.5 to 1.5"),
        (lambda axes: axes.add_collection(LineCollection([[(0, 0), (1, 2)]])), "lines unnamed #1f77b4: x 0 to 1"),
        (lambda axes: axes.text(1, 2, "word"), "text 'word' at (1, 2)"),
        (lambda axes: axes.plot([0, 1e-17], [0, -1e-17]), "last (0, 0)"),
        (lambda axes: axes.set_axis_off(), "axes 1: no axis"),
    ],
)
def test_everything_on_the_axes_is_described_also_after_a_draw(draw, words):
    figure = new_figure()
    draw(figure.axes[0])
    picture = Picture(figure, "It.")
    assert words in picture.describe()
    before = picture.describe()
    figure.draw_without_rendering()
    assert picture.describe() == before


def test_each_axes_has_a_part_of_its_own():
    figure = new_figure(3)
    figure.axes[2].set_title("The last")
    headings = re.findall(r"^axes \d: .*", Picture(figure, "Three.").describe(), flags=re.MULTILINE)
    assert len(headings) == 3
    assert "The last" in headings[2]


# --- bytes


def test_the_same_figure_gives_the_same_bytes():
    picture = make()
    assert picture.png() == picture.png()


def test_two_figures_made_alike_give_the_same_bytes(base):
    assert make().png() == make().png()


def test_bytes_are_a_png_without_a_version_in_it(base):
    assert base.png().startswith(b"\x89PNG")
    assert b"Software" not in base.png()


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_the_ending_decides_the_format(base, tmp_path, ending):
    base.save(tmp_path / f"picture.{ending}")
    start = (tmp_path / f"picture.{ending}").read_bytes()[:5]
    assert start == {"png": b"\x89PNG\r", "svg": b"<?xml"}[ending]


# --- in a notebook


def test_a_notebook_gets_the_bytes_the_description_the_alt_text_and_the_sentence(base, monkeypatch, capsys):
    shown = []
    monkeypatch.setattr("IPython.display.display", lambda data, **options: shown.append((data, options)))
    base._ipython_display_()
    data = {"image/png": base.png(), "text/plain": base.describe()}
    assert shown == [
        (
            data,
            {
                "metadata": {"image/png": {"alt": base.summary, "software": f"matplotlib {mpl.__version__}"}},
                "raw": True,
            },
        )
    ]
    assert capsys.readouterr() == (f"{base.summary}\n", "")


@pytest.mark.parametrize("summary", ["", " ", "\n"])
def test_a_picture_without_words_is_refused(summary):
    with pytest.raises(ValueError, match="summary is empty"):
        Picture(new_figure(), summary)


def test_a_picture_says_its_sentence(base):
    assert repr(base) == "Picture('A line.')"


# --- style


def test_the_style_ends_with_the_function_that_has_it():
    before = {key: mpl.rcParams[key] for key in STYLE}
    seen = styled(lambda: {key: mpl.rcParams[key] for key in STYLE})()
    assert seen["font.size"] == STYLE["font.size"] != before["font.size"]
    assert {key: mpl.rcParams[key] for key in STYLE} == before


def test_there_is_one_dash_pattern_for_each_line_colour():
    assert len(set(LINE_COLOURS)) == len({str(style) for style in LINE_STYLES}) == len(LINE_COLOURS)


# Machado, Oliveira and Fernandes, "A physiologically-based model for simulation of color vision deficiency",
# IEEE Trans. Visualization and Computer Graphics 15 (2009), 1291-1298; severity 1.0, for linear RGB.
SIMULATIONS = {
    "normal": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "tritanopia": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}


def linear(colour):
    """Return linear RGB (IEC 61966-2-1)."""
    rgb = np.array(to_rgb(colour))
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


def lab(rgb):
    """Return CIELAB of linear RGB, for the white point D65."""
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    t = to_xyz @ np.clip(rgb, 0, 1) / to_xyz.sum(axis=1)
    x, y, z = np.where(t > (6 / 29) ** 3, np.cbrt(t), t / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def nearest(colours, vision):
    seen = [lab(SIMULATIONS[vision] @ linear(colour)) for colour in colours]
    return min(np.linalg.norm(a - b) for i, a in enumerate(seen) for b in seen[:i])


def contrast(one, other):
    """Return the contrast ratio of WCAG 2.2."""
    bright, dark = sorted((np.dot([0.2126, 0.7152, 0.0722], linear(c)) for c in (one, other)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("vision", SIMULATIONS)
def test_the_lines_are_told_apart_with_any_colour_vision(vision):
    # A difference of about 2.3 can just be noticed; red and green of equal lightness come down to about 5.
    assert nearest(LINE_COLOURS, vision) > 12


def test_the_simulation_can_see_a_bad_pair():
    assert nearest(["#c07000", "#709000"], "deuteranopia") < 12 < nearest(["#c07000", "#709000"], "normal")


@pytest.mark.parametrize("name", ["black", "grey", "blue"])
def test_words_in_this_colour_can_be_read_on_white(name):
    assert contrast(PALETTE[name], "white") >= 4.5


@pytest.mark.parametrize("colour", PALETTE.values(), ids=PALETTE)
def test_every_colour_stands_out_from_white(colour):
    assert contrast(colour, "white") >= 1.8


@pytest.mark.parametrize(
    ("words", "joined"), [([], ""), (["a"], "a"), (["a", "b"], "a and b"), (["a", "b", "c"], "a, b and c")]
)
def test_words_are_joined_as_in_a_sentence(words, joined):
    assert sentence_list(words) == joined
