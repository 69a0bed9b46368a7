"""Operators that keep some elements: which ones, and how many, they themselves say."""

from __future__ import annotations

import math

import numpy as np

from onnxplug.authoring.bounds import normal_axis
from onnxplug.ep import DataType, TensorFacts
from onnxplug_compiler.frontend.call import Call, NotCompiled
from onnxplug_compiler.ir.selection import Limits
from onnxplug_compiler.ir.target import Support
from onnxplug_compiler.ir.views import View
from onnxplug_compiler.schedule.operations.registry import (
    Dtypes,
    Extent,
    Facts,
    Inputs,
    Operation,
    Plan,
    Results,
    computed,
    given,
    moved,
    register,
)

_MOST_BYTES = 1 << 28
"""Of an output, as large as it can be."""

_COUNT = TensorFacts(DataType.INT64, (1,))
_I64 = np.dtype(np.int64)


def _largest(dtype: DataType | None, *shape: int) -> list[TensorFacts]:
    """An output of one shape at most, and how many places it has.

    Raises:
        ValueError: it would take too much memory, of which perhaps little is used.
    """
    itemsize = 8 if dtype is None else dtype.numpy.itemsize
    if math.prod(shape) * itemsize > _MOST_BYTES:
        raise ValueError(f"{math.prod(shape)} elements may be kept")
    return [TensorFacts(dtype, shape), _COUNT]


def _first(facts: Facts, position: int = 0) -> TensorFacts:
    found = facts[position]
    assert found is not None
    return found


# NonMaxSuppression


def _suppressed(call: Call, facts: Facts) -> list[TensorFacts]:
    images, classes, boxes = _first(facts, 1).shape
    return _largest(DataType.INT64, images * classes * _most(facts, boxes), 3)


def _most(facts: Facts, boxes: int) -> int:
    """How many boxes of a class can be selected."""
    limit = facts[2] if len(facts) > 2 else None
    if limit is None:
        return 0
    if limit.content is None or not limit.content.size:
        return boxes
    return max(0, min(boxes, int(limit.content.reshape(-1)[0])))


def _check_suppression(call: Call, inputs: Inputs, results: Results) -> None:
    boxes, scores = given(inputs).shape, given(inputs, 1).shape
    if (
        len(boxes) != 3
        or len(scores) != 3
        or boxes[2] != 4
        or scores[::2] != boxes[:2]
        or any(value is not None and value.size != 1 for value in inputs[2:])
    ):
        raise NotCompiled(f"boxes {boxes} and scores {scores}", call)


def _record_suppression(plan: Plan, call: Call) -> None:
    boxes, scores, output, count = *call.inputs[:2], *call.outputs
    assert boxes is not None and scores is not None
    assert output is not None and count is not None
    limits = Limits(
        _limit(plan, call, 2, np.int64(0)),
        _limit(plan, call, 3, np.float32(0)),
        _limit(plan, call, 4, np.float32(-math.inf)),
    )
    plan.recorder.target.selection.record_suppression(
        plan.recorder,
        plan.view(boxes),
        plan.view(scores),
        limits,
        plan.destination(output),
        plan.destination(count),
        centers=bool(call.attributes.get("center_point_box", 0)),
    )


def _limit(plan: Plan, call: Call, position: int, default: np.generic) -> View:
    name = call.input(position)
    if name is not None:
        return plan.view(name)
    return plan.recorder.constant(np.asarray(default))


def _accepts_suppression(call: Call, dtypes: Dtypes, target: Support) -> str | None:
    return computed(call, dtypes[:2], target)


register(
    "NonMaxSuppression",
    Operation(
        _record_suppression,
        _accepts_suppression,
        _check_suppression,
        extent=Extent(_suppressed, lambda call: (0,)),
    ),
)


# NonZero


def _places(call: Call, facts: Facts) -> list[TensorFacts]:
    shape = _first(facts).shape
    return _largest(DataType.INT64, len(shape), math.prod(shape))


def _check_places(call: Call, inputs: Inputs, results: Results) -> None:
    if not given(inputs).shape:
        raise NotCompiled("NonZero of a scalar", call)


