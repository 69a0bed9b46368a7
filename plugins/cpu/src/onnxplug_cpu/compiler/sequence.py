"""Segments of machine code and calls on arrays, one after the other."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, TypeAlias

from onnxplug import ep
from onnxplug.authoring.kernels import KernelSequence
from onnxplug_compiler.frontend.border import Border
from onnxplug_compiler.frontend.call import Call
from onnxplug_compiler.segmentation import Analysis, Unit
from onnxplug_cpu.compiler.segment import Segment
from onnxplug_cpu.compiler.varying import VaryingSegment, is_simple, varying_values
from onnxplug_cpu.control_flow import ControlFlow
from onnxplug_cpu.threads import computes, on_arrays, uses_blas

FindFunction: TypeAlias = (
    "Callable[[ep.Graph, ep.Node], Callable[..., Any] | ep.Reason]"
)


def sequence(
    partition: ep.Partition,
    of_index: Mapping[int, ep.Node],
    units: Sequence[Unit],
    segments: Sequence[Segment | None],
    analysis: Analysis,
    threads: int,
) -> KernelSequence:
    """The units of a partition as calls over slots.

    Args:
        threads: of what runs on arrays; 0 for no limit.
    """
    whole = Unit((), tuple(partition.inputs), tuple(partition.outputs), compiled=False)
    return _sequence(partition, of_index, whole, units, segments, analysis, threads)


def _sequence(
    partition: ep.Partition,
    of_index: Mapping[int, ep.Node],
    whole: Unit,
    units: Sequence[Unit],
    segments: Sequence[Segment | None],
    analysis: Analysis,
    threads: int,
) -> KernelSequence:
    """The same of a part, of which *whole* has the inputs and outputs."""
    functions: dict[int, Callable[..., Any]] = {}
    nodes: list[Any] = []
    notes = {}
    limit: int | None = None
    varying = varying_values(units)
    for index, (unit, segment) in enumerate(zip(units, segments, strict=True)):
        if segment is not None:
            functions[index] = _SegmentFunction(segment)
            if not varying.isdisjoint(unit.inputs) and is_simple(unit.calls):
                calls = [Unit((call,), (), (), compiled=False) for call in unit.calls]
                alone = [None] * len(calls)
                on_arrays_ = _sequence(
                    partition, of_index, unit, calls, alone, analysis, threads
                )
                functions[index] = VaryingSegment(segment, on_arrays_, varying)
            nodes.append(_step(unit, op_type="Program", domain="", name="", index=-1))
            continue
        (call,) = unit.calls
        assert call.function is not None
        functions[index] = call.function
        node: Any = of_index[call.nodes[0]]
        if isinstance(call, Border):  # which computes no numbers
            facts = {key: getattr(node, key) for key in ("domain", "name", "index")}
            node = _step(call, op_type=node.op_type, **facts)
        elif uses_blas(node.domain, node.op_type):
            limit = threads
        elif limit is None and computes(node.domain, node.op_type):
            limit = 0
        nodes.append(node)
        if call in analysis.reasons:
            notes[id(node)] = analysis.reasons[call]
    order = iter(range(len(nodes)))

    def constant(name: str) -> Any:
        return None if name in analysis.numbers else partition.constant(name)

    def value(name: str) -> ep.ValueInfo:
        return partition.value(analysis.numbers.get(name, name))

    part = SimpleNamespace(
        graph=partition.graph,
        nodes=nodes,
        inputs=whole.inputs,
        outputs=whole.outputs,
        constant=constant,
        value=value,
        infer=partition.infer,
    )
    return _Sequence(part, lambda graph, node: functions[next(order)], notes, limit)


def _step(part: Unit | Call, **facts: Any) -> SimpleNamespace:
    """What a sequence asks of a node, of what is none."""
    return SimpleNamespace(
        inputs=part.inputs, outputs=part.outputs, captures=(), **facts
    )


class _Sequence(KernelSequence):
    """Segments, and calls on arrays.

    Args:
        notes: why calls are on arrays, by the identity of the node.
        threads: of what runs on arrays; 0 for no limit, ``None`` if nothing computes
            there.
    """

    tier = "array"

    def __init__(
        self,
        partition: Any,
        find_kernel: FindFunction,
        notes: Mapping[int, str],
        threads: int | None,
    ) -> None:
        super().__init__(partition, find_kernel)
        self._notes = notes
        self._threads = threads

    def run(
        self,
        inputs: Sequence[Any],
        outputs: Sequence[Any | None],
        context: ep.RunContext | None,
    ) -> Sequence[Any]:
        """Call segments and functions in order."""
        if self._threads is None:
            return super().run(inputs, outputs, context)
        with on_arrays(self._threads):
            return super().run(inputs, outputs, context)

    def call(
        self,
        node: ep.Node,
        kernel: Callable[..., Any],
        arguments: Sequence[Any],
        context: ep.RunContext,
    ) -> Any:
        """Call a kernel; a segment records its commands itself."""
        if isinstance(kernel, _SegmentFunction | VaryingSegment):
            return kernel(*arguments, context=context)
        if isinstance(kernel, ControlFlow):
            kernel = functools.partial(kernel, context=context)
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
        return tuple(self._segment.run(arrays, self._unbound, context))
