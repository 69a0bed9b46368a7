"""Partitions can be executed in their order, and there are few of them."""

from __future__ import annotations

import random
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import pytest

from onnxplug.ep import ComputeCapability
from onnxplug.graph import Graph, Node
from onnxplug.partition import Assignment, cut
from onnxplug.partition.assign import Claim
from onnxplug.partition.contract import Contraction

HOST = "h"
"""In the letters of nodes; any other letter is an EP."""


@dataclass(frozen=True)
class Case:
    """A graph, who runs which node, and the nodes before each node."""

    graph: Graph
    assignment: Assignment
    before: Sequence[Collection[int]]

    def cut(self) -> list[tuple[int, ...]]:
        """The nodes of the partitions, of which each is of one EP."""
        cuts = cut(self.graph, self.assignment)
        for part in cuts:
            assert {self.assignment.owner[node] for node in part.nodes} == {part.ep}
        return [part.nodes for part in cuts]


def case(
    eps: str,
    before: Mapping[int, Collection[int]],
    atomic: Collection[Sequence[int]] = (),
) -> Case:
    """Nodes on *eps*, a letter each, ``a`` preferred."""
    nodes = [
        Node("Sum", tuple(f"v{n}" for n in before.get(node, ())), (f"v{node}",))
        for node in range(len(eps))
    ]
    graph = Graph("g", inputs=(), outputs=[f"v{len(eps) - 1}"], nodes=nodes)
    owner = [None if ep == HOST else ord(ep) - ord("a") for ep in eps]
    bags: dict[int, list[int]] = {}
    for node, ep in enumerate(owner):
        if ep is not None and not any(node in group for group in atomic):
            bags.setdefault(ep, []).append(node)
    claims = [claim(ep, bag) for ep, bag in bags.items()]
    for group in atomic:
        ep = owner[group[0]]
        assert ep is not None
        claims.append(claim(ep, group, atomic=True))
    assignment = Assignment(owner, claims, [[] for _ in eps], [], [])
    return Case(graph, assignment, [before.get(node, ()) for node in range(len(eps))])


def claim(ep: int, nodes: Sequence[int], *, atomic: bool = False) -> Claim:
    return Claim(ep, tuple(nodes), ComputeCapability(nodes=tuple(nodes), atomic=atomic))


def chains(*eps: str) -> Case:
    """Chains of nodes that have nothing to do with each other."""
    before = {}
    start = 0
    for chain in eps:
        before |= {start + step: [start + step - 1] for step in range(1, len(chain))}
        start += len(chain)
    return case("".join(eps), before)


def assert_executable(drawn: Case, partitions: Sequence[tuple[int, ...]]) -> None:
    """Each node once, and nothing before what it reads."""
    place = {node: at for at, nodes in enumerate(partitions) for node in nodes}
    assert len(place) == sum(map(len, partitions)) == len(drawn.before)
    for node, sources in enumerate(drawn.before):
        assert all(place[source] <= place[node] for source in sources)
    assert all(list(nodes) == sorted(nodes) for nodes in partitions)


# what is merged


def test_chains_that_start_on_different_eps_share_partitions() -> None:
    drawn = chains("ababab", "baba")
    partitions = drawn.cut()
    assert_executable(drawn, partitions)
    assert len(partitions) == 6  # by levels, which tell the chains apart, 10


def test_what_is_independent_merges_with_what_comes_later() -> None:
    partitions = chains("ba", "a").cut()
    assert partitions == [(0,), (1, 2)]


def test_partitions_that_would_wait_for_each_other_stay_apart() -> None:
    diamond = case("abaa", {1: [0], 2: [0], 3: [1, 2]})
    assert diamond.cut() == [(0, 2), (1,), (3,)]


@pytest.mark.parametrize("eps", ["ab", "abc"])
def test_a_chain_needs_a_partition_for_each_change(eps: str) -> None:
    assert chains(eps * 4).cut() == [(node,) for node in range(4 * len(eps))]


