"""Walks through trees: several at a time, as each waits for what it reads.

Of many rows, some walk through one tree together, which stays in the nearest cache for
all rows of a block; of a few, each walks through some trees together.  Either way a
row's votes are added up in the order of the trees, in float64.

Rows that walk together have their features side by side, if it is worth a copy: a
feature of any of them is then at a fixed distance from where the first one's is, and no
walk needs a register for its row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from onnxplug_cpu.compiler.codegen.emit import (
    F64,
    I8,
    I32,
    I64,
    U32,
    Module,
    Type,
    Value,
)
from onnxplug_cpu.compiler.codegen.kernel import (
    Generator,
    Integer,
    KernelWords,
    Pointer,
)

if TYPE_CHECKING:
    from onnxplug_cpu.compiler.machine.isa import Isa

TOGETHER: Final = 8
"""Walks at a time: as many as there are registers for, and by which an address can be
scaled."""

SUM, AVERAGE, MIN, MAX = "SUM", "AVERAGE", "MIN", "MAX"


class _Words(KernelWords):
    rows: Integer
    each: Integer
    block: Integer
    tests: Pointer
    children: Pointer
    leaves: Pointer
    steps: Pointer
    trees: Integer
    x: Pointer
    x_row: Integer
    weights: Pointer
    targets: Pointer
    votes: Integer
    columns: Integer
    totals: Pointer
    counts: Pointer
    groups: Pointer
    features: Integer


class TreeWalks(Generator):
    """The votes of trees for each target.  A chunk is some blocks of rows.

    Attributes:
        element: of features and thresholds.
        missing: nodes say where NaN goes.
        single: each leaf has one vote, for the only target.
        listed: leaves say for which targets their votes are.
        counted: targets that got no vote are told apart from those with a sum of 0.
        aggregate: ``SUM``, ``AVERAGE``, ``MIN`` or ``MAX``.
        grouped: rows that walk together are copied to have their features side by side.
    """

    element: str
    missing: bool
    single: bool
    listed: bool
    counted: bool
    aggregate: str
    grouped: bool = False

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
        self.tests, self.children, self.leaves = k.tests, k.children, k.leaves
        self.trees = k.trees
        self.x, self.x_row = k.x, k.x_row
        self.votes, self.columns = k.votes, k.columns
        self.weights, self.targets = k.weights, k.targets
        self.totals, self.counts = k.totals, k.counts
        if form.grouped:
            # of each worker a block, which is a whole number of groups
            room = k.block * k.features * self.feature.nbytes
            self.groups = self.f.at(k.groups, k.worker * room, I8)
            self.features = k.features

    def write(self) -> None:
        f, k = self.f, self.k
        each, block = k.each, k.block
        begin = k.chunk * each
        end = f.minimum(begin + each, k.rows)

        def some(first: Value) -> None:
            last = f.minimum(first + block, end)
            self._clear(first, last)
            whole = first + ((last - first) & -TOGETHER)
            if self.form.grouped:

                def copy(row: Value) -> None:
                    self._copy(row, first)

                f.loop(whole, copy, start=first, step=TOGETHER)
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
        f, root = self.f, tree
        steps = f.convert(f.load(f.at(self.k.steps, tree, I32), I32), I64)

        def group(row: Value) -> None:
            rows = [row + n for n in range(TOGETHER)]
            if self.form.grouped:
                places = [self._group(row, first)] * TOGETHER
            else:
                places = [f.at(self.x, each * self.x_row, I8) for each in rows]
            leaves = self._walk(places, [root] * TOGETHER, steps)
            for each, leaf in zip(rows, leaves, strict=True):
                self._vote(each, leaf)

        f.loop(whole, group, start=first, step=TOGETHER)

    def _group(self, row: Value, first: Value) -> Value:
        """Where the features of the rows from *row* on are side by side."""
        place = (row - first) * self.features * self.feature.nbytes
        return self.f.at(self.groups, place, I8)

    def _copy(self, row: Value, first: Value) -> None:
        f = self.f
        group = self._group(row, first)
        count = TOGETHER
        rows = [f.at(self.x, (row + n) * self.x_row, I8) for n in range(count)]

        def feature(number: Value) -> None:
            place = f.at(group, number * count, self.feature)
            for n, own in enumerate(rows):
                value = f.load(f.at(own, number, self.feature), self.feature)
                f.store(value, f.at(place, n, self.feature))

        f.loop(self.features, feature)

    def _by_trees(self, row: Value) -> None:
        """All trees for one row."""
        f = self.f
        place = f.at(self.x, row * self.x_row, I8)

        def some(many: int) -> Callable[[Value], None]:
            def walk(tree: Value) -> None:
                roots = [tree + n for n in range(many)]
                for leaf in self._walk([place] * many, roots):
                    self._vote(row, leaf)

            return walk

        whole = self.trees & -TOGETHER
        f.loop(whole, some(TOGETHER), step=TOGETHER)
        f.loop(self.trees, some(1), start=whole)

    def _walk(
        self,
        rows: list[Value],
        roots: list[Value],
        steps: Value | None = None,
    ) -> list[Value]:
        """The leaves that *rows* reach from *roots*, all by their numbers.

        Args:
            steps: to take before anything looks whether all have come to leaves, and
                whether they may not have; of rows that are side by side, if rows are
                copied.
        """
        f = self.f
        grouped = steps is not None and self.form.grouped

        def step(at: Sequence[Value]) -> list[Value]:
            return [
                self._next(node, row, number if grouped else None)
                for number, (node, row) in enumerate(zip(at, rows, strict=True))
            ]

        def turn(*at: Value) -> tuple[Value, list[Value]]:
            # looking takes as long as a third of a step
            after = step(step(at))
            moved = after[0] ^ at[0]
            for new, old in zip(after[1:], at[1:], strict=True):
                moved = moved | (new ^ old)
            return moved.compare("ne", 0), after

        if steps is None:
            return f.repeat(turn, roots)
        # how many they are is known before, so that no branch is predicted wrongly
        at = f.loop(steps >> 1, lambda _, *at: step(at), roots)
        goes_on = (steps & 1).compare("ne", 0)
        return f.branch(goes_on, lambda: f.repeat(turn, at), lambda: at)

    def _next(self, at: Value, row: Value, beside: int | None) -> Value:
        """The child to which a row goes; of a leaf it is the leaf.

        Args:
            beside: which one the row is of those side by side.
        """
        f, nbytes = self.f, self.feature.nbytes
        test = f.at(self.tests, at * (nbytes + 4), I8)
        place = f.convert(f.load(f.at(test, nbytes, I8), I32), I64)
        is_odd = None
        if self.form.missing:
            is_odd, place = (place & 1).compare("ne", 0), place & -2
        if beside is None:
            own = f.at(row, place, I8)
        else:
            own = f.at(f.at(row, place * TOGETHER, I8), beside * nbytes, I8)
        x = f.load(own, self.feature)
        first = f.load(f.at(self.children, at, U32), U32)
        # of a leaf the threshold is NaN
        takes = x <= f.load(test, self.feature, align=4)
        if is_odd is not None:
            takes = takes | (x.compare("ne", x) & is_odd)
        # which is an addition with carry
        return f.convert(first + f.convert(~takes, U32), I64)

    def _vote(self, row: Value, leaf: Value) -> None:
        """Count the votes of a leaf."""
        f = self.f
        number = f.convert(f.load(f.at(self.leaves, leaf, I32), I32), I64)
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
