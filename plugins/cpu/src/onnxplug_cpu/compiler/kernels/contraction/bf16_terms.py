"""Splits float32 into bfloat16 terms, in the layouts that tiles read.

``a = a1 + a2 + a3``, each term the bfloat16 nearest to what the ones before leave
(Henry, Tang, Heinecke: Leveraging the bfloat16 Artificial Intelligence Datatype For
Higher-Precision Computations, 2019).  Three times 8 bits are the 24 of float32, so the
sum is exact, unless a term is below the normal numbers, which tiles take for zero.
Numbers of fewer bits need fewer terms; and where lower precision is asked for, one term
stands for the number, which is rounded.

Both operands are cut along the depth of a tap into *steps* of 32.  A tile of pairs has
for each step and ``p`` the elements ``p`` and ``16 + p`` as a pair, so that a vector of
pairs is made of two vectors of float32 without a shuffle.

Of B a step has for each term two tiles, of the columns 0–15 and 16–31 of a panel.  Of A
the terms lie in *planes*, one for each step and term, which have a row of 64 bytes for
each *pixel*.  Pixels are as far apart as the rows, lines and taps of A have in common,
so that each element is split once, however many windows it is in, and the rows of a
tile are evenly spaced; those of a plain matrix are its rows.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from typing import Final, NamedTuple

from onnxplug_cpu.compiler.codegen.emit import (
    F32,
    I32,
    I64,
    U32,
    Function,
    Module,
    Type,
    Value,
)
from onnxplug_cpu.compiler.codegen.kernel import (
    FunctionArguments,
    Generator,
    Integer,
    KernelWords,
    Pointer,
)
from onnxplug_cpu.compiler.codegen.tile_registers import ROW_BYTES, TILE_BYTES
from onnxplug_cpu.compiler.kernels.contraction.pack import MatrixWords, PanelArguments
from onnxplug_cpu.compiler.kernels.contraction.tile import offset
from onnxplug_cpu.compiler.machine.isa import LANES, Isa

TERMS: Final = 3
"""Of any float32."""

STEP: Final = 32
"""Elements of K that one multiplication of tiles takes."""

BLOCK: Final = 32
"""Columns of B in a panel: two tiles."""

TERM_BYTES: Final = 2 * TILE_BYTES
"""A term of a step of a panel of B."""

PIXEL_BYTES: Final = ROW_BYTES
"""A pixel's row in a plane of A."""

FLAG_BYTES: Final = 4
"""A pixel's flag, an i32 that is not 0 if products with it are computed otherwise."""

_VECTOR, _BITS = F32.vector(LANES), U32.vector(LANES)
_HIGH_HALF = 0xFFFF_0000

_BITS_OF_TERM, _FRACTION_BITS = 8, 23
_INFINITE_BITS = 0x7F7F_8000  # what is not less becomes infinite as bfloat16


class Split(NamedTuple):
    """Two vectors as terms.

    Attributes:
        terms: pairs of bfloat16, the first vector's elements in the low halves.
        rest: a sum of what the first terms leave; NaN after Inf, NaN and what rounds to
            infinity.
    """

    terms: tuple[Value, ...]
    rest: Value


def split(
    f: Function, first: Value, second: Value, count: int, *, exact: bool = False
) -> Split:
    """Emit the split of two vectors of float32 into *count* terms, up to three.

    Args:
        exact: so many terms are all of the numbers, as three always are.
    """
    exact = exact or count == TERMS
    terms: list[Value] = []
    for _ in range(count - exact):
        low, high = _rounded(f, first), _rounded(f, second)
        terms.append((low >> 16) | high)
        first = first - f.bitcast(low, _VECTOR)
        second = second - f.bitcast(high, _VECTOR)
    if exact:
        # at most 8 bits are left, which need no rounding
        low, high = f.bitcast(first, _BITS), f.bitcast(second, _BITS)
        terms.append((low >> 16) | (high & _HIGH_HALF))
    rest = first + second
    # what rounds to infinity leaves infinity after one term, and NaN after two
    return Split(tuple(terms), rest - rest if count == 1 else rest)


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


