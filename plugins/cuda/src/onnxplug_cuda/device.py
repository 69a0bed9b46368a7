"""A GPU by CUDA: memory of arenas, kernels, and work on streams."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import numpy as np

from onnxplug import ep
from onnxplug_compiler.gpu.execution.device import (
    DeviceLost,
    DeviceStream,
    KernelRefused,
)
from onnxplug_compiler.gpu.render.cuda import CUDA
from onnxplug_compiler.gpu.render.dialect import Dialect
from onnxplug_cuda import __version__
from onnxplug_cuda.array import CudaArray
from onnxplug_cuda.calls import Bound, Library, LibraryCall
from onnxplug_cuda.driver import Driver
from onnxplug_cuda.kernels import Kernel, KernelLaunch, Kernels, LaunchCache
from onnxplug_cuda.options import PER_THREAD
from onnxplug_cuda.pool import ALIGNMENT, Arena, Memory, Source
from onnxplug_cuda.shared import Shared
from onnxplug_cuda.streams import NON_BLOCKING, CudaStream

_MOST_BYTES: Final = (1 << 31) - ALIGNMENT
"""Bytes that a kernel binds: it counts elements, which may be bytes, by 31 bits."""

MOST_GROUPS: Final = ((1 << 31) - 1, 65535)
"""Blocks of a launch along both axes."""

MOST_BUFFERS: Final = 64
"""Arrays of a kernel; a launch has bytes of arguments for many more."""


class _DriverSource:
    """Regions from the driver."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    def allocate(self, nbytes: int) -> int:
        with self._driver:  # which tells that there is no memory
            return int(self._driver.runtime.malloc(nbytes))

    def free(self, address: int) -> None:
        self._driver.runtime.free(address)

    def forget(self) -> None:
        return None


