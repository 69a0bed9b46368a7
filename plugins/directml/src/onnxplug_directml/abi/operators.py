"""The operators of DirectML that lowering uses, and the fields of their
descriptions: one table, as DirectML.h has them.

An entry begins at the margin.  It names operators with the same fields, then these:

======================= ==========================================================
``InputTensor``         a tensor that goes in
``>OutputTensor``       one that comes out
``BiasTensor?``         what may be left out, as a null pointer
``InputTensors[Count]`` an array of tensors, as many as the field ``Count`` says
``Alpha,Beta:FLOAT``    two fields of a type; ``DML_`` before its name is left out
``Strides:UINT[Count]`` a pointer to an array, as many as the field ``Count`` says
``Count:COUNT``         an ``UINT`` that follows from arrays
``Min:SCALAR_UNION[T]`` a scalar, of the data type that the field ``T`` says
======================= ==========================================================

Those that no rule of lowering writes are left out.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final


class FieldKind(enum.Enum):
    """What a field is to those who fill it."""

    INPUT = enum.auto()
    OUTPUT = enum.auto()
    COUNT = enum.auto()
    VALUE = enum.auto()


@dataclass(frozen=True, slots=True)
class Field:
    """A field of an operator's description.

    Attributes:
        name: Microsoft's.
        kind: tensors are ``INPUT`` or ``OUTPUT``.
        type: without ``DML_``: ``UINT``, ``CONVOLUTION_MODE``; of tensors
            ``TENSOR_DESC``, of counts ``UINT``.
        optional: it may be left out.
        count: of an array, the field that tells how long it is; else empty.
        data_type: of a ``SCALAR_UNION``, the field that tells its type; else empty.
    """

    name: str
    kind: FieldKind
    type: str
    optional: bool = False
    count: str = ""
    data_type: str = ""


_TABLE: Final = """
ELEMENT_WISE_IDENTITY ELEMENT_WISE_ABS ELEMENT_WISE_ACOS ELEMENT_WISE_ASIN
  ELEMENT_WISE_ATAN ELEMENT_WISE_CEIL ELEMENT_WISE_COS ELEMENT_WISE_EXP
  ELEMENT_WISE_FLOOR ELEMENT_WISE_LOG ELEMENT_WISE_RECIP ELEMENT_WISE_SIN
  ELEMENT_WISE_SQRT ELEMENT_WISE_TAN ELEMENT_WISE_ERF ELEMENT_WISE_SINH
  ELEMENT_WISE_COSH ELEMENT_WISE_TANH ELEMENT_WISE_ASINH ELEMENT_WISE_ACOSH
  ELEMENT_WISE_ATANH: InputTensor >OutputTensor ScaleBias:SCALE_BIAS?
ELEMENT_WISE_ADD ELEMENT_WISE_DIVIDE ELEMENT_WISE_LOGICAL_AND
  ELEMENT_WISE_LOGICAL_EQUALS ELEMENT_WISE_LOGICAL_GREATER_THAN
  ELEMENT_WISE_LOGICAL_LESS_THAN ELEMENT_WISE_LOGICAL_OR ELEMENT_WISE_LOGICAL_XOR
  ELEMENT_WISE_MAX ELEMENT_WISE_MIN ELEMENT_WISE_MULTIPLY ELEMENT_WISE_SUBTRACT
  ELEMENT_WISE_BIT_SHIFT_LEFT ELEMENT_WISE_BIT_SHIFT_RIGHT
  ELEMENT_WISE_MODULUS_TRUNCATE ELEMENT_WISE_MODULUS_FLOOR ELEMENT_WISE_BIT_AND
  ELEMENT_WISE_BIT_OR ELEMENT_WISE_BIT_XOR ELEMENT_WISE_LOGICAL_GREATER_THAN_OR_EQUAL
  ELEMENT_WISE_LOGICAL_LESS_THAN_OR_EQUAL: ATensor BTensor >OutputTensor
ELEMENT_WISE_LOGICAL_NOT ELEMENT_WISE_SIGN ELEMENT_WISE_IS_NAN ELEMENT_WISE_BIT_NOT
  ELEMENT_WISE_NEGATE ACTIVATION_HARDMAX ACTIVATION_LOG_SOFTMAX ACTIVATION_RELU
  ACTIVATION_SIGMOID ACTIVATION_SOFTMAX ACTIVATION_SOFTSIGN ACTIVATION_TANH
  ACTIVATION_GELU CAST: InputTensor >OutputTensor
