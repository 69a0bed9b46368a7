"""Recurrent layers: the products of all inputs first, and then a workgroup for each
sequence, which goes from step to step with its states in memory of its own."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from onnxplug_compiler.gpu.command import launch, operand
from onnxplug_compiler.gpu.families.contractions import record_contraction
from onnxplug_compiler.gpu.families.movement import record_copy
from onnxplug_compiler.gpu.render import exponentials
from onnxplug_compiler.gpu.render.body import Body, Operand
from onnxplug_compiler.gpu.render.extremes import largest, smallest
from onnxplug_compiler.ir.elementwise import ChainBuilder
from onnxplug_compiler.ir.epilogue import Epilogue
from onnxplug_compiler.ir.parameters import Parameters
from onnxplug_compiler.ir.recorder import Recorder
from onnxplug_compiler.ir.recurrent import GRU, LSTM, Activation, Cell, Layer
from onnxplug_compiler.ir.views import View

_SHARED: Final = 16384
"""Bytes that a workgroup shares, at most: as many as WebGPU has everywhere."""

_WORTH_TURNING: Final = 16
"""Products with the same weights for which these are transposed before, so that what
neighbouring lanes read is adjacent."""

_F32: Final = np.dtype(np.float32)
_WORD: Final = np.dtype(np.uint32)


def _scaled(body: Body, x: str, a: str, b: str) -> str:
    return f"{a} * {x} + {b}"


def _clamped(body: Body, x: str, low: str, high: str) -> str:
    found = body.let("f32", largest(body, "f32", x, low))
    return body.let("f32", smallest(body, "f32", found, high))


def _leaky(body: Body, x: str, a: str, b: str) -> str:
    return body.dialect.select(f"{x} < 0.0f", f"{a} * {x}", x)


def _elu(body: Body, x: str, a: str, b: str) -> str:
    below = body.let("f32", body.dialect.select(f"{x} < 0.0f", x, "0.0f"))
    outside = f"{a} * {exponentials.expm1(body, below)}"
    return body.dialect.select(f"{x} < 0.0f", outside, x)


_ACTIVATIONS: Final[dict[str, Callable[[Body, str, str, str], str]]] = {
    "affine": _scaled,
    "elu": _elu,
    "hardsigmoid": lambda body, x, a, b: _clamped(
        body, body.let("f32", _scaled(body, x, a, b)), "0.0f", "1.0f"
    ),
    "leakyrelu": _leaky,
    "relu": lambda body, x, a, b: body.dialect.select(f"{x} < 0.0f", "0.0f", x),
    "scaledtanh": lambda body, x, a, b: (
        f"{a} * {exponentials.tanh(body, body.let('f32', f'{b} * {x}'))}"
    ),
    "sigmoid": lambda body, x, a, b: exponentials.sigmoid(body, x),
    "softplus": lambda body, x, a, b: exponentials.softplus(body, x),
    "softsign": lambda body, x, a, b: f"{x} / (1.0f + abs({x}))",
    "tanh": lambda body, x, a, b: exponentials.tanh(body, x),
    "thresholdedrelu": lambda body, x, a, b: body.dialect.select(
        f"{x} < {a}", "0.0f", x
    ),
}
"""By the names of activations: what each writes of a value, alpha and beta."""


class RecurrentKernel(Parameters):
    """All steps of a layer; the sizes are directions, sequences and steps.

    The arrays are the products of the inputs with what is added to them, [directions,
    steps, sequences, gates * hidden], the weights, and those that the attributes name.

    Attributes:
        element: of all arrays but the products, which are float32, as states are
            between steps.
        hidden: how large a state is.
        reverse: for each direction whether it begins at the end.
        bias, lengths, h0, c0, peepholes, y, last_h, last_c: whether there are these;
            with lengths there is a flag, too, the last one.
    """

    cell: Cell
    element: str
    hidden: int
    reverse: tuple[bool, ...]
    bias: bool
    lengths: bool
    h0: bool
    c0: bool
    peepholes: bool
    y: bool
    last_h: bool
    last_c: bool

    sizes = 3

    @property
    def lanes(self) -> int:
        """A power of two."""
        return 64 if self.hidden <= 64 else 256

    @property
    def named(self) -> dict[str, Operand]:
        """The arrays by name, in order."""
        of = self.element
        every = {
            "x": Operand("f32", 4),
            "r": Operand(of, 3),
            "bias": Operand(of, 2),
            "lengths": Operand("i32", 1),
            "h0": Operand(of, 3),
            "c0": Operand(of, 3),
            "peepholes": Operand(of, 2),
            "y": Operand(of, 4, True),
            "last_h": Operand(of, 3, True),
            "last_c": Operand(of, 3, True),
        }
        found = {
            name: each for name, each in every.items() if getattr(self, name, True)
        }
        if self.lengths:
            found["flag"] = Operand("flag", 0, True)
        return found

    @property
    def operands(self) -> tuple[Operand, ...]:
        return tuple(self.named.values())

    def write(self, body: Body) -> None:
        with body.when(f"block < {body.size(0)} * {body.size(1)}"):
            _Writer(body, self).write()


class _Writer:
    """Writes the steps of one sequence in one direction."""

    def __init__(self, body: Body, kernel: RecurrentKernel) -> None:
        self.body, self.kernel, self.cell = body, kernel, kernel.cell
        self.numbers = {name: number for number, name in enumerate(kernel.named)}
        self.sequence = body.let("u32", f"block % {body.size(1)}")
        self.direction = body.let("u32", f"block / {body.size(1)}")
        self.h, self.next = (body.array("f32", kernel.hidden) for _ in range(2))
        self.third = ""
        if self.cell.kind == LSTM or self.resets_early:
            self.third = body.array("f32", kernel.hidden)

    @property
    def resets_early(self) -> bool:
        """A GRU's reset gate is multiplied with the state before the product."""
        return self.cell.kind == GRU and not self.cell.resets_late

    def units(self) -> Any:
        """A loop over the elements of a state that a lane computes."""
        hidden, lanes = self.kernel.hidden, self.kernel.lanes
        return self.body.loop(f"{hidden}u", "lane", f"{lanes}u")

    def read(self, name: str, at: Sequence[str]) -> str:
        """An element of an array; 0 of one that there is not."""
        number = self.numbers.get(name)
        if number is None:
            return "0.0f"
        found: str = self.body.load(number, self.body.place(number, at))
        return found

    def keep(self, name: str, at: Sequence[str], value: str) -> None:
        """Write an element of an array, if there is one."""
        number = self.numbers.get(name)
        if number is not None:
            self.body.store(number, self.body.place(number, at), value)

    def write(self) -> None:
        """The states before, all steps, and the states after."""
        body = self.body
        state = [self.direction, self.sequence]
        with self.units() as unit:
            body.assign(f"{self.h}[{unit}]", self.read("h0", [*state, unit]))
            if self.cell.kind == LSTM:
                body.assign(f"{self.third}[{unit}]", self.read("c0", [*state, unit]))
        body.wait()
        steps, length = body.let("u32", body.size(2)), self.length()
        with body.loop(steps) as number:
            last = f"{steps} - 1u - {number}"
            choices = self.kernel.reverse
            backward = (
                f"{self.direction} == {choices.index(True)}u"
                if len({*choices}) > 1
                else str(choices[0]).lower()
            )
            time = body.let("u32", body.dialect.select(backward, last, number))
            self.step(time, body.let("i1", f"{time} < {length}"))
        with self.units() as unit:
            self.keep("last_h", [*state, unit], f"{self.h}[{unit}]")
            self.keep("last_c", [*state, unit], f"{self.third}[{unit}]")

    def length(self) -> str:
        """How many steps the sequence has."""
        body, steps = self.body, self.body.size(2)
        if not self.kernel.lengths:
            return body.let("u32", steps)
        given = self.read("lengths", [self.sequence])
        wrong = body.let("i1", f"{given} < 0 || {given} > i32({steps})")
        with body.when(wrong):
            body.raise_flag(self.numbers["flag"])
        return body.let("u32", body.dialect.select(wrong, "0u", f"u32({given})"))

    def step(self, time: str, active: str) -> None:
        """One step; a sequence that has not begun, or has ended, stays as it is."""
        body, select = self.body, self.body.dialect.select
        if self.resets_early:
            self.reset(time)
        with self.units() as unit:
            new, cell = self.new_state(time, unit)
            old = f"{self.h}[{unit}]"
            body.assign(f"{self.next}[{unit}]", select(active, new, old))
            if cell:
                old = f"{self.third}[{unit}]"
                body.assign(old, select(active, cell, old))
            at = [time, self.direction, self.sequence, unit]
            self.keep("y", at, body.let("f32", select(active, new, "0.0f")))
        body.wait()
        with self.units() as unit:
            body.assign(f"{self.h}[{unit}]", f"{self.next}[{unit}]")
        body.wait()

    def sums(self, unit: str, gates: Sequence[int], state: str = "") -> list[str]:
        """The products of a state with the weights of some gates, and their bias."""
        body, hidden = self.body, self.kernel.hidden
        rows = [body.let("u32", f"{gate * hidden}u + {unit}") for gate in gates]
        totals = [
            body.var("f32", self.read("bias", [self.direction, row])) for row in rows
        ]
        with body.loop(f"{hidden}u") as k:
            value = body.let("f32", f"{state or self.h}[{k}]")
            for total, row in zip(totals, rows, strict=True):
                weight = self.read("r", [self.direction, row, k])
                body.assign(total, f"{total} + {value} * {weight}")
        return totals

    def given(self, time: str, unit: str, gate: int) -> str:
        """The product of the input for a gate."""
        at = [self.direction, time, self.sequence]
        return self.read("x", [*at, f"{gate * self.kernel.hidden}u + {unit}"])

    def active(self, number: int, x: str) -> str:
        """An activation of the cell, of what is clipped."""
        body, clip = self.body, self.cell.clip
        function: Activation = self.cell.activations[number]
        x = body.let("f32", x)
        if clip is not None:
            x = _clamped(body, x, body.number("f32", -clip), body.number("f32", clip))
        alpha, beta = (
            body.number("f32", value or 0.0)
            for value in (function.alpha, function.beta)
        )
        return body.let("f32", _ACTIVATIONS[function.name](body, x, alpha, beta))

    def reset(self, time: str) -> None:
        """The update gate, which the next state's place has so long, and what the reset
        gate leaves of the state."""
        body = self.body
        with self.units() as unit:
            sums = self.sums(unit, (0, 1))
            update, reset = (
                self.active(0, f"{total} + {self.given(time, unit, gate)}")
                for gate, total in enumerate(sums)
            )
            body.assign(f"{self.next}[{unit}]", update)
            body.assign(f"{self.third}[{unit}]", f"{reset} * {self.h}[{unit}]")
        body.wait()

    def new_state(self, time: str, unit: str) -> tuple[str, str]:
        """The state, and the cell of an LSTM."""
        if self.cell.kind == LSTM:
            return self.lstm(time, unit)
        if self.cell.kind == GRU:
            return self.gru(time, unit), ""
        (total,) = self.sums(unit, (0,))
        return self.active(0, f"{total} + {self.given(time, unit, 0)}"), ""

    def gru(self, time: str, unit: str) -> str:
        """The state of a GRU."""
        body = self.body
        if self.resets_early:
            update = f"{self.next}[{unit}]"
            (history,) = self.sums(unit, (2,), self.third)
        else:
            sums = self.sums(unit, (0, 1, 2))
            update, reset = (
                self.active(0, f"{sums[gate]} + {self.given(time, unit, gate)}")
                for gate in (0, 1)
            )
            history = f"{reset} * {sums[2]}"
        candidate = self.active(1, f"{self.given(time, unit, 2)} + {history}")
        return body.let(
            "f32", f"(1.0f - {update}) * {candidate} + {update} * {self.h}[{unit}]"
        )

    def lstm(self, time: str, unit: str) -> tuple[str, str]:
        """The state and the cell of an LSTM, whose gates are input, output, forget and
        cell."""
        body = self.body
        before = f"{self.third}[{unit}]"
        into, out, forget, candidate = (
            body.let("f32", f"{total} + {self.given(time, unit, gate)}")
            for gate, total in enumerate(self.sums(unit, range(4)))
        )

        def seen(gate: int, cell: str) -> str:
            """What a gate sees of the cell."""
            if not self.kernel.peepholes:
                return "0.0f"
            row = f"{gate * self.kernel.hidden}u + {unit}"
            return f"{self.read('peepholes', [self.direction, row])} * {cell}"

        into = self.active(0, f"{into} + {seen(0, before)}")
        if self.cell.couples:
            forget = body.let("f32", f"1.0f - {into}")
        else:
            forget = self.active(0, f"{forget} + {seen(2, before)}")
        fresh = self.active(1, candidate)
        cell = body.let("f32", f"{forget} * {before} + {into} * {fresh}")
        out = self.active(0, f"{out} + {seen(1, cell)}")
        return body.let("f32", f"{out} * {self.active(2, cell)}"), cell


