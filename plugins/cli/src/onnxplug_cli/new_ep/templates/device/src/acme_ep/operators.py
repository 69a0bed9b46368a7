"""The operators: what the device computes, and the shapes of its results.

A shape has to follow from those of the inputs, as the host makes room for a result
before it is computed. An operator is added by writing an entry below.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, Any]
Shape: TypeAlias = tuple[int, ...]


class Operator(NamedTuple):
    """An operator that the device computes.

    Attributes:
        compute: takes arrays, and as *out* the one to fill.
        shape: takes their shapes, and gives that of the result; raises ``ValueError``
            where they do not fit each other.
        versions: those of the operator that are meant, each called by the opset that
            brought it, as ``Node.since_version`` does.
        least_rank: of the inputs.
    """

    compute: Callable[..., Any]
    shape: Callable[..., Shape]
    versions: frozenset[int]
    least_rank: int = 0


def _relu(x: Array, out: Array) -> None:
    np.maximum(x, 0, out=out)


def _shape_of_product(a: Shape, b: Shape) -> Shape:
    if a[-1] != b[-2]:
        raise ValueError(f"cannot multiply matrices {list(a)} and {list(b)}")
    return (*np.broadcast_shapes(a[:-2], b[:-2]), a[-2], b[-1])


_ARITHMETIC: Final = frozenset({7, 13, 14})

OPERATORS: Final[Mapping[str, Operator]] = {
    "Add": Operator(np.add, np.broadcast_shapes, _ARITHMETIC),
    "MatMul": Operator(np.matmul, _shape_of_product, frozenset({1, 9, 13}), 2),
    "Mul": Operator(np.multiply, np.broadcast_shapes, _ARITHMETIC),
    "Relu": Operator(_relu, np.broadcast_shapes, frozenset({6, 13, 14})),
    "Sub": Operator(np.subtract, np.broadcast_shapes, _ARITHMETIC),
}
"""By the name that ONNX has for the operator. None of them has attributes."""
