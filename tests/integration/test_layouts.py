"""EPs that want images with their channels last."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import onnxplug
from onnxplug.plugins import registry
from onnxplug_testing.channels_last import ChannelsLastFactory

NAME = ChannelsLastFactory.name
RANDOM = np.random.default_rng(3)
NHWC = "com.ms.internal.nhwc"


@pytest.fixture
def factory() -> Iterator[ChannelsLastFactory]:
    factory = ChannelsLastFactory()
    registry.add(factory)
    yield factory
    registry.remove(NAME)


def parse(nodes: str, inputs: str, opset: int = 21) -> onnx.ModelProto:
    return onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : {opset}]>'
        f"g ({inputs}) => (y) {{ {nodes} }}"
    )


def drawn(session: onnxplug.InferenceSession) -> dict[str, Any]:
    kinds = {"tensor(float)": np.float32, "tensor(uint8)": np.uint8}
    return {
        each.name: (RANDOM.uniform(0, 1, each.shape) * 200).astype(np.uint8)
        if kinds[each.type] is np.uint8
        else RANDOM.uniform(-1, 1, each.shape).astype(np.float32)
        for each in session.get_inputs()
    }


def check(
    model: onnx.ModelProto, feeds: dict[str, Any] | None = None
) -> onnxplug.InferenceSession:
    """A session of *model* on the EP and the CPU's, which is right."""
    session = onnxplug.InferenceSession(model, providers=[NAME, "cpu"])
    feeds = feeds or drawn(session)
    for found, expected in zip(
        session.run(None, feeds), ReferenceEvaluator(model).run(None, feeds),
        strict=True,
    ):  # fmt: skip
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    return session


def operators(session: onnxplug.InferenceSession) -> list[str]:
    return [node.op_type for node in session.explain().nodes]


IMAGE = "float[2,4,6,7] x"
PER_CHANNEL = "float[4] s, float[4] b, float[4] m"


def constants(model: onnx.ModelProto, **arrays: Any) -> None:
    model.graph.initializer.extend(
        onnx.numpy_helper.from_array(array, name) for name, array in arrays.items()
    )


FORMS = {
    "Conv": (
        "Conv <pads=[1,0,2,1], strides=[2,1], dilations=[1,2], group=2> (x, w, b)",
        f"{IMAGE}, float[6,2,3,2] w, float[6] b",
    ),
    "Conv 1d": (
        'Conv <auto_pad="SAME_LOWER"> (x, w)',
        "float[1,2,9] x, float[3,2,4] w",
    ),
    "Conv 3d": ("Conv (x, w)", "float[1,2,5,4,6] x, float[3,2,2,3,2] w"),
    "ConvTranspose": (
        "ConvTranspose <strides=[2,3], pads=[1,0,0,1], output_padding=[1,0], group=2>"
        "(x, w, b)",
        f"{IMAGE}, float[4,3,3,2] w, float[6] b",
    ),
    "ConvTranspose same": (
        'ConvTranspose <strides=[2,2], auto_pad="SAME_UPPER"> (x, w)',
        f"{IMAGE}, float[4,3,3,3] w",
    ),
    "MaxPool": (
        "MaxPool <kernel_shape=[3,2], strides=[2,2], ceil_mode=1, pads=[1,0,1,1]> (x)",
        IMAGE,
    ),
    "AveragePool": (
        "AveragePool <kernel_shape=[3,2], pads=[1,0,1,1], count_include_pad=1> (x)",
        IMAGE,
    ),
    "AveragePool without pads": (
        "AveragePool <kernel_shape=[3,3], strides=[2,2], pads=[1,1,1,1]> (x)",
        IMAGE,
    ),
    "LpPool": ("LpPool <kernel_shape=[2,3], p=3> (x)", IMAGE),
    "GlobalAveragePool": ("GlobalAveragePool (x)", IMAGE),
    "GlobalMaxPool": ("GlobalMaxPool (x)", IMAGE),
    "GlobalLpPool": ("GlobalLpPool <p=3> (x)", IMAGE),
    "BatchNormalization": (
        "BatchNormalization <epsilon=0.1> (x, s, b, m, v)",
        f"{IMAGE}, {PER_CHANNEL}, float[4] v",
    ),
    "InstanceNormalization": (
        "InstanceNormalization (x, s, b)",
        f"{IMAGE}, float[4] s, float[4] b",
    ),
    "LRN": ("LRN <size=3, alpha=0.5, beta=0.6, bias=1.5> (x)", IMAGE),
    "DepthToSpace": ("DepthToSpace <blocksize=2> (x)", "float[2,8,3,2] x"),
    "DepthToSpace CRD": (
        'DepthToSpace <blocksize=2, mode="CRD"> (x)',
        "float[2,8,3,2] x",
    ),
    "SpaceToDepth": ("SpaceToDepth <blocksize=2> (x)", "float[2,3,4,6] x"),
    "GridSample": ("GridSample (x, g)", "float[2,4,6,7] x, float[2,3,5,2] g"),
    "Resize": ('Resize <mode="linear"> (x, e, f)', IMAGE),
}


@pytest.mark.parametrize("form", FORMS)
def test_each_operator(factory: ChannelsLastFactory, form: str) -> None:
    call, inputs = FORMS[form]
    model = parse(f"y = {call}", inputs)
    if "Resize" in form:
        scales = {"e": np.zeros(0, np.float32), "f": np.float32([1, 1, 2, 1.5])}
        constants(model, **scales)
    if form == "BatchNormalization":
        model = parse(f"a = Abs (v) y = {call.replace('v)', 'a)')}", inputs)
    session = check(model)
    explained = session.explain()
    (laid,) = explained.laid_out
    assert (laid.nodes, laid.transposes, laid.undone) == (1, 2, "")
    (node,) = [node for node in explained.nodes if node.domain]
    assert (node.domain, node.op_type, node.ep) == (NHWC, form.split()[0], NAME)


@pytest.mark.parametrize("channels", [4, 8])
def test_resizing_to_sizes(factory: ChannelsLastFactory, channels: int) -> None:
    """Channels stay, or the node is not even offered."""
    model = parse('y = Resize <mode="nearest"> (x, e, e, s)', IMAGE)
    sizes = np.array([2, channels, 9, 3])
    constants(model, e=np.zeros(0, np.float32), s=sizes)
    session = onnxplug.InferenceSession(model, providers=[NAME, "cpu"])
    laid = session.explain().laid_out
    assert [each.nodes for each in laid] == ([1] if channels == 4 else [])
    feeds = drawn(session)
    (expected,) = ReferenceEvaluator(model).run(None, feeds)
    np.testing.assert_array_equal(session.run(None, feeds)[0], expected)