def record_recurrent(
    recorder: Recorder[Any], cell: Cell, layer: Layer, label: str
) -> None:
    """All steps of *layer*; see ``ir.recurrent.Recurrent``."""
    steps, sequences, _ = layer.x.shape
    directions, rows, hidden = layer.r.shape
    third = cell.kind == LSTM or (cell.kind == GRU and not cell.resets_late)
    if 4 * hidden * (2 + third) > _SHARED:
        raise ValueError(f"{label} with states of {hidden} elements")
    if not hidden or not sequences:
        return
    r = layer.r
    if steps * sequences >= _WORTH_TURNING:
        turned = recorder.temporary(r.dtype, (directions, hidden, rows))
        r = turned.transpose((0, 2, 1))
        record_copy(recorder, layer.r, r, label=label)
    views = {
        "x": _products(recorder, layer, label),
        "r": r,
        **_parameters(recorder, layer, label),
        "lengths": layer.lengths,
        "y": layer.y,
        "last_h": layer.last_h,
        "last_c": layer.last_c,
    }
    if layer.lengths is not None:
        flag = recorder.check(
            lambda _: ValueError(
                f"{label} has a sequence of fewer than 0 steps, or of more than the "
                f"{steps} that the input has"
            )
        )
        views["flag"] = View.contiguous(flag.buffer, _WORD, (), flag.offset)
    given = [
        views.get(name) is not None
        for name in (
            "bias", "lengths", "h0", "c0", "peepholes", "y", "last_h", "last_c"
        )
    ]  # fmt: skip
    kernel = RecurrentKernel(
        cell, operand(layer.x).element, hidden, layer.reverse, *given
    )
    launch(
        recorder,
        kernel,
        [view for name in kernel.named if (view := views[name]) is not None],
        (directions, sequences, steps),
        directions * sequences,
        label,
        2 * directions * sequences * steps * rows * hidden,
    )


