"""Operators that copy elements to other places: slices, joins, padding, tiles."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import Desc, operator, scalar
from .agreement import Tensors, same, sized
from .arithmetic import converted
from .constraints import (
    ANY,
    UP_TO_32,
    all_alike,
    along,
    axis_within,
    count_is,
    each,
    require,
    value_type_is,
)


def window(starts: list[int], strides: list[int], sizes: tuple[int, ...]) -> Any:
    """An index of numpy's: ``sizes`` elements from ``starts`` on, by ``strides``."""
    return np.ix_(
        *(
            start + stride * np.arange(size)
            for start, stride, size in zip(starts, strides, sizes, strict=True)
        )
    )


@operator("SLICE")
class Slice:
    support = f"""
        4.1  InputTensor   input   1-8  {ANY}
             OutputTensor  output  1-8  {ANY}
        3.0  InputTensor   input   1-8  {UP_TO_32}
             OutputTensor  output  1-8  {UP_TO_32}
        2.1  InputTensor   input   4-5  {UP_TO_32}
             OutputTensor  output  4-5  {UP_TO_32}
        1.0  InputTensor   input   4-5  FLOATS INT32 INT16 UINT32 UINT16
             OutputTensor  output  4-5  FLOATS INT32 INT16 UINT32 UINT16
    """

    @staticmethod
    def check(desc: Desc, tensors: Tensors) -> None:
        same(tensors, "InputTensor OutputTensor", sizes=False)
        source = tensors["InputTensor"]
        count_is(desc, "Offsets", source)
        sized(tensors, "OutputTensor", desc.Sizes)
        for axis, size in enumerate(source.sizes):
            # a stride of 0 reads within bounds; that SLICE1 forbids it is no rule here
            last = desc.Offsets[axis] + desc.Strides[axis] * (desc.Sizes[axis] - 1)
            require(last < size, f"axis {axis} of {size} is read out of bounds: {last}")

    @staticmethod
    def evaluate(desc: Desc, inputs: list[Any]) -> list[Any]:
        return [inputs[0][window(desc.Offsets, desc.Strides, desc.Sizes)]]


@operator("SLICE1")
class Slice1:
    support = f"""
        4.1  InputTensor   input   1-8  {ANY}
             OutputTensor  output  1-8  {ANY}
        3.0  InputTensor   input   1-8  {UP_TO_32}
             OutputTensor  output  1-8  {UP_TO_32}
        2.1  InputTensor   input   4-5  {UP_TO_32}
             OutputTensor  output  4-5  {UP_TO_32}
    """

    @staticmethod
    def check(desc: Desc, tensors: Tensors) -> None:
        same(tensors, "InputTensor OutputTensor", sizes=False)
        source, target = tensors["InputTensor"], tensors["OutputTensor"]
        count_is(desc, "InputWindowOffsets", source)
        for axis, size in enumerate(source.sizes):
            offset, extent = desc.InputWindowOffsets[axis], desc.InputWindowSizes[axis]
            stride = desc.InputWindowStrides[axis]
            require(extent > 0, f"the window is empty along axis {axis}")
            require(
                offset + extent <= size,
                f"the window {offset}+{extent} is out of axis {axis} of {size}",
            )
            require(stride != 0, f"a stride of 0 along axis {axis}")
            most = 1 + (extent - 1) // abs(stride)
            require(
                1 <= target.sizes[axis] <= most,
                f"{target.sizes[axis]} elements of at most {most} along axis {axis}",
            )

    @staticmethod
    def evaluate(desc: Desc, inputs: list[Any]) -> list[Any]:
        starts = [
            offset + (extent - 1 if stride < 0 else 0)
            for offset, extent, stride in zip(
                desc.InputWindowOffsets,
                desc.InputWindowSizes,
                desc.InputWindowStrides,
                strict=True,
            )
        ]
        sizes = desc.OutputTensor.sizes
        return [inputs[0][window(starts, desc.InputWindowStrides, sizes)]]


