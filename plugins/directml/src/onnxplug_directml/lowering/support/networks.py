"""What products, windows, normalisations, reductions and quantisation take."""

from __future__ import annotations

from onnxplug_directml.lowering.support.table import level_named, supports

_UNARY = "InputTensor=OutputTensor"

supports(
    "CONVOLUTION",
    "InputTensor=FilterTensor=BiasTensor=OutputTensor: FLOATS; ranks 3 4 5",
)
supports(
    "CONVOLUTION_INTEGER",
    "InputTensor FilterTensor: BYTES; ranks 3 4",
    "InputZeroPointTensor FilterZeroPointTensor: BYTES; ranks 1 2 3 4",
    "OutputTensor: INT32; ranks 3 4",
)
supports(
    "QUANTIZED_LINEAR_CONVOLUTION",
    "InputTensor FilterTensor OutputTensor: BYTES; ranks 3 4",
    "InputScaleTensor OutputScaleTensor: FLOAT32; ranks 1 2 3 4",
    "FilterScaleTensor: FLOAT32; ranks 3 4",
    "InputZeroPointTensor FilterZeroPointTensor OutputZeroPointTensor: BYTES; "
    "ranks 1 2 3 4",
    "BiasTensor: INT32; ranks 3 4",
)
supports("GEMM", "ATensor=BTensor=CTensor=OutputTensor: FLOATS; ranks 2 3 4")
supports(
    "MATRIX_MULTIPLY_INTEGER",
    "ATensor BTensor: BYTES; ranks 2 3 4",
    "AZeroPointTensor: BYTES; ranks 1 2 3 4",
    "BZeroPointTensor: BYTES; ranks 2 3 4",
    "OutputTensor: INT32; ranks 2 3 4",
)
supports(
    "QUANTIZED_LINEAR_MATRIX_MULTIPLY",
    "ATensor BTensor OutputTensor: BYTES; ranks 2 3 4",
    "AScaleTensor BScaleTensor OutputScaleTensor: FLOAT32; ranks 1 2 3 4",
    "AZeroPointTensor BZeroPointTensor OutputZeroPointTensor: BYTES; ranks 1 2 3 4",
)

supports("AVERAGE_POOLING LP_POOLING", f"{_UNARY}: FLOATS; ranks 4 5")
supports(
    "AVERAGE_POOLING1 LP_POOLING1",
    f"{_UNARY}: FLOATS; ranks 4 5",
    level=level_named("6.2"),
)
supports(
    "MAX_POOLING2",
    f"{_UNARY}: ALL; ranks 4 5",
    "OutputIndicesTensor: UINT64 UINT32; ranks 4 5",
)

supports(
    "BATCH_NORMALIZATION",
    "InputTensor=MeanTensor=VarianceTensor=ScaleTensor=BiasTensor=OutputTensor: FLOATS",
)
supports(
    "MEAN_VARIANCE_NORMALIZATION1",
    "InputTensor=ScaleTensor=BiasTensor=OutputTensor: FLOATS",
)
supports(
    "ACTIVATION_SOFTMAX ACTIVATION_LOG_SOFTMAX ACTIVATION_HARDMAX", f"{_UNARY}: FLOATS"
)

# which of these types each function takes, operators.reduction has
supports("REDUCE", f"{_UNARY}: ALL")
supports("ARGMAX ARGMIN", "InputTensor: ALL", "OutputTensor: INT64 INT32 UINT64 UINT32")
supports(
    "CUMULATIVE_SUMMATION CUMULATIVE_PRODUCT",
    f"{_UNARY}: FLOATS LONGS INT32 UINT32",
)

_QUANTIZE = "ELEMENT_WISE_QUANTIZE_LINEAR"
supports(
    _QUANTIZE,
    "InputTensor: FLOAT32 INT32",
    "ScaleTensor: FLOAT32",
    "ZeroPointTensor=OutputTensor: BYTES",
)
supports(
    _QUANTIZE,
    "InputTensor: FLOATS INT32",
    "ScaleTensor: FLOATS",
    level=level_named("6.0"),
)
_DEQUANTIZE = "ELEMENT_WISE_DEQUANTIZE_LINEAR"
supports(
    _DEQUANTIZE,
    "InputTensor=ZeroPointTensor: INTS",
    "ScaleTensor=OutputTensor: FLOAT32",
)
supports(_DEQUANTIZE, "ScaleTensor=OutputTensor: FLOATS", level=level_named("6.0"))
