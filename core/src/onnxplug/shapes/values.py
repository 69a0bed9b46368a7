"""Elements of small integer tensors, by the operators that exporters make shapes with.

A rule gives the content of a node's outputs, or None if nothing is known of it.
Elements that are booleans are 0 or 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, TypeAlias

from onnxplug.authoring.bounds import sliced_range
from onnxplug.authoring.sizes import (
    MOST_FOLLOWED,
    MOST_TERMS,
    Extent,
    Size,
    differ,
    is_natural,
    maximum,
    minimum,
    product,
    quotient,
)
from onnxplug.ep import DataType
from onnxplug.interruption import raise_interruption
from onnxplug.shapes.facts import (
    FEW,
    WRONG,
    Content,
    NodeCall,
    content_of,
)

Element: TypeAlias = Extent | None
Rule: TypeAlias = Callable[[NodeCall], "Content | Sequence[Content] | None"]

_RANGES: Final = {
    DataType.INT64: range(-(1 << 63), 1 << 63),
    DataType.INT32: range(-(1 << 31), 1 << 31),
    DataType.BOOL: range(2),
}


def contents(call: NodeCall) -> Sequence[Content] | None:
    """The contents of the outputs of *call*, if something is known of them."""
    if call.node.domain:
        return None
    rule = RULES.get(call.node.op_type)
    if rule is None:
        return None
    try:
        found = rule(call)
    except WRONG as error:
        raise_interruption(error)
        return None
    if found is None:
        return None
    several = (found,) if isinstance(found, Content) else found
    return [_kept(content) for content in several]


def _kept(content: Content) -> Content:
    """*content* without elements that are not worth following, or that wrap around."""
    values = _RANGES[content.dtype]
    if all(_is_kept(element, values) for element in content.elements):
        return content
    kept = (e if _is_kept(e, values) else None for e in content.elements)
    return content._replace(elements=tuple(kept))


def _is_kept(element: Element, values: range) -> bool:
    if isinstance(element, Size):
        return len(element.terms) <= MOST_TERMS and len(str(element)) <= MOST_FOLLOWED
    return element is None or values.start <= element < values.stop


def _vector(elements: Iterable[Element], dtype: DataType = DataType.INT64) -> Content:
    return Content(tuple(elements), False, dtype)


# sizes


def _shape(call: NodeCall) -> Content | None:
    shape = call.value().shape
    if shape is None:
        return None
    # start and end count from the back when negative and are clamped, as slices are
    return _vector(shape[call.attribute("start", 0) : call.attribute("end")])


def _size(call: NodeCall) -> Content | None:
    shape = call.value().shape
    return None if shape is None else Content((product(shape),), True, DataType.INT64)


# layout


def _same(call: NodeCall) -> Content | None:
    return call.content()


def _cast(call: NodeCall) -> Content | None:
    content = call.content()
    if content is None:
        return None
    if call.node.op_type == "CastLike":
        dtype = call.value(1).dtype
    else:
        dtype = DataType.from_onnx(call.attribute("to"))
    if dtype is DataType.BOOL:
        return content._replace(
            elements=tuple(map(_truth, content.elements)), dtype=dtype
        )
    return content._replace(dtype=dtype) if dtype in _RANGES else None


def _truth(element: Element) -> Element:
    if element is None or element == 0:
        return element
    return 1 if differ(element, 0) else None


def _gather(call: NodeCall) -> Content | None:
    content, chosen, indices = call.content(), call.numbers(1), call.content(1)
    if content is None or chosen is None or indices is None or content.is_scalar:
        return None
    picked = tuple(content.elements[index] for index in chosen)
    return Content(picked, indices.is_scalar, content.dtype)


def _slice(call: NodeCall) -> Content | None:
    content = call.content()
    if content is None or content.is_scalar:
        return None
    if call.opset < 10:
        (start,), (end,) = call.attribute("starts"), call.attribute("ends")
        return content._replace(elements=content.elements[start:end])
    starts, ends = call.numbers(1), call.numbers(2)
    steps = call.numbers(4) if call.has(4) else (1,)
    if starts is None or ends is None or steps is None:
        return None
    (start,), (end,), (step,) = starts, ends, steps
    taken = sliced_range(len(content.elements), start, end, step)
    return content._replace(elements=tuple(content.elements[at] for at in taken))


def _concat(call: NodeCall) -> Content | None:
    joined: list[Element] = []
    dtype = None
    for position in range(len(call.node.inputs)):
        content = call.content(position)
        if content is None:
            shape = call.value(position).shape
            if shape is None or len(shape) != 1 or not isinstance(shape[0], int):
                return None
            if shape[0] > FEW:
                return None
            joined += [None] * shape[0]
        elif content.is_scalar:
            return None
        else:
            joined += content.elements
            dtype = content.dtype
    if dtype is None or len(joined) > FEW:
        return None
    return _vector(joined, dtype)


def _split(call: NodeCall) -> Sequence[Content] | None:
    content = call.content()
    if content is None or content.is_scalar:
        return None
    outputs = len(call.node.outputs)
    parts = call.attribute("split") or (call.numbers(1) if call.has(1) else None)
    if parts is None:
        if call.has(1):
            return None
        size = -(-len(content.elements) // outputs)
        parts = [size] * outputs
    if min(parts, default=0) < 0:
        return None
    found = []
    at = 0
    for part in parts:
        found.append(content._replace(elements=content.elements[at : at + part]))
        at += part
    return found


def _unsqueeze(call: NodeCall) -> Content | None:
    content = call.content()
    if content is None or not content.is_scalar:
        return None
    axes = call.axes(1)
    return content._replace(is_scalar=False) if axes and len(axes) == 1 else None


def _squeeze(call: NodeCall) -> Content | None:
    content = call.content()
    if content is None or content.is_scalar or len(content.elements) != 1:
        return None
    axes = call.axes(1, ())
    return None if axes is None else content._replace(is_scalar=True)


def _reshape(call: NodeCall) -> Content | None:
    content = call.content()
    target = call.attribute("shape") if call.opset < 5 else call.numbers(1)
    if content is None or target is None or len(target) > 1:
        return None
    if target and target[0] not in (-1, len(content.elements)):
        return None
    return content._replace(is_scalar=not target)


def _constant(call: NodeCall) -> Content | None:
    single, several = call.attribute("value_int"), call.attribute("value_ints")
    if single is not None:
        return Content((single,), True, DataType.INT64)
    if several is not None:
        return _vector(several) if len(several) <= FEW else None
    value = call.attribute("value")
    return None if value is None else content_of(value)


def _constant_of_shape(call: NodeCall) -> Content | None:
    counts = call.numbers(0)
    if counts is None or len(counts) > 1 or not 0 <= max(counts, default=1) <= FEW:
        return None
    value = call.attribute("value")
    if value is None:
        return None  # zeros of float32
    if value.dtype not in _RANGES:
        return None
    element = int(value.array.reshape(-1)[0])
    return Content((element,) * math.prod(counts), not counts, value.dtype)


def _expand(call: NodeCall) -> Content | None:
    content, counts = call.content(), call.numbers(1)
    if content is None or counts is None or len(counts) > 1:
        return None
    if not counts or counts[0] == len(content.elements):
        return content._replace(is_scalar=not counts and content.is_scalar)
    if len(content.elements) != 1 or not 0 <= counts[0] <= FEW:
        return content if counts[0] == 1 else None
    return content._replace(elements=content.elements * counts[0], is_scalar=False)


def _range(call: NodeCall) -> Content | None:
    bounds = [call.numbers(position) for position in range(3)]
    dtype = call.content().dtype if call.content() else None  # type: ignore[union-attr]
    if None in bounds or dtype is None:
        return None
    (start,), (limit,), (step,) = bounds  # type: ignore[misc]
    values = range(start, limit, step)
    return _vector(values, dtype) if len(values) <= FEW else None


# arithmetic


def _elementwise(
    operation: Callable[..., Element], call: NodeCall, dtype: DataType | None = None
) -> Content | None:
    operands = [call.content(position) for position in range(len(call.node.inputs))]
    if call.opset < 7 and len(operands) > 1:  # another kind of broadcasting
        return None
    found: list[Content] = []
    for operand in operands:
        if operand is None:
            return None
        found.append(operand)
    lengths = {len(o.elements) for o in found if not o.is_scalar}
    if len(lengths - {1}) > 1:
        return None
    count = next(iter(lengths - {1}), 1)
    columns = [
        o.elements * count if len(o.elements) == 1 else o.elements for o in found
    ]
    if any(len(column) != count for column in columns):
        return None
    results = tuple(operation(*row) for row in zip(*columns, strict=True))
    return Content(results, all(o.is_scalar for o in found), dtype or found[-1].dtype)


def _strictly(operation: Callable[..., Element], *operands: Element) -> Element:
    """The result of an operation of which all operands have to be known."""
    return None if None in operands else operation(*operands)


def _divided(one: Extent, other: Extent) -> Element:
    if isinstance(one, int) and isinstance(other, int):
        if other == 0:
            return None
        size = abs(one) // abs(other)  # rounds towards 0
        return size if (one < 0) == (other < 0) else -size
    if not isinstance(other, int) or other <= 0:
        return None
    if is_natural(one):
        return quotient(one, other)
    # towards 0, so what is below 0 is divided for itself
    above, below = maximum(one, 0), maximum(-one, 0)
    if above is None or below is None:
        return None
    whole, lacking = quotient(above, other), quotient(below, other)
    if whole is None or lacking is None:
        return None
    return whole if is_natural(one + (other - 1)) else whole - lacking


def _mod(call: NodeCall) -> Content | None:
    def remainder(one: Extent, other: Extent) -> Element:
        if not isinstance(other, int) or other <= 0:
            return None
        if call.attribute("fmod", 0) and not is_natural(one):
            return None
        whole = quotient(one, other)
        return None if whole is None else one - whole * other

    return _elementwise(partial(_strictly, remainder), call)


def _folded(
    operation: Callable[[Extent, Extent], Element], *operands: Element
) -> Element:
    result, *rest = operands
    for operand in rest:
        if result is None or operand is None:
            return None
        result = operation(result, operand)
    return result


def _reduced(
    operation: Callable[[Extent, Extent], Element], call: NodeCall
) -> Content | None:
    content = call.content()
    if content is None or content.is_scalar or not content.elements:
        return None
    axes = call.axes(1, ())
    if axes is None or (not axes and call.attribute("noop_with_empty_axes", 0)):
        return None
    result = _folded(operation, *content.elements)
    return Content((result,), not call.attribute("keepdims", 1), content.dtype)


def _equal(one: Extent, other: Extent) -> Element:
    if one == other:
        return 1
    return 0 if differ(one, other) else None


def _greater(one: Extent, other: Extent) -> Element:
    if is_natural(one - other - 1):
        return 1
    return 0 if is_natural(other - one) else None


def _less(one: Extent, other: Extent) -> Element:
    return _greater(other, one)


def _not(one: Element) -> Element:
    return None if one is None else 1 - one


def _greater_or_equal(one: Extent, other: Extent) -> Element:
    return _not(_greater(other, one))


def _less_or_equal(one: Extent, other: Extent) -> Element:
    return _not(_greater(one, other))


def _and(one: Element, other: Element) -> Element:
    if one == 0 or other == 0:
        return 0
    return 1 if one == 1 and other == 1 else None


def _or(one: Element, other: Element) -> Element:
    return _not(_and(_not(one), _not(other)))


def _where(call: NodeCall) -> Content | None:
    def chosen(condition: Element, one: Element, other: Element) -> Element:
        if condition is None:
            return one if one == other else None
        return one if condition == 1 else other

    return _elementwise(chosen, call)


def _strict(operation: Callable[..., Element]) -> Rule:
    return partial(_elementwise, partial(_strictly, operation))


def _compares(operation: Callable[..., Element]) -> Rule:
    return partial(_elementwise, partial(_strictly, operation), dtype=DataType.BOOL)


def _add(one: Extent, other: Extent) -> Extent:
    return one + other


def _multiply(one: Extent, other: Extent) -> Extent:
    return one * other


RULES: Final[dict[str, Rule]] = {
    "Abs": _strict(lambda one: one if is_natural(one) else _absolute(one)),
    "Add": _strict(_add),
    "And": partial(_elementwise, _and),
    "Cast": _cast,
    "CastLike": _cast,
    "Concat": _concat,
    "Constant": _constant,
    "ConstantOfShape": _constant_of_shape,
    "Div": _strict(_divided),
    "Equal": _compares(_equal),
    "Expand": _expand,
    "Gather": _gather,
    "Greater": _compares(_greater),
    "GreaterOrEqual": _compares(_greater_or_equal),
    "Identity": _same,
    "Less": _compares(_less),
    "LessOrEqual": _compares(_less_or_equal),
    "Max": partial(_elementwise, partial(_folded, maximum)),
    "Min": partial(_elementwise, partial(_folded, minimum)),
    "Mod": _mod,
    "Mul": _strict(_multiply),
    "Neg": _strict(lambda one: -one),
    "Not": partial(_elementwise, _not),
    "Or": partial(_elementwise, _or),
    "Range": _range,
    "ReduceMax": partial(_reduced, maximum),
    "ReduceMin": partial(_reduced, minimum),
    "ReduceProd": partial(_reduced, _multiply),
    "ReduceSum": partial(_reduced, _add),
    "Reshape": _reshape,
    "Shape": _shape,
    "Size": _size,
    "Slice": _slice,
    "Split": _split,
    "Squeeze": _squeeze,
    "Sub": _strict(lambda one, other: one - other),
    "Sum": partial(_elementwise, partial(_folded, _add)),
    "Unsqueeze": _unsqueeze,
    "Where": _where,
}


def _absolute(one: Extent) -> Element:
    return -one if is_natural(-one) else None
