"""Partitions that were compiled before, in another session or process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onnxplug import ep
from onnxplug.authoring.locks import new_rlock
from onnxplug_compiler.gpu.execution.array import DeviceArray
from onnxplug_compiler.gpu.execution.artefact import Artefact, KeptSegment
from onnxplug_compiler.gpu.execution.context import GpuContext
from onnxplug_compiler.gpu.execution.device import Device, DeviceStream
from onnxplug_compiler.gpu.execution.program import Program, Weights
from onnxplug_compiler.gpu.execution.run import Run
from onnxplug_compiler.gpu.execution.segment import Array, Plan, run_plan


class RestoredSegment:
    """A segment for one set of input shapes; see :class:`~.segment.Segment`.

    Raises:
        ValueError: its program is none for this device.
    """

    read_by_host = ()

    def __init__(
        self,
        kept: KeptSegment,
        device: Device,
        weights: Weights,
        nodes: Sequence[ep.Node],
        mode: str,
    ) -> None:
        self.inputs = kept.inputs
        self.outputs = kept.outputs
        self.nodes = nodes
        self._kept = kept
        self._device = device
        self._weights = weights
        self._mode = mode
        self._lock = new_rlock()
        self._generation = device.generation
        self._plan = self._made()

    def _made(self) -> Plan:
        linked = self._kept.linked
        program = None
        if linked is not None:
            program = Program(linked, self._device, self._weights, mode=self._mode)
        return Plan(program, self._kept.results)

    def run(
        self,
        arrays: Sequence[Array],
        bound: Sequence[DeviceArray | None],
        stream: DeviceStream,
        profiler: ep.Profiler | None = None,
    ) -> list[Any]:
        """Queue the work; see :meth:`~.segment.Segment.run`.

        Raises:
            ValueError: an input is of another shape than it was compiled for.
        """
        self._device.ensure()
        with self._lock:
            if self._generation != self._device.generation:
                self._plan = self._made()
                self._generation = self._device.generation
            plan = self._plan
        for name, array, given in zip(
            self.inputs, arrays, self._kept.given, strict=True
        ):
            if (tuple(array.shape), array.dtype) != (given.shape, given.dtype):
                raise ValueError(
                    f"value {name!r} is {array.dtype}{list(array.shape)}; it was "
                    f"compiled for {given.dtype}{list(given.shape)}"
                )
        return run_plan(self._device, plan, arrays, bound, stream, self._mode, profiler)


class RestoredPartition(ep.CompiledPartition):
    """A partition from its bytes.

    Attributes:
        artefact: what these hold.

    Raises:
        ValueError: they are not of this partition, or of no use on this device.
    """

    in_place = True

    def __init__(
        self,
        partition: ep.Partition,
        artefact: Artefact,
        context: GpuContext,
        weights: Weights,
        mode: str,
    ) -> None:
        _check_values(partition, artefact)
        self.artefact = artefact
        self._partition = partition
        self._device = context.device
        nodes = list(partition.nodes)
        self._segments = [
            RestoredSegment(each, context.device, weights, nodes, mode)
            for each in artefact.segments
        ]
        self.output_locations = [context.location] * len(artefact.outputs)

    def run(
        self,
        inputs: Sequence[Any],
        outputs: Sequence[Any | None],
        context: ep.RunContext | None,
    ) -> Sequence[Any]:
        """Queue what segments do."""
        artefact = self.artefact
        values = dict(zip(artefact.inputs, inputs, strict=True))
        bound = dict(zip(artefact.outputs, outputs, strict=True))
        if len(self._segments) > 1:  # of which others may read an input
            bound = {
                name: None if any(room is each for each in inputs) else room
                for name, room in bound.items()
            }
        run = Run(self._device, self._partition, {}, (), values, context)
        for segment in self._segments:
            run.check_cancelled()
            run.run_segment(segment, bound)
        given = run.given(artefact.outputs, (), outputs)
        run.end()
        return given


def _check_values(partition: ep.Partition, artefact: Artefact) -> None:
    """Check that the values of the artefact are the partition's, and that each is there
    before it is read."""
    for kind, names, kept in (
        ("inputs", partition.inputs, artefact.inputs),
        ("outputs", partition.outputs, artefact.outputs),
    ):
        if len(names) != len(kept):
            raise ValueError(f"it has {len(kept)} {kind}, not {len(names)}")
    known = set(artefact.inputs)
    for segment in artefact.segments:
        if not known.issuperset(segment.inputs):
            raise ValueError("a segment reads what nothing made")
        known.update(segment.outputs)
    if not known.issuperset(artefact.outputs):
        raise ValueError("it does not make all outputs")
    types = {
        name: result
        for segment in artefact.segments
        for name, result in zip(segment.outputs, segment.results, strict=True)
    }
    for name, kept_name in zip(partition.outputs, artefact.outputs, strict=True):
        dtype, found = partition.value(name).dtype, types.get(kept_name)
        if found is not None and dtype is not None and dtype.numpy != found.dtype:
            raise ValueError(f"output {name!r} is {dtype}, not {found.dtype}")
