"""Pictures of a table of shares: how many runs arrive, for each row and each column, as a colour and as a number.

They draw what was computed, and run nothing themselves. They return a :class:`~helpers.picture.Picture`.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .picture import PALETTE, Picture, new_figure, styled

Array = NDArray[np.float64]

COLOURS = "cividis"  # told apart with any kind of colour vision
MOST = 12
LIGHT = 0.55  # from this share on, dark figures are read better than white ones


@styled
def shares(
    table: ArrayLike,
    *,
    rows: Sequence[str | float],
    columns: Sequence[str | float],
    ylabel: str,
    xlabel: str,
    title: str = "How many runs arrive",
) -> Picture:
    """Show shares between 0 and 1 as a table of colours, with the percentage in each cell.

    Parameters
    ----------
    table : array_like, shape (rows, columns)
        The shares. The first row is drawn at the top, as in a printed table.
    rows, columns : sequences of str or float
        What stands beside each row, and below each column: 1 to 12 of each.
    ylabel, xlabel : str
        What the rows and the columns are.
    title : str
        The title.

    Returns
    -------
    Picture
        Its sentence tells the highest share of each row, and the first column that has it.

    Raises
    ------
    ValueError
        If the names do not go with the shape of the table, if there are no rows or columns or more than 12, or if a
        share is not a number from 0 to 1.

    Examples
    --------
    >>> shares([[1, 0.5], [0, 0.25]], rows=[0, 1], columns=["slow", "fast"], ylabel="noise", xlabel="rate").summary
    'How many runs arrive, highest share for each noise: 0 100 percent (rate slow); 1 25 percent (rate fast).'
    """
    given = _checked(table, len(rows), len(columns))
    figure = new_figure(width=max(8.0, 2.2 + 0.78 * len(columns)), height=1.7 + 0.55 * len(rows))
    axes = figure.axes[0]
    axes.imshow(given, cmap=COLOURS, vmin=0, vmax=1, aspect="auto")
    for (row, column), share in np.ndenumerate(given):
        colour = PALETTE["black"] if share >= LIGHT else "white"
        axes.text(column, row, _percent(share), color=colour, ha="center", va="center")
    axes.set_xticks(range(len(columns)), [_name(column) for column in columns])
    axes.set_yticks(range(len(rows)), [_name(row) for row in rows])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set(xlabel=xlabel, ylabel=ylabel, title=f"{title}, in percent")
    told = [
        f"{_name(name)} {_percent(shares.max())} percent ({xlabel} {_name(columns[int(shares.argmax())])})"
        for name, shares in zip(rows, given, strict=True)
    ]
    return Picture(figure, f"{title}, highest share for each {ylabel}: {'; '.join(told)}.")


def _checked(table: ArrayLike, rows: int, columns: int) -> Array:
    given = np.asarray(table, dtype=np.float64)
    if given.shape != (rows, columns):
        raise ValueError(
            f"table must have one row for each of the {rows} names in rows and one column for each of the {columns} in "
            f"columns; got shape {given.shape}."
        )
    if not (1 <= rows <= MOST and 1 <= columns <= MOST):
        raise ValueError(f"A picture shows 1 to {MOST} rows and columns; got {rows} and {columns}.")
    if not np.all((given >= 0) & (given <= 1)):  # False for NaN
        raise ValueError("Each share must be a number from 0 to 1: divide the counts by the number of runs.")
    return given


def _percent(share: float) -> str:
    """Write a share so that only all is 100, and only none is 0."""
    if 0 < share < 1:
        return f"{min(99, max(1, round(100 * share)))}"
    return f"{100 * share:.0f}"


def _name(name: str | float) -> str:
    return name if isinstance(name, str) else f"{name:g}"
