"""Rules of operators with channels last: those of ONNX's, with the axes moved."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

from onnxplug.authoring.bounds import OutOfBounds
from onnxplug.ep import DataType, TensorFacts, TensorType
from onnxplug.graph import Attribute, AttributeType, Graph
from onnxplug.graph.load import load_model
from onnxplug.layout import NHWC_DOMAIN, channels_first, channels_last, permuted
from onnxplug.partition import GraphPartition
from onnxplug.prepare import infer_types

FORMS = {
    "Conv <strides = [2, 1], pads = [1, 0, 1, 0]> (x, w)": ("N,H,W,3", "5,3,3,2"),
    "ConvTranspose <strides = [2, 3], group = 1> (x, w)": ("N,H,W,3", "3,5,3,2"),
    "MaxPool <kernel_shape = [3, 3], ceil_mode = 1> (x)": ("N,9,8,3", "1"),
    "AveragePool <kernel_shape = [3, 2]> (x)": ("N,H,7,C", "1"),
    "GlobalAveragePool (x)": ("N,H,W,C", "1"),
    "LRN <size = 3> (x)": ("N,H,W,C", "1"),
    "DepthToSpace <blocksize = 2> (x)": ("N,H,W,8", "1"),
    "SpaceToDepth <blocksize = 2> (x)": ("N,6,4,C", "1"),
    "GridSample (x, w)": ("N,H,W,C", "N,5,P,2"),
    "InstanceNormalization (x, w, w)": ("N,H,W,C", "C"),
}


def load(call: str, x: str, w: str, domain: str) -> Graph:
    prefix = f"{domain}." if domain else ""
    model = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 21, "{NHWC_DOMAIN}" : 21]>'
        f"g (float[{x}] x, float[{w}] w) => (y) {{ z = {prefix}{call} y = Neg (z) }}"
    )
    graph = load_model(model).graph
    infer_types(graph)
    return graph


def moved(shape: str) -> str:
    axes = shape.split(",")
    return ",".join(permuted(axes, channels_first(len(axes))))


@pytest.mark.parametrize("call", FORMS)
def test_types(call: str) -> None:
    x, w = FORMS[call]
    expected = load(call, moved(x), w, "").types["z"]
    assert isinstance(expected, TensorType) and expected.shape is not None
    shape = permuted(expected.shape, channels_last(4))
    assert load(call, x, w, NHWC_DOMAIN).types["z"] == TensorType(expected.dtype, shape)


def infer(graph: Graph, *inputs: TensorFacts) -> Any:
    return GraphPartition(graph, graph.nodes).infer(graph.nodes[0], inputs)


def facts(*shape: int, content: Any = None) -> TensorFacts:
    return TensorFacts(DataType.FLOAT32, shape, content)


def test_of_numbers() -> None:
    graph = load("Conv <strides = [2, 1]> (x, w)", "N,H,W,3", "5,3,3,2", NHWC_DOMAIN)
    (found,) = infer(graph, facts(2, 9, 7, 3), facts(5, 3, 3, 2))
    assert found.shape == (2, 4, 6, 5)


def test_a_node_that_cannot_run_is_named() -> None:
    graph = load("DepthToSpace <blocksize = 3> (x)", "N,H,W,C", "1", NHWC_DOMAIN)
    strides = Attribute(AttributeType.INT, 0)
    graph.nodes[0].typed_attributes["blocksize"] = strides
    with pytest.raises(OutOfBounds, match=r"^com.ms.internal.nhwc.DepthToSpace giving"):
        infer(graph, facts(2, 9, 7, 9))


def resize(inputs: str, more: str) -> Graph:
    model = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 21, "{NHWC_DOMAIN}" : 21]>'
        f"g (float[N,4,5,C] x, float[4] f) => (y) < float[0] e = {{}} {more} >"
        f"{{ z = {NHWC_DOMAIN}.Resize ({inputs}) y = Neg (z) }}"
    )
    graph = load_model(model).graph
    infer_types(graph)
    return graph


def test_numbers_for_each_axis() -> None:
    graph = resize("x, e, e, s", ", int64[4] s = {2, 8, 9, 3}")
    assert graph.types["z"] == TensorType(DataType.FLOAT32, (2, 8, 9, 3))
    scales = facts(4, content=np.array([1, 2, 3, 1], np.float32))
    (found,) = infer(resize("x, e, f", ""), facts(2, 4, 5, 7), facts(0), scales)
    assert found.shape == (2, 8, 15, 7)
