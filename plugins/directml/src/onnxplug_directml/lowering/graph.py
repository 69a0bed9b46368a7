"""The neutral graph: what DirectML is to compile, as plain Python values.

Lowering makes one of a partition, and :mod:`.marshal` makes ``DML_GRAPH_DESC`` of it.
What ONNX is (versions of operators, defaults, inputs left out) is gone from it; memory,
pointers and COM have not come in yet.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from onnxplug_directml.abi.directml import (
    DML_OPERATOR_TYPE,
    DML_TENSOR_DATA_TYPE,
    OPERATOR_FIELDS,
)
from onnxplug_directml.abi.operators import Field, FieldKind

MOST_AXES: Final = 8
"""``DML_TENSOR_DIMENSION_COUNT_MAX1``, of feature level 3.0 and later."""

_LARGEST: Final = 2**32 - 1
"""Sizes and strides are ``UINT``s."""

ELEMENT_BYTES: Final[Mapping[DML_TENSOR_DATA_TYPE, int]] = {
    DML_TENSOR_DATA_TYPE.FLOAT64: 8,
    DML_TENSOR_DATA_TYPE.FLOAT32: 4,
    DML_TENSOR_DATA_TYPE.FLOAT16: 2,
    DML_TENSOR_DATA_TYPE.UINT64: 8,
    DML_TENSOR_DATA_TYPE.UINT32: 4,
    DML_TENSOR_DATA_TYPE.UINT16: 2,
    DML_TENSOR_DATA_TYPE.UINT8: 1,
    DML_TENSOR_DATA_TYPE.INT64: 8,
    DML_TENSOR_DATA_TYPE.INT32: 4,
    DML_TENSOR_DATA_TYPE.INT16: 2,
    DML_TENSOR_DATA_TYPE.INT8: 1,
}
"""The bytes of an element."""


@dataclass(frozen=True, slots=True)
class TensorDesc:
    """A ``DML_BUFFER_TENSOR_DESC``, less its flags, which follow from its use.

    Attributes:
        sizes: of 1 to 8 axes, each at least 1.
        strides: in elements; ``None`` where the elements are packed.  One of 0 repeats.

    Raises:
        ValueError: there are too few or too many axes, a size is out of range, or
            there are too many elements.
    """

    data_type: DML_TENSOR_DATA_TYPE
    sizes: tuple[int, ...]
    strides: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if not 1 <= len(self.sizes) <= MOST_AXES:
            raise ValueError(
                f"{len(self.sizes)} axes; DirectML takes 1 to {MOST_AXES} of them"
            )
        if not all(1 <= size <= _LARGEST for size in self.sizes):
            raise ValueError(f"sizes {list(self.sizes)}; each is 1 to {_LARGEST}")
        if self.element_count > _LARGEST:
            raise ValueError(
                f"{self.element_count} elements; DirectML takes up to {_LARGEST}"
            )
        if self.strides is None:
            return
        if len(self.strides) != len(self.sizes):
            raise ValueError(f"{len(self.strides)} strides of {len(self.sizes)} axes")
        if not all(0 <= stride <= _LARGEST for stride in self.strides):
            raise ValueError(f"strides {list(self.strides)}; each is 0 to {_LARGEST}")

    @property
    def element_count(self) -> int:
        """The elements that the sizes tell, whatever their strides."""
        return math.prod(self.sizes)

    @property
    def size_in_bytes(self) -> int:
        """The least size of a buffer, by the rule of ``DMLCalcBufferTensorSize``.

        The bytes up to the last element that sizes and strides reach, rounded up to a
        multiple of 4.
        """
        if self.strides is None:
            elements = self.element_count
        else:
            pairs = zip(self.sizes, self.strides, strict=True)
            elements = 1 + sum((size - 1) * stride for size, stride in pairs)
        return -(-elements * ELEMENT_BYTES[self.data_type] // 4) * 4


FieldValue: TypeAlias = (
    "TensorDesc | Operator | int | float"
    " | tuple[TensorDesc, ...] | tuple[Operator | None, ...]"
    " | tuple[int, ...] | tuple[float, ...] | None"
)
"""What a field of an operator's description holds.

