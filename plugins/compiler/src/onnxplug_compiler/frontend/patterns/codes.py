"""Products and convolutions of weights that are codes, and tables of these, of which
rows are taken: these take the codes.

The call that both become has the product's left factor, the codes, their scale and zero
point, and what is added; its attributes are of both.
"""

from __future__ import annotations

import math
from typing import Any, Final

from onnxplug_compiler.frontend.call import Call
from onnxplug_compiler.frontend.facts import dtype_of, rank_of, shape_of
from onnxplug_compiler.frontend.patterns.terms import (
    Bound,
    Graph,
    Op,
    Rewrite,
    Term,
    Value,
)
from onnxplug_compiler.frontend.traits import CODED, CODED_IMAGES
from onnxplug_compiler.ir.elements import NARROW_FLOATS, SUB_BYTE, element_of

_BROADCAST_SINCE: Final = 7
"""The opset before which Gemm broadcast its addend by an attribute."""


def _codes() -> Term:
    made = Op("DequantizeLinear", Value("codes"), Value("scale"), more=True)
    return Value("weights", made)


def _term(operator: str, *, turned: bool) -> Term:
    codes = _codes()
    right = Value("turned", Op("Transpose", codes)) if turned else codes
    return Op(operator, Value("x"), right, more=True)


def _axes(
    codes: tuple[int, ...], scale: tuple[int, ...], axis: int, block: int
) -> str | None:
    """Along which axes of a matrix of codes scales differ: ``none``, ``rows``,
    ``columns``, or ``blocks``; ``None`` if they are none for the matrix.

    Args:
        axis: of the scales.
        block: how many elements along it share one; 0 if they all have their own.
    """
    if block:
        sizes = list(codes)
        if block < 1 or sizes[axis] % block:
            return None
        sizes[axis] //= block
        return "blocks" if scale == tuple(sizes) else None
    if math.prod(scale) == 1:
        return "none"
    if scale != (codes[axis],):
        return None
    return "columns" if axis else "rows"


def _make(graph: Graph, last: Call, bound: Bound) -> Call | None:
    made = graph.producer[bound["weights"]]
    turned = "turned" in bound
    attributes: dict[str, Any] = {"transA": 0, "transB": 0, "alpha": 1.0, "beta": 1.0}
    if last.op_type == "Gemm":
        attributes |= {key: last.attributes[key] for key in attributes}
        if last.version < _BROADCAST_SINCE:
            return None
    if turned:
        order = graph.producer[bound["turned"]].attributes.get("perm")
        if order is not None and list(order) != [1, 0]:
            return None
        attributes["transB"] = 1 - attributes["transB"]
    ask = graph.facts.ask
    codes, scale = (ask(shape_of, bound[key]) for key in ("codes", "scale"))
    rank = ask(rank_of, bound["x"])
    if len(codes) != 2 or 0 in codes:
        return None
    if rank < 2 or (last.op_type == "Gemm" and rank != 2):
        return None
    if element_of(ask(dtype_of, bound["x"])) not in NARROW_FLOATS:
        return None
    block, axis = (
        int(made.attributes.get(key, default))
        for key, default in (("block_size", 0), ("axis", 1))
    )
    if not -2 <= axis < 2:
        return None
    found = _axes(codes, scale, axis % 2, block)
    # along the axis of sums blocks are an axis of their own
    if found is None or (found == "blocks" and axis % 2 != attributes["transB"]):
        return None
    product = Call(
        "DequantizedMatMul",
        "",
        last.version,
        (bound["x"], bound["codes"], bound["scale"], made.input(2), last.input(2)),
        last.outputs,
        {**attributes, "scales": found, "block_size": block},
        (),
        last.dtypes,
    )
    product.traits = CODED
    return product


def _make_convolution(graph: Graph, last: Call, bound: Bound) -> Call | None:
    made, ask = graph.producer[bound["weights"]], graph.facts.ask
    codes, scale = (ask(shape_of, bound[key]) for key in ("codes", "scale"))
    if len(last.inputs) > 3 or len(codes) < 3 or made.attributes.get("block_size"):
        return None
    if element_of(ask(dtype_of, bound["x"])) not in NARROW_FLOATS:
        return None
    # one for all, or one for each filter
    is_first = int(made.attributes.get("axis", 1)) in (0, -len(codes))
    if math.prod(scale) != 1 and not (is_first and scale == codes[:1]):
        return None
    convolution = Call(
        "DequantizedConv",
        "",
        last.version,
        (bound["x"], bound["codes"], bound["scale"], made.input(2), last.input(2)),
        last.outputs,
        last.attributes,
        (),
        last.dtypes,
    )
    convolution.traits = CODED_IMAGES
    return convolution


def _make_gather(graph: Graph, last: Call, bound: Bound) -> Call | None:
    made, ask = graph.producer[bound["weights"]], graph.facts.ask
    codes, scale = (ask(shape_of, bound[key]) for key in ("codes", "scale"))
    axis, block = (
        int(made.attributes.get(key, default))
        for key, default in (("axis", 1), ("block_size", 0))
    )
    if len(codes) != 2 or not -2 <= axis < 2:
        return None
    if element_of(ask(dtype_of, bound["codes"])) not in {"i8", "u8"} | SUB_BYTE:
        return None
    if int(last.attributes.get("axis", 0)) not in (0, -2):
        return None
    found = _axes(codes, scale, axis % 2, block)
    # rows have scales of their own, or all have one
    if found not in ("none", "rows") and (found != "blocks" or not axis % 2):
        return None
    return Call(
        "DequantizedGather",
        "",
        last.version,
        (bound["codes"], bound["indices"], bound["scale"], made.input(2)),
        last.outputs,
        {"block_size": block},
        (),
        last.dtypes,
    )


_CONVOLUTION: Final = Op("Conv", Value("x"), _codes(), more=True)

REWRITES: Final = (
    *(
        Rewrite("DequantizeLinear", _term(operator, turned=turned), _make)
        for operator in ("MatMul", "Gemm")
        for turned in (False, True)
    ),
    Rewrite("DequantizeLinear", _CONVOLUTION, _make_convolution),
    Rewrite("DequantizeLinear", Op("Gather", _codes(), Value("indices")), _make_gather),
)
