"""Each plot says what it shows: in words, in its description and on the picture itself."""

import sys
from types import SimpleNamespace

import matplotlib as mpl
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.colors import to_rgb
from matplotlib.text import Text

from helpers import Picture, Trajectory, plots, rosenbrock
from helpers.picture import LINE_COLOURS

pytestmark = pytest.mark.filterwarnings("error")
modest = settings(max_examples=8, deadline=None)


def path(*points, label="", values=None):
    points = points or [(0.1, 0.1), (0.5, 0.2), (0.9, 0.8)]
    return Trajectory(np.array(points), np.full(len(points) - 1, np.nan), values, label)


def other_function(x):
    return rosenbrock.value(x, b=7.0)


ONE, TWO = path(label="one"), path((0.1, 0.1), (0.2, 0.4), (0.6, 1.2), label="two")
RUNS = np.array([[3.0, 1.0, 1e-8], [2.0, 0.5, 1e-2], [4.0, 0.1, 1e-3], [1.0, 0.2, 1e-7]])
PLOTS = {
    "surface": plots.surface,
    "one path": lambda: plots.trajectories(ONE),
    "two paths": lambda: plots.trajectories(ONE, TWO),
    "side by side": lambda: plots.side_by_side(ONE, TWO),
    "convergence": lambda: plots.convergence(ONE, TWO),
    "band": lambda: plots.band(RUNS),
}


@pytest.fixture(scope="module", autouse=True)
def _coarse_contours():
    """Draw faster: nothing here depends on how fine the contours are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plots, "GRID", 33)
        yield


def words_on(picture):
    """Return the words on the picture, each with the point it belongs to."""
    return [(text.get_text(), tuple(text.xy)) for axes in picture.figure.axes for text in axes.texts]


@pytest.fixture(scope="module", params=PLOTS.values(), ids=PLOTS)
def drawn(request):
    """Return a plot after its first draw, with its description from before and the bytes."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    open_before = pyplot.get_fignums() if pyplot else []
    settings_before = dict(mpl.rcParams)
    picture = request.param()
    before = picture.describe()
    png = picture.png()
    texts = [text for text in picture.figure.findobj(Text) if text.get_text() and text.get_visible()]
    return SimpleNamespace(**locals())


def lines(picture, axes=0):
    return {line.get_label(): line for line in picture.figure.axes[axes].lines}


# --- what every plot does


def test_a_plot_is_a_picture_with_a_sentence(drawn):
    assert isinstance(drawn.picture, Picture)
    assert drawn.picture.summary.endswith(".")


def test_the_description_is_the_same_before_and_after_a_draw(drawn):
    assert drawn.picture.describe() == drawn.before


def test_every_draw_gives_the_same_bytes(drawn):
    assert drawn.picture.png() == drawn.png


def test_the_same_plot_made_again_has_the_same_description_and_bytes(drawn):
    again = drawn.request.param()
    assert again.describe() == drawn.before
    assert again.png() == drawn.png


def test_no_figure_is_opened_in_pyplot_and_no_setting_stays_changed(drawn):
    pyplot = sys.modules.get("matplotlib.pyplot")
    assert (pyplot.get_fignums() if pyplot else []) == drawn.open_before
    assert dict(mpl.rcParams) == drawn.settings_before


def test_all_words_can_be_read_from_the_last_row(drawn):
    assert min(text.get_fontsize() for text in drawn.texts) >= 13


def test_the_readers_own_settings_make_no_word_smaller(drawn):
    with mpl.rc_context({"font.size": 6, "xtick.labelsize": 6, "axes.labelsize": 6, "legend.fontsize": 6}):
        picture = drawn.request.param()
        picture.figure.draw_without_rendering()
    sizes = [text.get_fontsize() for text in picture.figure.findobj(Text) if text.get_text() and text.get_visible()]
    assert sorted(sizes) == sorted(text.get_fontsize() for text in drawn.texts)


