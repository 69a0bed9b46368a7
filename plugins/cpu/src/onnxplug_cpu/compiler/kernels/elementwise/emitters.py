"""ONNX's element-wise operators as instructions on vectors of 16 elements.

Semantics are those of the newest opset; results are those of the array kernels, bit by
bit where an operator is exact, and otherwise as near as :mod:`~...codegen.math` says.
Floats narrower than f32 are computed in f32 and rounded once for each operator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from onnxplug_compiler.ir.elementwise import Step
from onnxplug_cpu.compiler.codegen import math
from onnxplug_cpu.compiler.codegen.emit import Function, Value
from onnxplug_cpu.compiler.codegen.math.narrow import rounded
from onnxplug_cpu.compiler.kernels.elementwise import step_activation as activation
from onnxplug_cpu.compiler.kernels.elementwise import step_arithmetic as arithmetic
from onnxplug_cpu.compiler.kernels.elementwise import step_cast, step_logic
from onnxplug_cpu.compiler.kernels.elementwise.codes import CODES, codes
from onnxplug_cpu.compiler.kernels.elementwise.step import Arguments
from onnxplug_cpu.compiler.machine.isa import Isa

EMITTERS: Final[Mapping[str, Callable[[Arguments], Value]]] = {
    "Add": arithmetic.add,
    "Sub": arithmetic.sub,
    "Mul": arithmetic.mul,
    "Div": arithmetic.div,
    "Mod": arithmetic.mod,
    "Pow": arithmetic.power,
    "Neg": arithmetic.negate,
    "Abs": arithmetic.absolute,
    "Sign": arithmetic.sign,
    "Sqrt": arithmetic.square_root,
    "Reciprocal": arithmetic.reciprocal,
    "Floor": arithmetic.floor,
    "Ceil": arithmetic.ceiling,
    "Round": arithmetic.round_to_even,
    "Max": arithmetic.maximum,
    "Min": arithmetic.minimum,
    "Sum": arithmetic.total,
    "Mean": arithmetic.mean,
    "Clip": arithmetic.clip,
    "Greater": step_logic.greater,
    "GreaterOrEqual": step_logic.greater_or_equal,
    "Less": step_logic.less,
    "LessOrEqual": step_logic.less_or_equal,
    "Equal": step_logic.equal,
    "And": step_logic.both,
    "Or": step_logic.either,
    "Xor": step_logic.exclusive,
    "Not": step_logic.inverted,
    "BitwiseAnd": step_logic.both,
    "BitwiseOr": step_logic.either,
    "BitwiseXor": step_logic.exclusive,
    "BitwiseNot": step_logic.inverted,
    "BitShift": step_logic.shifted,
    "IsNaN": step_logic.is_nan,
    "IsInf": step_logic.is_infinite,
    "Where": step_logic.where,
    "Identity": step_logic.identity,
    "Cast": step_cast.cast,
    "Relu": activation.relu,
    "PRelu": activation.prelu,
    "LeakyRelu": activation.leaky_relu,
    "ThresholdedRelu": activation.thresholded_relu,
    "Shrink": activation.shrink,
    "HardSigmoid": activation.hard_sigmoid,
    "HardSwish": activation.hard_swish,
    "Softsign": activation.softsign,
    "Elu": activation.elu,
    "Selu": activation.selu,
    "Celu": activation.celu,
    "Swish": activation.swish,
    "Mish": activation.mish,
    "Softplus": activation.softplus,
    "Gelu": activation.gelu,
    "SwiGLU": activation.swiglu,
    "Exp": activation.of_math(math.exp),
    "Log": activation.of_math(math.log),
    "Erf": activation.of_math(math.erf),
    "Tanh": activation.of_math(math.tanh),
    "Sigmoid": activation.of_math(math.sigmoid),
    "Sinh": activation.of_math(math.sinh),
    "Cosh": activation.of_math(math.cosh),
    "Asinh": activation.of_math(math.asinh),
    "Acosh": activation.of_math(math.acosh),
    "Atanh": activation.of_math(math.atanh),
    "Sin": activation.of_math(math.sin),
    "Cos": activation.of_math(math.cos),
    "Tan": activation.of_math(math.tan),
    "Asin": activation.of_math(math.asin),
    "Acos": activation.of_math(math.acos),
    "Atan": activation.of_math(math.atan),
}
"""One for each operator that :mod:`~.operators` takes."""

_EXACT: Final = frozenset(
    "Neg Abs Sign Floor Ceil Round Max Min Clip Where Identity Cast Relu".split()
)
"""Operators whose results, of narrow floats, need no rounding."""


def emit_step(
    f: Function, isa: Isa, step: Step, operands: Sequence[Value | None]
) -> Value:
    """Emit one step that :func:`~.operators.supports` takes, or :data:`~.codes.CODES`.

    Args:
        operands: vectors as :func:`~.lanes.held` types them; ``None`` for what is left
            out.  A :class:`~.step.Literal` allows cheaper instructions.
    """
    arguments = Arguments(f, isa, list(operands), step.element, dict(step.attributes))
    if step.operator == CODES:
        return codes(arguments)
    result = EMITTERS[step.operator](arguments)
    if step.operator in _EXACT:
        return result
    return rounded(f, isa, result, step.element)
