"""Operators with every kind of field, from the bytes that Windows would get."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from .. import definitions
from ..standin import decoding
from ..standin.driving import operator_desc, tensor
from ..standin.operators import DTYPES, Desc
from ..standin.schema import members, schema
from .examples import Array, f32, flat, i32, u32, union

C_TYPES = {"uints": ctypes.c_uint32, "ints": ctypes.c_int32, "floats": ctypes.c_float}


def native(kind: str, value: Any, kept: list[Any]) -> Any:
    """A field's value as ctypes has it; what it points to is kept."""
    if kind == "tensor":
        kept.append(tensor(value.shape, value.dtype.name.upper()))
        return kept[-1]
    if kind == "tensors":
        found = definitions.find("DML_TENSOR_DESC") * len(value)
        return found(*(native("tensor", each, kept).contents for each in value))
    if kind == "operators":
        found = definitions.find("DML_OPERATOR_DESC") * len(value)
        descs = [operator_desc(each.operator, **fields(each)) for each in value]
        kept.extend(descs)
        return found(*descs)
    if kind == "scalar":
        return definitions.find("DML_SCALAR_UNION").from_buffer_copy(value)
    if kind == "size_2d":
        return definitions.find("DML_SIZE_2D")(value.Width, value.Height)
    if kind in C_TYPES:
        return (C_TYPES[kind] * len(value))(*value)
    if kind.startswith("DML_"):
        return {name: number for number, name in members(kind).items()}[value]
    return value


def fields(desc: Desc) -> dict[str, Any]:
    """The fields of an activation, whose tensors are null."""
    return {name: each for name, each in vars(desc).items() if name != "operator"}


def through_bytes(name: str, **values: Any) -> list[Any]:
    """The outputs of an operator whose description is decoded by the stand-in."""
    layout = schema(name)
    natives: dict[str, Any] = {}
    kept: list[Any] = []
    for field, kind in layout.fields.items():
        if values.get(field) is not None:
            natives[field] = native(kind, values[field], kept)
            if isinstance(natives[field], ctypes.Array):
                natives.setdefault(layout.count_of(field), len(values[field]))
    desc = operator_desc(name, **natives)
    decoded = decoding.decode(desc, (6, 4), frozenset(DTYPES))
    table = decoded.meaning.supported((6, 4))
    inputs = flat([values.get(f) for f, each in table.items() if each.is_input])
    assert [None if each is None else each.shape for each in inputs] == [
        None if each is None else each.sizes for each in decoded.inputs
    ]
    del kept  # until here
    return decoded.meaning.evaluate(decoded.desc, inputs)


def activation(name: str, **coefficients: float) -> Desc:
    """A fused activation."""
    return Desc(f"ACTIVATION_{name}", coefficients)


def lstm() -> dict[str, Any]:
    """An LSTM both ways whose gates are hard sigmoids of 0, for one step."""
    gates = (activation("HARD_SIGMOID", Alpha=0.25, Beta=0.5), activation("TANH"))
    step: dict[str, Any] = {
        "InputTensor": f32(np.zeros((1, 1, 1, 1))),
        "WeightTensor": f32(np.zeros((1, 2, 4, 1))),
        "RecurrenceTensor": f32(np.zeros((1, 2, 4, 1))),
        "CellMemInitTensor": f32([[[[4]], [[-2]]]]),
        "OutputCellSingleTensor": f32([[[[2]], [[-1]]]]),
        "ActivationDescs": (*gates, gates[1]) * 2,
        "Direction": "BIDIRECTIONAL",
        "ClipThreshold": 1.5,
        "UseClipThreshold": True,
    }
    return step


