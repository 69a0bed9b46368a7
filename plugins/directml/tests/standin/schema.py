"""The structures that describe DirectML's operators, with what each field is.

Those of feature levels up to 5.0 are win32more's.  Later ones it lacks: they follow
Microsoft's DirectML.h, from which their order and so their numbers are.
"""

from __future__ import annotations

import ctypes
import functools
from dataclasses import dataclass
from typing import Any

from .. import definitions

FIRST_LATER = 157
"""The number of the first operator of feature level 5.1."""

_SOFTMAX = "tensor InputTensor, tensor OutputTensor, uint AxisCount, uints Axes"
_RESAMPLE = (
    "DML_INTERPOLATION_MODE InterpolationMode, DML_AXIS_DIRECTION RoundingDirection, "
    "uint DimensionCount, floats Scales, floats InputPixelOffsets, "
    "floats OutputPixelOffsets"
)
_WINDOW = (
    "uint DimensionCount, uints Strides, uints WindowSize, uints StartPadding, "
    "uints EndPadding, uints Dilations"
)
_ATTENTION = (
    "tensor QueryTensor, tensor KeyTensor, tensor ValueTensor, "
    "tensor StackedQueryKeyTensor, tensor StackedKeyValueTensor, "
    "tensor StackedQueryKeyValueTensor, tensor BiasTensor, tensor MaskTensor, "
    "tensor RelativePositionBiasTensor, tensor PastKeyTensor, tensor PastValueTensor"
)
_PRESENT = (
    "tensor OutputTensor, tensor OutputPresentKeyTensor, "
    "tensor OutputPresentValueTensor, float Scale, float MaskFilterValue"
)
_QUANTIZE = (
    "tensor InputTensor, DML_QUANTIZATION_TYPE QuantizationType, "
    "uint QuantizationTensorCount, tensors QuantizationTensors, tensor OutputTensor"
)
_FOLD = (
    "tensor InputTensor, tensor OutputTensor, uint DimensionCount, uints WindowSizes, "
    "uints Strides, uints Dilations, uints StartPadding, uints EndPadding"
)

LATER = {
    "ACTIVATION_GELU": "tensor InputTensor, tensor OutputTensor",
    "ACTIVATION_SOFTMAX1": _SOFTMAX,
    "ACTIVATION_LOG_SOFTMAX1": _SOFTMAX,
    "ACTIVATION_HARDMAX1": _SOFTMAX,
    "RESAMPLE2": f"tensor InputTensor, tensor OutputTensor, {_RESAMPLE}",
    "RESAMPLE_GRAD1": (
        f"tensor InputGradientTensor, tensor OutputGradientTensor, {_RESAMPLE}"
    ),
    "DIAGONAL_MATRIX1": (
        "tensor InputTensor, tensor OutputTensor, DML_TENSOR_DATA_TYPE ValueDataType, "
        "scalar Value, int DiagonalFillBegin, int DiagonalFillEnd"
    ),
    "MULTIHEAD_ATTENTION": (
        f"{_ATTENTION}, {_PRESENT}, uint HeadCount, "
        "DML_MULTIHEAD_ATTENTION_MASK_TYPE MaskType"
    ),
    "LP_POOLING1": f"tensor InputTensor, tensor OutputTensor, {_WINDOW}, uint P",
    "AVERAGE_POOLING1": (
        f"tensor InputTensor, tensor OutputTensor, {_WINDOW}, bool IncludePadding"
    ),
    "ACTIVATION_SWISH": (
        "tensor InputTensor, tensor OutputTensor, float SigmoidInputScale"
    ),
    "ACTIVATION_HARD_SWISH": (
        "tensor InputTensor, tensor OutputTensor, float Alpha, float Beta"
    ),
    "QUANTIZED_LINEAR_AVERAGE_POOLING": (
        "tensor InputTensor, tensor InputScaleTensor, tensor InputZeroPointTensor, "
        "tensor OutputScaleTensor, tensor OutputZeroPointTensor, tensor OutputTensor, "
        f"{_WINDOW}, bool IncludePadding"
    ),
    "MATRIX_MULTIPLY_INTEGER_TO_FLOAT": (
        "tensor ATensor, tensor AScaleTensor, tensor AZeroPointTensor, tensor BTensor, "
        "tensor BScaleTensor, tensor BZeroPointTensor, tensor BiasTensor, "
        "tensor OutputTensor"
    ),
    "MEAN_VARIANCE_NORMALIZATION2": (
        "tensor InputTensor, tensor ScaleTensor, tensor BiasTensor, "
        "tensor OutputTensor, uint AxisCount, uints Axes, bool UseMean, "
        "bool UseVariance, float Epsilon, operator FusedActivation"
    ),
    "MULTIHEAD_ATTENTION1": (
        f"{_ATTENTION}, tensor PastSequenceLengthsTensor, {_PRESENT}, "
        "uint QueryHeadCount, uint KeyValueHeadCount, "
        "DML_MULTIHEAD_ATTENTION_MASK_TYPE MaskType"
    ),
    "QUANTIZE": _QUANTIZE,
    "DEQUANTIZE": _QUANTIZE,
    "RESAMPLE3": (
        f"tensor InputTensor, tensor OutputTensor, {_RESAMPLE}, bool Antialiased"
    ),
    "FOLD": _FOLD,
    "UNFOLD": _FOLD,
}

