"""Boxes and arrows: who calls what, and the graph that torch recorded.

:func:`calls` draws what you tell it. :func:`graph` draws what torch really holds: it walks from a tensor's ``grad_fn``
along ``next_functions`` to the leaves, and draws nothing else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text

from .picture import PALETTE, Picture, new_figure, sentence_list, styled

LEAF, NODE, PLAIN = "#cfe8f7", "#f7e3cc", "#eeeeee"
LONGEST_ROW = 4
MOST_NODES = 80


@styled
def calls(*chains: Sequence[str], title: str) -> Picture:
    r"""Draw chains of calls, one below the other.

    Parameters
    ----------
    *chains : sequences of str
        Each names the callers in order; the first calls the second, and so on. "name\nnote" adds a second line.
    title : str
        What the drawing shows.

    Returns
    -------
    Picture

    Raises
    ------
    ValueError
        If there is no chain, or an empty one.

    Examples
    --------
    >>> calls(["step", "closure", "apply"], title="Who calls what").summary
    'Who calls what: step → closure → apply.'
    """
    if not chains or not all(chains):
        raise ValueError("Name at least one chain, with at least one box in it.")
    longest = max(len(chain) for chain in chains)
    figure, axes = _board(longest, len(chains), title)
    for row, chain in enumerate(chains):
        boxes = [_box(axes, (column, -row), words, PLAIN) for column, words in enumerate(chain)]
        for caller, called in pairwise(boxes):
            _arrow(axes, caller, called)
    told = "; ".join(" → ".join(_first(words) for words in chain) for chain in chains)
    return Picture(figure, f"{title}: {told}.")


@styled
def graph(result: Any, *, title: str, **names: Any) -> Picture:
    """Draw the graph that torch recorded for a tensor.

    Parameters
    ----------
    result : torch.Tensor
        Where ``backward`` would start.
    title : str
        What the drawing shows.
    **names : torch.Tensor
        The tensors whose place in the graph you want to see, such as ``x=x``. One that is not in the graph is drawn
        apart, without an arrow. One that is the result itself is named there.

    Returns
    -------
    Picture

    Raises
    ------
    TypeError
        If ``result`` is not a tensor.
    ValueError
        If the graph has more nodes than a picture can show.

    Examples
    --------
    >>> import torch
    >>> x = torch.ones(2, requires_grad=True)
    >>> graph(x.sum(), x=x, title="A sum").summary
    'A sum: result → SumBackward0 → x (leaf).'
    >>> graph(x.detach().sum(), x=x, title="A sum, cut off").summary
    'A sum, cut off: result has no grad_fn; x is not in the graph.'
    """
    if not hasattr(result, "grad_fn"):
        raise TypeError(f"result must be a tensor; got {type(result).__name__}, which has no graph.")
    nodes, edges, outputs = _walk(result)
    followers = _followers(nodes, edges)
    layer = _layers(nodes, followers)
    columns = max(layer.values(), default=-1) + 2
    lane = _lanes(nodes, followers)
    rows = max(lane.values(), default=0) + 1
    label = {node: _node_name(node, names, outputs) for node in nodes}
    itself = [] if nodes else [name for name, tensor in names.items() if tensor is result]
    missing = [
        name
        for name, tensor in names.items()
        if name not in itself and not any(_made_by(node, tensor, outputs) for node in nodes)
    ]

    # A long graph leads down the page rather than out of it.
    downward = columns > LONGEST_ROW
    across, along = rows + (1 if missing else 0), max(2, columns, len(missing))
    figure, axes = _board(across, along, title) if downward else _board(along, across, title)

    def place(column: int, row: int) -> tuple[float, float]:
        return (row, -column) if downward else (column, -row)

    alone = f"result = {sentence_list(itself)}\na leaf, no grad_fn" if itself else "result\nno grad_fn"
    root = _box(axes, place(0, 0), "result" if nodes else alone, PLAIN)
    boxes: dict[Any, Text] = {}
    for node in nodes:
        at = place(layer[node] + 1, lane[node])
        boxes[node] = _box(axes, at, label[node], LEAF if _is_leaf(node) else NODE)
    if nodes:
        _arrow(axes, root, boxes[nodes[0]])
    for here, there in edges:
        _arrow(axes, boxes[here], boxes[there])
    for column, name in enumerate(missing):
        _box(axes, place(column, rows), f"{name}\nnot in the graph", "white")
    return Picture(figure, f"{title}: {_told(nodes, edges, label, itself)}{_apart(missing)}.")


def _walk(result: Any) -> tuple[list[Any], list[tuple[Any, Any]], set[tuple[Any, int]]]:
    """Return every node that can be reached from the result, once, every edge between them, and the outputs used."""
    outputs = set() if result.grad_fn is None else {(result.grad_fn, result.output_nr)}
    nodes = [node for node, _ in outputs]
    edges: dict[tuple[Any, Any], None] = {}
    known = set(nodes)
    for node in nodes:
        for following, number in node.next_functions:
            if following is None:
                continue
            edges[node, following] = None
            outputs.add((following, number))
            if following not in known:
                known.add(following)
                nodes.append(following)
        if len(nodes) > MOST_NODES:
            raise ValueError(
                f"The graph has more than {MOST_NODES} nodes, too many for a picture. "
                "Draw a smaller piece, such as one layer or one step of the loop, on a detached input."
            )
    return nodes, list(edges), outputs


def _followers(nodes: list[Any], edges: list[tuple[Any, Any]]) -> dict[Any, list[Any]]:
    """Return for each node the nodes that its arrows lead to."""
    followers: dict[Any, list[Any]] = {node: [] for node in nodes}
    for here, there in edges:
        followers[here].append(there)
    return followers


def _layers(nodes: list[Any], followers: dict[Any, list[Any]]) -> dict[Any, int]:
    """Return the length of the longest way from the root to each node, so that every arrow points right."""
    arriving = Counter(there for theirs in followers.values() for there in theirs)
    layer, ready = dict.fromkeys(nodes, 0), nodes[:1]
    for here in ready:  # grows by each node whose last arrow has been followed
        for there in followers[here]:
            layer[there] = max(layer[there], layer[here] + 1)
            arriving[there] -= 1
            if not arriving[there]:
                ready.append(there)
    return layer


def _lanes(nodes: list[Any], followers: dict[Any, list[Any]]) -> dict[Any, int]:
    """Return a lane for each node: its first follower goes on in it, every other one opens a new lane.

    So a long arrow runs along its own lane, where no box stands in its way.
    """
    lanes: dict[Any, int] = {}
    waiting: list[tuple[Any, int | None]] = [(node, 0) for node in nodes[:1]]
    while waiting:
        node, lane = waiting.pop()
        if node in lanes:
            continue
        lanes[node] = max(lanes.values(), default=-1) + 1 if lane is None else lane
        first, *others = followers[node] or [None]
        waiting += [(other, None) for other in reversed(others)]
        if first is not None:
            waiting.append((first, lanes[node]))
    return lanes


def _is_leaf(node: Any) -> bool:
    return type(node).__name__ == "AccumulateGrad"  # a Function's own ctx could have any attribute


def _made_by(node: Any, tensor: Any, outputs: set[tuple[Any, int]]) -> bool:
    """Say whether a tensor is this leaf, or one of the outputs of this operation that the graph uses."""
    if _is_leaf(node):
        return node.variable is tensor
    return getattr(tensor, "grad_fn", None) is node and (node, tensor.output_nr) in outputs


def _node_name(node: Any, names: dict[str, Any], outputs: set[tuple[Any, int]]) -> str:
    known = sentence_list([name for name, tensor in names.items() if _made_by(node, tensor, outputs)])
    if _is_leaf(node):
        return f"{known} (leaf)" if known else "an unnamed leaf"
    operation = str(node.name()).removeprefix("torch::autograd::")
    return f"{known} ({operation})" if known else operation


def _told(nodes: list[Any], edges: list[tuple[Any, Any]], label: dict[Any, str], itself: list[str]) -> str:
    if itself:
        return (
            f"{sentence_list(itself)} {'is' if len(itself) == 1 else 'are'} the result itself, a leaf without grad_fn"
        )
    if not nodes:
        return "result has no grad_fn"
    if edges == list(pairwise(nodes)):  # a chain
        return " → ".join(["result", *(label[node] for node in nodes)])
    leaves = sentence_list([label[node] for node in nodes if _is_leaf(node)])
    return f"result → {label[nodes[0]]} → {len(nodes)} nodes in all, down to {leaves}"


def _apart(missing: list[str]) -> str:
    return f"; {sentence_list(missing)} {'is' if len(missing) == 1 else 'are'} not in the graph" if missing else ""


def _board(columns: int, rows: int, title: str) -> tuple[Figure, Axes]:
    figure = new_figure(width=2.4 * columns, height=1.1 * rows + 0.6)
    axes = figure.axes[0]
    axes.set_axis_off()
    axes.set(xlim=(-0.5, columns - 0.5), ylim=(-rows + 0.5, 0.5))
    axes.set_title(title)
    return figure, axes


def _box(axes: Axes, at: tuple[float, float], words: str, colour: str) -> Text:
    style = {"boxstyle": "round,pad=0.45", "facecolor": colour, "edgecolor": PALETTE["black"], "linewidth": 1.2}
    return axes.text(*at, words, ha="center", va="center", bbox=style)


def _arrow(axes: Axes, here: Text, there: Text) -> None:
    style = {
        "arrowstyle": "-|>",
        "mutation_scale": 18,
        "color": PALETTE["black"],
        "linewidth": 1.6,
        "shrinkA": 2,
        "shrinkB": 2,
        "patchA": here.get_bbox_patch(),
        "patchB": there.get_bbox_patch(),
    }
    # Above the boxes' zorder: their outlines are placed when they are drawn, and the arrow is cut at them.
    arrow = axes.annotate("", xy=there.get_position(), xytext=here.get_position(), arrowprops=style, zorder=4)
    arrow.set_gid(f"{_first(here.get_text())} → {_first(there.get_text())}")


def _first(words: str) -> str:
    return words.split("\n")[0]
