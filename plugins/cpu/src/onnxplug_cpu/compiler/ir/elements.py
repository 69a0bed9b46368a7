"""Sets of element types, by the names that the IR's types have."""

from __future__ import annotations

from typing import Final

FLOATS: Final = frozenset({"f16", "bf16", "f32", "f64"})
NARROW_FLOATS: Final = frozenset({"f16", "bf16", "f32"})
"""What is computed in f32."""
SIGNED: Final = frozenset({"i8", "i16", "i32", "i64"})
UNSIGNED: Final = frozenset({"u8", "u16", "u32", "u64"})
INTEGERS: Final = SIGNED | UNSIGNED
NUMBERS: Final = FLOATS | INTEGERS
