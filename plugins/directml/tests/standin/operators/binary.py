"""``ELEMENT_WISE_*`` of two tensors: arithmetic, comparisons, logic and bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from . import Desc, Rejected, fused, operator
from .agreement import Tensors, same, same_data_type, same_sizes, uniform
from .arithmetic import (
    Array,
    converted,
    largest,
    quiet,
    quotient,
    real,
    remainder,
    shifted,
    smallest,
)

FIELDS = "ATensor BTensor OutputTensor"
SMALL = "INT32 INT16 INT8 UINT32 UINT16 UINT8"
ALL = "FLOATS SIGNED UNSIGNED"
EVERY = "FLOAT64 FLOATS SIGNED UNSIGNED"

Function = Callable[[Any, Any], Any]


def register(name: str, levels: str, function: Function) -> None:
    """An operator on two tensors that gives one of the same data type and sizes.

    Args:
        name: Microsoft's, without ``DML_OPERATOR_ELEMENT_WISE_``.
        levels: of `uniform`.
        function: of the values, floats in float64.
    """

    def check(desc: Desc, tensors: Tensors) -> None:
        same(tensors, FIELDS)

    def evaluate(desc: Desc, inputs: list[Array]) -> list[Array]:
        result = quiet(function)(*map(real, inputs))
        return [converted(result, desc.OutputTensor.data_type)]

    members = {"check": check, "evaluate": evaluate, "support": uniform(FIELDS, levels)}
    operator(f"ELEMENT_WISE_{name}")(type(name, (), members))


def mean(a: Array, b: Array) -> Array:
    """``(a + b) / 2``; how integers are rounded is not documented, here truncated."""
    if a.dtype.kind == "f":
        return np.asarray((a + b) / 2)
    total = a.astype(np.int64) + b.astype(np.int64)
    return quotient(total, np.full_like(total, 2))


OF_SUMS = """
    5.1 1-8 FLOATS SIGNED UNSIGNED
    4.1 1-8 FLOATS INT64 INT32 UINT64 UINT32
    3.0 1-8 FLOATS INT32 UINT32
"""
OF_EXTREMES = f"""
    5.0 1-8 {ALL}
    3.0 1-8 FLOATS {SMALL}
    2.1 4   FLOATS {SMALL}
    1.0 4   FLOATS
"""
OF_MODULI = f"""
    6.0 1-8 {ALL}
    3.0 1-8 FLOATS {SMALL}
    2.1 4   FLOATS {SMALL}
"""

ARITHMETIC: dict[str, tuple[str, Function]] = {
    "ADD": (f"{OF_SUMS}2.1 4-5 FLOATS INT32 UINT32\n1.0 4-5 FLOATS", np.add),
    "SUBTRACT": (f"{OF_SUMS}2.1 4 FLOATS INT32 UINT32\n1.0 4 FLOATS", np.subtract),
    "MULTIPLY": (f"{OF_SUMS}2.1 4-5 FLOATS INT32 UINT32\n1.0 4-5 FLOATS", np.multiply),
    "DIVIDE": (
        f"""
        6.0 1-8 {ALL}
        5.1 1-8 FLOATS {SMALL}
        3.0 1-8 FLOATS INT32 UINT32
        2.1 4   FLOATS INT32 UINT32
        1.0 4   FLOATS
        """,
        quotient,
    ),
    "MAX": (OF_EXTREMES, largest),
    "MIN": (OF_EXTREMES, smallest),
    "MEAN": (
        """
        3.0 1-8 FLOATS INT32 UINT32
        2.1 4   FLOATS INT32 UINT32
        1.0 4   FLOATS
        """,
        mean,
    ),
    "MODULUS_FLOOR": (OF_MODULI, lambda a, b: remainder(a, b, floor=True)),
    "MODULUS_TRUNCATE": (OF_MODULI, lambda a, b: remainder(a, b, floor=False)),
    "DIFFERENCE_SQUARE": ("3.1 1-8 FLOATS INT32 UINT32", lambda a, b: (a - b) ** 2),
    "ATAN_YX": ("3.1 1-8 FLOATS", np.arctan2),
}

OF_LOGIC = """
    3.0 1-8 UINT32 UINT8
    2.0 4   UINT32 UINT8
    1.0 4   UINT32
"""

LOGIC: dict[str, tuple[str, Function]] = {
    "LOGICAL_AND": (OF_LOGIC, np.logical_and),
    "LOGICAL_OR": (OF_LOGIC, np.logical_or),
    "LOGICAL_XOR": (OF_LOGIC, np.logical_xor),
}

OF_SHIFTS = """
    4.1 1-8 UNSIGNED
    3.0 1-8 UINT32 UINT16 UINT8
    2.1 4   UINT32 UINT16 UINT8
