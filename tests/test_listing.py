"""Two functions side by side: what is marked is what differs."""

import pytest

from helpers import listing


def before(x):
    y = x + 1
    return y


def after(x):
    y = x + 1
    z = "<b>" if y else None
    return y, z


def test_equal_functions_have_no_mark():
    assert listing.compare(before, before).changed == 0
    assert "▶" not in repr(listing.compare(before, before))


def test_rows_hold_both_functions_in_full():
    rows = listing.compare(before, after).rows
    assert [left for left, *_ in rows if left] == ["y = x + 1", "return y"]
    assert [right for _, right, _ in rows if right] == ["y = x + 1", 'z = "<b>" if y else None', "return y, z"]


def test_exactly_the_rows_that_differ_are_marked():
    shown = listing.compare(before, after)
    assert [same for *_, same in shown.rows] == [True, False, False]
    assert shown.changed == repr(shown).count("▶") == shown._repr_html_().count("▶") == 2
    assert all((left == right) == same for left, right, same in shown.rows)


def test_html_shows_code_and_does_not_run_it():
    assert "&lt;b&gt;" in listing.compare(before, after)._repr_html_()
    assert "<b>" not in listing.compare(before, after)._repr_html_()


def test_headings_are_the_names_of_the_functions():
    assert repr(listing.compare(before, after)).splitlines()[0].split() == ["before", "after"]


def test_what_is_no_function_is_refused():
    with pytest.raises(TypeError):
        listing.compare(before, 3)
