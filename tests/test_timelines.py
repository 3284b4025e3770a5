"""The picture of workers shows each stretch of work where and when it was, and says the same in words."""

import matplotlib as mpl
import numpy as np
import pytest
from picture_checks import (
    assert_it_describes_itself,
    assert_no_setting_stays_changed,
    assert_words_are_large_and_within,
)

from helpers import timelines
from helpers.timelines import Span

pytestmark = pytest.mark.filterwarnings("error")

ALONE = [Span(0, k, 10.0 * k, 10.0 * k + 9) for k in range(4)]
PAIR = [Span(0, 0, 0.0, 10.0), Span(3, 1, 1.0, 12.0), Span(0, 2, 10.0, 20.0), Span(3, 3, 12.0, 12.1)]
PICTURES = {
    "one run": lambda: timelines.workers({"alone": ALONE}),
    "two runs": lambda: timelines.workers({"alone": ALONE, "a pair": PAIR}, unit="s", title="Both"),
}
every_picture = pytest.mark.parametrize("draw", PICTURES.values(), ids=PICTURES)


def shapes(picture):
    """Return what is drawn: name, row, begin and length of each bar."""
    return {
        (patch.get_label(), round(patch.get_y() + patch.get_height() / 2), patch.get_x(), round(patch.get_width(), 9))
        for patch in picture.figure.axes[0].patches
    }


@every_picture
def test_a_picture_describes_itself_the_same_before_and_after_a_draw(draw):
    assert_it_describes_itself(draw)


@every_picture
def test_all_words_are_large_and_within_the_picture(draw):
    with mpl.rc_context({"font.size": 6, "ytick.labelsize": 6}):
        picture = draw()
        picture.png()
    (axes,), frame = picture.figure.axes, picture.figure.bbox
    assert_words_are_large_and_within(frame, [axes.title, axes.xaxis.label, *axes.get_yticklabels(), *axes.texts])


@every_picture
def test_no_setting_of_matplotlib_stays_changed(draw):
    assert_no_setting_stays_changed(draw)


def test_each_stretch_of_work_is_drawn_in_the_row_of_its_worker():
    assert shapes(PICTURES["two runs"]()) == {
        ("alone, sample 0", 0, 0.0, 9.0),
        ("alone, sample 1", 0, 10.0, 9.0),
        ("alone, sample 2", 0, 20.0, 9.0),
        ("alone, sample 3", 0, 30.0, 9.0),
        ("a pair, sample 0", 1, 0.0, 10.0),
        ("a pair, sample 1", 2, 1.0, 11.0),
        ("a pair, sample 2", 1, 10.0, 10.0),
        ("a pair, sample 3", 2, 12.0, 0.1),
    }


def test_rows_are_named_from_top_to_bottom():
    axes = PICTURES["two runs"]().figure.axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["alone", "a pair 1", "a pair 2"]
    assert axes.yaxis_inverted()
    assert (axes.get_xlabel(), axes.get_title()) == ("time in s", "Both")


def test_a_bar_holds_the_number_of_its_sample_if_it_has_room():
    axes = PICTURES["two runs"]().figure.axes[0]
    assert [text.get_text() for text in axes.texts] == ["0", "1", "2", "3", "0", "2", "1"]
    for text in axes.texts:
        (around,) = [
            patch
            for patch in axes.patches
            if patch.get_x() < text.get_position()[0] < patch.get_x() + patch.get_width()
            and patch.get_y() < text.get_position()[1] < patch.get_y() + patch.get_height()
        ]
        assert around.get_label().endswith(f"sample {text.get_text()}")


def test_each_run_has_a_colour_of_its_own():
    axes = PICTURES["two runs"]().figure.axes[0]
    colours = {}
    for patch in axes.patches:
        colours.setdefault(patch.get_label().partition(",")[0], set()).add(patch.get_facecolor())
    assert {len(each) for each in colours.values()} == {1}
    assert colours["alone"] != colours["a pair"]


def test_the_sentence_says_how_long_each_run_took():
    assert PICTURES["two runs"]().summary == (
        "Both: alone, 4 samples on 1 worker in 39 s; a pair, 4 samples on 2 workers in 20 s."
    )


@pytest.mark.parametrize("changed", [{"begin": 0.5}, {"end": 8.5}, {"worker": 1}, {"sample": 9}], ids=str)
def test_one_change_changes_the_description(changed):
    other = [ALONE[0]._replace(**changed), *ALONE[1:]]
    assert timelines.workers({"alone": other}).describe() != PICTURES["one run"]().describe()


def test_none_too_many_and_empty_runs_are_refused():
    with pytest.raises(ValueError, match="1 to 4 runs; got 0"):
        timelines.workers({})
    with pytest.raises(ValueError, match="1 to 4 runs; got 5"):
        timelines.workers({str(k): ALONE for k in range(5)})
    with pytest.raises(ValueError, match="'idle' has no span"):
        timelines.workers({"alone": ALONE, "idle": []})


@pytest.mark.parametrize(
    "span", [Span(0, 0, 2.0, 1.0), Span(0, 0, np.nan, 1.0), Span(0, 0, 0.0, np.inf)], ids=["backward", "NaN", "endless"]
)
def test_a_span_that_is_none_is_refused(span):
    with pytest.raises(ValueError, match="'odd' has Span"):
        timelines.workers({"odd": [span]})
