"""What crosses from one partition to another, and what two plans have otherwise."""

from __future__ import annotations

import logging
from collections.abc import Callable

import numpy as np
import onnx
import pytest

import onnxplug
from onnxplug.errors import InvalidArgument
from onnxplug_testing import SimulatedFactory

PROVIDERS = ["SimulatedExecutionProvider", "CPUExecutionProvider"]

BRANCHES = """
    <ir_version: 10, opset_import: ["": 21]>
    branches (float[4] x, float[N] y, bool c) => (float[4] w, float[N] z) {
        a = Mul (x, x)
        b = Sqrt (y)
        z = Mul (b, b)
        w = If (c) <
            then_branch = here () => (float[4] t) { t = Sqrt (a) },
            else_branch = there () => (float[4] u) { v = Sqrt (a)  u = Mul (v, v) }
        >
    }
"""


@pytest.fixture
def branches(simulated: Callable[..., SimulatedFactory]):
    """A session whose EPs share a graph and the bodies of an If."""
    simulated(ops=frozenset({"Mul"}))
    model = onnx.parser.parse_model(BRANCHES)
    with onnxplug.InferenceSession(model, providers=PROVIDERS) as session:
        yield session


def test_borders_are_of_values_that_other_partitions_read(branches) -> None:
    explanation = branches.explain()
    of = {node.outputs[0]: node.partition for node in explanation.nodes}
    found = {
        border.value: (border.source, {*border.targets}, border.nbytes)
        for border in explanation.borders
    }
    assert found == {
        # bodies take it from outside, for which the host passes it on
        "a": (of["a"], {-1, of["t"], of["v"]}, 16),
        "b": (of["b"], {of["z"]}, None),
        "v": (of["v"], {of["u"]}, 16),
    }
    assert all(border.is_copied for border in explanation.borders)
    assert {border.graph for border in explanation.borders if border.value == "v"} == {
        "If giving 'w'.else_branch"
    }


def test_the_report_of_one_partition_has_no_borders() -> None:
    model = onnx.parser.parse_model(BRANCHES)
    with onnxplug.InferenceSession(model, providers=["cpu"]) as session:
        explanation = session.explain()
    assert len({node.partition for node in explanation.nodes}) == 1
    assert explanation.borders == []


def test_nodes_have_what_they_read_and_make(branches) -> None:
    nodes = {node.outputs[0]: node for node in branches.explain().nodes}
    assert nodes["a"].inputs == ("x", "x")
    assert (nodes["a"].types, nodes["a"].nbytes) == (("float32[4]",), (16,))
    assert (nodes["b"].types, nodes["b"].nbytes) == (("float32[N]",), (None,))
    assert {*nodes["w"].inputs} == {"c", "a"}


def test_a_session_logs_one_line_of_what_it_costs(
    simulated, caplog: pytest.LogCaptureFixture
) -> None:
    simulated(ops=frozenset({"Mul"}))
    model = onnx.parser.parse_model(BRANCHES)
    with caplog.at_level(logging.INFO, "onnxplug.session"):
        onnxplug.InferenceSession(model, providers=PROVIDERS).close()
    (message,) = [r.getMessage() for r in caplog.records]
    assert message.startswith(
        "7 nodes: 3 on SimulatedExecutionProvider, 3 on CPUExecutionProvider, "
        "1 on host; 6 partitions; "
    )
    assert message.endswith("of unknown size in each run")
    assert "\n" not in message


def test_two_sessions_are_compared(simulated) -> None:
    simulated(ops=frozenset({"Mul"}))
    model = onnx.parser.parse_model(BRANCHES)
    with (
        onnxplug.InferenceSession(model, providers=PROVIDERS) as mixed,
        onnxplug.InferenceSession(model, providers=["cpu"]) as alone,
    ):
        found = mixed.explain().difference(alone.explain())
        back = alone.explain().difference(mixed.explain())
        assert not mixed.explain().difference(mixed.explain().to_dict())
    assert {(each.node, each.after) for each in found.moved} >= {
        ("Mul giving 'a'", PROVIDERS[0]),
        ("Mul giving 'z'", PROVIDERS[0]),
    }
    reasons = {each.reason for each in found.moved if each.op_type == "Mul"}
    assert reasons == {"taken: SimulatedExecutionProvider is preferred"}
    assert found.copies[0] == back.copies[1] == 0
    assert found.copied_bytes[1] > 0
    assert "Mul×" in str(found)
    with pytest.raises(InvalidArgument, match="the plan before is not what explain"):
        mixed.explain().difference({})


def test_names_are_escaped() -> None:
    name = "a\nb\x1b[31m"
    nodes = [
        onnx.helper.make_node("Relu", ["x"], [name], name=name),
        onnx.helper.make_node("Relu", [name], ["y"]),
    ]
    infos = [
        onnx.helper.make_tensor_value_info(each, onnx.TensorProto.FLOAT, [4])
        for each in ("x", "y")
    ]
    graph = onnx.helper.make_graph(nodes, "g", infos[:1], infos[1:])
    model = onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", 21)]
    )
    with onnxplug.InferenceSession(model, providers=["cpu"]) as session:
        explanation = session.explain()
        difference = explanation.difference(
            {"nodes": [], "partitions": [], "copies": []}
        )
        assert np.isfinite(session.run(None, {"x": np.ones(4, np.float32)})[0]).all()
    for text in (str(difference), explanation.headline):
        assert all(line.isprintable() for line in text.splitlines())
    assert "\x1b" not in str(difference)
