"""Operators on images get a form with their channels last, between two Transposes.

Whether an EP takes that form is asked before the Transposes are moved, so that what it
does not take can be exactly what it was.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final

import numpy as np

from onnxplug.authoring.record import Record
from onnxplug.ep import TensorType
from onnxplug.graph import Attribute, AttributeType, Graph, Node, Weight
from onnxplug.graph.scopes import Names, all_graphs, outermost
from onnxplug.layout import (
    NHWC_DOMAIN,
    NHWC_OPERATORS,
    OLDEST,
    PER_AXIS,
    channels_first,
    channels_last,
    permuted,
)


class Converted(Record):
    """A node and what stands for it.

    Attributes:
        original: with channels first.
        before: transposes its first input.
        node: with channels last.
        after: transposes its output.
    """

    original: Node
    before: Node
    node: Node
    after: Node


def convert(graph: Graph, nodes: Iterable[Node]) -> list[Converted]:
    """Replace those of *nodes* that have a form with channels last by it."""
    names = Names(graph)
    found = {
        node: _converted(graph, node, names) for node in nodes if _has_form(graph, node)
    }
    if found:
        new: list[Node] = []
        for node in graph.nodes:
            converted = found.get(node)
            new += [node] if converted is None else converted[1:]
        graph.replace_nodes(new)
        for each in all_graphs(outermost(graph)):
            each.opset_imports.setdefault(NHWC_DOMAIN, graph.opset())
    return list(found.values())


def revert(graph: Graph, converted: Collection[Converted]) -> None:
    """Let the nodes of *converted* be what they were."""
    back = {each.node: each.original for each in converted}
    gone = {node for each in converted for node in (each.before, each.after)}
    for each in converted:
        for node in (each.before, each.node):
            for name in filter(None, node.outputs):
                graph.types.pop(name, None)
    graph.replace_nodes(
        [back.get(node, node) for node in graph.nodes if node not in gone]
    )


_SPATIAL: Final = {"DepthToSpace": (4,), "SpaceToDepth": (4,), "GridSample": (4, 5)}
"""The ranks of operators that do not take all from 3 on."""


def _has_form(graph: Graph, node: Node) -> bool:
    if node.domain or node.op_type not in NHWC_OPERATORS:
        return False
    if graph.opset() < OLDEST.get(node.op_type, 7) or any(node.outputs[1:]):
        return False
    if not node.inputs or not node.inputs[0] or not node.outputs[0]:
        return False
    shape = graph.value(node.inputs[0]).shape
    made = graph.value(node.outputs[0]).shape
    if shape is None or made is None or len(made) != len(shape):
        return False
    if len(shape) < 3 or len(shape) not in _SPATIAL.get(node.op_type, (len(shape),)):
        return False
    if node.op_type == "BatchNormalization":
        return not node.attributes.get("training_mode", 0)
    return node.op_type != "Resize" or _keeps_channels(graph, node)


def _keeps_channels(graph: Graph, node: Node) -> bool:
    """Whether a Resize leaves batch and channels as they are, by constants."""
    attributes = node.attributes
    if (
        "axes" in attributes
        or attributes.get("coordinate_transformation_mode") == "tf_crop_and_resize"
    ):
        return False
    if attributes.get("keep_aspect_ratio_policy", "stretch") != "stretch":
        return False
    inputs = (*node.inputs, *[None] * (4 - len(node.inputs)))
    shape = graph.value(inputs[0] or "").shape or ()
    given = [graph.constant(name) if name else None for name in inputs[1:4]]
    for name, constant in zip(inputs[1:4], given, strict=True):
        if name and constant is None:
            return False
    _, scales, sizes = given
    if sizes is not None and sizes.size:
        return sizes.size == len(shape) and sizes[:2].tolist() == list(shape[:2])
    return (
        scales is not None
        and scales.size == len(shape)
        and scales[:2].tolist() == [1, 1]
    )


def _converted(graph: Graph, node: Node, names: Names) -> Converted:
    source, target = node.inputs[0], node.outputs[0]
    assert source is not None and target is not None
    given, made = graph.value(source), graph.value(target)
    assert given.shape is not None and made.shape is not None
    rank = len(given.shape)
    read, written = names.fresh(f"{source}_nhwc"), names.fresh(f"{target}_nhwc")
    last = channels_last(rank)
    graph.types[read] = TensorType(given.dtype, permuted(given.shape, last))
    graph.types[written] = TensorType(made.dtype, permuted(made.shape, last))
    inputs = [read, *node.inputs[1:]]
    for position in PER_AXIS.get(node.op_type, ()):
        name = inputs[position] if position < len(inputs) else None
        if name is not None:
            inputs[position] = _per_axis(graph, name, last, names)
    converted = Node(
        node.op_type,
        tuple(inputs),
        (written,),
        node.typed_attributes,
        domain=NHWC_DOMAIN,
        name=node.name,
        made_of=(node,),
    )
    return Converted(
        node,
        transpose(source, read, last),
        converted,
        transpose(written, target, channels_first(rank)),
    )


def _per_axis(graph: Graph, name: str, perm: Sequence[int], names: Names) -> str:
    """The constant *name*, which has a number for each axis, in the order of *perm*."""
    content = graph.constant(name)
    assert content is not None
    if not content.size:  # it stands for one that is left out
        return name
    fresh = names.fresh(f"{name}_nhwc")
    graph.add_constant(fresh, Weight.from_array(np.array(content[list(perm)])))
    return fresh


def transpose(source: str, target: str, perm: Sequence[int]) -> Node:
    """The node that makes *target* of *source*."""
    attribute = Attribute(AttributeType.INTS, tuple(perm))
    return Node("Transpose", (source,), (target,), {"perm": attribute}, name=target)
