"""DirectML.h: what describes tensors, operators, graphs and bindings.

Of operators' descriptions, which are made from the table in :mod:`.operators`, this
module has each by Microsoft's name, such as ``DML_CONVOLUTION_OPERATOR_DESC``, and all
in :data:`OPERATOR_DESCS`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from ctypes import POINTER
from enum import IntEnum, IntFlag
from typing import Any, Final

from onnxplug_directml.abi.d3d12 import (
    D3D12_CPU_DESCRIPTOR_HANDLE,
    D3D12_GPU_DESCRIPTOR_HANDLE,
)
from onnxplug_directml.abi.operators import FIELDS, Field
from onnxplug_directml.abi.types import (
    BOOL,
    BYTE,
    ENUM,
    FLAGS,
    FLOAT,
    INT,
    POINTER_SIZED,
    SIZE_T,
    UINT,
    UINT64,
)

DML_TENSOR_DIMENSION_COUNT_MAX: Final = 5
DML_TENSOR_DIMENSION_COUNT_MAX1: Final = 8
"""From feature level 3.0 on."""
DML_TEMPORARY_BUFFER_ALIGNMENT: Final = 256
DML_PERSISTENT_BUFFER_ALIGNMENT: Final = 256
DML_MINIMUM_BUFFER_TENSOR_ALIGNMENT: Final = 16

# tensors


class DML_TENSOR_DATA_TYPE(IntEnum):
    UNKNOWN = 0
    FLOAT32 = 1
    FLOAT16 = 2
    UINT32 = 3
    UINT16 = 4
    UINT8 = 5
    INT32 = 6
    INT16 = 7
    INT8 = 8
    FLOAT64 = 9
    UINT64 = 10
    INT64 = 11
    UINT4 = 12  # this and the next: from feature level 6.3 on
    INT4 = 13


class DML_TENSOR_TYPE(IntEnum):
    INVALID = 0
    BUFFER = 1


class DML_TENSOR_FLAGS(IntFlag):
    NONE = 0
    OWNED_BY_DML = 1


class DML_BUFFER_TENSOR_DESC(ctypes.Structure):
    _fields_ = (
        ("DataType", ENUM),
        ("Flags", FLAGS),
        ("DimensionCount", UINT),
        ("Sizes", POINTER(UINT)),
        ("Strides", POINTER(UINT)),
        ("TotalTensorSizeInBytes", UINT64),
        ("GuaranteedBaseOffsetAlignment", UINT),
    )


class DML_TENSOR_DESC(ctypes.Structure):
    _fields_ = (("Type", ENUM), ("Desc", POINTER_SIZED))


# operators

DML_OPERATOR_TYPE = IntEnum(
    "DML_OPERATOR_TYPE",
    "INVALID ELEMENT_WISE_IDENTITY ELEMENT_WISE_ABS ELEMENT_WISE_ACOS ELEMENT_WISE_ADD "
    "ELEMENT_WISE_ASIN ELEMENT_WISE_ATAN ELEMENT_WISE_CEIL ELEMENT_WISE_CLIP "
    "ELEMENT_WISE_COS ELEMENT_WISE_DIVIDE ELEMENT_WISE_EXP ELEMENT_WISE_FLOOR "
    "ELEMENT_WISE_LOG ELEMENT_WISE_LOGICAL_AND ELEMENT_WISE_LOGICAL_EQUALS "
    "ELEMENT_WISE_LOGICAL_GREATER_THAN ELEMENT_WISE_LOGICAL_LESS_THAN "
    "ELEMENT_WISE_LOGICAL_NOT ELEMENT_WISE_LOGICAL_OR ELEMENT_WISE_LOGICAL_XOR "
    "ELEMENT_WISE_MAX ELEMENT_WISE_MEAN ELEMENT_WISE_MIN ELEMENT_WISE_MULTIPLY "
    "ELEMENT_WISE_POW ELEMENT_WISE_CONSTANT_POW ELEMENT_WISE_RECIP ELEMENT_WISE_SIN "
    "ELEMENT_WISE_SQRT ELEMENT_WISE_SUBTRACT ELEMENT_WISE_TAN ELEMENT_WISE_THRESHOLD "
    "ELEMENT_WISE_QUANTIZE_LINEAR ELEMENT_WISE_DEQUANTIZE_LINEAR ACTIVATION_ELU "
    "ACTIVATION_HARDMAX ACTIVATION_HARD_SIGMOID ACTIVATION_IDENTITY "
    "ACTIVATION_LEAKY_RELU ACTIVATION_LINEAR ACTIVATION_LOG_SOFTMAX "
    "ACTIVATION_PARAMETERIZED_RELU ACTIVATION_PARAMETRIC_SOFTPLUS ACTIVATION_RELU "
    "ACTIVATION_SCALED_ELU ACTIVATION_SCALED_TANH ACTIVATION_SIGMOID "
    "ACTIVATION_SOFTMAX ACTIVATION_SOFTPLUS ACTIVATION_SOFTSIGN ACTIVATION_TANH "
    "ACTIVATION_THRESHOLDED_RELU CONVOLUTION GEMM REDUCE AVERAGE_POOLING LP_POOLING "
    "MAX_POOLING ROI_POOLING SLICE CAST SPLIT JOIN PADDING VALUE_SCALE_2D UPSAMPLE_2D "
    "GATHER SPACE_TO_DEPTH DEPTH_TO_SPACE TILE TOP_K BATCH_NORMALIZATION "
    "MEAN_VARIANCE_NORMALIZATION LOCAL_RESPONSE_NORMALIZATION LP_NORMALIZATION RNN "
    "LSTM GRU ELEMENT_WISE_SIGN ELEMENT_WISE_IS_NAN ELEMENT_WISE_ERF ELEMENT_WISE_SINH "
    "ELEMENT_WISE_COSH ELEMENT_WISE_TANH ELEMENT_WISE_ASINH ELEMENT_WISE_ACOSH "
    "ELEMENT_WISE_ATANH ELEMENT_WISE_IF ELEMENT_WISE_ADD1 ACTIVATION_SHRINK "
    "MAX_POOLING1 MAX_UNPOOLING DIAGONAL_MATRIX SCATTER_ELEMENTS ONE_HOT RESAMPLE "
    "ELEMENT_WISE_BIT_SHIFT_LEFT ELEMENT_WISE_BIT_SHIFT_RIGHT ELEMENT_WISE_ROUND "
    "ELEMENT_WISE_IS_INFINITY ELEMENT_WISE_MODULUS_TRUNCATE ELEMENT_WISE_MODULUS_FLOOR "
    "FILL_VALUE_CONSTANT FILL_VALUE_SEQUENCE CUMULATIVE_SUMMATION REVERSE_SUBSEQUENCES "
    "GATHER_ELEMENTS GATHER_ND SCATTER_ND MAX_POOLING2 SLICE1 TOP_K1 DEPTH_TO_SPACE1 "
    "SPACE_TO_DEPTH1 MEAN_VARIANCE_NORMALIZATION1 RESAMPLE1 MATRIX_MULTIPLY_INTEGER "
    "QUANTIZED_LINEAR_MATRIX_MULTIPLY CONVOLUTION_INTEGER QUANTIZED_LINEAR_CONVOLUTION "
    "ELEMENT_WISE_BIT_AND ELEMENT_WISE_BIT_OR ELEMENT_WISE_BIT_XOR "
    "ELEMENT_WISE_BIT_NOT ELEMENT_WISE_BIT_COUNT "
    "ELEMENT_WISE_LOGICAL_GREATER_THAN_OR_EQUAL "
    "ELEMENT_WISE_LOGICAL_LESS_THAN_OR_EQUAL ACTIVATION_CELU ACTIVATION_RELU_GRAD "
    "AVERAGE_POOLING_GRAD MAX_POOLING_GRAD RANDOM_GENERATOR NONZERO_COORDINATES "
    "RESAMPLE_GRAD SLICE_GRAD ADAM_OPTIMIZER ARGMIN ARGMAX ROI_ALIGN GATHER_ND1 "
    "ELEMENT_WISE_ATAN_YX ELEMENT_WISE_CLIP_GRAD ELEMENT_WISE_DIFFERENCE_SQUARE "
    "LOCAL_RESPONSE_NORMALIZATION_GRAD CUMULATIVE_PRODUCT BATCH_NORMALIZATION_GRAD "
    "ELEMENT_WISE_QUANTIZED_LINEAR_ADD DYNAMIC_QUANTIZE_LINEAR ROI_ALIGN1 "
    "ROI_ALIGN_GRAD BATCH_NORMALIZATION_TRAINING BATCH_NORMALIZATION_TRAINING_GRAD "
    "ELEMENT_WISE_CLIP1 ELEMENT_WISE_CLIP_GRAD1 PADDING1 ELEMENT_WISE_NEGATE "
    "ACTIVATION_GELU ACTIVATION_SOFTMAX1 ACTIVATION_LOG_SOFTMAX1 ACTIVATION_HARDMAX1 "
    "RESAMPLE2 RESAMPLE_GRAD1 DIAGONAL_MATRIX1 MULTIHEAD_ATTENTION LP_POOLING1 "
    "AVERAGE_POOLING1 ACTIVATION_SWISH ACTIVATION_HARD_SWISH "
    "QUANTIZED_LINEAR_AVERAGE_POOLING MATRIX_MULTIPLY_INTEGER_TO_FLOAT "
    "MEAN_VARIANCE_NORMALIZATION2 MULTIHEAD_ATTENTION1 QUANTIZE DEQUANTIZE RESAMPLE3 "
    "FOLD UNFOLD",
    start=0,
)


class DML_OPERATOR_DESC(ctypes.Structure):
    _fields_ = (("Type", ENUM), ("Desc", POINTER_SIZED))


class DML_FEATURE_LEVEL(IntEnum):
    """Members are ``DML_FEATURE_LEVEL_1_0`` and so on without ``DML_FEATURE_``."""

    LEVEL_1_0 = 0x1000
    LEVEL_2_0 = 0x2000
    LEVEL_2_1 = 0x2100
    LEVEL_3_0 = 0x3000
    LEVEL_3_1 = 0x3100
    LEVEL_4_0 = 0x4000
    LEVEL_4_1 = 0x4100
    LEVEL_5_0 = 0x5000
    LEVEL_5_1 = 0x5100
    LEVEL_5_2 = 0x5200
    LEVEL_6_0 = 0x6000
    LEVEL_6_1 = 0x6100
    LEVEL_6_2 = 0x6200
    LEVEL_6_3 = 0x6300
    LEVEL_6_4 = 0x6400


# what operators' fields are


class DML_REDUCE_FUNCTION(IntEnum):
    ARGMAX = 0
    ARGMIN = 1
    AVERAGE = 2
    L1 = 3
    L2 = 4
    LOG_SUM = 5
    LOG_SUM_EXP = 6
    MAX = 7
    MIN = 8
    MULTIPLY = 9
    SUM = 10
    SUM_SQUARE = 11


class DML_MATRIX_TRANSFORM(IntEnum):
    NONE = 0
    TRANSPOSE = 1


class DML_CONVOLUTION_MODE(IntEnum):
    CONVOLUTION = 0
    CROSS_CORRELATION = 1


class DML_CONVOLUTION_DIRECTION(IntEnum):
    FORWARD = 0
    BACKWARD = 1


class DML_PADDING_MODE(IntEnum):
    CONSTANT = 0
    EDGE = 1
    REFLECTION = 2
    SYMMETRIC = 3  # from feature level 3.0 on
    WRAP = 4  # from feature level 6.4 on


class DML_INTERPOLATION_MODE(IntEnum):
    NEAREST_NEIGHBOR = 0
    LINEAR = 1


class DML_RECURRENT_NETWORK_DIRECTION(IntEnum):
    FORWARD = 0
    BACKWARD = 1
    BIDIRECTIONAL = 2


class DML_ROUNDING_MODE(IntEnum):
    HALVES_TO_NEAREST_EVEN = 0
    TOWARD_ZERO = 1
    TOWARD_INFINITY = 2


class DML_IS_INFINITY_MODE(IntEnum):
    EITHER = 0
    POSITIVE = 1
    NEGATIVE = 2


class DML_AXIS_DIRECTION(IntEnum):
    INCREASING = 0
    DECREASING = 1


class DML_DEPTH_SPACE_ORDER(IntEnum):
    DEPTH_COLUMN_ROW = 0
    COLUMN_ROW_DEPTH = 1


class DML_MULTIHEAD_ATTENTION_MASK_TYPE(IntEnum):
    NONE = 0
    KEY_SEQUENCE_LENGTH = 1
    KEY_SEQUENCE_END_START = 2
    KEY_QUERY_SEQUENCE_LENGTH_START_END = 3
    BOOLEAN = 4


class DML_QUANTIZATION_TYPE(IntEnum):
    NONE = 0
    SCALE = 1
    SCALE_ZERO_POINT = 2


class DML_SCALE_BIAS(ctypes.Structure):
    _fields_ = (("Scale", FLOAT), ("Bias", FLOAT))


class DML_SIZE_2D(ctypes.Structure):
    _fields_ = (("Width", UINT), ("Height", UINT))


class DML_SCALAR_UNION(ctypes.Union):
    _fields_ = (
        ("Bytes", BYTE * 8),
        ("Int8", ctypes.c_int8),
        ("UInt8", ctypes.c_uint8),
        ("Int16", ctypes.c_int16),
        ("UInt16", ctypes.c_uint16),
        ("Int32", ctypes.c_int32),
        ("UInt32", ctypes.c_uint32),
        ("Int64", ctypes.c_int64),
        ("UInt64", ctypes.c_uint64),
        ("Float32", ctypes.c_float),
        ("Float64", ctypes.c_double),
    )


# operators' descriptions

_PLAIN: Final[Mapping[str, Any]] = {
    "TENSOR_DESC": DML_TENSOR_DESC,
    "OPERATOR_DESC": DML_OPERATOR_DESC,
    "SCALE_BIAS": DML_SCALE_BIAS,
    "SIZE_2D": DML_SIZE_2D,
    "SCALAR_UNION": DML_SCALAR_UNION,
    "UINT": UINT,
    "INT": INT,
    "FLOAT": FLOAT,
    "BOOL": BOOL,
}
"""The types of fields; what is not here is an enumeration."""

_BY_ADDRESS: Final = frozenset({"TENSOR_DESC", "OPERATOR_DESC", "SCALE_BIAS"})
"""Types of which descriptions have addresses only."""


def _ctype(field: Field) -> Any:
    plain = _PLAIN.get(field.type, ENUM)
    return POINTER(plain) if field.count or field.type in _BY_ADDRESS else plain


OPERATOR_FIELDS: Final[Mapping[DML_OPERATOR_TYPE, tuple[Field, ...]]] = {
    DML_OPERATOR_TYPE[name]: fields for name, fields in FIELDS.items()
}
"""The fields of operators' descriptions: of all operators that lowering may use."""

