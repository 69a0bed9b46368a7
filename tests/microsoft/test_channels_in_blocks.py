"""Models that ONNX Runtime saves with channels in blocks, and ones written likewise."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import onnxplug
from onnxplug.errors import (
    InvalidModel,
    OptionError,
    UnassignedNode,
    UnsupportedModel,
)

NCHWC = "com.microsoft.nchwc"
ENTRY = "session.nchwc_block_size"
CPU = ["CPUExecutionProvider"]

FILES = Path(__file__).parent / "blocks"

Array = Any


class Net:
    """A model while it is written; all weights are random."""

    def __init__(self, opset: int = 17) -> None:
        self.opset = opset
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self._random = np.random.default_rng(3)

    def random(self, *shape: int) -> Array:
        spread = np.sqrt(2 / max(1, np.prod(shape[1:])))
        return (self._random.standard_normal(shape) * spread).astype(np.float32)

    def constant(self, content: Any, dtype: Any = np.float32) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.array(content, dtype), name))
        return name

    def op(
        self, op_type: str, *inputs: str, domain: str = "", **attributes: Any
    ) -> str:
        name = f"{op_type}{len(self.nodes)}"
        self.nodes.append(
            helper.make_node(
                op_type, inputs, [name], name=name, domain=domain, **attributes
            )
        )
        return name

    def conv(self, x: str, *shape: int, bias: bool = True, **attributes: Any) -> str:
        parts = [self.constant(self.random(*shape))]
        if bias:
            parts.append(self.constant(self.random(shape[0])))
        return self.op("Conv", x, *parts, **attributes)

    def model(
        self, shape: Sequence[int | str], *outputs: str, extra: Any = ()
    ) -> onnx.ModelProto:
        value = functools.partial(helper.make_tensor_value_info, elem_type=1)
        graph = helper.make_graph(
            [*self.nodes, *extra],
            "net",
            [value("x", shape=shape)],
            [value(name, shape=None) for name in outputs],
            self.weights,
        )
        domains = [("", self.opset), ("com.microsoft", 1), (NCHWC, 1)]
        imports = [helper.make_opsetid(*each) for each in domains]
        return helper.make_model(graph, opset_imports=imports, ir_version=8)


def feeds(*shape: int) -> dict[str, Array]:
    return {"x": np.random.default_rng(5).standard_normal(shape).astype(np.float32)}


def saved(model: onnx.ModelProto, folder: Path) -> onnx.ModelProto:
    """The model as ONNX Runtime saves it at ``ORT_ENABLE_ALL``."""
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(folder / "saved.onnx")
    options.log_severity_level = 4
    onnxruntime.InferenceSession(model.SerializeToString(), options, providers=CPU)
    return onnx.load(folder / "saved.onnx")


def theirs(model: onnx.ModelProto, given: dict[str, Array]) -> list[Array]:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=CPU)
    return list(session.run(None, given))


def session(
    model: onnx.ModelProto, size: int | str = "", compiled: bool = False
) -> onnxplug.InferenceSession:
    options = onnxplug.SessionOptions()
    options.add_session_config_entry(ENTRY, str(size))
    providers = [("CPUExecutionProvider", {"compile": compiled})]
    return onnxplug.InferenceSession(model, options, providers=providers)


def assert_as(found: Sequence[Array], wanted: Sequence[Array]) -> None:
    for one, other in zip(found, wanted, strict=True):
        assert one.dtype == other.dtype and one.shape == other.shape
        np.testing.assert_allclose(one, other, 1e-5, 1e-5 * np.abs(other).max())


@pytest.fixture(scope="module")
def block_size(tmp_path_factory: pytest.TempPathFactory) -> int:
    """Channels in a block of ONNX Runtime on this machine."""
    net = Net()
    made = net.conv("x", 20, 3, 3, 3)
    model = saved(net.model([1, 3, 8, 8], made), tmp_path_factory.mktemp("size"))
    convolutions = [node for node in model.graph.node if node.domain == NCHWC]
    if not convolutions:
        pytest.skip("ONNX Runtime makes no blocks on this machine")
    shapes = {each.name: each.dims for each in model.graph.initializer}
    return {24: 8, 32: 16}[shapes[convolutions[0].input[1]][0]]


# what ONNX Runtime saves


def classifier(net: Net) -> list[str]:
    """Odd numbers of channels, which tell the size of blocks; depthwise and grouped
    convolutions, pools, sums, batch normalization, concatenation."""
    x = net.op("Relu", net.conv("x", 32, 3, 3, 3, pads=[1] * 4, strides=[2, 2]))
    x = net.conv(x, 32, 1, 3, 3, group=32, auto_pad="SAME_UPPER")
    parts = [net.constant(1 + np.abs(net.random(32)) * n) for n in (1, 0.1, 0.2, 1)]
    x = net.op("BatchNormalization", x, *parts)
    x = net.op("Clip", x, net.constant(0), net.constant(6))
    narrow = net.conv(x, 48, 32, 1, 1, bias=False)
    again = net.op("Add", net.conv(narrow, 48, 48, 1, 1), narrow)
    again = net.op("Relu", again)
    grouped = net.conv(x, 64, 16, 3, 3, group=2, pads=[1] * 4, dilations=[1, 1])
    both = net.op("Concat", again, grouped, axis=1)
    window = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1] * 4}
    small = net.op("MaxPool", both, **window)
    mean = net.op("AveragePool", both, ceil_mode=1, count_include_pad=1, **window)
    odd = net.op("LeakyRelu", net.conv(small, 20, 112, 3, 3), alpha=0.1)
    last = net.op("Sigmoid", net.conv(odd, 16, 20, 3, 3, dilations=[2, 1]))
    mean = net.op("GlobalAveragePool", mean)
    return [odd, last, net.conv(mean, 32, 112, 1, 1), net.op("GlobalMaxPool", small)]


def upsampler(net: Net) -> list[str]:
    x = net.conv("x", 32, 3, 3, 3)
    x = net.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    parts = [net.constant(1 + np.abs(net.random(32)) * n) for n in (1, 0.1, 0.2, 1)]
    x = net.op("Relu", net.op("BatchNormalization", x, *parts))
    made = []
    for scales, attributes in (
        ([1, 1, 2, 2], {"mode": "nearest", "nearest_mode": "floor"}),
        ([1, 1, 2, 3], {"mode": "linear"}),
    ):
        for mode in ("asymmetric", "half_pixel", "align_corners"):
            if "nearest_mode" in attributes and mode != "asymmetric":
                continue
            factors = net.constant(scales)
            up = net.op(
                "Resize",
                *(x, "", factors),
                coordinate_transformation_mode=mode,
                **attributes,
            )
            made.append(net.conv(up, 24, 32, 1, 1))
    made[-1] = net.op("Transpose", made[-1], perm=[0, 2, 3, 1])
    return made


def gates(net: Net) -> list[str]:
    """Of blocks of 16 and of 8: nothing of these tells which."""
    x = net.conv("x", 32, 3, 3, 3)
    gate = net.op("GlobalAveragePool", x)
    gate = net.op("Relu", net.conv(gate, 16, 32, 1, 1))
    gate = net.op("Sigmoid", net.conv(gate, 32, 16, 1, 1))
    gated = net.op("Mul", x, gate)
    swish = net.op("Mul", x, net.op("Sigmoid", x))
    tanh = net.op("Tanh", swish)
    hard = net.op("HardSigmoid", tanh, alpha=0.2)
    gelu = net.op("Gelu", x, domain="com.microsoft")
    joined = net.op("Concat", gated, swish, tanh, axis=1)
    return [
        net.conv(joined, 32, 96, 1, 1),
        net.conv(net.op("Mul", tanh, hard), 32, 32, 3, 3),
        net.conv(gelu, 16, 32, 1, 1),
    ]


def small(net: Net) -> list[str]:
    """What is kept as a file: channels of 8, which are read in blocks of 8 only."""
    x = net.op("Relu", net.conv("x", 8, 3, 3, 3, pads=[1] * 4))
    x = net.conv(x, 8, 1, 3, 3, group=8, strides=[2, 1])
    narrow = net.conv(x, 24, 8, 1, 1, bias=False)
    x = net.op("Relu", net.op("Add", net.conv(narrow, 24, 24, 1, 1), narrow))
    x = net.op("MaxPool", x, kernel_shape=[2, 2], ceil_mode=1)
    x = net.op("LeakyRelu", net.conv(x, 20, 24, 1, 1), alpha=0.1)
    return [x, net.conv(x, 12, 20, 1, 1)]


MODELS: dict[str, Callable[[Net], list[str]]] = {
    "classifier": classifier,
    "upsampler": upsampler,
    "gates": gates,
    "small": small,
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("compiled", [False, True], ids=["arrays", "compiled"])
@pytest.mark.parametrize("fixed", [False, True], ids=["any size", "fixed"])
def test_models_of_onnx_runtime(
    name: str, compiled: bool, fixed: bool, block_size: int, tmp_path: Path
) -> None:
    net = Net()
    outputs = MODELS[name](net)
    shape = (2, 3, 34, 41)
    model = net.model(shape if fixed else ("n", 3, "h", "w"), *outputs)
    blocked = saved(model, tmp_path)
    assert sum(node.domain == NCHWC for node in blocked.graph.node) > 3
    given = feeds(*shape)
    size = block_size if name == "gates" else ""
    ours = session(blocked, size, compiled)
    assert_as(ours.run(None, given), theirs(model, given))


def test_images_with_channels_last(block_size: int, tmp_path: Path) -> None:
    net = Net()
    x = net.op("Transpose", "x", perm=[0, 3, 1, 2])
    made = net.op("Transpose", net.conv(x, 24, 20, 3, 3), perm=[0, 2, 3, 1])
    model = net.model([1, 12, 13, 20], made)
    blocked = saved(model, tmp_path)
    given = feeds(1, 12, 13, 20)
    assert_as(session(blocked).run(None, given), theirs(model, given))


@pytest.mark.parametrize("compiled", [False, True], ids=["arrays", "compiled"])
def test_a_model_saved_on_another_processor(compiled: bool) -> None:
    """By ONNX Runtime 1.32 with AVX2, whose blocks are of 8 channels, from
    ``small``; ``plain.onnx`` is what it was made from."""
    blocked = onnx.load(FILES / "blocks_of_8.onnx")
    assert sum(node.domain == NCHWC for node in blocked.graph.node) > 5
    given = feeds(2, 3, 15, 10)
    wanted = theirs(onnx.load(FILES / "plain.onnx"), given)
    assert_as(session(blocked, "", compiled).run(None, given), wanted)


def test_blocks_in_bodies(block_size: int, tmp_path: Path) -> None:
    """Each graph has its own; what tells their size may be in another."""
    value = functools.partial(helper.make_tensor_value_info, elem_type=1, shape=None)
    bodies = {}
    for name, filters in (("then_branch", 20), ("else_branch", 32)):
        inner = Net()
        made = inner.conv(
            inner.op("Relu", inner.conv("x", 20, 3, 3, 3)), filters, 20, 1, 1
        )
        made = inner.op("ReduceMax", made, axes=[1])
        for node in inner.nodes:  # names are unique in a model
            node.name = f"{name}/{node.name}"
        bodies[name] = helper.make_graph(
            inner.nodes, name, [], [value(made)], inner.weights
        )
    net = Net()
    positive = net.op("Greater", net.op("ReduceMax", "x", keepdims=0), net.constant(0))
    net.nodes.append(helper.make_node("If", [positive], ["y"], **bodies))
    model = net.model(["n", 3, "h", "w"], "y", net.conv("x", 16, 3, 1, 1))
    blocked = saved(model, tmp_path)
    (choice,) = (node for node in blocked.graph.node if node.op_type == "If")
    for attribute in choice.attribute:
        assert any(node.domain == NCHWC for node in attribute.g.node)
    for given in (feeds(2, 3, 9, 8), {"x": -np.abs(feeds(2, 3, 9, 8)["x"])}):
        for size in (block_size, ""):
            found = session(blocked, size).run(None, given)
            assert_as(found, theirs(model, given))


def test_nothing_in_blocks_is_left(block_size: int, tmp_path: Path) -> None:
    net = Net()
    blocked = saved(net.model([1, 3, 34, 41], *classifier(net)), tmp_path)
    explained = session(blocked).explain()
    op_types = {node.op_type for node in explained.nodes}
    assert {"Conv", "MaxPool", "AveragePool"} <= op_types
    assert not {"ReorderInput", "ReorderOutput", "Upsample"} & op_types


# written here, with blocks of any size


def in_blocks(weights: Array, size: int, *, inputs: bool) -> Array:
    """[O, I, H, W] with zeros up to whole blocks, in the order that MLAS reads."""
    o, i, h, w = weights.shape
    rows = -(-o // size)
    columns = -(-i // size) if inputs else i
    within = size if inputs else 1
    padded = np.zeros((rows * size, columns * within, h, w), weights.dtype)
    padded[:o, :i] = weights
    made = np.empty((rows, columns, h, w, within, size), weights.dtype)
    for place in np.ndindex(*made.shape):
        row, column, y, x, low, high = place
        made[place] = padded[row * size + high, column * within + low, y, x]
    return made.reshape(padded.shape)


def reordered(net: Net, weights: Array, size: int, *, inputs: bool) -> str:
    return net.constant(in_blocks(weights, size, inputs=inputs))


def pair(size: int, opset: int, channels: int = 20) -> tuple[Net, Net, str, str]:
    """The same network without blocks and with, and their outputs."""
    plain, blocks = Net(opset), Net(opset)
    first, bias = plain.random(24, 3, 3, 3), plain.random(24)
    second, third = plain.random(40, 24, 1, 1), plain.random(40, channels, 3, 3)

    x = plain.op("Conv", "x", plain.constant(first), plain.constant(bias), pads=[1] * 4)
    x = plain.op("Sigmoid", x)
    x = plain.op("Conv", x, plain.constant(second))
    x = plain.op("Relu", x)
    window = {"kernel_shape": [2, 2], "strides": [2, 2]}
    x = plain.op("MaxPool", x, **window)
    part = plain.op("Conv", "y", plain.constant(third), pads=[1] * 4)
    x = plain.op("LeakyRelu", plain.op("Add", x, part), alpha=0.2)
    x = plain.op("AveragePool", x, count_include_pad=1, **window)

    op = functools.partial(blocks.op, domain=NCHWC)
    padded = np.zeros(-(-24 // size) * size, np.float32)
    padded[:24] = bias
    b = op(
        "Conv",
        *("x", reordered(blocks, first, size, inputs=False), blocks.constant(padded)),
        pads=[1] * 4,
        activation="Sigmoid",
    )
    b = op(
        "Conv",
        *(b, reordered(blocks, second, size, inputs=True)),
        activation="Relu",
        group=1,
    )
    b = op("MaxPool", b, **window)
    y = op("ReorderInput", "y")
    b = op(
        "Conv",
        *(y, reordered(blocks, third, size, inputs=True), "", b),
        pads=[1] * 4,
        activation="LeakyRelu",
        activation_params=[0.2],
    )
    b = op("AveragePool", b, count_include_pad=1, **window)
    return plain, blocks, x, op("ReorderOutput", b, channels=40)


def with_second_input(model: onnx.ModelProto, *shape: int) -> onnx.ModelProto:
    model.graph.input.append(helper.make_tensor_value_info("y", 1, shape))
    return model


@pytest.mark.parametrize("opset", [7, 10, 12, 17, 21])
@pytest.mark.parametrize("size", [8, 16])
def test_the_size_of_blocks_follows_from_the_model(size: int, opset: int) -> None:
    plain, blocks, x, b = pair(size, opset)
    given = feeds(2, 3, 12, 12) | {"y": feeds(2, 20, 6, 6)["x"]}
    shape = (2, 20, 6, 6)
    model = with_second_input(plain.model([2, 3, 12, 12], x), *shape)
    blocked = with_second_input(blocks.model([2, 3, 12, 12], b), *shape)
    assert_as(session(blocked).run(None, given), theirs(model, given))
    assert_as(session(blocked, size).run(None, given), theirs(model, given))
    with pytest.raises(UnsupportedModel, match=r"com.microsoft.nchwc"):
        session(blocked, 24 - size)


@pytest.mark.parametrize("opset", [8, 9, 10, 11])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_upsampling_in_older_opsets(opset: int, mode: str) -> None:
    net = Net(opset)
    x = net.op("ReorderInput", "x", domain=NCHWC)
    x = net.op("Upsample", x, domain=NCHWC, mode=mode, scales=[1, 1, 2, 3])
    x = net.op("ReorderOutput", x, domain=NCHWC, channels=20)
    model = net.model([1, 20, 4, 5], x)
    given = feeds(1, 20, 4, 5)
    (found,) = session(model, 8).run(None, given)
    plain = Net(11)
    scales = plain.constant([1, 1, 2, 3])
    y = plain.op(
        "Resize",
        *("x", plain.constant([]), scales),
        mode=mode,
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )
    assert_as([found], theirs(plain.model([1, 20, 4, 5], y), given))


# what is refused


def gate_in_blocks(channels: int = 32) -> tuple[Net, str]:
    net = Net()
    weights = net.constant(net.random(channels, 3, 3, 3))
    return net, net.op("Conv", "x", weights, domain=NCHWC)


def refused(net: Net, *outputs: str, size: int | str = 16, extra: Any = ()) -> str:
    model = net.model([1, 3, 8, 8], *outputs, extra=extra)
    with pytest.raises((InvalidModel, UnsupportedModel)) as caught:
        session(model, size)
    return str(caught.value)


def test_a_size_that_nothing_tells_is_asked_for() -> None:
    net, x = gate_in_blocks()
    y = net.op("ReorderOutput", x, domain=NCHWC, channels=32)
    text = refused(net, y, size="")
    assert "multiples of 16" in text and repr(ENTRY) in text
    weights = numpy_helper.to_array(net.weights[0])
    given = feeds(1, 3, 8, 8)
    for size in (8, 16):
        (found,) = session(net.model([1, 3, 8, 8], y), size).run(None, given)
        order = weights.reshape(32 // size, 3, 3, 3, size).transpose(0, 4, 1, 2, 3)
        plain = Net()
        z = plain.op("Conv", "x", plain.constant(order.reshape(weights.shape)))
        assert_as([found], theirs(plain.model([1, 3, 8, 8], z), given))


def test_a_size_that_there_is_not() -> None:
    with pytest.raises(OptionError, match="'8' or '16'"):
        onnxplug.SessionOptions().add_session_config_entry(ENTRY, "4")


def test_what_is_in_blocks_is_not_given_out() -> None:
    net, x = gate_in_blocks()
    assert f"the output '{x}' has its channels in blocks" in refused(net, x)


@pytest.mark.parametrize(
    ("op_type", "attributes"),
    [
        ("Softmax", {"axis": 1}),
        ("Transpose", {"perm": [0, 2, 3, 1]}),
        ("Flatten", {}),
        ("GlobalAveragePool", {}),
        ("InstanceNormalization", {}),
    ],
)
def test_what_tells_channels_apart_reads_none_in_blocks(
    op_type: str, attributes: dict[str, Any]
) -> None:
    net, x = gate_in_blocks()
    more = []
    if op_type == "InstanceNormalization":
        more = [net.constant(np.ones(32)) for _ in range(2)]
    y = net.op(op_type, x, *more, **attributes)
    assert f"reads '{x}', whose channels are in blocks" in refused(net, y)


def test_what_is_in_blocks_is_not_broadcast_nor_joined_with_others() -> None:
    for op_type, other, attributes in (
        ("Mul", np.ones((1, 32, 1, 1)), {}),
        ("Concat", np.ones((1, 32, 6, 6)), {"axis": 1}),
    ):
        net, x = gate_in_blocks()
        y = net.op(op_type, x, net.constant(other), **attributes)
        y = net.op("ReorderOutput", y, domain=NCHWC, channels=32)
        assert "whose channels are in blocks" in refused(net, y)
    net, x = gate_in_blocks()
    mean = net.op("GlobalAveragePool", x, domain=NCHWC)
    y = net.op("ReorderOutput", net.op("Mul", x, mean), domain=NCHWC, channels=32)
    assert "whose channels are in blocks" in refused(net, y)
    net, x = gate_in_blocks()
    y = net.op("Concat", x, x, axis=2)
    y = net.op("ReorderOutput", y, domain=NCHWC, channels=32)
    assert "whose channels are in blocks" in refused(net, y)


def test_a_body_does_not_read_what_is_in_blocks() -> None:
    net, x = gate_in_blocks()
    value = functools.partial(helper.make_tensor_value_info, elem_type=1, shape=None)
    body = helper.make_graph(
        [helper.make_node("Identity", [x], ["inner"])], "body", [], [value("inner")]
    )
    truth = net.constant(True, bool)
    choice = helper.make_node(
        "If", [truth], ["y"], then_branch=body, else_branch=body, name="choice"
    )
    assert "whose channels are in blocks" in refused(net, "y", extra=[choice])


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"group": 0}, "group is [0]"),
        ({"group": -1}, "group is [-1]"),
        ({"strides": [0, 1]}, "strides is [0, 1]"),
        ({"group": 2}, "in 2 groups"),
        ({"group": "a"}, "expected INT"),
        ({"colour": 1}, "no attribute 'colour'"),
        ({"activation": "Softmax"}, "'activation' is 'Softmax'"),
    ],
)
def test_attributes_of_convolutions(changes: dict[str, Any], why: str) -> None:
    net = Net()
    weights = net.constant(net.random(32, 3, 3, 3))
    x = net.op("Conv", "x", weights, domain=NCHWC, **changes)
    y = net.op("ReorderOutput", x, domain=NCHWC, channels=32)
    assert why in refused(net, y)


@pytest.mark.parametrize(
    "shape", [(24, 3, 3, 3), (32, 3, 3), (0, 3, 3, 3), (32, 32, 1, 1)]
)
def test_weights_that_do_not_fit(shape: tuple[int, ...]) -> None:
    net = Net()
    x = net.op("Conv", "x", net.constant(np.zeros(shape)), domain=NCHWC)
    y = net.op("ReorderOutput", x, domain=NCHWC, channels=20)
    assert "weights" in refused(net, y)


def test_what_is_added_has_the_shape_of_the_result() -> None:
    for pads in ([1] * 4, [0] * 4):
        net, x = gate_in_blocks()
        x = net.op("GlobalMaxPool", x, domain=NCHWC)
        weights = net.constant(net.random(32, 32, 1, 1))
        wide = net.op("Conv", x, weights, domain=NCHWC, pads=pads)
        y = net.op("Conv", x, weights, "", wide, domain=NCHWC)
        y = net.op("ReorderOutput", y, domain=NCHWC, channels=32)
        if any(pads):  # it would be broadcast
            assert f"adds '{wide}', which is not in blocks of the shape" in refused(
                net, y
            )
        else:
            session(net.model([1, 3, 8, 8], y), 16)
    net, x = gate_in_blocks()
    weights = net.constant(net.random(32, 32, 1, 1))
    ones = net.constant(np.ones((1, 32, 6, 6)))
    y = net.op("Conv", x, weights, "", ones, domain=NCHWC)
    y = net.op("ReorderOutput", y, domain=NCHWC, channels=32)
    assert "which is not in blocks" in refused(net, y)


def test_weights_that_are_computed() -> None:
    net = Net()
    weights = net.op("Identity", "x")
    x = net.op("Conv", "x", weights, domain=NCHWC)
    y = net.op("ReorderOutput", x, domain=NCHWC, channels=32)
    assert "no 4-D constant" in refused(net, y)


@pytest.mark.parametrize("channels", [0, -1, 16, 33, 1 << 62])
def test_more_or_fewer_channels_than_there_are(channels: int) -> None:
    net, x = gate_in_blocks()
    y = net.op("ReorderOutput", x, domain=NCHWC, channels=channels)
    model = net.model([1, 3, 8, 8], y)
    with pytest.raises((InvalidModel, UnsupportedModel), match="channels"):
        session(model, 16)


@pytest.mark.parametrize(
    "changes",
    [
        {"scales": [1, 1, 2]},
        {"scales": [1, 2, 2, 2]},
        {"scales": [1, 1, 0, 2]},
        {"scales": [1, 1, 2, 2], "mode": "cubic"},
        {"scales": [1, 1, 2, 2], "coordinate_transformation_mode": "half_pixel"},
    ],
)
def test_upsampling_that_there_is_not(changes: dict[str, Any]) -> None:
    net, x = gate_in_blocks()
    x = net.op("Upsample", x, domain=NCHWC, **changes)
    y = net.op("ReorderOutput", x, domain=NCHWC, channels=32)
    text = refused(net, y)
    assert "scales" in text or "mode" in text


def test_an_operator_that_the_domain_does_not_have() -> None:
    net, x = gate_in_blocks()
    x = net.op("Softmax", x, domain=NCHWC)
    y = net.op("ReorderOutput", x, domain=NCHWC, channels=32)
    assert "Softmax" in refused(net, y)


def test_the_pass_may_be_left_out() -> None:
    net, x = gate_in_blocks()
    y = net.op("ReorderOutput", x, domain=NCHWC, channels=32)
    options = onnxplug.SessionOptions()
    options.add_session_config_entry(
        "optimization.disable_specified_optimizers", "rewrite"
    )
    with pytest.raises(UnassignedNode, match="pass 'rewrite' only"):
        onnxplug.InferenceSession(net.model([1, 3, 8, 8], y), options, providers=CPU)
