"""Where a program's time goes, command by command, and what the processor can do."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from onnxplug_compiler.ir.buffers import Input, Output
from onnxplug_compiler.ir.views import View
from onnxplug_cpu.compiler.codegen.emit import F32, Module, Value
from onnxplug_cpu.compiler.codegen.kernel import Generator, Kernel, KernelFunction
from onnxplug_cpu.compiler.commands.recording import Machine, Recorder, call
from onnxplug_cpu.compiler.commands.words import Word
from onnxplug_cpu.compiler.machine.isa import LANES
from onnxplug_cpu.compiler.runtime.arena import allocate
from onnxplug_cpu.compiler.runtime.linked import LinkedProgram
from onnxplug_cpu.compiler.runtime.program import Program
from onnxplug_cpu.compiler.runtime.time_slices import Part

if TYPE_CHECKING:
    from onnxplug_cpu.compiler.machine.isa import Isa
    from onnxplug_cpu.compiler.runtime.jit import Library


class Timing(NamedTuple):
    """What one command took.

    Attributes:
        label: what the command does.
        kernel: the key of its kernel.
        start: when it began, in ns of :func:`time.perf_counter_ns`.
        duration: how long it took, in ns, without what measuring takes.
        flops: its floating-point operations, or 0 when memory is what counts.
        nbytes: bytes that it must read and write at least.
        nodes: indices of the graph's nodes that it computes.
    """

    label: str
    kernel: str
    start: int
    duration: int
    flops: int
    nbytes: int
    nodes: tuple[int, ...]

    @property
    def gflops(self) -> float:
        """10⁹ floating-point operations a second."""
        return self.flops / max(self.duration, 1)

    @property
    def gbytes(self) -> float:
        """10⁹ bytes a second."""
        return self.nbytes / max(self.duration, 1)


def profile(
    program: LinkedProgram,
    inputs: Sequence[np.ndarray[Any, Any]],
    outputs: Sequence[np.ndarray[Any, Any]],
    *,
    overhead: int | None = None,
    between: Callable[[], object] | None = None,
) -> list[Timing]:
    """Run a program, one command at a time, and long ones in parts.

    Each command is entered from Python, and what that takes, about 1 µs, is measured
    and subtracted: commands that take less are measured inexactly.

    Args:
        program, inputs, outputs: as for :meth:`Program.run`.
        overhead: what entering takes, in ns, if :func:`overhead_of` has measured it.
        between: called between commands, and not timed, and between the parts of long
            ones; if it raises, the run ends.

    Raises:
        ValueError: the arrays are not as the program expects them.
    """
    commands = program.commands
    if overhead is None:
        overhead = overhead_of(program, inputs, outputs)
    begins: list[int] = []
    ends: list[int] = []

    def mark(part: Part) -> None:
        ended = time.perf_counter_ns()
        if between is not None:
            between()
        if part.first == part.last or part.end >= commands[part.first].chunks:
            ends.append(ended)
            begins.append(time.perf_counter_ns())

    def parts() -> Iterator[Part]:
        # an empty part first: what comes before the first command is its time
        yield Part(0, 0)
        for index in range(len(commands)):
            yield from program.division.parts(index, index + 1)

    program.run_in_parts(inputs, outputs, parts, mark, between or (lambda: None))
    return [
        Timing(
            command.label,
            command.kernel.key,
            begin,
            max(0, end - begin - overhead),
            command.flops,
            command.nbytes,
            command.nodes,
        )
        for command, begin, end in zip(commands, begins[:-1], ends[1:], strict=True)
    ]


def overhead_of(
    program: LinkedProgram,
    inputs: Sequence[np.ndarray[Any, Any]],
    outputs: Sequence[np.ndarray[Any, Any]],
) -> int:
    """What entering a program takes, in ns; no command is run."""
    ends: list[int] = []
    program.run_in_parts(
        inputs,
        outputs,
        lambda: [Part(0, 0)] * 33,
        lambda part: ends.append(time.perf_counter_ns()),
    )
    return int(statistics.median(b - a for a, b in itertools.pairwise(ends)))


class Peaks(NamedTuple):
    """The most that was measured on this machine, now.

    Attributes:
        gflops: 10⁹ f32 operations a second, on registers alone.
        gbytes: 10⁹ bytes a second, read from memory.
    """

    gflops: float
    gbytes: float

    def share(self, timing: Timing) -> float:
        """The least time that a command could take, by these peaks, of what it took.

        More than 1 for data that came from caches.
        """
        least = max(timing.flops / self.gflops, timing.nbytes / self.gbytes)
        return least / max(timing.duration, 1)


measured: Final[dict[tuple[Isa, int], Peaks]] = {}
"""What this process has measured, by processor and number of threads."""


def measured_peaks(library: Library, threads: int) -> Peaks:
    """What this machine can do with so many threads, measured once in a process.

    Takes 0.2 s the first time.
    """
    key = (library.isa, threads)
    if key not in measured:
        measured[key] = Peaks(
            _peak_gflops(library, threads), _peak_gbytes(library, threads)
        )
    return measured[key]


_TURNS: Final = 10_000
"""Turns of the arithmetic kernel's loop in a chunk."""

