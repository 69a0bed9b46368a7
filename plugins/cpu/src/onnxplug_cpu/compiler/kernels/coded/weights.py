"""Floats times weights that are codes: how they are read, and what is common to the
kernels of few rows and of many."""

from __future__ import annotations

from typing import NamedTuple

from onnxplug_compiler.ir.coded import Factor
from onnxplug_compiler.ir.elements import NARROW_FLOATS, element_of
from onnxplug_compiler.ir.parameters import Parameters
from onnxplug_compiler.ir.traced import smaller
from onnxplug_compiler.ir.views import View
from onnxplug_cpu.compiler.codegen.byte_products import multiplies_fours
from onnxplug_cpu.compiler.codegen.emit import Type, Value
from onnxplug_cpu.compiler.codegen.kernel import KernelFunction
from onnxplug_cpu.compiler.codegen.lanes import Lanes
from onnxplug_cpu.compiler.commands.words import Word
from onnxplug_cpu.compiler.kernels.contraction.tile import offset
from onnxplug_cpu.compiler.machine.isa import LANES, Isa

_REGISTERS = (64, 32)
"""Bytes of codes that are multiplied at once: the first where there is VNNI."""

_SHORTEST = 16
"""The fewest of these."""

_SCALES = 4
"""Of 16 bits, that become floats at once: for one alone that takes as long as half of
the products of a block of 32."""

_MOST_SUMMED = ((1 << 31) - 1) // (255 * 127)
"""Products of bytes of which int32 holds the sum."""

_VECTOR = Type("f32", LANES)
_ZERO_ELEMENTS = NARROW_FLOATS | {"u8", "i8"}


class Form(Parameters):
    """What code depends on of weights.

    Attributes:
        bits: of a code, 2, 4 or 8.
        signed: codes of 8 bits have a sign.
        lanes: bytes that are read at once, a power of two up to 16.
        scale: element of the scales.
        zero: element of the zero points, ``packed`` if they are codes as the weights
            are, or empty if there is one for all.
        dense: the scales of a column lie next to each other, and so do its zero points.
    """

    bits: int
    signed: bool
    lanes: int
    scale: str
    zero: str
    dense: bool

    @property
    def per_byte(self) -> int:
        """Codes of a byte."""
        return 8 // self.bits

    @property
    def step(self) -> int:
        """Codes that are read at once."""
        return self.lanes * self.per_byte


WEIGHT_WORDS = (
    "codes",
    "codes_block",
    "codes_column",
    "scale",
    "scale_block",
    "scale_column",
    "zero",
    "zero_block",
    "zero_column",
    "offset",
)
"""Of :class:`Weights`: addresses, and strides in bytes; over blocks that of packed zero
points is in bits.  ``offset`` is the zero point of all."""


