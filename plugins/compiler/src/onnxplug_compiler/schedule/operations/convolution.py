"""Conv and ConvTranspose as contractions of windows with weights.

A window is a view: with pads, of a copy of the input that has zeros around it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import numpy as np

from onnxplug.authoring.bounds import sizes
from onnxplug_compiler.frontend.call import Call, NotCompiled
from onnxplug_compiler.ir.traced import larger
from onnxplug_compiler.ir.views import View
from onnxplug_compiler.schedule.copies import record_padded
from onnxplug_compiler.schedule.elementwise import Finish
from onnxplug_compiler.schedule.operations.depthwise import (
    MOST_FILTERS,
    Depthwise,
    depthwise_parts,
    grouped_part,
)
from onnxplug_compiler.schedule.operations.geometry import (
    MOST_PARTS,
    Geometry,
    Taps,
    geometry_of,
)
from onnxplug_compiler.schedule.operations.registry import (
    Inputs,
    Operation,
    Plan,
    Results,
    computed,
    given,
    register,
)

if TYPE_CHECKING:
    from onnxplug_compiler.schedule.winograd import Transformed

_MOST_SPATIAL: Final = 3
_MOST_PADDED: Final = 4
"""How many times as large as input and output a padded input may be."""

_FEW_CHANNELS: Final = 4
"""Of a group, that are summed apart where they lie apart."""

_ALWAYS_PADDED: Final = 1 << 16


class Part(NamedTuple):
    """A contraction that gives some, or all, elements of a convolution's result.

    Attributes:
        a: [batch0, batch1, lines, rows, *taps, depth].
        b: [batch0, batch1, *taps, depth, columns].
        images: the first image, and how many.
        groups: of channels.
        places: of each spatial axis the first place, their number, their distance.
    """

    a: View
    b: View
    images: tuple[int, int]
    groups: int
    places: tuple[tuple[int, int, int], ...]

    def along_rows(self) -> Part:
        """The same with the last axis of taps in the place of the depth."""
        a, b = self.a, self.b
        axes = range(len(a.shape)), range(len(b.shape))
        return self._replace(
            a=a.transpose((*axes[0][:-2], axes[0][-1], axes[0][-2])),
            b=b.transpose((*axes[1][:-3], axes[1][-2], axes[1][-3], axes[1][-1])),
        )

    def fold(self, view: View) -> View:
        """The part's elements of a view of the result's shape [N, M, *spatial], as
        [batch0, batch1, lines, rows, columns]."""
        firsts, counts, steps = zip(*self.places, strict=True)
        channels = view.shape[1]
        part = view.slice(
            [self.images[0], 0, *firsts],
            [self.images[1], channels, *counts],
            [1, 1, *steps],
        )
        columns = channels // self.groups
        apart = _seen(
            part,
            (part.shape[0], self.groups, *counts, columns),
            (
                part.strides[0],
                part.strides[1] * columns,
                *part.strides[2:],
                part.strides[1],
            ),
        )
        return _in_batches(apart, len(counts))


Parts: TypeAlias = "Sequence[Part | Depthwise | Transformed]"
"""What gives a convolution, together."""


def parts_of(plan: Plan, call: Call) -> Parts:
    """What gives the convolution that *call* computes; pads its input, if that is
    necessary."""
    names = call.inputs
    assert names[0] is not None and names[1] is not None
    x, w = plan.view(names[0]), plan.view(names[1])
    shape = result_shape(plan, call)
    geometry = geometry_of(call, x.shape, w.shape, shape)
    groups = int(call.attributes["group"])
    parts: Parts | None = _depthwise(plan, call, x, w, shape, geometry)
    if parts is None:
        parts = _transformed(plan, call, x, w, shape, geometry)
    if parts is None and 0 not in shape:
        in_rows = _is_in_rows(x, groups)
        padded = _with_halo(plan, names[0], x, geometry)
        if padded is None:
            padded = _padded(plan, x, geometry, in_rows=in_rows)
        weights = _weights(call, w, groups)
        parts = [
            part.along_rows() if in_rows else part
            for part in _parts(padded, weights, geometry, groups)
        ]
    return parts or ()


def plain_parts(
    plan: Plan, call: Call, x: View, weights: Sequence[View], shape: tuple[int, ...]
) -> list[list[Part]]:
    """The contractions of a convolution of other arrays than the inputs of *call*, for
    each of several arrays of weights of one shape.

    Args:
        shape: of the result.
    """
    if 0 in shape:
        return [[] for _ in weights]
    geometry = geometry_of(call, x.shape, weights[0].shape, shape)
    return parts_over(
        call, _padded(plan, x, geometry, in_rows=False), weights, geometry
    )


def parts_over(
    call: Call, padded: View, weights: Sequence[View], geometry: Geometry
) -> list[list[Part]]:
    """The same over an array that has all elements of windows."""
    groups = int(call.attributes["group"])
    return [
        list(_parts(padded, _weights(call, each, groups), geometry, groups))
        for each in weights
    ]


def windows_of(
    plan: Plan, call: Call, x: View, w: View, shape: tuple[int, ...]
) -> list[Depthwise] | None:
    """The windows of a convolution of other arrays than the inputs of *call*, if each
    channel, or each small group of them, is convolved by itself.

    Args:
        shape: of the result.
    """
    return _depthwise(
        plan, call, x, w, shape, geometry_of(call, x.shape, w.shape, shape)
    )


def _depthwise(
    plan: Plan, call: Call, x: View, w: View, shape: Sequence[int], geometry: Geometry
) -> list[Depthwise] | None:
    windows, groups = plan.recorder.target.windows, int(call.attributes["group"])
    if groups < 2 or 0 in shape or windows is None:
        return None
    filters, depth = shape[1] // groups, x.shape[1] // groups
    if call.op_type == "Conv" and filters == depth > 1:
        part = grouped_part(plan.recorder, windows, x, w, geometry)
        return [part] if part else None
    if depth > 1 or not 0 < filters <= min(MOST_FILTERS, MOST_PARTS // geometry.parts):
        return None
    if call.op_type == "Conv":
        kernel, strides = w.shape[2:], w.strides
        w = _seen(
            w,
            (groups, filters, *kernel),
            (filters * strides[0], strides[0], *strides[2:]),
        )
    return depthwise_parts(x, w, geometry)


def _transformed(
    plan: Plan, call: Call, x: View, w: View, shape: Sequence[int], geometry: Geometry
) -> list[Transformed] | None:
    if call.op_type != "Conv" or w.shape[2:] != (3, 3):
        return None  # mostly, and without the modules
    transforms = plan.recorder.target.transforms
    if transforms is None:
        return None
    from onnxplug_compiler.schedule.winograd import transformed

    return transformed(plan, transforms, x, w, shape, geometry)


def result_shape(plan: Plan, call: Call) -> tuple[int, ...]:
    """The shape of a convolution's result."""
    output = call.outputs[0]
    assert output is not None
    return plan.known(output).shape


