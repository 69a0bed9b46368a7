"""Sums of rows, each with a weight: what every kernel here does at one place.

A list in memory says which rows: their addresses, and beside them their weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from onnxplug_cpu.compiler.codegen.emit import F32, I64, PTR, Function, Type, Value
from onnxplug_cpu.compiler.kernels.rows import Elements
from onnxplug_cpu.compiler.machine.isa import LANES

SIDE = 4
"""Vectors of a row that are summed side by side."""

VECTOR = F32.vector(LANES)

Store = Callable[[Value, Value, "Value | None"], None]
"""``store(value, column, mask)`` keeps a vector of the result."""


def add_weighted(f: Function, total: Value | None, x: Value, weight: Value) -> Value:
    """The weighted sum, rounded once for each row."""
    return x * weight if total is None else f.fma(x, weight, total)


class RowList:
    """Addresses and weights of rows, in memory.

    Args:
        addresses: room for the addresses, 8 bytes each.
        weights: room for the weights, f32.
    """

    def __init__(self, f: Function, addresses: Value, weights: Value) -> None:
        self.f, self._addresses, self._weights = f, addresses, weights

    def put(self, number: Value, address: Value, weight: Value) -> None:
        """Write row *number*."""
        f = self.f
        f.store(address, f.at(self._addresses, number, I64))
        f.store(weight, f.at(self._weights, number, F32))

    def address(self, number: Value) -> Value:
        """Where row *number* is."""
        return self.f.load(self.f.at(self._addresses, number, I64), PTR)

    def weight(self, number: Value) -> Value:
        """The weight of row *number*, in all lanes."""
        return self.f.load_splat(self.f.at(self._weights, number, F32), VECTOR)


def sum_rows(
    f: Function,
    rows: RowList,
    count: Value,
    source: Elements,
    columns: Value,
    store: Store,
) -> None:
    """Sum *count* rows, which may be none, column by column.

    Args:
        source: how the columns of a row lie.
        columns: how many there are.
    """

    def vectors(column: Value, number: int, mask: Value | None) -> None:
        def row(turn: Value, *totals: Value) -> list[Value]:
            place = source.at(rows.address(turn), column)
            weight = rows.weight(turn)
            return [
                f.fma(source.load(source.at(place, LANES * n), mask), weight, totals[n])
                for n in range(number)
            ]

        totals = f.loop(count, row, [f.zero(VECTOR)] * number)
        for n, total in enumerate(totals):
            store(total, column + LANES * n, mask)

    sweep_columns(f, columns, vectors)


def sum_few_rows(
    f: Function,
    rows: Sequence[tuple[Value, Value | None]],
    source: Elements,
    columns: Value,
    store: Store,
) -> None:
    """Sum rows, of which their number is known to the code, column by column.

    Args:
        rows: address and weight of each; one without a weight is taken as it is.
        source, columns, store: as for :func:`sum_rows`.
    """

    def vectors(column: Value, number: int, mask: Value | None) -> None:
        places = [source.at(address, column) for address, _ in rows]
        for n in range(number):
            total: Value | None = None
            for place, (_, weight) in zip(places, rows, strict=True):
                x = source.load(source.at(place, LANES * n), mask)
                total = x if weight is None else add_weighted(f, total, x, weight)
            assert total is not None
            store(total, column + LANES * n, mask)

    sweep_columns(f, columns, vectors)


def sweep_columns(
    f: Function, columns: Value, vectors: Callable[[Value, int, Value | None], None]
) -> None:
    """``vectors(column, number, mask)`` for all columns: several vectors side by side,
    then one by one, the last one masked."""
    wide = columns - columns % (SIDE * LANES)
    f.loop(wide, lambda column: vectors(column, SIDE, None), step=SIDE * LANES)
    f.loop(
        columns,
        lambda column: vectors(column, 1, f.first_lanes(columns - column, LANES)),
        start=wide,
        step=LANES,
    )


def gather(
    f: Function, base: Value, indices: Value, mask: Value | None = None
) -> Value:
    """The f32 of an array at *base* at i32 *indices*; 0 where *mask* is false."""
    places = Type("ptr", LANES)
    made = f.instruction(places, f"getelementptr float, ptr {base.text}, {indices}")
    return f.intrinsic(
        VECTOR,
        f"llvm.masked.gather.{VECTOR.suffix}.v{LANES}p0",
        f.aligned(made, 4),
        f.value(1, Type("i1", LANES)) if mask is None else mask,
        f.zero(VECTOR),
    )