def check_parts(desc: Desc, tensors: Tensors, whole: str, parts: str) -> None:
    """Parts along ``Axis`` make up a whole."""
    all_alike(tensors, f"{whole} {parts}")
    sizes = tensors[whole].sizes
    axis = axis_within(desc, tensors[whole])
    named = list(each(tensors, parts))
    require(bool(named), f"no {parts}")
    for name, part in named:
        require(
            along(part, axis, sizes[axis]) == sizes,
            f"{name} has Sizes {part.sizes}, {whole} {sizes}",
        )
    total = sum(part.sizes[axis] for _, part in named)
    require(
        total == sizes[axis],
        f"{parts} have {total} elements along axis {axis}, {whole} {sizes[axis]}",
    )


@operator("SPLIT")
class Split:
    support = f"""
        4.1  InputTensor    input   1-8  {ANY}
             OutputTensors  output  1-8  {ANY}
        3.0  InputTensor    input   1-8  {UP_TO_32}
             OutputTensors  output  1-8  {UP_TO_32}
        2.1  InputTensor    input   4    {UP_TO_32}
             OutputTensors  output  4    {UP_TO_32}
        1.0  InputTensor    input   4    FLOATS INT32 INT16 UINT32 UINT16
             OutputTensors  output  4    FLOATS INT32 INT16 UINT32 UINT16
    """

    @staticmethod
    def check(desc: Desc, tensors: Tensors) -> None:
        check_parts(desc, tensors, whole="InputTensor", parts="OutputTensors")

    @staticmethod
    def evaluate(desc: Desc, inputs: list[Any]) -> list[Any]:
        ends = np.cumsum([part.sizes[desc.Axis] for part in desc.OutputTensors])
        return list(np.split(inputs[0], ends[:-1], desc.Axis))


@operator("JOIN")
class Join:
    """Of feature level 3.1 the history says 8 dimensions, the page 4 to 5 until 4.1.

    The stricter holds here.
    """

    support = f"""
        4.1  InputTensors  input   1-8  {ANY}
             OutputTensor  output  1-8  {ANY}
        3.0  InputTensors  input   4-5  {UP_TO_32}
             OutputTensor  output  4-5  {UP_TO_32}
        2.1  InputTensors  input   4    {UP_TO_32}
             OutputTensor  output  4    {UP_TO_32}
        1.0  InputTensors  input   4    FLOATS INT32 INT16 UINT32 UINT16
             OutputTensor  output  4    FLOATS INT32 INT16 UINT32 UINT16
    """

    @staticmethod
    def check(desc: Desc, tensors: Tensors) -> None:
        check_parts(desc, tensors, whole="OutputTensor", parts="InputTensors")

    @staticmethod
    def evaluate(desc: Desc, inputs: list[Any]) -> list[Any]:
        return [np.concatenate(inputs, desc.Axis)]


PADDING_MODES: dict[str, Any] = {
    "CONSTANT": "constant",
    "EDGE": "edge",
    "REFLECTION": "reflect",
    "SYMMETRIC": "symmetric",
    "WRAP": "wrap",
}
"""numpy's names; both repeat periodically what is longer than the tensor."""

LATER_MODES = {"SYMMETRIC": (3, 0), "WRAP": (6, 4)}
"""The feature levels of modes that are not of the first."""


def check_padding(desc: Desc, tensors: Tensors) -> None:
    """What both operators of padding demand."""
    same(tensors, "InputTensor OutputTensor", sizes=False)
    source = tensors["InputTensor"]
    count_is(desc, "StartPadding", source)
    padded = zip(desc.StartPadding, source.sizes, desc.EndPadding, strict=True)
    sized(tensors, "OutputTensor", [sum(sizes) for sizes in padded])


def check_mode(desc: Desc, tensors: Tensors, level: tuple[int, int]) -> None:
    """The mode of padding is one that a feature level has."""
    since = LATER_MODES.get(desc.PaddingMode, (1, 0))
    require(level >= since, f"{desc.PaddingMode} is of feature level {since}")


def padded(desc: Desc, values: Any, constant: Any) -> Any:
    """``values`` with the padding of a desc around them."""
    widths = list(zip(desc.StartPadding, desc.EndPadding, strict=True))
    if desc.PaddingMode == "CONSTANT":
        return np.pad(values, widths, constant_values=constant)
    return np.pad(values, widths, mode=PADDING_MODES[desc.PaddingMode])


