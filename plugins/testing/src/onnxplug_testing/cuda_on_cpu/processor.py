"""Launches of kernels in CUDA C++ on the processor, with all that they do checked."""

from __future__ import annotations

import ctypes
import itertools
import math
import os
import struct
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from onnxplug.authoring.record import Record
from onnxplug_testing.cuda_on_cpu.compilation import Compiler

_MOST_LANES: Final = 1024


class KernelFault(RuntimeError):
    """A kernel does what it may not do: see the package."""


class Memory(Record):
    """An argument of a launch that points to memory.

    Attributes:
        address: where it begins, of the host's memory.
        nbytes: of what is there.
        written: the kernel may write to it.
        intervals: which bytes of it the kernel may touch, each with where they begin
            and end, from *address*, and whether it may write there; none for all.
    """

    address: int
    nbytes: int
    written: bool = True
    intervals: tuple[tuple[int, int, bool], ...] = ()


class _Launch(ctypes.Structure):
    _fields_ = (
        ("body", ctypes.c_void_p),
        ("arguments", ctypes.c_void_p),
        ("grid", ctypes.c_uint64 * 3),
        ("block", ctypes.c_uint64 * 3),
        ("seed", ctypes.c_uint64),
        ("most_accesses", ctypes.c_uint64),
        ("dynamic_bytes", ctypes.c_uint64),
        ("memory", ctypes.c_void_p * 4),
        ("regions", ctypes.c_void_p),
        ("region_count", ctypes.c_uint64),
        ("intervals", ctypes.c_void_p),
    )


class _Report(ctypes.Structure):
    _fields_ = (
        ("failed", ctypes.c_uint64),
        ("place", ctypes.c_uint64),
        ("text", ctypes.c_char * 1000),
    )


class Kernel:
    """A kernel, which is compiled with others when one of them is first launched.

    Attributes:
        text: in CUDA C++, without headers.
        name: of the function.
    """

    def __init__(self, processor: Processor, text: str, name: str) -> None:
        self.text = text
        self.name = name
        self._processor = processor
        self._body: Any = None
        self._places = (ctypes.c_void_p * 4)()
        self._library: Path | None = None

    @property
    def is_compiled(self) -> bool:
        """Whether it was."""
        return self._library is not None

    def load(self, library: Path, key: str) -> None:
        """Take it from a library."""
        native = self._processor.open(library)
        self._body = getattr(native, f"call_{key}")
        getattr(native, f"memory_{key}")(self._places)
        self._library = library

    def launch(
        self,
        grid: Sequence[int],
        block: Sequence[int],
        arguments: Sequence[Memory | bytes],
        *,
        dynamic: int = 0,
        seed: int | None = None,
        most_accesses: int = 1 << 34,
    ) -> None:
        """Run it.

        Args:
            grid, block: blocks, and lanes of one, along up to three axes.
            arguments: memory for pointers, the bytes of what is given by value.
            dynamic: bytes of ``extern __shared__`` memory.
            seed: of the order in which lanes take turns; by default another for every
                launch.
            most_accesses: of memory; a launch with more is taken for one without end.

        Raises:
            KernelFault: it does what it may not do.
            ValueError: a launch is not like that, or g++ does not compile the text.
        """
        grid, block = ((*sizes, *[1] * (3 - len(sizes))) for sizes in (grid, block))
        if not 1 <= math.prod(block) <= _MOST_LANES or min(*grid, *block) < 1:
            raise ValueError(
                f"a launch of {grid} blocks of {block} lanes; there are 1 to "
                f"{_MOST_LANES} lanes, and at least one block"
            )
        self._processor.compile()
        if not self.is_compiled:
            raise ValueError("the kernel's text was not compiled")
        values = [_value(argument) for argument in arguments]
        pointers = (ctypes.c_void_p * max(1, len(values)))(
            *(ctypes.addressof(value) for value in values)
        )
        regions, intervals, count = _memory(arguments)
        if seed is None:
            seed = next(self._processor.seeds)
        launch = _Launch(
            ctypes.cast(self._body, ctypes.c_void_p),
            ctypes.addressof(pointers),
            (ctypes.c_uint64 * 3)(*grid),
            (ctypes.c_uint64 * 3)(*block),
            seed,
            most_accesses,
            dynamic,
            self._places,
            ctypes.cast(ctypes.c_char_p(regions), ctypes.c_void_p),
            count,
            ctypes.cast(ctypes.c_char_p(intervals), ctypes.c_void_p),
        )
        report = _Report()
        self._processor.native.shim_launch(ctypes.byref(launch), ctypes.byref(report))
        if report.failed:
            raise KernelFault(self._said(report, seed))

    def _said(self, report: _Report, seed: int) -> str:
        text = f"kernel {self.name}: {report.text.decode(errors='replace')}"
        assert self._library is not None
        found = self._processor.compiler.line(self._library, report.place)
        if report.place and found is not None:
            lines = self.text.splitlines()
            line = lines[found[1] - 1].strip() if found[1] <= len(lines) else ""
            text += f"; in line {found[1]}: {line}"
        return f"{text} (seed {seed})"


