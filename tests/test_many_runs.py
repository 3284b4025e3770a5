"""The pictures of many runs show medians, floors and ends as they are, and say the same in words."""

import matplotlib as mpl
import numpy as np
import pytest
from picture_checks import (
    assert_it_describes_itself,
    assert_no_setting_stays_changed,
    assert_words_are_large_and_within,
)

from helpers import many_runs

pytestmark = pytest.mark.filterwarnings("error")

STEPS = np.arange(5)[:, np.newaxis]
SLOW = 1.0 / (1 + STEPS) * np.array([1.0, 2.0, 3.0])
FAST = 10.0 ** (-5.0 * STEPS) * np.array([1.0, 1.0, 1.0, 1.0])
ENDS = {"one": [0.5, 1e-8, 1e-12], "two": [1e-7, 2e-7, 3e-7, 1e-5]}
MEASURED = {"SGD": ([0.1, 0.2, 0.4], [1.0, 2.1, 4.4]), "Adam": ([0.01, 0.02], [3.0, 6.0])}
THEORY = {"SGD": ([0.1, 0.4], [1.0, 4.0])}
PICTURES = {
    "descents": lambda: many_runs.descents({"slow": SLOW, "fast": FAST}, levels={"a level": 0.05}, title="Two groups"),
    "floors": lambda: many_runs.floors(MEASURED, THEORY, title="Floors"),
    "arrivals": lambda: many_runs.arrivals(ENDS, title="Ends"),
}
every_picture = pytest.mark.parametrize("draw", PICTURES.values(), ids=PICTURES)


def lines(picture):
    """Return the lines of a picture by their name."""
    return {line.get_label(): line for line in picture.figure.axes[0].lines}


@every_picture
def test_a_picture_describes_itself_the_same_before_and_after_a_draw(draw):
    assert_it_describes_itself(draw)


@every_picture
def test_all_words_are_large_and_within_the_picture(draw):
    with mpl.rc_context({"font.size": 6, "ytick.labelsize": 6}):
        picture = draw()
        picture.png()
    (axes,), frame = picture.figure.axes, picture.figure.bbox
    (legend,) = picture.figure.legends
    assert_words_are_large_and_within(frame, [axes.title, axes.xaxis.label, axes.yaxis.label, *legend.get_texts()])


@every_picture
def test_no_setting_of_matplotlib_stays_changed(draw):
    assert_no_setting_stays_changed(draw)


@every_picture
def test_groups_differ_in_colour_and_in_line_or_mark(draw):
    looks = [(line.get_color(), line._unscaled_dash_pattern, line.get_marker()) for line in lines(draw()).values()]
    assert len({str(look) for look in looks}) == len(looks)


# --- step by step


def test_a_group_is_drawn_as_its_median_and_middle_half():
    picture = PICTURES["descents"]()
    drawn = lines(picture)
    np.testing.assert_array_equal(drawn["slow"].get_xdata(), np.arange(5))
    np.testing.assert_allclose(drawn["slow"].get_ydata(), np.median(SLOW, axis=1))
    band = picture.figure.axes[0].collections[0].get_paths()[0].vertices
    assert band[:, 1].min() == pytest.approx(np.quantile(SLOW[-1], 0.25))
    assert band[:, 1].max() == pytest.approx(np.quantile(SLOW[0], 0.75))
    assert picture.figure.axes[0].get_yscale() == "log"


def test_a_level_is_a_line_and_a_part_of_the_sentence():
    picture = PICTURES["descents"]()
    assert set(lines(picture)["a level"].get_ydata()) == {0.05}
    assert picture.summary == (
        "Two groups, median of f at the end: slow 4.0e-01 (3 runs) and fast below 1e-16 (4 runs). a level is 5.0e-02."
        " What lies below 1e-16 is drawn at 1e-16."
    )


def test_what_lies_lower_than_rounding_is_drawn_at_the_lowest_value():
    picture = PICTURES["descents"]()
    assert min(lines(picture)["fast"].get_ydata()) == 1e-16
    assert "below 1e-03 (4 runs). What lies below 1e-03 is drawn at 1e-03." in (
        many_runs.descents({"fast": FAST}, lowest=1e-3).summary
    )


def test_the_sentence_speaks_of_a_cut_only_where_there_is_one():
    assert "drawn at" not in many_runs.descents({"slow": SLOW}).summary
    assert "drawn at" not in many_runs.arrivals({"two": ENDS["two"]}).summary
    assert many_runs.arrivals(ENDS).summary.endswith(" What lies below 1e-09 is drawn at 1e-09.")


