"""Convolutions of 3×3 that are computed by transforms of tiles."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from onnxplug_compiler.ir.buffers import Constant
from onnxplug_compiler.ir.families import Transforms
from onnxplug_compiler.ir.traced import larger
from onnxplug_compiler.ir.views import View
from onnxplug_compiler.schedule.copies import record_copy
from onnxplug_compiler.schedule.operations.geometry import MOST_PARTS

if TYPE_CHECKING:
    from onnxplug_compiler.schedule.operations.geometry import Geometry
    from onnxplug_compiler.schedule.operations.registry import Plan


class Transformed(NamedTuple):
    """A convolution of 3×3, or of one that is dilated what is next to each other then.

    Attributes:
        x: [N, C, H, W], without zeros around it.
        weights: [M, C, 3, 3].
        pads: zeros before the first line and pixel.
        tile: places of the result that a tile has along an axis.
        places: of each spatial axis the first place of the result, their number, their
            distance.
    """

    x: View
    weights: View
    pads: tuple[int, int]
    tile: int
    places: tuple[tuple[int, int, int], tuple[int, int, int]]

    def fold(self, view: View) -> View:
        """The part's elements of a view of the result's shape, as [N, 1, lines, pixels,
        M]."""
        firsts, counts, steps = zip(*self.places, strict=True)
        images, columns = view.shape[:2]
        part = view.slice((0, 0, *firsts), (images, columns, *counts), (1, 1, *steps))
        last = part.transpose((0, 2, 3, 1))
        images, *rest = last.shape
        image, *strides = last.strides
        return View(
            part.buffer,
            part.offset,
            part.dtype,
            (images, 1, *rest),
            (image, 0, *strides),
        )


_SPATIAL: Final = 2
_TAPS: Final = 3


def transformed(
    plan: Plan,
    transforms: Transforms,
    x: View,
    weights: View,
    shape: Sequence[int],
    geometry: Geometry,
) -> list[Transformed] | None:
    """A Conv by transforms, if it is one of 3×3 places and stride 1, with constant
    weights, and that pays; ``None`` if not.

    Of one that is dilated, each place of the result depends on places that are apart by
    the dilation, so it is several that are not, whose places take turns.

    Args:
        x, weights: what is convolved.
        shape: of the result.
        geometry: where windows lie.
    """
    axes = geometry.axes
    if (
        len(axes) != _SPATIAL
        or weights.shape != (shape[1], x.shape[1], _TAPS, _TAPS)
        or not all(taps.inputs[1] == 1 for (taps,) in axes)
        or not isinstance(weights.buffer, Constant)
    ):
        return None
    apart = [taps.spacing for (taps,) in axes]
    turns = [
        [_turn(turn, each, *sizes) for turn in range(each)]
        for each, *sizes in zip(
            apart, x.shape[2:], shape[2:], geometry.before, strict=True
        )
    ]
    if math.prod(apart) > MOST_PARTS or any(
        not turn.places[1] or not turn.inputs[1] for axis in turns for turn in axis
    ):
        return None
    recorder = plan.recorder
    last = (shape[0], *(axis[0].places[1] for axis in turns), shape[1])
    tile = transforms.transform_tile(recorder, weights, last)
    if not tile:
        return None
    if x.strides[1] != 1:
        copy = plan.recorder.channels_last(x.dtype, x.shape)
        record_copy(recorder, x, copy)
        x = copy
    parts = []
    for lines, pixels in itertools.product(*turns):
        firsts, counts, steps = zip(lines.inputs, pixels.inputs, strict=True)
        some = x.slice((0, 0, *firsts), (*x.shape[:2], *counts), (1, 1, *steps))
        places, pads = (lines.places, pixels.places), (lines.pad, pixels.pad)
        parts.append(Transformed(some, weights, pads, tile, places))
    return parts


class _Turn(NamedTuple):
    """What the places of one turn read along an axis.

    Attributes:
        places: the first place of the result, their number and their distance.
        inputs: the same of the input.
        pad: zeros before the first of these.
    """

    places: tuple[int, int, int]
    inputs: tuple[int, int, int]
    pad: int


def _turn(turn: int, apart: int, size: int, results: int, pad: int) -> _Turn:
    before, first = divmod(turn - pad, apart)
    return _Turn(
        (turn, larger(0, -((turn - results) // apart)), apart),
        (first, larger(0, -((first - size) // apart)), apart),
        -before,
    )
