"""Facts of ONNX's operators that hold in all versions, whoever computes them."""

from __future__ import annotations

from typing import Final

_TRAITS: Final = {
    "unary": """
    Abs Acos Acosh Asin Asinh Atan Atanh Cast Ceil Celu Clip Cos Cosh Elu Erf Exp Floor
    Gelu HardSigmoid HardSwish Identity IsInf IsNaN LeakyRelu Log Mish Neg Not
    Reciprocal Relu Round Selu Shrink Sigmoid Sign Sin Sinh Softplus Softsign Sqrt
    Swish Tan Tanh ThresholdedRelu
    """,
    "broadcast": """
    Add And Div Equal Greater GreaterOrEqual Less LessOrEqual Max Mean Min Mul Or PRelu
    Pow Sub Sum Where Xor
    """,
}


def having(trait: str) -> frozenset[str]:
    """ONNX's operators that have *trait*."""
    return frozenset(_TRAITS[trait].split())
