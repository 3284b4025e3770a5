"""The explorer in Python: its settings, what it says, what it stores, and its two runs."""

import re
from dataclasses import asdict

import numpy as np
import pytest
import torch
import traitlets

from helpers import explore_adam, plots, rosenbrock
from helpers.descent import Trajectory
from helpers.explorer import Explorer, Settings, page, simulate, widget, words
from helpers.explorer.simulation import OPTIMIZERS, largest_difference, uniforms
from helpers.noise import NoisyPair, UniformFactor

SIMULATION_JS = (page.HERE / "simulation.js").read_text(encoding="utf-8")
SIMULATION_PY = (page.HERE / "simulation.py").read_text(encoding="utf-8")


# --- the run


@pytest.mark.parametrize("draws", ["independent", "shared"])
def test_draws_are_the_ones_a_noisy_pair_makes(draws):
    settings = Settings(noise=0.5, seed=3, steps=4, draws=draws)
    pair = NoisyPair(
        rosenbrock.value,
        rosenbrock.gradient,
        UniformFactor(0.5),
        3,
        "evaluation" if draws == "shared" else "independent",
    )
    x, factors = np.array([0.3, 0.4]), 0.5 + uniforms(settings, 3)[:, :, 0]
    for first, second in zip(factors[:, 0], factors[:, -1], strict=True):
        assert pair.value(x) == first * rosenbrock.value(x)
        np.testing.assert_array_equal(pair.gradient(x), second * rosenbrock.gradient(x))


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("kind", ["factor", "term"])
def test_torch_walks_the_same_path(optimizer, kind):
    explorer = explore_adam(optimizer=optimizer, kind=kind, lr=0.02, steps=60, seed=5)
    path, apart = explorer.run_in_torch()
    assert apart < 1e-9
    np.testing.assert_allclose(path.losses, explorer.trajectory.losses, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(path.values, explorer.trajectory.values, rtol=1e-7, atol=1e-12)


def test_noise_changes_one_thing_only():
    quiet, loud = (explore_adam(noise=noise).trajectory for noise in (0.0, 0.5))
    factors = loud.losses / loud.values[:-1]
    again = explore_adam(noise=0.25).trajectory
    np.testing.assert_allclose(again.losses / again.values[:-1] - 1, (factors - 1) / 2, rtol=1e-6, atol=1e-12)
    np.testing.assert_array_equal(quiet.losses, quiet.values[:-1])


def test_many_runs_at_once_are_the_runs_one_by_one():
    settings = Settings(steps=30)
    together = simulate(settings, seeds=[4, 9])
    for column, seed in enumerate((4, 9)):
        alone = simulate(Settings(steps=30, seed=seed))
        np.testing.assert_allclose(together.points[:, column], alone.points, rtol=1e-12)
    rates = simulate(settings, lr=np.array([[0.1], [0.2]]), seeds=[0, 0])
    np.testing.assert_allclose(rates.points[:, 1], simulate(Settings(steps=30, lr=0.2)).points, rtol=1e-12)


def test_page_and_python_have_the_same_names_in_the_same_order():
    names = ["uniforms", *map(str.lower, OPTIMIZERS), "simulate"]
    names = ["EPS" if name == "eps" else name for name in names]
    for source, form in ((SIMULATION_JS, r"^function (\w+)"), (SIMULATION_PY, r"^def (\w+)")):
        found = [name for name in re.findall(form, source, re.MULTILINE) if name in names]
        assert found == names
    loop = ["noise", "steps", "kind", "u", "low", "high", "x", "m", "v", "points", "values"]
    assert all(re.search(rf"\b{name}\b", source) for name in loop for source in (SIMULATION_JS, SIMULATION_PY))


@pytest.mark.parametrize(
    ("one", "other", "apart"),
    [
        ([1.0, np.nan, np.inf], [1.0, np.nan, np.inf], 0.0),
        ([1.0, 2.0, np.nan], [1.0, 2.0, 3.0], np.inf),
        ([1.0, np.inf, 0.0], [1.0, -np.inf, 0.0], np.inf),
        ([0.0, 0.5, 200.0], [0.0, 0.25, 100.0], 1.0),
    ],
    ids=["the same", "nan beside a number", "inf beside -inf", "relative above 1"],
)
def test_largest_difference(one, other, apart):
    paths = [Trajectory(np.array(points), np.zeros(2)) for points in (one, other)]
    assert largest_difference(*paths) == apart


# --- settings


@pytest.mark.parametrize(
    ("settings", "words_of_it"),
    [
        ({"noise": 1.5}, "noise must lie between 0 and 1; got 1.5"),
        ({"lr": 0.0}, "lr must lie between 0.001 and 1"),
        ({"lr": float("nan")}, "lr must lie between"),
        ({"steps": 5}, "steps must lie between 10 and 500"),
        ({"seed": -1}, "seed must lie between 0"),
        ({"beta2": 1.0}, "beta2 must lie between 0 and 0.999"),
        ({"seeds": 65}, "seeds must lie between 0 and 64"),
        ({"optimizer": "LBFGS"}, "optimizer must be one of 'SGD', 'momentum', 'RMSprop', 'Adam', 'AdamW'; got 'LBFGS'"),
        ({"compare": "adam"}, "compare must be one of None"),
        ({"kind": "additive"}, "kind must be one of 'factor', 'term'"),
        ({"draws": "step"}, "draws must be one of 'independent', 'shared'"),
        ({"start": (9.0, 0.0)}, "start must lie in the picture"),
        ({"start": (0.0,)}, "start"),
    ],
    ids=lambda value: next(iter(value)) + str(next(iter(value.values()))) if isinstance(value, dict) else "",
)
def test_a_setting_out_of_range_is_refused(settings, words_of_it):
    with pytest.raises(traitlets.TraitError, match=re.escape(words_of_it)):
        explore_adam(**settings)


def test_a_refused_setting_leaves_the_old_one():
    explorer = explore_adam()
    with pytest.raises(traitlets.TraitError):
        explorer.noise = 7
    assert explorer.noise == 0.5


def test_numbers_of_numpy_and_torch_are_numbers():
    settings = {"steps": np.int64(20), "seed": np.uint8(3), "start": torch.tensor([0.1, 0.2])}
    explorer = explore_adam(noise=np.float32(0.5), **settings)
    assert (explorer.noise, explorer.steps, explorer.seed) == (0.5, 20, 3)
    assert explorer.start == pytest.approx([0.1, 0.2])
    assert explore_adam(start=np.array([0, 1])).start == [0.0, 1.0]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"start": 3}, r"start must be two numbers, such as \(0.1, 0.1\); got 3"),
        ({"start": None}, "start must be two numbers"),
        ({"start": (1, 2, 3)}, "start must be two numbers"),
        ({"steps": 10.5}, "steps must be a whole number; got 10.5"),
        ({"seed": 2**32}, "seed must lie between 0 and 4.29497e"),
    ],
)
def test_what_is_no_number_is_named(settings, words):
    with pytest.raises(traitlets.TraitError, match=words):
        explore_adam(**settings)


