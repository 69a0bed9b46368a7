"""A model's nodes in an order in which they can run, and what is between them."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from itertools import accumulate

import onnx


def bodies(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """The graphs that are attributes of *node*."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def used(node: onnx.NodeProto) -> set[str]:
    """The values that *node* uses, and its bodies from around them."""
    names = {name for name in node.input if name}
    for body in bodies(node):
        names |= _used_from_outside(body)
    return names


def _used_from_outside(graph: onnx.GraphProto) -> set[str]:
    names = {value.name for value in graph.output}
    own = {value.name for value in graph.input}
    own |= {tensor.name for tensor in graph.initializer}
    own |= {sparse.values.name for sparse in graph.sparse_initializer}
    for node in graph.node:
        names |= used(node)
        own.update(node.output)
    return names - own


class Steps:
    """The nodes on which some values depend, each after those on which it depends.

    Constants are no steps: they are the same for all.  A *frontier* is all that the
    steps before a position make and those from there on use, or that is a target: if
    two runs agree on a frontier, steps after it begin with the same.

    Args:
        graph: the model's.
        targets: values of it.
    """

    def __init__(self, graph: onnx.GraphProto, targets: Collection[str]) -> None:
        self._targets = frozenset(targets)
        self.constants = [node for node in graph.node if is_constant(node)]
        nodes = [node for node in graph.node if not is_constant(node)]
        self.nodes = _in_order(nodes, self._targets)
        self._made = {
            name: index for index, node in enumerate(self.nodes) for name in node.output
        }
        self._last_use: dict[str, int] = {}
        for index, node in enumerate(self.nodes):
            for name in used(node) & self._made.keys():
                self._last_use[name] = index
        for name in self._targets & self._made.keys():
            self._last_use[name] = len(self.nodes)
        self.widths = self._widths()

    def _widths(self) -> list[int]:
        """How many values the frontier at each position has."""
        changes = [0] * (len(self.nodes) + 2)
        for name, last in self._last_use.items():
            changes[self._made[name] + 1] += 1
            changes[last + 1] -= 1
        return list(accumulate(changes))[:-1]

    def frontier(self, position: int) -> list[str]:
        """What is made before *position*, and used from there on."""
        return [
            name
            for name, last in self._last_use.items()
            if self._made[name] < position <= last
        ]

    def leading_to(
        self, start: int, stop: int, values: Collection[str]
    ) -> list[onnx.NodeProto]:
        """Of the steps from *start* to *stop*, those on which *values* depend."""
        wanted = set(values)
        kept = []
        for node in reversed(self.nodes[start:stop]):
            if wanted.intersection(node.output):
                kept.append(node)
                wanted |= used(node)
        return kept[::-1]


def is_constant(node: onnx.NodeProto) -> bool:
    """Whether *node* is ONNX's ``Constant``."""
    return node.op_type == "Constant" and node.domain in ("", "ai.onnx")


def _in_order(
    nodes: Sequence[onnx.NodeProto], targets: Collection[str]
) -> list[onnx.NodeProto]:
    """Of *nodes* those that lead to *targets*, in the model's order if that will do."""
    makers = {name: i for i, node in enumerate(nodes) for name in node.output if name}
    before: dict[int, set[int]] = {}
    open_ = [makers[name] for name in targets if name in makers]
    while open_:
        index = open_.pop()
        if index not in before:
            names = used(nodes[index])
            before[index] = {makers[name] for name in names if name in makers}
            open_ += before[index]
    after = defaultdict[int, list[int]](list)
    for index, others in before.items():
        for other in others:
            after[other].append(index)
    missing = {index: len(others) for index, others in before.items()}
    ready = [index for index, count in missing.items() if not count]
    heapq.heapify(ready)
    order = []
    while ready:
        index = heapq.heappop(ready)
        order.append(nodes[index])
        for other in after[index]:
            missing[other] -= 1
            if not missing[other]:
                heapq.heappush(ready, other)
    return order
