"""``AVERAGE_POOLING``, ``LP_POOLING`` and ``MAX_POOLING``, of all versions."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import Desc, operator
from .agreement import (
    Tensors,
    same,
    same_data_type,
    same_dimension_count,
    sized,
    uniform,
)
from .arithmetic import Array, converted, quiet, real
from .convolution import one_or_each
from .products import along
from .quantization import dequantized, quantized
from .windows import extents, padded, positions, sliding, spatial

FIELDS = "InputTensor OutputTensor"
ALL = "FLOATS SIGNED UNSIGNED"


def dilations(desc: Desc) -> tuple[int, ...]:
    """``Dilations``, which the first versions do not have."""
    return tuple(getattr(desc, "Dilations", (1,) * desc.DimensionCount))


def check_pooling(desc: Desc, tensors: Tensors) -> None:
    """Arrays and sizes of a pooling, or `Rejected`.

    The formula of the output's sizes in the pages of those with ``Dilations`` leaves
    these out; here the window is the dilated one.
    """
    dilated = " Dilations" if hasattr(desc, "Dilations") else ""
    spatial(desc, tensors, f"Strides WindowSize{dilated}")
    source = tensors["InputTensor"].sizes
    extent = extents(desc.WindowSize, dilations(desc))
    sizes = (*source[:2], *positions(desc, source[2:], extent))
    for name in ("OutputTensor", "OutputIndicesTensor"):
        sized(tensors, name, sizes)


def windows(desc: Desc, values: Array, fill: Any) -> Array:
    """``{ Batch, Channel, positions…, elements of the window }``."""
    views = sliding(desc, padded(desc, values, fill), desc.WindowSize, dilations(desc))
    return views.reshape(*views.shape[: values.ndim], -1)


def averages(desc: Desc, values: Array) -> Array:
    """Padding counts as zeros if it is included, else it does not count."""
    total = windows(desc, values, 0).sum(axis=-1)
    if desc.IncludePadding:
        return np.asarray(total / np.prod(desc.WindowSize))
    ones = np.ones((1, 1, *values.shape[2:]))
    return np.asarray(total / windows(desc, ones, 0).sum(axis=-1))


def lp(desc: Desc, values: Array) -> Array:
    """``(|X1|^P + … + |Xn|^P) ^ (1 / P)``.

    The page has no absolute values; they are those of ONNX's ``LpPool``, to which ONNX
    Runtime gives this operator.
    """
    total = (np.abs(windows(desc, values, 0)) ** desc.P).sum(axis=-1)
    return np.asarray(total ** (1 / desc.P))


def register(name: str, level: str, function: Any) -> None:
    """A pooling of floats."""

    def check(desc: Desc, tensors: Tensors) -> None:
        same(tensors, FIELDS, sizes=False)
        check_pooling(desc, tensors)

    def evaluate(desc: Desc, inputs: list[Array]) -> list[Array]:
        result = quiet(function)(desc, real(inputs[0]))
        return [converted(result, desc.OutputTensor.data_type)]

    members = {"check": check, "evaluate": evaluate}
    support = {"support": uniform(FIELDS, f"{level} 4-5 FLOATS")}
    operator(name)(type(name, (), members | support))


register("AVERAGE_POOLING", "1.0", averages)
register("AVERAGE_POOLING1", "6.2", averages)
register("LP_POOLING", "1.0", lp)
register("LP_POOLING1", "6.2", lp)


@quiet
def largest(desc: Desc, inputs: list[Array]) -> list[Any]:
    """The largest of each window, where padding never wins, and where it was.

    Indices are into the whole input as one array; of equal elements that of the first.
    """
    x = inputs[0]
    lowest = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
    views = windows(desc, x, lowest)
    result = np.fmax.reduce(views, axis=-1)
    indices = getattr(desc, "OutputIndicesTensor", None)
    if not hasattr(desc, "OutputIndicesTensor"):
        return [result]
    if indices is None:
        return [result, None]
    at = np.arange(x.size, dtype=np.int64).reshape(x.shape)
    at = windows(desc, at, -1)
    won = ((views == result[..., None]) & (at >= 0)).argmax(axis=-1)
    found = np.take_along_axis(at, won[..., None], axis=-1)[..., 0]
    return [result, found.astype(indices.data_type)]


@operator("MAX_POOLING")
class MaxPooling:
    support = uniform(
        FIELDS,
        f"""
        5.0 4-5 {ALL}
        3.0 4-5 FLOATS INT8 UINT8
        1.0 4-5 FLOATS
        """,
    )

    @staticmethod
    def check(desc: Desc, tensors: Tensors) -> None:
        same(tensors, FIELDS, sizes=False)
        check_pooling(desc, tensors)

    evaluate = largest


def with_indices(first: str) -> str:
    """The table of the versions that give indices."""
    return "".join(
        f"""
        {level}  InputTensor          input    4-5  {types}
                 OutputTensor         output   4-5  {types}
                 OutputIndicesTensor  output?  4-5  {indices}
        """
        for level, types, indices in (
            ("5.0", ALL, "UINT64 UINT32"),
            ("3.0", "FLOATS INT8 UINT8", "UINT32"),
            (first, "FLOATS", "UINT32"),
        )
    )


@operator("MAX_POOLING1")
class MaxPooling1:
    support = with_indices("2.0")

    @staticmethod
    def check(desc: Desc, tensors: Tensors) -> None:
        same_dimension_count(tensors, f"{FIELDS} OutputIndicesTensor")
        same_data_type(tensors, FIELDS)
        check_pooling(desc, tensors)

    evaluate = largest


@operator("MAX_POOLING2")
class MaxPooling2(MaxPooling1):
    support = with_indices("2.1")


@operator("QUANTIZED_LINEAR_AVERAGE_POOLING")
class QuantizedLinearAveragePooling:
    support = """
        6.2  InputTensor            input   4-5  INT8 UINT8
             InputScaleTensor       input   1-5  FLOAT32
             InputZeroPointTensor   input?  1-5  INT8 UINT8
             OutputScaleTensor      input   1-5  FLOAT32
             OutputZeroPointTensor  input?  1-5  INT8 UINT8
             OutputTensor           output  4-5  INT8 UINT8
    """

    @staticmethod
    def check(desc: Desc, tensors: Tensors) -> None:
        same_dimension_count(tensors, FIELDS)
        check_pooling(desc, tensors)
        for each in ("Input", "Output"):
            same_data_type(tensors, f"{each}Tensor {each}ZeroPointTensor")
            fields = f"{each}ScaleTensor {each}ZeroPointTensor"
            one_or_each(tensors, fields, 1, f"{each}Tensor")

    @staticmethod
    @quiet
    def evaluate(desc: Desc, inputs: list[Any]) -> list[Array]:
        codes, rank = inputs[0], inputs[0].ndim
        of_input = (along(each, rank, 1) for each in inputs[1:3])
        scale, zero = (along(each, rank, 1) for each in inputs[3:5])
        result = averages(desc, dequantized(codes, *of_input))
        return [quantized(result, scale, zero, desc.OutputTensor.data_type)]
