"""Chains applied to a tile of a contraction while it is in the cache."""

from __future__ import annotations

from typing import Final, NamedTuple

from onnxplug_compiler.ir.elementwise import Chain
from onnxplug_compiler.ir.epilogue import Epilogue
from onnxplug_compiler.ir.parameters import Parameters
from onnxplug_compiler.ir.views import View
from onnxplug_cpu.compiler.codegen.emit import (
    F32,
    I8,
    I64,
    PTR,
    Function,
    Module,
    Value,
)
from onnxplug_cpu.compiler.codegen.kernel import Generator, Kernel
from onnxplug_cpu.compiler.codegen.lanes import Lanes, Part, stored
from onnxplug_cpu.compiler.commands.words import Code, Word, Words
from onnxplug_cpu.compiler.kernels.contraction.tile import FinishedTile
from onnxplug_cpu.compiler.kernels.elementwise.body import ChainBody
from onnxplug_cpu.compiler.kernels.elementwise.codes import is_packed, packed_lanes
from onnxplug_cpu.compiler.kernels.loop_nest import SPLAT, STRIDED, UNIT
from onnxplug_cpu.compiler.machine.isa import LANES, Isa


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


TILES: Final = ("f32", "i32")
"""Elements of tiles that epilogues take; all have the size of f32."""


def epilogue_call(epilogue: Epilogue) -> tuple[Code, Words]:
    """The words of a kernel that applies *epilogue*: a function, and its first
    argument.

    The arguments of the function are :class:`~.tile.FinishedTile`.

    Raises:
        ValueError: views have other axes than [batch0, batch1, lines, rows,
            columns].
    """
    chain, operands, outputs = epilogue
    if chain.inputs[0] not in TILES:
        raise ValueError(f"a tile is f32 or i32; the chain takes {chain.inputs[0]}")
    views = [*operands, *outputs]
    if len(views[-1].shape) != _AXES:
        raise ValueError(
            "views of shape [batch0, batch1, lines, rows, columns] are expected; "
            f"got {views[-1].shape}"
        )
    inputs = tuple(
        _operand(view, element)
        for view, element in zip(operands, chain.inputs[1:], strict=True)
    )
    results = tuple(
        _operand(view, chain.element(value))._replace(repeats=False)
        for view, value in zip(outputs, chain.outputs, strict=True)
    )
    words: list[Word] = []
    for view in views:
        words.append(view.address)
        words.extend(stride * view.dtype.itemsize for stride in view.strides)
    half = views[-1].shape[-1] % LANES >= LANES // 2
    kernel = Kernel(_TileEpilogue(chain, inputs, results, half))
    return Code(kernel), Words(tuple(words))


_AXES: Final = 5


def _operand(view: View, element: str) -> _Operand:
    rows, columns = view.shape[3:]
    stride = 1 if columns == 1 else view.strides[4]
    kind = SPLAT if stride == 0 else UNIT if stride == 1 else STRIDED
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
        _Tile(module, name, isa, self).write()


class _Placed(NamedTuple):
    """An operand or output, as far as the tile goes.

    Attributes:
        kind: what code depends on.
        base: where the tile's first element belongs.
        row_step: bytes from row to row.
        column_step: bytes from column to column, where they are apart.
    """

    kind: _Operand
    base: Value
    row_step: Value
    column_step: Value | None

    def at(self, f: Function, column: Value) -> Value:
        """Where the first row's element of a column is."""
        if self.kind.columns == SPLAT:
            return self.base
        if self.column_step is None:
            return f.at(self.base, column, stored(self.kind.element))
        return f.at(self.base, column * self.column_step, I8)

    def load(self, lanes: Lanes, pointer: Value, part: Part) -> Value:
        """A vector of a row."""
        if self.kind.columns == SPLAT:
            return lanes.load_splat(self.kind.element, pointer)
        return lanes.load(self.kind.element, pointer, part, self.column_step)


class _Vectors(NamedTuple):
    """A chain for vectors of some width."""

    body: ChainBody
    lanes: Lanes


