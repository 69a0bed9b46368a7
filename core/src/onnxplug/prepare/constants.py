"""``Constant`` nodes become constants of their graph.

Source: operator ``Constant``, versions 1 to 25.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from onnxplug.authoring.nodes import describe
from onnxplug.ep import DataType, TensorType
from onnxplug.errors import InvalidModel
from onnxplug.graph import Graph, Node, Weight
from onnxplug.graph.graph import densify
from onnxplug.graph.scopes import all_graphs

_DTYPES: Final = {
    "value_float": DataType.FLOAT32,
    "value_floats": DataType.FLOAT32,
    "value_int": DataType.INT64,
    "value_ints": DataType.INT64,
    "value_string": DataType.STRING,
    "value_strings": DataType.STRING,
}


def lift_constants(graph: Graph) -> list[str]:
    """Replace the ``Constant`` nodes of *graph* and of bodies within.

    An output that a ``Constant`` made stays an output, and is a constant.

    Returns:
        Names of the values lifted.

    Raises:
        InvalidModel: a node has not exactly one value, or its type contradicts the
            type that the graph declares.
    """
    lifted: list[str] = []
    for each in all_graphs(graph):
        nodes = [node for node in each.nodes if not _is_constant(node)]
        if len(nodes) == len(each.nodes):
            continue
        for node in each.nodes:
            if _is_constant(node):
                for name in filter(None, node.outputs):
                    make_constant(each, name, _weight(node))
                    lifted.append(name)
        each.replace_nodes(nodes)
    return lifted


def make_constant(graph: Graph, name: str, weight: Weight) -> None:
    """Let *name* of *graph* be a constant, if that does not contradict its type.

    Raises:
        InvalidModel: the graph declares another element type.
    """
    declared = graph.types.get(name)
    if isinstance(declared, TensorType) and declared.dtype not in (None, weight.dtype):
        raise InvalidModel(
            f"{name!r} of graph {graph.name!r} is declared as {declared.dtype}, but "
            f"is the constant {weight}"
        )
    graph.add_constant(name, weight)


def _is_constant(node: Node) -> bool:
    return node.op_type == "Constant" and not node.domain


def _weight(node: Node) -> Weight:
    found = [name for name in node.typed_attributes if name.startswith(("value", "sp"))]
    if len(found) != 1:
        raise InvalidModel(
            f"{describe(node)} sets {found or 'no value'}; it must set exactly one of "
            f"value, sparse_value, {', '.join(_DTYPES)}"
        )
    name = found[0]
    value: Any = node.typed_attributes[name].value
    if name == "value" and isinstance(value, Weight):
        return value
    if name == "sparse_value":
        return Weight.from_array(densify(value))
    if name in _DTYPES:
        return Weight.from_array(np.array(value, _DTYPES[name].numpy))
    raise InvalidModel(f"{describe(node)}: the attribute {name!r} holds no tensor")
