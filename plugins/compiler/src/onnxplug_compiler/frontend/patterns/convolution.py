"""Convolutions whose result is normalised by constant statistics.

The call that both become has the inputs of the normalisation behind its own.
"""

from __future__ import annotations

from typing import Final

from onnxplug_compiler.frontend.call import Call
from onnxplug_compiler.frontend.facts import is_fixed
from onnxplug_compiler.frontend.patterns.terms import (
    Bound,
    Graph,
    Op,
    Rewrite,
    Term,
    Value,
)

_STATISTICS: Final = ("scale", "shift", "mean", "variance")


def _is_plain(graph: Graph, convolution: Call, bound: Bound) -> bool:
    return len(convolution.inputs) <= 3


def _is_inference(graph: Graph, norm: Call, bound: Bound) -> bool:
    """Whether the statistics are given, the same in all runs, and known."""
    return (
        norm.version >= 9
        and not norm.attributes.get("training_mode")
        and not any(norm.outputs[1:])
        and all(
            bound[key] not in graph.producer and graph.facts.ask(is_fixed, bound[key])
            for key in _STATISTICS
        )
    )


def _normalised(operator: str) -> Term:
    convolution = Op(operator, Value("x"), Value("w"), more=True, where=_is_plain)
    return Op(
        "BatchNormalization",
        Value("convolved", convolution),
        *map(Value, _STATISTICS),
        where=_is_inference,
    )


def _make(graph: Graph, last: Call, bound: Bound) -> Call | None:
    convolution = graph.producer[bound["convolved"]]
    bias = convolution.input(2)
    if bias is not None and (
        bias in graph.producer or not graph.facts.ask(is_fixed, bias)
    ):
        return None
    return Call(
        convolution.op_type,
        "",
        convolution.version,
        (
            *(bound["x"], bound["w"], bias),
            *(bound[key] for key in _STATISTICS),
        ),
        last.outputs,
        {**convolution.attributes, "epsilon": last.attributes["epsilon"]},
        (),
        last.dtypes,
    )


REWRITES: Final = tuple(
    Rewrite(operator, _normalised(operator), _make)
    for operator in ("Conv", "ConvTranspose")
)
