"""Functions of vectors of f32 and f64, as instructions.

Every function is called as ``function(f, isa, x)``: *f* is the IR function that is
being written, *x* a vector, for f32 of a multiple of 16 lanes, and so is the result.
NaN gives NaN, and infinities, zeros and denormal numbers give what C's functions give,
if a docstring does not say otherwise.  Errors are in ulp, measured over random and
special arguments against a wider format.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TypeAlias

from onnxplug_cpu.compiler.codegen.emit import Function, Value
from onnxplug_cpu.compiler.codegen.math import erf as _erf
from onnxplug_cpu.compiler.codegen.math import exponential as _exponential
from onnxplug_cpu.compiler.codegen.math import logarithm as _logarithm
from onnxplug_cpu.compiler.codegen.math.double import erf as _erf64
from onnxplug_cpu.compiler.codegen.math.double import exponential as _exponential64
from onnxplug_cpu.compiler.codegen.math.double import logarithm as _logarithm64
from onnxplug_cpu.compiler.codegen.math.inverse_hyperbolic import (
    InverseHyperbolic as _InverseHyperbolic,
)
from onnxplug_cpu.compiler.codegen.math.power import power
from onnxplug_cpu.compiler.codegen.math.primitives import reciprocal
from onnxplug_cpu.compiler.codegen.math.trigonometry import (
    acos,
    asin,
    atan,
    cos,
    sin,
    tan,
)
from onnxplug_cpu.compiler.machine.isa import Isa

_Unary: TypeAlias = Callable[[Function, Isa, Value], Value]


def _by_element(single: _Unary, double: _Unary) -> _Unary:
    """*single* of f32, *double* of f64."""

    @functools.wraps(single)
    def function(f: Function, isa: Isa, x: Value) -> Value:
        return (double if x.type.element == "f64" else single)(f, isa, x)

    return function


exp = _by_element(_exponential.exp, _exponential64.exp)
exp_flushed = _by_element(_exponential.exp_flushed, _exponential64.exp_flushed)
exp_of_nonpositive = _by_element(_exponential.exp_of_nonpositive, _exponential64.exp)
expm1 = _by_element(_exponential.expm1, _exponential64.expm1)
expm1_of_nonpositive = _by_element(
    _exponential.expm1_of_nonpositive, _exponential64.expm1
)
sigmoid = _by_element(_exponential.sigmoid, _exponential64.sigmoid)
tanh = _by_element(_exponential.tanh, _exponential64.tanh)
sinh = _by_element(_exponential.sinh, _exponential64.sinh)
cosh = _by_element(_exponential.cosh, _exponential64.cosh)
log = _by_element(_logarithm.log, _logarithm64.log)
log1p_of_fraction = _by_element(
    _logarithm.log1p_of_fraction, _logarithm64.log1p_of_nonnegative
)
log1p_of_nonnegative = _by_element(
    _logarithm.log1p_of_nonnegative, _logarithm64.log1p_of_nonnegative
)
_single = _InverseHyperbolic(_logarithm.log1p_of_nonnegative, 2.0**14)
_double = _InverseHyperbolic(_logarithm64.log1p_of_nonnegative, 2.0**30)
asinh = _by_element(_single.asinh, _double.asinh)
acosh = _by_element(_single.acosh, _double.acosh)
atanh = _by_element(_single.atanh, _double.atanh)
erf = _by_element(_erf.erf, _erf64.erf)

__all__ = [
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atanh",
    "cos",
    "cosh",
    "erf",
    "exp",
    "exp_flushed",
    "exp_of_nonpositive",
    "expm1",
    "expm1_of_nonpositive",
    "log",
    "log1p_of_fraction",
    "log1p_of_nonnegative",
    "power",
    "reciprocal",
    "sigmoid",
    "sin",
    "sinh",
    "tan",
    "tanh",
]
