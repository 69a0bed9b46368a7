"""Contracted graphs stay free of cycles, and large ones are contracted in time."""

from __future__ import annotations

import random
import time

import pytest

from onnxplug.graph import Graph, Node
from onnxplug.partition.contract import Contraction


def random_graph(draw: random.Random, count: int) -> Graph:
    nodes = [
        Node(
            "Sum",
            tuple(f"v{draw.randrange(index)}" for _ in range(draw.randint(0, 2)))
            if index
            else (),
            (f"v{index}",),
        )
        for index in range(count)
    ]
    return Graph("g", inputs=(), outputs=[f"v{count - 1}"], nodes=nodes)


def closes_a_cycle(contraction: Contraction, members: set[int]) -> bool:
    """By brute force: whether a path leaves *members* and comes back."""
    stack = [
        successor
        for member in members
        for successor in contraction.successors[member]
        if successor not in members
    ]
    seen = set(stack)
    while stack:
        for successor in contraction.successors[stack.pop()]:
            if successor in members:
                return True
            if successor not in seen:
                seen.add(successor)
                stack.append(successor)
    return False


@pytest.mark.parametrize("seed", range(60))
def test_a_group_is_accepted_exactly_when_it_closes_no_cycle(seed: int) -> None:
    draw = random.Random(seed)
    graph = random_graph(draw, 24)
    contraction = Contraction(graph)
    free = list(range(24))
    for _ in range(10):
        members = set(draw.sample(free, min(len(free), draw.randint(1, 4))))
        if not members:
            break
        expected = not closes_a_cycle(contraction, members)
        assert contraction.contract(sorted(members)) is expected
        if expected:
            free = [node for node in free if node not in members]
        order = contraction.order()
        place = {group: position for position, group in enumerate(order)}
        assert place.keys() == contraction.members.keys()
        for source, successors in contraction.successors.items():
            assert all(place[source] < place[other] for other in successors)
    assert sorted(n for group in contraction.members.values() for n in group) == list(
        range(24)
    )


def test_time_grows_with_the_graph_and_not_with_its_square() -> None:
    count = 20_000
    nodes = [Node("Neg", (f"v{n}",), (f"v{n + 1}",)) for n in range(count)]
    graph = Graph("g", inputs=["v0"], outputs=[f"v{count}"], nodes=nodes)
    contraction = Contraction(graph)
    started = time.monotonic()
    for first in range(0, count, 2):
        assert contraction.contract((first, first + 1))
    # a tenth of a second; looking at the whole graph each time took minutes
    assert time.monotonic() - started < 5
