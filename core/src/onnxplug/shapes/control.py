"""Types of what control flow gives out, and of what its bodies are given.

A name that is made up within a body may leave it: results that are joined have to be
of one shape.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from onnxplug.authoring.bounds import OutOfBounds, normal_axis
from onnxplug.authoring.generated import GENERATED
from onnxplug.authoring.sizes import Extent
from onnxplug.ep import DataType, SequenceType
from onnxplug.graph import Graph, Node
from onnxplug.shapes.attention import attended, softmax_dtype
from onnxplug.shapes.facts import UNKNOWN, Fact, Facts, NodeCall, Value
from onnxplug.shapes.stated import joined, without_names, without_shapes

Follow: TypeAlias = Callable[[Graph, Sequence[Fact]], Facts]
"""Reads a body that is given values of such types."""


def has_bodies(node: Node) -> bool:
    """Whether a node is of an operator that has bodies, though it may have none."""
    return (node.domain, node.op_type) in RULES


def control_flow(call: NodeCall, follow: Follow) -> Sequence[Fact] | None:
    """The types of a node's outputs, once its bodies are read."""
    rule = RULES.get((call.node.domain, call.node.op_type))
    if rule is None:
        for body in call.node.subgraphs.values():
            follow(body, [UNKNOWN] * len(body.inputs))
        return None
    return rule(call, follow)


def _if(call: NodeCall, follow: Follow) -> Sequence[Fact]:
    branches = []
    for body in call.node.subgraphs.values():
        facts = follow(body, ())
        branches.append([facts.fact(name) for name in body.outputs])
    return [_either(call, facts) for facts in zip(*branches, strict=True)]


def _either(call: NodeCall, facts: Sequence[Fact]) -> Fact:
    """What is known of a value that is one of several."""
    first, *others = facts
    for other in others:
        if isinstance(first, Value) and isinstance(other, Value):
            first = _either_tensor(call, first, other)
        else:
            stated = call.scope.stated
            first = call.scope.fact(joined(stated(first), stated(other)))
    return first


def _either_tensor(call: NodeCall, one: Value, other: Value) -> Value:
    dtype = one.dtype if one.dtype == other.dtype else None
    if one.shape is None or other.shape is None or len(one.shape) != len(other.shape):
        return Value(dtype)
    return Value(
        dtype,
        tuple(
            size if size == found else call.fresh()
            for size, found in zip(one.shape, other.shape, strict=True)
        ),
    )


def _repeated(call: NodeCall, fact: Fact) -> Fact:
    """*fact* of a body that is run again and again, as is known outside.

    Elements of a sequence may be of other sizes each time.
    """
    if isinstance(fact, Value):
        return fact
    return call.scope.fact(without_names(fact, GENERATED))


def _of_any_shape(call: NodeCall, fact: Fact) -> Fact:
    """*fact* without what may be another each time that a body is run."""
    scope = call.scope
    return scope.fact(without_shapes(scope.stated(fact)))


def _loop(call: NodeCall, follow: Follow) -> Sequence[Fact]:
    (body,) = call.node.subgraphs.values()
    given = [call.fact(position) for position in range(2, len(call.node.inputs))]
    scalars = [Value(DataType.INT64, ()), Value(DataType.BOOL, ())]
    states = [_of_any_shape(call, fact) for fact in given]
    facts = follow(body, [*scalars, *states])
    made = [facts.fact(name) for name in body.outputs[1:]]
    results: list[Fact] = []
    for position, fact in enumerate(made):
        if position < len(given):
            results.append(_either(call, [given[position], _repeated(call, fact)]))
        elif isinstance(fact, Value):
            results.append(_stacked(fact, 0, call.fresh()))
        else:
            results.append(UNKNOWN)
    return results


def _stacked(value: Value, axis: int, count: Extent) -> Value:
    """*count* tensors along a new axis."""
    dtype, shape = value
    if shape is None:
        return Value(dtype)
    axis = normal_axis(axis, len(shape) + 1, "one of scan_output_axes")
    return Value(dtype, (*shape[:axis], count, *shape[axis:]))


