"""A partition as a graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from onnxplug import ep
from onnxplug.authoring.nodes import describe
from onnxplug.authoring.sizes import named, names_in
from onnxplug_directml.lowering import operators  # noqa: F401 - declares the rules
from onnxplug_directml.lowering.assembly import assemble
from onnxplug_directml.lowering.builder import Builder, Refused, Shape, Value
from onnxplug_directml.lowering.call import RULES, Call
from onnxplug_directml.lowering.graph import Graph
from onnxplug_directml.lowering.target import Target
from onnxplug_directml.lowering.untaken import taken

_SAMPLE: Final = 16
"""Sizes that are not known are tried as multiples of this, which halve often."""


def lower(partition: ep.Partition, target: Target) -> Graph:
    """The graph of a partition whose sizes are numbers.

    What follows from sizes is computed here, and is a constant there.  Inputs of the
    partition that no node needs are not among the graph's.

    Raises:
        Declined: DirectML lacks something; it names the nodes.
    """
    return _Lowering(partition, target).graph()


def examine(partition: ep.Partition, target: Target) -> None:
    """See whether a partition whose sizes are not known can be lowered for some.

    Raises:
        Declined: as of :func:`lower`.
    """
    names = sorted(
        {
            name
            for input_name in partition.inputs
            for size in partition.value(input_name).shape or ()
            if isinstance(size, str)
            for name in names_in(ep.Size.parse(size) or named(size))
        }
    )
    sizes = sample_sizes(names)
    shapes = {}
    for name in partition.inputs:
        shape = sampled(partition.value(name).shape, sizes)
        if shape is not None:
            shapes[name] = shape
    try:
        specialised = partition.specialise(shapes)
    except ValueError:
        return  # these sizes do not go together; others may
    try:
        lower(specialised, target)
    except ep.Declined as error:
        if error.nodes is None:
            raise
        named_there = [
            node
            for node, copy in zip(partition.nodes, specialised.nodes, strict=True)
            if copy in error.nodes
        ]
        raise ep.Declined(error.reason, nodes=named_there) from error


def sample_sizes(names: Sequence[str]) -> dict[str, int]:
    """Different numbers for *names* of sizes, to try nodes with."""
    return {name: _SAMPLE * (1 + i) for i, name in enumerate(names)}


def sampled(
    shape: Sequence[ep.Dimension] | None, sizes: Mapping[str, int]
) -> Shape | None:
    """A shape where names stand for *sizes*; ``None`` if they do not tell it."""
    if shape is None:
        return None
    found: list[int] = []
    for size in shape:
        number: int | None
        if isinstance(size, str):
            extent = ep.Size.parse(size) or named(size)
            number = extent if isinstance(extent, int) else extent.evaluate(sizes)
        else:
            number = size
        if number is None:
            return None
        found.append(number)
    return tuple(found)


class _Lowering:
    """Lowers one partition; what is around a node is in the partition."""

    def __init__(self, partition: ep.Partition, target: Target) -> None:
        self._partition = partition
        self._build = Builder(target)
        self._values: dict[str, Value] = {}
        self._constants: dict[str, Value] = {}
        self._contents: dict[str, Any] = {}

    def graph(self) -> Graph:
        node: ep.Node | None = None
        try:
            for node in self._partition.nodes:
                self._build.node = describe(node)
                self._lower(node)
            node = None
            self._build.node = "the border of the partition"
            outputs = {name: self.operand(name) for name in self._partition.outputs}
            outputs = taken(self._build, outputs)
            return assemble(self._build, self._inputs(), outputs)
        except Refused as error:
            nodes = None if node is None else [node]
            raise ep.Declined(error.reason, nodes=nodes) from error
        except MISMATCHES as error:
            nodes = None if node is None else [node]
            raise ep.Declined(mismatched(error), nodes=nodes) from error

    def _inputs(self) -> dict[int, str]:
        """The names of the partition's inputs, by the graph's."""
        return {
            value.source.index: name
            for name, value in self._values.items()
            if name in self._partition.inputs
        }

    def _lower(self, node: ep.Node) -> None:
        self._contents.update(self._known(node))
        if all(name in self._contents for name in node.outputs if name):
            return
        rule = RULES.get((node.domain, node.op_type))
        if rule is None:  # taken because its results follow from sizes
            raise Refused(ep.RefusalCode.OP, "its results are not known beforehand")
        call = Call(node, self._build, self)
        for wanted in filter(None, node.outputs):
            if 0 in self.shape(wanted):
                raise Refused(
                    ep.RefusalCode.RANK,
                    f"{wanted!r} has no elements, which DirectML does not take",
                )
        made = rule(call)
        call.refuse_unread()
        values = [made] if isinstance(made, Value) else made
        for output, value in zip(node.outputs, values, strict=False):
            if output is not None and value is not None:
                check_result(value, self.dtype(output), self.shape(output))
                self._values[output] = self._build.packed(value)

    def _known(self, node: ep.Node) -> Mapping[str, Any]:
        """The outputs of *node* that do not depend on what runs are given.

        Raises:
            Refused: the sizes of an output are others than the model states.
        """
        facts: list[ep.TensorFacts | None] = []
        for given in node.inputs:
            fact = None
            if given is not None:
                value = self._partition.value(given)
                shape = static(value)
                if shape is not None:
                    fact = ep.TensorFacts(value.dtype, shape, self.content(given))
            facts.append(fact)
        known = {}
        found = self._partition.infer(node, facts)
        for name, follows in zip(node.outputs, found, strict=False):
            if name is None or follows is None:
                continue
            stated = static(self._partition.value(name))
            if stated not in (None, follows.shape):
                raise Refused(
                    ep.RefusalCode.OTHER,
                    f"{name!r} is {list(follows.shape)}, where the model states "
                    f"{list(stated)}",
                )
            if follows.content is not None:
                known[name] = follows.content
        return known

    # what rules ask

    def operand(self, name: str) -> Value:
        array = self.content(name)
        if array is not None:
            if name not in self._constants:
                self._constants[name] = self._build.constant(np.asarray(array))
            return self._constants[name]
        if name not in self._values:
            if name not in self._partition.inputs:
                raise Refused(ep.RefusalCode.OTHER, f"{name!r} is no tensor")
            self._values[name] = self._build.input(self.dtype(name), self.shape(name))
        return self._values[name]

    def content(self, name: str) -> Any | None:
        if name in self._contents:
            return self._contents[name]
        return self._partition.constant(name)

    def shape(self, name: str) -> Shape:
        return shape_of(name, self._partition.value(name))

    def dtype(self, name: str) -> ep.DataType:
        return dtype_of(name, self._partition.value(name))


MISMATCHES: Final = (ArithmeticError, LookupError, TypeError, ValueError)
"""What the arithmetic of rules raises where sizes, attributes and constants of a node
do not go together: those of a model that is wrong, or sizes that were only tried."""


def mismatched(error: Exception) -> ep.Reason:
    """The reason of a rule that met one of :data:`MISMATCHES`."""
    return ep.Reason(
        ep.RefusalCode.OTHER,
        "its sizes, attributes and constants do not go together: "
        f"{type(error).__name__}: {error}",
    )


def static(value: ep.ValueInfo) -> Shape | None:
    """The sizes of a value, if all are numbers."""
    if value.shape is None:
        return None
    sizes = tuple(size for size in value.shape if isinstance(size, int))
    return sizes if len(sizes) == len(value.shape) else None


def shape_of(name: str, value: ep.ValueInfo) -> Shape:
    """The sizes of a value, as its type states them.

    Raises:
        Refused: they are not known.
    """
    if value.shape is None:
        raise Refused(ep.RefusalCode.RANK, f"{name!r} is of unknown rank")
    found = static(value)
    if found is None:
        raise Refused(
            ep.RefusalCode.DYNAMIC_SHAPE,
            f"a size of {name!r} is not known before the model runs",
        )
    return found


def dtype_of(name: str, value: ep.ValueInfo) -> ep.DataType:
    """The element type of a value.

    Raises:
        Refused: it is not known.
    """
    if value.dtype is None:
        raise Refused(ep.RefusalCode.DTYPE, f"{name!r} is no tensor of known type")
    return value.dtype


def check_result(value: Value, dtype: ep.DataType, shape: Shape) -> None:
    """Hold what a rule made against what the model's types state.

    Raises:
        Refused: it is of another type or shape.
    """
    if value.dtype is not dtype:
        raise Refused(ep.RefusalCode.DTYPE, f"gives {value.dtype}, not {dtype}")
    if value.shape != shape:
        raise Refused(
            ep.RefusalCode.OTHER, f"gives {list(value.shape)}, not {list(shape)}"
        )
