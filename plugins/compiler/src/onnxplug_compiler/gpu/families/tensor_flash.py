"""Attention by tensor cores, of 16-bit floats: a warp has sixteen queries, and passes
its powers of scores on in registers, as fragments of products have them.

T. Dao, "FlashAttention-2" (2023), arXiv:2307.08691.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from onnxplug_compiler.gpu.command import as_bits
from onnxplug_compiler.gpu.families.flash import FlashKernel, Tile, Writer
from onnxplug_compiler.gpu.families.fragments import copy_elements, load_fragment
from onnxplug_compiler.gpu.render.body import Body, Operand
from onnxplug_compiler.gpu.render.dialect import Fragments, Warps
from onnxplug_compiler.gpu.render.extremes import largest
from onnxplug_compiler.gpu.render.narrow import bits_of
from onnxplug_compiler.gpu.shapes import shapes_of
from onnxplug_compiler.ir.recorder import Recorder
from onnxplug_compiler.ir.views import View

_FRAGMENT: Final = 16
_CHUNK: Final = 8
_PAD: Final = 8
"""Elements behind each line in shared memory, by which lines lie in different banks."""

_MOST_WARPS: Final = 4
_MOST_DEPTH: Final = 128
"""Elements of a key, and of a value, that registers have room for."""

_LEAST_ROWS: Final = 16
"""Queries that share keys: with fewer a fragment is mostly empty."""


class TensorFlashKernel(FlashKernel):
    """As :class:`FlashKernel`, of which queries, keys and values are bits.

    Attributes:
        chunks: which of these are copied by 16 bytes, as all is aligned.
    """

    chunks: tuple[bool, bool, bool] = (False, False, False)

    @property
    def operands(self) -> tuple[Operand, ...]:
        bits = Operand("u16", 4)
        return bits, bits, bits, *super().operands[3:]

    def write(self, body: Body) -> None:
        fragments, warps = body.dialect.fragments, body.dialect.warps
        if fragments is None or warps is None:
            raise ValueError("the language of the kernel has no tensor cores")
        with body.when(f"block < {body.size(0)}"):
            _Writer(body, self, fragments, warps).write()


def _padded(size: int) -> int:
    """Elements of a line that fragments fill."""
    return math.ceil(size / _FRAGMENT) * _FRAGMENT


class _Writer(Writer):
    """Writes what a workgroup does for its rows: a lane has two of its warp's, and of
    their scores and sums, two in eight."""

    kernel: TensorFlashKernel

    def __init__(
        self,
        body: Body,
        kernel: TensorFlashKernel,
        fragments: Fragments,
        warps: Warps,
    ) -> None:
        super().__init__(body, kernel)
        self.fragments, self.warps = fragments, warps
        self.aligned = [
            body.let("i1", body.aligned(n, _CHUNK)) if chunks else ""
            for n, chunks in enumerate(kernel.chunks)
        ]

    def own_rows(self) -> list[str]:
        return [f"lane / 32u * 16u + lane % 32u / 4u + {n}u" for n in (0, 8)]

    def share(self) -> None:
        kernel, tile = self.kernel, self.tile
        depth, columns = _padded(kernel.depth), _padded(kernel.columns)
        self.lengths = depth, depth, columns
        self.strides = [(length + _PAD) // 2 for length in self.lengths]
        # queries are in registers before there are keys
        near = self.body.array("u32", max(tile.rows, tile.keys) * self.strides[0])
        values = self.body.array("u32", tile.keys * self.strides[2])
        self.names = near, near, values

    def write(self) -> None:
        body = self.body
        self.load(0, "0u")
        body.line(self.fragments.arrive())
        body.wait()
        row = body.let("u32", "lane / 32u * 16u")
        queries = [
            self.fragment(0, (row, f"{k}u"))
            for k in range(0, self.lengths[0], _FRAGMENT)
        ]
        body.wait()
        tops = [body.var("f32", body.number("f32", -math.inf)) for _ in range(2)]
        totals = [body.var("f32", "0.0f") for _ in range(2)]
        tiles = self.zeros(self.lengths[2])
        sums = [_of_row(tiles, row) for row in range(2)]
        start, end = self.seen_by_group()
        with body.loop(end, start, f"{self.tile.keys}u") as key:
            self.load(1, key)
            self.load(2, key)
            body.line(self.fragments.arrive())
            body.wait()
            scores = self.multiplied(queries)
            self.mask(key, scores)
            for number in range(2):
                self.raise_row(
                    _of_row(scores, number), tops[number], totals[number], sums[number]
                )
            self.add(scores, tiles)
            body.wait()
        for number in range(2):
            for apart in (1, 2):
                other = self.swapped(totals[number], apart)
                body.assign(totals[number], f"{totals[number]} + {other}")
            self.store(number, tops[number], totals[number], sums[number])

    def column(self, number: int) -> str:
        return f"{number // 2 * 8 + number % 2}u + {self.x} * 2u"

    def zeros(self, length: int) -> list[list[str]]:
        """The lane's sums of two rows, by eight columns."""
        each = range(length // 8)
        return [[self.body.var("f32", "0.0f") for _ in range(4)] for _ in each]

    def swapped(self, value: str, apart: int) -> str:
        """What another lane of a row has."""
        found = self.warps.swap(value, apart, self.kernel.lanes)
        return self.body.let("f32", found)

    def load(self, which: int, key: str) -> None:
        """Begin to copy queries, keys or values, zeros where there are none."""
        body, chunks = self.body, self.kernel.chunks[which]
        each, length = _CHUNK if chunks else 2, self.lengths[which]
        lines = self.tile.rows if which == 0 else self.tile.keys
        per_line = length // each
        with body.loop(
            f"{lines * per_line}u", "lane", f"{self.kernel.lanes}u"
        ) as entry:
            line = body.let("u32", f"{entry} / {per_line}u")
            near = body.let("u32", f"{entry} % {per_line}u * {each}u")
            word = f"{line} * {self.strides[which]}u + {near} / 2u"
            self.copy(which, (key, line, near), word)

    def copy(self, which: int, at: tuple[str, str, str], word: str) -> None:
        """Copy a chunk, or two elements.

        Args:
            at: the first key of the tile, the line, and the first element in it.
            word: where they go in shared memory.
        """
        body = self.body

        def find(step: int) -> tuple[str, str]:
            column = body.let("u32", f"{at[2]} + {step}u")
            return self.element(which, at[0], at[1], column)

        target = self.names[which], word
        copy_elements(body, self.fragments, which, target, find, self.aligned[which])

    def element(self, which: int, key: str, line: str, column: str) -> tuple[str, str]:
        """The place of an element of a line, or of another one, and if it is there."""
        body, kernel = self.body, self.kernel
        size = kernel.columns if which == 2 else kernel.depth
        there = f"{column} < {size}u"
        inside = body.let("u32", body.dialect.select(there, column, "0u"))
        if which == 0:
            at = [*self.place(f"{self.first} + {line}"), inside]
        else:
            number = body.let("u32", f"{key} + {line}")
            there = f"{there} && {number} < {self.limit}"
            last = body.let("u32", f"min({number}, {self.keys} - 1u)")
            at = [self.image, self.head, last, inside]
        return body.place(which, at), body.let("i1", there)

    def fragment(self, which: int, start: tuple[str, str]) -> list[str]:
        """A lane's part of a fragment of queries, keys or values."""
        return load_fragment(
            self.body,
            self.fragments,
            f"{self.names[which]}[0u",
            self.strides[which],
            start,
            along=which != 2,
            left=which == 0,
        )

    def multiplied(self, queries: Sequence[Sequence[str]]) -> list[list[str]]:
        """The products of the warp's queries and the tile's keys."""
        found = self.zeros(self.tile.keys)
        for k, query in enumerate(queries):
            for key in range(0, self.tile.keys, _FRAGMENT):
                near = self.fragment(1, (f"{key}u", f"{k * _FRAGMENT}u"))
                self.add_products(found[key // 8 :], query, near)
        return found

    def add_products(
        self, sums: Sequence[Sequence[str]], a: Sequence[str], b: Sequence[str]
    ) -> None:
        """Add products of two neighbouring matrices of the right factor."""
        element = self.kernel.element
        for number in range(2):
            right = b[2 * number : 2 * number + 2]
            line = self.fragments.multiply(element, sums[number], a, right)
            self.body.line(line)

    def mask(self, key: str, scores: Sequence[Sequence[str]]) -> None:
        """Make scores of products."""
        for number, tile in enumerate(scores):
            for part, name in enumerate(tile):
                place = f"{key} + {number * 8 + part % 2}u + {self.x} * 2u"
                score = self.masked(self.at[part // 2], place, name)
                self.body.assign(name, score)

    def raise_row(
        self, scores: Sequence[str], top: str, total: str, sums: Sequence[str]
    ) -> None:
        """Let a row's scores be powers, and its sums those of its largest score."""
        body = self.body
        most = body.var("f32", top)
        for score in scores:
            body.assign(most, largest(body, "f32", most, score))
        for apart in (1, 2):
            other = self.swapped(most, apart)
            body.assign(most, largest(body, "f32", most, other))
        base = self.rebase(top, most, [total, *sums])
        for score in scores:
            body.assign(score, body.dialect.call("exp", f"{score} - {base}"))
            body.assign(total, f"{total} + {score}")

    def add(
        self, powers: Sequence[Sequence[str]], sums: Sequence[Sequence[str]]
    ) -> None:
        """Add the products of powers and values: sums of scores lie in lanes as a left
        factor does."""
        for key in range(0, self.tile.keys, _FRAGMENT):
            first, second = powers[key // 8], powers[key // 8 + 1]
            pairs = first[:2], first[2:], second[:2], second[2:]
            a = [self.packed(*pair) for pair in pairs]
            for column in range(0, self.lengths[2], _FRAGMENT):
                b = self.fragment(2, (f"{column}u", f"{key}u"))
                self.add_products(sums[column // 8 :], a, b)

    def packed(self, low: str, high: str) -> str:
        """Two numbers as elements of a word."""
        body, element = self.body, self.kernel.element
        words = [bits_of(body, element, each) for each in (low, high)]
        return body.let("u32", f"{words[0]} | ({words[1]} << 16u)")


def _of_row(tiles: Sequence[Sequence[str]], row: int) -> list[str]:
    """What is of one of a lane's rows."""
    return [name for tile in tiles for name in tile[2 * row : 2 * row + 2]]


def by_tensor_cores(
    recorder: Recorder[Any], kernel: FlashKernel, rows: int, factors: Sequence[View]
) -> tuple[FlashKernel, list[View]]:
    """The kernel and its factors for tensor cores, where these multiply such elements
    and registers have room; else as they are.

    Args:
        rows: queries that share keys.
        factors: queries, keys and values.
    """
    deepest = max(kernel.depth, kernel.columns)
    known = kernel.element in shapes_of(recorder).tensor_cores.split()
    if not known or rows < _LEAST_ROWS or deepest > _MOST_DEPTH:
        return kernel, [*factors]
    warps = min(_MOST_WARPS, 1 << (math.ceil(rows / _FRAGMENT) - 1).bit_length())
    tile = Tile(_FRAGMENT * warps, 2, 4, 32 if deepest > 64 else 64)
    fields = {**kernel._asdict(), "tile": tile}
    q, k, v = (_in_chunks(view) for view in factors)
    found = TensorFlashKernel(**fields, chunks=(q, k, v))
    return found, [as_bits(view) for view in factors]


def _in_chunks(view: View) -> bool:
    """Whether all rows of an array begin at multiples of 16 bytes, and end there."""
    strides = [s for n, s in zip(view.shape[:-1], view.strides, strict=False) if n > 1]
    return (
        view.strides[-1] == 1
        and view.shape[-1] % _CHUNK == 0
        and view.offset % 16 == 0
        and all(stride % _CHUNK == 0 for stride in strides)
    )
