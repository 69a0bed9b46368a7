"""Which integers the inputs of a model can take: indices, lengths, quantised numbers.

Found by following each input through what leaves its numbers as they are, to the
operators that ask something of them (`ONNX operators
<https://onnx.ai/onnx/operators/>`_, and those of ``com.microsoft``).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from onnxplug_cli.comparison.steps import bodies

Shape: TypeAlias = "tuple[int | None, ...]"


class Range(NamedTuple):
    """The integers that an input can take.

    Attributes:
        low, high: the smallest and the largest.
        what: what they are, in words.
    """

    low: int
    high: int
    what: str


class _Indices(NamedTuple):
    """Which input of an operator is of indices, and what they count.

    Attributes:
        data: the position of the tensor that is indexed.
        axis: that they count: of that tensor, or an attribute of the operator.
        default: of that attribute.
    """

    data: int
    axis: int | str = 0
    default: int = 0


_INDICES: Final[Mapping[tuple[str, str, int], _Indices]] = {
    ("", "Gather", 1): _Indices(0, "axis"),
    ("", "GatherElements", 1): _Indices(0, "axis"),
    ("", "Scatter", 1): _Indices(0, "axis"),
    ("", "ScatterElements", 1): _Indices(0, "axis"),
    ("", "NegativeLogLikelihoodLoss", 1): _Indices(0, 1),
    ("", "SoftmaxCrossEntropyLoss", 1): _Indices(0, 1),
    ("", "RotaryEmbedding", 3): _Indices(1),
    ("ai.onnx.ml", "ArrayFeatureExtractor", 1): _Indices(0, -1),
    ("com.microsoft", "EmbedLayerNormalization", 0): _Indices(2),
    ("com.microsoft", "EmbedLayerNormalization", 1): _Indices(4),
    ("com.microsoft", "EmbedLayerNormalization", 8): _Indices(3),
    ("com.microsoft", "GatherBlockQuantized", 1): _Indices(0, "gather_axis"),
    ("com.microsoft", "RotaryEmbedding", 1): _Indices(2),
}
"""By domain, operator, and position of the input."""

_LENGTHS: Final[Mapping[tuple[str, str, int], _Indices]] = {
    ("", "ReverseSequence", 1): _Indices(0, "time_axis"),
    ("", "TopK", 1): _Indices(0, "axis", -1),
    ("", "RNN", 4): _Indices(0, "layout"),
    ("", "GRU", 4): _Indices(0, "layout"),
    ("", "LSTM", 4): _Indices(0, "layout"),
}
"""Inputs of numbers from 1 to a size; RNNs have time first in layout 0, and second
in layout 1."""

_POINTS: Final = frozenset({("", "GatherND", 1), ("", "ScatterND", 1)})
"""Inputs whose last axis has an index for each of the data's."""

_QUANTISED: Final = frozenset(
    {
        ("", "ConvInteger", 0),
        ("", "DequantizeLinear", 0),
        ("", "MatMulInteger", 0),
        ("", "MatMulInteger", 1),
        ("", "QLinearConv", 0),
        ("", "QLinearMatMul", 0),
        ("", "QLinearMatMul", 3),
        ("com.microsoft", "DequantizeLinear", 0),
    }
)
"""Inputs of which each number of the type is good."""

_THROUGH: Final[Mapping[str, Sequence[int]]] = {
    "Concat": (),
    "Expand": (0,),
    "Flatten": (0,),
    "Gather": (0,),
    "Identity": (0,),
    "Reshape": (0,),
    "Slice": (0,),
    "Split": (0,),
    "Squeeze": (0,),
    "Tile": (0,),
    "Transpose": (0,),
    "Unsqueeze": (0,),
    "Where": (1, 2),
}
"""Operators whose outputs have numbers of these inputs, of all if there are none."""

_INTEGERS: Final = frozenset(
    {
        TensorProto.INT8,
        TensorProto.INT16,
        TensorProto.INT32,
        TensorProto.INT64,
        TensorProto.UINT8,
        TensorProto.UINT16,
        TensorProto.UINT32,
        TensorProto.UINT64,
    }
)
_BYTES: Final = frozenset({TensorProto.INT8, TensorProto.UINT8})
_CANNOT_INFER: Final = (
    onnx.shape_inference.InferenceError,
    MemoryError,
    RuntimeError,
    ValueError,
)
_DEEPEST: Final = 32
"""Bodies and functions within each other, of which functions may have no end."""


