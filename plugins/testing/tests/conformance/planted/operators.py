"""The operators of both EPs: what is taken of each, and how numpy computes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from onnxplug import ep
from onnxplug.ep import DataType

from .images import average_pool, convolution, max_pool

Array: TypeAlias = np.ndarray[Any, Any]
Kernel: TypeAlias = Callable[..., Any]
Attributes: TypeAlias = Mapping[str, Any]

FLOATS: Final = frozenset({DataType.FLOAT32, DataType.FLOAT64})
INTEGERS: Final = frozenset({DataType.INT32, DataType.INT64})
NUMBERS: Final = FLOATS | INTEGERS
ANY: Final = NUMBERS | {DataType.BOOL}
BOOLEAN: Final = frozenset({DataType.BOOL})


class Operator(NamedTuple):
    """An operator, in some of its versions.

    Attributes:
        make: gives the function of the inputs for a node's attributes and the version
            of its operator.
        versions: the first and the last that the function is right for.
        types: of each input in order, the last of them also of those that follow.
        attributes: those that are heeded, and whether they have to be there.
        constants: positions of inputs that have to be constants.
        least_rank: of each input.
    """

    make: Callable[[Attributes, int], Kernel]
    versions: tuple[int, int]
    types: tuple[frozenset[DataType], ...]
    attributes: Mapping[str, bool] = {}
    constants: frozenset[int] = frozenset()
    least_rank: int = 0


def why_not(
    graph: ep.Graph, node: ep.Node, operators: Mapping[str, Operator]
) -> ep.Reason | None:
    """What speaks against *node*, and what is taken; ``None`` if nothing does."""
    name = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
    operator = operators.get(name)
    if operator is None:
        return ep.Reason(ep.RefusalCode.OP, f"{name}; takes {', '.join(operators)}")
    first, last = operator.versions
    if not first <= node.since_version <= last:
        detail = f"version {node.since_version}; takes {first} to {last}"
        return ep.Reason(ep.RefusalCode.OPSET, detail)
    unknown = node.attributes.keys() - operator.attributes.keys()
    missing = {
        each for each, needed in operator.attributes.items() if needed
    } - node.attributes.keys()
    if unknown or missing:
        detail = f"has {min(unknown)}" if unknown else f"lacks {min(missing)}"
        takes = ", ".join(operator.attributes) or "none"
        return ep.Reason(ep.RefusalCode.ATTRIBUTE, f"{detail}; heeds {takes}")
    if len(node.outputs) != 1:
        detail = f"makes {len(node.outputs)} results; makes one"
        return ep.Reason(ep.RefusalCode.OTHER, detail)
    for name in filter(None, node.outputs):
        dtype = graph.value(name).dtype
        if dtype not in ANY:
            detail = (
                f"makes {dtype or 'an unknown type'}; makes {', '.join(sorted(ANY))}"
            )
            return ep.Reason(ep.RefusalCode.DTYPE, detail)
    return _why_not_inputs(graph, node, operator)


def _why_not_inputs(
    graph: ep.Graph, node: ep.Node, operator: Operator
) -> ep.Reason | None:
    for position, name in enumerate(node.inputs):
        if name is None:
            continue
        value = graph.value(name)
        types = operator.types[min(position, len(operator.types) - 1)]
        if value.dtype not in types:
            detail = f"{name!r} is {value.dtype or 'of unknown type'}"
            takes = ", ".join(sorted(types))
            return ep.Reason(ep.RefusalCode.DTYPE, f"{detail}; takes {takes}")
        if position in operator.constants and not value.is_constant:
            return ep.Reason(ep.RefusalCode.NOT_CONSTANT, f"{name!r} is not constant")
        if operator.least_rank:
            rank = None if value.shape is None else len(value.shape)
            if rank is None or rank < operator.least_rank:
                found = "unknown" if rank is None else rank
                detail = f"{name!r} is of rank {found}; takes {operator.least_rank}"
                return ep.Reason(ep.RefusalCode.RANK, f"{detail} or more")
    return None


def _plain(function: Kernel) -> Callable[[Attributes, int], Kernel]:
    return lambda attributes, version: function


def divide(a: Array, b: Array) -> Any:
    """ONNX's ``Div``, which rounds integers towards zero, as numpy does not."""
    if a.dtype.kind == "f":
        return np.divide(a, b)
    quotient = np.floor_divide(a, b)
    inexact = np.remainder(a, b) != 0
    return quotient + (inexact & ((a < 0) != (b < 0)))


