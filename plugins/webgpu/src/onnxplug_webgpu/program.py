"""The launches of a plan on a device: kernels compiled, constants and memory placed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from onnxplug import ep
from onnxplug_compiler.gpu.packing import packed
from onnxplug_compiler.ir.buffers import Constant
from onnxplug_webgpu.device import Device, KernelRefused, Launches
from onnxplug_webgpu.linking import FLAG, Linked, RefusedLaunch
from onnxplug_webgpu.pool import Memory
from onnxplug_webgpu.profiling import run_recorded
from onnxplug_webgpu.streams import WebGpuStream


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
            content = packed(constant.array)
            memory = self._device.memory(content.nbytes)
            self._device.upload(memory, content)
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


class Program:
    """Runs the launches of a plan.

    Args:
        look: called now and then while kernels are compiled; it may raise.
        mode: what becomes of memory between nodes; see :class:`~.pool.Pool`.

    Attributes:
        linked: what it does.

    Raises:
        ValueError: an array is larger than the device has them.
        MemoryError: there is no memory for a constant.
        RefusedLaunch: the driver does not compile a kernel.
        DeviceLost: the device was lost.
    """

    def __init__(
        self,
        linked: Linked,
        device: Device,
        weights: Weights,
        look: Callable[[], None] = lambda: None,
        mode: str = "bucket",
    ) -> None:
        device.ensure()
        self.linked = linked
        self._device = device
        self._mode = mode
        for nbytes in linked.slots:
            if nbytes > device.largest_buffer:
                raise ValueError(
                    f"an array between nodes has {nbytes} bytes; {device.adapter} has "
                    f"buffers of at most {device.largest_buffer}"
                )
        self._pipelines = []
        for step in linked.steps:
            look()
            try:
                self._pipelines.append(device.pipeline(step.text, step.written))
            except KernelRefused as error:
                raise RefusedLaunch(str(error), step.nodes) from error
        self._constants = [weights.memory(each) for each in linked.constants]
        self._numbers = device.uniform(linked.numbers)

    def run(
        self,
        inputs: Sequence[Memory | None],
        outputs: Sequence[Memory | None],
        stream: WebGpuStream,
        profiler: ep.Profiler | None = None,
    ) -> None:
        """Queue the launches.

        Args:
            inputs: ``None`` for what no kernel reads.
            outputs: in no memory of an input; ``None`` for what is not computed.
            stream: whoever waits for it is told what kernels found.
            profiler: records each launch, which takes time; not of a capture.

        Raises:
            MemoryError: there is no memory for what is between nodes.
            DeviceLost: the device was lost.
        """
        with self._device.lock:
            work = self.bound(inputs, outputs)
            if profiler is None or stream.is_capturing:
                stream.queue(work)
            else:
                run_recorded(self.linked, work, self._device, stream, profiler)
        if work.cleared is not None:
            stream.read(work.cleared, FLAG * self.linked.flags, self._check)

    def bound(
        self, inputs: Sequence[Memory | None], outputs: Sequence[Memory | None]
    ) -> Launches:
        """The launches on memory; what is between nodes gets some of its own."""
        device = self._device
        slots = [device.memory(nbytes, self._mode) for nbytes in self.linked.slots]
        flags = device.memory(FLAG * self.linked.flags) if self.linked.flags else None
        memories = {
            "slot": slots,
            "input": inputs,
            "output": outputs,
            "constant": self._constants,
            "flags": [flags],
        }
        used: dict[int, Memory] = {}
        steps = []
        for step, pipeline in zip(self.linked.steps, self._pipelines, strict=True):
            bound = [
                (memories[kind][number], begin, nbytes)
                for kind, number, begin, nbytes in step.places
            ]
            used.update((memory.serial, memory) for memory, _, _ in bound)
            group = device.bound(pipeline, self._numbers, step.window, bound)
            steps.append((pipeline.native, group, [step.start], step.x, step.y))
        every = (self._numbers, *used.values())
        return Launches(tuple(steps), flags, every)

    def _check(self, content: np.ndarray[Any, np.dtype[np.uint8]]) -> None:
        found = content.view(np.uint32).reshape(-1, 2)
        if not found.any():
            return
        for number, error in self.linked.checks:
            if found[number, 0]:
                raise error(int(found[number, 0]))
