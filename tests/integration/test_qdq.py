"""EPs that keep the DequantizeLinear of weights, beside EPs that do not."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxplug
from onnxplug import ep
from onnxplug.authoring.kernels import KernelExecutionProvider
from onnxplug.plugins import registry
from onnxplug_testing import ToyFactory

NAME = "IntegerExecutionProvider"
CPU = "CPUExecutionProvider"
RANDOM = np.random.default_rng(5)
WEIGHT = RANDOM.integers(-128, 128, (160, 160), dtype=np.int8)
SCALE = RANDOM.random(160).astype(np.float32)
WIDE = WEIGHT.astype(np.float32) * SCALE
X = RANDOM.standard_normal((3, 160)).astype(np.float32)


def dequantize(weight: Any, scale: Any) -> Any:
    return weight.astype(np.float32) * scale


FUNCTIONS = {
    "DequantizeLinear": dequantize,
    "MatMul": np.matmul,
    "Neg": np.negative,
    "Transpose": np.transpose,
}


class Integer(KernelExecutionProvider):
    """Keeps quantised weights, and the partitions that it compiles."""

    preferences = ep.Preferences(keeps_qdq=True)

    def __init__(self, takes: frozenset[str]) -> None:
        self.takes = takes
        self.partitions: list[ep.Partition] = []

    def find_kernel(
        self, graph: ep.Graph, node: ep.Node
    ) -> Callable[..., Any] | ep.Reason:
        if node.op_type not in self.takes and node.name not in self.takes:
            return ep.Reason(ep.RefusalCode.OP, node.op_type)
        return FUNCTIONS[node.op_type]

    def compile(self, partition: ep.Partition) -> ep.CompiledPartition:
        self.partitions.append(partition)
        return super().compile(partition)


class OfProducts(Integer):
    """Keeps quantised weights of products."""

    preferences = ep.Preferences(
        keeps_qdq=lambda graph, reader, node: (
            reader.op_type == "MatMul" and node.op_type == "DequantizeLinear"
        )
    )


class Factory(ToyFactory):
    name = NAME
    takes: frozenset[str]
    kind: type[Integer] = Integer
    made: Integer

    def create(
        self,
        devices: Sequence[ep.EpDevice],
        options: Mapping[str, ep.OptionValue],
        session: ep.SessionContext,
    ) -> ep.ExecutionProvider:
        self.made = self.kind(self.takes)
        return self.made


@pytest.fixture
def factory() -> Iterator[Factory]:
    factory = Factory()
    registry.add(factory)
    yield factory
    registry.remove(NAME)


def node(op_type: str, inputs: str, output: str, **more: Any) -> onnx.NodeProto:
    return helper.make_node(op_type, inputs.split(), [output], **more)


DEQUANTIZE = node("DequantizeLinear", "w scale", "floats", axis=1)


def model(*nodes: onnx.NodeProto, outputs: str = "y") -> onnx.ModelProto:
    graph = helper.make_graph(
        list(nodes),
        "quantised",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 160]),
            helper.make_tensor_value_info("yes", TensorProto.BOOL, []),
        ],
        [
            helper.make_tensor_value_info(each, TensorProto.FLOAT, None)
            for each in outputs.split()
        ],
        [
            numpy_helper.from_array(WEIGHT, "w"),
            numpy_helper.from_array(SCALE, "scale"),
        ],
    )
    imports = [helper.make_opsetid("", 21)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


FEED = {"x": X, "yes": np.array(True)}


def placed(session: onnxplug.InferenceSession) -> list[tuple[str, str]]:
    return [(node.op_type, node.ep) for node in session.explain().nodes]


def assert_near(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(
        found, expected, rtol=0, atol=1e-5 * np.abs(expected).max()
    )


def test_who_keeps_them_gets_them(factory: Factory) -> None:
    factory.takes = frozenset({"DequantizeLinear", "MatMul"})
    session = onnxplug.InferenceSession(
        model(DEQUANTIZE, node("MatMul", "x floats", "y")), providers=[NAME, "cpu"]
    )
    assert placed(session) == [("DequantizeLinear", NAME), ("MatMul", NAME)]
    assert session.explain().computed_once == []
    assert_near(session.run(None, FEED)[0], X @ WIDE)


def test_a_function_says_where_they_are_kept(factory: Factory) -> None:
    factory.takes, factory.kind = (
        frozenset({"DequantizeLinear", "MatMul", "Neg"}),
        (OfProducts),
    )
    nodes = node("MatMul", "x floats", "y"), node("Neg", "floats", "z")
    session = onnxplug.InferenceSession(
        model(DEQUANTIZE, *nodes, outputs="y z"), providers=[NAME, "cpu"]
    )
    (dequantize,) = factory.made.partitions[0].nodes[:1]
    assert dequantize.op_type == "DequantizeLinear"
    readers = {n.op_type: n.inputs for n in factory.made.partitions[0].nodes}
    assert readers["MatMul"][1] == dequantize.outputs[0] != readers["Neg"][0]
    y, z = session.run(None, FEED)
    assert_near(y, X @ WIDE)
    assert_near(z, -WIDE)


def test_who_does_not_take_the_node_gets_the_constant(factory: Factory) -> None:
    """It would be computed elsewhere, in each run, and copied."""
    factory.takes = frozenset({"MatMul"})
    session = onnxplug.InferenceSession(
        model(DEQUANTIZE, node("MatMul", "x floats", "y")), providers=[NAME, "cpu"]
    )
    assert placed(session) == [("MatMul", NAME)]
    assert_near(session.run(None, FEED)[0], X @ WIDE)


def test_what_it_takes_for_others_is_a_constant(factory: Factory) -> None:
    factory.takes = frozenset({"DequantizeLinear", "Neg"})
    session = onnxplug.InferenceSession(
        model(DEQUANTIZE, node("MatMul", "x floats", "a"), node("Neg", "a", "y")),
        providers=[NAME, "cpu"],
    )
    assert placed(session) == [("MatMul", CPU), ("Neg", NAME)]
    assert_near(session.run(None, FEED)[0], -X @ WIDE)


def test_each_gets_what_it_prefers(factory: Factory) -> None:
    factory.takes = frozenset({"DequantizeLinear", "Transpose", "ours"})
    session = onnxplug.InferenceSession(
        model(
            DEQUANTIZE,
            node("Transpose", "floats", "turned", perm=[1, 0]),
            node("MatMul", "x turned", "a", name="ours"),
            node("MatMul", "x turned", "b", name="theirs"),
            node("MatMul", "x floats", "c", name="theirs, too"),
            outputs="a b c",
        ),
        providers=[NAME, "cpu"],
    )
    explained = session.explain()
    assert sorted(placed(session)) == [
        ("DequantizeLinear", NAME),
        ("MatMul", CPU),
        ("MatMul", CPU),
        ("MatMul", NAME),
        ("Transpose", NAME),
    ]
    assert {part.ep: part.inputs for part in explained.partitions} == {
        NAME: ("x",),
        CPU: ("x",),
    }
    assert [each.is_kept for each in explained.computed_once] == [True, True]
    a, b, c = session.run(None, FEED)
    assert_near(a, X @ WIDE.T)
    assert_near(b, X @ WIDE.T)
    assert_near(c, X @ WIDE)


def test_they_are_together_wherever_the_reader_is(factory: Factory) -> None:
    """A weight that two partitions read is in both, and crosses none's border."""
    factory.takes = frozenset({"DequantizeLinear", "MatMul", "Transpose"})
    session = onnxplug.InferenceSession(
        model(
            DEQUANTIZE,
            node("Transpose", "floats", "turned", perm=[1, 0]),
            node("Abs", "x", "a"),
            node("MatMul", "a turned", "b"),
            node("Abs", "b", "c"),
            node("MatMul", "c floats", "d"),
            node("Abs", "d", "e"),
            node("MatMul", "e turned", "y"),
        ),
        providers=[NAME, "cpu"],
    )
    found = [
        ([node.op_type for node in partition.nodes], *partition.inputs)
        for partition in factory.made.partitions
    ]
    assert found == [
        (["DequantizeLinear", "Transpose", "MatMul"], "a"),
        (["DequantizeLinear", "MatMul"], "c"),
        (["DequantizeLinear", "Transpose", "MatMul"], "e"),
    ]
    assert session.explain().computed_once == []
    d = np.abs(np.abs(np.abs(X) @ WIDE.T) @ WIDE)
    assert_near(session.run(None, FEED)[0], d @ WIDE.T)


