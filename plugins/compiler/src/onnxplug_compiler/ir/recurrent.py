"""Recurrent layers, as operators describe them.

Source: ONNX operators RNN-22, GRU-22 and LSTM-22, which state the equations.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

from onnxplug.authoring.record import Record
from onnxplug_compiler.ir.parameters import Parameters
from onnxplug_compiler.ir.recorder import Recorder
from onnxplug_compiler.ir.views import View

RNN, GRU, LSTM = "RNN", "GRU", "LSTM"

GATES: Final = {RNN: 1, GRU: 3, LSTM: 4}
"""How many gates each kind of cell has."""


class Activation(Parameters):
    """A function of a gate.

    Attributes:
        name: that of ONNX, in lower case.
        alpha, beta: its parameters; ``None`` of a function that has none.
    """

    name: str
    alpha: float | None = None
    beta: float | None = None


class Cell(Parameters):
    """A kind of cell.

    Attributes:
        kind: ``RNN``, ``GRU`` or ``LSTM``.
        activations: of its gates, and of an LSTM's result, in ONNX's order.
        clip: bounds of what activations take, from its negative on; ``None`` for none.
        peepholes: an LSTM's gates see its cell.
        couples: an LSTM forgets as much as it takes in.
        resets_late: a GRU multiplies by its reset gate after the product.
    """

    kind: str
    activations: tuple[Activation, ...]
    clip: float | None = None
    peepholes: bool = False
    couples: bool = False
    resets_late: bool = False

    @property
    def gates(self) -> int:
        """How many gates it has."""
        return GATES[self.kind]


class Layer(Record):
    """A recurrent layer; all views of float32 but the lengths.

    Attributes:
        x: [time, batch, input], of any strides.
        w: [directions, gates * hidden, input].
        r: [directions, gates * hidden, hidden].
        bias: [directions, 2 * gates * hidden], of the input and then of the state.
        lengths: [batch], int32: how many steps each sequence has.
        h0, c0: [directions, batch, hidden], with consecutive elements of a state; zeros
            where they are ``None``.
        peepholes: [directions, 3 * hidden].
        y: [time, directions, batch, hidden], the states of all steps.
        last_h, last_c: [directions, batch, hidden], the last states; of these and of
            *y* those that are wanted.
        reverse: for each direction whether it begins at the end.
    """

    x: View
    w: View
    r: View
    bias: View | None
    lengths: View | None
    h0: View | None
    c0: View | None
    peepholes: View | None
    y: View | None
    last_h: View | None
    last_c: View | None
    reverse: tuple[bool, ...]

    def direction(self, number: int) -> Layer:
        """The same of one direction alone."""

        def one(view: View | None, axis: int = 0) -> View | None:
            if view is None:
                return None
            starts, sizes = [0] * len(view.shape), list(view.shape)
            starts[axis], sizes[axis] = number, 1
            return view.slice(starts, sizes)

        return Layer(
            self.x,
            self.w.rows(number, 1),
            self.r.rows(number, 1),
            one(self.bias),
            self.lengths,
            one(self.h0),
            one(self.c0),
            one(self.peepholes),
            one(self.y, 1),
            one(self.last_h),
            one(self.last_c),
            self.reverse[number : number + 1],
        )


class Recurrent(Protocol):
    """Layers that go from step to step."""

    def record_recurrent(
        self, recorder: Recorder[Any], cell: Cell, layer: Layer, label: str
    ) -> None:
        """All steps of *layer*, whose directions have the same *cell*.

        A length of a sequence that is negative, or more than there are steps, is a
        ``ValueError`` of the run.
        """