class Weights(NamedTuple):
    """Weights whose columns are consecutive codes, in blocks that share a scale.

    Attributes:
        form: of their code.
        blocks: of each column.
        block: codes of a block.
        columns: how many.
        words: :data:`WEIGHT_WORDS`.
        view: the bytes of the codes.
        nbytes: of all that is read.
    """

    form: Form
    blocks: int
    block: int
    columns: int
    words: dict[str, Word]
    view: View
    nbytes: int

    @classmethod
    def of(cls, b: Factor) -> Weights:
        """Those of a factor ``[1, 1, *sums, columns]``.

        Raises:
            ValueError: elements are others than there are kernels of, or lie otherwise.
        """
        view, bits = b.codes.view, b.codes.bits or 8
        element = element_of(view.dtype)
        if b.scale is None or element not in ("u8", "i8"):
            raise ValueError(f"weights of {view.dtype} are not dequantised")
        scale_element = element_of(b.scale.dtype)
        if scale_element not in NARROW_FLOATS:
            raise ValueError(f"scales of {b.scale.dtype} are not taken")
        *sums, columns = view.shape[2:]
        if view.shape[:2] != (1, 1) or len(sums) > 2:
            raise ValueError(f"weights of {view.shape} are not one matrix of blocks")
        blocks, nbytes = (1, sums[0]) if len(sums) == 1 else sums
        strides = view.strides[2:] if len(sums) == 2 else (0, *view.strides[2:])
        if nbytes > 1 and strides[1] != 1:
            raise ValueError("columns of weights are not consecutive codes")
        if b.codes.bits and b.codes.axis != len(view.shape) - 2:
            raise ValueError("codes share bytes along another axis than blocks have")
        scale_block, scale_column = _shared(b.scale, len(sums))
        zero, zero_words = _zero(b, len(sums))
        lanes = smaller(LANES, nbytes & -nbytes)
        itemsize = b.scale.dtype.itemsize
        apart = None if b.zero is None else b.zero.view.dtype.itemsize
        dense = scale_block == 1 and (
            zero in ("", "packed") or zero_words["zero_block"] == apart
        )
        signed = element == "i8"
        form = Form(bits, signed, int(lanes), scale_element, zero, bool(dense))
        words: dict[str, Word] = {
            "codes": view.address,
            "codes_block": strides[0],
            "codes_column": strides[2],
            "scale": b.scale.address,
            "scale_block": scale_block * itemsize,
            "scale_column": scale_column * itemsize,
            **zero_words,
            "offset": b.offset,
        }
        read = columns * blocks * (nbytes + itemsize)
        block = nbytes * form.per_byte
        return cls(form, blocks, block, columns, words, view, read)

    @property
    def scales_at_once(self) -> int:
        """Blocks of a step whose scales are best read together."""
        form, nbytes = self.form, self.block // self.form.per_byte
        together = self.words["codes_block"] == nbytes == form.lanes and form.dense
        are_narrow = form.scale != "f32" and self.blocks % _SCALES == 0
        return _SCALES if together and are_narrow else 1

    @property
    def inner(self) -> int:
        """Codes of a column."""
        return self.blocks * self.block


class Reading(NamedTuple):
    """How codes are read that are multiplied as bytes.

    Attributes:
        lanes: bytes at once.
        spans: blocks that these are of.
    """

    lanes: int
    spans: int

    @classmethod
    def of(cls, weights: Weights, isa: Isa) -> Reading | None:
        """As many as there are instructions for; ``None`` if blocks are too short, or
        too long for sums of int32."""
        nbytes = weights.block // weights.form.per_byte
        if weights.form.signed or weights.block > _MOST_SUMMED or nbytes % _SHORTEST:
            return None
        # the codes, and the scales, of blocks next to each other
        together = weights.words["codes_block"] == nbytes and weights.form.dense
        for lanes in _REGISTERS if multiplies_fours(isa) else _REGISTERS[1:]:
            if nbytes % lanes == 0:
                return cls(lanes, 1)
            spans = lanes // nbytes
            if together and nbytes * spans == lanes and weights.blocks % spans == 0:
                return cls(lanes, spans)
        return cls(_SHORTEST, 1)


def _shared(view: View, sums: int) -> tuple[int, int]:
    """The strides of what blocks have over blocks and columns."""
    strides = view.strides[2:]
    if sums == 2:
        if strides[1] and view.shape[3] > 1:
            raise ValueError("codes of a block have scales of their own")
        return strides[0] if view.shape[2] > 1 else 0, strides[2]
    if strides[0] and view.shape[2] > 1:
        raise ValueError("codes of a column have scales of their own")
    return 0, strides[1]


def _zero(b: Factor, sums: int) -> tuple[str, dict[str, Word]]:
    """What zero points are, and their words."""
    if b.zero is None:
        return "", {"zero": 0, "zero_block": 0, "zero_column": 0}
    view = b.zero.view
    element = element_of(view.dtype)
    if element not in _ZERO_ELEMENTS:
        raise ValueError(f"zero points of {view.dtype} are not taken")
    block, column = _shared(view, sums)
    size = view.dtype.itemsize
    if b.zero.bits:
        if block > 1 or b.zero.bits != b.codes.bits:
            raise ValueError("zero points are packed otherwise than blocks lie")
        element, block = "packed", b.zero.bits
    else:
        block *= size
    words: dict[str, Word] = {
        "zero": view.address,
        "zero_block": block,
        "zero_column": column * size,
    }
    return element, words


