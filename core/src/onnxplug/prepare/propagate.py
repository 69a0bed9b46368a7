"""Sizes that ``onnx.shape_inference`` leaves unnamed, though they follow.

It resolves the ``-1`` of a Reshape only when every other size is a number.  A Reshape
keeps the number of elements, so sizes that both sides name cancel out:
``[N, S, 768] -> [N, ?, 12, 64]`` has ``? = S``.  With attention in a model this gives
shapes to most of what follows.
"""

from __future__ import annotations

from collections import Counter

from onnxplug.ep import Dimension
from onnxplug.graph import Graph, Node
from onnxplug.prepare.scopes import all_graphs
from onnxplug.prepare.types import GENERATED, with_sizes


def propagate_sizes(graph: Graph) -> None:
    """Replace made-up names of sizes by what follows, everywhere in *graph*."""
    found: dict[str, int | str] = {}
    graphs = list(all_graphs(graph))
    for each in graphs:
        for node in each.nodes:
            if node.op_type == "Reshape" and not node.domain:
                _cancel(each, node, found)
    if not found:
        return
    for each in graphs:
        each.types = {n: with_sizes(type, found) for n, type in each.types.items()}


def _cancel(graph: Graph, node: Node, found: dict[str, int | str]) -> None:
    """Add to *found* the one size of *node*'s output that is made up, if it follows."""
    given = _shape(graph, node.inputs[0], found)
    made = _shape(graph, node.outputs[0], found)
    if given is None or made is None or None in given:
        return
    unknown = [d for d in made if isinstance(d, str) and d.startswith(GENERATED)]
    if len(unknown) != 1 or unknown[0] in given or None in made:
        return
    rest = Counter(given)
    rest.subtract(size for size in made if size != unknown[0])
    count, divisor, names = 1, 1, []
    for size, times in rest.items():
        if isinstance(size, str):
            if times < 0:
                return
            names += [size] * times
        elif times > 0 and size is not None:
            count *= size**times
        elif size is not None:
            divisor *= size**-times
    if divisor == 0 or count % divisor:
        return
    count //= divisor
    if not names:
        found[unknown[0]] = count
    elif len(names) == 1 and count == 1:
        found[unknown[0]] = names[0]


def _shape(
    graph: Graph, name: str | None, found: dict[str, int | str]
) -> tuple[Dimension, ...] | None:
    shape = graph.value(name).shape if name else None
    if shape is None:
        return None
    return tuple(found.get(d, d) if isinstance(d, str) else d for d in shape)
