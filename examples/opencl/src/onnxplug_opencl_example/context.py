"""A device as all sessions share it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import pyopencl as cl

from onnxplug import ep
from onnxplug.authoring.locks import new_lock

from .memory import SPACE, OpenClAllocator, OpenClTransfer
from .streams import OpenClStream

_used_by: Final[list[int]] = []
"""The process that used OpenCL first; the children of its forks have this, too."""


class OpenClContext(ep.DeviceContext):
    """One device: its memory, its streams, and the kernels that were built for it.

    Attributes:
        device: OpenCL's.
        memory: what makes arrays there.
    """

    def __init__(self, location: ep.MemoryLocation, device: cl.Device) -> None:
        self.location = location
        if not _used_by:
            _used_by.append(os.getpid())
        self.check_process()
        self.device = device
        self._context = cl.Context([device])
        self.native_handle = self._context.int_ptr
        self.memory = OpenClAllocator(self._context, location)
        self.transfer = OpenClTransfer(self)
        self._lock = new_lock()
        self._idle: list[OpenClStream] = []
        self._kernels: dict[tuple[str, str], Kernel] = {}

    @property
    def live_bytes(self) -> int:
        """Bytes of arrays that are not gone."""
        return self.memory.live_bytes

    def allocator(self, kind: ep.MemoryKind) -> ep.Allocator | None:
        """What makes arrays on the device; there is no pinned memory."""
        return self.memory if kind is ep.MemoryKind.DEVICE else None

    def create_stream(self) -> OpenClStream:
        """A command queue."""
        self.check_process()
        return OpenClStream(self._context)

    def own(self, stream: Any) -> OpenClStream:
        """*stream*, which is of this context.

        Raises:
            TypeError: it is not.
            RuntimeError: this is a child of the process that made it.
        """
        self.check_process()
        if isinstance(stream, OpenClStream) and stream.queue.context == self._context:
            return stream
        raise TypeError(f"a {type(stream).__name__} is no stream of {self.location}")

    @contextmanager
    def borrowed_stream(self) -> Iterator[OpenClStream]:
        """A stream for work that is done when this ends."""
        self.check_process()
        with self._lock:
            stream = self._idle.pop() if self._idle else None
        if stream is None:
            stream = self.create_stream()
        yield stream
        with self._lock:
            self._idle.append(stream)

    def kernel(self, name: str, source: str) -> Kernel:
        """The kernel *name* of a program, which is built once.

        Raises:
            RuntimeError: OpenCL's compiler refuses the program.
        """
        with self._lock:
            found = self._kernels.get((name, source))
            if found is None:
                try:
                    program = cl.Program(self._context, source).build()
                except cl.Error as error:
                    raise RuntimeError(
                        f"{self.device.name} cannot build the kernel {name!r}: {error}"
                    ) from error
                found = self._kernels[name, source] = Kernel(cl.Kernel(program, name))
            return found

    def check_process(self) -> None:
        """Check that this is the process that used OpenCL first.

        Raises:
            RuntimeError: the threads of OpenCL's implementation were not forked.
        """
        if _used_by != [os.getpid()]:
            raise RuntimeError(
                f"{self.location} was used before a fork, and OpenCL does not outlive "
                "one; start child processes by 'spawn', or use the device in them only"
            )

    def close(self) -> None:
        """Let kernels and streams go; OpenCL ends with its last object."""
        self._kernels.clear()
        self._idle.clear()


GROUPS: Final[Mapping[int, tuple[int, ...]]] = {1: (64,), 3: (16, 4, 1)}
"""How many items of work are done together, by the number of axes they are along."""


class Kernel:
    """A kernel that several threads may launch."""

    def __init__(self, kernel: cl.Kernel) -> None:
        self._kernel = kernel
        self._lock = new_lock()

    def launch(
        self, stream: OpenClStream, size: tuple[int, ...], arguments: tuple[Any, ...]
    ) -> cl.Event:
        """Queue at least *size* items of work, in groups that are always alike.

        PoCL compiles a kernel anew for each size of groups.
        """
        group = GROUPS[len(size)]
        whole = tuple(
            -(-count // of) * of for count, of in zip(size, group, strict=True)
        )
        with self._lock:  # arguments belong to the kernel until it is queued
            self._kernel.set_args(*arguments)
            return cl.enqueue_nd_range_kernel(stream.queue, self._kernel, whole, group)


class OpenClSpaces(ep.MemorySpaces):
    """The memory of all devices that OpenCL finds."""

    owned = frozenset({SPACE})

    def create_context(self, location: ep.MemoryLocation) -> OpenClContext:
        """The context of a device.

        Raises:
            LookupError: there is no such device.
        """
        devices = found_devices()
        if location.space != SPACE or location.ordinal >= len(devices):
            raise LookupError(
                f"OpenCL finds {len(devices)} devices, and {location} is none of them"
            )
        return OpenClContext(location, devices[location.ordinal])


def found_devices() -> list[cl.Device]:
    """The devices of all of OpenCL's platforms, in order."""
    try:
        platforms = cl.get_platforms()
    except cl.Error:  # none is installed
        return []
    return [device for platform in platforms for device in platform.get_devices()]
