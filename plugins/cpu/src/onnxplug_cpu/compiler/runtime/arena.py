"""Memory of programs: where temporary buffers lie in an arena, and the arenas."""

from __future__ import annotations

import contextlib
import mmap
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from onnxplug.authoring.memory_limit import check_left
from onnxplug.authoring.record import Record
from onnxplug_compiler.ir.buffers import Constant, Packed

ALIGNMENT: Final = 64
"""Bytes that every buffer's offset is a multiple of: a cache line."""

HUGE_PAGE: Final = 2 << 20
"""Bytes of a huge page, and what large blocks are aligned to."""

LARGE: Final = 1 << 20
"""Bytes from which a block is a mapping of its own, of huge pages if possible."""

TOGETHER: Final = 64 << 20
"""Bytes of packed constants that lie in one block, and share huge pages; it is given
back with the last of them."""


class Block(Record):
    """Memory that lives as long as this object, or a view of its array.

    Attributes:
        array: the bytes.
        address: of the first, a multiple of :data:`ALIGNMENT`, and of
            :data:`HUGE_PAGE` in a large block.
        nbytes: how many.
    """

    array: np.ndarray[Any, np.dtype[np.uint8]]
    address: int
    nbytes: int


def place(
    sizes: Sequence[int], lifetimes: Sequence[tuple[int, int]]
) -> tuple[list[int], int]:
    """Offsets of buffers such that those alive at the same time do not overlap.

    Large buffers are placed first, each in the smallest gap that holds it (greedy by
    size, Pisarchyk and Lee 2020, "Efficient memory management for deep neural net
    inference").

    Args:
        sizes: in bytes.
        lifetimes: the first and the last command that uses each buffer, from 0.

    Returns:
        The offsets, multiples of :data:`ALIGNMENT`, and the bytes of all.
    """
    offsets = [0] * len(sizes)
    commands = max((last for _, last in lifetimes), default=-1) + 1
    taken: list[list[tuple[int, int]]] = [[] for _ in range(commands)]
    total = 0
    for index in sorted(range(len(sizes)), key=lambda index: -sizes[index]):
        size = round_up(sizes[index], ALIGNMENT)
        first, last = lifetimes[index]
        if first == last:
            others = sorted(taken[first])
        else:
            others = sorted(set().union(*taken[first : last + 1]))
        offset = _best_gap(size, others)
        place_taken = (offset, offset + size)
        for command in range(first, last + 1):
            taken[command].append(place_taken)
        offsets[index] = offset
        total = max(total, offset + size)
    return offsets, total


def _best_gap(size: int, taken: Sequence[tuple[int, int]]) -> int:
    """The start of the smallest gap between places sorted by start, or the end."""
    end = 0
    best, best_gap = -1, 0
    for start, stop in taken:
        gap = start - end
        if gap >= size and (best < 0 or gap < best_gap):
            best, best_gap = end, gap
        end = max(end, stop)
    return end if best < 0 else best


