"""The explorer: an anywidget in a live notebook, a form with its own script elsewhere, a picture where none runs."""

from __future__ import annotations

import html
import operator
from dataclasses import fields
from pathlib import Path
from typing import Any

import anywidget
import numpy as np
import traitlets

from .. import plots, rosenbrock
from ..descent import Trajectory
from ..picture import PALETTE, Picture
from . import words
from .page import MODULE, STYLE, page, static_form
from .simulation import DRAWS, KINDS, OPTIMIZERS, Array, Settings, largest_difference, simulate

NAMES = [field.name for field in fields(Settings)]
LARGEST_SEED = 2**32 - 64  # the page's draws know seeds of 32 bits, also for the last of 64 seeds
LOOK = {"palette": PALETTE, "view": list(plots.VIEW), "optimum": rosenbrock.optimum().tolist()}
RANGES: dict[str, tuple[float, float]] = {
    "noise": (0, 1),
    "lr": (0.001, 1),
    "steps": (10, 500),
    "seed": (0, LARGEST_SEED),
    "beta1": (0, 0.99),
    "beta2": (0, 0.999),
    "seeds": (0, 64),
}
CHOICES: dict[str, tuple[str | None, ...]] = {
    "optimizer": tuple(OPTIMIZERS),
    "compare": (None, *OPTIMIZERS),
    "kind": KINDS,
    "draws": DRAWS,
}


class Explorer(anywidget.AnyWidget):
    """The optimiser on the noisy surface, with sliders. Make one with :func:`explore_adam`.

    The page simulates and draws; the traits follow when a slider is released. A trait that is set from Python moves
    the slider. What each one means: see :class:`~helpers.explorer.simulation.Settings`.

    Raises
    ------
    traitlets.TraitError
        If a setting lies outside its range, or is none of the choices.
    """

    _esm = MODULE
    _css = STYLE
    noise = traitlets.CFloat(0.5).tag(sync=True)
    lr = traitlets.CFloat(0.1).tag(sync=True)
    steps = traitlets.Int(200).tag(sync=True)
    seed = traitlets.Int(0).tag(sync=True)
    start = traitlets.List(traitlets.CFloat(), [0.1, 0.1], minlen=2, maxlen=2).tag(sync=True)
    beta1 = traitlets.CFloat(0.9).tag(sync=True)
    beta2 = traitlets.CFloat(0.999).tag(sync=True)
    optimizer = traitlets.Unicode("Adam").tag(sync=True)
    compare = traitlets.Unicode(None, allow_none=True).tag(sync=True)
    kind = traitlets.Unicode("factor").tag(sync=True)
    draws = traitlets.Unicode("independent").tag(sync=True)
    seeds = traitlets.Int(0).tag(sync=True)
    look = traitlets.Dict(LOOK).tag(sync=True)

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.on_msg(self._answer)

    def __repr__(self) -> str:
        return f"Explorer(optimizer={self.optimizer!r}, noise={self.noise}, lr={self.lr}, steps={self.steps})"

    @traitlets.validate(*RANGES)
    def _in_range(self, proposal: Any) -> Any:
        name, value = proposal["trait"].name, proposal["value"]
        low, high = RANGES[name]
        if not low <= value <= high:
            raise traitlets.TraitError(f"{name} must lie between {low:g} and {high:g}; got {value}.")
        return value

    @traitlets.validate(*CHOICES)
    def _one_of(self, proposal: Any) -> Any:
        name, value = proposal["trait"].name, proposal["value"]
        if value not in CHOICES[name]:
            raise traitlets.TraitError(f"{name} must be one of {', '.join(map(repr, CHOICES[name]))}; got {value!r}.")
        return value

    @traitlets.validate("start")
    def _in_view(self, proposal: Any) -> Any:
        (x0, x1), (left, right, bottom, top) = proposal["value"], plots.VIEW
        if not (left <= x0 <= right and bottom <= x1 <= top):
            raise traitlets.TraitError(
                f"start must lie in the picture, x0 from {left} to {right} and x1 from {bottom} to {top}; "
                f"got ({x0}, {x1})."
            )
        return proposal["value"]

    @property
    def settings(self) -> Settings:
        """The settings that the sliders had when they were last released."""
        values = {name: getattr(self, name) for name in NAMES}
        return Settings(**values | {"start": tuple(self.start)})

    @property
    def trajectory(self) -> Trajectory:
        """The path, computed in the kernel: to rounding the one that the page draws."""
        return simulate(self.settings)

    @property
    def compared(self) -> Trajectory | None:
        """The path of the optimiser beside it, if there is one."""
        return simulate(self.settings, optimizer=self.compare) if self.compare else None

    @property
    def band(self) -> Trajectory | None:
        """The paths of all seeds of the band, of shape (steps + 1, seeds, 2), if there is one."""
        return simulate(self.settings, seeds=range(self.seed, self.seed + self.seeds)) if self.seeds else None

    @property
    def summary(self) -> str:
        """The text below the picture."""
        band = self.band
        ends: Array = np.empty(0) if band is None or band.values is None else band.values[-1]
        return words.sentence(self.settings, self._paths(), ends)

    @property
    def tasks(self) -> list[words.Task]:
        """The tasks, judged by the settings as they are."""
        return words.tasks(self.settings, self.trajectory)

    def run_in_torch(self) -> tuple[Trajectory, float]:
        """Run the same settings through the lesson's custom Function and ``torch.optim``.

        Returns
        -------
        Trajectory
            torch's path.
        float
            How far it lies from :attr:`trajectory` at most, relative to coordinates larger than 1.
        """
        from .torch_run import run_in_torch

        path = run_in_torch(self.settings)
        return path, largest_difference(self.trajectory, path)

    def picture(self) -> Picture:
        """Return the picture for where no script runs."""
        figure = plots.trajectories(*self._paths(), title=f"{self.optimizer}'s path").figure
        left, right, bottom, top = plots.VIEW  # as in the page, wherever a path goes
        figure.axes[0].set(xlim=(left, right), ylim=(bottom, top))
        return Picture(figure, self.summary)

    def to_html(self, path: str | Path) -> None:
        """Write a page that moves without a kernel and asks nothing of the network."""
        Path(path).write_text(page(self.static_state(), f"{self.optimizer} on the noisy surface"), encoding="utf-8")

    def _paths(self) -> list[Trajectory]:
        return [path for path in (self.trajectory, self.compared) if path is not None]

    def static_state(self) -> dict[str, Any]:
        """Return what a page without a kernel begins with."""
        return {name: getattr(self, name) for name in (*NAMES, "look")}

    def _ipython_display_(self) -> None:
        """Show the widget, or the form with its own script; and below it the picture, which hides where they run."""
        from IPython.display import display

        shown = self._repr_mimebundle_()  # None where no notebook listens
        bundle, metadata = shown or ({}, {})
        bundle = {**bundle, "text/plain": repr(self), "text/html": static_form(self.static_state())}
        display(bundle, metadata=metadata, raw=True)  # type: ignore[no-untyped-call]
        for bundle, metadata in self.stand_in():
            display(bundle, metadata=metadata, raw=True)  # type: ignore[no-untyped-call]

    def stand_in(self) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """Return the picture and its sentence by MIME type. By the sentence's class explorer.css knows both."""
        sentence = f'<p class="byg-instead">{html.escape(self.summary)}</p>'
        return [self.picture().bundle(), ({"text/html": sentence, "text/plain": self.summary}, {})]

    def _answer(self, widget: object, content: dict[str, Any], buffers: object) -> None:
        """Run in torch what the page asks for, and send the path back."""
        if "run" not in content:
            return
        try:
            settings = Settings(**content["settings"])
            from .torch_run import run_in_torch

            path = run_in_torch(settings)
        except Exception as error:  # the page must say it: in a callback nobody reads a traceback
            self.send({"run": content["run"], "refused": f"torch refused: {type(error).__name__}: {error}"})
            return
        assert path.values is not None
        self.send({"run": content["run"]}, [path.points.tobytes(), path.values.tobytes()])


