"""Votes of trees of few leaves, without walks: all comparisons of a tree for many rows.

A row begins with all leaves of a tree.  Each comparison that does not hold takes away
those to which it would have led if it had; the first of what is left is where a walk
would have come.  Nothing waits for anything, and a comparison is one instruction for
sixteen rows.

Source: C. Lucchese et al., QuickScorer: a fast algorithm to rank documents with
additive ensembles of regression trees, SIGIR 2015; and, for vectors, Exploiting CPU
SIMD extensions to speed-up document scoring with tree ensembles, SIGIR 2016.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from onnxplug_cpu.compiler.codegen.emit import (
    F32,
    F64,
    I1,
    I32,
    I64,
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
from onnxplug_cpu.compiler.machine.isa import LANES

if TYPE_CHECKING:
    from onnxplug_cpu.compiler.machine.isa import Isa

GROUPS: Final = 2
"""Vectors of rows for which a comparison is read once, at most."""

TOGETHER: Final = GROUPS * LANES
"""Rows at a time, at most."""


class _Words(KernelWords):
    rows: Integer
    each: Integer
    block: Integer
    tests: Pointer
    kept: Pointer
    starts: Pointer
    weights: Pointer
    targets: Pointer
    voted: Pointer
    count: Integer
    trees: Integer
    x: Pointer
    x_row: Integer
    columns: Integer
    totals: Pointer
    counts: Pointer
    groups: Pointer
    features: Integer


class TreeMasks(Generator):
    """The sums of the votes of trees, each for one target.  A chunk is some blocks of
    rows, and all rows of a block are computed, also if there are fewer.

    Attributes:
        leaves: of a tree at most, 32 or 64.
        groups: vectors of rows for which a comparison is read once.
        counted: targets that got no vote are told apart from those with a sum of 0.
    """

    leaves: int
    groups: int
    counted: bool

    @property
    def words(self) -> tuple[str, ...]:
        return _Words.names

    def write(self, module: Module, name: str, isa: Isa) -> None:
        _Writer(self, _Words(module, name)).write()


class _Writer:
    """Writes the function."""

    def __init__(self, form: TreeMasks, k: _Words) -> None:
        self.k, self.f, self.form, self.leaves = k, k.function, form, form.leaves
        self.mask = Type(f"i{form.leaves}")
        # a vector of masks is one register
        self.lanes = 512 // form.leaves
        self.parts = LANES // self.lanes
        k.keep(_Words.names)
        room = k.block * (k.features * 4 + k.count * 8)
        self.copied = self.f.at(k.groups, k.worker * room, Type("i8"))
        self.sums = self.f.at(self.copied, k.block * k.features, F32)

    def write(self) -> None:
        f, k = self.f, self.k
        begin = k.chunk * k.each
        end = f.minimum(begin + k.each, k.rows)

        def some(first: Value) -> None:
            count = f.minimum(k.block, end - first)
            f.loop(count, lambda row: self._copy(first + row, row))
            zero = f.zero(F64)
            sums = k.block * k.count
            f.loop(sums, lambda n: f.store(zero, f.at(self.sums, n, F64)))

            def tree(number: Value) -> None:
                f.loop(
                    count,
                    lambda row: self._rows(number, row),
                    step=self.form.groups * LANES,
                )

            f.loop(k.trees, tree)

            f.loop(k.count, lambda target: self._give(target, first, count))

        f.loop(end, some, start=begin, step=k.block)
        f.finish()

    def _give(self, target: Value, first: Value, count: Value) -> None:
        """The sums of a target for rows from *first* on."""
        f, k = self.f, self.k
        sums = f.at(self.sums, target * k.block, F64)
        voted = f.load(f.at(k.voted, target, I64), I64)

        def give(row: Value) -> None:
            place = (first + row) * k.columns + target
            f.store(f.load(f.at(sums, row, F64), F64), f.at(k.totals, place, F64))
            if self.form.counted:
                f.store(voted, f.at(k.counts, place, I64))

        f.loop(count, give)

    def _copy(self, row: Value, place: Value) -> None:
        """A row's features to where those of sixteen rows are side by side."""
        f, k = self.f, self.k
        own = f.at(k.x, row * k.x_row, Type("i8"))
        group = place // LANES * LANES * k.features + place % LANES

        def feature(number: Value) -> None:
            value = f.load(f.at(own, number, F32), F32)
            f.store(value, f.at(self.copied, group + number * LANES, F32))

        f.loop(k.features, feature)

    def _rows(self, tree: Value, row: Value) -> None:
        """One tree for the rows from *row* on."""
        f, k = self.f, self.k
        vector = self.mask.vector(self.lanes)
        group = f.at(self.copied, row * k.features, F32)
        further = k.features * LANES

        def test(number: Value, left: Sequence[Value], of_nan: bool) -> list[Value]:
            at = f.at(k.tests, number * 2, F32)
            threshold = f.load_splat(at, F32.vector(LANES))
            offset = f.convert(f.load(f.at(at, 1, I32), I32), I64)
            kept = f.load_splat(f.at(k.kept, number, self.mask), vector)
            found = list(left)
            for part in range(self.form.groups):
                place = f.at(group, further * part + offset, F32)
                x = f.load(place, F32.vector(LANES), align=4)
                fails = x > threshold if of_nan else ~(x <= threshold)
                for piece in range(self.parts):
                    lanes = range(piece * self.lanes, (piece + 1) * self.lanes)
                    some = fails if self.parts == 1 else f.shuffle(fails, fails, lanes)
                    own = part * self.parts + piece
                    found[own] = f.select(some, left[own] & kept, left[own])
            return found

        first, second, end = (
            f.convert(f.load(f.at(k.starts, tree * 2 + n, I32), I32), I64)
            for n in range(3)
        )
        left = [f.value(-1, vector)] * (self.form.groups * self.parts)
        left = f.loop(second, lambda n, *left: test(n, left, True), left, start=first)
        left = f.loop(end, lambda n, *left: test(n, left, False), left, start=second)
        self._vote(tree, row, left)

    def _vote(self, tree: Value, row: Value, left: Sequence[Value]) -> None:
        f, k = self.f, self.k
        weights = f.at(k.weights, tree * self.leaves, F64)
        target = f.convert(f.load(f.at(k.targets, tree, I32), I32), I64)
        sums = f.at(self.sums, target * k.block + row, F64)
        count = 0
        for masks in left:
            places = f.intrinsic(
                masks.type,
                f"llvm.cttz.{masks.type.suffix}",
                masks,
                f.value(1, I1),
            )
            for start in range(0, self.lanes, 8):
                some = places
                if self.lanes > 8:
                    some = f.shuffle(places, places, range(start, start + 8))
                votes = self._gathered(weights, f.convert(some, I64.vector(8)))
                place = f.at(sums, count, F64)
                total = f.load(place, F64.vector(8), align=8)
                f.store(total + votes, place, align=8)
                count += 8

    def _gathered(self, weights: Value, places: Value) -> Value:
        f = self.f
        pointers = f.instruction(
            Type("ptr", 8), f"getelementptr double, ptr {weights.text}, {places}"
        )
        return f.intrinsic(
            F64.vector(8),
            "llvm.masked.gather.v8f64.v8p0",
            f.aligned(pointers, 8),
            f.value(1, Type("i1", 8)),
            f.zero(F64.vector(8)),
        )
