"""What engines are known to get wrong of ONNX's operators, one node each.

These are what trackers of errors of engines have again and again: numbers that are
halfway between two, ends that are out of range, axes in any order, attributes of one of
which the other depends, what an older version said otherwise.  What is right is for
those to say that compute it.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Iterator
from dataclasses import replace

from onnx import defs

from onnxplug_testing.conformance.pitfalls import (
    arithmetic,
    images,
    indexing,
    products,
    reductions,
    shaping,
)
from onnxplug_testing.conformance.pitfalls.row import OPSET, Row
from onnxplug_testing.measuring.variations import Variation, output_types

__all__ = ["load_pitfalls", "pitfalls_of"]


def pitfalls_of(operator: str, draw: random.Random) -> Iterator[Variation]:
    """Those of *operator*, in random order: with lists such as axes as constants, then
    of sizes that nobody knows before, then with lists that are fed."""
    rows = list(enumerate(load_pitfalls().get(operator, ())))
    draw.shuffle(rows)
    made = []
    for number, each in rows:
        case = _as_variation(number, each)
        made.append(case)
        yield replace(case, constants=case.lists())
    yield from (replace(each, constants=each.lists(), dynamic=True) for each in made)
    yield from (each for each in made if each.lists())


@functools.cache
def load_pitfalls() -> dict[str, list[Row]]:
    """All of them, by operator."""
    found: dict[str, list[Row]] = {}
    for family in (arithmetic, images, indexing, products, reductions, shaping):
        for each in family.rows():
            found.setdefault(each.node.op_type, []).append(each)
    return found


def _as_variation(number: int, made: Row) -> Variation:
    operator = made.node.op_type
    since = defs.get_schema(operator, made.opset, "").since_version
    return Variation(
        case=f"pitfall {number}",
        # of what an older version says, ONNX's reference knows nothing
        kind="version" if since < _newest(operator) else "pitfall",
        node=made.node,
        since=since,
        opset=made.opset,
        inputs=made.inputs,
        output_types=tuple(output_types(made.node, made.opset, made.inputs)),
    )


def _newest(operator: str) -> int:
    """The version that an operator has in the opset of most rows; 0: none."""
    if not defs.has(operator, OPSET, ""):
        return 0
    return int(defs.get_schema(operator, OPSET, "").since_version)
