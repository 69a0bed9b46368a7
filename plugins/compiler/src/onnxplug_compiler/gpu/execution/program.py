"""The steps of a plan on a device: kernels compiled, constants and memory placed."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from onnxplug import ep
from onnxplug_compiler.gpu.command import assemble
from onnxplug_compiler.gpu.execution.device import (
    Device,
    DeviceStream,
    KernelRefused,
    Launches,
    Memory,
)
from onnxplug_compiler.gpu.execution.linking import (
    FLAG,
    AnyStep,
    CallStep,
    Linked,
    RefusedLaunch,
    link,
)
from onnxplug_compiler.gpu.execution.profiling import run_recorded
from onnxplug_compiler.gpu.packing import packed
from onnxplug_compiler.ir.buffers import Buffer, Constant, Output, Packed
from onnxplug_compiler.ir.pieces import Piece, Placed, Work
from onnxplug_compiler.ir.recorder import PackedConstants


class Weights:
    """Constants on a device, each once.

    Args:
        store: where they are shared with other sessions; ``None``: they are not.
        distribution: the EP's, which their layouts there are named by.
        mode: of their memory; see :meth:`~.device.Device.memory`.

    Attributes:
        packed: those of the session that are packed, for recorders.
    """

    def __init__(
        self,
        device: Device,
        store: ep.WeightStore | None,
        distribution: str,
        mode: str = "",
    ) -> None:
        self._device = device
        self._store = store
        self._distribution = distribution
        self._mode = mode
        self._known: dict[Any, Memory] = {}
        self._placed: weakref.WeakSet[Constant | Packed] = weakref.WeakSet()
        self.packed: PackedConstants = {}

    def memory(self, constant: Constant | Packed) -> Memory:
        """Where a constant is, packed if it is to be.

        Raises:
            MemoryError: there is no memory for it.
            RefusedLaunch: the device does not take a kernel that packs it.
        """
        has = self._device.has
        if isinstance(constant, Packed):
            with constant.lock:
                if constant.memory is None or not has(constant.memory):
                    constant.memory = self._filled(constant)
                    self._placed.add(constant)
                packed_memory: Memory = constant.memory
                return packed_memory
        if constant.memory is None or not has(constant.memory):
            known = self._known.get(constant.key) if constant.key is not None else None
            is_there = known is not None and has(known)
            constant.memory = known if is_there else self._uploaded(constant)
            self._placed.add(constant)
            if constant.key is not None:
                self._known[constant.key] = constant.memory
        found: Memory = constant.memory
        return found

    def _uploaded(self, constant: Constant) -> Memory:
        def upload() -> Memory:
            content = packed(constant.array)
            memory = self._device.memory(content.nbytes, None, self._mode)
            self._device.upload(memory, content)
            return memory

        source = constant.find_source() if constant.find_source else None
        if source is None or self._store is None:
            return upload()
        self._device.ensure()
        generation = self._device.generation
        layout = f"{self._distribution} {constant.nbytes} {generation}"
        return self._store.get(source, layout, upload)

    def _filled(self, buffer: Packed) -> Memory:
        """Memory that the commands which pack a constant have written."""
        memory = self._device.memory(buffer.nbytes, None, self._mode)
        linked = link(_work_of(buffer), (), lambda: None, self._device)
        stream = self._device.new_stream()
        try:
            program = Program(linked, self._device, self, mode=self._mode)
            program.run([], [memory], stream)
            # all streams read it
            stream.synchronize()
        finally:
            stream.close()
        return memory

    def clear(self) -> None:
        """Give them up, also those of plans that others still hold."""
        for constant in self._placed:
            constant.memory = None
        self._placed.clear()
        self._known.clear()
        self.packed.clear()


def _work_of(packed_constant: Packed) -> Work:
    """The commands that pack a constant, which write it as an output."""
    commands = packed_constant.fill
    assembly = assemble(commands)
    out = Output(0, packed_constant.nbytes)
    buffers: list[Buffer] = [
        out if each is packed_constant else each for each in assembly.buffers
    ]
    piece = Piece(commands, (), {}, {}, (), assembly)
    return Work([Placed(piece, buffers, [0] * len(buffers), None)])


class Program:
    """Runs the steps of a plan.

    Args:
        look: called now and then while kernels are compiled; it may raise.
        mode: what becomes of memory between nodes; see
            :meth:`~.device.Device.memory`.

    Attributes:
        linked: what it does.
        in_place: outputs that may be in the memory of an input, each with this.

    Raises:
        ValueError: an array is larger than the device has them.
        MemoryError: there is no memory for a constant.
        RefusedLaunch: the device does not take a kernel.
        DeviceLost: the device was lost.
    """

    def __init__(
        self,
        linked: Linked,
        device: Device,
        weights: Weights,
        look: Callable[[], None] = lambda: None,
        mode: str = "",
    ) -> None:
        device.ensure()
        self.linked = linked
        self.in_place = linked.in_place
        self._device = device
        self._mode = mode
        for nbytes in linked.slots:
            if nbytes > device.largest_buffer:
                raise ValueError(
                    f"an array between nodes has {nbytes} bytes; {device} has "
                    f"buffers of at most {device.largest_buffer}"
                )
        # of launches, and plans of calls
        self._kernels: list[Any] = []
        for step in linked.steps:
            look()
            try:
                self._kernels.append(
                    device.engine(step.call, step.begins, step.workspace_nbytes)
                    if isinstance(step, CallStep)
                    else device.kernel(step.text, step.written, step.lanes)
                )
            except KernelRefused as error:
                raise RefusedLaunch(str(error), step.nodes) from error
        self._constants = [weights.memory(each) for each in linked.constants]
        self._numbers = device.numbers(linked.numbers)

    def run(
        self,
        inputs: Sequence[Memory | None],
        outputs: Sequence[Memory | None],
        stream: DeviceStream,
        profiler: ep.Profiler | None = None,
    ) -> None:
        """Queue the steps.

        Args:
            inputs: ``None`` for what no kernel reads.
            outputs: in no memory of an input, but as :attr:`in_place` says; ``None``
                for what is not computed.
            stream: whoever waits for it is told what kernels found.
            profiler: records each step, which takes time; not of a capture.

        Raises:
            MemoryError: there is no memory for what is between nodes.
            DeviceLost: the device was lost.
        """
        with self._device.lock:
            work = self.bound(inputs, outputs, stream)
            if profiler is None or stream.is_capturing:
                stream.queue(work)
            else:
                steps = [step for step, _ in self._needed(inputs, outputs)]
                run_recorded(steps, work, stream, profiler)
        if work.cleared is not None:
            stream.read(work.cleared, FLAG * self.linked.flags, self._check)

    def bound(
        self,
        inputs: Sequence[Memory | None],
        outputs: Sequence[Memory | None],
        stream: DeviceStream | None,
    ) -> Launches:
        """The steps on memory, with the device's lock held; what is between nodes gets
        some of its own, for *stream*."""
        device, mode = self._device, self._mode
        slots = [device.memory(nbytes, stream, mode) for nbytes in self.linked.slots]
        flags = None
        if self.linked.flags:
            flags = device.memory(FLAG * self.linked.flags, stream)
        memories = {
            "slot": slots,
            "input": inputs,
            "output": outputs,
            "constant": self._constants,
            "flags": [flags],
        }
        used: dict[int, Memory] = {}
        steps = []
        for step, kernel in self._needed(inputs, outputs):
            buffers = [
                (memories[kind][number], begin, nbytes)
                for kind, number, begin, nbytes in step.places
            ]
            used.update((memory.serial, memory) for memory, _, _ in buffers)
            if isinstance(step, CallStep):
                workspace = None
                if step.workspace is not None:
                    workspace = slots[step.workspace.number]
                    used[workspace.serial] = workspace
                steps.append(device.engine_call(kernel, buffers, workspace))
                continue
            steps.append(
                device.launch(
                    kernel,
                    self._numbers,
                    step.start,
                    step.window,
                    (step.x, step.y),
                    buffers,
                )
            )
        return Launches(tuple(steps), flags, tuple(used.values()))

    def _needed(
        self, inputs: Sequence[Memory | None], outputs: Sequence[Memory | None]
    ) -> Iterator[tuple[AnyStep, Any]]:
        """The steps with their kernels, but those that copy what is there already."""
        there = {pair for pair in self.in_place if outputs[pair[0]] is inputs[pair[1]]}
        for step, kernel in zip(self.linked.steps, self._kernels, strict=True):
            if not there or isinstance(step, CallStep) or step.copied not in there:
                yield step, kernel

    def _check(self, content: np.ndarray[Any, np.dtype[np.uint8]]) -> None:
        found = content.view(np.uint32).reshape(-1, 2)
        if not found.any():
            return
        for number, error in self.linked.checks:
            if found[number, 0]:
                raise error(int(found[number, 0]))
