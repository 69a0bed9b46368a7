"""Panels of float16, of which bfloat16 terms are made while they are multiplied.

They take half the memory of terms, and reading weights takes longer than anything else
where few rows meet many of them.  A panel is :data:`~.bf16_terms.BLOCK` columns: the
rows of each tap, as many as its steps have.  Its terms are made once for all rows of a
chunk, and stay in the second-level cache.
"""

from __future__ import annotations

import functools
from typing import Final

from onnxplug_cpu.compiler.codegen.emit import I64, U32, Function, Module, Type, Value
from onnxplug_cpu.compiler.codegen.kernel import (
    FunctionArguments,
    Generator,
    Integer,
    Pointer,
)
from onnxplug_cpu.compiler.codegen.math.narrow import widened
from onnxplug_cpu.compiler.codegen.tile_registers import ROW_BYTES, TILE_BYTES
from onnxplug_cpu.compiler.kernels.contraction.bf16_terms import (
    BLOCK,
    STEP,
    PackedPanels,
    PackTermsWords,
    split,
    store_terms,
)
from onnxplug_cpu.compiler.kernels.contraction.pack import PanelArguments
from onnxplug_cpu.compiler.kernels.contraction.tile import offset
from onnxplug_cpu.compiler.machine.isa import LANES, Isa

TERMS_OF_F16: Final = 2

ROW: Final = 2 * BLOCK
"""Bytes of a row of a panel."""

STEP_BYTES: Final = STEP * ROW

_HALVES = Type("u16", LANES)
_BITS = U32.vector(LANES)
_EXPONENT = 0x7C00


class WidenArguments(FunctionArguments):
    """The arguments of the function that makes terms of so many ``steps``, one after
    another in ``source`` and in ``target``."""

    source: Pointer
    target: Pointer
    steps: Integer


def define_widen_panel(module: Module, isa: Isa) -> str:
    """Define the function that makes the terms of a panel; its name."""
    f = module.function(
        "widen_panel", WidenArguments.parameters(), internal=True, inline=False
    )
    arguments = WidenArguments(*f.parameters)

    def pair(start: Value, place: Value, number: Value) -> None:
        row, target = number * ROW, offset(f, place, number * ROW_BYTES)
        for half in range(2):
            at = offset(f, start, row + half * (ROW // 2))
            low, high = (
                widened(f, isa, f.load(here, _HALVES), "f16")
                for here in (at, offset(f, at, LANES * ROW))
            )
            terms = split(f, low, high, TERMS_OF_F16, exact=True)
            store_terms(f, terms, offset(f, target, half * TILE_BYTES))

    def step(number: Value, target: Value) -> list[Value]:
        start = offset(f, arguments.source, number * STEP_BYTES)
        f.loop(LANES, functools.partial(pair, start, target))
        return [offset(f, target, TERMS_OF_F16 * 2 * TILE_BYTES)]

    f.loop(arguments.steps, step, [arguments.target])
    f.finish()
    return f.name


class PackNarrow(Generator):
    """Copies matrices of float16 to panels; a chunk is a part of those of one matrix.

    Its verdicts are 0 if all elements are finite.
    """

    words = PackTermsWords.names

    def write(self, module: Module, name: str, isa: Isa) -> None:
        _NarrowPanels(PackTermsWords(module, name), STEP_BYTES).write()


class _NarrowPanels(PackedPanels):
    """The rows of a step are copied to where they belong."""

    def step(
        self, start: Value, place: Value, count: Value, number: Value, unfit: Value
    ) -> list[Value]:
        f = self.f
        first, here = number * STEP, offset(f, place, number * STEP_BYTES)
        self.clear(here, STEP_BYTES)
        arguments = PanelArguments(
            source=offset(f, start, first * self.row),
            row_stride=self.row,
            column_stride=self.column,
            rows=f.minimum(self.rows - first, STEP),
            columns=count,
            target=here,
            width=f.value(ROW, I64),
        )
        f.call_pointer(self.pack, *arguments)
        return f.loop(STEP, functools.partial(_look, f, here), [unfit])


def _look(f: Function, here: Value, row: Value, unfit: Value) -> list[Value]:
    """Infinities and NaN of a row."""
    pairs = f.load(offset(f, here, row * ROW), _BITS)
    for exponent in (_EXPONENT, _EXPONENT << 16):
        bad = (pairs & exponent).compare("eq", exponent)
        unfit = unfit | f.select(bad, f.value(1, _BITS), 0)
    return [unfit]
