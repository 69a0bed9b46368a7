"""Products of matrices, tile by tile; convolutions are products, too.

The lines and rows of windows are the rows of one matrix, and their taps and depth what
is summed: both are found from a number when a tile is loaded, so nothing is unfolded
in memory.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from typing import Any

from onnxplug_compiler.gpu.command import has_too_many_buffers, launch, operand
from onnxplug_compiler.gpu.families.elementwise import record_chain
from onnxplug_compiler.gpu.families.factors import KernelOfFactors, Reader, form_of
from onnxplug_compiler.gpu.families.few_rows import record_few_rows
from onnxplug_compiler.gpu.families.split_sums import record_split
from onnxplug_compiler.gpu.families.tensor_products import (
    element_for,
    record_tensor_product,
)
from onnxplug_compiler.gpu.families.wide_integers import record_wide_contraction
from onnxplug_compiler.gpu.render.body import KINDS, PAIRED, Body
from onnxplug_compiler.gpu.render.steps import emit_chain, fitted
from onnxplug_compiler.gpu.shapes import FEW_ROWS, shapes_of
from onnxplug_compiler.ir.coded import Codes, Factor
from onnxplug_compiler.ir.elementwise import Chain
from onnxplug_compiler.ir.epilogue import Epilogue
from onnxplug_compiler.ir.recorder import Recorder
from onnxplug_compiler.ir.views import View


class ContractionKernel(KernelOfFactors):
    """Sums of products, and a chain for the result.

    Sums in float32 are in blocks, the products of a tile by themselves: of n products
    none goes through more than n / side + side roundings, not n (N. J. Higham,
    "Accuracy and Stability of Numerical Algorithms", 2002, section 4.2).

    The sizes are how many tiles there are, along rows, along columns; batches along the
    second axis; rows, columns, and products of a sum; then the sizes of the axes of the
    rows, and of the sums.

    Attributes:
        side: lanes along each side of a tile, and products that it has at hand.
        tall, wide: elements of a lane along a tile's sides.
    """

    side: int
    tall: int
    wide: int

    @property
    def lanes(self) -> int:
        return self.side * self.side

    @property
    def sizes(self) -> int:
        return 7 + self.rows + self.sums

    def write(self, body: Body) -> None:
        with body.when(f"block < {body.size(0)}"):
            across, along = body.size(2), body.size(1)
            column = body.let("u32", f"block % {across}")
            rest = body.let("u32", f"block / {across}")
            row = body.let("u32", f"{rest} % {along}")
            batch = body.let("u32", f"{rest} / {along}")
            batches = [
                body.let("u32", f"{batch} / {body.size(3)}"),
                body.let("u32", f"{batch} % {body.size(3)}"),
            ]
            first_row = body.let("u32", f"{row} * {self.side * self.tall}u")
            first_column = body.let("u32", f"{column} * {self.side * self.wide}u")
            sums = self._sums(body, batches, first_row, first_column)
            self._finish(body, batches, first_row, first_column, sums)

    def _sums(
        self, body: Body, batches: Sequence[str], first_row: str, first_column: str
    ) -> list[list[str]]:
        """The lane's sums, by rows and columns."""
        kind, side = KINDS[self.chain.inputs[0]], self.side
        count = len(self.left.codings)
        a_reader = Reader(body, self.left, range(count), kind)
        b_reader = Reader(body, self.right, range(count, self.factors), kind)
        height, width = side * self.tall, side * self.wide
        left = body.array(kind, side * height)
        right = body.array(kind, side * width)
        zero = body.number(kind, 0)
        sums = [
            [body.var(kind, zero) for _ in range(self.wide)] for _ in range(self.tall)
        ]
        rows = [
            self._left_row(body, a_reader, batches, first_row, n)
            for n in range(self.tall)
        ]
        starts = b_reader.places(batches)
        depth = body.let("u32", body.size(6))
        x = body.let("u32", f"lane % {side}u")
        y = body.let("u32", f"lane / {side}u")
        with body.loop(depth, step=f"{side}u") as first:
            number = body.let("u32", f"{first} + {x}")
            at = body.coordinates(number, range(7 + self.rows, self.sizes))
            for n, (places, there) in enumerate(rows):
                is_in = f"{there} && {number} < {depth}"
                value = a_reader.load(places, at, 2 + self.rows, is_in)
                target = f"{left}[{x} * {height}u + {y} + {n * side}u]"
                body.assign(target, value)
            for n in range(self.wide):
                element = body.let("u32", f"lane + {n * self.lanes}u")
                column = body.let("u32", f"{first_column} + {element} % {width}u")
                number = body.let("u32", f"{first} + {element} / {width}u")
                at = body.coordinates(number, range(7 + self.rows, self.sizes))
                is_in = f"{column} < {body.size(5)} && {number} < {depth}"
                value = b_reader.load(starts, [*at, column], 2, is_in)
                body.assign(f"{right}[{element}]", value)
            body.wait()
            parts = sums
            if kind == "f32":
                parts = [[body.var(kind, zero) for _ in line] for line in sums]
            with body.loop(f"{side}u") as k:
                a = [
                    body.let(kind, f"{left}[{k} * {height}u + {y} + {n * side}u]")
                    for n in range(self.tall)
                ]
                b = [
                    body.let(kind, f"{right}[{k} * {width}u + {x} + {n * side}u]")
                    for n in range(self.wide)
                ]
                for i, j in itertools.product(range(self.tall), range(self.wide)):
                    body.assign(parts[i][j], f"{parts[i][j]} + {a[i]} * {b[j]}")
            if parts is not sums:
                for i, j in itertools.product(range(self.tall), range(self.wide)):
                    body.assign(sums[i][j], f"{sums[i][j]} + {parts[i][j]}")
            body.wait()
        return sums

    def _left_row(
        self,
        body: Body,
        reader: Reader,
        batches: Sequence[str],
        first: str,
        number: int,
    ) -> tuple[list[str], str]:
        """Where a row that the lane loads begins, and whether there is one."""
        row = body.let("u32", f"{first} + lane / {self.side}u + {number * self.side}u")
        there = body.let("i1", f"{row} < {body.size(4)}")
        at = body.coordinates(row, range(7, 7 + self.rows))
        return reader.places([*batches, *at]), there

    def _finish(
        self,
        body: Body,
        batches: Sequence[str],
        first_row: str,
        first_column: str,
        sums: Sequence[Sequence[str]],
    ) -> None:
        """Apply the chain to the lane's sums."""
        side = self.side
        for i, line in enumerate(sums):
            row = body.let("u32", f"{first_row} + lane / {side}u + {i * side}u")
            at = body.coordinates(row, range(7, 7 + self.rows))
            for j, total in enumerate(line):
                column = body.let(
                    "u32", f"{first_column} + lane % {side}u + {j * side}u"
                )
                is_in = f"{row} < {body.size(4)} && {column} < {body.size(5)}"
                with body.when(is_in):
                    place = [*batches, *at, column]
                    values = [
                        body.load(number, body.place(number, place))
                        for number in range(self.factors, self.factors + len(self.read))
                    ]
                    if self.chain.steps:
                        total = fitted(body, self.chain.inputs[0], "Mul", total)
                    results = emit_chain(body, self.chain, [total, *values])
                    first = self.factors + len(self.read)
                    for number, result in enumerate(results, first):
                        body.store(number, body.place(number, place), result)