def test_levels_are_used_where_they_make_fewer_partitions() -> None:
    # by readiness `b`, as far from the end as `d` and preferred, leaves a node behind
    drawn = case("adhbbc", {1: [0], 2: [0], 3: [1], 4: [2], 5: [4]})
    assert drawn.cut() == [(0,), (1,), (2,), (3, 4), (5,)]


def test_what_runs_alone_merges_with_nothing() -> None:
    drawn = case("aahhaab", {6: [0]}, atomic=[(0, 1), (4,)])
    partitions = drawn.cut()
    assert_executable(drawn, partitions)
    assert {(0, 1), (2,), (3,), (4,)} <= set(partitions)


# any graph


def draw(seed: int, eps: str, alone: float) -> Case:
    """Up to 12 nodes, some of them for the host or in atomic groups."""
    numbers = random.Random(seed)
    count = numbers.randint(1, 12)
    before = {
        node: {numbers.randrange(node) for _ in range(numbers.choice((0, 1, 1, 2)))}
        for node in range(1, count)
    }
    owners = [
        HOST if numbers.random() < alone else numbers.choice(eps) for _ in range(count)
    ]
    groups: list[list[int]] = []
    contraction = Contraction(case("a" * count, before).graph)
    free = list(range(count))
    for _ in range(3):
        group = sorted(numbers.sample(free, min(len(free), numbers.randint(1, 3))))
        if group and numbers.random() < alone and contraction.contract(group):
            groups.append(group)
            free = [node for node in free if node not in group]
            for node in group:
                owners[node] = owners[group[0]].replace(HOST, eps[0])
    return case("".join(owners), before, groups)


def fewest(drawn: Case) -> int:
    """By brute force: the fewest partitions of a graph where nothing runs alone."""
    owner = drawn.assignment.owner

    def executed(done: frozenset[int], ep: int | None) -> frozenset[int]:
        for node, sources in enumerate(drawn.before):
            if owner[node] == ep and done.issuperset(sources):
                done |= {node}
        return done

    reached = {frozenset[int]()}
    partitions = 0
    while not any(len(done) == len(owner) for done in reached):
        reached = {executed(done, ep) for done in reached for ep in set(owner)}
        partitions += 1
    return partitions


@pytest.mark.parametrize("chunk", range(10))
def test_any_graph_is_cut_so_that_it_can_be_executed(chunk: int) -> None:
    for seed in range(chunk * 100, chunk * 100 + 100):
        drawn = draw(seed, "abcd"[: 1 + seed % 4], 0.3)
        partitions = drawn.cut()
        assert_executable(drawn, partitions)
        for each in drawn.assignment.claims:
            if each.capability.atomic:
                assert each.nodes in partitions
        for node in drawn.assignment.unassigned:
            assert (node,) in partitions


@pytest.mark.parametrize("chunk", range(10))
def test_two_eps_get_the_fewest_partitions_there_can_be(chunk: int) -> None:
    for seed in range(chunk * 50, chunk * 50 + 50):
        drawn = draw(seed, "ab", 0)
        assert len(drawn.cut()) == fewest(drawn)


@pytest.mark.parametrize("chunk", range(5))
def test_more_eps_get_nearly_the_fewest(chunk: int) -> None:
    cases = [draw(seed, "abc", 0) for seed in range(chunk * 50, chunk * 50 + 50)]
    found = [len(drawn.cut()) for drawn in cases]
    best = [fewest(drawn) for drawn in cases]
    assert all(more >= least for more, least in zip(found, best, strict=True))
    assert sum(found) <= 1.05 * sum(best)


@pytest.mark.parametrize(
    "eps", [["ab" * 10_000], ["ab" * 5_000, "ba" * 5_000], ["abc", "cab"] * 3_334]
)
def test_time_grows_with_the_graph(eps: list[str]) -> None:
    drawn = chains(*eps)
    started = time.monotonic()
    drawn.cut()
    # a tenth of a second or two
    assert time.monotonic() - started < 5
