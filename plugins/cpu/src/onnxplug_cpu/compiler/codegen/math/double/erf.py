"""The error function of f64."""

from __future__ import annotations

from typing import Final

from onnxplug_cpu.compiler.codegen.emit import Function, Value
from onnxplug_cpu.compiler.codegen.math.double.exponential import exp
from onnxplug_cpu.compiler.codegen.math.primitives import (
    absolute,
    at_most,
    polynomial,
    sign_of,
    with_sign,
)
from onnxplug_cpu.compiler.machine.isa import Isa


def erf(f: Function, isa: Isa, x: Value) -> Value:
    """The error function within 1 ulp: x + x P(x**2) near 0, 1 - exp(Q(abs(x)))
    further away."""
    size = at_most(f, absolute(f, x), _END)
    near = f.fma(size, polynomial(f, size * size, _NEAR), size)
    complement = exp(f, isa, polynomial(f, size, _FAR))
    result = f.select(size < 1.0, near, 1.0 - complement)
    return with_sign(f, result, sign_of(f, x))


_END: Final = 5.93
"""From here on erf rounds to 1."""

# Remez, as in :mod:`~.exponential`.

_NEAR: Final = (
    0.1283791670955126,
    -0.3761263890318375,
    0.11283791670954882,
    -0.02686617064507736,
    0.005223977624823152,
    -0.0008548326981106692,
    0.00012055331120787076,
    -1.4925595467388595e-05,
    1.6461003398990845e-06,
    -1.6350340463047417e-07,
    1.4659941370937664e-08,
    -1.1373413109759428e-09,
    5.95800257652714e-11,
)
"""erf(x) / x - 1 in powers of x**2, for abs(x) <= 1, to 2**-62."""

_FAR: Final = (
    -1.7806718788581884e-07,
    -1.1283773443764813,
    -0.6366284203681665,
    -0.10274744466787392,
    0.019078530159022403,
    0.0002799512805081186,
    -0.0017684120063379046,
    0.000640669405962392,
    -4.448207062435136e-05,
    -7.055006759247287e-05,
    4.5116317774817446e-05,
    -1.654100990277379e-05,
    4.3343861128482425e-06,
    -8.521292513830178e-07,
    1.2595626856010852e-07,
    -1.3656614162095418e-08,
    1.0281690549436074e-09,
    -4.808638632930708e-11,
    1.0526167362567592e-12,
)
"""log(1 - erf(x)) for x from 1 to 5.93; erf is then right to 2**-59."""
