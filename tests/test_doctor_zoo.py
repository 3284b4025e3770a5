"""The doctor sees: healthy Functions of all kinds."""

from doctor_ward import every_patient, see_health

_, healthy = every_patient("zoo_data", "zoo_domains", "zoo_forms", "zoo_linear", "zoo_native", "zoo_piecewise")


@healthy
def test_the_doctor_raises_no_false_alarm(patient, record_property):
    see_health(patient, record_property)
