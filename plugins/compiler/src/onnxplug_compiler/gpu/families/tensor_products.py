"""Products of matrices by tensor cores: a warp multiplies fragments of tiles that a
workgroup shares: of floats of 16 bits or of TF32, with sums in float32, or of bytes,
with sums in int32, which wrap.

While a tile is multiplied the next one is copied.  Sums go through the memory of the
tiles to lanes that finish neighbouring columns.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, Final

from onnxplug_compiler.gpu.command import as_bits, launch, operand
from onnxplug_compiler.gpu.families.factor_tiles import (
    DEPTH,
    FactorTiles,
    Loading,
    loading_of,
)
from onnxplug_compiler.gpu.families.fragments import WARP, load_fragment
from onnxplug_compiler.gpu.families.zero_points import ZeroPoints
from onnxplug_compiler.gpu.render.body import Body, Operand
from onnxplug_compiler.gpu.render.dialect import Fragments
from onnxplug_compiler.gpu.render.steps import emit_chain, fitted
from onnxplug_compiler.gpu.shapes import shapes_of
from onnxplug_compiler.ir.coded import Factor
from onnxplug_compiler.ir.elementwise import Chain
from onnxplug_compiler.ir.epilogue import Epilogue
from onnxplug_compiler.ir.parameters import Parameters
from onnxplug_compiler.ir.recorder import Recorder
from onnxplug_compiler.ir.views import View

_STEP: Final = 8
"""Words along the sums that warps load at once, of those that a tile has."""

_BYTES: Final = ("i8", "u8")

PER_WORD: Final = {
    "f16": 2,
    "bf16": 2,
    "tf32": 1,
    **{f"{left}_{right}": 4 for left in _BYTES for right in _BYTES},
}
"""The elements that are multiplied, those of both factors if they are bytes, and how
many of them a word has."""

_BITS: Final = {1: "u32", 2: "u16", 4: "u8"}
"""What their arrays are read as."""

_SUMS_PAD: Final = 4
"""Words behind each line of sums, by which its lines lie in different banks."""

_LEAST_BYTES: Final = 16
"""Bytes of a sum of which fewer leave most of a fragment empty, as where each channel
is convolved by itself."""

_LEAST_COLUMNS: Final = 8
"""Likewise of bytes."""

_FRAGMENT: Final = 16
"""Rows and columns that warps load at once."""


class Tile(Parameters):
    """How a workgroup is divided.

    Attributes:
        down, across: warps along rows and columns.
        height, width: rows and columns of each.
    """

    down: int
    across: int
    height: int
    width: int

    @property
    def rows(self) -> int:
        """Those of all warps."""
        return self.down * self.height

    @property
    def columns(self) -> int:
        """Those of all warps."""
        return self.across * self.width


TILES: Final = (Tile(2, 4, 64, 32), Tile(2, 2, 32, 32), Tile(1, 2, 32, 32))
"""Tiles from the largest one on."""

_ENOUGH_GROUPS: Final = 96
"""Workgroups that keep a GPU busy: a smaller tile is taken for more of them."""


class TensorProductKernel(Parameters):
    """Sums of products, and a chain for the result; sizes, rows, sums, chain, read and
    written as of ``contractions.ContractionKernel``.

    Attributes:
        element: of both factors, of :data:`PER_WORD`; their arrays are bits.
        left, right: how they are loaded.
        zeros: elements of the zero points of their rows and columns; empty without.
        offsets: zero points of all of them.
    """

    element: str
    left: Loading
    right: Loading
    rows: int
    sums: int
    tile: Tile
    chain: Chain
    read: tuple[Operand, ...]
    written: tuple[Operand, ...]
    zeros: tuple[str, str] = ("", "")
    offsets: tuple[int, int] = (0, 0)

    @property
    def lanes(self) -> int:
        return WARP * self.tile.down * self.tile.across

    @property
    def per_word(self) -> int:
        """Elements of a word."""
        return PER_WORD[self.element]

    @property
    def operands(self) -> tuple[Operand, ...]:
        bits = _BITS[self.per_word]
        left = Operand(bits, 2 + self.rows + self.sums)
        right = Operand(bits, 3 + self.sums)
        ranks = 2 + self.rows, 3
        zeros = [
            Operand(element, rank)
            for element, rank in zip(self.zeros, ranks, strict=True)
            if element
        ]
        return left, right, *zeros, *self.read, *self.written

    @property
    def sizes(self) -> int:
        return 7 + self.rows + self.sums

    def write(self, body: Body) -> None:
        fragments = body.dialect.fragments
        if fragments is None:
            raise ValueError("the language of the kernel has no tensor cores")
        with body.when(f"block < {body.size(0)}"):
            _Writer(body, self, fragments).write()


class _Writer:
    """Writes what a workgroup does for its tile."""

    def __init__(
        self, body: Body, kernel: TensorProductKernel, fragments: Fragments
    ) -> None:
        self.body, self.kernel, self.fragments = body, kernel, fragments
        tile, self.per_word = kernel.tile, kernel.per_word
        across, along = body.size(2), body.size(1)
        rest = body.let("u32", f"block / {across}")
        batch = body.let("u32", f"{rest} / {along}")
        self.batches = [
            body.let("u32", f"{batch} / {body.size(3)}"),
            body.let("u32", f"{batch} % {body.size(3)}"),
        ]
        self.firsts = [
            body.let("u32", f"({rest} % {along}) * {tile.rows}u"),
            body.let("u32", f"(block % {across}) * {tile.columns}u"),
        ]
        # what is finished at once passes through the tiles of the left factor
        passing = tile.down * tile.across * _FRAGMENT * (tile.width + _SUMS_PAD)
        self.tiles = [
            FactorTiles(
                body,
                fragments,
                loading,
                functools.partial(self.place, number),
                number=number,
                first=self.firsts[number],
                size=size,
                per_word=self.per_word,
                lanes=kernel.lanes,
                room=room,
            )
            for number, loading, size, room in (
                (0, kernel.left, tile.rows, passing),
                (1, kernel.right, tile.columns, 0),
            )
        ]
        warp = body.let("u32", f"lane / {WARP}u")
        self.warp, self.within = warp, body.let("u32", f"lane % {WARP}u")
        self.starts = [
            body.let("u32", f"{warp} / {tile.across}u * {tile.height}u"),
            body.let("u32", f"{warp} % {tile.across}u * {tile.width}u"),
        ]
        self.depth = body.let("u32", body.size(6))
        self.kind = "i32" if self.per_word == 4 else "f32"
        self.zeros = ZeroPoints(
            body,
            fragments,
            kernel.element,
            kernel.zeros,
            kernel.offsets,
            (tile.down, tile.across),
            (tile.height, tile.width),
        )

    def write(self) -> None:
        """All tiles along the sums, and the chain."""
        body, tile = self.body, self.kernel.tile
        zero = body.number(self.kind, 0)
        sums = [
            [
                [body.var(self.kind, zero) for _ in range(4)]
                for _ in range(tile.width // 8)
            ]
            for _ in range(tile.height // _FRAGMENT)
        ]
        self.load("0u", "0u")
        body.line(self.fragments.arrive())
        body.wait()
        stage = body.var("u32", "0u")
        depth = DEPTH * self.per_word
        with body.loop(self.depth, step=f"{depth}u") as first:
            following = body.let("u32", f"{first} + {depth}u")
            other = body.let("u32", f"1u - {stage}")
            with body.when(f"{following} < {self.depth}"):
                self.load(other, following)
            for k in range(0, depth, _STEP * self.per_word):
                self.multiply(stage, k, sums)
            body.assign(stage, other)
            body.line(self.fragments.arrive())
            body.wait()
        self.zeros.share(self.warp, self.within, self.starts)
        for number, line in enumerate(sums):
            self.finish(number, line)

    def load(self, stage: str, first: str) -> None:
        """Begin to copy the tiles that begin at *first* along the sums."""
        for tiles in self.tiles:
            tiles.load(stage, first)

    def place(self, which: int, other: str, number: str) -> tuple[str, str]:
        """Where an element is, or the first one if it is not there, and if it is."""
        body, kernel = self.body, self.kernel
        there = body.let(
            "i1", f"{other} < {body.size(4 + which)} && {number} < {self.depth}"
        )
        along = body.coordinates(number, range(7 + kernel.rows, kernel.sizes))
        if which == 0:
            at = [*body.coordinates(other, range(7, 7 + kernel.rows)), *along]
        else:
            at = [*along, other]
        place = body.place(which, [*self.batches, *at])
        # the first element of all arrays is there
        nothing = body.place(which, ["0u"] * (2 + len(at)))
        return body.let("i32", body.dialect.select(there, place, nothing)), there

    def multiply(
        self, stage: str, k: int, sums: Sequence[Sequence[Sequence[str]]]
    ) -> None:
        """Add a fragment's products to the warp's sums."""
        body, fragments, tile = self.body, self.fragments, self.kernel.tile
        left = [
            self.fragment(0, stage, row, k) for row in range(0, tile.height, _FRAGMENT)
        ]
        right: list[list[str]] = []
        for column in range(0, tile.width, _FRAGMENT):
            found = self.fragment(1, stage, column, k)
            right += [found[:2], found[2:]]
        self.zeros.add(left, right)
        for line, a in zip(sums, left, strict=True):
            for totals, b in zip(line, right, strict=True):
                body.line(fragments.multiply(self.kernel.element, totals, a, b))

    def fragment(self, which: int, stage: str, start: int, k: int) -> list[str]:
        """A lane's part of a factor's fragment."""
        tiles = self.tiles[which]
        found = load_fragment(
            self.body,
            self.fragments,
            f"{tiles.name}[{stage} * {tiles.words}u",
            tiles.stride,
            (f"{self.starts[which]} + {start}u", f"{k}u"),
            along=tiles.loading.along,
            left=which == 0,
            per_word=self.per_word,
        )
        if self.kernel.element == "tf32":
            found = [self.body.let("u32", self.fragments.rounded(x)) for x in found]
        return found

    def finish(self, number: int, line: Sequence[Sequence[str]]) -> None:
        """Apply the chain to sixteen rows of each warp."""
        body, tile = self.body, self.kernel.tile
        name, width = self.tiles[0].name, tile.width
        stride = width + _SUMS_PAD
        base = body.let("u32", f"{self.warp} * {_FRAGMENT * stride}u")
        row = body.let("u32", f"{self.within} / 4u * {stride}u")
        column = body.let("u32", f"{self.within} % 4u * 2u")
        for which, totals in enumerate(line):
            for part, total in enumerate(totals):
                behind = part // 2 * 8 * stride + which * 8 + part % 2
                place = f"{name}[{base} + {row} + {column} + {behind}u]"
                body.assign(place, body.dialect.reinterpret("u32", total))
        body.wait()
        with body.loop(f"{_FRAGMENT * width}u", self.within, f"{WARP}u") as entry:
            place = f"{entry} / {width}u * {stride}u + {entry} % {width}u"
            bits = body.let("u32", f"{name}[{base} + {place}]")
            row = body.let(
                "u32",
                f"{self.firsts[0]} + {self.starts[0]} + {number * _FRAGMENT}u + "
                f"{entry} / {width}u",
            )
            column = body.let(
                "u32", f"{self.firsts[1]} + {self.starts[1]} + {entry} % {width}u"
            )
            with body.when(f"{row} < {body.size(4)} && {column} < {body.size(5)}"):
                total = body.let(self.kind, body.dialect.reinterpret(self.kind, bits))
                self.apply(row, column, total)
        body.wait()

    def apply(self, row: str, column: str, total: str) -> None:
        """The results of one sum."""
        body, kernel = self.body, self.kernel
        at = body.coordinates(row, range(7, 7 + kernel.rows))
        place = [*self.batches, *at, column]
        within = [f"{row} - {self.firsts[0]}", f"{column} - {self.firsts[1]}"]
        places = [*self.batches, *at], [*self.batches, column]
        total = self.zeros.corrected(total, within, places, self.depth)
        begin = 2 + sum(map(bool, kernel.zeros))
        first = begin + len(kernel.read)
        values = [
            body.load(each, body.place(each, place)) for each in range(begin, first)
        ]
        if kernel.chain.steps:
            total = fitted(body, kernel.chain.inputs[0], "Mul", total)
        results = emit_chain(body, kernel.chain, [total, *values])
        for each, result in enumerate(results, first):
            body.store(each, body.place(each, place), result)


_AS: Final = {"f32": "tf32"}
"""What elements of arrays are multiplied as, where it is not themselves."""


def element_for(recorder: Recorder[Any], a: Factor, b: Factor, total: str) -> str:
    """What tensor cores multiply such factors as; empty if they do not.

    Args:
        total: the element of sums.
    """
    views = a.codes.view, b.codes.view
    known = shapes_of(recorder).tensor_cores.split()
    if a.codes.bits or b.codes.bits or not all(view.size for view in views):
        return ""
    if a.scale is not None or b.scale is not None:
        return ""
    elements = [operand(view).element for view in views]
    if all(element in _BYTES for element in elements):
        rows = 1 + len(views[0].shape) - len(views[1].shape)
        fits = _has_zeros_of(a, range(2 + rows, len(views[0].shape))) and (
            _has_zeros_of(b, range(2, len(views[1].shape) - 1))
        )
        fits &= math.prod(views[1].shape[2:-1]) >= _LEAST_BYTES
        fits &= views[1].shape[-1] >= _LEAST_COLUMNS
        return "_".join(elements) if fits and total == "i32" and "i8" in known else ""
    if len(a.views) + len(b.views) > 2 or a.offset or b.offset:
        return ""
    if elements[0] != elements[1]:
        return ""
    element = _AS.get(elements[0], elements[0])
    if element == "tf32" and not recorder.narrows:
        return ""
    return element if element in known else ""


def _has_zeros_of(factor: Factor, sums: Sequence[int]) -> bool:
    """Whether there are no zero points, or such bytes as do not differ along the axes
    *sums*."""
    zero = factor.zero
    if zero is None:
        return True
    if zero.bits or operand(zero.view).element not in _BYTES:
        return False
    return all(zero.view.shape[n] == 1 or zero.view.strides[n] == 0 for n in sums)


def _zeros_of(factor: Factor, sums: Sequence[int]) -> list[View]:
    """The zero points without the axes *sums*, if there are any."""
    if factor.zero is None:
        return []
    view = factor.zero.view
    kept = [axis for axis in range(len(view.shape)) if axis not in sums]
    shape, strides = (
        tuple(each[axis] for axis in kept) for each in (view.shape, view.strides)
    )
    return [View(view.buffer, view.offset, view.dtype, shape, strides)]


def record_tensor_product(
    recorder: Recorder[Any],
    element: str,
    a: Factor,
    b: Factor,
    out: View,
    rows: int,
    after: Epilogue,
    label: str,
) -> None:
    """Record sums of products; other arguments as of ``few_rows.record_few_rows``.

    Args:
        element: of :func:`element_for`.
    """
    *lead, columns = out.shape
    left, right = a.codes.view, b.codes.view
    count, axes = math.prod(lead[2:]), left.shape[2:]
    sums = len(axes) - rows
    depth = math.prod(axes[rows:])
    tile = _tile_of(count, columns, lead[0] * lead[1])
    zeros = [
        _zeros_of(a, range(2 + rows, 2 + len(axes))),
        _zeros_of(b, range(2, 2 + sums)),
    ]
    kinds = [operand(each[0]).element if each else "" for each in zeros]
    kernel = TensorProductKernel(
        element,
        loading_of(left, -1, -1 - sums, PER_WORD[element]),
        loading_of(right, -2, -1, PER_WORD[element]),
        rows,
        sums,
        tile,
        after.chain,
        tuple(operand(view) for view in after.operands),
        tuple(operand(view, written=True) for view in after.outputs),
        (kinds[0], kinds[1]),
        (a.offset, b.offset),
    )
    along, across = math.ceil(count / tile.rows), math.ceil(columns / tile.columns)
    groups = along * across * lead[0] * lead[1]
    launch(
        recorder,
        kernel,
        [
            as_bits(left),
            as_bits(right),
            *zeros[0],
            *zeros[1],
            *after.operands,
            *after.outputs,
        ],
        (groups, along, across, lead[1], count, columns, depth, *axes),
        groups,
        label,
        2 * out.size * depth,
    )


def _tile_of(rows: int, columns: int, batches: int) -> Tile:
    """The largest tile of which there are enough, and which is not mostly empty."""
    for tile in TILES:
        groups = math.ceil(rows / tile.rows) * math.ceil(columns / tile.columns)
        fits = rows > tile.rows // 2 and columns > tile.columns // 2
        if fits and groups * batches >= _ENOUGH_GROUPS:
            return tile
    return TILES[1] if rows > TILES[-1].rows else TILES[-1]
