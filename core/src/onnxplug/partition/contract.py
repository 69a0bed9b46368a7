"""The graph with groups of nodes contracted to one, kept free of cycles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnxplug.graph import Graph


class Contraction:
    """Nodes and contracted groups, as a graph of their own.

    A group stands under the number of its first node.  Two groups that are convex one
    by one can still wait for each other; so each contraction is judged in the graph
    that the earlier ones have left.
    """

    def __init__(self, graph: Graph) -> None:
        self.group = list(range(len(graph.nodes)))
        self.members: dict[int, list[int]] = {n: [n] for n in self.group}
        self.successors: dict[int, set[int]] = {n: set() for n in self.group}
        producers = {
            name: node.index for node in graph.nodes for name in node.outputs if name
        }
        for node in graph.nodes:
            for name in (*node.inputs, *node.captures):
                source = producers.get(name) if name else None
                if source is not None:
                    self.successors[source].add(node.index)

    def contract(self, nodes: Sequence[int]) -> bool:
        """Make one group of *nodes*, each still alone; ``False`` if it closes a cycle.

        Source: a set of nodes is convex when no path leaves it and returns.
        """
        members = set(nodes)
        outside = {
            successor
            for node in members
            for successor in self.successors[node]
            if successor not in members
        }
        seen = set(outside)
        stack = list(outside)
        while stack:
            for successor in self.successors[stack.pop()]:
                if successor in members:
                    return False
                if successor not in seen:
                    seen.add(successor)
                    stack.append(successor)
        first = min(members)
        for node in members - {first}:
            del self.successors[node]
            del self.members[node]
        self.successors[first] = outside
        self.members[first] = sorted(members)
        for node in members:
            self.group[node] = first
        for source, successors in self.successors.items():
            if source != first and not successors.isdisjoint(members):
                successors -= members
                successors.add(first)
        return True

    def order(self) -> list[int]:
        """The groups in topological order, the model's where it can be."""
        import heapq

        waiting = dict.fromkeys(self.successors, 0)
        for successors in self.successors.values():
            for successor in successors:
                waiting[successor] += 1
        ready = [group for group, count in waiting.items() if count == 0]
        heapq.heapify(ready)
        order = []
        while ready:
            group = heapq.heappop(ready)
            order.append(group)
            for successor in self.successors[group]:
                waiting[successor] -= 1
                if waiting[successor] == 0:
                    heapq.heappush(ready, successor)
        return order
