"""The stand-in's modules, with the functions of CuPy's by their names and arguments."""

from __future__ import annotations

import ctypes
import re
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from onnxplug_testing import cuda_on_cpu

from .machine import POISON, CudaError, Event, Machine, Stream, Work, checksum, merge


class Runtime:
    """``cupy.cuda.runtime``."""

    CUDARuntimeError = CudaError

    def __init__(self, machine: Machine, devices: int, version: int) -> None:
        self._machine = machine
        self._devices = devices
        self._version = version
        self._launched: dict[int, int] = {}

    # devices

    def driverGetVersion(self) -> int:
        self._machine.called("driverGetVersion")
        return self._version

    def runtimeGetVersion(self) -> int:
        return 13020

    def getDeviceCount(self) -> int:
        self._machine.called("getDeviceCount")
        if not self._devices:
            raise CudaError(100)
        return self._devices

    def getDeviceProperties(self, device: int) -> dict[str, Any]:
        self._machine.called("getDeviceProperties")
        return {
            "name": b"Stand-in",
            "major": 9,
            "minor": 0,
            "multiProcessorCount": 132,
            "totalGlobalMem": self._machine.capacity,
        }

    def deviceGetPCIBusId(self, device: int) -> str:
        return f"0000:{0x10 + device:02X}:00.0"

    def deviceGetByPCIBusId(self, pci_bus_id: str) -> int:
        self._machine.called("deviceGetByPCIBusId")
        for device in range(self._devices):
            if self.deviceGetPCIBusId(device) == pci_bus_id.upper():
                return device
        raise CudaError(101)

    def getDevice(self) -> int:
        self._machine.called("getDevice")
        return self._machine.device

    def setDevice(self, device: int) -> None:
        self._machine.called("setDevice")
        self._machine.device = device

    def deviceSynchronize(self) -> None:
        machine = self._machine
        machine.called("deviceSynchronize")
        if any(stream.capture is not None for stream in machine.streams.values()):
            raise CudaError(900)
        queues = [*machine.streams.values(), *machine.destroyed]
        clocks = [dict(stream.clock) for stream in queues]
        machine.wait_until(lambda: all(stream.is_idle for stream in queues))
        for clock in clocks:
            merge(machine.host, clock)
        machine.destroyed = [each for each in machine.destroyed if each not in queues]

    # memory

    def malloc(self, size: int) -> int:
        self._machine.called("malloc")
        return self._machine.allocate(size, on_host=False)

    def free(self, ptr: int) -> None:
        self._machine.called("free")
        if ptr:
            self._machine.free(ptr)

    def hostAlloc(self, size: int, flags: int) -> int:
        self._machine.called("hostAlloc")
        return self._machine.allocate(size, on_host=True)

    def freeHost(self, ptr: int) -> None:
        self._machine.called("freeHost")
        self._machine.free(ptr)

    def memcpyAsync(
        self, dst: int, src: int, size: int, kind: int, stream: int
    ) -> None:
        machine = self._machine
        machine.called("memcpyAsync")
        name = {1: "copy to the device", 2: "copy to the host", 3: "copy"}[kind]
        machine.counts[name] += 1
        queue = self._stream(stream)
        for address, is_host in ((src, kind == 1), (dst, kind == 2)):
            region = machine.region(address, size)
            if region is None or region.on_host != is_host:
                machine.violate(
                    f"{name} of {size} bytes uses {address:#x}, which is no "
                    f"{'pinned memory of the host' if is_host else 'device memory'}"
                )
                raise CudaError(1)
        if kind == 2 and queue.capture is None:
            machine.bytes(dst, size, name)[:] = POISON
        before = checksum(machine.bytes(src, size, name)) if kind == 1 else 0

        def do() -> None:
            source = machine.bytes(src, size, name)
            if kind == 1 and checksum(source) != before:
                machine.violate("memory of the host changes while it is copied")
            machine.bytes(dst, size, name)[:] = source

        ranges = ((src, src + size, False), (dst, dst + size, True))
        machine.queue(queue, Work(name, do, ranges))

    def memsetAsync(self, ptr: int, value: int, size: int, stream: int) -> None:
        machine = self._machine
        machine.called("memsetAsync")

        def do() -> None:
            machine.bytes(ptr, size, "a fill")[:] = value

        work = Work("a fill", do, ((ptr, ptr + size, True),))
        machine.queue(self._stream(stream), work)

    # streams

    def _stream(self, handle: int) -> Stream:
        return self._machine.stream(handle)

    def streamCreateWithFlags(self, flags: int) -> int:
        machine = self._machine
        machine.called("streamCreateWithFlags")
        assert flags == 1, "streams wait for the default one"
        handle = next(machine.handles)
        machine.streams[handle] = Stream(machine, handle, machine.device)
        return handle

    def streamGetFlags(self, stream: int) -> int:
        self._machine.called("streamGetFlags")
        self._stream(stream)
        return 1

    def streamDestroy(self, stream: int) -> None:
        machine = self._machine
        machine.called("streamDestroy")
        queue = self._stream(stream)
        with machine.changed:
            del machine.streams[stream]
            machine.destroyed.append(queue)  # what is queued goes on
            queue.is_open = False
            machine.changed.notify_all()

    def streamSynchronize(self, stream: int) -> None:
        machine = self._machine
        machine.called("streamSynchronize")
        queue = self._stream(stream)
        self._refuse_capture(queue)
        clock = dict(queue.clock)
        machine.wait_until(lambda: queue.is_idle)
        merge(machine.host, clock)

    def streamWaitEvent(self, stream: int, event: int, flags: int = 0) -> None:
        machine = self._machine
        machine.called("streamWaitEvent")
        queue, point = self._stream(stream), machine.events[event]
        if queue.capture is not None or point.is_captured:
            queue.is_invalid = True
            raise CudaError(905)
        reached = point.reached

        def do() -> None:
            while not reached.wait(0.05):
                if machine.fault:
                    return

        with machine.changed:
            merge(queue.clock, point.clock)
        machine.queue(queue, Work("a wait", do))

    def _refuse_capture(self, queue: Stream) -> None:
        if queue.capture is not None:
            queue.is_invalid = True
            raise CudaError(900)

    # events

    def eventCreateWithFlags(self, flags: int) -> int:
        machine = self._machine
        machine.called("eventCreateWithFlags")
        handle = next(machine.handles)
        machine.events[handle] = Event(machine.device, is_timed=not flags & 2)
        return handle

    def eventDestroy(self, event: int) -> None:
        self._machine.called("eventDestroy")
        del self._machine.events[event]

    def eventRecord(self, event: int, stream: int) -> None:
        machine = self._machine
        machine.called("eventRecord")
        point, queue = machine.events[event], self._stream(stream)
        queue.check_here("an event")
        if point.device != machine.device:
            machine.violate("an event of another device is recorded")
        point.is_captured = queue.capture is not None
        if point.is_captured:
            return
        reached = point.reached = type(point.reached)()

        def do() -> None:
            point.seconds = time.perf_counter()
            reached.set()
            with machine.changed:
                machine.changed.notify_all()

        machine.queue(queue, Work("an event", do))
        point.clock = dict(queue.clock)

    def eventQuery(self, event: int) -> int:
        machine = self._machine
        try:
            machine.called("eventQuery")
        except CudaError as error:
            return error.status
        point = machine.events[event]
        if not point.reached.is_set():
            return 600
        merge(machine.host, point.clock)
        return 0

    def eventSynchronize(self, event: int) -> None:
        machine = self._machine
        machine.called("eventSynchronize")
        point = machine.events[event]
        clock, reached = dict(point.clock), point.reached
        machine.wait_until(reached.is_set)
        merge(machine.host, clock)

    def eventElapsedTime(self, start: int, end: int) -> float:
        events = self._machine.events
        assert events[start].is_timed and events[end].is_timed
        return 1000 * (events[end].seconds - events[start].seconds)

    # captures

    def streamBeginCapture(self, stream: int, mode: int = 2) -> None:
        self._machine.called("streamBeginCapture")
        queue = self._stream(stream)
        assert mode == 2, "nothing may be allocated then"
        if queue.capture is not None or stream in (0, 1):
            raise CudaError(900)
        queue.capture, queue.is_invalid = [], False

    def streamEndCapture(self, stream: int) -> int:
        machine = self._machine
        queue = self._stream(stream)
        captured, queue.capture = queue.capture, None
        machine.called("streamEndCapture")
        if captured is None or queue.is_invalid:
            raise CudaError(901)
        handle = next(machine.handles)
        machine.graphs[handle] = captured
        return handle

    def graphInstantiate(self, graph: int) -> int:
        machine = self._machine
        machine.called("graphInstantiate")
        handle = next(machine.handles)
        machine.graphs[handle] = machine.graphs[graph]
        return handle

    def graphLaunch(self, graphExec: int, stream: int) -> None:
        machine = self._machine
        machine.called("graphLaunch")
        queue = self._stream(stream)
        if graphExec in self._launched:  # after the launch before, wherever that was
            self.streamWaitEvent(stream, self._launched[graphExec])
        for work in machine.graphs[graphExec]:
            machine.queue(queue, work)
        event = self._launched[graphExec] = self.eventCreateWithFlags(2)
        self.eventRecord(event, stream)

    def graphDestroy(self, graph: int) -> None:
        del self._machine.graphs[graph]

    def graphExecDestroy(self, graphExec: int) -> None:
        self._machine.called("graphExecDestroy")
        del self._machine.graphs[graphExec]


