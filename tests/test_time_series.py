"""The pictures of time series draw the numbers that they are given, and say them in words."""

import matplotlib as mpl
import numpy as np
import pytest
from picture_checks import assert_it_describes_itself

from helpers import time_series
from helpers.picture import LINE_COLOURS

pytestmark = pytest.mark.filterwarnings("error")

TIMES = np.array([0.0, 1.0, 2.0])
COUNTS = np.array([[1.0, 4.0], [2.0, 5.0], [3.0, 6.0]])
FINE = np.linspace(0, 2, 9)
STRAIGHT = np.stack([1 + FINE, 4 + FINE], axis=1)
X = [0.1, 1.0, 10.0]

PICTURES = {
    "series": lambda: time_series.series(
        TIMES, COUNTS, {"after": (FINE, STRAIGHT), "before": (FINE, STRAIGHT + 2)}, names=["prey", "predators"]
    ),
    "lines": lambda: time_series.lines(
        X, {"f": [1.0, 2.0, 4.0], "g": [1.0, 1.0, 1.0]}, title="T", xlabel="x", ylabel="y"
    ),
    "lines-log": lambda: time_series.lines(
        X, {"f": [1.0, 2.0, 4.0]}, title="T", xlabel="x", ylabel="y", xscale="log", yscale="log", marks=True
    ),
}
every_picture = pytest.mark.parametrize("draw", PICTURES.values(), ids=PICTURES)


def line_data(picture):
    """Return what is drawn: label, colour, x and y of each line that has points."""
    axes = picture.figure.axes[0]
    return [
        (line.get_label(), line.get_color(), *map(list, line.get_data()))
        for line in axes.lines
        if len(line.get_xdata())
    ]


@every_picture
def test_a_picture_describes_itself_the_same_before_and_after_a_draw(draw):
    assert_it_describes_itself(draw)


@every_picture
def test_all_words_are_large_and_within_the_picture(draw):
    with mpl.rc_context({"font.size": 6, "xtick.labelsize": 6}):
        figure = draw().figure
        figure.draw_without_rendering()
        frame = figure.bbox
        words = [text for text in figure.findobj(mpl.text.Text) if text.get_visible() and text.get_text()]
        assert min(text.get_fontsize() for text in words) >= 14
        for legend in figure.legends:
            box = legend.get_window_extent()
            assert frame.x0 <= box.x0 < box.x1 <= frame.x1


def test_counts_and_curves_are_drawn_as_they_are():
    drawn = line_data(PICTURES["series"]())
    assert ("prey, counted", LINE_COLOURS[0], list(TIMES), list(COUNTS[:, 0])) in drawn
    assert ("predators, counted", LINE_COLOURS[1], list(TIMES), list(COUNTS[:, 1])) in drawn
    assert ("predators, before", LINE_COLOURS[1], list(FINE), list(STRAIGHT[:, 1] + 2)) in drawn
    assert len(drawn) == 6


def test_the_sentence_says_how_far_each_curve_is_from_the_counts():
    assert PICTURES["series"]().summary == (
        "Counts and curves: prey and predators, counted 3 times. "
        "Typical distance (root mean square) from the counts: after 0 and before 2."
    )


def test_the_legend_names_quantities_by_colour_and_curves_by_style():
    (legend,) = PICTURES["series"]().figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["prey", "predators", "counted", "after", "before"]


def test_lines_are_drawn_as_they_are_and_told_by_their_ends():
    picture = PICTURES["lines"]()
    assert [(label, *data) for label, _, *data in line_data(picture)] == [("f", X, [1, 2, 4]), ("g", X, [1, 1, 1])]
    assert picture.summary == "T, from x = 0.1 to 10: f from 1 to 4 and g from 1 to 1."


def test_with_a_truth_the_sentence_says_the_largest_distance():
    picture = time_series.lines(
        X, {"f": [1.0, 2.0, 4.0], "g": [1.0, 1.0, 1.0]}, title="T", xlabel="x", ylabel="y", truth="g"
    )
    assert picture.summary == "T, largest distance from g: f 3."


def test_points_on_a_logarithmic_axis_are_named():
    axes = PICTURES["lines-log"]().figure.axes[0]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0.1", "1", "10"]
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")


def lines(curves, x=X, **options):
    return time_series.lines(x, curves, title="T", xlabel="x", ylabel="y", **options)


def series(curves, counts=COUNTS, names=("prey", "predators")):
    return time_series.series(TIMES, counts, curves, names=names)


WRONG = {
    "counts-of-another-shape": (lambda: series({"a": (FINE, STRAIGHT)}, COUNTS[:2]), "counts must have the shape"),
    "too-few-names": (lambda: series({"a": (FINE, STRAIGHT)}, names=["prey"]), "counts must have the shape"),
    "no-curve": (lambda: series({}), "1 to 6 curves"),
    "curve-of-another-shape": (lambda: series({"a": (FINE, FINE)}), "a must have the shape"),
    "curve-too-short": (lambda: series({"a": (FINE[:4], STRAIGHT[:4])}), "a must cover the times"),
    "nan": (lambda: series({"a": (FINE, STRAIGHT * np.nan)}), "a holds NaN"),
    "no-line": (lambda: lines({}), "1 to 6 lines"),
    "line-of-another-length": (lambda: lines({"f": [1.0]}), "f must have the shape of x"),
    "zero-on-a-logarithmic-axis": (lambda: lines({"f": [0.0, 1.0, 1.0]}, yscale="log"), "f must be above 0"),
    "x-below-zero-on-a-logarithmic-axis": (
        lambda: lines({"f": [1.0, 1.0]}, x=[-1.0, 1.0], xscale="log"),
        "x must be above 0",
    ),
    "unknown-truth": (lambda: lines({"f": X, "g": X}, truth="h"), "truth must be one of several"),
    "truth-alone": (lambda: lines({"f": X}, truth="f"), "truth must be one of several"),
}


@pytest.mark.parametrize(("draw", "words"), WRONG.values(), ids=WRONG)
def test_what_does_not_fit_is_refused_in_words(draw, words):
    with pytest.raises(ValueError, match=words):
        draw()
