"""Splits float32 into three bfloat16 terms, in the layouts that tiles read.

``a = a1 + a2 + a3``, each term the bfloat16 nearest to what the ones before leave
(Henry, Tang, Heinecke: Leveraging the bfloat16 Artificial Intelligence Datatype For
Higher-Precision Computations, 2019).  Three times 8 bits are the 24 of float32, so the
sum is exact, unless a term is below the normal numbers, which tiles take for zero.

Both operands are cut along the depth of a tap into *steps* of 32.  A tile of pairs has
for each step and ``p`` the elements ``p`` and ``16 + p`` as a pair, so that a vector of
pairs is made of two vectors of float32 without a shuffle.

Of B a step is :data:`STEP_BYTES`: for each term two tiles, of the columns 0–15 and
16–31 of a panel.  Of A the terms lie in *planes*, one for each step and term, which
have a row of 64 bytes for each *pixel*.  Pixels are as far apart as the rows, lines and
taps of A have in common, so that each element is split once, however many windows it
is in, and the rows of a tile are evenly spaced; those of a plain matrix are its rows.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from onnxplug_cpu.compiler.codegen.emit import (
    F32,
    I32,
    I64,
    PTR,
    U32,
    Function,
    Module,
    Type,
    Value,
)
from onnxplug_cpu.compiler.codegen.kernel import Generator, KernelFunction
from onnxplug_cpu.compiler.codegen.tile_registers import ROW_BYTES, TILE_BYTES
from onnxplug_cpu.compiler.kernels.contraction.tile import offset
from onnxplug_cpu.compiler.target.isa import LANES, Isa

TERMS: Final = 3

STEP: Final = 32
"""Elements of K that one multiplication of tiles takes."""

BLOCK: Final = 32
"""Columns of B in a panel: two tiles."""

TERM_BYTES: Final = 2 * TILE_BYTES
"""A term of a step of a panel of B."""

STEP_BYTES: Final = TERMS * TERM_BYTES

PIXEL_BYTES: Final = ROW_BYTES
"""A pixel's row in a plane of A."""

FLAG_BYTES: Final = 4
"""A pixel's flag, an i32 that is not 0 if products with it are computed otherwise."""

_VECTOR, _BITS = F32.vector(LANES), U32.vector(LANES)
_HIGH_HALF = 0xFFFF_0000

LEAST: Final = 2.0**-103
"""The least weight but 0 whose last term is a normal number."""

_LEAST_BITS = (127 - 103) << 23
_INFINITE_BITS = 0x7F7F_8000  # what is not less becomes infinite as bfloat16


class Split(NamedTuple):
    """Two vectors as terms.

    Attributes:
        terms: pairs of bfloat16, the first vector's elements in the low halves.
        rest: what is left after two terms, of both vectors; NaN after Inf, NaN and
            what rounds to infinity.
    """

    terms: tuple[Value, Value, Value]
    rest: tuple[Value, Value]


def split(f: Function, first: Value, second: Value) -> Split:
    """Emit the split of two vectors of float32."""
    terms: list[Value] = []
    for _ in range(TERMS - 1):
        low, high = _rounded(f, first), _rounded(f, second)
        terms.append((low >> 16) | high)
        first = first - f.bitcast(low, _VECTOR)
        second = second - f.bitcast(high, _VECTOR)
    # at most 8 bits are left, which need no rounding
    low, high = f.bitcast(first, _BITS), f.bitcast(second, _BITS)
    last = (low >> 16) | (high & _HIGH_HALF)
    return Split((terms[0], terms[1], last), (first, second))


def _rounded(f: Function, value: Value) -> Value:
    """The bits of the nearest bfloat16; of two, of the larger one."""
    return (f.bitcast(value, _BITS) + 0x8000) & _HIGH_HALF


def store_terms(
    f: Function, terms: Split, place: Value, apart: Value | int = TERM_BYTES
) -> None:
    """Write one row of a tile of each term, *apart* bytes from each other."""
    for term in terms.terms:
        f.store(term, place)
        place = offset(f, place, apart)


def load_sum(f: Function, place: Value) -> tuple[Value, Value]:
    """The two vectors of float32 that a row of terms was made of."""
    pairs = [f.load(offset(f, place, n * TERM_BYTES), _BITS) for n in range(TERMS)]
    lows = [f.bitcast(pair << 16, _VECTOR) for pair in pairs]
    highs = [f.bitcast(pair & _HIGH_HALF, _VECTOR) for pair in pairs]
    return (lows[0] + lows[1]) + lows[2], (highs[0] + highs[1]) + highs[2]


# A