def load_sum(f: Function, place: Value, count: int) -> tuple[Value, Value]:
    """The two vectors of float32 that a row of *count* terms was made of."""
    pairs = [f.load(offset(f, place, n * TERM_BYTES), _BITS) for n in range(count)]
    lows = [f.bitcast(pair << 16, _VECTOR) for pair in pairs]
    highs = [f.bitcast(pair & _HIGH_HALF, _VECTOR) for pair in pairs]
    return sum(lows[1:], lows[0]), sum(highs[1:], highs[0])


# A


class SplitArguments(FunctionArguments):
    """The arguments of the function that splits pixels of A.

    ``source``, the first pixel's address, and the bytes from a pixel to the next, which
    have ``depth`` consecutive elements; ``target``, where the first pixel is in the
    first plane, and the bytes of a ``plane``; and the pixels' ``flags``, all of which
    it sets.  Those that are flagged become zeros.
    """

    source: Pointer
    apart: Integer
    pixels: Integer
    depth: Integer
    target: Pointer
    plane: Integer
    flags: Pointer


def define_split_pixels(module: Module, terms: int) -> str:
    """Define the function that splits pixels of A into so many terms; its name."""
    f = module.function(
        "split_pixels", SplitArguments.parameters(), internal=True, inline=False
    )
    _SplitPixels(f, SplitArguments(*f.parameters), terms).write()
    return f.name


class _SplitPixels:
    """The loops over pixels and steps of their depth.

    What is left of a pixel's elements adds up to a sum that sticks to NaN.
    """

    def __init__(self, f: Function, arguments: SplitArguments, terms: int) -> None:
        self.f, self.arguments, self.terms = f, arguments, terms
        depth = arguments.depth
        self.whole = depth & -STEP
        self.left = depth - self.whole
        self.low_mask = f.first_lanes(self.left, LANES)
        self.high_mask = f.first_lanes(self.left - LANES, LANES)

    def write(self) -> None:
        self.f.loop(self.arguments.pixels, self._pixel)
        self.f.finish()

    def _pixel(self, number: Value) -> None:
        f, arguments = self.f, self.arguments
        start = offset(f, arguments.source, number * arguments.apart)
        place = offset(f, arguments.target, number * PIXEL_BYTES)
        step = functools.partial(self._step, start)
        place, left = f.loop(self.whole, step, [place, f.zero(_VECTOR)], step=STEP)
        (left,) = f.branch(
            self.left.compare("gt", 0),
            lambda: [self._tail(start, place, left)],
            lambda: [left],
        )
        bits = f.bitcast(left.compare("ne", left), Type("i16"))
        is_flagged = bits.compare("ne", 0)
        flag = f.convert(is_flagged, Type("u32"))
        f.store(flag, f.at(arguments.flags, number, I32))
        f.branch(is_flagged, lambda: self._clear(number))

    def _clear(self, number: Value) -> None:
        """Leave a pixel of zeros, as its products are added otherwise."""
        f, arguments = self.f, self.arguments
        place = offset(f, arguments.target, number * PIXEL_BYTES)
        steps = (arguments.depth + (STEP - 1)) // STEP

        def clear(plane: Value) -> None:
            f.store(f.zero(_VECTOR), offset(f, place, plane * arguments.plane))

        f.loop(steps * self.terms, clear)

    def _step(self, start: Value, k: Value, place: Value, left: Value) -> list[Value]:
        f = self.f
        low = f.load(f.at(start, k, F32), _VECTOR)
        high = f.load(f.at(start, k + LANES, F32), _VECTOR)
        left = self._put(place, low, high, left)
        return [offset(f, place, self.arguments.plane * self.terms), left]

    def _tail(self, start: Value, place: Value, left: Value) -> Value:
        f, whole = self.f, self.whole
        low = f.load_masked(f.at(start, whole, F32), self.low_mask, _VECTOR)
        place_of_high = f.at(start, whole + LANES, F32)
        high = f.load_masked(place_of_high, self.high_mask, _VECTOR)
        return self._put(place, low, high, left)

    def _put(self, place: Value, low: Value, high: Value, left: Value) -> Value:
        terms = split(self.f, low, high, self.terms)
        store_terms(self.f, terms, place, self.arguments.plane)
        return left + terms.rest


