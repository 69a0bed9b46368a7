"""Operations on each element, or on pairs of elements with broadcasting."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from mil_interpreter.registry import operation

Array = np.ndarray[Any, Any]

_erf = np.frompyfunc(math.erf, 1, 1)

_UNARY: dict[str, Callable[[Array], Array]] = {
    "abs": np.abs,
    "acos": np.arccos,
    "asin": np.arcsin,
    "atan": np.arctan,
    "atanh": np.arctanh,
    "ceil": np.ceil,
    "cos": np.cos,
    "cosh": np.cosh,
    "exp": np.exp,
    "exp2": np.exp2,
    "floor": np.floor,
    "identity": lambda x: x,
    "logical_not": np.logical_not,
    "round": np.round,
    "sign": np.sign,
    "sin": np.sin,
    "sinh": np.sinh,
    "sqrt": np.sqrt,
    "square": np.square,
    "tan": np.tan,
    "tanh": np.tanh,
}

_BINARY: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add,
    "equal": np.equal,
    "floor_div": np.floor_divide,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "logical_xor": np.logical_xor,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "mod": np.mod,
    "mul": np.multiply,
    "not_equal": np.not_equal,
    "pow": np.power,
    "sub": np.subtract,
}


def _register() -> None:
    for name, unary in _UNARY.items():
        operation(name)(lambda x, unary=unary: unary(x))
    for name, binary in _BINARY.items():
        operation(name)(lambda x, y, binary=binary: binary(*_same(x, y)))


def _same(x: Array, y: Array) -> tuple[Array, Array]:
    """Both, if they are of one type: MIL promotes none when it runs."""
    if x.dtype != y.dtype:
        raise TypeError(f"operands of {x.dtype} and {y.dtype}")
    return x, y


_register()


@operation("real_div")
def real_div(x: Array, y: Array) -> Array:
    if x.dtype.kind == "f":
        return np.divide(*_same(x, y))
    raise NotImplementedError("what a quotient of integers is, is not documented")


@operation("erf")
def erf(x: Array) -> Array:
    return np.asarray(_erf(x)).astype(x.dtype)


@operation("inverse")
def inverse(x: Array, epsilon: Any = 1e-4) -> Array:
    return 1 / (x + x.dtype.type(epsilon))


@operation("log")
def log(x: Array, epsilon: Any = 1e-45) -> Array:
    return np.log(x + x.dtype.type(epsilon))


@operation("rsqrt")
def rsqrt(x: Array, epsilon: Any = 1e-12) -> Array:
    return 1 / np.sqrt(x + x.dtype.type(epsilon))


@operation("clip")
def clip(x: Array, alpha: Array, beta: Array) -> Array:
    return np.clip(x, alpha, beta)


@operation("threshold")
def threshold(x: Array, alpha: Array) -> Array:
    return np.maximum(x, alpha)


@operation("select")
def select(cond: Array, a: Array, b: Array) -> Array:
    return np.where(cond, *_same(a, b))


_DTYPES = {
    "bool": np.bool_,
    "fp16": np.float16,
    "fp32": np.float32,
    "int8": np.int8,
    "int16": np.int16,
    "int32": np.int32,
    "uint8": np.uint8,
    "uint16": np.uint16,
}


@operation("cast")
def cast(x: Array, dtype: str) -> Array:
    return x.astype(_DTYPES[dtype])