_SPLIT_PIXELS = (
    ("source", PTR),
    ("apart", I64),
    ("pixels", I64),
    ("depth", I64),
    ("target", PTR),
    ("plane", I64),
    ("flags", PTR),
)


def define_split_pixels(module: Module) -> str:
    """Define the function that splits pixels of A; its name.

    Its arguments are the first pixel's address and the bytes between pixels, which have
    *depth* consecutive elements; where the first pixel is in the first plane, and the
    bytes of a plane; and the pixels' flags, all of which it sets.
    """
    f = module.function("split_pixels", _SPLIT_PIXELS, internal=True, inline=False)
    source, apart, pixels, depth, target, plane, flags = f.parameters
    whole = depth & -STEP
    left = depth - whole
    low_mask, high_mask = f.first_lanes(left, LANES), f.first_lanes(left - LANES, LANES)
    none = f.zero(_VECTOR)

    def pixel(number: Value) -> None:
        start = offset(f, source, number * apart)
        place = offset(f, target, number * PIXEL_BYTES)

        def put(place: Value, low: Value, high: Value, sticky: Value) -> Value:
            terms = split(f, low, high)
            store_terms(f, terms, place, plane)
            return sticky + (terms.rest[0] + terms.rest[1])

        def step(k: Value, place: Value, sticky: Value) -> list[Value]:
            low = f.load(f.at(start, k, F32), _VECTOR)
            high = f.load(f.at(start, k + LANES, F32), _VECTOR)
            sticky = put(place, low, high, sticky)
            return [offset(f, place, plane * TERMS), sticky]

        place, sticky = f.loop(whole, step, [place, none], step=STEP)

        def tail() -> list[Value]:
            low = f.load_masked(f.at(start, whole, F32), low_mask, _VECTOR)
            high = f.load_masked(f.at(start, whole + LANES, F32), high_mask, _VECTOR)
            return [put(place, low, high, sticky)]

        (sticky,) = f.branch(left.compare("gt", 0), tail, lambda: [sticky])
        bits = f.bitcast(sticky.compare("ne", sticky), Type("i16"))
        flag = f.convert(bits.compare("ne", 0), Type("u32"))
        f.store(flag, f.at(flags, number, I32))

    f.loop(pixels, pixel)
    f.finish()
    return f.name


_SPLIT_WORDS = (
    "a",
    "a_batch0",
    "a_batch1",
    "pixels",
    "pixel",
    "depth",
    "batches1",
    "parts",
    "terms",
    "terms_matrix",
    "plane",
    "flags",
    "flags_matrix",
)


