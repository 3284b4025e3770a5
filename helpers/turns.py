"""Whose turn it is: one lock and one count for all solvers of this process that remember their latest solve.

Operations here and tasks for others share them, since solvers may share what they remember.
"""

import itertools
import threading

lock = threading.RLock()
_serials = itertools.count(1)
_latest = [0]


def begin() -> int:
    """Begin a solve, and return its serial number. The lock must be held."""
    _latest[0] = next(_serials)
    return _latest[0]


def is_latest(serial: int) -> bool:
    """Say whether no other solve has begun since."""
    return _latest[0] == serial


def give_back(serial: int) -> None:
    """Let an earlier solve, which was done again, count as the latest one."""
    _latest[0] = serial
