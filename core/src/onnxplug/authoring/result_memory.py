"""The memory that kernels take, asked for before it is written.

Linux grants more than there is, and ends a process that writes to all of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from onnxplug.authoring.bounds import OutOfBounds
from onnxplug.authoring.memory_limit import WORTH_ASKING, check_left, check_room
from onnxplug.authoring.operators import having
from onnxplug.ep.graph import Node, Partition, TensorFacts
from onnxplug.ep.types import DataType, TensorType, ValueType

_WRITTEN: Final = frozenset(
    """Acos Acosh Add And Asin Asinh Atan Atanh AveragePool Concat Conv ConvInteger
    ConvTranspose Cos Cosh CumSum Div Einsum Elu Equal Erf Exp Gather GatherElements
    GatherND Gelu Gemm Greater GreaterOrEqual HardSigmoid HardSwish LayerNormalization
    LeakyRelu Less LessOrEqual Log MatMul MatMulInteger Max MaxPool Mean Min Mish Mod
    Mul Neg Not OneHot Or PRelu Pad Pow Reciprocal Relu Resize Round ScatterElements
    ScatterND Sigmoid Sign Sin Sinh Softmax Softplus Softsign Sqrt Sub Sum Tan Tanh
    Tile Where Xor""".split()
)
"""Operators whose results are written, be the kernel what it may.

Others may give views of their inputs, which take no memory; so may those of any number
of inputs, of a single one.
"""


_READ_IN_PARTS: Final = (
    having("reduction")
    | having("reshapes")
    | having("shape_only")
    | frozenset(
        """ArgMax ArgMin Expand Gather GatherElements GatherND Identity If Loop Optional
        OptionalGetElement OptionalHasElement SequenceAt SequenceConstruct
        SequenceInsert Slice Split Transpose""".split()
    )
)
"""Operators that do not look at each element of what is stretched; Reshape copies what
needs it, and asks for the memory."""


_LARGEST_ELEMENT: Final = 16
"""Bytes of a complex128."""


def large_results(partition: Partition, node: Node) -> tuple[bool, bool]:
    """Whether *node* gives arrays that may be large, and whether it writes them."""
    types = [partition.value(name).type for name in filter(None, node.outputs)]
    if all(map(_is_small, types)):
        return False, False
    are_arrays = all(isinstance(type, TensorType) for type in types)
    writes = not node.domain and node.op_type in _WRITTEN
    if len(node.inputs) == 1 and node.op_type in having("any_number"):
        writes = False
    return are_arrays, writes


def _is_small(type: ValueType | None) -> bool:
    """Whether no tensor of *type* takes as much memory as is worth asking for."""
    if not isinstance(type, TensorType) or type.shape is None:
        return False
    elements = 1
    for size in type.shape:
        if not isinstance(size, int):
            return False
        elements *= size
    return elements * _LARGEST_ELEMENT < WORTH_ASKING


def are_large(arguments: Sequence[Any]) -> bool:
    """Whether any of *arguments* is so large that memory is worth asking for."""
    for argument in arguments:  # noqa: SIM110 - asked before every call
        if getattr(argument, "nbytes", 0) >= WORTH_ASKING:
            return True
    return False


def _facts(argument: Any) -> TensorFacts | None:
    """What rules take of an argument."""
    dtype = getattr(argument, "dtype", None)
    if dtype is None:
        return None
    return TensorFacts(DataType.from_numpy(dtype), argument.shape, argument)


def check_results(partition: Partition, node: Node, arguments: Sequence[Any]) -> None:
    """Check that there is memory for what *node* makes, as far as its size follows.

    Raises:
        MemoryError: there is not.
    """
    try:
        made = partition.infer(node, [_facts(each) for each in arguments])
    except OutOfBounds:  # which the kernel says, too
        return
    check_left(
        sum(
            math.prod(each.shape) * each.dtype.numpy.itemsize
            for each in made
            if each is not None and each.dtype is not None
        )
    )


def check_stretched(node: Node, arguments: Sequence[Any]) -> None:
    """Check that what *node* reads whole could be in memory.

    An array that is stretched takes none, and to read all of it may take days.

    Raises:
        MemoryError: it could not.
    """
    if not node.domain and node.op_type in _READ_IN_PARTS:
        return
    for argument in arguments:
        if 0 in getattr(argument, "strides", ()):
            check_room(argument.nbytes)
