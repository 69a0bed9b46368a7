"""Runs recorded commands one by one on one thread, for tests of single kernels."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from onnxplug.authoring.entries import Cache
from onnxplug_compiler.ir.buffers import (
    Address,
    Buffer,
    Constant,
    Flag,
    Input,
    Output,
    Packed,
)
from onnxplug_compiler.ir.views import View
from onnxplug_cpu.compiler.codegen.emit import Module
from onnxplug_cpu.compiler.codegen.kernel import Kernel
from onnxplug_cpu.compiler.commands.recording import Recorder
from onnxplug_cpu.compiler.commands.words import Code, Command, Word, Words
from onnxplug_cpu.compiler.cpu_target import CpuTarget
from onnxplug_cpu.compiler.machine.isa import AVX2, AVX512, NEON, SSE, Isa, host_isa
from onnxplug_cpu.compiler.runtime.jit import Library
from onnxplug_cpu.compiler.runtime.program import PackingRefused

from . import emulator

llvm.initialize_native_target()
llvm.initialize_native_asmprinter()
_HOST = host_isa()
ON_X86 = _HOST is not None and _HOST.triple == SSE.triple
ON_ARM = _HOST is not None and _HOST.triple == NEON.triple
libraries: dict[Isa, Library] = {}
"""What compiled the kernels that were run, by processor."""
_verified: set[Kernel] = set()


def source(kernel: Kernel, isa: Isa) -> str:
    """The kernel's module as text; its function is called ``kernel``."""
    module = Module(fuses=isa.fuses)
    kernel.generator.write(module, "kernel", isa)
    return module.text(isa.attributes)


def target_machine(isa: Isa, *, jit: bool) -> Any:
    return llvm.Target.from_triple(isa.triple).create_target_machine(
        cpu=isa.cpu,
        features=isa.features,
        opt=1,
        reloc="pic",
        codemodel="jitdefault" if jit else "default",
        jit=jit,
    )


def assembly(kernel: Kernel, isa: Isa) -> str:
    """The kernel's assembly, to look for spills in."""
    module = llvm.parse_assembly(source(kernel, isa))
    module.verify()
    return str(target_machine(isa, jit=False).emit_assembly(module))


def address(kernel: Kernel, isa: Isa) -> int:
    """The address of the kernel's compiled function."""
    if isa not in libraries:
        libraries[isa] = Library(isa, Cache("onnxplug-cpu", limit=0))
    # a process that compiles for an emulated one verifies, too (tests/arm64)
    if kernel not in _verified and "compiled_by_host" not in sys.modules:
        llvm.parse_assembly(source(kernel, isa)).verify()
        _verified.add(kernel)
    return libraries[isa].addresses([kernel])[kernel]


def _function(kernel: Kernel, isa: Isa) -> Callable[[int, int, int], object]:
    # an instruction that the processor lacks would end the process
    every = (*ISAS, SSE) if ON_X86 else ISAS
    allowed = {way for one in every for way in (one.name, (one.triple, one.cpu))}
    assert isa == host_isa() or allowed & {isa.name, (isa.triple, isa.cpu)}, isa.name
    place = address(kernel, isa)
    if isa.triple == NEON.triple and not ON_ARM:
        return emulator.function(place)
    return ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(
        place
    )


