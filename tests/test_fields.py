"""Pictures of fields: one scale for all panels, sensors where they are, errors as they are, and all of it in words."""

import matplotlib as mpl
import numpy as np
import pytest
from picture_checks import assert_no_setting_stays_changed

from helpers import Picture, fields
from helpers.solvers import centres, lattice

pytestmark = pytest.mark.filterwarnings("error")
X, Y = centres(8)
TRUTH = np.sin(3 * X) - Y
SENSORS = lattice(3)

PICTURES = {
    "panels": lambda: fields.panels({"cold": X, "warm": 1 + Y}, label="temperature u", title="Two plates"),
    "one-panel": lambda: fields.panels({"alone": TRUTH}, sensors=SENSORS),
    "zero": lambda: fields.panels({"nothing": 0 * X}),
    "recovery": lambda: fields.recovery(TRUTH, 0 * X, sensors=SENSORS, result=0.8 * TRUTH, title="Found"),
    "two-results": lambda: fields.recovery(TRUTH, 0 * X, right_adjoint=0.9 * TRUTH, wrong_adjoint=-TRUTH),
    "growth": lambda: fields.growth([10, 100], {"one": [2, 20], "other": [5, 500]}, ylabel="solves", title="Growth"),
}
every_picture = pytest.mark.parametrize("draw", PICTURES.values(), ids=PICTURES)


def plates(picture):
    """Return the axes that show fields: the last one is the scale of colours."""
    return picture.figure.axes[:-1]


@every_picture
def test_a_picture_describes_itself_the_same_before_and_after_a_draw(draw):
    picture = draw()
    assert isinstance(picture, Picture)
    before = picture.describe()
    assert picture.png() == picture.png()
    assert picture.describe() == before == draw().describe()


@every_picture
def test_all_words_are_large_and_within_the_picture(draw):
    with mpl.rc_context({"font.size": 6, "ytick.labelsize": 6}):
        picture = draw()
        picture.png()
    frame = picture.figure.bbox
    words = [*picture.figure.texts]
    if picture.figure.get_suptitle():
        words.append(picture.figure._suptitle)
    for axes in picture.figure.axes:
        words += [axes.title, axes.xaxis.label, axes.yaxis.label, *axes.texts]
    for text in words:
        if not text.get_text():
            continue
        assert text.get_fontsize() >= 13
        box = text.get_window_extent()
        assert frame.x0 <= box.x0 <= box.x1 <= frame.x1, text.get_text()
        assert frame.y0 <= box.y0 <= box.y1 <= frame.y1, text.get_text()


@every_picture
def test_no_setting_of_matplotlib_stays_changed(draw):
    assert_no_setting_stays_changed(draw)


@pytest.mark.parametrize("name", ["panels", "recovery", "two-results"])
def test_equal_numbers_have_equal_colours_in_all_panels(name):
    picture = PICTURES[name]()
    scales = {(c.norm.vmin, c.norm.vmax, c.get_cmap().name) for axes in plates(picture) for c in axes.collections}
    assert len(scales) == 1
    ((low, high, _),) = scales
    (image,) = picture.figure.axes[-1].images
    assert (image.norm.vmin, image.norm.vmax) == (low, high) == picture.figure.axes[-1].get_ylim()


def test_a_signed_field_has_a_scale_around_zero_and_a_positive_one_begins_there():
    (signed,) = plates(PICTURES["one-panel"]())[0].collections
    assert signed.norm.vmin == -signed.norm.vmax
    assert signed.norm.vmax >= np.abs(TRUTH).max()
    assert not np.any(signed.levels == 0), "0 is in the middle of a band, so rounding errors do not show"
    (positive,) = plates(PICTURES["panels"]())[0].collections
    assert positive.norm.vmin == 0
    assert positive.norm.vmax >= (1 + Y).max()


def test_row_is_along_y_and_column_along_x():
    (contours,) = plates(fields.panels({"x": X}))[0].collections
    assert (contours.zmin, contours.zmax) == (X.min(), X.max())
    for path in contours.get_paths():
        if len(path.vertices):  # a band of equal x is upright
            assert np.ptp(path.vertices[:, 1]) == 1


def test_sensors_are_marked_in_every_panel():
    picture = PICTURES["recovery"]()
    assert len(plates(picture)) == 4
    for axes in plates(picture):
        (marks,) = axes.lines
        np.testing.assert_array_equal(np.column_stack(marks.get_data()), SENSORS)


def test_a_recovery_shows_the_error_of_its_only_result_and_tells_the_relative_one():
    picture = PICTURES["recovery"]()
    assert [axes.get_title() for axes in plates(picture)] == ["truth", "start", "result", "error"]
    (error,) = plates(picture)[3].collections
    np.testing.assert_allclose((error.zmin, error.zmax), (-0.2 * TRUTH.max(), -0.2 * TRUTH.min()))
    assert picture.summary == "Found. Relative error: start 1.00, result 0.20."


def test_several_results_stand_side_by_side_under_their_names():
    picture = PICTURES["two-results"]()
    assert [axes.get_title() for axes in plates(picture)] == ["truth", "start", "right adjoint", "wrong adjoint"]
    assert picture.summary == "Relative error: start 1.00, right adjoint 0.10, wrong adjoint 2.00."


def test_growth_is_drawn_on_logarithmic_scales():
    picture = PICTURES["growth"]()
    (axes,) = picture.figure.axes
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    assert {line.get_label(): list(line.get_ydata()) for line in axes.lines} == {"one": [2, 20], "other": [5, 500]}


BAD = {
    "no-field": (lambda: fields.panels({}), "1 to 5 fields"),
    "six-fields": (lambda: fields.panels(dict.fromkeys("abcdef", X)), "1 to 5 fields"),
    "flat-field": (lambda: fields.panels({"m": X[0]}), "m must be a field"),
    "nan": (lambda: fields.panels({"m": np.full((2, 2), np.nan)}), "m holds NaN"),
    "no-result": (lambda: fields.recovery(X, X), "no result"),
    "shapes": (lambda: fields.recovery(X, X, result=X[:4]), "one shape"),
    "no-curve": (lambda: fields.growth([1, 2], {}, ylabel="t"), "1 to 6 curves"),
    "lengths": (lambda: fields.growth([1, 2], {"a": [1]}, ylabel="t"), "a must hold 2"),
    "zero-cost": (lambda: fields.growth([1, 2], {"a": [1, 0]}, ylabel="t"), "above 0"),
}


@pytest.mark.parametrize(("draw", "message"), BAD.values(), ids=BAD)
def test_what_cannot_be_drawn_is_refused(draw, message):
    with pytest.raises(ValueError, match=message):
        draw()
