"""The units of a partition, one after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from onnxplug import ep
from onnxplug_compiler.frontend.border import Border
from onnxplug_compiler.frontend.call import Call
from onnxplug_compiler.segmentation import Analysis, Unit
from onnxplug_cpu.compiler.segment import Segment
from onnxplug_cpu.compiler.steps import SegmentFunction, Step, StepSequence, step_of
from onnxplug_cpu.compiler.varying import VaryingSegment, is_simple, varying_values


def sequence(
    partition: ep.Partition,
    of_index: Mapping[int, ep.Node],
    units: Sequence[Unit],
    segments: Sequence[Segment | None],
    analysis: Analysis,
    names: Mapping[str, str],
    threads: int,
) -> StepSequence:
    """The units of a partition as calls over slots.

    Args:
        names: of values that are none of the partition's, and of those that they
            stand for.
        threads: of what runs on arrays; 0 for no limit.
    """
    whole = Unit((), tuple(partition.inputs), tuple(partition.outputs), compiled=False)
    return _sequence(
        partition, of_index, whole, units, segments, analysis, names, threads
    )


def _sequence(
    partition: ep.Partition,
    of_index: Mapping[int, ep.Node],
    whole: Unit,
    units: Sequence[Unit],
    segments: Sequence[Segment | None],
    analysis: Analysis,
    names: Mapping[str, str],
    threads: int,
) -> StepSequence:
    """The same of a part, of which *whole* has the inputs and outputs."""
    steps: list[Step] = []
    notes = {}
    varying = varying_values(units)
    axes = {name: each.axis for unit in units for name, each in unit.counted.items()}
    for unit, segment in zip(units, segments, strict=True):
        if segment is not None:
            function: SegmentFunction | VaryingSegment = SegmentFunction(segment)
            if not varying.isdisjoint(unit.inputs) and is_simple(unit.uncounted):
                calls = [
                    Unit((call,), (), (), compiled=False) for call in unit.uncounted
                ]
                alone = [None] * len(calls)
                on_arrays = _sequence(
                    partition, of_index, unit, calls, alone, analysis, names, threads
                )
                function = VaryingSegment(
                    segment, on_arrays, varying, axes, unit.uncounted
                )
            steps.append(step_of(function, unit.inputs, unit.outputs))
            continue
        (call,) = unit.calls
        assert call.function is not None
        node = of_index[call.nodes[0]]
        # of texts no number is computed
        border = isinstance(call, Border)
        computes = not border and not _takes_texts(partition, call, names)
        step = Step(node, call.function)
        if (call.inputs, call.outputs) != (tuple(node.inputs), tuple(node.outputs)):
            step = step_of(call.function, call.inputs, call.outputs, node)
        step = step._replace(computes=computes)
        steps.append(step)
        if call in analysis.reasons:
            notes[id(step.node)] = analysis.reasons[call]
    return StepSequence(
        partition, whole.inputs, whole.outputs, steps, names, notes, threads
    )


def _takes_texts(partition: ep.Partition, call: Call, names: Mapping[str, str]) -> bool:
    return any(
        partition.value(names.get(name, name)).dtype is ep.DataType.STRING
        for name in call.inputs
        if name is not None
    )