"""

SHIFTS: dict[str, tuple[str, Function]] = {
    "BIT_SHIFT_LEFT": (OF_SHIFTS, lambda a, b: shifted(a, b, left=True)),
    "BIT_SHIFT_RIGHT": (OF_SHIFTS, lambda a, b: shifted(a, b, left=False)),
}

for name, (levels, function) in (ARITHMETIC | LOGIC | SHIFTS).items():
    register(name, levels, function)


def bits(values: Array) -> Array:
    """The native encoding of values, as unsigned integers."""
    return values.view(np.dtype(f"u{values.dtype.itemsize}"))


def register_bits(name: str, function: Function) -> None:
    """A bitwise operator, which looks at a data type's width only."""

    def check(desc: Desc, tensors: Tensors) -> None:
        same(tensors, FIELDS)

    def evaluate(desc: Desc, inputs: list[Array]) -> list[Array]:
        return [function(*map(bits, inputs)).view(desc.OutputTensor.data_type)]

    support = uniform(FIELDS, f"4.1 1-8 {EVERY}\n3.0 1-8 UINT32 UINT16 UINT8")
    members = {"check": check, "evaluate": evaluate, "support": support}
    operator(f"ELEMENT_WISE_BIT_{name}")(type(name, (), members))


register_bits("AND", np.bitwise_and)
register_bits("OR", np.bitwise_or)
register_bits("XOR", np.bitwise_xor)


def register_comparison(name: str, levels: str, function: Function) -> None:
    """A comparison, which gives 1 or 0; with NaN 0."""

    def check(desc: Desc, tensors: Tensors) -> None:
        same_sizes(tensors, FIELDS)
        same_data_type(tensors, "ATensor BTensor")

    def evaluate(desc: Desc, inputs: list[Array]) -> list[Array]:
        return [function(*inputs).astype(desc.OutputTensor.data_type)]

    members = {"check": check, "evaluate": evaluate, "support": uniform(FIELDS, levels)}
    operator(f"ELEMENT_WISE_LOGICAL_{name}")(type(name, (), members))


SINCE_3_0 = f"""
    4.1 1-8 {ALL} > UINT32 UINT8
    3.0 1-8 FLOATS {SMALL} > UINT32 UINT8
"""
SINCE_1_0 = f"""{SINCE_3_0}
    2.1 4 FLOATS {SMALL} > UINT32 UINT8
    2.0 4 FLOATS > UINT32 UINT8
    1.0 4 FLOATS > UINT32
"""

register_comparison("EQUALS", SINCE_1_0, np.equal)
register_comparison("GREATER_THAN", SINCE_1_0, np.greater)
register_comparison("LESS_THAN", SINCE_1_0, np.less)
register_comparison("GREATER_THAN_OR_EQUAL", SINCE_3_0, np.greater_equal)
register_comparison("LESS_THAN_OR_EQUAL", SINCE_3_0, np.less_equal)


@operator("ELEMENT_WISE_ADD1")
class Add1:
    support = uniform(FIELDS, "3.0 1-8 FLOATS\n2.0 4-5 FLOATS")

    @staticmethod
    def check(desc: Desc, tensors: Tensors) -> None:
        same(tensors, FIELDS)
        floats = tensors["OutputTensor"].data_type.kind == "f"
        if desc.FusedActivation is not None and not floats:
            raise Rejected("FusedActivation needs an output of floats")

    @staticmethod
    @quiet
    def evaluate(desc: Desc, inputs: list[Array]) -> list[Array]:
        a, b = map(real, inputs)
        return [converted(fused(desc.FusedActivation, a + b), inputs[0].dtype)]


@operator("ELEMENT_WISE_IF")
class If:
    # The page's table for 2.0 has FLOAT16 alone.
    support = f"""
        5.0  ConditionTensor  input   1-8  UINT8
             ATensor          input   1-8  {EVERY}
             BTensor          input   1-8  {EVERY}
             OutputTensor     output  1-8  {EVERY}
        3.0  ConditionTensor  input   1-8  UINT8
             ATensor          input   1-8  FLOATS {SMALL}
             BTensor          input   1-8  FLOATS {SMALL}
             OutputTensor     output  1-8  FLOATS {SMALL}
        2.0  ConditionTensor  input   4    UINT8
             ATensor          input   4    FLOAT16
             BTensor          input   4    FLOAT16
             OutputTensor     output  4    FLOAT16
    """

    @staticmethod
    def check(desc: Desc, tensors: Tensors) -> None:
        same_sizes(tensors, f"ConditionTensor {FIELDS}")
        same_data_type(tensors, FIELDS)

    @staticmethod
    def evaluate(desc: Desc, inputs: list[Array]) -> list[Array]:
        condition, a, b = inputs
        return [np.where(condition != 0, a, b)]
