"""Matrices of several axes of batches that are transposed as those of one, as PyTorch's
exporter writes it for the keys of attention."""

from __future__ import annotations

from typing import Final

from onnxplug_compiler.frontend.call import Abstract, Call
from onnxplug_compiler.frontend.facts import rank_of
from onnxplug_compiler.frontend.patterns.terms import Bound, Graph, Op, Rewrite, Value

_INNER: Final = (0, 2, 1)


def are_transposed(x: Abstract, result: Abstract, joined: Abstract) -> bool:
    """Whether *result* has the batches of *x*, which are one in *joined*, and its
    matrices turned."""
    batches, matrix = x.shape[:-2], x.shape[-2:]
    return (
        len(batches) > 1
        and joined.shape[1:] == matrix
        and result.shape == (*batches, *reversed(matrix))
    )


def _make(graph: Graph, last: Call, bound: Bound) -> Call | None:
    turned = graph.producer[bound["turned"]]
    x, result = bound["x"], last.outputs[0]
    assert result is not None
    if tuple(turned.attributes.get("perm") or ()) != _INNER:
        return None
    if not graph.facts.ask(are_transposed, x, result, bound["joined"]):
        return None
    rank = graph.facts.ask(rank_of, x)
    order = (*range(rank - 2), rank - 1, rank - 2)
    return Call(
        "Transpose", "", turned.version, (x,), last.outputs, {"perm": order}, (),
        last.dtypes,
    )  # fmt: skip


_JOINED: Final = Value("joined", Op("Reshape", Value("x"), Value("shape")))
_TURNED: Final = Value("turned", Op("Transpose", _JOINED))

REWRITES: Final = (
    Rewrite("Transpose", Op("Reshape", _TURNED, Value("other shape")), _make),
)