CASES: list[tuple[str, dict[str, Any]]] = [
    (
        "SLICE1",
        {
            "InputTensor": f32([1, 2, 3, 4]),
            "OutputTensor": f32([4, 2]),
            "InputWindowOffsets": (0,),
            "InputWindowSizes": (4,),
            "InputWindowStrides": (-2,),
        },
    ),
    (
        "SPLIT",
        {
            "InputTensor": i32([[1, 2, 3]]),
            "OutputTensors": [i32([[1]]), i32([[2, 3]])],
            "Axis": 1,
        },
    ),
    (
        "JOIN",
        {
            "InputTensors": [i32([[1]]), i32([[2, 3]])],
            "OutputTensor": i32([[1, 2, 3]]),
            "Axis": 1,
        },
    ),
    (
        "PADDING1",
        {
            "InputTensor": np.array([1], np.int8),
            "OutputTensor": np.array([-7, 1, -7, -7], np.int8),
            "PaddingMode": "CONSTANT",
            "PaddingValueDataType": "INT8",
            "PaddingValue": union(np.int8(-7)),
            "StartPadding": (1,),
            "EndPadding": (2,),
        },
    ),
    (
        "PADDING",
        {
            "InputTensor": f32([1, 2, 3]),
            "OutputTensor": f32([3, 1, 2, 3, 1]),
            "PaddingMode": "WRAP",
            "StartPadding": (1,),
            "EndPadding": (1,),
        },
    ),
    (
        "TILE",
        {
            "InputTensor": u32([1, 2]),
            "OutputTensor": u32([1, 2, 1, 2]),
            "Repeats": (2,),
        },
    ),
    (
        "UPSAMPLE_2D",
        {
            "InputTensor": f32([[[[1, 2]]]]),
            "OutputTensor": f32([[[[1, 1, 1, 2, 2, 2]] * 2]]),
            "ScaleSize": Desc("SIZE_2D", {"Width": 3, "Height": 2}),
            "InterpolationMode": "NEAREST_NEIGHBOR",
        },
    ),
    (
        "RESAMPLE",
        {
            "InputTensor": f32([1, 2]),
            "OutputTensor": f32([1, 1, 2, 2]),
            "InterpolationMode": "NEAREST_NEIGHBOR",
            "Scales": (2.0,),
        },
    ),
    (
        "RESAMPLE3",
        {
            "InputTensor": f32([1, 2]),
            "OutputTensor": f32([1, 2, 2, 2]),
            "InterpolationMode": "NEAREST_NEIGHBOR",
            "RoundingDirection": "INCREASING",
            "Scales": (2.0,),
            "InputPixelOffsets": (0.0,),
            "OutputPixelOffsets": (0.0,),
            "Antialiased": True,
        },
    ),
    (
        "VALUE_SCALE_2D",
        {
            "InputTensor": f32([[[[1]], [[2]], [[3]]]]),
            "OutputTensor": f32([[[[3]], [[6]], [[9]]]]),
            "Scale": 2.0,
            "Bias": (1.0, 2.0, 3.0),
        },
    ),
    (
        "DIAGONAL_MATRIX1",
        {
            "OutputTensor": i32([[0, 0], [5, 0]]),
            "ValueDataType": "INT32",
            "Value": union(np.int32(5)),
            "DiagonalFillBegin": -1,
            "DiagonalFillEnd": 0,
        },
    ),
    (
        "DEQUANTIZE",
        {
            "InputTensor": np.array([3, 5], np.uint8),
            "QuantizationTensors": [f32([0.5]), np.array([1], np.uint8)],
            "QuantizationType": "SCALE_ZERO_POINT",
            "OutputTensor": f32([1, 2]),
        },
    ),
    (
        "MULTIHEAD_ATTENTION",
        {
            "QueryTensor": f32([[[1]]]),
            "StackedKeyValueTensor": f32([[[[[0], [2]]], [[[0], [8]]]]]),
            "MaskTensor": i32([[1]]),
            "MaskType": "KEY_SEQUENCE_LENGTH",
            "OutputTensor": f32([[[2]]]),
            "Scale": 1.0,
            "MaskFilterValue": -10000.0,
            "HeadCount": 1,
        },
    ),
    ("LSTM", lstm()),
]


@pytest.mark.parametrize(("name", "values"), CASES, ids=[name for name, _ in CASES])
def test_decoded(name: str, values: dict[str, Any]) -> None:
    table = decoding.load()[name].supported((6, 4))
    written = [values.get(f) for f, each in table.items() if not each.is_input]
    expected: list[Array | None] = flat(written)
    for found, array in zip(through_bytes(name, **values), expected, strict=True):
        if array is None:
            assert found is None
        else:
            np.testing.assert_array_equal(found, array)