def test_stand_in_keeps_its_axes_where_a_path_runs_away():
    (axes,) = explore_adam(optimizer="SGD", lr=1.0).picture().figure.axes
    assert (*axes.get_xlim(), *axes.get_ylim()) == tuple(plots.VIEW)


def test_an_unknown_setting_is_named():
    with pytest.raises(TypeError, match="explore_adam has no setting 'momentum': it has noise, lr"):
        explore_adam(momentum=0.9)


def corners():
    """Return settings at the corners of their ranges."""
    for noise, lr, steps in [(0, 0.001, 10), (1, 1, 500), (0, 1, 500), (1, 0.001, 10)]:
        for optimizer in OPTIMIZERS:
            yield {"noise": noise, "lr": lr, "steps": steps, "optimizer": optimizer}
    yield {"beta1": 0.0, "beta2": 0.0, "lr": 1.0}
    yield {"beta1": 0.99, "beta2": 0.999, "start": plots.VIEW[::2]}
    yield {"seed": 2**32 - 64, "seeds": 64, "compare": "momentum", "lr": 1.0, "kind": "term", "noise": 1.0, "steps": 10}


@pytest.mark.parametrize("settings", list(corners()), ids=lambda settings: "-".join(map(str, settings.values())))
def test_nothing_raises_at_the_corners_of_the_ranges(settings):
    explorer = explore_adam(**settings)
    assert explorer.summary.startswith(f"{explorer.optimizer}, lr ")
    assert len(explorer.tasks) == 2
    assert explorer.trajectory.steps == explorer.steps
    page.static_form(explorer.static_state())


# --- words


def test_summary_says_what_is_seen():
    explorer = explore_adam(compare="SGD", seeds=64)
    below = int(np.sum(explorer.band.values[-1] < 1e-6))
    assert explorer.summary == (
        "Adam, lr 0.100, noise 0.50, 200 steps: ends at (1.000, 1.000), f = 1.3e-06. "
        f"SGD: ends at (nan, nan), f = nan. Not finite from step 48 on. Of Adam's 64 seeds, {below} end below 1e-6."
    )


