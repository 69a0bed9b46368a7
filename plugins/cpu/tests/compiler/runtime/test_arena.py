"""Places in the arena against a search for overlaps; blocks of memory."""

from __future__ import annotations

import mmap
import random
import sys
from pathlib import Path

import numpy as np
import pytest

from onnxplug_cpu.compiler.runtime.arena import (
    ALIGNMENT,
    HUGE_PAGE,
    LARGE,
    Arenas,
    allocate,
    place,
    release_mapped_pages,
    round_up,
)

from ..files import mapped, resident


@pytest.mark.parametrize("seed", range(40))
def test_buffers_alive_at_the_same_time_do_not_overlap(seed: int) -> None:
    random_ = random.Random(seed)
    commands = random_.randint(1, 60)
    sizes, lifetimes = [], []
    for _ in range(random_.randint(1, 80)):
        first = random_.randrange(commands)
        sizes.append(random_.choice([0, 1, 63, 64, 65, random_.randrange(100_000)]))
        lifetimes.append((first, min(commands - 1, first + random_.randrange(9))))
    offsets, total = place(sizes, lifetimes)
    live = [0] * commands
    for i, (a, size, (first, last)) in enumerate(
        zip(offsets, sizes, lifetimes, strict=True)
    ):
        assert a % ALIGNMENT == 0
        assert a + size <= total
        for command in range(first, last + 1):
            live[command] += round_up(size, ALIGNMENT)
        for b, other, (begin, end) in zip(
            offsets[:i], sizes[:i], lifetimes[:i], strict=True
        ):
            apart = last < begin or end < first or a + size <= b or b + other <= a
            assert apart or not size or not other
    # no plan is smaller than the busiest moment, and a good one not much larger
    assert max(live) <= total <= 1.4 * max(live) + ALIGNMENT


def test_a_chain_needs_two_places() -> None:
    offsets, total = place([1000] * 50, [(i, i + 1) for i in range(50)])
    assert total == 2 * 1024
    assert set(offsets) == {0, 1024}


def test_nothing_to_place() -> None:
    assert place([], []) == ([], 0)


@pytest.mark.parametrize("nbytes", [0, 1, 100, LARGE - 1, LARGE, 3 * HUGE_PAGE + 5])
def test_blocks_are_aligned_and_writeable(nbytes: int) -> None:
    block = allocate(nbytes)
    assert block.nbytes >= nbytes
    assert block.address % (HUGE_PAGE if nbytes >= LARGE else ALIGNMENT) == 0
    block.array[:] = 7
    assert block.array.ctypes.data == block.address or not nbytes


def test_memory_that_does_not_exist_is_refused() -> None:
    with pytest.raises(MemoryError, match="bytes are asked for at once"):
        allocate(1 << 60)


def test_arenas_are_used_again_and_grow() -> None:
    arenas = Arenas()
    first = arenas.acquire(1000)
    second = arenas.acquire(1000)
    assert first.address != second.address
    arenas.release(first)
    assert arenas.acquire(500) is first
    arenas.release(first)
    larger = arenas.acquire(2000)
    assert larger.nbytes >= 2000
    given = [allocate(10) for _ in range(10)]
    for block in given:
        arenas.release(block)
    taken = [arenas.acquire(10) for _ in range(10)]
    assert sum(any(block is old for old in given) for block in taken) == Arenas.KEPT


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_pages_of_mapped_files_are_given_back(tmp_path: Path) -> None:
    _, array = mapped(tmp_path / "weights", mmap.ACCESS_READ)
    before = array.copy()
    part = array[5:].view(np.int8)
    assert resident(array.ctypes.data) == 16 * mmap.PAGESIZE
    assert release_mapped_pages(part)
    assert resident(array.ctypes.data) <= 2 * mmap.PAGESIZE
    np.testing.assert_array_equal(array, before)
    assert not release_mapped_pages(array[:50])  # no whole page
    del array, part
    as_numpy = np.memmap(tmp_path / "weights", np.uint8, "r")
    assert release_mapped_pages(as_numpy)
    assert as_numpy[300] == 300 % 256


@pytest.mark.skipif(not hasattr(mmap, "MADV_DONTNEED"), reason="no madvise")
def test_pages_that_may_have_been_written_are_kept(tmp_path: Path) -> None:
    _, array = mapped(tmp_path / "weights", mmap.ACCESS_COPY)
    array[:] = 1
    array.flags.writeable = False
    assert not release_mapped_pages(array)
    assert (array == 1).all()
    assert not release_mapped_pages(np.ones(1 << 20, np.uint8))
    private = np.memmap(tmp_path / "weights", np.uint8, "c")
    private[:] = 2
    assert not release_mapped_pages(private)
    assert (private == 2).all()