def _value(argument: Memory | bytes) -> Any:
    if isinstance(argument, Memory):
        return ctypes.c_uint64(argument.address)
    return ctypes.create_string_buffer(argument, max(16, len(argument)))


def _memory(arguments: Sequence[Memory | bytes]) -> tuple[bytes, bytes, int]:
    """What the runtime is told of memory: arguments that overlap are one region."""
    found: list[tuple[int, int, bool, int, list[tuple[int, int, bool]]]] = []
    known = [
        (number, each)
        for number, each in enumerate(arguments)
        if isinstance(each, Memory) and each.nbytes
    ]
    for number, each in sorted(known, key=lambda memory: memory[1].address):
        end = each.address + each.nbytes
        whole = (0, each.nbytes, each.written)
        mine = [
            (each.address + a, each.address + b, writes)
            for a, b, writes in each.intervals or (whole,)
        ]
        if found and each.address < found[-1][1]:
            begin, last, written, first, others = found.pop()
            end, mine = max(end, last), [*others, *mine]
            found.append((begin, end, written or each.written, first, mine))
        else:
            found.append((each.address, end, each.written, number, mine))
    regions, intervals, first = [], [], 0
    for begin, end, written, number, spans in found:
        values = begin, end - begin, written, number, first, len(spans)
        regions.append(struct.pack("<6Q", *values))
        intervals += [struct.pack("<3Q", a - begin, b - begin, w) for a, b, w in spans]
        first += len(spans)
    return b"".join(regions), b"".join(intervals), len(regions)


class Processor:
    """Runs kernels, in any thread, one at a time.

    Args:
        folder: where compiled ones are, for the next process, too.
        portable: as on processors other than x86-64, which takes longer.

    Raises:
        CompilerMissing: there is no g++.
    """

    def __init__(self, folder: Path | str, *, portable: bool = False) -> None:
        self.compiler = Compiler(Path(folder), portable)
        self.seeds = itertools.count(1)
        self.native = ctypes.CDLL(str(self.compiler.runtime()))
        self.native.shim_launch.restype = None
        self._lock = threading.Lock()
        self._kernels: dict[tuple[str, str], Kernel] = {}
        self._waiting: list[Kernel] = []
        self._libraries: dict[Path, ctypes.CDLL] = {}

    def kernel(self, text: str, name: str = "kernel") -> Kernel:
        """A kernel by its text; the same for the same one."""
        with self._lock:
            found = self._kernels.get((text, name))
            if found is None:
                found = self._kernels[text, name] = Kernel(self, text, name)
                self._waiting.append(found)
            return found

    def compile(self) -> None:
        """Compile all kernels that wait for it, together.

        Raises:
            ValueError: there is an error in a text; then none of these is compiled.
        """
        with self._lock:
            if not self._waiting:
                return
            waiting, self._waiting = self._waiting, []
            named = [(each.text, each.name) for each in waiting]
            try:
                libraries = self.compiler.libraries(named)
            except ValueError:
                for key in named:
                    del self._kernels[key]
                raise
            for each, library in zip(waiting, libraries, strict=True):
                each.load(library, self.compiler.key(each.text, each.name))

    def open(self, library: Path) -> ctypes.CDLL:
        """A library, opened once."""
        found = self._libraries.get(library)
        if found is None:
            found = self._libraries[library] = ctypes.CDLL(str(library), os.RTLD_NOW)
        return found
