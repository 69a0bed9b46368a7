"""Who gets a node, and what is kept of those who do not."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from onnxplug.ep import (
    CapabilityReport,
    CompiledPartition,
    ComputeCapability,
    ExecutionProvider,
    Partition,
    Reason,
    Refusal,
    RefusalCode,
)
from onnxplug.ep import Graph as SpiGraph
from onnxplug.errors import EpError
from onnxplug.graph import Graph, Node
from onnxplug.partition import Candidate, assign, cut


class Claiming(ExecutionProvider):
    """Claims fixed groups and refuses the rest; compiles nothing."""

    def __init__(
        self, groups: Sequence[Sequence[int]], *, atomic: bool = False
    ) -> None:
        self.groups = groups
        self.atomic = atomic
        self.saw: list[dict[int, str | None]] = []

    def get_capability(self, graph: SpiGraph) -> CapabilityReport:
        self.saw.append({node.index: graph.assigned_to(node) for node in graph.nodes})
        claimed = {node for group in self.groups for node in group}
        return CapabilityReport(
            claims=tuple(
                ComputeCapability(nodes=tuple(group), atomic=self.atomic)
                for group in self.groups
            ),
            refusals=tuple(
                Refusal(node=node.index, reason=Reason(RefusalCode.OP, node.op_type))
                for node in graph.nodes
                if node.index not in claimed
            ),
        )

    def compile(self, partition: Partition) -> CompiledPartition:
        raise NotImplementedError


def chain(length: int) -> Graph:
    nodes = [
        Node("Relu", (f"v{i}",), (f"v{i + 1}",), name=f"n{i}") for i in range(length)
    ]
    return Graph("chain", inputs=["v0"], outputs=[f"v{length}"], nodes=nodes)


def named(**providers: ExecutionProvider) -> list[Candidate]:
    return [Candidate(name, "cpu", ep) for name, ep in providers.items()]


def test_the_first_ep_that_claims_a_node_gets_it() -> None:
    second = Claiming([[0, 1, 2]])
    result = assign(chain(3), named(first=Claiming([[1]]), second=second))
    assert result.owner == [1, 0, 1]
    assert second.saw == [{0: None, 1: "first", 2: None}]


def test_every_ep_passed_over_is_kept_with_its_reason() -> None:
    result = assign(chain(2), named(first=Claiming([[1]]), second=Claiming([[0, 1]])))
    assert [str(passed) for passed in result.passed_over[0]] == ["first: op: Relu"]
    assert [str(passed) for passed in result.passed_over[1]] == [
        "second: taken: first is preferred"
    ]


def test_a_node_nobody_claims_is_left_over() -> None:
    assert assign(chain(2), named(only=Claiming([[0]]))).unassigned == [1]


def test_an_atomic_group_is_taken_whole_or_not_at_all() -> None:
    result = assign(
        chain(3),
        named(first=Claiming([[1]]), second=Claiming([[0, 1]], atomic=True)),
    )
    assert result.owner == [None, 0, None]
    (back,) = result.given_back
    assert (back.ep, back.reason.code) == ("second", RefusalCode.TAKEN)


def test_an_atomic_group_that_is_not_convex_is_given_back() -> None:
    result = assign(chain(3), named(only=Claiming([[0, 2]], atomic=True)))
    assert result.owner == [None, None, None]
    assert result.given_back[0].reason.code is RefusalCode.NOT_CONVEX


def test_atomic_groups_that_wait_for_each_other_are_not_both_taken() -> None:
    # a1 → b1 and b2 → a2: each group is convex, the two together are a cycle
    nodes = [
        Node("Relu", ("x",), ("a1",)),
        Node("Relu", ("y",), ("b2",)),
        Node("Relu", ("a1",), ("b1",)),
        Node("Relu", ("b2",), ("a2",)),
    ]
    graph = Graph("cross", inputs=["x", "y"], outputs=["b1", "a2"], nodes=nodes)
    result = assign(graph, named(only=Claiming([[0, 3], [1, 2]], atomic=True)))
    assert result.owner == [0, None, None, 0]
    assert result.given_back[0].reason.code is RefusalCode.NOT_CONVEX
    cut(graph, result)


def test_excluded_nodes_go_to_the_next_claimant_with_the_reason_kept() -> None:
    graph = chain(2)
    reason = Reason(RefusalCode.COST, "too small")
    result = assign(
        graph,
        named(first=Claiming([[0, 1]]), second=Claiming([[0, 1]])),
        excluded={(0, graph.nodes[1]): reason},
    )
    assert result.owner == [0, 1]
    assert result.passed_over[1][0].reason == reason


@pytest.mark.parametrize(
    ("report", "expected"),
    [
        (CapabilityReport(), "0 claims"),
        (CapabilityReport(claims=(ComputeCapability(nodes=(0, 0)),)), "2 claims"),
        (CapabilityReport(claims=(ComputeCapability(nodes=(7,)),)), "node 7"),
    ],
)
def test_a_report_that_is_not_complete_is_the_eps_failure(
    report: CapabilityReport, expected: str
) -> None:
    class Careless(Claiming):
        def get_capability(self, graph: SpiGraph) -> CapabilityReport:
            return report

    with pytest.raises(EpError, match=expected) as raised:
        assign(chain(1), named(careless=Careless([])))
    assert (raised.value.ep, raised.value.stage) == ("careless", "get_capability")


def test_an_ep_that_raises_is_named() -> None:
    class Broken(Claiming):
        def get_capability(self, graph: SpiGraph) -> CapabilityReport:
            raise KeyError("lost")

    with pytest.raises(EpError, match=r"broken failed in get_capability: KeyError"):
        assign(chain(1), named(broken=Broken([])))


def test_cut_makes_one_partition_of_what_one_ep_runs() -> None:
    graph = chain(3)
    (part,) = cut(graph, assign(graph, named(only=Claiming([[0, 1], [2]]))))
    assert part.nodes == (0, 1, 2)


def test_cut_splits_where_the_ep_changes() -> None:
    graph = chain(4)
    assignment = assign(
        graph, named(first=Claiming([[1, 2]]), second=Claiming([[0, 3]]))
    )
    assert [(part.ep, part.nodes) for part in cut(graph, assignment)] == [
        (1, (0,)),
        (0, (1, 2)),
        (1, (3,)),
    ]


def test_cut_keeps_an_atomic_group_apart_from_its_neighbours() -> None:
    graph = chain(3)
    provider = Claiming([[0, 1]], atomic=True)
    assignment = assign(graph, named(only=provider, rest=Claiming([[2]])))
    assert [part.nodes for part in cut(graph, assignment)] == [(0, 1), (2,)]


def test_partitions_are_acyclic_where_a_diamond_changes_ep() -> None:
    # x → a → (b on the other EP) → c, and a → c: a and c cannot be one partition
    nodes = [
        Node("Relu", ("x",), ("a",)),
        Node("Relu", ("a",), ("b",)),
        Node("Add", ("a", "b"), ("c",)),
    ]
    graph = Graph("diamond", inputs=["x"], outputs=["c"], nodes=nodes)
    assignment = assign(graph, named(one=Claiming([[1]]), two=Claiming([[0, 2]])))
    assert [part.nodes for part in cut(graph, assignment)] == [(0,), (1,), (2,)]
