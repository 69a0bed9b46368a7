"""Functions of vectors of f32, as instructions.

Every function is called as ``function(f, isa, x)``: *f* is the IR function that is
being written, *x* a vector of 16 f32, and so is the result.  NaN gives NaN, and
infinities, zeros and denormal numbers give what C's functions give, if a docstring does
not say otherwise.  Errors are in ulp of f32, measured over random and special arguments
against a wider format.
"""

from onnxplug_cpu.compiler.codegen.math.erf import erf
from onnxplug_cpu.compiler.codegen.math.exponential import (
    cosh,
    exp,
    exp_of_nonpositive,
    expm1,
    expm1_of_nonpositive,
    sigmoid,
    sinh,
    tanh,
)
from onnxplug_cpu.compiler.codegen.math.logarithm import (
    acosh,
    asinh,
    atanh,
    log,
    log1p_of_fraction,
    log1p_of_nonnegative,
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
