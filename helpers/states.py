"""What a solver leaves for its adjoint: kept so that nobody changes it."""

from typing import Any

import numpy as np


def keep(state: Any) -> Any:
    """Return the state with copies of its arrays, read-only: the solver may use its buffers again.

    Tuples, lists and dicts are followed. Other objects, such as a factorisation, are kept as they are.
    """
    if isinstance(state, np.ndarray):
        copy = state.copy()
        copy.flags.writeable = False
        return copy
    return _rebuilt(state, keep)


def hand_out(state: Any) -> Any:
    """Return the state in new lists and dicts, so that an adjoint that empties them can be called again."""
    return state if isinstance(state, np.ndarray) else _rebuilt(state, hand_out)


def _rebuilt(state: Any, each: Any) -> Any:
    kind = type(state)
    if kind in (tuple, list):
        return kind(each(item) for item in state)
    if kind is dict:
        return {key: each(item) for key, item in state.items()}
    if isinstance(state, tuple) and hasattr(state, "_fields"):
        return kind(*(each(item) for item in state))
    return state
