"""The bytes behind arrays: handed out again in the order of streams, and poisoned.

Memory that is free again is poisoned in the order of the stream that its array was made
on.  Work on that stream gets it again at once, all others when the stream is done with
it.  So an array that is dropped while work on another stream uses it is seen: that work
finds poison, the values of others, or an error.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import numpy as np

from onnxplug.authoring.record import Record
from onnxplug_testing.simulated.capture import Capture
from onnxplug_testing.simulated.monitor import MONITOR
from onnxplug_testing.simulated.queues import Point, Queue, executing

HostArray = np.ndarray[Any, Any]
Bytes = np.ndarray[tuple[int], np.dtype[np.uint8]]


class Storage:
    """An array's bytes, as work on streams holds them.

    Until the stream that it was made on comes to it, others may still use the memory:
    who reads then gets poison, and what is written is lost.

    Attributes:
        shape, dtype: of what is stored; the dtype is numpy's.
        queue: that it was made on; ``None``: usable in any order.
        capture: whose memory it is.

    Args:
        ready: the memory is nobody else's.
        release: what to call when nothing holds the storage.
    """

    __slots__ = (
        "__weakref__",
        "_content",
        "_freed",
        "_freed_after",
        "_ready",
        "capture",
        "dtype",
        "queue",
        "shape",
    )

    def __init__(
        self,
        content: HostArray,
        queue: Queue | None = None,
        *,
        ready: bool = True,
        capture: Capture | None = None,
        release: Callable[[], None] | None = None,
    ) -> None:
        if release is not None:
            weakref.finalize(self, release).atexit = False
        self.shape: Final[tuple[int, ...]] = content.shape
        self.dtype: Final[np.dtype[Any]] = content.dtype
        self.queue = queue
        self.capture = capture
        self._content = content
        self._ready = ready
        self._freed = False
        self._freed_after: Point | None = None

    @property
    def address(self) -> int:
        """Of its first byte."""
        address: int = self._content.ctypes.data
        return address

    def read(self) -> HostArray:
        """The content, poison if nothing was written yet."""
        return self.part(self._content)

    def part(self, view: HostArray) -> HostArray:
        """The content of *view*, which is of this memory, as it may be used now."""
        self._check()
        if self._ready:
            return view
        nothing = np.empty(view.shape, view.dtype)
        poison(nothing)
        return nothing

    def write(self, content: HostArray) -> None:
        """Replace the content."""
        self._check()
        if self._ready:
            np.copyto(self._content, content, casting="no")

    def poison(self) -> None:
        """Make the content useless."""
        poison(self._content)

    def begin(self) -> None:
        """The memory is poisoned, and nobody else's any more."""
        self.poison()
        self._ready = True

    def free(self, point: Point | None) -> None:
        """The memory is others' after *point*; ``None``: now."""
        self._freed, self._freed_after = True, point

    def _check(self) -> None:
        at = executing()
        if at is None:
            if self.capture is not None and not self.capture.ended:
                raise self.capture.fail("memory of it was used without its stream")
            return
        after = self._freed_after
        if self._freed and (after is None or not after.comes_after(*at)):
            raise RuntimeError(
                f"an array, {self.dtype}{list(self.shape)}, was dropped before work "
                "that uses it, on a stream other than its own; keep it until that is "
                "done"
            )


class _Free(Record):
    memory: Bytes
    queue: Queue | None
    position: int


class Pool:
    """Memory of one kind, in pieces that are handed out again.

    Attributes:
        live_bytes: of arrays that are not garbage, and of captured graphs.
        peak_bytes: the most that was live at once.
        allocations: how many arrays were made.
        reused: how many of them in memory that others had before.
    """

    def __init__(self, name: str, limit: int | None = None) -> None:
        self.peak_bytes = 0
        self.allocations = 0
        self.reused = 0
        self._name = name
        self._limit = limit
        self._live = 0
        self._free: dict[int, list[_Free]] = {}

    @property
    def live_bytes(self) -> int:
        MONITOR.settle()
        with MONITOR:
            return self._live

    def make(
        self,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        queue: Queue | None,
    ) -> tuple[Storage, Bytes, Callable[[], None]]:
        """New memory for an array: its storage, the bytes, and what gives it back.

        Raises:
            MemoryError: there is not enough.
        """
        nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        MONITOR.settle()
        with MONITOR:
            if self._limit is not None and self._live + nbytes > self._limit:
                raise MemoryError(
                    f"{self._name} has {self._live} of {self._limit} bytes in use; "
                    f"{nbytes} more, for {dtype}{list(shape)}, do not fit; drop "
                    "arrays, or raise Knobs.memory_limit"
                )
            capture = None if queue is None else queue.capture
            # a graph may be launched on any stream, so its memory is nobody's
            memory, at_once = self._take(nbytes, None if capture else queue)
            content = memory.view(dtype).reshape(shape)
            self._live += nbytes
            self.peak_bytes = max(self.peak_bytes, self._live)
            self.allocations += 1
            storage = Storage(content, queue, ready=at_once, capture=capture)
            if at_once:
                storage.poison()
            else:
                assert queue is not None
                queue.push(storage.begin)
            give_back = partial(self._give_back, storage, memory, queue)
            if capture is None:
                return storage, memory, partial(MONITOR.call, give_back)
            capture.memory.append(partial(self._give_back, storage, memory, None))
            return storage, memory, partial(MONITOR.call, partial(_drop, storage))

    def _take(self, nbytes: int, queue: Queue | None) -> tuple[Bytes, bool]:
        """Memory, and whether it can be used at once, by anyone."""
        free = self._free.get(nbytes, [])
        for index in reversed(range(len(free))):
            memory, last, position = free[index]
            done = last is None or last.done >= position
            if done or last is queue:
                del free[index]
                self.reused += 1
                return memory, done
        return np.empty(nbytes, np.uint8), True

    def _give_back(self, storage: Storage, memory: Bytes, queue: Queue | None) -> None:
        with MONITOR:
            self._live -= memory.nbytes
            storage.free(None if queue is None else queue.here())
            if queue is None or not queue.pending:
                storage.poison()
            else:
                queue.push(storage.poison)
            position = 0 if queue is None else queue.queued
            entry = _Free(memory, queue, position)
            self._free.setdefault(memory.nbytes, []).append(entry)


def poison(array: HostArray) -> None:
    """Fill *array* with what no test expects: NaN; for integers, 0xA5 bytes."""
    if array.dtype.kind == "O":
        array.fill("poison: read before it was written")
    elif array.dtype.kind == "b":
        array.fill(True)
    else:
        # all bits set is NaN for every float that has one, ml_dtypes' (kind V) too
        byte = b"\xa5" if array.dtype.kind in "iu" else b"\xff"
        array[...] = np.frombuffer(byte * array.dtype.itemsize, array.dtype)[0]


def _drop(storage: Storage) -> None:
    """An array of a capture is dropped; the memory stays the graph's."""
    capture = storage.capture
    if capture is not None and not capture.ended:
        capture.note(storage.poison)
