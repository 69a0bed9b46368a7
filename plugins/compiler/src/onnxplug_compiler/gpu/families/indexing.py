"""Elements that are found by indices; those move as bits."""

from __future__ import annotations

from typing import Any

from onnxplug_compiler.gpu.command import as_bits
from onnxplug_compiler.gpu.families.elementwise import LANES
from onnxplug_compiler.gpu.families.indices import (
    Indexed,
    no_empty_axes,
    record_indexed,
)
from onnxplug_compiler.gpu.families.scattering import (
    record_scatter_elements,
    record_scatter_nd,
)
from onnxplug_compiler.gpu.render.body import Body
from onnxplug_compiler.ir.recorder import Recorder
from onnxplug_compiler.ir.views import View

__all__ = [
    "record_gather",
    "record_gather_elements",
    "record_gather_nd",
    "record_scatter_elements",
    "record_scatter_nd",
]


class GatherKernel(Indexed):
    """``numpy.take``; the sizes are how many elements there are, the size of the data's
    axis, and the target's."""

    axis: int
    index_rank: int

    @property
    def sizes(self) -> int:
        return 2 + self.target.rank

    def write(self, body: Body) -> None:
        number = body.let("u32", f"block * {LANES}u + lane")
        with body.when(f"{number} < {body.size(0)}"):
            at = body.coordinates(number, range(2, self.sizes))
            end = self.axis + self.index_rank
            index = self.checked(body, at[self.axis : end], body.size(1))
            place = body.place(0, [*at[: self.axis], index, *at[end:]])
            body.store(2, body.place(2, at), body.load(0, place))


class GatherElementsKernel(Indexed):
    """``numpy.take_along_axis``; sizes as of :class:`GatherKernel`."""

    axis: int
    index_rank: int

    @property
    def sizes(self) -> int:
        return 2 + self.target.rank

    def write(self, body: Body) -> None:
        number = body.let("u32", f"block * {LANES}u + lane")
        with body.when(f"{number} < {body.size(0)}"):
            at = body.coordinates(number, range(2, self.sizes))
            index = self.checked(body, at[: self.index_rank], body.size(1))
            where = [*at[: self.axis], index, *at[self.axis + 1 :]]
            body.store(2, body.place(2, at), body.load(0, body.place(0, where)))


class GatherNDKernel(Indexed):
    """ONNX's GatherND; the sizes are how many elements there are, those of the data's
    axes that have indices, and the target's."""

    batch: int
    outer: int
    indexed: int

    @property
    def sizes(self) -> int:
        return 1 + self.indexed + self.target.rank

    def write(self, body: Body) -> None:
        number = body.let("u32", f"block * {LANES}u + lane")
        with body.when(f"{number} < {body.size(0)}"):
            at = body.coordinates(number, range(1 + self.indexed, self.sizes))
            before = at[: self.batch + self.outer]
            found = [
                self.checked(body, [*before, f"{axis}u"], body.size(1 + axis))
                for axis in range(self.indexed)
            ]
            where = [*at[: self.batch], *found, *at[self.batch + self.outer :]]
            body.store(2, body.place(2, at), body.load(0, body.place(0, where)))


def record_gather(
    recorder: Recorder[Any],
    data: View,
    indices: View,
    target: View,
    axis: int,
    *,
    label: str = "Gather",
) -> None:
    """``numpy.take``; see ``ir.families.Indexing``."""
    if not target.size:
        return
    axis %= len(data.shape)
    no_empty_axes(data.shape[axis : axis + 1], label)
    size, rank = data.shape[axis], len(indices.shape)
    data, target = as_bits(data), as_bits(target)
    sizes = (target.size, size, *target.shape)
    record_indexed(
        recorder, GatherKernel, data, indices, target, (axis, rank), sizes,
        target.size, label,
    )  # fmt: skip


def record_gather_elements(
    recorder: Recorder[Any],
    data: View,
    indices: View,
    target: View,
    axis: int,
    *,
    label: str = "GatherElements",
) -> None:
    """``numpy.take_along_axis``; see ``ir.families.Indexing``."""
    if not target.size:
        return
    axis %= len(data.shape)
    no_empty_axes(data.shape, label)
    size, rank = data.shape[axis], len(indices.shape)
    data, target = as_bits(data), as_bits(target)
    sizes = (target.size, size, *target.shape)
    record_indexed(
        recorder, GatherElementsKernel, data, indices, target, (axis, rank), sizes,
        target.size, label,
    )  # fmt: skip


def record_gather_nd(
    recorder: Recorder[Any],
    data: View,
    indices: View,
    target: View,
    batch_dims: int = 0,
    *,
    label: str = "GatherND",
) -> None:
    """ONNX's GatherND; see ``ir.families.Indexing``."""
    if not target.size:
        return
    no_empty_axes(data.shape, label)
    count, outer = indices.shape[-1], len(indices.shape) - 1 - batch_dims
    known = data.shape[batch_dims : batch_dims + count]
    data, target = as_bits(data), as_bits(target)
    sizes = (target.size, *known, *target.shape)
    numbers = (batch_dims, outer, count)
    record_indexed(
        recorder, GatherNDKernel, data, indices, target, numbers, sizes, target.size,
        label,
    )  # fmt: skip
