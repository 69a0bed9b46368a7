"""Writes programs: operations one after another, with values that it names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from onnxplug import ep
from onnxplug.authoring.sizes import product
from onnxplug_coreml.lowering.primitives import PRIMITIVES, Misused
from onnxplug_coreml.lowering.program import (
    Check,
    Constant,
    Operation,
    Shape,
    Value,
)
from onnxplug_coreml.lowering.target import Engine, Target


class Refused(Exception):
    """A node cannot be lowered; *reason* says why."""

    def __init__(self, code: ep.RefusalCode, detail: str) -> None:
        super().__init__(detail)
        self.reason: Final = ep.Reason(code, detail)


class Builder:
    """The operations of a program that is being made.

    Attributes:
        node: the position of the node that is being lowered.
    """

    def __init__(self, target: Target) -> None:
        self.target = target
        self.node = 0
        self.operations: list[Operation] = []
        self.constants: dict[str, Constant] = {}
        self.checks: list[Check] = []
        self._made = 0
        self._scalars: dict[tuple[str, bytes], Value] = {}

    def value(self, dtype: ep.DataType, shape: Shape) -> Value:
        """A new value, which an input or an operation is to make.

        Raises:
            Refused: it has more dimensions than the engine takes.
        """
        if len(shape) > self.target.most_dimensions:
            raise Refused(
                ep.RefusalCode.RANK,
                f"a tensor of {len(shape)} dimensions on the way; {self.target.engine} "
                f"has {self.target.most_dimensions}",
            )
        self._made += 1
        return Value(f"v{self._made}", dtype, shape)

    def constant(self, array: Any, weight: str | None = None) -> Value:
        """A constant; one of int64 is narrowed if the engine lacks that.

        Raises:
            Refused: the engine has no such type, or a number does not fit.
        """
        dtype = ep.DataType(str(array.dtype))
        wanted = self.type_of(dtype)
        if wanted is not dtype:
            bounds = np.iinfo(wanted.numpy)
            if array.size and (array.min() < bounds.min or array.max() > bounds.max):
                raise Refused(
                    ep.RefusalCode.DTYPE, f"a constant has numbers beyond {wanted}"
                )
            array, weight = array.astype(wanted.numpy), None
        key = (str(wanted), array.tobytes()) if array.ndim == 0 else None
        if key is not None and key in self._scalars:
            return self._scalars[key]
        value = self.value(wanted, array.shape)
        self.constants[value.name] = Constant(value, array, weight)
        if key is not None:
            self._scalars[key] = value
        return value

    def scalar(self, number: float | bool, dtype: ep.DataType) -> Value:
        """A constant of rank 0."""
        return self.constant(np.asarray(number, dtype.numpy))

    def numbers(self, numbers: Sequence[int]) -> Value:
        """A constant of int32 and rank 1."""
        return self.constant(np.asarray(numbers, np.int32))

    def type_of(self, dtype: ep.DataType) -> ep.DataType:
        """The engine's type for ONNX's.

        Raises:
            Refused: it has none.
        """
        wanted = self.target.dtype_for(dtype)
        if wanted is None:
            raise Refused(
                ep.RefusalCode.DTYPE,
                f"{dtype}; {self.target.engine} takes float32, float16, int32, int64 "
                "and bool",
            )
        return wanted

    def content(self, value: Value) -> Any | None:
        """The array that a constant is; ``None`` for other values."""
        constant = self.constants.get(value.name)
        return None if constant is None else constant.array

    def __call__(
        self, primitive: str, *operands: Value | None, **attributes: Any
    ) -> Value:
        """An operation with one result.

        Raises:
            Refused: the primitive does not take these operands.
        """
        (value,) = self.several(primitive, *operands, **attributes)
        return value

    def several(
        self, primitive: str, *operands: Value | None, **attributes: Any
    ) -> tuple[Value, ...]:
        """An operation with any number of results.

        Raises:
            Refused: the primitive does not take these operands.
        """
        try:
            found = PRIMITIVES[primitive].results(operands, attributes)
        except (Misused, ValueError) as error:
            raise Refused(ep.RefusalCode.OTHER, str(error)) from error
        for _, shape in found:
            if 0 in shape:
                raise Refused(ep.RefusalCode.RANK, "a tensor without elements")
        values = tuple(self.value(dtype, shape) for dtype, shape in found)
        names = tuple(None if x is None else x.name for x in operands)
        self.operations.append(
            Operation(primitive, names, attributes, values, self.node)
        )
        return values

    # what is nothing to do is not done

    def cast(self, x: Value, dtype: ep.DataType) -> Value:
        """*x* in another type."""
        return x if x.dtype is dtype else self("cast", x, dtype=dtype)

    def reshape(self, x: Value, shape: Shape) -> Value:
        """*x* in another shape."""
        if x.shape == shape:
            return x
        named = [size for size in shape if not isinstance(size, int)]
        if len(named) > 1:
            raise Refused(
                ep.RefusalCode.DYNAMIC_SHAPE,
                f"a shape with {len(named)} sizes that are known in runs only",
            )
        return self("reshape", x, shape=shape)

    def transpose(self, x: Value, permutation: Sequence[int]) -> Value:
        """*x* with its dimensions in another order."""
        order = tuple(permutation)
        if order == tuple(range(x.rank)):
            return x
        return self("transpose", x, permutation=order)

    def broadcast_to(self, x: Value, shape: Shape) -> Value:
        """*x* repeated to a shape."""
        return x if x.shape == shape else self("broadcast_to", x, shape=shape)

    def concat(self, values: Sequence[Value], axis: int) -> Value:
        """*values*, of which some may have no elements, along an axis."""
        there = [value for value in values if 0 not in value.shape]
        return there[0] if len(there) == 1 else self("concat", *there, axis=axis)

    def between(self, x: Value, axis: int, start: int, stop: int | None) -> Value:
        """The elements of *x* from *start* up to *stop* along an axis."""
        stops: list[int | None] = [None] * x.rank
        starts = [0] * x.rank
        starts[axis], stops[axis] = start, stop
        if start == 0 and stop in (None, x.shape[axis]):
            return x
        return self(
            "slice",
            x,
            starts=tuple(starts),
            stops=tuple(stops),
            steps=(1,) * x.rank,
        )

    def matmul(self, x: Value, y: Value) -> Value:
        """A product of matrices, added up in 32 bits unless 16 were asked for."""
        narrow = x.dtype is ep.DataType.FLOAT16
        if (
            narrow
            and self.target.engine is Engine.CORE_AI
            and self.target.precision is ep.DataType.FLOAT32
        ):
            # it adds up in 16 bits: of 512 products half of a digit is left
            x, y = (self.cast(each, ep.DataType.FLOAT32) for each in (x, y))
            return self.cast(self("matmul", x, y), ep.DataType.FLOAT16)
        return self("matmul", x, y)

    def check_none(self, violations: Value, message: str) -> None:
        """Let runs fail in which one of *violations*, bools, is true."""
        count = self.cast(violations, ep.DataType.INT32)
        if count.rank:
            axes = tuple(range(count.rank))
            count = self("reduce_max", count, axes=axes, keep=False)
        self.checks.append(Check(count, message))


def count(shape: Shape) -> int | None:
    """How many elements a tensor has, if that is a number."""
    found = product(shape)
    return found if isinstance(found, int) else None