class Codes:
    """Reads weights in a kernel; make it before any loop: it may take stack."""

    def __init__(self, k: KernelFunction, isa: Isa, form: Form) -> None:
        f = self.f = k.function
        self.form, self._isa = form, isa
        self.words: dict[str, Value] = {n: k.integer(n) for n in WEIGHT_WORDS}
        for name in ("codes", "scale", "zero"):
            self.words[name] = k.pointer(name)
        self._lanes = Lanes(f, isa, form.lanes)
        self._single = Lanes(f, isa, 4)
        self._middle: Value | None = None
        self._table: Value | None = None
        if not form.zero:
            middle = f.convert(self.words["offset"], Type("i32"))
            self._middle = f.splat(middle, form.lanes)
        if isa.name == "avx512" and form.bits < 8 and form.lanes == LANES:
            # of two codes of 2 bits, which four bits are, that of the first
            codes = [index % (1 << form.bits) for index in range(LANES)]
            self._table = f.table(codes, Type("f32"))
            if self._middle is not None:
                self._table = self._table - f.convert(self._middle, _VECTOR)

    def start(self, name: str, column: Value, block: Value | int = 0) -> Value:
        """Where codes, or scales or zero points, of a column begin."""
        words = self.words
        place = column * words[f"{name}_column"]
        if isinstance(block, Value):
            place = place + block * words[f"{name}_block"]
        return offset(self.f, words[name], place)

    def numbers(self, place: Value) -> list[Value]:
        """The codes of a step as f32, less the zero point if all have one: of each byte
        the first ones, and so on."""
        f, form = self.f, self.form
        stored = Type("i8" if form.signed else "u8", form.lanes)
        wide = Type("i32", form.lanes)
        whole = f.convert(f.load(place, stored, align=1), wide)
        if self._table is not None:
            # an instruction that heeds the lowest four bits of a lane
            places = [
                whole >> shift if shift else whole for shift in range(0, 8, form.bits)
            ]
            name = "llvm.x86.avx512.permvar.sf.512"
            return [f.intrinsic(_VECTOR, name, self._table, each) for each in places]
        found = self.parts(whole)
        if self._middle is not None:
            found = [part - self._middle for part in found]
        return [f.convert(part, wide.of("f32")) for part in found]

    def parts(self, whole: Value) -> list[Value]:
        """The codes of bytes, or of what was widened from these: of each byte the first
        ones, and so on."""
        form, found = self.form, []
        for number in range(form.per_byte):
            part = whole >> (number * form.bits) if number else whole
            if number < form.per_byte - 1:
                part = part & ((1 << form.bits) - 1)
            found.append(part)
        return found

    def scales(self, place: Value, count: int) -> Value:
        """*count* scales that lie next to each other."""
        lanes = Lanes(self.f, self._isa, count)
        element = self.form.scale
        return lanes.load(element, place, lanes.whole())

    def scale(self, place: Value) -> Value:
        """A scale in all lanes."""
        return self._lanes.load_splat(self.form.scale, place)

    def zero(self, pointer: Value, block: Value) -> Value:
        """The zero point of a block as f32, where there are several.

        Args:
            pointer: where those of the column begin.
        """
        f, form = self.f, self.form
        at = block * self.words["zero_block"]
        if form.zero == "packed":
            byte = f.load(offset(f, pointer, at >> 3), Type("u8"))
            code = f.convert(byte, Type("i32")) >> f.convert(at & 7, Type("i32"))
            return f.convert(code & ((1 << form.bits) - 1), Type("f32"))
        place = offset(f, pointer, at)
        if form.zero in ("u8", "i8"):
            code = f.load(place, Type(form.zero))
            return f.convert(f.convert(code, Type("i32")), Type("f32"))
        return f.lane(self._single.load_splat(form.zero, place), 0)
