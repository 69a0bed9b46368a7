"""Copies of whole arrays that a caller may have bound to one memory."""

from __future__ import annotations

from onnxplug_compiler.ir.views import View
from onnxplug_cpu.compiler.codegen.emit import I8, I64, Module, Type, Value
from onnxplug_cpu.compiler.codegen.kernel import (
    Generator,
    Integer,
    Kernel,
    KernelWords,
    Pointer,
)
from onnxplug_cpu.compiler.commands.chunks import BYTES_PER_SECOND, chunks_for
from onnxplug_cpu.compiler.commands.recording import Recorder, call
from onnxplug_cpu.compiler.machine.isa import VECTOR_BYTES, Isa

_LINE = Type("u8", VECTOR_BYTES)


class CarryWords(KernelWords):
    """Words of :class:`CarryBytes`: where the bytes are and where they go, how many,
    and into how many parts they are divided."""

    source: Pointer
    target: Pointer
    nbytes: Integer
    parts: Integer


class CarryBytes(Generator):
    """Copies bytes, and does nothing where both arrays are one; a chunk is a part."""

    words = CarryWords.names

    def write(self, module: Module, name: str, isa: Isa) -> None:
        k = CarryWords(module, name)
        f = k.function
        f.branch(k.source.compare("ne", k.target), lambda: self._copy(k))
        f.finish()

    def _copy(self, k: CarryWords) -> None:
        f, parts, source, target = k.function, k.parts, k.source, k.target
        lines = k.nbytes // VECTOR_BYTES

        def copy(type_: Type, index: Value) -> None:
            f.store(f.load(f.at(source, index, I8), type_), f.at(target, index, I8))

        f.loop(
            lines * (k.chunk + 1) // parts,
            lambda line: copy(_LINE, line * VECTOR_BYTES),
            start=lines * k.chunk // parts,
        )
        is_last = (k.chunk + 1).compare("eq", parts)
        end = f.select(is_last, k.nbytes, f.value(0, I64))
        f.loop(end, lambda byte: copy(I8, byte), start=lines * VECTOR_BYTES)


def record_carry(
    recorder: Recorder, source: View, target: View, *, label: str = "Copy"
) -> None:
    """Copy *source* to *target*, of one layout without gaps, unless a run has both in
    one memory."""
    nbytes = target.nbytes
    parts = chunks_for(2 * nbytes / BYTES_PER_SECOND, recorder.target.workers)
    call(
        recorder,
        Kernel(CarryBytes()),
        {
            "source": source.address,
            "target": target.address,
            "nbytes": nbytes,
            "parts": parts,
        },
        chunks=parts,
        label=f"{label}: keep",
        nbytes=2 * nbytes,
    )
