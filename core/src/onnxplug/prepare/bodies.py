"""Whether the bodies of control flow take and give as many values as their nodes.

Source: ``If``, ``Loop``, ``Scan`` and ``SequenceMap`` of the ONNX specification.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from onnxplug.authoring.nodes import describe
from onnxplug.errors import InvalidModel
from onnxplug.graph import Graph, Node
from onnxplug.graph.scopes import all_graphs


def check_bodies(graph: Graph) -> None:
    """Check the nodes with bodies in *graph* and in bodies within.

    Raises:
        InvalidModel: a body has another number of inputs or outputs than its node
            needs, or an attribute is not of as many values as there are.
    """
    for each in all_graphs(graph):
        for node in each.nodes:
            check = None if node.domain else _CHECKS.get(node.op_type)
            if check is not None:
                check(node)


def _if(node: Node) -> None:
    for name, body in node.subgraphs.items():
        _check_body(node, name, body, 0, len(node.outputs))


def _loop(node: Node) -> None:
    states = max(len(node.inputs) - 2, 0)
    body = node.subgraphs["body"]
    outputs = 1 + max(states, len(node.outputs))
    _check_body(node, "body", body, 2 + states, outputs)


def _scan(node: Node) -> None:
    # Scan-8 has an input of lengths before all others
    lead = 1 if node.graph is not None and node.graph.opset() < 9 else 0
    given = len(node.inputs) - lead
    count = node.attributes["num_scan_inputs"]
    if not 0 < count <= given:
        raise InvalidModel(
            f"{describe(node)} has num_scan_inputs {count}, and {given} inputs to scan "
            "or to begin with; expected 1 or more of these"
        )
    body = node.subgraphs["body"]
    states = given - count
    _check_body(node, "body", body, given, max(states, len(node.outputs)))
    scanned = len(body.outputs) - states
    for name, expected in (
        ("directions", count),
        ("scan_input_axes", count),
        ("scan_input_directions", count),
        ("scan_output_axes", scanned),
        ("scan_output_directions", scanned),
    ):
        values = node.attributes.get(name)
        if values and len(values) != expected:
            raise InvalidModel(
                f"{describe(node)} has {len(values)} values in {name}; expected "
                f"{expected}, one for each tensor"
            )


def _sequence_map(node: Node) -> None:
    body = node.subgraphs["body"]
    _check_body(node, "body", body, len(node.inputs), len(node.outputs))


def _check_body(node: Node, name: str, body: Graph, inputs: int, outputs: int) -> None:
    least = len(body.inputs)
    if not least <= inputs <= least + len(body.defaults):
        raise InvalidModel(
            f"{describe(node)}: its {name} has {least} inputs; expected {inputs}"
        )
    if len(body.outputs) < outputs:
        raise InvalidModel(
            f"{describe(node)}: its {name} has {len(body.outputs)} outputs; expected "
            f"{outputs}"
        )


_CHECKS: Final[dict[str, Callable[[Node], None]]] = {
    "If": _if,
    "Loop": _loop,
    "Scan": _scan,
    "SequenceMap": _sequence_map,
}
