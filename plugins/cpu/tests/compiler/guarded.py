"""Runs compiled programs with pages around each buffer that nobody may touch.

    python -m plugins.cpu.tests.compiler.guarded FIRST:LAST

tries the random graphs of these seeds.  A program that reads or writes outside a buffer
ends the process by SIGSEGV: use it in processes of their own.

What numpy allocates (inputs, outputs, constants, what flows between segments) ends
where a page ends, or begins where one begins; so do temporary buffers and packed
constants, which have pages of their own, but for at most 63 bytes of alignment: those
are looked at after a run.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import llvmlite.binding as llvm
import numpy as np
import onnx
from onnx import numpy_helper

import onnxplug
from onnxplug import ep
from onnxplug.plugins import registry
from onnxplug_cpu.compiler.runtime.arena import ALIGNMENT, Arenas, Block, round_up
from onnxplug_cpu.factory import CpuFactory
from onnxplug_cpu.provider import CpuProvider

NAME: Final = "GuardedExecutionProvider"
PAGE: Final = mmap.PAGESIZE
UNTOUCHED: Final = 0xFF
"""What fresh memory has: NaN of all floats, -1 of integers, so that whoever reads what
was not written gives other results."""

_libc = ctypes.PyDLL(None)  # which holds the GIL, as numpy expects of allocators
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [
    *(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int),
    ctypes.c_long,
]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def _map(nbytes: int) -> int:
    """The address of fresh memory."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    readable = mmap.PROT_READ | mmap.PROT_WRITE
    address = _libc.mmap(None, nbytes, readable, flags, -1, 0)
    if address in (None, ctypes.c_void_p(-1).value):
        raise MemoryError(f"no {nbytes} bytes")
    return int(address)


def _guard(address: int, nbytes: int = PAGE) -> None:
    if _libc.mprotect(address, nbytes, 0):
        raise OSError(f"mprotect refused {nbytes} bytes at {address:#x}")


# what numpy allocates


class _Allocator(ctypes.Structure):
    _fields_ = (
        *(("context", ctypes.c_void_p), ("malloc", ctypes.c_void_p)),
        *(("calloc", ctypes.c_void_p), ("realloc", ctypes.c_void_p)),
        ("free", ctypes.c_void_p),
    )


class _Handler(ctypes.Structure):
    """numpy's ``PyDataMem_Handler`` (NEP 49)."""

    _fields_ = (
        *(("name", ctypes.c_char * 127), ("version", ctypes.c_uint8)),
        ("allocator", _Allocator),
    )


