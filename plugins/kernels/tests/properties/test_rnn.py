"""Recurrent networks, one sequence and one step after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pytest

from .comparison import assert_near, result_of, wide
from .strategies import Array, Draw, examples

# name: (function of x and its parameters, their defaults)
ACTIVATIONS: Final[dict[str, tuple[Callable[..., Any], tuple[float, ...]]]] = {
    "Tanh": (np.tanh, ()),
    "Sigmoid": (lambda x: 1 / (1 + np.exp(-x)), ()),
    "Relu": (lambda x: np.maximum(x, 0), ()),
    "Softsign": (lambda x: x / (1 + np.abs(x)), ()),
    "Softplus": (lambda x: np.logaddexp(x, 0), ()),
    "LeakyRelu": (lambda x, a: np.where(x < 0, a * x, x), (0.01,)),
    "Elu": (lambda x, a: np.where(x < 0, a * np.expm1(x), x), (1.0,)),
    "HardSigmoid": (lambda x, a, b: np.clip(a * x + b, 0, 1), (0.2, 0.5)),
    "Affine": (lambda x, a, b: a * x + b, (1.0, 0.0)),
}
GATES: Final = {"RNN": 1, "GRU": 3, "LSTM": 4}
FUNCTIONS: Final = {
    "RNN": ("Tanh",),
    "GRU": ("Sigmoid", "Tanh"),
    "LSTM": ("Sigmoid", "Tanh", "Tanh"),
}


@pytest.mark.parametrize("op_type", GATES)
@examples(60)
def test_layers(op_type: str, draw: Draw) -> None:
    dtype = draw.dtype(op_type)
    direction = draw.one_of(["forward", "reverse", "bidirectional"])
    count = 2 if direction == "bidirectional" else 1
    time, batch, width, hidden = (draw.integer(1, n) for n in (4, 3, 3, 3))
    rows = GATES[op_type] * hidden
    layout = draw.integer(0, 1)
    given: dict[str, Any] = {"hidden_size": hidden, "layout": layout}
    if direction != "forward" or draw.flag():
        given["direction"] = direction

    def tensor(*shape: int) -> Array:
        halves = np.array([0, 0.5, -0.5, 1, -1, 0.25, 1.5])
        return draw.of(halves.astype(dtype), shape)

    def in_layout(x: Array) -> Array:
        return x.swapaxes(0, 1) if layout else x

    x = tensor(time, batch, width)
    w, r = tensor(count, rows, width), tensor(count, rows, hidden)
    b = tensor(count, 2 * rows) if draw.flag() else None
    lengths = None
    if draw.flag():
        lengths = draw.integers(1, time, (batch,), np.int32)
    starts = [tensor(count, batch, hidden) if draw.flag() else None]
    p = None
    if op_type == "LSTM":
        starts.append(tensor(count, batch, hidden) if draw.flag() else None)
        p = tensor(count, 3 * hidden) if draw.flag() else None
        if draw.flag():
            given["input_forget"] = 1
    if op_type == "GRU" and draw.flag():
        given["linear_before_reset"] = draw.integer(0, 1)
    if draw.flag():
        given["clip"] = draw.one_of([0.5, 2.0])
    names = FUNCTIONS[op_type] * count
    if draw.flag():
        names = tuple(draw.one_of([*ACTIVATIONS]) for _ in names)
        given["activations"] = names
        # some have no bounds, and states would grow from step to step
        given.setdefault("clip", 2.0)
    inputs = [in_layout(x), w, r, b, lengths]
    inputs += [None if s is None else in_layout(s) for s in starts]
    if op_type == "LSTM":
        inputs.append(p)
    found = result_of(op_type, *inputs, output_count=len(starts) + 1, **given)

    y = np.zeros((time, count, batch, hidden), np.longdouble)
    last = np.zeros((len(starts), count, batch, hidden), np.longdouble)
    for d, n in np.ndindex(count, batch):
        part = names[d * len(FUNCTIONS[op_type]) :]
        cell = Cell(op_type, part, given, hidden)
        cell.weights = [wide(m[d]) for m in (w, r)]
        cell.biases = np.zeros((2, rows)) if b is None else wide(b[d]).reshape(2, rows)
        cell.peepholes = (
            np.zeros((3, hidden)) if p is None else wide(p[d]).reshape(3, -1)
        )
        states = [
            np.zeros(hidden, np.longdouble) if s is None else wide(s[d, n])
            for s in starts
        ]
        steps = list(range(time if lengths is None else int(lengths[n])))
        backward = direction == "reverse" or d == 1
        for t in reversed(steps) if backward else steps:
            states = cell.step(wide(x[t, n]), states)
            y[t, d, n] = states[0]
        for which, state in enumerate(states):
            last[which, d, n] = state
    if layout:
        y, last = y.transpose(2, 0, 1, 3), last.swapaxes(1, 2)
    size = max(1, float(np.abs(y).max()), float(np.abs(last).max()))
    # errors pass from step to step
    units = 64 * time if dtype.itemsize > 2 else 2
    for one, two in zip(found, (y, *last), strict=True):
        assert_near(one, np.asarray(two), dtype, units, 16 * size)


class Cell:
    """One step of one sequence, as the operators' texts write it."""

    weights: list[Array]
    biases: Array
    peepholes: Array

    def __init__(
        self, op_type: str, names: Any, attributes: dict[str, Any], hidden: int
    ) -> None:
        self._op_type, self._attributes, self._hidden = op_type, attributes, hidden
        self._functions = [ACTIVATIONS[name] for name in names]

    def step(self, x: Array, states: list[Array]) -> list[Array]:
        return {"RNN": self._rnn, "GRU": self._gru, "LSTM": self._lstm}[self._op_type](
            x, states
        )

    def _apply(self, which: int, x: Array) -> Any:
        function, defaults = self._functions[which]
        clip = self._attributes.get("clip")
        if clip is not None:
            x = np.clip(x, -clip, clip)
        return function(x, *defaults)

    def _part(self, numbers: Array, gate: int) -> Array:
        return numbers[gate * self._hidden : (gate + 1) * self._hidden]

    def _sum(self, gate: int, x: Array, h: Array) -> Any:
        w, r = (self._part(m, gate) for m in self.weights)
        one, two = (self._part(b, gate) for b in self.biases)
        return w @ x + r @ h + one + two

    def _rnn(self, x: Array, states: list[Array]) -> list[Array]:
        return [self._apply(0, self._sum(0, x, states[0]))]

    def _gru(self, x: Array, states: list[Array]) -> list[Array]:
        (h,) = states
        update, reset = (self._apply(0, self._sum(gate, x, h)) for gate in (0, 1))
        w, r = (self._part(m, 2) for m in self.weights)
        one, two = (self._part(b, 2) for b in self.biases)
        if self._attributes.get("linear_before_reset"):
            candidate = w @ x + reset * (r @ h + two) + one
        else:
            candidate = w @ x + r @ (reset * h) + two + one
        return [(1 - update) * self._apply(1, candidate) + update * h]

    def _lstm(self, x: Array, states: list[Array]) -> list[Array]:
        h, c = states
        into, out, forget, cell = (self._sum(gate, x, h) for gate in range(4))
        i = self._apply(0, into + self.peepholes[0] * c)
        f = self._apply(0, forget + self.peepholes[2] * c)
        if self._attributes.get("input_forget"):
            f = 1 - i
        c = f * c + i * self._apply(1, cell)
        o = self._apply(0, out + self.peepholes[1] * c)
        return [o * self._apply(2, c), c]
