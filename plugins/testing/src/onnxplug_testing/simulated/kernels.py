"""The simulated device's arithmetic: numpy functions by operator.

Every operator here gives outputs whose shapes follow from the shapes of its inputs, so
that the device can make room for them before the inputs are there.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import numpy as np

from onnxplug import ep

Array: TypeAlias = np.ndarray[Any, Any]
Kernel: TypeAlias = Callable[..., Any]


def find_kernel(graph: ep.Graph, node: ep.Node) -> Kernel | ep.Reason:
    """The function that computes *node*, or why there is none."""
    kernel = None if node.domain else KERNELS.get(node.op_type)
    if kernel is None:
        return ep.Reason(ep.RefusalCode.OP, f"no function for {node.op_type}")
    oldest = _OLDEST.get(node.op_type, 1)
    if node.since_version < oldest:
        return ep.Reason(
            ep.RefusalCode.OPSET,
            f"{node.op_type}-{node.since_version}; {oldest} or newer is needed",
        )
    if node.op_type == "Split" and (len(node.inputs) > 1 or "split" in node.attributes):
        return ep.Reason(ep.RefusalCode.ATTRIBUTE, "split sizes; only equal parts")
    if node.op_type in _WITH_NODE:
        return functools.partial(kernel, node)
    return kernel


def _divide(a: Array, b: Array) -> Any:
    if a.dtype.kind == "f":
        return np.divide(a, b)
    # ONNX rounds integer quotients towards zero, numpy towards minus infinity
    quotient = np.floor_divide(a, b)
    inexact = np.remainder(a, b) != 0
    return quotient + (inexact & ((a < 0) != (b < 0)))


def _clip(x: Array, low: Array | None = None, high: Array | None = None) -> Any:
    raised = x if low is None else np.maximum(x, low)
    return raised if high is None else np.minimum(raised, high)


def _cast(node: ep.Node, x: Array) -> Array:
    return x.astype(ep.DataType.from_onnx(node.attributes["to"]).numpy)


def _concat(node: ep.Node, *parts: Array) -> Array:
    return np.concatenate(parts, axis=node.attributes["axis"])


def _softmax(node: ep.Node, x: Array) -> Any:
    axis = node.attributes.get("axis", -1)
    if not x.size:  # there is no maximum
        return x.copy()
    powers = np.exp(x - x.max(axis=axis, keepdims=True))
    return powers / powers.sum(axis=axis, keepdims=True)


def _split(node: ep.Node, x: Array) -> tuple[Array, ...]:
    axis = node.attributes.get("axis", 0)
    part = -(-x.shape[axis] // len(node.outputs))
    ends = [part * index for index in range(1, len(node.outputs))]
    return tuple(np.split(x, ends, axis=axis))


def _transpose(node: ep.Node, x: Array) -> Array:
    return np.transpose(x, node.attributes.get("perm"))


def _variadic(function: Callable[[Any, Any], Any]) -> Kernel:
    return lambda *arrays: functools.reduce(function, arrays)


_WITH_NODE: Final[Mapping[str, Kernel]] = {
    "Cast": _cast,
    "Concat": _concat,
    "Softmax": _softmax,
    "Split": _split,
    "Transpose": _transpose,
}
"""Functions that take the node first, for its attributes."""

KERNELS: Final[Mapping[str, Kernel]] = {
    "Abs": np.abs,
    "Add": np.add,
    "And": np.logical_and,
    "Ceil": np.ceil,
    "Clip": _clip,
    "Cos": np.cos,
    "Div": _divide,
    "Equal": np.equal,
    "Exp": np.exp,
    "Floor": np.floor,
    "Greater": np.greater,
    "Identity": lambda x: x,
    "Less": np.less,
    "Log": np.log,
    "MatMul": np.matmul,
    "Max": _variadic(np.maximum),
    "Min": _variadic(np.minimum),
    "Mul": np.multiply,
    "Neg": np.negative,
    "Not": np.logical_not,
    "Or": np.logical_or,
    "Pow": lambda x, y: np.power(x, y).astype(x.dtype),
    "Reciprocal": np.reciprocal,
    "Relu": lambda x: np.maximum(x, 0),
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "Sin": np.sin,
    "Sqrt": np.sqrt,
    "Sub": np.subtract,
    "Sum": _variadic(np.add),
    "Tanh": np.tanh,
    "Where": np.where,
    **_WITH_NODE,
}

_OLDEST: Final = {
    **dict.fromkeys(("Add", "And", "Div", "Equal", "Greater", "Less", "Mul"), 7),
    **dict.fromkeys(("Or", "Pow", "Sub"), 7),  # before: broadcast by attributes
    **dict.fromkeys(("Max", "Min", "Sum"), 8),  # before: no broadcasting
    "Cast": 6,  # before: types by name
    "Clip": 11,  # before: bounds by attributes
    "Softmax": 13,  # before: over all axes from the given one
}
"""The oldest version of an operator that its function computes."""
