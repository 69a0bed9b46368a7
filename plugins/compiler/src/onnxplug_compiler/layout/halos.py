"""Which values have zeros around them in memory, for convolutions that pad them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from onnxplug_compiler.frontend.call import Call
from onnxplug_compiler.ir.pieces import Halo
from onnxplug_compiler.layout.orders import CHANNELS, Order

_WIDEST: Final = 8
"""Zeros on a side, beyond which a copy with them is not much worse."""


def halo_for(readers: Sequence[Call], name: str, order: Order) -> Halo | None:
    """The zeros that the readers of a value want around it; ``None`` if it is better
    without.

    Only pads that attributes state are looked at, not those that follow from shapes.
    """
    if order[-1] != CHANNELS:
        return None
    spatial = len(order) - 2
    widest = [0] * (2 * spatial)
    for reader in readers:
        if name not in reader.inputs[:1] or not reader.traits.channels_last:
            if reader.traits.multiplies:
                return None  # as its rows would be apart
            continue
        if reader.op_type != "Conv" or reader.attributes.get("group", 1) != 1:
            continue
        pads = [int(pad) for pad in reader.attributes.get("pads") or ()]
        if len(pads) != 2 * spatial or not any(pads):
            return None  # likewise: its windows may be single elements
        if min(pads) < 0 or max(pads) > _WIDEST:
            return None
        widest = [max(pair) for pair in zip(widest, pads, strict=True)]
    if not any(widest):
        return None
    around = zip(widest[:spatial], widest[spatial:], strict=True)
    return ((0, 0), (0, 0), *around)
