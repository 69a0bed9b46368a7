"""Small models by which the host sees what a GPU computes right.

``tools/write_probes.py`` writes them.  There are two seconds for all, so what most
models are made of comes first.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np

from onnxplug import ep
from onnxplug.authoring.record import Record
from onnxplug.ep import DataType

_FOLDER: Final = Path(__file__).with_name("probe_models")

_ROUNDED: Final = (1e-4, 1e-5)
_EXACT: Final = (0.0, 0.0)
_NARROWED: Final = (2e-2, 2e-2)
"""Of products of float32, whose factors tensor cores may have rounded to TF32; what
else they may be off by is seen of factors that are not rounded."""


class Family(Record):
    """Kernels that are written alike.

    Attributes:
        operators: the names of those which the kernels are for, with their domain if it
            is not ONNX's.
        tolerance: how far results may be off, relative and absolute.
        elements: which ones of the operators.
    """

    operators: str
    tolerance: tuple[float, float] = _ROUNDED
    elements: tuple[DataType, ...] = (DataType.FLOAT32,)

    @property
    def members(self) -> frozenset[tuple[str, str, DataType]]:
        """Operators as a probe has them."""
        names = [name.rpartition(".")[::2] for name in self.operators.split()]
        return frozenset(
            (domain, operator, element)
            for domain, operator in names
            for element in self.elements
        )


_HALF: Final = (DataType.FLOAT16,)
_BFLOAT16: Final = (DataType.BFLOAT16,)
_DOUBLE: Final = (DataType.FLOAT64,)
_BYTES: Final = (DataType.UINT8, DataType.INT8)
_ROUNDED_HALF: Final = (4e-3, 4e-3)
_ROUNDED_BFLOAT16: Final = (3e-2, 3e-2)

_PRODUCTS: Final = "MatMul Gemm Einsum DFT STFT"
_STEPS: Final = (
    "Add Sub Mul Div Mod Pow Neg Abs Sign Sqrt Reciprocal Floor Ceil Round Max Min Sum "
    "Mean Exp Log Erf Sin Cos Tan Asin Acos Atan Sinh Cosh Asinh Acosh Atanh Where"
)
_ACTIVATIONS: Final = (
    "Relu LeakyRelu PRelu ThresholdedRelu Clip Sigmoid HardSigmoid HardSwish Tanh Elu "
    "Selu Celu Softplus Softsign Shrink Swish SwiGLU Mish Gelu"
)
_ROWS: Final = "Softmax LogSoftmax LayerNormalization RMSNormalization"

FAMILIES: Final[dict[str, Family]] = {
    "tiles": Family(_PRODUCTS),
    "product": Family(_PRODUCTS),
    "convolution": Family("Conv ConvTranspose"),
    "arithmetic": Family(_STEPS),
    "long_rows": Family(f"{_ROWS} ReduceMax ReduceSum"),
    "movement": Family(
        "Transpose Slice Pad Concat Split Expand Tile Trilu DepthToSpace SpaceToDepth "
        "ConstantOfShape EyeLike CenterCropPad "
        "BlackmanWindow HammingWindow HannWindow MelWeightMatrix",
        _EXACT,
    ),
    "normalization": Family(
        "LayerNormalization RMSNormalization BatchNormalization InstanceNormalization "
        "GroupNormalization LpNormalization"
    ),
    "activation": Family(f"{_ACTIVATIONS} Softmax LogSoftmax"),
    "attention": Family("Attention MatMul Softmax"),
    "pooling": Family(
        "MaxPool AveragePool LpPool GlobalMaxPool GlobalAveragePool GlobalLpPool LRN"
    ),
    "reduction": Family(
        "ReduceMean ReduceMax ReduceSum ReduceMin ReduceProd ReduceL1 ReduceL2 "
        "ReduceLogSum ReduceLogSumExp ReduceSumSquare CumSum CumProd"
    ),
    "indexing": Family(
        "Gather GatherElements GatherND ScatterElements ScatterND ReverseSequence "
        "ai.onnx.ml.ArrayFeatureExtractor"
    ),
    "bytes": Family(
        "Transpose Slice Pad Concat Split Expand Greater GreaterOrEqual Less "
        "LessOrEqual Equal And Or Xor Not IsNaN IsInf",
        _EXACT,
        (DataType.BOOL,),
    ),
    "int64": Family(
        "Add Sub Mul Neg Max Min BitShift BitwiseAnd BitwiseOr BitwiseXor BitwiseNot",
        _EXACT,
        (DataType.INT64,),
    ),
    "resize": Family("Resize Upsample"),
    "recurrent": Family("LSTM GRU RNN"),
    "linear_attention": Family("LinearAttention"),
    "sorting": Family("TopK ArgMax ArgMin", _EXACT),
    "few_rows": Family(_PRODUCTS),
    "codes": Family("com.microsoft.MatMulNBits"),
    "depthwise": Family("Conv ConvTranspose CausalConvWithState"),
    "moments": Family(
        "InstanceNormalization GroupNormalization MeanVarianceNormalization"
    ),
    "half": Family(_PRODUCTS, _ROUNDED_HALF, _HALF),
    "bfloat16": Family(_PRODUCTS, _ROUNDED_BFLOAT16, _BFLOAT16),
    "half_attention": Family("Attention", _ROUNDED_HALF, _HALF),
    "bfloat16_attention": Family("Attention", _ROUNDED_BFLOAT16, _BFLOAT16),
    "half_convolution": Family("Conv ConvTranspose", _ROUNDED_HALF, _HALF),
    "narrow": Family(
        f"Cast {_STEPS} {_ACTIVATIONS} {_ROWS} Transpose Slice Pad Concat Split Expand",
        _EXACT,
        (*_HALF, *_BFLOAT16, DataType.INT8, DataType.INT16),
    ),
    "quantization": Family(
        "QuantizeLinear DequantizeLinear DynamicQuantizeLinear "
        "com.microsoft.QuantizeLinear com.microsoft.DequantizeLinear",
        _ROUNDED,
        _BYTES,
    ),
    "quantized_product": Family("QLinearMatMul QLinearConv", _ROUNDED, _BYTES),
    "integer_products": Family(
        "MatMulInteger ConvInteger com.microsoft.MatMulIntegerToFloat "
        "com.microsoft.DynamicQuantizeMatMul",
        _EXACT,
        _BYTES,
    ),
    "wide_integers": Family(
        "MatMul ReduceSum ReduceMin ReduceMax ReduceProd ReduceL1 ReduceSumSquare",
        _EXACT,
        (DataType.INT64, DataType.UINT64),
    ),
    "caches": Family(
        "com.microsoft.GroupQueryAttention com.microsoft.MultiHeadAttention "
        "com.microsoft.DecoderMaskedMultiHeadAttention TensorScatter"
    ),
    "cumulative": Family("CumSum CumProd Trilu"),
    "places": Family("GatherElements GatherND"),
    "scattering": Family("Scatter ScatterElements ScatterND", _EXACT),
    "extremes": Family("ArgMax ArgMin Hardmax", _EXACT),
    "long_lines": Family("TopK", _EXACT),
    "compaction": Family("NonZero Compress Unique", _EXACT),
    "suppression": Family("NonMaxSuppression", _EXACT),
    "spatial": Family("GridSample RoiAlign AffineGrid"),
    "window_places": Family("MaxPool MaxUnpool Col2Im DeformConv"),
    "minifloats": Family(
        "Cast QuantizeLinear DequantizeLinear",
        _EXACT,
        (
            DataType.FLOAT8_E4M3FN,
            DataType.FLOAT8_E4M3FNUZ,
            DataType.FLOAT8_E5M2,
            DataType.FLOAT8_E5M2FNUZ,
            DataType.FLOAT4_E2M1FN,
        ),
    ),
    "linear_quantization": Family(
        "com.microsoft.QLinearAdd com.microsoft.QLinearMul "
        "com.microsoft.QLinearLeakyRelu com.microsoft.QLinearSigmoid "
        "com.microsoft.QLinearGlobalAveragePool com.microsoft.QLinearAveragePool "
        "com.microsoft.QLinearReduceMean com.microsoft.QLinearSoftmax "
        "com.microsoft.QLinearWhere com.microsoft.QLinearConcat com.microsoft.QGemm",
        _ROUNDED,
        _BYTES,
    ),
    "narrow_recurrent": Family("LSTM GRU RNN", _ROUNDED_HALF, _HALF),
    "trees": Family(
        "ai.onnx.ml.TreeEnsemble ai.onnx.ml.TreeEnsembleClassifier "
        "ai.onnx.ml.TreeEnsembleRegressor"
    ),
    "predictors": Family(
        "ai.onnx.ml.Scaler ai.onnx.ml.Normalizer ai.onnx.ml.Imputer "
        "ai.onnx.ml.Binarizer ai.onnx.ml.LinearRegressor ai.onnx.ml.LinearClassifier"
    ),
}
"""The first of those that share operators has other workgroups than the second."""

_ROUNDED_TF32: Final = (4e-3, 2e-2)

WIDE: Final[dict[str, Family]] = {
    "convolution": Family("Conv ConvTranspose", _ROUNDED_TF32),
    "depthwise": Family("Conv ConvTranspose CausalConvWithState", _ROUNDED_TF32),
    "double": Family(
        f"{_STEPS} MatMul Gemm ReduceSum ReduceMax Softmax", (1e-9, 1e-9), _DOUBLE
    ),
    "exact_products": Family(f"{_PRODUCTS} Conv ConvTranspose", _EXACT),
    "large_product": Family("MatMul Gemm", _ROUNDED_TF32),
    "large_half_product": Family("MatMul Gemm", _ROUNDED_HALF, _HALF),
    "large_double_product": Family("MatMul Gemm", (1e-9, 1e-9), _DOUBLE),
}
"""More, and others, where the dialect has numbers of 64 bits, and libraries compute, by
default with float32 rounded to TF32."""


_OF_PRODUCTS: Final = frozenset("tiles product convolution attention recurrent".split())
"""Families whose kernels may be of tensor cores."""


def probes(*, wide: bool = False) -> Iterator[ep.Probe]:
    """One for each family.

    Args:
        wide: :data:`WIDE` ones, too.
    """
    x = np.sin(np.arange(2 * 6 * 9 * 7, dtype=np.float32) * 1.7).reshape(2, 6, 9, 7)
    for name, family in (FAMILIES | WIDE if wide else FAMILIES).items():
        narrows = wide and name in _OF_PRODUCTS
        yield ep.Probe(
            family=name,
            operators=family.members,
            model=(_FOLDER / f"{name}.onnx").read_bytes(),
            inputs={"x": x},
            tolerance=_NARROWED if narrows else family.tolerance,
        )
