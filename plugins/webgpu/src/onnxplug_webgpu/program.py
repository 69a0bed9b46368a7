"""The launches of a plan, with their kernels compiled and their memory placed."""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from onnxplug import ep
from onnxplug.authoring.record import Record
from onnxplug_compiler.gpu.command import MOST_GROUPS, Kernel, Launch, render
from onnxplug_compiler.gpu.render.wgsl import WGSL
from onnxplug_compiler.ir.buffers import (
    Buffer,
    Check,
    Constant,
    Flag,
    Input,
    Output,
    Temporary,
)
from onnxplug_compiler.ir.pieces import Work
from onnxplug_webgpu.device import Device, KernelRefused, Launches, Pipeline
from onnxplug_webgpu.loss import lost
from onnxplug_webgpu.pool import Memory
from onnxplug_webgpu.streams import WebGpuStream

_APART: Final = 256
"""Bytes by which the numbers of launches are apart, at least."""

_FLAG: Final = 8
"""Bytes of a flag."""


class Weights:
    """Constants on a device, each once.

    Args:
        store: where they are shared with other sessions.
    """

    def __init__(self, device: Device, store: ep.WeightStore | None) -> None:
        self._device = device
        self._store = store
        self._known: dict[Any, Memory] = {}

    def memory(self, constant: Constant) -> Memory:
        """Where a constant is.

        Raises:
            MemoryError: there is no memory for it.
        """
        has = self._device.has
        if constant.memory is None or not has(constant.memory):
            known = self._known.get(constant.key) if constant.key is not None else None
            is_there = known is not None and has(known)
            constant.memory = known if is_there else self._placed(constant)
            if constant.key is not None:
                self._known[constant.key] = constant.memory
        found: Memory = constant.memory
        return found

    def _placed(self, constant: Constant) -> Memory:
        def upload() -> Memory:
            memory = self._device.memory(constant.nbytes)
            self._device.upload(memory, constant.array)
            return memory

        source = constant.find_source() if constant.find_source else None
        if source is None or self._store is None:
            return upload()
        self._device.ensure()
        layout = f"onnxplug-webgpu {constant.nbytes} {self._device.generation}"
        return self._store.get(source, layout, upload)

    def clear(self) -> None:
        """Give them up."""
        self._known.clear()


class _Step(Record):
    """A launch that is linked.

    Attributes:
        places: of the kernel's buffers.
        window: bytes of its numbers.
        start: where these begin.
        x, y: workgroups.
    """

    pipeline: Pipeline
    places: tuple[_Place, ...]
    window: int
    start: int
    x: int
    y: int


class _Place(Record):
    """Where a buffer is in a run.

    Attributes:
        kind: ``slot``, ``input``, ``output``, ``constant`` or ``flags``.
        number: which of these.
    """

    kind: str
    number: int


class RefusedLaunch(ValueError):
    """A kernel that the driver does not compile.

    Attributes:
        nodes: indices of the graph's nodes that it computes.
    """

    def __init__(self, message: str, nodes: tuple[int, ...]) -> None:
        super().__init__(message)
        self.nodes = nodes


