"""An EP whose kernels are those of CUDA GPUs, and run on the processor one by one.

It has what the compiler records and renders for CUDA, plans, linking and memory of its
own, and nothing of CUDA: :mod:`onnxplug_testing.cuda_on_cpu` runs each kernel at once,
and looks at all that it touches.  Memory has unlikely content before it is written to.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from onnxplug import ep
from onnxplug.authoring.locks import new_rlock
from onnxplug.authoring.record import Record
from onnxplug_compiler.gpu.execution.array import DeviceArray
from onnxplug_compiler.gpu.execution.backend import Backend
from onnxplug_compiler.gpu.execution.context import GpuContext
from onnxplug_compiler.gpu.execution.device import (
    Consumer,
    Copies,
    DeviceLost,
    DeviceStream,
    KernelRefused,
    Launches,
)
from onnxplug_compiler.gpu.execution.program import Weights
from onnxplug_compiler.gpu.execution.provider import GpuProvider
from onnxplug_cuda.backend import BACKEND, CudaKernels
from onnxplug_cuda.device import MOST_BUFFERS, MOST_GROUPS, CudaDevice
from onnxplug_testing.cuda_on_cpu import Memory as Pointer
from onnxplug_testing.cuda_on_cpu import Processor

NAME: Final = "CUDAOnProcessorExecutionProvider"
SPACE: Final = "cuda-on-processor"
BOUNDARY: Final = 256
"""Bytes of which addresses are multiples, as those of cudaMalloc are."""

_MULTIPROCESSORS: Final = 132
"""Of the GPU: as many as NVIDIA's H100 has."""


def backend_for(capability: tuple[int, int]) -> Backend:
    """What kernels for a GPU of a compute capability are recorded by, none of which is
    a library's."""
    target = CudaKernels(
        capability, multiprocessors=_MULTIPROCESSORS, prefers_channels_last=True
    )
    return BACKEND._replace(target=target)