class _Tile:
    """The loops over strips of a tile, a vector's columns each, and their rows."""

    def __init__(
        self, module: Module, name: str, isa: Isa, form: _TileEpilogue
    ) -> None:
        f = self.f = module.function(name, FinishedTile.parameters())
        self.isa, self.form = isa, form
        self.arguments = FinishedTile(*f.parameters)
        self.whole = self._of_width()
        self.few = self._of_width(LANES // 2) if form.half else self.whole
        self.packed: _Vectors | None = None
        both = *form.inputs, *form.outputs
        is_near = all(operand.columns != STRIDED for operand in both)
        if is_near and is_packed(self.whole.body.chain, isa):
            self.packed = self._of_width(packed_lanes(isa))
        self.row_step = self.arguments.tile_stride * F32.nbytes
        self.operands = [self._placed(*each) for each in enumerate(both)]

    def _of_width(self, width: int = 0) -> _Vectors:
        body = ChainBody(self.f, self.isa, self.form.chain, width)
        lanes = Lanes(self.f, self.isa, body.width)
        for operand in (*self.form.inputs, *self.form.outputs):
            lanes.reserve_for(operand.element, operand.columns == STRIDED)
        lanes.reserve_for(self.form.chain.inputs[0], False)
        return _Vectors(body, lanes)

    def _placed(self, number: int, kind: _Operand) -> _Placed:
        f, arguments = self.f, self.arguments
        address, *strides = [
            f.load(
                f.at(arguments.words, number * len(_FIELDS) + field, I64),
                I64 if field else PTR,
            )
            for field in range(len(_FIELDS))
        ]
        offset = arguments.column * strides[-1]
        first = (arguments.batch0, arguments.batch1, arguments.line, arguments.row)
        for index, stride in zip(first, strides[:-1], strict=True):
            offset = offset + index * stride
        return _Placed(
            kind=kind,
            base=f.at(address, offset, I8),
            row_step=strides[-2],
            column_step=strides[-1] if kind.columns == STRIDED else None,
        )

    def write(self) -> None:
        f, columns, lanes = self.f, self.arguments.columns, self.whole.lanes
        width, begin = lanes.width, f.value(0, I64)
        if self.packed is not None:
            packed, wide = self.packed, self.packed.lanes
            begin = columns & -wide.width
            f.loop(
                begin,
                lambda start: self._strip(packed, start, wide.whole()),
                step=wide.width,
            )

        def rest(start: Value) -> None:
            self._strip(self.whole, start, lanes.first(columns - start))

        if lanes.has_masks:
            f.loop(columns, rest, start=begin, step=width)
        else:
            full = columns & -width
            f.loop(
                full,
                lambda start: self._strip(self.whole, start, lanes.whole()),
                step=width,
            )
            if self.form.half:
                left = (columns - full).compare("ge", self.few.lanes.width)
                (full,) = f.branch(left, lambda: [self._half(full)], lambda: [full])
            f.branch(full < columns, lambda: rest(full))
        f.finish()

    def _half(self, start: Value) -> Value:
        """A strip of half the width; where the next one begins."""
        lanes = self.few.lanes
        self._strip(self.few, start, lanes.whole())
        return start + lanes.width

    def _strip(self, vectors: _Vectors, start: Value, part: Part) -> None:
        """A vector's columns of all rows."""
        f, inputs = self.f, len(self.form.inputs)
        body, lanes = vectors
        fixed = body.constants()
        moving: dict[int, _Placed] = {}
        for number, operand in enumerate(self.operands):
            if number < inputs and number + 1 not in body.live:
                continue
            if number < inputs and operand.kind.repeats:
                fixed[number + 1] = operand.load(lanes, operand.at(f, start), part)
            else:
                moving[number] = operand
        fixed = body.fix(fixed)

        def row(_: Value, tile: Value, *pointers: Value) -> list[Value]:
            element = self.form.chain.inputs[0]
            values = fixed | {0: lanes.load(element, tile, part)}
            places = dict(zip(moving, pointers, strict=True))
            for number, place in places.items():
                if number < inputs:
                    values[number + 1] = moving[number].load(lanes, place, part)
            values = body.advance(values)
            for number, output in enumerate(body.chain.outputs, inputs):
                operand, place = moving[number], places[number]
                element, step = operand.kind.element, operand.column_step
                lanes.store(element, values[output], place, part, step)
            return [
                f.at(tile, self.row_step, I8),
                *(f.at(places[n], moving[n].row_step, I8) for n in moving),
            ]

        tile = f.at(self.arguments.tile, start, F32)
        begin = [tile, *(operand.at(f, start) for operand in moving.values())]
        f.loop(self.arguments.rows, row, begin)
