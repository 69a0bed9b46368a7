"""Attention whose scores are never in memory: a workgroup goes from tile to tile of
keys, with the softmax of what it has seen.

M. Milakov and N. Gimelshein, "Online normalizer calculation for softmax" (2018),
arXiv:1805.02867; T. Dao et al., "FlashAttention" (2022), arXiv:2205.14135.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from onnxplug_compiler.gpu.families.indices import signed_index
from onnxplug_compiler.gpu.render import exponentials
from onnxplug_compiler.gpu.render.body import Body, Operand
from onnxplug_compiler.gpu.render.extremes import is_nan, largest
from onnxplug_compiler.ir.parameters import Parameters

_SHARED: Final = 4096
"""Elements that a workgroup shares, at most: as many as WebGPU has everywhere."""

_DEPTH: Final = 32
"""Elements of a key that it has at once."""

_MOST_SUMS: Final = 64
"""Sums of values that a lane has, at most."""

_LANES: Final = 64


class Tile(Parameters):
    """How a workgroup is divided.

    Attributes:
        rows: queries that it has.
        tall: those of a lane.
        lanes: for each of these.
        keys: that it has at once, a multiple of these lanes.
    """

    rows: int
    tall: int
    lanes: int
    keys: int

    @property
    def lines(self) -> int:
        """How many lanes there are for different queries."""
        return self.rows // self.tall


def tile_of(rows: int, depth: int, columns: int) -> Tile | None:
    """The tile for so many queries with the same keys; ``None`` where a lane would have
    too many sums.

    Args:
        depth: of queries and keys.
        columns: of values.
    """
    count = 1 << min(5, (rows - 1).bit_length()) if depth else 0
    while count:
        lines = min(8, count)
        lanes = _LANES // lines
        tile = Tile(count, count // lines, lanes, max(32, lanes))
        shared = count * depth + (_DEPTH + count) * tile.keys
        if shared <= _SHARED and tile.tall * -(-columns // lanes) <= _MOST_SUMS:
            return tile
        count //= 2
    return None


class FlashKernel(Parameters):
    """Attention of queries that share keys.

    The sizes are how many workgroups there are, of one head of keys, how many heads of
    keys, heads of queries that share one, queries of a head, keys, how many keys
    precede the first query, or what is added to a length for that, what is added for
    the keys that there are, and how many keys before its own a query sees.  The arrays
    are queries, keys, values, the result, and those that there are of the mask, of
    [images, heads, queries, keys], of lengths and their flag, and of sinks.

    Attributes:
        depth, columns: of keys, and of values.
        mask: its element; empty if there is none.
        scale, softcap, hides, fill, undefined: see ``ir.families.Attention``.
        lengths: how each image's length is read; ``None`` where all keys are.
        clamped: a length that is shorter than there are queries ends at the last one.
        window: queries see so many keys before their own only.
        sink: the element of scores of no key, one for each head; empty without.
    """

    element: str
    tile: Tile
    depth: int
    columns: int
    mask: str
    causal: bool
    scale: float
    softcap: float
    hides: bool
    fill: float
    undefined: str
    lengths: Operand | None = None
    clamped: bool = False
    window: bool = False
    sink: str = ""

    sizes = 9

    @property
    def lanes(self) -> int:
        return self.tile.lines * self.tile.lanes

    @property
    def operands(self) -> tuple[Operand, ...]:
        array = Operand(self.element, 4)
        found = [array, array, array, array._replace(written=True)]
        if self.mask:
            found.append(Operand(self.mask, 4))
        if self.lengths is not None:
            found += [self.lengths, Operand("flag", 0, True)]
        if self.sink:
            found.append(Operand(self.sink, 1))
        return tuple(found)

    def write(self, body: Body) -> None:
        with body.when(f"block < {body.size(0)}"):
            Writer(body, self).write()


class Writer:
    """Writes what a workgroup does for its rows."""

    def __init__(self, body: Body, kernel: FlashKernel) -> None:
        self.body, self.kernel, self.tile = body, kernel, kernel.tile
        tile = self.tile
        self.y = body.let("u32", f"lane / {tile.lanes}u")
        self.x = body.let("u32", f"lane % {tile.lanes}u")
        head = body.let("u32", f"block / {body.size(1)}")
        self.image = body.let("u32", f"{head} / {body.size(2)}")
        self.head = body.let("u32", f"{head} % {body.size(2)}")
        self.first = body.let("u32", f"(block % {body.size(1)}) * {tile.rows}u")
        self.count = body.let("u32", f"{body.size(3)} * {body.size(4)}")
        self.keys = body.let("u32", body.size(5))
        self.limit, self.past = self.extent()
        self.rows = [body.let("u32", row) for row in self.own_rows()]
        self.at = [self.place(f"{self.first} + {row}") for row in self.rows]
        self.share()

    def own_rows(self) -> list[str]:
        """The lane's rows of the group's."""
        tile = self.tile
        return [f"{self.y} + {n * tile.lines}u" for n in range(tile.tall)]

    def share(self) -> None:
        """Set up what the group shares."""
        body, tile = self.body, self.tile
        self.queries = body.array("f32", tile.rows * self.kernel.depth)
        self.near = body.array("f32", _DEPTH * tile.keys)
        self.scores = body.array("f32", tile.rows * tile.keys)

    def extent(self) -> tuple[str, str]:
        """How many keys the image has, and how many of them, as an i32, precede the
        first query."""
        body, kernel = self.body, self.kernel
        before = body.dialect.word(6)
        if kernel.lengths is None:
            return self.keys, body.let("i32", before)
        at = 5 if kernel.mask else 4
        length, fits = signed_index(body, kernel.lengths, at, [self.image])
        known = body.let("i32", f"{length} + {body.dialect.word(7)}")
        fits = f"{fits} && {known} >= 0 && {known} <= i32({self.keys})"
        fits = body.let("i1", fits)
        with body.when(f"!{fits}"):
            body.raise_flag(at + 1)
        past = f"{length} + {before}"
        if kernel.clamped:
            past = f"max({past}, 0)"
        select = body.dialect.select
        return (
            body.let("u32", select(fits, f"u32({known})", "0u")),
            body.let("i32", select(fits, past, "0")),
        )

    def place(self, number: str) -> list[str]:
        """Image, head and query of a row; the last one for what is behind it."""
        body = self.body
        row = body.let("u32", f"min({number}, {self.count} - 1u)")
        own = f"{self.head} * {body.size(3)} + {row} / {body.size(4)}"
        return [
            self.image,
            body.let("u32", own),
            body.let("u32", f"{row} % {body.size(4)}"),
        ]

    def write(self) -> None:
        """All tiles of keys that a query sees."""
        body, kernel, tile = self.body, self.kernel, self.tile
        self.load_queries()
        least = body.number("f32", -math.inf)
        tops = [body.var("f32", least) for _ in self.rows]
        totals = [body.var("f32", "0.0f") for _ in self.rows]
        columns = range(-(-kernel.columns // tile.lanes))
        sums = [[body.var("f32", "0.0f") for _ in columns] for _ in self.rows]
        # not what no query of the group sees
        start, end = self.seen_by_group()
        with body.loop(end, start, f"{tile.keys}u") as key:
            for row, scores in enumerate(self.products(key)):
                for number, score in enumerate(scores):
                    column = f"{self.x} + {number * tile.lanes}u"
                    body.assign(self.score(row, column), score)
            self.see(key)
            body.wait()
            self.join(key, tops, totals, sums)
            body.wait()
        for row, (top, total) in enumerate(zip(tops, totals, strict=True)):
            self.store(row, top, total, sums[row])

    def score(self, row: int, key: str) -> str:
        """Where the score of a lane's row is."""
        return f"{self.scores}[{self.rows[row]} * {self.tile.keys}u + {key}]"

    def seen_by_group(self) -> tuple[str, str]:
        """The first key that some query of the group sees, and the one behind the
        last."""
        body, kernel, select = self.body, self.kernel, self.body.dialect.select
        start, end, queries = "0u", self.limit, body.size(4)
        final = f"min({self.first} + {self.tile.rows - 1}u, {self.count} - 1u)"
        # of rows in two heads one is the last query, and one the first
        crosses = f"({self.first} / {queries}) != ({final}) / {queries}"
        if kernel.causal:
            last = select(crosses, f"{queries} - 1u", f"({final}) % {queries}")
            last = body.let("i32", f"i32({last}) + {self.past} + 1")
            end = body.let("u32", f"min({end}, u32(max({last}, 0)))")
        if kernel.window:
            first = select(crosses, "0u", f"{self.first} % {queries}")
            first = f"i32({first}) + {self.past} - {body.dialect.word(8)}"
            start = body.let("u32", f"u32(max({first}, 0))")
        return start, end

    def load_queries(self) -> None:
        """The group's rows of queries, in memory that it shares."""
        body, depth, rows = self.body, self.kernel.depth, self.tile.rows
        with body.loop(f"{rows * depth}u", "lane", f"{self.kernel.lanes}u") as entry:
            at = self.place(f"{self.first} + {entry} / {depth}u")
            value = body.load(0, body.place(0, [*at, f"{entry} % {depth}u"]))
            body.assign(f"{self.queries}[{entry}]", value)

    def products(self, key: str) -> list[list[str]]:
        """The lane's scores, by rows, in the tile of keys that begins at *key*."""
        body, tile, depth = self.body, self.tile, self.kernel.depth
        each = tile.keys // tile.lanes
        scores = [[body.var("f32", "0.0f") for _ in range(each)] for _ in self.rows]
        with body.loop(f"{depth}u", step=f"{_DEPTH}u") as first:
            entries = f"{_DEPTH * tile.keys}u"
            with body.loop(entries, "lane", f"{self.kernel.lanes}u") as entry:
                near = f"min({key} + {entry} / {_DEPTH}u, {self.keys} - 1u)"
                near = body.let("u32", near)
                along = body.let("u32", f"{first} + {entry} % {_DEPTH}u")
                inside = f"min({along}, {depth - 1}u)"
                at = [self.image, self.head, near, inside]
                value = body.load(1, body.place(1, at))
                place = f"({entry} % {_DEPTH}u) * {tile.keys}u + {entry} / {_DEPTH}u"
                body.assign(f"{self.near}[{place}]", value)
            body.wait()
            end = body.let("u32", f"min({_DEPTH}u, {depth}u - {first})")
            with body.loop(end) as d:
                queries = [
                    body.let("f32", f"{self.queries}[{row} * {depth}u + {first} + {d}]")
                    for row in self.rows
                ]
                for number in range(each):
                    column = f"{self.x} + {number * tile.lanes}u"
                    value = f"{self.near}[{d} * {tile.keys}u + {column}]"
                    value = body.let("f32", value)
                    for query, line in zip(queries, scores, strict=True):
                        total = line[number]
                        body.assign(total, f"{total} + {query} * {value}")
            body.wait()
        return scores

    def see(self, key: str) -> None:
        """Make scores of the lane's products, minus infinity of keys that are not seen,
        or that there are not."""
        body, tile = self.body, self.tile
        each = tile.keys // tile.lanes
        # one after another, as all at once they are much to compile
        with body.loop(f"{tile.tall * each}u") as number:
            row = f"{self.y} + {number} / {each}u * {tile.lines}u"
            row = body.let("u32", row)
            column = f"{self.x} + {number} % {each}u * {tile.lanes}u"
            column = body.let("u32", column)
            at = self.place(f"{self.first} + {row}")
            score = f"{self.scores}[{row} * {tile.keys}u + {column}]"
            body.assign(score, self.masked(at, f"{key} + {column}", score))

    def masked(self, at: Sequence[str], key: str, product: str) -> str:
        """The score of a product."""
        body, kernel, select = self.body, self.kernel, self.body.dialect.select
        nothing = body.number("f32", -math.inf)
        key = body.let("u32", key)
        found = body.let("f32", f"{product} * {body.number('f32', kernel.scale)}")
        if kernel.softcap:
            cap = body.number("f32", kernel.softcap)
            ratio = body.let("f32", f"{found} / {cap}")
            found = body.let("f32", f"{cap} * {exponentials.tanh(body, ratio)}")
        if kernel.mask:
            near = body.let("u32", f"min({key}, {self.keys} - 1u)")
            value = body.load(4, body.place(4, [*at, near]))
            if kernel.mask == "i1":
                filled = body.number("f32", kernel.fill)
                choice = (filled, found) if kernel.hides else (found, filled)
                found = body.let("f32", select(value, *choice))
            else:
                found = body.let("f32", f"{found} + {value}")
        seen = f"{key} < {self.limit}"
        own = f"i32({at[2]}) + {self.past}"
        if kernel.causal:
            seen += f" && i32({key}) <= {own}"
        if kernel.window:
            seen += f" && i32({key}) >= {own} - {body.dialect.word(8)}"
        return body.let("f32", select(seen, found, nothing))

    def join(
        self,
        key: str,
        tops: Sequence[str],
        totals: Sequence[str],
        sums: Sequence[Sequence[str]],
    ) -> None:
        """Add a tile of scores to what was seen before."""
        body, tile = self.body, self.tile
        mosts = [body.var("f32", top) for top in tops]
        with body.loop(f"{tile.keys}u") as number:
            for row, most in enumerate(mosts):
                score = body.let("f32", self.score(row, number))
                body.assign(most, largest(body, "f32", most, score))
        body.wait()
        for row, most in enumerate(mosts):
            self.raise_power(row, tops[row], most, [totals[row], *sums[row]])
        body.wait()
        count = body.let("u32", f"min({tile.keys}u, {self.limit} - {key})")
        with body.loop(count) as number:
            powers = [
                body.let("f32", self.score(row, number)) for row in range(len(mosts))
            ]
            for total, power in zip(totals, powers, strict=True):
                body.assign(total, f"{total} + {power}")
            for place, column in enumerate(self.columns()):
                at = [self.image, self.head, f"({key} + {number})", column]
                value = body.load(2, body.place(2, at))
                for line, power in zip(sums, powers, strict=True):
                    body.assign(line[place], f"{line[place]} + {power} * {value}")

    def raise_power(self, row: int, top: str, most: str, sums: Sequence[str]) -> None:
        """Let a row's scores be powers, and its sums those of its largest score."""
        base = self.rebase(top, most, sums)
        for number in range(self.tile.keys // self.tile.lanes):
            place = self.score(row, f"{self.x} + {number * self.tile.lanes}u")
            power = self.body.dialect.call("exp", f"{place} - {base}")
            self.body.assign(place, power)

    def rebase(self, top: str, most: str, sums: Sequence[str]) -> str:
        """Let sums be those of a larger score; gives what is subtracted from scores."""
        body = self.body
        # as long as no key is seen, nothing is
        none = f"{body.dialect.reinterpret('u32', most)} == 0xff800000u"
        base = body.let("f32", body.dialect.select(none, "0.0f", most))
        factor = body.let("f32", body.dialect.call("exp", f"{top} - {base}"))
        body.assign(top, most)
        for name in sums:
            body.assign(name, f"{name} * {factor}")
        return base

    def columns(self) -> list[str]:
        """The lane's columns of values; the last one for what is behind it."""
        body, last = self.body, self.kernel.columns - 1
        return [
            body.let("u32", f"min({self.x} + {column}u, {last}u)")
            for column in range(0, self.kernel.columns, self.tile.lanes)
        ]

    def column(self, number: int) -> str:
        """That of one of the lane's sums."""
        return f"{self.x} + {number * self.tile.lanes}u"

    def store(self, row: int, top: str, total: str, sums: Sequence[str]) -> None:
        """A row's part of the results, if there is one."""
        body, kernel, select = self.body, self.kernel, self.body.dialect.select
        if kernel.sink:
            number = len(kernel.operands) - 1
            score = body.load(number, body.place(number, [self.at[row][1]]))
            most = body.let("f32", largest(body, "f32", top, score))
            base = self.rebase(top, most, [total, *sums])
            power = body.dialect.call("exp", f"{score} - {base}")
            body.assign(total, f"{total} + {power}")
        empty = body.let("i1", f"{body.dialect.reinterpret('u32', top)} == 0xff800000u")
        with body.when(f"{self.first} + {self.rows[row]} < {self.count}"):
            for number, name in enumerate(sums):
                found = body.let("f32", f"{name} / {total}")
                if kernel.undefined == "masked_zero":
                    found = select(empty, "0.0f", found)
                elif kernel.undefined == "zero":
                    nothing = f"{empty} || {is_nan(body, total)}"
                    found = select(nothing, "0.0f", found)
                else:
                    found = select(empty, body.number("f32", math.nan), found)
                column = body.let("u32", self.column(number))
                with body.when(f"{column} < {kernel.columns}u"):
                    place = body.place(3, [*self.at[row], column])
                    body.store(3, place, body.let("f32", found))
