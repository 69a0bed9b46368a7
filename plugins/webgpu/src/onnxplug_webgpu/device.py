"""One of wgpu's devices: memory from a pool, pipelines, and work in one queue.

All that is queued runs in order, so memory may be handed out again as soon as nothing
that is queued later refers to it.
"""

from __future__ import annotations

import itertools
import threading
from collections import OrderedDict, deque
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from onnxplug import ep
from onnxplug.authoring.locks import new_rlock
from onnxplug_webgpu.adapters import Adapter

_ALIGNMENT: Final = 256
"""Sizes of memory are multiples of it."""

_MOST_IDLE: Final = 1 << 28
"""Bytes that the pool keeps of what nobody uses."""

_MOST_BINDINGS: Final = 4096
"""Groups of bound buffers that are kept."""

_LIMITS: Final = ("max-buffer-size", "max-storage-buffer-binding-size")
"""What a device is asked to have as much of as its adapter; kernels keep to what
WebGPU has everywhere."""


class Memory:
    """Bytes on a device; they return to the pool when this object goes.

    Attributes:
        buffer: wgpu's.
        nbytes: how many there are, at least as many as were asked for.
        serial: tells it from all others, also from those before.
    """

    __slots__ = ("__weakref__", "_pool", "buffer", "nbytes", "serial")
    _serials = itertools.count()

    def __init__(self, pool: deque[Any], buffer: Any, nbytes: int, serial: int) -> None:
        self._pool = pool
        self.buffer = buffer
        self.nbytes = nbytes
        self.serial = serial

    def __del__(self) -> None:
        # in whatever thread, maybe as garbage is collected: no lock may be taken
        self._pool.append((self.buffer, self.nbytes, self.serial))


class Pipeline:
    """A compiled kernel.

    Attributes:
        native: wgpu's pipeline.
        layout: of its bound buffers.
        serial: tells it from others.
    """

    __slots__ = ("layout", "native", "serial")

    def __init__(self, native: Any, layout: Any, serial: int) -> None:
        self.native = native
        self.layout = layout
        self.serial = serial


