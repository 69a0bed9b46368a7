"""Products of quantized matrices, and what is made of them, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from onnxplug_kernels import UnsupportedAttribute

from .node_oracles import (
    MICROSOFT,
    assert_as_onnx_runtime,
    find_kernel,
    onnx_runtime,
    run,
)

PAIRS = [(np.uint8, np.uint8), (np.uint8, np.int8), (np.int8, np.int8)]
KINDS = {np.uint8: TensorProto.UINT8, np.int8: TensorProto.INT8}
WEIGHTS = [np.uint8, np.int8]


def draw_bytes(generator: Any, dtype: Any, *shape: int) -> Any:
    """Signed ones have 7 bits.

    On processors without VNNI, ONNX Runtime adds two products of 8 bits up in 16 bits.
    """
    if dtype == np.int8:
        return np.asarray(generator.integers(-64, 64, shape)).astype(dtype)
    return np.asarray(generator.integers(0, 256, shape)).astype(dtype)


def normal(generator: Any, *shape: int) -> Any:
    return generator.normal(size=shape).astype(np.float32)


def scales(generator: Any, *shape: int) -> Any:
    return np.asarray(generator.uniform(0.002, 0.01, shape), np.float32)


@pytest.mark.parametrize(("a_dtype", "b_dtype"), PAIRS)
@pytest.mark.parametrize("transposed", [(0, 0), (1, 0), (0, 1), (1, 1)])
@pytest.mark.parametrize("per_column", [False, True])
def test_gemm(a_dtype: Any, b_dtype: Any, transposed: Any, per_column: bool) -> None:
    generator = np.random.default_rng(0)
    columns = (6,) if per_column else ()
    for depth in (1, 7, 400):
        a = draw_bytes(generator, a_dtype, 5, depth)
        b = draw_bytes(generator, b_dtype, depth, 6)
        a = np.ascontiguousarray(a.T) if transposed[0] else a
        b = np.ascontiguousarray(b.T) if transposed[1] else b
        left = (a, scales(generator), draw_bytes(generator, a_dtype))
        right = (
            b,
            scales(generator, *columns),
            draw_bytes(generator, b_dtype, *columns),
        )
        y_scale = np.array(0.0005 * depth, np.float32)
        y = (y_scale, draw_bytes(generator, a_dtype))
        attributes = {"transA": transposed[0], "transB": transposed[1], "alpha": 0.7}
        for shape in (None, (), (6,), (5, 1), (5, 6)):
            c = None
            if shape is not None:
                c = np.asarray(generator.integers(-5000, 5000, shape), np.int32)
            assert_as_onnx_runtime(
                *("QGemm", *left, *right, c, *y),
                outputs=(KINDS[a_dtype],),
                **attributes,
            )
            assert_as_onnx_runtime("QGemm", *left, *right, c, **attributes)


def test_gemm_over_nothing() -> None:
    """ONNX Runtime 1.31.1 leaves the output as memory was."""
    a, b = np.zeros((2, 0), np.uint8), np.zeros((0, 3), np.uint8)
    scale, zero = np.array(0.5, np.float32), np.array(7, np.uint8)
    c = np.array([100, 2000, -3], np.int32)
    found = run("QGemm", a, scale, zero, b, scale, zero, c)
    assert found.tolist() == [[25, 500, -0.75]] * 2
    found = run("QGemm", a, scale, zero, b, scale, zero, c, scale, zero)
    assert found.tolist() == [[57, 255, 5]] * 2


def test_gemm_with_half_of_an_output_scale_is_refused() -> None:
    a, scale, zero = np.zeros((2, 2), np.uint8), np.ones((), np.float32), np.uint8(0)
    zero = np.array(zero)
    with pytest.raises(ValueError, match="only one of y_scale and y_zero_point"):
        run("QGemm", a, scale, zero, a, scale, zero, None, scale, None)


@pytest.mark.parametrize(("a_dtype", "b_dtype"), PAIRS)
@pytest.mark.parametrize(
    ("batch", "b_batch", "per_column"),
    [
        ((), (), ()),
        ((), (), (6,)),
        ((2,), (), (6,)),
        ((2,), (2,), ()),
        ((2,), (2,), (2, 1, 6)),
        ((0,), (), ()),
    ],
)
@pytest.mark.parametrize("biased", [False, True])
def test_product_to_float(
    a_dtype: Any, b_dtype: Any, batch: Any, b_batch: Any, per_column: Any, biased: bool
) -> None:
    generator = np.random.default_rng(0)
    for depth in (5, 90, 1000):
        b = draw_bytes(generator, b_dtype, *b_batch, depth, 6)
        b_scale = scales(generator, *per_column)
        b_zero = draw_bytes(generator, b_dtype, *per_column)
        bias = normal(generator, 6) if biased else None
        a = draw_bytes(generator, a_dtype, *batch, 4, depth)
        assert_as_onnx_runtime(
            "MatMulIntegerToFloat",
            *(a, b, scales(generator), b_scale),
            *(draw_bytes(generator, a_dtype), b_zero, bias),
        )
        if a_dtype == np.uint8:
            a = normal(generator, *batch, 4, depth)
            assert_as_onnx_runtime("DynamicQuantizeMatMul", a, b, b_scale, b_zero, bias)


def test_product_without_zero_points() -> None:
    generator = np.random.default_rng(0)
    a = draw_bytes(generator, np.uint8, 3, 4)
    b = draw_bytes(generator, np.int8, 4, 2)
    a_scale, b_scale = scales(generator, 1), scales(generator)
    assert_as_onnx_runtime("MatMulIntegerToFloat", a, b, a_scale, b_scale)
    a = normal(generator, 3, 4)
    assert_as_onnx_runtime("DynamicQuantizeMatMul", a, b, b_scale)
    zeros = np.zeros_like(a)
    assert_as_onnx_runtime("DynamicQuantizeMatMul", zeros, b, b_scale)


def test_product_over_nothing_is_the_bias() -> None:
    """ONNX Runtime 1.31.1 leaves the output as memory was."""
    a, b = np.zeros((2, 0), np.uint8), np.zeros((0, 3), np.uint8)
    scale, bias = np.array(0.5, np.float32), np.array([1, 2, 3], np.float32)
    found = run("MatMulIntegerToFloat", a, b, scale, scale, None, None, bias)
    assert found.tolist() == [[1, 2, 3]] * 2


def test_product_in_half_precision() -> None:
    """The schema has it; ONNX Runtime's CPU EP has not."""
    a, b = np.array([[3, 250]], np.uint8), np.array([[1], [-2]], np.int8)
    scale = np.array(0.25, np.float16)
    found = run("MatMulIntegerToFloat", a, b, scale, scale)
    assert (found.dtype, found.tolist()) == (np.float16, [[-497 / 16]])


