"""Activations."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from onnxplug_directml.lowering.builder import Builder, Value
from onnxplug_directml.lowering.call import FLOATS, MICROSOFT, Call, lowers
from onnxplug_directml.lowering.operators.arithmetic import clipped, power, scaled
from onnxplug_directml.lowering.support import level_named

_SELU_ALPHA: Final = 1.67326319217681884765625
_SELU_GAMMA: Final = 1.05070102214813232421875
_GELU_CUBIC: Final = 0.044715
"""Of Gelu's approximation by tanh: x + 0.044715 x³ is what is added up."""

_SIMPLE: Final[Mapping[str, tuple[str, Mapping[str, tuple[str, float]]]]] = {
    "Relu": ("RELU", {}),
    "Sigmoid": ("SIGMOID", {}),
    "Tanh": ("TANH", {}),
    "Softsign": ("SOFTSIGN", {}),
    "Elu": ("ELU", {"Alpha": ("alpha", 1.0)}),
    "Celu": ("CELU", {"Alpha": ("alpha", 1.0)}),
    "LeakyRelu": ("LEAKY_RELU", {"Alpha": ("alpha", 0.01)}),
    "ThresholdedRelu": ("THRESHOLDED_RELU", {"Alpha": ("alpha", 1.0)}),
    "HardSigmoid": ("HARD_SIGMOID", {"Alpha": ("alpha", 0.2), "Beta": ("beta", 0.5)}),
    "Selu": (
        "SCALED_ELU",
        {"Alpha": ("alpha", _SELU_ALPHA), "Gamma": ("gamma", _SELU_GAMMA)},
    ),
    "Shrink": ("SHRINK", {"Bias": ("bias", 0.0), "Threshold": ("lambd", 0.5)}),
}
"""DirectML's operator, and by its fields ONNX's attributes and their defaults."""


@lowers(*_SIMPLE)
def _simple(call: Call) -> Value:
    operator, fields = _SIMPLE[call.op_type]
    if call.op_type == "Relu" and call.dtype() not in FLOATS:
        return clipped(call.build, call.operand(0), 0, None)
    if call.op_type == "Selu" and call.since < 6:
        fields = {"Alpha": ("alpha", 1.6732), "Gamma": ("gamma", 1.0507)}
    parameters: dict[str, Any] = {
        field: call.attribute(name, default)
        for field, (name, default) in fields.items()
    }
    return activated(call.build, operator, call.operand(0), **parameters)


def activated(build: Builder, operator: str, x: Value, **fields: Any) -> Value:
    """*x* after DirectML's activation of that name."""
    return build.unary(f"ACTIVATION_{operator}", x, **fields)


@lowers("Softplus")
def _softplus(call: Call) -> Value:
    return activated(call.build, "SOFTPLUS", call.operand(0), Steepness=1.0)


@lowers("PRelu")
def _p_relu(call: Call) -> Value:
    build, x, slope = call.build, call.operand(0), call.operand(1)
    if call.since < 7 and slope.rank == 1 and slope.size > 1:  # one for each channel
        slope = build.reshape(slope, slope.shape + (1,) * (x.rank - 2))
    slope = build.broadcast_to(slope, x.shape)
    return build.unary("ACTIVATION_PARAMETERIZED_RELU", x, SlopeTensor=slope)


@lowers("HardSwish")
def _hard_swish(call: Call) -> Value:
    build, x = call.build, call.operand(0)
    gate = activated(build, "HARD_SIGMOID", x, Alpha=1 / 6, Beta=0.5)
    return build.binary("ELEMENT_WISE_MULTIPLY", x, gate)


@lowers("Mish")
def _mish(call: Call) -> Value:
    build, x = call.build, call.operand(0)
    gate = activated(build, "TANH", activated(build, "SOFTPLUS", x, Steepness=1.0))
    return build.binary("ELEMENT_WISE_MULTIPLY", x, gate)


@lowers("Swish")
def _swish(call: Call) -> Value:
    return swish(call.build, call.operand(0), call.attribute("alpha", 1.0))


@lowers("QuickGelu", domain=MICROSOFT)
def _quick_gelu(call: Call) -> Value:
    return swish(call.build, call.operand(0), call.attribute("alpha", 1.702))


def swish(build: Builder, x: Value, alpha: float) -> Value:
    """x · sigmoid(alpha · x)."""
    gate = activated(build, "SIGMOID", scaled(build, x, alpha))
    return build.binary("ELEMENT_WISE_MULTIPLY", x, gate)


@lowers("Gelu")
def _gelu(call: Call) -> Value:
    approximation = call.attribute("approximate", "none")
    if approximation not in ("none", "tanh"):
        raise call.refuse_attribute("approximate", "none and tanh")
    make = gelu if approximation == "none" else fast_gelu
    return make(call.build, call.operand(0))


@lowers("Gelu", "BiasGelu", domain=MICROSOFT)
def _biased_gelu(call: Call) -> Value:
    return gelu(call.build, _with_bias(call))


@lowers("FastGelu", domain=MICROSOFT)
def _fast_gelu(call: Call) -> Value:
    return fast_gelu(call.build, _with_bias(call))


def _with_bias(call: Call) -> Value:
    x, bias = call.operand(0), call.optional(1)
    return x if bias is None else call.build.binary("ELEMENT_WISE_ADD", x, bias)


def gelu(build: Builder, x: Value) -> Value:
    """x · Φ(x), where Φ is the distribution function of the normal distribution."""
    if build.target.level >= level_named("5.1"):
        return activated(build, "GELU", x)
    erf = build.unary("ELEMENT_WISE_ERF", x, ScaleBias=(1 / math.sqrt(2), 0.0))
    half = build.unary("ELEMENT_WISE_IDENTITY", erf, ScaleBias=(0.5, 0.5))
    return build.binary("ELEMENT_WISE_MULTIPLY", x, half)


def fast_gelu(build: Builder, x: Value) -> Value:
    """Gelu as tanh approximates it."""
    inner = scaled(build, power(build, x, 3.0), _GELU_CUBIC)
    total = build.binary("ELEMENT_WISE_ADD", x, inner)
    tanh = activated(build, "TANH", scaled(build, total, math.sqrt(2 / math.pi)))
    half = build.unary("ELEMENT_WISE_IDENTITY", tanh, ScaleBias=(0.5, 0.5))
    return build.binary("ELEMENT_WISE_MULTIPLY", x, half)


_ROWS: Final = {
    "Softmax": "SOFTMAX",
    "LogSoftmax": "LOG_SOFTMAX",
    "Hardmax": "HARDMAX",
}


@lowers(*_ROWS)
def _rows(call: Call) -> Value:
    """Along one axis; before version 13 along all from that one on."""
    x = call.operand(0)
    axis = call.axis(x.rank, -1 if call.since >= 13 else 1)
    along = range(axis, axis + 1 if call.since >= 13 else x.rank)
    return in_rows(call.build, f"ACTIVATION_{_ROWS[call.op_type]}", x, along)


def in_rows(build: Builder, operator: str, x: Value, along: range) -> Value:
    """An operator on the rows of a matrix, where the dimensions *along* are a row."""
    order = [axis for axis in range(x.rank) if axis not in along]
    order += along
    turned = build.packed(build.transpose(x, order))
    width = math.prod(x.shape[axis] for axis in along)
    rows = build.unary(operator, build.reshape(turned, (x.size // width, width)))
    back = [order.index(axis) for axis in range(x.rank)]
    return build.transpose(build.reshape(rows, turned.shape), back)
