"""Panels of floats that are made of weights that are codes.

Words of 16 columns become lanes of a vector, and each code of a word the number that it
stands for, by its bits: they are the lowest ones of a float whose others are known.  So
codes are rows of the panel, and scales and zero points are vectors, too.
"""

from __future__ import annotations

from typing import Final

from onnxplug_cpu.compiler.codegen.emit import F32, I64, Function, Type, Value
from onnxplug_cpu.compiler.codegen.kernel import KernelFunction
from onnxplug_cpu.compiler.codegen.lanes import Lanes
from onnxplug_cpu.compiler.kernels.coded.weights import Codes
from onnxplug_cpu.compiler.kernels.contraction.pack import transpose_quarters
from onnxplug_cpu.compiler.kernels.contraction.tile import offset
from onnxplug_cpu.compiler.machine.isa import LANES, VECTOR_BYTES, Isa

_VECTOR: Final = F32.vector(LANES)
_WORDS: Final = Type("u32", LANES)
_WORD: Final = 4  # bytes
_MANTISSA, _BIAS = 23, 127

TOGETHER: Final = 4
"""Blocks whose scales are read together."""


class Panel:
    """A panel while it is made.

    Args:
        column, count: the first of its columns, and how many.
        target: where its rows begin.

    Attributes:
        width: bytes of a row.
    """

    def __init__(
        self,
        k: KernelFunction,
        isa: Isa,
        codes: Codes,
        column: Value,
        count: Value,
        target: Value,
    ) -> None:
        self.f, self.codes = k.function, codes
        self.column, self.count, self.target = column, count, target
        self.lanes = Lanes(self.f, isa)
        self.width = (count * F32.nbytes + (VECTOR_BYTES - 1)) & -VECTOR_BYTES

    def columns(self, first: Value) -> Columns:
        """16 of them, from the one with number *first* on."""
        return Columns(self, first)

    def middle(self) -> Value:
        """The zero point of all weights."""
        f = self.f
        return f.splat(f.convert(self.codes.words["offset"], F32), LANES)

    def make(self, first: Value, steps: Value, of_block: Value) -> None:
        """Write the rows of *steps* steps from number *first* on, of which a block has
        *of_block*; those of a step in the order of :class:`~.rows.OrderRows`."""
        f = self.f
        begin = [first // of_block, first % of_block]
        numbers = Numbers(self)

        def columns(group: Value) -> None:
            some, target = self.columns(group), f.at(self.target, group, F32)
            row = self.width * self.codes.form.step

            def step(_: Value, block: Value, rest: Value, to: Value) -> list[Value]:
                some.make(numbers, block, rest, to)
                is_last = (rest + 1).compare("eq", of_block)
                none = f.value(0, I64)
                return [
                    f.select(is_last, block + 1, block),
                    f.select(is_last, none, rest + 1),
                    offset(f, to, row),
                ]

            f.loop(steps, step, [*begin, target])

        f.loop(self.count, columns, step=LANES)


class Numbers:
    """What codes in words stand for, less the zero point of all; make it before any
    loop."""

    def __init__(self, panel: Panel) -> None:
        f, form = self.f, self.form = panel.f, panel.codes.form
        self._fit = _MANTISSA // form.bits * form.bits
        middle = f.zero(_VECTOR) if form.zero else panel.middle()
        self._less = [
            middle + (2.0 ** (_MANTISSA - first) + 128.0 * form.signed)
            for first in range(0, self._fit, form.bits)
        ]

    def of(self, word: Value, count: int) -> list[Value]:
        """The first *count* codes of a word."""
        f, bits, found = self.f, self.form.bits, []
        if self.form.signed:
            word = word ^ 0x80808080
        for number in range(count):
            turn, first = divmod(number * bits, self._fit)
            if turn and not first:
                word = word >> self._fit
            # a float of such an exponent is the code more than this power of two
            exponent = (_BIAS + _MANTISSA - first) << _MANTISSA
            field = word & (((1 << bits) - 1) << first) | exponent
            found.append(f.bitcast(field, _VECTOR) - self._less[first // bits])
        return found


class Columns:
    """16 columns of a panel from the one with number *first* on.

    Those that it has not are read where the last one is.
    """

    def __init__(self, panel: Panel, first: Value) -> None:
        f, self.panel = panel.f, panel
        self.f, self.codes, self.form = f, panel.codes, panel.codes.form
        last = panel.count - 1
        numbers = [
            panel.column + f.minimum(first + lane, last) for lane in range(LANES)
        ]
        names = ["codes", "scale", *(["zero"] if self.form.zero else [])]
        self.places = {
            name: [panel.codes.start(name, number) for number in numbers]
            for name in names
        }

    def make(self, numbers: Numbers, block: Value, rest: Value, target: Value) -> None:
        """Write a step of a block, of which *rest* steps are before, as floats."""
        f, form, width = self.f, self.form, self.panel.width
        scale = self.scales(block)
        zero = self.zeros(block) if form.zero else None
        codes = min(form.lanes, _WORD) * form.per_byte
        self.prefetch(block, rest)
        for at, word in enumerate(self.words(block, rest)):
            for number, value in enumerate(numbers.of(word, codes)):
                byte, part = divmod(number, form.per_byte)
                row = part * form.lanes + at * _WORD + byte
                less = value if zero is None else value - zero
                f.store(less * scale, offset(f, target, width * row))

    def prefetch(self, block: Value, rest: Value) -> None:
        """Ask for a step of the columns of the next panel."""
        f, words = self.f, self.codes.words
        ahead = block * words["codes_block"] + rest * self.form.lanes
        ahead = ahead + words["codes_column"] * self.panel.count
        for begin in self.places["codes"]:
            f.prefetch(offset(f, begin, ahead))

    def words(self, block: Value, rest: Value) -> list[Value]:
        """The words of a step, one column's in each lane; of shorter steps the bytes
        that there are."""
        f, lanes, words = self.f, self.form.lanes, self.codes.words
        place = block * words["codes_block"] + rest * lanes
        places = [offset(f, begin, place) for begin in self.places["codes"]]
        if lanes == LANES:
            quarter = F32.vector(LANES // _WORD)
            loaded = [f.load(each, quarter, align=1) for each in places]
            return [f.bitcast(each, _WORDS) for each in _turned(f, loaded)]
        type_ = Type(f"u{8 * min(lanes, _WORD)}", LANES)
        found = []
        for at in range(0, lanes, _WORD):
            word = f.zero(type_)
            for lane, each in enumerate(places):
                one = f.load(offset(f, each, at), type_.scalar, align=1)
                word = f.insert(word, one, lane)
            found.append(f.convert(word, _WORDS))
        return found

    def scales(self, block: Value) -> Value:
        """The scales of a block, one for each column."""
        at = block * self.codes.words["scale_block"]
        places = [offset(self.f, place, at) for place in self.places["scale"]]
        return self.panel.lanes.collect(self.form.scale, places)

    def scales_of_some(self, block: Value) -> list[Value]:
        """Those of :data:`TOGETHER` blocks, where scales are dense."""
        at = block * self.codes.words["scale_block"]
        return _turned(
            self.f,
            [
                self.codes.scales(offset(self.f, place, at), TOGETHER)
                for place in self.places["scale"]
            ],
        )

    def zeros(self, block: Value) -> Value:
        """The zero points of a block, one for each column."""
        f, form, words = self.f, self.form, self.codes.words
        if not form.zero:
            return self.panel.middle()
        at = block * words["zero_block"]
        packed = form.zero == "packed"
        places = [
            offset(f, place, at >> 3 if packed else at) for place in self.places["zero"]
        ]
        found = self.panel.lanes.collect("u8" if packed else form.zero, places)
        if found.type.is_float:
            return found
        code = f.convert(found, Type("i32", LANES))
        if packed:
            code = code >> f.splat(f.convert(at & 7, Type("i32")), LANES)
            code = code & ((1 << form.bits) - 1)
        return f.convert(code, _VECTOR)


def _turned(f: Function, columns: list[Value]) -> list[Value]:
    """The elements of 16 columns, four of each, as vectors that have one of each."""
    # lane 4 g + e of vector r is element e of column 4 g + r
    return transpose_quarters(f, [joined(f, columns[r::_WORD]) for r in range(_WORD)])


def joined(f: Function, parts: list[Value]) -> Value:
    """Vectors one after the other, a power of two of them."""
    while len(parts) > 1:
        both = range(2 * parts[0].type.lanes)
        parts = [
            f.shuffle(a, b, both) for a, b in zip(parts[::2], parts[1::2], strict=True)
        ]
    return parts[0]
