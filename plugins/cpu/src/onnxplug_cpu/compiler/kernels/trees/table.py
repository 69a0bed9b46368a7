"""A forest as a table of nodes: what a walk reads of a node are twelve bytes.

All comparisons become one, ``x <= threshold``: what is below a number is at most the
number before it, and what is above one is not at most it, so that children change
places.  A test of equality becomes two nodes.  The children of a node are next to each
other, so that the outcome of its comparison, 0 or 1, is added to the first's number,
and no number is multiplied to be a place.  A leaf is the second child of itself, and
its threshold NaN.
"""

from __future__ import annotations

import math
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from onnxplug_kernels.ml import forest as forests
from onnxplug_kernels.ml.forest import Forest, Members

Array: TypeAlias = "np.ndarray[Any, Any]"


class Comparisons(NamedTuple):
    """A forest as comparisons, each of which takes leaves away.

    Attributes:
        tests: of all trees, one after the other: a threshold, float32, and a feature,
            times the rows that are side by side, int32.
        kept: bits of the leaves that are left where a comparison does not hold.
        starts: of each tree, int32: where those begin that hold for NaN, and the
            others; and the last one's end.
        weights: [trees, bits], float64: of leaves, the lowest bit first.
        targets: for which the leaves of each tree vote, int32.
        voted: whether any does for a target, int64.
        width: bits.
        rows: for fewer, walks are faster.
    """

    tests: Array
    kept: Array
    starts: Array
    weights: Array
    targets: Array
    voted: Array
    width: int
    rows: int


class Table(NamedTuple):
    """A forest as kernels read it.

    Attributes:
        element: ``f32`` or ``f64``: of thresholds and features.
        tests: of nodes, a threshold and the offset of a feature in bytes each; the
            roots first, in the order of the trees.  Where the offset is odd, NaN goes
            where the comparison holds.
        children: numbers of their first children, int32, to which 1 is added where the
            comparison does not hold.
        leaves: their numbers among leaves, int32.
        steps: of each tree, int32: twice a number of steps that walks should take at
            once, and 1 more if they may not all be at leaves then.
        trees: how many.
        missing: nodes differ in where they send a feature that is NaN.
        weights: [leaves, votes], float64.
        targets: [leaves, votes], int64; ``target_count`` for votes that count nothing.
        dense: each leaf has a vote for each target, in their order.
        every: each target has a vote of some leaf of a tree, whichever it reaches.
        depth: of the deepest tree.
        features: how many nodes may look at.
        comparisons: the same in another way, where that is faster for many rows that
            are compared sixteen at a time; ``None`` where it is not.
    """

    element: str
    tests: Array
    children: Array
    leaves: Array
    steps: Array
    trees: int
    missing: bool
    weights: Array
    targets: Array
    target_count: int
    dense: bool
    every: bool
    depth: int
    features: int
    comparisons: Comparisons | None


def fits(forest: Forest) -> bool:
    """Whether all numbers, which nodes have as 32 bits, are small enough."""
    members = 0 if forest.members is None else len(forest.members.pairs)
    nodes = len(forest.roots) + 4 * (forest.branches + members)
    return max(nodes, 8 * (forest.feature_count + 1)) < 1 << 31


def table_of(forest: Forest, element: str) -> Table:
    """The table of *forest*, whose arrays are numpy's.

    Args:
        element: of the features.
    """
    modes = np.broadcast_to(np.asarray(forest.modes, np.int64), (forest.branches,))
    wide = np.asarray(forest.thresholds).dtype.itemsize > 4 or element == "f64"
    element = "f64" if wide else "f32"
    thresholds = np.asarray(forest.thresholds, np.float64 if wide else np.float32)
    missing = np.zeros(forest.branches, bool)
    if forest.missing_true is not None:
        missing = np.asarray(forest.missing_true)
    children = np.asarray(forest.children).reshape(-1, 2)
    branches = _Branches(
        np.asarray(forest.features), thresholds, missing, children, forest.branches
    )
    branches.compare(modes)
    branches.look_among(modes, forest.members)
    order, steps, depth = branches.order(np.asarray(forest.roots))
    tests, children_of, leaves, differ = branches.table(np.asarray(forest.roots), order)
    targets, count = np.asarray(forest.targets), forest.target_count
    shape = (len(targets), count)
    dense = targets.shape == shape and bool((targets == np.arange(count)).all())
    every = dense or (count == 1 and bool((targets == 0).any(axis=1).all()))
    comparisons = None
    if targets.shape[1] == 1 and element == "f32":
        comparisons = _comparisons(branches, forest, int((steps >> 1).sum()))
    return Table(
        element,
        tests,
        children_of,
        leaves,
        steps,
        len(forest.roots),
        differ,
        np.ascontiguousarray(forest.weights, np.float64),
        np.ascontiguousarray(targets, np.int64),
        count,
        dense,
        every,
        depth,
        max(1, forest.feature_count),
        comparisons,
    )


