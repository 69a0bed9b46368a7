"""A partition of the compiled tier: segments of machine code, and what is between."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from onnxplug import ep
from onnxplug_cpu.compiler.call import Call, NotCompiled, call_of, numpy_dtype
from onnxplug_cpu.compiler.constants import Constants
from onnxplug_cpu.compiler.jit import KernelUnavailable, warn_of_arrays
from onnxplug_cpu.compiler.segment import Compiler, Segment
from onnxplug_cpu.compiler.units import Analysis, Unit, analyse, split
from onnxplug_cpu.threads import on_arrays
from onnxplug_kernels import find_kernel

FindFunction = Callable[[ep.Graph, ep.Node], "Callable[..., Any] | ep.Reason"]


class ProgramPartition(ep.CompiledPartition):
    """A partition whose calls are compiled where they can be.

    A call that turns out not to be compilable for some shapes is computed on arrays
    from then on, whatever the shapes; so are all calls when a kernel is unavailable.

    Args:
        partition: what to run.
        compiler: what the session's segments share.
        find_function: the array tier's function of a node.
        threads: of what runs on arrays; 0 for no limit.

    Attributes:
        notes: why a node, by its position, is not compiled.
    """

    def __init__(
        self,
        partition: ep.Partition,
        compiler: Compiler,
        find_function: FindFunction,
        threads: int = 0,
    ) -> None:
        self._threads = threads
        self._partition = partition
        self._compiler = compiler
        self._lock = threading.Lock()
        self._refused: dict[int, str] = {}
        # an index is a node's only as long as the host does not rewrite the graph
        self._nodes = {node.index: node for node in partition.nodes}
        self._calls = [
            _as_call(partition, node, find_function) for node in partition.nodes
        ]
        read = {name for call in self._calls for name in call.inputs if name}
        self._constants = Constants(partition, {*read, *partition.outputs})
        self._dtypes = {
            name: numpy_dtype(partition, name)
            for name in (*read, *partition.outputs, *partition.inputs)
        }
        self._build()

    def _build(self) -> None:
        """Split into units, without the nodes that were refused, and plan ahead."""
        while True:
            units, analysis = self._split()
            segments = [
                self._segment(unit, analysis) if unit.compiled else None
                for unit in units
            ]
            try:
                for segment in filter(None, segments):
                    self._plan_ahead(segment)
            except NotCompiled as refusal:
                self._refuse(refusal)
                continue
            break
        reasons = {
            node: reason
            for call, reason in analysis.reasons.items()
            for node in call.nodes
        }
        places = {index: place for place, index in enumerate(self._nodes)}
        self.notes = {places[node]: reason for node, reason in reasons.items()}
        self.node_tiers = dict.fromkeys(range(len(places)), "compiled")
        for unit in units:
            if not unit.compiled:
                self.node_tiers[places[unit.calls[0].nodes[0]]] = "array"
        plain = sum(len(unit.calls) for unit in units if not unit.compiled)
        tiers = {"compiled": len(self._calls) - plain, "array": plain}
        self.tiers = {tier: count for tier, count in tiers.items() if count}
        alone = segments[0] if len(units) == 1 else None
        # one attribute, as other threads may be about to run
        self._runner: Segment | ep.KernelSequence = alone or _sequence(
            self._partition, self._nodes, units, segments, reasons
        )

    def _split(self) -> tuple[list[Unit], Analysis]:
        partition = self._partition
        analysis = analyse(self._calls, self._dtypes, self._constants, self._refused)
        units = split(
            self._calls,
            analysis,
            partition.inputs,
            partition.outputs,
            self._constants,
        )
        if len(units) == 1 and units[0].compiled:
            whole = units[0]._replace(
                inputs=tuple(partition.inputs), outputs=tuple(partition.outputs)
            )
            units = [whole]
        return units, analysis

    def _segment(self, unit: Unit, analysis: Analysis) -> Segment:
        return Segment(
            self._compiler,
            unit.calls,
            analysis.forms,
            self._constants,
            unit.inputs,
            unit.outputs,
            # of a value of unknown type nothing but the shape is ever read
            [self._dtypes[name] or np.dtype(np.uint8) for name in unit.inputs],
            self._nodes,
        )

    def _plan_ahead(self, segment: Segment) -> None:
        """Make the plan now if the shapes are known, so that no run has to wait."""
        shapes = [self._partition.value(name).shape for name in segment.inputs]
        if all(shape is not None and _is_static(shape) for shape in shapes):
            segment.plan(tuple(shapes))  # type: ignore[arg-type]

    def _refuse(self, refusal: NotCompiled) -> None:
        if refusal.call is None:
            raise refusal
        for node in refusal.call.nodes:
            self._refused[node] = str(refusal)

    def run(
        self,
        inputs: Sequence[Any],
        outputs: Sequence[Any | None],
        context: ep.RunContext | None,
    ) -> Sequence[Any]:
        """Run the units in order."""
        runner = self._runner
        try:
            if isinstance(runner, Segment):
                return runner.run(inputs, outputs, context)
            with on_arrays(self._threads):
                return runner.run(inputs, outputs, context)
        except (NotCompiled, KernelUnavailable, ep.NodeError) as error:
            # a sequence tells what its calls raise as its own
            refusal = error.__cause__ if isinstance(error, ep.NodeError) else error
            if not isinstance(refusal, NotCompiled | KernelUnavailable):
                raise
            with self._lock:
                self._do_without(refusal)
        return self.run(inputs, outputs, context)

    def _do_without(self, refusal: NotCompiled | KernelUnavailable) -> None:
        if isinstance(refusal, NotCompiled):
            self._refuse(refusal)
        else:
            warn_of_arrays(str(refusal))
            self._refused = dict.fromkeys(self._nodes, str(refusal))
        self._build()


def _as_call(
    partition: ep.Partition, node: ep.Node, find_function: FindFunction
) -> Call:
    function = find_function(partition.graph, node)
    if isinstance(function, ep.Reason):
        raise RuntimeError(
            f"{ep.describe(node)} was claimed, and now has no kernel: {function}"
        )
    kernel = find_kernel(node.domain, node.op_type, partition.graph.opset(node.domain))
    return call_of(partition, node, kernel, function)


def _is_static(shape: Sequence[Any]) -> bool:
    return all(type(size) is int for size in shape)


def _sequence(
    partition: ep.Partition,
    of_index: Mapping[int, ep.Node],
    units: Sequence[Unit],
    segments: Sequence[Segment | None],
    reasons: Mapping[int, str],
) -> ep.KernelSequence:
    """The units as calls over slots."""
    functions: dict[int, Callable[..., Any]] = {}
    nodes = []
    for index, (unit, segment) in enumerate(zip(units, segments, strict=True)):
        if segment is None:
            (call,) = unit.calls
            assert call.function is not None
            functions[index] = call.function
            nodes.append(of_index[call.nodes[0]])
            continue
        functions[index] = _SegmentFunction(segment)
        nodes.append(
            SimpleNamespace(
                op_type="Program",
                domain="",
                name="",
                inputs=unit.inputs,
                outputs=unit.outputs,
            )
        )
    order = iter(range(len(nodes)))
    whole = SimpleNamespace(
        graph=partition.graph,
        nodes=nodes,
        inputs=partition.inputs,
        outputs=partition.outputs,
        constant=partition.constant,
    )
    notes = {id(of_index[index]): reason for index, reason in reasons.items()}
    return _Sequence(whole, lambda graph, node: functions[next(order)], notes)


class _Sequence(ep.KernelSequence):
    """Segments, and calls on arrays.

    Args:
        notes: why calls are on arrays, by the identity of the node.
    """

    tier = "array"

    def __init__(
        self, partition: Any, find_kernel: FindFunction, notes: Mapping[int, str]
    ) -> None:
        super().__init__(partition, find_kernel)
        self._notes = notes

    def call(
        self,
        node: ep.Node,
        kernel: Callable[..., Any],
        arguments: Sequence[Any],
        context: ep.RunContext,
    ) -> Any:
        """Call a kernel; a segment tells of its commands itself."""
        if isinstance(kernel, _SegmentFunction):
            return kernel(*arguments, context=context)
        return super().call(node, kernel, arguments, context)

    def details(
        self, node: ep.Node, arguments: Sequence[Any], results: Any
    ) -> dict[str, object]:
        """What a profile has of a call on arrays: why it is not compiled, too."""
        note = self._notes.get(id(node))
        facts = super().details(node, arguments, results)
        return facts if note is None else facts | {"note": note}


class _SegmentFunction:
    """A segment as a function of arrays."""

    def __init__(self, segment: Segment) -> None:
        self._segment = segment
        self._unbound = (None,) * len(segment.outputs)

    def __call__(
        self, *arrays: Any, context: ep.RunContext | None = None
    ) -> tuple[Any, ...]:
        ordered = [np.ascontiguousarray(array) for array in arrays]
        # which gives a scalar one axis
        for index, array in enumerate(arrays):
            if np.ndim(array) == 0:
                ordered[index] = np.asarray(array)
        return tuple(self._segment.run(ordered, self._unbound, context))
