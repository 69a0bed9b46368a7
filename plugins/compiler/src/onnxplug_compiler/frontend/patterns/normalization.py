"""LayerNormalization and RMSNormalization, written as means, squares and a root."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from onnxplug_compiler.frontend.call import Call
from onnxplug_compiler.frontend.facts import dtype_of, integers_of, is_row, rank_of
from onnxplug_compiler.frontend.patterns.terms import (
    Bound,
    Graph,
    Missing,
    Number,
    Op,
    Rewrite,
    Term,
    Value,
)

_F32: Final = np.dtype(np.float32)


def _is_over_last_axis(graph: Graph, mean: Call, bound: Bound) -> bool:
    x = mean.inputs[0]
    if x is None or not mean.attributes.get("keepdims", 1):
        return False
    rank = graph.facts.ask(rank_of, x)
    axes: Any = mean.attributes.get("axes")
    name = mean.input(1)
    if name is not None:
        axes = graph.facts.ask(integers_of, name)
    return axes is not None and [int(axis) % rank for axis in axes] == [rank - 1]


def _mean(term: Term) -> Term:
    return Op("ReduceMean", term, more=True, where=_is_over_last_axis)


def _divided(value: Term) -> Term:
    """*value* by the root of the mean of its squares."""
    square = Op("Pow", value, Number(2)) | Op("Mul", value, value)
    root = Op("Sqrt", Op("Add", _mean(square), Number("epsilon"), swaps=True))
    inverse = Op("Reciprocal", root) | Op("Div", Number(1), root)
    return Op("Div", value, root) | Op("Mul", value, inverse, swaps=True)


def _is_made(graph: Graph, norm: Call, bound: Bound) -> bool:
    return norm in graph.joined


_X: Final = Value("x")
_CENTRED: Final = Value("centred", Op("Sub", _X, _mean(_X)))


def _norm(operator: str, *inputs: Term) -> Term:
    """A norm that was put together from a pattern."""
    return Op(operator, *inputs, where=_is_made)


def _call(
    operator: str, last: Call, epsilon: float, inputs: Sequence[str | None]
) -> Call:
    return Call(
        operator,
        "",
        last.version,
        tuple(inputs),
        last.outputs,
        {"axis": -1, "epsilon": epsilon, "stash_type": 1},
        (),
        last.dtypes,
    )


def _make_layer_norm(graph: Graph, last: Call, bound: Bound) -> Call | None:
    if not _is_normalised(graph, bound["centred"]):
        return None
    return _call("LayerNormalization", last, bound["epsilon"], (bound["x"], None))


def _make_rms_norm(graph: Graph, last: Call, bound: Bound) -> Call | None:
    if not _is_normalised(graph, bound["x"]):
        return None
    return _call("RMSNormalization", last, bound["epsilon"], (bound["x"], None))


def _is_normalised(graph: Graph, name: str) -> bool:
    """Whether norms of the value are compiled."""
    ask = graph.facts.ask
    return bool(ask(dtype_of, name) == _F32 and ask(rank_of, name))


def _extended(graph: Graph, last: Call, bound: Bound, *inputs: str) -> Call | None:
    """The norm with one more input, the last, which is a number for each element of
    the last axis."""
    row, ask = inputs[-1], graph.facts.ask
    if row in graph.producer:
        return None  # it may be computed after the norm's place
    if ask(dtype_of, row) != _F32 or not ask(is_row, row, bound["x"]):
        return None
    norm = graph.producer[bound["norm"]]
    return _call(norm.op_type, last, norm.attributes["epsilon"], inputs)


def _make_scaled(graph: Graph, last: Call, bound: Bound) -> Call | None:
    return _extended(graph, last, bound, bound["x"], bound["scale"])


def _make_shifted(graph: Graph, last: Call, bound: Bound) -> Call | None:
    return _extended(graph, last, bound, bound["x"], bound["scale"], bound["bias"])


def _scaled(operator: str) -> Rewrite:
    norm = Value("norm", _norm(operator, _X, Missing()))
    term = Op("Mul", norm, Value("scale"), swaps=True)
    return Rewrite(operator, term, _make_scaled)


def _shifted(operator: str) -> Rewrite:
    norm = Value("norm", _norm(operator, _X, Value("scale")))
    term = Op("Add", norm, Value("bias"), swaps=True)
    return Rewrite(operator, term, _make_shifted)


REWRITES: Final = (
    Rewrite("Sqrt", _divided(_CENTRED), _make_layer_norm),
    Rewrite("Sqrt", _divided(_X), _make_rms_norm),
    _scaled("LayerNormalization"),
    _scaled("RMSNormalization"),
    _shifted("LayerNormalization"),
)
"""The first that matches is taken, and what it makes is looked at again."""
