"""Scaled dot-product attention, written as products, a mask and a softmax.

The scale is applied to the scores, or to queries and keys before; the mask is added, or
chooses between scores and a number; weights that are NaN may become 0.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from onnxplug_compiler.frontend.call import Call
from onnxplug_compiler.frontend.facts import are_heads, dtype_of, rank_of
from onnxplug_compiler.frontend.patterns.shared_heads import SharedHeads
from onnxplug_compiler.frontend.patterns.terms import (
    Bound,
    Choice,
    Graph,
    Nothing,
    Number,
    Op,
    Rewrite,
    Term,
    Value,
)
from onnxplug_compiler.ir.elements import element_of

_F32: Final = np.dtype(np.float32)
_ELEMENTS: Final = frozenset({"f32", "f16", "bf16"})
"""Of scores; fused, those of 16 bits are not rounded."""


def _scaled(key: str, term: Term | None = None) -> Term:
    """The value *key*, perhaps multiplied with, or divided by, a number."""
    value = Value(key, term)

    def is_scale(graph: Graph, call: Call, bound: Bound) -> bool:
        number = bound[f"{key} factor"]
        if not math.isfinite(number) or number == 0:
            return False
        return graph.facts.same_shape(bound[key], call.outputs[0] or "")

    factor = Number(f"{key} factor")
    return (
        Choice(Op("Mul", value, factor, swaps=True, where=is_scale), **{f"{key} by": 1})
        | Choice(Op("Div", value, factor, where=is_scale), **{f"{key} by": -1})
        | Choice(value, **{f"{key} factor": 1.0, f"{key} by": 1})
    )


def _factor(key: str, bound: Bound) -> float:
    number: float = bound[f"{key} factor"]
    return number if bound[f"{key} by"] == 1 else 1 / number


def _is_widened(graph: Graph, cast: Call, bound: Bound) -> bool:
    return cast.is_of_widening and cast.dtypes[0] == _F32


def _factor_of(key: str, order: tuple[int, ...]) -> Term:
    """What a factor is made of: of heads that several share, and of narrow ones that
    widening made wide.

    Args:
        order: of the axes of such heads.
    """
    heads, narrow = f"heads of {key}", f"narrow {key}"
    alone = Choice(Value(f"{key} itself"), **{heads: None})
    repeated = SharedHeads(heads, order) | alone
    cast = Op("Cast", Value(narrow, repeated), where=_is_widened)
    return cast | Choice(repeated, **{narrow: None})


def _keeps_scores(graph: Graph, masked: Call, bound: Bound) -> bool:
    """Whether a mask does not widen the scores."""
    return graph.facts.same_shape(bound["scores"], masked.outputs[0] or "")


_KEYS: Final = _scaled("k", _factor_of("k", (0, 1, 3, 2)))
_PRODUCT: Final = Op("MatMul", _scaled("q"), _KEYS)
_SCORES: Final = Value("scores", _scaled("product", _PRODUCT))
_MASK: Final = Value("mask")
_MASKED: Final = Value(
    "masked",
    Choice(
        # exporters write a mask of zeros where a network was given none
        Op("Add", _SCORES, Nothing(), swaps=True, where=_keeps_scores),
        mask=None,
        hides=False,
        fill=-math.inf,
    )
    | Choice(
        Op("Add", _SCORES, _MASK, swaps=True, where=_keeps_scores),
        hides=False,
        fill=-math.inf,
    )
    | Choice(
        Op("Where", _MASK, _SCORES, Number("fill"), where=_keeps_scores), hides=False
    )
    | Choice(
        Op("Where", _MASK, Number("fill"), _SCORES, where=_keeps_scores), hides=True
    )
    | Choice(_SCORES, mask=None, hides=False, fill=-math.inf),
)


def _is_over_keys(graph: Graph, softmax: Call, bound: Bound) -> bool:
    scores = bound["masked"]
    if element_of(graph.facts.ask(dtype_of, scores)) not in _ELEMENTS:
        return False
    rank = graph.facts.ask(rank_of, scores)
    return rank in (3, 4) and int(softmax.attributes["axis"]) in (-1, rank - 1)


_SOFTMAX: Final = Value("weights", Op("Softmax", _MASKED, where=_is_over_keys))
_WEIGHTS: Final = Choice(_SOFTMAX, undefined="nan") | Choice(
    # PyTorch's decomposition has 0 for rows in which all is masked
    Op("Where", Op("IsNaN", _SOFTMAX), Number(0), _SOFTMAX),
    undefined="zero",
)


def _make(graph: Graph, last: Call, bound: Bound) -> Call | None:
    q, k, v = bound["q"], bound["k"], bound["v"]
    ask = graph.facts.ask
    if not ask(are_heads, q, k, v) or ask(rank_of, q) != ask(rank_of, bound["masked"]):
        return None
    is_shared = False
    for made in ("narrow", "heads of"):
        both = bound[f"{made} k"], bound[f"{made} v"]
        if both != (None, None):
            if None in both or ask(dtype_of, both[0]) != ask(dtype_of, both[1]):
                return None
            k, v = both
            is_shared = made == "heads of"
    return Call(
        "ScaledDotProduct",
        "",
        last.version,
        (q, k, v, bound["mask"]),
        last.outputs,
        {
            "scale": math.prod(_factor(key, bound) for key in ("product", "q", "k")),
            "undefined": bound["undefined"],
            "hides": bound["hides"],
            "fill": bound["fill"],
            "shared": is_shared,
        },
        (),
        last.dtypes,
    )


_ATTENTION: Final = Op("MatMul", _WEIGHTS, Value("v", _factor_of("v", (0, 1, 2, 3))))

REWRITES: Final = (Rewrite("Softmax", _ATTENTION, _make),)
