"""Nodes whose attributes, constants or feeds no result is right for, in both tiers.

Each is followed and preceded by operators with which the compiled tier joins it, as a
view in the middle of a program is where a wrong address would come from.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import onnxplug
from onnxplug.errors import OnnxplugError

FLOAT = TensorProto.FLOAT
MOST = 2**63 - 1


def session(nodes: Sequence[Any], tier: str, **constants: Any) -> Any:
    """A session of *nodes*, from x of no declared shape to y."""
    graph = helper.make_graph(
        nodes,
        "invalid",
        [helper.make_tensor_value_info("x", FLOAT, None)],
        [helper.make_tensor_value_info("y", FLOAT, None)],
        [
            onnx.numpy_helper.from_array(np.asarray(value), name)
            for name, value in constants.items()
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)])
    options = {"compile": tier == "compiled"}
    return onnxplug.InferenceSession(
        model, providers=[("CPUExecutionProvider", options)]
    )


def after(behind: str) -> list[Any]:
    """What reads t and makes y."""
    return {
        "alone": [helper.make_node("Identity", ["t"], ["y"])],
        "chain": [helper.make_node("Exp", ["t"], ["y"])],
        "softmax": [helper.make_node("Softmax", ["t"], ["y"])],
        "product": [helper.make_node("MatMul", ["t", "t"], ["y"])],
        "norm": [helper.make_node("LayerNormalization", ["t", "one"], ["y"])],
    }[behind]


def before(ahead: str) -> list[Any]:
    """What reads x and makes s."""
    return {
        "alone": [helper.make_node("Identity", ["x"], ["s"])],
        "chain": [helper.make_node("Tanh", ["x"], ["s"])],
        "product": [helper.make_node("MatMul", ["x", "square"], ["s"])],
    }[ahead]


INT = np.int64
INVALID: dict[str, tuple[str, dict[str, Any], list[Any]]] = {
    "transpose repeats": ("Transpose", {"perm": [0, 0]}, []),
    "transpose repeats the last": ("Transpose", {"perm": [1, 1]}, []),
    "transpose lacks": ("Transpose", {"perm": [0]}, []),
    "transpose has more": ("Transpose", {"perm": [0, 1, 2]}, []),
    "transpose negates": ("Transpose", {"perm": [-1, 0]}, []),
    "transpose far": ("Transpose", {"perm": [0, MOST]}, []),
    "reduce before": ("ReduceSum", {}, [[-3]]),
    "reduce behind": ("ReduceSum", {}, [[2]]),
    "reduce far": ("ReduceMean", {}, [[MOST]]),
    "expand to negative": ("Expand", {}, [[-4, -4]]),
    "expand beyond int64": ("Expand", {}, [[2**32, 2**32, 4, 4]]),
    "reshape to negative": ("Reshape", {}, [[-2, -8]]),
    "reshape to two unknown": ("Reshape", {}, [[-1, -1]]),
    "tile by negative": ("Tile", {}, [[-1, -1]]),
    "tile beyond int64": ("Tile", {}, [[2**32, 2**32]]),
    "slice on no axis": ("Slice", {}, [[0], [1], [2]]),
    "slice by no step": ("Slice", {}, [[0], [1], [0], [0]]),
    "squeeze no axis": ("Squeeze", {}, [[5]]),
    "unsqueeze twice": ("Unsqueeze", {}, [[0, 0]]),
    "unsqueeze far": ("Unsqueeze", {}, [[7]]),
    "flatten far": ("Flatten", {"axis": 3}, []),
    "softmax far": ("Softmax", {"axis": 2}, []),
    "softmax before": ("Softmax", {"axis": -3}, []),
    "cumsum far": ("CumSum", {}, [2]),
    "pad no axis": ("Pad", {}, [[1, 1], np.float32(0), [2]]),
    "pad of another length": ("Pad", {}, [[1, 1]]),
    "pad takes more than all": ("Pad", {}, [[-100, 0, 0, 0]]),
    "gather no axis": ("Gather", {"axis": 2}, [[0]]),
    "gather elements of no axis": ("GatherElements", {"axis": -3}, [[[0]]]),
    "gather outside": ("GatherElements", {"axis": 0}, [[[4]]]),
    "gather nd of negative batch": ("GatherND", {"batch_dims": -1}, [[[0]]]),
    "scatter on no axis": (
        "ScatterElements",
        {"axis": 2},
        [[[0]], np.ones((1, 1), np.float32)],
    ),
    "concat on no axis": ("Concat", {"axis": 2}, [np.ones((4, 4), np.float32)]),
}


@pytest.mark.parametrize("tier", ["compiled", "array"])
@pytest.mark.parametrize("name", INVALID)
def test_invalid_nodes_are_refused(name: str, tier: str) -> None:
    op_type, attributes, given = INVALID[name]
    constants: dict[str, Any] = {
        f"c{at}": value if isinstance(value, np.ndarray | np.float32) else INT(value)
        for at, value in enumerate(given)
    }
    wrong = helper.make_node(
        op_type, ["s", *constants], ["t"], name="the wrong one", **attributes
    )
    constants["square"] = np.ones((4, 4), np.float32)
    constants["one"] = np.ones(4, np.float32)
    x = np.arange(16, dtype=np.float32).reshape(4, 4)
    for ahead in ("alone", "chain", "product"):
        for behind in ("alone", "chain", "softmax", "product", "norm"):
            nodes = [*before(ahead), wrong, *after(behind)]
            with pytest.raises(OnnxplugError, match="the wrong one"):
                session(nodes, tier, **constants).run(None, {"x": x})


@pytest.mark.parametrize("tier", ["compiled", "array"])
@pytest.mark.parametrize(
    "node",
    [
        ("Transpose", {"perm": [1, 0, 2]}, []),
        ("ReduceSum", {}, [[-3]]),
        ("ReduceMax", {"keepdims": 0}, [[2]]),
        ("Softmax", {"axis": 2}, []),
        ("Slice", {}, [[1], [2], [2]]),
        ("Squeeze", {}, [[0]]),
        ("Gather", {"axis": 2}, [[0]]),
    ],
    ids=lambda node: node[0],
)
def test_a_feed_of_another_rank_is_refused_each_time(
    node: tuple[str, dict[str, Any], list[Any]], tier: str
) -> None:
    op_type, attributes, given = node
    constants = {f"c{at}": INT(value) for at, value in enumerate(given)}
    wrong = helper.make_node(
        op_type, ["x", *constants], ["t"], name="the wrong one", **attributes
    )
    made = session([wrong, *after("chain")], tier, **constants)
    right = np.ones((1, 2, 3), np.float32)
    (expected,) = made.run(None, {"x": right})
    for shape in ((2, 3), (3,), ()):
        with pytest.raises(OnnxplugError, match="the wrong one"):
            made.run(None, {"x": np.ones(shape, np.float32)})
        np.testing.assert_array_equal(made.run(None, {"x": right})[0], expected)


@pytest.mark.parametrize("tier", ["compiled", "array"])
def test_a_first_output_may_be_left_out(tier: str) -> None:
    mean = helper.make_node("LayerNormalization", ["x", "one"], ["", "y"])
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    (found,) = session([mean], tier, one=np.ones(4, np.float32)).run(None, {"x": x})
    np.testing.assert_allclose(found, x.mean(axis=1, keepdims=True))


@pytest.mark.parametrize("tier", ["compiled", "array"])
def test_a_limit_of_more_axes_is_no_limit(tier: str) -> None:
    clip = helper.make_node("Clip", ["x", "low"], ["y"], name="the wrong one")
    made = session([clip], tier, low=np.zeros(3, np.float32))
    with pytest.raises(OnnxplugError, match="the wrong one"):
        made.run(None, {"x": np.float32(1).reshape(())})


@pytest.mark.parametrize("tier", ["compiled", "array"])
@pytest.mark.parametrize("missing", ["past_key", "past_value"])
def test_attention_needs_both_parts_of_a_cache(tier: str, missing: str) -> None:
    past = {"past_key": "", "past_value": ""}
    past = {name: "" if name == missing else "past" for name in past}
    node = helper.make_node(
        "Attention",
        ["x", "x", "x", "", *past.values()],
        ["y"],
        name="the wrong one",
        q_num_heads=2,
        kv_num_heads=2,
    )
    made = session([node], tier, past=np.ones((2, 2, 5, 2), np.float32))
    with pytest.raises(OnnxplugError, match="the wrong one"):
        made.run(None, {"x": np.ones((2, 3, 4), np.float32)})


FLAGS = [
    ("Gemm", {"transB": 7}),
    ("ReduceSum", {"keepdims": 2}),
    ("CumSum", {"reverse": -1}),
    ("Trilu", {"upper": 2}),
]


@pytest.mark.parametrize("tier", ["compiled", "array"])
@pytest.mark.parametrize(("op_type", "flags"), FLAGS)
def test_flags_are_0_or_1(op_type: str, flags: dict[str, int], tier: str) -> None:
    inputs = {"Gemm": ["x", "square"], "CumSum": ["x", "axis"]}.get(op_type, ["x"])
    node = helper.make_node(op_type, inputs, ["t"], name="the wrong one", **flags)
    square, axis = np.ones((4, 4), np.float32), INT(0)
    with pytest.raises(OnnxplugError, match="the wrong one"):
        session([node, *after("chain")], tier, square=square, axis=axis).run(
            None, {"x": square}
        )


@pytest.mark.parametrize("tier", ["compiled", "array"])
def test_outputs_that_nobody_reads_need_not_be_made(tier: str) -> None:
    norm = helper.make_node("LayerNormalization", ["x", "one"], ["t", "mean", "rest"])
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    made = session([norm, *after("alone")], tier, one=np.ones(4, np.float32))
    expected = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(made.run(None, {"x": x})[0], expected, rtol=1e-5)


def test_an_initializer_has_the_type_of_the_input_that_it_is_the_default_of() -> None:
    graph = helper.make_graph(
        [helper.make_node("Neg", ["w"], ["y"])],
        "wrong",
        [helper.make_tensor_value_info("w", TensorProto.INT64, [2])],
        [helper.make_tensor_value_info("y", FLOAT, [2])],
        [onnx.numpy_helper.from_array(np.ones(2, np.float32), "w")],
    )
    with pytest.raises(OnnxplugError, match="input 'w' is declared as int64"):
        onnxplug.InferenceSession(helper.make_model(graph))


@pytest.mark.parametrize("tier", ["compiled", "array"])
def test_of_an_input_without_a_type_the_shape_can_be_used(tier: str) -> None:
    untyped = onnx.ValueInfoProto(name="k")
    graph = helper.make_graph(
        [
            helper.make_node("Shape", ["k"], ["s"]),
            helper.make_node("Expand", ["x", "s"], ["t"]),
            helper.make_node("Exp", ["t"], ["y"]),
        ],
        "untyped",
        [helper.make_tensor_value_info("x", FLOAT, [1]), untyped],
        [helper.make_tensor_value_info("y", FLOAT, None)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    options = {"compile": tier == "compiled"}
    made = onnxplug.InferenceSession(
        model, providers=[("CPUExecutionProvider", options)]
    )
    x = np.zeros(1, np.float32)
    for dtype in (np.int64, np.float16):
        (found,) = made.run(None, {"x": x, "k": np.zeros((2, 3), dtype)})
        np.testing.assert_array_equal(found, np.ones((2, 3)))