LATER_ENUMERATIONS = {
    "DML_MULTIHEAD_ATTENTION_MASK_TYPE": (
        "NONE KEY_SEQUENCE_LENGTH KEY_SEQUENCE_END_START "
        "KEY_QUERY_SEQUENCE_LENGTH_START_END BOOLEAN"
    ),
    "DML_QUANTIZATION_TYPE": "NONE SCALE SCALE_ZERO_POINT",
    "DML_PADDING_MODE": "CONSTANT EDGE REFLECTION SYMMETRIC WRAP",
}

COUNTS = {
    "InputTensors": "InputCount",
    "OutputTensors": "OutputCount",
    "QuantizationTensors": "QuantizationTensorCount",
    "ActivationDescs": "ActivationDescCount",
    "Axes": "AxisCount",
    "Repeats": "RepeatsCount",
    "Bias": "ChannelCount",
}
"""The fields that say how long an array is; ``DimensionCount`` says it of others."""

_OLDER_NAMES = {"SCATTER_ELEMENTS": "SCATTER"}
"""Operators whose structure win32more has by an older name, which are the same."""

_POINTERS = {
    "DML_TENSOR_DESC": "tensor",
    "DML_OPERATOR_DESC": "operator",
    "DML_SCALE_BIAS": "scale_bias",
    "UInt32": "uints",
    "Int32": "ints",
    "Single": "floats",
}
_VALUES = {
    "UInt32": "uint",
    "Int32": "int",
    "Single": "float",
    "BOOL": "bool",
    "DML_SCALAR_UNION": "scalar",
    "DML_SIZE_2D": "size_2d",
}
_ARRAYS = ("InputTensors", "OutputTensors", "QuantizationTensors", "ActivationDescs")


@dataclass(frozen=True)
class Schema:
    """A structure, and what its fields are in order.

    What a field is, is one of ``tensor``, ``tensors``, ``operator``, ``operators``,
    ``scale_bias``, ``size_2d``, ``scalar``, ``uint``, ``uints``, ``int``, ``ints``,
    ``float``, ``floats``, ``bool``, or the name of an enumeration.
    """

    structure: Any
    fields: dict[str, str]

    @property
    def tensors(self) -> tuple[str, ...]:
        """The fields that are tensors, or arrays of them."""
        return tuple(n for n, k in self.fields.items() if k in ("tensor", "tensors"))

    def count_of(self, field: str) -> str:
        """The field that says how long an array is."""
        if field == "Scales" and "ScaleCount" in self.fields:
            return "ScaleCount"
        return COUNTS.get(field, "DimensionCount")


@functools.cache
def operator_names() -> dict[int, str]:
    """Names of operators by their numbers, as DirectML.h has them."""
    prefix = "DML_OPERATOR_"
    found = {
        number: name.removeprefix(prefix)
        for name, number in definitions.members("DML_OPERATOR_TYPE").items()
        # which win32more has beside its newer name for the same number
        if name not in (f"{prefix}INVALID", f"{prefix}SCATTER_ELEMENTS")
    }
    found |= {FIRST_LATER + i: name for i, name in enumerate(LATER)}
    return found


@functools.cache
def members(enumeration: str) -> dict[int, str]:
    """Names of an enumeration's members without its own, by their values."""
    if enumeration in LATER_ENUMERATIONS:
        return dict(enumerate(LATER_ENUMERATIONS[enumeration].split()))
    return {
        value: name.removeprefix(f"{enumeration}_")
        for name, value in definitions.members(enumeration).items()
    }


@functools.cache
def schema(operator: str) -> Schema:
    """The schema of an operator by its name, such as ``GEMM``."""
    if operator in LATER:
        pairs = (field.split() for field in LATER[operator].split(", "))
        fields = {name: kind for kind, name in pairs}
        types = [(name, _ctype(kind)) for name, kind in fields.items()]
        base = (ctypes.Structure,)
        made = type(f"DML_{operator}_OPERATOR_DESC", base, {"_fields_": types})
        return Schema(made, fields)
    name = _OLDER_NAMES.get(operator, operator)
    structure = definitions.find(f"DML_{name}_OPERATOR_DESC")
    annotations = structure.__annotations__
    return Schema(structure, {n: _kind(n, str(a)) for n, a in annotations.items()})


def _kind(name: str, annotation: str) -> str:
    bare = annotation.removeprefix("POINTER(").removesuffix(")").rpartition(".")[2]
    if annotation.startswith("POINTER("):
        found = _POINTERS[bare]
        return f"{found}s" if name in _ARRAYS else found
    return _VALUES.get(bare, bare)


def _ctype(kind: str) -> Any:
    if kind in ("uint", "int", "float", "bool"):
        found = {"uint": ctypes.c_uint32, "float": ctypes.c_float}
        return found.get(kind, ctypes.c_int32)
    if kind == "scalar":
        return definitions.find("DML_SCALAR_UNION")
    pointed = {
        "tensor": definitions.find("DML_TENSOR_DESC"),
        "tensors": definitions.find("DML_TENSOR_DESC"),
        "operator": definitions.find("DML_OPERATOR_DESC"),
        "uints": ctypes.c_uint32,
        "floats": ctypes.c_float,
    }
    return ctypes.POINTER(pointed[kind]) if kind in pointed else ctypes.c_int32
