"""Nodes that rules make, in the form that the model's opset has for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn, TypeAlias

import numpy as np

from onnxplug.authoring.nodes import describe
from onnxplug.ep import DataType, Dimension, GraphEditor, Node, UnsupportedModel

FLOATING: Final = frozenset(
    {DataType.FLOAT16, DataType.BFLOAT16, DataType.FLOAT32, DataType.FLOAT64}
)
"""Element types that gradients are computed in."""

Shape: TypeAlias = tuple[Dimension, ...] | None
Value: TypeAlias = int | float | str | np.ndarray[Any, Any] | tuple[int, ...]
"""What attributes of emitted nodes hold."""

_EMITTED_SINCE: Final = {
    # operator versions of ONNX's Changelog.md that have the form emitted here
    "ConstantOfShape": 9,
    "Equal": 11,  # of floating-point values
    "Expand": 8,
    "GatherElements": 11,
    "GatherND": 11,
    "NonZero": 9,
    "Pad": 11,
    "Range": 11,
    "ScatterElements": 11,
    "ScatterND": 11,
    "Sign": 9,
    "Slice": 10,
    "Where": 9,
}
_AXES_ARE_INPUT: Final = 13  # of ReduceSum, Squeeze, Unsqueeze and, as sizes, of Split
_ADDING_SCATTER: Final = 16
_ALLOWZERO: Final = 14


class Emitter:
    """Makes nodes and constants of a graph on behalf of a Gradient node.

    Attributes:
        nodes: those made so far, which the graph does not have yet.
        about: what is being differentiated, in words, for errors.
    """

    def __init__(self, editor: GraphEditor, gradient: Node) -> None:
        self.nodes: list[Node] = []
        self.about = describe(gradient)
        self._editor = editor
        self._graph = editor.graph
        self._prefix = label(gradient) + "/"

    # what is known

    @property
    def opset(self) -> int:
        """The version of ONNX's own operators."""
        return self._graph.opset()

    def shape(self, name: str) -> Shape:
        """The shape of a value that the graph has already; ``None``: not known."""
        return self._graph.value(name).shape

    def dtype(self, name: str) -> DataType:
        """The element type of *name*.

        Raises:
            UnsupportedModel: it is not known.
        """
        dtype = self._graph.value(name).dtype
        if dtype is None:
            self.refuse(
                f"the element type of {name!r} is not known; declare it in the model"
            )
        return dtype

    def constant(self, name: str) -> np.ndarray[Any, Any] | None:
        """The content of *name* if it is a constant."""
        return self._graph.constant(name)

    def refuse(self, reason: str) -> NoReturn:
        """Raise :class:`UnsupportedModel`."""
        raise UnsupportedModel(f"{self.about} cannot be differentiated: {reason}")

    def need(self, opset: int, what: str) -> None:
        """Raise :class:`UnsupportedModel` unless the model's opset is new enough."""
        if self.opset < opset:
            self.refuse(
                f"{what} needs opset {opset}, and the model has opset {self.opset}; "
                "convert it with onnx.version_converter"
            )

    # making

    def __call__(
        self,
        op_type: str,
        *inputs: str | None,
        attributes: Mapping[str, Value] | None = None,
    ) -> str:
        """Call an operator; the name of its output."""
        return self.several(op_type, inputs, 1, attributes)[0]

    def several(
        self,
        op_type: str,
        inputs: Sequence[str | None],
        count: int,
        attributes: Mapping[str, Value] | None = None,
    ) -> list[str]:
        """Call an operator; the names of its *count* outputs."""
        self.need(_EMITTED_SINCE.get(op_type, 0), op_type)
        name = self._editor.fresh_name(self._prefix + op_type)
        outputs = [
            name if count == 1 else self._editor.fresh_name(f"{name}/{position}")
            for position in range(count)
        ]
        given = list(inputs)
        while given and given[-1] is None:
            given.pop()
        made = self._editor.make_node(op_type, given, outputs, attributes, name=name)
        self.nodes.append(made)
        return outputs

    def add_constant(self, array: np.ndarray[Any, Any]) -> str:
        """A constant that holds *array*."""
        return self._editor.add_constant(self._prefix + "constant", array)

    def scalar(self, value: float, like: str) -> str:
        """The scalar *value* in the element type of *like*."""
        return self.add_constant(np.array(value, self.dtype(like).numpy))

    def ints(self, *values: int) -> str:
        """A constant int64 tensor of one dimension."""
        return self.add_constant(np.array(values, np.int64))

    def filled(self, value: float, like: str) -> str:
        """A tensor of the type and shape of *like* in which all elements are equal."""
        if self.shape(like) == ():
            return self.scalar(value, like)
        return self.filled_as(value, self("Shape", like), like)

    def filled_as(self, value: float, shape: str, like: str) -> str:
        """As :meth:`filled`, of the shape that the value *shape* holds."""
        content = np.full(1, value, self.dtype(like).numpy)
        return self("ConstantOfShape", shape, attributes={"value": content})

    def cast(self, value: str, like: str) -> str:
        """*value* in the element type of *like*."""
        to = {"to": self.dtype(like).onnx}
        return self("Cast", value, attributes=to)

    def add_up(self, values: Sequence[str]) -> str:
        """The sum of tensors of one shape."""
        if len(values) == 1:
            return values[0]
        return self("Add" if len(values) == 2 else "Sum", *values)

    def reduce_sum(
        self, value: str, axes: Sequence[int], *, keepdims: bool = True
    ) -> str:
        """The sum over *axes*."""
        return self._along("ReduceSum", value, axes, {"keepdims": int(keepdims)})

    def squeeze(self, value: str, axes: Sequence[int]) -> str:
        """*value* without the dimensions *axes*, which are 1."""
        return self._along("Squeeze", value, axes, {})

    def unsqueeze(self, value: str, axes: Sequence[int]) -> str:
        """*value* with new dimensions at *axes* of the result."""
        return self._along("Unsqueeze", value, axes, {})

    def _along(
        self, op_type: str, value: str, axes: Sequence[int], attributes: dict[str, int]
    ) -> str:
        if self.opset < _AXES_ARE_INPUT:
            return self(op_type, value, attributes={"axes": tuple(axes), **attributes})
        return self(op_type, value, self.ints(*axes), attributes=attributes)

    def reshape(self, value: str, shape: str) -> str:
        """*value* in the shape that the value *shape* holds."""
        # before opset 14 a size of 0 is always one that is copied
        zeros = {"allowzero": 1} if self.opset >= _ALLOWZERO else {}
        return self("Reshape", value, shape, attributes=zeros)

    def flat(self, value: str) -> str:
        """*value* in one dimension."""
        return self("Reshape", value, self.ints(-1))

    def split(self, value: str, parts: Sequence[str], axis: int) -> list[str]:
        """*value* cut along *axis* into pieces as large as *parts* are."""
        known = [_size(self.shape(part), axis) for part in parts]
        sizes = tuple(size for size in known if isinstance(size, int))
        at = {"axis": axis}
        if len(sizes) == len(parts):
            if self.opset < _AXES_ARE_INPUT:
                return self.several(
                    "Split", [value], len(parts), {**at, "split": sizes}
                )
            return self.several("Split", [value, self.ints(*sizes)], len(parts), at)
        self.need(_AXES_ARE_INPUT, "Split by sizes known only at run time")
        index = self.ints(axis)
        runtime = [self("Gather", self("Shape", part), index) for part in parts]
        together = self("Concat", *runtime, attributes={"axis": 0})
        return self.several("Split", [value, together], len(parts), at)

    def scatter_add(
        self,
        op_type: str,
        into: str,
        indices: str,
        updates: str,
        attributes: Mapping[str, Value] | None = None,
    ) -> str:
        """*into* with *updates* added, by ``ScatterND`` or ``ScatterElements``."""
        self.need(_ADDING_SCATTER, f"{op_type} with reduction")
        adding = {**(attributes or {}), "reduction": "add"}
        return self(op_type, into, indices, updates, attributes=adding)

    # broadcasting

    def sum_to(self, value: str, shape: Shape, like: str) -> str:
        """Undo broadcasting: *value* summed until it has the shape of *like*.

        Args:
            value: a tensor whose shape *like* broadcasts to.
            shape: what is known of the shape of *value*.
            like: a value that the graph has already.
        """
        return self.sum_to_shape(value, shape, like, self.shape(like))

    def sum_to_shape(self, value: str, shape: Shape, like: str, target: Shape) -> str:
        """As :meth:`sum_to`, where *target* is what is known of the shape of *like*."""
        axes = None if None in (shape, target) else _broadcast_axes(shape, target)
        if axes is None:
            return self._sum_at_run_time(value, like)
        leading = [axis for axis in axes if axis < len(shape or ()) - len(target or ())]
        if not axes:
            return value
        if axes == leading:
            return self.reduce_sum(value, axes, keepdims=False)
        summed = self.reduce_sum(value, axes)
        return self.squeeze(summed, leading) if leading else summed

    def _sum_at_run_time(self, value: str, like: str) -> str:
        """Compare the shapes when the model runs; where they differ *like*'s is 1."""
        self.need(_AXES_ARE_INPUT, "ReduceSum over axes known only at run time")
        shape, target = self("Shape", value), self("Shape", like)
        missing = self("Sub", self("Shape", shape), self("Shape", target))
        one = np.ones(1, np.int64)
        ones = self("ConstantOfShape", missing, attributes={"value": one})
        padded = self("Concat", ones, target, attributes={"axis": 0})
        axes = self.flat(self("NonZero", self("Not", self("Equal", padded, shape))))
        keep = {"keepdims": 1, "noop_with_empty_axes": 1}
        summed = self("ReduceSum", value, axes, attributes=keep)
        return self.reshape(summed, target)