class Driver:
    """``cupy.cuda.driver``."""

    CUDADriverError = CudaError

    def __init__(
        self, machine: Machine, processor: cuda_on_cpu.Processor | None
    ) -> None:
        self._machine = machine
        self._processor = processor
        self._one_at_a_time = threading.Lock()
        self._modules: dict[int, str] = {}
        self._functions: dict[int, Function] = {}
        self._module_of: dict[int, int] = {}

    def ctxGetCurrent(self) -> int:
        return 4096

    def moduleLoadData(self, image: bytes) -> int:
        self._machine.called("moduleLoadData")
        if not image.startswith(MAGIC):
            raise CudaError(200)
        handle = next(self._machine.handles)
        self._modules[handle] = image.removeprefix(MAGIC).decode()
        return handle

    def moduleGetFunction(self, module: int, funcname: str) -> int:
        self._machine.called("moduleGetFunction")
        assert self._processor is not None, "this stand-in runs no kernels"
        handle = next(self._machine.handles)
        text = self._modules[module]
        self._functions[handle] = Function(text, funcname, self._processor)
        self._module_of[handle] = module
        return handle

    def moduleUnload(self, module: int) -> None:
        self._machine.called("moduleUnload")
        del self._modules[module]

    def launchKernel(
        self,
        f: int,
        grid_dim_x: int,
        grid_dim_y: int,
        grid_dim_z: int,
        block_dim_x: int,
        block_dim_y: int,
        block_dim_z: int,
        shared_mem_bytes: int,
        stream: int,
        kernel_params: int,
        extra: int,
    ) -> None:
        machine, function = self._machine, self._functions[f]
        machine.called("launchKernel")
        queue = machine.stream(stream)
        queue.check_here("a launch")
        grid = grid_dim_x, grid_dim_y, grid_dim_z
        block = block_dim_x, block_dim_y, block_dim_z
        arguments, ranges = function.arguments(machine, kernel_params)

        def do() -> None:
            if self._module_of[f] not in self._modules:
                machine.violate(f"{function.name} is launched, and was unloaded")
            for begin, end, _ in ranges:
                machine.bytes(begin, end - begin, function.name)
            with self._one_at_a_time:
                function.kernel.launch(grid, block, arguments, dynamic=shared_mem_bytes)

        machine.queue(queue, Work(f"a launch of {function.name}", do, ranges))