def test_all_words_stand_out_from_the_white_below_them(drawn):
    def luminance(colour):
        rgb = np.array(to_rgb(colour))
        return np.dot([0.2126, 0.7152, 0.0722], np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4))

    figure = drawn.picture.figure
    assert to_rgb(figure.get_facecolor()) == to_rgb(figure.axes[0].get_facecolor()) == (1, 1, 1)
    for text in drawn.texts:
        assert 1.05 / (luminance(text.get_color()) + 0.05) >= 4.5  # the contrast ratio of WCAG 2.2


def test_titles_and_names_stay_within_the_picture(drawn):
    frame = drawn.picture.figure.bbox
    for axes in drawn.picture.figure.axes:
        for text in (axes.title, axes.xaxis.label, axes.yaxis.label, *axes.texts):
            box = text.get_window_extent()
            assert frame.x0 <= box.x0 <= box.x1 <= frame.x1
            assert frame.y0 <= box.y0 <= box.y1 <= frame.y1


# --- one change, another description

MOVED = path((0.1, 0.1), (0.5, 0.4), (0.9, 0.8), label="one")
LONGER = path((0.1, 0.1), (0.5, 0.2), (0.9, 0.8), (0.9, 0.8), label="one")
RENAMED = path(label="another")


@pytest.mark.parametrize(
    ("plot", "change"),
    [
        (plots.surface, lambda: plots.surface(other_function)),
        (plots.surface, lambda: plots.surface(optimum=(0.9, 1.0))),
        (plots.surface, lambda: plots.surface(title="Another")),
        (plots.surface, lambda: plots.surface(lambda x: 1e4 * rosenbrock.value(x))),
        (PLOTS["one path"], PLOTS["two paths"]),
        (PLOTS["one path"], lambda: plots.trajectories(MOVED)),
        (PLOTS["one path"], lambda: plots.trajectories(LONGER)),
        (PLOTS["one path"], lambda: plots.trajectories(RENAMED)),
        (PLOTS["one path"], lambda: plots.trajectories(ONE, fun=other_function)),
        (PLOTS["one path"], lambda: plots.trajectories(ONE, optimum=(0.9, 1.0))),
        (PLOTS["one path"], lambda: plots.trajectories(ONE, title="Another")),
        (PLOTS["two paths"], lambda: plots.trajectories(TWO, ONE)),
        (PLOTS["side by side"], lambda: plots.side_by_side(TWO, ONE)),
        (PLOTS["side by side"], lambda: plots.side_by_side(MOVED, TWO)),
        (PLOTS["side by side"], lambda: plots.side_by_side(ONE, RENAMED)),
        (PLOTS["side by side"], lambda: plots.side_by_side(ONE, TWO, fun=other_function)),
        (PLOTS["side by side"], lambda: plots.side_by_side(ONE, TWO, optimum=(0.9, 1.0))),
        (PLOTS["convergence"], lambda: plots.convergence(TWO, ONE)),
        (PLOTS["convergence"], lambda: plots.convergence(MOVED, TWO)),
        (PLOTS["convergence"], lambda: plots.convergence(LONGER, TWO)),
        (PLOTS["convergence"], lambda: plots.convergence(RENAMED, TWO)),
        (PLOTS["convergence"], lambda: plots.convergence(ONE, TWO, fun=other_function)),
        (PLOTS["convergence"], lambda: plots.convergence(ONE, TWO, title="Another")),
        (PLOTS["band"], lambda: plots.band(RUNS[:3])),
        (PLOTS["band"], lambda: plots.band(RUNS, title="Another")),
        (PLOTS["band"], lambda: plots.band(RUNS, below=1e-3)),
        (PLOTS["band"], lambda: plots.band(RUNS * [1, 1.1, 1])),
    ],
)
def test_one_change_changes_the_description(plot, change):
    assert plot().describe() != change().describe()


@modest
@given(st.integers(0, 2), st.integers(0, 1), st.floats(0.05, 0.5), st.sampled_from([-1, 1]))
def test_moving_any_one_point_of_a_path_changes_the_description(step, coordinate, by, sign):
    points = ONE.points.copy()
    points[step, coordinate] += sign * by
    moved = path(*points, label="one")
    assert plots.trajectories(moved).describe() != plots.trajectories(ONE).describe()