OPERATOR_DESCS: Final[Mapping[DML_OPERATOR_TYPE, type[ctypes.Structure]]] = {
    operator: type(
        f"DML_{operator.name}_OPERATOR_DESC",
        (ctypes.Structure,),
        {"_fields_": tuple((field.name, _ctype(field)) for field in fields)},
    )
    for operator, fields in OPERATOR_FIELDS.items()
}
"""The structure that ``DML_OPERATOR_DESC.Desc`` points to, by ``.Type``."""


def __getattr__(name: str) -> type[ctypes.Structure]:
    """An operator's description by Microsoft's name."""
    short = name.removeprefix("DML_").removesuffix("_OPERATOR_DESC")
    if name == f"DML_{short}_OPERATOR_DESC" and short in FIELDS:
        return OPERATOR_DESCS[DML_OPERATOR_TYPE[short]]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


# features


class DML_FEATURE(IntEnum):
    TENSOR_DATA_TYPE_SUPPORT = 0
    FEATURE_LEVELS = 1


class DML_FEATURE_QUERY_TENSOR_DATA_TYPE_SUPPORT(ctypes.Structure):
    _fields_ = (("DataType", ENUM),)


class DML_FEATURE_DATA_TENSOR_DATA_TYPE_SUPPORT(ctypes.Structure):
    _fields_ = (("IsSupported", BOOL),)


