"""Decision trees as arrays, walked for all rows and trees at once."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from onnxplug.authoring.bounds import MOST_ELEMENTS, sizes

LESS_EQUAL, LESS, GREATER_EQUAL, GREATER, EQUAL, NOT_EQUAL, MEMBER = range(7)
"""How a node compares a feature with its threshold, numbered as ``TreeEnsemble``."""

_COMPARISONS: Final[tuple[Callable[[Any, Any], Any], ...]] = (
    operator.le,
    operator.lt,
    operator.ge,
    operator.gt,
    operator.eq,
    operator.ne,
)

# rows * trees * votes that are worked on at once, to stay in the processor's cache
_BLOCK: Final = 2**18


@dataclass(frozen=True, slots=True)
class Members:
    """The sets that nodes test a feature against, as sorted arrays.

    Attributes:
        sets: the number of each node's set.
        values: all members of all sets, once, of float64.
        pairs: set * len(values) + place in values, for each member of each set.
    """

    sets: Any
    values: Any
    pairs: Any

    def contain(self, xp: Any, nodes: Any, x: Any) -> Any:
        x = xp.astype(x, xp.float64)
        values, place = _nearest(xp, self.values, x)
        pair = xp.take(self.sets, nodes, axis=0) * self.values.shape[0] + place
        pairs, _ = _nearest(xp, self.pairs, pair)
        return (values == x) & (pairs == pair)


def _nearest(xp: Any, ordered: Any, x: Any) -> tuple[Any, Any]:
    """The first of *ordered* that are not below *x*, or the last, and their places."""
    place = xp.minimum(xp.searchsorted(ordered, x), ordered.shape[0] - 1)
    return xp.take(ordered, place, axis=0), place


@dataclass(frozen=True, slots=True)
class Forest:
    """Trees whose nodes are numbered together: first those that branch, then leaves.

    Attributes:
        branches: how many nodes branch.
        features, thresholds: what each branching node compares with what.
        modes: how each does, or the one way in which all do.
        missing_true: where a missing value goes the true way; ``None`` if nowhere.
        children: the false child of node i at 2 * i, and the true one after it.
        targets, weights: the votes of each leaf, filled up with votes of no weight
            for the target ``target_count``.
    """

    roots: Any
    branches: int
    features: Any
    feature_count: int
    thresholds: Any
    modes: Any
    missing_true: Any
    children: Any
    members: Members | None
    targets: Any
    weights: Any
    target_count: int

    def scores(self, xp: Any, rows: Any, aggregate: str) -> Any:
        """Of each row, the votes for each target put together; NaN for none."""
        if rows.shape[1] < self.feature_count:
            raise ValueError(
                f"the trees look at feature {self.feature_count - 1}, "
                f"but the input has {rows.shape[1]} features"
            )
        count = rows.shape[0]
        sizes((count, self.target_count + 1), itemsize=8)
        size = max(1, _BLOCK // (self.roots.shape[0] * self.targets.shape[1]))
        blocks = [
            self._votes(
                xp,
                self._leaves(xp, rows[start : min(start + size, count), :]),
                aggregate,
            )
            for start in range(0, count, size)
        ]
        if not blocks:
            return xp.zeros((0, self.target_count), dtype=xp.float64)
        return blocks[0] if len(blocks) == 1 else xp.concat(blocks)

    def _leaves(self, xp: Any, rows: Any) -> Any:
        """The leaf that each row reaches in each tree."""
        count, features = rows.shape
        take = xp.take
        values = xp.reshape(rows, (-1,))
        nodes = xp.tile(self.roots, (count,))
        starts = xp.repeat(xp.arange(count) * features, self.roots.shape[0])
        walking = xp.nonzero(nodes < self.branches)[0]
        while walking.shape[0]:
            at = take(nodes, walking, axis=0)
            place = take(starts, walking, axis=0) + take(self.features, at, axis=0)
            x = take(values, place, axis=0)
            holds = xp.astype(self._holds(xp, at, x), xp.int64)
            at = take(self.children, 2 * at + holds, axis=0)
            nodes = xp.replaced(nodes, walking, at)
            walking = walking[at < self.branches]
        return xp.reshape(nodes, (count, -1)) - self.branches

    def _holds(self, xp: Any, nodes: Any, x: Any) -> Any:
        """Whether the condition of each of *nodes* holds for its feature in *x*."""
        if isinstance(self.modes, int):
            holds = self._compare(xp, self.modes, nodes, x)
        else:
            modes = xp.take(self.modes, nodes, axis=0)
            holds = xp.zeros(nodes.shape, dtype=xp.bool)
            for mode in range(MEMBER + 1):
                chosen = xp.nonzero(modes == mode)[0]
                if chosen.shape[0]:
                    some, theirs = (
                        xp.take(each, chosen, axis=0) for each in (nodes, x)
                    )
                    compared = self._compare(xp, mode, some, theirs)
                    holds = xp.replaced(holds, chosen, compared)
        if self.missing_true is not None:
            missing_true = xp.take(self.missing_true, nodes, axis=0)
            holds = holds | (missing_true & xp.isnan(x))
        return holds

    def _compare(self, xp: Any, mode: int, nodes: Any, x: Any) -> Any:
        if mode != MEMBER:
            return _COMPARISONS[mode](x, xp.take(self.thresholds, nodes, axis=0))
        if self.members is None:
            return xp.zeros(nodes.shape, dtype=xp.bool)
        return self.members.contain(xp, nodes, x)

    def _votes(self, xp: Any, leaves: Any, aggregate: str) -> Any:
        count, trees = leaves.shape
        columns = self.target_count + 1
        rows = (xp.arange(count) * columns)[:, None, None]
        places = xp.reshape(xp.take(self.targets, leaves, axis=0) + rows, (-1,))
        weights = xp.reshape(xp.take(self.weights, leaves, axis=0), (-1,))
        size = count * columns
        match aggregate:
            case "SUM" | "AVERAGE":
                totals = xp.sums_at(places, weights, size)
                if aggregate == "AVERAGE":
                    totals = totals / trees
            case "MIN" | "MAX":
                start = xp.inf if aggregate == "MIN" else -xp.inf
                totals = xp.full((size,), start, dtype=xp.float64)
                totals = xp.scatter(totals, (places,), weights, aggregate.lower())
            case _:
                raise ValueError(
                    f"aggregate_function is {aggregate!r}, "
                    f"not 'SUM', 'AVERAGE', 'MIN' or 'MAX'"
                )
        voted = xp.sums_at(places, None, size) > 0
        totals = xp.where(voted, totals, xp.nan)
        return xp.reshape(totals, (count, columns))[:, :-1]


def grown(
    xp: Any,
    *,
    roots: Any,
    features: Any,
    thresholds: Any,
    modes: Any,
    missing_true: Any,
    true_children: Any,
    false_children: Any,
    membership_values: Any = None,
    leaf_count: int,
    vote_leaves: Any,
    vote_targets: Any,
    vote_weights: Any,
    target_count: int,
) -> Forest:
    """The forest of numpy arrays that describe it, as arrays of *xp*.

    Args:
        roots, true_children, false_children: nodes as :class:`Forest` numbers them.
        membership_values: the sets of the nodes that test membership, in their
            order, each ended by NaN.
        vote_leaves: the leaf of each vote, leaves counted from zero.
    """
    children = np.stack((false_children, true_children), axis=1)
    _check_trees(roots, children, leaf_count)
    for what, numbers, count in (
        ("votes for target", vote_targets, target_count),
        ("compares in mode", modes, MEMBER + 1),
        ("looks at feature", features, MOST_ELEMENTS),
    ):
        astray = numbers[(numbers < 0) | (numbers >= count)]
        if astray.size:
            raise ValueError(
                f"a node {what} {astray[0]} of {count} {what.split()[-1]}s; they are "
                f"counted from zero"
            )
    if np.isnan(vote_weights).any():
        raise ValueError("a leaf's vote has the weight NaN")
    targets, weights = _ballots(
        leaf_count, vote_leaves, vote_targets, vote_weights, target_count
    )
    same = len(modes) > 0 and bool((modes == modes[0]).all())
    return Forest(
        roots=xp.from_numpy(roots),
        branches=len(features),
        features=xp.from_numpy(features),
        feature_count=int(features.max(initial=-1)) + 1,
        thresholds=xp.from_numpy(thresholds),
        modes=int(modes[0]) if same else xp.from_numpy(modes),
        missing_true=xp.from_numpy(missing_true) if missing_true.any() else None,
        children=xp.from_numpy(children.reshape(-1)),
        members=_members(xp, modes, membership_values),
        targets=xp.from_numpy(targets),
        weights=xp.from_numpy(weights),
        target_count=target_count,
    )


def _check_trees(roots: Any, children: Any, leaf_count: int) -> None:
    """Raise an error if there is no such node, or a walk would never end."""
    count = len(children) + leaf_count
    for nodes in (roots, children):
        astray = nodes[(nodes < 0) | (nodes >= count)]
        if astray.size:
            raise ValueError(f"a tree leads to node {astray[0]} of {count} nodes")
    if not roots.size:
        raise ValueError("a tree ensemble has no trees")
    reached = _reached(roots, children)
    # without a cycle the nodes can be taken away one after the other, each once nothing
    # leads to it (A. B. Kahn, "Topological sorting of large networks", 1962)
    inner = children[reached]
    waiting = np.bincount(inner[inner < len(children)], minlength=len(children))
    level, taken = reached[waiting[reached] == 0], 0
    while level.size:
        taken += level.size
        below = children[level].reshape(-1)
        below = below[below < len(children)]
        np.subtract.at(waiting, below, 1)
        level = np.unique(below[waiting[below] == 0])
    if taken < len(reached):
        raise ValueError("the nodes of a tree lead back to one of themselves")


def _reached(roots: Any, children: Any) -> Any:
    """The nodes with children to which a walk from *roots* can come, each once."""
    seen = np.zeros(len(children), dtype=bool)
    level = roots
    while True:
        level = level[level < len(children)]
        level = np.unique(level[~seen[level]])
        if not level.size:
            return np.nonzero(seen)[0]
        seen[level] = True
        level = children[level].reshape(-1)


def _ballots(
    leaf_count: int, leaves: Any, targets: Any, weights: Any, target_count: int
) -> tuple[Any, Any]:
    """Lists of votes of all leaves, made equally long."""
    order = np.argsort(leaves, kind="stable")
    counts = np.bincount(leaves, minlength=leaf_count)
    starts = np.cumsum(counts) - counts
    places = np.arange(len(order)) - np.repeat(starts, counts)
    shape = (leaf_count, max(1, counts.max(initial=0)))
    listed_targets = np.full(shape, target_count)
    listed_targets[leaves[order], places] = targets[order]
    listed_weights = np.zeros(shape)
    listed_weights[leaves[order], places] = weights[order]
    return listed_targets, listed_weights


def _members(xp: Any, modes: Any, membership_values: Any) -> Members | None:
    testing = modes == MEMBER
    if not testing.any():
        return None
    if membership_values is None:
        raise ValueError("nodes test membership, but there are no membership_values")
    ends = np.isnan(membership_values)
    # the last set may go without an end
    if ends.sum() < testing.sum() - 1:
        raise ValueError(
            f"{testing.sum()} nodes test membership, but membership_values has "
            f"{ends.sum()} sets, each ended by NaN"
        )
    numbers = np.cumsum(ends)[~ends]
    values, places = np.unique(membership_values[~ends], return_inverse=True)
    if not len(values):
        return None
    return Members(
        sets=xp.from_numpy(np.cumsum(testing) - 1),
        values=xp.from_numpy(values.astype(np.float64)),
        pairs=xp.from_numpy(np.sort(numbers * len(values) + places)),
    )