@modest
@given(st.integers(0, 3), st.integers(0, 2), st.floats(1.2, 10))
def test_changing_any_one_value_of_a_band_changes_its_description(run, step, by):
    changed = RUNS.copy()
    changed[run, step] *= by
    assert plots.band(changed).describe() != plots.band(RUNS).describe()


# --- names on the picture


def test_the_optimum_is_named_where_it_is():
    assert words_on(plots.surface(optimum=(0.5, 0.25))) == [("optimum (0.5, 0.25)", (0.5, 0.25))]


def test_start_end_and_optimum_are_named_where_they_are():
    words = dict(words_on(plots.trajectories(ONE)))
    assert words == {"optimum (1, 1)": (1, 1), "start": (0.1, 0.1), "end": (0.9, 0.8)}


def test_every_different_start_and_end_is_named_once():
    elsewhere = path((-0.5, 1.0), (0.6, 1.2))
    places = words_on(plots.trajectories(ONE, TWO, elsewhere))
    assert [at for words, at in places if words == "start"] == [(0.1, 0.1), (-0.5, 1.0)]
    assert [at for words, at in places if words == "end"] == [(0.9, 0.8), (0.6, 1.2)]


def test_two_paths_side_by_side_have_their_labels_as_titles_and_the_same_view():
    left, right = plots.side_by_side(ONE, path((0.1, 0.1), (3.0, 5.0), label="far")).figure.axes
    assert (left.get_title(), right.get_title()) == ("one", "far")
    assert left.get_xlim() == right.get_xlim()
    assert left.get_ylim() == right.get_ylim()


def test_a_legend_names_the_paths_where_there_is_more_than_one():
    legend = plots.trajectories(ONE, TWO).figure.axes[0].get_legend()
    assert [text.get_text() for text in legend.get_texts()] == ["one", "two"]
    assert plots.trajectories(ONE).figure.axes[0].get_legend() is None


@pytest.mark.parametrize("plot", [plots.trajectories, plots.convergence])
def test_six_paths_differ_in_colour_and_in_dashes(plot):
    drawn = [line for name, line in lines(plot(*(path(label=f"p{i}") for i in range(6)))).items() if name[0] == "p"]
    assert len({line.get_color() for line in drawn}) == 6
    assert len({str(line._unscaled_dash_pattern) for line in drawn}) == 6


def test_the_points_drawn_are_those_of_the_path():
    line = lines(plots.trajectories(ONE))["one"]
    assert np.column_stack(line.get_data()).tolist() == ONE.points.tolist()


@pytest.mark.parametrize("far", [(3.0, 5.0), (-4.0, 0.0), (0.0, -9.0), (40.0, 1e4)])
def test_the_view_grows_to_hold_every_path(far):
    axes = plots.trajectories(ONE, path((0.1, 0.1), far)).figure.axes[0]
    assert axes.get_xlim()[0] < min(far[0], -0.69)
    assert axes.get_xlim()[1] > max(far[0], 1.69)
    assert axes.get_ylim()[0] < min(far[1], -0.59)
    assert axes.get_ylim()[1] > max(far[1], 1.89)


def test_a_path_that_stays_at_home_has_the_usual_view():
    axes = plots.trajectories(ONE).figure.axes[0]
    assert (*axes.get_xlim(), *axes.get_ylim()) == plots.VIEW


# --- sentences


def test_the_sentence_of_a_path_has_its_numbers():
    assert plots.trajectories(ONE).summary == "one: 2 steps from (0.1, 0.1) to (0.9, 0.8), f = 1.0e-02."


def test_the_sentence_of_a_path_takes_its_own_values():
    assert "f = 7.0e-03." in plots.trajectories(path(values=[3, 2, 0.007])).summary


def test_the_convergence_is_that_of_the_noiseless_values():
    own = path(values=[3.0, 2.0, 0.007], label="own")
    picture = plots.convergence(own, TWO)
    assert lines(picture)["own"].get_ydata().tolist() == [3.0, 2.0, 0.007]
    assert lines(picture)["two"].get_ydata().tolist() == rosenbrock.value(TWO.points).tolist()
    assert picture.figure.axes[0].get_yscale() == "log"
    assert picture.summary == "f after 2 steps: own 7.0e-03 and two 3.7e+00."


