"""Limits of numbers beyond which DirectML does not say what it does."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxplug import ep
from onnxplug_directml.lowering.builder import Builder, Refused, Value


def held(build: Builder, numbers: Value, least: Any, end: Any, wrong: str) -> Value:
    """*numbers* of which none is less than *least*, and all are less than *end*.

    Where they are computed, runs see to that: there DirectML is given *least* in place
    of others, and the run fails.

    Args:
        least: a number, or an array that broadcasts, as *end*.
        wrong: what is wrong with others.

    Raises:
        Refused: of known ones.
    """
    known = build.content(numbers)
    if known is not None:
        if not ((known >= least) & (known < end)).all():
            raise Refused(ep.RefusalCode.OTHER, wrong)
        return numbers
    lowest, limit = (
        build.constant(np.asarray(each).astype(numbers.dtype.numpy))
        for each in (least, end)
    )
    above, below = (
        build.binary(f"ELEMENT_WISE_LOGICAL_{than}", numbers, each, ep.DataType.BOOL)
        for than, each in (("GREATER_THAN_OR_EQUAL", lowest), ("LESS_THAN", limit))
    )
    right = build.binary("ELEMENT_WISE_LOGICAL_AND", above, below)
    flags = build.unary("ELEMENT_WISE_LOGICAL_NOT", right)
    build.require(build.cast(flags, ep.DataType.UINT32), wrong)
    return build.select(right, numbers, lowest)
