"""Rules of operators that choose elements, or put elements in place of others.

Whatever a choice picks is found by making the same choice among the positions of the
elements; the gradient is then put back at these positions.  This needs no rank.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from onnxplug_training.derivatives.emit import Rule, Step


def _put_back(step: Step, *, repeated: bool) -> Mapping[int, str]:
    """Gradient of the first input, by the node's own choice among positions.

    Args:
        repeated: the node may pick an element more than once.
    """
    e, node, x = step.emit, step.node, step.x()
    count = e("Size", x)
    first, one = (e.add_constant(np.array(n, np.int64)) for n in (0, 1))
    numbered = e.reshape(e("Range", first, count, one), e("Shape", x))
    picked = e(
        node.op_type, numbered, *node.inputs[1:], attributes=dict(node.attributes)
    )
    indices, updates = e.flat(picked), e.flat(step.g)
    flat = e.filled_as(0, e.flat(count), x)
    if repeated:
        put = e.scatter_add("ScatterElements", flat, indices, updates)
    else:
        put = e("ScatterElements", flat, indices, updates)
    return {0: e.reshape(put, e("Shape", x))}


def _gather(step: Step) -> Mapping[int, str]:
    e, x, indices = step.emit, step.x(), step.x(1)
    if step.attribute("axis", 0) == 0:  # rows, as of an embedding, are put back whole
        rows = e.unsqueeze(indices, [-1])
        if e.dtype(indices).bits < 64:
            rows = e("Cast", rows, attributes={"to": _INT64})
        return {0: e.scatter_add("ScatterND", e.filled(0, x), rows, step.g)}
    return _put_back(step, repeated=True)


def _gather_elements(step: Step) -> Mapping[int, str]:
    e, at = step.emit, {"axis": step.attribute("axis", 0)}
    nothing = e.filled(0, step.x())
    return {0: e.scatter_add("ScatterElements", nothing, step.x(1), step.g, at)}


def _gather_nd(step: Step) -> Mapping[int, str]:
    e = step.emit
    if step.attribute("batch_dims", 0):
        return _put_back(step, repeated=True)
    nothing = e.filled(0, step.x())
    return {0: e.scatter_add("ScatterND", nothing, step.x(1), step.g)}


def _slice(step: Step) -> Mapping[int, str]:
    pads = _as_pads(step)
    if pads is None:
        return _put_back(step, repeated=False)
    e = step.emit
    return {0: e("Pad", step.g, e.ints(*pads), e.scalar(0, step.x()))}


def _as_pads(step: Step) -> list[int] | None:
    """What a Slice without steps cuts off at each end, if that is known."""
    e = step.emit
    shape = e.shape(step.x())
    given = [
        None if name is None else e.constant(name)
        for name in map(step.optional, range(1, 5))
    ]
    starts, ends, axes, steps = (None if a is None else a.tolist() for a in given)
    if shape is None or starts is None or ends is None:
        return None
    if (axes is None) is not (step.optional(3) is None):
        return None
    if step.optional(4) is not None and steps != [1] * len(starts):
        return None
    pads = [0] * (2 * len(shape))
    for axis, start, end in zip(axes or range(len(starts)), starts, ends, strict=True):
        size = shape[axis]
        if not isinstance(size, int):
            return None
        first, last, _ = slice(start, end).indices(size)
        axis %= len(shape)
        pads[axis] = first
        # an empty slice may end before it begins, and all must add up to the size
        pads[axis + len(shape)] = size - max(first, last)
    return pads


def _scatter_elements(step: Step) -> Mapping[int, str]:
    return _scatter(step, "GatherElements", {"axis": step.attribute("axis", 0)})


def _scatter_nd(step: Step) -> Mapping[int, str]:
    return _scatter(step, "GatherND", {})


def _scatter(step: Step, gather: str, at: Mapping[str, int]) -> Mapping[int, str]:
    """What was put in place of elements gets their gradients instead of them."""
    e, indices, updates, g = step.emit, step.x(1), step.x(2), step.g
    reduction = step.attribute("reduction", "none")
    if reduction not in ("none", "add"):
        step.refuse(f"reduction {reduction!r} is not differentiable")
    made: dict[int, str] = {}
    if 0 in step.wanted:
        made[0] = g
        if reduction == "none":
            nothing = e.filled(0, updates)
            made[0] = e(step.node.op_type, g, indices, nothing, attributes=at)
    if 2 in step.wanted:
        made[2] = e(gather, g, indices, attributes=at)
    return made


_INT64: Final = 7  # TensorProto.DataType

PICK: Final[Mapping[str, Rule]] = {
    "Gather": Rule(1, _gather),
    "GatherElements": Rule(11, _gather_elements),
    "GatherND": Rule(11, _gather_nd),
    "ScatterElements": Rule(11, _scatter_elements),
    "ScatterND": Rule(11, _scatter_nd),
    "Slice": Rule(10, _slice),
}
