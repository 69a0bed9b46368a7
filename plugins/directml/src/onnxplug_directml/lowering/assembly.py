"""What a builder wrote as a graph: nodes that count, and the edges between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from onnxplug_directml.abi.operators import FieldKind
from onnxplug_directml.lowering.builder import (
    Builder,
    Field,
    Result,
    Source,
    Step,
    Value,
)
from onnxplug_directml.lowering.fusion import fuse
from onnxplug_directml.lowering.graph import (
    FieldValue,
    Graph,
    GraphInput,
    GraphOutput,
    InputEdge,
    IntermediateEdge,
    Node,
    Operator,
    OutputEdge,
    in_order,
)


def assemble(
    build: Builder, names: Mapping[int, str], outputs: Mapping[str, Value]
) -> Graph:
    """The graph that gives *outputs*.

    Args:
        names: of the partition's inputs, by those of the builder; others are constants.
        outputs: by name, in order; they are packed.
    """
    names_of = list(outputs)
    wanted = list(outputs.values())
    if build.checks:
        names_of.append("checks")
        wanted.append(_joined(build))
    results = _made_by_nodes(build, wanted)
    steps = fuse(build, results)
    used = _used(steps, results)
    positions = {step: position for position, step in enumerate(used)}
    into: list[InputEdge] = []
    between: list[IntermediateEdge] = []
    taken: dict[int, int] = {}
    for step in used:
        for index, value in enumerate(_inputs(steps[step])):
            if value is None:
                continue
            source = value.source
            if source.node is None:
                place = taken.setdefault(source.index, len(taken))
                into.append(InputEdge(place, positions[step], index))
            else:
                between.append(
                    IntermediateEdge(
                        positions[source.node], source.index, positions[step], index
                    )
                )
    return Graph(
        nodes=[_node(build, steps[step]) for step in used],
        inputs=[
            GraphInput(
                names.get(index, f"constant {index}"),
                build.desc(build.inputs[index]),
                build.constants[index],
            )
            for index in taken
        ],
        outputs=[
            GraphOutput(name, build.desc(value))
            for name, value in zip(names_of, results, strict=True)
        ],
        input_edges=into,
        intermediate_edges=between,
        output_edges=[
            OutputEdge(positions[_maker(value)], value.source.index, place)
            for place, value in enumerate(results)
        ],
        checks=[message for _, message in build.checks],
    )


def _joined(build: Builder) -> Value:
    """What is checked, one after another."""
    values = tuple(value for value, _ in build.checks)
    if len(values) == 1:
        return values[0]
    result = Result(values[0].dtype, (len(values),))
    return build("JOIN", InputTensors=values, OutputTensor=result, Axis=0)


def _made_by_nodes(build: Builder, outputs: Sequence[Value]) -> list[Value]:
    """Outputs that each have a node of their own: inputs, constants and what is an
    output already are copied."""
    made: list[Value] = []
    taken: set[Source] = set()
    for value in outputs:
        if value.source.node is None or value.source in taken:
            value = build.copied(value)
        taken.add(value.source)
        made.append(value)
    return made


def _used(steps: Sequence[Step], results: Sequence[Value]) -> list[int]:
    """The steps that results depend on, in the order in which they were written."""
    wanted = {_maker(value) for value in results}
    for position in range(len(steps) - 1, -1, -1):
        if position in wanted:
            wanted.update(
                value.source.node
                for value in _inputs(steps[position])
                if value is not None and value.source.node is not None
            )
    return sorted(wanted)


def _maker(value: Value) -> int:
    assert value.source.node is not None
    return value.source.node


def _inputs(step: Step) -> list[Value | None]:
    return in_order(step.type, step.fields, FieldKind.INPUT)


def _node(build: Builder, step: Step) -> Node:
    fields = {name: _described(build, field) for name, field in step.fields.items()}
    return Node(step.name, Operator(step.type, fields))


def _described(build: Builder, field: Field) -> FieldValue:
    if isinstance(field, tuple):
        return tuple(_described(build, each) for each in field)  # type: ignore[return-value]
    return build.desc(field) if isinstance(field, Value | Result) else field
