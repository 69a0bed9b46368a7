"""Elements that only move, as bits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from onnxplug_compiler.gpu.command import as_bits, launch, lies_alike, merged, operand
from onnxplug_compiler.gpu.families.elementwise import LANES, ChainKernel
from onnxplug_compiler.gpu.families.vectors import vectored
from onnxplug_compiler.gpu.render.body import Body, Operand
from onnxplug_compiler.ir.elementwise import Chain
from onnxplug_compiler.ir.parameters import Parameters
from onnxplug_compiler.ir.recorder import Recorder
from onnxplug_compiler.ir.views import View


def record_copy(
    recorder: Recorder[Any], source: View, target: View, *, label: str = "Copy"
) -> None:
    """Copy *source* to *target*; see ``ir.families.Movement``."""
    if not target.size:
        return
    arrays = merged([as_bits(source), as_bits(target)])
    read, written = operand(arrays[0]), operand(arrays[1], written=True)
    chain = Chain((read.element,), (), (), (0,))
    vectors = vectored(recorder, chain, arrays, 1)
    if vectors is not None:
        groups = math.ceil(vectors[1][0] / vectors[0].lanes)
        launch(recorder, vectors[0], arrays, vectors[1], groups, label)
        return
    kernel = ChainKernel(chain, (read,), (written,))
    size = arrays[0].size
    launch(
        recorder,
        kernel,
        arrays,
        (size, *arrays[0].shape),
        math.ceil(size / LANES),
        label,
        in_place=lies_alike(source, target),
    )


def record_copies(
    recorder: Recorder[Any],
    pairs: Sequence[tuple[View, View]],
    *,
    label: str = "Copy",
) -> None:
    """Copy pairs, one by one."""
    for source, target in pairs:
        record_copy(recorder, source, target, label=label)


class TriluKernel(Parameters):
    """Keeps what is on one side of a diagonal; the sizes are how many elements there
    are, those of the axes, and the diagonal."""

    read: Operand
    written: Operand
    upper: bool
    wide: bool

    lanes = LANES

    @property
    def operands(self) -> tuple[Operand, ...]:
        return self.read, self.written

    @property
    def sizes(self) -> int:
        return 2 + self.read.rank

    def write(self, body: Body) -> None:
        index = body.let("u32", f"block * {LANES}u + lane")
        with body.when(f"{index} < {body.size(0)}"):
            coordinates = body.coordinates(index, range(1, 1 + self.read.rank))
            row, column = coordinates[-3:-1] if self.wide else coordinates[-2:]
            diagonal = body.dialect.word(self.sizes - 1)
            sign = ">=" if self.upper else "<="
            kept = f"i32({column}) - i32({row}) {sign} {diagonal}"
            value = body.load(0, body.place(0, coordinates))
            found = body.let("u32", body.dialect.select(kept, value, "0u"))
            body.store(1, body.place(1, coordinates), found)


def record_trilu(
    recorder: Recorder[Any],
    source: View,
    target: View,
    diagonal: int,
    *,
    upper: bool,
    label: str = "Trilu",
) -> None:
    """Keep one side of a diagonal; see ``ir.families.Movement``."""
    size = math.prod(as_bits(target).shape)
    if not size:
        return
    wide = source.dtype.itemsize > 4
    read, written = as_bits(source), as_bits(target)
    kernel = TriluKernel(operand(read), operand(written, written=True), upper, wide)
    # beyond all elements is as far as the last of them
    reach = max(source.shape[-2:])
    diagonal = max(-reach, min(reach, diagonal))
    launch(
        recorder,
        kernel,
        [read, written],
        (size, *read.shape, diagonal),
        math.ceil(size / LANES),
        label,
    )