def test_the_legend_names_each_line_and_the_band():
    (legend,) = PICTURES["descents"]().figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["slow", "fast", "a level", "middle half"]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([1.0, 2.0], r"shape \(steps \+ 1, runs\); got \(2,\)"),
        (np.ones((0, 2)), r"shape \(steps \+ 1, runs\); got \(0, 2\)"),
        ([[1.0, np.nan]], "must be finite and 0 or more"),
        ([[1.0, -1.0]], "must be finite and 0 or more"),
    ],
    ids=["one run", "empty", "nan", "negative"],
)
def test_values_that_cannot_be_drawn_are_refused(values, words):
    with pytest.raises(ValueError, match=words):
        many_runs.descents({"group": values})


@pytest.mark.parametrize("level", [0.0, np.inf], ids=["zero", "infinite"])
def test_a_level_that_cannot_be_drawn_is_refused(level):
    with pytest.raises(ValueError, match="A level is a finite number above 0; 'it' has"):
        many_runs.descents({"slow": SLOW}, levels={"it": level})


@pytest.mark.parametrize("count", [0, 7])
def test_none_and_too_many_groups_are_refused(count):
    named = {str(number): SLOW for number in range(count)}
    with pytest.raises(ValueError, match=f"1 to 6 groups; got {count}"):
        many_runs.descents(named)
    with pytest.raises(ValueError, match=f"1 to 6 groups; got {count}"):
        many_runs.arrivals({name: values[-1] for name, values in named.items()})
    with pytest.raises(ValueError, match=f"1 to 6 optimisers; got {count}"):
        many_runs.floors({name: ([1.0], [1.0]) for name in named}, {})


# --- floors


def test_measured_floors_are_marks_and_theory_is_a_line():
    drawn = lines(PICTURES["floors"]())
    assert list(drawn) == ["SGD measured", "SGD theory", "Adam measured"]
    assert drawn["SGD measured"].get_linestyle() == "None"
    np.testing.assert_allclose(drawn["SGD measured"].get_xydata().T, MEASURED["SGD"])
    np.testing.assert_allclose(drawn["SGD theory"].get_xydata().T, THEORY["SGD"])
    assert drawn["SGD measured"].get_color() == drawn["SGD theory"].get_color() != drawn["Adam measured"].get_color()


def test_the_sentence_says_both_ends_of_each_optimiser():
    assert PICTURES["floors"]().summary == (
        "Floors: SGD from 1.0e+00 at 0.1 to 4.4e+00 at 0.4, and theory 1.0e+00 to 4.0e+00; "
        "Adam from 3.0e+00 at 0.01 to 6.0e+00 at 0.02."
    )


@pytest.mark.parametrize(
    ("measured", "theory", "words"),
    [
        ({"SGD": ([1.0], [1.0])}, {"Adam": ([1.0], [1.0])}, "it has 'Adam', and measured are 'SGD'"),
        ({"SGD": ([1.0, 2.0], [1.0])}, {}, r"one value for each learning rate; got shapes \(2,\) and \(1,\)"),
        ({"SGD": ([1.0, 0.0], [1.0, 1.0])}, {}, "finite and above 0; those of 'SGD' are not"),
        ({"SGD": ([1.0], [np.nan])}, {}, "finite and above 0; those of 'SGD' are not"),
    ],
    ids=["unknown", "lengths", "zero", "nan"],
)
def test_floors_that_do_not_go_together_are_refused(measured, theory, words):
    with pytest.raises(ValueError, match=words):
        many_runs.floors(measured, theory)


# --- ends


def test_ends_are_drawn_in_order_and_no_lower_than_asked():
    drawn = lines(PICTURES["arrivals"]())
    np.testing.assert_array_equal(drawn["one"].get_xydata(), [(1, 1e-9), (2, 1e-8), (3, 0.5)])
    assert set(drawn["arrived: below 1e-06"].get_ydata()) == {1e-6}


def test_the_sentence_counts_those_that_arrive():
    assert PICTURES["arrivals"]().summary.startswith("Ends: below 1e-06 end one 2 of 3 and two 3 of 4.")
    wide = many_runs.arrivals(ENDS, below=1.0).summary
    assert wide.startswith("Where the runs end: below 1 end one 3 of 3 and two 4 of 4.")


@pytest.mark.parametrize("lowest", [0.0, 1e-6])
def test_the_lowest_value_must_lie_below_the_line(lowest):
    with pytest.raises(ValueError, match="lowest must lie between 0 and below = 1e-06; got"):
        many_runs.arrivals(ENDS, lowest=lowest)
