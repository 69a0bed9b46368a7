"""Whether values share memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

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
