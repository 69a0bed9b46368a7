"""Quantization with an axis, and tables quantized in blocks, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto

from .node_oracles import MICROSOFT, assert_as_onnx_runtime, onnx_runtime, run

KINDS = {
    np.uint8: TensorProto.UINT8,
    np.int8: TensorProto.INT8,
    np.uint16: TensorProto.UINT16,
    np.int16: TensorProto.INT16,
}
SMALL = [ml_dtypes.int4, ml_dtypes.uint4]
AXES: list[tuple[tuple[int, ...], dict[str, int]]] = [
    ((), {}),
    ((1,), {}),
    ((5,), {}),
    ((4,), {"axis": 0}),
    ((6,), {"axis": -1}),
]


def numbers(generator: Any, dtype: Any, *shape: int) -> Any:
    limits = ml_dtypes.iinfo(dtype)
    values = generator.integers(int(limits.min), int(limits.max) + 1, shape)
    return np.asarray(values).astype(dtype)


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize(("shape", "attributes"), AXES)
def test_quantized(dtype: Any, shape: Any, attributes: Any) -> None:
    generator = np.random.default_rng(0)
    x = generator.normal(0, 30, (4, 5, 6)).astype(np.float32)
    x[0, 0, :4] = [np.inf, -np.inf, 1e30, -0.0]
    scale = np.asarray(generator.uniform(0.1, 1, shape), np.float32)
    zero_point = numbers(generator, dtype, *shape)
    outputs = (KINDS[dtype],)
    assert_as_onnx_runtime(
        "QuantizeLinear", x, scale, zero_point, outputs=outputs, **attributes
    )
    codes = numbers(generator, dtype, 4, 5, 6)
    assert_as_onnx_runtime("DequantizeLinear", codes, scale, zero_point, **attributes)
    assert_as_onnx_runtime("DequantizeLinear", codes, scale, **attributes)


def test_defaults_and_nothing() -> None:
    x, scale = np.array([-7, 3.3, 600], np.float32), np.array(2, np.float32)
    outputs = (TensorProto.UINT8,)
    assert_as_onnx_runtime("QuantizeLinear", x, scale, outputs=outputs)
    assert_as_onnx_runtime("QuantizeLinear", x[:0], scale, outputs=outputs)
    codes = np.array([-70000, 5], np.int32)
    assert_as_onnx_runtime("DequantizeLinear", codes, scale)


@pytest.mark.parametrize("dtype", SMALL)
@pytest.mark.parametrize(("shape", "attributes"), AXES)
def test_four_bits(dtype: Any, shape: Any, attributes: Any) -> None:
    """ONNX Runtime hands these out through floats only."""
    generator = np.random.default_rng(0)
    scale = np.asarray(generator.uniform(0.1, 1, shape), np.float32)
    zero_point = numbers(generator, dtype, *shape)
    codes = numbers(generator, dtype, 4, 5, 6)
    assert_as_onnx_runtime(
        "DequantizeLinear", codes, scale, zero_point, constants=True, **attributes
    )
    # each code is its own quantization
    parameters = (scale, zero_point)
    y = run("DequantizeLinear", codes, *parameters, **attributes)
    again = run("QuantizeLinear", y, *parameters, **attributes)
    assert again.dtype == dtype
    np.testing.assert_array_equal(again.astype(int), codes.astype(int))


def test_half_precision() -> None:
    """The schema has it; ONNX Runtime's CPU EP has not."""
    scale = np.array(0.25, np.float16)
    zero_point = np.array(3, np.int8)
    y = run(
        "QuantizeLinear",
        np.array([1, 40], np.float16),
        scale,
        zero_point,
    )
    assert (y.dtype, y.tolist()) == (np.int8, [7, 127])
    back = run("DequantizeLinear", y, scale, zero_point)
    assert (back.dtype, back.tolist()) == (np.float16, [1, 31])


