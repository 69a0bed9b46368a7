"""The types of LLVM's values, and their constants as text."""

from __future__ import annotations

import struct
from typing import NamedTuple, TypeAlias

import numpy as np

_LLVM_NAME = {
    "f16": "half",
    "bf16": "bfloat",
    "f32": "float",
    "f64": "double",
    "ptr": "ptr",
    "i1": "i1",
    **{f"{sign}{bits}": f"i{bits}" for sign in "iu" for bits in (8, 16, 32, 64)},
}
_NBYTES = {
    "i1": 1,
    "ptr": 8,
    "f16": 2,
    "bf16": 2,
    "f32": 4,
    "f64": 8,
    **{f"{sign}{bits}": bits // 8 for sign in "iu" for bits in (8, 16, 32, 64)},
}


class Type(NamedTuple):
    """A scalar type (``lanes == 0``) or a vector of it.

    Attributes:
        element: ``f16 bf16 f32 f64 i1 i8 … i64 u8 … u64 ptr``.
        lanes: elements of a vector; 0 for a scalar.
    """

    element: str
    lanes: int = 0

    @property
    def text(self) -> str:
        """The type as LLVM writes it."""
        name = _LLVM_NAME[self.element]
        return f"<{self.lanes} x {name}>" if self.lanes else name

    @property
    def suffix(self) -> str:
        """The type as names of overloaded intrinsics end in it: ``v16f32``."""
        name = "p0" if self.element == "ptr" else self.element.replace("u", "i")
        return f"v{self.lanes}{name}" if self.lanes else name

    @property
    def is_float(self) -> bool:
        """Whether elements are floating-point numbers."""
        return self.element in ("f16", "bf16", "f32", "f64")

    @property
    def is_signed(self) -> bool:
        """Whether elements are signed integers."""
        return self.element[0] == "i" and self.element != "i1"

    @property
    def nbytes(self) -> int:
        """Bytes of one element in memory."""
        return _NBYTES[self.element]

    @property
    def bits(self) -> int:
        """Bits of one element in a register."""
        return 1 if self.element == "i1" else 8 * self.nbytes

    @property
    def scalar(self) -> Type:
        """The element's type."""
        return Type(self.element)

    def vector(self, lanes: int) -> Type:
        """A vector of this type's element; ``lanes == 0`` gives the scalar."""
        return Type(self.element, lanes)

    def of(self, element: str) -> Type:
        """As many lanes of another element."""
        return self._replace(element=element)


F16, BF16, F32, F64 = Type("f16"), Type("bf16"), Type("f32"), Type("f64")
I1, I8, I16, I32, I64 = Type("i1"), Type("i8"), Type("i16"), Type("i32"), Type("i64")
U8, U16, U32, U64 = Type("u8"), Type("u16"), Type("u32"), Type("u64")
PTR = Type("ptr")

Number: TypeAlias = int | float


def constant_text(number: Number | np.generic, type_: Type) -> str:
    """A scalar constant as LLVM writes it."""
    if not type_.is_float:
        return str(int(number))
    if type_.element == "f64":
        return f"0x{struct.unpack('<Q', struct.pack('<d', float(number)))[0]:016X}"
    if type_.element == "f16":
        return f"0xH{int(np.float16(number).view(np.uint16)):04X}"
    with np.errstate(over="ignore"):
        rounded = np.float32(number)
    if type_.element == "bf16":
        bits = int(rounded.view(np.uint32))
        bits += 0x7FFF + ((bits >> 16) & 1)
        return f"0xR{(bits >> 16) & 0xFFFF:04X}"
    return f"0x{struct.unpack('<Q', struct.pack('<d', float(rounded)))[0]:016X}"
