"""The diagrams draw what torch holds, compared with a walk of its own, and what they are told."""

import re
from collections import Counter

import numpy as np
import pytest
import torch
from matplotlib.text import Text

from helpers import Picture, diagrams


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.variable = x.detach()  # the name that torch gives to a leaf's tensor
        return 2 * x

    @staticmethod
    def backward(ctx, g):
        return 2 * g


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x * y

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        return g * y, g * x


def diamond(x):
    y = x * 2
    return y.sin() + y.cos()


def long_way_round(x):
    return x + x.sin().cos().exp()


RESULTS = {
    "a sum": lambda x, y: x.sum(),
    "a chain": lambda x, y: (x * 2).exp().sum(),
    "two leaves": lambda x, y: x + y,
    "a leaf used twice by one op": lambda x, y: x * x,
    "a leaf used by two ops": lambda x, y: x.sin() * x.cos(),
    "a diamond": lambda x, y: diamond(x),
    "one short and one long way": lambda x, y: long_way_round(x) * y,
    "a Function": lambda x, y: Double.apply(x).sum(),
    "a Function of two": lambda x, y: Product.apply(x, y).sum(),
    "a Function of one leaf twice": lambda x, y: Product.apply(x, x).sum(),
    "a Function after ops": lambda x, y: Double.apply(x * y + x).sum(),
    "one side cut": lambda x, y: (x * 2).detach() * y,
    "all cut": lambda x, y: (x * y).detach(),
    "a leaf nobody named": lambda x, y: x * torch.ones(2, requires_grad=True),
    "several outputs": lambda x, y: x.unbind()[0] * x.unbind()[1],
}
every_result = pytest.mark.parametrize("build", RESULTS.values(), ids=RESULTS)


@pytest.fixture
def leaves():
    return torch.tensor([1.0, 2.0], requires_grad=True), torch.tensor([3.0, 4.0], requires_grad=True)


def held_by_torch(tensor, names):
    """Walk the graph depth first; return the labels of its nodes and edges, counted."""
    nodes, edges = {}, set()

    def visit(node):
        if node in nodes:
            return
        if node.name() == "torch::autograd::AccumulateGrad":
            name = next((name for name, leaf in names.items() if leaf is node.variable), None)
            nodes[node] = f"{name} (leaf)" if name else "an unnamed leaf"
        else:
            nodes[node] = node.name()
        for following, _ in node.next_functions:
            if following is not None:
                edges.add((node, following))
                visit(following)

    if tensor.grad_fn is not None:
        visit(tensor.grad_fn)
    from_result = [("result", nodes[tensor.grad_fn])] if nodes else []
    return Counter(nodes.values()), Counter([(nodes[a], nodes[b]) for a, b in edges] + from_result)


def boxes(picture):
    found = re.findall(r"^  text ['\"](.*)['\"] at \((.*), (.*)\)$", picture.describe(), flags=re.MULTILINE)
    return [(words, (float(x), float(y))) for words, x, y in found]


def arrows(picture):
    return Counter(
        tuple(words.split(" → ")) for words in re.findall(r"^  arrow (.*)$", picture.describe(), re.MULTILINE)
    )


# --- graph


@every_result
def test_the_boxes_and_arrows_are_those_that_torch_holds(build, leaves):
    x, y = leaves
    result = build(x, y)
    nodes, edges = held_by_torch(result, {"x": x, "y": y})
    picture = diagrams.graph(result, x=x, y=y, title="T")
    drawn = [words for words, _ in boxes(picture) if not words.startswith("result") and "not in the graph" not in words]
    assert Counter(drawn) == nodes
    assert arrows(picture) == edges


@every_result
def test_every_box_has_a_place_of_its_own_and_all_arrows_lead_right_or_all_lead_down(build, leaves):
    x, y = leaves
    picture = diagrams.graph(build(x, y), x=x, y=y, title="T")
    places = [at for _, at in boxes(picture)]
    assert len(set(places)) == len(places)
    drawn = [(arrow.xyann, arrow.xy) for arrow in picture.figure.axes[0].texts if arrow.get_gid()]
    assert {tuple(end) for arrow in drawn for end in arrow} <= set(places)
    right, down = ([step(*arrow) for arrow in drawn] for step in (lambda a, b: b[0] - a[0], lambda a, b: a[1] - b[1]))
    assert not drawn or min(right) > 0 or min(down) > 0


