"""``ROI_POOLING`` and ``ROI_ALIGN``."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import Desc, Rejected, operator
from .agreement import Tensors, same_data_type, sized
from .arithmetic import Array, converted, quiet


@operator("ROI_POOLING")
class RoiPooling:
    support = """
        1.0  InputTensor   input   4  FLOATS
             ROITensor     input   4  FLOATS
             OutputTensor  output  4  FLOATS
    """

    @staticmethod
    def check(desc: Desc, tensors: Tensors) -> None:
        same_data_type(tensors, "InputTensor ROITensor OutputTensor")
        count = tensors["ROITensor"].sizes[2]
        sized(tensors, "ROITensor", (1, 1, count, 5))
        pooled = desc.PooledSize.Height, desc.PooledSize.Width
        channels = tensors["InputTensor"].sizes[1]
        sized(tensors, "OutputTensor", (count, channels, *pooled))

    @staticmethod
    def evaluate(desc: Desc, inputs: list[Array]) -> list[Array]:
        """The largest of each part of a region, 0 of what lies outside.

        Neither that nor which way ``round`` takes halves is documented; here to even.
        """
        x, regions = inputs[0], inputs[1][0, 0].astype(np.float64)
        output = np.zeros(desc.OutputTensor.sizes, x.dtype)
        height, width = output.shape[2:]
        for at, (batch, *corners) in enumerate(regions):
            x1, y1, x2, y2 = (round(c * desc.SpatialScale) for c in corners)
            image = x[int(batch)]
            for row, column in np.ndindex(height, width):
                rows = part(row, y1, y2, height, image.shape[1])
                columns = part(column, x1, x2, width, image.shape[2])
                piece = image[:, rows, columns]
                if piece.size:
                    output[at, :, row, column] = piece.max(axis=(1, 2))
        return [output]


def part(index: int, first: int, last: int, count: int, size: int) -> slice:
    """What a region's part covers, within the input's boundaries."""
    length = last - first + 1
    start = index * length // count + first
    end = ((index + 1) * length + count - 1) // count + first
    return slice(min(max(start, 0), size), min(max(end, 0), size))


def check_align(desc: Desc, tensors: Tensors) -> None:
    """Sizes and the modes that the page allows, or `Rejected`."""
    same_data_type(tensors, "InputTensor ROITensor OutputTensor")
    *leading, count, four = tensors["ROITensor"].sizes
    indices = tensors["BatchIndicesTensor"].sizes
    if any(each != 1 for each in leading) or four != 4:
        raise Rejected(f"ROITensor has Sizes {tensors['ROITensor'].sizes}")
    if any(each != 1 for each in indices[:-1]) or indices[-1] != count:
        raise Rejected(f"BatchIndicesTensor has Sizes {indices} for {count} regions")
    output = tensors["OutputTensor"].sizes
    channels = tensors["InputTensor"].sizes[1]
    sized(tensors, "OutputTensor", (count, channels, *output[2:]))
    if desc.ReductionFunction not in ("AVERAGE", "MAX"):
        raise Rejected(f"ReductionFunction {desc.ReductionFunction}")
    if desc.InterpolationMode not in ("NEAREST_NEIGHBOR", "LINEAR"):
        raise Rejected(f"InterpolationMode {desc.InterpolationMode}")
    if not 1 <= desc.MinimumSamplesPerOutput <= desc.MaximumSamplesPerOutput:
        raise Rejected("MinimumSamplesPerOutput is 0 or above the maximum")
    if getattr(desc, "AlignRegionsToCorners", False):
        raise Rejected("what AlignRegionsToCorners computes is not documented")


def coordinates(desc: Desc, start: float, end: float, count: int) -> tuple[Array, int]:
    """Positions in the input of a region's samples along one axis.

    How many samples there are for an output element, which is a quotient in the page,
    is rounded up, as in ONNX's ``RoiAlign``, to which ONNX Runtime gives the operator.

    Returns:
        the positions, and how many of them are for each output element.
    """
    samples = int(np.ceil((end - start) / count))
    samples = max(samples, desc.MinimumSamplesPerOutput)
    samples = min(samples, desc.MaximumSamplesPerOutput)
    step = (end - start) / (count * samples)
    at = np.arange(count * samples) - getattr(desc, "OutputPixelOffset", -0.5)
    return at * step + start - getattr(desc, "InputPixelOffset", 0.5), samples


def weights(desc: Desc, at: Array, size: int) -> Array:
    """How much each element along an axis counts for each position.

    Returns:
        array ``[positions, size]``; rows of NaN are outside: more than one element from
        the outermost, as in Mask R-CNN's and ONNX's, which the page leaves open.
    """
    result = np.zeros((len(at), size))
    inside = np.clip(at, 0, size - 1)
    rows = np.arange(len(at))
    if desc.InterpolationMode == "NEAREST_NEIGHBOR":
        result[rows, np.floor(inside + 0.5).astype(int)] = 1
    else:
        low = np.floor(inside).astype(int)
        high = np.minimum(low + 1, size - 1)
        np.add.at(result, (rows, low), 1 - (inside - low))
        np.add.at(result, (rows, high), inside - low)
    result[(at < -1) | (at > size)] = np.nan
    return result


@quiet
def align(desc: Desc, inputs: list[Any]) -> list[Array]:
    """Crops of the input, resized to the output's height and width.

    The page's scale of Y has the sizes of X, which is taken for a slip.
    """
    x, regions, batches = inputs
    *_, height, width = desc.OutputTensor.sizes
    output = np.zeros(desc.OutputTensor.sizes)
    corners = regions.reshape(-1, 4).astype(np.float64)
    for at, (region, batch) in enumerate(
        zip(corners, batches.reshape(-1), strict=True)
    ):
        x1, x2 = region[0::2] * desc.SpatialScaleX
        y1, y2 = region[1::2] * desc.SpatialScaleY
        columns, across = coordinates(desc, x1, x2, width)
        rows, down = coordinates(desc, y1, y2, height)
        image = x[int(batch)].astype(np.float64)
        vertical = weights(desc, rows, image.shape[1])
        horizontal = weights(desc, columns, image.shape[2])
        outside = np.isnan(vertical[:, :1]) | np.isnan(horizontal[:, 0])
        samples = np.nan_to_num(vertical) @ image @ np.nan_to_num(horizontal).T
        samples[:, outside] = desc.OutOfBoundsInputValue
        blocks = samples.reshape(-1, height, down, width, across)
        reduce = np.mean if desc.ReductionFunction == "AVERAGE" else np.max
        output[at] = reduce(blocks, axis=(2, 4))
    return [converted(output, desc.OutputTensor.data_type)]


def of_align(first: str) -> str:
    """The table since a feature level."""
    return "".join(
        f"""
        {level}  InputTensor         input   4    FLOATS
                 ROITensor           input   2-4  FLOATS
                 BatchIndicesTensor  input   1-4  {indices}
                 OutputTensor        output  4    FLOATS
        """
        for level, indices in (("5.0", "UINT64 UINT32"), (first, "UINT32"))
    )


@operator("ROI_ALIGN")
class RoiAlign:
    support = of_align("3.0")
    check = check_align
    evaluate = align


@operator("ROI_ALIGN1")
class RoiAlign1:
    support = of_align("4.0")
    check = check_align
    evaluate = align
