"""What the votes of trees become: scores, and the class of a row."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxplug_cpu.compiler.codegen.emit import F32, F64, I64, Module, Type, Value
from onnxplug_cpu.compiler.codegen.kernel import (
    Double,
    Generator,
    Integer,
    KernelWords,
    Pointer,
)

if TYPE_CHECKING:
    from onnxplug_cpu.compiler.machine.isa import Isa

MOST, SOLE = "most", "sole"


class _Words(KernelWords):
    rows: Integer
    each: Integer
    targets: Integer
    columns: Integer
    totals: Pointer
    counts: Pointer
    trees: Integer
    base: Pointer
    out: Pointer
    labels: Pointer
    chosen: Pointer
    sole: Integer
    limit: Double


class TreeScores(Generator):
    """The scores of rows from their totals.  A chunk is some rows.

    Attributes:
        result: the element of scores, ``f32`` or ``f64``.
        counted: a total without a vote counts as 0, and its class is not chosen.
        divides: totals are divided by the number of trees.
        has_base: something is added to each score.
        decides: ``most``: the class with the greatest score is a row's; ``sole``: the
            score of one class says which of two is; or nothing.
        paired: of ``sole``, the other class's score follows from that one's: 1 less it,
            or, with ``negated``, its negative.
    """

    result: str
    counted: bool
    divides: bool
    has_base: bool
    decides: str = ""
    paired: str = ""

    @property
    def words(self) -> tuple[str, ...]:
        return _Words.names

    def write(self, module: Module, name: str, isa: Isa) -> None:
        _Writer(self, _Words(module, name)).write()


class _Writer:
    """Writes the function."""

    def __init__(self, form: TreeScores, k: _Words) -> None:
        self.form, self.k, self.f = form, k, k.function
        self.targets, self.columns = k.targets, k.columns
        self.totals, self.counts = k.totals, k.counts
        self.base, self.out = k.base, k.out
        self.result = Type(form.result)
        if form.divides:
            self.trees = self.f.convert(k.trees, F64)

    def write(self) -> None:
        f, k = self.f, self.k
        each = k.each
        begin = k.chunk * each
        end = f.minimum(begin + each, k.rows)
        row = self._sole if self.form.decides == SOLE else self._each
        f.loop(end, row, start=begin)
        f.finish()

    def _each(self, row: Value) -> None:
        """All scores of a row, and the class that has the greatest."""
        f = self.f
        out = f.at(self.out, row * self.targets, self.result)

        def one(target: Value, best: Value, chosen: Value) -> list[Value]:
            score, voted = self._score(row, target)
            f.store(f.convert(score, self.result), f.at(out, target, self.result))
            if not self.form.decides:
                return [best, chosen]
            if voted is not None and not self.form.has_base:
                score = f.select(voted, score, float("-inf"))
            decisive = f.convert(score, F32)
            is_first_nan = decisive.compare("ne", decisive) & best.compare("eq", best)
            wins = (decisive > best) | is_first_nan
            return [f.select(wins, decisive, best), f.select(wins, target, chosen)]

        start = [f.value(float("-inf"), F32), f.value(0, I64)]
        _, chosen = f.loop(self.targets, one, start)
        if self.form.decides:
            self._choose(row, chosen)

    def _sole(self, row: Value) -> None:
        """Two scores of which one is voted for, and the class that it says."""
        f, sole = self.f, self.k.sole
        out = f.at(self.out, row * 2, self.result)
        score, _ = self._score(row, sole)
        decisive = f.convert(score, F32)
        wins = decisive > f.convert(self.k.limit, F32)
        self._choose(row, f.convert(wins, I64))
        if self.form.paired:
            other = -score if self.form.paired == "negated" else 1.0 - score
            f.store(f.convert(other, self.result), out)
            f.store(f.convert(score, self.result), f.at(out, 1, self.result))
            return
        other, _ = self._score(row, 1 - sole)
        f.store(f.convert(score, self.result), f.at(out, sole, self.result))
        f.store(f.convert(other, self.result), f.at(out, 1 - sole, self.result))

    def _score(self, row: Value, target: Value) -> tuple[Value, Value | None]:
        """A score, and whether there was a vote for it, if that is counted."""
        f, place = self.f, row * self.columns + target
        score, voted = f.load(f.at(self.totals, place, F64), F64), None
        if self.form.divides:
            score = score / self.trees
        if self.form.counted:
            voted = f.load(f.at(self.counts, place, I64), I64).compare("ne", 0)
        number = score.compare("eq", score)
        voted = number if voted is None else voted & number
        score = f.select(voted, score, 0.0)
        if self.form.has_base:
            score = score + f.load(f.at(self.base, target, F64), F64)
        return score, voted

    def _choose(self, row: Value, chosen: Value) -> None:
        f = self.f
        label = f.load(f.at(self.k.labels, chosen, I64), I64)
        f.store(label, f.at(self.k.chosen, row, I64))
