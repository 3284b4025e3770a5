"""Functions and arguments as bytes, on their way to a worker."""

import os
import pickle
import sys
from collections.abc import Mapping
from concurrent.futures import Executor, ProcessPoolExecutor
from typing import Any


class Packer:
    """Makes bytes of what a worker needs, by the means that the executor has.

    Python's own process pool and MPI's find a function by its name, in a module that the worker imports. Others, such
    as loky's and Dask's, bring cloudpickle along, which sends the code itself.
    """

    def __init__(self, label: str, executor: Executor) -> None:
        self.label = label
        module = type(executor).__module__.partition(".")[0]
        self.by_name = isinstance(executor, ProcessPoolExecutor) or module == "mpi4py"

    def functions(self, functions: Mapping[str, Any], called: Mapping[str, str]) -> bytes:
        """Return the functions as bytes. ``called`` holds what the user calls them.

        Raises
        ------
        TypeError
            If one of them cannot be sent, with its name and the cure.
        """
        try:
            return self._pack(functions)
        except Exception as error:
            for role, function in functions.items():
                try:
                    self._pack(function)
                except Exception as its_own:
                    raise TypeError(self._why(called[role], function, its_own)) from its_own
            raise TypeError(f"{self.label}: its functions cannot be sent to a worker: {error}") from error

    def arguments(self, order: Any) -> bytes:
        """Return an order as bytes.

        Raises
        ------
        TypeError
            If an argument cannot be sent.
        """
        try:
            return self._pack(order)
        except Exception as error:
            raise TypeError(
                f"{self.label}: an argument cannot be sent to a worker: {error}. Pass arrays, numbers and text, or "
                "functions that stand in a module."
            ) from error

    def _pack(self, thing: Any) -> bytes:
        try:
            data = pickle.dumps(thing)
        except Exception:
            if self.by_name:
                raise
            return _cloudpickled(thing)
        if b"__main__" not in data:
            return data
        if not self.by_name:
            return _cloudpickled(thing)
        if not os.path.isfile(getattr(sys.modules["__main__"], "__file__", "")):
            raise NotImportable
        return data

    def _why(self, role: str, function: Any, error: Exception) -> str:
        name = getattr(function, "__qualname__", type(function).__name__)
        cure = (
            "Write it with def in a module (a .py file) and import it, or use an executor that sends code along, such "
            "as loky's get_reusable_executor() or Dask's client.get_executor()."
        )
        if not self.by_name:
            return f"{self.label}: its {role} ({name}) cannot be sent to a worker: {error}"
        if "<lambda>" in name:
            return f"{self.label}: its {role} is a lambda, and a worker process finds functions by name. {cure}"
        if "<locals>" in name:
            return (
                f"{self.label}: its {role}, {name}, was made inside another function, and a worker process finds "
                f"functions by name. {cure}"
            )
        if isinstance(error, NotImportable):
            return (
                f"{self.label}: its {role} ({name}) needs what was written in this notebook or session, and a worker "
                f"process cannot import that. {cure}"
            )
        return f"{self.label}: its {role} ({name}) cannot be sent to a worker: {error}. {cure}"


class NotImportable(TypeError):
    """A function of a notebook: a worker would not find it, or would keep the version that it began with."""


def _cloudpickled(thing: Any) -> bytes:
    import cloudpickle  # type: ignore[import-untyped]  # comes with the executors that send code

    data: bytes = cloudpickle.dumps(thing)
    return data
