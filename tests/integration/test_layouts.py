"""EPs that want images with their channels last."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import onnxplug
from onnxplug import ep
from onnxplug.errors import EpWarning
from onnxplug.plugins import registry
from onnxplug_testing.channels_last import (
    ChannelsLastExecutionProvider,
    ChannelsLastFactory,
)
from onnxplug_testing.random_conv_nets import ConvNet

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
    model: onnx.ModelProto,
    feeds: dict[str, Any] | None = None,
    *,
    by_reference: bool = True,
) -> onnxplug.InferenceSession:
    """A session of *model* on the EP and the CPU's, which computes what others do."""
    session = onnxplug.InferenceSession(model, providers=[NAME, "cpu"])
    feeds = feeds or drawn(session)
    others: list[Any] = [onnxplug.InferenceSession(model, providers=["cpu"])]
    if by_reference:
        others.append(ReferenceEvaluator(model))
    results = session.run(None, feeds)
    for other in others:
        for found, expected in zip(results, other.run(None, feeds), strict=True):
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


NOT_BY_REFERENCE = {"ConvTranspose", "GlobalLpPool", "LRN"}
"""It knows no groups, has no such operator, and counts channels by the batch."""

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
    session = check(model, by_reference=form not in NOT_BY_REFERENCE)
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
    node = model.graph.node[0]
    node.output[0] = "r"
    model.graph.node.append(onnx.helper.make_node("Neg", ["r"], ["y"]))
    session = onnxplug.InferenceSession(model, providers=[NAME, "cpu"])
    laid = session.explain().laid_out
    assert [each.nodes for each in laid] == ([1] if channels == 4 else [])
    feeds = drawn(session)
    (expected,) = ReferenceEvaluator(model).run(None, feeds)
    np.testing.assert_array_equal(session.run(None, feeds)[0], expected)


def test_quantised(factory: ChannelsLastFactory) -> None:
    model = parse(
        "y = QLinearConv <pads=[1,1,1,1]> (x, xs, xz, w, ws, wz, ys, yz)",
        "uint8[1,4,5,6] x",
    )
    constants(
        model,
        xs=np.float32(0.02),
        xz=np.uint8(120),
        w=RANDOM.integers(0, 255, (3, 4, 3, 3)).astype(np.uint8),
        ws=np.float32([0.01, 0.02, 0.03]),
        wz=np.array([100, 120, 140], np.uint8),
        ys=np.float32(0.5),
        yz=np.uint8(128),
    )
    session = check(model)
    assert session.explain().laid_out[0].nodes == 1


@pytest.mark.parametrize("seed", range(60))
def test_random_nets(factory: ChannelsLastFactory, seed: int) -> None:
    net = ConvNet(seed)
    # whose pools and products with several axes onnx.reference gets wrong
    session = check(net.model, net.feeds, by_reference=False)
    explained = session.explain()
    before = sum(node.op_type == "Transpose" for node in net.model.graph.node)
    left = operators(session).count("Transpose") - before
    assert left == sum(each.transposes for each in explained.laid_out)
    assert all(each.undone == "" for each in explained.laid_out)
    converted = sum(each.nodes for each in explained.laid_out)
    assert left <= 2 * converted


def test_what_it_does_not_take_so_is_what_it_was(factory: ChannelsLastFactory) -> None:
    factory.takes = frozenset({"Conv"})
    session = check(
        parse(
            """
            a = Conv <pads = [1,1,1,1]> (x, w)
            b = Neg (a)
            c = MaxPool <kernel_shape = [3,3]> (b)
            y = Abs (c)
            """,
            f"{IMAGE}, float[4,4,3,3] w",
        )
    )
    assert operators(session) == [
        "Transpose", "Conv", "Neg", "Transpose", "MaxPool", "Abs",
    ]  # fmt: skip
    pool = session.explain().nodes[-2]
    assert (pool.domain, pool.ep) == ("", "CPUExecutionProvider")
    assert "NHWC for ChannelsLastExecutionProvider: 1 node, +2 Transpose" in str(
        session.explain()
    )


