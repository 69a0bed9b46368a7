"""The left factor of weights that are codes, as their kernels read it."""

from __future__ import annotations

from onnxplug_cpu.compiler.codegen.emit import F32, I32, Function, Module, Type, Value
from onnxplug_cpu.compiler.codegen.kernel import (
    Generator,
    Integer,
    KernelWords,
    Pointer,
)
from onnxplug_cpu.compiler.codegen.lanes import Lanes, stored
from onnxplug_cpu.compiler.kernels.contraction.tile import offset
from onnxplug_cpu.compiler.machine.isa import Isa


class RowWords(KernelWords):
    """Words of :class:`OrderRows`; strides are in bytes.

    - ``a`` with ``a_row``, rows of consecutive elements, and ``out`` with ``out_row``,
      which receives them as f32;
    - ``blocks``, of ``steps`` each;
    - ``sums`` with ``sums_row``, f32, receives the sum of each block.
    """

    a: Pointer
    a_row: Integer
    out: Pointer
    out_row: Integer
    blocks: Integer
    steps: Integer
    sums: Pointer
    sums_row: Integer


class OrderRows(Generator):
    """Puts the elements of each step of a row in the order of the codes: first those
    that meet the first code of a byte, then the second ones.  A chunk is a row.

    Attributes:
        element: ``f32``, ``f16`` or ``bf16``.
        lanes: bytes of a step.
        per_byte: codes of a byte.
    """

    element: str
    lanes: int
    per_byte: int

    words = RowWords.names

    def write(self, module: Module, name: str, isa: Isa) -> None:
        k = RowWords(module, name)
        f = k.function
        lanes = Lanes(f, isa, self.lanes)
        from_, to = stored(self.element, self.lanes), Type("f32", self.lanes)
        source = offset(f, k.a, k.chunk * k.a_row)
        target = offset(f, k.out, k.chunk * k.out_row)
        sums = offset(f, k.sums, k.chunk * k.sums_row)
        step, steps = self.lanes * self.per_byte, k.steps

        def block(number: Value) -> None:
            first = number * (steps * step)

            def one(index: Value, total: Value) -> list[Value]:
                at = first + index * step
                found = [
                    lanes.load(
                        self.element,
                        f.at(source, at + self.lanes * part, from_),
                        lanes.whole(),
                    )
                    for part in range(self.per_byte)
                ]
                for part, value in enumerate(apart(f, found)):
                    f.store(value, f.at(target, at + self.lanes * part, to))
                    total = total + value
                return [total]

            (total,) = f.loop(steps, one, [f.zero(to)], nonempty=True)
            f.store(f.reduce("fadd", total), f.at(sums, number, F32))

        f.loop(k.blocks, block)
        f.finish()


class RoundWords(RowWords):
    """Words of :class:`RoundRows`: ``scales`` with ``scales_row`` receives the scales
    of blocks, each in the lanes of their sums; ``middle`` is the zero point of all."""

    scales: Pointer
    scales_row: Integer
    middle: Integer


class RoundRows(Generator):
    """Rounds the elements of each block of a row to bytes, of which the largest is 127,
    and puts them in the order of the codes.  A chunk is a row.

    The sums of blocks are those of what was rounded, with its scale.

    Attributes:
        element: ``f32``, ``f16`` or ``bf16``.
        lanes: bytes of codes that are read at once.
        spans: blocks that these are of.
        per_byte: codes of a byte.
        starts: the sums of blocks are i32, in the lanes of scales, and begin sums of
            products: what was rounded times the zero point, to be taken away, is in
            the first lane.
    """

    element: str
    lanes: int
    spans: int
    per_byte: int
    starts: bool

    words = RoundWords.names

    def write(self, module: Module, name: str, isa: Isa) -> None:
        _Rounding(RoundWords(module, name), isa, self).write()