def _products(recorder: Recorder[Any], layer: Layer, label: str) -> View:
    """The products of all inputs, and the bias of the input."""
    steps, sequences, depth = layer.x.shape
    directions, rows, _ = layer.w.shape
    found = recorder.temporary(_F32, (directions, steps, sequences, rows))

    def with_axes(view: View, axes: Sequence[tuple[int, int]]) -> View:
        shape, strides = zip(*axes, strict=True)
        return View(view.buffer, view.offset, view.dtype, shape, strides)

    sizes = (directions, 1, steps, sequences, rows)
    x, w = layer.x, layer.w.strides
    out = found.reshape(sizes)
    assert out is not None
    after = None
    if layer.bias is not None:
        builder = ChainBuilder()
        tile, added = (builder.input(each) for each in ("f32", operand(x).element))
        if operand(x).element != "f32":
            added = builder.step("Cast", [added], "f32")
        total = builder.step("Add", [tile, added], "f32")
        by, along = layer.bias.strides
        axes = zip(sizes, (by, 0, 0, 0, along), strict=True)
        bias = with_axes(layer.bias, [*axes])
        after = Epilogue(builder.build([total]), (bias,), (out,))
    a = with_axes(x, [(1, 0), (1, 0), *zip(x.shape, x.strides, strict=True)])
    b = with_axes(layer.w, [(directions, w[0]), (1, 0), (depth, w[2]), (rows, w[1])])
    record_contraction(recorder, a, b, out, epilogue=after, label=label)
    return found


def _parameters(
    recorder: Recorder[Any], layer: Layer, label: str
) -> dict[str, View | None]:
    """What steps read beside products and weights, in one buffer: a kernel has few."""
    bias = layer.bias
    if bias is not None:
        rows = bias.shape[1] // 2
        bias = bias.slice((0, rows), (bias.shape[0], rows))
    found = {
        "bias": bias,
        "h0": layer.h0,
        "c0": layer.c0,
        "peepholes": layer.peepholes,
    }
    given = [view for view in found.values() if view is not None]
    together = recorder.temporary(
        layer.x.dtype, (sum(math.prod(view.shape) for view in given),)
    )
    offset = together.offset
    for name, view in found.items():
        if view is None:
            continue
        place = View.contiguous(together.buffer, view.dtype, view.shape, offset)
        record_copy(recorder, view, place, label=label)
        found[name] = place
        offset += place.nbytes
    return found
