"""Which requests can be joined: their first dimension is one of which it is proven that
each position is computed by itself."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from onnxplug.specialise.proof import IndependentPositions, Mixed

if TYPE_CHECKING:
    from onnxplug import NodeArg

_SMALL: Final = 1 << 12
"""Bytes of inputs without the dimension, which are compared before joining."""


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """How requests of a model are joined along their first dimension.

    Attributes:
        dimension: its name in the model.
        inputs, outputs: names of those that have it.
    """

    dimension: str
    inputs: frozenset[str]
    outputs: frozenset[str]

    def key(self, feeds: Mapping[str, Any]) -> tuple[Hashable, ...] | None:
        """Requests with the same key can be joined; ``None``: with no other one."""
        parts: list[Hashable] = []
        for name in sorted(feeds):
            array = feeds[name]
            if name in self.inputs:
                parts.append((name, array.dtype.str, array.shape[1:]))
            elif array.dtype.kind == "O" or array.nbytes > _SMALL:
                return None
            else:
                parts.append((name, array.dtype.str, array.shape, array.tobytes()))
        return tuple(parts)

    def size(self, feeds: Mapping[str, Any]) -> int | None:
        """How many positions there are; ``None``: inputs disagree, and nothing is
        joined with them."""
        sizes = {
            feeds[name].shape[0] if feeds[name].ndim else None
            for name in self.inputs
            if name in feeds
        }
        return sizes.pop() if len(sizes) == 1 else None

    def joined(self, feeds: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """What is fed for all of them at once."""
        first = feeds[0]
        return {
            name: np.concatenate([each[name] for each in feeds])
            if name in self.inputs
            else first[name]
            for name in first
        }

    def divided(
        self, results: Mapping[str, Any], sizes: Sequence[int]
    ) -> list[dict[str, Any]]:
        """The results of each, whose *sizes* they have."""
        ends = np.cumsum(sizes).tolist()
        return [
            {
                name: array[end - size : end] if name in self.outputs else array
                for name, array in results.items()
            }
            for end, size in zip(ends, sizes, strict=True)
        ]


def find_plan(
    model: Path | IndependentPositions, inputs: Sequence[NodeArg]
) -> tuple[BatchPlan | None, str]:
    """How requests of *model* can be joined, and if they cannot why, in words.

    Args:
        model: its path, or what was read of it already.
    """
    first = {
        item.shape[0]
        for item in inputs
        if item.rank_is_known and item.shape and isinstance(item.shape[0], str)
    }
    if not first:
        return None, "no input's first dimension has a name"
    reasons = []
    positions = (
        model
        if isinstance(model, IndependentPositions)
        else IndependentPositions(model)
    )
    for dimension in sorted(first):
        try:
            axes = positions.axes(dimension)
        except Mixed as error:
            reasons.append(f"{dimension!r}: {error}")
            continue
        if any(axes.values()):
            other = next(name for name, axis in axes.items() if axis)
            reasons.append(f"{dimension!r} is not the first dimension of {other!r}")
            continue
        names = {item.name for item in inputs}
        return BatchPlan(
            dimension, frozenset(axes.keys() & names), frozenset(axes.keys() - names)
        ), ""
    return None, "; ".join(reasons)
