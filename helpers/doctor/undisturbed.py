"""Examine without leaving a mark: what a patient changes or prints is undone or swallowed."""

import contextlib
import functools
import io
import os
import random
import sys
import threading
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from ..reached import LIBRARIES, reached
from .trace import leave_modes, modes

Undo = Callable[[], None]
_ONE_AT_A_TIME = threading.RLock()  # output, warnings and random numbers belong to the whole process


class _Sink(io.TextIOBase):
    """Swallows what is printed."""

    def write(self, text: str) -> int:
        """Swallow it."""
        return len(text)

    def writable(self) -> bool:
        """Return True."""
        return True


@contextlib.contextmanager
def undisturbed(*roots: Any) -> Iterator[None]:
    """Put everything back afterwards: tensors and arrays that the roots reach, random numbers, torch's modes, output.

    Tensors get their values, ``requires_grad`` and ``.grad`` back; NumPy arrays their values; generators, the global
    random states, the default dtype, the number of threads and the working directory what they were.
    """
    with _ONE_AT_A_TIME:
        yield from _undisturbed(roots)


def _undisturbed(roots: tuple[Any, ...]) -> Iterator[None]:
    undo = [*_settings(), *_random_states()]
    things = [value for _, value in reached(*roots)]
    things += [each for value in things if isinstance(value, torch.nn.Module) for each in value.buffers()]
    undo += [undo_one for value in things if (undo_one := _undo(value))]
    sink = _Sink()
    streams, depth = (sys.stdout, sys.stderr), modes()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sys.stdout = sys.stderr = sink
        try:
            yield
        finally:
            sys.stdout, sys.stderr = streams
            leave_modes(depth)
            for step in undo:
                with contextlib.suppress(Exception):
                    step()


def generators(*roots: Any) -> list[Any]:
    """Return the random generators that the roots reach."""
    kinds = (np.random.Generator, np.random.RandomState, torch.Generator, random.Random)
    return [value for _, value in reached(*roots) if isinstance(value, kinds)]


def seed_all(seed: int, found: list[Any]) -> None:
    """Let all random numbers start from a seed: the global ones, and those of the given generators."""
    np.random.seed(seed)  # noqa: NPY002 - it is the patient who uses the global state
    random.seed(seed)
    # torch.manual_seed notes for three kinds of devices from where it was called, which takes 2 ms
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.manual_seed_all(seed)
    for each in found:
        _seed(each, seed)


def _seed(generator: Any, seed: int) -> None:
    if isinstance(generator, np.random.Generator):
        generator.bit_generator.state = type(generator.bit_generator)(seed).state
    elif isinstance(generator, torch.Generator):
        generator.manual_seed(seed)
    else:
        generator.seed(seed)


def _settings() -> list[Undo]:
    """Return how to put back what a patient may set for the whole process."""
    dtype, threads, graph, folder = (
        torch.get_default_dtype(),
        torch.get_num_threads(),
        torch.is_grad_enabled(),
        os.getcwd(),
    )
    anomaly, check = torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()
    same, warn = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    precision, errors, printing = torch.get_float32_matmul_precision(), np.geterr(), np.get_printoptions()
    options: Any = torch._tensor_str.PRINT_OPTS
    shown, path, environment = dict(vars(options)), list(sys.path), dict(os.environ)

    def undo() -> None:
        torch.autograd.set_detect_anomaly(anomaly, check)
        torch.use_deterministic_algorithms(same, warn_only=warn)
        torch.set_float32_matmul_precision(precision)
        vars(options).update(shown)
        np.seterr(**errors)
        np.set_printoptions(**printing)
        sys.path[:] = path
        if dict(os.environ) != environment:
            os.environ.clear()
            os.environ.update(environment)

    return [
        lambda: torch.set_default_dtype(dtype),
        lambda: None if torch.get_num_threads() == threads else torch.set_num_threads(threads),
        lambda: torch._C._set_grad_enabled(graph),
        lambda: os.chdir(folder),
        undo,
    ]


def _random_states() -> list[Undo]:
    old, plain, seed = np.random.get_state(), random.getstate(), torch.get_rng_state()  # noqa: NPY002
    return [
        lambda: np.random.set_state(old),  # noqa: NPY002
        lambda: random.setstate(plain),
        lambda: torch.set_rng_state(seed),
    ]


def _undo(value: Any) -> Undo | None:
    """Return how to put one thing back, None if there is nothing to put back."""
    if isinstance(value, torch.Tensor):
        return _undo_tensor(value)
    if isinstance(value, np.ndarray):
        return _undo_array(value)
    if isinstance(value, np.random.Generator):
        bits = value.bit_generator
        state = bits.state
        return lambda: setattr(bits, "state", state)
    if isinstance(value, np.random.RandomState):
        old = value.get_state()
        return lambda: value.set_state(old)
    if isinstance(value, torch.Generator):
        kept = value.get_state()
        return functools.partial(_set_state, value, kept)
    if isinstance(value, random.Random):
        plain = value.getstate()
        return lambda: value.setstate(plain)
    if isinstance(value, (list, dict, set)):
        return _undo_container(value)
    return _undo_object(value)


def _set_state(generator: torch.Generator, state: torch.Tensor) -> None:
    generator.set_state(state)


def _undo_tensor(tensor: torch.Tensor) -> Undo | None:
    if (
        tensor.is_meta
        or tensor.is_inference()
        or tensor.layout is not torch.strided
        or type(tensor) not in (torch.Tensor, torch.nn.Parameter)
    ):
        return None
    numbers, version, wants = tensor.detach().clone(), tensor._version, tensor.requires_grad
    gradient = tensor.grad if tensor.is_leaf else None
    gradient_numbers = None if gradient is None else gradient.detach().clone()

    def undo() -> None:
        if tensor.shape != numbers.shape or tensor.dtype != numbers.dtype:
            tensor.data = numbers
        elif not _same(tensor.detach(), numbers):
            tensor.data.copy_(numbers)
        if tensor._version != version:
            torch._C._autograd._unsafe_set_version_counter((tensor,), (version,))
        if tensor.is_leaf:
            tensor.requires_grad_(wants)
            if gradient is not None and gradient_numbers is not None and not _same(gradient, gradient_numbers):
                gradient.data.copy_(gradient_numbers)
            tensor.grad = gradient

    return undo


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether two tensors hold the same numbers, NaN counted as itself."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    return bool(torch.all((one == other) | ((one != one) & (other != other))))


def _undo_array(array: np.ndarray[Any, Any]) -> Undo | None:
    if array.dtype.hasobject or not array.flags.writeable:
        return None
    kept = array.copy()

    def undo() -> None:
        if array.tobytes() != kept.tobytes():
            array[...] = kept

    return undo


def _undo_container(value: Any) -> Undo:
    kept = value.copy()

    def undo() -> None:
        if isinstance(value, list):
            value[:] = kept
        else:
            value.clear()
            value.update(kept)

    return undo


def _undo_object(value: Any) -> Undo | None:
    """Return how to put the attributes of an object of the user's own class back."""
    attributes = getattr(value, "__dict__", None)
    if not isinstance(attributes, dict) or isinstance(value, (type, types.ModuleType, types.FunctionType)):
        return None
    if type(value).__module__.partition(".")[0] in {*LIBRARIES, "builtins"}:
        return None
    kept = dict(attributes)

    def undo() -> None:
        attributes.clear()
        attributes.update(kept)

    return undo