def _scan(call: NodeCall, follow: Follow) -> Sequence[Fact] | None:
    (body,) = call.node.subgraphs.values()
    batched = call.opset < 9  # and has an input of lengths before all others
    lead = 1 if batched else 0
    count = call.attribute("num_scan_inputs")
    states = len(call.node.inputs) - count - lead
    if count < 1 or states < 0:
        raise OutOfBounds(
            f"num_scan_inputs is {count}, and there are {len(call.node.inputs)} inputs"
        )
    axes = call.attribute("scan_input_axes") or (0,) * count
    given: list[Fact] = []
    for position in range(states):
        dtype, shape = call.value(lead + position)
        rank = None if shape is None else len(shape) - lead
        sizes = None if rank is None else tuple(call.fresh() for _ in range(rank))
        given.append(Value(dtype, sizes))
    lengths: list[Extent] = []
    for axis, position in zip(axes, range(states, states + count), strict=True):
        dtype, shape = call.value(lead + position)
        if shape is None:
            given.append(Value(dtype))
            continue
        shape = shape[lead:]
        axis = normal_axis(axis, len(shape), "one of scan_input_axes")
        lengths.append(shape[axis])
        given.append(Value(dtype, shape[:axis] + shape[axis + 1 :]))
    facts = follow(body, given)
    made = [facts.value(name) for name in body.outputs]
    repeats = lengths[-1] if lengths else call.fresh()
    if batched:
        return _of_batch(call, made, states, repeats)
    results: list[Fact] = [
        _either_tensor(call, call.value(position), value)
        for position, value in enumerate(made[:states])
    ]
    scanned = made[states:]
    out_axes = call.attribute("scan_output_axes") or (0,) * len(scanned)
    for value, axis in zip(scanned, out_axes, strict=True):
        results.append(_stacked(value, axis, repeats))
    return results


def _of_batch(
    call: NodeCall, made: Sequence[Value], states: int, length: Extent
) -> list[Fact]:
    """What Scan-8 gives out: states of a batch, and [batch, length, ...]."""
    shapes = (call.value(at).shape for at in range(1, len(call.node.inputs)))
    batch = next((shape[0] for shape in shapes if shape), call.fresh())
    results: list[Fact] = []
    for position, (dtype, shape) in enumerate(made):
        lead = (batch,) if position < states else (batch, length)
        results.append(Value(dtype, None if shape is None else lead + shape))
    return results


def _sequence_map(call: NodeCall, follow: Follow) -> Sequence[Fact]:
    (body,) = call.node.subgraphs.values()
    scope = call.scope
    given = [_element(call, position) for position in range(len(call.node.inputs))]
    facts = follow(body, given)
    return [
        SequenceType(without_names(scope.stated(facts.fact(name)), GENERATED))
        for name in body.outputs
    ]


def _element(call: NodeCall, position: int) -> Fact:
    fact = call.fact(position)
    return call.scope.fact(fact.element) if isinstance(fact, SequenceType) else fact


def _flex_attention(call: NodeCall, follow: Follow) -> Sequence[Fact]:
    """The output; the bodies change scores of one shape.

    Source: FlexAttention of ai.onnx.preview 1.
    """
    query, key = call.value(0), call.value(1)
    shape = None
    if query.shape is not None and key.shape is not None:
        shape = (*query.shape[:3], key.shape[2])
    scores = Value(softmax_dtype(call, query.dtype), shape)
    for body in call.node.subgraphs.values():
        follow(body, [scores])
    return attended(call)


Rule: TypeAlias = Callable[[NodeCall, Follow], Sequence[Fact] | None]

RULES: Final[dict[tuple[str, str], Rule]] = {
    ("", "If"): _if,
    ("", "Loop"): _loop,
    ("", "Scan"): _scan,
    ("", "SequenceMap"): _sequence_map,
    ("ai.onnx.preview", "FlexAttention"): _flex_attention,
}
"""Operators with bodies."""
