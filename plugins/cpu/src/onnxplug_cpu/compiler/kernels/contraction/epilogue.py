"""Chains applied to a tile of a contraction while it is in the cache."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from onnxplug_cpu.compiler.codegen.emit import F32, I8, I64, PTR, Module, Value
from onnxplug_cpu.compiler.codegen.kernel import Generator, Kernel, Parameters
from onnxplug_cpu.compiler.codegen.lanes import Lanes, Part, stored
from onnxplug_cpu.compiler.ir.commands import Code, Word, Words
from onnxplug_cpu.compiler.ir.elementwise import Chain
from onnxplug_cpu.compiler.ir.views import View
from onnxplug_cpu.compiler.kernels.contraction.operands import with_line
from onnxplug_cpu.compiler.kernels.elementwise.body import ChainBody
from onnxplug_cpu.compiler.kernels.loop_nest import SPLAT, STRIDED, UNIT
from onnxplug_cpu.compiler.target.isa import LANES, Isa


class _Operand(Parameters):
    """What code depends on of an operand or output.

    Attributes:
        element: its element type.
        columns: how it lies along a row.
        repeats: all rows are one.
    """

    element: str
    columns: str
    repeats: bool


class Epilogue(NamedTuple):
    """A chain for the tiles of a contraction, and what it reads and writes.

    Attributes:
        chain: its value 0 is the tile, an f32.
        operands: the other inputs, broadcast to the shape of the result.
        outputs: one view per output of the chain, of the same shape.
    """

    chain: Chain
    operands: tuple[View, ...]
    outputs: tuple[View, ...]

    def reshape(self, shape: Sequence[int]) -> Epilogue | None:
        """The same for a result of another shape; ``None`` if a view needs a copy."""
        views = []
        for view in (*self.operands, *self.outputs):
            other = view.reshape(shape)
            if other is None:
                return None
            views.append(other)
        return self._with(views)

    def with_line(self) -> Epilogue:
        """The same for rows that are those of one line."""
        return self._with([with_line(view) for view in (*self.operands, *self.outputs)])

    def _with(self, views: Sequence[View]) -> Epilogue:
        count = len(self.operands)
        return Epilogue(self.chain, tuple(views[:count]), tuple(views[count:]))

    def call(self) -> tuple[Code, Words]:
        """The words of a kernel that applies it: a function, and its first argument.

        The function is ``void (ptr words, i64 batch0, i64 batch1, i64 line, i64 row,
        i64 rows, i64 column, i64 columns, ptr tile, i64 tile_stride)``: *tile* has
        *rows* × *columns* finished f32 elements of a line of the result, from (row,
        column) on, with *tile_stride* elements from row to row.

        Raises:
            ValueError: views have other axes than [batch0, batch1, lines, rows,
                columns].
        """
        views = [*self.operands, *self.outputs]
        if len(views[-1].shape) != _AXES:
            raise ValueError(
                "views of shape [batch0, batch1, lines, rows, columns] are expected; "
                f"got {views[-1].shape}"
            )
        inputs = tuple(
            _operand(view, element)
            for view, element in zip(self.operands, self.chain.inputs[1:], strict=True)
        )
        results = tuple(
            _operand(view, self.chain.element(value))._replace(repeats=False)
            for view, value in zip(self.outputs, self.chain.outputs, strict=True)
        )
        words: list[Word] = []
        for view in views:
            words.append(view.address)
            words.extend(stride * view.dtype.itemsize for stride in view.strides)
        half = views[-1].shape[-1] % LANES >= LANES // 2
        kernel = Kernel(_TileEpilogue(self.chain, inputs, results, half))
        return Code(kernel), Words(tuple(words))


_AXES: Final = 5


def epilogue(
    chain: Chain, operands: Sequence[View], outputs: Sequence[View]
) -> Epilogue:
    """What applies *chain* to each tile of a contraction.

    Args:
        chain: its value 0 is the tile, an f32.
        operands: the other inputs, of the shape of the result, broadcast already; any
            strides.
        outputs: one view per output of the chain, of the same shape; the tile may lie
            in one of them, where this output's element is stored.

    Raises:
        ValueError: the chain does not begin with f32, or views do not fit.
    """
    if chain.inputs[0] != "f32":
        raise ValueError(f"a tile is f32; the chain takes {chain.inputs[0]}")
    if len(operands) + 1 != len(chain.inputs) or len(outputs) != len(chain.outputs):
        raise ValueError(
            f"the chain has {len(chain.inputs) - 1} inputs beside the tile and "
            f"{len(chain.outputs)} outputs; got {len(operands)} and {len(outputs)}"
        )
    views = [*operands, *outputs]
    if any(view.shape != views[-1].shape for view in views):
        raise ValueError(
            f"views of one shape are expected; got {[view.shape for view in views]}"
        )
    return Epilogue(chain, tuple(operands), tuple(outputs))


def _operand(view: View, element: str) -> _Operand:
    rows, columns = view.shape[3:]
    stride = 1 if columns == 1 else view.strides[4]
    kind = {0: SPLAT, 1: UNIT}.get(stride, STRIDED)
    return _Operand(element, kind, rows > 1 and view.strides[3] == 0)


_FIELDS = ("", "_batch0", "_batch1", "_line", "_row", "_column")
"""Words of an operand: its address and strides in bytes."""


class _TileEpilogue(Generator):
    """Applies *chain*, whose value 0 is the tile.

    Attributes:
        half: after whole vectors at least a half of one is left of a tile's columns.
    """

    chain: Chain
    inputs: tuple[_Operand, ...]
    outputs: tuple[_Operand, ...]
    half: bool

    @property
    def words(self) -> tuple[str, ...]:
        count = len(self.inputs) + len(self.outputs)
        return tuple(f"{n}{field}" for n in range(count) for field in _FIELDS)

    def write(self, module: Module, name: str, isa: Isa) -> None:
        _write(module, name, isa, self)


def _write(module: Module, name: str, isa: Isa, form: _TileEpilogue) -> None:
    chain, inputs, outputs, half = form
    places = ("batch0", "batch1", "line", "row", "rows", "column", "columns")
    f = module.function(
        name,
        [
            ("words", PTR),
            *((place, I64) for place in places),
            ("tile", PTR),
            ("tile_stride", I64),
        ],
    )
    words, *first, rows, column, columns, tile, tile_stride = f.parameters
    operands = [*inputs, *outputs]

    def of_width(width: int = 0) -> tuple[ChainBody, Lanes]:
        body = ChainBody(f, isa, chain, width)
        lanes = Lanes(f, isa, body.width)
        for operand in operands:
            lanes.reserve_for(operand.element, operand.columns == STRIDED)
        lanes.reserve_for("f32", False)
        return body, lanes

    whole = of_width()
    few = of_width(LANES // 2) if half else whole
    bases: list[Value] = []
    row_steps: list[Value] = [tile_stride * F32.nbytes]
    column_steps: list[Value | None] = []
    for number, operand in enumerate(operands):
        at = [
            f.load(
                f.at(words, number * len(_FIELDS) + field, I64),
                I64 if field else PTR,
            )
            for field in range(len(_FIELDS))
        ]
        offset = column * at[-1]
        for index, stride in zip(first, at[1:-1], strict=True):
            offset = offset + index * stride
        bases.append(f.at(at[0], offset, I8))
        row_steps.append(at[-2])
        column_steps.append(at[-1] if operand.columns == STRIDED else None)

    def strip(body: ChainBody, lanes: Lanes, start: Value, part: Part) -> None:
        """A vector's columns of all rows."""

        def placed(number: int) -> Value:
            operand, step = operands[number], column_steps[number]
            if operand.columns == SPLAT:
                return bases[number]
            if step is None:
                return f.at(bases[number], start, stored(operand.element))
            return f.at(bases[number], start * step, I8)

        def load(number: int, pointer: Value) -> Value:
            operand = inputs[number]
            if operand.columns == SPLAT:
                return lanes.load_splat(operand.element, pointer)
            return lanes.load(operand.element, pointer, part, column_steps[number])

        fixed = body.constants()
        moving: list[int] = []
        for number, operand in enumerate(inputs):
            if number + 1 not in body.live:
                continue
            if operand.repeats:
                fixed[number + 1] = load(number, placed(number))
            else:
                moving.append(number)
        fixed = body.advance(fixed)
        moving += range(len(inputs), len(operands))
        steps = [row_steps[0], *(row_steps[number + 1] for number in moving)]

        def one(_: Value, tile: Value, *pointers: Value) -> list[Value]:
            values = fixed | {0: lanes.load("f32", tile, part)}
            for number, pointer in zip(moving, pointers, strict=True):
                if number < len(inputs):
                    values[number + 1] = load(number, pointer)
            values = body.advance(values)
            for operand, value, pointer, number in zip(
                outputs,
                chain.outputs,
                pointers[len(pointers) - len(outputs) :],
                range(len(inputs), len(operands)),
                strict=True,
            ):
                lanes.store(
                    operand.element,
                    values[value],
                    pointer,
                    part,
                    column_steps[number],
                )
            return [
                f.at(pointer, step, I8)
                for pointer, step in zip([tile, *pointers], steps, strict=True)
            ]

        begin = [f.at(tile, start, F32), *(placed(number) for number in moving)]
        f.loop(rows, one, begin)

    lanes = whole[1]
    width = lanes.width
    if lanes.has_masks:
        f.loop(
            columns, lambda j: strip(*whole, j, lanes.first(columns - j)), step=width
        )
    else:
        full = columns & -width
        f.loop(full, lambda j: strip(*whole, j, lanes.whole()), step=width)
        if half:

            def vector() -> list[Value]:
                strip(*few, full, few[1].whole())
                return [full + few[1].width]

            left = (columns - full).compare("ge", few[1].width)
            (full,) = f.branch(left, vector, lambda: [full])
        f.branch(
            full < columns, lambda: strip(*whole, full, lanes.first(columns - full))
        )
    f.finish()
