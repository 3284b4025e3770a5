"""A progress bar of text, for a loop that takes seconds.

It only ever adds to its line, so it looks the same in a terminal, in a notebook and in a file, and it says nothing of
time: a loop of the same length prints the same characters, and a notebook that stores them can be compared.
"""

import sys
from collections.abc import Collection, Iterator
from typing import TypeVar

Item = TypeVar("Item")

MARKS = 20


def with_progress(items: Collection[Item], label: str = "") -> Iterator[Item]:
    """Yield the items, and print a mark for each twentieth of them that is done.

    The line is closed with the number of items once the last one is done. If the loop ends before, it stays open.

    Parameters
    ----------
    items : a list, a range, or anything else that has a length
        What to loop over.
    label : str
        What the loop does; it stands in front of the bar.

    Raises
    ------
    TypeError
        If ``items`` has no length: then nobody knows how much is left. Put a generator into a list first.

    Examples
    --------
    >>> squares = [seed**2 for seed in with_progress(range(100), "squares")]
    squares [====================] 100 of 100
    >>> squares[-1]
    9801
    """
    try:
        count = len(items)
    except TypeError as error:
        raise TypeError(
            f"items has no length, so nobody knows how much is left; got {type(items).__name__}. "
            "Put it into a list first: with_progress(list(items))."
        ) from error
    return _marked(items, count, label)


def _marked(items: Collection[Item], count: int, label: str) -> Iterator[Item]:
    _write(f"{label} [" if label else "[")
    drawn = 0
    for done, item in enumerate(items, start=1):
        yield item
        due = MARKS * done // count
        if due > drawn:
            _write("=" * (due - drawn))
            drawn = due
    _write(f"] {count} of {count}\n")


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()  # a mark that waits in a buffer tells nobody anything