def finish_of(plan: Plan, call: Call) -> Finish:
    """What becomes of the sums of a convolution: the bias is added; they are normalised
    if the call is one that does that, too."""
    x, bias = plan.view(call.inputs[0] or ""), call.input(2)
    rank, dtype = len(x.shape) - 2, x.dtype
    if len(call.inputs) <= 3:
        return Finish(
            addend=None if bias is None else per_channel(plan.view(bias), rank)
        )
    contents = []
    for name in call.inputs[2:]:
        content = None if name is None else plan.known(name).content
        contents.append(
            np.float64(0) if content is None else content.astype(np.float64)
        )
    before, scale, shift, mean, variance = contents
    with np.errstate(all="ignore"):
        factor = scale / np.sqrt(variance + call.attributes["epsilon"])
        moved = shift + (before - mean) * factor
        both = [array.astype(dtype) for array in (factor, moved)]
    by, plus = (per_channel(plan.recorder.constant(array), rank) for array in both)
    return Finish(by, addend=plus)


def per_channel(view: View, rank: int) -> View:
    """A vector as one number for each channel of a value of *rank* spatial axes."""
    return _seen(view, (*view.shape, *(1,) * rank), (*view.strides, *(0,) * rank))


def _is_in_rows(x: View, groups: int) -> bool:
    """Whether *x* lies as its shape says and has so few channels that a window is
    better summed along its rows than along them."""
    rows = x.strides[-1] == 1 and x.strides[1] != 1
    return rows and 1 < x.shape[1] <= _FEW_CHANNELS * groups