class SplitTerms(Generator):
    """Splits all pixels of A; a chunk is a part of those of one matrix.

    Words: ``a`` and its strides in bytes over two batch axes; how many ``pixels`` a
    matrix has, the bytes from a ``pixel`` to the next, and its ``depth`` in elements;
    ``batches1``, the size of the second batch axis; into how many ``parts`` pixels are
    divided; ``terms``, where they go, and the bytes of a matrix and of a ``plane``; and
    the ``flags``, and the bytes of those of a matrix.
    """

    words = _SPLIT_WORDS

    def write(self, module: Module, name: str, isa: Isa) -> None:
        split_pixels = define_split_pixels(module)
        k = KernelFunction(module, name, self.words)
        f = k.function
        parts, batches1 = k.integer("parts"), k.integer("batches1")
        matrix, part = k.chunk // parts, k.chunk % parts
        pixels, apart = k.integer("pixels"), k.integer("pixel")
        first = pixels * part // parts
        source = offset(f, k.pointer("a"), (matrix // batches1) * k.integer("a_batch0"))
        source = offset(f, source, (matrix % batches1) * k.integer("a_batch1"))
        terms = offset(f, k.pointer("terms"), matrix * k.integer("terms_matrix"))
        flags = offset(f, k.pointer("flags"), matrix * k.integer("flags_matrix"))
        f.call_void(
            split_pixels,
            offset(f, source, first * apart),
            apart,
            pixels * (part + 1) // parts - first,
            k.integer("depth"),
            offset(f, terms, first * PIXEL_BYTES),
            k.integer("plane"),
            offset(f, flags, first * FLAG_BYTES),
        )
        f.finish()


# B

_PACK_WORDS = (
    "source",
    "batch0",
    "batch1",
    "row",
    "column",
    "target",
    "target_batch",
    "rows",
    "columns",
    "taps",
    "offsets",
    "batches1",
    "parts",
    "function",
    "verdicts",
)


class PackTerms(Generator):
    """Splits matrices B; a chunk is a part of the panels of one matrix.

    A panel is :data:`BLOCK` columns: the steps of each tap, one after another.  What a
    matrix lacks of whole steps and panels is zero.

    Words: ``source`` and its strides in bytes over two batch axes, rows and columns;
    ``target`` and the bytes of one packed matrix; the sizes of the matrix of a tap; how
    many ``taps``, and their ``offsets`` in the source; the size of the second batch
    axis; into how many ``parts`` its panels are divided; the function
    that copies rows and columns (:class:`~.pack.PackPanel`); and
    ``verdicts``, an i64 for each chunk: 0 if all elements are 0, or finite as bfloat16
    and not less than :data:`LEAST`, so that the terms are exact.
    """

    words = _PACK_WORDS

    def write(self, module: Module, name: str, isa: Isa) -> None:
        _write_pack(module, name, isa)


def _write_pack(module: Module, name: str, isa: Isa) -> None:
    k = KernelFunction(module, name, _PACK_WORDS)
    f = k.function
    row_bytes = 4 * BLOCK
    buffer = f.stack(Type("i8"), STEP * row_bytes)
    parts, batches1 = k.integer("parts"), k.integer("batches1")
    matrix, part = k.chunk // parts, k.chunk % parts
    source = offset(f, k.pointer("source"), (matrix // batches1) * k.integer("batch0"))
    source = offset(f, source, (matrix % batches1) * k.integer("batch1"))
    target = offset(f, k.pointer("target"), matrix * k.integer("target_batch"))
    rows, columns = k.integer("rows"), k.integer("columns")
    row, column = k.integer("row"), k.integer("column")
    function = k.pointer("function")
    steps = (rows + (STEP - 1)) // STEP
    panels = (columns + (BLOCK - 1)) // BLOCK
    zeros = f.zero(_VECTOR)

    taps, offsets = k.integer("taps"), k.pointer("offsets")

    def clear(start: Value | int) -> None:
        """Zeros in the rows from *start* on."""
        f.loop(
            STEP * (row_bytes // ROW_BYTES),
            lambda line: f.store(zeros, offset(f, buffer, line * ROW_BYTES)),
            start=start * (row_bytes // ROW_BYTES),
        )

    def panel(index: Value, unfit: Value) -> list[Value]:
        clear(0)  # also beside few columns, of which only whole vectors are copied
        return f.loop(taps, lambda tap, unfit: one_tap(index, tap, unfit), [unfit])

    def one_tap(index: Value, tap: Value, unfit: Value) -> list[Value]:
        distance = f.load(f.at(offsets, tap, I64), I64)
        start = offset(f, source, distance + index * BLOCK * column)
        count = f.minimum(columns - index * BLOCK, BLOCK)
        place = offset(f, target, (index * taps + tap) * steps * STEP_BYTES)

        def step(number: Value, unfit: Value) -> list[Value]:
            first = number * STEP
            height = f.minimum(rows - first, STEP)
            f.call_pointer(
                function,
                offset(f, start, first * row),
                row,
                column,
                height,
                count,
                buffer,
                f.value(row_bytes, I64),
            )
            clear(height)
            here = offset(f, place, number * STEP_BYTES)
            return f.loop(
                LANES, lambda pair, unfit: split_pair(here, pair, unfit), [unfit]
            )

        return f.loop(steps, step, [unfit])

    def split_pair(here: Value, pair: Value, unfit: Value) -> list[Value]:
        for half in range(2):
            low_at = offset(f, buffer, pair * row_bytes + half * ROW_BYTES)
            low = f.load(low_at, _VECTOR)
            high = f.load(offset(f, low_at, LANES * row_bytes), _VECTOR)
            place = offset(f, here, pair * ROW_BYTES + half * TILE_BYTES)
            store_terms(f, split(f, low, high), place)
            unfit = unfit | _unfit(f, low) | _unfit(f, high)
        return [unfit]

    first, end = panels * part // parts, panels * (part + 1) // parts
    (unfit,) = f.loop(end, panel, [f.zero(_BITS)], start=first)
    verdict = f.convert(f.reduce("or", unfit), I64)
    f.store(verdict, f.at(k.pointer("verdicts"), k.chunk, I64))
    f.finish()


def _unfit(f: Function, values: Value) -> Value:
    """Not 0 in lanes that three terms, none of them denormal, do not add up to."""
    size = f.bitcast(values, _BITS) & 0x7FFF_FFFF
    small = (size - 1).compare("lt", _LEAST_BITS - 1)  # which 0 is not, less 1
    bad = small | size.compare("ge", _INFINITE_BITS)
    return f.select(bad, f.value(1, _BITS), 0)
