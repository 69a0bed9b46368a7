"""Formulas of operators, and how exactly their results must be known."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np

from .comparison import assert_near, wide
from .strategies import Array, Draw, limits

ROUNDED: Final = 0.51
"""Units of what is rounded once; the widest type itself is a little off."""

NUMBERS: Final = [1.0, 0.5, 2.0, 0.0, -1.0, 0.25, float(np.float32(0.1)), 3.0]
"""Attributes are numbers of float32."""


def no_larger(x: Array) -> Any:
    """Nothing cancels: results are as exact as their own size allows."""
    return 0


def of_one_term(x: Array) -> Any:
    """Terms are as large as the input, or as one.

    Nobody asks for the digits of what is smaller than all normal numbers.
    """
    floor = 2.0**-100 if x.dtype.itemsize > 2 else 0
    return np.maximum(np.nan_to_num(np.minimum(np.abs(wide(x)), 1)), floor)


def as_large(x: Array) -> Any:
    """The input is multiplied by what is one less nearly one."""
    return np.nan_to_num(np.abs(wide(x)))


class Formula(NamedTuple):
    """What an operator makes of one number.

    Attributes:
        function: of numbers in the widest type, and of attributes.
        units: how far off a result may be, of what *size* says.
        attributes: the names of those that are numbers.
    """

    function: Callable[..., Any]
    units: float
    size: Callable[[Array], Any] = no_larger
    attributes: tuple[str, ...] = ()

    def drawn(self, draw: Draw) -> dict[str, float]:
        """Some of the attributes."""
        return {name: draw.one_of(NUMBERS) for name in self.attributes if draw.flag()}

    def check(self, found: Array, x: Array, **attributes: Any) -> None:
        with np.errstate(all="ignore"):
            exact = np.asarray(self.function(wide(x), **attributes))
        assert_near(found, exact, x.dtype, self.units, self.size(x))


FIFTH: Final = float(np.float32(0.2))
HUNDREDTH: Final = float(np.float32(0.01))
erf = np.vectorize(math.erf, otypes=[float])


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def elu(x: Any, alpha: float = 1.0) -> Any:
    return np.where(x < 0, alpha * np.expm1(x), x)


def celu(x: Any, alpha: float = 1.0) -> Any:
    return np.maximum(x, 0) + np.minimum(0, alpha * np.expm1(x / alpha))


def selu(
    x: Any,
    alpha: float = 1.67326319217681884765625,
    gamma: float = 1.05070102214813232421875,
) -> Any:
    return gamma * elu(x, alpha)


def gelu(x: Any, approximate: str = "none") -> Any:
    if approximate == "tanh":
        return x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    return x / 2 * (1 + erf((x / np.sqrt(np.longdouble(2))).astype(float)))


def hard_sigmoid(x: Any, alpha: float = FIFTH, beta: float = 0.5) -> Any:
    return np.maximum(0, np.minimum(1, alpha * x + beta))


def _without_drop(x: Any, alpha: float = HUNDREDTH) -> Any:
    return np.where(x < 0, alpha * x, x)


ROUNDING: Final = {
    "Abs": Formula(np.abs, 0),
    "Ceil": Formula(np.ceil, 0),
    "Floor": Formula(np.floor, 0),
    "Neg": Formula(np.negative, 0),
    "Reciprocal": Formula(np.reciprocal, ROUNDED),
    "Round": Formula(np.rint, 0),
    "Sign": Formula(np.sign, 0),
    "Sqrt": Formula(np.sqrt, ROUNDED),
}
TRANSCENDENTAL: Final = {
    # four units are what NumPy promises
    "Acos": Formula(np.arccos, 4),
    "Acosh": Formula(np.arccosh, 4),
    "Asin": Formula(np.arcsin, 4),
    "Asinh": Formula(np.arcsinh, 4),
    "Atan": Formula(np.arctan, 4),
    "Atanh": Formula(np.arctanh, 4),
    "Cos": Formula(np.cos, 4),
    "Cosh": Formula(np.cosh, 4),
    "Erf": Formula(lambda x: erf(x.astype(float)), 4),
    "Exp": Formula(np.exp, 4),
    "Log": Formula(np.log, 4),
    "Sin": Formula(np.sin, 4),
    "Sinh": Formula(np.sinh, 4),
    "Tan": Formula(np.tan, 4),
    "Tanh": Formula(np.tanh, 4),
}
ACTIVATIONS: Final = {
    "Celu": Formula(celu, 6, of_one_term, ("alpha",)),
    "Elu": Formula(elu, 6, of_one_term, ("alpha",)),
    "Gelu": Formula(gelu, 6, as_large),
    "HardSigmoid": Formula(hard_sigmoid, 6, of_one_term, ("alpha", "beta")),
    "HardSwish": Formula(
        lambda x: x * hard_sigmoid(x, 1 / np.longdouble(6)), 6, of_one_term
    ),
    "LeakyRelu": Formula(_without_drop, 6, of_one_term, ("alpha",)),
    "Mish": Formula(lambda x: x * np.tanh(np.logaddexp(x, 0)), 6, of_one_term),
    "Relu": Formula(lambda x: np.where(x < 0, 0, x), 0),
    "Selu": Formula(selu, 6, of_one_term, ("alpha", "gamma")),
    "Sigmoid": Formula(sigmoid, 6, of_one_term),
    "Softplus": Formula(lambda x: np.logaddexp(x, 0), 6, of_one_term),
    "Softsign": Formula(lambda x: x / (1 + np.abs(x)), 6, of_one_term),
    "Swish": Formula(
        lambda x, alpha=1.0: x * sigmoid(alpha * x), 6, of_one_term, ("alpha",)
    ),
    "ThresholdedRelu": Formula(
        lambda x, alpha=1.0: np.where(x > alpha, x, 0), 0, no_larger, ("alpha",)
    ),
}

REDUCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "ReduceL1": lambda x, **over: np.abs(x).sum(**over),
    "ReduceL2": lambda x, **over: np.sqrt((x * x).sum(**over)),
    "ReduceLogSum": lambda x, **over: np.log(x.sum(**over)),
    "ReduceMax": lambda x, **over: x.max(**over, initial=-np.inf),
    "ReduceMean": lambda x, **over: x.mean(**over),
    "ReduceMin": lambda x, **over: x.min(**over, initial=np.inf),
    "ReduceProd": lambda x, **over: x.prod(**over),
    "ReduceSum": lambda x, **over: x.sum(**over),
    "ReduceSumSquare": lambda x, **over: (x * x).sum(**over),
}
"""Of an array and NumPy's parameters of reductions."""


