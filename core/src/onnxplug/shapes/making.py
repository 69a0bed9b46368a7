"""Types of what operators make from sizes, from chance, or from their attributes."""

from __future__ import annotations

import math
from typing import Final

from onnxplug.authoring.bounds import at_least, normal_axis, sizes
from onnxplug.authoring.sizes import (
    Extent,
    exact_quotient,
    is_natural,
    maximum,
    quotient,
)
from onnxplug.ep import DataType
from onnxplug.shapes.elementwise import Rule
from onnxplug.shapes.facts import (
    NodeCall,
    Value,
    check_known,
    countable,
)

_FLOAT = DataType.FLOAT32

_CONSTANTS: Final = {
    "value_float": (_FLOAT, False),
    "value_floats": (_FLOAT, True),
    "value_int": (DataType.INT64, False),
    "value_ints": (DataType.INT64, True),
    "value_string": (DataType.STRING, False),
    "value_strings": (DataType.STRING, True),
}
"""Attributes of a Constant to its element type, and whether it is a vector."""


def _constant(call: NodeCall) -> Value | None:
    value = call.attribute("value")
    if value is not None:
        return Value(value.dtype, value.shape)
    sparse = call.attribute("sparse_value")
    if sparse is not None:
        return Value(DataType.from_numpy(sparse.values.dtype), tuple(sparse.shape))
    for name, (dtype, is_vector) in _CONSTANTS.items():
        found = call.attribute(name)
        if found is not None:
            return Value(dtype, (len(found),) if is_vector else ())
    return None


def _constant_of_shape(call: NodeCall) -> Value:
    value = call.attribute("value")
    dtype = _FLOAT if value is None else value.dtype
    content = call.content(0)
    if content is None:
        return Value(dtype, call.fresh_shape(call.length(0)))
    check_known(0, content.elements, "the shape")
    shape = tuple(
        call.fresh() if size is None or (found := maximum(size, 0)) is None else found
        for size in content.elements  # less than 0 is an error
    )
    return Value(dtype, countable(shape, "the shape"))


def _range(call: NodeCall) -> Value:
    dtype = call.value().dtype or call.value(1).dtype
    contents = [call.content(position) for position in range(3)]
    if None not in contents:
        start, limit, step = (c.elements[0] for c in contents if c)
        if start is not None and limit is not None and isinstance(step, int):
            if step < 0:
                start, limit, step = -start, -limit, -step
            steps = quotient(limit - start + (step - 1), step)
            count = None if steps is None else maximum(steps, 0)
            if count is not None:
                return Value(dtype, (count,))
        elif start == 0 and limit is not None and step is not None:
            count = exact_quotient(limit, step)
            if count is not None and is_natural(count):
                return Value(dtype, (count,))
    constants = [call.constant(position) for position in range(3)]
    if None in contents and all(c is not None and c.size == 1 for c in constants):
        start, limit, step = (c.item() for c in constants if c is not None)
        span = (limit - start) / step
        if math.isfinite(span):
            return Value(dtype, (max(math.ceil(span), 0),))
    return Value(dtype, (call.fresh(),))


def _one_hot(call: NodeCall) -> Value:
    shape, depth = call.value().shape, call.content(1)
    dtype = call.value(2).dtype
    size: Extent | None
    if depth is not None:
        size = depth.elements[0]
    else:
        constant = call.constant(1)  # depth may be of any type
        size = None if constant is None else int(constant.item())
    check_known(0, (size,), "depth")
    if shape is None:
        return Value(dtype)
    axis = normal_axis(call.attribute("axis", -1), len(shape) + 1)
    size = call.fresh() if size is None or not is_natural(size) else size
    return Value(dtype, (*shape[:axis], size, *shape[axis:]))


def _eye_like(call: NodeCall) -> Value:
    return Value(call.dtype("dtype") or call.value().dtype, call.value().shape)


def _random(call: NodeCall) -> Value:
    return Value(call.dtype("dtype", _FLOAT.onnx), sizes(call.attribute("shape")))


def _random_like(call: NodeCall) -> Value:
    return Value(call.dtype("dtype") or call.value().dtype, call.value().shape)


def _multinomial(call: NodeCall) -> Value:
    shape = call.value().shape
    (count,) = at_least(0, (call.attribute("sample_size", 1),), "sample_size")
    dtype = call.dtype("dtype", DataType.INT32.onnx)
    return Value(dtype, (call.fresh() if not shape else shape[0], count))


RULES: Final[dict[str, Rule]] = {
    "Bernoulli": _random_like,
    "Constant": _constant,
    "ConstantOfShape": _constant_of_shape,
    "EyeLike": _eye_like,
    "Multinomial": _multinomial,
    "OneHot": _one_hot,
    "RandomNormal": _random,
    "RandomNormalLike": _random_like,
    "RandomUniform": _random,
    "RandomUniformLike": _random_like,
    "Range": _range,
}
