"""Sorting."""

from __future__ import annotations

from typing import Any

from onnxplug.ep import DataType
from onnxplug_torch.dtypes import NUMBERS
from onnxplug_torch.operators.computing import in_order, moved
from onnxplug_torch.operators.movement import numbers
from onnxplug_torch.operators.registry import operator

_COUNT = frozenset({DataType.INT64})


@operator("TopK", since=10, types=NUMBERS, host=(1,))
def top(
    torch: Any, x: Any, k: Any, *, axis: int = -1, largest: int = 1, sorted: int = 1
) -> Any:
    (count,) = numbers(k)
    if not 0 <= count <= x.shape[axis]:
        raise ValueError(f"k is {count}, and axis {axis} of {list(x.shape)} has less")
    # of equal elements ONNX wants the first; torch.topk takes any
    _, order = torch.sort(
        in_order(torch, x), dim=axis, descending=bool(largest), stable=True
    )
    index = order.narrow(axis, 0, count)
    return moved(torch, lambda x: torch.gather(x, axis, index), x), index
