"""Numbers that are quantised and dequantised, compiled, against ONNX's definition in
numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from .differential import refusing_nothing_more, session

Array = np.ndarray[Any, Any]
NODE = helper.make_node


def model_of(
    nodes: list[onnx.NodeProto],
    feeds: dict[str, Array],
    outputs: list[str],
    weights: dict[str, Array],
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "quantised",
        [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
            )
            for name, array in feeds.items()
        ],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(np.asarray(w), name) for name, w in weights.items()],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def run(model: onnx.ModelProto, feeds: dict[str, Array], threads: int = 1) -> list[Any]:
    """The outputs of the compiled model, of which no call may run on arrays."""
    with refusing_nothing_more():
        return list(session(model, compiled=True, threads=threads).run(None, feeds))


def quantised(x: Array, scale: Any, zero: Any, dtype: Any) -> Array:
    """What ONNX says of QuantizeLinear."""
    limits = np.iinfo(dtype)
    with np.errstate(over="ignore"):
        steps = np.rint(x / scale).astype(np.float64)
    return np.clip(steps + zero, limits.min, limits.max).astype(dtype)


def dequantised(q: Array, scale: Any, zero: Any) -> Array:
    """What ONNX says of DequantizeLinear."""
    return (q.astype(np.float32) - np.float32(zero)) * scale


def column(vector: Array, axis: int | None, rank: int) -> Array:
    if axis is None:
        return vector
    return vector.reshape(-1, *[1] * (rank - 1 - axis % rank))


@pytest.mark.parametrize(
    ("dtype", "axis", "has_zero"),
    [
        (np.int8, None, False),
        (np.uint8, None, True),
        (np.int8, 1, True),
        (np.uint8, -1, False),
        (np.uint8, 0, True),
        (np.int16, 1, False),
        (np.uint16, None, True),
    ],
)
def test_a_chain_quantises_as_the_definition(
    dtype: Any, axis: int | None, has_zero: bool
) -> None:
    random = np.random.default_rng(5)
    x = (random.standard_normal((3, 19, 17)) * 3).astype(np.float32)
    x[0, 0, :5] = [np.inf, -np.inf, 1e30, -3e38, 0.0]
    limits = np.iinfo(dtype)
    shape = () if axis is None else (x.shape[axis],)
    scale = np.asarray(random.random(shape) * 0.05 + 0.01, np.float32)
    zero = np.asarray(random.integers(limits.min, limits.max + 1, shape), dtype)
    # halves, which go to the even number
    first = scale.reshape(-1)[0]
    x[0, 0, 8:12] = first * np.array([0.5, 1.5, 2.5, -0.5], np.float32)
    weights = {"s": scale, "z": zero if has_zero else np.zeros(shape, dtype)}
    extra = {} if axis is None else {"axis": axis}
    nodes = [
        NODE("QuantizeLinear", ["x", "s", "z"], ["q"], **extra),
        NODE("DequantizeLinear", ["q", "s", "z"], ["d"], **extra),
        NODE("Relu", ["d"], ["r"]),
        NODE("QuantizeLinear", ["r", "s", "z"], ["y"], **extra),
    ]
    outputs = ["q", "d", "y"]
    found = run(model_of(nodes, {"x": x}, outputs, weights), {"x": x}, threads=2)
    scales, zeros = (column(w, axis, 3) for w in weights.values())
    zeros = zeros.astype(np.float64)
    q = quantised(x, scales, zeros, dtype)
    d = dequantised(q, scales, zeros)
    wanted = [q, d, quantised(np.maximum(d, 0), scales, zeros, dtype)]
    for one, other in zip(found, wanted, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    "scale", [0.0123, -0.7, 3.0, 2.0**-61, 2.0**-140, 1.3e36, 3.0e38, np.inf]
)
def test_what_is_rounded_is_divided_to_the_bit(scale: float) -> None:
    """Around halves, and with the signs of zeros, whatever the scale."""
    steps = np.float32(scale)
    halves = np.arange(-300, 300, dtype=np.float32) + np.float32(0.5)
    with np.errstate(over="ignore", invalid="ignore"):
        middle = np.nan_to_num((halves * steps).astype(np.float32))
        near = [np.nextafter(middle, np.float32(sign)) for sign in (-np.inf, np.inf)]
    ends = [0.0, -0.0, 1.0, -1e-30, 1e-44, np.inf, -np.inf, 3e38, -3e38]
    x = np.concatenate([middle, *near, np.float32(ends)])
    nodes = [
        NODE("Div", ["x", "s"], ["d"]),
        NODE("Round", ["d"], ["y"]),
        NODE("QuantizeLinear", ["x", "s"], ["q"]),
    ]
    with np.errstate(over="ignore", invalid="ignore"):
        whole = np.rint(x / steps)
        sure = ~np.isnan(whole)
        codes = quantised(np.where(sure, x, 0), steps, 0.0, np.uint8)
    feeds = {"x": x}
    found = run(model_of(nodes, feeds, ["y", "q"], {"s": steps}), feeds)
    np.testing.assert_array_equal(found[0], whole)
    np.testing.assert_array_equal(np.signbit(found[0][sure]), np.signbit(whole[sure]))
    np.testing.assert_array_equal(found[1][sure], codes[sure])


def test_nan_becomes_some_code_and_harms_nothing() -> None:
    x = np.full(70, np.nan, np.float32)
    x[::2] = 1.0
    nodes = [NODE("QuantizeLinear", ["x", "s", "z"], ["y"])]
    weights = {"s": np.float32(0.5), "z": np.uint8(3)}
    (found,) = run(model_of(nodes, {"x": x}, ["y"], weights), {"x": x})
    assert (found[::2] == 5).all()


def test_scales_that_a_run_computes() -> None:
    random = np.random.default_rng(6)
    x = random.standard_normal((5, 33)).astype(np.float32)
    feeds = {"x": x, "s": np.float32([0.07]), "z": np.int8([4])}
    nodes = [
        NODE("Abs", ["s"], ["t"]),
        NODE("QuantizeLinear", ["x", "t", "z"], ["q"]),
        NODE("DequantizeLinear", ["q", "t", "z"], ["y"]),
    ]
    found = run(model_of(nodes, feeds, ["q", "y"], {}), feeds)
    wanted = quantised(x, feeds["s"], 4.0, np.int8)
    np.testing.assert_array_equal(found[0], wanted)
    np.testing.assert_array_equal(found[1], dequantised(wanted, feeds["s"], 4))


@pytest.mark.parametrize("size", [1, 32, 40])
def test_blocks_have_scales_of_their_own(size: int) -> None:
    random = np.random.default_rng(7)
    x = random.standard_normal((4, 96, 3)).astype(np.float32)
    blocks = -(-96 // size)
    scale = (random.random((4, blocks, 3)) * 0.1 + 0.01).astype(np.float32)
    zero = random.integers(-50, 50, scale.shape).astype(np.int8)
    weights = {"s": scale, "z": zero}
    more = {"axis": 1, "block_size": size}
    nodes = [
        NODE("QuantizeLinear", ["x", "s", "z"], ["q"], **more),
        NODE("DequantizeLinear", ["q", "s", "z"], ["y"], **more),
    ]
    found = run(model_of(nodes, {"x": x}, ["q", "y"], weights), {"x": x})
    scales, zeros = (np.repeat(w, size, 1)[:, :96] for w in (scale, zero))
    wanted = quantised(x, scales, zeros.astype(np.float64), np.int8)
    np.testing.assert_array_equal(found[0], wanted)
    np.testing.assert_array_equal(found[1], dequantised(wanted, scales, zeros))


@pytest.mark.parametrize("lead", [(4,), (2, 3)], ids=str)
def test_products_without_terms_are_zeros(lead: tuple[int, ...]) -> None:
    """Of codes by codes, and of floats by codes."""
    feeds = {"x": np.zeros((*lead, 0), np.uint8), "f": np.zeros((*lead, 0), np.float32)}
    weights = {"w": np.zeros((0, 20), np.int8), "s": np.full(20, 0.1, np.float32)}
    weights |= {"t": np.float32(0.5), "z": np.uint8(7)}
    nodes = [
        NODE("DequantizeLinear", ["x", "t"], ["d"]),
        NODE("DequantizeLinear", ["w", "s"], ["v"], axis=1),
        NODE("MatMul", ["d", "v"], ["m"]),
        NODE("MatMul", ["f", "v"], ["n"]),
        NODE("QuantizeLinear", ["m", "t", "z"], ["y"]),
    ]
    found = run(model_of(nodes, feeds, ["n", "y"], weights), feeds)
    np.testing.assert_array_equal(found[0], np.zeros((*lead, 20), np.float32))
    np.testing.assert_array_equal(found[1], np.full((*lead, 20), 7, np.uint8))
