"""Nodes that compute the same become one, and so do small constants that are equal."""

from __future__ import annotations

from typing import Any, Final

from onnxplug.authoring.nodes import describe
from onnxplug.ep import SparseTensor
from onnxplug.graph import Attribute, AttributeType, Graph, Node, Weight
from onnxplug.graph.scopes import all_graphs, made_in_bodies
from onnxplug.prepare.fold import PURE_DOMAINS, is_random

SMALL: Final = 1024
"""Bytes up to which constants are compared."""


def merge_duplicates(graph: Graph) -> list[str]:
    """Merge equal constants and nodes of *graph*, and of bodies each within itself.

    Names of outputs stay, so a node that makes an output is not merged into another;
    nodes with bodies and random ones are left alone.

    Returns:
        What was merged into an equal one, described in words.
    """
    merged: list[str] = []
    for each in list(all_graphs(graph)):
        merged += _merge(each)
    return merged


def _merge(graph: Graph) -> list[str]:
    outputs = set(graph.outputs)
    inner = made_in_bodies(graph)
    fixed = outputs | inner  # names that bodies hide would not be renamed there
    renamed: dict[str, str] = {}
    merged: list[str] = []
    constants: dict[Any, str] = {}
    for name, weight in graph.constants.items():
        if weight.nbytes > SMALL or weight.size > SMALL:  # strings have no bytes
            continue
        first = constants.setdefault(_content(weight), name)
        if first != name and name not in fixed and first not in inner:
            renamed[name] = first
            merged.append(f"constant {name!r}")
    alike: dict[Any, Node | dict[Any, Node]] = {}
    kept: list[Node] = []
    twins: dict[Node, list[Node]] = {}
    for node in graph.nodes:
        key = _key(graph, node, renamed)
        twin = node if key is None else _twin(node, key, alike)
        if twin is node or not _can_replace(node, twin, fixed, inner):
            kept.append(node)
            continue
        for made, same in zip(node.outputs, twin.outputs, strict=True):
            if made is not None and same is not None:
                renamed[made] = same
        merged.append(describe(node))
        twins.setdefault(twin, []).append(node)
    for twin, others in twins.items():
        twin.made_of = (*twin.made_of, *others)
    if merged:
        graph.replace_nodes(kept)
        graph.rename(renamed)
        for name in renamed:
            graph.constants.pop(name, None)
            graph.types.pop(name, None)
    return merged


def _can_replace(node: Node, twin: Node, fixed: set[str], inner: set[str]) -> bool:
    return all(
        name is None or (other is not None and name not in fixed and other not in inner)
        for name, other in zip(node.outputs, twin.outputs, strict=True)
    )


def _twin(node: Node, key: Any, alike: dict[Any, Node | dict[Any, Node]]) -> Node:
    """The first node of the same key and attributes, which may be *node* itself.

    Args:
        alike: the first of each key; by attributes once there is a second, as trees
            have a million numbers in theirs.
    """
    found = alike.setdefault(key, node)
    if found is node:
        return node
    if not isinstance(found, dict):
        found = alike[key] = {_attributes(found): found}
    return found.setdefault(_attributes(node), node)


def _key(graph: Graph, node: Node, renamed: dict[str, str]) -> Any | None:
    """What two nodes have in common, beside attributes, that compute the same; None
    for one of a kind."""
    if node.subgraphs or is_random(graph, node) or node.domain not in PURE_DOMAINS:
        return None
    inputs = tuple(renamed.get(name, name) if name else None for name in node.inputs)
    return node.op_type, node.domain, inputs, len(node.outputs)


def _attributes(node: Node) -> Any:
    """The attributes of *node* as something that compares by content."""
    return tuple(
        (name, attribute.type, _attribute(attribute))
        for name, attribute in sorted(node.typed_attributes.items())
    )


def _attribute(attribute: Attribute) -> Any:
    """The value of *attribute* as something that compares by content."""
    value = attribute.value
    if attribute.type in (AttributeType.FLOAT, AttributeType.FLOATS):
        return repr(value)  # tells 0.0 from -0.0, and takes NaN for itself
    if isinstance(value, tuple):
        return tuple(map(_element, value))
    return _element(value)


def _element(value: Any) -> Any:
    if isinstance(value, Weight):
        return _content(value)
    if isinstance(value, SparseTensor):
        parts = (Weight.from_array(part) for part in (value.values, value.indices))
        return (*map(_content, parts), value.shape)
    return value


def _content(weight: Weight) -> Any:
    array = weight.array
    content = array.tolist() if array.dtype.hasobject else array.tobytes()
    return (
        weight.dtype,
        weight.shape,
        repr(content) if array.dtype.hasobject else content,
    )
