"""The left factor of weights that are codes, as their kernels read it."""

from __future__ import annotations

from onnxplug_cpu.compiler.codegen.emit import F32, Function, Module, Type, Value
from onnxplug_cpu.compiler.codegen.kernel import (
    Float,
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
    - ``sums`` with ``sums_row``, f32, receives the sum of each block times ``factor``.
    """

    a: Pointer
    a_row: Integer
    out: Pointer
    out_row: Integer
    blocks: Integer
    steps: Integer
    sums: Pointer
    sums_row: Integer
    factor: Float


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
        step, steps, factor = self.lanes * self.per_byte, k.steps, k.factor

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
            f.store(f.reduce("fadd", total) * factor, f.at(sums, number, F32))

        f.loop(k.blocks, block)
        f.finish()


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
