"""Outputs of nodes that nothing takes: DirectML demands an edge from each.

https://learn.microsoft.com/windows/win32/api/directml/ns-directml-dml_graph_desc
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from onnxplug_directml.abi.operators import FieldKind
from onnxplug_directml.lowering.builder import Builder, Result, Source, Step, Value
from onnxplug_directml.lowering.graph import in_order


def taken(build: Builder, outputs: Mapping[str, Value]) -> dict[str, Value]:
    """*outputs* of a graph, of which one depends on all that nothing else takes.

    It is the smallest, as it is copied with an element of each of those behind it, and
    then without.
    """
    untaken = _untaken(build, outputs.values())
    if not untaken:
        return dict(outputs)
    name = min(outputs, key=lambda each: outputs[each].size)
    output = outputs[name]
    row = build.reshape(output, (1, 1, 1, output.size))
    rows = (build.reshape(each, (1, 1, 1, each.size)) for each in untaken)
    elements = [build.cast(_part(build, each, 1), row.dtype) for each in rows]
    together = build(
        "JOIN", InputTensors=(row, *elements), Axis=3,
        OutputTensor=Result(row.dtype, (1, 1, 1, row.size + len(elements))),
    )  # fmt: skip
    found = build.reshape(_part(build, together, row.size), output.shape)
    return {**outputs, name: found}


def _part(build: Builder, row: Value, count: int) -> Value:
    """The first elements of a row."""
    if row.size == count:
        return row
    part = (1, 1, 1, count)
    return build(
        "SLICE1", InputTensor=row, OutputTensor=Result(row.dtype, part),
        InputWindowOffsets=(0, 0, 0, 0), InputWindowSizes=part,
        InputWindowStrides=(1, 1, 1, 1),
    )  # fmt: skip


def _untaken(build: Builder, outputs: Iterable[Value]) -> list[Value]:
    """What nodes that *outputs* depend on make, and neither they nor nodes take."""
    sources = {value.source for value in outputs}
    found: list[Value] = []
    for position in range(len(build.steps) - 1, -1, -1):
        step = build.steps[position]
        made = _made(step, position)
        if any(value.source in sources for value in made):
            sources |= _read(step)
            found += [value for value in made if value.source not in sources]
    return found


def _made(step: Step, position: int) -> list[Value]:
    return [
        Value(Source(position, index), result.dtype, result.shape)
        for index, result in enumerate(
            in_order(step.type, step.fields, FieldKind.OUTPUT)
        )
        if result is not None
    ]


def _read(step: Step) -> set[Source]:
    values = in_order(step.type, step.fields, FieldKind.INPUT)
    return {value.source for value in values if value is not None}