ELEMENT_WISE_ADD1: ATensor BTensor >OutputTensor FusedActivation:OPERATOR_DESC?
ELEMENT_WISE_CLIP1: InputTensor >OutputTensor ScaleBias:SCALE_BIAS?
  MinMaxDataType:TENSOR_DATA_TYPE Min,Max:SCALAR_UNION[MinMaxDataType]
ELEMENT_WISE_POW: InputTensor ExponentTensor >OutputTensor ScaleBias:SCALE_BIAS?
ELEMENT_WISE_CONSTANT_POW: InputTensor >OutputTensor ScaleBias:SCALE_BIAS?
  Exponent:FLOAT
ELEMENT_WISE_IF: ConditionTensor ATensor BTensor >OutputTensor
ELEMENT_WISE_ROUND: InputTensor >OutputTensor RoundingMode:ROUNDING_MODE
ELEMENT_WISE_IS_INFINITY: InputTensor >OutputTensor InfinityMode:IS_INFINITY_MODE
ELEMENT_WISE_QUANTIZE_LINEAR ELEMENT_WISE_DEQUANTIZE_LINEAR: InputTensor ScaleTensor
  ZeroPointTensor? >OutputTensor
QUANTIZED_LINEAR_MATRIX_MULTIPLY: ATensor AScaleTensor AZeroPointTensor? BTensor
  BScaleTensor BZeroPointTensor? OutputScaleTensor OutputZeroPointTensor?
  >OutputTensor
DEQUANTIZE: InputTensor QuantizationType:QUANTIZATION_TYPE
  QuantizationTensorCount:COUNT QuantizationTensors[QuantizationTensorCount]
  >OutputTensor
ACTIVATION_ELU ACTIVATION_LEAKY_RELU ACTIVATION_THRESHOLDED_RELU ACTIVATION_CELU:
  InputTensor >OutputTensor Alpha:FLOAT
ACTIVATION_HARD_SIGMOID ACTIVATION_LINEAR ACTIVATION_SCALED_TANH: InputTensor
  >OutputTensor Alpha,Beta:FLOAT
ACTIVATION_SCALED_ELU: InputTensor >OutputTensor Alpha,Gamma:FLOAT
ACTIVATION_PARAMETERIZED_RELU: InputTensor SlopeTensor >OutputTensor
ACTIVATION_SOFTPLUS: InputTensor >OutputTensor Steepness:FLOAT
ACTIVATION_SHRINK: InputTensor >OutputTensor Bias,Threshold:FLOAT
CONVOLUTION: InputTensor FilterTensor BiasTensor? >OutputTensor Mode:CONVOLUTION_MODE
  Direction:CONVOLUTION_DIRECTION DimensionCount:COUNT
  Strides,Dilations,StartPadding,EndPadding,OutputPadding:UINT[DimensionCount]
  GroupCount:UINT FusedActivation:OPERATOR_DESC?
CONVOLUTION_INTEGER: InputTensor InputZeroPointTensor? FilterTensor
  FilterZeroPointTensor? >OutputTensor DimensionCount:COUNT
  Strides,Dilations,StartPadding,EndPadding:UINT[DimensionCount] GroupCount:UINT
QUANTIZED_LINEAR_CONVOLUTION: InputTensor InputScaleTensor InputZeroPointTensor?
  FilterTensor FilterScaleTensor FilterZeroPointTensor? BiasTensor? OutputScaleTensor
  OutputZeroPointTensor? >OutputTensor DimensionCount:COUNT
  Strides,Dilations,StartPadding,EndPadding:UINT[DimensionCount] GroupCount:UINT
GEMM: ATensor BTensor CTensor? >OutputTensor TransA,TransB:MATRIX_TRANSFORM
  Alpha,Beta:FLOAT FusedActivation:OPERATOR_DESC?
MATRIX_MULTIPLY_INTEGER: ATensor AZeroPointTensor? BTensor BZeroPointTensor?
  >OutputTensor
MULTIHEAD_ATTENTION: QueryTensor? KeyTensor? ValueTensor? StackedQueryKeyTensor?
  StackedKeyValueTensor? StackedQueryKeyValueTensor? BiasTensor? MaskTensor?
  RelativePositionBiasTensor? PastKeyTensor? PastValueTensor? >OutputTensor
  >OutputPresentKeyTensor? >OutputPresentValueTensor? Scale,MaskFilterValue:FLOAT
  HeadCount:UINT MaskType:MULTIHEAD_ATTENTION_MASK_TYPE
