"""The GPU of the stand-in: its memory, its streams, and what they owe each other."""

from __future__ import annotations

import bisect
import random
import threading
import zlib
from collections import Counter, deque
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

GUARD = 256
POISON = 0xA5

Clock = dict[int, int]
"""How far each stream is known to be: by stream, how much of what was queued there."""


class CudaError(RuntimeError):
    """An error of CUDA's, by its number."""

    def __init__(self, status: int, infos: Any = ()) -> None:
        super().__init__(f"cudaError {status}: {MEANINGS.get(status, 'failed')}")
        self.status = status


MEANINGS = {
    1: "invalid argument",
    2: "out of memory",
    35: "CUDA driver version is insufficient for CUDA runtime version",
    100: "no CUDA-capable device is detected",
    101: "invalid device ordinal",
    200: "device kernel image is invalid",
    400: "invalid resource handle",
    600: "device not ready",
    700: "an illegal memory access was encountered",
    709: "context is destroyed",
    719: "unspecified launch failure",
    900: "operation not permitted when stream is capturing",
    901: "operation failed due to a previous error during capture",
    905: "dependency created on uncaptured work in another stream",
}

PATIENCE = 300
"""Seconds in which something is done: g++ may compile kernels meanwhile."""

CLOSED = 709
"""What the context of a machine that was closed answers: it was destroyed."""

STICKY = {214, 700, 702, CLOSED, 710, 714, 715, 716, 717, 718, 719, 999}


