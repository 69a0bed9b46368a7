"""Windows that slide over the last dimensions of a tensor: convolutions and pools."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from onnxplug import ep
from onnxplug_directml.lowering.builder import Builder, Refused, Value
from onnxplug_directml.lowering.call import Call

_MOST: Final = 3
"""Spatial dimensions that DirectML takes; it takes two at least."""


@dataclass(frozen=True, slots=True)
class Windows:
    """Where windows are, by spatial dimension.

    Attributes:
        sizes: of the window, in elements that it looks at.
        starts, ends: elements of padding.
    """

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    starts: tuple[int, ...]
    ends: tuple[int, ...]

    @property
    def reaches(self) -> tuple[int, ...]:
        """The elements from the first to the last that a window looks at."""
        return tuple(
            (size - 1) * dilation + 1
            for size, dilation in zip(self.sizes, self.dilations, strict=True)
        )

    def lifted(self) -> Windows:
        """With one of size 1 in front, if there is one dimension only."""
        if len(self.sizes) > 1:
            return self
        return Windows(
            (1, *self.sizes), (1, *self.strides), (1, *self.dilations),
            (0, *self.starts), (0, *self.ends),
        )  # fmt: skip


def windows_of(call: Call, sizes: Sequence[int], given: Sequence[int]) -> Windows:
    """The windows of a node whose input has the spatial dimensions *given*.

    Raises:
        Refused: there are more dimensions than DirectML takes, or negative paddings.
    """
    count = len(sizes)
    found = free_windows(call, sizes)
    pads = _numbers(call, "pads", 2 * count, 0)
    match call.attribute("auto_pad", "NOTSET"):
        case "NOTSET":
            if min(pads, default=0) < 0:
                raise call.refuse_attribute("pads", "no negative numbers")
            return replace(found, starts=pads[:count], ends=pads[count:])
        case "VALID":
            return found
        case "SAME_UPPER":
            upper = True
        case "SAME_LOWER":
            upper = False
        case _:
            raise call.refuse_attribute("auto_pad", "NOTSET, VALID and SAME_*")
    totals = [
        max((-(-size // stride) - 1) * stride + reach - size, 0)
        for size, stride, reach in zip(given, found.strides, found.reaches, strict=True)
    ]
    less = tuple(total // 2 for total in totals)
    more = tuple(total - half for total, half in zip(totals, less, strict=True))
    starts, ends = (less, more) if upper else (more, less)
    return replace(found, starts=starts, ends=ends)


def free_windows(call: Call, sizes: Sequence[int]) -> Windows:
    """The windows of a node without padding.

    Raises:
        Refused: there are more dimensions than DirectML takes, or a number is not
            positive.
    """
    count = len(sizes)
    if not 1 <= count <= _MOST:
        raise Refused(
            ep.RefusalCode.RANK, f"{count} spatial dimensions; DirectML takes 1 to 3"
        )
    if min(sizes) < 1:
        raise call.refuse_attribute("kernel_shape", "positive numbers")
    strides, dilations = (
        _numbers(call, name, count, 1) for name in ("strides", "dilations")
    )
    if min(strides) < 1:
        raise call.refuse_attribute("strides", "positive numbers")
    if min(dilations) < 1:
        raise call.refuse_attribute("dilations", "positive numbers")
    return Windows(tuple(sizes), strides, dilations, (0,) * count, (0,) * count)


def _numbers(call: Call, name: str, count: int, default: int) -> tuple[int, ...]:
    found = call.attribute(name)
    if found is None:
        return (default,) * count
    if len(found) != count:
        raise call.refuse_attribute(name, f"{count} numbers")
    return tuple(int(each) for each in found)


def lifted(build: Builder, x: Value) -> Value:
    """*x* with a spatial dimension of size 1 in front, if it has one only."""
    if x.rank != 3:
        return x
    return build.reshape(x, (*x.shape[:2], 1, x.shape[2]))


def lifted_shape(shape: Sequence[int]) -> tuple[int, ...]:
    """The shape that :func:`lifted` gives."""
    return (*shape[:2], 1, shape[2]) if len(shape) == 3 else tuple(shape)
