"""Triangles and diagonals of matrices."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from onnxplug_directml.abi.directml import DML_OPERATOR_TYPE
from onnxplug_directml.lowering.builder import Result, Value
from onnxplug_directml.lowering.call import Call, lowers
from onnxplug_directml.lowering.support import SUPPORT

_LEAST: Final = -(2**31)
_LARGEST: Final = 2**31 - 1
"""The limits of INT, beyond which no diagonal lies."""


@lowers("Trilu")
def _trilu(call: Call) -> Value:
    """Zeros on the diagonals below, or above, the *k*-th."""
    build, x = call.build, call.operand(0)
    (k,) = call.integers(1) if call.has(1) else [0]
    k = min(max(k, _LEAST), _LARGEST - 1)
    upper = bool(call.attribute("upper", 1))
    *outer, height, width = x.shape
    if build.target.level < SUPPORT[DML_OPERATOR_TYPE.DIAGONAL_MATRIX1][0].level:
        distance = np.arange(width) - np.arange(height)[:, None]
        kept = build.constant(distance >= k if upper else distance <= k)
        return build.select(kept, x, build.scalar(0, x.dtype))
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
    k = min(max(call.attribute("k", 0), _LEAST), _LARGEST)
    return call.build(
        "DIAGONAL_MATRIX", OutputTensor=call.result(), Offset=k, Value=1.0
    )
