"""What follows from the sizes of inputs is computed once, when a partition is lowered.

Exported models compute shapes, masks and positions from sizes.  Where these are numbers
such nodes are constants, and no engine sees them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from onnxplug import ep
from onnxplug_kernels import UnsupportedAttribute, WrongInputs, find_kernel

SIZES: Final = frozenset({"Shape", "Size"})
"""Operators whose results follow from sizes, whatever the elements."""

FOLDED: Final = SIZES | {
    "Abs", "Add", "And", "Cast", "CastLike", "Ceil", "Clip", "Concat",
    "ConstantOfShape", "Cos", "CumSum", "Div", "Equal", "Exp", "Expand", "EyeLike",
    "Flatten", "Floor", "Gather", "GatherElements", "GatherND", "Greater",
    "GreaterOrEqual", "Identity", "Less", "LessOrEqual", "Log", "MatMul", "Max", "Min",
    "Mod", "Mul", "Neg", "Not", "OneHot", "Or", "Pad", "Pow", "Range", "Reciprocal",
    "ReduceMax", "ReduceMin", "ReduceProd", "ReduceSum", "Reshape", "ScatterElements",
    "ScatterND", "Sign", "Sin", "Slice", "Split", "Sqrt", "Squeeze", "Sub", "Tile",
    "Transpose", "Trilu", "Unsqueeze", "Where", "Xor",
}  # fmt: skip
"""Operators that are computed when all their inputs are known."""

MOST_ELEMENTS: Final = 1 << 24
"""Beyond that many a result is not kept as a constant."""


def fold(
    node: ep.Node, version: int, inputs: Sequence[Any | None]
) -> Sequence[Any] | None:
    """The outputs of *node*, of arrays; ``None`` if it cannot be computed here.

    Args:
        version: of ONNX's operators, in the model.
    """
    kernel = find_kernel(node.domain, node.op_type, version)
    if kernel is None:
        return None
    try:
        bound = kernel.bind(
            np,
            node.attributes,
            output_count=len(node.outputs),
            inputs=node.inputs,
        )
        found = bound(*inputs)
    except (UnsupportedAttribute, WrongInputs, ValueError, IndexError):
        return None  # what is wrong with it is said where it runs
    results = found if isinstance(found, tuple | list) else (found,)
    if any(np.size(result) > MOST_ELEMENTS for result in results):
        return None
    return [np.asarray(result) for result in results]