def softmax(attributes: Attributes, version: int) -> Kernel:
    """``Softmax``; before version 13 over all axes from the given one."""
    if version >= 13:
        return softmax_along(attributes.get("axis", -1))
    axis = attributes.get("axis", 1)

    def over_rows(x: Array) -> Any:
        first = axis if axis >= 0 else axis + x.ndim
        rows = x.reshape(int(np.prod(x.shape[:first], dtype=np.int64)), -1)
        return softmax_along(-1)(rows).reshape(x.shape) if x.size else x.copy()

    return over_rows


def softmax_along(axis: int) -> Kernel:
    """Softmax along one axis."""

    def along(x: Array) -> Any:
        if not x.size:
            return x.copy()
        powers = np.exp(x - x.max(axis=axis, keepdims=True))
        return powers / powers.sum(axis=axis, keepdims=True)

    return along


def _concat(attributes: Attributes, version: int) -> Kernel:
    return lambda *parts: np.concatenate(parts, axis=attributes["axis"])


def _transpose(attributes: Attributes, version: int) -> Kernel:
    return lambda x: np.transpose(x, attributes.get("perm"))


def _gather(attributes: Attributes, version: int) -> Kernel:
    # which raises where an index is out of range
    return lambda x, indices: np.take(x, indices, axis=attributes.get("axis", 0))


def _cast(attributes: Attributes, version: int) -> Kernel:
    dtype = DataType.from_onnx(attributes["to"]).numpy
    return lambda x: x.astype(dtype)


def _reshape(attributes: Attributes, version: int) -> Kernel:
    def reshape(x: Array, shape: Array) -> Array:
        sizes = [int(size) for size in shape]
        if not attributes.get("allowzero", 0):
            sizes = [size or x.shape[axis] for axis, size in enumerate(sizes)]
        if -1 in sizes:
            known = int(np.prod([size for size in sizes if size != -1], dtype=np.int64))
            sizes[sizes.index(-1)] = x.size // known if known else 0
        return x.reshape(sizes)

    return reshape


def _shape(attributes: Attributes, version: int) -> Kernel:
    part = slice(attributes.get("start", 0), attributes.get("end"))
    return lambda x: np.array(x.shape[part], np.int64)


def axes_of(attributes: Attributes, axes: Array | None) -> tuple[int, ...] | None:
    """What a reduction goes along; ``None``: all axes."""
    if axes is None or not axes.size:
        return () if attributes.get("noop_with_empty_axes", 0) else None
    return tuple(int(axis) for axis in axes)


def _reduce_sum(attributes: Attributes, version: int) -> Kernel:
    keeps = bool(attributes.get("keepdims", 1))

    def reduce(x: Array, axes: Array | None = None) -> Any:
        along = axes_of(attributes, axes)
        return np.sum(x, axis=along, keepdims=keeps, dtype=x.dtype)

    return reduce


def _reduce_mean(attributes: Attributes, version: int) -> Kernel:
    total = _reduce_sum(attributes, version)

    def reduce(x: Array, axes: Array | None = None) -> Any:
        return total(x, axes) / x.dtype.type(count_of(attributes, x.shape, axes))

    return reduce


def count_of(attributes: Attributes, shape: tuple[int, ...], axes: Array | None) -> int:
    """How many elements each result of a reduction is of."""
    along = axes_of(attributes, axes)
    sizes = shape if along is None else [shape[axis] for axis in along]
    return int(np.prod(sizes, dtype=np.int64))


def _gemm(attributes: Attributes, version: int) -> Kernel:
    alpha, beta = attributes.get("alpha", 1.0), attributes.get("beta", 1.0)

    def gemm(a: Array, b: Array, c: Array | None = None) -> Any:
        left = a.T if attributes.get("transA", 0) else a
        right = b.T if attributes.get("transB", 0) else b
        product = left @ right
        if alpha != 1:
            product = product * a.dtype.type(alpha)
        return product if c is None else product + a.dtype.type(beta) * c

    return gemm


def _leaky_relu(attributes: Attributes, version: int) -> Kernel:
    alpha = attributes.get("alpha", 0.01)
    return lambda x: np.where(x < 0, x.dtype.type(alpha) * x, x)


def mean(x: Array, axis: tuple[int, ...]) -> Any:
    """The mean along *axis*, which stays; NaN of no elements."""
    count = np.prod([x.shape[each] for each in axis], dtype=np.int64)
    return np.sum(x, axis=axis, keepdims=True) / x.dtype.type(count)


def maximum(x: Array, axis: tuple[int, ...]) -> Any:
    """The maximum along *axis*, which stays."""
    return np.max(x, axis=axis, keepdims=True)


def _global_pool(reduce: Callable[..., Any]) -> Callable[[Attributes, int], Kernel]:
    return lambda attributes, version: lambda x: reduce(x, tuple(range(2, x.ndim)))


