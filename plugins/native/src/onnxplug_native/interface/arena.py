"""Memory for what compiled entries look at.

Libraries may hand over any address.  Compiled entries follow only those of slots in
here, which stay readable for ever, and leave all others to Python, which looks them up.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import mmap
import os
from typing import Any, Final, TypeVar

from onnxplug_native.interface.ending import lasting

_S = TypeVar("_S", bound=ctypes.Structure)


class Arena:
    """Slots of one size, of memory that is never freed.

    Attributes:
        address: where the first slot is.
        slot: the bytes of each, a power of two.
        nbytes: of all of them.
    """

    def __init__(self, slot: int, count: int) -> None:
        self.slot = slot
        self.nbytes = slot * count
        # pages are the system's only once they are used
        flags: dict[str, int] = {}
        if os.name != "nt":
            flags["flags"] = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        memory = lasting(mmap.mmap(-1, self.nbytes, **flags))
        self.address = ctypes.addressof(lasting(ctypes.c_char.from_buffer(memory)))
        self._unused = itertools.count()
        self._free: list[int] = []

    def take(self) -> int | None:
        """The address of a slot that is free; ``None`` if none is."""
        try:
            return self._free.pop()
        except IndexError:
            place = next(self._unused) * self.slot
            return self.address + place if place < self.nbytes else None

    def give_back(self, address: int) -> None:
        """Let a slot be free."""
        self._free.append(address)


_SLOT: Final = 64
_COUNT: Final = 1 << 16


@functools.cache
def arena() -> Arena:
    """That of contexts, tensors and what is known of their memory."""
    return Arena(_SLOT, _COUNT)


class _Slot:
    """A slot, until nobody refers to it."""

    def __init__(self, address: int) -> None:
        self.address = address
        # at the end of the interpreter this may outlive the names of the module
        self._give_back = arena().give_back

    def __del__(self) -> None:
        self._give_back(self.address)


def placed(kind: type[_S], *values: Any) -> _S:
    """A structure in a slot; outside, where compiled entries leave it to Python, when
    there is none any more.

    Args:
        values: of its first fields; the others are 0.
    """
    assert ctypes.sizeof(kind) <= _SLOT
    address = arena().take()
    if address is None:
        return kind(*values)
    ctypes.memset(address, 0, _SLOT)
    made = kind.from_address(address)
    made.__init__(*values)  # type: ignore[misc]
    made.slot = _Slot(address)
    return made
