"""The doctor's ward: examine patients one by one, and see that nothing of them is changed."""

from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch
from doctor_patients import case

WARD = Path(case.__file__).parent
MODULES = sorted(path.stem for path in WARD.glob("*.py") if path.stem not in ("__init__", "case", "unruly"))


def of(*beginnings):
    """Return the sick and the healthy patients of the modules whose names begin like this."""
    names = [name for name in MODULES if name.startswith(beginnings)]
    modules = [import_module(f"doctor_patients.{name}") for name in names]
    files = {module.__name__ for module in modules}
    mine = [[each for each in everyone if each.build.__module__ in files] for everyone in (case.PATIENTS, case.HEALTHY)]
    return mine[0], mine[1]


def every_patient(*beginnings):
    """Return the parametrize marks for the sick and for the healthy ones of some modules."""
    return [
        pytest.mark.parametrize("patient", everyone, ids=[each.name for each in everyone])
        for everyone in of(*beginnings)
    ]


def examine(patient):
    """Diagnose a patient, and see that its inputs and all random numbers are as before."""
    if patient.slug.startswith("compiled"):
        torch._dynamo.reset()  # after some eight functions of one form the compiler would step aside
    built = patient.build()
    tensors = [each for each in getattr(built, "inputs", []) if isinstance(each, torch.Tensor)]
    optimizer = getattr(built, "optimizer", None)
    if isinstance(optimizer, torch.optim.Optimizer):
        tensors += [p for group in optimizer.param_groups for p in group["params"]]
    before = [_state(each) for each in tensors]
    states = _random_states()
    diagnosis = built.diagnose()
    for now, then in zip(_random_states(), states, strict=True):
        assert np.array_equal(now, then)
    for tensor, old in zip(tensors, before, strict=True):
        assert all(_same(a, b) for a, b in zip(_state(tensor), old, strict=True))
    assert repr(diagnosis)
    assert diagnosis._repr_html_()
    return diagnosis


def _random_states():
    _, keys, place, *_ = np.random.get_state()  # noqa: NPY002
    return [keys.copy(), np.array(place), torch.get_rng_state().numpy().copy()]


def _state(tensor):
    gradient = None if tensor.grad is None else tensor.grad.clone()
    return tensor.detach().clone(), gradient, tensor.requires_grad, tensor._version


def _same(one, other):
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return torch.equal(one.nan_to_num(), other.nan_to_num())
    return one is other if one is None or other is None else one == other


def see_the_mistake(patient, record_property):
    """Say that the doctor names the patient's mistake first; for the report, note whether it does."""
    diagnosis = examine(patient)
    first = diagnosis.findings[0] if diagnosis.findings else None
    found = first is not None and first.slug == patient.slug and patient.severity in (None, first.severity)
    record_property("doctor", "found" if found else "missed")
    assert found, f"{patient.name} ({patient.severity}) was taken for:\n{diagnosis}"
    assert bool(diagnosis) == (first.severity != "wrong" and not diagnosis.unfinished)
    assert first.message
    assert first.cure
    assert first.lesson
    return first


def see_health(patient, record_property):
    """Say that the doctor raises no false alarm; for the report, note whether it does."""
    diagnosis = examine(patient)
    allowed = {"style", patient.severity}
    alarms = [finding.slug for finding in diagnosis.findings if finding.severity not in allowed]
    record_property("doctor", "false alarm" if alarms else "healthy")
    assert not alarms, f"{patient.name} was taken for:\n{diagnosis}"
    assert diagnosis, f"{patient.name} was not called healthy:\n{diagnosis}"
