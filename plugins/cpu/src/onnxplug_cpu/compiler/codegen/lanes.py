"""Sixteen elements of any type between memory and the registers that compute them.

f16 and bf16 are held as f32 whose value such an element can have: every operator
computes in f32 and rounds its result once.  Integers of fewer than 8 bits, of which
memory has one in each byte, are only read, and held as bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from onnxplug_cpu.compiler.codegen.emit import I8, I64, Function, Type, Value
from onnxplug_cpu.compiler.codegen.math.narrow import (
    bf16_bits,
    f16_bits,
    from_bf16,
    from_f16,
)
from onnxplug_cpu.compiler.machine.isa import LANES, Isa

_BYTE_OF: Final = {"i2": "i8", "i4": "i8", "u2": "u8", "u4": "u8"}


def held(element: str, lanes: int = LANES) -> Type:
    """The vector that holds elements of this type while they are computed."""
    if element in _BYTE_OF:
        return Type(_BYTE_OF[element], lanes)
    return Type("f32" if element in ("f16", "bf16") else element, lanes)


def stored(element: str, lanes: int = LANES) -> Type:
    """The vector of elements as memory has them."""
    name = {"f16": "u16", "bf16": "u16", "i1": "u8"} | _BYTE_OF
    return Type(name.get(element, element), lanes)


class Part(NamedTuple):
    """The lanes that take part.

    Attributes:
        mask: ``i1`` per lane; ``None`` for all of them.
        size: how many, as an i64.
    """

    mask: Value | None
    size: Value


class Lanes:
    """Loads and stores of one function.  Make it before any loop: it takes stack.

    Attributes:
        width: lanes of a vector.
        has_masks: parts of vectors are loaded and stored as whole ones are.
    """

    def __init__(self, f: Function, isa: Isa, width: int = LANES) -> None:
        self.f = f
        self.isa = isa
        self.width = width
        self.has_masks = isa.name == "avx512"
        self._staging: dict[int, Value] = {}

    def whole(self) -> Part:
        """All lanes."""
        return Part(None, self.f.value(self.width, I64))

    def first(self, count: Value) -> Part:
        """The first *count* lanes, from 1 to all and more."""
        return Part(self.f.first_lanes(count, self.width), count)

    def reserve_for(self, element: str, strided: bool) -> None:
        """Take the stack that moving such elements needs."""
        type_ = self._stored(element)
        moved = not self.has_masks if not strided else not self._can_gather(type_)
        if moved and type_.nbytes not in self._staging:
            self._staging[type_.nbytes] = self.f.stack(I8, self.width * type_.nbytes)

    def load(
        self,
        element: str,
        pointer: Value,
        part: Part,
        stride: Value | None = None,
    ) -> Value:
        """Elements as they are computed with; those left out are zero or anything.

        Args:
            stride: between elements, in bytes; ``None`` if they are consecutive.
        """
        f, type_ = self.f, self._stored(element)
        if stride is not None and self._can_gather(type_):
            raw = self._gather(type_, pointer, stride, part)
        elif stride is not None:
            raw = self._load_staged(type_, pointer, stride, part.size)
        elif part.mask is None:
            raw = f.load(pointer, type_)
        elif self.has_masks:
            raw = f.load_masked(pointer, part.mask, type_)
        else:
            size = f.value(type_.nbytes, I64)
            raw = self._load_staged(type_, pointer, size, part.size)
        return self._from_stored(raw, element)

    def load_splat(self, element: str, pointer: Value) -> Value:
        """One element in all lanes."""
        raw = self.f.load_splat(pointer, self._stored(element))
        return self._from_stored(raw, element)

    def collect(self, element: str, places: Sequence[Value]) -> Value:
        """One element of each place, in the order of the lanes."""
        f, type_ = self.f, self._stored(element)
        raw = f.zero(type_)
        for lane, place in enumerate(places):
            raw = f.insert(raw, f.load(place, type_.scalar), lane)
        return self._from_stored(raw, element)

    def store(
        self,
        element: str,
        value: Value,
        pointer: Value,
        part: Part,
        stride: Value | None = None,
    ) -> None:
        """Write the lanes that take part; *stride* as for :meth:`load`."""
        f, type_ = self.f, self._stored(element)
        raw = self._to_stored(value, element)
        if stride is not None and self._can_gather(type_):
            self._scatter(raw, pointer, stride, part)
        elif stride is not None:
            self._store_staged(raw, pointer, stride, part.size)
        elif part.mask is None:
            f.store(raw, pointer)
        elif self.has_masks:
            f.store_masked(raw, pointer, part.mask)
        else:
            size = f.value(type_.nbytes, I64)
            self._store_staged(raw, pointer, size, part.size)

    def _stored(self, element: str) -> Type:
        return stored(element, self.width)

    # elements in memory and in registers

    def _from_stored(self, raw: Value, element: str) -> Value:
        if element == "i1":
            return raw.compare("ne", 0)
        if element == "f16":
            return from_f16(self.f, self.isa, raw)
        if element in _BYTE_OF:
            # the other bits of a byte are anything
            others = 8 - int(element[1:])
            return raw << others >> others
        return from_bf16(self.f, raw) if element == "bf16" else raw

    def _to_stored(self, value: Value, element: str) -> Value:
        if element == "i1":
            return self.f.convert(value, self._stored(element))
        if element == "f16":
            return f16_bits(self.f, self.isa, value)
        return bf16_bits(self.f, value) if element == "bf16" else value

    # strided elements

    def _can_gather(self, type_: Type) -> bool:
        return self.isa.name == "avx512" and type_.nbytes >= 4

    def _addresses(self, pointer: Value, stride: Value) -> Value:
        f = self.f
        offsets = f.iota(I64.vector(self.width)) * f.splat(stride, self.width)
        return f.instruction(
            Type("ptr", self.width), f"getelementptr i8, ptr {pointer.text}, {offsets}"
        )

    def _gather(self, type_: Type, pointer: Value, stride: Value, part: Part) -> Value:
        f = self.f
        return f.intrinsic(
            type_,
            f"llvm.masked.gather.{type_.suffix}.v{self.width}p0",
            f.aligned(self._addresses(pointer, stride), type_.nbytes),
            part.mask or f.value(1, type_.of("i1")),
            f.zero(type_),
        )

    def _scatter(self, value: Value, pointer: Value, stride: Value, part: Part) -> None:
        f = self.f
        f.call_void(
            f"llvm.masked.scatter.{value.type.suffix}.v{self.width}p0",
            value,
            f.aligned(self._addresses(pointer, stride), value.type.nbytes),
            part.mask or f.value(1, value.type.of("i1")),
        )

    def _load_staged(
        self, type_: Type, pointer: Value, stride: Value, count: Value
    ) -> Value:
        f, staging = self.f, self._staging[type_.nbytes]
        count = f.minimum(count, self.width)

        def copy(lane: Value) -> None:
            element = f.load(f.at(pointer, lane * stride, I8), type_.scalar)
            f.store(element, f.at(staging, lane, type_))

        f.loop(count, copy, nonempty=True)
        return f.load(staging, type_)

    def _store_staged(
        self, value: Value, pointer: Value, stride: Value, count: Value
    ) -> None:
        f, type_ = self.f, value.type
        staging = self._staging[type_.nbytes]
        count = f.minimum(count, self.width)
        f.store(value, staging)

        def copy(lane: Value) -> None:
            element = f.load(f.at(staging, lane, type_), type_.scalar)
            f.store(element, f.at(pointer, lane * stride, I8))

        f.loop(count, copy, nonempty=True)
