"""Which nodes are taken, and the reasons for those that are not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import onnx
import pytest

import onnxplug
from onnxplug.errors import UnassignedNode
from onnxplug_coreml.lowering import lower  # noqa: F401 - declares the rules
from onnxplug_coreml.lowering.call import RULES
from onnxplug_coreml.lowering.folding import SIZES

ONNX_RUNTIME_TAKES: Final = frozenset(
    {
        "Add", "ArgMax", "AveragePool", "Cast", "Ceil", "Clip", "Concat", "Conv",
        "ConvTranspose", "Cos", "DepthToSpace", "Div", "Elu", "Erf", "Exp", "Gather",
        "GatherND", "Gelu", "Gemm", "GlobalAveragePool", "GlobalMaxPool", "GridSample",
        "GroupNormalization", "HardSigmoid", "Identity", "InstanceNormalization",
        "LayerNormalization", "LeakyRelu", "MatMul", "Max", "MaxPool", "Mul", "PRelu",
        "Pow", "Reciprocal", "ReduceMax", "ReduceMean", "ReduceSum", "Relu", "Reshape",
        "Resize", "Round", "Shape", "Sigmoid", "Sin", "Slice", "Softmax", "Softplus",
        "Split", "Sqrt", "Squeeze", "Sub", "Tanh", "Tile", "Transpose", "Unsqueeze",
    }
)  # fmt: skip
"""What its documentation lists for ML programs, of ONNX's own operators; but for Range,
whose result has a size that follows from what is fed."""


def test_what_onnx_runtime_takes_is_taken() -> None:
    assert set(RULES) | SIZES >= ONNX_RUNTIME_TAKES


REFUSED: Final[dict[str, tuple[dict[str, Any], str]]] = {
    "type": (
        {"body": "y = Exp (x)", "inputs": "double[2] x", "outputs": "double[2] y"},
        "dtype: float64; CoreAI takes float32, float16, int32, int64 and bool",
    ),
    "rank": (
        {
            "body": "y = Exp (x)",
            "inputs": "float[1,1,1,1,1,1,1,1,2] x",
            "outputs": "float[1,1,1,1,1,1,1,1,2] y",
        },
        "rank: a tensor of 9 dimensions on the way; CoreAI has 8",
    ),
    "constant": (
        {
            "body": "y = Pad (x, p)",
            "inputs": "float[2] x, int64[2] p",
            "outputs": "float[3] y",
        },
        "not-constant: input 1 ..p.. is computed; takes constants and what follows",
    ),
    "size": (
        {
            "body": "i = NonZero (x)\n f = Cast <to = 1> (i)\n y = Exp (f)",
            "inputs": "float[2] x",
            "outputs": "float[1, m] y",
        },
        "dynamic-shape: .* is not known before the model runs",
    ),
    "sizes": (
        {
            "body": "y = BatchNormalization (x, w, w, w, w)",
            "inputs": "float[n, c, 3] x",
            "outputs": "float[n, c, 3] y",
            "weights": "float[2] w = {1, 2}",
        },
        "dynamic-shape: its sizes do not go together",
    ),
    "attribute": (
        {
            "body": 'y = GridSample <mode = "cubic"> (x, g)',
            "inputs": "float[1,1,3,3] x, float[1,2,2,2] g",
            "outputs": "float[1,1,2,2] y",
        },
        "attribute: mode is 'cubic'; takes linear, bilinear, nearest",
    ),
    "operator": (
        {"body": "y = NonZero (x)", "outputs": "int64[2, m] y"},
        "op: CoreAI is given no NonZero",
    ),
}


@pytest.mark.parametrize("why", REFUSED)
def test_a_refusal_has_its_reason(
    why: str,
    alone: Callable[..., onnxplug.InferenceSession],
    parse: Callable[..., onnx.ModelProto],
) -> None:
    model, reason = REFUSED[why]
    with pytest.raises(UnassignedNode, match=reason):
        alone(parse(**model))
