"""What a target is asked to record of images, read between pixels; see
:mod:`~.families`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from onnxplug.authoring.record import Record
from onnxplug_compiler.ir.recorder import Recorder
from onnxplug_compiler.ir.views import View
from onnxplug_compiler.ir.windows import Slide


class ResampledAxis(Record):
    """How an axis is resampled.

    Attributes:
        axis: which, from 0.
        places: int64 [taps, size of the output], within the input's axis.
        weights: float32, for float64 that, of the same shape; ``None`` for one tap that
            is only moved.
    """

    axis: int
    places: np.ndarray[Any, Any]
    weights: np.ndarray[Any, Any] | None

    @property
    def taps(self) -> int:
        """How many elements of the input make one of the output."""
        return len(self.places)


class Resampling(Protocol):
    """Images that are read at places that are known when planning."""

    def record_resample(
        self,
        recorder: Recorder[Any],
        x: View,
        out: View,
        axes: Sequence[ResampledAxis],
        *,
        label: str = "Resample",
    ) -> None:
        """Write *x* to *out*, resampled along *axes*, each once: every combination of
        their taps is summed."""


class GridSampling(Protocol):
    """Images that are read at places that a run brings."""

    def record_grid_sample(
        self,
        recorder: Recorder[Any],
        x: View,
        grid: View,
        out: View,
        *,
        mode: str,
        padding: str,
        align_corners: bool,
        label: str = "GridSample",
    ) -> None:
        """ONNX's GridSample.

        Args:
            x: [N, C, *spatial], one to three spatial axes.
            grid: [N, points, rank], the innermost axis first.
            out: [N, C, points].
            mode: ``linear``, ``nearest`` or ``cubic``.
            padding: ``zeros``, ``border`` or ``reflection``.
            align_corners: whether -1 and 1 are the centres of the outermost pixels.
        """


class RegionPools(Protocol):
    """Regions of images, pooled."""

    def record_roi_align(
        self,
        recorder: Recorder[Any],
        x: View,
        regions: View,
        images: View,
        out: View,
        *,
        mode: str,
        samples: int,
        scale: float,
        half_pixel: bool,
        label: str = "RoiAlign",
    ) -> None:
        """ONNX's RoiAlign.

        Args:
            x: [N, C, H, W].
            regions: [R, 4].
            images: int64 [R]; one out of range is an ``IndexError`` of the run.
            out: [R, C, lines, pixels].
            mode: ``avg`` or ``max``.
            samples: along each axis of a bin; 0 for as many as it has pixels.
            scale: of coordinates.
            half_pixel: coordinates are moved by half a pixel.
        """


class WindowPlaces(Protocol):
    """Windows of which it matters where their elements are."""

    def record_max_places(
        self,
        recorder: Recorder[Any],
        x: View,
        out: View,
        places: View,
        slides: Sequence[Slide],
        *,
        column_major: bool = False,
        label: str = "MaxPool",
    ) -> None:
        """The largest element of each window, of several the first, and where it is.

        NaN is the largest; padding never is, and a window of nothing else has zeros.

        Args:
            x: [N, C, *spatial], one to three spatial axes.
            out: [N, C, *spatial], x's dtype.
            places: int64, of out's shape: the number of the element among all of *x*.
            slides: how windows slide along each spatial axis.
            column_major: the numbers of an image go through its first axis first.
        """

    def record_fold(
        self,
        recorder: Recorder[Any],
        x: View,
        out: View,
        slides: Sequence[Slide],
        *,
        label: str = "Col2Im",
    ) -> None:
        """The sums of all elements of windows that lie at a place.

        Args:
            x: [N, C, *taps, *windows], one to three of each; any strides.
            out: [N, C, *spatial], x's dtype.
            slides: how windows slide along each spatial axis of *out*.
        """

    def record_deformed(
        self,
        recorder: Recorder[Any],
        x: View,
        offsets: View,
        mask: View | None,
        out: View,
        slides: Sequence[Slide],
        *,
        label: str = "DeformConv",
    ) -> None:
        """The elements of windows that are moved, read between the elements of *x*,
        outside of which there are zeros; NaN moves them there, too.

        X. Zhu et al., "Deformable ConvNets v2" (2018), arXiv:1811.11168.

        Args:
            x: [N, C, *spatial], one to three spatial axes.
            offsets: [N, groups of channels, elements of a window, axes, *windows].
            mask: [N, groups of channels, elements of a window, *windows], factors.
            out: [N, C, elements of a window, *windows].
            slides: how windows slide along each spatial axis.
        """
