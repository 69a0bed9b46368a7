"""A target that has convolutions as a whole, in numpy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from onnxplug_compiler.ir.epilogue import Epilogue
from onnxplug_compiler.ir.recorder import Recorder
from onnxplug_compiler.ir.views import View
from onnxplug_compiler.ir.windows import Slide

from .numpy_target import NumpyTarget, wide, windows

Array = np.ndarray[Any, Any]


class WholeConvolutions(NumpyTarget):
    """Takes all convolutions, by their definition; counts them."""

    taken = 0

    def __init__(self) -> None:
        super().__init__()
        self.convolutions = self  # type: ignore[assignment]

    def record_convolution(
        self,
        recorder: Recorder[Any],
        x: View,
        weights: View,
        slides: Sequence[Slide],
        epilogue: Epilogue,
        *,
        transposed: bool = False,
        label: str = "Conv",
    ) -> bool:
        shape = epilogue.outputs[0].shape
        spatial = shape[2:]

        def convolve(x: Array, w: Array) -> list[Array]:
            total = np.zeros(shape)
            depth = w.shape[1]
            groups = x.shape[1] // depth
            for place, values, within in windows(wide(x), slides, spatial):
                found = np.where(within, values, 0)
                found = found.reshape((x.shape[0], groups, depth, *spatial))
                by = wide(w)[(..., *place)].reshape((groups, -1, depth))
                sums = np.einsum("ngd...,gmd->ngm...", found, by)
                total += sums.reshape(shape)
            return [total]

        def scatter(x: Array, w: Array) -> list[Array]:
            before = [slide.before for slide in slides]
            after = [slide.after for slide in slides]
            sides = zip(spatial, before, after, strict=True)
            whole = np.zeros((*shape[:2], *(a + b + c for a, b, c in sides)))
            filters = w.shape[1]
            groups = shape[1] // filters
            given = wide(x).reshape((x.shape[0], groups, -1, *x.shape[2:]))
            for place in np.ndindex(*w.shape[2:]):
                by = wide(w)[(..., *place)].reshape((groups, -1, filters))
                sums = np.einsum("ngd...,gdm->ngm...", given, by)
                at = tuple(
                    tap * slide.dilation + np.arange(size) * slide.stride
                    for tap, slide, size in zip(place, slides, x.shape[2:], strict=True)
                )
                whole[(slice(None), slice(None), *np.ix_(*at))] += sums.reshape(
                    (*shape[:2], *x.shape[2:])
                )
            inner = (slice(a, a + n) for a, n in zip(before, spatial, strict=True))
            return [whole[(..., *inner)]]

        type(self).taken += 1
        out = recorder.temporary(np.dtype(np.float64), shape)
        compute = scatter if transposed else convolve
        self.finish(recorder, compute, [x, weights], out, epilogue, label)
        return True
