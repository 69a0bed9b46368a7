"""Feeds that a model does not expect."""

from __future__ import annotations

import random
import warnings
from collections.abc import Mapping
from typing import Any, Final

import ml_dtypes
import numpy as np

LAYOUTS: Final = (
    *("fortran", "read-only", "reversed", "strided", "unaligned", "swapped", "deep"),
)
DTYPES: Final = (
    *("float32", "float64", "float16", "int64", "int32", "int8", "uint8", "bool"),
    *("uint64", "complex64", "object", "str", "datetime64[s]", "longdouble", "bytes"),
    *("void", ml_dtypes.bfloat16, ml_dtypes.int4, ml_dtypes.float8_e4m3fn),
)
SPECIAL: Final = (float("nan"), float("inf"), float("-inf"), 0.0, -0.0, 1e-45, 1e38)
EXTREME: Final = (
    0,
    -1,
    1,
    2,
    127,
    -128,
    2**31 - 1,
    -(2**31),
    2**62,
    2**63 - 1,
    -(2**63),
)


def mutated_feeds(
    feeds: Mapping[str, Any], choose: random.Random
) -> tuple[dict[str, Any], str]:
    """Feeds of which one or two are different, and how."""
    other = dict(feeds)
    told = []
    for _ in range(choose.choice((1, 1, 2))):
        if not other:
            break
        name = choose.choice(list(other))
        told.append(f"{name} " + choose.choice(_MUTATIONS)(other, name, choose))
    return other, "; ".join(told)


def resized_feeds(
    feeds: Mapping[str, Any], choose: random.Random
) -> tuple[dict[str, Any], str]:
    """Feeds with other sizes, equal ones where they were equal."""
    arrays = [x for x in feeds.values() if isinstance(x, np.ndarray)]
    sizes = {n: n for array in arrays for n in array.shape}
    for size in sizes:
        if choose.random() < 0.5:
            sizes[size] = choose.choice((0, 1, 2, size + 1, 2 * size, 17))
    other = {}
    for name, value in feeds.items():
        if isinstance(value, np.ndarray) and value.dtype != object:
            value = _of_shape(value, tuple(sizes[n] for n in value.shape))
        other[name] = value
    changes = {a: b for a, b in sizes.items() if a != b}
    return other, f"sizes {changes}"


def _of_shape(array: Any, shape: tuple[int, ...]) -> Any:
    flat = array.reshape(-1)
    if not flat.size:
        flat = np.zeros(1, array.dtype)
    return np.resize(flat, shape)


def _shape(feeds: dict[str, Any], name: str, choose: random.Random) -> str:
    array = feeds[name]
    if not isinstance(array, np.ndarray) or array.ndim > 30:
        return "left as it is"
    shape = list(array.shape)
    how = choose.randrange(5)
    if how == 0:
        shape.insert(choose.randrange(len(shape) + 1), choose.choice((1, 2)))
    elif how == 1 and shape:
        del shape[choose.randrange(len(shape))]
    elif how == 2 and shape:
        shape[choose.randrange(len(shape))] = 0
    elif how == 3 and shape:
        shape[choose.randrange(len(shape))] = choose.choice((1, 2, 3, 5, 33))
    else:
        shape = [1] * choose.choice((0, 7, 32))
    feeds[name] = _of_shape(array, tuple(shape))
    return f"has shape {shape}"


def _dtype(feeds: dict[str, Any], name: str, choose: random.Random) -> str:
    array = feeds[name]
    if not isinstance(array, np.ndarray):
        return "left as it is"
    dtype = choose.choice(DTYPES)
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the imaginary parts that are lost
            feeds[name] = array.astype(dtype)
    except (TypeError, ValueError):
        feeds[name] = np.zeros(array.shape, dtype)
    return f"is of {dtype}"


def _content(feeds: dict[str, Any], name: str, choose: random.Random) -> str:
    array = feeds[name]
    if not isinstance(array, np.ndarray) or not array.size:
        return "left as it is"
    array = array.copy()
    few = [choose.randrange(array.size) for _ in range(choose.choice((1, 3)))]
    if array.dtype.kind in "iu":
        value: Any = choose.choice(EXTREME)
        bits = np.array(value % 2**64, np.uint64).astype(array.dtype)
        array.reshape(-1)[few] = bits
    elif array.dtype.kind == "f":
        value = choose.choice(SPECIAL)
        with np.errstate(all="ignore"):
            array.reshape(-1)[few] = value
    else:
        return "left as it is"
    feeds[name] = array
    return f"has {value} at {few}"


def _layout(feeds: dict[str, Any], name: str, choose: random.Random) -> str:
    array = feeds[name]
    if not isinstance(array, np.ndarray) or array.dtype == object:
        return "left as it is"
    layout = choose.choice(LAYOUTS)
    feeds[name] = (array, layout)
    return f"is {layout}"


def _kind(feeds: dict[str, Any], name: str, choose: random.Random) -> str:
    value: Any = choose.choice(
        (None, 3, 2.5, "text", b"bytes", [], [1, [2, 3]], {}, {1: 2}, object, [None])
    )
    if choose.random() < 0.3 and isinstance(feeds[name], np.ndarray):
        value = [feeds[name], feeds[name]]
    feeds[name] = value
    return f"is {type(value).__name__}"


def _names(feeds: dict[str, Any], name: str, choose: random.Random) -> str:
    value = feeds[name]
    if choose.random() < 0.5:
        del feeds[name]
        return "is missing"
    feeds[choose.choice(("other", "", name + " "))] = value
    return "under another name too"


_MUTATIONS: Final = (
    *(_shape, _shape, _shape, _content, _content, _content, _dtype, _layout),
    *(_kind, _names),
)
