"""How many elements a call on known arrays makes, before it is computed.

What follows from shapes and constants is computed while planning, so that a small model
must not be able to have a plan that is large.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from onnxplug_cpu.compiler.call import Call, NotCompiled, broadcast_shape
from onnxplug_kernels.families import FAMILIES

SMALL: Final = 1 << 10
"""Elements so few that even the product of all with all is not above the limit."""

_BROADCASTING: Final = frozenset({"activation", "arithmetic", "logic", "trigonometry"})
"""Families of operators whose results have the shape that the inputs broadcast to."""

_NO_LARGER: Final = frozenset(
    {"cast", "norm", "reduce", "scan", "shape", "softmax", "sort"}
)
"""Families whose results together have hardly more elements than the inputs."""

_NO_LARGER_OPERATORS: Final = frozenset(
    """Concat DepthToSpace DequantizeLinear DynamicQuantizeLinear EyeLike QuantizeLinear
    ReverseSequence Slice SpaceToDepth Split Transpose Trilu""".split()
)
"""Operators of other families of which that is true."""

_PRODUCTS: Final = frozenset(
    """Compress Gather GatherElements GatherND Gemm MatMul NonZero Scatter
    ScatterElements ScatterND TensorScatter""".split()
)
"""Operators whose results have at most the product of the inputs' elements."""

Contents = Sequence["np.ndarray[Any, Any] | None"]


def extent(call: Call, contents: Contents, inferred: Callable[[], float]) -> float:
    """At most about how many elements *call* makes of *contents*; ``inf`` if unknown.

    Args:
        inferred: the number by the rules of types; it may raise ``NotCompiled``,
            ``IndexError`` or ``ValueError``.
    """
    given = _given(call, contents)
    if given is not None:
        return given
    family = FAMILIES.get((call.domain, call.op_type), "")
    read = sum(map(_size, contents))
    broadcasts = family in _BROADCASTING
    no_larger = family in _NO_LARGER or call.op_type in _NO_LARGER_OPERATORS
    multiplies = call.op_type in _PRODUCTS
    if no_larger:
        return 2 * read
    if (broadcasts or multiplies) and read <= SMALL and len(contents) <= 2:
        return 0
    if broadcasts:
        try:
            shapes = [() if content is None else content.shape for content in contents]
            return float(math.prod(broadcast_shape(shapes)))
        except NotCompiled:  # which computing it will tell better
            return 0
    try:
        return inferred()
    except (NotCompiled, IndexError, ValueError):
        return math.prod(map(_size, contents)) if multiplies else math.inf


def _given(call: Call, contents: Contents) -> float | None:
    """Elements that a call makes, if its inputs say so."""
    match call.op_type:
        case "ConstantOfShape" | "RandomNormal" | "RandomUniform":
            return _product(contents[0])
        case "Expand":
            return max(_size(contents[0]), _product(contents[1]))
        case "Tile":
            return _size(contents[0]) * _product(contents[1])
        case "Range":
            start, end, step = (float(np.asarray(c).reshape(-1)[0]) for c in contents)
            return max(0, (end - start) / step) if step else 0
        case _:
            return None


def _size(content: np.ndarray[Any, Any] | None) -> int:
    return 1 if content is None else content.size


def _product(sizes: np.ndarray[Any, Any] | None) -> float:
    return 0 if sizes is None else float(np.prod(sizes.astype(np.float64)))