def integer_ranges(
    model: onnx.ModelProto, sizes: Mapping[str, int]
) -> dict[str, Range]:
    """What is found of *model*'s inputs of integers, by name.

    Args:
        model: with or without its external data.
        sizes: of symbolic dimensions of inputs; 1 of those that are not in it.
    """
    weights = {tensor.name for tensor in model.graph.initializer}
    types = {
        value.name: value.type.tensor_type.elem_type
        for value in model.graph.input
        if value.name not in weights and value.type.tensor_type.elem_type in _INTEGERS
    }
    if not types:
        return {}
    walk = _Walk(model, types, _Shapes(model, sizes))
    walk.visit(model.graph.node, {name: {name} for name in types}, walk.shapes, 0)
    return walk.found()


class _Shapes:
    """Shapes of values, and values of constants; inferred if they have to be.

    Args:
        sizes: see :func:`integer_ranges`.
    """

    def __init__(self, model: onnx.ModelProto, sizes: Mapping[str, int]) -> None:
        self._model = model
        self._is_inferred = False
        free = {
            dim.dim_param
            for value in model.graph.input
            for dim in value.type.tensor_type.shape.dim
        }
        self._sizes = dict.fromkeys(free, 1) | dict(sizes)
        self._known: dict[str, Shape | None] = {}
        self._constants: dict[str, TensorProto] = {}
        self._add(model.graph)

    def of(self, name: str) -> Shape | None:
        """The shape of *name*, as far as it is known."""
        if name not in self._known and not self._is_inferred:
            self._is_inferred = True
            try:
                inferred = onnx.shape_inference.infer_shapes(self._model)
            except _CANNOT_INFER:
                return None
            self._add(inferred.graph)
        return self._known.get(name)

    def constant(self, name: str) -> Any:
        """The number that *name* is; ``None`` if it is none, or none that is here."""
        tensor = self._constants.get(name)
        if tensor is None or tensor.external_data or math.prod(tensor.dims) != 1:
            return None
        return numpy_helper.to_array(tensor).item()

    def _add(self, graph: onnx.GraphProto) -> None:
        for tensor in graph.initializer:
            self._enter(tensor.name, tuple(tensor.dims))
            self._constants[tensor.name] = tensor
        for value in (*graph.input, *graph.value_info, *graph.output):
            kind = value.type.tensor_type
            if kind.HasField("shape"):
                self._enter(value.name, tuple(map(self._size, kind.shape.dim)))
        for node in graph.node:
            if node.op_type == "Constant" and len(node.attribute) == 1:
                tensor = node.attribute[0].t
                if node.attribute[0].name == "value":
                    self._enter(node.output[0], tuple(tensor.dims))
                    self._constants[node.output[0]] = tensor
            for body in bodies(node):
                self._add(body)

    def _enter(self, name: str, shape: Shape) -> None:
        # bodies beside each other may use the same name
        if self._known.setdefault(name, shape) != shape and self._is_inferred:
            known = self._known[name]
            self._known[name] = _common(known, shape) if known else shape

    def _size(self, dim: onnx.TensorShapeProto.Dimension) -> int | None:
        if dim.HasField("dim_value"):
            return int(dim.dim_value)
        return self._sizes.get(dim.dim_param) if dim.dim_param else None


def _common(first: Shape, second: Shape) -> Shape | None:
    """What two shapes that are told of one name say together."""
    if len(first) != len(second):
        return None
    return tuple(
        one if two is None or one == two else two if one is None else None
        for one, two in zip(first, second, strict=True)
    )


_Origins: TypeAlias = "dict[str, set[str]]"
"""Values that are known to have numbers of inputs of the model, and of which."""


