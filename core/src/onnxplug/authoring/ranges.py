"""Which int64 values fit in 32 bits, for engines that compute int64 as int32.

A value that comes from shapes, from smaller types or from small constants fits.  So do
positions and sizes that other inputs ask for: beyond 32 bits they would be errors.
Anything else, such as an int64 input of the model, may not fit, and is not taken where
its content matters.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Final

from onnxplug.authoring.operators import having
from onnxplug.ep.capability import Reason, RefusalCode
from onnxplug.ep.graph import Graph, Node
from onnxplug.ep.types import DataType


class Fit(IntEnum):
    """What is known of an int64 value."""

    UNKNOWN = 0
    FITS = 1
    """It fits in 32 bits, but a sum or product of it may not."""
    SIZE = 2
    """It counts elements, dimensions or positions: sums and products fit as well."""


_COUNTS: Final = frozenset({"ArgMax", "ArgMin", "NonZero", "Shape", "Size", "TopK"})
"""Operators whose int64 outputs are counts or positions."""

_MOVES: Final = frozenset(
    {
        "Concat", "Expand", "Flatten", "Gather", "GatherElements", "GatherND",
        "Identity", "Pad", "Reshape", "ScatterElements", "ScatterND", "Slice", "Split",
        "Squeeze", "Tile", "Transpose", "Unsqueeze", "Where", "Max", "Min", "ReduceMax",
        "ReduceMin", "Clip", "Mod", "Trilu", "DepthToSpace", "SpaceToDepth",
        "ReverseSequence", "Div", "Compress",
    }
)  # fmt: skip
"""Operators whose outputs are no larger than their inputs."""

_COMPARES: Final = frozenset(
    {
        "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Cast", "CastLike",
        "ArgMax", "ArgMin", "TopK", "NonZero", "OneHot", "Sign",
    }
)  # fmt: skip
"""Operators that read values and need them to fit, and no more."""

_INDICES: Final = {
    "Expand": {1}, "Gather": {1}, "GatherElements": {1}, "GatherND": {1},
    "ConstantOfShape": {0}, "CumSum": {1}, "OneHot": {1}, "Pad": {1, 3},
    "Reshape": {1}, "Resize": {3}, "ScatterElements": {1}, "ScatterND": {1},
    "Slice": {1, 2, 3, 4}, "Split": {1}, "Squeeze": {1}, "Tile": {1}, "TopK": {1},
    "Trilu": {1}, "Unsqueeze": {1}, "ReverseSequence": {1}, "DFT": {1, 2},
    "NonMaxSuppression": {2}, "CenterCropPad": {1},
}  # fmt: skip
"""Inputs that are positions or sizes: beyond 32 bits ONNX would have no answer."""

_NARROW: Final = frozenset({"bool", "int8", "uint8", "int16", "uint16", "int32"})
_SMALL: Final = 2**24
_LEAST: Final = -(2**31)
_GREATEST: Final = 2**31 - 1


class Ranges:
    """What is known of the int64 values of a graph, as far as it was followed.

    Args:
        engine: its name, for reasons.
        option: of the EP, by which int64 is taken for granted to fit.
    """

    def __init__(self, graph: Graph, engine: str, option: str) -> None:
        self._graph = graph
        self._engine = engine
        self._option = option
        self._fits: dict[str, Fit] = {}

    def fit(self, name: str) -> Fit:
        """What is known of *name*."""
        known = self._fits.get(name)
        if known is None:
            known = self._fits[name] = self._fit_of_constant(name)
        return known

    def _fit_of_constant(self, name: str) -> Fit:
        value = self._graph.value(name)
        if not value.is_constant or value.dtype is not DataType.INT64:
            return Fit.UNKNOWN
        array: Any = self._graph.constant(name)
        if array is None:
            return Fit.UNKNOWN
        low, high = (int(array.min()), int(array.max())) if array.size else (0, 0)
        if low > -_SMALL and high < _SMALL:
            return Fit.SIZE
        return Fit.FITS if low >= _LEAST and high <= _GREATEST else Fit.UNKNOWN

    def check(self, node: Node) -> Reason | None:
        """Why *node* must not be computed in 32 bits; ``None`` if it may be."""
        if node.op_type in having("shape_only"):
            return None
        operator = node.op_type
        needed = Fit.FITS if operator in _MOVES | _COMPARES else Fit.SIZE
        is_reduction = operator in having("reduction")
        if is_reduction and operator not in _MOVES:
            needed = Fit.SIZE
        indices = {1} if is_reduction else _INDICES.get(operator, set())
        for position, name in enumerate(node.inputs):
            if name is None or position in indices or not self._is_int64(name):
                continue
            if self.fit(name) < needed:
                return Reason(
                    RefusalCode.DTYPE,
                    f"{name!r} is int64 and may not fit in {self._engine}'s 32 bits "
                    f"(option {self._option} takes it all the same)",
                )
        return self._check_cast(node)

    def _check_cast(self, node: Node) -> Reason | None:
        """Floats beyond 32 bits become other integers in the engine than in ONNX."""
        if node.op_type not in ("Cast", "CastLike") or not node.inputs[0]:
            return None
        made = [name for name in node.outputs if name and self._is_int64(name)]
        source = self._graph.value(node.inputs[0]).dtype
        if (
            made
            and source is not None
            and (str(source).startswith(("float", "bfloat")))
        ):
            detail = (
                f"{made[0]!r} is int64 made of {source}; {self._engine} has 32 bits"
            )
            return Reason(RefusalCode.DTYPE, detail)
        return None

    def follow(self, node: Node) -> None:
        """Learn of *node*'s outputs, whichever EP computes them."""
        made = [name for name in node.outputs if name and self._is_int64(name)]
        if not made:
            return
        fit = self._fit_of_result(node)
        for name in made:
            self._fits[name] = fit

    def _fit_of_result(self, node: Node) -> Fit:
        if node.op_type in _COUNTS:
            return Fit.SIZE
        indices = _INDICES.get(node.op_type, set())
        sources = [
            name
            for position, name in enumerate(node.inputs)
            if name and position not in indices
        ]
        wide = [name for name in sources if self._is_int64(name)]
        if node.op_type in ("Cast", "CastLike") and not wide:
            dtype = str(self._graph.value(sources[0]).dtype)
            return Fit.FITS if dtype in _NARROW else Fit.UNKNOWN
        if not wide:
            return Fit.SIZE if node.op_type == "ConstantOfShape" else Fit.UNKNOWN
        fit = min(self.fit(name) for name in wide)
        if node.op_type in _MOVES or fit is Fit.SIZE:
            return fit
        return Fit.UNKNOWN

    def _is_int64(self, name: str) -> bool:
        return self._graph.value(name).dtype is DataType.INT64