def test_paths_of_different_length_are_each_told_their_own():
    words = plots.convergence(ONE, path((0.1, 0.1), (0.9, 0.8), label="short")).summary
    assert words == "f at the end: one 1.0e-02 (2 steps) and short 1.0e-02 (1 steps)."


def test_the_band_holds_median_and_quarters():
    picture = plots.band(RUNS)
    (filled,) = picture.figure.axes[0].collections
    low, high = np.quantile(RUNS, [0.25, 0.75], axis=0)
    assert lines(picture)["median"].get_ydata() == pytest.approx(np.median(RUNS, axis=0))
    outline = filled.get_paths()[0].vertices[:, 1]
    assert (outline.min(), outline.max()) == pytest.approx((low.min(), high.max()))


def test_the_band_counts_its_runs():
    words = plots.band(RUNS).summary
    assert words == (
        "4 runs of 2 steps: median f 5.0e-04 at the end, best 1.0e-08, worst 1.0e-02; 2 of 4 end below 1e-06."
    )


def bowl(x):
    return np.sum((x - 4.0) ** 2, axis=-1)


def test_only_rosenbrock_is_called_a_curved_valley():
    assert plots.surface().summary == "The Rosenbrock function: a curved valley, with its lowest point at (1, 1)."
    picture = plots.surface(bowl, optimum=(4, 4))
    assert picture.summary == "The function f: contours of f, lowest point at (4, 4)."
    assert "Rosenbrock" not in picture.describe()


@pytest.mark.parametrize("best", [(4, 4), (-3, 0), (0, -9), (0.5, 5)])
@pytest.mark.parametrize("paths", [(), (ONE,)], ids=["surface", "path"])
def test_the_view_grows_to_hold_the_optimum(best, paths):
    draw = plots.trajectories if paths else plots.surface
    axes = draw(*paths, fun=bowl, optimum=best).figure.axes[0]
    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    assert left < min(best[0], -0.69)
    assert right > max(best[0], 1.69)
    assert bottom < min(best[1], -0.59)
    assert top > max(best[1], 1.89)


@pytest.mark.parametrize(
    "draw",
    [
        lambda: plots.convergence(path(values=[1.0, 0.1, -0.5])),
        lambda: plots.convergence(ONE, fun=lambda x: bowl(x) - 100),
        lambda: plots.band(RUNS - 5.0),
    ],
)
def test_values_below_0_are_refused_on_a_logarithmic_scale(draw):
    with pytest.raises(ValueError, match=r"A logarithmic scale needs values above the minimum.*subtract"):
        draw()


def test_what_rounding_leaves_of_a_zero_is_no_value_below_0():
    assert plots.convergence(path(values=[1.0, 0.1, -1e-17])).png()


def of_one_point(x):
    return (1 - x[0]) ** 2 + 5 * (x[1] - x[0] ** 2) ** 2


@pytest.mark.parametrize("fun", [of_one_point, lambda x: np.sum(x**2)])
def test_a_function_of_one_point_is_refused_with_the_cure(fun):
    for draw in (plots.surface, lambda fun: plots.trajectories(ONE, fun=fun)):
        with pytest.raises(ValueError, match=r"an array of shape \(33, 33\); it gave .*np\.apply_along_axis"):
            draw(fun)
    short = path((0.1, 0.1), (0.9, 0.8))
    with pytest.raises(ValueError, match="fun must take many points along the first axis"):
        plots.convergence(short, fun=fun)


def test_what_a_function_raises_on_the_grid_comes_through_with_the_cure():
    def unpacks(x):
        x0, x1 = x
        return x0 + x1

    with pytest.raises(ValueError, match="too many values to unpack") as caught:
        plots.surface(unpacks)
    assert "np.apply_along_axis(f, -1, x)" in caught.value.__notes__[0]


def test_the_cure_for_a_function_of_one_point_works():
    fixed = plots.trajectories(ONE, fun=lambda x: np.apply_along_axis(of_one_point, -1, x))
    assert fixed.summary == plots.trajectories(ONE).summary


