"""The neutral program: what a partition computes, in primitives that engines have.

Lowering makes one of a partition, and an engine's emitter prints it.  What ONNX is
(versions of operators, defaults, inputs left out) is gone from it; what an engine is
has not come in yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from onnxplug import ep
from onnxplug.authoring.sizes import Extent, names_in

Shape: TypeAlias = tuple[Extent, ...]
"""Sizes: numbers, or :class:`onnxplug.ep.Size` where they are known in runs only."""


@dataclass(frozen=True, slots=True)
class Range:
    """The sizes that a name stands for: from *lower* to *upper*, both included.

    *upper* is ``None`` where nothing bounds it.
    """

    lower: int = 1
    upper: int | None = None


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor that the program works on; there is one for each name."""

    name: str
    dtype: ep.DataType
    shape: Shape

    @property
    def rank(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def is_static(self) -> bool:
        """All sizes are numbers."""
        return all(isinstance(size, int) for size in self.shape)

    @property
    def numbers(self) -> tuple[int, ...]:
        """The shape of a static value.

        Raises:
            ValueError: a size is known in runs only.
        """
        sizes = tuple(size for size in self.shape if isinstance(size, int))
        if len(sizes) != len(self.shape):
            raise ValueError(f"{self.name!r} has sizes that are not numbers")
        return sizes


@dataclass(frozen=True, slots=True)
class Port:
    """An input or output of the partition, and the program's value behind it.

    The element types differ where the engine lacks ONNX's (int64 is int32 there):
    who calls the engine converts, and checks that what comes in fits.

    Attributes:
        name: ONNX's.
        dtype: ONNX's.
        value: of the program.
    """

    name: str
    dtype: ep.DataType
    value: Value


@dataclass(frozen=True, slots=True)
class Constant:
    """A value that never changes.

    Attributes:
        array: the content, read-only; a weight of the model is the host's own array,
            not a copy.
        weight: the name in the partition of the weight that *array* is, if it is one.
    """

    value: Value
    array: Any
    weight: str | None = None


@dataclass(frozen=True, slots=True)
class Operation:
    """A primitive at work.

    Attributes:
        primitive: its name in :data:`.primitives.PRIMITIVES`.
        inputs: names of values, in the order of the primitive's operands; ``None``
            for one that is left out.
        attributes: all of the primitive's, by name.
        outputs: the values that it makes.
        node: the index, in the partition's nodes, of the ONNX node that it is for.
    """

    primitive: str
    inputs: tuple[str | None, ...]
    attributes: Mapping[str, Any]
    outputs: tuple[Value, ...]
    node: int


@dataclass(frozen=True, slots=True)
class Check:
    """What has to hold in each run, or else its results are not ONNX's.

    Attributes:
        value: int32 of rank 0: how many elements violate it; the run fails if any do.
        message: what is wrong then, naming the node.
    """

    value: Value
    message: str


@dataclass(frozen=True, slots=True)
class Program:
    """Operations in topological order.

    Names of values are Python identifiers, and an engine's inputs and outputs are
    called by them.

    Attributes:
        inputs: in the order of the partition's inputs.  What the partition is given
            but no operation needs is among them too.
        constants: by the name of their values.
        outputs: in the order of the partition's outputs.  Each is made by an operation,
            and no two have the same value.
        checks: what the engine gives beside the outputs.
        ranges: by name of a size.
    """

    inputs: Sequence[Port]
    constants: Mapping[str, Constant]
    operations: Sequence[Operation]
    outputs: Sequence[Port]
    checks: Sequence[Check] = ()
    ranges: Mapping[str, Range] = field(default_factory=dict)

    @property
    def results(self) -> Sequence[Value]:
        """What the engine gives: the values of outputs, then those of checks."""
        ports = [port.value for port in self.outputs]
        return [*ports, *(check.value for check in self.checks)]

    @property
    def is_static(self) -> bool:
        """No size is known in runs only."""
        return not self.size_names

    @property
    def size_names(self) -> frozenset[str]:
        """The names of sizes that are known in runs only."""
        found: set[str] = set()
        for value in self.values():
            for size in value.shape:
                found |= names_in(size)
        return frozenset(found)

    def values(self) -> Iterator[Value]:
        """All values: inputs, constants, then what operations make."""
        for port in self.inputs:
            yield port.value
        for constant in self.constants.values():
            yield constant.value
        for operation in self.operations:
            yield from operation.outputs

    def __str__(self) -> str:
        """As text, for people and logs."""
        lines = [f"inputs {', '.join(map(_shown, (p.value for p in self.inputs)))}"]
        for operation in self.operations:
            made = ", ".join(map(_shown, operation.outputs))
            given = [name or "none" for name in operation.inputs]
            given += [f"{key}={value}" for key, value in operation.attributes.items()]
            lines.append(f"{made} = {operation.primitive}({', '.join(given)})")
        lines.append(f"outputs {', '.join(value.name for value in self.results)}")
        return "\n".join(lines)


def _shown(value: Value) -> str:
    return f"{value.name}: {value.dtype}[{', '.join(map(str, value.shape))}]"
