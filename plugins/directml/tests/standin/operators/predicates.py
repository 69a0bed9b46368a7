"""``ELEMENT_WISE_*`` that ask something of each element, or of its bits."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from . import Desc, operator
from .agreement import Tensors, same_data_type, same_sizes, uniform
from .arithmetic import Array
from .binary import EVERY, OF_LOGIC, bits

FIELDS = "InputTensor OutputTensor"


def register(
    name: str,
    levels: str,
    function: Callable[[Desc, Array], Array],
    *,
    same_types: bool = False,
) -> None:
    """An operator on a tensor that gives integers of the same sizes.

    Args:
        name: Microsoft's, without ``DML_OPERATOR_ELEMENT_WISE_``.
        levels: of `uniform`.
        function: of the description and the values.
        same_types: whether the output has the input's data type.
    """

    def check(desc: Desc, tensors: Tensors) -> None:
        same_sizes(tensors, FIELDS)
        if same_types:
            same_data_type(tensors, FIELDS)

    def evaluate(desc: Desc, inputs: list[Array]) -> list[Array]:
        return [function(desc, inputs[0]).astype(desc.OutputTensor.data_type)]

    members = {"check": check, "evaluate": evaluate, "support": uniform(FIELDS, levels)}
    operator(f"ELEMENT_WISE_{name}")(type(name, (), members))


def is_infinity(desc: Desc, values: Array) -> Array:
    """Of the sign that ``InfinityMode`` asks for."""
    match desc.InfinityMode:
        case "POSITIVE":
            return np.isposinf(values)
        case "NEGATIVE":
            return np.isneginf(values)
    return np.isinf(values)


def inverted(desc: Desc, values: Array) -> Array:
    """All bits of the native encoding."""
    return np.invert(bits(values)).view(values.dtype)


register(
    "IS_NAN",
    """
    3.0 1-8 FLOATS > UINT32 UINT8
    2.0 4   FLOATS > UINT32 UINT8
    """,
    lambda desc, values: np.isnan(values),
)
register(
    "IS_INFINITY",
    """
    3.0 1-8 FLOATS > UINT8
    2.1 4   FLOATS > UINT8
    """,
    is_infinity,
)
register(
    "LOGICAL_NOT",
    OF_LOGIC,
    lambda desc, values: values == 0,
    same_types=True,
)
register(
    "BIT_NOT",
    f"4.1 1-8 {EVERY}\n3.0 1-8 UINT32 UINT16 UINT8",
    inverted,
    same_types=True,
)
register(
    "BIT_COUNT",
    f"""
    4.1 1-8 {EVERY} > UINT32 UINT8
    3.0 1-8 UINT32 UINT16 UINT8 > UINT32 UINT8
    """,
    lambda desc, values: np.bitwise_count(bits(values)),
)
