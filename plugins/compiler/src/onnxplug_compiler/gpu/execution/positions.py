"""Slices whose start the device alone has to know, as those of tables of positions.

``Slice(data, start, start + size)`` is planned without its start where the model states
that its result has this size: else a plan would be made for each start.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from onnxplug_compiler.frontend.call import Call


def without_starts(
    partition: Any, calls: Sequence[Call], varies: Callable[[str], bool]
) -> list[Call]:
    """*calls* with such slices as calls of ``Window``.

    Args:
        partition: an ``ep.Partition``, or what has its ``graph`` and ``value``.
        varies: whether the content of a value does not follow from shapes.
    """
    made = {name: call for call in calls for name in call.outputs if name}
    return [
        (_window(partition, call, made, varies) if _has_start(call) else None) or call
        for call in calls
    ]


def _has_start(call: Call) -> bool:
    return call.op_type == "Slice" and not call.domain and call.input(2) is not None


def _window(
    partition: Any,
    call: Call,
    made: Mapping[str, Call],
    varies: Callable[[str], bool],
) -> Call | None:
    data, start, end = call.inputs[:3]
    output = call.outputs[0]
    assert data is not None and start is not None and end is not None
    assert output is not None
    axis = _number(partition, call.input(3), 0)
    shape, stated = partition.value(data).shape, partition.value(output).shape
    if axis is None or _number(partition, call.input(4), 1) != 1:
        return None
    if shape is None or stated is None or not -len(shape) <= axis < len(shape):
        return None
    size = _distance(partition, start, made.get(end))
    one = partition.value(start).shape
    if (
        size is None
        or size < 1
        or stated[axis % len(shape)] != size
        or one is None
        or len(one) > 1
        or not varies(start)
    ):
        return None
    axis %= len(shape)
    return Call(
        "Window",
        "",
        call.version,
        (data, start),
        call.outputs,
        {"axis": axis, "size": size},
        call.nodes,
        call.dtypes,
        functools.partial(_taken, axis, size),
    )


def _number(partition: Any, name: str | None, default: int) -> int | None:
    """A constant of one element; ``None`` if *name* is none."""
    if name is None:
        return default
    content = partition.graph.constant(name)
    if content is None or content.size != 1 or content.dtype.kind not in "iu":
        return None
    return int(content.reshape(-1)[0])


def _distance(partition: Any, start: str, end: Call | None) -> int | None:
    """What *end* adds to *start*."""
    if end is None or end.op_type != "Add" or end.domain or start not in end.inputs:
        return None
    one, other = end.inputs
    return _number(partition, other if one == start else one, 0)


def _taken(axis: int, size: int, data: Any, start: Any) -> Any:
    """The window on arrays."""
    first, places = int(start.reshape(-1)[0]), data.shape[axis]
    # both ends count from the back, or none
    begin = first + places if first + size < 0 else first
    if not 0 <= begin <= places - size:
        raise IndexError(
            f"Slice begins at {first}, and {size} of {places} places are not behind "
            "that"
        )
    return np.take(data, range(begin, begin + size), axis)