def explore_adam(
    noise: float = 0.5,
    lr: float = 0.1,
    steps: int = 200,
    seed: int = 0,
    start: tuple[float, float] = (0.1, 0.1),
    *,
    optimizer: str = "Adam",
    compare: str | None = None,
    seeds: int = 0,
    **more: Any,
) -> Explorer:
    """Walk an optimiser over the noisy Rosenbrock function, under your own hands.

    Parameters
    ----------
    noise : float, 0 to 1
        How far a draw may lie from its mean; 0.5 is the question's U(0.5, 1.5).
    lr : float, 0.001 to 1
        The learning rate.
    steps : int, 10 to 500
        How many steps.
    seed : int
        Where the draws come from: those of ``numpy.random.default_rng(seed)``.
    start : (float, float)
        The first point; drag it on the picture.
    optimizer, compare : {"SGD", "momentum", "RMSprop", "Adam", "AdamW"}
        The optimiser, and one beside it or None.
    seeds : int, 0 to 64
        How many seeds make the band; the page offers 64.
    **more
        ``beta1``, ``beta2``, ``kind`` and ``draws``: see :class:`~helpers.explorer.simulation.Settings`.

    Returns
    -------
    Explorer
        Shown if it is the last line of a cell. Its traits follow the sliders. It lives as long as its kernel: in a
        notebook that was saved and opened again, run the cell again.

    Raises
    ------
    traitlets.TraitError
        If a setting lies outside its range, or is none of the choices.
    TypeError
        If a name is not that of a setting.

    Examples
    --------
    >>> explorer = explore_adam(noise=0.0, steps=100)
    >>> explorer.summary
    'Adam, lr 0.100, noise 0.00, 100 steps: ends at (1.000, 1.001), f = 6.1e-07.'
    >>> path, difference = explorer.run_in_torch()
    >>> difference < 1e-9
    True
    """
    unknown = set(more) - set(NAMES)
    if unknown:
        raise TypeError(f"explore_adam has no setting {sorted(unknown)[0]!r}: it has {', '.join(NAMES)}.")
    return Explorer(
        noise=noise,
        lr=lr,
        steps=_whole("steps", steps),
        seed=_whole("seed", seed),
        start=_point(start),
        optimizer=optimizer,
        compare=compare,
        seeds=_whole("seeds", seeds),
        **more,
    )


def _whole(name: str, number: Any) -> int:
    try:
        return operator.index(number)  # also NumPy's integers
    except TypeError as error:
        raise traitlets.TraitError(f"{name} must be a whole number; got {number!r}.") from error


def _point(start: Any) -> list[float]:
    try:
        x0, x1 = start
        return [float(x0), float(x1)]
    except (TypeError, ValueError) as error:
        raise traitlets.TraitError(f"start must be two numbers, such as (0.1, 0.1); got {start!r}.") from error
