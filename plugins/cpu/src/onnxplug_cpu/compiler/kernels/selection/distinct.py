"""The distinct elements of an array in order: equal ones follow each other once they
are sorted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxplug_cpu.compiler.codegen.emit import I8, I64, Module, Type, Value
from onnxplug_cpu.compiler.codegen.kernel import (
    Generator,
    Integer,
    KernelWords,
    Pointer,
)
from onnxplug_cpu.compiler.codegen.lanes import Lanes, Part, stored
from onnxplug_cpu.compiler.codegen.math.narrow import from_bf16, from_f16
from onnxplug_cpu.compiler.kernels.selection.keys import key_type, keys_of
from onnxplug_cpu.compiler.kernels.selection.sorting import DIGITS, Sort
from onnxplug_cpu.compiler.kernels.sweep import sweep
from onnxplug_cpu.compiler.machine.isa import LANES

if TYPE_CHECKING:
    from onnxplug_cpu.compiler.machine.isa import Isa


def scratch_bytes(element: str, size: int) -> int:
    """Bytes of memory to sort in."""
    return 4 * key_type(element).nbytes * (size + LANES) + 8 * DIGITS


class _Words(KernelWords):
    x: Pointer
    size: Integer
    scratch: Pointer
    values: Pointer
    firsts: Pointer
    inverse: Pointer
    counts: Pointer
    total: Pointer


class Distinct(Generator):
    """Each distinct element, where it is first, and how often; for each element which
    of them it is; one chunk.

    Attributes:
        element: of x.
    """

    element: str

    @property
    def words(self) -> tuple[str, ...]:
        return _Words.names

    def write(self, module: Module, name: str, isa: Isa) -> None:
        _Writer(self, _Words(module, name), isa)


class _Writer:
    """Writes the function."""

    def __init__(self, form: Distinct, k: _Words, isa: Isa) -> None:
        f = self.f = k.function
        self.k, self.isa = k, isa
        # bool is compared as bytes
        self.element = "u8" if form.element == "i1" else form.element
        self.key, self.stored = key_type(form.element), stored(self.element)
        self.lanes = Lanes(f, isa)
        self.lanes.reserve_for(self.element, False)
        k.keep(_Words.names)
        room = (k.size + LANES) * self.key.nbytes
        places = [f.at(k.scratch, room * number, I8) for number in range(5)]
        memory = [(places[0], places[1]), (places[2], places[3])]
        self.keys, self.numbers = places[:2]
        sort = Sort(f, self.lanes, self.key, memory, places[4])
        f.branch(k.size > 0, lambda: self._distinct(sort), self._nothing)
        f.finish()

    def _nothing(self) -> None:
        self.f.store(self.f.value(0, I64), self.k.total)

    def _distinct(self, sort: Sort) -> None:
        f, k = self.f, self.k

        def fill(first: Value, part: Part) -> None:
            found = self.lanes.load(self.element, f.at(k.x, first, self.stored), part)
            keys = keys_of(f, found, self.element, largest=False)
            f.store(keys, f.at(self.keys, first, self.key))
            start = f.convert(first, Type(f"i{self.key.bits}"))
            numbers = f.splat(f.bitcast(start, self.key), LANES)
            numbers = numbers + f.iota(self.key.vector(LANES))
            f.store(numbers, f.at(self.numbers, first, self.key))

        sweep(f, self.lanes, k.size, fill)
        order = sort.sort(k.size)

        def one(index: Value, last: Value, count: Value, start: Value) -> list[Value]:
            number = f.load(f.at(order, index, self.key), self.key)
            place = f.bitcast(f.convert(number, Type("u64")), I64)
            element = f.load(f.at(k.x, place, self.stored), self.stored.scalar)
            before = f.load(f.at(k.x, last, self.stored), self.stored.scalar)
            fresh = index.compare("eq", 0) | self._differ(element, before)

            def begin() -> list[Value]:
                f.store(element, f.at(k.values, count, self.stored))
                f.store(place, f.at(k.firsts, count, I64))
                return [count + 1, index]

            after, start = f.branch(fresh, begin, lambda: [count, start])
            f.store(after - 1, f.at(k.inverse, place, I64))
            f.store(index - start + 1, f.at(k.counts, after - 1, I64))
            return [place, after, start]

        _, total, _ = f.loop(k.size, one, [f.value(0, I64)] * 3, nonempty=True)
        f.store(total, k.total)

    def _differ(self, a: Value, b: Value) -> Value:
        if self.element in ("f16", "bf16"):
            a, b = (self._wide(bits) for bits in (a, b))
        if not a.type.is_float:
            return a.compare("ne", b)
        missing = a.compare("ne", a) & b.compare("ne", b)
        return a.compare("ne", b) & missing.compare("eq", 0)

    def _wide(self, bits: Value) -> Value:
        if self.element == "f16":
            return from_f16(self.f, self.isa, bits)
        return from_bf16(self.f, bits)
