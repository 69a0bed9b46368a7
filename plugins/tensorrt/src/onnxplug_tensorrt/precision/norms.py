"""Finds normalisations that a model writes as several nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

_NORMS: Final = frozenset(
    {
        "BatchNormalization",
        "GroupNormalization",
        "InstanceNormalization",
        "LayerNormalization",
        "LpNormalization",
        "MeanVarianceNormalization",
        "RMSNormalization",
    }
)
_SUMS: Final = frozenset({"ReduceMean", "ReduceSum", "ReduceSumSquare", "ReduceL2"})
_TO_THE_ROOT: Final = frozenset({"Add", "Div", "Max", "Mul", "Sqrt", "Reciprocal"})
_MOST: Final = 6
"""Nodes between the sum of squares and the division by its root, at most."""


def nodes_of_norms(nodes: Sequence[Any]) -> set[int]:
    """Positions in *nodes* of those that make up normalisations.

    These are ONNX's operators of that name, and: the squares (``Pow``, or ``Mul`` of a
    value with itself) whose sum or mean is taken, the sum, what leads from it to the
    division by its root, and the difference from the mean before.
    """
    readers: dict[str, list[int]] = {}
    makers = {}
    for position, node in enumerate(nodes):
        for name in node.input:
            readers.setdefault(name, []).append(position)
        makers.update(dict.fromkeys(node.output, position))
    found = {position for position, node in enumerate(nodes) if node.op_type in _NORMS}
    for position, node in enumerate(nodes):
        if node.op_type in ("ReduceSumSquare", "ReduceL2"):
            squares = None
        elif node.op_type in _SUMS:
            squares = makers.get(node.input[0])
            if squares is None or not _is_square(nodes[squares]):
                continue
        else:
            continue
        chain = list(_to_the_division(position, nodes, readers, makers))
        if chain:
            found.update(chain)
            found.update(_before(position, squares, nodes, makers))
    return found


def _is_square(node: Any) -> bool:
    if node.op_type == "Mul":
        return bool(node.input[0] == node.input[1])
    return bool(node.op_type == "Pow")


def _to_the_division(
    position: int,
    nodes: Sequence[Any],
    readers: Mapping[str, Sequence[int]],
    makers: Mapping[str, int],
) -> Iterator[int]:
    """From the sum at *position* to where its root divides; nothing if it does not."""
    passed = [position]
    rooted = nodes[position].op_type == "ReduceL2"
    for _ in range(_MOST):
        node = nodes[passed[-1]]
        following = readers.get(node.output[0], ())
        if len(following) != 1 or nodes[following[0]].op_type not in _TO_THE_ROOT:
            return
        passed.append(following[0])
        reader = nodes[following[0]]
        divides = reader.op_type == "Div" and reader.input[1] == node.output[0]
        multiplies = reader.op_type == "Mul" and node.op_type in ("Reciprocal", "Div")
        if rooted and (multiplies or (divides and reader.input[0] in makers)):
            yield from passed
            return
        rooted = rooted or reader.op_type == "Sqrt"


def _before(
    position: int,
    squares: int | None,
    nodes: Sequence[Any],
    makers: Mapping[str, int],
) -> Iterator[int]:
    """The squares, the difference that they are of, and the mean in it."""
    if squares is not None:
        yield squares
    first = makers.get(nodes[squares if squares is not None else position].input[0])
    if first is not None and nodes[first].op_type == "Sub":
        yield first
        mean = makers.get(nodes[first].input[1])
        if mean is not None and nodes[mean].op_type in _SUMS:
            yield mean
