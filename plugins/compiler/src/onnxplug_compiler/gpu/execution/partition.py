"""A partition on the device: segments in one queue, and what is between on the host."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Final

from onnxplug import ep
from onnxplug.authoring.locks import new_rlock
from onnxplug.authoring.nodes import describe
from onnxplug_compiler.frontend.call import Call, NotCompiled
from onnxplug_compiler.gpu.execution.artefact import Artefact
from onnxplug_compiler.gpu.execution.backend import Backend
from onnxplug_compiler.gpu.execution.capability import analysed, calls_of, read_by_host
from onnxplug_compiler.gpu.execution.context import GpuContext
from onnxplug_compiler.gpu.execution.program import Weights
from onnxplug_compiler.gpu.execution.run import Refused, Run
from onnxplug_compiler.gpu.execution.segment import Segment, Shapes
from onnxplug_compiler.schedule.constants import Constants
from onnxplug_compiler.segmentation import Unit, split

_MADE: Final = ("_refused", "_analysis", "_dtypes", "_units", "_segments")
"""Attributes of what a partition is split into, without the nodes that are refused."""

ON_HOST: Final = "it is computed on the host"

COUNTED: Final = "the size of its result depends on elements"

FROM_SHAPES: Final = "it follows from shapes, which are on the host"


class GpuPartition(ep.CompiledPartition):
    """Runs units in order.

    A call that turns out, in a run, not to be computed for its shapes is computed on
    the host from then on, which the report says.

    Raises:
        Declined: some nodes are not computed; the next EP gets them.
        OutOfMemory: there is no memory for a constant.
    """

    in_place = True

    def __init__(
        self,
        partition: ep.Partition,
        context: GpuContext,
        weights: Weights,
        backend: Backend,
    ) -> None:
        self._partition = partition
        self._context = context
        self._device = context.device
        self._weights = weights
        self._backend = backend
        self._nodes = {node.index: node for node in partition.nodes}
        self._lock = new_rlock()
        self._calls, refused = calls_of(partition, partition.nodes, backend)
        self._decline({n: str(reason) for n, reason in refused.items()})
        read = {name for call in self._calls for name in call.inputs if name}
        self._constants = Constants(partition, {*read, *partition.outputs})
        self._read_by_host = read_by_host(
            partition, self._calls, partition.inputs, self._constants
        )
        self.input_locations = [
            ep.HOST if name in self._read_by_host else context.location
            for name in partition.inputs
        ]
        self._refused: dict[int, str] = {}
        self._build()
        self._decline(
            {call.nodes[0]: reason for call, reason in self._analysis.reasons.items()}
        )
        if not self._segments:
            raise ep.Declined(FROM_SHAPES)
        self._plan_ahead()
        made_on_host = {
            name for call in self._on_host_calls() for name in call.outputs if name
        }
        self._on_host = made_on_host.intersection(partition.outputs)
        self.output_locations = [
            ep.HOST if name in made_on_host else context.location
            for name in partition.outputs
        ]

    def _decline(self, refused: Mapping[int, str]) -> None:
        if refused:
            nodes = [self._nodes[index] for index in refused]
            raise ep.Declined("; ".join(dict.fromkeys(refused.values())), nodes=nodes)

    def _build(self) -> None:
        """Split into units, without the nodes that are refused."""
        partition = self._partition
        known = {*self._constants, *self._read_by_host}
        self._analysis, self._dtypes = analysed(
            partition, self._calls, known, self._refused, self._backend.target
        )
        for name in (*partition.inputs, *partition.outputs):
            if name not in self._dtypes:
                dtype = partition.value(name).dtype
                self._dtypes[name] = None if dtype is None else dtype.numpy
        units = split(self._analysis, partition.outputs, self._constants)
        self._units = units
        self._segments = {
            number: Segment(
                self._device,
                self._backend,
                self._weights,
                unit,
                self._analysis,
                self._constants,
                [self._dtypes[name] for name in unit.inputs],
                self._nodes,
                self._read_by_host,
            )
            for number, unit in enumerate(units)
            if unit.compiled
        }

    def _plan_ahead(self) -> None:
        """Make the plans now whose shapes are known.

        Raises:
            Declined: a node is not computed for them.
            OutOfMemory: there is no memory for a constant.
        """
        for segment in self._segments.values():
            shapes = self._stated_shapes(segment)
            if shapes is not None and not segment.read_by_host:
                try:
                    segment.plan(shapes, {}, self._look)
                except NotCompiled as refusal:
                    self._decline(self._named_by(refusal, segment))
                except MemoryError as error:
                    node = describe(segment.nodes[0])
                    raise ep.OutOfMemory.of(error, node, node=node) from error

    def _stated_shapes(self, segment: Segment) -> Shapes | None:
        """The shapes of the inputs; ``None`` if one is not known in numbers."""
        shapes = []
        for name in segment.inputs:
            shape = self._partition.value(name).shape
            if shape is None or not all(type(size) is int for size in shape):
                return None
            shapes.append(shape)
        return tuple(shapes)  # type: ignore[arg-type]

    def _on_host_calls(self) -> set[Call]:
        """What is not computed on the device."""
        plain = (unit.calls for unit in self._units if not unit.compiled)
        return {*self._analysis.known, *itertools.chain.from_iterable(plain)}

    def _look(self) -> None:
        if self._partition.cancelled:
            raise ep.LoadCancelled("compiling was cancelled")

    def _named_by(self, refusal: NotCompiled, segment: Segment) -> dict[int, str]:
        """The nodes that *refusal* is about: of its call, or else of the segment."""
        calls = [refusal.call] if refusal.call else segment.unit.calls
        return {node: str(refusal) for call in calls for node in call.nodes}

    @property
    def report(self) -> ep.PartitionReport:  # type: ignore[override]
        """Which nodes are on the host, and why, and what is to be said of others."""
        places = {node.index: n for n, node in enumerate(self._partition.nodes)}
        on_host = {node for call in self._on_host_calls() for node in call.nodes}
        tiers = {
            place: "host" if node in on_host else "compiled"
            for node, place in places.items()
        }
        notes = {
            places[node]: note
            for segment in self._segments.values()
            for node, note in segment.notes.items()
            if node in places
        }
        for node in on_host:
            notes[places[node]] = self._refused.get(node, FROM_SHAPES)
        counts = {"plans": sum(each.plans for each in self._segments.values())}
        return ep.PartitionReport(tiers=tiers, notes=notes, counts=counts)

    @property
    def waits(self) -> Mapping[int, str]:
        """Nodes for which a run waits for the device before it goes on, by their
        indices, and why."""
        found: dict[int, str] = {}
        for unit in self._units:
            if not unit.compiled and not unit.calls[0].traits.of_shapes:
                found |= dict.fromkeys(unit.calls[0].nodes, ON_HOST)
            for call in unit.calls:
                if any(name in unit.counted for name in call.outputs):
                    found |= dict.fromkeys(call.nodes, COUNTED)
        return found

    def run(
        self,
        inputs: Sequence[Any],
        outputs: Sequence[Any | None],
        context: ep.RunContext | None,
    ) -> Sequence[Any]:
        """Queue what segments do, and compute on the host what is between.

        What is right on the host only is there from then on; what is wrong there, too,
        changes nothing.
        """
        before: Mapping[str, Any] | None = None
        while True:
            units, segments = self._units, self._segments
            try:
                return self._run(units, segments, inputs, outputs, context)
            except Refused as refused:
                named = self._named_by(refused.why, refused.segment)
                self._check_on_host(named)
                with self._lock:
                    if units is self._units:
                        before = before or {name: getattr(self, name) for name in _MADE}
                        self._refused = {**self._refused, **named}
                        self._build()
            except ep.NodeError:
                with self._lock:
                    if before is not None and units is self._units:
                        vars(self).update(before)
                raise

    def _check_on_host(self, refused: Mapping[int, str]) -> None:
        """Raise NodeError if a node is refused that is not computed on the host."""
        for call in self._calls:
            if call.function is None and call.nodes[0] in refused:
                node = self._nodes[call.nodes[0]]
                raise ep.NodeError(
                    f"{describe(node)} is not computed for these inputs: "
                    f"{refused[node.index]}; where they are right, "
                    f"{self._backend.remedy}",
                    node=node.name or describe(node),
                )

    def _run(
        self,
        units: Sequence[Unit],
        segments: Mapping[int, Segment],
        inputs: Sequence[Any],
        outputs: Sequence[Any | None],
        context: ep.RunContext | None,
    ) -> Sequence[Any]:
        names = self._partition.outputs
        values = dict(zip(self._partition.inputs, inputs, strict=True))
        bound = dict(zip(names, outputs, strict=True))
        if len(units) > 1:  # of which others may read an input, or be begun anew
            bound = {
                name: None if any(room is each for each in inputs) else room
                for name, room in bound.items()
            }
        run = Run(
            self._device, self._partition, self._nodes, self._constants, values, context
        )
        for number, unit in enumerate(units):
            run.check_cancelled()
            if unit.compiled:
                run.run_segment(segments[number], bound)
            else:
                run.run_on_host(unit.calls[0])
        given = run.given(names, self._on_host, outputs)
        run.end()
        return given

    def artefact(self) -> Artefact:
        """The partition as plain data.

        Raises:
            Declined: it cannot be, as sizes are not known, or nodes are on the host.
        """
        if len(self._segments) != len(self._units) or self._on_host:
            raise ep.Declined("some of its nodes are computed on the host in each run")
        segments = []
        for segment in self._segments.values():
            shapes = self._stated_shapes(segment)
            if shapes is None:
                raise ep.Declined(
                    "sizes of its inputs are not known; fix them with "
                    "SessionOptions.add_free_dimension_override_by_name"
                )
            try:
                segments.append(segment.kept(shapes))
            except ValueError as error:
                raise ep.Declined(str(error)) from error
        partition = self._partition
        return Artefact(
            tuple(partition.inputs), tuple(partition.outputs), tuple(segments)
        )

    def close(self) -> None:
        """Give up the programs."""
        for segment in self._segments.values():
            segment.close()