Tensors and arrays are values where DirectML has pointers, scale and bias is the tuple
``(scale, bias)``, a ``DML_SCALAR_UNION`` a number, and a ``DML_SIZE_2D`` the tuple
``(width, height)``.
"""


@dataclass(frozen=True, slots=True)
class Operator:
    """A ``DML_OPERATOR_DESC``.

    Attributes:
        fields: by Microsoft's names, all of those of the operator's description but
            the counts of arrays, which follow from the arrays; a field that is left out
            is 0 or a null pointer.
    """

    type: DML_OPERATOR_TYPE
    fields: Mapping[str, FieldValue]

    def tensors(self, direction: FieldKind) -> list[TensorDesc | None]:
        """Those that go in or come out, in the order of bindings and of edges."""
        return in_order(self.type, self.fields, direction)


def check_number(field: Field, number: float) -> None:
    """See that a field can have a number, as ctypes would wrap integers silently.

    Raises:
        ValueError: it cannot.
    """
    least = {"UINT": 0, "INT": -(2**31)}.get(field.type)
    if least is not None and not least <= number < least + 2**32:
        raise ValueError(f"{field.name} is {number}, which is no {field.type}")


def check_scalar(number: float, data_type: DML_TENSOR_DATA_TYPE) -> None:
    """See that a data type has a number.

    Raises:
        ValueError: it is one of integers that do not.
    """
    if data_type.name.startswith("FLOAT"):
        return
    bits = 8 * ELEMENT_BYTES[data_type]
    least = 0 if data_type.name.startswith("U") else -(2 ** (bits - 1))
    if not least <= number < least + 2**bits or number != int(number):
        raise ValueError(f"{number} is no {data_type.name}")


def in_order(
    kind: DML_OPERATOR_TYPE, fields: Mapping[str, Any], direction: FieldKind
) -> list[Any]:
    """What fields hold for the tensors that go in or come out, one after another.

    Arrays are laid out, and what is left out is ``None``: the order of bindings, and
    that in which edges of graphs count.
    """
    found: list[Any] = []
    for field in OPERATOR_FIELDS[kind]:
        if field.kind is direction:
            value = fields.get(field.name)
            found.extend((value or ()) if field.count else [value])
    return found


@dataclass(frozen=True, slots=True)
class Node:
    """An operator at work.

    Its inputs and outputs are counted as of :func:`in_order`.

    Attributes:
        name: tells people which ONNX node it is for.
    """

    name: str
    operator: Operator


@dataclass(frozen=True, slots=True)
class InputEdge:
    """An input of the graph goes into a node."""

    graph_input: int
    node: int
    node_input: int


@dataclass(frozen=True, slots=True)
class IntermediateEdge:
    """An output of a node goes into another node."""

    from_node: int
    from_output: int
    to_node: int
    to_input: int


@dataclass(frozen=True, slots=True)
class OutputEdge:
    """An output of a node is an output of the graph."""

    node: int
    node_output: int
    graph_output: int


@dataclass(frozen=True, slots=True)
class GraphInput:
    """What runs bind, or a constant, which initialisation binds.

    Attributes:
        name: ONNX's, if it is an input of the partition.
        tensor: packed; the buffer that is bound holds it.
        constant: the content, C-contiguous, of the tensor's elements; DirectML owns a
            copy of it (``DML_TENSOR_FLAG_OWNED_BY_DML``), and runs bind nothing there.
    """

    name: str
    tensor: TensorDesc
    constant: Any | None = None


@dataclass(frozen=True, slots=True)
class GraphOutput:
    """What runs bind for results.

    Attributes:
        name: ONNX's.
        tensor: packed.
    """

    name: str
    tensor: TensorDesc


@dataclass(frozen=True, slots=True)
class Graph:
    """What a ``DML_GRAPH_DESC`` says, and what the constants are.

    Nodes are in topological order.  No input goes to an output without a node between,
    no node is without effect, and each output is made by a node.

    Attributes:
        checks: what is wrong where an element of the last output is not 0, by its
            position there: the output has a ``UINT32`` for each, and is none of the
            partition's.  Empty: there is no such output.
    """

    nodes: Sequence[Node]
    inputs: Sequence[GraphInput]
    outputs: Sequence[GraphOutput]
    input_edges: Sequence[InputEdge]
    intermediate_edges: Sequence[IntermediateEdge]
    output_edges: Sequence[OutputEdge]
    checks: Sequence[str] = ()
