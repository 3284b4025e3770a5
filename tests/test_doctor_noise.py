"""The doctor sees: silent mistakes in noise, and in other ways through torch."""

from doctor_ward import every_patient, see_health, see_the_mistake

sick, healthy = every_patient("silent_noise", "silent_modes")


@sick
def test_the_doctor_names_the_mistake_first(patient, record_property):
    see_the_mistake(patient, record_property)


@healthy
def test_the_doctor_raises_no_false_alarm(patient, record_property):
    see_health(patient, record_property)
