"""Whole networks on the stand-in, at small sizes: all of them on the EP, and right."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from .standin import NPU, Windows

sys.path.append(str(Path(__file__).parents[3] / "benchmarks"))  # has the networks

TOLERANCE = 5e-4
"""Of the largest number in a result, by which roundings of float32 may differ: norms
over the few numbers that are left of so small pictures make much of them."""


class Network(NamedTuple):
    """A model, what it is fed, and what it gives by others' arithmetic."""

    model: Any
    feeds: Mapping[str, Any]
    expected: list[Any]


def load(name: str, folder: Path) -> Network:
    """A network; what is expected is PyTorch's, in float64, or ONNX's reference's."""
    if name == "bert":
        from models.encoders import Exporter, bert

        case = bert(
            Exporter.TORCHSCRIPT,
            layers=3, width=96, heads=4, inner=256, words=500, length=24, padding=5,
        )  # fmt: skip
        expected = ReferenceEvaluator(case.model).run(None, case.feeds)
        return Network(case.model, case.feeds, expected)
    pytest.importorskip("torch", reason="networks are built with it")
    from zoo import export
    from zoo.classifiers import MobileNetV2, ResNet
    from zoo.export import Network as Built
    from zoo.layers import StackedLstm

    built = {
        "resnet50": Built(ResNet, {"image": (1, 3, 96, 96)}),
        "mobilenetv2": Built(MobileNetV2, {"image": (1, 3, 96, 96)}),
        "lstm": Built(StackedLstm, {"steps": (1, 9, 512)}),
    }
    files = export(built[name], folder, name)
    with np.load(files.feeds) as feeds, np.load(files.expected) as expected:
        return Network(files.model, dict(feeds), list(expected.values()))


def assert_right(found: Any, expected: Any) -> None:
    for ours, wanted in zip(found, expected, strict=True):
        assert ours.shape == wanted.shape
        atol = TOLERANCE * float(abs(wanted).max())
        np.testing.assert_allclose(ours, wanted, rtol=0, atol=atol)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["resnet50", "mobilenetv2", "bert", "lstm"])
def test_a_whole_network_is_one_graph(
    name: str, windows: Windows, alone: Any, tmp_path: Path
) -> None:
    network = load(name, tmp_path)
    session = alone(network.model)
    (partition,) = session.explain().partitions
    assert partition.nodes == len(session.explain().nodes)
    for _ in range(2):
        assert_right(session.run(None, network.feeds), network.expected)
    assert windows.counts.compilations == windows.counts.initializations == 1


@pytest.mark.slow
def test_a_network_in_float16_on_an_npu(
    windows: Windows, alone: Any, tmp_path: Path
) -> None:
    network = load("bert", tmp_path)
    model = onnx.ModelProto()
    model.CopyFrom(network.model)
    narrow(model.graph)
    session = alone(model, device_filter="npu")
    (found,), (wanted,) = session.run(None, network.feeds), network.expected
    assert list(windows.devices) == [NPU.luid]
    assert found.dtype == np.float16
    np.testing.assert_allclose(found, wanted, rtol=0, atol=0.02 * np.abs(wanted).max())


def narrow(graph: onnx.GraphProto) -> None:
    """Have all that is float32 in *graph* be float16."""
    single, half = onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16
    for weight in graph.initializer:
        if weight.data_type == single:
            array = onnx.numpy_helper.to_array(weight).astype(np.float16)
            weight.CopyFrom(onnx.numpy_helper.from_array(array, weight.name))
    for node in graph.node:
        for attribute in node.attribute:
            if node.op_type == "Cast" and attribute.i == single:
                attribute.i = half
            if attribute.HasField("t") and attribute.t.data_type == single:
                array = onnx.numpy_helper.to_array(attribute.t)
                array = np.maximum(array, np.finfo(np.float16).min)
                narrower = onnx.numpy_helper.from_array(array.astype(np.float16))
                attribute.t.CopyFrom(narrower)
    for value in (*graph.input, *graph.output):
        if value.type.tensor_type.elem_type == single:
            value.type.tensor_type.elem_type = half
    del graph.value_info[:]
