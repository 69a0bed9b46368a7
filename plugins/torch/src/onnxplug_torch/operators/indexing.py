"""What is told by indices which elements to take or to change."""

from __future__ import annotations

from typing import Any

from onnxplug_torch.dtypes import BOOL, INTEGERS, NUMBERS, POSITIONS, TENSOR_TYPES
from onnxplug_torch.operators.computing import (
    as_carrier,
    guarded,
    in_order,
    moved,
    out_of_order,
    within,
)
from onnxplug_torch.operators.movement import numbers
from onnxplug_torch.operators.registry import operator

_AT_1 = {1: POSITIONS}


@operator("Gather", types=TENSOR_TYPES, other=_AT_1)
def gather(torch: Any, x: Any, index: Any, *, axis: int = 0) -> Any:
    axis = axis % x.ndim
    inside = within(torch, index, x.shape[axis])
    found = moved(torch, lambda x: torch.index_select(x, axis, inside.reshape(-1)), x)
    if index.ndim == 1:
        return found
    return found.reshape([*x.shape[:axis], *index.shape, *x.shape[axis + 1 :]])


@operator("GatherElements", since=11, types=TENSOR_TYPES, other=_AT_1)
def gather_elements(torch: Any, x: Any, index: Any, *, axis: int = 0) -> Any:
    inside = within(torch, index, x.shape[axis])
    return moved(torch, lambda x: torch.gather(x, axis, inside), x)


def _rows(torch: Any, shape: Any, index: Any) -> Any:
    """The numbers of the rows that the last axis of *index* names, by *shape*."""
    found = torch.zeros(index.shape[:-1], dtype=torch.int64, device=index.device)
    for n, size in enumerate(shape):
        inside = within(torch, index[..., n], size)
        # a number beyond an axis may be within the product of all
        if index.device.type == "cpu" and ((inside < 0) | (inside >= size)).any():
            raise IndexError(f"an index is outside of an axis of size {size}")
        found = found * size + inside
    return found


@operator("GatherND", since=11, types=TENSOR_TYPES, other=_AT_1)
def gather_nd(torch: Any, x: Any, index: Any, *, batch_dims: int = 0) -> Any:
    depth = index.shape[-1]
    batch = list(x.shape[:batch_dims])
    named = list(x.shape[batch_dims : batch_dims + depth])
    rest = list(x.shape[batch_dims + depth :])
    rows = _rows(torch, named, index)
    count = 1
    for size in named:
        count *= size
    if batch_dims:
        batches = 1
        for size in batch:
            batches *= size
        base = torch.arange(batches, device=x.device) * count
        rows = rows.reshape(batches, -1) + base.reshape(-1, 1)
    table = x.reshape([-1, *rest]) if x.numel() else x.reshape([0, *rest])
    found = moved(torch, lambda x: torch.index_select(x, 0, rows.reshape(-1)), table)
    return found.reshape([*index.shape[:-1], *rest])


_REDUCTIONS = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


def _scatter(
    torch: Any, x: Any, axis: int, index: Any, updates: Any, reduction: str
) -> Any:
    if reduction == "none":
        return moved(
            torch,
            lambda x, updates: torch.scatter(x, axis, index, updates),
            x,
            as_carrier(torch, updates),
        )
    if reduction not in _REDUCTIONS:
        raise ValueError(f"there is no reduction {reduction!r}")
    how = _REDUCTIONS[reduction]
    found = torch.scatter_reduce(
        in_order(torch, x) if how[0] == "a" else _plain(torch, x),
        axis,
        index,
        in_order(torch, updates) if how[0] == "a" else _plain(torch, updates),
        how,
    )
    if how[0] == "a":
        return out_of_order(torch, found, x.dtype)
    return found.to(x.dtype)


def _plain(torch: Any, x: Any) -> Any:
    if x.dtype in (torch.uint16, torch.uint32, torch.uint64):
        return x.to(torch.int64)
    return x


@operator("Scatter", since=9, until=10, types=TENSOR_TYPES, other=_AT_1)
@operator("ScatterElements", since=11, types=NUMBERS | BOOL, other=_AT_1)
def scatter_elements(
    torch: Any,
    x: Any,
    index: Any,
    updates: Any,
    *,
    axis: int = 0,
    reduction: str = "none",
) -> Any:
    inside = within(torch, index, x.shape[axis])
    return _scatter(torch, x, axis, inside, updates, reduction)


@operator("ScatterND", since=11, types=NUMBERS | BOOL, other=_AT_1)
def scatter_nd(
    torch: Any, x: Any, index: Any, updates: Any, *, reduction: str = "none"
) -> Any:
    depth = index.shape[-1]
    rows = _rows(torch, x.shape[:depth], index).reshape(-1)
    width = 1
    for size in x.shape[depth:]:
        width *= size
    if not x.numel() or not rows.numel():
        return x.clone()
    table = x.reshape(-1, width)
    news = updates.reshape(-1, width)
    where = rows.reshape(-1, 1).expand(-1, width)
    return _scatter(torch, table, 0, where, news, reduction).reshape(x.shape)


@operator(
    "OneHot", since=9, types=INTEGERS, other={0: NUMBERS, 2: NUMBERS | BOOL}, host=(1,)
)
def one_hot(torch: Any, index: Any, depth: Any, values: Any, *, axis: int = -1) -> Any:
    (count,) = (int(each) for each in numbers(depth))
    index = index.to(torch.int64)
    inside = torch.where(index < 0, index + count, index)
    place = axis if axis >= 0 else axis + index.ndim + 1
    shape = [1] * (index.ndim + 1)
    shape[place] = count
    steps = torch.arange(count, device=index.device).reshape(shape)
    return torch.where(inside.unsqueeze(place) == steps, values[1], values[0])


@operator("NonZero", since=9, types=NUMBERS | BOOL, waits=True)
def nonzero(torch: Any, x: Any) -> Any:
    if x.ndim == 0:
        return torch.zeros((0, int(bool(x))), dtype=torch.int64, device=x.device)
    return torch.nonzero(x != 0).t().contiguous()


@operator("Compress", since=9, types=TENSOR_TYPES, other={1: BOOL}, waits=True)
def compress(torch: Any, x: Any, condition: Any, *, axis: int | None = None) -> Any:
    if axis is None:
        x, axis = x.reshape(-1), 0
    if condition.shape[0] > x.shape[axis]:
        raise ValueError(
            f"{condition.shape[0]} conditions for axis {axis} of {list(x.shape)}"
        )
    rows = torch.nonzero(condition).reshape(-1)
    return moved(torch, lambda x: torch.index_select(x, axis, rows), x)


@operator("TensorScatter", since=24, types=NUMBERS | BOOL, other={2: POSITIONS})
def tensor_scatter(
    torch: Any,
    past: Any,
    update: Any,
    write: Any | None = None,
    *,
    axis: int = -2,
    mode: str = "linear",
) -> Any:
    axis = axis % past.ndim
    steps = torch.arange(update.shape[axis], device=past.device)
    if write is None:
        write = torch.zeros(past.shape[0], dtype=torch.int64, device=past.device)
    rows = write.reshape(-1, 1) + steps
    if mode == "circular":
        rows = rows % past.shape[axis]
    shape = [1] * past.ndim
    shape[0], shape[axis] = rows.shape
    index = guarded(torch, rows, past.shape[axis]).reshape(shape).expand(update.shape)
    return _scatter(torch, past, axis, index, update, "none")