class DML_FEATURE_QUERY_FEATURE_LEVELS(ctypes.Structure):
    _fields_ = (
        ("RequestedFeatureLevelCount", UINT),
        ("RequestedFeatureLevels", POINTER(ENUM)),
    )


class DML_FEATURE_DATA_FEATURE_LEVELS(ctypes.Structure):
    _fields_ = (("MaxSupportedFeatureLevel", ENUM),)


# devices, execution, bindings


class DML_CREATE_DEVICE_FLAGS(IntFlag):
    NONE = 0
    DEBUG = 1


class DML_EXECUTION_FLAGS(IntFlag):
    NONE = 0
    ALLOW_HALF_PRECISION_COMPUTATION = 1
    DISABLE_META_COMMANDS = 2
    DESCRIPTORS_VOLATILE = 4


class DML_BINDING_PROPERTIES(ctypes.Structure):
    _fields_ = (
        ("RequiredDescriptorCount", UINT),
        ("TemporaryResourceSize", UINT64),
        ("PersistentResourceSize", UINT64),
    )


class DML_BINDING_TABLE_DESC(ctypes.Structure):
    _fields_ = (
        ("Dispatchable", POINTER_SIZED),
        ("CPUDescriptorHandle", D3D12_CPU_DESCRIPTOR_HANDLE),
        ("GPUDescriptorHandle", D3D12_GPU_DESCRIPTOR_HANDLE),
        ("SizeInDescriptors", UINT),
    )


