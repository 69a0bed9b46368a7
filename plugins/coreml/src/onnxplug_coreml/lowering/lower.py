"""A partition as a program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from onnxplug import ep
from onnxplug.authoring.sizes import named, names_in
from onnxplug_coreml.lowering import operators  # noqa: F401 - declares the rules
from onnxplug_coreml.lowering.builder import Builder, Refused
from onnxplug_coreml.lowering.call import RULES, Call
from onnxplug_coreml.lowering.folding import FOLDED, SIZES, fold
from onnxplug_coreml.lowering.program import Port, Program, Range, Shape, Value
from onnxplug_coreml.lowering.target import Target

_SAMPLE: Final = 64
"""Sizes that are not known are tried as multiples of this, which halve often."""


def lower(partition: ep.Partition, target: Target) -> Program:
    """The program of a partition.

    Sizes that are known in runs only stay names where the operators leave them alone.
    What follows from sizes that are numbers is computed here.

    Raises:
        Declined: the engine lacks something; it names the nodes.
    """
    return _Lowering(partition, target).program()


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
) -> tuple[int, ...] | None:
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
        self._version = partition.graph.opset()

    def program(self) -> Program:
        inputs = []
        node: ep.Node | None = None
        try:
            for name in self._partition.inputs:
                inputs.append(self._input(name))
            for position, node in enumerate(self._partition.nodes):
                self._build.node = position
                self._lower(node)
            node = None
            outputs = self._outputs()
        except Refused as error:
            nodes = None if node is None else [node]
            raise ep.Declined(error.reason, nodes=nodes) from error
        program = Program(
            inputs=inputs,
            constants=self._used(outputs),
            operations=self._build.operations,
            outputs=outputs,
            checks=self._build.checks,
        )
        ranges = {name: Range() for name in sorted(program.size_names)}
        return Program(
            program.inputs, program.constants, program.operations, program.outputs,
            program.checks, ranges,
        )  # fmt: skip

    def _input(self, name: str) -> Port:
        dtype = self.dtype(name)
        value = self._build.value(self._build.type_of(dtype), self.shape(name))
        self._values[name] = value
        if 0 in value.shape:
            self._contents[name] = np.empty(value.numbers, dtype.numpy)
        return Port(name, dtype, value)

    def _lower(self, node: ep.Node) -> None:
        for name, content in self._known(node).items():
            self._contents[name] = content
        if all(name in self._contents for name in node.outputs if name):
            return
        rule = RULES.get(node.op_type)
        if rule is None:  # taken because its results follow from sizes
            raise Refused(ep.RefusalCode.OP, "its results are not known beforehand")
        call = Call(node, self._build, self)
        made = rule(call)
        call.refuse_unread()
        values = [made] if isinstance(made, Value) else made
        for output, value in zip(node.outputs, values, strict=False):
            if output is not None and value is not None:
                stated = self._partition.value(output).shape
                check_result(value, self._build, self.dtype(output), stated)
                self._values[output] = value

    def _known(self, node: ep.Node) -> Mapping[str, Any]:
        """The outputs of *node* that do not depend on what runs are given."""
        empty = {}
        for name in filter(None, node.outputs):
            shape = self._partition.value(name).shape
            if shape is not None and 0 in shape and None not in shape:
                sizes = tuple(size for size in shape if isinstance(size, int))
                empty[name] = np.empty(sizes, self.dtype(name).numpy)
        if node.domain or node.op_type not in FOLDED:
            # a reduction of nothing is something
            if all(name in empty for name in node.outputs if name):
                return empty
            return self._of_empty(node)
        if node.op_type in SIZES:
            return self._inferred(node)
        if any(name and self.content(name) is None for name in node.inputs):
            return empty
        return self._folded(node)

    def _of_empty(self, node: ep.Node) -> Mapping[str, Any]:
        known = [self.content(name) for name in node.inputs if name]
        if all(each is not None for each in known) and any(
            each is not None and each.size == 0 for each in known
        ):
            return self._folded(node)
        return {}

    def _folded(self, node: ep.Node) -> Mapping[str, Any]:
        arrays = [None if name is None else self.content(name) for name in node.inputs]
        results = fold(node, self._version, arrays)
        if results is None:
            return {}
        pairs = list(zip(node.outputs, results, strict=False))
        return {
            name: result.astype(self.dtype(name).numpy, copy=False)
            for name, result in pairs
            if name is not None
        }

    def _inferred(self, node: ep.Node) -> Mapping[str, Any]:
        facts: list[ep.TensorFacts | None] = []
        for name in node.inputs:
            shape = self.shape(name) if name is not None else ()
            sizes = tuple(size for size in shape if isinstance(size, int))
            static = name is not None and len(sizes) == len(shape)
            facts.append(
                ep.TensorFacts(self._partition.value(name).dtype, sizes)
                if static and name is not None
                else None
            )
        found = self._partition.infer(node, facts)
        return {
            name: fact.content
            for name, fact in zip(node.outputs, found, strict=False)
            if name is not None and fact is not None and fact.content is not None
        }

    def _outputs(self) -> list[Port]:
        ports = []
        taken = {value.name for value in self._values.values()} - {
            value.name for made in self._build.operations for value in made.outputs
        }
        for name in self._partition.outputs:
            value = self.operand(name)
            if value.name in taken or value.name in self._build.constants:
                value = self._build("identity", value)
            taken.add(value.name)
            ports.append(Port(name, self.dtype(name), value))
        return ports

    def _used(self, outputs: Sequence[Port]) -> dict[str, Any]:
        used = {
            name
            for operation in self._build.operations
            for name in operation.inputs
            if name is not None
        } | {port.value.name for port in outputs}
        constants = self._build.constants
        return {name: constants[name] for name in constants if name in used}

    # what rules ask

    def operand(self, name: str) -> Value:
        array = self.content(name)
        if array is None:
            if name not in self._values:
                raise Refused(ep.RefusalCode.OTHER, f"{name!r} is no tensor")
            return self._values[name]
        if name not in self._constants:
            weight = None if name in self._contents else name
            self._constants[name] = self._build.constant(array, weight)
        return self._constants[name]

    def content(self, name: str) -> Any | None:
        if name in self._contents:
            return self._contents[name]
        return self._partition.constant(name)

    def shape(self, name: str) -> Shape:
        if name in self._values:
            return self._values[name].shape
        return shape_of(name, self._partition.value(name))

    def dtype(self, name: str) -> ep.DataType:
        return dtype_of(name, self._partition.value(name))


def shape_of(name: str, value: ep.ValueInfo) -> Shape:
    """The sizes of a value, as its type states them.

    Raises:
        Refused: they are not known.
    """
    if value.shape is None:
        raise Refused(ep.RefusalCode.RANK, f"{name!r} is of unknown rank")
    found: list[Any] = []
    for size in value.shape:
        if size is None:
            raise Refused(
                ep.RefusalCode.DYNAMIC_SHAPE,
                f"a size of {name!r} is not known before the model runs",
            )
        found.append(
            (ep.Size.parse(size) or named(size)) if isinstance(size, str) else size
        )
    return tuple(found)


def dtype_of(name: str, value: ep.ValueInfo) -> ep.DataType:
    """The element type of a value.

    Raises:
        Refused: it is not known.
    """
    if value.dtype is None:
        raise Refused(ep.RefusalCode.DTYPE, f"{name!r} is no tensor of known type")
    return value.dtype


def check_result(
    value: Value,
    build: Builder,
    dtype: ep.DataType,
    shape: Sequence[Any] | None,
) -> None:
    """Hold what a rule made against what the model's types state.

    Raises:
        Refused: it is of another type or shape.
    """
    wanted = build.type_of(dtype)
    if value.dtype is not wanted:
        raise Refused(ep.RefusalCode.DTYPE, f"gives {value.dtype}, not {wanted}")
    if shape is None:
        return
    same = len(shape) == value.rank and all(
        not (isinstance(size, int) and isinstance(found, int)) or size == found
        for size, found in zip(shape, value.shape, strict=True)
    )
    if not same:
        raise Refused(
            ep.RefusalCode.OTHER,
            f"gives [{', '.join(map(str, value.shape))}], not "
            f"[{', '.join(map(str, shape))}]",
        )
