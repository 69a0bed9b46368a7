"""A partition of which only what restores it is there; see ``ep.Restorable``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from onnxplug.ep.graph import ValueInfo
from onnxplug.ep.types import TensorType
from onnxplug.session.start.plain import (
    attribute_of,
    plain_attribute,
    plain_type,
    type_of,
)

if TYPE_CHECKING:
    from onnxplug.ep import ValueType, WeightSource
    from onnxplug.graph import Weight
    from onnxplug.partition import GraphPartition
    from onnxplug.session.start.weights import KeptWeights


class KeptNode:
    """A node of an operator without bodies; attributes as of
    :class:`onnxplug.ep.Node`, but for nodes that are not whole: these have an index."""

    captures: tuple[str, ...] = ()
    subgraphs: Mapping[str, Any] = MappingProxyType({})

    op_type: str
    domain: str
    since_version: int
    name: str
    inputs: tuple[str | None, ...]
    outputs: tuple[str | None, ...]
    attributes: Mapping[str, Any]

    def __init__(self, index: int) -> None:
        self.index = index


class _Opsets:
    """What is there of the graph."""

    parent = None

    def __init__(self, partition: KeptPartition, opsets: Mapping[str, int]) -> None:
        self._opsets = opsets
        self.value = partition.value
        self.constant = partition.constant

    def opset(self, domain: str = "") -> int:
        return self._opsets.get(domain, 0)


class KeptPartition:
    """A partition as an EP restores it.

    Args:
        plain: what :func:`plain_partition` gave.
        weights: its constants.
    """

    label = ""
    covers_model = True
    cancelled = False

    def __init__(self, plain: tuple[Any, ...], weights: KeptWeights) -> None:
        inputs, outputs, indices, nodes, types, opsets = plain
        self.inputs: tuple[str, ...] = inputs
        self.outputs: tuple[str, ...] = outputs
        self.graph: Any = _Opsets(self, opsets)
        whole = dict(nodes)
        self.nodes = tuple(
            [
                _node(index, whole[place]) if place in whole else KeptNode(index)
                for place, index in enumerate(indices)
            ]
        )
        self._types = types
        self._known: dict[str, ValueType | None] = {}
        self._weights = weights

    def value(self, name: str) -> ValueInfo:
        """What is known of *name*.

        Raises:
            KeyError: it was not kept.
        """
        weight = self._weights.get(name)
        if weight is not None:
            type = TensorType(weight.dtype, weight.shape)
            return ValueInfo(name=name, type=type, is_constant=True)
        return ValueInfo(name=name, type=self._type(name))

    def _type(self, name: str) -> ValueType | None:
        if name not in self._known:
            self._known[name] = type_of(self._types[name])
        return self._known[name]

    def constant(self, name: str) -> Any | None:
        """The content of a constant; ``None`` if *name* is none."""
        weight = self._weights.get(name)
        return None if weight is None else weight.array

    def weight(self, name: str) -> WeightSource | None:
        """Where the bytes of a constant are from, if that can be said."""
        weight = self._weights.get(name)
        return None if weight is None else weight.source()

    def infer(self, node: Any, inputs: Sequence[Any]) -> Sequence[Any]:
        """Nothing follows: rules need graphs."""
        return ()


_FACTS: Final = ("op_type", "domain", "since_version", "name", "inputs", "outputs")


def _node(index: int, plain: tuple[Any, ...]) -> KeptNode:
    node = KeptNode(index)
    *facts, attributes = plain
    vars(node).update(zip(_FACTS, facts, strict=True))
    node.attributes = {name: attribute_of(value) for name, value in attributes}
    return node


def plain_partition(
    partition: GraphPartition, whole: Sequence[int]
) -> tuple[tuple[Any, ...], dict[str, Weight]]:
    """*partition* as plain values, and its constants.

    Args:
        whole: positions of the nodes that are wanted whole.

    Raises:
        TypeError: one of these has what no plain value stands for, such as a body.
    """
    graph = partition.graph
    nodes: list[tuple[int, tuple[Any, ...]]] = []
    named = dict.fromkeys((*partition.inputs, *partition.outputs))
    for place in sorted(whole):
        node = partition.nodes[place]
        attributes = [
            (name, plain_attribute(value)) for name, value in node.attributes.items()
        ]
        facts = [getattr(node, fact) for fact in _FACTS]
        nodes.append((place, (*facts, attributes)))
        named |= dict.fromkeys(filter(None, (*node.inputs, *node.outputs)))
    constants: dict[str, Weight] = {}
    for node in partition.nodes:
        for name in filter(None, node.inputs):
            weight = graph.weight(name)
            if weight is not None:
                constants[name] = weight
    types = {
        name: plain_type(partition.value(name).type)
        for name in named
        if name not in constants
    }
    indices = tuple([node.index for node in partition.nodes])
    plain = partition.inputs, partition.outputs, indices, nodes, types
    return (*plain, dict(graph.opset_imports)), constants