class DML_BINDING_TYPE(IntEnum):
    NONE = 0
    BUFFER = 1
    BUFFER_ARRAY = 2


class DML_BINDING_DESC(ctypes.Structure):
    _fields_ = (("Type", ENUM), ("Desc", POINTER_SIZED))


class DML_BUFFER_BINDING(ctypes.Structure):
    _fields_ = (
        ("Buffer", POINTER_SIZED),
        ("Offset", UINT64),
        ("SizeInBytes", UINT64),
    )


class DML_BUFFER_ARRAY_BINDING(ctypes.Structure):
    _fields_ = (("BindingCount", UINT), ("Bindings", POINTER(DML_BUFFER_BINDING)))


# graphs


class DML_GRAPH_EDGE_TYPE(IntEnum):
    INVALID = 0
    INPUT = 1
    OUTPUT = 2
    INTERMEDIATE = 3


class DML_GRAPH_EDGE_DESC(ctypes.Structure):
    _fields_ = (("Type", ENUM), ("Desc", POINTER_SIZED))


class DML_INPUT_GRAPH_EDGE_DESC(ctypes.Structure):
    _fields_ = (
        ("GraphInputIndex", UINT),
        ("ToNodeIndex", UINT),
        ("ToNodeInputIndex", UINT),
        ("Name", ctypes.c_char_p),
    )


