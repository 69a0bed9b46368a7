"""Makes ready, before a run, what EPs make by input shapes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from onnxplug.authoring.nodes import describe
from onnxplug.authoring.record import Record
from onnxplug.ep import CompiledPartition, TensorType
from onnxplug.errors import InputError, ModelError
from onnxplug.guard import blaming
from onnxplug.shapes.specialise import check_shapes, specialised
from onnxplug.shapes.symbols import SharedSymbols

if TYPE_CHECKING:
    from onnxplug.graph import Graph
    from onnxplug.run.compiled import CompiledGraph, CompiledUnit

Shapes = Mapping[str, tuple[int, ...]]


class Prepared(Record):
    """What became of one partition.

    Attributes:
        partition: its number in the session's report.
        ep: who runs it.
        shapes: those of its inputs, as far as they follow from the model's.
        ready: runs of these shapes find ready what the EP makes by shapes.
        reason: why not; empty if it is.
    """

    partition: int
    ep: str
    shapes: dict[str, tuple[int, ...]]
    ready: bool
    reason: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data, ready for JSON."""
        return self._asdict()


def prepare_for(compiled: CompiledGraph, shapes: Shapes) -> list[Prepared]:
    """Let each EP prepare its partitions for model inputs of these *shapes*.

    Raises:
        InputError: an input cannot have such a shape.
        BeliedSymbols: what the types of inputs state alike would have several sizes.
        InvalidModel: a node cannot run with these shapes; the error names it.
        EpError, OutOfMemory: an EP failed.
    """
    graph = compiled.graph
    types = graph.input_types()
    given = {name: weight.shape for name, weight in graph.defaults.items()}
    try:
        check_shapes(types, shapes)
    except ValueError as error:
        raise InputError(str(error)) from error
    SharedSymbols.of(graph).check(shapes)
    static = specialised(
        graph,
        graph.nodes,
        inputs=list(types),
        outputs=graph.outputs,
        shapes={**given, **shapes},
    )
    return list(_prepare(compiled, static))


def _prepare(compiled: CompiledGraph, static: Graph) -> Iterator[Prepared]:
    """Prepare the units of a graph, whose copy with static types is *static*."""
    for unit in compiled.units:
        if unit.candidate is None:
            node = static.nodes[unit.partition.nodes[0].index]
            bodies = node.subgraphs
            for attribute, body in unit.bodies.items():
                yield from _prepare(body, bodies[attribute])
        elif unit.compiled is not None:
            yield _prepare_unit(unit, unit.compiled, unit.candidate.name, static)


def _prepare_unit(
    unit: CompiledUnit, compiled: CompiledPartition, ep: str, static: Graph
) -> Prepared:
    shapes: dict[str, tuple[int, ...]] = {}
    unknown = []
    for name in unit.partition.inputs:
        found = static.value(name).type
        if not isinstance(found, TensorType):
            continue
        shape = found.shape
        if shape is None or not all(isinstance(size, int) for size in shape):
            unknown.append(f"{name} is {found if shape is None else list(shape)}")
        else:
            shapes[name] = shape  # type: ignore[assignment]

    def outcome(reason: str = "") -> Prepared:
        return Prepared(unit.number, ep, shapes, not reason, reason)

    if unknown:
        return outcome(
            "the shapes of its inputs do not follow from those given: "
            + ", ".join(unknown[:3])
            + (", …" if len(unknown) > 3 else "")
        )
    prewarmer = compiled.prewarmer
    if prewarmer is None:
        return outcome(f"{ep} makes nothing of it by shapes")
    try:
        partition = unit.partition.for_shapes(shapes)
    except ModelError as error:  # of a body, which need not run
        return outcome(str(error))
    with blaming(ep, "prewarm"):
        ready = prewarmer.prewarm(partition)
    first = describe(unit.partition.nodes[0])
    return outcome(
        "" if ready else f"{ep} made nothing ready of its nodes from {first} on"
    )
