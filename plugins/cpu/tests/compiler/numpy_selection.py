"""What the target of numpy chooses by order: of ``ir.selection``, by definition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .numpy_program import Array


class NumpySelection:
    """A :class:`~onnxplug_compiler.ir.selection.Selection`.

    Args:
        add: records a command, as :meth:`.numpy_target.NumpyTarget.add`.
    """

    def __init__(self, add: Callable[..., None]) -> None:
        self.add = add

    def record_arg_extreme(self, recorder, x, out, axis, *, largest, last=False):
        def compute(x: Array) -> list[Array]:
            ranks = ranked(x)
            if not largest:  # but NaN is preferred all the same
                ranks = np.where(is_missing(x), x.size, -ranks)
            if not last:
                return [ranks.argmax(axis, keepdims=True)]
            turned = np.flip(ranks, axis).argmax(axis, keepdims=True)
            return [x.shape[axis] - 1 - turned]

        self.add(recorder, compute, [x], [out], "ArgMax" if largest else "ArgMin")

    def record_top(self, recorder, x, values, indices, axis, *, largest):
        def compute(x: Array) -> list[Array]:
            ranks = ranked(x)
            order = np.argsort(-ranks if largest else ranks, axis, kind="stable")
            order = order.take(range(values.shape[axis]), axis)
            return [np.take_along_axis(x, order, axis), order]

        self.add(recorder, compute, [x], [values, indices], "TopK")


def ranked(x: Array) -> Array:
    """For each element how many distinct ones are below; NaN is above all numbers."""
    if x.dtype.kind == "V":  # bfloat16, which numpy does not sort
        x = x.astype(np.float32)
    missing = is_missing(x)
    numbers = np.unique(x[~missing])
    return np.where(missing, len(numbers), np.searchsorted(numbers, x))


def is_missing(x: Any) -> Array:
    return np.asarray(x != x)