def record_matmul(
    recorder: Recorder[Any],
    a: View,
    b: View,
    out: View,
    *,
    epilogue: Epilogue | None = None,
    label: str = "MatMul",
) -> None:
    """The product of *a* and *b*; see ``ir.families.Contractions``."""
    lead = out.shape[:-2]
    _record(
        recorder,
        _plain(_of_two_batches(a.broadcast_to((*lead, *a.shape[-2:])))),
        _plain(_of_two_batches(b.broadcast_to((*lead, *b.shape[-2:])))),
        _of_two_batches(out),
        1,
        None
        if epilogue is None
        else Epilogue(
            epilogue.chain,
            tuple(map(_of_two_batches, epilogue.operands)),
            tuple(map(_of_two_batches, epilogue.outputs)),
        ),
        label,
    )


def record_contraction(
    recorder: Recorder[Any],
    a: View,
    b: View,
    out: View,
    *,
    epilogue: Epilogue | None = None,
    label: str = "Conv",
) -> None:
    """Sums over taps and depth; see ``ir.families.Contractions``."""
    lead = out.shape[:2]
    _record(
        recorder,
        _plain(a.broadcast_to((*lead, *a.shape[2:]))),
        _plain(b.broadcast_to((*lead, *b.shape[2:]))),
        out,
        2,
        epilogue,
        label,
    )


