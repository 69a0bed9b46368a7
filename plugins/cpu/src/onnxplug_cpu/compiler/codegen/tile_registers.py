"""Tile registers: eight matrices of 16 rows of 64 bytes, and the product of two.

The instructions are those of AMX (Intel, Software Developer's Manual, volume 2,
``TDPBF16PS``, ``TDPBUSD`` and ``LDTILECFG``).  The same operations exist as vector code
on tiles in memory, result for result, so that what is built on them runs, in tests, on
processors that have none.
"""

from __future__ import annotations

from typing import Final

from onnxplug_cpu.compiler.codegen.emit import (
    F32,
    I8,
    I32,
    I64,
    PTR,
    U8,
    U32,
    Function,
    Module,
    Value,
)
from onnxplug_cpu.compiler.machine.isa import LANES, Isa

ROWS: Final = 16
"""The most rows of a tile."""

ROW_BYTES: Final = 64
"""Of a row of a tile: 16 numbers of 32 bits, pairs of bfloat16 or quads of bytes."""

TILE_BYTES: Final = ROWS * ROW_BYTES

COUNT: Final = 8
"""How many tiles there are."""

_CONFIGURATION_BYTES = 64
_PALETTE, _ROW_BYTES_OF, _ROWS_OF = 0, 16, 48  # where the configuration has what

_VECTOR, _BITS = F32.vector(LANES), U32.vector(LANES)


class Tiles:
    """Writes operations on tiles into a function; :func:`tiles_of` makes it."""

    def __init__(self, f: Function, state: Value) -> None:
        self.f = f
        self.state = state

    def configure(
        self, rows: dict[int, Value], widths: dict[int, Value] | None = None
    ) -> None:
        """Begin to use tiles, of so many *rows* each, and bytes of a row, a multiple of
        four; those not named have all."""
        f, state, widths = self.f, self.state, widths or {}
        f.store(f.zero(I32.vector(16)), state)
        f.store(f.value(1, I8), f.at(state, _PALETTE, I8))
        for tile in range(COUNT):
            some = widths.get(tile)
            width = f.value(ROW_BYTES, I8) if some is None else f.convert(some, I8)
            f.store(width, f.at(state, _ROW_BYTES_OF + 2 * tile, I8))
            count = rows.get(tile)
            height = f.value(ROWS, I8) if count is None else f.convert(count, I8)
            f.store(height, f.at(state, _ROWS_OF + tile, I8))
        self._load_configuration()

    def _load_configuration(self) -> None:
        self.f.call_void("llvm.x86.ldtilecfg", self.state)

    def release(self) -> None:
        """End to use tiles: nothing of them is left for the system to save."""
        self.f.call_void("llvm.x86.tilerelease")

    def zero(self, tile: int) -> None:
        """Set all rows to zero."""
        self.f.call_void("llvm.x86.tilezero", self._number(tile))

    def load(self, tile: int, pointer: Value, stride: Value | int) -> None:
        """Read rows that are *stride* bytes apart."""
        distance = self.f.value(stride, I64)
        self.f.call_void("llvm.x86.tileloadd64", self._number(tile), pointer, distance)

    def store(self, tile: int, pointer: Value, stride: Value | int) -> None:
        """Write rows that are *stride* bytes apart."""
        distance = self.f.value(stride, I64)
        self.f.call_void("llvm.x86.tilestored64", self._number(tile), pointer, distance)

    def multiply(self, sums: int, a: int, b: int) -> None:
        """Add to *sums*, float32, the product of two tiles of pairs of bfloat16.

        A row of *a* has 32 elements of one row of the left matrix; a row of *b* has
        two elements of each of 16 columns of the right one.
        """
        numbers = [self._number(tile) for tile in (sums, a, b)]
        self.f.call_void("llvm.x86.tdpbf16ps", *numbers)

    def multiply_bytes(self, sums: int, a: int, b: int, *, signed: bool) -> None:
        """Add to *sums*, int32, the product of two tiles of quads of bytes; it wraps.

        A row of *a* has 64 elements of one row of the left matrix, without a sign
        unless *signed*; a row of *b* has four elements, with one, of each of 16 columns
        of the right one.
        """
        numbers = [self._number(tile) for tile in (sums, a, b)]
        self.f.call_void(f"llvm.x86.tdpb{'s' if signed else 'u'}sd", *numbers)

    def _number(self, tile: int) -> Value:
        return self.f.value(tile, I8)


def state_bytes(isa: Isa) -> int:
    """Bytes that :class:`Tiles` needs: the configuration, and emulated tiles."""
    emulated = COUNT * TILE_BYTES if isa.tiles == "emulated" else 0
    return _CONFIGURATION_BYTES + emulated


def tiles_of(f: Function, isa: Isa, state: Value) -> Tiles:
    """The tiles of *isa* in a function.

    Args:
        state: memory of :func:`state_bytes`, 64-byte aligned, one for all functions
            that work on the same tiles.
    """
    return (EmulatedTiles if isa.tiles == "emulated" else Tiles)(f, state)


