"""``ELEMENT_WISE_*`` of one tensor, and ``CAST``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from . import Desc, Rejected, operator, scalar
from .agreement import Tensors, same, same_sizes, uniform
from .arithmetic import (
    Array,
    converted,
    erf,
    largest,
    power,
    quiet,
    scaled,
    smallest,
)

FIELDS = "InputTensor OutputTensor"
SMALL = "INT32 INT16 INT8 UINT32 UINT16 UINT8"
ALL = "FLOAT64 FLOATS SIGNED UNSIGNED"

OF_THE_FIRST = """
    3.0 1-8 FLOATS
    1.0 4   FLOATS
"""
OF_THE_SECOND = """
    3.0 1-8 FLOATS
    2.0 4   FLOATS
"""
OF_SMALL_INTEGERS = f"""
    3.0 1-8 FLOATS {SMALL}
    2.1 4   FLOATS {SMALL}
    1.0 4   FLOATS
"""


def register(name: str, levels: str, function: Callable[[Desc, Array], Array]) -> None:
    """An operator on a tensor that gives one of the same data type and sizes.

    Args:
        name: Microsoft's, without ``DML_OPERATOR_``.
        levels: of `uniform`.
        function: of the description and the values, floats in float64.
    """

    def check(desc: Desc, tensors: Tensors) -> None:
        same(tensors, FIELDS)

    def evaluate(desc: Desc, inputs: list[Array]) -> list[Array]:
        result = quiet(function)(desc, inputs[0])
        return [converted(result, desc.OutputTensor.data_type)]

    members = {"check": check, "evaluate": evaluate, "support": uniform(FIELDS, levels)}
    operator(name)(type(name, (), members))


def of_scaled(function: Callable[[Array], Array]) -> Callable[[Desc, Array], Array]:
    """A function of what ``ScaleBias`` makes of the values."""
    return lambda desc, values: function(scaled(desc, values))


FUNCTIONS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "IDENTITY": (
        f"""
        4.1 1-8 {ALL}
        3.0 1-8 FLOATS {SMALL}
        2.1 4-5 FLOATS {SMALL}
        1.0 4-5 FLOATS
        """,
        np.positive,
    ),
    "ABS": (
        """
        4.1 1-8 FLOATS SIGNED
        3.0 1-8 FLOATS INT32 INT16 INT8
        2.1 4   FLOATS INT32 INT16 INT8
        1.0 4   FLOATS
        """,
        np.abs,
    ),
    "ACOS": (OF_THE_FIRST, np.arccos),
    "ASIN": (OF_THE_FIRST, np.arcsin),
    "ATAN": (OF_THE_FIRST, np.arctan),
    "CEIL": (OF_THE_FIRST, np.ceil),
    "COS": (OF_THE_FIRST, np.cos),
    "EXP": (OF_THE_FIRST, np.exp),
    "FLOOR": (OF_THE_FIRST, np.floor),
    "LOG": (OF_THE_FIRST, np.log),
    "RECIP": (OF_THE_FIRST, np.reciprocal),
    "SIN": (OF_THE_FIRST, np.sin),
    "SQRT": (OF_THE_FIRST, np.sqrt),
    "TAN": (OF_THE_FIRST, np.tan),
    "ACOSH": (OF_THE_SECOND, np.arccosh),
    "ASINH": (OF_THE_SECOND, np.arcsinh),
    "ATANH": (OF_THE_SECOND, np.arctanh),
    "COSH": (OF_THE_SECOND, np.cosh),
    "ERF": (OF_THE_SECOND, erf),
    "SINH": (OF_THE_SECOND, np.sinh),
    "TANH": (OF_THE_SECOND, np.tanh),
}

for name, (levels, function) in FUNCTIONS.items():
    register(f"ELEMENT_WISE_{name}", levels, of_scaled(function))


def sign(desc: Desc, values: Array) -> Array:
    """-1, 0 or 1; 0 of NaN, as in HLSL."""
    return (values > 0).astype(np.int8) - (values < 0).astype(np.int8)


def rounded(desc: Desc, values: Array) -> Array:
    """``RoundingMode``; TOWARD_INFINITY takes halves away from zero, and only these."""
    match desc.RoundingMode:
        case "HALVES_TO_NEAREST_EVEN":
            return np.rint(values)
        case "TOWARD_ZERO":
            return np.trunc(values)
    exact = values.astype(np.float64)
    whole = np.trunc(exact)
    return whole + np.where(np.abs(exact - whole) >= 0.5, np.sign(exact), 0)


register(
    "ELEMENT_WISE_SIGN",
    """
    4.1 1-8 FLOATS SIGNED UNSIGNED
    3.0 1-8 FLOATS INT32 INT16 INT8 UINT32 UINT16 UINT8
    2.1 4   FLOATS INT32 INT16 INT8 UINT32 UINT16 UINT8
    2.0 4   FLOATS
    """,
    sign,
)
register("ELEMENT_WISE_NEGATE", "5.0 1-8 FLOATS SIGNED", lambda desc, x: -x)
register("ELEMENT_WISE_ROUND", "3.0 1-8 FLOATS\n2.1 4 FLOATS", rounded)


def clamped(values: Array, low: Any, high: Any = np.inf) -> Array:
    """``min(Max, max(Min, x))``: ``Max`` where it is less than ``Min``.

    How floats bound integers is not documented; here they are converted before.
    """
    if values.dtype.kind != "f":
        limits = np.iinfo(values.dtype)
        low, high = (
            values.dtype.type(int(min(max(each, limits.min), limits.max)))
            for each in (low, high)
        )
    return smallest(largest(values, low), high)


def clip(desc: Desc, values: Array) -> Array:
    """Bounds in the description are floats."""
    return clamped(scaled(desc, values), desc.Min, desc.Max)


def threshold(desc: Desc, values: Array) -> Array:
    """A bound from below."""
    return clamped(scaled(desc, values), desc.Min)


def constant_pow(desc: Desc, values: Array) -> Array:
    """The exponent is a float of the description."""
    return power(scaled(desc, values), np.array(desc.Exponent, np.float64))


OF_CLIP = f"5.0 1-8 FLOATS SIGNED UNSIGNED\n{OF_SMALL_INTEGERS.strip()}"
register("ELEMENT_WISE_CLIP", OF_CLIP, clip)
register("ELEMENT_WISE_THRESHOLD", OF_SMALL_INTEGERS, threshold)
register("ELEMENT_WISE_CONSTANT_POW", OF_THE_FIRST, constant_pow)


@operator("ELEMENT_WISE_CLIP1")
class Clip1:
    support = uniform(FIELDS, "5.0 1-8 FLOATS SIGNED UNSIGNED")

    @staticmethod
    def check(desc: Desc, tensors: Tensors) -> None:
        same(tensors, FIELDS)
        if desc.MinMaxDataType != tensors["OutputTensor"].type_name:
            raise Rejected("MinMaxDataType must match OutputTensor's DataType")

    @staticmethod
    def evaluate(desc: Desc, inputs: list[Array]) -> list[Array]:
        data_type = desc.OutputTensor.data_type
        bounds = (scalar(each, data_type) for each in (desc.Min, desc.Max))
        return [converted(clamped(scaled(desc, inputs[0]), *bounds), data_type)]


@operator("ELEMENT_WISE_POW")
class Pow:
    # Until 3.0 the exponent must have the input's data type, whose floats alone differ.
    support = uniform(
        "InputTensor ExponentTensor OutputTensor",
        f"3.0 1-8 FLOATS {SMALL}\n1.0 4 FLOATS",
    )

    @staticmethod
    def check(desc: Desc, tensors: Tensors) -> None:
        same(tensors, FIELDS)
        same_sizes(tensors, "InputTensor ExponentTensor")

    @staticmethod
    def evaluate(desc: Desc, inputs: list[Array]) -> list[Array]:
        result = power(scaled(desc, inputs[0]), inputs[1])
        return [converted(result, desc.OutputTensor.data_type)]


@operator("CAST")
class Cast:
    support = uniform(
        FIELDS,
        f"""
        4.1 1-8 {ALL}
        3.1 1-8 FLOATS SIGNED UNSIGNED
        3.0 4   FLOATS SIGNED UNSIGNED
        1.0 4   FLOATS INT16 INT8 UINT16 UINT8
        """,
    )

    @staticmethod
    def check(desc: Desc, tensors: Tensors) -> None:
        same_sizes(tensors, FIELDS)

    @staticmethod
    def evaluate(desc: Desc, inputs: list[Array]) -> list[Array]:
        return [converted(inputs[0], desc.OutputTensor.data_type)]
