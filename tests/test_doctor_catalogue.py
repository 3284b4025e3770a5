"""The doctor's catalogue is complete: every slug has a row, two patients, a lesson and a cure."""

import re
from collections import Counter
from pathlib import Path

import pytest
from doctor_patients import case
from doctor_ward import MODULES, of

from helpers import diagnose
from helpers.doctor import catalogue, messages

of(*MODULES)
PATIENTS = Counter(patient.slug for patient in case.PATIENTS)
ROOT = Path(__file__).resolve().parent.parent
LESSONS = {path.name[:2] for path in (ROOT / "notebooks").glob("*.ipynb")}


@pytest.mark.parametrize("slug", catalogue.MISTAKES)
def test_each_slug_has_two_patients_or_more(slug):
    assert PATIENTS[slug] >= 2


def test_no_patient_has_an_unknown_mistake():
    assert set(PATIENTS) <= set(catalogue.MISTAKES)


@pytest.mark.parametrize("slug", catalogue.MISTAKES)
def test_each_cure_can_be_filled_with_names_or_without(slug):
    bare = catalogue.cure(slug, {})
    named = catalogue.cure(slug, {"f": "Heat", "x": "u", "ctx": "context", "g": "upstream", "opt": "adam", "args": "u"})
    for text in (bare, named):
        assert text.strip()
        assert not re.search(r"\{(?:f|x|g|ctx|opt|args)\}", text)


@pytest.mark.parametrize("slug", catalogue.MISTAKES)
def test_each_mistake_names_a_lesson_of_the_course(slug):
    assert catalogue.MISTAKES[slug].lesson in LESSONS


@pytest.mark.parametrize("message", messages.MESSAGES, ids=[message.slug for message in messages.MESSAGES])
def test_each_message_belongs_to_a_known_mistake(message):
    assert message.slug in catalogue.MISTAKES
    assert message.meaning.endswith(".")
    assert re.compile(message.pattern)


@pytest.mark.parametrize(
    ("text", "slug"),
    [
        ("Legacy autograd function with non-static forward method is deprecated.", "instance-called"),
        ("NameError: name 'g_rand' is not defined", "undefined-name"),
        ("TypeError: 'Tensor' object is not callable", "step-of-a-loss"),
        ("element 0 of tensors does not require grad and does not have a grad_fn", "no-requires-grad"),
        ("AttributeError: 'numpy.float64' object has no attribute 'backward'", "numpy-result"),
        ("TypeError: expected Variable or None (got numpy.ndarray)", "numpy-gradient"),
        ("Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.", "numpy-on-tracked"),
        ("LBFGS.step() missing 1 required positional argument: 'closure'", "lbfgs-without-closure"),
        ("can't optimize a non-leaf Tensor", "nonleaf-parameter"),
        (RuntimeError("Trying to backward through the graph a second time"), "backward-twice"),
    ],
)
def test_an_error_is_named(text, slug):
    diagnosis = diagnose.error(text)
    assert diagnosis.slugs == (slug,)
    assert diagnosis.findings[0].cure


def test_an_unknown_error_is_not_called_anything():
    diagnosis = diagnose.error("the flux capacitor is empty")
    assert not diagnosis
    assert diagnosis.slugs == ()
    assert "the flux capacitor is empty" in diagnosis.unfinished
