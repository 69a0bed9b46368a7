"""Operators that read or write where indices say, or answer with indices."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from . import Desc, Tensor, operator
from .agreement import (
    Tensors,
    same_data_type,
    same_dimension_count,
    same_sizes,
    sized,
)
from .arithmetic import Array
from .constraints import ANY, UP_TO_32, along, axis_within, ends, last, require

UNDEFINED = 0xCDCDCDCD
"""What stands where the documentation says that elements are undefined."""


def within(indices: Array, size: int) -> Array:
    """Indices of an axis of a size; the negative ones count from its end.

    *All reads will be clamped safely within the input tensor's memory*, says the page
    of GATHER of indices that are out of range; where in it they end up, it doesn't.
    """
    wide = indices.astype(object) if indices.dtype == np.uint64 else indices
    wide = np.where(wide < 0, wide + size, wide)
    return np.clip(wide, 0, size - 1).astype(np.int64)


def gathered_sizes(desc: Desc, tensors: Tensors) -> tuple[int, ...]:
    """The sizes of GATHER's output: right-aligned, leading ones cropped or added."""
    source, indices = tensors["InputTensor"].sizes, tensors["IndicesTensor"].sizes
    used = indices[len(indices) - desc.IndexDimensions :]
    sizes = (*source[: desc.Axis], *used, *source[desc.Axis + 1 :])
    surplus = len(sizes) - len(source)
    if surplus > 0:
        require(
            set(sizes[:surplus]) <= {1},
            f"an output of {sizes} in {len(source)} dimensions",
        )
        return sizes[surplus:]
    return (1,) * -surplus + sizes


@operator("GATHER")
class Gather:
    """IndexDimensions may be as large as the DimensionCount.

    The page's range excludes it, but its first and third examples use it.
    """

    support = f"""
        4.1  InputTensor    input   1-8  {ANY}
             IndicesTensor  input   1-8  INT64 INT32 UINT64 UINT32
             OutputTensor   output  1-8  {ANY}
        3.0  InputTensor    input   1-8  {UP_TO_32}
             IndicesTensor  input   1-8  INT64 INT32 UINT64 UINT32
             OutputTensor   output  1-8  {UP_TO_32}
        2.1  InputTensor    input   4    {UP_TO_32}
             IndicesTensor  input   4    UINT32
             OutputTensor   output  4    {UP_TO_32}
        1.0  InputTensor    input   4    FLOATS
             IndicesTensor  input   4    UINT32
             OutputTensor   output  4    FLOATS
    """

    @staticmethod
    def check(desc: Desc, tensors: Tensors) -> None:
        same_data_type(tensors, "InputTensor OutputTensor")
        same_dimension_count(tensors, "InputTensor IndicesTensor OutputTensor")
        axis_within(desc, tensors["InputTensor"])
        last(tensors["IndicesTensor"], desc.IndexDimensions, "IndicesTensor")
        sized(tensors, "OutputTensor", gathered_sizes(desc, tensors))

    @staticmethod
    def evaluate(desc: Desc, inputs: list[Any]) -> list[Any]:
        values, indices = inputs
        places = within(indices, values.shape[desc.Axis]).reshape(-1)
        taken = np.take(values, places, desc.Axis)
        return [taken.reshape(desc.OutputTensor.sizes)]


def check_along_axis(desc: Desc, tensors: Tensors) -> None:
    """What GATHER_ELEMENTS and SCATTER demand of their indices."""
    source = tensors["InputTensor"]
    axis = axis_within(desc, source)
    indices: Tensor = tensors["IndicesTensor"]
    require(
        all(
            size == of
            for at, (size, of) in enumerate(
                zip(indices.sizes, source.sizes, strict=True)
            )
            if at != axis
        ),
        f"indices of {indices.sizes} beside {source.sizes} with Axis {axis}",
    )


@operator("GATHER_ELEMENTS")
class GatherElements:
    support = f"""
        4.1  InputTensor    input   1-8  {ANY}
             IndicesTensor  input   1-8  INT64 INT32 UINT64 UINT32
             OutputTensor   output  1-8  {ANY}
        3.0  InputTensor    input   1-8  {UP_TO_32}
             IndicesTensor  input   1-8  INT64 INT32 UINT64 UINT32
             OutputTensor   output  1-8  {UP_TO_32}
        2.1  InputTensor    input   4    {UP_TO_32}
             IndicesTensor  input   4    UINT32
             OutputTensor   output  4    {UP_TO_32}
    """

    @staticmethod
    def check(desc: Desc, tensors: Tensors) -> None:
        same_data_type(tensors, "InputTensor OutputTensor")
        same_dimension_count(tensors, "InputTensor IndicesTensor OutputTensor")
        check_along_axis(desc, tensors)
        same_sizes(tensors, "IndicesTensor OutputTensor")

    @staticmethod
    def evaluate(desc: Desc, inputs: list[Any]) -> list[Any]:
        values, indices = inputs
        places = within(indices, values.shape[desc.Axis])
        return [np.take_along_axis(values, places, desc.Axis)]


