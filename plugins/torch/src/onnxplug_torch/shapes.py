"""Arithmetic on shapes, on the host, in Python's integers.

What is computed from the sizes of tensors, and wanted as sizes again, would go to the
device and back, and wait there for all work before it.  Here it stays on the host: a
scalar is an ``int`` or ``bool``, and a tensor of one axis a list of these.

``ep.Partition.infer`` says the same of a node and of arrays.  It takes tens of
microseconds, where this takes about one in each run, and ``torch.compile`` follows it
with sizes left open.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from onnxplug import ep
from onnxplug.ep import DataType

Numbers = Any
"""An int, a bool, or a list of these."""

KEPT: Final = frozenset({DataType.INT64, DataType.INT32, DataType.BOOL})
"""Element types of what may be on the host."""

_MOST: Final = 64
"""Elements of constants that are worth being taken as sizes."""

_MOST_MADE: Final = 1 << 20
"""Elements of what may be made of a few numbers: no tensor has nearly as many axes."""


def is_small(array: Any) -> bool:
    """Whether a constant may take part."""
    return bool(array.ndim <= 1 and array.size <= _MOST)


def find_function(
    node: ep.Node, dtype: DataType | None
) -> Callable[..., Numbers] | None:
    """What computes *node* of numbers, but Shape and Size, which take tensors.

    Args:
        dtype: the element type of its results.
    """
    if node.domain:
        return None
    function = _FUNCTIONS.get(node.op_type)
    if function is None or node.since_version < _OLDEST.get(node.op_type, 1):
        return None
    attributes = {
        name: value for name, value in node.attributes.items() if name in _READ
    }
    if len(attributes) != len(node.attributes):
        return None
    if node.op_type in _GROWING and dtype in (DataType.INT32, DataType.INT64):
        half = 1 << (dtype.bits - 1)
        wrap = _each(lambda number: (number + half) % (2 * half) - half)
        return lambda *values: wrap(function(*values, **attributes))
    return lambda *values: function(*values, **attributes)


def shape_of(x: Any, *, start: int = 0, end: int | None = None) -> Numbers:
    """As ONNX's Shape, of a tensor."""
    return list(x.shape[start:end])


def size_of(x: Any) -> Numbers:
    """As ONNX's Size, of a tensor."""
    return math.prod(x.shape)


def _each(function: Callable[..., Any]) -> Callable[..., Numbers]:
    """*function* of numbers, of lists of them, with ONNX's broadcasting."""

    def apply(*values: Numbers) -> Numbers:
        if not any(isinstance(value, list) for value in values):
            return function(*values)
        lists = [value if isinstance(value, list) else [value] for value in values]
        # a size of 1 is stretched, and nothing to nothing
        count = next((len(each) for each in lists if len(each) != 1), 1)
        rows = [each * count if len(each) == 1 else each for each in lists]
        return [function(*row) for row in zip(*rows, strict=True)]

    return apply


def _quotient(a: int, b: int) -> int:
    if b == 0:
        raise ZeroDivisionError("a size is divided by 0")
    found = abs(a) // abs(b)
    return found if (a < 0) == (b < 0) else -found


def _remainder(a: int, b: int, fmod: int = 0) -> int:
    if fmod:
        return a - b * _quotient(a, b)
    return a % b


def _mod(a: Numbers, b: Numbers, *, fmod: int = 0) -> Numbers:
    return _each(lambda a, b: _remainder(a, b, fmod))(a, b)


def _gather(x: Numbers, index: Numbers, *, axis: int = 0) -> Numbers:
    if not isinstance(x, list):
        raise IndexError("Gather of a scalar")
    return [x[n] for n in index] if isinstance(index, list) else x[index]


def _concat(*parts: Numbers, axis: int) -> Numbers:
    return list(itertools.chain.from_iterable(parts))


def _slice(
    x: Numbers,
    starts: Numbers,
    ends: Numbers,
    axes: Numbers = None,
    steps: Numbers = None,
) -> Numbers:
    step = 1 if steps is None else _only(steps)
    start = _only(starts)
    # backwards from before the first number is from that, other than in Python
    return x[slice(max(start, -len(x)) if step < 0 else start, _only(ends), step)]


def _only(value: Numbers) -> Any:
    if isinstance(value, list):
        (value,) = value
    return value


def _unsqueeze(x: Numbers, axes: Numbers) -> Numbers:
    return x if isinstance(x, list) or axes == [] else [x]


