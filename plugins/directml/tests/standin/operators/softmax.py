"""``ACTIVATION_SOFTMAX``, ``_LOG_SOFTMAX`` and ``_HARDMAX``, with axes and without."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from . import Desc, Rejected, operator
from .activations import OF_FLOATS
from .agreement import Tensors, axes_of, same, uniform
from .arithmetic import Array, converted, quiet, real

FIELDS = "InputTensor OutputTensor"

Function = Callable[[Array, tuple[int, ...]], Array]


def shifted(x: Array, axes: tuple[int, ...]) -> Array:
    """Values less the largest, which changes no softmax and keeps exp in range."""
    return np.asarray(x - x.max(axis=axes, keepdims=True))


def softmax(x: Array, axes: tuple[int, ...]) -> Array:
    """``exp(x) / sum(exp(x))`` along axes."""
    exp = np.exp(shifted(x, axes))
    return np.asarray(exp / exp.sum(axis=axes, keepdims=True))


def log_softmax(x: Array, axes: tuple[int, ...]) -> Array:
    """``ln`` of the softmax."""
    x = shifted(x, axes)
    return np.asarray(x - np.log(np.exp(x).sum(axis=axes, keepdims=True)))


def hardmax(x: Array, axes: tuple[int, ...]) -> Array:
    """1 at the first largest along axes, in the order of their elements, else 0."""
    last = range(x.ndim - len(axes), x.ndim)
    moved = np.moveaxis(x, sorted(axes), last)
    rows = moved.reshape(*moved.shape[: x.ndim - len(axes)], -1)
    ones = np.zeros(rows.shape)
    np.put_along_axis(ones, rows.argmax(axis=-1, keepdims=True), 1, axis=-1)
    return np.moveaxis(ones.reshape(moved.shape), last, sorted(axes))


def register(name: str, function: Function) -> None:
    """The operator of rows, and the later one that has axes."""

    def check(desc: Desc, tensors: Tensors) -> None:
        """The input's effective rank, without leading 1s, is at most 2."""
        same(tensors, FIELDS)
        sizes = tensors["InputTensor"].sizes
        if any(size != 1 for size in sizes[:-2]):
            raise Rejected(f"the effective rank of Sizes {sizes} is more than 2")

    def check_axes(desc: Desc, tensors: Tensors) -> None:
        same(tensors, FIELDS)
        axes_of(desc.Axes or (), tensors["InputTensor"])

    def evaluate(desc: Desc, inputs: list[Array]) -> list[Array]:
        axes = getattr(desc, "Axes", (inputs[0].ndim - 1,)) or ()
        result = quiet(function)(real(inputs[0]), axes)
        return [converted(result, desc.OutputTensor.data_type)]

    of_rows = {"check": check, "evaluate": evaluate}
    of_axes = {"check": check_axes, "evaluate": evaluate}
    operator(f"ACTIVATION_{name}")(
        type(name, (), of_rows | {"support": uniform(FIELDS, OF_FLOATS)})
    )
    operator(f"ACTIVATION_{name}1")(
        type(name, (), of_axes | {"support": uniform(FIELDS, "5.1 1-8 FLOATS")})
    )


register("SOFTMAX", softmax)
register("LOG_SOFTMAX", log_softmax)
register("HARDMAX", hardmax)
