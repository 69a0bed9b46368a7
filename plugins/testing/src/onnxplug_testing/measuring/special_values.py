"""NaN and infinity as inputs, for the operators whose answer to them is defined.

ONNX leaves arithmetic to IEEE 754.  It does not say what comparing, ordering or
clamping makes of NaN, what an integer made of NaN or infinity is, or in which order
samples are weighted, so these are not tried.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import ml_dtypes
import numpy as np
from onnx import helper

_TYPES: Final = (
    np.dtype(np.float32), np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16),
)  # fmt: skip

_UNDEFINED: Final = frozenset(
    {
        "AffineGrid", "Attention", "Bernoulli", "CenterCropPad", "DFT", "DeformConv",
        "DynamicQuantizeLinear", "GridSample", "ImageDecoder", "MelWeightMatrix",
        "Multinomial", "NonMaxSuppression", "QLinearConv", "QLinearMatMul",
        "QuantizeLinear", "Range", "Resize", "RoiAlign", "STFT", "Unique", "Upsample",
    }
)  # fmt: skip
"""Operators that make whole numbers of these values, or weigh them by zeros."""

_ORDERING: Final = frozenset(
    {
        "ArgMax", "ArgMin", "Celu", "Clip", "GlobalMaxPool", "HardSigmoid",
        "Hardmax", "Max", "MaxPool", "MaxRoiPool", "MaxUnpool", "Min",
        "ReduceMax", "ReduceMin", "Relu", "Shrink", "Sign", "ThresholdedRelu", "TopK",
    }
)  # fmt: skip
"""Operators that compare: ONNX does not say where NaN stands."""

MASKED: Final = frozenset({"LogSoftmax", "Softmax"})
"""Operators of which models ask no more than to leave out what is -inf.

OpenVINO gives zeros beside NaN and infinity, where ONNX's formula gives NaN, and so
does WebGPU's library for rows of nothing but -inf.  Taken for an error, that would
leave no attention to them; models that look for NaN make zeros of such rows.
"""

_VANISHING: Final = frozenset({"Gelu", "HardSwish", "Mish", "Swish"})
"""Operators whose formula is NaN for -inf, which times a factor that vanishes."""

_GATHERING: Final = frozenset(
    {
        "ArgMax", "ArgMin", "AveragePool", "CumSum", "GlobalAveragePool", "Hardmax",
        "LpPool", "Max", "Mean", "Min", "Sum",
    }
)  # fmt: skip
"""Operators that begin with some value and go through the elements.

Not ``MaxPool`` and ``GlobalMaxPool``, which OpenVINO begins with the lowest finite
number: a window of nothing but -inf comes out as that, but no network has such, and
all convolutional ones have these.
"""

_EVERY_INPUT: Final = frozenset(
    {
        "Add", "Concat", "Div", "Einsum", "Equal", "Gemm", "Greater",
        "GreaterOrEqual", "Less", "LessOrEqual", "MatMul", "Max", "Mean", "Min",
        "Mod", "Mul", "PRelu", "Pow", "Sub", "Sum", "Where",
    }
)  # fmt: skip
"""Operators whose inputs are all data; of others only the first is."""

_CASTS: Final = frozenset({"Cast", "CastLike"})
_DEFINED_CASTS: Final = frozenset({1, 9, 10, 16})
"""To ONNX's numbers for float32, bool, float16 and bfloat16."""


def special_values(case: Any, position: int) -> Iterator[Any]:
    """*case*, the one at *position* of its operator, fed with NaN and infinity."""
    operator = case.node.op_type
    if operator in _UNDEFINED or (position >= 4 and operator != "Cast"):
        return
    if operator in _CASTS and not _DEFINED_CASTS.issuperset(case.output_types):
        return
    data = [
        number
        for number, array in enumerate(case.inputs)
        if array is not None
        and array.dtype.name in ("float32", "float16", "bfloat16")
        and (number == 0 or operator in _EVERY_INPUT)
    ]
    if not data:
        return
    for dtype in _TYPES if position < 2 else _TYPES[:1]:
        given = _as_type(case, data, dtype)
        if given is None:
            continue
        arrangements = ["scattered", "in rows", "everywhere"]
        if operator in _GATHERING or operator.startswith("Reduce"):
            arrangements += ["-inf", "inf"]  # nothing else, whatever is gathered
        for arrangement in arrangements:
            inputs = list(given.inputs)
            for number in data:
                inputs[number] = _with_specials(
                    inputs[number], arrangement, number, _values(operator)
                )
            tried = replace(given, kind="special", inputs=tuple(inputs), expected=None)
            yield tried
            yield replace(tried, dynamic=True)
            rest = frozenset(
                number for number, array in enumerate(inputs) if array is not None
            ) - {0}
            if rest:
                yield replace(tried, constants=rest)
                yield replace(tried, constants=rest, dynamic=True)
                yield replace(tried, constants=frozenset({0}))


def _as_type(case: Any, data: list[int], dtype: Any) -> Any | None:
    """*case* with all its floating point in *dtype*; ``None`` if it is as it was."""
    now = case.inputs[data[0]].dtype
    if now == dtype:
        return case
    if case.node.op_type in _CASTS:
        return None  # what it makes is part of the case
    kind = helper.np_dtype_to_tensor_dtype(dtype)
    inputs = tuple(
        array.astype(dtype) if array is not None and array.dtype == now else array
        for array in case.inputs
    )
    old = helper.np_dtype_to_tensor_dtype(now)
    types = tuple(kind if number == old else number for number in case.output_types)
    return replace(case, inputs=inputs, output_types=types, constants=case.lists())


def _values(operator: str) -> list[float]:
    if operator in MASKED:
        return [-np.inf, 0.0, -np.inf, -1.5]
    if operator in _VANISHING:
        return [np.nan, 0.0, -1.5]
    return [np.inf, -np.inf, *([] if operator in _ORDERING else [np.nan]), 0.0, -1.5]


def _with_specials(
    array: Any, arrangement: str, number: int, values: list[float]
) -> Any:
    """*array* with some or all of its elements replaced.

    The *number* of the input changes their order, so that each meets each.
    """
    result = np.array(array)
    if not result.size:
        return result
    flat = result.reshape(-1)
    if arrangement.endswith("inf"):
        flat[:] = float(arrangement)
    elif arrangement == "everywhere" or result.ndim < 2:
        repeats = len(values) if number % 2 else 1
        flat[:] = np.resize(np.repeat(values, repeats), flat.size)
    elif arrangement == "scattered":
        flat[number::3] = np.resize(np.roll(values, number), flat[number::3].size)
    else:
        rows = result.reshape(-1, result.shape[-1])
        for row, value in zip(rows, np.resize(values[:3], len(rows)), strict=True):
            row[:] = value
    return result
