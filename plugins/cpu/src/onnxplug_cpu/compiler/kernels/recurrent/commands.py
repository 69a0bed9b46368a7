"""Recurrent layers as commands: one product for all inputs, then the steps.

The product of the inputs does not depend on states, so it is computed for all steps and
both directions at once.  What is left of a step is one kernel's work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np

from onnxplug_compiler.ir.buffers import Address, Constant
from onnxplug_compiler.ir.recurrent import Cell, Layer
from onnxplug_compiler.ir.traced import larger, smaller
from onnxplug_compiler.ir.views import View
from onnxplug_cpu.compiler.codegen.kernel import Kernel
from onnxplug_cpu.compiler.commands.chunks import chunks_for, fewest_chunks
from onnxplug_cpu.compiler.commands.recording import Recorder, call
from onnxplug_cpu.compiler.commands.words import Code, Word
from onnxplug_cpu.compiler.kernels.contraction.commands import record_contraction
from onnxplug_cpu.compiler.kernels.movement.copy import record_copy
from onnxplug_cpu.compiler.kernels.recurrent.ahead import ahead_bytes, block_steps
from onnxplug_cpu.compiler.kernels.recurrent.cell import phases, slots
from onnxplug_cpu.compiler.kernels.recurrent.sharing import shared_bytes
from onnxplug_cpu.compiler.kernels.recurrent.steps import RecurrentSteps
from onnxplug_cpu.compiler.kernels.recurrent.sums import PAIR, panel_lanes, tile_of
from onnxplug_cpu.compiler.kernels.widening import widened
from onnxplug_cpu.compiler.machine.isa import LANES, Isa

_FLOPS: Final = 40e9  # of one thread, a second: to guess how long work takes
_MOST_FEATURES: Final = 3
SHORTEST_SHARE: Final = 1e-6  # seconds of a step, long beside waiting for others
_F32: Final = np.dtype(np.float32)


def record_recurrent(recorder: Recorder, cell: Cell, layer: Layer, label: str) -> None:
    """Record the steps of *layer*.

    The reported error of a run is that a sequence's length is negative, or more than
    there are steps.
    """
    time, batch, inputs = layer.x.shape
    directions, _, hidden = layer.r.shape
    if not directions * batch * hidden:
        return
    if _projects(layer) or _steps_ahead(recorder.target.isa, cell, layer):
        x = _reshaped(recorder, layer.x, (1, 1, time, batch, inputs))
        if inputs > 1 and x.strides[4] != 1:
            copy = recorder.temporary(_F32, x.shape)
            record_copy(recorder, x, copy)
            x = copy
        _Steps(recorder, cell, layer, label, x).record()
        return
    gates = directions * cell.gates * hidden
    # panels of the last sequence read beyond the last gate, which does no harm
    room = recorder.temporary(_F32, (time * batch * gates + PAIR * LANES,))
    projected = View(
        room.buffer,
        room.offset,
        _F32,
        (1, 1, time, batch, gates),
        (0, 0, batch * gates, gates, 1),
    )
    weights = _reshaped(recorder, layer.w, (gates, inputs))
    record_contraction(
        recorder,
        _with_lead(layer.x),
        _with_lead(weights.transpose((1, 0))),
        projected,
        label=f"{label} inputs",
    )
    _Steps(recorder, cell, layer, label, projected).record()


def _projects(layer: Layer) -> bool:
    """Whether steps multiply their inputs themselves: there is one, of constant
    weights."""
    given = (layer.w, layer.r)
    return layer.x.shape[:2] == (1, 1) and all(
        isinstance(view.buffer, Constant) for view in given
    )


def _steps_ahead(isa: Isa, cell: Cell, layer: Layer) -> int:
    """The steps of a block whose products of inputs are computed beside steps before:
    of one sequence, with constant weights; otherwise 0."""
    time, batch, _ = layer.x.shape
    constant = isinstance(layer.w.buffer, Constant)
    return block_steps(isa, cell, time) if batch == 1 and constant else 0


def _with_lead(view: View) -> View:
    shape, strides = (1, 1, *view.shape), (0, 0, *view.strides)
    return View(view.buffer, view.offset, view.dtype, shape, strides)


class _Steps:
    """The steps while they are recorded."""

    def __init__(
        self,
        recorder: Recorder,
        cell: Cell,
        layer: Layer,
        label: str,
        projected: View,
    ) -> None:
        self.recorder, self.cell, self.layer = recorder, cell, layer
        self.label, self.projected = label, projected
        self.time, self.batch = projected.shape[2:4]
        self.directions, _, self.hidden = layer.r.shape
        self.width = panel_lanes(recorder.target.isa)
        self.panels = -(-self.hidden // self.width)
        isa, batch = recorder.target.isa, self.batch
        self.tiles = [tile_of(isa, len(gates), batch) for gates in phases(cell)]
        self.slot = -(-self.panels // PAIR) * PAIR * self.width
        rows = self.batch * self.directions * cell.gates * self.hidden
        self.projects, self.ahead = _projects(layer), _steps_ahead(isa, cell, layer)
        # where inputs are multiplied, too
        columns = self.hidden + (self.projects or self.ahead > 0) * layer.x.shape[2]
        self.step_flops = rows * columns * 2

    def record(self) -> None:
        recorder = self.recorder
        blocks = -(-self.batch // min(tile.rows for tile in self.tiles))
        rows = -(-self.batch // blocks)
        tall = self.batch - blocks * (rows - 1)
        workers = recorder.target.workers
        seconds = self.time * self.step_flops / _FLOPS
        busy = smaller(chunks_for(seconds, workers), workers)
        parts = smaller(blocks, larger(1, -(-busy // self.directions)))
        each = -(-blocks // parts)
        parts = -(-blocks // each)
        words = self._words() | {
            "blocks": blocks,
            "each": each,
            "parts": parts,
            "tall_blocks": tall,
            "rows": rows,
        }
        groups = self.directions * parts
        shares = self._shares(groups)
        least = fewest_chunks(seconds / (groups * shares))
        pieces = smaller(larger(1, self.time), least)
        count = larger(1, -(-self.time // pieces))
        words |= self._tiles(rows)
        steps = self._kernel()
        if shares == 1:
            for first, now in _pieces(self.time, count):
                ends = first + now == self.time
                self._call(
                    steps, words, first, now, groups, begins=not first, ends=ends
                )
            return
        panels = -(-self.panels // (shares * PAIR)) * PAIR
        shares = -(-self.panels // panels)
        words |= {"shares": shares, "panels_of_share": panels}
        words["shared_of_group"] = nbytes = shared_bytes(shares)
        shape = (-(-self.time // count), groups, nbytes // 8)
        shared = recorder.temporary(np.dtype(np.int64), shape)
        zero = recorder.constant(np.zeros((1, 1, 1), np.int64))
        record_copy(recorder, zero.broadcast_to(shape), shared, label="Zeros")
        self._call(steps, words, 0, 0, groups, begins=True)
        sharing = steps._replace(shares=True)
        each_piece = _pieces(self.time, count) if self.time else ()
        for piece, (first, now) in enumerate(each_piece):
            words["shared"] = shared.place(piece).address
            self._call(sharing, words, first, now, groups * shares)
        self._call(steps, words, self.time, 0, groups, ends=True)

    def _shares(self, groups: int) -> int:
        """How many threads divide the pairs of panels of each step: those that have no
        sequences of their own, if what each has to do is long beside waiting for the
        others."""
        seconds = self.step_flops / groups / _FLOPS
        free = self.recorder.target.workers // groups
        pairs = -(-self.panels // PAIR)
        return max(1, min(free, pairs, int(seconds / SHORTEST_SHARE)))

    def _kernel(self) -> RecurrentSteps:
        layer = self.layer
        return RecurrentSteps(
            self.cell,
            self.batch == 1,
            self.hidden != self.slot,
            layer.bias is not None,
            layer.lengths is not None,
            layer.y is not None,
            self.projects,
            self.ahead,
            self._features() if self.ahead else 0,
            False,
        )

    def _features(self) -> int:
        """For an element of the state, in whole numbers that are worth a kernel."""
        ratio = round(self.layer.x.shape[2] / self.hidden)
        return min(max(1, ratio), _MOST_FEATURES)

    def _tiles(self, rows: int) -> dict[str, Word]:
        """What computes the sums of blocks of so many sequences, or one less."""
        words: dict[str, Word] = {}
        if self.batch == 1:
            return words
        isa = self.recorder.target.isa
        for number, tile in enumerate(self.tiles):
            tile = tile._replace(rows=rows)
            words |= {
                f"tile{number}": Code(tile.kernel(isa, rows)),
                f"low_tile{number}": Code(tile.kernel(isa, max(1, rows - 1))),
                f"gates{number}": tile.gates,
            }
        return words

    def _call(
        self,
        kernel: RecurrentSteps,
        words: dict[str, Word],
        first: int,
        now: int,
        chunks: int,
        *,
        begins: bool = False,
        ends: bool = False,
    ) -> None:
        """*now* steps from the one that is computed as number *first*."""
        of_piece: dict[str, Word] = {
            "first": first,
            "count": now,
            "begins": int(begins),
            "ends": int(ends),
            # threads that share steps leave states where the last step wrote them
            "at": first % 2 * 4 * self.slot if words["shares"] != 1 else 0,
        }
        call(
            self.recorder,
            Kernel(kernel),
            words | of_piece,
            chunks=chunks,
            label=f"{self.label} {now}×{self.batch}×{self.hidden}",
            flops=now * self.step_flops,
            nbytes=now * self.directions * self.cell.gates * self.hidden**2 * 4,
        )

    def _words(self) -> dict[str, Word]:
        """The words that do not depend on how the work is divided; nobody shares."""
        cell, layer = self.cell, self.layer
        shape = (self.directions, self.batch, slots(cell), self.slot)
        state = self.recorder.temporary(_F32, shape)
        multiplies = self.projects or self.ahead
        words: dict[str, Word] = {
            "reverse": sum(flag << n for n, flag in enumerate(layer.reverse)),
            "time": self.time,
            "hidden": self.hidden,
            "panels": self.panels,
            "features": layer.x.shape[2],
            "x": self.projected.address,
            "x_direction": 0 if multiplies else 4 * cell.gates * self.hidden,
            "x_time": 4 * self.projected.strides[2],
            "x_row": 4 * self.projected.strides[3],
            "ahead": self._products() if self.ahead else 0,
            "state": state.address,
            "state_direction": 4 * state.strides[0],
            "slot": 4 * self.slot,
            "shares": 1,
            "panels_of_share": self.panels,
            "shared": 0,
            "shared_of_group": 0,
            "bias": self._bias(),
            "peepholes": self._peepholes(),
            **self._given("h0", layer.h0),
            **self._given("c0", layer.c0),
            **self._given("last_h", layer.last_h),
            **self._given("last_c", layer.last_c),
            **self._y(),
            **self._lengths(),
        }
        for name, matrix in {"w": layer.w, "r": layer.r}.items():
            for number, gates in enumerate(phases(cell)):
                if name == "w" and not multiplies:
                    continue
                together = len(gates)
                if self.batch > 1:
                    together = self.tiles[number].gates
                if name == "w" and self.ahead:
                    together = 1
                packed = self._packed_weights(matrix, gates, together)
                words[f"{name}{number}"] = packed
                distance = self.panels * matrix.shape[2] * len(gates) * self.width
                words[f"{name}{number}_direction"] = 4 * distance
        return words

    # parameters in the order in which kernels read them

    def _products(self) -> Address:
        """Memory for the products of inputs that are computed ahead."""
        nbytes = ahead_bytes(self.cell, self.ahead, self.slot)
        return self.recorder.temporary(_F32, (self.directions, nbytes // 4)).address

    def _packed_weights(
        self, matrix: View, gates: tuple[int, ...], together: int
    ) -> Address:
        """[directions, panels, parts of the gates, columns, gates of a part, lanes of a
        panel]; with so many gates of a part *together*."""
        columns, parts = matrix.shape[2], len(gates) // together
        shape = (self.directions, self.panels, parts, columns, together, self.width)
        layout = f"recurrent {self.cell.gates} {gates} {shape}"

        def record(recorder: Recorder, matrix: View, out: View) -> None:
            whole = self._whole_panels(recorder, matrix, gates)
            several = whole.reshape(
                (self.directions, parts, together, self.panels, self.width, columns)
            )
            assert several is not None
            record_copy(recorder, several.transpose((0, 3, 1, 5, 2, 4)), out)

        return _arranged(self.recorder, matrix, layout, shape, record)

    def _whole_panels(
        self, recorder: Recorder, matrix: View, gates: tuple[int, ...]
    ) -> View:
        """[directions, gates, lanes of all panels, columns], with zeros behind."""
        hidden, directions, columns = self.hidden, self.directions, matrix.shape[2]
        matrix = widened(recorder, matrix)
        split = _reshaped(
            recorder, matrix, (directions, self.cell.gates, hidden, columns)
        )
        sizes = (directions, len(gates), hidden, columns)
        lanes = self.panels * self.width
        whole = recorder.temporary(_F32, (*sizes[:2], lanes, columns))
        _record_padded(recorder, split.slice((0, gates[0], 0, 0), sizes), whole)
        return whole

    def _bias(self) -> Word:
        bias = self.layer.bias
        return 0 if bias is None else self._vectors(bias, 2 * self.cell.gates)

    def _peepholes(self) -> Word:
        peepholes = self.layer.peepholes
        return 0 if peepholes is None else self._vectors(peepholes, 3)

    def _vectors(self, source: View, count: int) -> Address:
        """Vectors of the hidden size, each with whole panels."""
        shape = (self.directions, count, self.slot)
        layout = f"recurrent {shape}"

        def record(recorder: Recorder, source: View, out: View) -> None:
            split = _reshaped(recorder, source, (self.directions, count, self.hidden))
            _record_padded(recorder, split, out)

        return _arranged(self.recorder, source, layout, shape, record)

    # states and results

    def _given(self, name: str, view: View | None) -> dict[str, Word]:
        direction, row = (0, 0) if view is None else view.strides[:2]
        return {
            name: 0 if view is None else view.address,
            f"{name}_direction": 4 * direction,
            f"{name}_row": 4 * row,
        }

    def _y(self) -> dict[str, Word]:
        y = self.layer.y
        time, direction, row = (0, 0, 0) if y is None else y.strides[:3]
        return {
            "y": 0 if y is None else y.address,
            "y_time": 4 * time,
            "y_direction": 4 * direction,
            "y_row": 4 * row,
        }

    def _lengths(self) -> dict[str, Word]:
        lengths, time = self.layer.lengths, self.time
        if lengths is None:
            return {"lengths": 0, "lengths_step": 0, "flag": 0}

        def error(length: int) -> Exception:
            return ValueError(
                f"sequence_lens has {length}; expected 0 to {time}, the times of X"
            )

        return {
            "lengths": lengths.address,
            "lengths_step": 4 * lengths.strides[0],
            "flag": self.recorder.check(error),
        }


def _pieces(time: int, count: int) -> Iterator[tuple[int, int]]:
    """The first of *count* steps and how many there are, one after another; one piece
    at least."""
    first, left = 0, time
    while left > count:
        yield first, count
        first, left = first + count, left - count
    yield first, left


def _arranged(
    recorder: Recorder,
    source: View,
    layout: str,
    shape: tuple[int, ...],
    record: Callable[[Recorder, View, View], None],
) -> Address:
    """Where *record* puts a parameter: packed once if it is a constant."""
    if not isinstance(source.buffer, Constant):
        out = recorder.temporary(_F32, shape)
        record(recorder, source, out)
        return out.address
    # of directions with cells of their own, each is a part of one constant
    layout = f"{layout} of {source.offset} {source.shape} {source.strides}"
    nbytes = 4 * int(np.prod(shape))

    def fill(recorder: Recorder, source: View, target: Address) -> None:
        out = View.contiguous(target.buffer, _F32, shape)
        record(recorder, source, out)

    return recorder.packed(source, layout, nbytes, fill)


def _reshaped(recorder: Recorder, view: View, shape: tuple[int, ...]) -> View:
    """*view* in another shape, or a copy."""
    reshaped = view.reshape(shape)
    if reshaped is None:
        copy = recorder.temporary(view.dtype, view.shape)
        record_copy(recorder, view, copy)
        reshaped = copy.reshape(shape)
    assert reshaped is not None
    return reshaped


def _record_padded(recorder: Recorder, view: View, out: View) -> None:
    """Copy *view*, and put zeros behind its elements."""
    if view.shape != out.shape:
        zero = recorder.constant(np.zeros((1,) * len(out.shape), np.float32))
        record_copy(recorder, zero.broadcast_to(out.shape), out)
    record_copy(recorder, view, out.slice([0] * len(view.shape), view.shape))