REDUCE: Function:REDUCE_FUNCTION InputTensor >OutputTensor AxisCount:COUNT
  Axes:UINT[AxisCount]
ARGMIN ARGMAX: InputTensor >OutputTensor AxisCount:COUNT Axes:UINT[AxisCount]
  AxisDirection:AXIS_DIRECTION
CUMULATIVE_SUMMATION: InputTensor >OutputTensor Axis:UINT AxisDirection:AXIS_DIRECTION
  HasExclusiveSum:BOOL
CUMULATIVE_PRODUCT: InputTensor >OutputTensor Axis:UINT AxisDirection:AXIS_DIRECTION
  HasExclusiveProduct:BOOL
TOP_K1: InputTensor >OutputValueTensor >OutputIndexTensor Axis,K:UINT
  AxisDirection:AXIS_DIRECTION
AVERAGE_POOLING: InputTensor >OutputTensor DimensionCount:COUNT
  Strides,WindowSize,StartPadding,EndPadding:UINT[DimensionCount] IncludePadding:BOOL
AVERAGE_POOLING1: InputTensor >OutputTensor DimensionCount:COUNT
  Strides,WindowSize,StartPadding,EndPadding,Dilations:UINT[DimensionCount]
  IncludePadding:BOOL
LP_POOLING: InputTensor >OutputTensor DimensionCount:COUNT
  Strides,WindowSize,StartPadding,EndPadding:UINT[DimensionCount] P:UINT
LP_POOLING1: InputTensor >OutputTensor DimensionCount:COUNT
  Strides,WindowSize,StartPadding,EndPadding,Dilations:UINT[DimensionCount] P:UINT
MAX_POOLING2: InputTensor >OutputTensor >OutputIndicesTensor? DimensionCount:COUNT
  Strides,WindowSize,StartPadding,EndPadding,Dilations:UINT[DimensionCount]
ROI_POOLING: InputTensor ROITensor >OutputTensor SpatialScale:FLOAT PooledSize:SIZE_2D
ROI_ALIGN1: InputTensor ROITensor BatchIndicesTensor >OutputTensor
  ReductionFunction:REDUCE_FUNCTION InterpolationMode:INTERPOLATION_MODE
  SpatialScaleX,SpatialScaleY,InputPixelOffset,OutputPixelOffset:FLOAT
  OutOfBoundsInputValue:FLOAT MinimumSamplesPerOutput,MaximumSamplesPerOutput:UINT
  AlignRegionsToCorners:BOOL
SLICE1: InputTensor >OutputTensor DimensionCount:COUNT
  InputWindowOffsets,InputWindowSizes:UINT[DimensionCount]
  InputWindowStrides:INT[DimensionCount]
SPLIT: InputTensor OutputCount:COUNT >OutputTensors[OutputCount] Axis:UINT
JOIN: InputCount:COUNT InputTensors[InputCount] >OutputTensor Axis:UINT
PADDING1: InputTensor >OutputTensor PaddingMode:PADDING_MODE
  PaddingValueDataType:TENSOR_DATA_TYPE
  PaddingValue:SCALAR_UNION[PaddingValueDataType] DimensionCount:COUNT
  StartPadding,EndPadding:UINT[DimensionCount]
TILE: InputTensor >OutputTensor RepeatsCount:COUNT Repeats:UINT[RepeatsCount]
SPACE_TO_DEPTH1 DEPTH_TO_SPACE1: InputTensor >OutputTensor BlockSize:UINT
  Order:DEPTH_SPACE_ORDER
REVERSE_SUBSEQUENCES: InputTensor SequenceLengthsTensor >OutputTensor Axis:UINT
RESAMPLE2: InputTensor >OutputTensor InterpolationMode:INTERPOLATION_MODE
  RoundingDirection:AXIS_DIRECTION DimensionCount:COUNT
  Scales,InputPixelOffsets,OutputPixelOffsets:FLOAT[DimensionCount]
GATHER: InputTensor IndicesTensor >OutputTensor Axis,IndexDimensions:UINT
GATHER_ELEMENTS: InputTensor IndicesTensor >OutputTensor Axis:UINT
GATHER_ND1: InputTensor IndicesTensor >OutputTensor
  InputDimensionCount,IndicesDimensionCount,BatchDimensionCount:UINT
