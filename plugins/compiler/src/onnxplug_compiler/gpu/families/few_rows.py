"""Products of few rows, such as those of one token: the lanes of a workgroup share
sums, and an element of the right factor is read once, for all rows.

Nothing is at hand that other lanes load, as of a tile of few rows most would be idle.
Codes along the axis of sums are read as words, and unpacked in registers.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from onnxplug_compiler.gpu.command import launch, operand
from onnxplug_compiler.gpu.families.factors import KernelOfFactors, Reader, form_of
from onnxplug_compiler.gpu.render.body import KINDS, Body
from onnxplug_compiler.gpu.render.steps import emit_chain, fitted
from onnxplug_compiler.gpu.shapes import shapes_of
from onnxplug_compiler.ir.coded import Factor
from onnxplug_compiler.ir.epilogue import Epilogue
from onnxplug_compiler.ir.recorder import Recorder
from onnxplug_compiler.ir.views import View

_ABREAST: Final = 32
"""Lanes that read neighbouring columns, where these are consecutive."""

_MOST_SUMS: Final = 16
"""Sums that a lane has, at most."""

_MOST_COLUMNS: Final = 4
"""Columns that it has, at most."""

_ENOUGH_GROUPS: Final = 64
"""Workgroups from which on a lane has several columns: fewer leave a GPU idle."""

_WORD: Final = 4
"""Bytes of codes that are read at once."""


class FewRowsKernel(KernelOfFactors):
    """Sums of products of few rows, and a chain for the result.

    The sizes are how many workgroups there are, how many along columns; batches along
    the second axis; columns; how many units a sum has; then the sizes of the axes of
    the rows, and of the sums, the last one in units.

    Attributes:
        height: how many rows there are.
        bits: of a code of the right factor, where words of them are read; 0 if not.
        signed: these codes are.
        along, abreast: lanes that share a sum, and that have other columns.
        wide: columns of a lane.
    """

    height: int
    bits: int
    signed: bool
    along: int
    abreast: int
    wide: int

    @property
    def lanes(self) -> int:
        return self.along * self.abreast

    @property
    def sizes(self) -> int:
        return 5 + self.rows + self.sums

    @property
    def unit(self) -> int:
        """Products of a sum that are computed at once."""
        return 32 // self.bits if self.bits else 1

    def write(self, body: Body) -> None:
        with body.when(f"block < {body.size(0)}"):
            _Writer(body, self).write()


class _Writer:
    """Writes what a workgroup does for its columns."""

    def __init__(self, body: Body, kernel: FewRowsKernel) -> None:
        self.body, self.kernel = body, kernel
        self.kind = KINDS[kernel.chain.inputs[0]]
        across = body.size(1)
        batch = body.let("u32", f"block / {across}")
        self.batches = [
            body.let("u32", f"{batch} / {body.size(2)}"),
            body.let("u32", f"{batch} % {body.size(2)}"),
        ]
        columns = kernel.abreast * kernel.wide
        self.first = body.let("u32", f"(block % {across}) * {columns}u")
        numbers = range(len(kernel.left.codings))
        self.left = Reader(body, kernel.left, numbers, self.kind)
        numbers = range(len(kernel.left.codings), kernel.factors)
        self.right = Reader(body, kernel.right, numbers, self.kind)
        self.by_words = True
        self.at = [
            body.coordinates(f"{row}u", range(5, 5 + kernel.rows))
            for row in range(kernel.height)
        ]

    def write(self) -> None:
        """The sums of all lanes, their sums, and the chain."""
        body, kernel = self.body, self.kernel
        share = body.let("u32", f"lane / {kernel.abreast}u")
        near = body.let("u32", f"lane % {kernel.abreast}u")
        last = body.let("u32", f"{body.size(3)} - 1u")
        columns = [
            body.let("u32", f"min({self.first} + {near} + {n}u, {last})")
            for n in range(0, kernel.abreast * kernel.wide, kernel.abreast)
        ]
        zero = body.number(self.kind, 0)
        sums = [
            [body.var(self.kind, zero) for _ in columns] for _ in range(kernel.height)
        ]
        rows = [self.left.places([*self.batches, *at]) for at in self.at]
        starts = self.right.places(self.batches)
        if not kernel.bits:
            self.add_all(share, rows, starts, columns, sums)
        else:
            # a branch within the loop would be one for each word
            aligned = body.let("i1", body.aligned(self.right.numbers[0], _WORD))
            for self.by_words in (True, False):
                with body.when(aligned if self.by_words else f"!{aligned}"):
                    self.add_all(share, rows, starts, columns, sums)
        values = body.array(self.kind, kernel.height * kernel.wide * kernel.lanes)
        for which, total in enumerate(itertools.chain.from_iterable(sums)):
            body.assign(f"{values}[{which * kernel.lanes}u + lane]", total)
        body.wait()
        self.join(values, share)
        self.finish(values)

    def add_all(
        self,
        share: str,
        rows: Sequence[Sequence[str]],
        starts: Sequence[str],
        columns: Sequence[str],
        sums: Sequence[Sequence[str]],
    ) -> None:
        """Add the products of all units that are the lane's share."""
        body, kernel = self.body, self.kernel
        units = body.let("u32", body.size(4))
        with body.loop(units, share, f"{kernel.along}u") as number:
            at = body.coordinates(number, range(5 + kernel.rows, kernel.sizes))
            self.add(rows, starts, at, columns, sums)

    def add(
        self,
        rows: Sequence[Sequence[str]],
        starts: Sequence[str],
        at: Sequence[str],
        columns: Sequence[str],
        sums: Sequence[Sequence[str]],
    ) -> None:
        """Add the products of a unit to a lane's sums."""
        body, kernel, kind = self.body, self.kernel, self.kind
        unit, axis = kernel.unit, 2 + kernel.rows
        places = [[*at]]
        if unit > 1:
            first = body.let("u32", f"{at[-1]} * {unit}u")
            places = [
                [*at[:-1], body.let("u32", f"{first} + {n}u")] for n in range(unit)
            ]
        factors = [self.codes(starts, [*at, each], places[0]) for each in columns]
        lines = [
            [
                body.let(kind, self.left.load(row, place, axis, "true"))
                for place in places
            ]
            for row in rows
        ]
        for line, totals in zip(lines, sums, strict=True):
            for (codes, scale), total in zip(factors, totals, strict=True):
                products = [f"{x} * {y}" for x, y in zip(line, codes, strict=True)]
                found = " + ".join(products)
                if scale:
                    found = f"({found}) * {scale}"
                body.assign(total, f"{total} + {found}")

    def codes(
        self, starts: Sequence[str], at: Sequence[str], first: Sequence[str]
    ) -> tuple[list[str], str]:
        """The right factor's elements of a unit, and what they are multiplied with.

        Args:
            at: the unit and the column.
            first: the coordinates of its first element.
        """
        body, kernel, kind = self.body, self.kernel, self.kind
        if not kernel.bits:
            return [body.let(kind, self.right.load(starts, at, 2, "true"))], ""
        word = self.word(starts[0], [*at[:-2], f"({at[-2]} * {_WORD}u)", at[-1]])
        rest = [*first, at[-1]]
        zero, scale = self.right.offsets(starts[1:], rest, 2)
        values = []
        for n in range(kernel.unit):
            shift, mask = n * kernel.bits, (1 << kernel.bits) - 1
            if kernel.signed:
                signed = body.dialect.reinterpret("i32", word)
                value = f"({signed} << {32 - shift - kernel.bits}u)"
                value = f"({value} >> {32 - kernel.bits}u)"
            else:
                value = f"(({word} >> {shift}u) & {mask}u)"
            value = body.dialect.convert(kind, value)
            values.append(body.let(kind, f"{value} - {zero}" if zero else value))
        return values, scale

    def word(self, start: str, at: Sequence[str]) -> str:
        """Neighbouring bytes of codes, the first one in the lowest bits.

        Args:
            start: the place of the batch.
            at: the coordinates of the first byte behind those of the batch.
        """
        body, number = self.body, self.right.numbers[0]
        place = body.let("i32", f"{start} + {body.distance(number, at, 2)}")
        if self.by_words:
            return body.let("u32", body.load_word(number, place))
        parts = []
        for n in range(_WORD):
            value = body.load(number, body.let("i32", f"{place} + {n}"))
            value = f"({body.dialect.convert('u32', value)} & 255u)"
            parts.append(f"({value} << {8 * n}u)")
        return body.let("u32", " | ".join(parts))

    def join(self, values: str, share: str) -> None:
        """Let the first lanes have the sums of all that share them."""
        body, kernel = self.body, self.kernel
        half = kernel.along // 2
        while half:
            with (
                body.when(f"{share} < {half}u"),
                body.loop(f"{kernel.height * kernel.wide}u") as number,
            ):
                place = body.let("u32", f"{number} * {kernel.lanes}u + lane")
                other = f"{values}[{place} + {half * kernel.abreast}u]"
                body.assign(f"{values}[{place}]", f"{values}[{place}] + {other}")
            body.wait()
            half //= 2

    def finish(self, values: str) -> None:
        """Apply the chain to sums, each by a lane."""
        body, kernel, chain = self.body, self.kernel, self.kernel.chain
        many = kernel.height * kernel.wide * kernel.abreast
        with body.loop(f"{many}u", "lane", f"{kernel.lanes}u") as number:
            which = body.let("u32", f"{number} / {kernel.abreast}u")
            near = body.let("u32", f"{number} % {kernel.abreast}u")
            column = f"{which} % {kernel.wide}u * {kernel.abreast}u"
            column = body.let("u32", f"{self.first} + {near} + {column}")
            with body.when(f"{column} < {body.size(3)}"):
                row = body.let("u32", f"{which} / {kernel.wide}u")
                at = body.coordinates(row, range(5, 5 + kernel.rows))
                place = [*self.batches, *at, column]
                value = f"{values}[{which} * {kernel.lanes}u + {near}]"
                total = body.let(self.kind, value)
                if chain.steps:
                    total = fitted(body, chain.inputs[0], "Mul", total)
                first = kernel.factors + len(kernel.read)
                read = [
                    body.load(each, body.place(each, place))
                    for each in range(kernel.factors, first)
                ]
                results = emit_chain(body, chain, [total, *read])
                for each, result in enumerate(results, first):
                    body.store(each, body.place(each, place), result)