class Function:
    """A kernel, and what its text says that it is given."""

    def __init__(self, text: str, name: str, processor: cuda_on_cpu.Processor) -> None:
        found = re.search(rf"\b{name}\(([^)]*)\)\s*\{{", text)
        assert found is not None, text
        given = [each.strip() for each in found[1].split(",")]
        self.written = [not each.startswith("const ") for each in given if "*" in each]
        (size,) = re.findall(r"struct Words \{[^[]*of\[(\d+)\]; \};", text)
        self.words = 4 * int(size)
        self.name = name
        self.kernel = processor.kernel(text, name)

    def arguments(
        self, machine: Machine, params: int
    ) -> tuple[list[Any], list[tuple[int, int, bool]]]:
        """What is there where *params* points, read at once, as the driver does."""
        count = len(self.written)
        places = (ctypes.c_uint64 * (count + 1)).from_address(params)
        arguments: list[Any] = []
        ranges = []
        for place, written in zip(places, self.written, strict=False):
            address = ctypes.c_uint64.from_address(place).value
            end = machine.extent(address)
            memory = cuda_on_cpu.Memory(address, end - address, written)
            arguments.append(memory)
            ranges += [(address, end, False), (address, end, True)][: 1 + written]
        arguments.append(ctypes.string_at(places[count], self.words))
        return arguments, ranges


MAGIC = b"machine code: "


class NVRTCError(RuntimeError):
    """A text is not compiled."""

    def __init__(self, status: int) -> None:
        super().__init__(f"NVRTC_ERROR_COMPILATION ({status})")
        self.status = status


class Nvrtc:
    """``cupy.cuda.nvrtc``; its machine code is the text."""

    NVRTCError = NVRTCError

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._programs: dict[int, str] = {}
        self.refused = ""

    def getVersion(self) -> tuple[int, int]:
        return 13, 0

    def createProgram(
        self, src: str, name: str, headers: Any, include_names: Any
    ) -> int:
        handle = next(self._machine.handles)
        self._programs[handle] = src
        return handle

    def compileProgram(self, prog: int, options: Any) -> None:
        self._machine.called("compileProgram")
        assert any(option.startswith("--gpu-architecture=sm_") for option in options)
        if self.refused:
            raise NVRTCError(6)

    def getProgramLog(self, prog: int) -> str:
        return self.refused

    def getCUBIN(self, prog: int) -> bytes:
        return MAGIC + self._programs[prog].encode()

    def destroyProgram(self, prog: int) -> None:
        del self._programs[prog]


class CuPy:
    """The module ``cupy``.

    Args:
        folder: where kernels are compiled; ``None``: there are none.
    """

    __version__ = "14.2.0"

    def __init__(
        self,
        machine: Machine,
        folder: Path | None = None,
        *,
        devices: int = 1,
        version: int = 13020,
    ) -> None:
        processor = None if folder is None else cuda_on_cpu.Processor(folder)
        self.machine = machine
        self.cuda = SimpleNamespace(
            runtime=Runtime(machine, devices, version),
            driver=Driver(machine, processor),
            nvrtc=Nvrtc(machine),
        )
