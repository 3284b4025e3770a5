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


def other_before(x):
    y = x + 1
    return y


# fmt: off
def in_one_line(x): return x + 1
def in_another(x): return x + 2
def same_as_in_one_line(x): return x + 1
def over_lines(
    x,
    y=2,
):
    return x
def other_default(
    x,
    y=3,
):
    return x
def other_argument(z):
    y = x + 1  # noqa: F821
    return y
def annotated(x: int) -> dict[str, int]:
    y = x + 1
    return y
def noted(x):  # a note
    y = x + 1
    return y
@staticmethod
def decorated(x):
    y = x + 1
    return y
@staticmethod
def decorated_too(x):
    y = x + 1
    return y
async def waiting(x):
    y = x + 1
    return y
# fmt: on


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (before, other_before),
        (in_one_line, same_as_in_one_line),
        (decorated, decorated_too),
        (over_lines, over_lines),
    ],
)
def test_functions_that_differ_in_the_name_alone_have_no_mark(left, right):
    shown = listing.compare(left, right)
    assert shown.rows
    assert shown.changed == 0
    assert all(left == right for left, right, _ in shown.rows)


@pytest.mark.parametrize(
    ("left", "right", "words"),
    [
        (in_one_line, in_another, "▶ def _(x): return x + 1 "),
        (in_one_line, before, "▶ def _(x): return x + 1 "),
        (over_lines, other_default, "▶     y=2,"),
        (other_argument, before, "▶ def _(z):"),
        (annotated, before, "▶ def _(x: int) -> dict[str, int]:"),
        (noted, before, "▶ def _(x):  # a note"),
        (decorated, before, "▶ @staticmethod"),
        (waiting, before, "▶ async def _(x):"),
    ],
)
def test_a_difference_before_the_body_is_marked(left, right, words):
    for one, other in ((left, right), (right, left)):
        assert listing.compare(one, other).changed
    assert words in repr(listing.compare(left, right))


def test_a_signature_over_several_lines_is_left_out_as_a_whole():
    assert [left for left, *_ in listing.compare(over_lines, over_lines).rows] == ["return x"]


def test_functions_of_one_name_keep_it():
    def make(one):
        if one:

            def f(x): return x  # fmt: skip
        else:

            def f(x): return -x  # fmt: skip

        return f

    assert "def f(x): return -x" in repr(listing.compare(make(True), make(False)))


@pytest.mark.parametrize(
    ("given", "words"),
    [(lambda x: x, "got a lambda"), (listing.Listing, "got the class Listing"), (len, "got builtin")],
)
def test_what_is_not_written_with_def_is_refused(given, words):
    with pytest.raises(TypeError, match=words):
        listing.compare(before, given)