def _squeeze(x: Numbers, axes: Numbers = None) -> Numbers:
    if not isinstance(x, list) or axes == [] or (axes is None and len(x) != 1):
        return x
    return _only(x)


def _reshape(x: Numbers, shape: Numbers, *, allowzero: int = 0) -> Numbers:
    values = x if isinstance(x, list) else [x]
    if not shape:
        return _only(values)
    if shape[0] not in (-1, len(values), 0):
        raise ValueError(f"{len(values)} numbers in the shape {shape}")
    return values


def _cast(x: Numbers, *, to: int) -> Numbers:
    kind = DataType.from_onnx(to)
    function = bool if kind is DataType.BOOL else operator.index
    return _each(function)(x)


def _product(x: Numbers, axes: Numbers = None, *, keepdims: int = 1) -> Numbers:
    found = math.prod(x) if isinstance(x, list) else x
    return [found] if keepdims and isinstance(x, list) else found


def _total(x: Numbers, axes: Numbers = None, *, keepdims: int = 1) -> Numbers:
    found = sum(x) if isinstance(x, list) else x
    return [found] if keepdims and isinstance(x, list) else found


def _range(start: Numbers, limit: Numbers, delta: Numbers) -> Numbers:
    numbers = range(_only(start), _only(limit), _only(delta))
    if len(numbers) > _MOST_MADE:
        raise MemoryError(f"{len(numbers)} numbers, which are wanted as sizes")
    return list(numbers)


def _split(x: Numbers, split: Numbers, *, axis: int = 0) -> Numbers:
    ends = list(itertools.accumulate(split, initial=0))
    if ends[-1] != len(x):
        raise ValueError(f"{len(x)} numbers in parts of {split}")
    return tuple(x[a:b] for a, b in itertools.pairwise(ends))


def _fold(function: Callable[..., Any]) -> Callable[..., Numbers]:
    each = _each(function)

    def apply(*values: Numbers) -> Numbers:
        found = values[0]
        for value in values[1:]:
            found = each(found, value)
        return found

    return apply


_FUNCTIONS: Final[Mapping[str, Callable[..., Numbers]]] = MappingProxyType(
    {
        "Add": _each(operator.add),
        "Sub": _each(operator.sub),
        "Mul": _each(operator.mul),
        "Div": _each(_quotient),
        "Mod": _mod,
        "Neg": _each(operator.neg),
        "Abs": _each(abs),
        "Max": _fold(max),
        "Min": _fold(min),
        "Equal": _each(operator.eq),
        "Less": _each(operator.lt),
        "LessOrEqual": _each(operator.le),
        "Greater": _each(operator.gt),
        "GreaterOrEqual": _each(operator.ge),
        "Not": _each(operator.not_),
        "And": _each(lambda a, b: a and b),
        "Or": _each(lambda a, b: a or b),
        "Where": _each(lambda condition, a, b: a if condition else b),
        "Identity": lambda x: x,
        "Gather": _gather,
        "Concat": _concat,
        "Slice": _slice,
        "Unsqueeze": _unsqueeze,
        "Squeeze": _squeeze,
        "Reshape": _reshape,
        "Cast": _cast,
        "ReduceProd": _product,
        "ReduceSum": _total,
        "Range": _range,
        "Split": _split,
    }
)

_OLDEST: Final[Mapping[str, int]] = MappingProxyType(
    {
        **dict.fromkeys("Add Sub Mul Div Equal Less Greater And Or".split(), 7),
        "Max": 8, "Min": 8, "Slice": 10, "Unsqueeze": 13, "Squeeze": 13, "Split": 13,
        "ReduceSum": 13, "ReduceProd": 18, "Reshape": 5, "Cast": 6, "Mod": 10,
    }
)  # fmt: skip
"""The oldest version of an operator that its function computes."""

_GROWING: Final = frozenset("Abs Add Cast Div Mul Neg ReduceProd ReduceSum Sub".split())
"""What gives numbers beyond their type, and then wraps, as it does in tensors."""

_READ: Final = frozenset({"allowzero", "axis", "fmod", "keepdims", "to"})
"""Attributes that functions take; a node with another is computed elsewhere."""


def are_plain(values: Sequence[ep.ValueInfo]) -> bool:
    """Whether *values* are such as this computes: integers, of one axis at most."""
    return all(
        value.dtype in KEPT and value.shape is not None and len(value.shape) <= 1
        for value in values
    )