def _with_halo(plan: Plan, name: str, x: View, geometry: Geometry) -> View | None:
    """*x* with zeros around it, if it has as many as windows reach."""
    if not any(geometry.before) and not any(geometry.after):
        return None
    found = plan.around(name)
    if found is None:
        return None
    around, starts = found
    first, size = [0, 0], list(x.shape[:2])
    for axis, (before, after) in enumerate(
        zip(geometry.before, geometry.after, strict=True), 2
    ):
        first.append(starts[axis] - before)
        size.append(before + x.shape[axis] + after)
        if first[-1] < 0 or first[-1] + size[-1] > around.shape[axis]:
            return None
    return around.slice(first, size)


def _padded(plan: Plan, x: View, geometry: Geometry, *, in_rows: bool) -> View:
    """*x* with zeros around it, channels last in memory if not *in_rows*."""
    before = geometry.before
    is_fine = in_rows or x.shape[1] == 1 or x.strides[1] == 1
    if is_fine and not any(before) and not any(geometry.after):
        return x
    shape = padded_shape(x.shape, geometry)
    if in_rows:
        padded = plan.recorder.temporary(x.dtype, shape)
    else:
        padded = plan.recorder.channels_last(x.dtype, shape)
    record_padded(plan.recorder, x, padded, (0, 0, *before))
    return padded


def padded_shape(shape: Sequence[int], geometry: Geometry) -> tuple[int, ...]:
    """The shape of an input with all that windows reach around it."""
    pads = zip(geometry.before, shape[2:], geometry.after, strict=True)
    return (*shape[:2], *(first + size + last for first, size, last in pads))


def _weights(call: Call, w: View, groups: int) -> View:
    """The weights as [groups, *kernel, depth, columns]."""
    kernel, strides = w.shape[2:], w.strides[2:]
    if call.op_type == "Conv":  # [M, C / groups, *kernel]
        columns, depth = w.shape[0] // groups, w.shape[1]
        column, apart = w.strides[0], w.strides[1]
        group = columns * column
    else:  # [C, M / groups, *kernel]
        columns, depth = w.shape[1], w.shape[0] // groups
        column, apart = w.strides[1], w.strides[0]
        group = depth * apart
    return _seen(w, (groups, *kernel, depth, columns), (group, *strides, apart, column))


def _parts(x: View, weights: View, geometry: Geometry, groups: int) -> Iterator[Part]:
    images = x.shape[0]
    each = images
    if len(geometry.axes) == 3 and groups > 1:
        each = 1  # the outermost spatial axis takes the place of the images'
    for first in range(0, images, each):
        for axes in itertools.product(*geometry.axes):
            a, b = _factors(x, weights, axes, groups, first, each)
            yield Part(a, b, (first, each), groups, tuple(taps.places for taps in axes))