def test_declined_it_is_a_constant_after_all(
    factory: Factory, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Declining(Integer):
        def compile(self, partition: ep.Partition) -> ep.CompiledPartition:
            named = [each for each in partition.nodes if each.op_type == "MatMul"]
            if named:
                raise ep.Declined("not now", nodes=named)
            return super().compile(partition)

    factory.kind = Declining
    factory.takes = frozenset({"DequantizeLinear", "MatMul", "Neg"})
    session = onnxplug.InferenceSession(
        model(
            DEQUANTIZE,
            node("MatMul", "x floats", "a"),
            node("Neg", "a", "b"),
            node("MatMul", "b floats", "y"),
        ),
        providers=[NAME, "cpu"],
    )
    assert placed(session) == [("MatMul", CPU), ("Neg", NAME), ("MatMul", CPU)]
    assert_near(session.run(None, FEED)[0], -(X @ WIDE) @ WIDE)


def test_what_a_body_reads(factory: Factory) -> None:
    inner = helper.make_graph(
        [node("MatMul", "x floats", "inner")],
        "then",
        [],
        [helper.make_tensor_value_info("inner", TensorProto.FLOAT, None)],
    )
    other = helper.make_graph(
        [
            node("DequantizeLinear", "w scale", "again", axis=0),
            node("MatMul", "x again", "otherwise"),
        ],
        "else",
        [],
        [helper.make_tensor_value_info("otherwise", TensorProto.FLOAT, None)],
    )
    factory.takes = frozenset({"DequantizeLinear", "ours"})
    session = onnxplug.InferenceSession(
        model(
            DEQUANTIZE,
            node("If", "yes", "a", then_branch=inner, else_branch=other),
            node("MatMul", "x floats", "b", name="ours"),
            outputs="a b",
        ),
        providers=[NAME, "cpu"],
    )
    computed = {(each.graph, each.node) for each in session.explain().computed_once}
    assert computed == {
        ("", "DequantizeLinear giving 'floats'"),
        ("If giving 'a'.else_branch", "DequantizeLinear giving 'again'"),
    }
    assert placed(session).count(("DequantizeLinear", NAME)) == 1
    for yes in (True, False):
        a, b = session.run(None, {**FEED, "yes": np.array(yes)})
        expected = WIDE if yes else WEIGHT * SCALE[:, None]
        assert_near(a, X @ expected)
        assert_near(b, X @ WIDE)


class Floats(Integer):
    preferences = ep.Preferences()


def test_as_a_model_and_as_a_source(factory: Factory) -> None:
    """An EP that reads partitions as models gets floats, which sessions can share."""
    factory.kind, factory.takes = Floats, frozenset({"MatMul"})
    made = model(DEQUANTIZE, node("MatMul", "x floats", "y")).SerializeToString()
    keys = set()
    for _ in range(2):
        onnxplug.InferenceSession(made, providers=[NAME])
        (partition,) = factory.made.partitions
        source = partition.weight("floats")
        assert source is not None and source.nbytes == WIDE.nbytes
        keys.add(source.key)
        exported = partition.to_model().model
        onnx.checker.check_model(exported)
        (floats,) = exported.graph.initializer
        np.testing.assert_array_equal(numpy_helper.to_array(floats), WIDE)
    assert len(keys) == 1


def test_the_optimised_model_has_the_integers(tmp_path: Path) -> None:
    ort = pytest.importorskip("onnxruntime")
    options = onnxplug.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "prepared.onnx")
    onnxplug.InferenceSession(
        model(
            DEQUANTIZE,
            node("Transpose", "floats", "turned"),
            node("MatMul", "x turned", "a"),
            node("MatMul", "x floats", "b"),
            outputs="a b",
        ),
        options,
    )
    path = options.optimized_model_filepath
    written = onnx.load(path)
    assert [each.op_type for each in written.graph.node] == [
        "DequantizeLinear", "Transpose", "MatMul", "MatMul",
    ]  # fmt: skip
    assert {each.name for each in written.graph.initializer} == {"w", "scale"}
    for make in (ort.InferenceSession, onnxplug.InferenceSession):
        session = make(path, providers=[CPU])
        a, b = session.run(None, {"x": X, "yes": np.array(True)})
        assert_near(a, X @ WIDE.T)
        assert_near(b, X @ WIDE)


def test_floats_go_with_who_holds_them(factory: Factory) -> None:
    factory.kind, factory.takes = Floats, frozenset({"MatMul"})
    session = onnxplug.InferenceSession(
        model(DEQUANTIZE, node("MatMul", "x floats", "y")), providers=[NAME]
    )
    (partition,) = factory.made.partitions
    weight = weakref.ref(partition.constant("floats"))
    assert weight() is not None  # the compiled partition has it
    session.close()
    del session
    gc.collect()
    assert weight() is None
    np.testing.assert_array_equal(partition.constant("floats"), WIDE)


def test_other_scales_make_other_weights(factory: Factory) -> None:
    factory.kind, factory.takes = Floats, frozenset({"MatMul"})
    keys = set()
    for scale in (SCALE, SCALE * 2):
        made = model(DEQUANTIZE, node("MatMul", "x floats", "y"))
        made.graph.initializer[1].CopyFrom(numpy_helper.from_array(scale, "scale"))
        onnxplug.InferenceSession(made, providers=[NAME])
        source = factory.made.partitions[0].weight("floats")
        assert source is not None
        keys.add(source.key[-1])  # of the scale
    assert len(keys) == 2