def test_product_of_16_bits_wraps() -> None:
    generator = np.random.default_rng(0)
    for depth in (3, 500):
        a, b = (
            generator.integers(-(2**15), 2**15, shape).astype(np.int16)
            for shape in ((2, 4, depth), (depth, 5))
        )
        assert_as_onnx_runtime("MatMulInteger16", a, b, outputs=(TensorProto.INT32,))


def attention(
    weight_dtype: Any,
    *,
    batch: int = 2,
    time: int = 5,
    past: int | None = None,
    mask: Any = None,
    per_column: bool = False,
    zero_points: bool = True,
    **attributes: Any,
) -> None:
    generator = np.random.default_rng(0)
    heads, size, width = 4, 4, 12
    columns = (3 * heads * size,) if per_column else ()
    outputs = 1 if past is None else 2
    state = None if not past else normal(generator, 2, batch, heads, past, size)
    zeros = (
        draw_bytes(generator, np.uint8),
        draw_bytes(generator, weight_dtype, *columns),
    )
    assert_as_onnx_runtime(
        "QAttention",
        draw_bytes(generator, np.uint8, batch, time, width),
        draw_bytes(generator, weight_dtype, width, 3 * heads * size),
        normal(generator, 3 * heads * size),
        np.array(0.01, np.float32),
        scales(generator, *columns),
        None if mask is None else np.asarray(mask, np.int32),
        *(zeros if zero_points else (None, None)),
        state,
        outputs=(TensorProto.FLOAT,) * outputs,
        rtol=2e-6,
        atol=2e-6,
        num_heads=heads,
        **attributes,
    )


@pytest.mark.parametrize("weight_dtype", WEIGHTS)
@pytest.mark.parametrize("per_column", [False, True])
@pytest.mark.parametrize(
    "form",
    [
        {},
        {"zero_points": False},
        {"unidirectional": 1, "scale": 0.3},
        {"mask": [3, 5]},
        {"mask": [3, 5, 1, 2]},
        {"mask": [[1, 1, 1, 0, 0], [0, 1, 1, 1, 1]]},
        {"mask": np.tri(5)[None].repeat(2, 0)},
        {
            "mask": 1 - np.tri(5)[None].repeat(2, 0),
            "unidirectional": 1,
            "mask_filter_value": -3.0,
        },
        {"mask": [0, 5], "unidirectional": 1},
        {"mask": [[1], [1]]},
        {"mask": [[0]]},
        {"past": 0},
        {"past": 3, "unidirectional": 1},
        {"past": 3, "mask": [[1, 0, 1, 1, 1, 1, 0, 1]] * 2, "unidirectional": 1},
        {"past": 3, "time": 1, "mask": [2, 4], "unidirectional": 1},
    ],
)
def test_attention(weight_dtype: Any, per_column: bool, form: Any) -> None:
    attention(weight_dtype, per_column=per_column, **form)


def test_attention_that_is_refused() -> None:
    kernel = find_kernel("QAttention")
    with pytest.raises(UnsupportedAttribute, match="has do_rotary 1; supported: 0"):
        kernel.bind(np, {"num_heads": 2, "do_rotary": 1}, output_count=1)
    with pytest.raises(ValueError, match=r"mask_index has shape \(2, 1, 1, 3\)"):
        run(
            "QAttention",
            *(np.zeros((2, 3, 4), np.uint8), np.zeros((4, 12), np.int8)),
            *(np.zeros(12, np.float32), np.ones((), np.float32)),
            *(np.ones((), np.float32), np.ones((2, 1, 1, 3), np.int32)),
            num_heads=2,
        )