_Malloc = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
_Calloc = ctypes.PYFUNCTYPE(
    *(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)
)
_Realloc = ctypes.PYFUNCTYPE(
    *(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
)
_FREED: Final = 1 << 16
"""How many arrays may be freed before the next one is made."""

_FREE: Final = f"""
@freed = global [{_FREED} x ptr] zeroinitializer
@count = global i64 0

define void @free_later(ptr %context, ptr %old, i64 %size) {{
    %number = load i64, ptr @count
    %place = urem i64 %number, {_FREED}
    %entry = getelementptr ptr, ptr @freed, i64 %place
    store ptr %old, ptr %entry
    %more = add i64 %number, 1
    store i64 %more, ptr @count
    ret void
}}
"""
"""Arrays are freed while exceptions are under way, when no code of Python may run."""

_SET_HANDLER: Final = 304
"""The place of ``PyDataMem_SetHandler`` in numpy's table of functions."""


class Fence:
    """Where numpy's arrays lie while it is in use.

    Attributes:
        at_end: whether arrays end where a page ends, else they begin where one begins.
    """

    def __init__(self, *, at_end: bool) -> None:
        self.at_end = at_end
        self._places: dict[int, tuple[int, int, int]] = {}
        self._functions = (
            _Malloc(lambda _, size: self._allocate(size)),
            _Calloc(lambda _, count, size: self._allocate(count * size, zero=True)),
            _Realloc(lambda _, old, size: self._reallocate(old, size)),
        )
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        self._engine = llvm.create_mcjit_compiler(
            llvm.parse_assembly(_FREE),
            llvm.Target.from_default_triple().create_target_machine(),
        )
        find = self._engine.get_global_value_address
        self._freed = (ctypes.c_void_p * _FREED).from_address(find("freed"))
        self._count = ctypes.c_int64.from_address(find("count"))
        pointers = [ctypes.cast(f, ctypes.c_void_p).value for f in self._functions]
        pointers.append(self._engine.get_function_address("free_later"))
        self._handler = _Handler(b"guarded", 1, _Allocator(None, *pointers))
        new = ctypes.pythonapi.PyCapsule_New
        new.restype = ctypes.py_object
        new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        self._capsule = new(ctypes.addressof(self._handler), b"mem_handler", None)

    def __enter__(self) -> Fence:
        self._before = _set_handler(self._capsule)
        return self

    def __exit__(self, *_: object) -> None:
        _set_handler(self._before)

    def _allocate(self, size: int, *, zero: bool = False) -> int:
        self._free_at_last()
        size = max(size, 1)
        room = round_up(size, PAGE)
        try:
            base = _map(room + 2 * PAGE)
        except MemoryError:
            return 0
        start = base + PAGE
        if self.at_end:
            # an array has elements of as many bytes as divide all of its bytes
            start += (room - size) & -min(size & -size, 16)
        if not zero and size < 1 << 20:
            ctypes.memset(base + PAGE, UNTOUCHED, room)
        _guard(base)
        _guard(base + PAGE + room)
        self._places[start] = base, room + 2 * PAGE, size
        return start

    def _reallocate(self, old: int | None, size: int) -> int:
        new = self._allocate(size)
        if old and new:
            ctypes.memmove(new, old, min(size, self._places[old][2]))
            self._free(old)
        return new

    def _free_at_last(self) -> None:
        count, self._count.value = self._count.value, 0
        assert count <= _FREED
        for start in self._freed[:count]:
            if start:
                self._free(start)

    def _free(self, start: int) -> None:
        base, nbytes, _ = self._places.pop(start)
        _libc.munmap(base, nbytes)


@functools.cache
def fence(at_end: bool) -> Fence:
    """The one that is kept, as arrays need theirs as long as they live."""
    return Fence(at_end=at_end)


def _set_handler(capsule: Any) -> Any:
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype = ctypes.c_void_p
    get.argtypes = [ctypes.py_object, ctypes.c_char_p]
    table = get(np._core._multiarray_umath._ARRAY_API, None)  # type: ignore[attr-defined]
    assert table is not None
    address = ctypes.cast(table, ctypes.POINTER(ctypes.c_void_p))[_SET_HANDLER]
    assert address is not None
    function = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(address)
    return function(capsule)


# what programs allocate


class _Place(NamedTuple):
    """A buffer in a block: from *start* to *stop*, on pages from *first* to *last*."""

    first: int
    start: int
    stop: int
    last: int


class TouchedOutside(AssertionError):
    """A program wrote outside a buffer, into what aligns it."""


class GuardedArenas(Arenas):
    """Memory in which each buffer has pages of its own.

    Attributes:
        at_end: whether buffers end where a page ends, else they begin where one begins.
    """

    def __init__(self, *, at_end: bool) -> None:
        super().__init__()
        self.at_end = at_end
        self._layouts: dict[int, list[_Place]] = {}
        self._kept: list[tuple[Block, list[_Place]]] = []

    def place(
        self, sizes: Sequence[int], lifetimes: Sequence[tuple[int, int]]
    ) -> tuple[list[int], int]:
        places: list[_Place] = []
        end = PAGE
        for size in sizes:
            last = end + round_up(max(size, 1), PAGE)
            start = last - round_up(size, ALIGNMENT) if self.at_end else end
            places.append(_Place(end, start, start + size, last))
            end = last + PAGE
        while end in self._layouts:  # which of them an arena is for, its size tells
            end += PAGE
        if sizes:
            self._layouts[end] = places
        return [place.start for place in places], end if sizes else 0

    def allocate(self, nbytes: int) -> Block:
        block = self._make(nbytes, self._layouts[nbytes])
        self._kept.append((block, self._layouts[nbytes]))
        return block

    def blocks(self, sizes: Sequence[int]) -> list[Block]:
        made = []
        for size in sizes:
            (start,), nbytes = self.place([size], [(0, 0)])
            block = self.allocate(nbytes)
            part = block.array[start : start + size]
            made.append(Block(part, block.address + start, size))
        return made

    def acquire(self, nbytes: int) -> Block:
        return self._make(nbytes, self._layouts[nbytes])

    def release(self, block: Block) -> None:
        self._look(block, self._layouts[block.nbytes])

    def check(self) -> None:
        """Look at memory that was never given back.

        Raises:
            TouchedOutside: a program wrote outside a buffer.
        """
        for block, places in self._kept:
            self._look(block, places)

    def _make(self, nbytes: int, places: Sequence[_Place]) -> Block:
        mapping = mmap.mmap(-1, nbytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        array = np.frombuffer(mapping, np.uint8)
        address = int(array.__array_interface__["data"][0])
        end = 0
        for place in places:
            _guard(address + end, place.first - end)
            array[place.first : place.last] = UNTOUCHED
            end = place.last
        _guard(address + end, nbytes - end)
        return Block(array, address, nbytes)

    def _look(self, block: Block, places: Sequence[_Place]) -> None:
        for place in places:
            for first, last in ((place.first, place.start), (place.stop, place.last)):
                touched = np.flatnonzero(block.array[first:last] != UNTOUCHED)
                if touched.size:
                    raise TouchedOutside(
                        f"beside a buffer of {place.stop - place.start} bytes were "
                        f"written: {touched[:8] + first - place.start}, from its start"
                    )


class _GuardedFactory(CpuFactory):
    """The CPU EP, its programs in guarded memory."""

    name = NAME

    def __init__(self, arenas: GuardedArenas) -> None:
        self._arenas = arenas

    def create(
        self,
        devices: Sequence[ep.EpDevice],
        options: Mapping[str, ep.OptionValue],
        session: ep.SessionContext,
    ) -> ep.ExecutionProvider:
        return CpuProvider(
            session.intra_op_num_threads,
            arenas=self._arenas,
            supplied=session.find_kernel,
        )


class Guarded:
    """A session of which all memory is guarded.

    Args:
        model: its initializers are copied to arrays of numpy.
        at_end: whether buffers end where a page ends, else they begin where one begins.
        files: with external data, by name.
    """

    def __init__(
        self,
        model: onnx.ModelProto | bytes,
        *,
        at_end: bool,
        threads: int = 1,
        files: Mapping[str, bytes] = MappingProxyType({}),
    ) -> None:
        self._fence = fence(at_end)
        self._arenas = GuardedArenas(at_end=at_end)
        options = onnxplug.SessionOptions()
        options.intra_op_num_threads = threads
        options.add_external_initializers_from_files_in_memory(
            list(files), list(files.values()), [len(each) for each in files.values()]
        )
        content = model if isinstance(model, bytes) else model.SerializeToString()
        factory = _GuardedFactory(self._arenas)
        registry.add(factory)
        try:
            with self._fence:
                for name, array in _constants(content):
                    value = onnxplug.OrtValue.ortvalue_from_numpy(array)
                    options.add_initializer(name, value)
                self._session = onnxplug.InferenceSession(
                    content, options, providers=[NAME]
                )
        finally:
            registry.remove(factory.name)

    def explain(self) -> onnxplug.Explanation:
        """What the session says of itself."""
        return self._session.explain()

    def run(self, _: None, feeds: Mapping[str, Any]) -> list[Any]:
        """The outputs, as a session gives them.

        Raises:
            TouchedOutside: a program wrote outside a buffer.
        """
        with self._fence:
            copies = {
                name: array.copy() if isinstance(array, np.ndarray) else array
                for name, array in feeds.items()
            }
            results = self._session.run(None, copies)
        self._arenas.check()
        return list(results)


def _constants(content: bytes) -> Iterator[tuple[str, Any]]:
    """The initializers of a model's graph that are arrays of plain numbers."""
    try:
        model = onnx.load_from_string(content)
    except Exception:  # noqa: BLE001 (a damaged one, which the session refuses)
        return
    for tensor in model.graph.initializer:
        try:
            array = numpy_helper.to_array(tensor).copy()
        except Exception:  # noqa: BLE001 (likewise)
            continue
        if array.dtype.kind in "iufb":
            yield tensor.name, array


def main(first: int, last: int) -> None:
    """Compare random graphs in guarded memory with the array tier."""
    import random

    from .differential import disagreement, of_any_size, other_sizes, session
    from .random_graphs import RandomGraph
    from .random_nodes import MAKERS, VIEWS

    for seed in range(first, last):
        choose = random.Random(seed)
        makers = choose.choice([MAKERS, MAKERS, VIEWS])
        case = RandomGraph(seed).make(choose.randint(5, 40), makers)
        threads = choose.choice([1, 2])
        print(f"seed {seed}", flush=True)
        model = of_any_size(case.model)
        expected = session(model, compiled=False)
        for at_end in (True, False):
            found = Guarded(model, at_end=at_end, threads=threads)
            for feeds in (case.feeds, other_sizes(case, seed), case.feeds):
                problem = disagreement(case, feeds, expected, found, slack=8)
                assert not problem, problem


if __name__ == "__main__":
    main(*map(int, sys.argv[1].split(":")))
    sys.stdout.flush()
    os._exit(0)  # some arrays live longer than what frees them