@every_result
def test_every_box_lies_within_the_axes(build, leaves):
    x, y = leaves
    picture = diagrams.graph(build(x, y), x=x, y=y, title="T")
    (left, right), (bottom, top) = picture.figure.axes[0].get_xlim(), picture.figure.axes[0].get_ylim()
    assert all(left < at[0] < right and bottom < at[1] < top for _, at in boxes(picture))


@every_result
def test_a_tensor_is_said_to_be_missing_only_where_no_gradient_reaches_it(build, leaves):
    x, y = leaves
    result = build(x, y)
    summary = diagrams.graph(result, x=x, y=y, title="T").summary
    reached = torch.autograd.grad(result.sum(), [x, y], allow_unused=True) if result.requires_grad else (None, None)
    for name, gradient in zip("xy", reached, strict=True):
        apart = re.search(rf"; .*\b{name}\b.* not in the graph", summary) is not None
        assert apart == (gradient is None)


def test_a_tensor_that_is_not_in_the_graph_is_drawn_apart_without_an_arrow(leaves):
    x, y = leaves
    picture = diagrams.graph((x * 2).sum(), x=x, y=y, title="T")
    assert "y\\nnot in the graph" in dict(boxes(picture))
    assert not any("y" in ends for ends in arrows(picture))


def test_there_is_room_for_every_tensor_that_is_missing():
    apart = {name: torch.ones(2) for name in "abcde"}
    picture = diagrams.graph(torch.ones(1), title="T", **apart)
    left, right = picture.figure.axes[0].get_xlim()
    assert len(boxes(picture)) == 6
    assert all(left < at[0] < right for _, at in boxes(picture))


def test_a_cut_graph_says_that_there_is_no_grad_fn(leaves):
    x, y = leaves
    picture = diagrams.graph((x * y).detach(), x=x, y=y, title="Cut")
    assert picture.summary == "Cut: result has no grad_fn; x and y are not in the graph."
    assert "result\\nno grad_fn" in dict(boxes(picture))
    assert not arrows(picture)


def test_a_tensor_on_the_way_is_named_at_the_operation_that_made_it(leaves):
    x, _ = leaves
    middle = x * 2
    picture = diagrams.graph(middle.sum(), x=x, middle=middle, title="T")
    assert picture.summary == "T: result → SumBackward0 → middle (MulBackward0) → x (leaf)."


def test_a_leaf_with_two_names_has_both(leaves):
    x, _ = leaves
    assert "x and weight (leaf)" in diagrams.graph(x.sum(), x=x, weight=x, title="T").summary


def test_a_sentence_chains_only_what_is_a_chain(leaves):
    x, y = leaves
    assert diagrams.graph(Double.apply(x).sum(), x=x, title="T").summary == (
        "T: result → SumBackward0 → DoubleBackward → x (leaf)."
    )
    forked = diagrams.graph(x + y, x=x, y=y, title="T").summary
    assert "x (leaf) → y (leaf)" not in forked
    assert forked.endswith("down to x (leaf) and y (leaf).")


def test_a_leaf_that_is_the_result_itself_is_not_said_to_be_missing(leaves):
    x, y = leaves
    picture = diagrams.graph(x, x=x, y=y, title="T")
    assert picture.summary == "T: x is the result itself, a leaf without grad_fn; y is not in the graph."
    assert "result = x\\na leaf, no grad_fn" in dict(boxes(picture))
    assert "x and z are the result itself" in diagrams.graph(x, x=x, z=x, title="T").summary


def test_only_the_outputs_that_the_graph_uses_are_named(leaves):
    x, _ = leaves
    a, b = (x * 1).unbind()
    assert diagrams.graph(a * 2, b=b, title="T").summary.endswith("; b is not in the graph.")
    assert "→ a (UnbindBackward0) →" in diagrams.graph(a * 2, a=a, title="T").summary
    assert "→ b (UnbindBackward0) →" in diagrams.graph(b, b=b, title="T").summary
    assert "a and b (UnbindBackward0)" in str(boxes(diagrams.graph(a * b, a=a, b=b, title="T")))


def chain(x, length):
    for _ in range(length):
        x = x + x
    return x


