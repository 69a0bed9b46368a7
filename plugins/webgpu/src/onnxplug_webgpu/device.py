"""One of wgpu's devices: memory from a pool, pipelines, and work in one queue.

A device that was lost is made anew when it is next needed, as another *generation*:
what was in its memory, and whatever was compiled for it, is gone then.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from onnxplug import ep
from onnxplug.authoring.locks import new_rlock
from onnxplug.authoring.record import Record
from onnxplug_webgpu.adapters import Adapter, find_adapters
from onnxplug_webgpu.loss import driving, is_loss, lost
from onnxplug_webgpu.pool import ALIGNMENT, Memory, Pool, of_its_own

_MOST_BINDINGS: Final = 4096
"""Groups of bound buffers that are kept."""

_MOST_PIPELINES: Final = 1024
"""Kernels that are kept for programs to come; programs keep their own."""

_LIMITS: Final = ("max-buffer-size", "max-storage-buffer-binding-size")
"""What a device is asked to have as much of as its adapter; kernels keep to what
WebGPU has everywhere."""

_ROOMS: Final = 8
"""Staging buffers that are kept."""

_LARGEST_ROOM: Final = 1 << 24
"""Bytes of the largest that is kept."""


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


class Launches(Record):
    """Launches of kernels, ready to be queued, again and again.

    Attributes:
        steps: of each the pipeline, the group of bound buffers, where its numbers
            begin, and the workgroups along two axes.
        cleared: memory that is filled with zeros before.
        memories: all that is bound.
    """

    steps: tuple[tuple[Any, Any, list[int], int, int], ...]
    cleared: Memory | None
    memories: tuple[Memory, ...]


class Copies(Record):
    """Copies on the device: from which memory to which, and how many bytes."""

    pairs: tuple[tuple[Memory, Memory, int], ...]


class KernelRefused(ValueError):
    """A driver does not compile a kernel."""


class Device:
    """A device, for all sessions of a process.

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
        tuned: shapes of workgroups that were measured, by name; see
            :mod:`~.tuning`.
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
        self._serials = itertools.count()
        self._is_lost = False
        self._process = os.getpid()
        self.tuned: dict[str, int] = {}
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
        self._pipelines: OrderedDict[str, Pipeline] = OrderedDict()
        self._rooms: list[Any] = []
        self.fence = None
        self.completed = self.submitted
        self._is_lost = False

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

    # memory

    def memory(self, nbytes: int, mode: str = "bucket") -> Memory:
        """Memory of unspecified content, for what is queued from now on.

        Args:
            mode: one of :data:`~onnxplug_webgpu.pool.CACHE_MODES`.

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
            return self._pool.take(nbytes, self._storage, mode)

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

    def upload(self, memory: Memory, array: np.ndarray[Any, Any]) -> None:
        """Queue that the bytes of *array*, which may change then, are written to
        *memory*.

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
        for pipeline, group, start, x, y in work.steps:
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

    # kernels

    def pipeline(self, text: str, written: Sequence[bool]) -> Pipeline:
        """The compiled form of a kernel.

        Args:
            text: in WGSL.
            written: which of its buffers it writes to.

        Raises:
            KernelRefused: the driver does not compile it.
        """
        with self.lock:
            found = self._pipelines.get(text)
            if found is None:
                found = self._pipelines[text] = self._compiled(text, written)
                if len(self._pipelines) > _MOST_PIPELINES:
                    self._pipelines.popitem(last=False)
            else:
                self._pipelines.move_to_end(text)
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
            with driving(self):
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
            if isinstance(error, ep.OnnxplugError | MemoryError):
                raise
            raise KernelRefused(
                f"the driver of {self.adapter}, {self.adapter.driver or 'unknown'}, "
                f"does not compile the kernel: {_first_line(error)}; update the driver"
            ) from error
        return Pipeline(pipeline, layout, next(self._serials))

    def bound(
        self,
        pipeline: Pipeline,
        numbers: Memory,
        window: int,
        bound: Sequence[tuple[Memory, int, int]],
    ) -> Any:
        """The group of buffers for a launch.

        Args:
            numbers: those of launches, of which one sees *window* bytes.
            bound: memories, where what is bound of them begins, and how many bytes; 0
                for as much as can be.
        """
        places = [(memory.serial, begin, nbytes) for memory, begin, nbytes in bound]
        self._check([numbers, *(memory for memory, _, _ in bound)])
        key = (pipeline.serial, numbers.serial, window, *places)
        found = self._bound.get(key)
        if found is None:
            entries = [_entry(0, numbers, 0, window)]
            entries += [
                _entry(
                    number, memory, begin, nbytes or min(memory.nbytes, self.largest)
                )
                for number, (memory, begin, nbytes) in enumerate(bound, 1)
            ]
            with driving(self):
                found = self.native.create_bind_group(
                    layout=pipeline.layout, entries=entries
                )
            self._bound[key] = found
            if len(self._bound) > _MOST_BINDINGS:
                self._bound.popitem(last=False)
        return found

    def uniform(self, content: bytes) -> Memory:
        """Memory for the numbers of launches, filled."""
        with self.lock, driving(self):
            usage = self._usage.UNIFORM | self._usage.COPY_DST
            buffer = self.create(len(content), usage)
            self.queue.write_buffer(buffer, 0, content)
            return of_its_own(buffer, len(content), self.generation)

    def close(self) -> None:
        """Give up all memory that nobody uses, and kernels."""
        with self.lock:
            self._pool.collect()
            self._pool.trim()
            self._rooms.clear()
            self._pipelines.clear()


def _entry(number: int, memory: Memory, begin: int, nbytes: int) -> dict[str, Any]:
    resource = {"buffer": memory.buffer, "offset": begin, "size": nbytes}
    return {"binding": number, "resource": resource}


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines[:6]) or type(error).__name__
