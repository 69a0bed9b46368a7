"""Element types and shapes of values that the model does not state.

They follow by the rules of :mod:`~onnxplug.shapes`, which every operator of
ONNX has.  ``onnx.shape_inference`` is not asked: it ends the process for some graphs
that have operators or sizes that it does not know.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping

from onnxplug.authoring.bounds import MOST_ELEMENTS
from onnxplug.errors import OptionError
from onnxplug.graph import Graph
from onnxplug.graph.scopes import all_graphs
from onnxplug.prepare.agreement import check_agreement
from onnxplug.shapes.inference import infer_symbolically
from onnxplug.shapes.stated import (
    has_sizes,
    names_of_sizes,
    with_sizes,
)


def infer_types(graph: Graph, *, every_size: bool = False) -> list[str]:
    """Complete ``Graph.types`` of *graph* and of bodies within.

    Args:
        graph: a main graph.
        every_size: infer also when sizes are known by no more than names that were
            made up before.

    Returns:
        Names of the values of which more is known now.

    Raises:
        InvalidModel: an operator cannot take what it is given, has attributes or
            constants with which it cannot run, or a value is declared with another
            element type than it gets.
    """
    graphs = list(all_graphs(graph))
    if _is_complete(graphs, made_up=not every_size):
        return []
    before = [each.types for each in graphs]
    for each in graphs:
        each.types = dict(each.types)
    infer_symbolically(graph)
    check_agreement(graph)
    return [
        name
        for each, old in zip(graphs, before, strict=True)
        for name, type in each.types.items()
        if type != old.get(name)
    ]


def _is_complete(graphs: Iterable[Graph], *, made_up: bool) -> bool:
    return all(
        has_sizes(each.types.get(name), made_up=made_up)
        for each in graphs
        for node in each.nodes
        for name in node.outputs
        if name
    )


def fix_free_dimensions(graph: Graph, sizes: Mapping[str, int]) -> None:
    """Put *sizes* in place of the names of dimensions, in bodies too.

    Raises:
        OptionError: a name is not in the model, or a size is beyond int64.
    """
    graphs = list(all_graphs(graph))
    known = {
        name: None
        for each in graphs
        for type in each.types.values()
        for name in names_of_sizes(type)
    }
    for name in sizes:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise OptionError(
                f"the model has no free dimension {name!r}{hint}; "
                f"it has {', '.join(map(repr, known)) or 'none'}"
            )
        if sizes[name] > MOST_ELEMENTS:
            raise OptionError(
                f"dimension {name!r} is given size {sizes[name]}; expected "
                f"{MOST_ELEMENTS} at most"
            )
    for each in graphs:
        each.types = {n: with_sizes(type, sizes) for n, type in each.types.items()}
