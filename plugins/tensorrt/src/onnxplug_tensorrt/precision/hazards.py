"""Follows what the range of an element type may not hold, from constants onwards.

float16 ends at 65504, and below 6e-5 loses digits.  Models are written for float32:
they mask scores by -1e9 or by the lowest float32 (which bfloat16 rounds to -inf), add
1e-12 before they divide, and divide by numbers of elements.  Which activations leave
the range is not known before a model runs; of these constants it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

import numpy as np

from onnxplug.authoring.record import Record
from onnxplug_tensorrt.precision.elements import Element


class Hazard(StrEnum):
    """How a value may lie outside the range of an element type."""

    LARGE = "beyond the range"
    MASK = "negative, beyond the range"
    COUNT = "a number of elements"
    TINY = "too small"
    INVERSE = "divided by what may be too small"
    CHOSEN = "cast to float32 by the model, which computes in 16 bits before"


class Fact(Record):
    """What is known of a float32 value.

    Attributes:
        activation: it depends on what is computed in float32 from the model's inputs
            or looked up in weights; other values follow from sizes, integers and
            constants, are small, and are often positions or masks.
        unit: it is within 0 and 1 where the model's masks of integers are.
        hazards: how it may lie outside the range.
    """

    activation: bool
    unit: bool = False
    hazards: frozenset[Hazard] = frozenset()


ORDINARY: Final = Fact(activation=True)
"""A value of which nothing is known but that it is computed."""

MOVES: Final = frozenset(
    {
        "CenterCropPad",
        "Compress",
        "Concat",
        "DepthToSpace",
        "Expand",
        "Flatten",
        "Gather",
        "GatherElements",
        "GatherND",
        "Identity",
        "Pad",
        "Reshape",
        "ReverseSequence",
        "Slice",
        "SpaceToDepth",
        "Split",
        "Squeeze",
        "Tile",
        "Transpose",
        "Trilu",
        "Unsqueeze",
    }
)
"""Operators that compute nothing: their results' elements are their inputs'."""

LOOKUPS: Final = frozenset({"Gather", "GatherElements", "GatherND"})
"""Those whose results are activations where they read weights."""

INTEGER_PRODUCTS: Final = frozenset({"ConvInteger", "MatMulInteger"})
"""Operators whose results, of int32, are activations."""

PRODUCTS: Final = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
"""Operators that sum products of floats."""

_CARRIERS: Final = MOVES | {
    "Abs",
    "Add",
    "AveragePool",
    "Ceil",
    "Clip",
    "Floor",
    "GlobalAveragePool",
    "GlobalMaxPool",
    "LeakyRelu",
    "Max",
    "MaxPool",
    "Mean",
    "Min",
    "Mul",
    "Neg",
    "OneHot",
    "PRelu",
    "ReduceMax",
    "ReduceMean",
    "ReduceMin",
    "ReduceSum",
    "Relu",
    "Resize",
    "Round",
    "ScatterElements",
    "ScatterND",
    "Sub",
    "Sum",
    "TopK",
    "Where",
}
"""Operators whose results may be as large, or as small, as what they read."""

_HALVES: Final = frozenset({"bfloat16", "float16"})
_UNIT: Final = MOVES | {"Max", "Min", "Mul", "Where"}
_INTEGERS: Final = frozenset(
    {"int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"}
)


def constant_fact(array: np.ndarray[Any, Any], element: Element) -> Fact:
    """What *element* makes of a constant of float32.

    Only of one number, once or repeated, is it said that it is too small: among many,
    those that are add little to a sum.
    """
    if not array.size:
        return Fact(activation=False)
    highest, lowest = float(array.max()), float(array.min())
    if not np.isfinite([highest, lowest]).all():
        # which the element type has as well
        finite = array[np.isfinite(array)]
        if not finite.size:
            return Fact(activation=False)
        highest, lowest = float(finite.max()), float(finite.min())
    hazards = set()
    if highest > element.largest:
        hazards.add(Hazard.LARGE)
    if lowest < -element.largest:
        hazards.add(Hazard.MASK if highest <= 1 else Hazard.LARGE)
    if lowest == highest and 0 < abs(highest) < element.smallest / 4:
        hazards.add(Hazard.TINY)
    unit = lowest >= 0 and highest <= 1
    return Fact(activation=False, unit=unit, hazards=frozenset(hazards))


def cast_fact(
    source: str | None, element: Element, *, summed: bool, computed: bool
) -> Fact:
    """What is known of a float32 value that was cast from the element type *source*.

    Args:
        source: ``None`` if it is not known.
        element: the type to become.
        summed: the source is what integers were multiplied and summed to.
        computed: the source is no input of the model's, and no constant.
    """
    if computed and source in _HALVES:
        return Fact(activation=True, hazards=frozenset({Hazard.CHOSEN}))
    if source == "bool":
        return Fact(activation=False, unit=True)
    if source in _INTEGERS:
        counts = () if element.holds_counts else (Hazard.COUNT,)
        return Fact(summed, unit=not summed, hazards=frozenset(counts))
    return ORDINARY


def result_fact(operator: str, inputs: Sequence[Fact], *, activation: bool) -> Fact:
    """What follows for a float32 result of *operator* from its float32 inputs."""
    found = [fact.hazards for fact in inputs]
    unit = bool(inputs) and (
        (operator in _UNIT and all(fact.unit for fact in inputs))
        or (
            operator == "Sub" and len(inputs) == 2 and all(fact.unit for fact in inputs)
        )
    )
    hazards: set[Hazard] = set()
    if operator == "Div" and len(inputs) == 2:
        hazards = set(found[0] - {Hazard.TINY})
        if Hazard.TINY in found[1] and not inputs[1].activation:
            hazards.add(Hazard.LARGE if activation else Hazard.INVERSE)
    elif operator == "Reciprocal":
        hazards = {Hazard.INVERSE} if Hazard.TINY in found[0] else set()
    elif operator == "Sqrt":
        hazards = set(found[0] & {Hazard.TINY, Hazard.LARGE})
    elif operator in PRODUCTS:
        if any(each & {Hazard.LARGE, Hazard.MASK} for each in found):
            hazards = {Hazard.LARGE}
    elif operator in _CARRIERS:
        hazards = set().union(*found) if found else set()
        hazards = _joined(operator, hazards, inputs, activation=activation)
    if any(Hazard.CHOSEN in each for each in found):
        hazards = hazards | {Hazard.CHOSEN}
    return Fact(activation=activation, unit=unit, hazards=frozenset(hazards))


def _joined(
    operator: str, hazards: set[Hazard], inputs: Sequence[Fact], *, activation: bool
) -> set[Hazard]:
    """What of *hazards* is left where several values come together."""
    if operator == "Mul" and Hazard.MASK in hazards:
        others = [fact for fact in inputs if Hazard.MASK not in fact.hazards]
        if len(others) != 1 or not others[0].unit:
            hazards = (hazards - {Hazard.MASK}) | {Hazard.LARGE}
        else:
            hazards = hazards - {Hazard.COUNT}
    if operator in ("Neg", "Sub", "Abs") and Hazard.MASK in hazards:
        first = inputs[0].hazards
        if operator != "Sub" or Hazard.MASK not in first:
            hazards = (hazards - {Hazard.MASK}) | {Hazard.LARGE}
    if activation and operator == "Mul":
        hazards = hazards - {Hazard.INVERSE}
        if any(Hazard.COUNT in fact.hazards and fact.activation for fact in inputs):
            # the scale of a sum of integers
            hazards = hazards - {Hazard.COUNT}
    if activation and operator in ("Add", "Mul", "Sub", "Sum"):
        # what is small beside a computed value is lost in float32, too, unless it was
        # a constant, which is there so that the value is not 0
        small = any(
            Hazard.TINY in fact.hazards and not fact.activation for fact in inputs
        )
        hazards = hazards if small else hazards - {Hazard.TINY}
    return hazards


def described(hazards: frozenset[Hazard], element: Element) -> str:
    """Why a node that meets *hazards* stays float32."""
    return _WORDS[min(hazards, key=list(Hazard).index)].format(element.dtype)


_WORDS: Final[Mapping[Hazard, str]] = {
    Hazard.LARGE: "it reads numbers beyond the range of {}",
    Hazard.MASK: "it reads numbers beyond the range of {}, and not only a softmax "
    "reads its result",
    Hazard.COUNT: "it reads numbers of elements, which may be beyond the range of {}",
    Hazard.TINY: "it reads a constant that {} rounds to too few digits",
    Hazard.INVERSE: "it reads the inverse of numbers that {} rounds to too few digits",
    Hazard.CHOSEN: "a model of 16 bits casts what it reads to float32",
}
