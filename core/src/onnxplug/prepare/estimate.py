"""How much a node of constants makes, and how long that takes, before it is computed.

Rough, and rather too much than too little.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from onnxplug.authoring.operators import having
from onnxplug.authoring.record import Record
from onnxplug.ep import DataType, TensorType, ValueType
from onnxplug.shapes import elementwise
from onnxplug.shapes.facts import NodeCall, Value

_NO_LARGER: Final = frozenset({"Compress", "NonZero", "Unique"})
"""Operators whose results have a size that only the elements tell, but hardly more of
them than there are dimensions and elements in the input."""

_PER_ELEMENT: Final = having("reduction") | {
    *("ArgMax", "ArgMin", "BitCast", "GlobalAveragePool", "GlobalMaxPool")
}
"""Operators that read each element once, beside those that make, map or move them."""

_FLOATS: Final = (DataType.FLOAT32, DataType.FLOAT64)
"""Element types whose products BLAS computes."""

_BY_BLAS: Final = 16
"""How many of them it computes in the time of one other multiplication."""

_BYTES_OF_A_TEXT: Final = 64
"""Bytes of a Python string of a few characters, and of the reference to it."""


class Expected(Record):
    """What a node makes.

    Attributes:
        size: elements of its outputs.
        nbytes: that they take.
    """

    size: int
    nbytes: int


def expected(call: NodeCall) -> Expected | None:
    """What the node of *call* makes; ``None`` when that is not known before."""
    node, graph = call.node, call.facts.graph
    if node.op_type in _NO_LARGER and not node.domain:
        shape = call.value(0).shape or ()
        size = (len(shape) + 3) * sum(_sizes(call))
        return Expected(size, 8 * size)
    names = [name for name in node.outputs if name]
    found = [_stated(graph.value(name).type) for name in names]
    if not all(_is_known(shape) for _, shape in found):
        from onnxplug.shapes.inference import types_of

        follow = types_of(call)
        found = [
            (value.dtype, value.shape)
            for name, value in zip(node.outputs, follow, strict=False)
            if name and isinstance(value, Value)
        ]
        if len(found) < len(names) or not all(_is_known(shape) for _, shape in found):
            return None
    sizes = [math.prod(shape) for _, shape in found]  # type: ignore[arg-type]
    return Expected(
        sum(sizes),
        sum(
            size * _bits(dtype) // 8
            for (dtype, _), size in zip(found, sizes, strict=True)
        ),
    )


def work(call: NodeCall, made: int, enough: int) -> int:
    """About how many multiplications the node of *call* takes.

    Args:
        made: elements of its outputs.
        enough: a number below which nobody wants to know more.
    """
    node = call.node
    sizes = _sizes(call)
    read = sum(sizes)
    if node.op_type in ("MatMul", "MatMulInteger", "Gemm") and not node.domain:
        value = call.value(0)
        shape = value.shape or (1,)
        inner = shape[0 if call.attribute("transA", 0) else -1]
        products = made * inner if isinstance(inner, int) else made * read
        return products // (_BY_BLAS if value.dtype in _FLOATS else 1)
    if node.op_type == "Einsum":
        return math.prod(size + 1 for size in sizes)
    numbers = [a.value for a in node.typed_attributes.values()]
    factor = 1 + sum(abs(number) for number in _integers(numbers))
    most = (read + made + 1) ** 2 * factor
    # what is proportional to the model and to a result that is not too large
    return min(most, enough) if most > enough and _is_linear(call) else most


def _stated(type: ValueType | None) -> tuple[DataType | None, Sequence[object] | None]:
    return (type.dtype, type.shape) if isinstance(type, TensorType) else (None, None)


def _is_linear(call: NodeCall) -> bool:
    node = call.node
    if node.domain or node.op_type == "LRN":  # which adds up neighbours
        return False
    if node.op_type in _PER_ELEMENT:
        return True
    from onnxplug.shapes import making, movement

    tables = (elementwise.RULES, making.RULES, movement.RULES)
    return any(node.op_type in rules for rules in tables)


def _sizes(call: NodeCall) -> list[int]:
    weights = (call.facts.graph.weight(name) for name in call.node.inputs if name)
    return [weight.size for weight in weights if weight is not None]


def _integers(values: Sequence[object]) -> list[int]:
    found: list[int] = []
    for value in values:
        if isinstance(value, tuple):
            found += [number for number in value if isinstance(number, int)]
        elif isinstance(value, int):
            found.append(value)
    return found


def _is_known(shape: Sequence[object] | None) -> bool:
    return shape is not None and all(isinstance(size, int) for size in shape)


def _bits(dtype: DataType | None) -> int:
    if dtype is None:
        return 64
    return 8 * _BYTES_OF_A_TEXT if dtype is DataType.STRING else dtype.bits
