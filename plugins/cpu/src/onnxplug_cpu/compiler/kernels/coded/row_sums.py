"""The sums of some rows and some columns, a turn of whose loop reads what is next."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Protocol

from onnxplug_cpu.compiler.codegen.emit import I64, Type, Value
from onnxplug_cpu.compiler.codegen.scheduling import known_after
from onnxplug_cpu.compiler.kernels.coded.few import Few, FewForm
from onnxplug_cpu.compiler.kernels.contraction.tile import multiply_add, offset

_CACHE_LINE = 64


class RowsForm(FewForm, Protocol):
    """What the sums depend on, besides."""

    @property
    def steps(self) -> int:
        """Of a turn of the loop; 0 if there are many."""


class RowSums(ABC):
    """The products of some rows and some columns.

    What the loop carries are the places of codes, of those of the next columns, of
    scales, of rows and of what belongs to these, and vectors of sums.

    Args:
        vector: of the sums.
        product: of the sums of a turn, before they are scaled.
        turns: how many there are.
        spans: how many blocks a turn reads.
        nbytes: of the codes of a column that a step of it reads.
        more: the places of what belongs to the rows.
    """

    takes_zeros = True
    """Whether codes are multiplied as they are, and what zero points add is taken away
    at the end."""

    def __init__(
        self,
        few: Few,
        form: RowsForm,
        column: Value,
        count: int,
        first: Value,
        *,
        vector: Type,
        product: Type,
        turns: Value,
        spans: int = 1,
        nbytes: int = 0,
        more: Sequence[Value] = (),
    ) -> None:
        self.few, self.column, self.count = few, column, count
        self.rows, self.steps = form.rows, form.steps
        self.vector, self.product, self.turns = vector, product, turns
        self.spans, self.nbytes = spans, nbytes or few.codes.form.lanes
        f, k, codes = few.f, few.k, few.codes
        self.f = f
        self.sums = [
            offset(f, k.sums, (first + row) * k.sums_row) for row in range(form.rows)
        ]
        start = codes.start("codes", column)
        self.places = [
            start,
            # what the next columns have, which lie behind these
            offset(f, start, codes.words["codes_column"] * count),
            codes.start("scale", column),
            offset(
                f, codes.start("scale", column), codes.words["scale_column"] * count
            ),
            offset(f, k.x, first * k.x_row),
            *more,
        ]

    def compute(self) -> list[Value]:
        """Of each row the products with all columns."""
        f, few, count, lead = self.f, self.few, self.count, len(self.places)
        carried = [*self.places] + [f.zero(self.vector)] * (count * self.rows)
        totals = f.loop(self.turns, self._turn, carried, nonempty=True)[lead:]
        found = [f.reduce("fadd", total) for total in totals]
        for j in range(count if self.takes_zeros else 0):
            taken = few.zero_points.taken(self.column + j, few.k.blocks, self.sums)
            for row, away in enumerate(taken):
                found[row * count + j] = found[row * count + j] - away
        return found

    @abstractmethod
    def _scaled(
        self, codes: Value, scale: Value, rows: Sequence[Value]
    ) -> Iterator[list[tuple[Value, Value]]]:
        """Of each row the products of a turn with a column, block by block, and what
        they are multiplied with.

        Args:
            codes, scale: the column's places.
            rows: the rows' place, and those of what belongs to them.
        """

    @abstractmethod
    def _step(
        self, step: Value, codes: Value, x: Value, products: list[Value]
    ) -> list[Value]:
        """Add the products with the codes of a step."""

    @abstractmethod
    def _advance(self) -> list[Value | int]:
        """By how many bytes a turn moves the places of rows."""

    def _turn(
        self,
        _: Value,
        codes: Value,
        ahead: Value,
        scale: Value,
        soon: Value,
        *carried: Value,
    ) -> list[Value]:
        f, few, count = self.f, self.few, self.count
        lead = len(self.places) - 4
        rows, total = list(carried[:lead]), list(carried[lead:])
        words, nbytes = few.codes.words, self.nbytes
        for distance in range(0, nbytes * count * max(self.steps, 1), _CACHE_LINE):
            f.prefetch(offset(f, ahead, distance))
        f.prefetch(soon)
        for j in range(count):
            here, codes_here = rows, codes
            if j and self.rows > 1:
                # a column after the other: LLVM would load for all, and spill sums
                before = [total[row * count + j - 1] for row in range(self.rows)]
                *here, codes_here = known_after(f, few.isa, [*rows, codes], before)
            place = offset(f, codes_here, words["codes_column"] * j)
            scales = offset(f, scale, words["scale_column"] * j)
            for row, scaled in enumerate(self._scaled(place, scales, here)):
                at = row * count + j
                for product, factor in scaled:
                    total[at] = multiply_add(f, few.isa, product, factor, total[at])
        moved = zip(rows, self._advance(), strict=True)
        return [
            offset(f, codes, words["codes_block"] * self.spans),
            offset(f, ahead, few.k.steps * (nbytes * count)),
            offset(f, scale, words["scale_block"] * self.spans),
            offset(f, soon, words["scale_block"] * (self.spans * count)),
            *(offset(f, place, nbytes) for place, nbytes in moved),
            *total,
        ]

    def _products(
        self, codes: Value, x: Value, starts: list[Value] | None = None
    ) -> list[Value]:
        """The sums of products of each row with what a turn reads of a column, and of
        what they begin with."""
        f = self.f
        found = starts or [f.zero(self.product)] * self.rows
        if self.steps:
            for step in range(self.steps):
                found = self._step(f.value(step, I64), codes, x, found)
            return found
        return f.loop(
            self.few.k.steps,
            lambda step, *carried: self._step(step, codes, x, list(carried)),
            found,
            nonempty=True,
        )
