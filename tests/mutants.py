"""A pytest plugin for tests/test_mutations.py: after each cell, would a change in what is stored have been seen?

Each part of each stored output is changed in turn, and the change is put before the two that judge a cell: nbval's own
comparison, with the outputs that it has just computed, and the guards of ``conftest.py``. What neither sees survives.
"""

import copy
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from nbval.plugin import coalesce_streams

REPORT = "MUTANTS_REPORT"
NO_PICTURE = (  # one white pixel
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4//8/AAX+Av4N70a4AAAAAElFTkSuQmCC"
)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Any:
    """Judge every mutant of the cell once the cell itself has passed."""
    result = yield
    cell = getattr(item, "cell", None)
    if cell is not None and "nbval-ignore-output" not in cell.metadata.get("tags", []):
        found = [(what, is_seen(item, outputs)) for what, outputs in mutants(cell.outputs)]
        with Path(os.environ[REPORT]).open("a", encoding="utf-8") as report:
            report.writelines(json.dumps([item.name, what, seen]) + "\n" for what, seen in found)
    return result


def is_seen(item: Any, outputs: list[Any]) -> bool:
    """Say whether nbval or a guard would turn the cell red if these outputs were stored."""
    import conftest

    if not item.compare_outputs(item.test_outputs, coalesce_streams(outputs)):
        return True
    must_raise = "raises-exception" in item.cell.metadata.get("tags", [])
    try:
        return any(True for _ in conftest.faults(outputs, item.test_outputs, must_raise=must_raise))
    except ValueError:  # another number of pictures
        return True


def mutants(outputs: list[Any]) -> Iterator[tuple[str, list[Any]]]:
    """Yield every single change: in words a digit, a word, a line; the picture; an output that is gone."""
    for place, output in enumerate(outputs):
        for key, words in texts(output):
            for how, change in (("digit", change_digit), ("word", change_word), ("line", drop_line)):
                changed = change(words)
                if changed is not None and changed != words:
                    yield f"output {place}, {key}: {how}", replaced(outputs, place, key, changed)
        if "image/png" in output.get("data", {}):
            yield f"output {place}: picture", replaced(outputs, place, "image/png", NO_PICTURE)
        yield f"output {place}: gone", [other for other in outputs if other is not output]


def texts(output: Any) -> Iterator[tuple[str, str]]:
    """Yield the words that a reader sees in an output, with the place where they are stored."""
    for key in ("text", "evalue", "ename"):
        if key in output:
            yield key, output[key]
    for kind, words in output.get("data", {}).items():
        if kind.startswith("text/"):
            yield kind, words
    for number, entry in enumerate(output.get("traceback", [])):
        plain = re.sub(r"\x1b\[[\d;]*m", "", entry)
        if plain.startswith("Cell In") or number == len(output["traceback"]) - 1:
            yield f"traceback {number}", plain


def replaced(outputs: list[Any], place: int, key: str, value: str) -> list[Any]:
    """Return the outputs with one part of one of them replaced."""
    outputs = copy.deepcopy(outputs)
    if key.startswith("traceback "):
        outputs[place]["traceback"][int(key.split()[1])] = value
    elif key in outputs[place]:
        outputs[place][key] = value
    else:
        outputs[place]["data"][key] = value
    return outputs


def change_digit(words: str) -> str | None:
    """Return words with their last digit changed; an address is no number, and a cell's number no output."""
    if words.startswith("Cell In"):
        return None
    places = [match.start() for match in re.finditer(r"\d", words.replace("0xADDRESS", "_" * 9))]
    if not places:
        return None
    return f"{words[: places[-1]]}{(int(words[places[-1]]) + 1) % 10}{words[places[-1] + 1 :]}"


def change_word(words: str) -> str | None:
    """Return words with their longest word spelled backwards; of a traceback's entry, of the line it points to."""
    pointed = re.findall(r"^-+> .*", words, re.MULTILINE)
    found = re.findall(r"[A-Za-z]{3,}", (pointed[0] if pointed else words).replace("ADDRESS", ""))
    if not found:
        return None
    longest = max(found, key=len)
    return words.replace(longest, longest[::-1] + "x")


def drop_line(words: str) -> str | None:
    """Return words without their last line, or None if they have only one; a traceback's entry shows what surrounds."""
    lines = words.splitlines()
    return "\n".join(lines[:-1]) if len(lines) > 1 and not words.startswith("Cell In") else None
