"""Updates of some places of an array, written with its axes in another order, as
exporters write what is put at positions along an axis that is not the first."""

from __future__ import annotations

from typing import Final

from onnxplug_compiler.frontend.call import Call
from onnxplug_compiler.frontend.patterns.terms import (
    Bound,
    Graph,
    Op,
    Rewrite,
    Value,
)


def _order(call: Call) -> tuple[int, ...]:
    return tuple(int(axis) for axis in call.attributes.get("perm") or ())


def _turns_back(graph: Graph, last: Call, bound: Bound) -> bool:
    """Whether the axes are in their first order again."""
    there, back = _order(graph.producer[bound["turned"]]), _order(last)
    return len(there) == len(back) and all(
        there[axis] == place for place, axis in enumerate(back)
    )


def _make(graph: Graph, last: Call, bound: Bound) -> Call | None:
    turned, scatter = (graph.producer[bound[key]] for key in ("turned", "found"))
    order = _order(turned)
    if not order or scatter.attributes.get("reduction", "none") != "none":
        return None
    return Call(
        "ScatterND",
        "",
        scatter.version,
        (bound["data"], bound["indices"], bound["updates"]),
        last.outputs,
        {**scatter.attributes, "perm": order},
        (),
        last.dtypes,
    )


_TURNED: Final = Value("turned", Op("Transpose", Value("data")))
_FOUND: Final = Op("ScatterND", _TURNED, Value("indices"), Value("updates"))

REWRITES: Final = (
    Rewrite(
        "ScatterND",
        Op("Transpose", Value("found", _FOUND), where=_turns_back),
        _make,
    ),
)