def takes_groups() -> bool:
    """See ``coded.CodedProducts.takes_groups``: they are of floats."""
    return False


def reads_codes(recorder: Recorder[Any], a: Factor, b: Factor) -> bool:
    """See ``coded.CodedProducts.reads_codes``: tensor cores do."""
    return "i8" in shapes_of(recorder).tensor_cores.split()


def record_coded(
    recorder: Recorder[Any],
    a: Factor,
    b: Factor,
    out: View,
    *,
    epilogue: Epilogue | None = None,
    label: str = "MatMul",
) -> None:
    """The product of factors of codes; see ``ir.coded.CodedProducts``."""
    _record(recorder, a, b, out, len(out.shape) - 3, epilogue, label)


def _plain(view: View) -> Factor:
    return Factor(Codes(view))


def _of_two_batches(view: View) -> View:
    lead = 4 - len(view.shape)
    shape, strides = (1,) * lead + view.shape, (0,) * lead + view.strides
    return View(view.buffer, view.offset, view.dtype, shape, strides)


def _record(
    recorder: Recorder[Any],
    a: Factor,
    b: Factor,
    out: View,
    rows: int,
    after: Epilogue | None,
    label: str,
    *,
    splits: bool = True,
) -> None:
    """Record sums of products.

    Args:
        rows: how many axes the rows of *a* and *out* have, behind two of batches.
        splits: long sums may be split.
    """
    if not out.size:
        return
    if after is None:
        written = Chain((operand(out).element,), (), (), (0,))
        after = Epilogue(written, (), (out,))
    chain, operands, outputs = after
    factors = *a.views, *b.views
    is_wide = operand(a.codes.view).element in PAIRED
    if is_wide and after.outputs == (out,) and not chain.steps:
        record_wide_contraction(recorder, a.codes.view, b.codes.view, out, rows, label)
        return
    many = has_too_many_buffers(recorder, [*factors, *operands, *outputs])
    if is_wide or (after.outputs != (out,) and many):
        _record(recorder, a, b, out, rows, None, label)
        record_chain(recorder, chain, [out, *operands], outputs, label=label)
        return
    *lead, columns = out.shape
    count = math.prod(lead[2:])
    axes = a.codes.shape[2:]
    depth = math.prod(axes[rows:])
    if count > FEW_ROWS and splits:
        record = functools.partial(
            _record, recorder, rows=rows, after=None, label=label, splits=False
        )
        if record_split(recorder, a, b, out, rows, after, label, record):
            return
    label = f"{label} {count}×{depth}×{columns}"
    if count <= FEW_ROWS:
        record_few_rows(recorder, a, b, out, rows, after, label)
        return
    element = element_for(recorder, a, b, chain.inputs[0])
    if element:
        record_tensor_product(recorder, element, a, b, out, rows, after, label)
        return
    shapes = shapes_of(recorder)
    side = shapes.side
    tall, wide = (shapes.per_lane_for(size, side) for size in (count, columns))
    kernel = ContractionKernel(
        form_of(a),
        form_of(b),
        rows,
        len(axes) - rows,
        chain,
        tuple(operand(view) for view in operands),
        tuple(operand(view, written=True) for view in outputs),
        side,
        tall,
        wide,
    )
    along = math.ceil(count / (side * tall))
    across = math.ceil(columns / (side * wide))
    groups = along * across * lead[0] * lead[1]
    launch(
        recorder,
        kernel,
        [*factors, *operands, *outputs],
        (groups, along, across, lead[1], count, columns, depth, *axes),
        groups,
        label,
        2 * out.size * depth,
    )
