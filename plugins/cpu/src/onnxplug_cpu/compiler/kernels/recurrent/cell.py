"""What a step of a recurrent layer computes of the sums of its gates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from onnxplug_compiler.ir.recurrent import GRU, LSTM, RNN, Activation, Cell
from onnxplug_cpu.compiler.codegen import math
from onnxplug_cpu.compiler.codegen.emit import Function, Value
from onnxplug_cpu.compiler.codegen.math.exponential import (
    exp_of_nonpositive,
    expm1_of_nonpositive,
)
from onnxplug_cpu.compiler.codegen.math.primitives import at_least, at_most
from onnxplug_cpu.compiler.machine.isa import Isa


def phases(cell: Cell) -> tuple[tuple[int, ...], ...]:
    """The gates whose sums are computed together, over all of a state, before those
    that depend on their results."""
    if cell.kind == GRU and not cell.resets_late:
        return (0, 1), (2,)
    return (tuple(range(cell.gates)),)


def slots(cell: Cell) -> int:
    """Vectors of the hidden size that a sequence has from step to step, and within one:
    the state before and after it; an LSTM's cell; the update gate and the state that
    was reset of a GRU."""
    return {RNN: 2, GRU: 2 if cell.resets_late else 4, LSTM: 3}[cell.kind]


Emitter = Callable[[Function, Isa, Value, Activation], Value]


def apply(f: Function, isa: Isa, cell: Cell, number: int, x: Value) -> Value:
    """Activation *number* of a cell, of what its clip leaves of *x*."""
    if cell.clip is not None:
        x = at_most(f, at_least(f, x, -cell.clip), cell.clip)
    activation = cell.activations[number]
    return FUNCTIONS[activation.name](f, isa, x, activation)


def _affine(f: Function, isa: Isa, x: Value, a: Activation) -> Value:
    return x * _alpha(a) + _beta(a)


def _elu(f: Function, isa: Isa, x: Value, a: Activation) -> Value:
    below = expm1_of_nonpositive(f, isa, at_most(f, x, 0)) * _alpha(a)
    return f.select(x >= 0, x, below)


def _hard_sigmoid(f: Function, isa: Isa, x: Value, a: Activation) -> Value:
    return at_least(f, at_most(f, _affine(f, isa, x, a), 1), 0)


def _leaky_relu(f: Function, isa: Isa, x: Value, a: Activation) -> Value:
    return f.select(x >= 0, x, x * _alpha(a))


def _scaled_tanh(f: Function, isa: Isa, x: Value, a: Activation) -> Value:
    return math.tanh(f, isa, x * _beta(a)) * _alpha(a)


def _softplus(f: Function, isa: Isa, x: Value, a: Activation) -> Value:
    exponential = exp_of_nonpositive(f, isa, -f.unary("fabs", x))
    return at_least(f, x, 0) + math.log1p_of_fraction(f, isa, exponential)


def _thresholded_relu(f: Function, isa: Isa, x: Value, a: Activation) -> Value:
    return f.select(x >= _alpha(a), x, 0)


def _alpha(activation: Activation) -> float:
    assert activation.alpha is not None
    return activation.alpha


def _beta(activation: Activation) -> float:
    assert activation.beta is not None
    return activation.beta


FUNCTIONS: Final[dict[str, Emitter]] = {
    "affine": _affine,
    "elu": _elu,
    "hardsigmoid": _hard_sigmoid,
    "leakyrelu": _leaky_relu,
    "relu": lambda f, isa, x, a: at_least(f, x, 0),
    "scaledtanh": _scaled_tanh,
    "sigmoid": lambda f, isa, x, a: math.sigmoid(f, isa, x),
    "softplus": _softplus,
    "softsign": lambda f, isa, x, a: x / (f.unary("fabs", x) + 1),
    "tanh": lambda f, isa, x, a: math.tanh(f, isa, x),
    "thresholdedrelu": _thresholded_relu,
}
"""The functions of the operators, by their names in lower case."""
