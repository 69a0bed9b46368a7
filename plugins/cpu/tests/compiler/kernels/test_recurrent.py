"""RNN, GRU and LSTM, against their equations in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from onnxplug_compiler.ir.recurrent import Activation, Cell, Layer
from onnxplug_compiler.ir.views import View
from onnxplug_cpu.compiler.kernels.recurrent import commands
from onnxplug_cpu.compiler.kernels.recurrent.commands import record_recurrent
from onnxplug_cpu.compiler.machine.isa import Isa

from ..interpreter import ISAS, Interpreter

Array = np.ndarray[Any, Any]

isas = pytest.mark.parametrize("isa", ISAS, ids=lambda isa: isa.name)

SIGMOID, TANH = Activation("sigmoid"), Activation("tanh")
CELLS = {
    "RNN": Cell("RNN", (TANH,)),
    "GRU": Cell("GRU", (SIGMOID, TANH)),
    "GRU that resets late": Cell("GRU", (SIGMOID, TANH), resets_late=True),
    "LSTM": Cell("LSTM", (SIGMOID, TANH, TANH)),
    "LSTM with peepholes": Cell("LSTM", (SIGMOID, TANH, TANH), peepholes=True),
    "LSTM that couples": Cell("LSTM", (SIGMOID, TANH, TANH), couples=True),
    "LSTM that clips": Cell("LSTM", (SIGMOID, TANH, TANH), clip=0.5, peepholes=True),
}
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "affine": lambda x, a, b: a * x + b,
    "elu": lambda x, a, b: np.where(x >= 0, x, a * np.expm1(np.minimum(x, 0))),
    "hardsigmoid": lambda x, a, b: np.clip(a * x + b, 0, 1),
    "leakyrelu": lambda x, a, b: np.where(x >= 0, x, a * x),
    "relu": lambda x, a, b: np.maximum(x, 0),
    "scaledtanh": lambda x, a, b: a * np.tanh(b * x),
    "sigmoid": lambda x, a, b: 1 / (1 + np.exp(-x)),
    "softplus": lambda x, a, b: np.log1p(np.exp(x)),
    "softsign": lambda x, a, b: x / (1 + np.abs(x)),
    "tanh": lambda x, a, b: np.tanh(x),
    "thresholdedrelu": lambda x, a, b: np.where(x >= a, x, 0),
}


class Given:
    """The arrays of a layer of some sizes."""

    def __init__(
        self, cell: Cell, time: int, batch: int, inputs: int, hidden: int, count: int
    ) -> None:
        rng = np.random.default_rng(time + batch)
        self.cell, self.hidden = cell, hidden
        rows = cell.gates * hidden

        def normal(*shape: int, scale: float = 1.0) -> Array:
            return (rng.standard_normal(shape) * scale).astype(np.float32)

        self.x = normal(time, batch, inputs)
        self.w = normal(count, rows, inputs, scale=0.3)
        self.r = normal(count, rows, hidden, scale=hidden**-0.5)
        self.bias = normal(count, 2 * rows)
        self.h0, self.c0 = normal(count, batch, hidden), normal(count, batch, hidden)
        self.peepholes = normal(count, 3 * hidden)
        self.lengths = rng.integers(0, time + 1, batch).astype(np.int32)

    def computed(
        self, direction: int, reverse: bool, *, lengths: bool, bare: bool
    ) -> tuple[Array, Array, Array]:
        """Y [time, batch, hidden] of a direction, and the last states."""
        time, batch, _ = self.x.shape
        w, r = (each[direction].astype(np.float64) for each in (self.w, self.r))
        bias = self.bias[direction].astype(np.float64) * (not bare)
        h = self.h0[direction].astype(np.float64) * (not bare)
        c = self.c0[direction].astype(np.float64) * (not bare)
        y = np.zeros((time, batch, self.hidden))
        ends = self.lengths if lengths else np.full(batch, time)
        for t in reversed(range(time)) if reverse else range(time):
            new_h, new_c = self._step(direction, self.x[t] @ w.T, r, bias, h, c)
            active = (ends > t)[:, None]
            y[t] = np.where(active, new_h, 0)
            h, c = np.where(active, new_h, h), np.where(active, new_c, c)
        return y, h, c

    def _step(
        self, direction: int, x: Array, r: Array, bias: Array, h: Array, c: Array
    ) -> tuple[Array, Array]:
        n, cell = self.hidden, self.cell
        wb, rb = np.split(bias, 2)
        functions = [
            (lambda v, each=each: _applied(cell, each, v)) for each in cell.activations
        ]
        gates = [slice(i * n, (i + 1) * n) for i in range(cell.gates)]
        x = x + wb
        if cell.kind == "RNN":
            return functions[0](x + h @ r.T + rb), c
        if cell.kind == "GRU":
            f, g = functions
            z, s = (f(x[:, each] + h @ r[each].T + rb[each]) for each in gates[:2])
            if cell.resets_late:
                late = s * (h @ r[gates[2]].T + rb[gates[2]])
            else:
                late = (s * h) @ r[gates[2]].T + rb[gates[2]]
            return (1 - z) * g(x[:, gates[2]] + late) + z * h, c
        f, g, last = functions
        sums = x + h @ r.T + rb
        p = np.split(self.peepholes[direction].astype(np.float64), 3)
        sees = cell.peepholes
        i = f(sums[:, gates[0]] + sees * p[0] * c)
        forget = f(sums[:, gates[2]] + sees * p[2] * c)
        forget = 1 - i if cell.couples else forget
        c = forget * c + i * g(sums[:, gates[3]])
        return f(sums[:, gates[1]] + sees * p[1] * c) * last(c), c


def _applied(cell: Cell, activation: Activation, x: Array) -> Array:
    if cell.clip is not None:
        x = np.clip(x, -cell.clip, cell.clip)
    return FUNCTIONS[activation.name](x, activation.alpha, activation.beta)


def check(
    isa: Isa,
    given: Given,
    reverse: tuple[bool, ...] = (False,),
    *,
    constant: bool = False,
    lengths: bool = False,
    bare: bool = False,
    batch_first: bool = False,
    workers: int = 2,
) -> Array:
    """Record and run the layer of *given*, and compare all that it gives; Y."""
    run = Interpreter(isa, workers)
    time, batch, _ = given.x.shape
    count, hidden, cell = len(reverse), given.hidden, given.cell

    def parameter(array: Array) -> View:
        return run.recorder.constant(array) if constant else run.input(array)

    if batch_first:
        x = run.input(np.swapaxes(given.x, 0, 1)).transpose((1, 0, 2))
        y = run.output(np.float32, (batch, time, count, hidden))
        y = y.transpose((1, 2, 0, 3))
    else:
        x, y = run.input(given.x), run.output(np.float32, (time, count, batch, hidden))
    last_h, last_c = (run.output(np.float32, (count, batch, hidden)) for _ in range(2))
    layer = Layer(
        x,
        parameter(given.w),
        parameter(given.r),
        None if bare else parameter(given.bias),
        run.input(given.lengths) if lengths else None,
        None if bare else run.input(given.h0),
        None if bare or cell.kind != "LSTM" else run.input(given.c0),
        parameter(given.peepholes) if cell.peepholes else None,
        y,
        last_h,
        last_c if cell.kind == "LSTM" else None,
        reverse,
    )
    record_recurrent(run.recorder, cell, layer, cell.kind)
    run.run()
    for direction, turned in enumerate(reverse):
        expected = given.computed(direction, turned, lengths=lengths, bare=bare)
        found = [run.read(y)[:, direction], run.read(last_h)[direction]]
        if cell.kind == "LSTM":
            found.append(run.read(last_c)[direction])
        for one, wanted in zip(found, expected, strict=False):
            np.testing.assert_allclose(one, wanted, rtol=0, atol=2e-6 * time + 2e-6)
    return run.read(y)


@isas
@pytest.mark.parametrize("cell", CELLS.values(), ids=CELLS)
def test_a_layer(isa: Isa, cell: Cell) -> None:
    both = (False, True)
    check(isa, Given(cell, 3, 1, 5, 16, 1))
    check(isa, Given(cell, 4, 3, 7, 21, 1), (True,), lengths=True)
    check(isa, Given(cell, 3, 8, 6, 40, 2), both, constant=True, batch_first=True)
    check(isa, Given(cell, 5, 29, 4, 9, 2), both, lengths=True, constant=True)
    check(isa, Given(cell, 2, 2, 3, 33, 1), bare=True, batch_first=True)


@isas
@pytest.mark.parametrize("cell", CELLS.values(), ids=CELLS)
def test_products_of_inputs_ahead_of_steps(
    isa: Isa, cell: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = (False, True)
    # whole blocks of steps and parts of one; more features than elements, and fewer
    check(isa, Given(cell, 16, 1, 50, 16, 1), constant=True, bare=True)
    check(isa, Given(cell, 16, 1, 0, 16, 1), constant=True)
    check(isa, Given(cell, 70, 1, 18, 20, 1), (True,), constant=True)
    given = Given(cell, 21, 1, 3, 41, 2)
    at_once = check(isa, given, both, constant=True, lengths=True)
    monkeypatch.setattr(commands, "fewest_chunks", lambda _: 3)
    several = check(isa, given, both, constant=True, lengths=True)
    monkeypatch.setattr(commands, "SHORTEST_SHARE", 1e-9)
    shared = check(isa, given, both, constant=True, lengths=True, workers=6)
    assert at_once.tobytes() == several.tobytes() == shared.tobytes()


@isas
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(isa: Isa, name: str) -> None:
    takes = {
        "affine": (0.7, 0.1),
        "hardsigmoid": (0.3, 0.4),
        "scaledtanh": (0.8, 1.3),
        "elu": (0.6, None),
        "leakyrelu": (0.2, None),
        "thresholdedrelu": (0.1, None),
    }
    activation = Activation(name, *takes.get(name, (None, None)))
    given = Given(Cell("RNN", (activation,)), 2, 2, 5, 19, 1)
    given.r *= np.float32(0.3)  # so that what has no bounds does not grow
    check(isa, given)


@isas
@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
def test_steps_in_several_commands(
    isa: Isa, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "fewest_chunks", lambda _: 3)
    given = Given(CELLS[kind], 8, 3, 4, 18, 2)
    several = check(isa, given, (False, True), lengths=True)
    monkeypatch.setattr(commands, "fewest_chunks", lambda _: 1)
    at_once = check(isa, given, (False, True), lengths=True)
    assert several.tobytes() == at_once.tobytes()


@isas
@pytest.mark.parametrize("cell", CELLS.values(), ids=CELLS)
def test_steps_that_threads_share(
    isa: Isa, cell: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "SHORTEST_SHARE", 1e-9)
    # several pairs of panels, and one
    for hidden, pieces in ((35, 1), (35, 3), (13, 1)):
        monkeypatch.setattr(commands, "fewest_chunks", lambda _, n=pieces: n)
        given = Given(cell, 7, 2, 4, hidden, 1)
        alone = check(isa, given, (True,), lengths=True, workers=1)
        shared = check(isa, given, (True,), lengths=True, workers=3)
        assert shared.tobytes() == alone.tobytes()


@isas
def test_equal_sequences_give_equal_bits(isa: Isa) -> None:
    for batch in (2, 5, 8, 13, 29):
        given = Given(CELLS["LSTM"], 3, batch, 6, 35, 1)
        for each, axis in ((given.x, 1), (given.h0, 1), (given.c0, 1)):
            each[:] = np.take(each, [0], axis)
        y = check(isa, given, workers=3)
        assert (y == y[:, :, :1]).all()


@isas
@pytest.mark.parametrize("time", [0, 1])
def test_no_steps_and_one(isa: Isa, time: int) -> None:
    for cell in CELLS.values():
        check(isa, Given(cell, time, 2, 3, 20, 2), (False, True))
        check(isa, Given(cell, time, 1, 3, 20, 1), lengths=True)
        check(isa, Given(cell, time, 1, 5, 20, 2), (False, True), constant=True)


@pytest.mark.parametrize("length", [-1, 4, 2**31 - 1])
def test_lengths_that_there_are_not(length: int) -> None:
    given = Given(CELLS["GRU"], 3, 2, 3, 20, 1)
    given.lengths[1] = length
    with pytest.raises(
        ValueError, match=f"sequence_lens has {length}; expected 0 to 3"
    ):
        check(ISAS[0], given, lengths=True)


def test_nothing_goes_through_as_a_number() -> None:
    given = Given(CELLS["LSTM"], 3, 2, 3, 20, 1)
    given.x[1, 0, 0] = np.nan
    y = check_finite(given)
    assert np.isnan(y[1:, 0, 0]).all()
    assert np.isfinite(y[0]).all()
    assert np.isfinite(y[:, 0, 1]).all()


def check_finite(given: Given) -> Array:
    with np.errstate(invalid="ignore"):
        return check(ISAS[0], given)
