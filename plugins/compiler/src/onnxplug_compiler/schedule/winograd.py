"""Convolutions of 3×3 that are computed by transforms of tiles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from onnxplug_compiler.ir.buffers import Constant
from onnxplug_compiler.ir.families import Transforms
from onnxplug_compiler.ir.views import View
from onnxplug_compiler.schedule.copies import record_copy

if TYPE_CHECKING:
    from onnxplug_compiler.schedule.operations.geometry import Geometry
    from onnxplug_compiler.schedule.operations.registry import Plan


class Transformed(NamedTuple):
    """All of a convolution of 3×3.

    Attributes:
        x: [N, C, H, W], without zeros around it.
        weights: [M, C, 3, 3].
        pads: zeros before the first line and pixel.
        tile: places of the result that a tile has along an axis.
    """

    x: View
    weights: View
    pads: tuple[int, int]
    tile: int

    def fold(self, view: View) -> View:
        """A view of the result's shape as [N, 1, lines, pixels, M]."""
        last = view.transpose((0, 2, 3, 1))
        images, *rest = last.shape
        image, *strides = last.strides
        return View(
            view.buffer,
            view.offset,
            view.dtype,
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
) -> Transformed | None:
    """A Conv by transforms, if it is one of 3×3 places next to each other, with
    constant weights, and that pays; ``None`` if not.

    Args:
        x, weights: what is convolved.
        shape: of the result.
        geometry: where windows lie.
    """
    axes = geometry.axes
    if (
        len(axes) != _SPATIAL
        or weights.shape != (shape[1], x.shape[1], _TAPS, _TAPS)
        or not all(taps.inputs[1] == taps.spacing == 1 for (taps,) in axes)
        or not isinstance(weights.buffer, Constant)
    ):
        return None
    recorder, last = plan.recorder, (shape[0], *shape[2:], shape[1])
    tile = transforms.transform_tile(recorder, weights, last)
    if not tile:
        return None
    if x.strides[1] != 1:
        copy = plan.recorder.channels_last(x.dtype, x.shape)
        record_copy(recorder, x, copy)
        x = copy
    top, left = geometry.before
    return Transformed(x, weights, (top, left), tile)