def lstm(weight_dtype: Any, form: Any) -> tuple[Any, dict[str, Any]]:
    """The inputs and attributes of DynamicQuantizeLSTM."""
    generator = np.random.default_rng(0)
    form = {"hidden": 6, "inputs": 5, "per_column": False, **form}
    hidden, inputs = form.pop("hidden"), form.pop("inputs")
    count = 2 if form.get("direction") == "bidirectional" else 1
    columns = (4 * hidden,) if form.pop("per_column") else ()
    # ONNX Runtime takes no other zero point for each column
    middle = 128 if weight_dtype == np.uint8 else 0 if columns else 3
    zero_point = np.full((count, *columns), middle, weight_dtype)
    state = None
    if form.pop("initial", False):
        state = normal(generator, count, 3, hidden) * np.float32(0.3)
    return (
        normal(generator, 4, 3, inputs),
        draw_bytes(generator, weight_dtype, count, inputs, 4 * hidden),
        draw_bytes(generator, weight_dtype, count, hidden, 4 * hidden),
        normal(generator, count, 8 * hidden) if form.pop("bias", True) else None,
        form.pop("lengths", None),
        state,
        state,
        normal(generator, count, 3 * hidden) if form.pop("peepholes", False) else None,
        *(scales(generator, count, *columns), zero_point),
        *(scales(generator, count, *columns), zero_point),
    ), {**form, "hidden_size": hidden}


@pytest.mark.parametrize("weight_dtype", WEIGHTS)
@pytest.mark.parametrize("per_column", [False, True])
@pytest.mark.parametrize(
    "form",
    [
        {},
        {"bias": False, "initial": True},
        {"direction": "bidirectional", "initial": True},
        {"direction": "reverse", "peepholes": True},
        {
            "clip": 0.5,
            "activations": ["Sigmoid", "Tanh", "Relu"],
            "input_forget": 1,
        },
        {"hidden": 300, "inputs": 70},
    ],
)
def test_lstm(weight_dtype: Any, per_column: bool, form: Any) -> None:
    """A state that rounds to another step would differ by more than this."""
    inputs, attributes = lstm(weight_dtype, {**form, "per_column": per_column})
    assert_as_onnx_runtime(
        "DynamicQuantizeLSTM",
        *inputs,
        outputs=(TensorProto.FLOAT,) * 3,
        rtol=1e-5,
        atol=2e-6,
        **attributes,
    )


@pytest.mark.parametrize("direction", ["forward", "reverse"])
@pytest.mark.parametrize("weight_dtype", WEIGHTS)
def test_lstm_of_sequences_of_several_lengths(
    weight_dtype: Any, direction: str
) -> None:
    """The range that is quantized is of other rows here than in ONNX Runtime.

    It takes the states of ended sequences for zero, and those of reversed ones at the
    same distance from their ends; so the steps of the states differ.
    """
    lengths = np.array([4, 2, 1], np.int32)
    form = {"direction": direction, "lengths": lengths}
    inputs, attributes = lstm(weight_dtype, form)
    assert_as_onnx_runtime(
        "DynamicQuantizeLSTM",
        *inputs,
        outputs=(TensorProto.FLOAT,) * 3,
        atol=0.02,
        **attributes,
    )
    (y, *_) = onnx_runtime(
        "DynamicQuantizeLSTM", *inputs, domain=MICROSOFT, version=1, **attributes
    )
    assert np.abs(y).max() > 0.2


@pytest.mark.parametrize("dtype", WEIGHTS)
@pytest.mark.parametrize("segmented", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_embeddings(dtype: Any, segmented: bool, masked: bool) -> None:
    generator = np.random.default_rng(0)

    def draw(high: int) -> Any:
        return generator.integers(0, high, (2, 5)).astype(np.int32)

    # words, positions, segments, gamma, beta
    shapes = ((9, 8), (6, 8), (3, 8), (8,), (8,))
    tables = [draw_bytes(generator, dtype, *shape) for shape in shapes]
    each_scale = [scales(generator) for _ in shapes]
    zeros = [draw_bytes(generator, dtype) for _ in shapes]
    if not segmented:
        tables[2] = each_scale[2] = zeros[2] = None
    assert_as_onnx_runtime(
        "QEmbedLayerNormalization",
        *(draw(9), draw(3) if segmented else None, *tables),
        *(draw(2) if masked else None, *each_scale, *zeros),
        outputs=(TensorProto.FLOAT, TensorProto.INT32),
        rtol=1e-5,
        atol=1e-5,
    )


def test_more_words_than_positions_are_refused() -> None:
    ids, table = np.zeros((1, 3), np.int32), np.zeros((2, 4), np.uint8)
    one, zero = np.ones((), np.float32), np.zeros((), np.uint8)
    with pytest.raises(ValueError, match="of 3 words has embeddings of 2 positions"):
        run(
            "QEmbedLayerNormalization",
            *(ids, None, table, table, None, table[0], table[0], None),
            *(one, one, None, one, one, zero, zero, None, zero, zero),
        )
