"""The error function."""

from __future__ import annotations

from typing import Final

from onnxplug_cpu.compiler.emit import F32, Function, Value
from onnxplug_cpu.compiler.isa import Isa
from onnxplug_cpu.compiler.math.exponential import exp_of_nonpositive
from onnxplug_cpu.compiler.math.primitives import (
    absolute,
    at_most,
    by_registers,
    polynomial,
    sign_of,
    with_sign,
)


def erf(f: Function, isa: Isa, x: Value) -> Value:
    """The error function within 2 ulp."""
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
    # the smaller terms are summed apart, for smaller roundings near 0
    line = f.fma(chosen(_SLOPES), offset, first)
    result = f.fma(offset, polynomial(f, offset, others), line)
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

_MIDDLES: Final = (0.0, *(0.125 + interval / 4 for interval in range(1, 15)), 4.0)

# fmt: off
_SLOPES: Final = (
    1.12837923, 0.980352819, 0.763499558, 0.524745047, 0.318273962, 0.170359775,
    0.0804722607, 0.0335458294, 0.0123408204, 0.004006478, 0.0011478751,
    0.000290228287, 6.47586858e-05, 1.27517405e-05, 2.21592018e-06, 3.17670288e-06,
)
"""The coefficient of the distance, but for its small part."""

_TABLES: Final = (
    (0, 0.404116899, 0.623240888, 0.784075081, 0.888388216, 0.948170066,
     0.978443742, 0.99199003, 0.997345984, 0.999217033, 0.999794602, 0.999952137,
     0.999990106, 0.999998212, 0.999999702, 1),
    (-9.62828395e-08, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0),
    (7.00042619e-06, -0.367623329, -0.477184892, -0.459160864, -0.358052492,
     -0.234244347, -0.130773351, -0.0628848299, -0.0262307804, -0.00950062834,
     -0.00300182379, -0.000830373319, -0.000203511532, -5.67642965e-05,
     -6.56780139e-06, 9.6240823e-05),
    (-0.376332283, -0.234889165, -0.055677712, 0.0929208323, 0.162450463,
     0.157937616, 0.114840858, 0.0674415305, 0.0330376849, 0.0137304915,
     0.00489035016, 0.00150246988, 0.000399985176, 9.25701024e-05, 1.86698871e-05,
     0.00107730227),
    (0.00202425662, 0.165284485, 0.175677061, 0.112802438, 0.0278531313,
     -0.0301760826, -0.0491170511, -0.0430587754, -0.0259739384, -0.0141182775,
     -0.00616965024, -0.00215555308, -0.000492244144, 0.000727182894,
     -0.000124777871, 0.0048866854),
    (0.105947316, 0.0462705493, -0.0269118324, -0.0667626411, -0.061067313,
     -0.0306287631, -0.00224893168, 0.0113560809, 0.0124499053, 0.00836133305,
     0.00423316844, 0.00172551256, 0.000583231333, 0.000166157013, 4.03206941e-05,
     0.00778645789),
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
