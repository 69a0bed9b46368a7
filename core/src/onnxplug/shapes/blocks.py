"""Types of operators with channels in blocks, whose shapes are as if these were not.

A value with blocks of 8 or 16 channels has the shape of what it would be with channels
first, and these rounded up to a multiple of the block.
"""

from __future__ import annotations

from typing import Final

from onnxplug.authoring.bounds import at_least
from onnxplug.ep.size import Extent
from onnxplug.layout import channels_first, channels_last, permuted
from onnxplug.shapes.elementwise import Rule
from onnxplug.shapes.facts import NodeCall, Value
from onnxplug.shapes.rules import find_rule

_LARGEST: Final = 16
"""Channels of the largest block, of which all others are divisors."""


def _reorder_input(call: NodeCall) -> Value:
    dtype, shape = call.value()
    if shape is None or len(shape) != 4:
        return Value(dtype)
    if call.attribute("channels_last", 0):
        shape = permuted(shape, channels_first(4))
    channels = shape[1]
    whole = isinstance(channels, int) and channels % _LARGEST == 0
    return Value(dtype, (shape[0], channels if whole else call.fresh(), *shape[2:]))


def _reorder_output(call: NodeCall) -> Value:
    dtype, shape = call.value()
    if shape is None or len(shape) != 4:
        return Value(dtype)
    channels = at_least(1, (call.attribute("channels"),), "channels")
    shape = (shape[0], *channels, *shape[2:])
    if call.attribute("channels_last", 0):
        shape = permuted(shape, channels_last(4))
    return Value(dtype, shape)


def _upsample(call: NodeCall) -> Value:
    dtype, shape = call.value()
    if shape is None:
        return Value(dtype)
    scales = at_least(1, call.attribute("scales"), "scales", count=4)
    found: tuple[Extent, ...] = tuple(
        size * scale for size, scale in zip(shape, scales, strict=True)
    )
    return Value(dtype, found)


def _rules() -> dict[str, Rule]:
    rules: dict[str, Rule] = {
        "ReorderInput": _reorder_input,
        "ReorderOutput": _reorder_output,
        "Upsample": _upsample,
    }
    for op_type in ("AveragePool Conv GlobalAveragePool GlobalMaxPool MaxPool").split():
        rule = find_rule("", op_type)
        assert rule is not None
        rules[op_type] = rule
    return rules


RULES: Final = _rules()
