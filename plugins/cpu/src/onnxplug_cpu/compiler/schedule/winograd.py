"""Convolutions of 3×3 that are computed by transforms of tiles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from onnxplug_cpu.compiler.ir.commands import Constant
from onnxplug_cpu.compiler.ir.recorder import Recorder
from onnxplug_cpu.compiler.ir.views import View
from onnxplug_cpu.compiler.kernels.winograd.commands import pays
from onnxplug_cpu.compiler.kernels.winograd.transforms import TAPS

if TYPE_CHECKING:
    from onnxplug_cpu.compiler.schedule.operations.convolution import Geometry


class Transformed(NamedTuple):
    """All of a convolution of 3×3.

    Attributes:
        x: [N, C, H, W], without zeros around it.
        weights: [M, C, 3, 3].
        pads: zeros before the first line and pixel.
    """

    x: View
    weights: View
    pads: tuple[int, int]

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


def is_transformed(
    recorder: Recorder,
    x: View,
    weights: View,
    shape: tuple[int, ...],
    geometry: Geometry,
) -> bool:
    """Whether to compute a convolution by transforms: if it is one of 3×3 places next
    to each other, with constant weights, and it pays.

    Args:
        x, weights: what is convolved.
        shape: of the result.
        geometry: where windows lie.
    """
    axes = geometry.axes
    return (
        len(axes) == _SPATIAL
        and weights.shape == (shape[1], x.shape[1], TAPS, TAPS)
        and all(taps.inputs[1] == taps.spacing == 1 for (taps,) in axes)
        and isinstance(weights.buffer, Constant)
        and pays(recorder, x.shape[1], (shape[0], *shape[2:], shape[1]))
    )
