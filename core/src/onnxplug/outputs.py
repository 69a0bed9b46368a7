"""Makes outputs the caller's own: fresh, writeable, C-contiguous arrays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np


def own(results: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
    """*results* such that writing to one changes no input, constant or other result.

    An array is copied when it is, or is a view of, an input, another result, or memory
    that is read-only; and when it is not C-contiguous.
    """
    taken = {id(root) for value in inputs for root in _roots(value)}
    return [_own(result, taken) for result in results]


def _own(result: Any, taken: set[int]) -> Any:
    if isinstance(result, list):
        return [_own(item, taken) for item in result]
    if type(result) is not np.ndarray:
        if not isinstance(result, np.generic):  # a map, or nothing
            return result
        result = np.asarray(result)
    root = _root(result)
    if (
        id(root) in taken
        or not result.flags.writeable
        or not result.flags.c_contiguous
        or not _owns_memory(root)
    ):
        root = result = result.copy(order="C")
    taken.add(id(root))
    return result


def _roots(value: Any) -> Iterator[Any]:
    if isinstance(value, list):
        for item in value:
            yield from _roots(item)
    else:
        yield _root(value)


def _root(value: Any) -> Any:
    """The array that *value* is a view of, at the end of the chain."""
    while type(value) is np.ndarray and isinstance(value.base, np.ndarray):
        value = value.base
    return value


def _owns_memory(root: Any) -> bool:
    return type(root) is np.ndarray and root.flags.owndata
