"""What the simulated EP claims and refuses, knob by knob."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from onnxplug.ep import (
    CapabilityReport,
    DataType,
    DeviceType,
    Reason,
    RefusalCode,
)
from onnxplug.graph import Graph
from onnxplug_testing import Knobs
from onnxplug_testing.simulated.capability import judge

ABS_ONLY = Knobs(ops=frozenset({"Abs"}))


@pytest.fixture
def ladder(make_graph) -> Graph:
    """MatMul, Add, Relu twice over, and an Exp beside them."""
    return make_graph(
        [
            ("MatMul", ("x", "x"), ("a",)),
            ("Add", ("a", "x"), ("b",)),
            ("Relu", ("b",), ("c",)),
            ("Exp", ("x",), ("e",)),
            ("MatMul", ("c", "x"), ("d",)),
            ("Add", ("e", "d"), ("f",)),
            ("Relu", ("f",), ("y",)),
        ],
        inputs=["x"],
        outputs=["y"],
    )


def claims(report: CapabilityReport) -> list[tuple[int, ...]]:
    return [claim.nodes for claim in report.claims]


def reasons(report: CapabilityReport) -> dict[int, Reason]:
    return {refusal.node: refusal.reason for refusal in report.refusals}


def told(report: CapabilityReport) -> list[int]:
    claimed = [node for nodes in claims(report) for node in nodes]
    return sorted([*claimed, *reasons(report)])


def test_all_that_has_a_function_is_claimed(ladder) -> None:
    report = judge(ladder, Knobs())
    assert claims(report) == [tuple(range(7))]
    assert report.refusals == ()


def test_other_operators_are_refused(chain) -> None:
    report = judge(chain, ABS_ONLY)
    assert claims(report) == [(2,)]
    assert reasons(report)[0] == Reason(RefusalCode.OP, "Relu is not among Knobs.ops")


def test_operators_of_other_domains_are_named_with_it(make_graph) -> None:
    graph = make_graph([("com.acme.Abs", ("x",), ("y",))], inputs=["x"], outputs=["y"])
    assert claims(judge(graph, ABS_ONLY)) == []
    assert claims(judge(graph, Knobs(ops=frozenset({"com.acme.Abs"})))) == [(0,)]


@pytest.mark.parametrize("value", ["x", "b", "y"])
def test_one_value_of_another_dtype_is_reason_enough(make_graph, value) -> None:
    graph = make_graph(
        [("Add", ("x", "b"), ("y",))],
        inputs=["x", "b"],
        outputs=["y"],
        dtypes={value: DataType.FLOAT16},
    )
    found = reasons(judge(graph, Knobs()))[0]
    assert found.code is RefusalCode.DTYPE
    assert found.detail.startswith(f"'{value}' is float16; takes bool, float32")
    half = Knobs(dtypes=Knobs().dtypes | {DataType.FLOAT16})
    assert claims(judge(graph, half)) == [(0,)]


def test_unknown_types_are_refused(make_graph) -> None:
    graph = make_graph(
        [("Abs", ("x",), ("y",))], inputs=["x"], outputs=["y"], dtypes={"y": None}
    )
    assert (
        "'y' is not a tensor of known type" in reasons(judge(graph, Knobs()))[0].detail
    )


@pytest.mark.parametrize(
    ("node", "opset", "code"),
    [
        (("Add", ("x", "x"), ("y",)), 6, RefusalCode.OPSET),
        (("Softmax", ("x",), ("y",)), 12, RefusalCode.OPSET),
        (("Split", ("x",), ("y",), {"split": (2, 2)}), 11, RefusalCode.ATTRIBUTE),
    ],
)
def test_what_the_functions_cannot_do_is_refused(make_graph, node, opset, code) -> None:
    graph = make_graph([node], inputs=["x"], outputs=["y"], opset=opset)
    assert reasons(judge(graph, Knobs()))[0].code is code


def test_a_loop_the_reference_would_not_run_is_refused(make_graph) -> None:
    loop = ("Loop", ("n", None, "x"), ("y",))
    graph = make_graph([loop], inputs=["n", "x"], outputs=["y"])
    found = reasons(judge(graph, Knobs(ops=frozenset({"Loop"}))))[0]
    assert "a condition left out" in found.detail


def test_refused_operators_are_refused_with_the_given_reason(ladder) -> None:
    cost = Reason(RefusalCode.COST, "faster elsewhere")
    report = judge(ladder, Knobs(refuse={"Exp": cost}))
    assert reasons(report) == {3: cost}
    assert claims(report) == [(0, 1, 2, 4, 5, 6)]


def test_chance_is_decided_by_the_seed_alone(ladder) -> None:
    answers = [
        claims(judge(ladder, Knobs(claim_probability=0.5, seed=seed)))
        for seed in range(10)
    ]
    again = [
        claims(judge(ladder, Knobs(claim_probability=0.5, seed=seed)))
        for seed in range(10)
    ]
    assert answers == again
    assert len({str(answer) for answer in answers}) > 5
    share = sum(len(nodes) for answer in answers for nodes in answer) / 70
    assert 0.3 < share < 0.7


def test_chance_does_not_change_when_another_node_is_replaced(make_graph) -> None:
    nodes = [("Neg", (f"x{i}",), (f"x{i + 1}",)) for i in range(8)]
    knobs = Knobs(claim_probability=0.5, seed=1)
    whole = make_graph(nodes, inputs=["x0"], outputs=["x8"])
    rest = make_graph(nodes[3:], inputs=["x3"], outputs=["x8"])
    shifted = {
        index - 3: reason for index, reason in reasons(judge(whole, knobs)).items()
    }
    kept = {index: reason for index, reason in shifted.items() if index >= 0}
    assert reasons(judge(rest, knobs)) == kept
    assert 0 < len(kept) < 5


def test_probability_0_claims_nothing(ladder) -> None:
    report = judge(ladder, Knobs(claim_probability=0.0))
    assert claims(report) == []
    assert {r.code for r in reasons(report).values()} == {RefusalCode.OTHER}


# atomic groups


def test_sequences_are_fused_into_atomic_groups(ladder) -> None:
    report = judge(ladder, Knobs(fuse=(("MatMul", "Add"),)))
    assert [(c.nodes, c.atomic, c.label) for c in report.claims] == [
        ((0, 1), True, "MatMul+Add"),
        ((4, 5), True, "MatMul+Add"),
        ((2, 3, 6), False, ""),
    ]


def test_the_first_of_two_sequences_wins(ladder) -> None:
    knobs = Knobs(fuse=(("MatMul", "Add", "Relu"), ("Add", "Relu")))
    assert claims(judge(ladder, knobs)) == [(0, 1, 2), (4, 5, 6), (3,)]


def test_a_sequence_with_a_refused_node_is_not_fused(ladder) -> None:
    knobs = Knobs(ops=frozenset({"MatMul", "Relu"}), fuse=(("MatMul", "Add"),))
    assert claims(judge(ladder, knobs)) == [(0, 2, 4, 6)]


def test_any_set_of_nodes_can_be_a_group(ladder) -> None:
    knobs = Knobs(groups=(frozenset({0, 6}), frozenset({6, 5})))
    report = judge(ladder, knobs)
    assert [(c.nodes, c.atomic) for c in report.claims] == [
        ((0, 6), True),  # 6 is taken, so there is no second group
        ((1, 2, 3, 4, 5), False),
    ]


def test_random_groups_are_disjoint_and_repeatable(ladder) -> None:
    for seed in range(10):
        knobs = Knobs(random_groups=3, seed=seed)
        report = judge(ladder, knobs)
        assert report == judge(ladder, knobs)
        assert told(report) == list(range(7))
        groups = [claim.nodes for claim in report.claims if claim.atomic]
        assert groups
        assert all(len(group) in (2, 3) for group in groups)


def test_claims_say_whether_constants_are_kept(ladder) -> None:
    report = judge(ladder, Knobs(keeps_constants=True, fuse=(("MatMul", "Add"),)))
    assert all(claim.keeps_constants for claim in report.claims)


# breaches of contract


@pytest.mark.parametrize(
    ("knobs", "expected"),
    [
        (Knobs(), [0, 1, 2]),
        (Knobs(silent_nodes=frozenset({1})), [0, 2]),
        (Knobs(doubled_nodes=frozenset({1})), [0, 1, 1, 2]),
        (Knobs(ops=frozenset({"Abs"}), silent_nodes=frozenset({1})), [0, 2]),
    ],
)
def test_nodes_are_told_once_unless_a_knob_breaks_the_contract(
    chain, knobs: Knobs, expected: Sequence[int]
) -> None:
    assert told(judge(chain, knobs)) == expected


def test_the_default_table_covers_the_documented_types() -> None:
    knobs = Knobs()
    assert len(knobs.ops) >= 25
    assert {"MatMul", "Add", "Split", "Where"} <= knobs.ops
    assert DataType.STRING not in knobs.dtypes
    assert knobs.device_type is DeviceType.NPU
    assert np.dtype("float32") in {dtype.numpy for dtype in knobs.dtypes}
