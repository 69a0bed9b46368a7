"""One of wgpu's devices: memory from a pool, and work in one queue.

A device that was lost is made anew when it is next needed, as another *generation*:
what was in its memory, and whatever was compiled for it, is gone then.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from onnxplug import ep
from onnxplug.authoring.locks import new_rlock
from onnxplug_compiler.gpu.execution.device import (
    Copies,
    DeviceLost,
    DeviceStream,
    Launches,
)
from onnxplug_webgpu.adapters import Adapter, find_adapters
from onnxplug_webgpu.loss import driving, is_loss, lost
from onnxplug_webgpu.pool import ALIGNMENT, Memory, Pool

_LIMITS: Final = ("max-buffer-size", "max-storage-buffer-binding-size")
"""What a device is asked to have as much of as its adapter; kernels keep to what
WebGPU has everywhere."""

_ROOMS: Final = 8
"""Staging buffers that are kept."""

_LARGEST_ROOM: Final = 1 << 24
"""Bytes of the largest that is kept."""


class Queue:
    """A device's queue and memory.

    Args:
        wgpu: the module.
        adapter: what it is on.

    Attributes:
        lock: held while work is put together and queued.
        launches: how many kernels were launched.
        generation: how often it was made.
        largest: bytes that a kernel binds of a buffer, at most.
        largest_buffer: bytes of an array, at most.
        submitted, completed: how often work was queued, and how much of that is known
            to be done.
        fence: what was queued to find out more of that; see :mod:`~.readback`.

    Raises:
        RuntimeError: the driver gives no device.
    """

    def __init__(self, wgpu: Any, adapter: Adapter) -> None:
        self.wgpu = wgpu
        self.adapter = adapter
        self.lock: Final[threading.RLock] = new_rlock()
        self.launches = 0
        self.generation = 0
        self.submitted = self.completed = 0
        self._usage = wgpu.BufferUsage
        self._is_lost = False
        self._process = os.getpid()
        self.fence: Any = None
        self._make()

    def _make(self) -> None:
        if self._process != os.getpid():
            raise RuntimeError(
                f"{self.adapter} is not there for a process that was forked from one "
                "which used it, as its driver's threads are not; start processes by "
                "spawn, or by fork before the first session on WebGPU"
            )
        available = self.adapter.native.limits
        try:
            self.native = self.adapter.native.request_device_sync(
                label="onnxplug",
                required_limits={name: available[name] for name in _LIMITS},
            )
        except Exception as error:
            ep.raise_interruption(error)
            raise RuntimeError(f"{self.adapter} gives no device: {error}") from error
        self.queue = self.native.queue
        buffer, binding = (int(available[name]) for name in _LIMITS)
        self.largest_buffer = buffer // ALIGNMENT * ALIGNMENT
        self.largest = min(buffer, binding) // ALIGNMENT * ALIGNMENT
        self.generation += 1
        self._bound: OrderedDict[tuple[Any, ...], Any] = OrderedDict()
        self._pool = Pool(self.largest_buffer, self.generation, self._bound.clear)
        self._rooms: list[Any] = []
        self.fence = None
        self.completed = self.submitted
        self._is_lost = False

    def __str__(self) -> str:
        return str(self.adapter)

    # loss

    @property
    def is_lost(self) -> bool:
        """Whether it is known to be lost; one of the process that this was forked from
        is, as its threads are."""
        return self._is_lost or self._process != os.getpid()

    def lose(self) -> None:
        """Note that the device is lost."""
        self._is_lost = True

    def check_there(self) -> None:
        """Raise what wgpu does if the device is lost."""
        # commands that are encoded and not queued stay in wgpu-native, and its device
        self.native.create_bind_group_layout(entries=[])

    def is_gone(self) -> bool:
        """Whether it is lost, asked of the driver."""
        if self.is_lost:
            return True
        try:
            self.check_there()
        except Exception as error:  # noqa: BLE001
            ep.raise_interruption(error)
            return is_loss(error)
        return False

    def ensure(self) -> None:
        """Make the device anew if it was lost.

        Raises:
            RuntimeError: the driver gives none any more.
        """
        if not self.is_lost:
            return
        with self.lock:
            if self.is_lost:
                mine = self.adapter
                same = [
                    each
                    for each in find_adapters(self.wgpu)
                    if (each.name, each.backend) == (mine.name, mine.backend)
                    and each.number == mine.number
                ]
                self.adapter = same[0] if same else mine
                self._make()

    def has(self, memory: Memory) -> bool:
        """Whether what was put into *memory* is there: of a device that was lost
        meanwhile it is not."""
        return memory.generation == self.generation and not self.is_lost

    def _check(self, memories: Sequence[Memory]) -> None:
        """Check, under the lock, that nothing was lost with the device before."""
        if not all(map(self.has, memories)):
            raise lost(self)

    def lost(self) -> DeviceLost:
        """The error for what was lost with the device."""
        return lost(self)

    # memory

    def memory(
        self, nbytes: int, stream: DeviceStream | None = None, mode: str = ""
    ) -> Memory:
        """Memory of unspecified content, for what is queued from now on.

        Args:
            stream: any, as all of them are of one queue.
            mode: one of :data:`~onnxplug_webgpu.pool.CACHE_MODES`; ``bucket`` if empty.

        Raises:
            MemoryError: there is none, or no device has that much at once.
        """
        if nbytes > self.largest_buffer:
            raise MemoryError(
                f"an array of {nbytes} bytes; {self.adapter} has arrays of at most "
                f"{self.largest_buffer}"
            )
        self.ensure()
        with self.lock:
            return self._pool.take(nbytes, self._storage, mode or "bucket")

    def used_bytes(self) -> int:
        """Of memory that somebody has."""
        with self.lock:
            self._pool.collect()
            return self._pool.total - self._pool.idle

    def _storage(self, size: int) -> Any:
        usage = self._usage
        return self.create(size, usage.STORAGE | usage.COPY_SRC | usage.COPY_DST)

    def create(self, size: int, usage: int) -> Any:
        """A buffer of wgpu's.

        Raises:
            MemoryError: there is no memory for it, not even if all is given up that is
                kept and that nobody uses.
        """
        for attempt in range(2):
            try:
                with driving(self):
                    return self.native.create_buffer(size=size, usage=usage)
            except Exception as error:
                ep.raise_interruption(error)
                if isinstance(error, ep.OnnxplugError):
                    raise
                if attempt == 0:
                    self._pool.collect()
                    self._pool.trim()
                    self._rooms.clear()
                    continue
                raise MemoryError(
                    f"{self.adapter} has no {size} bytes: {error}; close sessions that "
                    "share it, or feed less at once"
                ) from error
        raise AssertionError("the second attempt raises or returns")

    def upload(
        self,
        memory: Memory,
        array: np.ndarray[Any, Any],
        stream: DeviceStream | None = None,
    ) -> None:
        """Queue that the bytes of *array*, which may change then, are written to
        *memory*; it is in the order of all streams.

        Raises:
            DeviceLost: the device is, or the one that *memory* is of.
        """
        content = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        if not content.size:
            return
        rest = content.size % 4
        with self.lock, driving(self):
            self._check([memory])
            whole = content.size - rest
            if whole:
                self.queue.write_buffer(memory.buffer, 0, content[:whole])
            if rest:
                last = np.zeros(4, np.uint8)
                last[:rest] = content[whole:]
                self.queue.write_buffer(memory.buffer, whole, last)

    def room(self, nbytes: int) -> Any:
        """A staging buffer that the host can read; :meth:`give_back` it."""
        size = max(ALIGNMENT, 1 << (nbytes - 1).bit_length())
        if size > _LARGEST_ROOM:
            size = -(-nbytes // ALIGNMENT) * ALIGNMENT
        with self.lock:
            for number, room in enumerate(self._rooms):
                if room.size == size:
                    return self._rooms.pop(number)
            return self.create(size, self._usage.MAP_READ | self._usage.COPY_DST)

    def give_back(self, room: Any) -> None:
        """Keep a staging buffer, which nobody reads any more."""
        if room.size > _LARGEST_ROOM:
            return
        with self.lock:
            self._rooms.append(room)
            if len(self._rooms) > _ROOMS:
                self._rooms.pop(0)

    # work

    def submit(self, work: Sequence[Launches | Copies]) -> int:
        """Queue *work*, in order; how often that was done until now.

        Raises:
            DeviceLost: the device is, or the one that memory of *work* is of.
        """

        def encode(encoder: Any) -> None:
            for part in work:
                if isinstance(part, Copies):
                    for source, target, _ in part.pairs:
                        self._check([source, target])
                    self._encode_copies(encoder, part)
                else:
                    self._check(part.memories)
                    self._encode_launches(encoder, part)

        return self.encoded(encode)

    def encoded(self, encode: Callable[[Any], None]) -> int:
        """Queue what *encode* writes with an encoder; how often that was done."""
        with self.lock, driving(self):
            encoder = self.native.create_command_encoder()
            encode(encoder)
            self.queue.submit([encoder.finish()])
            self.submitted += 1
            return self.submitted

    def _encode_launches(self, encoder: Any, work: Launches) -> None:
        if work.cleared is not None:
            encoder.clear_buffer(work.cleared.buffer, 0, work.cleared.nbytes)
        queued = encoder.begin_compute_pass()
        for pipeline, group, start, x, y, _ in work.steps:
            queued.set_pipeline(pipeline)
            queued.set_bind_group(0, group, start)
            queued.dispatch_workgroups(x, y, 1)
        queued.end()
        self.launches += len(work.steps)

    def _encode_copies(self, encoder: Any, work: Copies) -> None:
        for source, target, nbytes in work.pairs:
            size = -(-nbytes // 4) * 4
            if size and source is not target:
                encoder.copy_buffer_to_buffer(source.buffer, 0, target.buffer, 0, size)

    def close(self) -> None:
        """Give up all memory that nobody uses."""
        with self.lock:
            self._pool.collect()
            self._pool.trim()
            self._rooms.clear()
