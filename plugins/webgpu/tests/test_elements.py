"""Elements that registers have in another form than memory, against numpy's."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
FLOAT16 = np.dtype(np.float16)
RNG = np.random.default_rng(7)


def model_of(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, np.ndarray[Any, Any]],
    outputs: dict[str, Any],
    opset: int = 21,
    weights: dict[str, np.ndarray[Any, Any]] | None = None,
) -> onnx.ModelProto:
    def value(name: str, dtype: Any, shape: Any) -> onnx.ValueInfoProto:
        element = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        return helper.make_tensor_value_info(name, element, shape)

    return helper.make_model(
        helper.make_graph(
            nodes,
            "g",
            [value(name, x.dtype, x.shape) for name, x in inputs.items()],
            [value(name, dtype, None) for name, dtype in outputs.items()],
            [onnx.numpy_helper.from_array(w, n) for n, w in (weights or {}).items()],
        ),
        opset_imports=[helper.make_opsetid("", opset)],
        ir_version=10,
    )


def all_halves() -> np.ndarray[Any, Any]:
    return np.arange(1 << 16, dtype=np.uint16).view(np.float16)


def hard_floats() -> np.ndarray[Any, Any]:
    """Numbers about those of 16 bits, and in the middle between two."""
    halves = np.concatenate(
        [
            all_halves().astype(np.float32),
            all_halves().view(BFLOAT16).astype(np.float32),
        ]
    )
    bits = halves.view(np.uint32)
    near = [(bits + np.uint32(each)).view(np.float32) for each in (0, 1, -1 % 2**32)]
    between = [
        (bits + np.uint32(each)).view(np.float32)
        for each in (0xFFF, 0x1000, 0x1001, 0x7FFF, 0x8000, 0x8001)
    ]
    small = np.arange(-5000, 5000, dtype=np.float32) * np.float32(2.0**-27)
    found = np.concatenate([*near, *between, small])
    # devices may take subnormal numbers of float32 for 0
    return found[(np.abs(found) >= np.finfo(np.float32).tiny) | (found == 0)]


@pytest.mark.parametrize("dtype", [FLOAT16, BFLOAT16], ids=str)
def test_floats_of_16_bits_are_rounded_to_nearest_even(alone: Any, dtype: Any) -> None:
    x = hard_floats()
    to = helper.np_dtype_to_tensor_dtype(dtype)
    nodes = [
        helper.make_node("Cast", ["x"], ["h"], to=to),
        helper.make_node("Cast", ["h"], ["w"], to=TensorProto.FLOAT),
    ]
    with np.errstate(all="ignore"):
        wanted = x.astype(dtype)
    # by what is written, and by a step whose result is read in registers
    for outputs in ({"h": dtype, "w": np.float32}, {"w": np.float32}):
        found = alone(model_of(nodes, {"x": x}, outputs)).run(None, {"x": x})
        if len(found) == 2:
            np.testing.assert_array_equal(
                found[0][~np.isnan(x)].view(np.uint16),
                wanted[~np.isnan(x)].view(np.uint16),
            )
        np.testing.assert_array_equal(found[-1], wanted.astype(np.float32))


@pytest.mark.parametrize("dtype", [FLOAT16, BFLOAT16], ids=str)
def test_each_node_rounds_once(alone: Any, dtype: Any) -> None:
    """A chain of f16 gives to the bit what numpy gives, node by node."""
    x, y = (RNG.standard_normal((5, 999)).astype(dtype) for _ in range(2))
    nodes = [
        helper.make_node("Mul", ["x", "y"], ["a"]),
        helper.make_node("Add", ["a", "x"], ["b"]),
        helper.make_node("Sub", ["b", "y"], ["c"]),
        helper.make_node("Div", ["c", "three"], ["d"]),
        helper.make_node("Relu", ["d"], ["z"]),
    ]
    three = np.array(3, dtype)
    model = model_of(nodes, {"x": x, "y": y}, {"z": dtype}, weights={"three": three})
    (found,) = alone(model).run(None, {"x": x, "y": y})

    def step(operation: Any, *operands: Any) -> Any:
        return operation(*(o.astype(np.float32) for o in operands)).astype(dtype)

    a = step(np.multiply, x, y)
    c = step(np.subtract, step(np.add, a, x), y)
    wanted = np.maximum(step(np.divide, c, three), np.zeros((), dtype))
    np.testing.assert_array_equal(found, wanted)


def wide(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return x.astype(np.float64)


def softmax(x: Any) -> Any:
    found = np.exp(x - x.max(-1, keepdims=True))
    return found / found.sum(-1, keepdims=True)


def layer_norm(x: Any, scale: Any, bias: Any) -> Any:
    apart = x - x.mean(-1, keepdims=True)
    return apart / np.sqrt((apart**2).mean(-1, keepdims=True) + 1e-5) * scale + bias


def image_norm(x: Any, scale: Any, bias: Any) -> Any:
    apart = x - x.mean((2, 3), keepdims=True)
    found = apart / np.sqrt((apart**2).mean((2, 3), keepdims=True) + 1e-5)
    return found * scale[:, None, None] + bias[:, None, None]


def convolved(x: Any, w: Any, b: Any) -> Any:
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (2, 3))
    return np.einsum("nchwij,ocij->nohw", windows, w) + b[:, None, None]


def attended(q: Any, k: Any, v: Any) -> Any:
    scores = softmax(q @ k.swapaxes(-1, -2) * q.shape[-1] ** -0.5)
    return scores @ v


FLOAT_CASES = {
    "MatMul": ([(33, 70), (70, 20)], {}, np.matmul),
    "Gemm": (
        [(9, 70), (70, 20), (20,)],
        {"alpha": 0.3, "beta": 1.7},
        lambda a, b, c: 0.3 * (a @ b) + 1.7 * c,
    ),
    "Conv": ([(2, 5, 8, 9), (7, 5, 3, 3), (7,)], {}, convolved),
    "Softmax": ([(4, 300)], {}, softmax),
    "LogSoftmax": ([(4, 300)], {}, lambda x: np.log(softmax(x))),
    "ReduceSum": ([(6, 4000)], {"keepdims": 1}, lambda x: x.sum(keepdims=True)),
    "ReduceL2": ([(6, 700)], {}, lambda x: np.sqrt((x**2).sum(keepdims=True))),
    "LayerNormalization": ([(6, 70), (70,), (70,)], {}, layer_norm),
    "InstanceNormalization": ([(2, 5, 8, 9), (5,), (5,)], {}, image_norm),
    "AveragePool": (
        [(2, 3, 6, 8)],
        {"kernel_shape": [2, 2], "strides": [2, 2]},
        lambda x: x.reshape(2, 3, 3, 2, 4, 2).mean((3, 5)),
    ),
    "Attention": ([(1, 2, 6, 16), (1, 2, 9, 16), (1, 2, 9, 16)], {}, attended),
    "Gelu": (
        [(5, 70)],
        {"approximate": "tanh"},
        lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    ),
    "CumSum": ([(4, 50)], {}, lambda x: np.cumsum(x, 1)),
}
"""Shapes, attributes and what float64 has of it."""


@pytest.mark.parametrize("operator", FLOAT_CASES)
@pytest.mark.parametrize("dtype", [FLOAT16, BFLOAT16], ids=str)
def test_results_in_16_bits_are_those_of_float32_rounded_once(
    alone: Any, operator: str, dtype: Any
) -> None:
    """The bound that the documentation gives: half a unit of the last place, and what
    float32 has of errors."""
    shapes, attributes, function = FLOAT_CASES[operator]
    names = ["x", "y", "z"][: len(shapes)]
    feeds = {
        name: RNG.standard_normal(shape).astype(dtype)
        for name, shape in zip(names, shapes, strict=True)
    }
    weights = {}
    if operator == "CumSum":
        weights["axis"] = np.array(1, np.int64)
    node = helper.make_node(operator, [*names, *weights], ["out"], **attributes)
    opset = 23 if operator == "Attention" else 22
    model = model_of([node], feeds, {"out": dtype}, opset, weights)
    (found,) = alone(model).run(None, feeds)
    wanted = function(*map(wide, feeds.values()))
    half = float(ml_dtypes.finfo(dtype).eps) / 2
    scale = np.abs(wanted) + np.abs(wanted).max() * 2.0**-16
    assert found.dtype == dtype and found.shape == wanted.shape
    assert np.max(np.abs(wide(found) - wanted) / scale) <= half * 1.03


INTEGERS = [
    np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64
]  # fmt: skip


def every_border(dtype: Any) -> np.ndarray[Any, Any]:
    limits = np.iinfo(dtype)
    ends = [limits.min, limits.min + 1, limits.max - 1, limits.max]
    parts = [limits.max // 3, limits.max // 1000 + 1, limits.min // 7]
    return np.array([*ends, *parts, 0, 1, 2, 3, 7, 100], dtype)


def towards_zero(x: Any, y: Any) -> Any:
    by = np.where(y == 0, 1, y)
    found = np.abs(x.astype(object)) // np.abs(by.astype(object))
    signs = np.sign(x.astype(object)) * np.sign(by.astype(object))
    return np.where(y == 0, 0, found * signs)


INTEGER_CASES = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": towards_zero,
    "Mod": lambda x, y: np.where(y == 0, 0, x % np.where(y == 0, 1, y)),
    "Max": np.maximum,
    "Min": np.minimum,
    "Less": np.less,
    "Equal": np.equal,
    "BitwiseXor": np.bitwise_xor,
}


@pytest.mark.parametrize("dtype", INTEGERS, ids=lambda dtype: dtype.__name__)
def test_integers_wrap_as_numpys(alone: Any, dtype: Any) -> None:
    """All operators of two integers, and then of one, are steps of one kernel."""
    border = every_border(dtype)
    x, y = (each.reshape(-1) for each in np.meshgrid(border, border))
    nodes, wanted = [], {}
    with np.errstate(all="ignore"):
        for operator, function in INTEGER_CASES.items():
            nodes.append(helper.make_node(operator, ["x", "y"], [operator]))
            result = np.asarray(function(x, y))
            if result.dtype == object:
                result = np.array([int(n) & (1 << 64) - 1 for n in result], np.uint64)
            wanted[operator] = result if result.dtype == bool else result.astype(dtype)
        ones = {"Abs": np.abs, "Sign": np.sign, "BitwiseNot": np.invert}
        if np.iinfo(dtype).min:
            ones["Neg"] = np.negative
        for operator, function in ones.items():
            nodes.append(helper.make_node(operator, ["x"], [operator]))
            wanted[operator] = function(x)
    model = model_of(
        nodes, {"x": x, "y": y}, {name: each.dtype for name, each in wanted.items()}
    )
    found = alone(model).run(None, {"x": x, "y": y})
    for result, (operator, expected) in zip(found, wanted.items(), strict=True):
        np.testing.assert_array_equal(result, expected, operator)


@pytest.mark.parametrize("bits", [32, 64])
def test_integers_are_powers_of_integers(alone: Any, bits: int) -> None:
    dtype = np.dtype(f"int{bits}")
    bases = np.array([-3, -2, -1, 0, 1, 2, 3, 10, 2 ** (bits - 1) - 1], dtype)
    exponents = np.array([-3, -2, -1, 0, 1, 2, 3, bits - 1, bits + 1], dtype)
    x, y = (each.reshape(-1) for each in np.meshgrid(bases, exponents))

    def power(base: int, exponent: int) -> int:
        if exponent < 0:
            return 0 if base == 0 else int(1 / base**-exponent)
        half = 1 << bits - 1
        return int((base**exponent + half) % (2 * half) - half)

    wanted = [power(int(a), int(b)) for a, b in zip(x, y, strict=True)]
    model = model_of(
        [helper.make_node("Pow", ["x", "y"], ["z"])], {"x": x, "y": y}, {"z": dtype}
    )
    (found,) = alone(model).run(None, {"x": x, "y": y})
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_floats_are_powers_of_integers(alone: Any, dtype: Any) -> None:
    x = np.array([-1, -1, -1, -2, -2, 0.5, 0, 3], np.float32)
    y = np.array([2**24 + 1, 2**24 + 2, -3, 3, -3, -2, 0, 4], dtype)
    model = model_of(
        [helper.make_node("Pow", ["x", "y"], ["z"])],
        {"x": x, "y": y},
        {"z": np.float32},
    )
    (found,) = alone(model).run(None, {"x": x, "y": y})
    np.testing.assert_allclose(found, x.astype(np.float64) ** y, 2e-6)


REDUCTIONS = {
    "ReduceSum": lambda x: x.sum(1, keepdims=True),
    "ReduceProd": lambda x: x.prod(1, keepdims=True),
    "ReduceMax": lambda x: x.max(1, keepdims=True),
    "ReduceMin": lambda x: x.min(1, keepdims=True),
    "ReduceSumSquare": lambda x: (x * x).sum(1, keepdims=True),
    "ReduceL1": lambda x: np.abs(x).sum(1, keepdims=True),
    "CumSum": lambda x: np.cumsum(x, 1),
}


@pytest.mark.parametrize("dtype", [np.int64, np.uint64, np.int32, np.uint32])
def test_integers_are_reduced_exactly(alone: Any, dtype: Any) -> None:
    limits = np.iinfo(dtype)
    x = RNG.integers(limits.min, limits.max, (7, 40), dtype, endpoint=True)
    nodes, weights = [], {"axis": np.array(1, np.int64)}
    for operator in REDUCTIONS:
        if operator == "CumSum":
            nodes.append(helper.make_node(operator, ["x", "axis"], [operator]))
        elif operator == "ReduceSum":
            weights["axes"] = np.array([1], np.int64)
            nodes.append(helper.make_node(operator, ["x", "axes"], [operator]))
        else:
            nodes.append(helper.make_node(operator, ["x"], [operator], axes=[1]))
    outputs = dict.fromkeys(REDUCTIONS, dtype)
    model = model_of(nodes, {"x": x}, outputs, 17, weights)
    found = alone(model).run(None, {"x": x})
    with np.errstate(all="ignore"):
        for result, (operator, function) in zip(found, REDUCTIONS.items(), strict=True):
            np.testing.assert_array_equal(result, function(x).astype(dtype), operator)


def test_floats_become_integers_of_two_words_and_back(alone: Any) -> None:
    numbers = np.concatenate(
        [
            RNG.standard_normal(300) * 2.0 ** RNG.integers(-3, 60, 300),
            [0, -0.0, 0.99, -0.99, 1, -1, 2**23 - 0.5, 2**24, 2**31, -(2**31)],
            [2.0**32, 2.0**62, -(2.0**62), 2.0**63 - 2**39, -(2.0**63)],
        ]
    ).astype(np.float32)
    wide = RNG.integers(-(2**63), 2**63, 300)
    wide = np.concatenate([wide >> shift for shift in (0, 20, 38, 45, 60)])
    nodes = [
        helper.make_node("Cast", ["x"], ["i"], to=TensorProto.INT64),
        helper.make_node("Cast", ["w"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Cast", ["w"], ["u"], to=TensorProto.UINT64),
        helper.make_node("Cast", ["u"], ["g"], to=TensorProto.FLOAT),
        helper.make_node("Cast", ["w"], ["s"], to=TensorProto.INT16),
    ]
    feeds = {"x": numbers, "w": wide}
    outputs = {"i": np.int64, "f": np.float32, "g": np.float32, "s": np.int16}
    i, f, g, s = alone(model_of(nodes, feeds, outputs)).run(None, feeds)
    np.testing.assert_array_equal(i, numbers.astype(np.int64))
    np.testing.assert_array_equal(f, wide.astype(np.float32))
    np.testing.assert_array_equal(g, wide.astype(np.uint64).astype(np.float32))
    np.testing.assert_array_equal(s, wide.astype(np.int16))


@pytest.mark.parametrize("dtype", [np.int64, np.uint64])
def test_integers_of_two_words_are_shifted_and_multiplied(
    alone: Any, dtype: Any
) -> None:
    """Products wrap; with a chain behind them, too, and over batches."""
    limits = np.iinfo(dtype)
    a = RNG.integers(limits.min, limits.max, (2, 1, 5, 7), dtype, endpoint=True)
    b = RNG.integers(limits.min, limits.max, (3, 7, 4), dtype, endpoint=True)
    c = RNG.integers(limits.min, limits.max, (4,), dtype, endpoint=True)
    x = np.repeat(a.reshape(-1), 9)
    by = np.resize(np.array([0, 1, 31, 32, 33, 63, 64, 65, 70], dtype), x.size)
    nodes = [
        helper.make_node("MatMul", ["a", "b"], ["m"]),
        helper.make_node("Add", ["m", "c"], ["s"]),
        helper.make_node("Gemm", ["g", "h", "c"], ["y"], transA=1),
        helper.make_node("Einsum", ["g", "h"], ["e"], equation="ki,kj->ij"),
        *(
            helper.make_node("BitShift", ["x", "by"], [way], direction=way)
            for way in ("LEFT", "RIGHT")
        ),
    ]
    feeds = {"a": a, "b": b, "c": c, "g": a[0, 0].T.copy(), "h": b[0], "x": x, "by": by}
    outputs = dict.fromkeys(("m", "s", "y", "e", "LEFT", "RIGHT"), dtype)
    m, s, y, e, left, right = alone(model_of(nodes, feeds, outputs)).run(None, feeds)
    np.testing.assert_array_equal(m, a @ b)
    np.testing.assert_array_equal(s, a @ b + c)
    np.testing.assert_array_equal(y, a[0, 0] @ b[0] + c)
    np.testing.assert_array_equal(e, a[0, 0] @ b[0])
    numbers = [*zip(x.tolist(), by.tolist(), strict=True)]
    wanted = [n << k & (1 << 64) - 1 if k < 64 else 0 for n, k in numbers]
    np.testing.assert_array_equal(left.astype(np.uint64), np.array(wanted, np.uint64))
    np.testing.assert_array_equal(right, np.array([n >> k for n, k in numbers], dtype))


def test_truths_are_reduced(alone: Any) -> None:
    x = RNG.random((9, 70)) < 0.02
    nodes = [
        helper.make_node("ReduceMax", ["x", "axes"], ["any"]),
        helper.make_node("Not", ["x"], ["n"]),
        helper.make_node("ReduceMin", ["n"], ["all"], keepdims=0),
    ]
    weights = {"axes": np.array([1])}
    model = model_of(nodes, {"x": x}, {"any": bool, "all": bool}, 20, weights)
    found = alone(model).run(None, {"x": x})
    np.testing.assert_array_equal(found[0], x.any(1, keepdims=True))
    np.testing.assert_array_equal(found[1], (~x).all())


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_all_floats_but_zeros_are_true(alone: Any, dtype: Any) -> None:
    """Also those that are no numbers, and the smallest."""
    x = np.array([0.0, -0.0, 1, np.nan, -np.nan, np.inf, -np.inf, 6e-8], dtype)
    node = helper.make_node("Cast", ["x"], ["y"], to=TensorProto.BOOL)
    (found,) = alone(model_of([node], {"x": x}, {"y": bool}, 21)).run(None, {"x": x})
    np.testing.assert_array_equal(found, [False] * 2 + [True] * 6)


def test_places_of_ones_are_floats(alone: Any) -> None:
    """Cut off, from the end, out of range, and none."""
    x = np.array([0, 2.9, -1, 4, -6, 7, np.inf, -np.inf, np.nan, 1e30], np.float32)
    node = helper.make_node("OneHot", ["x", "depth", "values"], ["y"])
    weights = {"depth": np.array([5]), "values": np.array([-1, 3], np.int32)}
    model = model_of([node], {"x": x}, {"y": np.int32}, 21, weights)
    (found,) = alone(model).run(None, {"x": x})
    wanted = np.full((10, 5), -1)
    for line, place in enumerate([0, 2, 4, 4]):
        wanted[line, place] = 3
    np.testing.assert_array_equal(found, wanted)