class EmulatedTiles(Tiles):
    """Tiles in memory, behind the configuration."""

    def _load_configuration(self) -> None:
        for tile in range(COUNT):
            self.zero(tile)

    def release(self) -> None:
        """Leave tiles of no rows, as the processor has until it is configured."""
        f = self.f
        f.store(f.zero(I32.vector(16)), self.state)

    def zero(self, tile: int) -> None:
        f = self.f
        place = self._place(tile)
        zeros = f.zero(_VECTOR)
        f.loop(ROWS, lambda row: f.store(zeros, f.at(place, row * ROW_BYTES, I8)))

    def load(self, tile: int, pointer: Value, stride: Value | int) -> None:
        self._copy(tile, pointer, stride, self._place(tile), ROW_BYTES)

    def store(self, tile: int, pointer: Value, stride: Value | int) -> None:
        self._copy(tile, self._place(tile), ROW_BYTES, pointer, stride)

    def _copy(
        self,
        tile: int,
        source: Value,
        source_stride: Value | int,
        target: Value,
        target_stride: Value | int,
    ) -> None:
        f = self.f
        width = f.load(f.at(self.state, _ROW_BYTES_OF + 2 * tile, I8), U8)
        mask = f.first_lanes(f.convert(width, I64) >> 2, LANES)

        def row(number: Value) -> None:
            place = f.at(source, number * source_stride, I8)
            value = f.load_masked(place, mask, _VECTOR)
            f.store_masked(value, f.at(target, number * target_stride, I8), mask)

        f.loop(self._rows(tile), row)

    def multiply(self, sums: int, a: int, b: int) -> None:
        _define_product(self.f.module)
        places = [self._place(tile) for tile in (sums, a, b)]
        self.f.call_void("tile_product", self._rows(sums), *places)

    def multiply_bytes(self, sums: int, a: int, b: int, *, signed: bool) -> None:
        name = _define_byte_product(self.f.module, signed=signed)
        places = [self._place(tile) for tile in (sums, a, b)]
        self.f.call_void(name, self._rows(sums), *places)

    def _rows(self, tile: int) -> Value:
        f = self.f
        return f.convert(f.load(f.at(self.state, _ROWS_OF + tile, I8), U8), I64)

    def _place(self, tile: int) -> Value:
        return self.f.at(self.state, _CONFIGURATION_BYTES + tile * TILE_BYTES, I8)


_PRODUCT_PARAMETERS: Final = (("rows", I64), ("sums", PTR), ("a", PTR), ("b", PTR))


def _define_byte_product(module: Module, *, signed: bool) -> str:
    """Define a function as the manual defines ``TDPBUSD`` and ``TDPBSSD``; its name."""
    name = f"tile_product_of_{'signed' if signed else 'unsigned'}_bytes"
    if module.defines(name):
        return name
    f = module.function(name, _PRODUCT_PARAMETERS, internal=True, inline=False)
    rows, sums, a, b = f.parameters
    vector = I32.vector(LANES)

    def byte(quads: Value, number: int, *, signed: bool) -> Value:
        above = quads << (24 - 8 * number)
        return (
            above >> 24 if signed else f.bitcast(f.bitcast(above, _BITS) >> 24, vector)
        )

    def row(number: Value) -> None:
        start = number * ROW_BYTES

        def quad(k: Value, total: Value) -> list[Value]:
            left = f.load_splat(f.at(f.at(a, start, I8), k, I32), vector)
            right = f.load(f.at(b, k * ROW_BYTES, I8), vector)
            for n in range(4):
                factors = byte(left, n, signed=signed), byte(right, n, signed=True)
                total = total + factors[0] * factors[1]
            return [total]

        place = f.at(sums, start, I8)
        (total,) = f.loop(ROW_BYTES // 4, quad, [f.load(place, vector)])
        f.store(total, place)

    f.loop(rows, row)
    f.finish()
    return name


def _define_product(module: Module) -> None:
    """Define ``tile_product(rows, sums, a, b)`` as the manual defines ``TDPBF16PS``.

    The first and the second elements of pairs are summed apart, from zero, by fused
    multiply-adds; both sums are added, and that is added to the tile.  Denormals count
    as zero, in and out.
    """
    if module.defines("tile_product"):
        return
    f = module.function(
        "tile_product", _PRODUCT_PARAMETERS, internal=True, inline=False
    )
    rows, sums, a, b = f.parameters

    def flushed(value: Value) -> Value:
        bits = f.bitcast(value, _BITS)
        is_normal = (bits & 0x7FFF_FFFF).compare("ge", 0x0080_0000)
        return f.bitcast(f.select(is_normal, bits, bits & 0x8000_0000), _VECTOR)

    def first_and_second(pairs: Value) -> tuple[Value, Value]:
        first, second = pairs << 16, pairs & 0xFFFF_0000
        return flushed(f.bitcast(first, _VECTOR)), flushed(f.bitcast(second, _VECTOR))

    def row(number: Value) -> None:
        start = number * ROW_BYTES

        def pair(k: Value, even: Value, odd: Value) -> list[Value]:
            left = f.load_splat(f.at(f.at(a, start, I8), k, U32), _BITS)
            right = f.load(f.at(b, k * ROW_BYTES, I8), _BITS)
            (a0, a1), (b0, b1) = first_and_second(left), first_and_second(right)
            return [flushed(f.fma(a0, b0, even)), flushed(f.fma(a1, b1, odd))]

        even, odd = f.loop(ROW_BYTES // 4, pair, [f.zero(_VECTOR)] * 2)
        place = f.at(sums, start, I8)
        total = flushed(f.load(place, _VECTOR)) + flushed(even + odd)
        f.store(flushed(total), place)

    f.loop(rows, row)
    f.finish()
