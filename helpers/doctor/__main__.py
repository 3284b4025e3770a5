"""``python -m helpers.doctor file.py:ClassName --input 'torch.randn(3)'``: for a shell, and for other people's CI."""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

EXAMPLES = """\
examples:
  python -m helpers.doctor model.py:MyFunction --input 'torch.randn(3, dtype=torch.float64)'
  python -m helpers.doctor model.py:op --input 'torch.ones(2)' --input '0.5' --reference model.py:slow --strict

exit code: 0 nothing is wrong, 1 something is, 2 the patient could not be examined
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Examine a function in a file, print the diagnosis, and return 0, 1 or 2."""
    options = _parser().parse_args(arguments)
    try:
        patient = load(options.patient)
        reference = load(options.reference) if options.reference else None
        inputs = [_evaluate(text, options.seed, vars(_module(options.patient))) for text in options.input]
    except _Unusable as error:
        print(error, file=sys.stderr)
        return 2
    from . import diagnose

    diagnosis = diagnose(patient, *inputs, reference=reference, noise=options.noise, seconds=options.seconds)
    print(diagnosis)
    bad = [f for f in diagnosis.findings if f.severity == "wrong" or (options.strict and f.severity == "fragile")]
    return 1 if bad else 2 if diagnosis.unfinished else 0


class _Unusable(Exception):
    """The file, the name or an input cannot be used; its text says why."""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m helpers.doctor",
        description="Name what is wrong with a torch.autograd.Function, or with any callable on tensors.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("patient", metavar="FILE.py:NAME", help="the file, and the class or function in it")
    parser.add_argument(
        "--input", action="append", default=[], metavar="CODE", help="an example input; once for each argument"
    )
    parser.add_argument("--reference", metavar="FILE.py:NAME", help="what it should compute, in torch")
    parser.add_argument("--noise", action="store_true", help="it is noisy, and that is meant")
    parser.add_argument("--strict", action="store_true", help="fail also when something is fragile")
    parser.add_argument("--seconds", type=float, default=10.0, help="the most time to take (default: 10)")
    parser.add_argument("--seed", type=int, default=0, help="torch's and NumPy's seed for the inputs (default: 0)")
    return parser


def load(place: str) -> Any:
    """Return what ``path/to/file.py:Name`` names; ``Name`` may have dots."""
    found: Any = _module(place)
    for part in _name(place).split("."):
        try:
            found = getattr(found, part)
        except AttributeError as error:
            raise _Unusable(f"{_path(place)} has no {_name(place)}.") from error
    return found


def _path(place: str) -> str:
    path, colon, _ = place.rpartition(":")
    if not colon or not path.endswith(".py"):
        raise _Unusable(f"Write FILE.py:NAME, such as model.py:MyFunction; got {place!r}.")
    return path


def _name(place: str) -> str:
    return place.rpartition(":")[2]


def _module(place: str) -> Any:
    path = Path(_path(place))
    name = path.stem
    if name in sys.modules and getattr(sys.modules[name], "__file__", None) == str(path.resolve()):
        return sys.modules[name]
    if not path.is_file():
        raise _Unusable(f"There is no file {path}.")
    specification = importlib.util.spec_from_file_location(name, path.resolve())
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.path.insert(0, str(path.resolve().parent))
    sys.modules[name] = module
    try:
        specification.loader.exec_module(module)
    except Exception as error:
        raise _Unusable(f"{path} cannot be imported: {type(error).__name__}: {error}") from error
    return module


def _evaluate(text: str, seed: int, names: dict[str, Any]) -> Any:
    """Return the value of one input's code, in which torch, np, math and the file's own names are known."""
    import math

    import numpy as np
    import torch

    torch.manual_seed(seed)
    np.random.seed(seed)  # noqa: NPY002 - for inputs written with np.random on the command line
    try:
        return eval(text, {**names, "torch": torch, "np": np, "numpy": np, "math": math})  # the user's own command line
    except Exception as error:
        raise _Unusable(f"--input {text!r}: {type(error).__name__}: {error}") from error


if __name__ == "__main__":
    sys.exit(main())
