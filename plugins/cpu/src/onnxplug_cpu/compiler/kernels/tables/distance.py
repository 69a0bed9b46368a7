"""Squares of distances between rows and the vectors of a constant.

Differences are squared as they are, and nothing cancels: of what lies close together,
far from zero, the distance has all its digits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from onnxplug_compiler.ir.elements import element_of
from onnxplug_compiler.ir.views import View
from onnxplug_cpu.compiler.codegen.emit import I8, I64, Module, Type, Value
from onnxplug_cpu.compiler.codegen.kernel import (
    Generator,
    Integer,
    Kernel,
    KernelWords,
    Pointer,
)
from onnxplug_cpu.compiler.commands.recording import Recorder, call
from onnxplug_cpu.compiler.kernels.loop_nest import chunks
from onnxplug_cpu.compiler.machine.isa import LANES
from onnxplug_kernels.prepared import prepared_once

if TYPE_CHECKING:
    from onnxplug_cpu.compiler.machine.isa import Isa

_TOGETHER: Final = {"f32": 4, "f64": 2}
"""Rows at a time, which read each vector once."""


def record_distances(
    recorder: Recorder,
    x: View,
    vectors: np.ndarray[Any, Any],
    out: View,
    label: str,
) -> None:
    """See ``tables.Tables.record_distances``."""
    rows, features = x.shape
    if not out.size:
        return
    element = element_of(x.dtype)
    assert element is not None
    _, each = chunks(recorder, rows, 0.1 * out.size * features)
    together = _TOGETHER[element]
    each = -(-each // together) * together
    call(
        recorder,
        Kernel(_Distances(element)),
        {
            "rows": rows,
            "each": each,
            "features": features,
            "x": x.address,
            "x_row": x.strides[0] * x.dtype.itemsize,
            "x_step": x.strides[1] * x.dtype.itemsize,
            "panels": recorder.constant(_panels(vectors)).address,
            "columns": out.shape[1],
            "out": out.address,
        },
        chunks=-(-rows // each),
        label=f"{label} {rows}×{out.shape[1]}×{features}",
        flops=3 * out.size * features,
        nbytes=x.nbytes + out.nbytes,
    )


@prepared_once
def _panels(vectors: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Vectors side by side: [panels, features, lanes], and zeros after the last one."""
    count, features = vectors.shape
    panels = -(-count // LANES)
    padded = np.zeros((panels * LANES, features), vectors.dtype)
    padded[:count] = vectors
    return np.ascontiguousarray(
        padded.reshape(panels, LANES, features).transpose(0, 2, 1)
    )


class _Words(KernelWords):
    rows: Integer
    each: Integer
    features: Integer
    x: Pointer
    x_row: Integer
    x_step: Integer
    panels: Pointer
    columns: Integer
    out: Pointer


class _Distances(Generator):
    """A chunk is some rows.

    Attributes:
        element: of rows and vectors.
    """

    element: str

    @property
    def words(self) -> tuple[str, ...]:
        return _Words.names

    def write(self, module: Module, name: str, isa: Isa) -> None:
        k = _Words(module, name)
        f = k.function
        k.keep(_Words.names)
        end = f.minimum((k.chunk + 1) * k.each, k.rows)
        begin = k.chunk * k.each
        many = _TOGETHER[self.element]
        whole = begin + ((end - begin) & -many)
        f.loop(whole, lambda row: self._rows(k, row, many), start=begin, step=many)
        f.loop(end, lambda row: self._rows(k, row, 1), start=whole)
        f.finish()

    def _rows(self, k: _Words, row: Value, many: int) -> None:
        """All distances of some rows."""
        f, scalar = k.function, Type(self.element)
        vector = scalar.vector(LANES)
        firsts = [f.at(k.x, (row + n) * k.x_row, I8) for n in range(many)]
        outs = [f.at(k.out, (row + n) * k.columns, Type("f32")) for n in range(many)]

        def panel(column: Value) -> None:
            at = f.at(k.panels, column * k.features, scalar)

            def feature(place: Value, *sums: Value) -> list[Value]:
                own = f.load(f.at(at, place * LANES, scalar), vector)
                after = []
                for first, total in zip(firsts, sums, strict=True):
                    x = f.load_splat(f.at(first, place * k.x_step, I8), vector)
                    apart = own - x
                    after.append(f.fma(apart, apart, total))
                return after

            sums = f.loop(k.features, feature, [f.zero(vector)] * many)
            narrow = [f.convert(total, Type("f32", LANES)) for total in sums]
            places = [f.at(out, column, Type("f32")) for out in outs]
            self._store(k, column, narrow, places)

        f.loop(k.columns, panel, step=LANES)

    def _store(
        self, k: _Words, column: Value, sums: list[Value], places: list[Value]
    ) -> None:
        f = k.function
        left = k.columns - column

        def whole() -> None:
            for total, place in zip(sums, places, strict=True):
                f.store(total, place)

        def part() -> None:
            mask = f.first_lanes(left, LANES)
            for total, place in zip(sums, places, strict=True):
                f.store_masked(total, place, mask)

        f.branch(left >= f.value(LANES, I64), whole, part)
