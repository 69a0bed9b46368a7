"""What kernels make of weights, where they hand it over to be shared."""

from __future__ import annotations

import ctypes
from typing import Final

from onnxplug_native.functions.allocator import host_allocator
from onnxplug_native.interface.codes import Code, InterfaceError
from onnxplug_native.interface.handles import Handle, find
from onnxplug_native.interface.host import implements
from onnxplug_native.interface.memory import pointers, require_array
from onnxplug_native.interface.readable import is_readable

_MOST: Final = 1 << 16
"""More buffers than a kernel makes of one weight."""


class WeightCache(Handle):
    """Takes what a kernel made of one weight, in memory of the host's allocator.

    Attributes:
        buffers: the address and the size of each.
    """

    def __init__(self) -> None:
        super().__init__()
        self.buffers: list[tuple[int, int]] = []

    def take(self) -> list[tuple[int, int]]:
        """The buffers, which are the caller's from now on."""
        taken, self.buffers = self.buffers, []
        return taken

    def release(self) -> None:
        """Release it, and the buffers that nobody took."""
        free(self.take())
        super().release()


def free(buffers: list[tuple[int, int]]) -> None:
    """Free what the host's allocator gave."""
    for address, _ in buffers:
        host_allocator().free(address)


@implements("SharedPrePackedWeightCache_StoreWeightData", "OrtEpApi")
def store_weight_data(cache: int, data: int, sizes: int, count: int) -> None:
    """Take buffers, in place of those that were given before."""
    found = find(WeightCache, cache)
    addresses = pointers(data, count, _MOST, "buffers of a weight")
    require_array(sizes, count, _MOST, ctypes.sizeof(ctypes.c_size_t), "sizes")
    given = list((ctypes.c_size_t * count).from_address(sizes)) if count else []
    buffers = list(zip(addresses, given, strict=True))
    for address, size in buffers:
        # a buffer may be null, as in ONNX Runtime, where there is nothing to hold
        if size and not (address and is_readable(address, size)):
            raise InterfaceError(
                Code.INVALID_ARGUMENT,
                f"{size} bytes of a weight are given at {address:#x}, where nothing "
                "is, or less",
            )
    old = found.take()
    found.buffers = buffers
    free([each for each in old if each[0] not in addresses])
