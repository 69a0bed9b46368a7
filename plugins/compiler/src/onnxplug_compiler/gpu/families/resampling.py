"""Images that are read at places known when planning."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from onnxplug_compiler.gpu.command import launch, operand
from onnxplug_compiler.gpu.families.elementwise import LANES
from onnxplug_compiler.gpu.render.body import KINDS, Body, Operand
from onnxplug_compiler.ir.images import ResampledAxis
from onnxplug_compiler.ir.parameters import Parameters
from onnxplug_compiler.ir.recorder import Recorder
from onnxplug_compiler.ir.views import View


class ResampleKernel(Parameters):
    """Weighted sums along some axes.

    The sizes are how many elements there are, those of the axes, and for each axis that
    is resampled how many taps it has and where its tables begin, in which the places of
    a tap follow each other.

    Attributes:
        element, rank: of the arrays: the input, the output, the places, and the
            weights if there are any.
        axes: which axes are resampled.
    """

    element: str
    rank: int
    axes: tuple[int, ...]
    weighted: bool

    lanes = LANES

    @property
    def operands(self) -> tuple[Operand, ...]:
        tables = Operand("i32", 1), Operand("f32", 1)
        return (
            Operand(self.element, self.rank),
            Operand(self.element, self.rank, True),
            *tables[: 1 + self.weighted],
        )

    @property
    def sizes(self) -> int:
        return 1 + self.rank + 2 * len(self.axes)

    def write(self, body: Body) -> None:
        index = body.let("u32", f"block * {LANES}u + lane")
        with body.when(f"{index} < {body.size(0)}"):
            at = body.coordinates(index, range(1, 1 + self.rank))
            total = body.var("f32", "0.0f")
            with contextlib.ExitStack() as loops:
                where, weights = list(at), []
                for number, axis in enumerate(self.axes):
                    first = 1 + self.rank + 2 * number
                    tap = loops.enter_context(body.loop(body.size(first)))
                    row = f"{body.size(first + 1)} + {tap} * {body.size(1 + axis)}"
                    entry = body.let("u32", f"{row} + {at[axis]}")
                    place = body.load(2, body.place(2, [entry]))
                    where[axis] = body.let("u32", f"u32({place})")
                    if self.weighted:
                        weights.append(body.load(3, body.place(3, [entry])))
                value = body.load(0, body.place(0, where))
                if weights:
                    by = body.let("f32", " * ".join(weights))
                    body.assign(total, f"{total} + {value} * {by}")
                else:
                    body.assign(total, value)
            body.store(1, body.place(1, at), total)


def record_resample(
    recorder: Recorder[Any],
    x: View,
    out: View,
    axes: Sequence[ResampledAxis],
    *,
    label: str = "Resample",
) -> None:
    """Write *x* to *out*, resampled along *axes*; see ``ir.images.Resampling``."""
    if not out.size:
        return
    element = operand(x).element
    if KINDS.get(element) != "f32":
        raise ValueError(f"{label} is not computed of {x.dtype}")
    if not x.size:
        raise ValueError(f"{label} of an array without elements")
    weighted = any(axis.weights is not None for axis in axes)
    sizes: list[int] = []
    begin = 0
    for axis in axes:
        sizes += [axis.taps, begin]
        begin += axis.places.size
    places = [axis.places.astype(np.int32).reshape(-1) for axis in axes]
    tables = [recorder.constant(np.concatenate(places))]
    if weighted:
        weights = [
            np.ones(axis.places.shape) if axis.weights is None else axis.weights
            for axis in axes
        ]
        flat = [each.astype(np.float32).reshape(-1) for each in weights]
        tables.append(recorder.constant(np.concatenate(flat)))
    kernel = ResampleKernel(
        element, len(out.shape), tuple(axis.axis for axis in axes), weighted
    )
    taps = math.prod(axis.taps for axis in axes)
    launch(
        recorder,
        kernel,
        [x, out, *tables],
        (out.size, *out.shape, *sizes),
        math.ceil(out.size / LANES),
        label,
        2 * out.size * taps,
    )
