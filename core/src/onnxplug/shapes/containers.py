"""Types of sequences and optionals, and of what is taken out of them.

An element of a sequence may be of another size than the next, which ``None`` stands
for; one taken out has a size of which nothing is known.
"""

from __future__ import annotations

from functools import reduce
from typing import Final

from onnxplug.authoring.bounds import normal_axis
from onnxplug.ep import DataType, OptionalType, SequenceType, TensorType
from onnxplug.shapes.elementwise import Rule
from onnxplug.shapes.facts import (
    UNKNOWN,
    Fact,
    NodeCall,
    Shape,
    Value,
    check_known,
)
from onnxplug.shapes.stated import joined


def _sequence_empty(call: NodeCall) -> Fact:
    return SequenceType(TensorType(call.dtype("dtype", DataType.FLOAT32.onnx)))


def _sequence_construct(call: NodeCall) -> Fact:
    types = [call.type(position) for position in range(len(call.node.inputs))]
    return SequenceType(reduce(joined, types))


def _sequence_insert(call: NodeCall) -> Fact:
    sequence = call.fact()
    if not isinstance(sequence, SequenceType):
        return UNKNOWN
    return SequenceType(joined(sequence.element, call.type(1)))


def _sequence_erase(call: NodeCall) -> Fact:
    return call.fact()


def _sequence_at(call: NodeCall) -> Fact:
    sequence = call.fact()
    if not isinstance(sequence, SequenceType):
        return UNKNOWN
    return call.scope.fact(sequence.element)


def _sequence_length(call: NodeCall) -> Fact:
    return Value(DataType.INT64, ())


def _split_to_sequence(call: NodeCall) -> Fact:
    dtype, shape = call.value()
    if shape is None:
        return SequenceType(TensorType(dtype))
    axis = call.axis(len(shape), 0)
    sizes = list(map(call.scope.write, shape))
    element: list[int | str | None] = [*sizes]
    element[axis] = _part(call)
    if not call.has(1) and not call.attribute("keepdims", 1):
        del element[axis]
    return SequenceType(TensorType(dtype, tuple(element)))


def _part(call: NodeCall) -> int | None:
    """The size of each part of a SplitToSequence, if all have one."""
    if not call.has(1):
        return 1
    content = call.content(1)
    if content is None or content.is_scalar:  # the last part may be smaller
        check_known(1, content.elements if content else (), "split")
        return None
    check_known(0, content.elements, "split")
    sizes = set(content.elements)
    size = sizes.pop() if len(sizes) == 1 else None
    return size if isinstance(size, int) else None


def _concat_from_sequence(call: NodeCall) -> Fact:
    sequence = call.fact()
    if not isinstance(sequence, SequenceType):
        return UNKNOWN
    element = call.scope.fact(sequence.element)
    if not isinstance(element, Value):
        return UNKNOWN
    dtype, shape = element
    if shape is None:
        return Value(dtype)
    axis = call.attribute("axis")
    if call.attribute("new_axis", 0):
        axis = normal_axis(axis, len(shape) + 1)
        return Value(dtype, (*shape[:axis], call.fresh(), *shape[axis:]))
    axis = normal_axis(axis, len(shape))
    joint: Shape = (*shape[:axis], call.fresh(), *shape[axis + 1 :])
    return Value(dtype, joint)


def _optional(call: NodeCall) -> Fact:
    if not call.has(0):
        return OptionalType(call.attribute("type"))
    return OptionalType(call.type())


def _optional_has_element(call: NodeCall) -> Fact:
    return Value(DataType.BOOL, ())


def _optional_get_element(call: NodeCall) -> Fact:
    fact = call.fact()
    # since opset 18 what is no optional is its own element
    return call.scope.fact(fact.element) if isinstance(fact, OptionalType) else fact


RULES: Final[dict[str, Rule]] = {
    "ConcatFromSequence": _concat_from_sequence,
    "Optional": _optional,
    "OptionalGetElement": _optional_get_element,
    "OptionalHasElement": _optional_has_element,
    "SequenceAt": _sequence_at,
    "SequenceConstruct": _sequence_construct,
    "SequenceEmpty": _sequence_empty,
    "SequenceErase": _sequence_erase,
    "SequenceInsert": _sequence_insert,
    "SequenceLength": _sequence_length,
    "SplitToSequence": _split_to_sequence,
}