def reduced_size(op_type: str, x: Array, **over: Any) -> Any:
    """How large the terms of a reduction are that may cancel."""
    if op_type not in ("ReduceMean", "ReduceSum", "ReduceLogSum"):
        return 0
    with np.errstate(all="ignore"):
        total = np.abs(wide(x)).sum(**over)
        if op_type == "ReduceLogSum":
            # the error of the sum, relative to it; logarithms are of the size of one
            size = np.maximum(total / np.abs(wide(x).sum(**over)), 1)
        else:
            size = total if op_type == "ReduceSum" else np.abs(wide(x)).mean(**over)
    return np.nan_to_num(size, posinf=0)


def without_undefined_quotients(a: Any, b: Any) -> tuple[Any, Any]:
    """None by zero, nor of the smallest integer by -1: that has no opposite."""
    if a.dtype.kind == "i":
        a = np.maximum(a, limits(a.dtype)[0] + 1)
    return a, np.where(b == 0, b.dtype.type(1), b)


@np.vectorize(otypes=[object])
def quotient(a: int, b: int) -> int:
    """Rounded toward zero."""
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


@np.vectorize(otypes=[object])
def remainder(a: int, b: int) -> int:
    """With the sign of *a*."""
    return abs(a) % abs(b) * (-1 if a < 0 else 1)


class Normalized:
    """*x* less its mean, over its deviation; and how exactly anybody can know it."""

    def __init__(self, x: Array, axes: tuple[int, ...], epsilon: float) -> None:
        with np.errstate(all="ignore"):
            self.mean = x.mean(axis=axes, keepdims=True)
            centered = x - self.mean
            variance = (centered * centered).mean(axis=axes, keepdims=True)
            self.inverse = 1 / np.sqrt(variance + epsilon)
            self.value = centered * self.inverse
            finite = np.nan_to_num(np.abs(x), posinf=0)
            largest = finite.max(axis=axes, keepdims=True, initial=0)
            self.magnitude = np.broadcast_to(
                largest * np.nan_to_num(self.inverse), x.shape
            )

    def scaled(self, scale: Array, bias: Array | None) -> tuple[Array, Array]:
        """The result, and the size of its terms."""
        shift = np.longdouble(0) if bias is None else bias
        with np.errstate(all="ignore"):
            size = self.magnitude * np.abs(scale) + np.abs(shift)
            return self.value * scale + shift, size


def product(a: Array, b: Array) -> Array:
    """A matrix product as a sum of outer ones, also of Python's integers."""
    left = a.reshape(1, -1) if a.ndim == 1 else a
    right = b.reshape(-1, 1) if b.ndim == 1 else b
    batch = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    total = np.zeros((*batch, left.shape[-2], right.shape[-1]), a.dtype)
    for k in range(left.shape[-1]):
        total = total + left[..., :, k, None] * right[..., None, k, :]
    if a.ndim == 1:
        total = total[..., 0, :]
    return total[..., 0] if b.ndim == 1 else total


def sliced(start: int, end: int, step: int, size: int) -> list[int]:
    """The positions that Slice's specification names."""
    start, end = (n + size if n < 0 else n for n in (start, end))
    if step > 0:
        start, end = (max(0, min(n, size)) for n in (start, end))
    else:
        start = max(0, min(start, size - 1))
        end = max(-1, min(end, size - 1))
    return [n for n in range(start, end, step) if n < size]