class Interpreter:
    """A recorder whose commands :meth:`run` executes.

    Where a packed constant may not be used, :meth:`run` raises ``PackingRefused``, and
    what is recorded anew does without.

    Bytes around each temporary and output are checked after the run, so that a kernel
    that writes outside its buffers fails.

    Args:
        tiled: products may be computed by tiles of bfloat16, if the processor has any.
    """

    GUARD = 256

    def __init__(
        self, isa: Isa | None = None, workers: int = 1, *, tiled: bool = False
    ) -> None:
        isa = isa or host_isa()
        assert isa is not None
        self.recorder = Recorder(CpuTarget(isa, workers, lambda: tiled))
        self._arrays: dict[int, tuple[Buffer, np.ndarray[Any, Any]]] = {}
        self._fed: list[tuple[Input, np.ndarray[Any, Any]]] = []
        self._keep: list[Any] = []

    def input(self, array: np.ndarray[Any, Any]) -> View:
        """A view of a copy of *array*."""
        array = np.asarray(array, order="C")
        buffer = Input(len(self._fed), array.nbytes)
        self._fed.append((buffer, array))
        return View.contiguous(buffer, array.dtype, array.shape)

    def output(self, dtype: Any, shape: tuple[int, ...]) -> View:
        dtype = np.dtype(dtype)
        nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        return View.contiguous(Output(0, nbytes), dtype, shape)

    def run(self) -> None:
        self._run(self.recorder.commands)
        for buffer, memory in self._arrays.values():
            before, after = memory[: self.GUARD], memory[self.GUARD + buffer.nbytes :]
            assert (before == 0xA5).all(), "a kernel wrote before its buffer"
            assert (after == 0xA5).all(), "a kernel wrote after its buffer"
        for fed, array in self._fed:
            content = self.memory(fed)
            assert content.tobytes() == array.tobytes(), "a kernel wrote to an input"
        for check in self.recorder.checks:
            found = int(self.memory(check.flag).view(np.int64)[0])
            if found:
                raise check.error(found)

    def _run(self, commands: Sequence[Command]) -> None:
        for command in commands:
            function = _function(command.kernel, self.recorder.target.isa)
            words = self._words(command.words)
            for chunk in reversed(range(command.chunks)):
                function(words, chunk, chunk % self.recorder.target.workers)

    def read(self, view: View) -> np.ndarray[Any, Any]:
        """The content of a view after the run."""
        flat = self.memory(view.buffer)[view.offset :]
        usable = len(flat) // view.dtype.itemsize * view.dtype.itemsize
        return np.lib.stride_tricks.as_strided(
            flat[:usable].view(view.dtype),
            view.shape,
            [stride * view.dtype.itemsize for stride in view.strides],
        ).copy()

    def memory(self, buffer: Buffer) -> np.ndarray[Any, Any]:
        if isinstance(buffer, Constant):
            return buffer.array.reshape(-1).view(np.uint8)
        if id(buffer) not in self._arrays:
            guard = self.GUARD
            whole = np.full(buffer.nbytes + 2 * guard + 64, 0xA5, np.uint8)
            start = -whole.ctypes.data % 64
            memory = whole[start : start + buffer.nbytes + 2 * guard]
            self._arrays[id(buffer)] = (buffer, memory)
            for fed, array in self._fed:
                if fed is buffer:
                    inside = memory[guard : guard + buffer.nbytes]
                    inside[:] = array.reshape(-1).view(np.uint8)
            if isinstance(buffer, Flag):
                memory[guard : guard + buffer.nbytes] = 0
            if isinstance(buffer, Packed):
                self._run(buffer.fill)
                content = memory[guard : guard + buffer.nbytes]
                if buffer.accepts is not None and not buffer.accepts(content):
                    buffer.refused = True
                    raise PackingRefused
        memory = self._arrays[id(buffer)][1]
        return memory[self.GUARD : self.GUARD + buffer.nbytes]

    def _words(self, words: tuple[Word, ...]) -> int:
        values = np.array([self.word(word) for word in words] or [0], np.uint64)
        self._keep.append(values)
        return int(values.ctypes.data)

    def word(self, word: Word) -> int:
        match word:
            case Address(buffer, offset):
                memory = self.memory(buffer)
                return int(memory.ctypes.data) + offset
            case Code(kernel):
                return address(kernel, self.recorder.target.isa)
            case Words(more):
                return self._words(more)
            case _:
                return int(word) & 0xFFFF_FFFF_FFFF_FFFF


ISAS = [
    isa for isa in (AVX512, AVX2) if _HOST and _HOST.name in (isa.name, AVX512.name)
]
"""The descriptions that this processor can run, or that are emulated."""
if _HOST and _HOST.name == SSE.name:
    ISAS.append(SSE)
if ON_ARM or emulator.wanted():
    ISAS.append(NEON)
if ON_ARM and _HOST != NEON:
    ISAS.append(_HOST)