SCATTER_ELEMENTS: InputTensor IndicesTensor UpdatesTensor >OutputTensor Axis:UINT
SCATTER_ND: InputTensor IndicesTensor UpdatesTensor >OutputTensor
  InputDimensionCount,IndicesDimensionCount:UINT
ONE_HOT: IndicesTensor ValuesTensor >OutputTensor Axis:UINT
DIAGONAL_MATRIX: >OutputTensor Offset:INT Value:FLOAT
DIAGONAL_MATRIX1: InputTensor? >OutputTensor ValueDataType:TENSOR_DATA_TYPE
  Value:SCALAR_UNION[ValueDataType] DiagonalFillBegin,DiagonalFillEnd:INT
FILL_VALUE_CONSTANT: >OutputTensor ValueDataType:TENSOR_DATA_TYPE
  Value:SCALAR_UNION[ValueDataType]
FILL_VALUE_SEQUENCE: >OutputTensor ValueDataType:TENSOR_DATA_TYPE
  ValueStart,ValueDelta:SCALAR_UNION[ValueDataType]
BATCH_NORMALIZATION: InputTensor MeanTensor VarianceTensor ScaleTensor BiasTensor
  >OutputTensor Spatial:BOOL Epsilon:FLOAT FusedActivation:OPERATOR_DESC?
MEAN_VARIANCE_NORMALIZATION1: InputTensor ScaleTensor? BiasTensor? >OutputTensor
  AxisCount:COUNT Axes:UINT[AxisCount] NormalizeVariance:BOOL Epsilon:FLOAT
  FusedActivation:OPERATOR_DESC?
RNN: InputTensor WeightTensor RecurrenceTensor BiasTensor? HiddenInitTensor?
  SequenceLengthsTensor? >OutputSequenceTensor? >OutputSingleTensor?
  ActivationDescCount:COUNT ActivationDescs:OPERATOR_DESC[ActivationDescCount]
  Direction:RECURRENT_NETWORK_DIRECTION
LSTM: InputTensor WeightTensor RecurrenceTensor BiasTensor? HiddenInitTensor?
  CellMemInitTensor? SequenceLengthsTensor? PeepholeTensor? >OutputSequenceTensor?
  >OutputSingleTensor? >OutputCellSingleTensor? ActivationDescCount:COUNT
  ActivationDescs:OPERATOR_DESC[ActivationDescCount]
  Direction:RECURRENT_NETWORK_DIRECTION ClipThreshold:FLOAT
  UseClipThreshold,CoupleInputForget:BOOL
GRU: InputTensor WeightTensor RecurrenceTensor BiasTensor? HiddenInitTensor?
  SequenceLengthsTensor? >OutputSequenceTensor? >OutputSingleTensor?
  ActivationDescCount:COUNT ActivationDescs:OPERATOR_DESC[ActivationDescCount]
  Direction:RECURRENT_NETWORK_DIRECTION LinearBeforeReset:BOOL
"""


def _fields(token: str) -> Iterator[Field]:
    names, _, kind = token.removesuffix("?").partition(":")
    kind, _, bracketed = (kind or names).partition("[")
    of = bracketed.removesuffix("]")
    optional = token.endswith("?")
    if ":" not in token:
        direction = FieldKind.OUTPUT if token.startswith(">") else FieldKind.INPUT
        yield Field(kind.removeprefix(">"), direction, "TENSOR_DESC", optional, of)
        return
    for name in names.split(","):
        if kind == "COUNT":
            yield Field(name, FieldKind.COUNT, "UINT")
        elif kind == "SCALAR_UNION":
            yield Field(name, FieldKind.VALUE, kind, data_type=of)
        else:
            yield Field(name, FieldKind.VALUE, kind, optional, of)


def _parsed() -> Iterator[tuple[str, tuple[Field, ...]]]:
    for entry in re.split(r"\n(?! )", _TABLE.strip()):
        names, fields = re.split(r":\s", entry, maxsplit=1)
        parsed = tuple(field for token in fields.split() for field in _fields(token))
        yield from ((name, parsed) for name in names.split())


FIELDS: Final = dict(_parsed())
"""The fields of each operator's description, by the operator's name without
``DML_OPERATOR_``."""
