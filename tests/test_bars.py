"""The bars are as long as the numbers say, and the pictures say the same numbers in words."""

import matplotlib as mpl
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from picture_checks import (
    assert_it_describes_itself,
    assert_no_setting_stays_changed,
    assert_words_are_large_and_within,
)

from helpers import bars

pytestmark = pytest.mark.filterwarnings("error")
modest = settings(max_examples=15, deadline=None)

COSTS = {"by hand": 40.0, "plain": 100.0, "quick": 1.6, "a rival": 2600.0}
PARTS = {"a start": 2.0, "the middle": 5.0, "the end": 1.0}
NAMES = st.dictionaries(st.text("abcdef", min_size=1), st.floats(1e-3, 1e3), min_size=2)
PICTURES = {
    "ratios": lambda: bars.ratios(COSTS, unit="plain", title="Costs"),
    "parts": lambda: bars.parts(PARTS, title="Parts"),
    "parts, one below 0": lambda: bars.parts(PARTS | {"a rounding": -0.5}),
}
every_picture = pytest.mark.parametrize("draw", PICTURES.values(), ids=PICTURES)


def shapes(picture):
    """Return the bars from top to bottom: name, where they begin, and how long they are."""
    patches = sorted(picture.figure.axes[0].patches, key=lambda patch: patch.get_y())
    return [(patch.get_label(), patch.get_x(), patch.get_width()) for patch in patches]


def words(picture):
    """Return what stands behind the bars, from top to bottom."""
    return [text.get_text() for text in picture.figure.axes[0].texts]


# --- both


@every_picture
def test_a_picture_describes_itself_the_same_before_and_after_a_draw(draw):
    assert_it_describes_itself(draw)


@every_picture
def test_the_names_stand_beside_their_bars(draw):
    axes = draw().figure.axes[0]
    labels = [label.get_text() for label in axes.get_yticklabels()]
    ticks = dict(zip(map(round, axes.get_yticks()), labels, strict=True))
    middles = {round(patch.get_y() + patch.get_height() / 2): patch.get_label() for patch in axes.patches}
    assert ticks == middles
    assert axes.yaxis_inverted()


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


# --- ratios


def test_ratios_are_lengths_in_the_unit_with_the_cheapest_on_top():
    found = shapes(PICTURES["ratios"]())
    assert [name for name, _, _ in found] == ["quick", "by hand", "plain", "a rival"]
    assert [begin for _, begin, _ in found] == [0, 0, 0, 0]
    np.testing.assert_allclose([length for _, _, length in found], [0.016, 0.4, 1, 26])


def test_ratios_are_told_in_the_sentence_and_behind_the_bars():
    picture = PICTURES["ratios"]()
    assert picture.summary == "Costs, in units of plain: quick 0.016, by hand 0.40, plain 1.00 and a rival 26."
    assert words(picture) == ["0.016", "0.40", "1.00", "26"]
    assert picture.figure.axes[0].get_xlabel() == "time, in units of plain"


def test_a_large_ratio_is_written_as_a_number():
    assert words(bars.ratios({"one": 1.0, "many": 1234.5}, unit="one")) == ["1.00", "1,234"]


def test_the_unit_has_a_colour_of_its_own_and_a_line_at_1():
    axes = PICTURES["ratios"]().figure.axes[0]
    others = {patch.get_facecolor() for patch in axes.patches if patch.get_label() != "plain"}
    (own,) = {patch.get_facecolor() for patch in axes.patches if patch.get_label() == "plain"}
    assert len(others) == 1
    assert own not in others
    assert [list(line.get_xdata()) for line in axes.lines] == [[1, 1]]


@modest
@given(NAMES, st.floats(0.1, 10), st.data())
def test_the_scale_of_the_costs_does_not_matter(costs, scale, data):
    unit = data.draw(st.sampled_from(sorted(costs)))
    scaled = {name: scale * cost for name, cost in costs.items()}
    one, other = shapes(bars.ratios(costs, unit=unit)), shapes(bars.ratios(scaled, unit=unit))
    np.testing.assert_allclose([length for *_, length in one], [length for *_, length in other])


def test_an_unknown_unit_is_refused_with_the_names():
    with pytest.raises(ValueError, match="there is no 'torch' among 'by hand', 'plain'"):
        bars.ratios(COSTS, unit="torch")


@pytest.mark.parametrize("cost", [0.0, -1.0, np.nan, np.inf])
def test_a_cost_that_is_none_is_refused_by_name(cost):
    with pytest.raises(ValueError, match="'odd' has"):
        bars.ratios(COSTS | {"odd": cost}, unit="plain")


# --- parts


def test_each_part_begins_where_the_one_above_ends():
    found = shapes(PICTURES["parts"]())
    assert [name for name, _, _ in found] == list(PARTS)
    np.testing.assert_allclose([begin for _, begin, _ in found], [0, 25, 87.5])
    np.testing.assert_allclose([length for _, _, length in found], [25, 62.5, 12.5])


def test_parts_are_told_in_the_sentence_and_behind_the_bars():
    picture = PICTURES["parts"]()
    assert picture.summary == "Parts: a start 25%, the middle 62% and the end 12%."
    assert words(picture) == ["25%", "62%", "12%"]


def test_a_part_below_0_goes_back():
    found = shapes(bars.parts({"most": 11.0, "back": -1.0}))
    np.testing.assert_allclose([begin for _, begin, _ in found], [0, 110])
    np.testing.assert_allclose([length for _, _, length in found], [110, -10])
    assert words(bars.parts({"most": 1000.0, "back": -1.0}))[1] == "0%"


@modest
@given(NAMES)
def test_all_parts_together_are_the_whole(costs):
    found = shapes(bars.parts(costs))
    assert sum(length for *_, length in found) == pytest.approx(100)
    _, begin, length = found[-1]
    assert begin + length == pytest.approx(100)


@pytest.mark.parametrize("costs", [{}, {"a": 0.0}, {"a": 1.0, "b": -2.0}, {"a": np.nan}, {"a": np.inf}])
def test_parts_of_nothing_are_refused(costs):
    with pytest.raises(ValueError, match="a sum above 0"):
        bars.parts(costs)


@pytest.mark.parametrize("changed", [{"a start": 3.0}, {"the end": 2.0}, {"more": 1.0}])
def test_one_change_changes_the_descriptions(changed):
    assert bars.parts(PARTS | changed).describe() != bars.parts(PARTS).describe()
    unit = "the middle"
    assert bars.ratios(PARTS | changed, unit=unit).describe() != bars.ratios(PARTS, unit=unit).describe()
