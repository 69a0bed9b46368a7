"""Few rows times a transposed matrix: sums along rows of both factors.

Transposing a matrix that is used once, for one row or a few, costs more than the
product.
"""

from __future__ import annotations

from onnxplug_cpu.compiler.codegen.emit import F32, Function, Module, Value
from onnxplug_cpu.compiler.codegen.kernel import Generator
from onnxplug_cpu.compiler.kernels.contraction.pack import transpose_quarters
from onnxplug_cpu.compiler.kernels.contraction.tile import (
    TileArguments,
    multiply_add,
    offset,
)
from onnxplug_cpu.compiler.machine.isa import LANES, Isa

_VECTOR = F32.vector(LANES)
_COLUMNS = 4


class DotProducts(Generator):
    """A function that computes *rows* rows of a product, float32.

    Its arguments are :class:`~.tile.TileArguments`; ``b`` has the matrix's columns, of
    ``k`` consecutive elements, ``b_row`` apart.  It writes ``columns`` elements of each
    row of ``c``, and does not heed ``add``.
    """

    rows: int

    def write(self, module: Module, name: str, isa: Isa) -> None:
        _write(module, name, isa, self.rows)


def _write(module: Module, name: str, isa: Isa, rows: int) -> None:
    f = module.function(name, TileArguments.parameters())
    a, a_row, b, b_row, k, columns, c, c_row = f.parameters[:8]
    together = rows if isa.name == "avx512" else 1
    whole = k & -LANES
    rest = f.first_lanes(k - whole, LANES)

    def four_columns(j: Value) -> None:
        left = columns - j
        # a missing column is another one's copy, and not stored
        places = [
            offset(f, b, (j + f.minimum(left - 1, f.value(i, left.type))) * b_row)
            for i in range(_COLUMNS)
        ]
        kept = f.first_lanes(left, _COLUMNS)
        for first in range(0, rows, together):
            sides = [
                offset(f, a, a_row * row)
                for row in range(first, min(first + together, rows))
            ]
            sums = _products(f, isa, sides, places, k, whole, rest)
            for row in range(len(sides)):
                four = sums[row * _COLUMNS : (row + 1) * _COLUMNS]
                target = f.at(offset(f, c, c_row * (first + row)), j, F32)
                f.store_masked(_sum_each(f, four), target, kept)

    f.loop(columns, four_columns, step=_COLUMNS)
    f.finish()


def _products(
    f: Function,
    isa: Isa,
    rows: list[Value],
    columns: list[Value],
    k: Value,
    whole: Value,
    rest: Value,
) -> list[Value]:
    """For each row and column a vector whose lanes sum up to their product."""

    def step(left: list[Value], right: list[Value], sums: list[Value]) -> list[Value]:
        return [
            multiply_add(f, isa, x, y, sums[i * len(right) + j])
            for i, x in enumerate(left)
            for j, y in enumerate(right)
        ]

    def vectors(places: list[Value], i: Value) -> list[Value]:
        return [f.load(f.at(place, i, F32), _VECTOR) for place in places]

    def masked(places: list[Value]) -> list[Value]:
        return [f.load_masked(f.at(p, whole, F32), rest, _VECTOR) for p in places]

    sums = f.loop(
        whole,
        lambda i, *sums: step(vectors(rows, i), vectors(columns, i), list(sums)),
        [f.zero(_VECTOR)] * (len(rows) * len(columns)),
        step=LANES,
    )
    return f.branch(
        whole.compare("eq", k),
        lambda: sums,
        lambda: step(masked(rows), masked(columns), sums),
    )


def _sum_each(f: Function, vectors: list[Value]) -> Value:
    """Four vectors' sums as one vector."""
    a, b, c, d = transpose_quarters(f, vectors)
    total = (a + b) + (c + d)
    while total.type.lanes > _COLUMNS:
        half = total.type.lanes // 2
        low = f.shuffle(total, total, range(half))
        high = f.shuffle(total, total, range(half, 2 * half))
        total = low + high
    return total
