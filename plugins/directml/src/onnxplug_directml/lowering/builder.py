"""Writes graphs: operators one after another, on values that it hands out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import numpy as np

from onnxplug import ep
from onnxplug_directml.abi.directml import (
    DML_OPERATOR_TYPE,
    DML_REDUCE_FUNCTION,
    DML_TENSOR_DATA_TYPE,
    OPERATOR_FIELDS,
)
from onnxplug_directml.abi.operators import FieldKind
from onnxplug_directml.lowering.graph import (
    FieldValue,
    Operator,
    TensorDesc,
    check_number,
    check_scalar,
    in_order,
)
from onnxplug_directml.lowering.support import why_unsupported
from onnxplug_directml.lowering.target import Target

_DML: Final = DML_TENSOR_DATA_TYPE
_TYPES: Final[Mapping[ep.DataType, DML_TENSOR_DATA_TYPE]] = {
    ep.DataType.FLOAT32: _DML.FLOAT32,
    ep.DataType.FLOAT16: _DML.FLOAT16,
    ep.DataType.INT64: _DML.INT64,
    ep.DataType.INT32: _DML.INT32,
    ep.DataType.INT16: _DML.INT16,
    ep.DataType.INT8: _DML.INT8,
    ep.DataType.UINT64: _DML.UINT64,
    ep.DataType.UINT32: _DML.UINT32,
    ep.DataType.UINT16: _DML.UINT16,
    ep.DataType.UINT8: _DML.UINT8,
    ep.DataType.BOOL: _DML.UINT8,
}
"""DirectML's types for ONNX's.  A bool is a byte of 0 or 1 in both."""

Shape: TypeAlias = tuple[int, ...]


class Refused(Exception):
    """A node cannot be lowered; *reason* says why."""

    def __init__(self, code: ep.RefusalCode, detail: str) -> None:
        super().__init__(detail)
        self.reason: Final = ep.Reason(code, detail)


@dataclass(frozen=True, slots=True)
class Source:
    """Where the elements of a value are.

    Attributes:
        node: the node that makes them; ``None`` if the graph is given them.
        index: of the node's outputs, or of the graph's inputs.
    """

    node: int | None
    index: int


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor on the way: elements, and how they are looked at.

    Attributes:
        dtype: ONNX's type of the elements.
        shape: as ONNX has it; of rank 0 for scalars, which DirectML sees as ``(1,)``.
        strides: in elements; ``None`` where packed.
    """

    source: Source
    dtype: ep.DataType
    shape: Shape
    strides: Shape | None = None

    @property
    def rank(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class Result:
    """What a node is to make for a field of its description; it is packed."""

    dtype: ep.DataType
    shape: Shape


Field: TypeAlias = (
    "Value | Result | tuple[Value, ...] | tuple[Result, ...] | FieldValue"
)
"""What rules say of a field: values and results in place of tensors."""


@dataclass(frozen=True, slots=True)
class Step:
    """A node that is being made: its fields have values where tensors will be."""

    name: str
    type: DML_OPERATOR_TYPE
    fields: Mapping[str, Field]


class Builder:
    """The nodes of a graph that is being made.

    Attributes:
        node: describes the ONNX node that is being lowered.
        steps: the nodes so far.
        inputs: what the graph is given.
        constants: by the index of an input its content, if it is a constant.
        checks: numbers that have to be 0 in runs, of UINT32 and rank 1, and what is
            wrong where one is not.
    """

    def __init__(self, target: Target) -> None:
        self.target: Final = target
        self.node = ""
        self.steps: list[Step] = []
        self.inputs: list[Value] = []
        self.constants: list[Any | None] = []
        self.checks: list[tuple[Value, str]] = []
        self._scalars: dict[tuple[str, bytes], Value] = {}

    # values that the graph is given

    def input(self, dtype: ep.DataType, shape: Shape) -> Value:
        """An input of the graph.

        Raises:
            Refused: DirectML lacks the type, or takes no such shape.
        """
        return self._given(dtype, shape, None)

    def constant(self, array: Any) -> Value:
        """A constant; scalars that are the same are one.

        Raises:
            Refused: DirectML lacks the type, or takes no such shape.
        """
        dtype = ep.DataType(str(array.dtype))
        key = (str(dtype), array.tobytes()) if array.size == 1 else None
        if key is not None and key in self._scalars:
            return replace(self._scalars[key], shape=array.shape)
        value = self._given(dtype, array.shape, np.ascontiguousarray(array))
        if key is not None:
            self._scalars[key] = value
        return value

    def _given(self, dtype: ep.DataType, shape: Shape, content: Any | None) -> Value:
        self.check(dtype, shape)
        value = Value(Source(None, len(self.inputs)), dtype, shape)
        self.inputs.append(value)
        self.constants.append(content)
        return value

    def scalar(self, number: float | bool, dtype: ep.DataType) -> Value:
        """A constant of rank 0."""
        return self.constant(np.asarray(number, dtype.numpy))

    def content(self, value: Value) -> Any | None:
        """The elements of a constant as they are seen; ``None`` for other values."""
        if value.source.node is not None:
            return None
        array = self.constants[value.source.index]
        if array is None:
            return None
        if value.strides is None:
            return array.reshape(value.shape)
        flat = array.reshape(-1)
        return np.lib.stride_tricks.as_strided(
            flat, value.shape, [flat.itemsize * each for each in value.strides]
        )

    # nodes

    def __call__(self, operator: str, **fields: Field) -> Value:
        """A node with one result.

        Args:
            operator: a member of ``DML_OPERATOR_TYPE``.
            fields: of its description, by Microsoft's names: :class:`Value` where it
                has inputs, :class:`Result` where it makes something.  What is left out
                is 0 or null; counts of arrays follow from the arrays.

        Raises:
            Refused: the device does not take it with these types or ranks.
        """
        (value,) = self.several(operator, **fields)
        return value

    def several(self, operator: str, **fields: Field) -> tuple[Value, ...]:
        """A node with any number of results, in the order of its description.

        Raises:
            Refused: as of a call.
        """
        kind = DML_OPERATOR_TYPE[operator]
        known = {field.name for field in OPERATOR_FIELDS[kind]}
        assert known.issuperset(fields), f"{operator}: {sorted(set(fields) - known)}"
        tensors = {name: self._descs(field) for name, field in fields.items()}
        why = why_unsupported(self.target, kind, tensors)
        if why is not None:
            raise Refused(why.code, why.detail)
        _check_numbers(kind, fields)
        made = tuple(
            Value(Source(len(self.steps), position), result.dtype, result.shape)
            for position, result in enumerate(in_order(kind, fields, FieldKind.OUTPUT))
            if result is not None
        )
        self.steps.append(Step(self.node, kind, fields))
        return made

    def operator(self, operator: str, **fields: FieldValue) -> Operator:
        """An operator within another, as a fused activation; it has no tensors."""
        return Operator(DML_OPERATOR_TYPE[operator], fields)

    def unary(self, operator: str, x: Value, **fields: Field) -> Value:
        """A node on each element, whose result is of the same type and shape."""
        result = Result(x.dtype, x.shape)
        return self(operator, InputTensor=x, OutputTensor=result, **fields)

    def binary(
        self, operator: str, a: Value, b: Value, dtype: ep.DataType | None = None
    ) -> Value:
        """A node on pairs of elements, with broadcasting.

        Args:
            dtype: of the result, if not that of *a*.
        """
        a, b = self.broadcast(a, b)
        result = Result(dtype or a.dtype, a.shape)
        return self(operator, ATensor=a, BTensor=b, OutputTensor=result)

    def select(self, condition: Value, a: Value, b: Value) -> Value:
        """*a* where *condition*, of bytes, is not 0, else *b*; with broadcasting."""
        condition, a, b = self.broadcast(condition, a, b)
        return self(
            "ELEMENT_WISE_IF", ConditionTensor=condition, ATensor=a, BTensor=b,
            OutputTensor=Result(a.dtype, a.shape),
        )  # fmt: skip

    def require(self, wrong: Value, message: str) -> None:
        """Have runs fail where an element of *wrong*, of UINT32, is not 0.

        Args:
            message: what is wrong then; the node is named in front.
        """
        flat = self.reshape(wrong, (1, 1, 1, wrong.size))
        largest = self(
            "REDUCE", Function=DML_REDUCE_FUNCTION.MAX, InputTensor=flat,
            OutputTensor=Result(wrong.dtype, (1, 1, 1, 1)), Axes=(3,),
        )  # fmt: skip
        found = self.reshape(largest, (1,))
        self.checks.append((found, f"{self.node}: {message}"))

    # ways to look at values: no node is made, no element moves

    def reshape(self, x: Value, shape: Sequence[int]) -> Value:
        """*x* in another shape; it is packed first, if need be."""
        wanted = tuple(shape)
        if x.shape == wanted:
            return x
        packed = self.packed(x)
        if math.prod(wanted) != packed.size:
            raise Refused(
                ep.RefusalCode.OTHER, f"{list(x.shape)} cannot be {list(wanted)}"
            )
        return replace(packed, shape=wanted)

    def at_rank(self, x: Value, rank: int) -> Value:
        """*x* with sizes of 1 in front, up to a rank."""
        missing = rank - x.rank
        if missing <= 0:
            return x
        strides = None if x.strides is None else (0,) * missing + x.strides
        return replace(x, shape=(1,) * missing + x.shape, strides=strides)

    def broadcast_to(self, x: Value, shape: Sequence[int]) -> Value:
        """*x* repeated to a shape, by strides of 0.

        Raises:
            Refused: its sizes are neither those nor 1.
        """
        wanted = tuple(shape)
        if x.shape == wanted:
            return x
        padded = self.at_rank(x, len(wanted))
        if padded.rank != len(wanted) or any(
            size not in (1, goal)
            for size, goal in zip(padded.shape, wanted, strict=True)
        ):
            raise Refused(
                ep.RefusalCode.OTHER,
                f"{list(x.shape)} cannot be repeated to {list(wanted)}",
            )
        strides = padded.strides or packed_strides(padded.shape)
        repeated = tuple(
            0 if size == 1 else stride
            for size, stride in zip(padded.shape, strides, strict=True)
        )
        return replace(padded, shape=wanted, strides=repeated)

    def broadcast(self, *values: Value) -> tuple[Value, ...]:
        """Values repeated to the shape that numpy's rule gives for all.

        Raises:
            Refused: there is none.
        """
        try:
            shape = np.broadcast_shapes(*(value.shape for value in values))
        except ValueError as error:
            raise Refused(ep.RefusalCode.OTHER, str(error)) from error
        return tuple(self.broadcast_to(value, shape) for value in values)

    def transpose(self, x: Value, permutation: Sequence[int]) -> Value:
        """*x* with its dimensions in another order, by its strides.

        Raises:
            Refused: that is no order of its dimensions.
        """
        order = tuple(permutation)
        if sorted(order) != list(range(x.rank)):
            raise Refused(
                ep.RefusalCode.RANK, f"{list(order)} orders no {x.rank} dimensions"
            )
        if order == tuple(range(x.rank)):
            return x
        strides = x.strides or packed_strides(x.shape)
        return replace(
            x,
            shape=tuple(x.shape[axis] for axis in order),
            strides=tuple(strides[axis] for axis in order),
        )

    # conversions, which are nodes where there is something to do

    def packed(self, x: Value) -> Value:
        """*x* with its elements one after another."""
        if x.strides is None:
            return x
        strides = packed_strides(x.shape)
        pairs = zip(x.shape, x.strides, strides, strict=True)
        if all(size == 1 or found == wanted for size, found, wanted in pairs):
            return replace(x, strides=None)
        return self.copied(x)

    def copied(self, x: Value) -> Value:
        """*x* in memory of its own, packed."""
        result = Result(x.dtype, x.shape)
        return self("ELEMENT_WISE_IDENTITY", InputTensor=x, OutputTensor=result)

    def reinterpret(self, x: Value, dtype: ep.DataType) -> Value:
        """The bytes of *x* as another type, whose elements are as large."""
        assert x.dtype.numpy.itemsize == dtype.numpy.itemsize
        return replace(x, dtype=dtype)

    def cast(self, x: Value, dtype: ep.DataType) -> Value:
        """*x* in another type, as ``DML_OPERATOR_CAST`` has it.

        To bool is what is not 0, and floats are cut toward 0.
        """
        if x.dtype is dtype:
            return x
        if dtype is ep.DataType.BOOL:
            zero = self.scalar(0, x.dtype)
            same = self.binary("ELEMENT_WISE_LOGICAL_EQUALS", x, zero, dtype)
            return self.unary("ELEMENT_WISE_LOGICAL_NOT", same)
        if x.dtype is ep.DataType.BOOL and dtype is ep.DataType.UINT8:
            return replace(x, dtype=dtype)
        return self("CAST", InputTensor=x, OutputTensor=Result(dtype, x.shape))

    # what DirectML sees

    def _descs(self, field: Field) -> list[TensorDesc]:
        values = field if isinstance(field, tuple) else (field,)
        return [self.desc(each) for each in values if isinstance(each, Value | Result)]

    def desc(self, x: Value | Result) -> TensorDesc:
        """The tensor that DirectML sees for a value."""
        strides = x.strides if isinstance(x, Value) else None
        self.check(x.dtype, x.shape)
        if not x.shape:
            return TensorDesc(_TYPES[x.dtype], (1,))
        return TensorDesc(_TYPES[x.dtype], x.shape, strides)

    def data_type(self, dtype: ep.DataType) -> DML_TENSOR_DATA_TYPE:
        """DirectML's type for ONNX's.

        Raises:
            Refused: it has none, or the device does not.
        """
        found = _TYPES.get(dtype)
        if found is None:
            raise Refused(ep.RefusalCode.DTYPE, f"{dtype}; DirectML has no such type")
        if found not in self.target.data_types:
            raise Refused(
                ep.RefusalCode.DTYPE, f"{dtype}; the device has no {found.name}"
            )
        return found

    def check(self, dtype: ep.DataType, shape: Shape) -> None:
        """Refuse what DirectML has no tensor for.

        Raises:
            Refused: it lacks the type, or takes no such shape.
        """
        self.data_type(dtype)
        if 0 in shape:
            raise Refused(ep.RefusalCode.RANK, "a tensor without elements")
        try:
            TensorDesc(_TYPES[dtype], shape or (1,))
        except ValueError as error:
            raise Refused(ep.RefusalCode.RANK, str(error)) from error


_HELD: Final = ("UINT", "INT", "SCALAR_UNION")
"""Types of fields that have no room for some numbers."""


def _check_numbers(kind: DML_OPERATOR_TYPE, fields: Mapping[str, Field]) -> None:
    """Refuse what the fields of a description have no room for."""
    for field in OPERATOR_FIELDS[kind]:
        found: Any = fields.get(field.name)
        if field.kind is not FieldKind.VALUE or field.type not in _HELD:
            continue
        try:
            if field.type == "SCALAR_UNION":
                told: Any = fields[field.data_type]
                check_scalar(found, told)
                continue
            for number in found if isinstance(found, tuple) else (found or 0,):
                check_number(field, number)
        except ValueError as error:
            raise Refused(ep.RefusalCode.ATTRIBUTE, str(error)) from error


def packed_strides(shape: Sequence[int]) -> Shape:
    """The strides of a tensor whose elements follow one another."""
    strides: list[int] = []
    stride = 1
    for size in reversed(shape):
        strides.append(stride)
        stride *= size
    return tuple(reversed(strides))
