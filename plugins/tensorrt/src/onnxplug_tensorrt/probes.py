"""Small models by which the host sees what TensorRT computes right on a GPU.

``tools/write_probes.py`` writes them.  An engine is built of each, which takes seconds,
so there are few, and what most models are made of comes first.
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
_MOVED: Final = (0.0, 0.0)
_NARROWED: Final = (2e-2, 2e-2)
"""Of products of float32, whose factors tensor cores may have rounded to TF32."""


class Family(Record):
    """Operators that one model stands for.

    Attributes:
        operators: their names.
        tolerance: how far results may be off, relative and absolute.
        elements: which ones of the operators.
    """

    operators: str
    tolerance: tuple[float, float] = _ROUNDED
    elements: tuple[DataType, ...] = (DataType.FLOAT32,)


FAMILIES: Final[dict[str, Family]] = {
    "product": Family("MatMul Gemm Einsum", _NARROWED),
    "convolution": Family("Conv ConvTranspose", _NARROWED),
    "arithmetic": Family(
        "Add Sub Mul Div Pow Neg Abs Sign Sqrt Reciprocal Floor Ceil Round Max Min Sum "
        "Mean Exp Log Erf Sin Cos Tan Where"
    ),
    "movement": Family(
        "Transpose Reshape Slice Pad Concat Split Expand Tile Squeeze Unsqueeze "
        "Flatten DepthToSpace SpaceToDepth Identity",
        _MOVED,
    ),
    "normalization": Family(
        "LayerNormalization BatchNormalization InstanceNormalization GroupNormalization"
    ),
    "activation": Family(
        "Relu LeakyRelu PRelu Clip Sigmoid HardSigmoid HardSwish Tanh Elu Selu Celu "
        "Softplus Softsign Gelu Mish Softmax LogSoftmax"
    ),
    "attention": Family("MatMul Softmax Attention", _NARROWED),
    "pooling": Family("MaxPool AveragePool GlobalMaxPool GlobalAveragePool LRN"),
    "reduction": Family(
        "ReduceMean ReduceMax ReduceSum ReduceMin ReduceProd ReduceL1 ReduceL2 "
        "ReduceLogSum ReduceLogSumExp ReduceSumSquare CumSum"
    ),
    "indexing": Family(
        "Gather GatherElements GatherND ScatterElements ScatterND ReverseSequence"
    ),
    "resize": Family("Resize Upsample"),
    "recurrent": Family("LSTM GRU RNN", _NARROWED),
    "sorting": Family("TopK ArgMax ArgMin", _MOVED),
    "half": Family("MatMul Gemm Conv", (4e-3, 4e-3), (DataType.FLOAT16,)),
    "quantization": Family(
        "QuantizeLinear DequantizeLinear",
        _ROUNDED,
        (DataType.UINT8, DataType.INT8),
    ),
}


def probes() -> Iterator[ep.Probe]:
    """One for each family."""
    x = np.sin(np.arange(2 * 6 * 9 * 7, dtype=np.float32) * 1.7).reshape(2, 6, 9, 7)
    for name, family in FAMILIES.items():
        yield ep.Probe(
            family=name,
            operators=frozenset(
                ("", operator, element)
                for operator in family.operators.split()
                for element in family.elements
            ),
            model=(_FOLDER / f"{name}.onnx").read_bytes(),
            inputs={"x": x},
            tolerance=family.tolerance,
        )