class Program:
    """Runs the launches of a plan.

    Args:
        work: what the plan does.
        checks: what to look at after a run, with errors that name nodes.
        look: called now and then while kernels are compiled; it may raise.
        mode: what becomes of memory between nodes; see :class:`~.pool.Pool`.

    Attributes:
        launches: how many kernels a run launches.

    Raises:
        ValueError: an array is larger than the device has them.
        MemoryError: there is no memory for a constant.
        RefusedLaunch: the driver does not compile a kernel.
        DeviceLost: the device was lost.
    """

    def __init__(
        self,
        work: Work,
        device: Device,
        weights: Weights,
        checks: Sequence[Check],
        look: Callable[[], None],
        mode: str = "bucket",
    ) -> None:
        device.ensure()
        self._device = device
        self._mode = mode
        self._weights = weights
        self._checks = checks
        self._flags: dict[Buffer, int] = {}
        self._constants: dict[int, Memory] = {}
        self._slots, self._slot_of = _placed_temporaries(work)
        for nbytes in self._slots:
            if nbytes > device.largest:
                raise ValueError(
                    f"an array between nodes has {nbytes} bytes; {device.adapter} has "
                    f"arrays of at most {device.largest}"
                )
        numbers = bytearray()
        self._steps: list[_Step] = []
        for piece, buffers, offsets, own in work.placed:
            places = [self._place(buffer) for buffer in buffers]
            starts = [
                offset + _FLAG * self._flags.get(buffer, 0)
                for buffer, offset in zip(buffers, offsets, strict=True)
            ]
            assembly = piece.assembly
            for launch, named in zip(assembly.launches, assembly.numbers, strict=True):
                look()
                try:
                    step = self._link(launch, named, places, starts, numbers)
                except KernelRefused as error:
                    nodes = launch.nodes if own is None else own
                    raise RefusedLaunch(str(error), nodes) from error
                self._steps.append(step)
        self.launches = len(self._steps)
        self._numbers = device.uniform(bytes(numbers))

    def _place(self, buffer: Buffer) -> _Place:
        if isinstance(buffer, Temporary):
            return _Place("slot", self._slot_of[buffer])
        if isinstance(buffer, Input):
            return _Place("input", buffer.position)
        if isinstance(buffer, Output):
            return _Place("output", buffer.position)
        if isinstance(buffer, Flag):
            self._flags.setdefault(buffer, len(self._flags))
            return _Place("flags", 0)
        if isinstance(buffer, Constant):
            memory = self._weights.memory(buffer)
            self._constants[memory.serial] = memory
            return _Place("constant", memory.serial)
        raise TypeError(f"a launch names {buffer!r}, which has no place")

    def _link(
        self,
        launch: Launch,
        named: Sequence[int],
        places: Sequence[_Place],
        starts: Sequence[int],
        numbers: bytearray,
    ) -> _Step:
        """Compile the kernel of *launch*, and put its numbers behind the others."""
        bindings: dict[_Place, int] = {}
        operands = tuple(
            bindings.setdefault(places[number], len(bindings)) for number in named
        )
        text, written = _rendered(launch.kernel, operands)
        pipeline = self._device.pipeline(text, written)
        words = list(launch.sizes)
        for view, number in zip(launch.views, named, strict=True):
            start, itemsize = starts[number] + view.offset, view.dtype.itemsize
            if start % itemsize:
                raise ValueError(f"{launch.label} has an array at an odd place")
            words += [start // itemsize, *view.strides]
        if any(not -(1 << 31) <= word < 1 << 31 for word in words):
            raise ValueError(f"{launch.label} has a size or a stride beyond 32 bits")
        begin, content = len(numbers), struct.pack(f"<{len(words)}i", *words)
        window = max(16, -(-len(content) // 16) * 16)
        numbers += content.ljust(-(-window // _APART) * _APART, b"\0")
        x = min(launch.groups, MOST_GROUPS)
        y = -(-launch.groups // x)
        return _Step(pipeline, tuple(bindings), window, begin, x, y)

    def run(
        self,
        inputs: Sequence[Memory],
        outputs: Sequence[Memory | None],
        stream: WebGpuStream,
    ) -> None:
        """Queue the launches.

        Args:
            outputs: in no memory of an input; ``None`` for what is not computed.
            stream: whoever waits for it is told what kernels found.

        Raises:
            MemoryError: there is no memory for what is between nodes.
            DeviceLost: the device was lost.
        """
        with self._device.lock:
            work = self._bound(inputs, outputs)
            stream.queue(work)
        if work.cleared is not None:
            stream.read(work.cleared, _FLAG * len(self._flags), self._check)

    def _bound(
        self, inputs: Sequence[Memory], outputs: Sequence[Memory | None]
    ) -> Launches:
        """The launches on memory; what is between nodes gets some of its own."""
        device = self._device
        slots = [device.memory(nbytes, self._mode) for nbytes in self._slots]
        flags = device.memory(_FLAG * len(self._flags)) if self._flags else None
        memories = {
            "slot": slots,
            "input": inputs,
            "output": outputs,
            "constant": self._constants,
            "flags": [flags],
        }
        used: dict[int, Memory] = {}
        steps = []
        for step in self._steps:
            bound = [memories[kind][number] for kind, number in step.places]  # type: ignore[index]
            used.update((memory.serial, memory) for memory in bound)
            group = device.bound(step.pipeline, self._numbers, step.window, bound)
            steps.append((step.pipeline.native, group, [step.start], step.x, step.y))
        every = (self._numbers, *used.values())
        if not all(map(device.has, every)):
            raise lost(device)
        return Launches(tuple(steps), flags, every)

    def _check(self, content: np.ndarray[Any, np.dtype[np.uint8]]) -> None:
        found = content.view(np.uint32).reshape(-1, 2)
        if not found.any():
            return
        for check in self._checks:
            number = self._flags[check.flag]
            if found[number, 0]:
                raise check.error(int(found[number, 0]))


@functools.lru_cache(4096)
def _written(kind: type[Kernel], parameters: str, bindings: tuple[int, ...]) -> Any:
    """Where the text of a kernel is kept: kernels are told apart by their texts, as
    records of equal numbers are equal whatever these are of."""
    return []


def _rendered(
    kernel: Kernel, bindings: tuple[int, ...]
) -> tuple[str, tuple[bool, ...]]:
    """The text of a kernel, and which of its buffers it writes to."""
    kept = _written(type(kernel), repr(kernel), bindings)
    if not kept:
        body = render(kernel, bindings, WGSL)
        written = tuple(each.written for each in body.buffers)
        kept.append((body.text(kernel.lanes), written))
    found: tuple[str, tuple[bool, ...]] = kept[0]
    return found


def _placed_temporaries(work: Work) -> tuple[list[int], dict[Buffer, int]]:
    """The sizes of the memories that temporaries share, and which of them each has.

    Two share one if no launch needs both; of those that are free the smallest that is
    large enough is taken, or else the largest, which grows.
    """
    first: dict[Buffer, int] = {}
    last: dict[Buffer, int] = {}
    index = 0
    for piece, buffers, *_ in work.placed:
        for named in piece.assembly.numbers:
            for buffer in (buffers[number] for number in named):
                if isinstance(buffer, Temporary):
                    first.setdefault(buffer, index)
                    last[buffer] = index
            index += 1
    slots: list[int] = []
    slot_of: dict[Buffer, int] = {}
    ends: dict[int, list[Buffer]] = {}
    for buffer, end in last.items():
        ends.setdefault(end, []).append(buffer)
    free: list[int] = []
    begins: dict[int, list[Buffer]] = {}
    for buffer, begin in first.items():
        begins.setdefault(begin, []).append(buffer)
    for at in range(index):
        for buffer in begins.get(at, ()):
            slot_of[buffer] = _take(free, slots, buffer.nbytes)
        for buffer in ends.get(at, ()):
            free.append(slot_of[buffer])
    return slots, slot_of


def _take(free: list[int], slots: list[int], nbytes: int) -> int:
    """A free slot for *nbytes*, or a new one."""
    enough = [number for number in free if slots[number] >= nbytes]
    if enough:
        found = min(enough, key=slots.__getitem__)
    elif free:
        found = max(free, key=slots.__getitem__)
        slots[found] = nbytes
    else:
        slots.append(nbytes)
        return len(slots) - 1
    free.remove(found)
    return found