@dataclass(frozen=True, slots=True)
class Step:
    """One node on the way back from the target.

    Attributes:
        emit: makes nodes.
        node: what is differentiated.
        gradients: for each output its gradient; ``None`` when it is zero.
        wanted: positions of the inputs whose gradient is needed.
    """

    emit: Emitter
    node: Node
    gradients: tuple[str | None, ...]
    wanted: frozenset[int]

    def x(self, position: int = 0) -> str:
        """The name of an input that the operator requires."""
        name = self.optional(position)
        if name is None:
            self.refuse(f"it has no input {position}")
        return name

    def optional(self, position: int) -> str | None:
        """The name of an input; ``None`` if left out."""
        return self.node.inputs[position] if position < len(self.node.inputs) else None

    @property
    def y(self) -> str:
        """The name of the first output."""
        name = self.node.outputs[0]
        if name is None:
            self.refuse("its first output is left out")
        return name

    @property
    def g(self) -> str:
        """The gradient of the first output."""
        gradient = self.gradients[0]
        if gradient is None:
            self.refuse("only another output than its first is used")
        return gradient

    def attribute(self, name: str, default: Any = None) -> Any:
        """The value of an attribute."""
        return self.node.attributes.get(name, default)

    def sum_to(self, value: str, position: int) -> str:
        """*value*, which has the output's shape, summed to that of an input."""
        emit = self.emit
        return emit.sum_to(value, emit.shape(self.y), self.x(position))

    def refuse(self, reason: str) -> NoReturn:
        """Raise :class:`UnsupportedModel` about the node."""
        self.emit.refuse(f"{describe(self.node)}: {reason}")


