"""Borders around tensors, and repeats of tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from onnxplug import ep
from onnxplug_directml.abi.directml import DML_PADDING_MODE
from onnxplug_directml.lowering.builder import Builder, Refused, Result, Value
from onnxplug_directml.lowering.call import Call, front, lowers
from onnxplug_directml.lowering.operators.gathering import refuse_long, taken
from onnxplug_directml.lowering.operators.pieces import cut

_MODES: Final = {
    "constant": DML_PADDING_MODE.CONSTANT,
    "edge": DML_PADDING_MODE.EDGE,
    "reflect": DML_PADDING_MODE.REFLECTION,
}


@lowers("Pad")
def _pad(call: Call) -> Value:
    build, x = call.build, call.operand(0)
    if call.since < 11:
        name = "paddings" if call.since < 2 else "pads"
        amounts = call.attribute(name)
        filler = call.attribute("value", 0.0)
        axes = list(range(x.rank))
    else:
        amounts = call.integers(1)
        filler = 0
        if call.has(2):
            call.require_type(2, x.dtype)
            filler = call.content(2).reshape(()).item()
        chosen = call.integers(3) if call.has(3) else range(x.rank)
        axes = [front(axis, x.rank) for axis in chosen]
    if amounts is None or len(amounts) != 2 * len(axes):
        raise Refused(ep.RefusalCode.OTHER, f"pads {amounts} of {len(axes)} axes")
    if len(set(axes)) != len(axes):
        raise Refused(ep.RefusalCode.OTHER, f"axes {axes}; takes each once")
    before, after = [0] * x.rank, [0] * x.rank
    for i, axis in enumerate(axes):
        before[axis], after[axis] = amounts[i], amounts[i + len(axes)]
    mode = call.attribute("mode", "constant")
    x = _cropped(build, x, before, after)
    before, after = ([max(0, each) for each in ends] for ends in (before, after))
    if not any(before) and not any(after):
        return x
    if mode == "wrap":
        return _wrapped(build, x, before, after)
    if mode not in _MODES:
        raise call.refuse_attribute("mode", ", ".join((*_MODES, "wrap")))
    if mode == "reflect":
        _refuse_single(x, before, after)
    return padded(build, x, before, after, filler, _MODES[mode])


def _cropped(
    build: Builder, x: Value, before: Sequence[int], after: Sequence[int]
) -> Value:
    """*x* less the elements that negative amounts remove, which goes first."""
    cuts = [
        slice(max(0, -b), size - max(0, -a))
        for b, a, size in zip(before, after, x.shape, strict=True)
    ]
    if any(each.stop <= each.start for each in cuts):
        raise Refused(
            ep.RefusalCode.OTHER, f"a border that removes all elements of {x.shape}"
        )
    return cut(build, x, cuts)


def _refuse_single(x: Value, before: Sequence[int], after: Sequence[int]) -> None:
    for axis, size in enumerate(x.shape):
        if size == 1 and (before[axis] or after[axis]):
            raise Refused(
                ep.RefusalCode.OTHER,
                f"axis {axis} has one element; takes two or more in mode reflect",
            )


def _wrapped(
    build: Builder, x: Value, before: Sequence[int], after: Sequence[int]
) -> Value:
    """*x* gone through periodically, which DirectML has no mode for."""
    for axis, (b, a) in enumerate(zip(before, after, strict=True)):
        if b or a:
            size = x.shape[axis]
            refuse_long(b + size + a)
            x = taken(build, x, axis, np.arange(-b, size + a) % size)
    return x


def padded(
    build: Builder,
    x: Value,
    before: Sequence[int],
    after: Sequence[int],
    filler: float = 0,
    mode: DML_PADDING_MODE = DML_PADDING_MODE.CONSTANT,
) -> Value:
    """*x* with elements added at both ends of each dimension.

    Args:
        filler: what is added in mode CONSTANT.
    """
    shape = tuple(
        b + size + a for b, size, a in zip(before, x.shape, after, strict=True)
    )
    return build(
        "PADDING1", InputTensor=x, OutputTensor=Result(x.dtype, shape),
        PaddingMode=mode, PaddingValueDataType=build.data_type(x.dtype),
        PaddingValue=filler, StartPadding=tuple(before), EndPadding=tuple(after),
    )  # fmt: skip


@lowers("CenterCropPad")
def _center_crop_pad(call: Call) -> Value:
    """Of an odd number the smaller half goes at the start, be it cut off or added."""
    build, x = call.build, call.operand(0)
    call.ignore("axes")
    missing = [
        wanted - size for wanted, size in zip(call.output_shape(), x.shape, strict=True)
    ]
    before = [each // 2 if each > 0 else -(-each // 2) for each in missing]
    after = [whole - part for whole, part in zip(missing, before, strict=True)]
    x = _cropped(build, x, before, after)
    before, after = ([max(0, each) for each in ends] for ends in (before, after))
    return padded(build, x, before, after) if any(after) else x


@lowers("Tile")
def _tile(call: Call) -> Value:
    if call.since < 6:
        raise Refused(ep.RefusalCode.OPSET, "Tile before version 6")
    x, repeats = call.operand(0), tuple(call.integers(1))
    if all(times == 1 for times in repeats):
        return x
    return call.build(
        "TILE", InputTensor=x, OutputTensor=call.result(), Repeats=repeats
    )
