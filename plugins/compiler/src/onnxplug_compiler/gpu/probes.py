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


class Family(Record):
    """Kernels that are written alike.

    Attributes:
        operators: their names, which the kernels are for.
        tolerance: how far results may be off, relative and absolute.
        element: which elements of the operators.
    """

    operators: str
    tolerance: tuple[float, float] = _ROUNDED
    element: DataType = DataType.FLOAT32


_PRODUCTS: Final = "MatMul Gemm Einsum"
_STEPS: Final = (
    "Add Sub Mul Div Pow Neg Abs Sign Sqrt Reciprocal Floor Ceil Round Max Min Sum "
    "Mean Exp Log Erf Sin Cos Tan Asin Acos Atan Sinh Cosh Asinh Acosh Atanh Where"
)
_ACTIVATIONS: Final = (
    "Relu LeakyRelu PRelu ThresholdedRelu Clip Sigmoid HardSigmoid HardSwish Tanh Elu "
    "Selu Celu Softplus Softsign Shrink Swish Mish Gelu"
)
_ROWS: Final = "Softmax LogSoftmax LayerNormalization RMSNormalization"

FAMILIES: Final[dict[str, Family]] = {
    "tiles": Family(_PRODUCTS),
    "product": Family(_PRODUCTS),
    "convolution": Family("Conv ConvTranspose"),
    "arithmetic": Family(_STEPS),
    "long_rows": Family(f"{_ROWS} ReduceMax ReduceSum"),
    "movement": Family(
        "Transpose Slice Pad Concat Split Expand Tile Trilu DepthToSpace SpaceToDepth",
        _EXACT,
    ),
    "normalization": Family(
        "LayerNormalization RMSNormalization BatchNormalization InstanceNormalization "
        "GroupNormalization LpNormalization"
    ),
    "activation": Family(f"{_ACTIVATIONS} Softmax LogSoftmax"),
    "attention": Family("Attention MatMul Softmax"),
    "pooling": Family(
        "MaxPool AveragePool LpPool GlobalMaxPool GlobalAveragePool GlobalLpPool"
    ),
    "reduction": Family(
        "ReduceMean ReduceMax ReduceSum ReduceMin ReduceProd ReduceL1 ReduceL2 "
        "ReduceLogSum ReduceLogSumExp ReduceSumSquare CumSum CumProd"
    ),
    "indexing": Family(
        "Gather GatherElements GatherND ScatterElements ScatterND ArrayFeatureExtractor"
    ),
    "bytes": Family("Transpose Slice Pad Concat Split Expand", _EXACT, DataType.BOOL),
    "int64": Family("Add Sub Mul Neg Max Min", _EXACT, DataType.INT64),
    "resize": Family("Resize Upsample"),
    "recurrent": Family("LSTM GRU RNN"),
    "sorting": Family("TopK ArgMax ArgMin", _EXACT),
}
"""The first of those that share operators has other workgroups than the second."""

WIDE: Final[dict[str, Family]] = {
    "half": Family("MatMul Gemm", (4e-3, 4e-3), DataType.FLOAT16),
    "double": Family(
        f"{_STEPS} MatMul Gemm ReduceSum ReduceMax Softmax",
        (1e-9, 1e-9),
        DataType.FLOAT64,
    ),
}
"""More where the dialect has numbers of 64 bits, and kernels of tensor cores."""


def probes(*, wide: bool = False) -> Iterator[ep.Probe]:
    """One for each family.

    Args:
        wide: :data:`WIDE` ones, too.
    """
    x = np.sin(np.arange(2 * 6 * 9 * 7, dtype=np.float32) * 1.7).reshape(2, 6, 9, 7)
    for name, family in (FAMILIES | WIDE if wide else FAMILIES).items():
        yield ep.Probe(
            family=name,
            operators=frozenset(
                ("", operator, family.element) for operator in family.operators.split()
            ),
            model=(_FOLDER / f"{name}.onnx").read_bytes(),
            inputs={"x": x},
            tolerance=family.tolerance,
        )