def test_the_largest_graph_that_is_drawn_and_the_first_that_is_not(leaves):
    x, _ = leaves
    picture = diagrams.graph(chain(x, diagrams.MOST_NODES - 1), x=x, title="T")
    assert len(boxes(picture)) == diagrams.MOST_NODES + 1
    with pytest.raises(ValueError, match=f"more than {diagrams.MOST_NODES} nodes.*Draw a smaller piece"):
        diagrams.graph(chain(x, diagrams.MOST_NODES), x=x, title="T")


def test_a_huge_graph_is_refused_at_once(leaves):
    x, _ = leaves
    with pytest.raises(ValueError, match="more than"):
        diagrams.graph(chain(x, 20_000), title="T")


def test_looking_at_a_graph_leaves_it_usable(leaves):
    x, y = leaves
    result = (x * y).sum()
    diagrams.graph(result, x=x, y=y, title="T").png()
    result.backward()
    assert x.grad.tolist() == y.tolist()


@pytest.mark.parametrize("result", [1.0, np.float64(1.0), np.ones(2), None, [torch.ones(2)]], ids=str)
def test_what_is_no_tensor_has_no_graph(result):
    with pytest.raises(TypeError, match=f"result must be a tensor; got {type(result).__name__}, which has no graph"):
        diagrams.graph(result, title="T")


# --- calls


def test_calls_draws_each_chain_in_its_order():
    picture = diagrams.calls(["step", "closure", "apply"], ["backward", "engine"], title="Who calls what")
    assert picture.summary == "Who calls what: step → closure → apply; backward → engine."
    assert arrows(picture) == Counter([("step", "closure"), ("closure", "apply"), ("backward", "engine")])
    assert dict(boxes(picture)) == {
        "step": (0, 0),
        "closure": (1, 0),
        "apply": (2, 0),
        "backward": (0, -1),
        "engine": (1, -1),
    }


def test_a_note_stands_in_its_box_and_not_in_the_sentence():
    picture = diagrams.calls(["step\nof Adam", "closure"], title="T")
    assert "step\\nof Adam" in dict(boxes(picture))
    assert picture.summary == "T: step → closure."
    assert arrows(picture) == Counter([("step", "closure")])


def test_one_box_is_a_chain_without_an_arrow():
    assert not arrows(diagrams.calls(["step"], title="T"))


@pytest.mark.parametrize("chains", [[], [[]], [["a"], []]])
def test_no_chain_and_an_empty_chain_are_refused(chains):
    with pytest.raises(ValueError, match="at least one chain, with at least one box"):
        diagrams.calls(*chains, title="T")


# --- both

DRAWINGS = {
    "calls": lambda: diagrams.calls(["step\nof Adam", "closure"], ["backward"], title="T"),
    "graph": lambda: diagrams.graph(diamond(torch.ones(2, requires_grad=True)), title="T", y=torch.ones(1)),
}
every_drawing = pytest.mark.parametrize("draw", DRAWINGS.values(), ids=DRAWINGS)


@pytest.mark.parametrize(
    "change",
    [
        lambda: diagrams.calls(["step\nof Adam", "closure"], ["backward"], title="U"),
        lambda: diagrams.calls(["step\nof SGD", "closure"], ["backward"], title="T"),
        lambda: diagrams.calls(["closure", "step\nof Adam"], ["backward"], title="T"),
        lambda: diagrams.calls(["backward"], ["step\nof Adam", "closure"], title="T"),
        lambda: diagrams.calls(["step\nof Adam", "closure", "backward"], title="T"),
    ],
)
def test_one_change_changes_the_description(change):
    assert change().describe() != DRAWINGS["calls"]().describe()


@every_drawing
def test_a_drawing_is_a_picture_whose_description_and_bytes_stay(draw):
    picture = draw()
    assert isinstance(picture, Picture)
    before = picture.describe()
    assert picture.png() == picture.png()
    assert picture.describe() == before


@every_drawing
def test_all_words_can_be_read_from_the_last_row(draw):
    picture = draw()
    picture.figure.draw_without_rendering()
    texts = [text for text in picture.figure.findobj(Text) if text.get_text() and text.get_visible()]
    assert min(text.get_fontsize() for text in texts) >= 13


@every_drawing
def test_words_fit_between_the_boxes_beside_them(draw):
    picture = draw()
    picture.figure.draw_without_rendering()
    outlines = [text.get_bbox_patch().get_window_extent() for text in picture.figure.axes[0].texts if text.get_text()]
    for i, one in enumerate(outlines):
        assert not any(one.overlaps(other) for other in outlines[:i])