class _Branches:
    """The nodes that branch, while their comparisons are made alike.

    Leaves are numbered from *leaves* on, whatever branches are added: those have
    negative numbers, from -1 down, in :attr:`children`.
    """

    def __init__(
        self,
        features: Array,
        thresholds: Array,
        missing: Array,
        children: Array,
        leaves: int,
    ) -> None:
        # which may be the model's own
        self.features, self.thresholds = features, thresholds.copy()
        self.missing, self.children = missing, children.copy()
        self.leaves = leaves

    def compare(self, modes: Array) -> None:
        """Make all comparisons that of :data:`~forests.LESS_EQUAL`."""
        before = np.nextafter(self.thresholds, self.thresholds.dtype.type(-np.inf))
        none = np.isnan(self.thresholds)
        # of what is below minus infinity there is nothing
        before[np.isneginf(self.thresholds)] = np.nan
        below = (modes == forests.LESS) | (modes == forests.GREATER_EQUAL)
        above = (modes == forests.GREATER) | (modes == forests.GREATER_EQUAL)
        self.missing = np.where(above, ~self.missing, self.missing)
        turned = above & ~none
        self.children[turned] = self.children[turned, ::-1]
        # nothing is above NaN; a missing value is a matter of its own
        self.missing = np.where(above & none, ~self.missing, self.missing)
        equal = modes == forests.EQUAL
        other = modes == forests.NOT_EQUAL
        self._part(np.nonzero(equal)[0], before, 0)
        self._part(np.nonzero(other)[0], before, 1)
        size = len(modes)
        self.thresholds[:size] = np.where(below, before, self.thresholds[:size])

    def _part(self, tested: Array, before: Array, outside: int) -> None:
        """Two nodes for each of *tested*: at most the number, and below it.

        Args:
            before: the number before each node's.
            outside: which child is that of all other numbers.
        """
        if not len(tested):
            return
        new = len(self.thresholds) + np.arange(len(tested))
        away = self.children[tested, outside]
        here = self.children[tested, 1 - outside]
        missing = self.missing[tested] if outside == 0 else np.zeros(len(tested), bool)
        self.features = np.concatenate((self.features, self.features[tested]))
        self.thresholds = np.concatenate((self.thresholds, before[tested]))
        self.missing = np.concatenate((self.missing, np.zeros(len(tested), bool)))
        below = np.stack((here, away), axis=1)
        self.children = np.concatenate((self.children, below))
        self.children[tested] = np.stack((away, self._added(new)), axis=1)
        self.missing[tested] = missing

    def look_among(self, modes: Array, members: Members | None) -> None:
        """Make of each node that tests for a member of a set a search among these."""
        features, thresholds = [self.features], [self.thresholds]
        children, count = [self.children], len(self.thresholds)
        for node in np.nonzero(modes == forests.MEMBER)[0]:
            values = _of_set(members, int(node), self.thresholds.dtype)
            # what is at most the last one goes on; so does NaN, if it does not go
            # elsewhere here, and being above all it ends where what is a member does
            self.thresholds[node] = values[-1] if len(values) else np.nan
            if not len(values):
                continue
            no, yes = self.children[node]
            limits, below = _search(values, no, yes, count)
            inner = below < 0
            below[inner] = self._added(-1 - below[inner])
            self.children[node, 1] = self._added(np.asarray(count))
            features.append(np.full(len(limits), self.features[node]))
            thresholds.append(limits)
            children.append(below)
            count += len(limits)
        missing = np.zeros(count - len(self.missing), bool)
        self.missing = np.concatenate((self.missing, missing))
        self.features, self.thresholds = map(np.concatenate, (features, thresholds))
        self.children = np.concatenate(children)

    def _added(self, number: Array) -> Array:
        """The number in :attr:`children` of a branch that was added."""
        return -1 - (number - self.leaves)

    def _is_leaf(self, numbers: Array) -> Array:
        return numbers >= self.leaves

    def _branch(self, numbers: Array) -> Array:
        """The places of branches by their numbers in :attr:`children`."""
        return np.where(numbers < 0, self.leaves - 1 - numbers, numbers)

    def order(self, roots: Array) -> tuple[Array, Array, int]:
        """The branches in the order in which their children lie, those of a tree
        together, the nearest to its root first; the steps of :class:`Table`; and the
        depth."""
        tree = np.full(len(self.thresholds), -1)
        level = roots[~self._is_leaf(roots)]
        owners = np.nonzero(~self._is_leaf(roots))[0]
        found, depth = [], 0
        depths, shared = np.zeros(len(roots), np.int64), False
        while level.size:
            depth += 1
            depths[owners] = depth
            places = self._branch(level)
            places, firsts = np.unique(places, return_index=True)
            fresh = tree[places] < 0
            shared = shared or len(places) < len(level) or not fresh.all()
            places, owner = places[fresh], owners[firsts][fresh]
            tree[places] = owner
            found.append(places)
            below = self.children[places].reshape(-1)
            owner = np.repeat(owner, 2)
            inner = ~self._is_leaf(below)
            level, owners = below[inner], owner[inner]
        places = np.concatenate([np.zeros(0, np.int64), *found])
        order = places[np.argsort(tree[places], kind="stable")]
        # a tree that grows to one side is left before its end mostly
        counts = np.bincount(tree[places], minlength=len(roots))
        most = 2 * np.ceil(np.log2(counts + 1)) + 2
        steps = np.minimum(depths, most).astype(np.int32)
        # of branches that trees share, it is not known here how deep they are
        return order, 2 * steps + ((steps < depths) | shared), depth

    def comparisons(
        self, roots: Array, leaves: int
    ) -> tuple[Array, Array, Array, Array] | None:
        """For each comparison, tree by tree, the threshold and the feature, and bits of
        the leaves that are left where it does not hold; where trees begin; and the leaf
        at each place of a tree, of which there are at most *leaves*.

        ``None`` if a tree has more, or trees have branches in common, or something
        holds for NaN alone.
        """
        if (self.missing & np.isnan(self.thresholds)).any():
            return None
        count = len(roots)
        tree = np.full(len(self.thresholds), -1)
        levels: list[tuple[Array, Array]] = []
        level, owners = roots, np.arange(count)
        seen = 0
        while True:
            inner = ~self._is_leaf(level)
            places, owners = self._branch(level[inner]), owners[inner]
            seen += len(places)
            if seen > len(tree) or (tree[places] >= 0).any():
                return None
            tree[places] = owners
            if not len(places):
                break
            levels.append((places, owners))
            # where the comparison holds comes first
            level = self.children[places, ::-1].reshape(-1)
            owners = np.repeat(owners, 2)
        if seen != np.count_nonzero(tree >= 0):
            return None
        under = np.zeros(len(self.thresholds), np.int64)
        for places, _ in reversed(levels):
            below = self.children[places]
            is_leaf = self._is_leaf(below)
            inner = np.where(is_leaf, 0, self._branch(below))
            sizes = np.where(is_leaf, 1, under[inner])
            under[places] = sizes.sum(axis=1)
        if under.max(initial=1) > leaves:
            return None
        found = np.full((count, leaves), -1)
        alone = self._is_leaf(roots)
        found[alone, 0] = roots[alone]
        first = np.zeros(len(self.thresholds), np.int64)
        held = np.zeros(len(self.thresholds), np.int64)
        for places, owners in levels:
            below = self.children[places, ::-1]
            is_leaf = self._is_leaf(below)
            inner = np.where(is_leaf, 0, self._branch(below))
            sizes = np.where(is_leaf, 1, under[inner])
            held[places] = sizes[:, 0]
            second = first[places] + sizes[:, 0]
            starts = np.stack((first[places], second), axis=1)
            first[inner[~is_leaf]] = starts[~is_leaf]
            rows = np.broadcast_to(owners[:, None], starts.shape)
            found[rows[is_leaf], starts[is_leaf]] = below[is_leaf]
        # of a tree those come first that hold for NaN
        part = 2 * tree + ~self.missing
        order = np.argsort(part, kind="stable")
        order = order[np.searchsorted(part[order], 0) :]
        parts = np.searchsorted(part[order], np.arange(2 * count + 1))
        starts = parts.astype(np.int32)
        ones = (np.uint64(1) << held[order].astype(np.uint64)) - np.uint64(1)
        kept = ~(ones << first[order].astype(np.uint64))
        # what stands for no leaf is as the first one
        found = np.where(found < 0, found[:, :1], found) - self.leaves
        return order, kept, starts, found

    def table(self, roots: Array, order: Array) -> tuple[Array, Array, Array, bool]:
        """The tests, children and leaves of :class:`Table`, and whether nodes differ in
        where NaN goes."""
        pair = np.zeros(len(self.thresholds), np.int64)
        pair[order] = len(roots) + 2 * np.arange(len(order))
        # where the comparison holds comes first
        numbers = np.concatenate((roots, self.children[order, ::-1].reshape(-1)))
        leaf = self._is_leaf(numbers)
        places = np.where(leaf, 0, self._branch(numbers))
        thresholds, features, missing = self.thresholds, self.features, self.missing
        if not len(thresholds):  # so that leaves have something to leave out
            thresholds = np.zeros(1, thresholds.dtype)
            features, pair = np.zeros(1, np.int64), np.zeros(1, np.int64)
            missing = np.zeros(1, bool)
        itemsize = thresholds.dtype.itemsize
        test = np.dtype([("threshold", thresholds.dtype), ("feature", np.int32)])
        tests = np.zeros(len(numbers), test)
        tests["threshold"] = np.where(leaf, np.nan, thresholds[places])
        goes = ~leaf & missing[places]
        tests["feature"] = np.where(leaf, 0, features[places]) * itemsize + goes
        # a leaf comes after its child
        own = np.arange(len(numbers)) - 1
        children = np.where(leaf, own, pair[places]).astype(np.int32)
        leaves = np.where(leaf, numbers - self.leaves, 0).astype(np.int32)
        return tests, children, leaves, bool(goes.any())