def _factors(
    x: View,
    weights: View,
    axes: Sequence[Taps],
    groups: int,
    first: int,
    images: int,
) -> tuple[View, View]:
    """The factors of a part."""
    rank, depth = len(axes), weights.shape[-2]
    numbers = [taps.weights[1] for taps in axes]
    if 0 in numbers:  # nothing reaches these places
        numbers, depth = [1] * rank, 0
    counts = [taps.places[1] for taps in axes]
    offset = first * x.strides[0]
    start = 0
    rows, taps_ = [], []
    steps = []
    for axis, taps in enumerate(axes):
        stride = x.strides[2 + axis]
        offset += taps.inputs[0] * stride if depth else 0
        rows.append(taps.inputs[1] * stride if counts[axis] > 1 else 0)
        taps_.append(taps.spacing * stride if numbers[axis] > 1 else 0)
        start += taps.weights[0] * weights.strides[1 + axis] if depth else 0
        steps.append(
            taps.weights[2] * weights.strides[1 + axis] if numbers[axis] > 1 else 0
        )
    windows = View(
        x.buffer,
        x.offset + offset * x.dtype.itemsize,
        x.dtype,
        (images, groups, *counts, *numbers, depth),
        (
            x.strides[0],
            weights.shape[-2] * x.strides[1],
            *rows,
            *taps_,
            x.strides[1],
        ),
    )
    kernel = View(
        weights.buffer,
        weights.offset + start * weights.dtype.itemsize,
        weights.dtype,
        (1, groups, *numbers, depth, weights.shape[-1]),
        (0, weights.strides[0], *steps, *weights.strides[-2:]),
    )
    a = _in_batches(windows, rank)
    if rank == 3 and groups == 1:
        b = _seen(kernel, (1, *kernel.shape[1:]), (0, 0, *kernel.strides[2:]))
    else:
        b = kernel
    batches = a.shape[:2]
    return a, b.broadcast_to((*batches, *b.shape[2:]))


def _in_batches(view: View, rank: int) -> View:
    """[images, groups, *spatial, …] as [batch0, batch1, lines, rows, …]."""
    images, groups = view.shape[:2]
    shape, strides = view.shape[2:], view.strides[2:]
    image, group = view.strides[:2]
    if rank == 1:
        return _seen(view, (images, groups, 1, *shape), (image, group, 0, *strides))
    if rank == 2:
        return view
    if groups == 1:
        return _seen(view, (images, *shape), (image, *strides))
    assert images == 1
    return _seen(
        view, (shape[0], groups, *shape[1:]), (strides[0], group, *strides[1:])
    )


def _seen(view: View, shape: tuple[int, ...], strides: tuple[int, ...]) -> View:
    return View(view.buffer, view.offset, view.dtype, shape, strides)


def check_convolution(call: Call, inputs: Inputs, results: Results) -> None:
    """Raise ``NotCompiled`` unless all sizes go together, and are not too large."""
    x, w, y = given(inputs).shape, given(inputs, 1).shape, given(results).shape
    if not 3 <= len(x) <= 2 + _MOST_SPATIAL or len(w) != len(x) or len(y) != len(x):
        raise NotCompiled(f"{call.op_type} of {x} with weights {w}", call)
    kernel = call.attributes["kernel_shape"]
    if 0 in w[2:] or (kernel and tuple(kernel) != w[2:]):
        raise NotCompiled(f"kernel_shape {kernel} with weights {w}", call)
    groups = int(call.attributes["group"])
    filters, depth = w[:2] if call.op_type == "Conv" else w[1::-1]
    if call.op_type == "Conv":
        fits = groups > 0 and depth * groups == x[1] and filters % groups == 0
    else:
        fits = groups > 0 and depth == x[1] and depth % groups == 0
        filters *= groups
    if not fits or y[:2] != (x[0], filters):
        raise NotCompiled(
            f"{call.op_type} of {x} with weights {w} in {groups} groups gives no {y}",
            call,
        )
    for vector in inputs[2:]:
        if vector is not None and vector.shape != (filters,):
            raise NotCompiled(f"{vector.shape} is none for {filters} channels", call)
    geometry = geometry_of(call, x, w, y)
    parts = geometry.parts
    if len(x) == 5 and groups > 1:
        parts *= x[0]
    if parts > MOST_PARTS:
        raise NotCompiled(f"{call.op_type} would be {parts} contractions", call)
    padded = sizes(
        (
            *x[:2],
            *(
                size + first + last
                for size, first, last in zip(
                    x[2:], geometry.before, geometry.after, strict=True
                )
            ),
        ),
        itemsize=given(inputs).dtype.itemsize,
        what="the padded shape",
    )
    most = larger(_ALWAYS_PADDED, _MOST_PADDED * (math.prod(x) + math.prod(y)))
    if math.prod(padded) > most:
        raise NotCompiled(f"{x} would be padded to {padded}", call)


def _record(plan: Plan, call: Call) -> None:
    raise AssertionError("convolutions are recorded with their chains")


register("Conv ConvTranspose", Operation(_record, computed, check_convolution))
