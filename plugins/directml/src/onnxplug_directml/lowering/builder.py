"""Writes graphs: operators one after another, on values that it hands out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import numpy as np

from onnxplug import ep
from onnxplug_directml.abi.directml import DML_OPERATOR_TYPE, DML_TENSOR_DATA_TYPE
from onnxplug_directml.lowering.graph import FieldValue, Operator, TensorDesc
from onnxplug_directml.lowering.operands import tensor_fields
from onnxplug_directml.lowering.support import why_unsupported
from onnxplug_directml.lowering.target import Target

_INT: Final = DML_TENSOR_DATA_TYPE
_TYPES: Final[Mapping[ep.DataType, DML_TENSOR_DATA_TYPE]] = {
    ep.DataType.FLOAT32: _INT.FLOAT32,
    ep.DataType.FLOAT16: _INT.FLOAT16,
    ep.DataType.INT64: _INT.INT64,
    ep.DataType.INT32: _INT.INT32,
    ep.DataType.INT16: _INT.INT16,
    ep.DataType.INT8: _INT.INT8,
    ep.DataType.UINT64: _INT.UINT64,
    ep.DataType.UINT32: _INT.UINT32,
    ep.DataType.UINT16: _INT.UINT16,
    ep.DataType.UINT8: _INT.UINT8,
    ep.DataType.BOOL: _INT.UINT8,
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
    """

    def __init__(self, target: Target) -> None:
        self.target: Final = target
        self.node = ""
        self.steps: list[Step] = []
        self.constants: list[Any | None] = []
        self._scalars: dict[tuple[str, bytes], Value] = {}

    # values that the graph is given

    def input(self, dtype: ep.DataType, shape: Shape) -> Value:
        """An input of the graph.

        Raises:
            Refused: DirectML lacks the type, or takes no such shape.
        """
        self._check(dtype, shape)
        self.constants.append(None)
        return Value(Source(None, len(self.constants) - 1), dtype, shape)

    def constant(self, array: Any) -> Value:
        """A constant; scalars that are the same are one.

        Raises:
            Refused: DirectML lacks the type, or takes no such shape.
        """
        dtype = ep.DataType(str(array.dtype))
        key = (str(dtype), array.tobytes()) if array.size == 1 else None
        if key is not None and key in self._scalars:
            return replace(self._scalars[key], shape=array.shape)
        self._check(dtype, array.shape)
        self.constants.append(np.ascontiguousarray(array))
        value = Value(Source(None, len(self.constants) - 1), dtype, array.shape)
        if key is not None:
            self._scalars[key] = value
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
        inputs, outputs = tensor_fields(kind)
        unknown = why_unsupported(
            self.target,
            kind,
            {
                name: [self.desc(each) for each in _each(fields.get(name))]
                for name in (*inputs, *outputs)
            },
        )
        if unknown is not None:
            raise Refused(ep.RefusalCode.DTYPE, unknown)
        made = []
        position = 0
        for name in outputs:
            results = fields.get(name)
            for result in results if isinstance(results, tuple) else (results,):
                if isinstance(result, Result):
                    source = Source(len(self.steps), position)
                    made.append(Value(source, result.dtype, result.shape))
                position += 1
        self.steps.append(Step(self.node, kind, fields))
        return tuple(made)

    def operator(self, operator: str, **fields: FieldValue) -> Operator:
        """An operator within another, as a fused activation; it has no tensors."""
        return Operator(DML_OPERATOR_TYPE[operator], fields)

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

    def transpose(self, x: Value, permutation: Sequence[int]) -> Value:
        """*x* with its dimensions in another order, by its strides."""
        order = tuple(permutation)
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
        return self(
            "ELEMENT_WISE_IDENTITY", InputTensor=x,
            OutputTensor=Result(x.dtype, x.shape), ScaleBias=None,
        )  # fmt: skip

    def cast(self, x: Value, dtype: ep.DataType) -> Value:
        """*x* in another type, as ``DML_OPERATOR_CAST`` has it.

        To bool is what is not 0, and floats are cut toward 0.
        """
        if x.dtype is dtype:
            return x
        if dtype is ep.DataType.BOOL:
            zero = self.broadcast_to(self.scalar(0, x.dtype), x.shape)
            same = self(
                "ELEMENT_WISE_LOGICAL_EQUALS", ATensor=x, BTensor=zero,
                OutputTensor=Result(dtype, x.shape),
            )  # fmt: skip
            return self(
                "ELEMENT_WISE_LOGICAL_NOT", InputTensor=same,
                OutputTensor=Result(dtype, x.shape),
            )  # fmt: skip
        if x.dtype is ep.DataType.BOOL and dtype is ep.DataType.UINT8:
            return replace(x, dtype=dtype)
        return self("CAST", InputTensor=x, OutputTensor=Result(dtype, x.shape))

    # what DirectML sees

    def desc(self, x: Value | Result) -> TensorDesc:
        """The tensor that DirectML sees for a value."""
        strides = x.strides if isinstance(x, Value) else None
        self._check(x.dtype, x.shape)
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
            raise Refused(ep.RefusalCode.DTYPE, f"{dtype}; the device has no {found}")
        return found

    def _check(self, dtype: ep.DataType, shape: Shape) -> None:
        self.data_type(dtype)
        if 0 in shape:
            raise Refused(ep.RefusalCode.RANK, "a tensor without elements")
        try:
            TensorDesc(_TYPES[dtype], shape or (1,))
        except ValueError as error:
            raise Refused(ep.RefusalCode.RANK, str(error)) from error


def packed_strides(shape: Sequence[int]) -> Shape:
    """The strides of a tensor whose elements follow one another."""
    strides: list[int] = []
    stride = 1
    for size in reversed(shape):
        strides.append(stride)
        stride *= size
    return tuple(reversed(strides))


def _each(field: Field) -> Sequence[Value | Result]:
    values = field if isinstance(field, tuple) else (field,)
    return [each for each in values if isinstance(each, Value | Result)]