@operator("PADDING")
class Padding:
    support = f"""
        5.0  InputTensor   input   1-8  {ANY}
             OutputTensor  output  1-8  {ANY}
        3.1  InputTensor   input   1-8  {UP_TO_32}
             OutputTensor  output  1-8  {UP_TO_32}
        2.1  InputTensor   input   4-5  {UP_TO_32}
             OutputTensor  output  4-5  {UP_TO_32}
        1.0  InputTensor   input   4-5  FLOATS
             OutputTensor  output  4-5  FLOATS
    """

    check = staticmethod(check_padding)
    check_level = staticmethod(check_mode)

    @staticmethod
    def evaluate(desc: Desc, inputs: list[Any]) -> list[Any]:
        (values,) = inputs
        constant = converted(np.array(desc.PaddingValue), values.dtype)
        return [padded(desc, values, constant)]


@operator("PADDING1")
class Padding1:
    support = f"""
        5.0  InputTensor   input   1-8  {ANY}
             OutputTensor  output  1-8  {ANY}
    """

    @staticmethod
    def check(desc: Desc, tensors: Tensors) -> None:
        check_padding(desc, tensors)
        value_type_is(desc, "PaddingValueDataType", tensors["OutputTensor"])

    check_level = staticmethod(check_mode)

    @staticmethod
    def evaluate(desc: Desc, inputs: list[Any]) -> list[Any]:
        (values,) = inputs
        return [padded(desc, values, scalar(desc.PaddingValue, values.dtype))]


@operator("TILE")
class Tile:
    support = f"""
        4.1  InputTensor   input   1-8  FLOATS SIGNED UNSIGNED
             OutputTensor  output  1-8  FLOATS SIGNED UNSIGNED
        3.1  InputTensor   input   1-8  {UP_TO_32}
             OutputTensor  output  1-8  {UP_TO_32}
        2.1  InputTensor   input   4    {UP_TO_32}
             OutputTensor  output  4    {UP_TO_32}
        1.0  InputTensor   input   4    FLOATS
             OutputTensor  output  4    FLOATS
    """

    @staticmethod
    def check(desc: Desc, tensors: Tensors) -> None:
        same(tensors, "InputTensor OutputTensor", sizes=False)
        source = tensors["InputTensor"]
        count_is(desc, "Repeats", source)
        require(min(desc.Repeats) > 0, f"Repeats of {desc.Repeats}")
        tiled = zip(source.sizes, desc.Repeats, strict=True)
        sized(tensors, "OutputTensor", [size * times for size, times in tiled])

    @staticmethod
    def evaluate(desc: Desc, inputs: list[Any]) -> list[Any]:
        return [np.tile(inputs[0], desc.Repeats)]


@operator("REVERSE_SUBSEQUENCES")
class ReverseSubsequences:
    support = f"""
        4.0  InputTensor            input   1-8  {UP_TO_32}
             SequenceLengthsTensor  input   1-8  UINT32
             OutputTensor           output  1-8  {UP_TO_32}
        3.0  InputTensor            input   4-5  {UP_TO_32}
             SequenceLengthsTensor  input   4-5  UINT32
             OutputTensor           output  4-5  {UP_TO_32}
        2.1  InputTensor            input   4    {UP_TO_32}
             SequenceLengthsTensor  input   4    UINT32
             OutputTensor           output  4    {UP_TO_32}
    """

    @staticmethod
    def check(desc: Desc, tensors: Tensors) -> None:
        same(tensors, "InputTensor OutputTensor")
        source = tensors["InputTensor"]
        axis = axis_within(desc, source)
        sized(tensors, "SequenceLengthsTensor", along(source, axis, 1))

    @staticmethod
    def evaluate(desc: Desc, inputs: list[Any]) -> list[Any]:
        values, lengths = inputs
        size = values.shape[desc.Axis]
        lengths = np.minimum(lengths, size).astype(np.int64)
        places = np.arange(size).reshape(
            [-1 if axis == desc.Axis else 1 for axis in range(values.ndim)]
        )
        sources = np.where(places < lengths, lengths - 1 - places, places)
        return [np.take_along_axis(values, sources, desc.Axis)]
