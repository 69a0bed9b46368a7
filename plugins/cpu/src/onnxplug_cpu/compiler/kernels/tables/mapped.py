"""Look-ups of bytes in tables of 256.

With AVX512_VBMI four registers have a table: ``vpermi2b`` looks 64 bytes up in two of
them by seven bits, and the eighth bit chooses between both results.  Elsewhere bytes
are looked up one by one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from onnxplug_compiler.ir.views import View
from onnxplug_cpu.compiler.codegen.emit import I8, I64, Function, Module, Type, Value
from onnxplug_cpu.compiler.codegen.kernel import Generator, Kernel, KernelFunction
from onnxplug_cpu.compiler.commands.recording import Recorder, call
from onnxplug_cpu.compiler.kernels.elementwise.commands import cut_of, form_of
from onnxplug_cpu.compiler.kernels.loop_nest import UNIT, Walk, collapse
from onnxplug_cpu.compiler.kernels.movement.copy import record_copy

if TYPE_CHECKING:
    from onnxplug_cpu.compiler.machine.isa import Isa

_LANES: Final = 64
_UNROLLED: Final = 4
_NS: Final = 0.4  # for a byte, one by one
_U8: Final = Type("u8")
_BYTES: Final = Type("i8", _LANES)


_REGISTERS: Final = "avx512vbmi"
"""The feature that looks bytes up in registers."""


def maps_quickly(recorder: Recorder) -> bool:
    """See ``tables.Tables.maps_quickly``."""
    return recorder.target.isa.has(_REGISTERS)


def record_mapped(
    recorder: Recorder, x: View, table: View, out: View, label: str
) -> None:
    """See ``tables.Tables.record_mapped``."""
    if not out.size:
        return
    form = form_of(collapse((out, x)), (1, 1), 1)
    if form.kinds != (UNIT, UNIT):
        again = recorder.ordered_like(out, out.shape, x.dtype)
        record_copy(recorder, x, again)
        given, out_there = again, out
        if form.kinds[0] != UNIT:
            out_there = recorder.ordered_like(out, out.shape)
        form = form_of(collapse((out_there, given)), (1, 1), 1)
    else:
        out_there = out
    cut = cut_of(recorder, form, _NS * out.size)
    kernel = Mapped(len(cut.axes), cut.is_blocked)
    words = kernel.walk.values(form.addresses, cut.axes, cut.each)
    call(
        recorder,
        Kernel(kernel),
        words | {"columns": form.columns, "block": cut.block, "table": table.address},
        chunks=cut.chunks,
        label=f"{label} {out.size}",
        nbytes=x.nbytes + out.nbytes,
    )
    if out_there is not out:
        record_copy(recorder, out_there, out)


class Mapped(Generator):
    """A chunk is some items of the walk.

    Attributes:
        axes: of the walk, over rows.
        is_blocked: whether its first axis counts blocks of columns.
    """

    axes: int
    is_blocked: bool

    @property
    def walk(self) -> Walk:
        return Walk(("out", "x"), self.axes)

    @property
    def words(self) -> tuple[str, ...]:
        return (*self.walk.words, "columns", "block", "table")

    def write(self, module: Module, name: str, isa: Isa) -> None:
        k = KernelFunction(module, name, self.words)
        f, columns, block = k.function, k.integer("columns"), k.integer("block")
        table = k.pointer("table")
        vectors = _Registers(f, table) if isa.has(_REGISTERS) else None

        def row(pointers: list[Value], indices: list[Value]) -> None:
            count = columns
            if self.is_blocked:
                count = f.minimum(block, columns - indices[0] * block)
            out, x = pointers
            if vectors is not None:
                vectors.look_up(out, x, count)
            else:
                _look_up(f, table, out, x, count)

        self.walk.write(k, row)
        f.finish()


class _Registers:
    """A table in four registers."""

    def __init__(self, f: Function, table: Value) -> None:
        self.f = f
        self.parts = [f.load(f.at(table, n * _LANES, I8), _BYTES, 1) for n in range(4)]

    def look_up(self, out: Value, x: Value, count: Value) -> None:
        """Look up *count* bytes."""
        f, whole = self.f, count & -_LANES

        def vector(start: Value) -> None:
            codes = f.load(f.at(x, start, I8), _BYTES, 1)
            f.store(self._found(codes), f.at(out, start, I8), 1)

        f.loop(whole, vector, step=_LANES)

        def rest() -> None:
            mask = f.first_lanes(count - whole, _LANES)
            codes = f.load_masked(f.at(x, whole, I8), mask, _BYTES)
            f.store_masked(self._found(codes), f.at(out, whole, I8), mask)

        f.branch(whole < count, rest)

    def _found(self, codes: Value) -> Value:
        f, parts = self.f, self.parts
        low, high = (
            f.intrinsic(_BYTES, "llvm.x86.avx512.vpermi2var.qi.512", one, codes, other)
            for one, other in (parts[:2], parts[2:])
        )
        return f.select(codes.compare("lt", 0), high, low)


def _look_up(f: Function, table: Value, out: Value, x: Value, count: Value) -> None:
    """Look up *count* bytes, one by one."""

    def one(at: Value) -> None:
        code = f.convert(f.load(f.at(x, at, I8), _U8), I64)
        f.store(f.load(f.at(table, code, I8), I8), f.at(out, at, I8))

    def some(first: Value) -> None:
        for more in range(_UNROLLED):
            one(first + more)

    whole = count & -_UNROLLED
    f.loop(whole, some, step=_UNROLLED)
    f.loop(count, one, start=whole)