def tuples_sizes(desc: Desc, tensors: Tensors, batches: int) -> tuple[int, ...]:
    """The sizes of what tuples of indices address, without leading ones.

    The pages' formula takes the input's sizes from its count less the tuple's size on,
    their worked example those from the tuple's size on, which is what is meant.
    """
    source = last(tensors["InputTensor"], desc.InputDimensionCount, "InputTensor")
    indices = last(
        tensors["IndicesTensor"], desc.IndicesDimensionCount, "IndicesTensor"
    )
    require(
        batches < len(source) and batches < len(indices),
        f"BatchDimensionCount {batches} of {source} and {indices}",
    )
    require(
        source[:batches] == indices[:batches],
        f"{indices[:batches]} batches of indices for {source[:batches]}",
    )
    depth = batches + indices[-1]
    require(depth <= len(source), f"tuples of {indices[-1]} indices into {source}")
    return (*indices[:-1], *source[depth:])


def addressed(desc: Desc, values: Array, indices: Array, batches: int) -> Any:
    """An index of numpy's into ``values`` without its leading ones."""
    source = values.shape[values.ndim - desc.InputDimensionCount :]
    tuples = indices.reshape(indices.shape[indices.ndim - desc.IndicesDimensionCount :])
    grid = np.ix_(*map(np.arange, source[:batches])) if batches else ()
    spread = [
        each.reshape(each.shape + (1,) * (tuples.ndim - 1 - batches)) for each in grid
    ]
    return (
        *spread,
        *(
            within(tuples[..., at], source[batches + at])
            for at in range(tuples.shape[-1])
        ),
    )


class GatherTuples:
    @staticmethod
    def check(desc: Desc, tensors: Tensors) -> None:
        same_data_type(tensors, "InputTensor OutputTensor")
        same_dimension_count(tensors, "InputTensor IndicesTensor OutputTensor")
        batches = getattr(desc, "BatchDimensionCount", 0)
        sizes = tuples_sizes(desc, tensors, batches)
        ends(tensors, "OutputTensor", sizes)

    @staticmethod
    def evaluate(desc: Desc, inputs: list[Any]) -> list[Any]:
        values, indices = inputs
        batches = getattr(desc, "BatchDimensionCount", 0)
        places = addressed(desc, values, indices, batches)
        source = values.reshape(values.shape[values.ndim - desc.InputDimensionCount :])
        return [source[places].reshape(desc.OutputTensor.sizes)]


@operator("GATHER_ND")
class GatherND(GatherTuples):
    support = f"""
        4.1  InputTensor    input   1-8  {ANY}
             IndicesTensor  input   1-8  INT64 INT32 UINT64 UINT32
             OutputTensor   output  1-8  {ANY}
        3.0  InputTensor    input   1-8  {UP_TO_32}
             IndicesTensor  input   1-8  INT64 INT32 UINT64 UINT32
             OutputTensor   output  1-8  {UP_TO_32}
        2.1  InputTensor    input   4    {UP_TO_32}
             IndicesTensor  input   4    UINT32
             OutputTensor   output  4    {UP_TO_32}
    """


@operator("GATHER_ND1")
class GatherND1(GatherTuples):
    support = f"""
        4.1  InputTensor    input   1-8  {ANY}
             IndicesTensor  input   1-8  INT64 INT32 UINT64 UINT32
             OutputTensor   output  1-8  {ANY}
        3.0  InputTensor    input   1-8  {UP_TO_32}
             IndicesTensor  input   1-8  INT64 INT32 UINT64 UINT32
             OutputTensor   output  1-8  {UP_TO_32}
    """


