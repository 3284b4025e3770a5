"""The exercises of the lessons: three verbs, ``check``, ``hint`` and ``solution``."""

from .engine import check, hint, solution

__all__ = ["check", "hint", "solution"]
