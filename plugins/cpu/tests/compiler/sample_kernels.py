"""Small kernels whose effects tests can predict."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxplug_compiler.ir.buffers import Input, Output
from onnxplug_compiler.ir.views import View
from onnxplug_cpu.compiler.codegen.emit import F32, I64, PTR, Module, Value
from onnxplug_cpu.compiler.codegen.kernel import Generator, Kernel, KernelFunction
from onnxplug_cpu.compiler.machine.isa import Isa


class _Add(Generator):
    words = "x", "y", "out", "n"

    def write(self, module: Module, name: str, isa: Isa) -> None:
        k = KernelFunction(module, name, self.words)
        f = k.function
        x, y, out, n = k.pointer("x"), k.pointer("y"), k.pointer("out"), k.integer("n")

        def element(index: Value) -> None:
            place = index + k.chunk * n
            total = f.load(f.at(x, place, F32), F32) + f.load(f.at(y, place, F32), F32)
            f.store(total, f.at(out, place, F32))

        f.loop(n, element)
        f.finish()


ADD = Kernel(_Add())
"""``out = x + y``, f32, *n* elements a chunk."""


class _Count(Generator):
    words = "counts", "workers", "work"

    def write(self, module: Module, name: str, isa: Isa) -> None:
        k = KernelFunction(module, name, self.words)
        f = k.function
        place = f.at(k.pointer("counts"), k.chunk, I64)
        f.instruction(I64, f"atomicrmw add {place}, i64 1 seq_cst")
        f.store(k.worker, f.at(k.pointer("workers"), k.chunk, I64))

        def turn(left: Value) -> tuple[Value, list[Value]]:
            f.instruction(I64, f"load volatile i64, {k.pointer('counts')}")
            return left.compare("gt", 0), [left - 1]

        f.repeat(turn, [k.integer("work")])
        f.finish()


COUNT = Kernel(_Count())
"""Adds 1 to the chunk's i64 in *counts*, notes the worker, and is busy for *work*
turns of a nanosecond or so."""


class _Call(Generator):
    words = "code", "more"

    def write(self, module: Module, name: str, isa: Isa) -> None:
        k = KernelFunction(module, name, self.words)
        k.function.call_pointer(k.pointer("code"), k.pointer("more"), k.chunk, k.worker)
        k.function.finish()


CALL = Kernel(_Call())
"""Calls the kernel in *code* with the words in *more*."""


class _Keep(Generator):
    words = "value", "pointer", "out"

    def write(self, module: Module, name: str, isa: Isa) -> None:
        k = KernelFunction(module, name, self.words)
        f = k.function
        f.store(k.integer("value"), f.at(k.pointer("out"), 0, I64))
        f.store(k.word("pointer", PTR), f.at(k.pointer("out"), 1, I64))
        f.finish()


KEEP = Kernel(_Keep())
"""Writes two of its words to *out*."""

FLOAT, LONG = np.dtype(np.float32), np.dtype(np.int64)


def input_view(position: int, dtype: np.dtype[Any], *shape: int) -> View:
    nbytes = int(np.prod(shape)) * dtype.itemsize
    return View.contiguous(Input(position, nbytes), dtype, shape)


def output_view(position: int, dtype: np.dtype[Any], *shape: int) -> View:
    nbytes = int(np.prod(shape)) * dtype.itemsize
    return View.contiguous(Output(position, nbytes), dtype, shape)