# --- not finite


def test_points_that_are_not_finite_are_counted_and_the_rest_is_drawn():
    lost = path((0.1, 0.1), (0.5, 0.2), (np.nan, 0.0), (np.inf, np.inf), label="lost")
    picture = plots.trajectories(lost)
    assert picture.summary.endswith("to (inf, inf), f = nan. 2 points are not finite and not drawn.")
    assert len(lines(picture)["lost"].get_xdata()) == 2
    assert ("end", (0.5, 0.2)) in words_on(picture)


def test_one_lost_point_is_said_in_the_singular():
    assert "1 point is not finite" in plots.trajectories(path((0.1, 0.1), (np.nan, 0.0))).summary


@pytest.mark.parametrize("far", [1e3, 1e20, 1e75, 1e160, 1e299, 1.7e308])
def test_a_path_that_diverges_can_be_drawn(far):
    picture = plots.trajectories(path((0.1, 0.1), (far, -far), (np.nan, np.nan)))
    assert picture.png()
    assert "not finite and not drawn" in picture.describe()


def test_convergence_says_nan_where_a_path_ends_there():
    assert plots.convergence(path((0.1, 0.1), (np.nan, 0.0), label="lost")).summary == "f after 1 steps: lost nan."


def test_a_lost_run_counts_as_the_worst_in_a_band():
    lost = RUNS.copy()
    lost[0, 1:] = np.nan
    lost[1, 2] = np.inf
    picture = plots.band(lost)
    assert "median f inf at the end, best 1.0e-07, worst inf; 1 of 4 end below" in picture.summary
    assert picture.summary.endswith(" 2 of 4 end at no finite value.")
    assert lines(picture)["median"].get_ydata()[:2] == pytest.approx([2.5, 0.35])
    assert picture.png()


def test_a_band_without_a_finite_end_can_be_drawn():
    assert plots.band([[1.0, np.nan], [2.0, np.inf]]).png()


@pytest.mark.parametrize("number", [0.0, -1.0, np.nan, np.inf, 1e300])
def test_a_surface_that_is_flat_or_not_finite_can_be_drawn(number):
    def flat_to_the_left(x):
        return np.where(x[..., 0] < 0, number, rosenbrock.value(x))

    assert plots.surface(flat_to_the_left).png()


# --- mistakes


@pytest.mark.parametrize("plot", [plots.trajectories, plots.convergence])
@pytest.mark.parametrize("count", [0, 7])
def test_no_path_and_too_many_are_refused(plot, count):
    with pytest.raises(ValueError, match=f"A picture shows 1 to {len(LINE_COLOURS)} paths; got {count}"):
        plot(*[ONE] * count)


@pytest.mark.parametrize("shape", [(3,), (3, 1), (3, 3), (3, 4, 2)])
@pytest.mark.parametrize("plot", [plots.trajectories, lambda bad: plots.side_by_side(ONE, bad)])
def test_a_path_that_is_not_in_the_plane_is_refused(plot, shape):
    bad = Trajectory(np.ones(shape), np.ones(2))
    with pytest.raises(ValueError, match=r"paths in two variables; got points of shape \(3"):
        plot(bad)


@pytest.mark.parametrize("start", [(np.nan, 0.0), (0.0, np.inf), (1e305, 0.0)])
def test_a_path_from_nowhere_is_refused(start):
    with pytest.raises(ValueError, match="starts at a point that is not finite"):
        plots.trajectories(path(start, (0.1, 0.1)))


def test_an_ensemble_has_no_single_line_of_convergence():
    with pytest.raises(ValueError, match=r"one value a point; crowd has shape \(3, 4\)"):
        plots.convergence(Trajectory(np.ones((3, 4, 2)), np.ones(2), label="crowd"))


@pytest.mark.parametrize("shape", [(), (3,), (0, 3), (3, 0), (2, 3, 4)])
def test_values_that_are_not_runs_are_refused(shape):
    with pytest.raises(ValueError, match=r"values must have shape \(runs, steps \+ 1\)"):
        plots.band(np.ones(shape))