def record_few_rows(
    recorder: Recorder[Any],
    a: Factor,
    b: Factor,
    out: View,
    rows: int,
    after: Epilogue,
    label: str,
) -> None:
    """Record sums of products of at most ``shapes.FEW_ROWS`` rows.

    Args:
        rows: how many axes the rows of *a* and *out* have, behind two of batches.
        after: takes the sums.
        label: for profiles.
    """
    *lead, columns = out.shape
    count, axes = math.prod(lead[2:]), a.codes.shape[2:]
    depth = math.prod(axes[rows:])
    form, bits, signed = form_of(b), 0, b.codes.view.dtype.kind == "i"
    if _lies_in_words(b):
        bits = b.codes.bits or 8
        axes = (*axes[:-1], b.codes.view.shape[-2] // _WORD)
    units = math.prod(axes[rows:])
    lanes = shapes_of(recorder).few_lanes
    abreast = 1
    if columns > 1 and b.codes.view.strides[-1] == 1:
        abreast = min(_ABREAST, lanes, 1 << (columns - 1).bit_length())
    along = max(1, min(lanes // abreast, 1 << max(0, units - 1).bit_length()))
    most = min(_MOST_SUMS // count, _MOST_COLUMNS)
    wide = max(1, min(most, columns // (abreast * _ENOUGH_GROUPS)))
    wide = 1 << wide.bit_length() - 1
    kernel = FewRowsKernel(
        form_of(a), form, rows, len(axes) - rows, after.chain,
        tuple(operand(view) for view in after.operands),
        tuple(operand(view, written=True) for view in after.outputs),
        count, bits, signed, along, abreast, wide,
    )  # fmt: skip
    across = math.ceil(columns / (abreast * wide))
    groups = across * lead[0] * lead[1]
    launch(
        recorder,
        kernel,
        [*a.views, *b.views, *after.operands, *after.outputs],
        (groups, across, lead[1], columns, units, *axes),
        groups,
        label,
        2 * out.size * depth,
    )


def _lies_in_words(factor: Factor) -> bool:
    """Whether words of bytes hold neighbouring codes along the last axis of sums, all
    with the same zero point and scale."""
    codes, zero, scale = factor.codes, factor.zero, factor.scale
    view = codes.view
    axis = len(view.shape) - 2
    zeros = None if zero is None else zero.view
    beside = [each for each in (zeros, scale) if each is not None]
    if any(each.strides[axis] and each.shape[axis] > 1 for each in beside):
        return False
    if codes.bits and (codes.axis != axis or view.dtype != np.uint8):
        return False
    lines = [view.offset, *view.strides[:axis], view.strides[axis + 1]]
    return (
        view.dtype.itemsize == 1
        and view.dtype.kind in "ui"
        and view.shape[axis] % _WORD == 0
        and view.strides[axis] == 1
        and all(each % _WORD == 0 for each in lines)
    )
