"""Types of what control flow gives out, and of what its bodies are given.

A name that is made up within a body may leave it: results that are joined have to be
of one shape.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from onnxplug.ep import DataType
from onnxplug.graph import Graph
from onnxplug.prepare.symbolic.dimension import Extent
from onnxplug.prepare.symbolic.facts import UNKNOWN, Facts, NodeCall, Value, normal_axis

Follow: TypeAlias = Callable[[Graph, Sequence[Value]], Facts]
"""Reads a body that is given values of such types."""


def control_flow(call: NodeCall, follow: Follow) -> Sequence[Value] | None:
    """The types of a node's outputs, once its bodies are read."""
    rule = _RULES.get(call.node.op_type)
    if rule is None or call.node.domain:
        for body in call.node.subgraphs.values():
            follow(body, [UNKNOWN] * len(body.inputs))
        return None
    return rule(call, follow)


def _if(call: NodeCall, follow: Follow) -> Sequence[Value]:
    branches = []
    for body in call.node.subgraphs.values():
        facts = follow(body, ())
        branches.append([facts.value(name) for name in body.outputs])
    return [_either(call, values) for values in zip(*branches, strict=True)]


def _either(call: NodeCall, values: Sequence[Value]) -> Value:
    dtypes = {value.dtype for value in values}
    dtype = dtypes.pop() if len(dtypes) == 1 else None
    shapes = [value.shape for value in values if value.shape is not None]
    if len(shapes) < len(values) or len({len(shape) for shape in shapes}) > 1:
        return Value(dtype)
    return Value(
        dtype,
        tuple(
            column[0] if all(size == column[0] for size in column) else call.fresh()
            for column in zip(*shapes, strict=True)
        ),
    )


def _loop(call: NodeCall, follow: Follow) -> Sequence[Value]:
    (body,) = call.node.subgraphs.values()
    given = [call.value(position) for position in range(2, len(call.node.inputs))]
    # the shape of a state may be another each time
    states = [Value(value.dtype) for value in given]
    scalars = [Value(DataType.INT64, ()), Value(DataType.BOOL, ())]
    facts = follow(body, [*scalars, *states])
    made = [facts.value(name) for name in body.outputs[1:]]
    results = []
    for position, value in enumerate(made):
        if position < len(states):
            results.append(_state(call, given[position], value))
        elif value.shape is None:
            results.append(Value(value.dtype))
        else:
            results.append(Value(value.dtype, (call.fresh(), *value.shape)))
    return results


def _state(call: NodeCall, first: Value, last: Value) -> Value:
    """A state after any number of runs, none included."""
    dtype = first.dtype if first.dtype == last.dtype else None
    if first.shape is None or last.shape is None or len(first.shape) != len(last.shape):
        return Value(dtype)
    return Value(
        dtype,
        tuple(
            one if one == other else call.fresh()
            for one, other in zip(first.shape, last.shape, strict=True)
        ),
    )


def _scan(call: NodeCall, follow: Follow) -> Sequence[Value] | None:
    (body,) = call.node.subgraphs.values()
    if call.opset < 9:  # has a batch
        follow(body, [UNKNOWN] * len(body.inputs))
        return None
    count = call.attribute("num_scan_inputs")
    states = len(call.node.inputs) - count
    axes = call.attribute("scan_input_axes") or (0,) * count
    given = [Value(call.value(position).dtype) for position in range(states)]
    length: Extent | None = None
    for position, axis in enumerate(axes, states):
        dtype, shape = call.value(position)
        if shape is None:
            given.append(Value(dtype))
            continue
        axis = normal_axis(axis, len(shape))
        length = shape[axis]
        given.append(Value(dtype, shape[:axis] + shape[axis + 1 :]))
    facts = follow(body, given)
    made = [facts.value(name) for name in body.outputs]
    results = [
        _state(call, call.value(position), value)
        for position, value in enumerate(made[:states])
    ]
    scanned = made[states:]
    for (dtype, shape), axis in zip(
        scanned,
        call.attribute("scan_output_axes") or (0,) * len(scanned),
        strict=True,
    ):
        if shape is None:
            results.append(Value(dtype))
            continue
        axis = normal_axis(axis, len(shape) + 1)
        repeats = call.fresh() if length is None else length
        results.append(Value(dtype, (*shape[:axis], repeats, *shape[axis:])))
    return results


_RULES: Final = {"If": _if, "Loop": _loop, "Scan": _scan}