_SIDE_BY_SIDE: Final = 16
"""Rows that are compared at a time."""

_WIDTHS: Final = {32: 0.04, 64: 0.065}
"""Of bits, and what a comparison then is of a step of a walk, for each row."""

_TREE: Final = 0.3
"""The same of what a tree's comparisons begin and end with."""


def _comparisons(
    branches: _Branches, forest: Forest, walked: int
) -> Comparisons | None:
    """The comparisons of a forest whose leaves have one vote each, if they take less
    than its walks.

    Args:
        walked: the steps of all walks of a row.
    """
    count, roots = len(branches.thresholds), np.asarray(forest.roots)
    for width, cost in _WIDTHS.items():
        compared = count * cost + _TREE * len(roots)
        if compared > walked:
            return None
        found = branches.comparisons(roots, width)
        if found is not None:
            break
    else:
        return None
    order, kept, starts, leaves = found
    targets = np.asarray(forest.targets)[leaves, 0]
    if (targets != targets[:, :1]).any() or (targets == forest.target_count).any():
        return None
    voted = np.bincount(targets[:, 0], minlength=forest.target_count) > 0
    tests = np.zeros(len(order), [("threshold", np.float32), ("feature", np.int32)])
    tests["threshold"] = branches.thresholds[order]
    tests["feature"] = branches.features[order] * _SIDE_BY_SIDE
    narrow = kept.astype(np.uint32 if width == 32 else np.uint64)
    return Comparisons(
        tests,
        narrow,
        starts,
        np.asarray(forest.weights, np.float64)[leaves, 0],
        targets[:, 0].astype(np.int32),
        voted.astype(np.int64),
        width,
        # as many as are compared at once take about as long as fewer
        math.ceil(_SIDE_BY_SIDE * 1.4 * compared / walked),
    )