@pytest.mark.parametrize(
    ("settings", "solved"),
    [
        ({}, [False, False]),
        ({"steps": 100, "lr": 0.115}, [True, False]),
        ({"steps": 100, "lr": 0.115, "noise": 0.4}, [False, False]),
        ({"steps": 110, "lr": 0.115}, [False, False]),
        ({"steps": 100, "lr": 0.001, "start": (1.0, 1.0)}, [False, False]),
        ({"optimizer": "SGD", "lr": 0.0832}, [False, True]),
        ({"optimizer": "SGD", "lr": 0.0794}, [False, False]),
        ({"optimizer": "SGD", "lr": 0.0871}, [False, False]),
        ({"optimizer": "SGD", "lr": 0.0831}, [False, False]),
    ],
    ids=[
        *("at first", "low", "with less noise", "too late", "from the optimum"),
        *("first", "not yet", "not the first", "not on the slider"),
    ],
)
def test_tasks_are_judged(settings, solved):
    assert [task.solved for task in explore_adam(**settings).tasks] == solved


def test_notches_are_those_of_the_slider():
    assert words.NOTCHES[0] == 0.001
    assert words.NOTCHES[100] == 0.1
    assert words.NOTCHES[-1] == 1.0


# --- what is stored and shown


def test_cell_shows_widget_form_and_picture(monkeypatch, capsys):
    shown = []
    monkeypatch.setattr("IPython.display.display", lambda data, **how: shown.append(data))
    explorer = explore_adam(lr=0.2)
    explorer._ipython_display_()
    form, picture, sentence = shown
    assert (
        {"text/html", "text/plain"}
        <= set(form)
        <= {"application/vnd.jupyter.widget-view+json", "text/html", "text/plain"}
    )
    assert form["text/plain"] == "Explorer(optimizer='Adam', noise=0.5, lr=0.2, steps=200)"
    assert form["text/html"] == page.static_form(explorer.static_state())
    assert {"image/png", "text/plain"} == set(picture)
    assert f"Picture: {explorer.summary}" in picture["text/plain"]
    assert sentence == {"text/plain": explorer.summary, "text/html": f'<p class="byg-instead">{explorer.summary}</p>'}
    assert not capsys.readouterr().out  # what is printed belongs to the reader


def test_form_asks_nothing_of_the_network_and_repeats():
    explorer = explore_adam()
    form = page.static_form(explorer.static_state())
    assert not re.search(r"https?:|//cdn|@import|url\(|fetch\(|XMLHttpRequest|require\(|^import ", form, re.MULTILINE)
    assert form == page.static_form(explore_adam().static_state())
    assert form.count("</script>") == form.count("<script") == 1


def test_page_is_written(tmp_path):
    explore_adam(optimizer="RMSprop").to_html(tmp_path / "page.html")
    written = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert written.startswith("<!doctype html>")
    assert "<title>RMSprop on the noisy surface</title>" in written


def test_colours_come_from_the_one_palette():
    assert explore_adam().look["palette"] == widget.PALETTE
    source = page.MODULE + page.STYLE
    for name, colour in widget.PALETTE.items():
        used = set(re.findall(r"#[0-9a-f]{6}", source))
        assert colour in used or name in source or name in ("green", "purple", "grey")


def test_picture_shows_the_same_paths():
    explorer = explore_adam(compare="RMSprop")
    lines = explorer.picture().figure.axes[0].lines
    drawn = [np.array(line.get_xydata()) for line in lines if line.get_label() in ("Adam", "RMSprop")]
    np.testing.assert_array_equal(drawn[0], explorer.trajectory.points)
    np.testing.assert_array_equal(drawn[1], explorer.compared.points)


def test_explorer_hands_out_settings_and_takes_new_ones():
    explorer = explore_adam()
    explorer.lr = 0.2
    explorer.start = [0.5, 0.5]
    assert asdict(explorer.settings) == asdict(Settings(lr=0.2, start=(0.5, 0.5)))
    assert explorer.trajectory.start.tolist() == [0.5, 0.5]
    assert explorer.band is None
    assert isinstance(explorer, Explorer)


def test_answer_to_the_page_is_torchs_path():
    explorer, sent = explore_adam(steps=20), []
    explorer.send = lambda content, buffers=None: sent.append((content, buffers))
    explorer._answer(explorer, {"run": 3, "settings": asdict(Settings(steps=20))}, [])
    explorer._answer(explorer, {"something": "else"}, [])
    ((content, (points, values)),) = sent
    assert content == {"run": 3}
    np.testing.assert_allclose(np.frombuffer(points).reshape(-1, 2), explorer.trajectory.points, rtol=1e-9)
    np.testing.assert_allclose(np.frombuffer(values), explorer.trajectory.values, rtol=1e-7, atol=1e-12)


def test_answer_says_what_torch_refused():
    explorer, sent = explore_adam(), []
    explorer.send = lambda content, buffers=None: sent.append(content)
    explorer._answer(explorer, {"run": 1, "settings": {"lr": -1.0}}, [])
    assert sent[0]["run"] == 1
    assert sent[0]["refused"].startswith("torch refused: ValueError")
