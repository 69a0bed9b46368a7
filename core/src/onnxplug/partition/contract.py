"""The graph with groups of nodes contracted to one, kept free of cycles."""

from __future__ import annotations

import heapq
from collections.abc import Set
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from onnxplug.graph import Graph


class Contraction:
    """Nodes and contracted groups, as a graph of their own.

    A group stands under the number of its first node.  Two groups that are convex one
    by one can still wait for each other; so each contraction is judged in the graph
    that the earlier ones have left.  That graph is kept in topological order, so that
    only what stands between the nodes of a group is looked at.
    """

    def __init__(self, graph: Graph) -> None:
        self.group = list(range(len(graph.nodes)))
        self.members: dict[int, list[int]] = {n: [n] for n in self.group}
        self.successors: dict[int, set[int]] = {n: set() for n in self.group}
        self._predecessors: dict[int, set[int]] = {n: set() for n in self.group}
        # a topological order, with gaps where groups have become one
        self._order: list[int | None] = list(self.group)
        self._position = dict(enumerate(self.group))
        producers = {
            name: node.index for node in graph.nodes for name in node.outputs if name
        }
        for node in graph.nodes:
            for name in (*node.inputs, *node.captures):
                source = producers.get(name) if name else None
                if source is not None:
                    self.successors[source].add(node.index)
                    self._predecessors[node.index].add(source)

    def contract(self, nodes: Collection[int]) -> bool:
        """Make one group of *nodes*, each still alone; ``False`` if it closes a cycle.

        Source: a set of nodes is convex when no path leaves it and returns.
        """
        members = set(nodes)
        after = self._after(members)
        if after is None:
            return False
        first = min(members)
        self._arrange(members, first, after)
        for table, mirror in (
            (self.successors, self._predecessors),
            (self._predecessors, self.successors),
        ):
            outside = set().union(*(table.pop(node) for node in members)) - members
            table[first] = outside
            for other in outside:
                mirror[other] -= members
                mirror[other].add(first)
        for node in members - {first}:
            del self.members[node], self._position[node]
        self.members[first] = sorted(members)
        for node in members:
            self.group[node] = first
        return True

    def _after(self, members: Set[int]) -> set[int] | None:
        """What comes after *members* and not after the last of them; ``None`` when one
        of them is among it."""
        end = max(self._position[node] for node in members)
        stack = list(members)
        seen: set[int] = set()
        while stack:
            node = stack.pop()
            for successor in self.successors[node]:
                if successor in members:
                    if node in seen:
                        return None
                elif successor not in seen and self._position[successor] < end:
                    seen.add(successor)
                    stack.append(successor)
        return seen

    def _arrange(self, members: Set[int], first: int, after: Set[int]) -> None:
        """Let the group of *members* stand before *after* and after all else there."""
        positions = [self._position[node] for node in members]
        start, end = min(positions), max(positions) + 1
        between = [
            node
            for node in self._order[start:end]
            if node is not None and node not in members
        ]
        arranged = [node for node in between if node not in after]
        arranged.append(first)
        arranged += [node for node in between if node in after]
        gaps = [None] * (end - start - len(arranged))
        self._order[start:end] = [*arranged, *gaps]
        for position, node in enumerate(arranged, start):
            self._position[node] = position

    def order(self) -> list[int]:
        """The groups in topological order, the model's where it can be."""
        waiting = {group: len(before) for group, before in self._predecessors.items()}
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
