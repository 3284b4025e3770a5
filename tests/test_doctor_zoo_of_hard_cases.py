"""The doctor sees: healthy Functions that are noisy, rough, slow or oddly shaped."""

import pytest
from doctor_patients import zoo_on_purpose
from doctor_ward import every_patient, examine, see_health

_, healthy = every_patient("zoo_noise", "zoo_scales", "zoo_shapes", "zoo_solvers", "zoo_on")


@healthy
def test_the_doctor_raises_no_false_alarm(patient, record_property):
    see_health(patient, record_property)


def each(cases):
    return pytest.mark.parametrize("patient", cases, ids=[case.build.__name__ for case in cases])


@each(zoo_on_purpose.ON_PURPOSE)
def test_a_gradient_that_is_wrong_on_purpose_is_called_wrong(patient):
    assert not examine(patient)


@each(zoo_on_purpose.EXPLAINED)
def test_a_reference_explains_a_gradient_that_is_wrong_on_purpose(patient, record_property):
    see_health(patient, record_property)