INDICES = [
    np.array([[0, -1, 3], [6, -7, 2]]),
    np.array(4),
    np.array([6, 6]),
    np.zeros((0, 2), np.int64),
]


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("zero_points", [False, True])
@pytest.mark.parametrize("index_dtype", [np.int32, np.int64])
@pytest.mark.parametrize("scale_dtype", [np.float32, np.float16])
def test_rows_of_a_packed_table(
    bits: int, zero_points: bool, index_dtype: Any, scale_dtype: Any
) -> None:
    generator = np.random.default_rng(0)
    packing = 8 // bits
    kind = TensorProto.FLOAT if scale_dtype == np.float32 else TensorProto.FLOAT16
    # an index outside the table gives zeros
    for indices in (*INDICES, np.array([9, -8, 1])):
        for rows in ((7,), (7, 3)):
            data = numbers(generator, np.uint8, *rows, 80 // packing)
            scales = generator.uniform(0.1, 1, (*rows, 5)).astype(scale_dtype)
            zeros = numbers(generator, np.uint8, *rows, -(-5 // packing))
            assert_as_onnx_runtime(
                "GatherBlockQuantized",
                *(data, indices.astype(index_dtype), scales),
                *((zeros,) if zero_points else ()),
                outputs=(kind,),
                bits=bits,
                block_size=16,
                gather_axis=0,
                quantize_axis=-1,
            )


@pytest.mark.parametrize("dtype", SMALL)
@pytest.mark.parametrize("zero_points", [False, True])
@pytest.mark.parametrize(
    ("gather_axis", "quantize_axis"),
    [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (-1, -2), (0, 0), (1, 1)],
)
def test_a_table_of_four_bits(
    dtype: Any, zero_points: bool, gather_axis: int, quantize_axis: int
) -> None:
    generator = np.random.default_rng(0)
    shape = [7, 8, 9]
    shape[quantize_axis] = 36
    blocks = list(shape)
    blocks[quantize_axis] = 3
    data = numbers(generator, dtype, *shape)
    scales = generator.uniform(0.1, 1, blocks).astype(np.float32)
    zeros = numbers(generator, dtype, *blocks)
    for indices in (*INDICES[:3], np.array([40, -41, 1])):
        assert_as_onnx_runtime(
            "GatherBlockQuantized",
            *(data, indices, scales),
            *((zeros,) if zero_points else ()),
            constants=True,
            block_size=16,
            gather_axis=gather_axis,
            quantize_axis=quantize_axis,
        )


@pytest.mark.parametrize(
    "dtype",
    [
        ml_dtypes.float8_e4m3fn,
        ml_dtypes.float8_e4m3fnuz,
        ml_dtypes.float8_e5m2,
        ml_dtypes.float8_e5m2fnuz,
        ml_dtypes.float4_e2m1fn,
    ],
)
@pytest.mark.parametrize(
    ("blocks", "block_size"),
    [((7, 1), 0), ((1, 1), 0), ((7, 3), 16), ((1, 3), 16)],
)
def test_a_table_of_small_floats(dtype: Any, blocks: Any, block_size: int) -> None:
    generator = np.random.default_rng(0)
    data = generator.normal(0, 3, (7, 40)).astype(dtype)
    scales = generator.uniform(0.1, 1, blocks).astype(np.float32)
    for indices in (*INDICES[:3], np.array([9, -8, 1])):
        assert_as_onnx_runtime(
            "GatherBlockQuantized",
            *(data, indices, scales),
            constants=True,
            block_size=block_size,
        )


def test_tables_that_are_refused() -> None:
    data, indices = np.zeros((4, 32), np.uint8), np.array([1])
    scales = np.ones((4, 4), np.float32)
    with pytest.raises(ValueError, match="expected the first and the last axis"):
        run(
            "GatherBlockQuantized",
            *(data, indices, scales),
            gather_axis=1,
            block_size=16,
        )
    with pytest.raises(ValueError, match=r"scales \(4, 4\).*expected \(4, 2\)"):
        run(
            "GatherBlockQuantized",
            *(data, indices, scales),
            block_size=32,
        )
    floats = data.astype(ml_dtypes.float8_e5m2)
    with pytest.raises(ValueError, match="takes no zero points"):
        run(
            "GatherBlockQuantized",
            *(floats, indices, scales[:, :2], floats[:, :2]),
            block_size=16,
        )


def test_a_table_without_rows() -> None:
    data, scales = np.zeros((0, 32), np.uint8), np.ones((0, 2), np.float32)
    indices = np.array([0, 3])
    found = run("GatherBlockQuantized", data, indices, scales, block_size=32)
    (expected,) = onnx_runtime(
        "GatherBlockQuantized",
        *(data, indices, scales),
        domain=MICROSOFT,
        version=1,
        block_size=32,
    )
    np.testing.assert_array_equal(found, expected)


def test_a_table_with_scales_of_bfloat16() -> None:
    """The schema has them; ONNX Runtime's CPU EP has not."""
    data = np.array([[0x21] * 8, [0xF8] * 8], np.uint8)
    scales = np.array([[0.5], [2]], ml_dtypes.bfloat16)
    indices = np.array([1, 0, 5])
    found = run("GatherBlockQuantized", data, indices, scales, block_size=16)
    assert found.dtype == scales.dtype
    expected = [[0, 14] * 8, [-3.5, -3] * 8, [0] * 16]
    assert found.astype(float).tolist() == expected
