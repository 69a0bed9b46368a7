"""Copies that put a few rows' elements in turn, or take them apart.

So lie the channels of a photograph, and the blocks of DepthToSpace and SpaceToDepth.
Whole vectors are moved, and their lanes exchanged in registers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from onnxplug_cpu.compiler.codegen.emit import I8, Function, Module, Value
from onnxplug_cpu.compiler.codegen.kernel import Generator, KernelFunction
from onnxplug_cpu.compiler.codegen.row_copy import move_type
from onnxplug_cpu.compiler.kernels.loop_nest import Axis, Walk
from onnxplug_cpu.compiler.machine.isa import LANES, Isa

_MOST_ROWS: Final = 4


class Interleaving(NamedTuple):
    """The axes of a copy, target first, that are elements of rows in turn.

    Attributes:
        joins: whether they are so in the target; otherwise in the source.
        rows: the axis of the few rows.
        columns: that of the elements of each.
        others: the other axes.
    """

    joins: bool
    rows: Axis
    columns: Axis
    others: tuple[Axis, ...]

    @classmethod
    def find(cls, axes: Sequence[Axis], width: int) -> Interleaving | None:
        """The one among *axes* of elements of *width* bytes, if there is one."""
        for rows in axes:
            if not 2 <= rows.size <= _MOST_ROWS or width not in rows.strides:
                continue
            apart = width * rows.size
            for joins in (True, False):
                wanted = (apart, width) if joins else (width, apart)
                if rows.strides[not joins] != width:
                    continue
                for columns in axes:
                    if columns.strides == wanted and columns.size >= LANES:
                        pair = (rows, columns)
                        others = tuple(a for a in axes if not any(a is b for b in pair))
                        return cls(joins, rows, columns, others)
        return None

    def words(self) -> dict[str, int]:
        """Of the kernel, beside those of its walk over the other axes."""
        return {
            "columns": self.columns.size,
            "apart": self.rows.strides[self.joins],
        }


class InterleavedCopy(Generator):
    """Copies *rows* rows of elements of *itemsize* bytes to where they lie in turn, or
    from there."""

    axes: int
    itemsize: int
    rows: int
    joins: bool

    @property
    def walk(self) -> Walk:
        """Over the items."""
        return Walk(("target", "source"), self.axes)

    @property
    def words(self) -> tuple[str, ...]:
        return (*self.walk.words, "columns", "apart")

    def write(self, module: Module, name: str, isa: Isa) -> None:
        k = KernelFunction(module, name, self.words)
        f, apart, columns = k.function, k.integer("apart"), k.integer("columns")
        whole = columns & -LANES

        def item(pointers: list[Value], _: list[Value]) -> None:
            joined, row = pointers if self.joins else reversed(pointers)
            rows = [row]
            for _unused in range(self.rows - 1):
                rows.append(f.at(rows[-1], apart, I8))

            def vectors(column: Value) -> None:
                self._move(f, joined, rows, column, LANES)

            def single(column: Value) -> None:
                self._move(f, joined, rows, column, 1)

            f.loop(whole, vectors, step=LANES)
            f.loop(columns, single, start=whole)

        self.walk.write(k, item)
        f.finish()

    def _move(
        self,
        f: Function,
        joined: Value,
        rows: Sequence[Value],
        column: Value,
        lanes: int,
    ) -> None:
        """So many elements of each row from *column* on."""
        type_ = move_type(self.itemsize)
        vector = type_.vector(lanes)
        begin = column * self.rows
        apart = [f.at(row, column, type_) for row in rows]
        together = [f.at(joined, begin + lanes * n, type_) for n in range(self.rows)]
        sources, targets = (apart, together) if self.joins else (together, apart)
        loaded = [f.load(place, vector, align=1) for place in sources]
        for number, target in enumerate(targets):
            f.store(self._lanes(f, loaded, number, lanes), target, align=1)

    def _lanes(
        self, f: Function, loaded: Sequence[Value], number: int, lanes: int
    ) -> Value:
        """Vector *number* of the result."""
        if lanes == 1:
            return loaded[number]
        if self.joins:
            places = (divmod(number * lanes + lane, self.rows) for lane in range(lanes))
            wanted = [(source, lane) for lane, source in places]
        else:
            places = (divmod(lane * self.rows + number, lanes) for lane in range(lanes))
            wanted = list(places)
        result = loaded[0]
        for source in range(1, self.rows):
            # what comes from a later vector is put in its place then
            result = f.shuffle(
                result,
                loaded[source],
                [
                    lanes + lane if which == source else lane if source == 1 else place
                    for place, (which, lane) in enumerate(wanted)
                ],
            )
        return result
