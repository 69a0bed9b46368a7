"""Types of what products, reductions, recurrent layers and losses compute."""

from __future__ import annotations

from functools import partial
from typing import Final

from onnxplug.authoring.bounds import at_least, normal_axes
from onnxplug.authoring.operators import having
from onnxplug.authoring.sizes import Extent, broadcast
from onnxplug.ep import DataType
from onnxplug.shapes.elementwise import Rule, broadcast_shapes
from onnxplug.shapes.facts import NodeCall, Shape, Value

_INT64 = DataType.INT64
_INT32 = DataType.INT32


# products


def _product_shape(one: Shape | None, other: Shape | None) -> Shape | None:
    if not one or not other:
        return None
    lead = broadcast_shapes([one[:-2], other[:-2]])
    assert lead is not None
    return lead + one[-2:-1] + (other[-1:] if len(other) > 1 else ())


def _matmul(call: NodeCall) -> Value:
    shape = _product_shape(call.value(0).shape, call.value(1).shape)
    return Value(call.value(0).dtype or call.value(1).dtype, shape)


def _matmul_integer(call: NodeCall) -> Value:
    return Value(_INT32, _product_shape(call.value(0).shape, call.value(1).shape))


def _qlinear_matmul(call: NodeCall) -> Value:
    shape = _product_shape(call.value(0).shape, call.value(3).shape)
    return Value(call.value(7).dtype, shape)


def _gemm(call: NodeCall) -> Value:
    (dtype, one), (_, other) = call.value(0), call.value(1)
    dtype = dtype or call.value(1).dtype
    if one is None or other is None:
        return Value(dtype, (call.fresh(), call.fresh()))
    rows = one[1 if call.attribute("transA", 0) else 0]
    columns = other[0 if call.attribute("transB", 0) else 1]
    return Value(dtype, (rows, columns))


def _einsum(call: NodeCall) -> Value:
    dtype = call.value().dtype
    equation: str = call.attribute("equation").replace(" ", "")
    given, arrow, made = equation.partition("->")
    if not arrow:
        letters = given.replace(",", "").replace(".", "")
        once = (letter for letter in sorted(set(letters)) if letters.count(letter) == 1)
        made = ("..." if "." in given else "") + "".join(once)
    sizes: dict[str, Extent] = {}
    others: list[Shape | None] = []
    for position, term in enumerate(given.split(",")):
        shape = call.value(position).shape
        if shape is None:
            others.append(None)
            continue
        before, dots, after = term.partition("...")
        start, end = len(before), len(shape) - len(after)
        others.append(shape[start:end] if dots else ())
        named = (*shape[:start], *(shape[end:] if dots else ()))
        for letter, size in zip(before + after, named, strict=True):
            sizes[letter] = broadcast(sizes.get(letter, 1), size)
    before, dots, after = made.partition("...")
    lead = broadcast_shapes(others) if dots else ()
    if lead is None:
        return Value(dtype)
    first, last = (
        tuple(sizes[each] if each in sizes else call.fresh() for each in letters)
        for letters in (before, after)
    )
    return Value(dtype, (*first, *lead, *last))


# reductions


def _reduce(call: NodeCall) -> Value:
    dtype, shape = call.value()
    axes = call.axes(1, ())
    if shape is None:
        return Value(dtype)
    keeps = call.attribute("keepdims", 1)
    if axes is None:
        # which axes is not known; how many there are may be
        count = 0 if keeps else call.length(1) or None
        rank = None if count is None else len(shape) - count
        return Value(dtype, call.fresh_shape(rank))
    if not axes and call.attribute("noop_with_empty_axes", 0):
        return Value(dtype, shape)
    gone = set(normal_axes(axes, len(shape)) or range(len(shape)))
    return Value(dtype, _without(shape, gone, keeps))


def _without(shape: Shape, gone: set[int], keeps: int) -> Shape:
    if keeps:
        return tuple(1 if axis in gone else size for axis, size in enumerate(shape))
    return tuple(size for axis, size in enumerate(shape) if axis not in gone)


def _arg(call: NodeCall) -> Value:
    shape = call.value().shape
    if shape is None:
        return Value(_INT64)
    axis = call.axis(len(shape), 0)
    return Value(_INT64, _without(shape, {axis}, call.attribute("keepdims", 1)))


def _det(call: NodeCall) -> Value:
    dtype, shape = call.value()
    return Value(dtype, None if shape is None else shape[:-2])


# layers


def _recurrent(call: NodeCall, states: int) -> list[Value]:
    """Y [seq, directions, batch, hidden] and the last states.

    With ``layout`` 1 the batch comes first.
    """
    (dtype, shape), weights = call.value(), call.value(2).shape
    stated, hidden = call.attribute("hidden_size"), call.fresh()
    if stated is not None:
        (hidden,) = at_least(1, (stated,), "hidden_size")
    elif weights:
        hidden = weights[2]
    directions = 2 if call.attribute("direction") == "bidirectional" else 1
    if shape is None:
        length, batch = call.fresh(), call.fresh()
    else:
        length, batch = shape[:2]
    if call.attribute("layout", 0):
        batch, length = length, batch
        whole: Shape = (batch, length, directions, hidden)
        last: Shape = (batch, directions, hidden)
    else:
        whole, last = (length, directions, batch, hidden), (directions, batch, hidden)
    return [Value(dtype, whole), *[Value(dtype, last)] * states]


# losses


def _likelihood_loss(call: NodeCall) -> list[Value]:
    """The loss, of each target or of all, and the log of the probabilities."""
    value, target = call.value(), call.value(1).shape
    each = call.attribute("reduction", "mean") == "none"
    return [Value(value.dtype, target if each else ()), value]


RULES: Final[dict[str, Rule]] = {
    **dict.fromkeys(["ArgMax", "ArgMin"], _arg),
    "Det": _det,
    "Einsum": _einsum,
    **dict.fromkeys(["GRU", "RNN"], partial(_recurrent, states=1)),
    "Gemm": _gemm,
    "LSTM": partial(_recurrent, states=2),
    "MatMul": _matmul,
    "MatMulInteger": _matmul_integer,
    **dict.fromkeys(
        ["NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"], _likelihood_loss
    ),
    "QLinearMatMul": _qlinear_matmul,
    **dict.fromkeys(having("reduction"), _reduce),
}
