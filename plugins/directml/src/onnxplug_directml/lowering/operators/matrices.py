"""Triangles and diagonals of matrices."""

from __future__ import annotations

import math
from typing import Final

from onnxplug_directml.lowering.builder import Result, Value
from onnxplug_directml.lowering.call import Call, lowers

_LEAST: Final = -(2**31)
_LARGEST: Final = 2**31 - 1
"""The limits of INT, beyond which no diagonal lies."""


@lowers("Trilu")
def _trilu(call: Call) -> Value:
    """Zeros on the diagonals below, or above, the *k*-th."""
    build, x = call.build, call.operand(0)
    (k,) = call.integers(1) if call.has(1) else [0]
    k = min(max(k, _LEAST), _LARGEST - 1)
    upper = call.attribute("upper", 1)
    *outer, height, width = x.shape
    matrices = build.reshape(x, (math.prod(outer), height, width))
    found = build(
        "DIAGONAL_MATRIX1", InputTensor=matrices,
        OutputTensor=Result(x.dtype, matrices.shape),
        ValueDataType=build.data_type(x.dtype), Value=0,
        DiagonalFillBegin=_LEAST if upper else k + 1,
        DiagonalFillEnd=k if upper else _LARGEST,
    )  # fmt: skip
    return build.reshape(found, x.shape)


@lowers("EyeLike")
def _eye_like(call: Call) -> Value:
    call.ignore("dtype")
    k = min(max(call.attribute("k", 0), _LEAST), _LARGEST - 1)
    result = call.result()
    return call.build(
        "DIAGONAL_MATRIX1", InputTensor=None, OutputTensor=result,
        ValueDataType=call.build.data_type(result.dtype), Value=1,
        DiagonalFillBegin=k, DiagonalFillEnd=k + 1,
    )  # fmt: skip
