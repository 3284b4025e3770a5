"""The index: every mistake is in it, every text leads to its mistake, and a search finds rows by any of their words."""

import re
from html.parser import HTMLParser

import pytest
from lessons import NAMES, NOTEBOOKS, code_cells, read

from helpers import diagnose
from helpers.doctor.catalogue import MISTAKES
from helpers.doctor.index import index
from helpers.doctor.messages import MESSAGES, explain
from helpers.doctor.symptoms import SAYS, SYMPTOMS

WHOLE = index()
ENTRIES = (*WHOLE.loud, *WHOLE.silent)
each_entry = pytest.mark.parametrize("entry", ENTRIES, ids=[f"{entry.slug}: {entry.seen[:40]}" for entry in ENTRIES])
SAY_THEMSELVES_WHAT_TO_DO = [  # errors of the course's own helpers, and one that a lesson raises on purpose
    r"^MissingDerivative: ",
    r"^WrongDerivative: ",
    r"^ValueError: fun is noisy: ",
    r"^ValueError: value returned shape ",
    r"^ValueError: LBFGS calls a closure",
    r"^ValueError: theta must be above 0",
    r"^TypeError: .*a worker process (?:finds functions by name|cannot import that)",
    r"^FailedSamples: ",
    r"^RuntimeError: .*its executor takes no more tasks",
    r"This function has no second derivative\.$",
]


class Table(HTMLParser):
    """Collect the text of all cells and the targets of all links."""

    def __init__(self, source):
        super().__init__()
        self.cells, self.links = [], []
        self.feed(source)

    def handle_starttag(self, tag, attributes):
        if tag in ("td", "th"):
            self.cells.append("")
        if tag == "a":
            self.links.append(dict(attributes)["href"])

    def handle_data(self, data):
        if self.cells:
            self.cells[-1] += data


# Completeness


def test_every_mistake_of_the_catalogue_is_in_the_index():
    assert WHOLE.slugs == set(MISTAKES)


def test_every_message_has_a_text_to_read():
    assert [message.slug for message in MESSAGES if message not in {explain(text)[0] for text in SAYS}] == []


@pytest.mark.parametrize("entry", WHOLE.loud, ids=[entry.seen[:50] for entry in WHOLE.loud])
def test_a_text_leads_to_its_own_mistake(entry):
    assert diagnose.error(entry.seen).slugs == (entry.slug,)


def test_loud_rows_stand_in_the_order_of_the_messages():
    places = [MESSAGES.index(explain(entry.seen)[0]) for entry in WHOLE.loud]
    assert places == sorted(places)
    assert {entry.seen for entry in WHOLE.loud} == set(SAYS)


@pytest.mark.parametrize("slug", SYMPTOMS)
def test_a_symptom_belongs_to_a_mistake_of_the_catalogue(slug):
    assert slug in MISTAKES


@pytest.mark.parametrize("name", NAMES)
def test_every_error_of_a_lesson_is_in_the_index(name):
    for cell in code_cells(read(name)):
        for output in cell.outputs:
            if output.output_type == "error":
                text = f"{output.ename}: {output.evalue}"
                explained = any(re.search(pattern, text) for pattern in SAY_THEMSELVES_WHAT_TO_DO)
                assert explained or len(index(text)), text


# One row


@each_entry
def test_a_row_is_complete_and_filled_in(entry):
    assert entry.seen
    assert entry.mistake.endswith(".")
    assert entry.cure
    assert not re.search(r"\{\w*\}", entry.cure), "a place in the cure was not filled"
    assert entry.lesson == MISTAKES[entry.slug].lesson
    assert bool(entry.gradcheck) == (entry in WHOLE.silent)


@each_entry
def test_a_row_is_words_and_no_regular_expression(entry):
    assert not re.search(r"\\[dws.(]|\.\*|\(\?", entry.seen)


# Search


@each_entry
def test_a_row_is_found_by_a_word_of_each_column(entry):
    for column in (entry.seen, entry.mistake, entry.slug, entry.lesson, entry.cure):
        assert entry in (*index(column.split()[0].upper()).loud, *index(column.split()[0].upper()).silent)


def test_all_words_must_be_there_in_any_order_and_column():
    assert index("stale-loss lbfgs 05").slugs == index("05 LBFGS stale-loss").slugs == {"stale-loss"}
    assert len(index("stale-loss banana")) == 0


def test_a_search_keeps_fewer_rows_and_changes_none():
    found = index("hessian")
    assert 0 < len(found) < len(WHOLE)
    assert set(found.loud) <= set(WHOLE.loud)
    assert set(found.silent) <= set(WHOLE.silent)


def test_a_whole_message_with_other_names_and_numbers_is_found():
    text = "RuntimeError: function SolveBackward returned an incorrect number of gradients (expected 7, got 3)"
    assert index(text).slugs == {"gradient-count"}


def test_nothing_found_is_said_and_shown():
    found = index("banana split")
    assert len(found) == 0
    assert "'banana split'" in repr(found)
    assert "banana split" in found._repr_html_()


@pytest.mark.parametrize("search", ["", "   "])
def test_without_words_all_rows_are_there(search):
    assert index(search).loud == WHOLE.loud
    assert index(search).silent == WHOLE.silent


# What it looks like


@each_entry
def test_text_and_table_hold_every_column(entry):
    text, cells = " ".join(repr(WHOLE).split()), Table(WHOLE._repr_html_()).cells
    for column in filter(None, (entry.seen, entry.slug, entry.mistake, entry.gradcheck)):
        assert column.replace("`", "") in cells
        assert " ".join(column.split()) in text.replace("non- differentiable", "non-differentiable")
    assert entry.cure in cells


def test_cure_stands_under_its_row_and_code_is_marked_as_code():
    found = index("closure-returns-none")
    (entry,) = found.loud
    assert "`return loss`" in entry.mistake
    assert Table(found._repr_html_()).cells[-1] == entry.cure
    assert ">return loss</code>." in found._repr_html_()
    assert found._repr_html_().count("<tr>") == 3


def test_brief_has_one_line_for_each_row():
    loud, silent = WHOLE.brief.split("\n\n")
    lines = [*loud.splitlines(), *silent.splitlines()]
    assert len(loud.splitlines()) == len(WHOLE.loud)
    assert [line.split()[0] for line in lines] == [entry.slug for entry in ENTRIES]
    for line, entry in zip(lines, ENTRIES, strict=True):
        slug, lesson, seen = line.split(maxsplit=2)
        assert (slug, lesson) == (entry.slug, entry.lesson)
        assert entry.seen.startswith(seen.removesuffix(" …"))
        assert len(line) <= 96


def test_table_has_a_link_for_each_lesson_that_is_here():
    links = Table(WHOLE._repr_html_()).links
    assert all((NOTEBOOKS / link).is_file() for link in links)
    written = {name[:2] for name in NAMES}
    assert {link[:2] for link in links} == {entry.lesson for entry in ENTRIES} & written
    assert len(links) == sum(entry.lesson in written for entry in ENTRIES)


def test_what_is_searched_for_cannot_become_markup():
    assert "<b>x" not in index("<b>x")._repr_html_()


def test_the_headline_counts():
    assert index("non-leaf").headline == "1 message and 0 silent symptoms for 'non-leaf'"
    assert WHOLE.headline == f"{len(WHOLE.loud)} messages and {len(WHOLE.silent)} silent symptoms"
    assert len(WHOLE) == len(ENTRIES)
