"""Rules of operators that move elements without choosing among them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from onnxplug_training.derivatives.emit import Rule, Step


def _transpose(step: Step) -> Mapping[int, str]:
    perm = step.attribute("perm")
    if perm is None:  # reversed, which undoes itself
        return {0: step.emit("Transpose", step.g)}
    inverse = tuple(int(axis) for axis in np.argsort(perm))
    return {0: step.emit("Transpose", step.g, attributes={"perm": inverse})}


def _reshape(step: Step) -> Mapping[int, str]:
    e = step.emit
    return {0: e.reshape(step.g, e("Shape", step.x()))}


def _squeeze(step: Step) -> Mapping[int, str]:
    axes = step.optional(1)
    if axes is not None:
        return {0: step.emit("Unsqueeze", step.g, axes)}
    if step.attribute("axes") is not None:
        return {0: step.emit.unsqueeze(step.g, step.attribute("axes"))}
    return _reshape(step)


def _unsqueeze(step: Step) -> Mapping[int, str]:
    axes = step.optional(1)
    if axes is not None:
        return {0: step.emit("Squeeze", step.g, axes)}
    return {0: step.emit.squeeze(step.g, step.attribute("axes", ()))}


def _expand(step: Step) -> Mapping[int, str]:
    return {0: step.sum_to(step.g, 0)}


def _concat(step: Step) -> Mapping[int, str]:
    parts = [step.x(position) for position in range(len(step.node.inputs))]
    if len(parts) == 1:
        return {0: step.g}
    pieces = step.emit.split(step.g, parts, step.attribute("axis", 0))
    return {position: pieces[position] for position in sorted(step.wanted)}


def _split(step: Step) -> Mapping[int, str]:
    e, pieces = step.emit, list[str]()
    for name, gradient in zip(step.node.outputs, step.gradients, strict=True):
        if name is None:
            step.refuse("all of its outputs need a name")
        pieces.append(gradient or e.filled(0, name))
    axis = {"axis": step.attribute("axis", 0)}
    return {0: e("Concat", *pieces, attributes=axis)}


def _pad(step: Step) -> Mapping[int, str]:
    """Padding by the opposite, which cuts off; by ``Slice`` where nothing was cut."""
    e, pads, axes = step.emit, step.x(1), step.optional(3)
    if step.attribute("mode", "constant") != "constant":
        step.refuse("only padding with a constant is differentiable")
    if 2 in step.wanted:
        step.refuse("the value padded with is not differentiable")
    known = e.constant(pads)
    if known is None or (known < 0).any():
        zero = e.scalar(0, step.x())
        return {0: e("Pad", step.g, e("Neg", pads), zero, axes)}
    starts = e.ints(*known.tolist()[: len(known) // 2])
    sizes = e("Shape", step.x())
    if axes is None:
        axes = e.ints(*range(len(known) // 2))
    else:
        sizes = e("Gather", sizes, axes)
    return {0: e("Slice", step.g, starts, e("Add", starts, sizes), axes)}


LAYOUT: Final[Mapping[str, Rule]] = {
    "Concat": Rule(4, _concat),
    "Expand": Rule(8, _expand),
    "Flatten": Rule(1, _reshape),
    "Pad": Rule(11, _pad),
    "Reshape": Rule(5, _reshape),
    "Split": Rule(2, _split),
    "Squeeze": Rule(1, _squeeze),
    "Transpose": Rule(1, _transpose),
    "Unsqueeze": Rule(1, _unsqueeze),
}