@operator("SCATTER", "SCATTER_ELEMENTS")
class Scatter:
    """Two names of one value; that of two writes the last wins is not guaranteed."""

    support = f"""
        4.1  InputTensor    input   1-8  {ANY}
             IndicesTensor  input   1-8  INT64 INT32 UINT64 UINT32
             UpdatesTensor  input   1-8  {ANY}
             OutputTensor   output  1-8  {ANY}
        3.0  InputTensor    input   1-8  {UP_TO_32}
             IndicesTensor  input   1-8  INT64 INT32 UINT64 UINT32
             UpdatesTensor  input   1-8  {UP_TO_32}
             OutputTensor   output  1-8  {UP_TO_32}
        2.1  InputTensor    input   4    {UP_TO_32}
             IndicesTensor  input   4    UINT32
             UpdatesTensor  input   4    {UP_TO_32}
             OutputTensor   output  4    {UP_TO_32}
        1.0  InputTensor    input   4    FLOATS
             IndicesTensor  input   4    UINT32
             UpdatesTensor  input   4    FLOATS
             OutputTensor   output  4    FLOATS
    """

    @staticmethod
    def check(desc: Desc, tensors: Tensors) -> None:
        same_data_type(tensors, "InputTensor UpdatesTensor OutputTensor")
        same_dimension_count(
            tensors, "InputTensor IndicesTensor UpdatesTensor OutputTensor"
        )
        check_along_axis(desc, tensors)
        same_sizes(tensors, "IndicesTensor UpdatesTensor")
        same_sizes(tensors, "InputTensor OutputTensor")

    @staticmethod
    def evaluate(desc: Desc, inputs: list[Any]) -> list[Any]:
        values, indices, updates = inputs
        result = values.copy()
        places = within(indices, values.shape[desc.Axis])
        np.put_along_axis(result, places, updates, desc.Axis)
        return [result]


@operator("SCATTER_ND")
class ScatterND:
    support = f"""
        4.1  InputTensor    input   1-8  {ANY}
             IndicesTensor  input   1-8  INT64 INT32 UINT64 UINT32
             UpdatesTensor  input   1-8  {ANY}
             OutputTensor   output  1-8  {ANY}
        3.0  InputTensor    input   1-8  {UP_TO_32}
             IndicesTensor  input   1-8  INT64 INT32 UINT64 UINT32
             UpdatesTensor  input   1-8  {UP_TO_32}
             OutputTensor   output  1-8  {UP_TO_32}
        2.1  InputTensor    input   4    {UP_TO_32}
             IndicesTensor  input   4    UINT32
             UpdatesTensor  input   4    {UP_TO_32}
             OutputTensor   output  4    {UP_TO_32}
    """

    @staticmethod
    def check(desc: Desc, tensors: Tensors) -> None:
        same_data_type(tensors, "InputTensor UpdatesTensor OutputTensor")
        same_dimension_count(
            tensors, "InputTensor IndicesTensor UpdatesTensor OutputTensor"
        )
        same_sizes(tensors, "InputTensor OutputTensor")
        sizes = tuples_sizes(desc, tensors, 0)
        ends(tensors, "UpdatesTensor", sizes)

    @staticmethod
    def evaluate(desc: Desc, inputs: list[Any]) -> list[Any]:
        values, indices, updates = inputs
        result = values.reshape(
            values.shape[values.ndim - desc.InputDimensionCount :]
        ).copy()
        places = addressed(desc, values, indices, 0)
        result[places] = updates.reshape(result[places].shape)
        return [result.reshape(values.shape)]


@operator("ONE_HOT")
class OneHot:
    support = f"""
        4.1  IndicesTensor  input   1-8  INT64 INT32 UINT64 UINT32
             ValuesTensor   input   1-8  {ANY}
             OutputTensor   output  1-8  {ANY}
        3.0  IndicesTensor  input   1-8  INT64 INT32 UINT64 UINT32
             ValuesTensor   input   1-8  {UP_TO_32}
             OutputTensor   output  1-8  {UP_TO_32}
        2.1  IndicesTensor  input   4    UINT32
             ValuesTensor   input   4    {UP_TO_32}
             OutputTensor   output  4    {UP_TO_32}
        2.0  IndicesTensor  input   4    UINT32
             ValuesTensor   input   4    FLOATS
             OutputTensor   output  4    FLOATS
    """

    @staticmethod
    def check(desc: Desc, tensors: Tensors) -> None:
        same_data_type(tensors, "ValuesTensor OutputTensor")
        same_dimension_count(tensors, "IndicesTensor ValuesTensor OutputTensor")
        target: Tensor = tensors["OutputTensor"]
        axis = axis_within(desc, target)
        sized(tensors, "IndicesTensor", along(target, axis, 1))
        values = tensors["ValuesTensor"].sizes
        require(math.prod(values) >= 2, f"ValuesTensor of {values}: fewer than two")

    @staticmethod
    def evaluate(desc: Desc, inputs: list[Any]) -> list[Any]:
        indices, values = inputs
        # of a packed array's elements the second lies along the last axis that has two
        off, on = values.reshape(-1)[:2]
        sizes = desc.OutputTensor.sizes
        size = sizes[desc.Axis]
        wide = indices.astype(object)
        wide = np.where(wide < 0, wide + size, wide)
        places = np.arange(size).reshape(
            [-1 if at == desc.Axis else 1 for at in range(len(sizes))]
        )
        return [np.where(wide == places, on, off).astype(values.dtype)]