Build: TypeAlias = Callable[[Step], Mapping[int, str]]
"""Emits the gradients of (at least) the wanted inputs; a missing one is zero."""


@dataclass(frozen=True, slots=True)
class Rule:
    """How to differentiate an operator.

    Attributes:
        since: the first opset in which the operator has the meaning that is
            differentiated.
        build: see :data:`Build`.
        passes: positions of the inputs that the output depends on smoothly; ``None``:
            all.  Where only other inputs vary the gradient is zero.
    """

    since: int
    build: Build
    passes: tuple[int, ...] | None = None


def _broadcast_axes(shape: Shape, target: Shape) -> list[int] | None:
    """The axes over which *target* was broadcast to *shape*; None: depends on sizes."""
    assert shape is not None and target is not None
    missing = len(shape) - len(target)
    if missing < 0:
        return None
    axes = list(range(missing))
    for axis, (have, want) in enumerate(
        zip(shape[missing:], target, strict=True), missing
    ):
        if want == 1:
            if have != 1:  # if it turns out to be 1 the sum changes nothing
                axes.append(axis)
        elif not isinstance(want, int) and have != 1 and (want is None or have != want):
            return None
    return axes


def _size(shape: Shape, axis: int) -> Dimension:
    return (
        None if shape is None or not -len(shape) <= axis < len(shape) else shape[axis]
    )


def label(node: Node) -> str:
    """The node's name, or its operator where it has none."""
    return node.name or node.op_type