class Region:
    """Memory: of the device, or pinned of the host."""

    def __init__(self, nbytes: int, *, on_host: bool) -> None:
        self.room = np.full(nbytes + 2 * GUARD, POISON, np.uint8)
        self.start = -(-(self.room.ctypes.data + GUARD // 2) // GUARD) * GUARD
        self.nbytes = nbytes
        self.end = self.start + nbytes
        self.on_host = on_host
        self.is_live = True
        self.accesses: list[Access] = []

    def bytes(self, address: int, nbytes: int) -> np.ndarray[Any, Any]:
        begin = address - self.room.ctypes.data
        return self.room[begin : begin + nbytes]

    def is_guarded(self) -> bool:
        """Whether nobody wrote beside it."""
        begin = self.start - self.room.ctypes.data
        outside = self.room[:begin], self.room[begin + self.nbytes :]
        return all((part == POISON).all() for part in outside)


class Access:
    """Bytes that queued work reads or writes."""

    def __init__(
        self, begin: int, end: int, stream: int, tick: int, writes: bool, what: str
    ) -> None:
        self.begin, self.end = begin, end
        self.stream, self.tick = stream, tick
        self.writes = writes
        self.what = what


class Work:
    """Something that is queued.

    Args:
        ranges: of each what it touches where it begins, where it ends, whether it
            writes.
    """

    def __init__(
        self,
        what: str,
        do: Callable[[], None],
        ranges: Iterable[tuple[int, int, bool]] = (),
    ) -> None:
        self.what = what
        self.do = do
        self.ranges = tuple(ranges)


class Stream:
    """A queue, and the thread that does what is in it."""

    def __init__(
        self, machine: Machine, handle: int, device: int | None = None
    ) -> None:
        self.machine = machine
        self.device = device
        self.handle = handle
        self.tick = 0
        self.clock: Clock = {}
        self.queue: deque[Callable[[], None]] = deque()
        self.is_busy = False
        self.is_open = True
        self.capture: list[Work] | None = None
        self.is_invalid = False
        self.thread: threading.Thread | None = None

    def check_here(self, what: str) -> None:
        """Check that the calling thread is on the stream's device."""
        if self.device not in (None, self.machine.device):
            self.machine.violate(f"{what} is queued on a stream of another device")

    def push(self, do: Callable[[], None]) -> None:
        with self.machine.changed:
            self.queue.append(do)
            if self.thread is None:
                self.thread = threading.Thread(target=self._work, daemon=True)
                self.thread.start()
            self.machine.changed.notify_all()

    def _work(self) -> None:
        machine = self.machine
        while True:
            with machine.changed:
                while not self.queue:
                    if not self.is_open:
                        return
                    machine.changed.wait()
                do = self.queue.popleft()
                self.is_busy = True
            machine.dawdle()
            try:
                if not machine.fault:
                    do()
            except CudaError as error:
                machine.break_down(error.status)
            except Exception as error:  # noqa: BLE001 a kernel does what it may not
                machine.violate(f"{type(error).__name__}: {error}")
                machine.break_down(700)
            with machine.changed:
                self.is_busy = False
                machine.changed.notify_all()

    @property
    def is_idle(self) -> bool:
        return not self.queue and not self.is_busy


class Event:
    """What was recorded last."""

    def __init__(self, device: int, *, is_timed: bool) -> None:
        self.device = device
        self.is_timed = is_timed
        self.reached = threading.Event()
        self.reached.set()
        self.clock: Clock = {}
        self.seconds = 0.0
        self.is_captured = False


class Machine:
    """All that the stand-in knows.

    Args:
        capacity: bytes of the device's memory.
        late: how many milliseconds work waits at most before it begins.

    Attributes:
        gate: nothing is done while it is not set.
        counts: how often each function was called.
        violations: what nobody may do.
        fault: the error after which nothing works; 0 as long as it does.
        block_at: where the memory ends that an address is in, as whoever cut the region
            up says.
    """

    def __init__(
        self, capacity: int = 1 << 28, late: float = 1.0, seed: int = 0
    ) -> None:
        self.capacity = capacity
        self.late = late
        self.random = random.Random(seed)
        self.changed = threading.Condition()
        self._here = threading.local()
        self.gate = threading.Event()
        self.gate.set()
        self.counts: Counter[str] = Counter()
        self.violations: list[str] = []
        self.fault = 0
        self.planned: dict[str, list[tuple[int, int]]] = {}
        self.regions: list[Region] = []
        self.starts: list[int] = []
        self.graveyard: deque[Region] = deque(maxlen=64)
        self.streams: dict[int, Stream] = {}
        self.destroyed: list[Stream] = []
        self.events: dict[int, Event] = {}
        self.graphs: dict[int, list[Work]] = {}
        self.host: Clock = {}
        self.handles = iter(range(1000, 1 << 40, 8))
        self.used = 0
        self.most_used = 0
        self.block_at: Callable[[int], int | None] = lambda address: None
        for handle in (0, 1, 2):
            self.streams[handle] = Stream(self, handle)

    # what a test plants, and finds

    def plan(self, function: str, status: int, after: int = 0) -> None:
        """Have *function* fail with *status*, once it was called *after* times more."""
        self.planned.setdefault(function, []).append((after, status))

    def violate(self, what: str) -> None:
        self.violations.append(what)

    def break_down(self, status: int) -> None:
        with self.changed:
            self.fault = self.fault or status
            self.changed.notify_all()

    def dawdle(self) -> None:
        """Be late, by chance."""
        while not self.gate.wait(0.1):
            if self.fault:
                return
        if self.late and self.random.random() < 0.5:
            threading.Event().wait(self.random.random() * self.late / 1000)

    def called(self, function: str) -> None:
        """Count a call, which may have to fail.

        Raises:
            CudaError: a test planted it, or nothing works any more.
        """
        with self.changed:
            self.counts[function] += 1
            plans = self.planned.get(function, [])
            for number, (after, status) in enumerate(plans):
                if after:
                    plans[number] = (after - 1, status)
                else:
                    del plans[number]
                    if status in STICKY:
                        self.fault = status
                    raise CudaError(status)
            if self.fault:
                raise CudaError(self.fault)

    @property
    def device(self) -> int:
        """The calling thread's."""
        return getattr(self._here, "device", 0)

    @device.setter
    def device(self, device: int) -> None:
        self._here.device = device

    def stream(self, handle: int) -> Stream:
        try:
            return self.streams[handle]
        except KeyError:
            raise CudaError(400) from None

    # memory

    def allocate(self, nbytes: int, *, on_host: bool) -> int:
        if not on_host:
            if self.used + nbytes > self.capacity:
                raise CudaError(2)
            self.used += nbytes
            self.most_used = max(self.used, self.most_used)
        region = Region(nbytes, on_host=on_host)
        with self.changed:
            place = bisect.bisect(self.starts, region.start)
            self.starts.insert(place, region.start)
            self.regions.insert(place, region)
        return region.start

    def free(self, address: int) -> None:
        with self.changed:
            region = self.region(address)
            if region is None or region.start != address:
                self.violate(f"{address:#x} is freed, and was not allocated")
                raise CudaError(1)
            self._prune(region)
            for access in region.accesses:
                self.violate(f"memory is freed while it is used by {access.what}")
            if not region.is_guarded():
                self.violate("something wrote beside memory that is freed")
            region.bytes(region.start, region.nbytes)[:] = POISON
            region.is_live = False
            place = self.starts.index(address)
            del self.starts[place], self.regions[place]
            self.graveyard.append(region)
            if not region.on_host:
                self.used -= region.nbytes

    def region(self, address: int, nbytes: int = 1) -> Region | None:
        place = bisect.bisect(self.starts, address) - 1
        if place < 0:
            return None
        region = self.regions[place]
        return region if address + nbytes <= region.end else None

    def bytes(self, address: int, nbytes: int, what: str) -> np.ndarray[Any, Any]:
        """Memory, by whoever does what was queued.

        Raises:
            CudaError: it is not there.
        """
        with self.changed:
            region = self.region(address, nbytes)
        if region is None:
            self.violate(f"{what} uses {nbytes} bytes at {address:#x}: not allocated")
            raise CudaError(700)
        return region.bytes(address, nbytes)

    def extent(self, address: int) -> int:
        """Where the memory ends that begins at *address*."""
        region = self.region(address)
        if region is None:
            return address + 1
        found = self.block_at(address)
        return region.end if found is None else min(found, region.end)

    # order

    def _prune(self, region: Region) -> None:
        region.accesses = [
            access
            for access in region.accesses
            if self.host.get(access.stream, 0) < access.tick
        ]

    def queue(self, stream: Stream, work: Work) -> None:
        """Have *stream* do *work*, or note it."""
        if stream.capture is not None:
            stream.capture.append(work)
            return
        with self.changed:
            merge(stream.clock, self.host)
            stream.tick += 1
            stream.clock[stream.handle] = stream.tick
            for begin, end, writes in work.ranges:
                self._touch(stream, work.what, begin, end, writes)
        stream.push(work.do)

    def _touch(
        self, stream: Stream, what: str, begin: int, end: int, writes: bool
    ) -> None:
        region = self.region(begin, max(end - begin, 1)) if end > begin else None
        if region is None:
            return  # which is found when it is done
        self._prune(region)
        for access in region.accesses:
            overlaps = access.begin < end and begin < access.end
            if not overlaps or not (writes or access.writes):
                continue
            if stream.clock.get(access.stream, 0) < access.tick:
                self.violate(
                    f"{what} on stream {stream.handle} "
                    f"{'writes' if writes else 'reads'} what {access.what} "
                    f"on stream {access.stream} may still be "
                    f"{'writing' if access.writes else 'reading'}"
                )
        region.accesses.append(
            Access(begin, end, stream.handle, stream.tick, writes, what)
        )

    def wait_until(self, done: Callable[[], bool]) -> None:
        """Block the calling thread.

        Raises:
            CudaError: nothing works any more.
        """
        with self.changed:
            while not done() and not self.fault:
                if not self.changed.wait(PATIENCE):
                    raise AssertionError("a stream waits for what is never queued")
            if self.fault:
                raise CudaError(self.fault)

    def close(self) -> None:
        """Have what is queued done, and end the threads; nobody waits any more."""
        self.gate.set()
        with self.changed:
            queues = [*self.streams.values(), *self.destroyed]
            self.changed.wait_for(
                lambda: self.fault or all(each.is_idle for each in queues), PATIENCE
            )
            for stream in self.streams.values():
                stream.is_open = False
            self.fault = self.fault or CLOSED
            self.changed.notify_all()


def merge(clock: Clock, other: Clock) -> None:
    """Let *clock* know what *other* does."""
    for stream, tick in other.items():
        if tick > clock.get(stream, 0):
            clock[stream] = tick


def checksum(content: np.ndarray[Any, Any]) -> int:
    return zlib.adler32(content.tobytes())
