"""The types of elements, by short names: one notion for all targets.

Which of them a target computes with, and which it can only move, it says itself; ``i1``
is bool.
"""

from __future__ import annotations

import functools
from collections.abc import Collection
from typing import Any, Final

import numpy as np

FLOATS: Final = frozenset({"f16", "bf16", "f32", "f64"})
NARROW_FLOATS: Final = frozenset({"f16", "bf16", "f32"})
"""What is computed in f32."""
SIGNED: Final = frozenset({"i8", "i16", "i32", "i64"})
UNSIGNED: Final = frozenset({"u8", "u16", "u32", "u64"})
INTEGERS: Final = SIGNED | UNSIGNED
NUMBERS: Final = FLOATS | INTEGERS
COMPUTED: Final = NUMBERS | {"i1"}
"""What chains may have."""

ELEMENTS: Final = {
    "float16": "f16",
    "bfloat16": "bf16",
    "float32": "f32",
    "float64": "f64",
    "bool": "i1",
    **{f"int{bits}": f"i{bits}" for bits in (2, 4, 8, 16, 32, 64)},
    **{f"uint{bits}": f"u{bits}" for bits in (2, 4, 8, 16, 32, 64)},
    **{
        f"float{form}": f"f{form.replace('_', '')}"
        for form in (
            "4_e2m1fn",
            "8_e4m3fn",
            "8_e4m3fnuz",
            "8_e5m2",
            "8_e5m2fnuz",
            "8_e8m0fnu",
        )
    },
    "complex64": "c64",
    "complex128": "c128",
}
"""numpy's and ml_dtypes' names to those of elements."""

STORED: Final = frozenset(ELEMENTS.values()) - COMPUTED
"""What is kept in memory, and computed as something else."""

SUB_BYTE: Final = frozenset({"i2", "u2", "i4", "u4"})
"""Of the stored ones those of which hosts may keep several in a byte."""

_F32: Final = np.dtype(np.float32)


@functools.cache
def element_of(dtype: np.dtype[Any]) -> str | None:
    """The name of a dtype's elements; ``None`` for texts and objects.

    numpy takes a while to say its own.
    """
    return ELEMENTS.get(dtype.name)


def is_half(dtype: np.dtype[Any] | None) -> bool:
    """Whether it is of floats of 16 bits."""
    return dtype is not None and element_of(dtype) in ("f16", "bf16")


def wide_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Of what sums of such elements are: float32 for narrower floats."""
    return _F32 if element_of(dtype) in NARROW_FLOATS else dtype


def described(elements: Collection[str]) -> str:
    """The elements as numpy calls them, for messages."""
    return ", ".join(name for name, element in ELEMENTS.items() if element in elements)