class Top:
    """K may be all there are, which the pages' *less than* excludes.

    They demand that the outputs have K elements along the axis, and ONNX Runtime hands
    over TopK's k as it is.  Where NaN goes they don't say; here it is the last.
    """

    @staticmethod
    def check(desc: Desc, tensors: Tensors) -> None:
        same_data_type(tensors, "InputTensor OutputValueTensor")
        same_dimension_count(tensors, "InputTensor OutputValueTensor OutputIndexTensor")
        source: Tensor = tensors["InputTensor"]
        axis = axis_within(desc, source)
        size = source.sizes[axis]
        require(0 < desc.K <= size, f"K is {desc.K} of {size} elements")
        sizes = along(source, axis, desc.K)
        sized(tensors, "OutputValueTensor", sizes)
        sized(tensors, "OutputIndexTensor", sizes)

    @staticmethod
    def evaluate(desc: Desc, inputs: list[Any]) -> list[Any]:
        (values,) = inputs
        keys = values
        if getattr(desc, "AxisDirection", "DECREASING") == "DECREASING":
            keys = -values if values.dtype.kind == "f" else ~values
        order = np.argsort(keys, desc.Axis, kind="stable")
        places = np.take(order, np.arange(desc.K), desc.Axis)
        return [
            np.take_along_axis(values, places, desc.Axis),
            places.astype(desc.OutputIndexTensor.data_type),
        ]


@operator("TOP_K")
class TopK(Top):
    support = f"""
        5.0  InputTensor        input   1-8  FLOATS SIGNED UNSIGNED
             OutputValueTensor  output  1-8  FLOATS SIGNED UNSIGNED
             OutputIndexTensor  output  1-8  UINT64 UINT32
        3.1  InputTensor        input   1-8  {UP_TO_32}
             OutputValueTensor  output  1-8  {UP_TO_32}
             OutputIndexTensor  output  1-8  UINT32
        2.1  InputTensor        input   4    {UP_TO_32}
             OutputValueTensor  output  4    {UP_TO_32}
             OutputIndexTensor  output  4    UINT32
        2.0  InputTensor        input   4    FLOATS
             OutputValueTensor  output  4    FLOATS
             OutputIndexTensor  output  4    UINT32
    """


@operator("TOP_K1")
class TopK1(Top):
    support = f"""
        5.0  InputTensor        input   1-8  FLOATS SIGNED UNSIGNED
             OutputValueTensor  output  1-8  FLOATS SIGNED UNSIGNED
             OutputIndexTensor  output  1-8  UINT64 UINT32
        3.1  InputTensor        input   1-8  {UP_TO_32}
             OutputValueTensor  output  1-8  {UP_TO_32}
             OutputIndexTensor  output  1-8  UINT32
        2.1  InputTensor        input   4    {UP_TO_32}
             OutputValueTensor  output  4    {UP_TO_32}
             OutputIndexTensor  output  4    UINT32
    """


@operator("NONZERO_COORDINATES")
class NonzeroCoordinates:
    """Until feature level 4.0 the tensors must have the same DimensionCount."""

    support = f"""
        4.0  InputTensor              input   1-8  {UP_TO_32}
             OutputCountTensor        output  1-8  UINT32
             OutputCoordinatesTensor  output  2-8  UINT32
        3.0  InputTensor              input   4-5  {UP_TO_32}
             OutputCountTensor        output  4-5  UINT32
             OutputCoordinatesTensor  output  4-5  UINT32
    """

    @staticmethod
    def check(desc: Desc, tensors: Tensors) -> None:
        source = tensors["InputTensor"].sizes
        count = tensors["OutputCountTensor"].sizes
        require(set(count) == {1}, f"the count is no scalar: {count}")
        *ahead, rows, rank = tensors["OutputCoordinatesTensor"].sizes
        require(set(ahead) <= {1}, f"coordinates with {ahead} ahead")
        require(
            rows == math.prod(source),
            f"{rows} coordinates for {math.prod(source)} elements",
        )
        effective = len(source)
        while effective and source[len(source) - effective] == 1:
            effective -= 1
        require(
            effective <= rank <= len(source),
            f"coordinates of {rank} numbers in {source}, of rank {effective}",
        )

    @staticmethod
    def evaluate(desc: Desc, inputs: list[Any]) -> list[Any]:
        found = np.argwhere(inputs[0])
        sizes = desc.OutputCoordinatesTensor.sizes
        coordinates = np.full(sizes[-2:], UNDEFINED, np.uint32)
        coordinates[: len(found)] = found[:, found.shape[1] - sizes[-1] :]
        count = np.full(desc.OutputCountTensor.sizes, len(found), np.uint32)
        return [count, coordinates.reshape(sizes)]
