"""Operators that move blocks of space into channels or columns, and back."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from . import Desc, operator
from .agreement import Tensors, same_data_type, sized
from .arithmetic import Array
from .constraints import ANY, UP_TO_32, ends, require
from .windows import extents, padded, positions, sliding


def block_order(desc: Desc) -> str:
    """``Order``; the operators without it are those with DEPTH_COLUMN_ROW."""
    return str(getattr(desc, "Order", "DEPTH_COLUMN_ROW"))


class DepthToSpace:
    @staticmethod
    def check(desc: Desc, tensors: Tensors) -> None:
        same_data_type(tensors, "InputTensor OutputTensor")
        size = desc.BlockSize
        require(size > 0, "BlockSize is 0")
        batch, channels, height, width = tensors["InputTensor"].sizes
        require(
            channels % (size * size) == 0,
            f"{channels} channels are not of blocks of {size} x {size}",
        )
        sizes = batch, channels // (size * size), height * size, width * size
        sized(tensors, "OutputTensor", sizes)

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
    def check(desc: Desc, tensors: Tensors) -> None:
        same_data_type(tensors, "InputTensor OutputTensor")
        size = desc.BlockSize
        require(size > 0, "BlockSize is 0")
        batch, channels, height, width = tensors["InputTensor"].sizes
        require(
            height % size == 0 and width % size == 0,
            f"{height} x {width} is not of blocks of {size} x {size}",
        )
        sizes = batch, channels * size * size, height // size, width // size
        sized(tensors, "OutputTensor", sizes)

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


def check_windows(desc: Desc, tensors: Tensors, image: str, columns: str) -> None:
    """What both operators demand of an image (N, C, ...) and its columns.

    The pages' *must have the same DimensionCount* is broken by their own examples, of
    images with 4 dimensions and columns with 3.  Columns of more have 1 ahead here.
    """
    same_data_type(tensors, "InputTensor OutputTensor")
    batch, channels, *space = tensors[image].sizes
    count = len(desc.WindowSizes)
    require(count == len(space) <= 6, f"windows of {count} in {len(space)} dimensions")
    positive = [*desc.WindowSizes, *desc.Strides, *desc.Dilations]
    require(min(positive) > 0, f"0 among WindowSizes, Strides, Dilations: {positive}")
    blocks = positions(desc, space, extents(desc.WindowSizes, desc.Dilations))
    rows = channels * math.prod(desc.WindowSizes)
    ends(tensors, columns, (batch, rows, math.prod(blocks)))


def in_columns(desc: Desc, image: Array) -> Array:
    """An image that is padded already by batch, row and block."""
    count = len(desc.WindowSizes)
    seen = sliding(desc, image, desc.WindowSizes, desc.Dilations)
    blocks, window = range(2, 2 + count), range(2 + count, 2 + 2 * count)
    rows = image.shape[1] * math.prod(desc.WindowSizes)
    return seen.transpose(0, 1, *window, *blocks).reshape(len(image), rows, -1)


@operator("UNFOLD")
class Unfold:
    """The page leaves the data types empty; its examples are FLOAT32."""

    support = """
        6.4  InputTensor   input   3-8  FLOATS
             OutputTensor  output  3-8  FLOATS
    """

    @staticmethod
    def check(desc: Desc, tensors: Tensors) -> None:
        check_windows(desc, tensors, image="InputTensor", columns="OutputTensor")

    @staticmethod
    def evaluate(desc: Desc, inputs: list[Any]) -> list[Any]:
        columns = in_columns(desc, padded(desc, inputs[0], 0))
        return [columns.reshape(desc.OutputTensor.sizes)]


@operator("FOLD")
class Fold:
    """The page leaves the data types empty; its examples are FLOAT32."""

    support = """
        6.4  InputTensor   input   3-8  FLOATS
             OutputTensor  output  3-8  FLOATS
    """

    @staticmethod
    def check(desc: Desc, tensors: Tensors) -> None:
        check_windows(desc, tensors, image="OutputTensor", columns="InputTensor")

    @staticmethod
    def evaluate(desc: Desc, inputs: list[Any]) -> list[Any]:
        sizes = desc.OutputTensor.sizes
        numbers = np.arange(math.prod(sizes)).reshape(sizes)
        places = in_columns(desc, padded(desc, numbers, -1)).reshape(-1)
        inside = places >= 0
        image = np.zeros(math.prod(sizes))
        np.add.at(image, places[inside], inputs[0].reshape(-1)[inside])
        return [image.reshape(sizes).astype(desc.OutputTensor.data_type)]
