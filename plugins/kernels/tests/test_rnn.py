"""Recurrent networks against their equations step by step in float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from onnxplug_kernels import find_kernel

TIME, BATCH, INPUT, HIDDEN = 5, 3, 4, 2
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
COUNTS = {"RNN": 1, "GRU": 2, "LSTM": 3}
DEFAULTS = {
    "RNN": ("tanh",),
    "GRU": ("sigmoid", "tanh"),
    "LSTM": ("sigmoid", "tanh", "tanh"),
}
DIRECTIONS = ("forward", "reverse", "bidirectional")

FUNCTIONS: dict[str, Callable[..., float]] = {
    "affine": lambda x, a=1.0, b=0.0: a * x + b,
    "elu": lambda x, a=1.0, b=0.0: x if x >= 0 else a * (math.exp(x) - 1),
    "hardsigmoid": lambda x, a=0.2, b=0.5: min(max(a * x + b, 0), 1),
    "leakyrelu": lambda x, a=0.01, b=0.0: x if x >= 0 else a * x,
    "relu": lambda x, a=0.0, b=0.0: max(0, x),
    "scaledtanh": lambda x, a=1.0, b=1.0: a * math.tanh(b * x),
    "sigmoid": lambda x, a=0.0, b=0.0: 1 / (1 + math.exp(-x)),
    "softplus": lambda x, a=0.0, b=0.0: math.log(1 + math.exp(x)),
    "softsign": lambda x, a=0.0, b=0.0: x / (1 + abs(x)),
    "tanh": lambda x, a=0.0, b=0.0: math.tanh(x),
    "thresholdedrelu": lambda x, a=1.0, b=0.0: x if x >= a else 0,
}


def run(op_type: str, *inputs: Any, version: int = 22, **attributes: Any) -> Any:
    kernel = find_kernel("", op_type, version)
    assert kernel is not None
    count = 3 if op_type == "LSTM" else 2
    return kernel.bind(np, attributes, output_count=count)(*inputs)


def inputs_of(op_type: str, directions: int, seed: int = 0) -> list[Any]:
    rng = np.random.default_rng(seed)
    rows = GATES[op_type] * HIDDEN
    shapes = [
        (TIME, BATCH, INPUT),
        (directions, rows, INPUT),
        (directions, rows, HIDDEN),
        (directions, 2 * rows),
    ]
    return [rng.normal(size=shape).astype(np.float32) for shape in shapes]


def state_of(directions: int, seed: int = 9) -> Any:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(directions, BATCH, HIDDEN)).astype(np.float32)


def vectorized(function: Callable[[float], float], clip: float | None) -> Any:
    def apply(x: Any) -> Any:
        bounded = x if clip is None else np.clip(x, -clip, clip)
        return np.array([function(float(e)) for e in bounded])

    return apply


def by_equations(
    op_type: str,
    inputs: list[Any],
    lengths: Any | None = None,
    states: tuple[Any | None, ...] = (None, None),
    peepholes: Any | None = None,
    *,
    direction: str = "forward",
    functions: list[Callable[[float], float]] | None = None,
    clip: float | None = None,
    linear_before_reset: int = 0,
    input_forget: int = 0,
) -> list[Any]:
    x, w, r, b = (a.astype(float) for a in inputs)
    ways = ["forward", "reverse"] if direction == "bidirectional" else [direction]
    y = np.zeros((TIME, len(ways), BATCH, HIDDEN))
    last = np.zeros((2, len(ways), BATCH, HIDDEN))
    if functions is None:
        functions = [FUNCTIONS[name] for name in DEFAULTS[op_type]] * len(ways)
    acts = [vectorized(function, clip) for function in functions]
    for d, n in np.ndindex(len(ways), BATCH):
        f, *rest = acts[d * COUNTS[op_type] : (d + 1) * COUNTS[op_type]]
        h, c = (
            np.zeros(HIDDEN) if s is None else s[d, n].astype(float) for s in states
        )
        steps = range(TIME if lengths is None else int(lengths[n]))
        wb, rb = np.split(b[d], 2)
        for t in steps if ways[d] == "forward" else reversed(steps):
            xs = np.split(w[d] @ x[t, n] + wb, GATES[op_type])
            rs = np.split(r[d], GATES[op_type])
            bs = np.split(rb, GATES[op_type])
            if op_type == "RNN":
                h = f(xs[0] + rs[0] @ h + bs[0])
            elif op_type == "GRU":
                z, reset = (f(xs[i] + rs[i] @ h + bs[i]) for i in range(2))
                if linear_before_reset:
                    new = rest[0](xs[2] + reset * (rs[2] @ h + bs[2]))
                else:
                    new = rest[0](xs[2] + rs[2] @ (reset * h) + bs[2])
                h = (1 - z) * new + z * h
            else:
                sums = [xs[i] + rs[i] @ h + bs[i] for i in range(4)]
                p = np.zeros((3, HIDDEN))
                if peepholes is not None:
                    p = peepholes[d].astype(float).reshape(3, HIDDEN)
                i = f(sums[0] + p[0] * c)
                forget = 1 - i if input_forget else f(sums[2] + p[2] * c)
                c = forget * c + i * rest[0](sums[3])
                h = f(sums[1] + p[1] * c) * rest[1](c)
            y[t, d, n] = h
        last[0, d, n], last[1, d, n] = h, c
    return [y, last[0], *([last[1]] if op_type == "LSTM" else [])]


def close(found: Any, expected: Any, tolerance: float = 1e-5) -> None:
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a.astype(float), b, tolerance, tolerance)


@pytest.mark.parametrize("op_type", GATES)
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("version", [1, 7, 14, 22])
def test_defaults(op_type: str, direction: str, version: int) -> None:
    inputs = inputs_of(op_type, 1 + (direction == "bidirectional"))
    found = run(op_type, *inputs, direction=direction, hidden_size=2, version=version)
    assert all(a.dtype == np.float32 for a in found)
    close(found, by_equations(op_type, inputs, direction=direction))
    without_bias = run(op_type, *inputs[:3], direction=direction, version=version)
    inputs[3] = np.zeros_like(inputs[3])
    close(without_bias, by_equations(op_type, inputs, direction=direction))


@pytest.mark.parametrize("op_type", GATES)
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("layout", [0, 1])
def test_lengths_states_and_layout(op_type: str, direction: str, layout: int) -> None:
    directions = 1 + (direction == "bidirectional")
    inputs = inputs_of(op_type, directions)
    lengths = np.array([5, 2, 0], np.int32)
    states = state_of(directions), state_of(directions, 8)
    expected = by_equations(op_type, inputs, lengths, states, direction=direction)
    x = inputs[0]
    given: list[Any] = list(states[: 2 if op_type == "LSTM" else 1])
    if layout:
        x, given = x.swapaxes(0, 1), [s.swapaxes(0, 1) for s in given]
        expected = [expected[0].transpose(2, 0, 1, 3)] + [
            s.swapaxes(0, 1) for s in expected[1:]
        ]
    found = run(
        op_type, x, *inputs[1:], lengths, *given, direction=direction, layout=layout
    )
    close(found, expected)


@pytest.mark.parametrize("linear_before_reset", [0, 1])
@pytest.mark.parametrize("clip", [None, 0.4])
def test_gru_resets_before_or_after(
    linear_before_reset: int, clip: float | None
) -> None:
    inputs, state = inputs_of("GRU", 2), state_of(2)
    options: dict[str, Any] = {
        "direction": "bidirectional",
        "linear_before_reset": linear_before_reset,
        **({} if clip is None else {"clip": clip}),
    }
    found = run("GRU", *inputs, None, state, **options)
    close(found, by_equations("GRU", inputs, None, (state, None), **options))


@pytest.mark.parametrize("input_forget", [0, 1])
@pytest.mark.parametrize("clip", [None, 0.4])
def test_lstm_with_peepholes(input_forget: int, clip: float | None) -> None:
    inputs, states = inputs_of("LSTM", 2), (state_of(2), state_of(2, 8))
    peepholes = np.random.default_rng(3).normal(size=(2, 6)).astype(np.float32)
    options: dict[str, Any] = {
        "direction": "bidirectional",
        "input_forget": input_forget,
        **({} if clip is None else {"clip": clip}),
    }
    found = run("LSTM", *inputs, None, *states, peepholes, **options)
    expected = by_equations("LSTM", inputs, None, states, peepholes, **options)
    close(found, expected)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_activations_have_the_defaults_of_their_operators(name: str) -> None:
    inputs = inputs_of("RNN", 1)
    # in any case of letters
    found = run("RNN", *inputs, activations=(name.upper(),))
    close(found, by_equations("RNN", inputs, functions=[FUNCTIONS[name]]))


def test_parameters_go_in_order_to_the_activations_that_take_one() -> None:
    inputs = inputs_of("LSTM", 1)
    found = run(
        "LSTM",
        *inputs,
        activations=("HardSigmoid", "Tanh", "LeakyRelu"),
        activation_alpha=(0.3, 0.2),
        activation_beta=(0.6,),
    )
    functions: list[Callable[[float], float]] = [
        lambda x: FUNCTIONS["hardsigmoid"](x, 0.3, 0.6),
        math.tanh,
        lambda x: FUNCTIONS["leakyrelu"](x, 0.2),
    ]
    close(found, by_equations("LSTM", inputs, functions=functions))


@pytest.mark.parametrize("op_type", GATES)
@pytest.mark.parametrize("dtype", [np.float16, np.float64, ml_dtypes.bfloat16])
def test_other_types(op_type: str, dtype: Any) -> None:
    inputs = [a.astype(dtype) for a in inputs_of(op_type, 1)]
    found = run(op_type, *inputs)
    assert all(a.dtype == dtype for a in found)
    tolerance = float(ml_dtypes.finfo(dtype).eps)  # type: ignore[no-untyped-call]
    close(found, by_equations(op_type, inputs), max(tolerance, 1e-12))


def test_no_batch() -> None:
    x, w, r, b = inputs_of("LSTM", 1)
    y, y_h, y_c = run("LSTM", x[:, :0], w, r, b)
    assert y.shape == (TIME, 1, 0, HIDDEN)
    assert y_h.shape == y_c.shape == (1, 0, HIDDEN)


def test_errors_name_what_is_known() -> None:
    inputs = inputs_of("RNN", 1)
    with pytest.raises(ValueError, match="activation 'Gelu' is unknown"):
        run("RNN", *inputs, activations=("Gelu",))
    with pytest.raises(ValueError, match="'bidirectional' with weights for 1"):
        run("RNN", *inputs, direction="bidirectional")