class SplitWords(KernelWords):
    """Words of :class:`SplitTerms`.

    ``a`` and its strides in bytes over two batch axes; how many ``pixels`` a matrix
    has, the bytes from a ``pixel`` to the next, and its ``depth`` in elements;
    ``batches1``, the size of the second batch axis; into how many ``parts`` pixels are
    divided; ``terms``, where they go, and the bytes of a matrix and of a ``plane``; and
    the ``flags``, and the bytes of those of a matrix.
    """

    a: Pointer
    a_batch0: Integer
    a_batch1: Integer
    pixels: Integer
    pixel: Integer
    depth: Integer
    batches1: Integer
    parts: Integer
    terms: Pointer
    terms_matrix: Integer
    plane: Integer
    flags: Pointer
    flags_matrix: Integer


class SplitTerms(Generator):
    """Splits all pixels of A; a chunk is a part of those of one matrix.

    Attributes:
        terms: of an element.
    """

    words = SplitWords.names
    terms: int = TERMS

    def write(self, module: Module, name: str, isa: Isa) -> None:
        split_pixels = define_split_pixels(module, self.terms)
        k = SplitWords(module, name)
        f = k.function
        parts, batches1 = k.parts, k.batches1
        matrix, part = k.chunk // parts, k.chunk % parts
        pixels, apart = k.pixels, k.pixel
        first = pixels * part // parts
        source = offset(f, k.a, (matrix // batches1) * k.a_batch0)
        source = offset(f, source, (matrix % batches1) * k.a_batch1)
        terms = offset(f, k.terms, matrix * k.terms_matrix)
        flags = offset(f, k.flags, matrix * k.flags_matrix)
        arguments = SplitArguments(
            source=offset(f, source, first * apart),
            apart=apart,
            pixels=pixels * (part + 1) // parts - first,
            depth=k.depth,
            target=offset(f, terms, first * PIXEL_BYTES),
            plane=k.plane,
            flags=offset(f, flags, first * FLAG_BYTES),
        )
        f.call_void(split_pixels, *arguments)
        f.finish()


# B


class PackTermsWords(MatrixWords):
    """Words of :class:`PackTerms`.

    ``target_batch``, the bytes of one packed matrix; the sizes of the matrix of a tap;
    how many ``taps``, and their ``offsets`` in the source; the size of the second batch
    axis; into how many ``parts`` its panels are divided; ``pack``, the function that
    copies rows and columns (:class:`~.pack.PackPanel`); and ``verdicts``, an i64 for
    each chunk: 0 if all elements are 0, or finite as bfloat16 and so large that no
    term is denormal, so that three are exact.
    """

    target_batch: Integer
    rows: Integer
    columns: Integer
    taps: Integer
    offsets: Pointer
    batches1: Integer
    parts: Integer
    pack: Pointer
    verdicts: Pointer


class PackTerms(Generator):
    """Splits matrices B; a chunk is a part of the panels of one matrix.

    A panel is :data:`BLOCK` columns: the steps of each tap, one after another.  What a
    matrix lacks of whole steps and panels is zero.

    Attributes:
        terms: of an element.
    """

    words = PackTermsWords.names
    terms: int = TERMS

    def write(self, module: Module, name: str, isa: Isa) -> None:
        _SplitPanels(PackTermsWords(module, name), self.terms).write()


_ROW_BYTES = 4 * BLOCK
"""Of the buffer that a step of a panel is copied to before it is split."""


class PackedPanels(ABC):
    """The loops over panels, taps and steps, of so many bytes; they carry what does not
    fit."""

    def __init__(self, k: PackTermsWords, step_bytes: int) -> None:
        self.k, self.step_bytes = k, step_bytes
        f = self.f = k.function
        self.parts, batches1 = k.parts, k.batches1
        matrix, self.part = k.chunk // self.parts, k.chunk % self.parts
        self.source = k.source_of(matrix, batches1)
        self.target = offset(f, k.target, matrix * k.target_batch)
        self.rows, self.columns = k.rows, k.columns
        self.row, self.column = k.row, k.column
        self.pack = k.pack
        self.steps = (self.rows + (STEP - 1)) // STEP
        self.panels = (self.columns + (BLOCK - 1)) // BLOCK
        self.taps, self.offsets = k.taps, k.offsets

    def write(self) -> None:
        f, k, part = self.f, self.k, self.part
        first = self.panels * part // self.parts
        end = self.panels * (part + 1) // self.parts
        (unfit,) = f.loop(end, self._panel, [f.zero(_BITS)], start=first)
        verdict = f.convert(f.reduce("or", unfit), I64)
        f.store(verdict, f.at(k.verdicts, k.chunk, I64))
        f.finish()

    def clear(self, place: Value, nbytes: int, start: Value | int = 0) -> None:
        """Zeros from byte *start* on, a multiple of a line as *nbytes* is."""
        f = self.f
        zeros = f.zero(_VECTOR)
        f.loop(
            nbytes,
            lambda at: f.store(zeros, offset(f, place, at)),
            start=start,
            step=ROW_BYTES,
        )

    def _panel(self, index: Value, unfit: Value) -> list[Value]:
        tap = functools.partial(self._tap, index)
        return self.f.loop(self.taps, tap, [unfit])

    def _tap(self, index: Value, tap: Value, unfit: Value) -> list[Value]:
        f = self.f
        distance = f.load(f.at(self.offsets, tap, I64), I64)
        start = offset(f, self.source, distance + index * BLOCK * self.column)
        count = f.minimum(self.columns - index * BLOCK, BLOCK)
        at = (index * self.taps + tap) * self.steps * self.step_bytes
        step = functools.partial(self.step, start, offset(f, self.target, at), count)
        return f.loop(self.steps, step, [unfit])

    @abstractmethod
    def step(
        self, start: Value, place: Value, count: Value, number: Value, unfit: Value
    ) -> list[Value]:
        """Pack so many columns of a step of the tap from *start* on, whose first one is
        packed at *place*."""


class _SplitPanels(PackedPanels):
    """The rows of a step are copied to a buffer, and split."""

    def __init__(self, k: PackTermsWords, terms: int) -> None:
        super().__init__(k, terms * TERM_BYTES)
        self.terms = terms
        self.buffer = self.f.stack(Type("i8"), STEP * _ROW_BYTES)

    def step(
        self, start: Value, place: Value, count: Value, number: Value, unfit: Value
    ) -> list[Value]:
        f = self.f
        # also beside few columns, of which only whole vectors are copied
        self.clear(self.buffer, STEP * _ROW_BYTES)
        first = number * STEP
        height = f.minimum(self.rows - first, STEP)
        arguments = PanelArguments(
            source=offset(f, start, first * self.row),
            row_stride=self.row,
            column_stride=self.column,
            rows=height,
            columns=count,
            target=self.buffer,
            width=f.value(_ROW_BYTES, I64),
        )
        f.call_pointer(self.pack, *arguments)
        here = offset(f, place, number * self.step_bytes)
        return f.loop(LANES, functools.partial(self._split_pair, here), [unfit])

    def _split_pair(self, here: Value, pair: Value, unfit: Value) -> list[Value]:
        f = self.f
        for half in range(2):
            low_at = offset(f, self.buffer, pair * _ROW_BYTES + half * ROW_BYTES)
            low = f.load(low_at, _VECTOR)
            high = f.load(offset(f, low_at, LANES * _ROW_BYTES), _VECTOR)
            place = offset(f, here, pair * ROW_BYTES + half * TILE_BYTES)
            store_terms(f, split(f, low, high, self.terms), place)
            for values in (low, high):
                unfit = unfit | _unfit(f, values, self.terms)
        return [unfit]


def _unfit(f: Function, values: Value, terms: int) -> Value:
    """Not 0 in lanes that so many terms, none of them denormal, do not stand for."""
    least = terms * _BITS_OF_TERM << _FRACTION_BITS
    size = f.bitcast(values, _BITS) & 0x7FFF_FFFF
    small = (size - 1).compare("lt", least - 1)  # which 0 is not, less 1
    bad = small | size.compare("ge", _INFINITE_BITS)
    return f.select(bad, f.value(1, _BITS), 0)
