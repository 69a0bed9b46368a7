"""What zero points take away from products: ``scale * zero * (sum of x)``, block by
block."""

from __future__ import annotations

from onnxplug_cpu.compiler.codegen.emit import F32, Type, Value
from onnxplug_cpu.compiler.codegen.kernel import KernelFunction
from onnxplug_cpu.compiler.codegen.lanes import Lanes, stored
from onnxplug_cpu.compiler.kernels.coded.weights import Codes
from onnxplug_cpu.compiler.kernels.contraction.tile import multiply_add, offset
from onnxplug_cpu.compiler.machine.isa import LANES, Isa

_VECTOR = F32.vector(LANES)


class ZeroPoints:
    """The zero points of one kernel; make it before any loop."""

    def __init__(self, k: KernelFunction, isa: Isa, codes: Codes, middle: int) -> None:
        self.f, self.isa, self.codes, self.middle = k.function, isa, codes, middle
        self._lanes = Lanes(self.f, isa)

    def taken(self, column: Value, blocks: Value, sums: list[Value]) -> list[Value]:
        """What is taken away from a column of some rows.

        Args:
            sums: where those of the blocks of each row are.
        """
        f, form = self.f, self.codes.form
        scale = self.codes.start("scale", column)
        zero = self.codes.start("zero", column)
        found, done = [f.zero(F32)] * len(sums), f.value(0, blocks.type)
        if form.dense:
            done = blocks & -LANES
            vectors = f.loop(
                done,
                lambda at, *carried: self._some(at, scale, zero, sums, list(carried)),
                [f.zero(_VECTOR)] * len(sums),
                step=LANES,
            )
            found = [f.reduce("fadd", vector) for vector in vectors]
        return f.loop(
            blocks,
            lambda at, *carried: self._one(at, scale, zero, sums, list(carried)),
            found,
            start=done,
        )

    def _one(
        self,
        at: Value,
        scale: Value,
        zero: Value,
        sums: list[Value],
        carried: list[Value],
    ) -> list[Value]:
        f, codes = self.f, self.codes
        place = offset(f, scale, at * codes.words["scale_block"])
        weight = f.lane(codes.scale(place), 0)
        weight = weight * self._from_middle(codes.zero(zero, at))
        return [
            multiply_add(f, self.isa, weight, f.load(f.at(each, at, F32), F32), total)
            for each, total in zip(sums, carried, strict=True)
        ]

    def _some(
        self,
        at: Value,
        scale: Value,
        zero: Value,
        sums: list[Value],
        carried: list[Value],
    ) -> list[Value]:
        """Those of as many blocks as a vector has lanes."""
        f, form, lanes = self.f, self.codes.form, self._lanes
        place = f.at(scale, at, stored(form.scale))
        weight = lanes.load(form.scale, place, lanes.whole())
        if form.zero == "packed":
            found = self._unpacked(offset(f, zero, (at * form.bits) >> 3))
        else:
            beginning = f.at(zero, at, stored(form.zero))
            found = lanes.load(form.zero, beginning, lanes.whole())
            if not found.type.is_float:
                found = f.convert(f.convert(found, Type("i32", LANES)), _VECTOR)
        weight = weight * self._from_middle(found)
        return [
            multiply_add(
                f, self.isa, weight, f.load(f.at(each, at, F32), _VECTOR), total
            )
            for each, total in zip(sums, carried, strict=True)
        ]

    def _from_middle(self, zero: Value) -> Value:
        return zero - float(self.middle) if self.middle else zero

    def _unpacked(self, place: Value) -> Value:
        """As many zero points as a vector has lanes, as f32."""
        f, bits = self.f, self.codes.form.bits
        raw = f.load(place, Type("u8", LANES * bits // 8), align=1)
        parts = [
            (raw >> shift) & ((1 << bits) - 1) if shift else raw & ((1 << bits) - 1)
            for shift in range(0, 8, bits)
        ]
        whole, count = parts, len(parts)
        while len(whole) > 1:
            whole = [
                f.shuffle(a, b, range(2 * a.type.lanes))
                for a, b in zip(whole[::2], whole[1::2], strict=True)
            ]
        each = LANES // count
        order = [part * each + lane for lane in range(each) for part in range(count)]
        codes = f.shuffle(whole[0], whole[0], order)
        return f.convert(f.convert(codes, Type("i32", LANES)), _VECTOR)
