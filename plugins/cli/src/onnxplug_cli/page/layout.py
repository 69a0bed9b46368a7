"""Where the nodes of a graph are drawn: in rows, each below what it reads.

Rows are decided here, by the longest way from what reads nothing.  Who stands beside
whom, so that few edges cross, is what fast-sugiyama finds (Sugiyama's method, with the
coordinates of Brandes and Köpf).
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from onnxplug.errors import RequirementMissing

REMEDY: Final = "pip install 'onnxplug-cli[html]'"

Edge = tuple[int, int]
"""From a node to another one, by their numbers."""

_FARTHEST: Final = 100
"""Rows that an edge may pass and still be followed by somebody who looks."""

_TURNS: Final = 2
"""Places that edges which pass rows by may take, for each node."""

_MORE_TURNS: Final = 2000
"""And besides, so that small graphs have all of their edges."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Where nodes and edges are, in columns and rows.

    Attributes:
        columns: [nodes], from 0, with fractions: a node is one wide.
        rows: [nodes], from 0.
        ways: [edges], the columns in which an edge passes the rows between its ends;
            ``None`` of one that is too long to be drawn.
        width: in columns.
        height: in rows.
    """

    columns: Sequence[float]
    rows: Sequence[int]
    ways: Sequence[Sequence[float] | None]
    width: float
    height: int


def lay_out(count: int, edges: Sequence[Edge]) -> Layout:
    """Lay out *count* nodes in topological order.

    Raises:
        RequirementMissing: fast-sugiyama is not installed.
    """
    rows, held = _rows(count, edges)
    _arrange(sorted({*range(count)}.difference(*edges)), rows)
    turns, steps = _turns(count, edges, rows)
    places = count + sum(map(len, filter(None, turns)))
    columns = _columns(places, [*steps, *held], rows)
    return Layout(
        columns[:count],
        rows,
        [
            None if turn is None else [columns[place] for place in turn]
            for turn in turns
        ],
        max(columns[:count], default=0.0) + 1,
        max(rows, default=-1) + 1,
    )


def _rows(count: int, edges: Sequence[Edge]) -> tuple[list[int], list[Edge]]:
    """The row of each node: below what it reads, and what reads nothing right above
    what needs it first; and edges that hold the latter there, from the row before."""
    rows = [0] * count
    lowest: dict[int, int] = {}  # of what each node reads
    for source, target in sorted(edges, key=lambda edge: edge[1]):
        if target not in lowest or rows[source] >= rows[target]:
            lowest[target] = source
            rows[target] = rows[source] + 1
    first: dict[int, int] = {}  # that needs what reads nothing
    for source, target in edges:
        if source not in lowest and rows[target] < rows[first.get(source, target)] + 1:
            first[source] = target
    held: list[Edge] = []
    for source, target in first.items():
        if rows[target] > 1:
            rows[source] = rows[target] - 1
            held.append((lowest[lowest[target]], source))
    return rows, held


def _arrange(alone: Sequence[int], rows: list[int]) -> None:
    """Put nodes without edges in about as many rows as columns."""
    across = math.isqrt(len(alone)) or 1
    for number, node in enumerate(alone):
        rows[node] = number // across


def _turns(
    count: int, edges: Sequence[Edge], rows: Sequence[int]
) -> tuple[list[list[int] | None], list[Edge]]:
    """The places that each edge passes, numbered from *count* on, and the edges between
    places and nodes, each from a row to the next."""
    left = _TURNS * count + _MORE_TURNS
    turns: list[list[int] | None] = [None] * len(edges)
    steps: list[Edge] = []
    place = count
    # the short ones first: what is left out is what nobody could follow
    for number in sorted(
        range(len(edges)), key=lambda n: rows[edges[n][1]] - rows[edges[n][0]]
    ):
        source, target = edges[number]
        passed = rows[target] - rows[source] - 1
        if passed > min(left, _FARTHEST):
            continue
        left -= passed
        turns[number] = passing = list(range(place, place + passed))
        place += passed
        ends = [source, *passing, target]
        steps += itertools.pairwise(ends)
    return turns, steps


def _columns(count: int, steps: Sequence[Edge], rows: Sequence[int]) -> list[float]:
    """The column of each place, those that are not connected side by side.

    Args:
        rows: of the nodes, which are the first of the places.
    """
    try:
        from fast_sugiyama import from_edges
    except ImportError as error:
        raise RequirementMissing(
            f"the page of a session needs fast-sugiyama to lay out its graph, which "
            f"cannot be imported ({error}); {REMEDY}"
        ) from error
    columns: list[float | None] = [None] * count
    at = 0.0
    if steps:
        # every step is from a row to the next, and all rows but the first are below
        # another: ranks are rows, and need not be searched for
        for positions, width, *_ in from_edges(
            list(dict.fromkeys(steps)),
            minimum_length=1,
            vertex_spacing=1,
            dummy_vertices=False,
            ranking_type="up",
            transpose=False,  # takes minutes where many edges cross
        ):
            first = min(across for _, (across, _) in positions)
            for place, (across, _) in positions:
                columns[int(place)] = at + across - first
            at += width + 1
    taken: Counter[int] = Counter()
    for place, column in enumerate(columns):
        if column is None:
            columns[place] = at + taken[rows[place]]
            taken[rows[place]] += 1
    return [0.0 if column is None else column for column in columns]
