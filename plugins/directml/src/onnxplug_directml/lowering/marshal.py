"""Graphs as the structures that DirectML reads.

DirectML makes an ``IDMLOperator`` of each description first, and takes these in place
of nodes.  So the structures come in two steps: :attr:`Marshalled.operators`, and with
what was made of them :meth:`Marshalled.graph`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any, Final

from onnxplug_directml.abi.directml import (
    DML_BUFFER_TENSOR_DESC,
    DML_GRAPH_DESC,
    DML_GRAPH_EDGE_DESC,
    DML_GRAPH_EDGE_TYPE,
    DML_GRAPH_NODE_DESC,
    DML_GRAPH_NODE_TYPE,
    DML_INPUT_GRAPH_EDGE_DESC,
    DML_INTERMEDIATE_GRAPH_EDGE_DESC,
    DML_OPERATOR_DESC,
    DML_OPERATOR_GRAPH_NODE_DESC,
    DML_OUTPUT_GRAPH_EDGE_DESC,
    DML_SCALAR_UNION,
    DML_SCALE_BIAS,
    DML_SIZE_2D,
    DML_TENSOR_DATA_TYPE,
    DML_TENSOR_DESC,
    DML_TENSOR_FLAGS,
    DML_TENSOR_TYPE,
    OPERATOR_DESCS,
    OPERATOR_FIELDS,
)
from onnxplug_directml.abi.operators import Field, FieldKind
from onnxplug_directml.abi.types import UINT
from onnxplug_directml.lowering.graph import (
    Graph,
    Operator,
    TensorDesc,
    check_number,
    check_scalar,
)

_MEMBERS: Final = {
    DML_TENSOR_DATA_TYPE.FLOAT64: "Float64",
    DML_TENSOR_DATA_TYPE.FLOAT32: "Float32",
    DML_TENSOR_DATA_TYPE.UINT64: "UInt64",
    DML_TENSOR_DATA_TYPE.UINT32: "UInt32",
    DML_TENSOR_DATA_TYPE.UINT16: "UInt16",
    DML_TENSOR_DATA_TYPE.UINT8: "UInt8",
    DML_TENSOR_DATA_TYPE.INT64: "Int64",
    DML_TENSOR_DATA_TYPE.INT32: "Int32",
    DML_TENSOR_DATA_TYPE.INT16: "Int16",
    DML_TENSOR_DATA_TYPE.INT8: "Int8",
}
"""The members of ``DML_SCALAR_UNION``; that for float16 has no name."""


class Marshalled:
    """A graph in the form of DirectML's structures.

    All memory that they point to lives as long as this object.

    Attributes:
        operators: one description for each node.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._kept: list[Any] = []
        self._sources = _sources(graph)
        self.operators: Final = [
            self._operator(node.operator, position)
            for position, node in enumerate(graph.nodes)
        ]

    def graph(self, operators: Sequence[int]) -> DML_GRAPH_DESC:
        """The graph of operators that DirectML has made.

        Args:
            operators: the addresses of ``IDMLOperator`` objects, one for each node; who
                calls keeps them until DirectML has compiled the graph.
        """
        graph = self._graph
        nodes = [
            self._typed(
                DML_GRAPH_NODE_DESC,
                DML_GRAPH_NODE_TYPE.OPERATOR,
                DML_OPERATOR_GRAPH_NODE_DESC(operator, node.name.encode()),
            )
            for node, operator in zip(graph.nodes, operators, strict=True)
        ]
        into = [
            self._edge(
                DML_GRAPH_EDGE_TYPE.INPUT,
                DML_INPUT_GRAPH_EDGE_DESC(
                    edge.graph_input, edge.node, edge.node_input, None
                ),
            )
            for edge in graph.input_edges
        ]
        between = [
            self._edge(
                DML_GRAPH_EDGE_TYPE.INTERMEDIATE,
                DML_INTERMEDIATE_GRAPH_EDGE_DESC(
                    edge.from_node, edge.from_output, edge.to_node, edge.to_input, None
                ),
            )
            for edge in graph.intermediate_edges
        ]
        out = [
            self._edge(
                DML_GRAPH_EDGE_TYPE.OUTPUT,
                DML_OUTPUT_GRAPH_EDGE_DESC(
                    edge.node, edge.node_output, edge.graph_output, None
                ),
            )
            for edge in graph.output_edges
        ]
        return DML_GRAPH_DESC(
            len(graph.inputs), len(graph.outputs),
            len(nodes), self._array(DML_GRAPH_NODE_DESC, nodes),
            len(into), self._array(DML_GRAPH_EDGE_DESC, into),
            len(out), self._array(DML_GRAPH_EDGE_DESC, out),
            len(between), self._array(DML_GRAPH_EDGE_DESC, between),
        )  # fmt: skip

    # operators

    def _operator(self, operator: Operator, node: int | None) -> DML_OPERATOR_DESC:
        fields = OPERATOR_FIELDS[operator.type]
        desc = OPERATOR_DESCS[operator.type]()
        lengths: dict[str, int] = {}
        counted = {FieldKind.INPUT: 0, FieldKind.OUTPUT: 0}
        for field in fields:
            if field.kind is FieldKind.COUNT:
                continue
            value = operator.fields.get(field.name)
            if field.count:
                length = len(value) if isinstance(value, tuple) else 0
                if lengths.setdefault(field.count, length) != length:
                    raise ValueError(f"{operator.type.name}.{field.name} has {length}")
            if field.kind in counted:
                first = counted[field.kind]
                filled = self._tensors(field, value, node, first)
                counted[field.kind] += len(value or ()) if field.count else 1  # type: ignore[arg-type]
            else:
                filled = self._value(field, value, operator.fields)
            if filled is not None:
                setattr(desc, field.name, filled)
        for name, length in lengths.items():
            setattr(desc, name, length)
        made: DML_OPERATOR_DESC = self._typed(DML_OPERATOR_DESC, operator.type, desc)
        return made

    def _tensors(self, field: Field, value: Any, node: int | None, first: int) -> Any:
        if value is None:
            return None
        descs = [
            self._tensor(each, node, field.kind, first + i)
            for i, each in enumerate(value if field.count else (value,))
        ]
        return self._array(DML_TENSOR_DESC, descs)

    def _tensor(
        self, tensor: TensorDesc, node: int | None, direction: FieldKind, index: int
    ) -> DML_TENSOR_DESC:
        total, flags = tensor.size_in_bytes, DML_TENSOR_FLAGS.NONE
        if direction is FieldKind.INPUT and node is not None:
            # connected tensors state the same, whatever part of it a node looks at
            source, is_owned = self._sources[node, index]
            if source.size_in_bytes < total:
                raise ValueError(
                    f"input {index} of node {node} reaches {total} bytes; there are "
                    f"{source.size_in_bytes}"
                )
            total = source.size_in_bytes
            flags = DML_TENSOR_FLAGS.OWNED_BY_DML if is_owned else flags
        strides = tensor.strides
        buffer = DML_BUFFER_TENSOR_DESC(
            tensor.data_type, flags, len(tensor.sizes), self._array(UINT, tensor.sizes),
            None if strides is None else self._array(UINT, strides), total, 0,
        )  # fmt: skip
        made: DML_TENSOR_DESC = self._typed(
            DML_TENSOR_DESC, DML_TENSOR_TYPE.BUFFER, buffer
        )
        return made

    def _value(self, field: Field, value: Any, fields: Mapping[str, Any]) -> Any:
        if value is None:
            return None
        if field.type == "OPERATOR_DESC":
            each = value if field.count else (value,)
            return self._array(
                DML_OPERATOR_DESC, [self._operator(operator, None) for operator in each]
            )
        if field.type == "SCALE_BIAS":
            return self._array(DML_SCALE_BIAS, [DML_SCALE_BIAS(*value)])
        if field.type == "SIZE_2D":
            return DML_SIZE_2D(*value)
        if field.type == "SCALAR_UNION":
            return scalar_union(value, DML_TENSOR_DATA_TYPE(fields[field.data_type]))
        if field.count:
            for number in value:
                check_number(field, number)
            return self._array(_element(field), value)
        check_number(field, value)
        return value

    # memory

    def _edge(self, kind: DML_GRAPH_EDGE_TYPE, desc: ctypes.Structure) -> Any:
        return self._typed(DML_GRAPH_EDGE_DESC, kind, desc)

    def _typed(self, structure: Any, kind: int, desc: ctypes.Structure) -> Any:
        """A structure of a type and the address of what the type tells."""
        self._kept.append(desc)
        return structure(kind, ctypes.addressof(desc))

    def _array(self, element: Any, values: Sequence[Any]) -> Any:
        array = (element * len(values))(*values)
        self._kept.append(array)
        return ctypes.cast(array, ctypes.POINTER(element))