_CHUNK: Final = 1 << 20
"""Bytes that a chunk of the reading kernel reads."""


def _peak_gflops(library: Library, threads: int) -> float:
    chunks = 8 * threads
    recorder = Recorder(Machine(library.isa, threads))
    out = _sums(chunks)
    flops = 2 * LANES * _accumulators(library.isa) * _TURNS * chunks
    words: dict[str, Word] = {"turns": _TURNS, "out": out.address}
    call(recorder, ARITHMETIC, words, chunks=chunks, flops=flops)
    program = Program(recorder.commands, library, threads, n_inputs=0, n_outputs=1)
    result = np.empty((chunks, LANES), np.float32)
    return flops / _best(program, [], [result], attempts=40)


def _peak_gbytes(library: Library, threads: int) -> float:
    # more than caches hold, but not so much that providing it takes long
    nbytes = min(max(64 << 20, 2 * library.isa.l3), 128 << 20) // _CHUNK * _CHUNK
    chunks = nbytes // _CHUNK
    recorder = Recorder(Machine(library.isa, threads))
    data, out = View.contiguous(Input(0, nbytes), _F32, (nbytes // 4,)), _sums(chunks)
    words: dict[str, Word] = {"data": data.address, "out": out.address}
    call(recorder, READING, words, chunks=chunks, nbytes=nbytes)
    program = Program(recorder.commands, library, threads, n_inputs=1, n_outputs=1)
    memory = allocate(nbytes)
    memory.array[:] = 0  # pages that were never written are one page of zeros
    result = np.empty((chunks, LANES), np.float32)
    return nbytes / _best(program, [memory.array], [result], attempts=5)


def _best(
    program: LinkedProgram, inputs: list[Any], outputs: list[Any], attempts: int
) -> int:
    taken = []
    for _ in range(attempts):
        began = time.perf_counter_ns()
        program.run(inputs, outputs)
        taken.append(time.perf_counter_ns() - began)
    return min(taken)


_F32: Final = np.dtype(np.float32)


def _sums(chunks: int) -> View:
    return View.contiguous(Output(0, 4 * LANES * chunks), _F32, (chunks, LANES))


def _accumulators(isa: Isa) -> int:
    """Vectors that stay in registers together with a factor."""
    return min(12, isa.registers // isa.registers_per_vector - 2)


class _Arithmetic(Generator):
    words = ("turns", "out")

    def write(self, module: Module, name: str, isa: Isa) -> None:
        k = KernelFunction(module, name, self.words)
        f = k.function
        vector = F32.vector(LANES)
        factor = f.splat(f.convert(k.integer("turns"), F32), LANES)

        def turn(_: Value, *sums: Value) -> list[Value]:
            if not isa.fuses:
                return [factor * factor + value for value in sums]
            return [f.fma(factor, factor, value) for value in sums]

        count = _accumulators(isa)
        sums = f.loop(k.integer("turns"), turn, [f.zero(vector)] * count, nonempty=True)
        total = sums[0]
        for value in sums[1:]:
            total = total + value
        f.store(total, f.at(k.pointer("out"), k.chunk * LANES, F32))
        f.finish()


class _Reading(Generator):
    words = ("data", "out")

    def write(self, module: Module, name: str, isa: Isa) -> None:
        k = KernelFunction(module, name, self.words)
        f = k.function
        vector = F32.vector(LANES)
        elements = _CHUNK // 4
        data = f.at(k.pointer("data"), k.chunk * elements, F32)

        def turn(index: Value, *sums: Value) -> list[Value]:
            return [
                value + f.load(f.at(data, index + LANES * number, F32), vector)
                for number, value in enumerate(sums)
            ]

        sums = f.loop(
            elements, turn, [f.zero(vector)] * 4, step=4 * LANES, nonempty=True
        )
        total = (sums[0] + sums[1]) + (sums[2] + sums[3])
        f.store(total, f.at(k.pointer("out"), k.chunk * LANES, F32))
        f.finish()


ARITHMETIC: Final = Kernel(_Arithmetic())
READING: Final = Kernel(_Reading())
