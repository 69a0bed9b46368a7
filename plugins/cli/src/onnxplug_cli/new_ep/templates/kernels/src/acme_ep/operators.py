"""The kernels: for each operator a function on numpy arrays.

A kernel is added by writing its maker below, with :func:`kernel` above it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, Any]
Function: TypeAlias = Callable[..., Any]
"""Takes a node's inputs by position, and returns its output; never writes to inputs."""

Maker: TypeAlias = Callable[[Mapping[str, Any]], Function]
"""Takes the attributes that a node sets, and returns the function for it."""


class Operator(NamedTuple):
    """An operator that has a kernel.

    Attributes:
        make: what makes the kernel.
        versions: those of the operator that the kernel is right for, each called by the
            opset that brought it, as ``Node.since_version`` does.
        attributes: those that the kernel heeds.
    """

    make: Maker
    versions: frozenset[int]
    attributes: frozenset[str]


OPERATORS: Final[dict[str, Operator]] = {}
"""By the name that ONNX has for the operator."""


def kernel(
    op_type: str, versions: Collection[int], attributes: Collection[str] = ()
) -> Callable[[Maker], Maker]:
    """Enters what is below it into :data:`OPERATORS`."""

    def enter(make: Maker) -> Maker:
        OPERATORS[op_type] = Operator(make, frozenset(versions), frozenset(attributes))
        return make

    return enter


@kernel("Add", versions=(7, 13, 14))
def _add(attributes: Mapping[str, Any]) -> Function:
    return np.add


@kernel("LeakyRelu", versions=(6, 16), attributes=("alpha",))
def _leaky_relu(attributes: Mapping[str, Any]) -> Function:
    alpha = np.float32(attributes.get("alpha", 0.01))

    def leaky_relu(x: Array) -> Array:
        return np.where(x < 0, alpha * x, x)

    return leaky_relu


@kernel("MatMul", versions=(1, 9, 13))
def _matmul(attributes: Mapping[str, Any]) -> Function:
    return np.matmul


@kernel("Mul", versions=(7, 13, 14))
def _mul(attributes: Mapping[str, Any]) -> Function:
    return np.multiply


@kernel("Relu", versions=(6, 13, 14))
def _relu(attributes: Mapping[str, Any]) -> Function:
    def relu(x: Array) -> Any:
        return np.maximum(x, 0)

    return relu


@kernel("Softmax", versions=(13,), attributes=("axis",))
def _softmax(attributes: Mapping[str, Any]) -> Function:
    axis = attributes.get("axis", -1)

    def softmax(x: Array) -> Any:
        # relative to the largest, as exp of that could be infinite
        powers = np.exp(x - x.max(axis, keepdims=True, initial=-np.inf))
        return powers / powers.sum(axis, keepdims=True)

    return softmax


@kernel("Sub", versions=(7, 13, 14))
def _sub(attributes: Mapping[str, Any]) -> Function:
    return np.subtract
