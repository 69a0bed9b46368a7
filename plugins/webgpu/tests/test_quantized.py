"""Small integers with scales and zero points, against numpy in float64."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper

import onnxplug

RNG = np.random.default_rng(11)
INT4 = np.dtype(ml_dtypes.int4)
UINT4 = np.dtype(ml_dtypes.uint4)


def model_of(
    nodes: list[onnx.NodeProto],
    feeds: dict[str, np.ndarray[Any, Any]],
    outputs: list[str],
    weights: dict[str, np.ndarray[Any, Any]],
) -> onnx.ModelProto:
    def value(name: str, array: np.ndarray[Any, Any]) -> onnx.ValueInfoProto:
        element = helper.np_dtype_to_tensor_dtype(array.dtype)
        return helper.make_tensor_value_info(name, element, array.shape)

    graph = helper.make_graph(
        nodes,
        "g",
        [value(name, array) for name, array in feeds.items()],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [onnx.numpy_helper.from_array(w, name) for name, w in weights.items()],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def bytes_of(*shape: int, dtype: Any = np.uint8) -> np.ndarray[Any, Any]:
    limits = np.iinfo(dtype)
    return RNG.integers(limits.min, limits.max + 1, shape).astype(dtype)


def unpacked(packed: np.ndarray[Any, Any], bits: int) -> np.ndarray[Any, Any]:
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    parts = (packed[..., None] >> shifts) & np.uint8((1 << bits) - 1)
    return parts.reshape(*packed.shape[:-1], -1).astype(np.float64)


@pytest.mark.parametrize(
    ("inner", "block", "bits", "zeros", "dtype", "lead"),
    [
        (64, 32, 4, "none", np.float32, (3,)),
        (70, 16, 4, "packed", np.float32, (2, 5)),  # the last block is shorter
        (96, 32, 8, "packed", np.float32, (1,)),
        (96, 32, 2, "packed", np.float32, (4,)),
        (160, 32, 4, "floats", np.float32, (40,)),
        (64, 32, 4, "packed", np.float16, (1, 7)),
        (0, 32, 4, "none", np.float32, (0,)),  # no rows
    ],
)
def test_weights_of_few_bits_are_multiplied_as_they_are(
    alone: Any, inner: int, block: int, bits: int, zeros: str, dtype: Any, lead: Any
) -> None:
    """And with the chain behind: one launch, which reads packed bytes."""
    inner, columns = inner or 64, 33
    blocks = -(-inner // block)
    weights = {
        "b": bytes_of(columns, blocks, block * bits // 8),
        "scales": (RNG.random((columns, blocks)) / 10).astype(dtype),
    }
    zero: Any = float(1 << bits - 1)
    if zeros == "packed":
        weights["zeros"] = bytes_of(columns, -(-blocks * bits // 8))
        zero = unpacked(weights["zeros"], bits)[:, :blocks, None]
    elif zeros == "floats":
        weights["zeros"] = (RNG.random((columns, blocks)) * 8).astype(dtype)
        zero = weights["zeros"][:, :, None].astype(np.float64)
    weights["bias"] = RNG.standard_normal(columns).astype(dtype)
    x = RNG.standard_normal((*lead, inner)).astype(dtype)
    names = ["x", "b", "scales", "zeros" if "zeros" in weights else "", "", "bias"]
    nodes = [
        helper.make_node(
            "MatMulNBits", names, ["h"], domain="com.microsoft", K=inner, N=columns,
            bits=bits, block_size=block,
        ),
        helper.make_node("Relu", ["h"], ["y"]),
    ]  # fmt: skip
    session = alone(model_of(nodes, {"x": x}, ["y"], weights))
    (found,) = session.run(None, {"x": x})
    assert [n.op_type for n in session.explain().nodes] == ["MatMulNBits", "Relu"]
    scales = weights["scales"][:, :, None].astype(np.float64)
    full = (unpacked(weights["b"], bits) - zero) * scales
    wide = x.astype(np.float64) @ full.reshape(columns, -1)[:, :inner].T
    wanted = np.maximum(wide + weights["bias"], 0)
    bound = 2e-6 if dtype == np.float32 else 1e-3
    assert found.dtype == dtype
    np.testing.assert_allclose(
        found, wanted, bound, bound * max(1.0, np.abs(wide).max(initial=0))
    )


@pytest.mark.parametrize("lead", [(), (3,), (2, 3)], ids=str)
@pytest.mark.parametrize("per", ["none", "scalars", "vectors"])
def test_integers_are_multiplied_exactly(alone: Any, lead: Any, per: str) -> None:
    a, b = bytes_of(*lead, 9, 40), bytes_of(*lead[1:], 40, 12, dtype=np.int8)
    weights, names = {}, ["a", "b"]
    one: Any = np.int64(0)
    other: Any = np.int64(0)
    if per != "none":
        shapes = [(), ()] if per == "scalars" else [(9,), (12,)]
        weights = {
            "p": bytes_of(*shapes[0]).reshape(shapes[0]),
            "q": bytes_of(*shapes[1], dtype=np.int8).reshape(shapes[1]),
        }
        names += ["p", "q"]
        one, other = (w.astype(np.int64) for w in weights.values())
        one = one.reshape(-1, 1) if per == "vectors" else one
    nodes = [
        helper.make_node("MatMulInteger", names, ["i"]),
        helper.make_node("Cast", ["i"], ["f"], to=onnx.TensorProto.FLOAT),
        helper.make_node("Mul", ["f", "s"], ["y"]),
    ]
    weights["s"] = np.array(0.25, np.float32)
    feeds = {"a": a, "b": b}
    found = alone(model_of(nodes, feeds, ["i", "y"], weights)).run(None, feeds)
    wanted = (a.astype(np.int64) - one) @ (b.astype(np.int64) - other)
    np.testing.assert_array_equal(found[0], wanted)
    np.testing.assert_array_equal(found[1], wanted * 0.25)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16, INT4, UINT4])
@pytest.mark.parametrize("block", [0, 4], ids=["axis", "blocks"])
def test_codes_are_their_differences_from_zero_in_scales(
    alone: Any, dtype: Any, block: int
) -> None:
    """The axis has a shorter last block."""
    limits = ml_dtypes.iinfo(dtype)
    codes = RNG.integers(limits.min, limits.max + 1, (3, 10, 5)).astype(dtype)
    shape = (3, 3, 5) if block else (10,)
    scale = (RNG.random(shape) + 0.1).astype(np.float32)
    zero = RNG.integers(limits.min, limits.max + 1, shape).astype(dtype)
    attributes = {"block_size": block} if block else {}
    names = ["x", "scale", "zero"]
    to = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    nodes = [
        helper.make_node("Cast", ["n"], ["x"], to=to),
        helper.make_node("DequantizeLinear", names, ["y"], axis=1, **attributes),
        helper.make_node("Mul", ["y", "c"], ["m"]),
        helper.make_node(
            "QuantizeLinear", ["m", "scale", "zero"], ["z"], axis=1, **attributes
        ),
        helper.make_node("Cast", ["z"], ["k"], to=onnx.TensorProto.INT32),
    ]
    weights = {"scale": scale, "zero": zero, "c": np.array(1.3, np.float32)}
    feeds = {"n": codes.astype(np.int32)}
    y, m, k = alone(model_of(nodes, feeds, ["y", "m", "k"], weights)).run(None, feeds)

    def spread(parameter: Any) -> Any:
        if not block:
            return parameter[:, None].astype(np.float64)
        return np.repeat(parameter, block, 1)[:, :10].astype(np.float64)

    wanted = (codes.astype(np.float64) - spread(zero)) * spread(scale)
    np.testing.assert_allclose(y, wanted, 2e-7)
    steps = (m / spread(scale).astype(np.float32)).astype(np.float32)
    rounded = np.rint(steps) + spread(zero)
    np.testing.assert_array_equal(k, np.clip(rounded, limits.min, limits.max))


@pytest.mark.parametrize("low", [-3.0, 0.5, -9.0])
def test_the_range_of_numbers_is_that_of_codes(alone: Any, low: float) -> None:
    x = RNG.uniform(low, low + 7, (6, 70)).astype(np.float32)
    node = helper.make_node("DynamicQuantizeLinear", ["x"], ["y", "s", "z"])
    y, scale, zero = alone(model_of([node], {"x": x}, ["y", "s", "z"], {})).run(
        None, {"x": x}
    )
    smallest, largest = min(x.min(), np.float32(0)), max(x.max(), np.float32(0))
    step = (largest - smallest) / np.float32(255)
    assert scale == step
    middle = np.rint(np.clip(-smallest / step, 0, 255))
    assert zero == middle
    np.testing.assert_array_equal(y, np.clip(np.rint(x / step) + middle, 0, 255))


def test_products_of_codes_become_codes(alone: Any) -> None:
    a, b = bytes_of(2, 9, 40), bytes_of(40, 12, dtype=np.int8)
    weights: dict[str, np.ndarray[Any, Any]] = {
        "a_scale": np.array(0.02, np.float32),
        "a_zero": np.array(113, np.uint8),
        "b_scale": (RNG.random(12) / 50).astype(np.float32),
        "b_zero": bytes_of(12, dtype=np.int8),
        "y_scale": np.array(0.7, np.float32),
        "y_zero": np.array(118, np.uint8),
    }
    names = ["a", "a_scale", "a_zero", "b", "b_scale", "b_zero", "y_scale", "y_zero"]
    node = helper.make_node("QLinearMatMul", names, ["y"])
    feeds = {"a": a, "b": b}
    (found,) = alone(model_of([node], feeds, ["y"], weights)).run(None, feeds)
    wide = (a.astype(np.int64) - 113) @ (b.astype(np.int64) - weights["b_zero"])
    steps = wide * (0.02 * weights["b_scale"].astype(np.float64) / 0.7)
    wanted = np.clip(np.rint(steps) + 118, 0, 255)
    # half-way between two codes float32 may go the other way
    near = np.abs(steps - np.floor(steps) - 0.5) < 1e-4
    assert np.abs(found.astype(int) - wanted)[near].max(initial=0) <= 1
    np.testing.assert_array_equal(found[~near], wanted[~near])


def test_wrong_sizes_are_errors_that_leave_the_session(alone: Any) -> None:
    weights = {"b": bytes_of(3, 2, 16), "s": np.ones((3, 2), np.float32)}
    node = helper.make_node(
        "MatMulNBits", ["x", "b", "s"], ["y"], domain="com.microsoft", K=64, N=3,
        bits=4, block_size=32, name="few",
    )  # fmt: skip
    x = np.ones((2, 64), np.float32)
    model = model_of([node], {"x": x}, ["y"], weights)
    for dimension in model.graph.input[0].type.tensor_type.shape.dim:
        dimension.dim_param = "unknown"
    session = alone(model)
    (wanted,) = session.run(None, {"x": x})
    with pytest.raises(onnxplug.errors.NodeError, match=r"few.*do not multiply"):
        session.run(None, {"x": x[:, :32].copy()})
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], wanted)


PRODUCTS = {
    "blocks, turned": (INT4, (64, 96), 1, 32, {"turn": True}),
    "blocks": (UINT4, (96, 64), 0, 16, {}),
    "columns": (np.int8, (96, 64), 1, 0, {}),
    "rows": (np.int8, (96, 64), 0, 0, {}),
    "one": (np.uint8, (96, 64), 1, 0, {"one": True}),
    "Gemm": (np.int8, (64, 96), 0, 0, {"transB": 1, "alpha": 0.5, "beta": 2.0}),
    "odd blocks": (INT4, (96, 64), 0, 36, {"apart": True}),
}
"""Elements, sizes of the weights, axis, block, and what else."""


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_products_take_weights_as_codes(alone: Any, name: str, dtype: Any) -> None:
    element, shape, axis, block, more = PRODUCTS[name]
    more = dict(more)
    turn, apart = more.pop("turn", False), more.pop("apart", False)
    limits = ml_dtypes.iinfo(element)
    sizes: tuple[int, ...] = (shape[axis],)
    if block:
        sizes = tuple(
            -(-size // block) if each == axis else size
            for each, size in enumerate(shape)
        )
    if more.pop("one", False):
        sizes = ()
    codes = RNG.integers(limits.min, limits.max + 1, shape).astype(element)
    weights = {
        "codes": codes,
        "scale": np.asarray(RNG.random(sizes) / 10 + 0.01, dtype),
        "zero": RNG.integers(limits.min, limits.max + 1, sizes).astype(element),
        "bias": RNG.standard_normal(64).astype(dtype),
    }
    weights["zero"] = weights["zero"].reshape(sizes)
    nodes = [
        helper.make_node(
            "DequantizeLinear", ["codes", "scale", "zero"], ["w"], axis=axis,
            **({"block_size": block} if block else {}),
        )
    ]  # fmt: skip
    if turn:
        nodes.append(helper.make_node("Transpose", ["w"], ["t"], perm=[1, 0]))
    right = "t" if turn else "w"
    if more:
        nodes.append(helper.make_node("Gemm", ["x", right, "bias"], ["h"], **more))
    else:
        nodes.append(helper.make_node("MatMul", ["x", right], ["p"]))
        nodes.append(helper.make_node("Add", ["p", "bias"], ["h"]))
    nodes.append(helper.make_node("Relu", ["h"], ["y"]))
    x = RNG.standard_normal((20, 96) if more else (2, 5, 96)).astype(dtype)
    settings = onnxplug.SessionOptions()
    settings.enable_profiling = True
    session = alone(model_of(nodes, {"x": x}, ["y"], weights))
    (found,) = session.run(None, {"x": x})
    kept = [n.op_type for n in session.explain().nodes]
    assert "DequantizeLinear" in kept

    def spread(parameter: Any) -> Any:
        wide = parameter.astype(np.float64)
        if block:
            return np.repeat(wide, block, axis)[: shape[0], : shape[1]]
        return wide[:, None] if wide.ndim and not axis else wide

    matrix = (codes.astype(np.float64) - spread(weights["zero"])) * spread(
        weights["scale"]
    )
    matrix = matrix.T if turn or more else matrix
    bias = weights["bias"].astype(np.float64)
    wide = x.astype(np.float64) @ matrix
    wanted = np.maximum(0.5 * wide + 2 * bias if more else wide + bias, 0)
    bound = 2e-6 if dtype == np.float32 else 3e-3 if apart else 1e-3
    assert found.dtype == dtype
    np.testing.assert_allclose(found, wanted, bound, bound * np.abs(wide).max())


def convolved(
    x: np.ndarray[Any, Any], w: np.ndarray[Any, Any], stride: int, pad: int, groups: int
) -> np.ndarray[Any, Any]:
    """Of integers, channels in groups, zeros around."""
    x = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], (2, 3))
    windows = windows[:, :, ::stride, ::stride]
    parts = [
        np.einsum("nchwij,ocij->nohw", a, b)
        for a, b in zip(
            np.split(windows, groups, 1), np.split(w, groups, 0), strict=True
        )
    ]
    return np.concatenate(parts, 1)


@pytest.mark.parametrize(
    ("stride", "pad", "groups"), [(1, 0, 1), (2, 1, 1), (1, 2, 3)], ids=str
)
def test_convolutions_of_codes_are_exact(
    alone: Any, stride: int, pad: int, groups: int
) -> None:
    """What is around the input is its zero point."""
    x, w = bytes_of(2, 6, 8, 9), bytes_of(9, 6 // groups, 3, 3, dtype=np.int8)
    weights: dict[str, np.ndarray[Any, Any]] = {
        "w": w,
        "x_zero": np.array(117, np.uint8),
        "w_zero": bytes_of(9, dtype=np.int8),
        "x_scale": np.array(0.03, np.float32),
        "w_scale": (RNG.random(9) / 90 + 0.001).astype(np.float32),
        "y_scale": np.array(0.9, np.float32),
        "y_zero": np.array(120, np.uint8),
        "bias": RNG.integers(-9000, 9000, 9).astype(np.int32),
    }
    attributes = {"strides": [stride] * 2, "pads": [pad] * 4, "group": groups}
    names = ["x", "x_scale", "x_zero", "w", "w_scale", "w_zero", "y_scale", "y_zero"]
    nodes = [
        helper.make_node(
            "ConvInteger", ["x", "w", "x_zero", "w_zero"], ["i"], **attributes
        ),
        helper.make_node("QLinearConv", [*names, "bias"], ["y"], **attributes),
    ]
    model = model_of(nodes, {"x": x}, ["i", "y"], weights)
    i, y = alone(model).run(None, {"x": x})
    centred = w.astype(np.int64) - weights["w_zero"].reshape(-1, 1, 1, 1)
    wanted = convolved(x.astype(np.int64) - 117, centred, stride, pad, groups)
    np.testing.assert_array_equal(i, wanted)
    factor = 0.03 * weights["w_scale"].astype(np.float64) / 0.9
    steps = (wanted + weights["bias"][:, None, None]) * factor[:, None, None]
    found = np.clip(np.rint(steps) + 120, 0, 255)
    near = np.abs(steps - np.floor(steps) - 0.5) < 1e-4
    np.testing.assert_array_equal(y[~near], found[~near])
    assert np.abs(y.astype(int) - found)[near].max(initial=0) <= 1


@pytest.mark.parametrize(
    ("stride", "pad", "groups", "dtype"),
    [(1, 1, 1, np.float32), (2, 0, 3, np.float32), (1, 1, 9, np.float16)],
    ids=str,
)
def test_convolutions_take_weights_as_codes(
    alone: Any, stride: int, pad: int, groups: int, dtype: Any
) -> None:
    filters, depth = 18, 9 // groups
    weights: dict[str, np.ndarray[Any, Any]] = {
        "codes": bytes_of(filters, depth, 3, 3, dtype=np.int8),
        "scale": (RNG.random(filters) / 50 + 0.01).astype(dtype),
        "zero": bytes_of(filters, dtype=np.int8),
        "bias": RNG.standard_normal(filters).astype(dtype),
    }
    nodes = [
        helper.make_node("DequantizeLinear", ["codes", "scale", "zero"], ["w"], axis=0),
        helper.make_node(
            "Conv", ["x", "w", "bias"], ["h"], strides=[stride] * 2, pads=[pad] * 4,
            group=groups,
        ),
        helper.make_node("Relu", ["h"], ["y"]),
    ]  # fmt: skip
    x = RNG.standard_normal((2, 9, 8, 9)).astype(dtype)
    session = alone(model_of(nodes, {"x": x}, ["y"], weights))
    (found,) = session.run(None, {"x": x})
    assert "DequantizeLinear" in {n.op_type for n in session.explain().nodes}
    each = (-1, 1, 1, 1)
    full = weights["codes"].astype(np.float64) - weights["zero"].reshape(each)
    full *= weights["scale"].astype(np.float64).reshape(each)
    wide = convolved(x.astype(np.float64), full, stride, pad, groups)
    wide += weights["bias"].astype(np.float64)[:, None, None]
    bound = 2e-6 if dtype == np.float32 else 1e-3
    assert found.dtype == dtype
    wanted = np.maximum(wide, 0)
    np.testing.assert_allclose(found, wanted, bound, bound * np.abs(wide).max())