def test_none_that_it_takes_so(factory: ChannelsLastFactory) -> None:
    factory.takes = frozenset()
    session = check(parse("a = Conv (x, w) y = Abs (a)", f"{IMAGE}, float[4,4,3,3] w"))
    assert operators(session) == ["Conv", "Abs"]
    assert [each.nodes for each in session.explain().laid_out] == [0]


class Declining(ChannelsLastExecutionProvider):
    """Declines all partitions that have a convolution."""

    def compile(self, partition: ep.Partition) -> ep.CompiledPartition:
        named = [node for node in partition.nodes if node.op_type == "Conv"]
        if named:
            raise ep.Declined("not now", nodes=named)
        return super().compile(partition)


def test_declined_it_is_what_it_was(
    factory: ChannelsLastFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(factory, "create", lambda *_: Declining(factory.takes))
    session = check(parse("a = Conv (x, w) y = Abs (a)", f"{IMAGE}, float[4,4,3,3] w"))
    assert operators(session) == ["Conv", "Abs"]
    assert [(each.nodes, each.undone) for each in session.explain().laid_out] == [
        (1, "some of these nodes were given back")
    ]


def test_it_fails_afterwards(
    factory: ChannelsLastFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Failing(ChannelsLastExecutionProvider):
        def compile(self, partition: ep.Partition) -> ep.CompiledPartition:
            raise RuntimeError("not at all")

    monkeypatch.setattr(factory, "create", lambda *_: Failing(factory.takes))
    model = parse("a = Conv (x, w) y = Abs (a)", f"{IMAGE}, float[4,4,3,3] w")
    with pytest.warns(EpWarning, match="not at all"):
        session = check(model)
    assert operators(session) == ["Conv", "Abs"]


def test_a_model_that_transposes_itself(factory: ChannelsLastFactory) -> None:
    """As those that were written with channels last are exported."""
    session = check(
        parse(
            """
            first = Transpose <perm = [0,3,1,2]> (x)
            a = Conv <pads = [1,1,1,1]> (first, w)
            b = Relu (a)
            last = Transpose <perm = [0,2,3,1]> (b)
            c = Add (last, bias)
            again = Transpose <perm = [0,3,1,2]> (c)
            d = MaxPool <kernel_shape = [2,2]> (again)
            y = Transpose <perm = [0,2,3,1]> (d)
            """,
            "float[1,6,5,3] x, float[4,3,3,3] w, float[4] bias",
        )
    )
    assert operators(session) == ["Conv", "Relu", "Add", "MaxPool"]
    (laid,) = session.explain().laid_out
    assert (laid.nodes, laid.transposes) == (2, -4)


def test_sizes_that_are_not_known(factory: ChannelsLastFactory) -> None:
    model = parse(
        """
        a = Conv <pads = [1,1,1,1], strides = [2,2]> (x, w)
        b = Mul (a, s)
        c = GlobalAveragePool (b)
        d = Sigmoid (c)
        e = Mul (b, d)
        y = Concat <axis = 1> (e, b)
        """,
        "float[N,3,H,W] x, float[4,3,3,3] w, float[4,1,1] s",
    )
    weights = {
        "w": RANDOM.uniform(-1, 1, (4, 3, 3, 3)).astype(np.float32),
        "s": RANDOM.uniform(-1, 1, (4, 1, 1)).astype(np.float32),
    }
    del model.graph.input[1:]
    constants(model, **weights)
    for shape in ((1, 3, 5, 6), (2, 3, 8, 7)):
        x = RANDOM.uniform(-1, 1, shape).astype(np.float32)
        session = check(model, {"x": x})
    assert operators(session).count("Transpose") == 2
    (output,) = session.get_outputs()
    assert output.shape[1] == 8


def test_in_a_body(factory: ChannelsLastFactory) -> None:
    model = parse(
        """
        n = Neg (x)
        y = If (yes) <
            then_branch = t () => (float[2,4,6,7] u) {
                p = Conv <pads = [1,1,1,1]> (n, w) u = Relu (p)
            },
            else_branch = e () => (float[2,4,6,7] v) { v = Abs (n) }
        >
        """,
        f"{IMAGE}, float[4,4,3,3] w, bool yes",
    )
    feeds = {
        "x": RANDOM.uniform(-1, 1, (2, 4, 6, 7)).astype(np.float32),
        "w": RANDOM.uniform(-1, 1, (4, 4, 3, 3)).astype(np.float32),
    }
    for yes in (True, False):
        session = check(model, {**feeds, "yes": np.array(yes)})
    (laid,) = session.explain().laid_out
    assert (laid.graph, laid.nodes) == ("If giving 'y'.then_branch", 1)


def test_as_a_model(factory: ChannelsLastFactory, tmp_path: Path) -> None:
    """What is written loads, and runs where no EP wants channels last."""
    options = onnxplug.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "prepared.onnx")
    net = ConvNet(4)
    session = onnxplug.InferenceSession(net.model, options, providers=[NAME, "cpu"])
    assert session.explain().laid_out[0].nodes
    again = onnxplug.InferenceSession(
        options.optimized_model_filepath, providers=["cpu"]
    )
    assert {node.domain for node in again.explain().nodes} == {""}
    for found, expected in zip(
        again.run(None, net.feeds), session.run(None, net.feeds), strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_inputs_in_three_orders(factory: ChannelsLastFactory) -> None:
    session = check(
        parse(
            """
            a = Conv <pads = [1,1,1,1]> (x, w)
            b = Transpose <perm = [0,1,3,2]> (x)
            c = Add (a, b)
            d = Add (c, z)
            e = Conv <pads = [1,1,1,1]> (d, w)
            y = Neg (e)
            """,
            "float[1,4,6,6] x, float[1,4,6,6] z, float[4,4,3,3] w",
        )
    )
    (laid,) = session.explain().laid_out
    assert (laid.nodes, laid.undone) == (2, "")


def test_what_a_body_reads_is_there_as_it_was(factory: ChannelsLastFactory) -> None:
    model = parse(
        """
        a = Conv <pads = [1,1,1,1]> (x, w)
        y = If (yes) <
            then_branch = t () => (float[2,4,6,7] u) { u = Softmax <axis = 1> (a) },
            else_branch = e () => (float[2,4,6,7] v) { v = Abs (a) }
        >
        """,
        f"{IMAGE}, float[4,4,3,3] w, bool yes",
    )
    feeds = {
        "x": RANDOM.uniform(-1, 1, (2, 4, 6, 7)).astype(np.float32),
        "w": RANDOM.uniform(-1, 1, (4, 4, 3, 3)).astype(np.float32),
    }
    for yes in (True, False):
        session = check(model, {**feeds, "yes": np.array(yes)})
    assert [tuple(each[3:]) for each in session.explain().laid_out] == [(1, 2, "")]


def test_places_of_largest_elements_are_those_with_channels_first(
    factory: ChannelsLastFactory,
) -> None:
    model = parse(
        """
        p, i = MaxPool <kernel_shape = [2,2]> (x)
        j = Cast <to = 1> (i)
        y = Add (p, j)
        """,
        IMAGE,
    )
    # the reference counts places within each image
    assert check(model, by_reference=False).explain().laid_out == []


def test_a_model_with_channels_last_where_nobody_wants_them() -> None:
    model = parse(
        'y = com.ms.internal.nhwc.Resize <mode = "linear"> (x, e, f)',
        "float[1,3,4,2] x",
    )
    model.opset_import.append(onnx.helper.make_opsetid(NHWC, 21))
    scales = np.float32([1, 2, 3, 1])
    constants(model, e=np.zeros(0, np.float32), f=scales)
    session = onnxplug.InferenceSession(model, providers=["cpu"])
    x = RANDOM.uniform(-1, 1, (1, 3, 4, 2)).astype(np.float32)
    plain = parse('y = Resize <mode = "linear"> (x, e, f)', "float[1,3,4,2] x")
    constants(plain, e=np.zeros(0, np.float32), f=scales)
    (expected,) = ReferenceEvaluator(plain).run(None, {"x": x})
    (found,) = session.run(None, {"x": x})
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
