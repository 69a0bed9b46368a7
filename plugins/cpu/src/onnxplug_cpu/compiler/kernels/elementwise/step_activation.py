"""Activation functions as instructions; what is not exact of narrow floats is computed
in f32."""

from __future__ import annotations

import math as numbers
from collections.abc import Callable

from onnxplug_compiler.ir.elementwise import Scalar
from onnxplug_cpu.compiler.codegen import math
from onnxplug_cpu.compiler.codegen.emit import Function, Value
from onnxplug_cpu.compiler.codegen.math.narrow import rounded
from onnxplug_cpu.compiler.codegen.math.primitives import at_least, at_most
from onnxplug_cpu.compiler.kernels.elementwise.step import Arguments, literal
from onnxplug_cpu.compiler.machine.isa import Isa


def of_math(
    function: Callable[[Function, Isa, Value], Value],
) -> Callable[[Arguments], Value]:
    """The emitter of a function of one vector."""

    def emit(a: Arguments) -> Value:
        return function(a.f, a.isa, a.x)

    return emit


def relu(a: Arguments) -> Value:
    if a.x.type.is_float:
        return at_least(a.f, a.x, 0)
    return a.f.maximum(a.x, 0) if a.x.type.is_signed else a.x


def prelu(a: Arguments) -> Value:
    if not a.x.type.is_float and not a.x.type.is_signed:
        return a.x
    return a.f.select(a.x < 0, a.x * a.y, a.x)


def leaky_relu(a: Arguments) -> Value:
    scaled = a.x * a.number("alpha", 0.009999999776482582)
    return a.f.select(a.x < 0, scaled, a.x)


def thresholded_relu(a: Arguments) -> Value:
    return a.f.select(a.x > a.number("alpha", 1.0), a.x, 0)


def shrink(a: Arguments) -> Value:
    """The bound is rounded to the type, and so is the bias, but not to bf16."""
    f, x = a.f, a.x
    limit, bias = a.number("lambd", 0.5), a.number("bias", 0.0)
    lanes = x.type.lanes
    above = literal(f, Scalar(a.element, limit), lanes)
    below = literal(f, Scalar(a.element, -limit), lanes)
    type_ = "f32" if a.element == "bf16" else a.element
    offset = literal(f, Scalar(type_, bias), lanes)
    lower = f.select(x < below, x + offset, 0)
    return f.select(x > above, x - offset, lower)


def elu(a: Arguments) -> Value:
    return _elu(a, a.number("alpha", 1.0))


def selu(a: Arguments) -> Value:
    alpha = a.number("alpha", 1.67326319217681884765625)
    return _elu(a, alpha) * a.number("gamma", 1.05070102214813232421875)


def _elu(a: Arguments, alpha: float) -> Value:
    exponential = math.expm1_of_nonpositive(a.f, a.isa, at_most(a.f, a.x, 0))
    return a.f.select(a.x > 0, a.x, exponential * alpha)


def celu(a: Arguments) -> Value:
    f, x, alpha = a.f, a.x, a.number("alpha", 1.0)
    exponential = math.expm1(f, a.isa, x if alpha == 1 else x / alpha)
    return at_least(f, x, 0) + at_most(f, exponential * alpha, 0)


def hard_sigmoid(a: Arguments) -> Value:
    alpha = a.number("alpha", 0.20000000298023224)
    return _hard_sigmoid(a, alpha, a.number("beta", 0.5))


def hard_swish(a: Arguments) -> Value:
    return a.x * _hard_sigmoid(a, 1 / 6, 0.5)


def _hard_sigmoid(a: Arguments, alpha: float, beta: float) -> Value:
    return at_least(a.f, at_most(a.f, a.x * alpha + beta, 1), 0)


def swish(a: Arguments) -> Value:
    alpha = a.number("alpha", 1.0)
    scaled = a.x if alpha == 1 else a.x * alpha
    return a.x * math.sigmoid(a.f, a.isa, scaled)


def swiglu(a: Arguments) -> Value:
    return rounded(a.f, a.isa, swish(a), a.element) * a.y


def softsign(a: Arguments) -> Value:
    return a.x / (a.f.unary("fabs", a.x) + 1)


def softplus(a: Arguments) -> Value:
    """log(1 + e**x), rearranged so that the power does not overflow."""
    f, x = a.f, a.x
    exponential = math.exp_of_nonpositive(f, a.isa, -f.unary("fabs", x))
    return at_least(f, x, 0) + math.log1p_of_fraction(f, a.isa, exponential)


def mish(a: Arguments) -> Value:
    """x tanh(log(1 + e)) for e = e**x, which is x n / (n + 2) for n = e (e + 2).

    From 20 on the quotient rounds to 1.
    """
    exponential = math.exp(a.f, a.isa, at_most(a.f, a.x, 20))
    numerator = exponential * (exponential + 2)
    return a.x * (numerator / (numerator + 2))


def gelu(a: Arguments) -> Value:
    """With tanh: (1 + tanh(u)) / 2 is the sigmoid of 2 u, which cancels nothing."""
    f, x = a.f, a.x
    if a.attributes.get("approximate", "none") == "tanh":
        inner = f.fma(x * x * x, 0.044715, x)
        return x * math.sigmoid(f, a.isa, inner * (2 * numbers.sqrt(2 / numbers.pi)))
    half = x * 0.5
    return f.fma(half, math.erf(f, a.isa, x * numbers.sqrt(0.5)), half)
