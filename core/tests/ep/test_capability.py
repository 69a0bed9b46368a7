"""Reports that judge node by node."""

from __future__ import annotations

import pytest

from onnxplug.ep import CapabilityReport, Node, Reason, RefusalCode


@pytest.fixture
def graph(make_partition):
    return make_partition(
        [
            ("Relu", ("x",), ("a",)),
            ("Abs", ("a",), ("b",)),
            ("Relu", ("b",), ("y",)),
        ],
        inputs=["x"],
        outputs=["y"],
    ).graph


def refuse_abs(node: Node) -> Reason | None:
    return Reason(RefusalCode.OP, "no Abs") if node.op_type == "Abs" else None


def test_accepted_nodes_are_one_claim_and_the_rest_refused(graph) -> None:
    report = CapabilityReport.per_node(graph, refuse_abs)
    (claim,) = report.claims
    assert claim.nodes == (0, 2)
    assert not claim.atomic
    assert [(r.node, r.reason) for r in report.refusals] == [
        (1, Reason(RefusalCode.OP, "no Abs"))
    ]


def test_no_claim_is_made_of_no_node(graph) -> None:
    cost = Reason(RefusalCode.COST)
    report = CapabilityReport.per_node(graph, lambda node: cost)
    assert report.claims == ()
    assert [refusal.node for refusal in report.refusals] == [0, 1, 2]


def test_the_claim_says_whether_constants_are_kept(graph) -> None:
    report = CapabilityReport.per_node(graph, refuse_abs, keeps_constants=True)
    assert report.claims[0].keeps_constants


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        (Reason(RefusalCode.DTYPE, "x is int8"), "dtype: x is int8"),
        (Reason(RefusalCode.DYNAMIC_SHAPE), "dynamic-shape"),
    ],
)
def test_a_reason_reads_as_code_and_detail(reason: Reason, text: str) -> None:
    assert str(reason) == text