class CudaDevice:
    """A :class:`onnxplug_compiler.gpu.execution.device.Device`, for all sessions of a
    process.

    Args:
        driver: of which device.

    Attributes:
        lock: held while work is put together and queued.
        shared: what its streams share.
        engines: the libraries, by the type of the calls that each does.
        has_looked_for_engines: whether these are all that there are.
    """

    dialect: Dialect = CUDA
    alignment = ALIGNMENT
    numbers_alignment = 4
    most_buffers = MOST_BUFFERS
    most_groups = MOST_GROUPS
    generation = 1
    array_type = CudaArray

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.shared = Shared(driver)
        self.lock: Final[threading.RLock] = self.shared.lock
        self.engines: dict[type, Library] = {}
        self.has_looked_for_engines = False
        total = driver.properties.total
        self.largest_buffer = total // ALIGNMENT * ALIGNMENT
        self.largest = min(_MOST_BYTES, self.largest_buffer)
        self._kernels = Kernels(driver, self._settle)
        self._launches = LaunchCache()
        self._arenas: dict[str, Arena] = {"": self._new_arena(None, doubles=True)}
        self._own: CudaStream | None = None

    def __str__(self) -> str:
        return str(self.driver.properties)

    def identity(self) -> Mapping[str, Any]:
        """What all that is kept on disk for the device depends on, as JSON has it."""
        properties = self.driver.properties
        return {
            "onnxplug-cuda": __version__,
            "device": properties.name,
            "capability": list(properties.capability),
            "driver": list(properties.driver),
            "nvrtc": list(self._kernels.version),
        }

    # loss: CUDA does nothing more then in this process

    def ensure(self) -> None:
        """Check that the device is there.

        Raises:
            DeviceLost: it was, and there is no other in this process.
        """
        self.driver.check()

    def has(self, memory: Memory) -> bool:
        """Whether what was put into *memory* is there."""
        return not self.driver.fault

    def lost(self) -> DeviceLost:
        """The error for what was lost, and its remedy."""
        return self.driver.lost()

    # memory

    def _new_arena(
        self, limit: int | None, *, doubles: bool, source: Source | None = None
    ) -> Arena:
        source = source or _DriverSource(self.driver)
        return Arena(
            source,
            limit,
            doubles=doubles,
            make_room=self._make_room,
            settle=self._settle,
        )

    def open_arena(
        self, limit: int | None, *, doubles: bool, source: Source | None = None
    ) -> str:
        """Memory for a session of its own; by this word it is asked of
        :meth:`memory`.  :meth:`close_arena` gives it up.

        Args:
            limit: bytes, at most; ``None`` for as many as there are.
            doubles: each region of it is twice as large as the last.
            source: where regions are from; by default the driver.
        """
        arena = self._new_arena(limit, doubles=doubles, source=source)
        word = f"arena {id(arena):x}"
        with self.lock:
            self._arenas[word] = arena
        return word

    def close_arena(self, word: str) -> None:
        """Give an arena up, once what was taken from it has returned; of the one that
        sessions share, what nobody uses."""
        with self.lock:
            self._arenas[word].is_closing = bool(word)
            if not self.driver.fault:
                self._close_arenas()

    def _close_arenas(self) -> None:
        """Give back to the driver what nobody uses of arenas that are closing, and of
        the one that sessions share."""
        for word, arena in list(self._arenas.items()):
            if not word or arena.is_closing:
                with self.driver:
                    arena.trim()
            if arena.is_closing and not arena.held:
                del self._arenas[word]

    def arena(self, word: str = "") -> Arena:
        """An arena, by its word; nothing for that of values which are of no session."""
        return self._arenas[word]

    def memory(
        self, nbytes: int, stream: DeviceStream | None = None, mode: str = ""
    ) -> Memory:
        """Memory of unspecified content, for what is queued from now on.

        Args:
            stream: what it is for; ``None``, or one that captures: all work that used
                it is done.
            mode: the word of an arena.

        Raises:
            MemoryError: there is none.
            DeviceLost: the device was.
        """
        if nbytes > self.largest_buffer:
            raise MemoryError(
                f"an array of {nbytes} bytes was asked for; {self} has "
                f"{self.largest_buffer} in all"
            )
        assert stream is None or isinstance(stream, CudaStream)
        is_noting = stream is not None and stream.is_capturing
        timeline = None if stream is None or is_noting else stream.timeline
        with self.lock, self.driver:
            arena = self._arenas.get(mode) or self._arenas[""]
            return arena.take(nbytes, timeline)

    def used_bytes(self) -> int:
        """Of memory that somebody has, of all sessions."""
        with self.lock:
            for arena in self._arenas.values():
                arena.collect()
            return sum(arena.used for arena in self._arenas.values())

    def _make_room(self) -> None:
        """Give back to the driver what nobody uses, whichever session had it."""
        for arena in self._arenas.values():
            arena.trim()
        self.shared.staging.trim()

    def _settle(self) -> bool:
        """Wait for all work, also of other libraries; whether one can."""
        if any(stream.is_capturing for stream in self.shared.streams.values()):
            return False
        self.driver.runtime.deviceSynchronize()
        return True

    def upload(
        self,
        memory: Memory,
        array: np.ndarray[Any, Any],
        stream: DeviceStream | None = None,
    ) -> None:
        """Have the bytes of *array*, which may change then, written to *memory*, before
        what is queued on *stream* from now on, or on any.

        Raises:
            DeviceLost: the device was.
        """
        assert stream is None or isinstance(stream, CudaStream)
        if stream is not None and not stream.is_capturing:
            stream.upload(memory, array)
            return
        with self.at_once() as own:
            own.upload(memory, array)

    @contextmanager
    def at_once(self) -> Iterator[CudaStream]:
        """A stream, on which all is done when the context ends.

        Raises:
            Exception: what the work raised.
        """
        with self.lock, self.driver:
            if self._own is None:
                self._own = self.new_stream()
            try:
                yield self._own
            except BaseException:
                self._own = None
                raise
            self._own.synchronize()

    # work

    def new_stream(self) -> CudaStream:
        """A stream; whoever asked closes it when its work is done."""
        with self.lock, self.driver:
            self.shared.close_abandoned()
            handle = int(self.driver.runtime.streamCreateWithFlags(NON_BLOCKING))
            stream = self.shared.streams[handle] = CudaStream(self.shared, handle)
        return stream

    def adopt_stream(self, handle: int) -> CudaStream:
        """The user's stream of this handle.

        Raises:
            LookupError: there is no such stream, or it is another one in each thread.
        """
        if handle < 0:
            raise LookupError(f"{handle} is no stream of CUDA's")
        if handle == PER_THREAD:
            raise LookupError(
                f"{handle} is CUDA's default stream of whichever thread uses it, and "
                "memory is kept in the order of one stream; create a stream, or use 1, "
                "the default one of all threads"
            )
        try:
            with self.lock, self.driver:
                self.driver.runtime.streamGetFlags(handle)
                stream = CudaStream(self.shared, handle, is_own=False)
                self.shared.streams.setdefault(handle, stream)
        except RuntimeError as error:
            ep.raise_interruption(error)
            if isinstance(error, ep.OnnxplugError):
                raise
            raise LookupError(f"{handle} is no stream of {self}: {error}") from error
        return stream

    def kernel(self, text: str, written: Sequence[bool], lanes: int) -> Kernel:
        """The compiled form of a kernel.

        Raises:
            KernelRefused: it is not compiled, or the device does not take it.
        """
        with self.lock, self.driver:
            return self._kernels.get(text, lanes)

    def numbers(self, content: bytes) -> bytes:
        """The same, as launches have their numbers by value."""
        return content

    def launch(
        self,
        kernel: Kernel,
        numbers: bytes,
        start: int,
        window: int,
        groups: tuple[int, int],
        buffers: Sequence[tuple[Memory, int, int]],
    ) -> KernelLaunch:
        """A launch that is ready to be queued; as of the protocol.

        Raises:
            KernelRefused: it has more arguments than CUDA passes.
        """
        return self._launches.launch(kernel, numbers, start, window, groups, buffers)

    def engine(self, call: Any, begins: Sequence[int], workspace: int) -> LibraryCall:
        """The plan of the library that does a call; as of the protocol.

        Raises:
            KernelRefused: there is none.
        """
        library = self.engines.get(type(call))
        if library is None:
            raise KernelRefused(f"no library of {self} does {type(call).__name__}")
        with self.lock, self.driver:
            return LibraryCall(call, library.prepare(call, begins, workspace))

    def engine_call(
        self,
        plan: LibraryCall,
        buffers: Sequence[tuple[Memory, int, int]],
        workspace: Memory | None,
    ) -> Bound:
        """A call of a library that is ready to be queued; as of the protocol.

        Raises:
            KernelRefused: the call leaves its memory.
        """
        with self.driver:
            return plan.bound(buffers, workspace)

    def close(self) -> None:
        """Give up all that nobody uses."""
        if self.driver.fault:
            return
        with self.lock, self.driver:
            if self._own is not None:
                self._own.close()
                self._own = None
            self.shared.close_abandoned()
            for library in self.engines.values():
                library.close()
            self.engines.clear()
            self.has_looked_for_engines = False
            for arena in self._arenas.values():
                arena.trim()
            self.shared.staging.trim()
            self._launches.clear()
            self._kernels.close()
            self.shared.events.close()
