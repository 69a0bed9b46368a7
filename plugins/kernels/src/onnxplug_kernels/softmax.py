"""Softmax, its logarithm, and Hardmax."""

from __future__ import annotations

from typing import Any

from onnxplug.authoring.bounds import normal_axis
from onnxplug_kernels.arrays import in_computing_dtype
from onnxplug_kernels.registry import operator


@operator("Softmax", since=13)
def softmax(xp: Any, x: Any, *, axis: int = -1) -> Any:
    return in_computing_dtype(_softmax, xp, x, axis=normal_axis(axis, x.ndim))


@operator("Softmax", since=1, until=12)
def softmax_1(xp: Any, x: Any, *, axis: int = 1) -> Any:
    return xp.reshape(softmax(xp, _as_matrix(xp, x, axis)), x.shape)


@operator("LogSoftmax", since=13)
def log_softmax(xp: Any, x: Any, *, axis: int = -1) -> Any:
    return in_computing_dtype(_log_softmax, xp, x, axis=normal_axis(axis, x.ndim))


@operator("LogSoftmax", since=1, until=12)
def log_softmax_1(xp: Any, x: Any, *, axis: int = 1) -> Any:
    return xp.reshape(log_softmax(xp, _as_matrix(xp, x, axis)), x.shape)


@operator("Hardmax", since=13)
def hardmax(xp: Any, x: Any, *, axis: int = -1) -> Any:
    """One at the first largest element along *axis*, zero elsewhere."""
    axis = normal_axis(axis, x.ndim)
    if not xp.size(x):
        return x
    largest = xp.expand_dims(xp.argmax(x, axis=axis), axis)
    shape = [1] * x.ndim
    shape[axis] = x.shape[axis]
    return xp.astype(xp.reshape(xp.arange(x.shape[axis]), shape) == largest, x.dtype)


@operator("Hardmax", since=1, until=12)
def hardmax_1(xp: Any, x: Any, *, axis: int = 1) -> Any:
    return xp.reshape(hardmax(xp, _as_matrix(xp, x, axis)), x.shape)


def _as_matrix(xp: Any, x: Any, axis: int) -> Any:
    # before opset 13 the operators worked on a matrix: axes from *axis* on are columns
    rows = 1
    # a matrix may have a single column: the default axis is 1, also of a vector
    for size in x.shape[: axis if axis == x.ndim else normal_axis(axis, x.ndim)]:
        rows *= size
    return xp.reshape(x, (rows, -1 if xp.size(x) else 0))


def _softmax(xp: Any, x: Any, axis: int) -> Any:
    if not xp.size(x):
        return x
    exponentials = xp.exp(x - xp.max(x, axis=axis, keepdims=True))
    return exponentials / xp.sum(exponentials, axis=axis, keepdims=True)


def _log_softmax(xp: Any, x: Any, axis: int) -> Any:
    if not xp.size(x):
        return x
    shifted = x - xp.max(x, axis=axis, keepdims=True)
    return shifted - xp.log(xp.sum(xp.exp(shifted), axis=axis, keepdims=True))
