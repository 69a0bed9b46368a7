"""Arrays in memory that is not the host's."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from onnxplug_native.functions.devices import MemoryInfo


class DeviceArray:
    """An array in memory of a library's, which is freed with it if it is its own.

    Attributes:
        address: where it is, for the library.
        shape: its sizes.
        dtype: numpy's.
        nbytes: its size.
        memory_info: what allocated it.
        owner: what it is a part of, or made of; ``None`` for nothing.
        beside: where another array has it from; ``None`` for none.
    """

    def __init__(
        self,
        address: int,
        shape: tuple[int, ...],
        dtype: Any,
        memory_info: MemoryInfo,
        free: Callable[[int], None] | None = None,
    ) -> None:
        self.address = address
        self.shape = shape
        self.dtype = dtype
        self.nbytes = math.prod(shape) * dtype.itemsize
        self.memory_info = memory_info
        self._free = free
        self.owner: DeviceArray | None = None
        self.beside: DeviceArray | None = None

    def viewed(self, shape: tuple[int, ...], dtype: Any) -> DeviceArray:
        """The first bytes as another array, which keeps this one."""
        view = DeviceArray(self.address, shape, dtype, self.memory_info)
        view.owner = self
        return view

    def part(self, index: int) -> DeviceArray:
        """The part at *index* of the first axis, in the memory of this one.

        Only where addresses of the library can be counted from.
        """
        shape = self.shape[1:]
        nbytes = math.prod(shape) * self.dtype.itemsize
        view = self.viewed(shape, self.dtype)
        view.address += index * nbytes
        return view

    def __del__(self) -> None:
        if self._free is not None:
            self._free(self.address)
