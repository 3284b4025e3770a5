"""The table of shares shows each share as it is, as a colour and as a number, and says the best of each row."""

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.colors import to_rgb
from picture_checks import (
    assert_it_describes_itself,
    assert_no_setting_stays_changed,
    assert_words_are_large_and_within,
)

from helpers import heat_maps

pytestmark = pytest.mark.filterwarnings("error")

TABLE = np.array([[1.0, 0.999, 0.5], [0.001, 0.0, 0.25]])
WORDS = {"rows": [0, 0.5], "columns": [0.001, 0.1, 1], "ylabel": "noise", "xlabel": "learning rate"}
PICTURES = {
    "small": lambda: heat_maps.shares(TABLE, **WORDS),
    "names": lambda: heat_maps.shares(
        TABLE.T, rows=["SGD", "momentum", "RMSprop"], columns=["a", "b"], ylabel="optimiser", xlabel="task", title="T"
    ),
    "largest": lambda: heat_maps.shares(
        np.linspace(0, 1, 144).reshape(12, 12),
        rows=np.linspace(0, 1, 12).round(2),
        columns=np.logspace(-3, 0, 12).round(3),
        ylabel="noise",
        xlabel="learning rate",
    ),
}
every_picture = pytest.mark.parametrize("draw", PICTURES.values(), ids=PICTURES)


def cells(picture):
    """Return the words in the cells by their row and column."""
    return {text.get_position()[::-1]: text for text in picture.figure.axes[0].texts}


@every_picture
def test_a_picture_describes_itself_the_same_before_and_after_a_draw(draw):
    assert_it_describes_itself(draw)


@every_picture
def test_all_words_are_large_and_within_the_picture(draw):
    with mpl.rc_context({"font.size": 6, "ytick.labelsize": 6}):
        picture = draw()
        picture.png()
    (axes,), frame = picture.figure.axes, picture.figure.bbox
    ticks = [*axes.get_xticklabels(), *axes.get_yticklabels()]
    assert_words_are_large_and_within(frame, [axes.title, axes.xaxis.label, axes.yaxis.label, *axes.texts, *ticks])


@every_picture
def test_words_do_not_run_into_each_other(draw):
    picture = draw()
    picture.png()
    (axes,) = picture.figure.axes
    for labels in (axes.get_xticklabels(), axes.get_yticklabels(), axes.texts):
        boxes = [label.get_window_extent() for label in labels]
        assert not [one for i, one in enumerate(boxes) if one.count_overlaps(boxes[i + 1 :])]


@every_picture
def test_no_setting_of_matplotlib_stays_changed(draw):
    assert_no_setting_stays_changed(draw)


def test_each_cell_holds_its_share_as_colour_and_number_with_the_first_row_on_top():
    picture = PICTURES["small"]()
    (axes,) = picture.figure.axes
    (image,) = axes.images
    np.testing.assert_array_equal(image.get_array(), TABLE)
    assert (image.norm.vmin, image.norm.vmax) == (0, 1)
    written = {place: text.get_text() for place, text in cells(picture).items()}
    assert written == {(0, 0): "100", (0, 1): "99", (0, 2): "50", (1, 0): "1", (1, 1): "0", (1, 2): "25"}
    assert axes.yaxis_inverted()
    assert [label.get_text() for label in axes.get_yticklabels()] == ["0", "0.5"]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0.001", "0.1", "1"]


@every_picture
def test_the_number_stands_out_from_its_colour(draw):
    picture = draw()
    (image,) = picture.figure.axes[0].images
    for (row, column), text in cells(picture).items():
        behind = image.cmap(image.norm(image.get_array()[row, column]))[:3]
        assert contrast(to_rgb(text.get_color()), behind) >= 3.0  # WCAG 2.2 for large text


def contrast(one, other):
    """Return the contrast of two colours as WCAG 2.2 defines it."""
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(colour):
    parts = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in colour]
    return np.dot(parts, [0.2126, 0.7152, 0.0722])


def test_the_sentence_tells_the_best_of_each_row_and_where_it_is_first():
    assert PICTURES["small"]().summary == (
        "How many runs arrive, highest share for each noise: 0 100 percent (learning rate 0.001); "
        "0.5 25 percent (learning rate 1)."
    )


BAD = {
    "shape": (TABLE.T, WORDS, "one row for each of the 2 names"),
    "too-large": (1 + TABLE, WORDS, "from 0 to 1"),
    "negative": (-TABLE, WORDS, "from 0 to 1"),
    "nan": (np.nan * TABLE, WORDS, "from 0 to 1"),
    "no-row": (TABLE[:0], {**WORDS, "rows": []}, "1 to 12"),
    "thirteen-rows": (np.zeros((13, 3)), {**WORDS, "rows": range(13)}, "1 to 12"),
}


@pytest.mark.parametrize(("table", "words", "message"), BAD.values(), ids=BAD)
def test_what_cannot_be_drawn_is_refused(table, words, message):
    with pytest.raises(ValueError, match=message):
        heat_maps.shares(table, **words)
