"""The error function."""

from __future__ import annotations

from typing import Final

from onnxplug_cpu.compiler.codegen.emit import F32, Function, Value
from onnxplug_cpu.compiler.codegen.math.exponential import exp_of_nonpositive
from onnxplug_cpu.compiler.codegen.math.primitives import (
    absolute,
    at_most,
    by_registers,
    polynomial,
    sign_of,
    with_sign,
)
from onnxplug_cpu.compiler.machine.isa import Isa


def erf(f: Function, isa: Isa, x: Value) -> Value:
    """The error function within 1.3 ulp."""
    if isa.name == "avx512":
        return _by_tables(f, x)
    return _by_exponential(f, isa, x)


def _by_tables(f: Function, x: Value) -> Value:
    """16 polynomials on intervals of width 1/4, each around its middle.

    The first one is around 0, without a constant, so that its relative error is small,
    and the last one around 4, so that it ends with 1.
    """
    size = at_most(f, absolute(f, x), 3.9999998)
    interval = f.convert_finite(size * 4.0, x.type.of("i32"))

    def chosen(numbers: tuple[float, ...]) -> Value:
        # a register as a table of 16 numbers; only the low 4 bits of an index count
        table = f.table(numbers, F32)
        return by_registers(
            f,
            lambda lanes: f.intrinsic(
                table.type, "llvm.x86.avx512.permvar.sf.512", table, lanes
            ),
            interval,
        )

    offset = size - chosen(_MIDDLES)
    first, *others = (chosen(numbers) for numbers in _TABLES)
    # the line is rounded, and what that takes away goes to the smaller terms
    slope = chosen(_SLOPES)
    line = f.fma(slope, offset, first)
    lost = f.fma(slope, offset, first - line)
    result = line + f.fma(offset, polynomial(f, offset, others), lost)
    return with_sign(f, result, sign_of(f, x))


def _by_exponential(f: Function, isa: Isa, x: Value) -> Value:
    """x + x P(x**2) near 0, 1 - exp(Q(abs(x))) further away."""
    size = at_most(f, absolute(f, x), _END)
    square = size * size
    near = f.fma(size, polynomial(f, square, _NEAR), size)
    complement = exp_of_nonpositive(f, isa, polynomial(f, size, _FAR))
    result = f.select(size < _NEAR_END, near, 1.0 - complement)
    return with_sign(f, result, sign_of(f, x))


# Both fits minimise the largest error: relative near 0, absolute elsewhere
# (iteratively reweighted least squares in float64).

# fmt: off
_MIDDLES: Final = (
    0, 0.3717912, 0.6257476, 0.8745008, 1.1236897, 1.3751392, 1.6248572, 1.872036,
    2.1270628, 2.3762612, 2.6247215, 2.874154, 3.128762, 3.3771443, 3.6237051, 4.0,
)
"""Near the middles of the intervals, where erf is nearly a float32 (S. Gal, "An
accurate elementary mathematical library for the IEEE floating point standard", TOMS
17, 1991)."""

_SLOPES: Final = (
    1.12837923, 0.9827048, 0.762786, 0.5252035, 0.31921315, 0.17029455, 0.08050961,
    0.033920474, 0.012233051, 0.003982542, 0.0011495546, 0.00029164326, 6.325341e-05,
    1.2568574e-05, 2.2368235e-06, 3.17670288e-06,
)
"""The coefficient of the distance, but for its small part."""

_TABLES: Final = (
    (0, 0.4009674, 0.6238114, 0.783813, 0.88797057, 0.9481938, 0.97843224, 0.9918901,
     0.9973713, 0.9992221, 0.9997943, 0.9999519, 0.99999034, 0.9999982, 0.9999997, 1),
    (-9.62828395e-08, -1.535382e-08, -2.484866e-08, 4.7694777e-09, 1.4682272e-08,
     -2.3623854e-09, 3.1548488e-09, 2.5287686e-10, 3.083852e-11, -1.7812313e-10,
     5.7929116e-11, 6.3738485e-12, -1.0656548e-12, 3.917869e-13, -1.03163714e-13, 0),
    (7.00042619e-06, -0.36535585, -0.47730717, -0.45928982, -0.35869813, -0.23418103,
     -0.13081814, -0.06350079, -0.026020277, -0.009463233, -0.003017022, -0.0008381059,
     -0.00019785743, -4.242872e-05, -8.101271e-06, 9.6240823e-05),
    (-0.376332283, -0.23699428, -0.055150587, 0.09269463, 0.1623004, 0.15792134,
     0.11487045, 0.06794335, 0.032820594, 0.01366404, 0.0048963376, 0.0015088612,
     0.00039149402, 9.131764e-05, 1.8832001e-05, 0.00107730227),
    (0.00202425662, 0.16476993, 0.17546274, 0.1123378, 0.02870894, -0.030042084,
     -0.049403857, -0.042337622, -0.026271617, -0.013147977, -0.00546916, -0.0019139821,
     -0.0005564333, -0.00014338174, -3.2302105e-05, 0.0048866854),
    (0.105947316, 0.0453113, -0.026996562, -0.06665873, -0.06103439, -0.030647941,
     -0.002320468, 0.011313943, 0.0124390535, 0.008360901, 0.0042383084, 0.0017291968,
     0.00058499986, 0.00016690257, 4.0550276e-05, 0.00778645789),
)
"""One tuple for each power of the distance from the middle, lowest first."""
# fmt: on

_END: Final = 3.925
"""From here on erf rounds to 1."""
_NEAR_END: Final = 0.9

_NEAR: Final = (
    0.128379151,
    -0.376125067,
    0.112819761,
    -0.0267732851,
    0.00500416011,
    -0.000605246169,
)
"""erf(x) / x - 1 in powers of x**2."""

_FAR: Final = (
    -0.000177487629,
    -1.12774956,
    -0.637059808,
    -0.104037262,
    0.0222770181,
    -0.00305558578,
    0.000197179252,
)
"""log(1 - erf(x))."""
