"""Operators of products of codes, compiled, against arrays and ONNX's reference."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from .lowered import lowered
from .rarely import crossed

Array = np.ndarray[Any, Any]

RNG = np.random.default_rng(5)


def codes(dtype: Any, *shape: int) -> Array:
    limits = np.iinfo(dtype)
    return RNG.integers(limits.min, limits.max, shape, dtype, endpoint=True)


def of_one_node(
    operator: str,
    feeds: dict[str, Array],
    constants: dict[str, Array],
    inputs: str,
    result: Any,
    domain: str = "",
    **attributes: Any,
) -> onnx.ModelProto:
    """A model of one node, whose inputs are named in order."""
    element = helper.np_dtype_to_tensor_dtype
    outputs = [helper.make_tensor_value_info("y", element(np.dtype(result)), None)]
    graph = helper.make_graph(
        [
            helper.make_node(
                operator, inputs.split(","), ["y"], domain=domain, **attributes
            )
        ],
        "tested",
        [
            helper.make_tensor_value_info(name, element(array.dtype), array.shape)
            for name, array in feeds.items()
        ],
        outputs,
        [onnx.numpy_helper.from_array(each, name) for name, each in constants.items()],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def check(model: onnx.ModelProto, feeds: dict[str, Array], *, steps: float = 0) -> None:
    """Compare the compiled tier with arrays and, where it has one, ONNX's definition.

    Args:
        steps: how far a result may be from theirs, which divide in another order.
    """
    tested = lowered(model, threads=2)
    assert set(tested.tiers()) == {"compiled"}
    found = tested.session.run(None, feeds)[0]
    others = [tested.expected.run(None, feeds)[0]]
    if not model.graph.node[0].domain:
        others.append(ReferenceEvaluator(model).run(None, feeds)[0])
    for other in others:
        assert found.dtype == other.dtype and found.shape == other.shape
        apart = np.abs(found.astype(np.float64) - other.astype(np.float64))
        assert apart.max(initial=0) <= steps


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("zeros", ["none", "one", "each"])
def test_matmul_integer(dtype: Any, zeros: str) -> None:
    x, w = codes(np.uint8, 2, 5, 37), codes(dtype, 37, 41)
    constants = {"w": w}
    if zeros != "none":
        size = () if zeros == "one" else (41,)
        constants |= {"a": codes(np.uint8), "b": codes(dtype, *size)}
    names = "x,w" if zeros == "none" else "x,w,a,b"
    check(of_one_node("MatMulInteger", {"x": x}, constants, names, np.int32), {"x": x})


def test_matmul_integer_of_two_inputs() -> None:
    """Of few rows, and of as many as are multiplied as quads."""
    kinds = [(np.int8, np.int8), (np.uint8, np.uint8), (np.uint8, np.int8)]
    for rows, (left, right) in itertools.product((9, 40), kinds):
        x, w = codes(left, 3, 1, rows, 45), codes(right, 1, 2, 45, 33)
        feeds, zeros = {"x": x, "w": w}, {"a": codes(left), "b": codes(right)}
        check(of_one_node("MatMulInteger", feeds, zeros, "x,w,a,b", np.int32), feeds)


@pytest.mark.parametrize(
    ("zeros", "groups", "channels", "dtype"),
    crossed(["", "one", "each"], [1, 2], [3, 4, 8], [np.uint8, np.int8]),
)
def test_conv_integer(dtype: Any, channels: int, groups: int, zeros: str) -> None:
    x, w = (
        codes(dtype, 2, channels * groups, 9, 10),
        codes(np.int8, 34, channels, 3, 2),
    )
    constants = {"w": w}
    if zeros:
        size = () if zeros == "one" else (34,)
        constants |= {"a": codes(dtype), "b": codes(np.int8, *size)}
    names = "x,w,a,b" if zeros else "x,w"
    model = of_one_node(
        "ConvInteger",
        {"x": x},
        constants,
        names,
        np.int32,
        group=groups,
        pads=[1, 0, 2, 1],
        strides=[2, 1],
        dilations=[1, 2],
    )
    check(model, {"x": x})


@pytest.mark.parametrize("each", [False, True])
def test_qlinear_matmul(each: bool) -> None:
    x = codes(np.uint8, 2, 7, 40)
    constants = {
        "xs": np.float32(0.02),
        "xz": codes(np.uint8),
        "w": codes(np.int8, 40, 18),
        "ws": np.full((18,) if each else (), 0.01, np.float32),
        "wz": np.zeros((18,) if each else (), np.int8),
        "ys": np.float32(1.5),
        "yz": codes(np.uint8),
    }
    names = "x,xs,xz,w,ws,wz,ys,yz"
    model = of_one_node("QLinearMatMul", {"x": x}, constants, names, np.uint8)
    check(model, {"x": x}, steps=1)


@pytest.mark.parametrize("each", [False, True])
def test_qlinear_conv(each: bool) -> None:
    x = codes(np.uint8, 1, 6, 8, 8)
    constants = {
        "xs": np.float32(0.02),
        "xz": codes(np.uint8),
        "w": codes(np.int8, 10, 6, 3, 3),
        "ws": np.full((10,) if each else (), 0.01, np.float32),
        "wz": np.zeros((10,) if each else (), np.int8),
        "ys": np.float32(1.5),
        "yz": codes(np.uint8),
        "b": RNG.integers(-9999, 9999, 10, np.int32),
    }
    names = "x,xs,xz,w,ws,wz,ys,yz,b"
    model = of_one_node(
        "QLinearConv", {"x": x}, constants, names, np.uint8, pads=[1] * 4
    )
    check(model, {"x": x}, steps=1)


def test_qgemm() -> None:
    x = codes(np.uint8, 7, 40)
    constants = {
        "xs": np.float32(0.02),
        "xz": codes(np.uint8),
        "w": codes(np.int8, 18, 40),
        "ws": np.full(18, 0.01, np.float32),
        "wz": np.zeros(18, np.int8),
        "c": RNG.integers(-9999, 9999, 18, np.int32),
        "ys": np.float32(1.5),
        "yz": codes(np.uint8),
    }
    names = "x,xs,xz,w,ws,wz,c,ys,yz"
    model = of_one_node(
        "QGemm", {"x": x}, constants, names, np.uint8, "com.microsoft", transB=1
    )
    check(model, {"x": x}, steps=1)


def test_products_that_become_floats() -> None:
    x = RNG.standard_normal((5, 40)).astype(np.float32)
    w, scale = codes(np.int8, 40, 18), np.full(18, 0.01, np.float32)
    constants = {"w": w, "ws": scale, "wz": np.zeros(18, np.int8)}
    model = of_one_node(
        "DynamicQuantizeMatMul",
        {"x": x},
        constants,
        "x,w,ws,wz",
        np.float32,
        "com.microsoft",
    )
    check(model, {"x": x}, steps=1e-4)
    x = codes(np.uint8, 5, 40)
    constants |= {"xs": np.float32(0.1), "xz": codes(np.uint8)}
    model = of_one_node(
        "MatMulIntegerToFloat",
        {"x": x},
        constants,
        "x,w,xs,ws,xz,wz",
        np.float32,
        "com.microsoft",
    )
    check(model, {"x": x}, steps=1e-2)


@pytest.mark.parametrize("filters", [1, 2])
@pytest.mark.parametrize("kernel", [(3, 3), (1, 5), (17, 17)])
def test_convolutions_of_each_channel(filters: int, kernel: tuple[int, int]) -> None:
    x = codes(np.uint8, 2, 12, 18, 19)
    constants = {
        "xs": np.float32(0.02),
        "xz": codes(np.uint8),
        "w": codes(np.int8, 12 * filters, 1, *kernel),
        "ws": np.full(12 * filters, 0.01, np.float32),
        "wz": codes(np.int8, 12 * filters),
        "ys": np.float32(1.5),
        "yz": codes(np.uint8),
        "b": RNG.integers(-9999, 9999, 12 * filters, np.int32),
    }
    names = "x,xs,xz,w,ws,wz,ys,yz,b"
    pads = [kernel[0] // 2, kernel[1] // 2] * 2
    model = of_one_node(
        "QLinearConv", {"x": x}, constants, names, np.uint8, group=12, pads=pads
    )
    check(model, {"x": x}, steps=1)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("zero", [0, 3])
def test_convolutions_of_codes_where_they_are(dtype: Any, zero: int) -> None:
    """With weights of which few pairs are large, and zero points in the padding."""
    x = codes(dtype, 2, 16, 9, 8)
    w = np.clip(np.rint(RNG.standard_normal((20, 8, 3, 2)) * 20), -127, 127)
    w[:3, :2, 0, 0] = -128
    constants = {
        "w": w.astype(np.int8),
        "a": np.array(zero, dtype),
        "b": RNG.integers(-3, 4, 20, np.int8) if zero else np.zeros(20, np.int8),
    }
    for more in ({"pads": [1, 0, 2, 1], "strides": [2, 1]}, {"dilations": [2, 1]}):
        model = of_one_node(
            "ConvInteger", {"x": x}, constants, "x,w,a,b", np.int32, group=2, **more
        )
        check(model, {"x": x})