class _Walk:
    """Follows inputs through graphs, bodies and functions."""

    def __init__(
        self, model: onnx.ModelProto, types: Mapping[str, int], shapes: _Shapes
    ) -> None:
        self.shapes = shapes
        self._types = types
        self._functions = {(each.domain, each.name): each for each in model.functions}
        self._found = defaultdict[str, list[Range]](list)

    def found(self) -> dict[str, Range]:
        """The range of each input of which all that was found can be so."""
        ranges = {}
        for name, each in self._found.items():
            low, high = max(r.low for r in each), min(r.high for r in each)
            if low <= high:
                narrowest = min(each, key=lambda r: r.high - r.low)
                ranges[name] = Range(low, high, narrowest.what)
        return ranges

    def visit(
        self,
        nodes: Sequence[onnx.NodeProto],
        origins: _Origins,
        shapes: _Shapes | None,
        depth: int,
    ) -> None:
        """Look at *nodes*, which see *origins*; in a function no *shapes* are known."""
        if depth > _DEEPEST:
            return
        for node in nodes:
            for position, name in enumerate(node.input):
                for origin in origins.get(name, ()):
                    self._look(node, position, origin, shapes)
            passed = set().union(*(origins.get(name, ()) for name in _passed(node)))
            if passed:
                for name in node.output:
                    origins.setdefault(name, set()).update(passed)
            self._enter(node, origins, shapes, depth)

    def _enter(
        self,
        node: onnx.NodeProto,
        origins: _Origins,
        shapes: _Shapes | None,
        depth: int,
    ) -> None:
        """Look into what *node* calls, and at its bodies."""
        function = self._functions.get((node.domain, node.op_type))
        if function is not None:
            given = zip(function.input, node.input, strict=False)
            within = {
                inner: set(origins[outer]) for inner, outer in given if outer in origins
            }
            if within:
                self.visit(function.node, within, None, depth + 1)
        # what a Loop and a Scan feed their bodies, in order
        first = 2 if node.op_type == "Loop" else 0
        fed = list(node.input)[2:] if first else list(node.input)
        for body in bodies(node):
            within = {name: set(known) for name, known in origins.items()}
            for inner, outer in zip(body.input[first:], fed, strict=False):
                if outer in origins:
                    within[inner.name] = set(origins[outer])
            if within:
                self.visit(body.node, within, shapes, depth + 1)

    def _look(
        self, node: onnx.NodeProto, position: int, origin: str, shapes: _Shapes | None
    ) -> None:
        domain = "" if node.domain == "ai.onnx" else node.domain
        key = (domain, node.op_type, position)
        kind = self._types[origin]
        if key in _QUANTISED or (
            kind in _BYTES and key == ("", "Cast", 0) and not _is_of_integers(node)
        ):
            limits = np.iinfo(helper.tensor_dtype_to_np_dtype(kind))
            what = f"any {limits.dtype}"
            self._found[origin].append(Range(int(limits.min), int(limits.max), what))
        if shapes is None:
            return
        if key == ("", "OneHot", 0):
            depth = shapes.constant(node.input[1])
            if depth is not None and depth >= 1:
                self._found[origin].append(Range(0, int(depth) - 1, "indices"))
        for table, low in ((_INDICES, 0), (_LENGTHS, 1)):
            if key in table:
                size, data = _counted(node, table[key], shapes)
                if size:
                    what = f"{'lengths' if low else 'indices'} of {data!r}"
                    self._found[origin].append(Range(low, size - 1 + low, what))
        if key in _POINTS:
            known = [size for size in shapes.of(node.input[0]) or () if size]
            if known:
                what = f"indices of {node.input[0]!r}"
                self._found[origin].append(Range(0, min(known) - 1, what))


def _passed(node: onnx.NodeProto) -> Iterator[str]:
    """The inputs whose numbers the outputs of *node* have."""
    if node.domain not in ("", "ai.onnx"):
        return
    if node.op_type == "Cast" and _is_of_integers(node):
        yield node.input[0]
    positions = _THROUGH.get(node.op_type)
    if positions is not None:
        for position in positions or range(len(node.input)):
            if position < len(node.input):
                yield node.input[position]


def _is_of_integers(cast: onnx.NodeProto) -> bool:
    return any(each.name == "to" and each.i in _INTEGERS for each in cast.attribute)


def _counted(
    node: onnx.NodeProto, indices: _Indices, shapes: _Shapes
) -> tuple[int | None, str]:
    """How much there is to count, ``None`` if that is not known, and of what."""
    if indices.data >= len(node.input):
        return None, ""
    name = node.input[indices.data]
    shape = shapes.of(name)
    axis = indices.axis
    if isinstance(axis, str):
        given = {each.name: each.i for each in node.attribute}
        axis = given.get(axis, indices.default)
    if shape is None or not -len(shape) <= axis < len(shape):
        return None, name
    return shape[axis], name