class DML_OUTPUT_GRAPH_EDGE_DESC(ctypes.Structure):
    _fields_ = (
        ("FromNodeIndex", UINT),
        ("FromNodeOutputIndex", UINT),
        ("GraphOutputIndex", UINT),
        ("Name", ctypes.c_char_p),
    )


class DML_INTERMEDIATE_GRAPH_EDGE_DESC(ctypes.Structure):
    _fields_ = (
        ("FromNodeIndex", UINT),
        ("FromNodeOutputIndex", UINT),
        ("ToNodeIndex", UINT),
        ("ToNodeInputIndex", UINT),
        ("Name", ctypes.c_char_p),
    )


class DML_GRAPH_NODE_TYPE(IntEnum):
    INVALID = 0
    OPERATOR = 1
    CONSTANT = 2  # from feature level 6.2 on


class DML_GRAPH_NODE_DESC(ctypes.Structure):
    _fields_ = (("Type", ENUM), ("Desc", POINTER_SIZED))


class DML_OPERATOR_GRAPH_NODE_DESC(ctypes.Structure):
    _fields_ = (("Operator", POINTER_SIZED), ("Name", ctypes.c_char_p))


class DML_CONSTANT_DATA_GRAPH_NODE_DESC(ctypes.Structure):
    """From feature level 6.2 on."""

    _fields_ = (
        ("Data", POINTER_SIZED),
        ("DataSize", SIZE_T),
        ("Name", ctypes.c_char_p),
    )


class DML_GRAPH_DESC(ctypes.Structure):
    _fields_ = (
        ("InputCount", UINT),
        ("OutputCount", UINT),
        ("NodeCount", UINT),
        ("Nodes", POINTER(DML_GRAPH_NODE_DESC)),
        ("InputEdgeCount", UINT),
        ("InputEdges", POINTER(DML_GRAPH_EDGE_DESC)),
        ("OutputEdgeCount", UINT),
        ("OutputEdges", POINTER(DML_GRAPH_EDGE_DESC)),
        ("IntermediateEdgeCount", UINT),
        ("IntermediateEdges", POINTER(DML_GRAPH_EDGE_DESC)),
    )