def _of_set(members: Members | None, node: int, dtype: np.dtype[Any]) -> Array:
    """The members of a node's set that a feature of *dtype* can be, in their order."""
    if members is None:
        return np.zeros(0, dtype)
    count = len(members.values)
    first = members.sets[node] * count
    begin, end = np.searchsorted(members.pairs, (first, first + count))
    values = members.values[np.unique(members.pairs[begin:end]) - first]
    with np.errstate(over="ignore"):
        narrow = values.astype(dtype)
    return np.asarray(narrow[narrow.astype(values.dtype) == values])


def _search(values: Array, no: int, yes: int, first: int) -> tuple[Array, Array]:
    """Thresholds and children of nodes that find out whether what is at most the last
    of *values* is one of them.

    Args:
        no, yes: where to go in the end.
        first: the number of the first node, which later ones follow; among children,
            node n is -1 - n.
    """
    before = np.nextafter(values, values.dtype.type(-np.inf))
    before[np.isneginf(values)] = np.nan
    thresholds, children = [], []
    waiting = [(0, len(values) - 1)]
    for low, high in waiting:  # which grows
        if low == high:
            thresholds.append(before[low])
            children.append((yes, no))
            continue
        middle = (low + high) // 2
        number = -1 - first - len(waiting)
        thresholds.append(values[middle])
        children.append((number - 1, number))
        waiting += [(low, middle), (middle + 1, high)]
    return np.array(thresholds, values.dtype), np.array(children, np.int64)