def _record_places(plan: Plan, call: Call) -> None:
    x, (output, count) = call.inputs[0], call.outputs
    assert x is not None and output is not None and count is not None
    plan.recorder.target.selection.record_non_zero(
        plan.recorder, plan.view(x), plan.destination(output), plan.destination(count)
    )


register(
    "NonZero",
    Operation(
        _record_places,
        moved,
        _check_places,
        extent=Extent(_places, lambda call: (1,)),
    ),
)


# Compress


def _compressed(call: Call, facts: Facts) -> list[TensorFacts]:
    x, condition = _first(facts), _first(facts, 1)
    count = math.prod(condition.shape)
    axis = call.attributes.get("axis")
    if axis is None:
        return _largest(x.dtype, count)
    place = normal_axis(int(axis), len(x.shape))
    return _largest(x.dtype, *x.shape[:place], count, *x.shape[place + 1 :])


def _along(call: Call) -> tuple[int | None, ...]:
    axis = call.attributes.get("axis")
    return (0 if axis is None else int(axis),)


def _check_compress(call: Call, inputs: Inputs, results: Results) -> None:
    x, condition = given(inputs), given(inputs, 1)
    axis = call.attributes.get("axis")
    size = x.size
    if axis is not None:
        size = x.shape[normal_axis(int(axis), len(x.shape))]
    if len(condition.shape) != 1 or condition.shape[0] > size:
        raise NotCompiled(f"a condition {condition.shape} for {size}", call)


def _record_compress(plan: Plan, call: Call) -> None:
    source, condition, (output, count) = *call.inputs, call.outputs
    assert source is not None and condition is not None
    assert output is not None and count is not None
    x, axis = plan.contiguous(plan.view(source)), call.attributes.get("axis")
    shape = (1, x.size, 1)
    if axis is not None:
        place = normal_axis(int(axis), len(x.shape))
        sizes = math.prod(x.shape[:place]), math.prod(x.shape[place + 1 :])
        shape = (sizes[0], x.shape[place], sizes[1])
    parts = x.reshape(shape)
    assert parts is not None
    plan.recorder.target.selection.record_compress(
        plan.recorder,
        parts,
        plan.view(condition),
        plan.destination(output),
        plan.destination(count),
    )


def _accepts_compress(call: Call, dtypes: Dtypes, target: Support) -> str | None:
    return moved(call, dtypes[:1], target)


register(
    "Compress",
    Operation(
        _record_compress,
        _accepts_compress,
        _check_compress,
        extent=Extent(_compressed, _along),
    ),
)


# Unique


def _distinct(call: Call, facts: Facts) -> list[TensorFacts]:
    x = _first(facts)
    size = math.prod(x.shape)
    values, count = _largest(x.dtype, size)
    places = TensorFacts(DataType.INT64, (size,))
    return [*[values, places, places, places][: len(call.outputs)], count]


def _record_distinct(plan: Plan, call: Call) -> None:
    source, count = call.inputs[0], call.outputs[-1]
    assert source is not None and count is not None
    whole = plan.contiguous(plan.view(source))
    x = whole.reshape((whole.size,))
    assert x is not None
    found: list[View] = []
    for position in range(4):
        name = call.output(position) if position < len(call.outputs) - 1 else None
        if name is not None:
            found.append(plan.destination(name))
        else:
            dtype = _I64 if position else x.dtype
            found.append(plan.recorder.temporary(dtype, x.shape))
    values, firsts, inverse, counts = found
    plan.recorder.target.selection.record_distinct(
        plan.recorder, x, values, firsts, inverse, counts, plan.destination(count)
    )


def _accepts_distinct(call: Call, dtypes: Dtypes, target: Support) -> str | None:
    if call.attributes.get("axis") is not None:
        return "Unique is not compiled along an axis"
    if not call.attributes.get("sorted", 1):
        return "Unique is not compiled in the order of the input"
    return moved(call, dtypes, target)


register(
    "Unique",
    Operation(
        _record_distinct,
        _accepts_distinct,
        any_output=True,
        extent=Extent(_distinct, lambda call: (0, 0, None, 0)),
    ),
)
