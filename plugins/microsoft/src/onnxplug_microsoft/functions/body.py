"""Writes the body of a function, in the form that a version of ONNX has for it.

Inputs that were attributes once, and operators that came later, are the same calls
here; so a body is written once for all opsets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from onnxplug.ep import (
    Call,
    ComputedConstant,
    DataType,
    Function,
    Graph,
    Node,
    ValueInfo,
)

_NEWEST: Final = 23
"""The opset of bodies in models that import none of ONNX's own."""


class NoFunction(Exception):
    """This form of the operator has no function; the text says why."""


class Body:
    """A function's body while it is written; values are names.

    Attributes:
        inputs: the formal inputs, ``None`` for one that the node leaves out.
        opset: the version of ONNX's operators that the body is written in.
    """

    def __init__(self, graph: Graph, node: Node, formal: Sequence[str]) -> None:
        self.opset = graph.opset() or _NEWEST
        self._graph = graph
        self._node = node
        self._calls: list[Call] = []
        self._counts: Counter[str] = Counter()
        self._constants: dict[tuple[str, tuple[int, ...], bytes], str] = {}
        given = (*node.inputs, *[None] * (len(formal) - len(node.inputs)))
        self._actual = {
            name: actual for name, actual in zip(formal, given, strict=False) if actual
        }
        self.inputs = tuple(name if name in self._actual else None for name in formal)

    def function(self, outputs: Sequence[str | None]) -> Function:
        """What has been written, as a function that gives *outputs*."""
        return Function(
            inputs=self.inputs,
            outputs=outputs,
            calls=self._calls,
            opset_imports={"": self.opset},
        )

    # what is known

    def wants(self, position: int) -> bool:
        """Whether the node's output at *position* is used."""
        return self._node.outputs[position : position + 1] not in ((), (None,))

    def known_dtype(self, *inputs: str | None) -> DataType | None:
        """The element type of the first of *inputs* for which it is known."""
        for name in inputs:
            actual = self._actual.get(name or "")
            found = self._graph.value(actual).dtype if actual else None
            if found is not None:
                return found
        return None

    def dtype(self, *inputs: str | None) -> DataType:
        """As :meth:`known_dtype`.

        Raises:
            NoFunction: it is not known of any.
        """
        found = self.known_dtype(*inputs)
        if found is None:
            raise NoFunction(f"the element type of its input {inputs[0]!r} is unknown")
        return found

    def known_shape(self, name: str | None) -> tuple[int | str | None, ...] | None:
        """The shape of an input, as far as it is known."""
        actual = self._actual.get(name or "")
        return self._graph.value(actual).shape if actual else None

    def shape(self, name: str) -> tuple[int | str | None, ...]:
        """The shape of an input.

        Raises:
            NoFunction: its rank is not known.
        """
        found = self.known_shape(name)
        if found is None:
            raise NoFunction(f"the rank of its input {name!r} is unknown")
        return found

    def rank(self, name: str) -> int:
        """The rank of an input.

        Raises:
            NoFunction: it is not known.
        """
        return len(self.shape(name))

    def known_size(self, name: str | None, axis: int) -> int | None:
        """The size of an axis of an input, if it is a number that is known."""
        shape = self.known_shape(name)
        if shape is None or not -len(shape) <= axis < len(shape):
            return None
        size = shape[axis]
        return size if isinstance(size, int) else None

    def content(self, name: str | None) -> np.ndarray[Any, Any] | None:
        """The content of an input that is a constant."""
        actual = self._actual.get(name or "")
        return self._graph.constant(actual) if actual else None

    def known_constant(self, name: str | None) -> ValueInfo | None:
        """What is known of an input that is a constant, which is not read for it."""
        actual = self._actual.get(name or "")
        found = self._graph.value(actual) if actual else None
        return found if found is not None and found.is_constant else None

    # writing

    def op(self, op_type: str, *inputs: str | None, **attributes: Any) -> str:
        """A call of an operator of ONNX with one output."""
        return self.ops(op_type, 1, *inputs, **attributes)[0]

    def ops(
        self, op_type: str, count: int, *inputs: str | None, **attributes: Any
    ) -> tuple[str, ...]:
        """A call of an operator of ONNX with *count* outputs."""
        outputs = tuple(self._fresh(op_type) for _ in range(count))
        given = {name: each for name, each in attributes.items() if each is not None}
        self._calls.append(
            Call(op_type=op_type, inputs=inputs, outputs=outputs, attributes=given)
        )
        return outputs

    def _fresh(self, op_type: str) -> str:
        self._counts[op_type] += 1
        return f"{op_type}.{self._counts[op_type]}"

    def constant(self, array: np.ndarray[Any, Any]) -> str:
        """A constant; equal small ones are the same value."""
        key = None
        if array.size <= 8:
            key = (array.dtype.name, array.shape, array.tobytes())
            if key in self._constants:
                return self._constants[key]
        name = self.op("Constant", value=array)
        if key is not None:
            self._constants[key] = name
        return name

    def computed(self, constant: ComputedConstant) -> str:
        """A constant that is computed from inputs when an EP asks for it."""
        return self.op("Constant", value=constant)

    def ints(self, *values: int) -> str:
        """A constant of int64, of rank 1."""
        return self.constant(np.array(values, np.int64))

    def index(self, value: int) -> str:
        """A constant of int64, a scalar."""
        return self.constant(np.array(value, np.int64))

    def number(self, value: float, *like: str | None) -> str:
        """A scalar constant of the element type of the inputs *like*.

        Raises:
            NoFunction: the element type is not known, and this opset has no CastLike.
        """
        if self.opset < 15 or self.known_dtype(*like) is not None:
            return self.constant(np.array(value, self.dtype(*like).numpy))
        first = next(name for name in like if name is not None)
        return self.op("CastLike", self.constant(np.array(value, np.float32)), first)

    def cast(self, x: str, to: DataType) -> str:
        """*x* with another element type."""
        return self.op("Cast", x, to=to.onnx)

    # operators that differ from opset to opset

    def reshape(self, x: str, *sizes: int | str) -> str:
        """*x* in another shape; a size may be a value of shape [1]."""
        if all(isinstance(size, int) for size in sizes):
            target = self.ints(*(int(size) for size in sizes))
        else:
            target = self.join(*sizes)
        return self.op("Reshape", x, target)

    def join(self, *sizes: int | str) -> str:
        """Sizes, as numbers or as values of shape [1], in one value of rank 1."""
        parts = [self.ints(s) if isinstance(s, int) else s for s in sizes]
        return self.op("Concat", *parts, axis=0)

    def size(self, x: str, axis: int) -> str:
        """The size of an axis of *x*: int64, shape [1]."""
        return self.op("Gather", self.op("Shape", x), self.ints(axis), axis=0)

    def scalar(self, x: str) -> str:
        """*x*, of one element, as a scalar."""
        return self.op("Reshape", x, self.constant(np.array([], np.int64)))

    def transpose(self, x: str, *axes: int) -> str:
        """*x* with its axes in another order."""
        return self.op("Transpose", x, perm=axes)

    def unsqueeze(self, x: str, *axes: int) -> str:
        """*x* with new axes."""
        if self.opset < 13:
            return self.op("Unsqueeze", x, axes=axes)
        return self.op("Unsqueeze", x, self.ints(*axes))

    def squeeze(self, x: str, *axes: int) -> str:
        """*x* without axes of size 1."""
        if self.opset < 13:
            return self.op("Squeeze", x, axes=axes)
        return self.op("Squeeze", x, self.ints(*axes))

    def reduce(self, op_type: str, x: str, *axes: int, keepdims: int = 1) -> str:
        """A reduction over *axes*."""
        if self.opset < (13 if op_type == "ReduceSum" else 18):
            return self.op(op_type, x, axes=axes, keepdims=keepdims)
        return self.op(op_type, x, self.ints(*axes), keepdims=keepdims)

    def split(
        self, x: str, parts: int, axis: int, sizes: Sequence[int] | None = None
    ) -> tuple[str, ...]:
        """*x* in *parts*, equal ones unless *sizes* are given."""
        if sizes is None:
            number = parts if self.opset >= 18 else None
            return self.ops("Split", parts, x, axis=axis, num_outputs=number)
        if self.opset < 13:
            return self.ops("Split", parts, x, axis=axis, split=tuple(sizes))
        return self.ops("Split", parts, x, self.ints(*sizes), axis=axis)

    def slice(self, x: str, start: int | str, end: int | str, axis: int) -> str:
        """*x* from *start* to *end* of an axis, numbers or values of shape [1].

        Raises:
            NoFunction: a bound is a value, and this opset wants numbers.
        """
        if self.opset >= 10:
            bounds = [self.ints(b) if isinstance(b, int) else b for b in (start, end)]
            return self.op("Slice", x, *bounds, self.ints(axis))
        if isinstance(start, str) or isinstance(end, str):
            raise NoFunction(
                "its function needs opset 10 of ai.onnx, and the model imports "
                f"{self.opset}; convert the model with onnx.version_converter"
            )
        return self.op("Slice", x, starts=(start,), ends=(end,), axes=(axis,))

    def softmax(self, x: str, rank: int) -> str:
        """Softmax over the last of *rank* axes."""
        return self.op("Softmax", x, axis=rank - 1)

    def count(self, end: str) -> str:
        """0, 1, … up to before *end*, int64 of shape [1]: rank 1."""
        return self.op("Range", self.index(0), self.scalar(end), self.index(1))