def _expand(x: Array, shape: Array) -> Array:
    sizes = tuple(int(size) for size in shape)
    return np.broadcast_to(x, np.broadcast_shapes(x.shape, sizes))


def clip(x: Array, least: Array | None = None, greatest: Array | None = None) -> Any:
    """``Clip``; where the least is more than the greatest, all are the greatest."""
    raised = x if least is None else np.maximum(x, least)
    return raised if greatest is None else np.minimum(raised, greatest)


_POOLED: Final = {"kernel_shape": True} | dict.fromkeys(
    ("auto_pad", "pads", "strides"), False
)
_INDICES: Final = INTEGERS
_SHAPE: Final = frozenset({DataType.INT64})

OPERATORS: Final[Mapping[str, Operator]] = {
    "Abs": Operator(_plain(np.abs), (6, 13), (NUMBERS,)),
    "Add": Operator(_plain(np.add), (7, 14), (NUMBERS,)),
    "AveragePool": Operator(
        average_pool(2),
        (7, 22),
        (FLOATS,),
        {**_POOLED, "count_include_pad": False},
        least_rank=3,
    ),
    "Cast": Operator(_cast, (9, 25), (ANY,), {"to": True, "saturate": False}),
    "Clip": Operator(_plain(clip), (11, 13), (NUMBERS,)),
    "Concat": Operator(_concat, (4, 13), (ANY,), {"axis": True}),
    "Conv": Operator(
        convolution(),
        (1, 22),
        (FLOATS,),
        dict.fromkeys(
            ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides"),
            False,
        ),
    ),
    "Div": Operator(_plain(divide), (7, 14), (NUMBERS,)),
    "Equal": Operator(_plain(np.equal), (11, 19), (ANY,)),
    "Exp": Operator(_plain(np.exp), (6, 13), (FLOATS,)),
    "Expand": Operator(
        _plain(_expand), (8, 13), (ANY, _SHAPE), constants=frozenset({1})
    ),
    "Gather": Operator(_gather, (11, 13), (ANY, _INDICES), {"axis": False}),
    "Gemm": Operator(
        _gemm,
        (7, 13),
        (FLOATS,),
        dict.fromkeys(("alpha", "beta", "transA", "transB"), False),
    ),
    "GlobalAveragePool": Operator(_global_pool(mean), (1, 22), (FLOATS,), least_rank=3),
    "GlobalMaxPool": Operator(_global_pool(maximum), (1, 22), (FLOATS,), least_rank=3),
    "Identity": Operator(_plain(lambda x: x), (1, 25), (ANY,)),
    "LeakyRelu": Operator(_leaky_relu, (6, 16), (FLOATS,), {"alpha": False}),
    "Less": Operator(_plain(np.less), (9, 13), (NUMBERS,)),
    "MatMul": Operator(_plain(np.matmul), (1, 13), (NUMBERS,), least_rank=1),
    "MaxPool": Operator(
        max_pool(2),
        (1, 22),
        (FLOATS,),
        {**_POOLED, "dilations": False},
        least_rank=3,
    ),
    "Mul": Operator(_plain(np.multiply), (7, 14), (NUMBERS,)),
    "Neg": Operator(_plain(np.negative), (6, 13), (NUMBERS,)),
    "ReduceMean": Operator(
        _reduce_mean,
        (18, 18),
        (FLOATS, _SHAPE),
        {"keepdims": False, "noop_with_empty_axes": False},
        frozenset({1}),
    ),
    "ReduceSum": Operator(
        _reduce_sum,
        (13, 13),
        (NUMBERS, _SHAPE),
        {"keepdims": False, "noop_with_empty_axes": False},
        frozenset({1}),
    ),
    "Relu": Operator(_plain(lambda x: np.maximum(x, 0)), (6, 14), (NUMBERS,)),
    "Reshape": Operator(
        _reshape, (5, 25), (ANY, _SHAPE), {"allowzero": False}, frozenset({1})
    ),
    "Shape": Operator(_shape, (1, 25), (ANY,), {"start": False, "end": False}),
    "Softmax": Operator(softmax, (1, 13), (FLOATS,), {"axis": False}),
    "Sqrt": Operator(_plain(np.sqrt), (6, 13), (FLOATS,)),
    "Sub": Operator(_plain(np.subtract), (7, 14), (NUMBERS,)),
    "Tanh": Operator(_plain(np.tanh), (6, 13), (FLOATS,)),
    "Transpose": Operator(_transpose, (1, 25), (ANY,), {"perm": False}),
    "Where": Operator(_plain(np.where), (9, 16), (BOOLEAN, ANY)),
}
"""By the name that ONNX has for the operator."""