class _Rounding:
    """The loop over the blocks of a row, of whose bytes of codes a part is a step's."""

    def __init__(self, k: RoundWords, isa: Isa, form: RoundRows) -> None:
        self.k, self.form = k, form
        f = self.f = k.function
        self.width = form.lanes // form.spans
        self.lanes = Lanes(f, isa, self.width)
        self.from_ = stored(form.element, self.width)
        self.vector = Type("f32", self.width)
        self.source = offset(f, k.a, k.chunk * k.a_row)
        self.target = offset(f, k.out, k.chunk * k.out_row)
        self.sums = offset(f, k.sums, k.chunk * k.sums_row)
        self.scales = offset(f, k.scales, k.chunk * k.scales_row)
        self.steps = k.steps
        self.middle = f.convert(k.middle, I32)

    def write(self) -> None:
        self.f.loop(self.k.blocks, self._block)
        self.f.finish()

    def _load(self, first: Value, step: Value) -> list[Value]:
        """The elements of a step, in the order in which they lie."""
        f, count, lanes = self.f, self.form.per_byte, self.lanes
        at = first + step * (self.width * count)
        return [
            lanes.load(
                self.form.element,
                f.at(self.source, at + self.width * part, self.from_),
                lanes.whole(),
            )
            for part in range(count)
        ]

    def _block(self, number: Value) -> None:
        f, form = self.f, self.form
        first = number * (self.steps * (self.width * form.per_byte))

        bits = self.vector.of("u32")

        def largest(step: Value, top: Value) -> list[Value]:
            # without a sign, floats have the order of their bits, and NaN is the last
            for value in self._load(first, step):
                top = f.maximum(top, f.bitcast(value, bits) & 0x7FFF_FFFF)
            return [top]

        (top,) = f.loop(self.steps, largest, [f.zero(bits)], nonempty=True)
        scale = f.bitcast(f.reduce("umax", top), F32) / 127.0
        inverse = f.select(scale.compare("eq", 0.0), f.value(0.0, F32), 1.0 / scale)
        factor = f.splat(inverse, self.width)
        wide = Type("i32", self.width)

        def rounded(step: Value, total: Value) -> list[Value]:
            parts = apart(f, self._load(first, step))
            for part, value in enumerate(parts):
                # of what is not finite any integer is made, as the scale is not either
                whole = f.convert_finite(f.unary("roundeven", value * factor), wide)
                place = self._place(number, step, part)
                f.store(f.convert(whole, wide.of("i8")), place, align=1)
                total = total + whole
            return [total]

        (total,) = f.loop(self.steps, rounded, [f.zero(wide)], nonempty=True)
        lanes, sum_ = form.lanes // 4 // form.spans, f.reduce("add", total)
        if form.starts:
            begin = f.insert(f.zero(I32.vector(lanes)), -(sum_ * self.middle), 0)
            f.store(begin, f.at(self.sums, number * lanes, I32), align=4)
        else:
            scaled = f.convert(sum_, F32) * scale
            f.store(scaled, f.at(self.sums, number, F32))
        f.store(f.splat(scale, lanes), f.at(self.scales, number * lanes, F32), align=4)

    def _place(self, number: Value, step: Value, part: int) -> Value:
        """Where what meets the codes of a place within bytes belongs."""
        f, form = self.f, self.form
        byte = (number * self.steps + step) * self.width
        group, within = byte // form.lanes, byte % form.lanes
        at = group * (form.lanes * form.per_byte) + part * form.lanes + within
        return offset(f, self.target, at)


def apart(f: Function, vectors: list[Value]) -> list[Value]:
    """Consecutive elements, every n-th of them together, where *n* vectors are given:
    1, 2 or 4."""
    lanes, count = vectors[0].type.lanes, len(vectors)
    if count == 1:
        return vectors
    first, second = vectors[0], vectors[-1]
    if count > 2:
        first, second = (
            f.shuffle(a, b, range(2 * lanes)) for a, b in (vectors[:2], vectors[2:])
        )
    return [
        f.shuffle(first, second, [part + count * lane for lane in range(lanes)])
        for part in range(count)
    ]
