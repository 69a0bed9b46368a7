"""``BATCH_``, ``MEAN_VARIANCE_``, ``LP_`` and ``LOCAL_RESPONSE_NORMALIZATION``."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import Desc, Rejected, fused, operator
from .agreement import (
    Tensors,
    axes_of,
    broadcast,
    same,
    same_data_type,
    same_sizes,
    uniform,
)
from .arithmetic import Array, converted, quiet

FIELDS = "InputTensor OutputTensor"
STATISTICS = "MeanTensor VarianceTensor ScaleTensor BiasTensor"


@operator("BATCH_NORMALIZATION")
class BatchNormalization:
    support = uniform(
        f"InputTensor {STATISTICS} OutputTensor",
        """
        3.1 1-8 FLOATS
        1.0 4   FLOATS
        """,
    )

    @staticmethod
    def check(desc: Desc, tensors: Tensors) -> None:
        same_data_type(tensors, f"{FIELDS} {STATISTICS}")
        same_sizes(tensors, FIELDS)
        broadcast(tensors, STATISTICS, "InputTensor")

    @staticmethod
    def check_level(desc: Desc, tensors: Tensors, level: tuple[int, int]) -> None:
        """``Spatial`` has had no effect since 4.0, or `Rejected`."""
        sizes = tensors["InputTensor"].sizes[2:]
        of = [tensors[name].sizes[2:] for name in ("MeanTensor", "VarianceTensor")]
        if level < (4, 0) and not desc.Spatial and of != [sizes, sizes]:
            raise Rejected(f"statistics that are not Spatial are of {of}, not {sizes}")

    @staticmethod
    @quiet
    def evaluate(desc: Desc, inputs: list[Array]) -> list[Array]:
        x, mean, variance, scale, bias = (each.astype(np.float64) for each in inputs)
        result = scale * ((x - mean) / np.sqrt(variance + desc.Epsilon)) + bias
        result = fused(desc.FusedActivation, result)
        return [converted(result, desc.OutputTensor.data_type)]


def axes_of_normalization(desc: Desc) -> tuple[int, ...]:
    """``Axes``, or what ``CrossChannel`` of the first version stands for."""
    if hasattr(desc, "CrossChannel"):
        return (1, 2, 3) if desc.CrossChannel else (2, 3)
    return tuple(desc.Axes or ())


def check_scale_and_bias(desc: Desc, tensors: Tensors, level: tuple[int, int]) -> None:
    """Before 5.2 neither without the other, before 4.0 channels of their own.

    Raises:
        Rejected: they are not so.
    """
    names = [name for name in ("ScaleTensor", "BiasTensor") if name in tensors]
    if level < (5, 2) and len(names) == 1:
        raise Rejected(f"before feature level 5.2 {names[0]} does not come alone")
    whole = tensors["InputTensor"].sizes
    for name in names:
        if level < (4, 0) and len(whole) > 1 and tensors[name].sizes[1] != whole[1]:
            raise Rejected(
                f"before feature level 4.0 {name}'s channels do not broadcast"
            )


@quiet
def mean_variance(desc: Desc, inputs: list[Any]) -> list[Array]:
    """``Scale * ((Input - Mean) / sqrt(Variance + Epsilon)) + Bias``.

    Of ``UseMean`` and ``UseVariance`` the page says nothing yet.  Without the mean the
    variance is that around zero, as ``SimplifiedLayerNormalization`` needs it, to which
    ONNX Runtime gives the operator.
    """
    x = inputs[0].astype(np.float64)
    axes = axes_of_normalization(desc)
    if getattr(desc, "UseMean", True):
        x = x - x.mean(axis=axes, keepdims=True)
    if getattr(desc, "NormalizeVariance", getattr(desc, "UseVariance", False)):
        variance = (x * x).mean(axis=axes, keepdims=True)
        x = x / np.sqrt(variance + desc.Epsilon)
    scale, bias = inputs[1:]
    if scale is not None:
        x = scale.astype(np.float64) * x
    if bias is not None:
        x = x + bias.astype(np.float64)
    result = fused(desc.FusedActivation, x)
    return [converted(result, desc.OutputTensor.data_type)]


def of_mean_variance(levels: str) -> str:
    """A table of lines of a level and its numbers of dimensions."""
    return "".join(
        f"""
        {level}  InputTensor   input   {counts}  FLOATS
                 ScaleTensor   input?  {counts}  FLOATS
                 BiasTensor    input?  {counts}  FLOATS
                 OutputTensor  output  {counts}  FLOATS
        """
        for level, counts in map(str.split, levels.split(","))
    )


@operator("MEAN_VARIANCE_NORMALIZATION")
class MeanVarianceNormalization:
    support = of_mean_variance("1.0 4")

    @staticmethod
    def check(desc: Desc, tensors: Tensors) -> None:
        same_data_type(tensors, f"{FIELDS} ScaleTensor BiasTensor")
        same_sizes(tensors, FIELDS)
        broadcast(tensors, "ScaleTensor BiasTensor", "InputTensor")
        axes_of(axes_of_normalization(desc), tensors["InputTensor"])

    check_level = check_scale_and_bias
    evaluate = mean_variance


@operator("MEAN_VARIANCE_NORMALIZATION1")
class MeanVarianceNormalization1(MeanVarianceNormalization):
    support = of_mean_variance("3.1 1-8, 2.1 4")


@operator("MEAN_VARIANCE_NORMALIZATION2")
class MeanVarianceNormalization2(MeanVarianceNormalization):
    support = of_mean_variance("6.3 1-8")


@operator("LP_NORMALIZATION")
class LpNormalization:
    support = uniform(FIELDS, "3.1 1-8 FLOATS\n1.0 4 FLOATS")

    @staticmethod
    def check(desc: Desc, tensors: Tensors) -> None:
        same(tensors, FIELDS)
        axes_of((desc.Axis,), tensors["InputTensor"])
        if desc.P not in (1, 2):
            raise Rejected(f"P is {desc.P}, neither 1 nor 2")

    @staticmethod
    @quiet
    def evaluate(desc: Desc, inputs: list[Array]) -> list[Array]:
        """The norm is at least ``Epsilon``; how it avoids divisions by zero the page
        does not say.
        """
        x = inputs[0].astype(np.float64)
        norm = np.linalg.norm(x, ord=desc.P, axis=desc.Axis, keepdims=True)
        result = x / np.maximum(norm, desc.Epsilon)
        return [converted(result, desc.OutputTensor.data_type)]


@operator("LOCAL_RESPONSE_NORMALIZATION")
class LocalResponseNormalization:
    support = uniform(FIELDS, "1.0 4 FLOATS")

    @staticmethod
    def check(desc: Desc, tensors: Tensors) -> None:
        same(tensors, FIELDS)
        if desc.LocalSize < 1:
            raise Rejected("LocalSize must be at least 1")

    @staticmethod
    @quiet
    def evaluate(desc: Desc, inputs: list[Array]) -> list[Array]:
        """Across channels the region is of these only, as ONNX's ``LRN`` has it, to
        which ONNX Runtime gives the operator, else of height and width.
        """
        x = inputs[0].astype(np.float64)
        before = (desc.LocalSize - 1) // 2
        after = desc.LocalSize - 1 - before
        total = x * x
        for axis in (1,) if desc.CrossChannel else (2, 3):
            pads = [(before, after) if a == axis else (0, 0) for a in range(4)]
            padded = np.pad(total, pads)
            total = np.lib.stride_tricks.sliding_window_view(
                padded, desc.LocalSize, axis
            ).sum(axis=-1)
        result = x / (desc.Bias + desc.Alpha / desc.LocalSize * total) ** desc.Beta
        return [converted(result, desc.OutputTensor.data_type)]
