"""A partition of the compiled tier: segments of machine code, and what is between."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import numpy as np

from onnxplug import ep
from onnxplug.authoring.locks import new_lock
from onnxplug_compiler.frontend.call import (
    NotCompiled,
    numpy_dtype,
)
from onnxplug_compiler.linear_codes import Unfolded
from onnxplug_compiler.schedule.bodies import ControlFlowCall
from onnxplug_compiler.schedule.constants import Constants
from onnxplug_compiler.schedule.in_place import outputs_in_place
from onnxplug_compiler.segmentation import (
    Analysis,
    Unit,
    analyse,
    split,
)
from onnxplug_compiler.sinking import sunk
from onnxplug_compiler.widening import widened
from onnxplug_cpu.compiler.batches import Batches
from onnxplug_cpu.compiler.built_partition import Built
from onnxplug_cpu.compiler.floored_segment import FlooredSegment, floored_inputs
from onnxplug_cpu.compiler.kept_plans import (
    KeptPlans,
    KeptUnit,
    KeptUnits,
    stated_shapes,
)
from onnxplug_cpu.compiler.node_calls import as_call
from onnxplug_cpu.compiler.restore import restorable
from onnxplug_cpu.compiler.runtime.jit import KernelUnavailable, warn_of_arrays
from onnxplug_cpu.compiler.segment import Compiler, Segment
from onnxplug_cpu.compiler.sequence import sequence
from onnxplug_cpu.compiler.steps import FindFunction
from onnxplug_cpu.compiler.variants import Variants
from onnxplug_cpu.compiler.varying import varying_values
from onnxplug_cpu.control_flow import Compile, ControlFlow, is_control_flow
from onnxplug_kernels.ml.encode import Chosen, Found

_NUMBERS: Final = np.dtype(np.int64)
"""Of what texts stand for."""

MOST_IN_VAIN: Final = 4
"""Shapes for which a partition that was never compiled whole is tried so."""

MOST_REFUSED: Final = 16
"""Nodes of one operator that may turn out, one after the other, not to be compilable;
then all are taken for that, as each time the whole is planned, or run, anew."""


class ProgramPartition(ep.CompiledPartition, ep.Prewarmer):
    """A partition whose calls are compiled where they can be.

    A call that turns out not to be compilable for some shapes, but computable, is
    computed on arrays from then on, whatever the shapes; so are all calls when a kernel
    is unavailable.

    Args:
        partition: what to run.
        compiler: what the session's segments share.
        find_function: the array tier's function of a node.
        compile_body: makes what runs a body of control flow.
        threads: of what runs on arrays; 0 for no limit.
        plans: where its plans are kept; ``None`` if they are not.

    """

    in_place = True

    def __init__(
        self,
        partition: ep.Partition,
        compiler: Compiler,
        find_function: FindFunction,
        compile_body: Compile,
        threads: int = 0,
        plans: KeptPlans | None = None,
    ) -> None:
        self._threads = threads
        self._kept = plans
        self._places = {node.index: n for n, node in enumerate(partition.nodes)}
        self._partition = partition
        self._compiler = compiler
        self._lock = new_lock()
        # an index is a node's only as long as the host does not rewrite the graph
        self._nodes = {node.index: node for node in partition.nodes}
        kinds: dict[Any, int] = {}
        target = compiler.target
        self._calls = [
            as_call(partition, node, find_function, compile_body, kinds, target)
            for node in partition.nodes
        ]
        read = {name for call in self._calls for name in call.inputs if name}
        self._constants = Constants(partition, {*read, *partition.outputs})
        self._dtypes = {
            name: numpy_dtype(partition, name)
            for name in (*read, *partition.outputs, *partition.inputs)
        }
        self._floored = floored_inputs(partition, self._calls)
        # names of what plans are made for
        known = {*self._constants, *self._floored}
        self._known: Collection[str] = known if self._floored else self._constants
        moved = sunk(self._calls, self._dtypes, self._constants, target, kinds)
        every = {**self._dtypes, **moved.dtypes}
        wide = widened(
            moved.calls, every, self._known, partition.outputs, target, kinds
        )
        self._calls = list(wide.calls)
        every |= wide.dtypes
        opset = partition.graph.opset()
        own = Unfolded(self._calls, every, self._constants, target, opset)
        self._unfolded = own
        self._own_dtypes = {**moved.dtypes, **wide.dtypes, **own.dtypes}
        self._own_names = {**moved.names, **wide.names, **own.names}
        for call in self._calls:
            if isinstance(call, ControlFlowCall) and call.op_type == "Loop":
                assert isinstance(call.function, ControlFlow)
                call.function.batches = Batches(
                    compiler, call, self._constants, self._dtypes, self._nodes
                )
        self._variants = Variants()
        self._take(self._build({}))
        if plans is not None and self.is_compiled:
            self._keep_units(plans)
        self._kept = None  # what is found out later holds for some shapes only

    def _keep_units(self, plans: KeptPlans) -> None:
        """Keep how the partition is split, if no sizes depend on elements."""
        built, units = self._built, list[KeptUnit]()
        if len(built.units) > 1 and varying_values(built.units):
            return
        segments = iter(built.segments)
        for unit in built.units:
            if unit.compiled and (unit.counted or self._floored & {*unit.inputs}):
                return
            if unit.compiled:
                shapes = _stated_shapes(
                    self._partition, next(segments), self._names(built.analysis)
                )
                found = outputs_in_place(unit.calls, unit.inputs, unit.outputs)
                in_place = tuple(found.items())
                units.append(
                    KeptUnit(
                        unit.inputs, unit.outputs, shapes=shapes, in_place=in_place
                    )
                )
                continue
            (call,) = unit.calls
            node = self._nodes[call.nodes[0]]
            texts, look_up = None, ""
            if isinstance(call.function, Found | Chosen):
                look_up = type(call.function).__name__
                texts = call.function.texts
            elif call.inputs != node.inputs or call.outputs != node.outputs:
                return  # it is a part of the node
            own = KeptUnit(call.inputs, call.outputs, node.index, texts, look_up)
            units.append(own)
        kept = KeptUnits(
            tuple(units),
            tuple(self._names(built.analysis).items()),
            tuple(p for p, tier in self._tiers.items() if tier == "array"),
            tuple(self._all_notes().items()),
        )
        plans.keep_units(kept)
        self.restorable = restorable(self._partition, kept, plans)

    def _build(self, refused: Mapping[int, str]) -> Built:
        """Split into units, without the nodes that are refused, and plan ahead."""
        while True:
            units, analysis = self._split(refused)
            segments = [
                self._segment(unit, analysis) if unit.compiled else None
                for unit in units
            ]
            try:
                for segment in filter(None, segments):
                    self._plan_ahead(segment, analysis)
            except NotCompiled as refusal:
                refused = self._without(refused, refusal)
                continue
            break
        alone = segments[0] if len(units) == 1 else None
        runner = alone or sequence(
            self._partition,
            self._nodes,
            units,
            segments,
            analysis,
            self._names(analysis),
            self._threads,
        )
        compiled = tuple(filter(None, segments))
        return Built(runner, refused, units, analysis, compiled)

    def _take(self, built: Built) -> None:
        """Run *built* from now on."""
        self._notes = {
            self._places[node]: reason
            for call, reason in built.analysis.reasons.items()
            for node in call.nodes
        }
        numbers = {
            node
            for call in built.analysis.calls
            if call not in built.analysis.reasons and call not in built.analysis.known
            for node in call.nodes
        }
        on_arrays = [
            unit.calls[0].nodes[0]
            for unit in built.units
            if not unit.compiled and unit.calls[0].nodes[0] not in numbers
        ]
        self._tiers = dict.fromkeys(range(len(self._places)), "compiled")
        self._tiers |= dict.fromkeys(
            (self._places[node] for node in on_arrays), "array"
        )
        for unit in built.units:
            if not unit.compiled and isinstance(unit.calls[0].function, ControlFlow):
                unit.calls[0].function.compiled()
        self.is_compiled = len(on_arrays) < len(self._places) or any(
            isinstance(call, ControlFlowCall) for call in self._calls
        )
        # one attribute, as other threads may be about to run
        self._built = built
        self._variants.clear()

    def _split(self, refused: Mapping[int, str]) -> tuple[list[Unit], Analysis]:
        partition, target = self._partition, self._compiler.target
        dtypes = {**self._dtypes, **self._own_dtypes}
        calls = self._unfolded.but_for(refused)
        analysis = analyse(calls, dtypes, self._known, refused, target)
        units = split(analysis, partition.outputs, self._constants)
        if len(units) == 1 and units[0].compiled:
            whole = units[0]._replace(
                inputs=tuple(partition.inputs), outputs=tuple(partition.outputs)
            )
            units = [whole]
        return units, analysis

    def _segment(self, unit: Unit, analysis: Analysis) -> Segment:
        given: dict[str, Any] = {
            "calls": unit.calls,
            "forms": analysis.forms,
            "constants": self._constants,
            "inputs": unit.inputs,
            "outputs": unit.outputs,
            "dtypes": [self._dtype(name, analysis) for name in unit.inputs],
            "nodes": self._nodes,
        }
        if not unit.counted and self._floored.intersection(unit.inputs):
            return FlooredSegment(self._compiler, read=self._floored, **given)
        if not unit.counted:
            if self._kept is not None:
                given["keeper"] = self._kept.of_segment(
                    self._partition, unit.inputs, unit.outputs
                )
            return Segment(self._compiler, **given)
        from onnxplug_cpu.compiler.filled_segment import FilledSegment

        return FilledSegment(self._compiler, counted=unit.counted, **given)

    def _names(self, analysis: Analysis) -> Mapping[str, str]:
        """Of values that are none of the partition's, and of those that they stand
        for."""
        return {**analysis.numbers, **self._own_names}

    def _dtype(self, name: str, analysis: Analysis) -> np.dtype[Any] | None:
        """That of a value that a segment is given."""
        if name in self._own_dtypes:
            return self._own_dtypes[name]
        return _NUMBERS if name in analysis.numbers else self._dtypes[name]

    def _plan_ahead(self, segment: Segment, analysis: Analysis) -> None:
        """Make the plan now if the shapes are known, so that no run has to wait."""
        shapes = _stated_shapes(self._partition, segment, self._names(analysis))
        if shapes is not None and not segment.read:
            segment.plan(shapes, self._look)

    def _look(self) -> None:
        if self._partition.cancelled:
            raise ep.LoadCancelled("compiling was cancelled")

    def _without(
        self, refused: Mapping[int, str], refusal: NotCompiled | KernelUnavailable
    ) -> dict[int, str]:
        """The nodes that are refused, and now those that *refusal* is about."""
        if isinstance(refusal, KernelUnavailable):
            return dict.fromkeys(self._nodes, str(refusal))
        if refusal.call is None:
            raise refusal
        nodes = refusal.call.nodes
        together = {**refused, **dict.fromkeys(nodes, str(refusal))}
        for kind in {self._kind(node) for node in nodes}:
            alike = [node for node in self._nodes if self._kind(node) == kind]
            if sum(node in together for node in alike) >= MOST_REFUSED:
                reason = f"like {MOST_REFUSED} others of its operator: {refusal}"
                together = {**dict.fromkeys(alike, reason), **together}
        return together

    def _kind(self, node: int) -> tuple[str, str]:
        return self._nodes[node].domain, self._nodes[node].op_type

    @property
    def prewarmer(self) -> ep.Prewarmer:  # type: ignore[override]
        """Itself: it makes plans by shapes."""
        return self

    def prewarm(self, partition: ep.Partition) -> bool:
        """Plan for the shapes that *partition* states."""
        built = self._built
        ready = bool(built.segments)
        for segment in built.segments:
            shapes = _stated_shapes(partition, segment, self._names(built.analysis))
            if shapes is None or segment.read:
                ready = False
                continue
            try:
                segment.plan(shapes)
            except (NotCompiled, KernelUnavailable):
                ready = False  # the first run finds out, and what to do then
        return ready

    @property
    def report(self) -> ep.PartitionReport:  # type: ignore[override]
        """Which tier each node is in, and why not in a faster one; how many structures
        and plans there are for the shapes that were met, and what the session's weights
        take in the layouts that their kernels want."""
        segments = [
            segment
            for built in (self._built, *self._variants.all)
            for segment in built.segments
        ]
        made = {
            "structures": sum(segment.structures for segment in segments),
            "plans": sum(segment.plans for segment in segments),
        }
        nbytes = self._compiler.packed_bytes
        if nbytes:
            made["bytes of packed weights"] = nbytes
        bodies = {
            self._places[call.nodes[0]]: self._report_of(call)
            for call in self._calls
            if isinstance(call, ControlFlowCall)
        }
        return ep.PartitionReport(
            tiers=self._tiers, notes=self._all_notes(), counts=made, bodies=bodies
        )

    def _all_notes(self) -> dict[int, str]:
        """Why nodes are not compiled, and what is to be said of those that are."""
        built, found = self._built, {}
        if built is not None:
            found = {
                self._places[node]: note
                for segment in built.segments
                for node, note in segment.notes.items()
                if node in self._places
            }
        return {**found, **self._notes}

    def _report_of(self, call: ControlFlowCall) -> Mapping[str, ep.PartitionReport]:
        """What is to be said of the bodies of *call*."""
        (node,) = call.nodes
        if self._tiers[self._places[node]] == "compiled":
            return _all_compiled(self._nodes[node])
        function = call.function
        assert isinstance(function, ControlFlow)
        return function.report()

    def close(self) -> None:
        """Give up what runs need."""
        for built in (self._built, *self._variants.all):
            for segment in built.segments:
                segment.close()
        for call in self._calls:
            if isinstance(call.function, ControlFlow):
                call.function.close()

    def run(
        self,
        inputs: Sequence[Any],
        outputs: Sequence[Any | None],
        context: ep.RunContext | None,
    ) -> Sequence[Any]:
        """Run the units in order."""
        built = self._variants.for_shapes(inputs) or self._built
        try:
            return built.run(inputs, outputs, context)
        except (NotCompiled, KernelUnavailable, ep.NodeError) as error:
            refusal = _refusal(error)
        return self._run_without(built, refusal, inputs, outputs, context)

    def _run_without(
        self,
        built: Built,
        refusal: NotCompiled | KernelUnavailable,
        inputs: Sequence[Any],
        outputs: Sequence[Any | None],
        context: ep.RunContext | None,
    ) -> Sequence[Any]:
        """Run with more and more calls on arrays, until the run succeeds.

        What was found out is kept for inputs of these shapes and says nothing of
        others, but for machine code that is not to be had.
        """
        while True:
            try:
                with self._lock:
                    refused = self._without(built.refused, refusal)
                    if isinstance(refusal, KernelUnavailable):
                        warn_of_arrays(str(refusal))
                        if not self._built.refuses(refused):
                            self._take(self._build(refused))
                        built = self._built
                    else:
                        built = self._variants.without(refused, self._build)
                results = built.run(inputs, outputs, context)
            except (NotCompiled, KernelUnavailable, ep.NodeError) as error:
                refusal = _refusal(error)
                continue
            with self._lock:
                if built is not self._built:
                    self._keep(built, {**built.refused, **refused}, inputs)
            return results

    def _keep(
        self, built: Built, refused: Mapping[int, str], inputs: Sequence[Any]
    ) -> None:
        """Run *built*, without nodes that are *refused*, for inputs of these shapes
        from now on; for all, if there were many and the partition has never run
        otherwise."""
        met = self._variants.keep(built, inputs)
        never = any(not segment.plans for segment in self._built.segments)
        if never and met >= MOST_IN_VAIN:
            self._take(built)
            return
        found = {
            self._places[node]: f"on arrays for inputs of some shapes: {reason}"
            for node, reason in refused.items()
        }
        self._notes = {**found, **self._notes}


def _all_compiled(node: ep.Node) -> Mapping[str, ep.PartitionReport]:
    """A report of bodies that are compiled with what is around them."""
    return {
        attribute: ep.PartitionReport(
            tiers=dict.fromkeys(range(len(body.nodes)), "compiled"),
            bodies={
                inner.index: _all_compiled(inner)
                for inner in body.nodes
                if is_control_flow(inner)
            },
        )
        for attribute, body in node.subgraphs.items()
    }


def _refusal(error: Exception) -> NotCompiled | KernelUnavailable:
    """What *error* says of the compiled tier; raises it if it is of something else."""
    # a sequence says what its calls raise as its own
    refusal = error.__cause__ if isinstance(error, ep.NodeError) else error
    if isinstance(refusal, NotCompiled | KernelUnavailable):
        return refusal
    raise error


def _stated_shapes(
    partition: ep.Partition, segment: Segment, names: Mapping[str, str]
) -> tuple[tuple[int, ...], ...] | None:
    """The shapes of a segment's inputs; ``None`` if not all are stated."""
    return stated_shapes(partition, [names.get(name, name) for name in segment.inputs])
