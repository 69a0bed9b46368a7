"""Activations."""

from __future__ import annotations

from typing import Any

from onnxplug import ep
from onnxplug_torch.dtypes import BOOL, FLOATS, NUMBERS, SIGNED
from onnxplug_torch.operators.computing import in_float32
from onnxplug_torch.operators.registry import operator


@operator("Relu", since=6, types=FLOATS | SIGNED)
def relu(torch: Any, x: Any) -> Any:
    return torch.relu(x)


@operator("Sigmoid", since=6, types=FLOATS)
def sigmoid(torch: Any, x: Any) -> Any:
    return torch.sigmoid(x)


@operator("LeakyRelu", since=6, types=FLOATS)
def leaky_relu(torch: Any, x: Any, *, alpha: float = 0.01) -> Any:
    return torch.nn.functional.leaky_relu(x, alpha)


@operator("Elu", since=6, types=FLOATS)
def elu(torch: Any, x: Any, *, alpha: float = 1.0) -> Any:
    return torch.nn.functional.elu(x, alpha)


@operator("Celu", since=12, types=FLOATS)
def celu(torch: Any, x: Any, *, alpha: float = 1.0) -> Any:
    return torch.nn.functional.celu(x, alpha)


@operator("Selu", since=6, types=FLOATS)
def selu(
    torch: Any,
    x: Any,
    *,
    alpha: float = 1.6732631921768188,
    gamma: float = 1.0507010221481323,
) -> Any:
    return in_float32(
        torch,
        lambda x: gamma * torch.where(x > 0, x, alpha * torch.expm1(x)),
        x,
    )


@operator("Gelu", since=20, types=FLOATS)
def gelu(torch: Any, x: Any, *, approximate: str = "none") -> Any:
    return torch.nn.functional.gelu(x, approximate=approximate)


@operator("HardSigmoid", since=6, types=FLOATS)
def hard_sigmoid(torch: Any, x: Any, *, alpha: float = 0.2, beta: float = 0.5) -> Any:
    return in_float32(torch, lambda x: torch.clamp(alpha * x + beta, 0, 1), x)


@operator("HardSwish", since=14, types=FLOATS)
def hard_swish(torch: Any, x: Any) -> Any:
    return torch.nn.functional.hardswish(x)


@operator("Mish", since=18, types=FLOATS)
def mish(torch: Any, x: Any) -> Any:
    return torch.nn.functional.mish(x)


@operator("PRelu", since=9, types=NUMBERS)
def prelu(torch: Any, x: Any, slope: Any) -> Any:
    if not x.dtype.is_signed:
        return x
    return torch.where(x < 0, x * slope, x)


@operator("Shrink", since=9, types=FLOATS | SIGNED)
def shrink(torch: Any, x: Any, *, bias: float = 0.0, lambd: float = 0.5) -> Any:
    """In integers the sum with a *bias* that is not whole is truncated toward zero."""

    def formula(x: Any) -> Any:
        return torch.where(x < -lambd, x + bias, torch.where(x > lambd, x - bias, 0))

    if x.dtype.is_floating_point:
        return in_float32(torch, formula, x).to(x.dtype)
    # torch takes integers beside a float as float32
    exact = x.to(torch.float64)
    wide, offset = (x, int(bias)) if bias.is_integer() else (exact, bias)
    lowered = torch.where(exact > lambd, wide - offset, 0)
    return torch.where(exact < -lambd, wide + offset, lowered).to(x.dtype)


@operator("Softplus", since=1, types=FLOATS)
def softplus(torch: Any, x: Any) -> Any:
    return in_float32(
        torch, lambda x: torch.clamp(x, min=0) + torch.log1p(torch.exp(-abs(x))), x
    )


@operator("Softsign", since=1, types=FLOATS)
def softsign(torch: Any, x: Any) -> Any:
    return in_float32(torch, lambda x: x / (1 + abs(x)), x)


@operator("Swish", since=24, types=FLOATS)
def swish(torch: Any, x: Any, *, alpha: float = 1.0) -> Any:
    if alpha == 1:
        return torch.nn.functional.silu(x)
    return in_float32(torch, lambda x: x * torch.sigmoid(alpha * x), x)


@operator("ThresholdedRelu", since=10, types=FLOATS)
def thresholded_relu(torch: Any, x: Any, *, alpha: float = 1.0) -> Any:
    return torch.where(x > alpha, x, 0)


def _flattened(function: str) -> Any:
    """Of old versions, over all axes from the given one on."""

    def over_rest(torch: Any, x: Any, *, axis: int = 1) -> Any:
        rows = x.flatten(axis % max(x.ndim, 1)) if x.ndim else x
        return getattr(torch, function)(rows, -1).reshape(x.shape)

    return over_rest


for _op, _name in (("Softmax", "softmax"), ("LogSoftmax", "log_softmax")):
    operator(_op, since=1, until=12, types=FLOATS)(_flattened(_name))


@operator("Softmax", since=13, types=FLOATS)
def softmax(torch: Any, x: Any, *, axis: int = -1) -> Any:
    return torch.softmax(x, axis)


@operator("LogSoftmax", since=13, types=FLOATS)
def log_softmax(torch: Any, x: Any, *, axis: int = -1) -> Any:
    return torch.log_softmax(x, axis)


@operator("Hardmax", since=13, types=FLOATS)
def hardmax(torch: Any, x: Any, *, axis: int = -1) -> Any:
    if not x.numel():
        return x
    best = torch.argmax(x, axis, keepdim=True)
    return torch.zeros_like(x).scatter(axis, best, 1)


def _does_not_train(graph: ep.Graph, node: ep.Node) -> ep.Reason | None:
    if len(node.inputs) < 3 or node.inputs[2] is None:
        return None
    training = graph.constant(node.inputs[2])
    if training is not None and not training.any():
        return None
    return ep.Reason(ep.RefusalCode.ATTRIBUTE, "training_mode; draws no numbers")


@operator("Dropout", since=7, until=11, types=FLOATS)
def dropout_by_attribute(torch: Any, x: Any, *, ratio: float = 0.5) -> Any:
    return x, torch.ones_like(x, dtype=torch.bool)


@operator(
    "Dropout",
    since=12,
    types=FLOATS,
    other={2: BOOL},
    check=_does_not_train,
)
def dropout(
    torch: Any,
    x: Any,
    ratio: Any | None = None,
    training_mode: Any | None = None,
    *,
    seed: int | None = None,
    output_count: int = 1,
) -> Any:
    if output_count == 1:
        return x
    return x, torch.ones_like(x, dtype=torch.bool)
