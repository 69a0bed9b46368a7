"""Convolutions: Conv, ConvTranspose, DeformConv, CausalConvWithState, and Col2Im."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from onnxplug.authoring.bounds import at_least, per_axis, sizes, split_pads
from onnxplug_kernels.arrays import numbers, require_rank
from onnxplug_kernels.registry import PORTABLE, operator
from onnxplug_kernels.sampling import Pixels, linear_taps, split, within_reach
from onnxplug_kernels.windows import (
    Windows,
    check_auto_pad,
    fold,
    pad,
    patches,
    place_windows,
    split_padding,
)

# So many elements are worked on at a time that the intermediate results of a large
# batch, or of many channels, stay in the caches.
_COLUMN_ELEMENTS: Final = 1 << 21
_TERM_ELEMENTS: Final = 1 << 16


@operator("Conv", since=1)
def conv(
    xp: Any,
    x: Any,
    w: Any,
    b: Any | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Any:
    """[N, C, *spatial] with weights [M, C / group, *kernel] to [N, M, *count]."""
    windows = place_windows(
        x.shape[2:],
        kernel_of(x, w, kernel_shape),
        strides=strides,
        pads=pads,
        dilations=dilations,
        auto_pad=auto_pad,
    )
    wide = xp.computing_dtype(x.dtype)
    y = convolve(
        xp,
        xp.astype(x, wide, copy=False),
        xp.astype(w, wide, copy=False),
        windows,
        group,
    )
    return xp.astype(_add_bias(xp, y, b), x.dtype, copy=False)


def convolve(xp: Any, x: Any, w: Any, windows: Windows, group: int = 1) -> Any:
    """The convolution in the dtype of *x* and *w*, which may be integers.

    A product of the weights with the windows laid out as columns (im2col; K.
    Chellapilla et al., "High Performance Convolutional Neural Networks for Document
    Processing", 2006).  Windows of one element already are columns, and with one
    channel in each group none are needed.
    """
    check_channels(x, w, group)
    filters, depth, *kernel = w.shape
    batch = x.shape[0]
    if not batch or not math.prod(windows.count) or not filters or not depth:
        return xp.zeros((batch, filters, *windows.count), dtype=x.dtype)
    padded = pad(xp, x, windows)
    if depth == 1 and group > 1:
        return _convolve_depthwise(xp, padded, w, windows, group)
    matrix = xp.reshape(w, (group, filters // group, -1))
    y = xp.empty((batch, *matrix.shape[:2], math.prod(windows.count)), dtype=x.dtype)
    if group == 1:
        # without the axis of groups the product is one for each image
        matrix, y = matrix[0, ...], y[:, 0, ...]
    view = patches(xp, padded, windows)
    line = math.prod(windows.count[1:])
    elements = group * matrix.shape[-1] * line
    lines = min(max(_COLUMN_ELEMENTS // elements, 1), windows.count[0])
    images = max(_COLUMN_ELEMENTS // (elements * windows.count[0]), 1)
    ahead = (slice(None),) * (1 + len(kernel))
    for image in range(0, batch, images):
        part = slice(image, min(image + images, batch))
        for first in range(0, windows.count[0], lines):
            last = min(first + lines, windows.count[0])
            target = y[part, ..., first * line : last * line]
            piece = view[(part, *ahead, slice(first, last), ...)]
            columns = xp.reshape(
                piece,
                (
                    target.shape[0],
                    *matrix.shape[:-2],
                    matrix.shape[-1],
                    target.shape[-1],
                ),
            )
            xp.into(xp.matmul, matrix, columns, out=target)
    return xp.reshape(y, (batch, filters, *windows.count))


@operator("ConvTranspose", since=1)
def conv_transpose(
    xp: Any,
    x: Any,
    w: Any,
    b: Any | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    output_padding: Sequence[int] | None = None,
    output_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Any:
    """[N, C, *spatial] with weights [C, M / group, *kernel] to [N, M, *output].

    Each input element is the factor of one window of the output; the windows are added
    up where they overlap.
    """
    windows, shape = transposed_windows(
        x.shape[2:],
        kernel_of(x, w, kernel_shape),
        per_axis("strides", strides, x.ndim - 2),
        per_axis("dilations", dilations, x.ndim - 2),
        pads,
        at_least(
            0,
            output_padding or (0,) * (x.ndim - 2),
            "output_padding",
            count=x.ndim - 2,
        ),
        output_shape,
        auto_pad,
    )
    channels, filters, *kernel = w.shape
    at_least(1, [group], "group")
    if x.shape[1] != channels or channels % group:
        raise ValueError(
            f"ConvTranspose with input {x.shape}, weights {w.shape} and {group} groups"
            f": expected {channels} channels, a multiple of the groups"
        )
    wide = xp.computing_dtype(x.dtype)
    batch, area = x.shape[0], math.prod(x.shape[2:])
    depth, rows = channels // group, filters * math.prod(kernel)
    factors = xp.reshape(xp.astype(x, wide, copy=False), (batch, group, depth, area))
    matrix = xp.swapaxes(
        xp.reshape(xp.astype(w, wide, copy=False), (group, depth, rows)), 1, 2
    )
    columns = xp.matmul(matrix, factors)
    elements = xp.reshape(columns, (batch, group * filters, *kernel, *x.shape[2:]))
    y = fold(xp, elements, windows, shape)
    return xp.astype(_add_bias(xp, y, b), x.dtype, copy=False)


@operator("DeformConv", since=19, portable=PORTABLE)
def deform_conv(
    xp: Any,
    x: Any,
    w: Any,
    offset: Any,
    b: Any | None = None,
    mask: Any | None = None,
    *,
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    offset_group: int = 1,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Any:
    """A convolution whose window elements lie where *offset* moves them.

    X. Zhu et al., "Deformable ConvNets v2" (2018).  *offset* is [N, offset_group *
    elements * axes, *count] and *mask* [N, offset_group * elements, *count], where
    elements are those of the kernel in row-major order.
    """
    check_channels(x, w, group)
    windows = place_windows(
        x.shape[2:],
        kernel_of(x, w, kernel_shape),
        strides=strides,
        pads=pads,
        dilations=dilations,
    )
    wide = xp.computing_dtype(x.dtype)
    batch, channels = x.shape[:2]
    filters, depth, *kernel = w.shape
    rank, size, area = len(kernel), math.prod(kernel), math.prod(windows.count)
    at_least(1, [offset_group], "offset_group")
    if channels % offset_group:
        raise ValueError(
            f"DeformConv of {channels} channels has {offset_group} offset groups; "
            f"expected a divisor"
        )
    rows = offset_group * size
    for name, given, expected in (
        ("offset", offset, (batch, rows * rank, *windows.count)),
        ("mask", mask, (batch, rows, *windows.count)),
    ):
        if given is not None and given.shape != expected:
            raise ValueError(f"{name} has shape {given.shape}, expected {expected}")
    moved = xp.reshape(
        xp.astype(offset, wide, copy=False), (batch * offset_group, size, rank, area)
    )
    grid = _element_positions(xp, windows, wide)
    points = (moved[:, :, axis, :] + grid[axis] for axis in range(rank))
    images = xp.reshape(
        xp.astype(x, wide, copy=False),
        (batch * offset_group, channels // offset_group, *x.shape[2:]),
    )
    taps = [
        linear_taps(
            *split(
                xp,
                within_reach(
                    xp, xp.reshape(p, (batch * offset_group, size * area)), length
                ),
            )
        )
        for p, length in zip(points, x.shape[2:], strict=True)
    ]
    pixels = Pixels(xp, images).read(taps, xp.arange(images.shape[0]))
    if mask is not None:
        factors = xp.astype(mask, wide, copy=False)
        pixels = pixels * xp.reshape(factors, (batch * offset_group, 1, size * area))
    columns = xp.reshape(pixels, (batch, group, depth * size, area))
    matrix = xp.reshape(
        xp.astype(w, wide, copy=False), (group, filters // group, depth * size)
    )
    y = xp.reshape(xp.matmul(matrix, columns), (batch, filters, *windows.count))
    return xp.astype(_add_bias(xp, y, b), x.dtype, copy=False)


@operator("CausalConvWithState", since=27, portable=PORTABLE)
def causal_conv_with_state(
    xp: Any,
    x: Any,
    weight: Any,
    bias: Any | None = None,
    past_state: Any | None = None,
    *,
    activation: str = "none",
) -> tuple[Any, Any]:
    """Each channel of [N, C, length] convolved with what came before.

    Returns:
        The result [N, C, length], and the last k - 1 positions [N, C, k - 1] of
        *past_state* (zeros if left out) and *x* together.
    """
    if activation not in ("none", "silu", "swish"):
        raise ValueError(
            f"activation is {activation!r}, expected 'none', 'silu' or 'swish'"
        )
    require_rank(x, "the input", 3, 3)
    batch, channels, _ = x.shape
    if weight.ndim != 3 or weight.shape[:2] != (channels, 1) or not weight.shape[2]:
        raise ValueError(
            f"CausalConvWithState of {channels} channels has weights {weight.shape}; "
            f"expected [{channels}, 1, k]"
        )
    memory = weight.shape[2] - 1
    if past_state is None:
        past_state = xp.zeros((batch, channels, memory), dtype=x.dtype)
    elif past_state.shape != (batch, channels, memory):
        raise ValueError(
            f"past_state has shape {past_state.shape}, expected "
            f"{(batch, channels, memory)}"
        )
    sequence = xp.concat([past_state, x], axis=2)
    wide = xp.computing_dtype(x.dtype)
    y = convolve(
        xp,
        xp.astype(sequence, wide, copy=False),
        xp.astype(weight, wide, copy=False),
        place_windows(sequence.shape[2:], weight.shape[2:]),
        channels,
    )
    y = _add_bias(xp, y, bias)
    if activation != "none":
        y = y / (1 + xp.exp(-y))
    state = sequence[:, :, sequence.shape[2] - memory :]
    return xp.astype(y, x.dtype, copy=False), xp.copy(state)


@operator("Col2Im", since=18)
def col2im(
    xp: Any,
    x: Any,
    image_shape: Any,
    block_shape: Any,
    *,
    dilations: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Any:
    """Blocks [N, C * elements, blocks] added up to images [N, C, *image_shape]."""
    require_rank(x, "the input", 3, 3)
    image = sizes(numbers(xp, image_shape, "image_shape"), what="image_shape")
    block = numbers(xp, block_shape, "block_shape")
    windows = place_windows(
        image, block, strides=strides, pads=pads, dilations=dilations
    )
    batch, rows, blocks = x.shape
    size = math.prod(block)
    if rows % size or blocks != math.prod(windows.count):
        raise ValueError(
            f"Col2Im of an input of shape {x.shape} to an image {image} with "
            f"blocks {tuple(block)}: expected [N, C * {size}, "
            f"{math.prod(windows.count)}]"
        )
    wide = xp.computing_dtype(x.dtype)
    elements = xp.reshape(x, (batch, rows // size, *block, *windows.count))
    folded = fold(xp, xp.astype(elements, wide, copy=False), windows, image)
    return xp.astype(folded, x.dtype, copy=False)


def kernel_of(x: Any, w: Any, kernel_shape: Sequence[int] | None) -> tuple[int, ...]:
    """The spatial shape of the weights *w*, which the attribute may only repeat.

    Raises:
        ValueError: it does not, or *w* are no weights for inputs like *x*.
    """
    if x.ndim < 3 or w.ndim != x.ndim:
        raise ValueError(
            f"convolution of an input {x.shape} with weights {w.shape}: expected "
            f"[N, C, ...] and [M, C, ...], with as many axes and one at least behind"
        )
    actual = at_least(1, w.shape[2:], "the spatial shape of the weights")
    if kernel_shape and tuple(kernel_shape) != actual:
        raise ValueError(
            f"kernel_shape is {tuple(kernel_shape)}, but the weights are {w.shape}: "
            f"expected {actual}"
        )
    return actual


def check_channels(x: Any, w: Any, group: int) -> None:
    """Raise :class:`ValueError` unless *w* are weights for *x* in *group* groups."""
    at_least(1, [group], "group")
    if x.shape[1] != w.shape[1] * group or w.shape[0] % group:
        raise ValueError(
            f"convolution of an input {x.shape} with weights {w.shape} and {group} "
            f"groups: expected {w.shape[1] * group} input channels, and filters in a "
            f"multiple of the groups"
        )


def _add_bias(xp: Any, y: Any, b: Any | None) -> Any:
    """*y* [N, M, *spatial] with *b* [M] added to each channel, in place."""
    if b is not None:
        if b.shape != y.shape[1:2]:
            raise ValueError(f"the bias has shape {b.shape}, expected {y.shape[1:2]}")
        y += xp.reshape(xp.astype(b, y.dtype, copy=False), (-1, *(1,) * (y.ndim - 2)))
    return y


def _convolve_depthwise(
    xp: Any, padded: Any, w: Any, windows: Windows, group: int
) -> Any:
    """One input channel in each group: a sum over window elements, no columns."""
    batch, multiplier = padded.shape[0], w.shape[0] // group
    shape = padded.shape[2:]
    x = xp.reshape(padded, (batch, group, 1, *shape))
    taps = list(windows.taps())
    count = windows.count
    flat = set(windows.strides) == {1} and math.prod(shape) < 2 * math.prod(count)
    if flat:
        # neighbouring windows read neighbouring elements, so whole images in one go;
        # windows that would wrap around the end of a row are dropped in the end
        x = xp.reshape(padded, (batch, group, 1, math.prod(shape)))
        steps = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
        last = sum((n - 1) * step for n, step in zip(count, steps, strict=True))
        taps = [(index, _flat_tap(index, windows, steps, last)) for index, _ in taps]
        count = (last + 1,)
    factors = xp.reshape(w, (group, multiplier, *(1,) * len(count), *windows.kernel))
    canvas = x.shape[3:] if flat else count
    y = xp.zeros((batch, group, multiplier, *canvas), dtype=x.dtype)
    step = max(_TERM_ELEMENTS // (batch * multiplier * math.prod(count)), 1)
    for start in range(0, group, step):
        part = slice(start, min(start + step, group))
        total = y[(slice(None), part, ..., *map(slice, count))]
        term = xp.empty_like(total)
        for index, positions in taps:
            factor = factors[(part, ..., *index)]
            xp.into(
                xp.multiply, x[(slice(None), part, ..., *positions)], factor, out=term
            )
            total += term
    if flat:
        y = xp.reshape(y, (batch, group, multiplier, *shape))
        y = y[(..., *map(slice, windows.count))]
    return xp.reshape(y, (batch, group * multiplier, *windows.count))


def _flat_tap(
    index: Sequence[int], windows: Windows, steps: Sequence[int], last: int
) -> tuple[slice]:
    """Where element *index* of all windows lies in a flattened image."""
    first = sum(
        i * dilation * step
        for i, dilation, step in zip(index, windows.dilations, steps, strict=True)
    )
    return (slice(first, first + last + 1),)


def transposed_windows(
    input_shape: Sequence[int],
    kernel: tuple[int, ...],
    strides: tuple[int, ...],
    dilations: tuple[int, ...],
    pads: Sequence[int] | None,
    output_padding: Sequence[int],
    output_shape: Sequence[int] | None,
    auto_pad: str,
) -> tuple[Windows, tuple[int, ...]]:
    """The windows over the output, one for each input element, and the output shape."""
    rank = len(input_shape)
    if not rank:
        raise ValueError("ConvTranspose needs an input of shape [N, C, ...]")
    begin, end = split_pads(pads, rank)
    unpadded = tuple(
        stride * (size - 1) + extra + (taps - 1) * dilation + 1
        for size, stride, extra, taps, dilation in zip(
            input_shape, strides, output_padding, kernel, dilations, strict=True
        )
    )
    for extra, stride, dilation in zip(output_padding, strides, dilations, strict=True):
        if extra and extra >= max(stride, dilation):
            raise ValueError(
                f"output_padding is {tuple(output_padding)} with strides {strides} and "
                f"dilations {dilations}; expected less than the larger of them"
            )
    if output_shape:
        if len(output_shape) not in (rank, rank + 2):
            raise ValueError(
                f"output_shape is {tuple(output_shape)}; expected {rank} spatial sizes"
            )
        # exporters wrote the batch and channel sizes too
        shape = at_least(1, output_shape, "output_shape")[-rank:]
    elif auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        shape = tuple(
            size * stride for size, stride in zip(input_shape, strides, strict=True)
        )
    else:
        shape = ()
        check_auto_pad(auto_pad)
        if auto_pad == "VALID":
            begin = end = (0,) * rank
    if shape:
        # here the odd one comes first unless SAME_UPPER asks otherwise, and the output
        # may be larger than the windows reach
        side = "SAME_UPPER" if auto_pad == "SAME_UPPER" else "SAME_LOWER"
        halves = [
            split_padding(max(natural - size, 0), side)
            for natural, size in zip(unpadded, shape, strict=True)
        ]
        begin, end = (tuple(column) for column in zip(*halves, strict=True))
    else:
        shape = tuple(
            natural - first - last
            for natural, first, last in zip(unpadded, begin, end, strict=True)
        )
    if min(shape) < 0:
        raise ValueError(
            f"ConvTranspose of spatial shape {tuple(input_shape)} has output "
            f"{unpadded} before padding {begin} and {end} is taken off: nothing is left"
        )
    windows = Windows(kernel, strides, dilations, begin, end, tuple(input_shape))
    return windows, shape


def _element_positions(xp: Any, windows: Windows, dtype: Any) -> list[Any]:
    """For each axis the input coordinate [elements, windows] of all window elements."""
    rank = len(windows.kernel)
    positions = []
    for axis in range(rank):
        taps = xp.arange(windows.kernel[axis], dtype=dtype) * windows.dilations[axis]
        starts = xp.arange(windows.count[axis], dtype=dtype) * windows.strides[axis]
        shape = [1] * (2 * rank)
        shape[axis] = -1
        taps = xp.reshape(taps, shape)
        shape[axis], shape[rank + axis] = 1, -1
        along = taps + xp.reshape(starts, shape) - windows.begin[axis]
        whole = xp.broadcast_to(along, (*windows.kernel, *windows.count))
        positions.append(
            xp.reshape(whole, (math.prod(windows.kernel), math.prod(windows.count)))
        )
    return positions