class Memory:
    """Bytes, whole words, of the host's memory."""

    serials = itertools.count()

    def __init__(self, nbytes: int) -> None:
        self.nbytes = -(-max(nbytes, 1) // 4) * 4
        self.serial = next(self.serials)
        self.room = np.full(self.nbytes + BOUNDARY, 0xA5, np.uint8)
        start = -self.room.ctypes.data % BOUNDARY
        self.content = self.room[start : start + self.nbytes]


class Step(Record):
    """A launch that is ready."""

    kernel: Any
    written: tuple[bool, ...]
    lanes: int
    groups: tuple[int, int]
    numbers: bytes
    buffers: tuple[tuple[Memory, int, int], ...]


class Device:
    """The processor as a GPU.

    Args:
        processor: what compiles and runs kernels.
        texts: a folder that each kernel's text is written to.
    """

    dialect = CudaDevice.dialect
    array_type = DeviceArray
    alignment = 4
    numbers_alignment = 16
    most_buffers = MOST_BUFFERS
    most_groups = MOST_GROUPS
    largest = largest_buffer = 1 << 30
    generation = 1

    def __init__(self, processor: Processor, texts: Path | None = None) -> None:
        self.lock: threading.RLock = new_rlock()
        self.launches = 0
        self._processor = processor
        self._texts = texts

    def __str__(self) -> str:
        return "the processor"

    def ensure(self) -> None:
        """It is never lost."""

    def has(self, memory: Memory) -> bool:
        """All that there was."""
        return True

    def lost(self) -> DeviceLost:
        """Which never happens."""
        return DeviceLost("the processor was lost")

    def memory(
        self, nbytes: int, stream: DeviceStream | None = None, mode: str = ""
    ) -> Memory:
        """Bytes that nobody has."""
        if nbytes > self.largest_buffer:
            raise MemoryError(f"an array of {nbytes} bytes; there are {self.largest}")
        return Memory(nbytes)

    def upload(
        self,
        memory: Memory,
        array: np.ndarray[Any, Any],
        stream: DeviceStream | None = None,
    ) -> None:
        """Write it now."""
        content = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        memory.content[: content.size] = content

    def new_stream(self) -> Stream:
        """One that does all at once."""
        return Stream(self)

    def kernel(self, text: str, written: Sequence[bool], lanes: int) -> Any:
        """It is compiled with others, when one of them is launched."""
        found = self._processor.kernel(text)
        if self._texts is not None:
            key = self._processor.compiler.key(text, "kernel")
            (self._texts / f"{key}.cu").write_text(text, "utf-8")
        return found, tuple(written), lanes

    def numbers(self, content: bytes) -> bytes:
        """They are passed by value."""
        return content

    def launch(
        self,
        kernel: Any,
        numbers: bytes,
        start: int,
        window: int,
        groups: tuple[int, int],
        buffers: Sequence[tuple[Memory, int, int]],
    ) -> Step:
        """What :meth:`run` does."""
        own = numbers[start : start + window]
        return Step(*kernel, groups, own, tuple(buffers))

    def engine(self, call: Any, begins: Sequence[int], workspace: int) -> Any:
        """There is no library."""
        raise KernelRefused("the processor has no libraries of CUDA")

    def engine_call(
        self, call: Any, buffers: Sequence[Any], workspace: Any | None
    ) -> Any:
        """There is none."""
        raise KernelRefused("the processor has no libraries of CUDA")

    def run(self, step: Step) -> None:
        """Run a kernel.

        Raises:
            KernelFault: it does what it may not.
        """
        self.launches += 1
        pointers = [
            Pointer(
                memory.content.ctypes.data + begin,
                nbytes or memory.nbytes - begin,
                written,
            )
            for (memory, begin, nbytes), written in zip(
                step.buffers, step.written, strict=True
            )
        ]
        step.kernel.launch(step.groups, (step.lanes,), [*pointers, step.numbers])

    def close(self) -> None:
        """Nothing is kept."""


class Event(ep.Event):
    """It has happened."""

    def done(self) -> bool:
        return True

    def synchronize(self) -> None:
        pass


class Stream(DeviceStream):
    """Work is done when it is queued; what readers raise is raised by who waits."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._failure: Exception | None = None

    @property
    def is_capturing(self) -> bool:
        return False

    def queue(self, *work: Launches | Copies) -> None:
        for part in work:
            if isinstance(part, Copies):
                for source, target, nbytes in part.pairs:
                    target.content[:nbytes] = source.content[:nbytes]
                continue
            if part.cleared is not None:
                part.cleared.content[:] = 0
            for step in part.steps:
                self._device.run(step)

    def read(self, memory: Memory, nbytes: int, consume: Consumer) -> None:
        try:
            consume(memory.content[:nbytes].copy())
        except Exception as error:  # noqa: BLE001
            ep.raise_interruption(error)
            self._failure = self._failure or error

    def upload(self, memory: Memory, array: np.ndarray[Any, Any]) -> None:
        self._device.upload(memory, array)

    def synchronize_readbacks(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def synchronize(self) -> None:
        self.synchronize_readbacks()

    def check_not_capturing(self, what: str) -> None:
        pass

    def timed(self, work: Launches) -> Sequence[tuple[int, int]]:
        times = []
        for number, step in enumerate(work.steps):
            started = time.perf_counter_ns()
            cleared = None if number else work.cleared
            self.queue(Launches((step,), cleared, work.memories))
            times.append((started, time.perf_counter_ns() - started))
        return times

    def record(self) -> Event:
        self.synchronize_readbacks()
        return Event()

    def wait(self, event: ep.Event) -> bool:
        return isinstance(event, Event)


class Spaces(ep.MemorySpaces):
    """The one memory."""

    owned = frozenset({SPACE})

    def __init__(self, device: Device, backend: Backend) -> None:
        self._device = device
        self._backend = backend

    def create_context(self, location: ep.MemoryLocation) -> GpuContext:
        return GpuContext(self._device, location, self._backend)


class Factory(ep.EpFactory):
    """The EP on each processor that the system lists.

    Args:
        folder: where compiled kernels are, for the next process, too.
        texts: a folder that each kernel's text is written to.
        capability: of the GPU that kernels are recorded for.
    """

    spi_version = (1, 0)
    name = NAME

    def __init__(
        self,
        folder: Path,
        texts: Path | None = None,
        capability: tuple[int, int] = (9, 0),
    ) -> None:
        self._backend = backend_for(capability)
        device = Device(Processor(folder), texts)
        self.memory_spaces = Spaces(device, self._backend)

    def supported_devices(
        self, devices: Sequence[ep.HardwareDevice]
    ) -> Iterable[ep.EpDevice]:
        for device in devices:
            if device.type is ep.DeviceType.CPU:
                yield ep.EpDevice(ep_name=NAME, device=device, by_name_only=True)

    def create(
        self,
        devices: Sequence[ep.EpDevice],
        options: Mapping[str, ep.OptionValue],
        session: ep.SessionContext,
    ) -> ep.ExecutionProvider:
        location = ep.MemoryLocation(SPACE, 0)
        context = session.context(location)
        assert isinstance(context, GpuContext)
        backend = self._backend
        shared = session.weights(location)
        weights = Weights(context.device, shared, backend.distribution)
        return GpuProvider(context, weights, backend)


class Plugin:
    """For ``onnxplug.register_ep_library``."""

    def __init__(self, factory: Factory) -> None:
        self._factory = factory

    @ep.hookimpl
    def onnxplug_ep_factories(self, host: ep.Host) -> Iterable[ep.EpFactory]:
        """The one."""
        return [self._factory]
