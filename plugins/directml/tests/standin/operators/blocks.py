"""Operators that move blocks of space into channels or columns, and back."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from . import Desc, operator
from .constraints import (
    ANY,
    UP_TO_32,
    require,
    same_types,
    sizes_are,
)

Array = np.ndarray[Any, Any]


def block_order(desc: Desc) -> str:
    """``Order``; the operators without it are those with DEPTH_COLUMN_ROW."""
    return str(getattr(desc, "Order", "DEPTH_COLUMN_ROW"))


class DepthToSpace:
    @staticmethod
    def check(desc: Desc, tensors: dict[str, Any]) -> None:
        same_types(tensors, "InputTensor OutputTensor")
        size = desc.BlockSize
        require(size > 0, "BlockSize is 0")
        batch, channels, height, width = tensors["InputTensor"].sizes
        require(
            channels % (size * size) == 0,
            f"{channels} channels are not of blocks of {size} x {size}",
        )
        sizes = batch, channels // (size * size), height * size, width * size
        sizes_are(tensors, "OutputTensor", sizes)

    @staticmethod
    def evaluate(desc: Desc, inputs: list[Any]) -> list[Any]:
        (values,) = inputs
        size = desc.BlockSize
        batch, channels, height, width = values.shape
        depth = channels // (size * size)
        if block_order(desc) == "DEPTH_COLUMN_ROW":
            blocks = values.reshape(batch, size, size, depth, height, width)
            blocks = blocks.transpose(0, 3, 4, 1, 5, 2)
        else:
            blocks = values.reshape(batch, depth, size, size, height, width)
            blocks = blocks.transpose(0, 1, 4, 2, 5, 3)
        return [blocks.reshape(desc.OutputTensor.sizes)]


class SpaceToDepth:
    """The output's sizes are those of the examples.

    What the text of both pages gives for them is the other operator's.
    """

    @staticmethod
    def check(desc: Desc, tensors: dict[str, Any]) -> None:
        same_types(tensors, "InputTensor OutputTensor")
        size = desc.BlockSize
        require(size > 0, "BlockSize is 0")
        batch, channels, height, width = tensors["InputTensor"].sizes
        require(
            height % size == 0 and width % size == 0,
            f"{height} x {width} is not of blocks of {size} x {size}",
        )
        sizes = batch, channels * size * size, height // size, width // size
        sizes_are(tensors, "OutputTensor", sizes)

    @staticmethod
    def evaluate(desc: Desc, inputs: list[Any]) -> list[Any]:
        (values,) = inputs
        size = desc.BlockSize
        batch, channels, height, width = values.shape
        blocks = values.reshape(
            batch, channels, height // size, size, width // size, size
        )
        if block_order(desc) == "DEPTH_COLUMN_ROW":
            blocks = blocks.transpose(0, 3, 5, 1, 2, 4)
        else:
            blocks = blocks.transpose(0, 1, 3, 5, 2, 4)
        return [blocks.reshape(desc.OutputTensor.sizes)]


FROM_THE_START = f"""
        5.0  InputTensor   input   4  {ANY}
             OutputTensor  output  4  {ANY}
        2.1  InputTensor   input   4  {UP_TO_32}
             OutputTensor  output  4  {UP_TO_32}
        1.0  InputTensor   input   4  FLOATS
             OutputTensor  output  4  FLOATS
    """

WITH_ORDER = f"""
        5.0  InputTensor   input   4  {ANY}
             OutputTensor  output  4  {ANY}
        2.1  InputTensor   input   4  {UP_TO_32}
             OutputTensor  output  4  {UP_TO_32}
    """


@operator("DEPTH_TO_SPACE")
class DepthToSpace0(DepthToSpace):
    support = FROM_THE_START


@operator("DEPTH_TO_SPACE1")
class DepthToSpace1(DepthToSpace):
    support = WITH_ORDER


@operator("SPACE_TO_DEPTH")
class SpaceToDepth0(SpaceToDepth):
    support = FROM_THE_START


@operator("SPACE_TO_DEPTH1")
class SpaceToDepth1(SpaceToDepth):
    support = WITH_ORDER


def blocks_along(desc: Desc, space: tuple[int, ...]) -> list[int]:
    """``BlocksPerDimension``: how often the window fits into the padded space."""
    return [
        (size + start + end - dilation * (extent - 1) - 1) // stride + 1
        for size, start, end, dilation, extent, stride in zip(
            space,
            desc.StartPadding,
            desc.EndPadding,
            desc.Dilations,
            desc.WindowSizes,
            desc.Strides,
            strict=True,
        )
    ]


def check_windows(
    desc: Desc, tensors: dict[str, Any], image: str, columns: str
) -> None:
    """What both operators demand of an image (N, C, ...) and its columns.

    The pages' *must have the same DimensionCount* is broken by their own examples, of
    images with 4 dimensions and columns with 3.  Columns of more have 1 ahead here.
    """
    same_types(tensors, "InputTensor OutputTensor")
    batch, channels, *space = tensors[image].sizes
    require(
        len(space) == len(desc.WindowSizes) <= 6,
        f"windows of {len(desc.WindowSizes)} dimensions in {len(space)}, at most 6",
    )
    positive = [*desc.WindowSizes, *desc.Strides, *desc.Dilations]
    require(min(positive) > 0, f"0 among WindowSizes, Strides, Dilations: {positive}")
    blocks = blocks_along(desc, tuple(space))
    require(min(blocks) > 0, f"windows larger than {tuple(space)} with its padding")
    rows = channels * math.prod(desc.WindowSizes)
    sizes_are(tensors, columns, (batch, rows, math.prod(blocks)), ones=True)


def views(desc: Desc, image: Array) -> list[Array]:
    """For each place in the window, what it sees of an image that is padded already."""
    space = image.shape[2:]
    blocks = [
        (size - dilation * (extent - 1) - 1) // stride + 1
        for size, dilation, extent, stride in zip(
            space, desc.Dilations, desc.WindowSizes, desc.Strides, strict=True
        )
    ]
    seen = []
    for place in itertools.product(*map(range, desc.WindowSizes)):
        index = tuple(
            slice(at * dilation, at * dilation + stride * (count - 1) + 1, stride)
            for at, dilation, stride, count in zip(
                place, desc.Dilations, desc.Strides, blocks, strict=True
            )
        )
        seen.append(image[(slice(None), slice(None), *index)])
    return seen


def widths(desc: Desc) -> list[tuple[int, int]]:
    """Padding by dimension of an image, as numpy has it."""
    return [(0, 0), (0, 0), *zip(desc.StartPadding, desc.EndPadding, strict=True)]


@operator("UNFOLD")
class Unfold:
    """The page leaves the data types empty; its examples are FLOAT32."""

    support = """
        6.4  InputTensor   input   3-8  FLOATS
             OutputTensor  output  3-8  FLOATS
    """

    @staticmethod
    def check(desc: Desc, tensors: dict[str, Any]) -> None:
        check_windows(desc, tensors, image="InputTensor", columns="OutputTensor")

    @staticmethod
    def evaluate(desc: Desc, inputs: list[Any]) -> list[Any]:
        seen = views(desc, np.pad(inputs[0], widths(desc)))
        batch, channels = inputs[0].shape[:2]
        columns = np.stack(seen, axis=2).reshape(batch, channels * len(seen), -1)
        return [columns.reshape(desc.OutputTensor.sizes)]


@operator("FOLD")
class Fold:
    """The page leaves the data types empty; its examples are FLOAT32."""

    support = """
        6.4  InputTensor   input   3-8  FLOATS
             OutputTensor  output  3-8  FLOATS
    """

    @staticmethod
    def check(desc: Desc, tensors: dict[str, Any]) -> None:
        check_windows(desc, tensors, image="OutputTensor", columns="InputTensor")

    @staticmethod
    def evaluate(desc: Desc, inputs: list[Any]) -> list[Any]:
        sizes = desc.OutputTensor.sizes
        image = np.pad(np.zeros(sizes), widths(desc))
        seen = views(
            desc, image
        )  # numpy's views: what is added to them is in the image
        columns = inputs[0].reshape(*sizes[:2], len(seen), *seen[0].shape[2:])
        for place, view in enumerate(seen):
            view += columns[:, :, place]
        inner = tuple(
            slice(start, size + start)
            for (start, _), size in zip(widths(desc), sizes, strict=True)
        )
        return [image[inner].astype(desc.OutputTensor.data_type)]