def round_up(number: int, multiple: int) -> int:
    """The smallest multiple that is not less."""
    return -(-number // multiple) * multiple


def allocate(nbytes: int) -> Block:
    """A block of memory, its content undefined.

    A large one is of huge pages where the system gives them, which saves misses of
    the TLB; only pages that are touched take memory.

    Raises:
        MemoryError: the system has no such amount, or does not give it.
    """
    if nbytes < LARGE:
        array = np.empty(nbytes + ALIGNMENT, np.uint8)
        return _aligned(array, nbytes, ALIGNMENT)
    check_left(nbytes)
    nbytes = round_up(nbytes, HUGE_PAGE)
    try:
        mapping = _map(nbytes + HUGE_PAGE)
    except (OSError, OverflowError) as error:
        raise MemoryError(
            f"the system refused {nbytes >> 20} MiB of memory: {error}; "
            "run fewer sessions or smaller inputs"
        ) from error
    return _aligned(np.frombuffer(mapping, np.uint8), nbytes, HUGE_PAGE)


def _map(nbytes: int) -> mmap.mmap:
    if not hasattr(mmap, "MAP_PRIVATE"):
        return mmap.mmap(-1, nbytes)
    # private: a child of fork must not share it, and shared memory is not huge
    mapping = mmap.mmap(-1, nbytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel without huge pages
            mapping.madvise(mmap.MADV_HUGEPAGE)
    return mapping


def _aligned(
    array: np.ndarray[Any, np.dtype[np.uint8]], nbytes: int, alignment: int
) -> Block:
    address = address_of(array)
    start = -address % alignment
    return Block(array[start : start + nbytes], address + start, nbytes)


def address_of(array: np.ndarray[Any, Any]) -> int:
    """The address of an array's first byte."""
    return int(array.__array_interface__["data"][0])


def place_of(buffer: Constant | Packed) -> int:
    """The address of a constant, which stays in memory from now on, or of a packed
    one that is there."""
    memory = buffer.memory
    if memory is None:
        assert isinstance(buffer, Constant)
        memory = buffer.memory = address_of(buffer.array)
    address: int = memory.address if isinstance(memory, Block) else memory
    return address


class Arenas:
    """The memory of a session's programs: of what they pack, and arenas, one for each
    run at a time, used again by later runs.

    Programs of one session share arenas, since a run needs one only while it lasts.
    Safe to use from several threads.  All memory of programs but inputs, outputs and
    constants comes from here: a subclass can place it otherwise.
    """

    KEPT: Final = 4
    """How many are kept for later runs."""

    def __init__(self) -> None:
        self._free: list[Block] = []

    def place(
        self, sizes: Sequence[int], lifetimes: Sequence[tuple[int, int]]
    ) -> tuple[list[int], int]:
        """Where a program's temporary buffers lie in an arena: see :func:`place`."""
        return place(sizes, lifetimes)

    def allocate(self, nbytes: int) -> Block:
        """An arena that is the caller's for good."""
        return allocate(nbytes)

    def blocks(self, sizes: Sequence[int]) -> list[Block]:
        """Blocks of memory that are the caller's for good.

        Raises:
            MemoryError: the system has no such amount.
        """
        whole = allocate(sum(round_up(size, ALIGNMENT) for size in sizes))
        blocks: list[Block] = []
        start = 0
        for size in sizes:
            array = whole.array[start : start + size]
            blocks.append(Block(array, whole.address + start, size))
            start += round_up(size, ALIGNMENT)
        return blocks

    def acquire(self, nbytes: int) -> Block:
        """An arena of at least *nbytes* that no other run uses."""
        try:
            block = self._free.pop()
        except IndexError:
            return allocate(nbytes)
        if block.nbytes >= nbytes:
            return block
        # some more than needed, as growing shapes would need a new one each time
        wanted = max(nbytes, block.nbytes + block.nbytes // 4)
        del block
        return allocate(wanted)

    def clear(self) -> None:
        """Keep none of those that were given back."""
        self._free.clear()

    def release(self, block: Block) -> None:
        """Give an arena back."""
        if len(self._free) < self.KEPT:
            self._free.append(block)


def release_mapped_pages(array: np.ndarray[Any, Any]) -> bool:
    """Let the system drop an array's pages, if they are those of a read-only file.

    They are read from the file again when they are used again.

    Returns:
        Whether the pages were given back.
    """
    if not hasattr(mmap, "MADV_DONTNEED") or array.flags.writeable:
        return False
    mapping = _mapping_of(array)
    if mapping is None:
        return False
    view = memoryview(mapping)
    if not view.readonly:  # dropping a private page that was written would lose data
        return False
    start = address_of(array) - address_of(np.frombuffer(view, np.uint8))
    page = mmap.PAGESIZE
    first, last = round_up(start, page), (start + array.nbytes) // page * page
    if last <= first:
        return False
    mapping.madvise(mmap.MADV_DONTNEED, first, last - first)
    return True


def _mapping_of(array: np.ndarray[Any, Any]) -> mmap.mmap | None:
    """The mapped file that a C-contiguous array is in."""
    if not array.flags.c_contiguous:
        return None
    owner: Any = array
    while isinstance(owner, np.ndarray):
        owner = owner.base
        if isinstance(owner, memoryview):
            owner = owner.obj
    return owner if isinstance(owner, mmap.mmap) else None
