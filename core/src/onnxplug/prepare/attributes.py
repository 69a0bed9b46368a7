"""Whether nodes have the attributes that their operators need, of the right types.

Whoever reads an attribute later may trust its type, and that one that is needed is
there.  Attributes that ONNX does not define are nobody's business here.
"""

from __future__ import annotations

import functools
from typing import Final

from onnxplug.authoring.nodes import describe
from onnxplug.authoring.operators import LATEST, Attributes, attributes_of
from onnxplug.errors import InvalidModel
from onnxplug.graph import AttributeType, Graph, Node
from onnxplug.graph.scopes import all_graphs

_TYPES: Final = {
    "f": AttributeType.FLOAT,
    "i": AttributeType.INT,
    "b": AttributeType.INT,
    "s": AttributeType.STRING,
    "t": AttributeType.TENSOR,
    "g": AttributeType.GRAPH,
    "x": AttributeType.SPARSE_TENSOR,
    "y": AttributeType.TYPE_PROTO,
    "F": AttributeType.FLOATS,
    "I": AttributeType.INTS,
    "S": AttributeType.STRINGS,
}


def check_attributes(graph: Graph) -> None:
    """Check the attributes of the nodes of *graph* and of bodies within.

    Raises:
        InvalidModel: an attribute is of another type than its operator's, is missing
            though the operator needs it, or refers to a function's attribute outside of
            any function.
    """
    for each in all_graphs(graph):
        for node in each.nodes:
            known = attributes_of(node.domain, node.op_type)
            if known is not None and (node.typed_attributes or known.needed):
                _check(each, node, known)


def _check(graph: Graph, node: Node, known: Attributes) -> None:
    for name, attribute in node.typed_attributes.items():
        expected = _types(known.types.get(name, ""))
        if expected and attribute.type not in expected:
            raise InvalidModel(
                f"{describe(node)} has the attribute {name!r} of type "
                f"{attribute.type.name}; expected {_in_words(expected)}"
            )
        if attribute.reference:
            raise InvalidModel(
                f"{describe(node)} has the attribute {name!r} that refers to "
                f"{attribute.reference!r} of a function, but is in no function"
            )
    for name, since, until in known.needed:
        if name in node.typed_attributes:
            continue
        if since <= (graph.opset(node.domain) or LATEST) <= until:
            raise InvalidModel(
                f"{describe(node)} lacks the attribute {name!r} of type "
                f"{_in_words(_types(known.types[name]))}, which the operator needs"
            )


@functools.cache
def _types(letters: str) -> tuple[AttributeType, ...]:
    return tuple(map(_TYPES.__getitem__, letters))


def _in_words(types: tuple[AttributeType, ...]) -> str:
    return " or ".join(type.name for type in types)
