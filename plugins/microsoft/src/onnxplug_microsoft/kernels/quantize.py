"""Quantization along an axis; rows taken out of a table quantized in blocks, and
products with such a matrix."""

from __future__ import annotations

from typing import Any

from onnxplug.authoring.bounds import at_least, normal_axis
from onnxplug_kernels import quantize
from onnxplug_microsoft.kernels import KERNELS


@KERNELS.operator("QuantizeLinear", since=1)
def quantize_linear(
    xp: Any, x: Any, scale: Any, zero_point: Any | None = None, *, axis: int = 1
) -> Any:
    return quantize.quantize_linear(xp, x, scale, zero_point, axis=axis)


@KERNELS.operator("DequantizeLinear", since=1)
def dequantize_linear(
    xp: Any, x: Any, scale: Any, zero_point: Any | None = None, *, axis: int = 1
) -> Any:
    return quantize.dequantize_linear(xp, x, scale, zero_point, axis=axis)


@KERNELS.operator("GatherBlockQuantized", since=1, allowed={"bits": (2, 4, 8)})
def gather_block_quantized(
    xp: Any,
    data: Any,
    indices: Any,
    scales: Any,
    zero_points: Any | None = None,
    *,
    bits: int = 4,
    block_size: int = 128,
    gather_axis: int = 0,
    quantize_axis: int = 1,
) -> Any:
    """Gather, of a table that has a scale for each *block_size* elements of an axis.

    Elements of *data* of uint8 are packed along the last axis, the first in the lowest
    bits; so are their zero points, which are the middle of the range if left out.  An
    index outside the axis gives zeros.
    """
    gathered = normal_axis(gather_axis, data.ndim, "gather_axis")
    blocked = normal_axis(quantize_axis, data.ndim, "quantize_axis")
    at_least(0, [block_size], "block_size")
    if data.dtype == xp.uint8:
        if gathered or blocked != data.ndim - 1 or data.ndim < 2:
            raise ValueError(
                f"GatherBlockQuantized of uint8 has gather_axis {gather_axis} and "
                f"quantize_axis {quantize_axis}; expected the first and the last axis"
            )
        if zero_points is not None:
            zero_points = unpacked(xp, zero_points, bits)[..., : scales.shape[-1]]
    packing = 8 // bits if data.dtype == xp.uint8 else 1
    size = data.shape[blocked] * packing
    block = block_size or max(size, 1)
    _check_blocks(xp, scales, zero_points, data, blocked, -(-size // block))
    limit = data.shape[gathered]
    inside = (indices >= -limit) & (indices < limit)
    wrapped = xp.where(indices < 0, indices + limit, indices)
    rows = xp.astype(xp.where(inside, wrapped, 0), xp.int64)

    def taken(parameter: Any) -> Any:
        """What *parameter* has for each element, or that broadcasts to them."""
        if gathered == blocked:
            return xp.take(parameter, rows // block, axis=gathered)
        if parameter.shape[gathered] == 1:
            parameter = xp.take(parameter, xp.zeros_like(rows), axis=gathered)
        else:
            parameter = xp.take(parameter, rows, axis=gathered)
        along = blocked + (indices.ndim - 1 if blocked > gathered else 0)
        repeated = xp.repeat(parameter, min(block, max(size, 1)), axis=along)
        return repeated[(slice(None),) * along + (slice(size),)]

    if not limit:
        shape = data.shape[:gathered] + indices.shape + data.shape[gathered + 1 :]
        return xp.zeros((*shape[:-1], shape[-1] * packing), dtype=scales.dtype)
    values = xp.take(data, rows, axis=gathered)
    if packing > 1:
        values = unpacked(xp, values, bits)
    y = xp.astype(values, xp.float32)
    if zero_points is not None:
        y = y - xp.astype(taken(zero_points), xp.float32)
    elif data.dtype == xp.uint8:
        y = y - (1 << (bits - 1))
    y = xp.astype(y * xp.astype(taken(scales), xp.float32), scales.dtype)
    later = (1,) * (data.ndim - 1 - gathered)
    return xp.where(xp.reshape(inside, (*indices.shape, *later)), y, 0)


def unpacked(xp: Any, packed: Any, bits: int) -> Any:
    """The numbers of *bits* bits in the bytes of *packed*, along the last axis."""
    if bits == 8:
        return packed
    shifts = xp.arange(0, 8, bits, dtype=xp.uint8)
    parts = (packed[..., None] >> shifts) & ((1 << bits) - 1)
    return xp.reshape(parts, (*packed.shape[:-1], packed.shape[-1] * shifts.shape[0]))


def _check_blocks(
    xp: Any, scales: Any, zero_points: Any | None, data: Any, blocked: int, blocks: int
) -> None:
    expected = (*data.shape[:blocked], blocks, *data.shape[blocked + 1 :])
    # scales of small floats may be shared between rows
    shared = not xp.is_integer(data.dtype)
    fits = scales.ndim == len(expected) and all(
        found == size or (shared and found == 1 and axis != blocked)
        for axis, (found, size) in enumerate(zip(scales.shape, expected, strict=True))
    )
    if not fits or (zero_points is not None and zero_points.shape != scales.shape):
        found = "none" if zero_points is None else zero_points.shape
        raise ValueError(
            f"GatherBlockQuantized of data {data.shape} has scales {scales.shape} and "
            f"zero points {found}; expected {expected}"
        )
    if zero_points is not None and shared:
        raise ValueError(f"GatherBlockQuantized of {data.dtype} takes no zero points")


@KERNELS.operator(
    "MatMulNBits",
    since=1,
    allowed={"bits": (2, 4, 8), "weight_prepacked": (0,)},
)
def matmul_n_bits(
    xp: Any,
    A: Any,
    B: Any,
    scales: Any,
    zero_points: Any | None = None,
    g_idx: Any | None = None,
    bias: Any | None = None,
    *,
    K: int,
    N: int,
    block_size: int,
    bits: int = 4,
    accuracy_level: int = 0,
    weight_prepacked: int = 0,
) -> Any:
    """A product with weights that are made floats in each run.

    EPs that keep weights as floats have the operator's function instead.

    Args:
        g_idx: [K], the block whose scale and zero point each row of weights has, if
            they are not those of *block_size* rows one after the other.
    """
    at_least(1, [K, N, block_size], "K, N and block_size")
    blocks = -(-K // block_size)
    levels = unpacked(xp, xp.reshape(B, (N, -1)), bits)[:, :K]
    middle: Any = 1 << (bits - 1)
    rows = xp.arange(K) // block_size
    if g_idx is not None:
        if g_idx.shape != (K,) or xp.any((g_idx < 0) | (g_idx >= blocks)):
            raise ValueError(
                f"g_idx of MatMulNBits has shape {g_idx.shape} or numbers of no block; "
                f"expected {(K,)}, and 0 to {blocks - 1}"
            )
        rows = g_idx
    if zero_points is not None:
        middle = xp.reshape(zero_points, (N, -1))
        if zero_points.dtype == xp.uint8:
            middle = unpacked(xp, middle, bits)[:, :blocks]
        middle = xp.take(xp.astype(middle, xp.float32), rows, axis=1)
    scale = xp.astype(xp.reshape(scales, (N, blocks)), xp.float32)
    weights = (xp.astype(levels, xp.float32) - middle) * xp.take(scale, rows, axis=1)
    y = xp.matmul(xp.astype(A, xp.float32), xp.permute_dims(weights, (1, 0)))
    if bias is not None:
        y = y + xp.astype(bias, xp.float32)
    return xp.astype(y, A.dtype, copy=False)
