"""Walks through trees: several at a time, as each waits for what it reads.

Of many rows, some walk through one tree together, which stays in the nearest cache for
all rows of a block; of a few, each walks through some trees together.  Either way a
row's votes are added up in the order of the trees, in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from onnxplug_cpu.compiler.codegen.emit import F64, I8, I32, I64, Module, Type, Value
from onnxplug_cpu.compiler.codegen.kernel import (
    Generator,
    Integer,
    KernelWords,
    Pointer,
)
from onnxplug_cpu.compiler.kernels.trees.table import NODE

if TYPE_CHECKING:
    from onnxplug_cpu.compiler.machine.isa import Isa

TOGETHER: Final = 8
"""Walks at a time."""

SUM, AVERAGE, MIN, MAX = "SUM", "AVERAGE", "MIN", "MAX"


class _Words(KernelWords):
    rows: Integer
    each: Integer
    block: Integer
    nodes: Pointer
    trees: Integer
    x: Pointer
    x_row: Integer
    weights: Pointer
    targets: Pointer
    votes: Integer
    columns: Integer
    totals: Pointer
    counts: Pointer


class TreeWalks(Generator):
    """The votes of trees for each target.  A chunk is some blocks of rows.

    Attributes:
        element: of features and thresholds.
        missing: nodes say where NaN goes.
        single: each leaf has one vote, for the only target.
        listed: leaves say for which targets their votes are.
        counted: targets that got no vote are told apart from those with a sum of 0.
        aggregate: ``SUM``, ``AVERAGE``, ``MIN`` or ``MAX``.
    """

    element: str
    missing: bool
    single: bool
    listed: bool
    counted: bool
    aggregate: str

    @property
    def words(self) -> tuple[str, ...]:
        return _Words.names

    def write(self, module: Module, name: str, isa: Isa) -> None:
        _Writer(self, _Words(module, name)).write()


class _Writer:
    """Writes the function."""

    def __init__(self, form: TreeWalks, k: _Words) -> None:
        self.form, self.k, self.f = form, k, k.function
        self.feature = Type(form.element)
        wide = form.element == "f64"
        self.threshold_at, self.feature_at, self.child_at = (
            0,
            4 + 4 * wide,
            8 + 4 * wide,
        )
        self.leaf_at = 0 if wide else 12
        self.nodes, self.trees = k.nodes, k.trees
        self.x, self.x_row = k.x, k.x_row
        self.votes, self.columns = k.votes, k.columns
        self.weights, self.targets = k.weights, k.targets
        self.totals, self.counts = k.totals, k.counts

    def write(self) -> None:
        f, k = self.f, self.k
        each, block = k.each, k.block
        begin = k.chunk * each
        end = f.minimum(begin + each, k.rows)

        def some(first: Value) -> None:
            last = f.minimum(first + block, end)
            self._clear(first, last)
            whole = first + ((last - first) & -TOGETHER)
            f.loop(self.trees, lambda tree: self._by_rows(tree, first, whole))
            f.loop(last, self._by_trees, start=whole)

        f.loop(end, some, start=begin, step=block)
        f.finish()

    def _clear(self, first: Value, last: Value) -> None:
        f = self.f
        start = {MIN: float("inf"), MAX: float("-inf")}.get(self.form.aggregate, 0.0)
        value = f.value(start, F64)

        def one(at: Value) -> None:
            f.store(value, f.at(self.totals, at, F64))
            if self.form.counted:
                f.store(f.zero(I64), f.at(self.counts, at, I64))

        f.loop(last * self.columns, one, start=first * self.columns)

    def _by_rows(self, tree: Value, first: Value, whole: Value) -> None:
        """One tree for all rows of a block."""
        f, root = self.f, tree * NODE

        def group(row: Value) -> None:
            rows = [row + n for n in range(TOGETHER)]
            places = [f.at(self.x, each * self.x_row, I8) for each in rows]
            leaves = self._walk(places, [root] * TOGETHER)
            for each, leaf in zip(rows, leaves, strict=True):
                self._vote(each, leaf)

        f.loop(whole, group, start=first, step=TOGETHER)

    def _by_trees(self, row: Value) -> None:
        """All trees for one row."""
        f = self.f
        place = f.at(self.x, row * self.x_row, I8)

        def some(many: int) -> Callable[[Value], None]:
            def walk(tree: Value) -> None:
                roots = [(tree + n) * NODE for n in range(many)]
                for leaf in self._walk([place] * many, roots):
                    self._vote(row, leaf)

            return walk

        whole = self.trees & -TOGETHER
        f.loop(whole, some(TOGETHER), step=TOGETHER)
        f.loop(self.trees, some(1), start=whole)

    def _walk(self, rows: list[Value], roots: list[Value]) -> list[Value]:
        """The leaves that *rows* reach from *roots*, all as distances in bytes."""
        f = self.f

        def turn(*at: Value) -> tuple[Value, list[Value]]:
            after = [self._next(n, row) for n, row in zip(at, rows, strict=True)]
            moved = after[0] ^ at[0]
            for new, old in zip(after[1:], at[1:], strict=True):
                moved = moved | (new ^ old)
            return moved.compare("ne", 0), after

        return f.repeat(turn, roots)

    def _next(self, at: Value, row: Value) -> Value:
        """The child to which a row goes; of a leaf it is the leaf."""
        f, node = self.f, self.f.at(self.nodes, at, I8)
        place = f.convert(f.load(f.at(node, self.feature_at, I8), I32), I64)
        x = f.load(f.at(row, place, I8), self.feature)
        child = f.convert(f.load(f.at(node, self.child_at, I8), I32), I64)
        # of a leaf the threshold is NaN
        takes = x <= f.load(f.at(node, self.threshold_at, I8), self.feature)
        if self.form.missing:
            is_missing = x.compare("ne", x) & (child & 1).compare("ne", 0)
            takes, child = takes | is_missing, child & -NODE
        return child + f.convert(takes, I64) * NODE

    def _vote(self, row: Value, leaf: Value) -> None:
        """Count the votes of a leaf."""
        f = self.f
        node = f.at(self.nodes, leaf, I8)
        number = f.convert(f.load(f.at(node, self.leaf_at, I8), I32), I64)
        first = number if self.form.single else number * self.votes
        totals = f.at(self.totals, row * self.columns, F64)
        counts = f.at(self.counts, row * self.columns, I64)

        def one(vote: Value) -> None:
            weight = f.load(f.at(self.weights, first + vote, F64), F64)
            target = vote
            if self.form.listed:
                target = f.load(f.at(self.targets, first + vote, I64), I64)
            place = f.at(totals, target, F64)
            f.store(self._joined(f.load(place, F64), weight), place)
            if self.form.counted:
                f.store(f.value(1, I64), f.at(counts, target, I64))

        if self.form.single:
            one(f.value(0, I64))
        else:
            f.loop(self.votes, one, nonempty=True)

    def _joined(self, total: Value, weight: Value) -> Value:
        if self.form.aggregate == MIN:
            return self.f.select(weight < total, weight, total)
        if self.form.aggregate == MAX:
            return self.f.select(weight > total, weight, total)
        return total + weight
