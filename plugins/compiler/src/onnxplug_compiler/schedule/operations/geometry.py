"""Where the windows of convolutions lie.

What is transposed is one convolution for each remainder that a place of the output may
have by the stride, as the places of one remainder are reached by the same elements of
the kernel (V. Dumoulin, F. Visin, "A guide to convolution arithmetic for deep
learning", arXiv:1603.07285, section 4).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from onnxplug.authoring.bounds import per_axis
from onnxplug_compiler.frontend.call import Call, NotCompiled
from onnxplug_compiler.ir.traced import larger
from onnxplug_compiler.ir.windows import Slide

if TYPE_CHECKING:
    from onnxplug_kernels.windows import Windows

MOST_PARTS: Final = 64
"""Contractions that one call may become."""


class Taps(NamedTuple):
    """What one spatial axis of a contraction has.

    Attributes:
        places: the first place of the output, their number and the distance of two.
        inputs: where the first place's window begins in the padded input, and how far
            apart the windows of two places are.
        spacing: distance of two elements of a window.
        weights: the first element of the kernel, their number and the distance of two,
            which may be negative.
    """

    places: tuple[int, int, int]
    inputs: tuple[int, int]
    spacing: int
    weights: tuple[int, int, int]


class Geometry(NamedTuple):
    """Where windows lie, along each spatial axis.

    Attributes:
        before, after: zeros around the input.
        axes: of each axis what its contractions have.
    """

    before: tuple[int, ...]
    after: tuple[int, ...]
    axes: tuple[tuple[Taps, ...], ...]

    @property
    def parts(self) -> int:
        """How many contractions there are, if images are not taken one by one."""
        return math.prod(map(len, self.axes))


def geometry_of(
    call: Call, x: Sequence[int], w: Sequence[int], y: Sequence[int]
) -> Geometry:
    """Where the windows of a convolution lie.

    Args:
        x, w, y: shapes of the input, the weights and the output.

    Raises:
        ValueError: attributes do not fit the shapes.
    """
    windows, count = _windows_of(call, x, w)
    if tuple(count) != tuple(y[2:]):
        raise NotCompiled(f"windows of shape {count} do not give {tuple(y)}", call)
    if call.op_type == "Conv":
        return _geometry(windows, x[2:])
    if math.prod(windows.strides) > MOST_PARTS:
        raise NotCompiled(f"ConvTranspose with strides {windows.strides}", call)
    return _transposed_geometry(windows, x[2:], y[2:])


def _windows_of(
    call: Call, x: Sequence[int], w: Sequence[int]
) -> tuple[Windows, Sequence[int]]:
    """Windows, and how many places the output has along each axis."""
    # many models have no convolutions
    from onnxplug_kernels.windows import place_windows

    attributes = call.attributes
    if call.op_type == "Conv":
        windows = place_windows(
            x[2:],
            w[2:],
            strides=attributes["strides"],
            pads=attributes["pads"],
            dilations=attributes["dilations"],
            auto_pad=attributes["auto_pad"],
        )
        count = windows.count
    else:
        from onnxplug_kernels.conv import transposed_windows

        rank = len(x) - 2
        windows, count = transposed_windows(
            x[2:],
            tuple(w[2:]),
            per_axis("strides", attributes["strides"], rank),
            per_axis("dilations", attributes["dilations"], rank),
            attributes["pads"],
            tuple(attributes["output_padding"] or (0,) * rank),
            attributes["output_shape"],
            attributes["auto_pad"],
        )
    return windows, count


def slides_of_call(
    call: Call, x: Sequence[int], w: Sequence[int], y: Sequence[int]
) -> list[Slide]:
    """How the windows of a convolution slide: over the input, or, of one that is
    transposed, over the output.

    Args:
        x, w, y: shapes of the input, the weights and the output.
    """
    windows, _ = _windows_of(call, x, w)
    wide, narrow = (x, y) if call.op_type == "Conv" else (y, x)
    return [
        Slide(
            taps,
            stride,
            dilation,
            before,
            # as much as the last window reaches
            max((count - 1) * stride + (taps - 1) * dilation + 1 - before - size, 0),
        )
        for size, count, taps, stride, dilation, before in zip(
            wide[2:], narrow[2:], w[2:], windows.strides, windows.dilations,
            windows.begin, strict=True,
        )
    ]  # fmt: skip


def _geometry(windows: Windows, spatial: Sequence[int]) -> Geometry:
    after = tuple(
        larger(span - begin - size, 0)
        for span, begin, size in zip(windows.spans, windows.begin, spatial, strict=True)
    )
    axes = tuple(
        (Taps((0, count, 1), (0, stride), dilation, (0, size, 1)),)
        for count, stride, dilation, size in zip(
            windows.count,
            windows.strides,
            windows.dilations,
            windows.kernel,
            strict=True,
        )
    )
    return Geometry(windows.begin, after, axes)


def _transposed_geometry(
    windows: Windows, spatial: Sequence[int], result: Sequence[int]
) -> Geometry:
    before, after, axes = [], [], []
    for axis, size in enumerate(spatial):
        found = list(_remainders(windows, axis, result[axis]))
        first = max(0, *(-taps.inputs[0] for taps in found if taps.weights[1]), 0)
        last = max(
            0,
            *(
                taps.inputs[0]
                + taps.places[1]
                + (taps.weights[1] - 1) * taps.spacing
                - size
                for taps in found
                if taps.weights[1]
            ),
            0,
        )
        before.append(first)
        after.append(last)
        axes.append(
            tuple(taps._replace(inputs=(taps.inputs[0] + first, 1)) for taps in found)
        )
    return Geometry(tuple(before), tuple(after), tuple(axes))


def _remainders(windows: Windows, axis: int, result: int) -> Iterator[Taps]:
    """The contractions along one axis, with windows from the input's first place on.

    A place o of the output has the elements r of the kernel for which o + pad is r ·
    dilation and a multiple of the stride: each step-th, if one.
    """
    stride, dilation = windows.strides[axis], windows.dilations[axis]
    kernel, pad = windows.kernel[axis], windows.begin[axis]
    common = math.gcd(stride, dilation)
    step, spacing = stride // common, dilation // common
    for place in range(min(stride, result)):
        count = -(-(result - place) // stride)
        reached = place + pad
        first = next(
            (
                r
                for r in range(min(step, kernel))
                if (reached - r * dilation) % stride == 0
            ),
            None,
        )
        if first is None:
            yield Taps((place, count, stride), (0, 1), 1, (0, 0, 1))
            continue
        number = -(-(kernel - first) // step)
        last = first + (number - 1) * step
        start = (reached - last * dilation) // stride
        # from the last element on, so that windows go forwards
        yield Taps((place, count, stride), (start, 1), spacing, (last, number, -step))
