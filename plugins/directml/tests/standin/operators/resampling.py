"""Operators that resample images, of any axes."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import Desc, operator
from .agreement import Tensors, same, sized
from .arithmetic import Array
from .constraints import count_is, require


def coordinates(size: int, scale: float, before: float, after: float) -> Array:
    """Where the elements of an axis of the output lie in the input, in float32.

    *OutputTensorX = (InputTensorX + InputPixelOffset) * Scale + OutputPixelOffset*, by
    InputTensorX.  The fields are FLOAT; that shaders divide, and do so in float32, the
    pages don't say.
    """
    places = np.arange(size, dtype=np.float32)
    return (places - np.float32(after)) / np.float32(scale) - np.float32(before)


def nearest(places: Array, size: int) -> Array:
    """The matrix that picks elements, from coordinates that are whole numbers."""
    matrix = np.zeros((len(places), size))
    matrix[np.arange(len(places)), np.clip(places, 0, size - 1).astype(int)] = 1
    return matrix


def linear(places: Array, size: int) -> Array:
    """The matrix that averages two neighbours; beyond the edges both are the edge."""
    matrix = np.zeros((len(places), size))
    left = np.floor(places)
    weights = places.astype(np.float64) - left
    for neighbours, weight in ((left, 1 - weights), (left + 1, weights)):
        columns = np.clip(neighbours, 0, size - 1).astype(int)
        np.add.at(matrix, (np.arange(len(places)), columns), weight)
    return matrix


def antialiased(places: Array, size: int, stretch: float) -> Array:
    """The same with the triangle that weighs neighbours stretched.

    The page names only the factor.  That the weights sum to 1 and that beyond the edges
    is the edge, as elsewhere in these operators, is ours.
    """
    reach = int(np.ceil(stretch))
    near = np.arange(-reach, reach + 2)[None, :] + np.floor(places)[:, None]
    weights = np.clip(1 - np.abs(near - places[:, None]) / stretch, 0, None)
    weights = weights / weights.sum(axis=1, keepdims=True)
    matrix = np.zeros((len(places), size))
    rows = np.broadcast_to(np.arange(len(places))[:, None], near.shape)
    np.add.at(matrix, (rows, np.clip(near, 0, size - 1).astype(int)), weights)
    return matrix


def resampled(values: Array, matrices: list[Array]) -> Array:
    """Values (of any type) with a matrix applied along each axis, in their type.

    Integers are rounded to nearest, halves to even, for linear interpolation; the pages
    do not say.
    """
    result = values.astype(np.float64)
    for axis, matrix in enumerate(matrices):
        result = np.moveaxis(np.tensordot(matrix, result, (1, axis)), 0, axis)
    if values.dtype.kind != "f":
        result = np.rint(result)
    return result.astype(values.dtype)


@operator("UPSAMPLE_2D")
class Upsample2D:
    """Linear interpolation is between the centres of pixels, as in RESAMPLE.

    The page, which calls that a more flexible version of this, leaves it open.
    """

    support = """
        1.0  InputTensor   input   4-5  FLOATS
             OutputTensor  output  4-5  FLOATS
    """

    @staticmethod
    def check(desc: Desc, tensors: Tensors) -> None:
        same(tensors, "InputTensor OutputTensor", sizes=False)
        *ahead, height, width = tensors["InputTensor"].sizes
        scale = desc.ScaleSize
        for name, by, size in (
            ("Height", scale.Height, height),
            ("Width", scale.Width, width),
        ):
            require(
                0 < by <= 0xFFFFFFFF // size, f"ScaleSize.{name} is {by} for {size}"
            )
        sizes = (*ahead, height * scale.Height, width * scale.Width)
        sized(tensors, "OutputTensor", sizes)

    @staticmethod
    def evaluate(desc: Desc, inputs: list[Any]) -> list[Any]:
        (values,) = inputs
        scales = [1] * (values.ndim - 2) + [desc.ScaleSize.Height, desc.ScaleSize.Width]
        matrices = []
        for size, scale in zip(values.shape, scales, strict=True):
            places = coordinates(size * scale, scale, 0.5, -0.5)
            if desc.InterpolationMode == "LINEAR":
                matrices.append(linear(places, size))
            else:
                matrices.append(nearest(np.floor(places + np.float32(0.5)), size))
        return [resampled(values, matrices)]


class Resampling:
    """What the RESAMPLE operators have in common.

    Up to RESAMPLE1 the nearest element is ``floor(x + 0.5)``: ONNX Runtime says so, the
    pages only "nearest".  RESAMPLE2's page has its rounding downwards equal that with
    *OutputPixelOffsets adjusted an additional -0.5*; by its formula this holds of
    InputPixelOffsets, which is what ONNX Runtime adjusts.
    """

    @staticmethod
    def check(desc: Desc, tensors: Tensors) -> None:
        same(tensors, "InputTensor OutputTensor", sizes=False)
        count_is(desc, "Scales", tensors["InputTensor"])
        # the pages do not say that a scale must be positive; else nothing is defined
        require(
            all(np.isfinite(scale) and scale > 0 for scale in desc.Scales),
            f"Scales are {desc.Scales}",
        )

    @staticmethod
    def evaluate(desc: Desc, inputs: list[Any]) -> list[Any]:
        (values,) = inputs
        count = values.ndim
        before = getattr(desc, "InputPixelOffsets", (0.5,) * count)
        after = getattr(desc, "OutputPixelOffsets", (-0.5,) * count)
        rounding = getattr(desc, "RoundingDirection", None)
        smooth = getattr(desc, "Antialiased", False)
        matrices = []
        for axis, (size, scale) in enumerate(
            zip(values.shape, desc.Scales, strict=True)
        ):
            places = coordinates(
                desc.OutputTensor.sizes[axis], scale, before[axis], after[axis]
            )
            if desc.InterpolationMode == "LINEAR":
                if smooth and 1 / scale > 2:
                    matrices.append(antialiased(places, size, max(1.0, 1 / scale)))
                else:
                    matrices.append(linear(places, size))
            elif rounding is None:
                matrices.append(nearest(np.floor(places + np.float32(0.5)), size))
            else:
                rounded = np.ceil if rounding == "INCREASING" else np.floor
                matrices.append(nearest(rounded(places), size))
        return [resampled(values, matrices)]


@operator("RESAMPLE")
class Resample(Resampling):
    support = """
        6.2  InputTensor   input   1-4  FLOATS INT8 UINT8
             OutputTensor  output  1-4  FLOATS INT8 UINT8
        5.1  InputTensor   input   1-4  FLOATS
             OutputTensor  output  1-4  FLOATS
        2.0  InputTensor   input   4    FLOATS
             OutputTensor  output  4    FLOATS
    """


@operator("RESAMPLE1")
class Resample1(Resampling):
    support = """
        6.2  InputTensor   input   1-4  FLOATS INT8 UINT8
             OutputTensor  output  1-4  FLOATS INT8 UINT8
        5.1  InputTensor   input   1-4  FLOATS
             OutputTensor  output  1-4  FLOATS
        2.1  InputTensor   input   4    FLOATS
             OutputTensor  output  4    FLOATS
    """


@operator("RESAMPLE2")
class Resample2(Resampling):
    """The history extends the data types at 6.2, as the other pages' tables do."""

    support = """
        6.2  InputTensor   input   1-4  FLOATS INT8 UINT8
             OutputTensor  output  1-4  FLOATS INT8 UINT8
        5.1  InputTensor   input   1-4  FLOATS
             OutputTensor  output  1-4  FLOATS
    """


@operator("RESAMPLE3")
class Resample3(Resampling):
    support = """
        6.4  InputTensor   input   1-4  FLOATS INT8 UINT8
             OutputTensor  output  1-4  FLOATS INT8 UINT8
    """
