"""Whether values share memory."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any, Final

import numpy as np

from onnxplug.ep import SparseTensor


def parts(value: Any) -> Iterator[Any]:
    """The tensors that *value* consists of: itself, if it is no container."""
    if isinstance(value, list):
        for item in value:
            yield from parts(item)
    elif isinstance(value, dict):
        yield from parts(list(value.values()))
    elif isinstance(value, SparseTensor):
        yield from (value.values, value.indices)
    else:
        yield value


def overlap(array: Any, value: Any) -> bool:
    """Whether writing to *array* may change something in *value*."""
    if type(array) is np.ndarray and type(value) is np.ndarray:
        return np.may_share_memory(array, value)
    for part in parts(value):
        if isinstance(array, np.ndarray) and isinstance(part, np.ndarray):
            if np.may_share_memory(array, part):
                return True
        elif array is part:
            return True
    return False


_MANY: Final = 64
"""Pairs that are not compared one by one: a decoder has 32 layers with two caches."""


def sharing(arrays: Sequence[Any], values: Sequence[Any]) -> list[list[int]]:
    """For each of *arrays* the positions of the *values* that it overlaps."""
    kinds = {type(each) for each in (*arrays, *values) if each is not None}
    if len(arrays) * len(values) < _MANY or kinds != {np.ndarray}:
        return [
            [at for at, value in enumerate(values) if overlap(array, value)]
            for array in arrays
        ]
    extents = sorted(
        (*_extent(value), at)
        for at, value in enumerate(values)
        if value is not None and value.size
    )
    starts = [start for start, *_ in extents]
    furthest = list(accumulate([end for _, end, _ in extents], max))
    found = []
    for array in arrays:
        shared: list[int] = []
        if array is not None and array.size:
            start, end = _extent(array)
            place = bisect_left(starts, end)
            while place and furthest[place - 1] > start:
                place -= 1
                if extents[place][1] > start:
                    shared.append(extents[place][2])
        found.append(sorted(shared))
    return found


def _extent(array: np.ndarray[Any, Any]) -> tuple[int, int]:
    """The address of the first byte of *array*, and that behind its last one."""
    first = end = array.__array_interface__["data"][0]
    if array.flags.c_contiguous:
        return first, first + array.nbytes
    for size, stride in zip(array.shape, array.strides, strict=True):
        if stride < 0:
            first += (size - 1) * stride
        else:
            end += (size - 1) * stride
    return first, end + array.itemsize
