"""Vector functions against wider formats: errors in ulp, and special arguments."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from onnxplug_compiler.ir.elements import ELEMENTS
from onnxplug_cpu.compiler.codegen import math as vector
from onnxplug_cpu.compiler.codegen.emit import Module, Type, Value
from onnxplug_cpu.compiler.codegen.kernel import Generator, Kernel, KernelFunction
from onnxplug_cpu.compiler.commands.recording import call
from onnxplug_cpu.compiler.machine.isa import LANES, Isa

from ..interpreter import ISAS, Interpreter

WIDTH = 2 * LANES
"""Two registers at a time, which every function must be able to take."""


WIDE = pytest.mark.skipif(
    np.finfo(np.longdouble).nmant <= 52, reason="there is no float wider than f64"
)


class Applied(Generator):
    """Applies the function named to so many operands."""

    function: str
    operands: int
    element: str

    @property
    def words(self) -> tuple[str, ...]:
        return ("count", "out", *(f"x{n}" for n in range(self.operands)))

    def write(self, module: Module, name: str, isa: Isa) -> None:
        k = KernelFunction(module, name, self.words)
        f = k.function
        type_ = Type(self.element)
        pointers = [k.pointer(f"x{n}") for n in range(self.operands)]
        out = k.pointer("out")

        def body(index: Value) -> None:
            values = [
                f.load(f.at(pointer, index * WIDTH, type_), type_.vector(WIDTH))
                for pointer in pointers
            ]
            result = getattr(vector, self.function)(f, isa, *values)
            f.store(result, f.at(out, index * WIDTH, type_))

        f.loop(k.integer("count"), body)
        f.finish()


def applied(isa: Isa, name: str, *arrays: np.ndarray[Any, Any]) -> Any:
    """The function *name* of f32 or f64 arrays of one size."""
    dtype = arrays[0].dtype
    count = -(-arrays[0].size // WIDTH)
    padded = [np.resize(array, count * WIDTH) for array in arrays]
    interpreter = Interpreter(isa)
    views = [interpreter.input(array) for array in padded]
    result = interpreter.output(dtype, (count * WIDTH,))
    call(
        interpreter.recorder,
        Kernel(Applied(name, len(arrays), ELEMENTS[dtype.name])),
        {
            "count": count,
            "out": result.address,
            **{f"x{n}": view.address for n, view in enumerate(views)},
        },
    )
    interpreter.run()
    return interpreter.read(result)[: arrays[0].size]


def arguments(
    low: float, high: float, *, extra: tuple[float, ...] = (), dtype: Any = np.float32
) -> Any:
    """Even, logarithmic and special numbers, and random bits."""
    rng = np.random.default_rng(7)
    largest = max(abs(low), abs(high))
    even = rng.uniform(low, high, 9000)
    small = np.exp(rng.uniform(math.log(1e-30), math.log(largest), 6000))
    small *= rng.choice([-1, 1], small.size)
    small = small[(small >= low) & (small <= high)]
    special = [0.0, -0.0, 1, -1, 0.5, -0.5, math.inf, -math.inf, math.nan, 1e-45]
    special += [-1e-45, 1e-39, 1.17549435e-38, 3.4028235e38, -3.4028235e38, *extra]
    with np.errstate(over="ignore", invalid="ignore"):
        numbers = np.concatenate([even, small, special]).astype(dtype)
        bits = rng.integers(0, 1 << 32, 4000, dtype=np.uint32).view(np.float32)
        if dtype == np.float64:
            bits = rng.integers(0, 1 << 64, 4000, dtype=np.uint64).view(dtype)
        return np.concatenate([numbers, bits])


def errors(result: Any, expected: Any) -> Any:
    """In ulp of the result; infinite where only one is NaN or infinite."""
    with np.errstate(all="ignore"):
        rounded = expected.astype(result.dtype)
        finite = np.isfinite(rounded) & np.isfinite(result)
        ulp = np.spacing(np.abs(np.where(finite, rounded, 1)))
        error = np.abs(result.astype(np.longdouble) - expected) / ulp
    same = (result == rounded) | (np.isnan(result) & np.isnan(rounded))
    return np.where(finite, error, np.where(same, 0, np.inf))


def erf(x: Any) -> Any:
    return np.array([math.erf(number) for number in x.astype(np.float64)])


def sigmoid(x: Any) -> Any:
    exponential = np.exp(-np.abs(x))
    return np.where(x < 0, exponential, 1) / (1 + exponential)


def circular(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    # numpy's float64 functions reduce arguments of any size rightly
    return lambda x: function(x.astype(np.float64))


CASES: list[tuple[str, Callable[[Any], Any], float, float, float]] = [
    ("exp", np.exp, -105, 90, 1.0),
    ("expm1", np.expm1, -30, 90, 2.0),
    ("log", np.log, 1e-3, 1e5, 1.0),
    ("tanh", np.tanh, -12, 12, 1.5),
    ("sigmoid", sigmoid, -105, 105, 2.7),
    ("erf", erf, -5, 5, 1.3),
    ("sinh", np.sinh, -90, 90, 2.0),
    ("cosh", np.cosh, -90, 90, 2.0),
    ("asinh", np.arcsinh, -1e3, 1e3, 2.0),
    ("acosh", np.arccosh, 1, 1e3, 2.0),
    ("atanh", np.arctanh, -1, 1, 2.0),
    ("sin", circular(np.sin), -1e4, 1e4, 2.0),
    ("cos", circular(np.cos), -1e4, 1e4, 2.0),
    ("tan", circular(np.tan), -1e4, 1e4, 1.2),
    ("asin", np.arcsin, -1, 1, 2.2),
    ("acos", np.arccos, -1, 1, 2.0),
    ("atan", np.arctan, -10, 10, 2.0),
]


@pytest.mark.parametrize("isa", ISAS, ids=lambda isa: isa.name)
@pytest.mark.parametrize("name, reference, low, high, limit", CASES, ids=lambda c: c)
def test_error(
    isa: Isa,
    name: str,
    reference: Callable[[Any], Any],
    low: float,
    high: float,
    limit: float,
) -> None:
    borders = (88.722, 88.723, 88.73, -87.33, -103.97, -104.1, 0.625, 0.9, 0.25, 4)
    x = arguments(low, high, extra=borders)
    with np.errstate(all="ignore"):
        expected = reference(x.astype(np.longdouble))
    error = errors(applied(isa, name, x), expected)
    worst = int(np.argmax(error))
    assert error[worst] <= limit, f"{name}({x[worst]!r}): {error[worst]} ulp"


CASES_OF_F64: list[tuple[str, Callable[[Any], Any], float, float, float]] = [
    ("exp", np.exp, -747, 711, 1.0),
    ("expm1", np.expm1, -50, 711, 2.0),
    ("log", np.log, 1e-3, 1e5, 1.0),
    ("log1p_of_nonnegative", np.log1p, 0, 1e3, 2.0),
    ("tanh", np.tanh, -25, 25, 1.5),
    ("sigmoid", sigmoid, -747, 747, 2.3),
    # that of math is itself not exact
    ("erf", erf, -7, 7, 2.0),
    ("sinh", np.sinh, -711, 711, 2.0),
    ("cosh", np.cosh, -711, 711, 2.0),
    ("asinh", np.arcsinh, -1e3, 1e3, 3.0),
    ("acosh", np.arccosh, 1, 1e3, 3.0),
    ("atanh", np.arctanh, -1, 1, 3.0),
]


@WIDE
@pytest.mark.parametrize("isa", ISAS, ids=lambda isa: isa.name)
@pytest.mark.parametrize("name, reference, low, high, limit", CASES_OF_F64)
def test_error_of_f64(
    isa: Isa,
    name: str,
    reference: Callable[[Any], Any],
    low: float,
    high: float,
    limit: float,
) -> None:
    borders = (709.78, 709.79, -708.39, -745.1, -745.2, 0.625, 1.0000000001, 5e-324)
    x = arguments(low, high, extra=borders, dtype=np.float64)
    if low == 0:
        x = x[~(x < 0)]
    with np.errstate(all="ignore"):
        expected = reference(x.astype(np.longdouble))
    error = errors(applied(isa, name, x), expected)
    worst = int(np.argmax(error))
    assert error[worst] <= limit, f"{name}({x[worst]!r}): {error[worst]} ulp"


@pytest.mark.parametrize("isa", ISAS, ids=lambda isa: isa.name)
def test_log1p_of_fraction(isa: Isa) -> None:
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.uniform(0, 1, 5000), np.exp(rng.uniform(-90, 0, 5000))])
    x = np.append(x, [0, 0.5, 1, math.nan]).astype(np.float32)
    expected = np.log1p(x.astype(np.longdouble))
    assert errors(applied(isa, "log1p_of_fraction", x), expected).max() <= 1.5


@pytest.mark.parametrize("isa", ISAS, ids=lambda isa: isa.name)
def test_reciprocal(isa: Isa) -> None:
    rng = np.random.default_rng(0)
    x = np.exp(rng.uniform(-60, 60, 9000)) * rng.choice([-1, 1], 9000)
    x = x.astype(np.float32)
    assert errors(applied(isa, "reciprocal", x), 1 / x.astype(np.longdouble)).max() <= 1


@pytest.mark.parametrize("isa", ISAS, ids=lambda isa: isa.name)
def test_zeros_keep_their_sign(isa: Isa) -> None:
    zeros = np.array([0.0, -0.0] * 8, np.float32)
    for name in ("tanh", "erf", "sinh", "asinh", "atanh", "sin", "tan", "asin", "atan"):
        result = applied(isa, name, zeros)
        assert (np.signbit(result) == np.signbit(zeros)).all(), name
        assert (result == 0).all(), name


@pytest.mark.parametrize("isa", ISAS, ids=lambda isa: isa.name)
def test_sigmoid_and_erf_stay_in_range(isa: Isa) -> None:
    x = np.linspace(-120, 120, 200001, dtype=np.float32)
    assert applied(isa, "sigmoid", x).max() <= 1
    result = applied(isa, "erf", x / 20)
    assert np.abs(result).max() <= 1
    assert (np.abs(result[np.abs(x) > 80]) == 1).all()


@pytest.mark.parametrize("isa", ISAS, ids=lambda isa: isa.name)
@pytest.mark.parametrize(
    "dtype, limit", [(np.float32, 0.51), pytest.param(np.float64, 1.2, marks=WIDE)]
)
def test_power(isa: Isa, dtype: Any, limit: float) -> None:
    rng = np.random.default_rng(0)
    base = np.exp(rng.uniform(-5, 5, 8000)).astype(np.float32)
    exponent = rng.uniform(-20, 20, 8000).astype(np.float32)
    negative = rng.choice([-1, 1], 2000) * rng.integers(1, 60, 2000)
    whole = rng.integers(-12, 13, 2000)
    special = np.float32(
        "0 -0 1 -1 2 -2 0.5 -0.5 3 1e-45 3e38 7e8 inf -inf nan".split()
    )
    if dtype == np.float64:
        base, exponent = np.exp(rng.uniform(-700, 700, 8000)), exponent / 30
    pairs = np.meshgrid(special, special)
    x = np.concatenate([base, negative, pairs[0].ravel()]).astype(dtype)
    y = np.concatenate([exponent, whole, pairs[1].ravel()]).astype(dtype)
    with np.errstate(all="ignore"):
        expected = np.power(x.astype(np.longdouble), y.astype(np.longdouble))
    result = applied(isa, "power", x, y)
    error = errors(result, expected)
    worst = int(np.argmax(error))
    assert error[worst] <= limit, f"{x[worst]!r} ** {y[worst]!r} = {result[worst]!r}"
    zero = result == 0
    assert (np.signbit(result) == np.signbit(expected))[zero].all()
