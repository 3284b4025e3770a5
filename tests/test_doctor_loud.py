"""The doctor sees: torch stops, but its text often points elsewhere."""

from doctor_ward import every_patient, see_the_mistake

sick, _ = every_patient("loud")


@sick
def test_the_doctor_names_the_mistake_first(patient, record_property):
    see_the_mistake(patient, record_property)
