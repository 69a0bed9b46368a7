"""The numbers of TensorRT's, of which a test says that they are the real ones."""

from __future__ import annotations

from enum import IntEnum


class Severity(IntEnum):
    INTERNAL_ERROR = 0
    ERROR = 1
    WARNING = 2
    INFO = 3
    VERBOSE = 4


class BuilderFlag(IntEnum):
    GPU_FALLBACK = 3
    REFIT = 4
    SPARSE_WEIGHTS = 7
    STRIP_PLAN = 18
    REFIT_IDENTICAL = 19


class HardwareCompatibilityLevel(IntEnum):
    NONE = 0
    AMPERE_PLUS = 1


class MemoryPoolType(IntEnum):
    WORKSPACE = 0


class PreviewFeature(IntEnum):
    ALIASED_PLUGIN_IO_10_03 = 0
    RUNTIME_ACTIVATION_RESIZE_10_10 = 1


class TacticSource(IntEnum):
    EDGE_MASK_CONVOLUTIONS = 0
    JIT_CONVOLUTIONS = 1


class DataType(IntEnum):
    FLOAT = 0
    HALF = 1
    INT8 = 2
    INT32 = 3
    BOOL = 4
    UINT8 = 5
    FP8 = 6
    BF16 = 7
    INT64 = 8
    INT4 = 9
    FP4 = 10


SHORT_NAMES = {
    "float32": DataType.FLOAT,
    "float16": DataType.HALF,
    "bfloat16": DataType.BF16,
    "int8": DataType.INT8,
    "int32": DataType.INT32,
    "int64": DataType.INT64,
    "bool": DataType.BOOL,
    "uint8": DataType.UINT8,
    "fp8": DataType.FP8,
    "int4": DataType.INT4,
    "fp4": DataType.FP4,
}
"""Element types by what the module calls them besides."""


class TensorIOMode(IntEnum):
    NONE = 0
    INPUT = 1
    OUTPUT = 2


class TensorLocation(IntEnum):
    DEVICE = 0
    HOST = 1


class ExecutionContextAllocationStrategy(IntEnum):
    STATIC = 0
    ON_PROFILE_CHANGE = 1
    USER_MANAGED = 2


class NetworkDefinitionCreationFlag(IntEnum):
    STRONGLY_TYPED = 0


class DeviceType(IntEnum):
    GPU = 0
    DLA = 1


class LayerType(IntEnum):
    ACTIVATION = 2
    CONSTANT = 19


class TensorFormat(IntEnum):
    LINEAR = 0
    CHW16 = 4
    HWC = 8


class ErrorCode(IntEnum):
    SUCCESS = 0
    INVALID_NODE = 6
    UNSUPPORTED_NODE = 8
    UNSUPPORTED_NODE_ATTR = 9
    UNSUPPORTED_NODE_INPUT = 10
    UNSUPPORTED_NODE_DATATYPE = 11
    UNSUPPORTED_NODE_DYNAMIC = 12
    UNSUPPORTED_NODE_SHAPE = 13


ALL = (
    BuilderFlag,
    HardwareCompatibilityLevel,
    MemoryPoolType,
    PreviewFeature,
    TacticSource,
    DataType,
    TensorIOMode,
    TensorLocation,
    ExecutionContextAllocationStrategy,
    NetworkDefinitionCreationFlag,
    DeviceType,
    LayerType,
    TensorFormat,
    ErrorCode,
)


class BuilderFlagBefore11(IntEnum):
    """As documented of TensorRT 10; the numbers are the stand-in's."""

    FP16 = 0
    INT8 = 1
    GPU_FALLBACK = 3
    REFIT = 4
    SPARSE_WEIGHTS = 7
    BF16 = 17
    STRIP_PLAN = 18
    REFIT_IDENTICAL = 19


class NetworkDefinitionCreationFlagBefore11(IntEnum):
    STRONGLY_TYPED = 1


BEFORE_11 = {
    "BuilderFlag": BuilderFlagBefore11,
    "NetworkDefinitionCreationFlag": NetworkDefinitionCreationFlagBefore11,
}
"""What TensorRT 10 has instead."""