def scalar_union(number: float, data_type: DML_TENSOR_DATA_TYPE) -> DML_SCALAR_UNION:
    """A number of a data type.

    Raises:
        ValueError: integers of that type have no such number.
    """
    union = DML_SCALAR_UNION()
    if data_type is DML_TENSOR_DATA_TYPE.FLOAT16:
        import numpy as np

        union.UInt16 = int(np.float16(number).view(np.uint16))
        return union
    check_scalar(number, data_type)
    setattr(union, _MEMBERS[data_type], number)
    return union


def _sources(graph: Graph) -> dict[tuple[int, int], tuple[TensorDesc, bool]]:
    """By node and input: what is connected there, and whether DirectML owns it."""
    made = [node.operator.tensors(FieldKind.OUTPUT) for node in graph.nodes]
    found: dict[tuple[int, int], tuple[TensorDesc, bool]] = {}
    for into in graph.input_edges:
        given = graph.inputs[into.graph_input]
        found[into.node, into.node_input] = given.tensor, given.constant is not None
    for edge in graph.intermediate_edges:
        made_there = made[edge.from_node][edge.from_output]
        assert made_there is not None
        found[edge.to_node, edge.to_input] = made_there, False
    return found


def _element(field: Field) -> Any:
    """C's type of the elements of an array of numbers."""
    return {"UINT": UINT, "INT": ctypes.c_int32, "FLOAT": ctypes.c_float}[field.type]