class Device:
    """A device, for all sessions of a process.

    Args:
        wgpu: the module.
        adapter: what it is on.

    Attributes:
        lock: held while work is put together and queued.
        launches: how many kernels were launched.

    Raises:
        RuntimeError: the driver gives no device.
    """

    def __init__(self, wgpu: Any, adapter: Adapter) -> None:
        self.wgpu = wgpu
        self.adapter = adapter
        self.lock: Final[threading.RLock] = new_rlock()
        self.launches = 0
        available = adapter.native.limits
        try:
            self.native = adapter.native.request_device_sync(
                label="onnxplug",
                required_limits={name: available[name] for name in _LIMITS},
            )
        except Exception as error:
            ep.raise_interruption(error)
            raise RuntimeError(f"{adapter} gives no device: {error}") from error
        self.queue = self.native.queue
        self.largest = min(int(available[name]) for name in _LIMITS)
        self._usage = wgpu.BufferUsage
        self._free: dict[int, list[tuple[Any, int]]] = {}
        self._returned: deque[Any] = deque()
        self._idle = 0
        self._pipelines: dict[str, Pipeline] = {}
        self._bound: OrderedDict[tuple[int, ...], Any] = OrderedDict()

    # memory

    def memory(self, nbytes: int) -> Memory:
        """Memory of unspecified content, for what is queued from now on.

        Raises:
            MemoryError: there is none, or no device has that much at once.
        """
        size = max(_ALIGNMENT, -(-nbytes // _ALIGNMENT) * _ALIGNMENT)
        if size > self.largest:
            raise MemoryError(
                f"an array of {nbytes} bytes; {self.adapter} has arrays of at most "
                f"{self.largest}"
            )
        with self.lock:
            self._collect()
            free = self._free.get(size)
            if free:
                buffer, serial = free.pop()
                self._idle -= size
                return Memory(self._returned, buffer, size, serial)
            usage = self._usage.STORAGE | self._usage.COPY_SRC | self._usage.COPY_DST
            buffer = self._create(size, usage)
            return Memory(self._returned, buffer, size, next(Memory._serials))

    def _create(self, size: int, usage: int) -> Any:
        for attempt in range(2):
            try:
                return self.native.create_buffer(size=size, usage=usage)
            except Exception as error:
                ep.raise_interruption(error)
                if attempt == 0 and self._idle:
                    self._trim(0)
                    continue
                raise MemoryError(
                    f"{self.adapter} has no {size} bytes: {error}"
                ) from error
        raise AssertionError("the second attempt raises or returns")

    def _collect(self) -> None:
        """Take back what nobody uses any more."""
        while self._returned:
            buffer, size, serial = self._returned.popleft()
            self._free.setdefault(size, []).append((buffer, serial))
            self._idle += size
        if self._idle > _MOST_IDLE:
            self._trim(_MOST_IDLE // 2)

    def _trim(self, most: int) -> None:
        """Give up memory that nobody uses, the largest pieces first."""
        for size in sorted(self._free, reverse=True):
            while self._free[size] and self._idle > most:
                self._free[size].pop()
                self._idle -= size
        self._bound.clear()

    def upload(self, memory: Memory, array: np.ndarray[Any, Any]) -> None:
        """Queue that the bytes of *array* are written to *memory*."""
        content = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        if not content.size:
            return
        rest = content.size % 4
        with self.lock:
            whole = content.size - rest
            if whole:
                self.queue.write_buffer(memory.buffer, 0, content[:whole])
            if rest:
                last = np.zeros(4, np.uint8)
                last[:rest] = content[whole:]
                self.queue.write_buffer(memory.buffer, whole, last)

    def download(self, pairs: Sequence[tuple[Memory, np.ndarray[Any, Any]]]) -> None:
        """Wait for all that is queued, and fill arrays, in C order, from memory."""
        pairs = [pair for pair in pairs if pair[1].nbytes]
        if not pairs:
            return
        sizes = [-(-array.nbytes // 8) * 8 for _, array in pairs]
        starts = list(itertools.accumulate(sizes, initial=0))
        usage = self._usage.MAP_READ | self._usage.COPY_DST
        with self.lock:
            staging = self._create(starts[-1], usage)
            encoder = self.native.create_command_encoder()
            for (memory, _), start, size in zip(pairs, starts, sizes, strict=False):
                encoder.copy_buffer_to_buffer(memory.buffer, 0, staging, start, size)
            self.queue.submit([encoder.finish()])
            staging.map_sync(self.wgpu.MapMode.READ)
            try:
                for (_, array), start, size in zip(pairs, starts, sizes, strict=False):
                    found = staging.read_mapped(start, size, copy=False)
                    content = np.frombuffer(found, np.uint8)[: array.nbytes]
                    array.reshape(-1).view(np.uint8)[:] = content
            finally:
                staging.unmap()
                staging.destroy()

    def copy(self, pairs: Sequence[tuple[Memory, Memory, int]]) -> None:
        """Queue copies from the first memory of each to the second, and how much."""
        with self.lock:
            encoder = self.native.create_command_encoder()
            for source, target, nbytes in pairs:
                size = -(-nbytes // 4) * 4
                if size:
                    encoder.copy_buffer_to_buffer(
                        source.buffer, 0, target.buffer, 0, size
                    )
            self.queue.submit([encoder.finish()])

    # kernels

    def pipeline(self, text: str, written: Sequence[bool]) -> Pipeline:
        """The compiled form of a kernel.

        Args:
            text: in WGSL.
            written: which of its buffers it writes to.

        Raises:
            RuntimeError: the driver does not compile it.
        """
        with self.lock:
            found = self._pipelines.get(text)
            if found is None:
                found = self._pipelines[text] = self._compiled(text, written)
            return found

    def _compiled(self, text: str, written: Sequence[bool]) -> Pipeline:
        stage = self.wgpu.ShaderStage.COMPUTE
        numbers = {"type": "uniform", "has_dynamic_offset": True}
        entries = [{"binding": 0, "visibility": stage, "buffer": numbers}]
        for number, writes in enumerate(written, 1):
            kind = "storage" if writes else "read-only-storage"
            entries.append(
                {"binding": number, "visibility": stage, "buffer": {"type": kind}}
            )
        native = self.native
        try:
            layout = native.create_bind_group_layout(entries=entries)
            pipeline = native.create_compute_pipeline(
                layout=native.create_pipeline_layout(bind_group_layouts=[layout]),
                compute={
                    "module": native.create_shader_module(code=text),
                    "entry_point": "main",
                },
            )
        except Exception as error:
            ep.raise_interruption(error)
            raise RuntimeError(
                f"{self.adapter} does not compile a kernel: {error}\n{text}"
            ) from error
        return Pipeline(pipeline, layout, len(self._pipelines))

    def bound(
        self,
        pipeline: Pipeline,
        numbers: Memory,
        window: int,
        memories: Sequence[Memory],
    ) -> Any:
        """The group of buffers for a launch.

        Args:
            numbers: those of launches, of which one sees *window* bytes.
        """
        key = (pipeline.serial, numbers.serial, window, *[m.serial for m in memories])
        found = self._bound.get(key)
        if found is None:
            entries: list[dict[str, Any]] = [
                {
                    "binding": 0,
                    "resource": {"buffer": numbers.buffer, "offset": 0, "size": window},
                }
            ]
            entries += [
                {
                    "binding": number,
                    "resource": {
                        "buffer": memory.buffer,
                        "offset": 0,
                        "size": memory.nbytes,
                    },
                }
                for number, memory in enumerate(memories, 1)
            ]
            found = self.native.create_bind_group(
                layout=pipeline.layout, entries=entries
            )
            self._bound[key] = found
            if len(self._bound) > _MOST_BINDINGS:
                self._bound.popitem(last=False)
        return found

    def uniform(self, content: bytes) -> Memory:
        """Memory for the numbers of launches, filled."""
        with self.lock:
            usage = self._usage.UNIFORM | self._usage.COPY_DST
            buffer = self._create(len(content), usage)
            self.queue.write_buffer(buffer, 0, content)
            # of a use of its own, it goes back to no pool
            return Memory(deque(), buffer, len(content), next(Memory._serials))

    def close(self) -> None:
        """Give up all memory that nobody uses."""
        with self.lock:
            self._collect()
            self._trim(0)
            self._pipelines.clear()
