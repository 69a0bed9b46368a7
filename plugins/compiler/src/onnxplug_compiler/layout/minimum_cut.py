"""The cheapest division of vertices between two sides.

Each vertex may cost something on either side, and two vertices may cost something when
they are on different ones.  The cheapest division is a minimum cut, found as a maximum
flow (Y. Dinitz, "Algorithm for solution of a problem of maximum flow in a network with
power estimation", 1970).
"""

from __future__ import annotations

from collections import deque
from typing import Final

FOREVER: Final = 1 << 40
"""A cost that no division pays if there is another one."""

MOST_ROUNDS: Final = 100
"""Rounds of looking for paths from one preference to another, of which networks need a
few, as these are short."""

_MOST_STEPS: Final = 1 << 21
"""Steps along such paths, in all rounds."""


class Division:
    """Vertices by number, and what they cost; whole numbers, none negative."""

    def __init__(self, vertices: int) -> None:
        self._count = vertices
        self._source, self._sink = vertices, vertices + 1
        # an arc is beside the one that leads back
        self._heads: list[int] = []
        self._left: list[int] = []
        self._arcs: list[list[int]] = [[] for _ in range(vertices + 2)]
        self._steps = 0

    def prefer_first(self, vertex: int, cost: int) -> None:
        """Let the vertex cost that on the second side."""
        self._connect(self._source, vertex, cost, 0)

    def prefer_second(self, vertex: int, cost: int) -> None:
        """Let the vertex cost that on the first side."""
        self._connect(vertex, self._sink, cost, 0)

    def keep_together(self, one: int, other: int, cost: int) -> None:
        """Let the vertices cost that on different sides."""
        if one != other:
            self._connect(one, other, cost, cost)

    def first(self) -> list[bool] | None:
        """For each vertex whether it is on the first side of a cheapest division, the
        one with most there; ``None`` if finding out takes too long."""
        for _ in range(MOST_ROUNDS):
            levels = self._levels()
            if levels[self._source] < 0:
                return [level < 0 for level in levels[: self._count]]
            self._saturate(levels)
            if self._steps > _MOST_STEPS:
                break
        return None

    def _connect(self, tail: int, head: int, there: int, back: int) -> None:
        for start, end, capacity in ((tail, head, there), (head, tail, back)):
            self._arcs[start].append(len(self._heads))
            self._heads.append(end)
            self._left.append(capacity)

    def _levels(self) -> list[int]:
        """How many arcs with something left lead from each vertex to the second side;
        -1 if none do."""
        levels = [-1] * len(self._arcs)
        levels[self._sink] = 0
        waiting = deque([self._sink])
        while waiting:
            vertex = waiting.popleft()
            for arc in self._arcs[vertex]:
                head = self._heads[arc]
                if self._left[arc ^ 1] and levels[head] < 0:
                    levels[head] = levels[vertex] + 1
                    waiting.append(head)
        return levels

    def _saturate(self, levels: list[int]) -> None:
        """Send as much as can flow along arcs that lead from level to level."""
        untried = [0] * len(self._arcs)
        path: list[int] = []
        vertex = self._source
        while self._steps <= _MOST_STEPS:
            self._steps += 1
            if vertex == self._sink:
                amount = min(self._left[arc] for arc in path)
                for arc in path:
                    self._left[arc] -= amount
                    self._left[arc ^ 1] += amount
                path.clear()
                vertex = self._source
                continue
            arcs = self._arcs[vertex]
            while untried[vertex] < len(arcs):
                arc = arcs[untried[vertex]]
                head = self._heads[arc]
                if self._left[arc] and levels[head] == levels[vertex] - 1:
                    path.append(arc)
                    vertex = head
                    break
                untried[vertex] += 1
            else:
                if not path:
                    return
                arc = path.pop()
                vertex = self._heads[arc ^ 1]
                untried[vertex] += 1
