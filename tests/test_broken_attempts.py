"""The published programs fail as published: the same code as in the lessons, by error class and message.

That the lessons hold the published code, and not something like it, is checked by a fingerprint of its tokens. It was
taken from the programs as they were published, without comments (the originals' are in Chinese).
"""

import hashlib
import io
import tokenize
import warnings

import numpy as np
import pytest
from lessons import code_cells, read, tags

PUBLISHED = {
    "plain autograd": "a9d9a915a0a82c67",
    "broken attempt": "1d257a3e475478dc",
    "answer": "2f12cdc96effade8",
}
SKIPPED = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.ENDMARKER)


def fingerprint(source):
    """Return a digest of the code's tokens, comments and line ends left out; None for a cell with a magic."""
    if source.startswith("%"):
        return None
    tokens = tokenize.generate_tokens(io.StringIO(source.rstrip() + "\n").readline)
    words = "\x00".join(token.string for token in tokens if token.type not in SKIPPED)
    return hashlib.sha256(words.encode()).hexdigest()[:16]


def published(title):
    """Return the lesson's cell that holds the published program."""
    cells = [cell for lesson in ("01", "06") for cell in code_cells(read(lesson))]
    (source,) = [cell.source for cell in cells if fingerprint(cell.source) == PUBLISHED[title]]
    return source


def run(source):
    """Run a program as its own module, with the original's global generator seeded."""
    np.random.seed(0)  # noqa: NPY002 - the published programs draw from it
    namespace = {"__name__": "published"}
    exec(compile(source, "published", "exec"), namespace)
    return namespace


@pytest.mark.parametrize("title", PUBLISHED)
def test_lessons_hold_the_published_program(title):
    assert "np.random.uniform(0.5, 1.5)" in published(title)


def test_first_program_fails_because_nothing_requires_a_gradient():
    with pytest.raises(RuntimeError, match="element 0 of tensors does not require grad and does not have a grad_fn"):
        run(published("plain autograd"))


def test_first_program_converges_once_it_requires_a_gradient():
    source = published("plain autograd").replace("requires_grad=False", "requires_grad=True")
    namespace = run(source)
    assert namespace["f"](namespace["x_tensor"]).item() < 1e-4


def test_broken_attempt_fails_with_the_message_that_misleads():
    with (
        pytest.warns(DeprecationWarning, match="should not be instantiated"),
        pytest.raises(RuntimeError, match="Legacy autograd function with non-static forward method") as caught,
    ):
        run(published("broken attempt"))
    names = [entry.name for entry in caught.traceback]
    assert names[-1] == "__call__"
    assert names[-2] == "step"
    assert "forward" not in names


def test_broken_attempt_is_static_whatever_the_message_says():
    head = published("broken attempt").split("x_tensor = ")[0]
    function = run(head)["custom_function"]
    assert isinstance(function.__dict__["forward"], staticmethod)


def test_answer_converges_and_dies_in_its_last_line(capsys):
    with pytest.raises(RuntimeError, match=r"Can't call numpy\(\) on Tensor that requires grad") as caught:
        run(published("answer"))
    assert caught.traceback[-1].lineno + 1 == len(published("answer").splitlines())
    assert capsys.readouterr().out == ""


def test_answer_converges_with_its_last_line_repaired(capsys):
    namespace = run(published("answer").replace("f(x_tensor.numpy())", "f(x_tensor.detach().numpy())"))
    assert namespace["f"](namespace["x_tensor"].detach().numpy()) < 1e-4
    assert "tensor(" in capsys.readouterr().out


REPAIRS = {
    "typo": ("g_rand(input)\n", "jac_rand(input)\n"),
    "requires_grad": ("requires_grad=False", "requires_grad=True"),
    "closure": ("optimizer.step(custom_function())", "optimizer.step(closure)"),
    "definition of the closure": (
        "for ii in range(200):",
        "def closure():\n"
        "    optimizer.zero_grad()\n"
        "    loss = custom_function.apply(x_tensor)\n"
        "    loss.backward()\n"
        "    return loss\n\n"
        "for ii in range(200):",
    ),
    "conversion forward": ("return f_rand(input)", "return torch.tensor(f_rand(input.numpy()), dtype=input.dtype)"),
    "conversion backward": ("jac_rand(input)\n", "torch.tensor(jac_rand(input.numpy()))\n"),
    "last line": ("print(x_tensor, f(x_tensor))", "end = f(x_tensor.detach().numpy())"),
}


def test_the_named_repairs_are_enough(capsys):
    source = published("broken attempt")
    for old, new in REPAIRS.values():
        assert old in source
        source = source.replace(old, new)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert run(source)["end"] < 1e-4


@pytest.mark.parametrize("left_out", ["typo", "requires_grad", "closure"])
def test_no_named_repair_can_be_left_out(left_out, capsys):
    source = published("broken attempt")
    for name, (old, new) in REPAIRS.items():
        if name != left_out and not (left_out == "typo" and name == "conversion backward"):
            source = source.replace(old, new)
    error, words = {
        "typo": (NameError, "g_rand"),
        "requires_grad": (RuntimeError, "does not require grad"),
        "closure": (RuntimeError, "Legacy autograd function"),
    }[left_out]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(error, match=words):
            run(source)


def test_lessons_tell_the_errors_of_these_programs():
    stored = [
        output.evalue
        for lesson in ("01", "06")
        for cell in code_cells(read(lesson))
        if "raises-exception" in tags(cell) and fingerprint(cell.source) in PUBLISHED.values()
        for output in cell.outputs
        if output.output_type == "error"
    ]
    assert len(stored) == 3
