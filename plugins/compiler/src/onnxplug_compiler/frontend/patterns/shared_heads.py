"""Heads of keys and values that several heads of queries share, repeated for each.

Exporters write it as an axis that is added, stretched and joined with that of heads;
transpositions and other reshapes may follow.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

from onnxplug_compiler.frontend.call import Abstract, Call
from onnxplug_compiler.frontend.facts import rank_of
from onnxplug_compiler.frontend.patterns.terms import (
    Bound,
    Found,
    Graph,
    Op,
    Rewrite,
    Term,
    Value,
)

_RESHAPES: Final = frozenset({"Flatten", "Reshape", "Squeeze", "Unsqueeze"})
_FARTHEST: Final = 8
"""Calls between heads and what is multiplied, at most."""

Factor: TypeAlias = tuple[int, int, int]
"""A part of an axis: its size, the axis of the source that it is of, ``_REPEATED`` for
none, and how many elements of that axis are between its neighbours."""

Axes: TypeAlias = list[list[Factor]]

_REPEATED: Final = -1


_WAYS: Final = _RESHAPES | {"Expand", "Transpose"}


class SharedHeads(Term):
    """A value whose heads are those of another, each several times.

    The other, [batch, heads, rows, size], is bound as the *key*.

    Args:
        order: of the axes of the other in the value.
    """

    def __init__(self, key: str, order: Sequence[int]) -> None:
        self.key, self.order = key, tuple(order)

    def match(self, graph: Graph, name: str | None, found: Found) -> list[Found]:
        calls: list[Call] = []
        matches: list[Found] = []
        bound, members = found
        while name is not None and len(calls) < _FARTHEST:
            call = graph.producer.get(name)
            if call is None or call in graph.gone or call.outputs[0] != name:
                break
            if call.op_type not in _WAYS or call.domain:
                break
            calls.append(call)
            made = [each.outputs[0] or "" for each in reversed(calls)]
            name = call.inputs[0] or ""
            ways = tuple(
                (each.op_type, tuple(each.attributes.get("perm") or ()))
                for each in reversed(calls)
            )
            repeats = functools.partial(_repeats, ways, self.order)
            if call.op_type != "Expand" and graph.facts.ask(repeats, name, *made):
                added = tuple(each for each in calls if each not in members)
                matches.append(({**bound, self.key: name}, (*members, *added)))
        return matches[-1:]


def _repeats(
    ways: Sequence[tuple[str, Sequence[int]]],
    order: Sequence[int],
    *values: Abstract,
) -> bool:
    """Whether the last of *values* repeats heads of the first.

    Args:
        ways: the operators between one value and the next, and orders of axes.
    """
    shapes = [value.shape for value in values]
    first, last = shapes[0], shapes[-1]
    if len(first) != 4 or len(last) != 4 or 0 in first or last[1] < 2 * first[1]:
        return False
    parts: Axes = [
        [(size, axis, 1)] if size > 1 else [] for axis, size in enumerate(first)
    ]
    wanted = [list(parts[axis]) for axis in order]
    wanted[1].append((last[1] // first[1], _REPEATED, 0))
    axes: Axes | None = parts
    for (operator, perm), before, after in zip(ways, shapes, shapes[1:], strict=False):
        assert axes is not None
        if operator == "Transpose":
            axes = [axes[axis] for axis in perm or range(len(before))[::-1]]
        elif operator == "Expand":
            axes = _stretched(axes, before, after)
        else:
            axes = _reshaped([part for axis in axes for part in axis], after)
        if axes is None:
            return False
    return axes == wanted


def _stretched(axes: Axes, before: Sequence[int], after: Sequence[int]) -> Axes | None:
    added = len(after) - len(before)
    sizes = [*(1,) * added, *before]
    whole: Axes = [*([] for _ in range(added)), *axes]
    return [
        [(size, _REPEATED, 0)] if old == 1 and size > 1 else parts
        for parts, old, size in zip(whole, sizes, after, strict=True)
    ]


def _reshaped(parts: Sequence[Factor], shape: Sequence[int]) -> Axes | None:
    """The parts in the order of memory as axes of *shape*; ``None`` if some part is
    cut where it does not divide."""
    left, axes = list(reversed(parts)), Axes()
    for size in shape:
        axis: list[Factor] = []
        while size > 1:
            if not left:
                return None
            whole, source, step = left.pop()
            if size % whole == 0:
                axis.append((whole, source, step))
                size //= whole
            elif whole % size == 0:
                inner = whole // size
                axis.append((size, source, step * inner))
                left.append((inner, source, step))
                size = 1
            else:
                return None
        axes.append(_joined(axis))
    return axes if not left else None


def _joined(axis: Sequence[Factor]) -> list[Factor]:
    """The parts with those joined that were one."""
    found: list[Any] = []
    for size, source, step in axis:
        if found and found[-1][1] == source and found[-1][2] == size * step:
            before = found.pop()
            size *= before[0]
        found.append((size, source, step))
    return found


class _Followed(SharedHeads):
    """Such a value, from which others are looked for."""

    operators = _WAYS


def _takes_groups(graph: Graph, call: Call, bound: Bound) -> bool:
    """Whether an Attention has its heads apart, and no cache with as many heads as its
    queries."""
    caches = [*map(call.input, (4, 5)), *map(call.output, (1, 2, 3))]
    rank = graph.facts.ask(rank_of, bound["q"])
    return not call.domain and rank == len("BHSD") and caches == [None] * 5


def _make(graph: Graph, last: Call, bound: Bound) -> Call | None:
    inputs = bound["q"], bound["k"], bound["v"], *last.inputs[3:]
    return Call(
        last.op_type, "", last.version, inputs, last.outputs, last.attributes, (),
        last.dtypes,
    )  # fmt: skip


_ORDER: Final = (0, 1, 2, 3)
_HEADS: Final = _Followed("k", _ORDER), _Followed("v", _ORDER)

REWRITES: Final = (
    Rewrite(
        "Expand",
        Op("Attention", Value("q"), *_HEADS, more=True, where=_takes_groups),
        _make,
    ),
)
