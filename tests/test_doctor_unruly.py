"""The doctor survives: patients that hang, print, exit, hide, or change whatever they reach."""

import os
import sys
import threading
from importlib import import_module

import numpy as np
import pytest
import torch
from doctor_patients.unruly import UNRULY

from helpers import Diagnosis

import_module("torch._dynamo")  # its first import sets variables of the environment
PATIENCE = 2.0  # seconds; those that never end take all of it


def settings():
    """Return what a patient may set for the whole process."""
    modes = torch.is_anomaly_enabled(), torch.are_deterministic_algorithms_enabled(), str(torch.tensor([1 / 3]))
    return (*basic_settings(), *modes, str(np.array([1 / 3])), list(sys.path), dict(os.environ))


def basic_settings():
    return (
        torch.get_default_dtype(),
        torch.is_grad_enabled(),
        torch.get_num_threads(),
        os.getcwd(),
        sys.stdout,
        np.geterr(),
    )


@pytest.mark.parametrize("build", UNRULY, ids=[build.__name__ for build in UNRULY])
def test_the_doctor_survives_and_leaves_no_mark(build, capsys):
    case = build()
    case.options["seconds"] = PATIENCE
    watched = [(each, each.detach().clone(), each.grad, each._version) for each in getattr(case, "watched", [])]
    gradients = [None if gradient is None else gradient.clone() for _, _, gradient, _ in watched]
    random, numpy_random = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    before = settings()
    diagnosis = case.diagnose()
    assert settings() == before
    assert torch.equal(torch.get_rng_state(), random)
    assert np.array_equal(np.random.get_state()[1], numpy_random)  # noqa: NPY002
    for (tensor, numbers, gradient, version), kept in zip(watched, gradients, strict=True):
        assert torch.equal(tensor, numbers)
        assert tensor._version == version
        assert tensor.grad is gradient
        assert gradient is None or torch.equal(gradient, kept)
    for thread in getattr(case, "threads", []):
        thread.join(timeout=5)
    assert isinstance(diagnosis, Diagnosis)
    assert repr(diagnosis)
    assert "<div" in diagnosis._repr_html_()
    assert len(capsys.readouterr().out) < 10_000


def test_one_clock_serves_all_examinations():
    assert len([thread for thread in threading.enumerate() if thread.name == "the doctor's clock"]) <= 1
