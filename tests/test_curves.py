"""The picture of the V shows the errors of its curves, marks their best steps, and says the same in words."""

import matplotlib as mpl
import numpy as np
import pytest
from picture_checks import (
    assert_it_describes_itself,
    assert_no_setting_stays_changed,
    assert_words_are_large_and_within,
)

from helpers import curves, rosenbrock, step_size_curve

pytestmark = pytest.mark.filterwarnings("error")
X = np.array([0.1, 0.1])


def plain(x):
    return (1 - x[0]) ** 2 + 5 * (x[1] - x[0] ** 2) ** 2


DOUBLE = step_size_curve(plain, rosenbrock.gradient, X)
SINGLE = step_size_curve(plain, rosenbrock.gradient, X.astype(np.float32), methods=["forward", "central"])
PICTURES = {
    "one": lambda: curves.step_sizes(DOUBLE),
    "two": lambda: curves.step_sizes(DOUBLE, SINGLE, title="Both"),
}
every_picture = pytest.mark.parametrize("draw", PICTURES.values(), ids=PICTURES)


def lines(picture):
    """Return the lines with a name, by their name."""
    return {line.get_label(): line for line in picture.figure.axes[0].lines if not line.get_label().startswith("_")}


def marks(picture):
    """Return the marked points."""
    return [
        tuple(float(data[0]) for data in line.get_data())
        for line in picture.figure.axes[0].lines
        if line.get_label().startswith("_")
    ]


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


def test_the_errors_are_drawn_on_logarithmic_scales_and_no_lower_than_the_precision():
    picture = PICTURES["one"]()
    assert (picture.figure.axes[0].get_xscale(), picture.figure.axes[0].get_yscale()) == ("log", "log")
    assert list(lines(picture)) == ["forward", "central", "complex"]
    for method, line in lines(picture).items():
        np.testing.assert_array_equal(line.get_xdata(), DOUBLE.steps)
        np.testing.assert_array_equal(line.get_ydata(), np.maximum(DOUBLE.errors[method], 2.0**-52))


def test_the_best_steps_are_marked_where_there_is_a_best_one():
    best = [curve.best(method) for curve in (DOUBLE, SINGLE) for method in ("forward", "central")]
    assert marks(PICTURES["two"]()) == best


def test_methods_differ_in_colour_and_mark_and_curves_in_their_dashes():
    drawn = lines(PICTURES["two"]())
    assert list(drawn) == [
        "forward, float64",
        "central, float64",
        "complex, float64",
        "forward, float32",
        "central, float32",
    ]
    looks = {name: (line.get_color(), line.get_marker()) for name, line in drawn.items()}
    assert len(set(looks.values())) == 3
    assert looks["forward, float64"] == looks["forward, float32"]
    assert drawn["forward, float64"].get_linestyle() == "-" != drawn["forward, float32"].get_linestyle()


def test_the_sentence_says_the_best_steps():
    assert PICTURES["one"]().summary == (
        "Relative error of differences, best step and error. float64: forward 3e-09 with an error below 1e-9, central "
        "1e-06 with an error below 1e-10 and complex any small step with an error below 1e-15."
    )


def test_another_function_gives_another_description():
    other = step_size_curve(lambda x: np.sum(x**3), lambda x: 3 * x**2, X)
    assert curves.step_sizes(other).describe() != curves.step_sizes(DOUBLE).describe()


def test_none_and_too_many_and_two_of_a_kind_are_refused():
    with pytest.raises(ValueError, match="1 to 3 curves; got 0"):
        curves.step_sizes()
    with pytest.raises(ValueError, match="1 to 3 curves; got 4"):
        curves.step_sizes(*[DOUBLE] * 4)
    with pytest.raises(ValueError, match="told apart by their dtype, and these have float64, float64"):
        curves.step_sizes(DOUBLE, DOUBLE)
