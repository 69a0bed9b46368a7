"""Device memory from functions of the user's, as other libraries export them."""

from __future__ import annotations

import ctypes

from onnxplug_cuda.pool import ALIGNMENT

_Allocate = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t)
_Free = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_Empty = ctypes.CFUNCTYPE(None)


class ExternalSource:
    """Where an arena has its regions from.

    Args:
        allocate: the address of ``void *(size_t)``, which gives null for no memory.
        free: the address of ``void (void *)``.
        empty_cache: the address of ``void (void)``, called where there is no memory, to
            have the user's own cache given back; 0 for none.
    """

    def __init__(self, allocate: int, free: int, empty_cache: int = 0) -> None:
        self._allocate = _Allocate(allocate)
        self._free = _Free(free)
        self._empty = _Empty(empty_cache) if empty_cache else None

    def allocate(self, nbytes: int) -> int:
        """The address of so many bytes.

        Raises:
            MemoryError: the function gave none.
            RuntimeError: it gave some that kernels do not take.
        """
        address = self._allocate(nbytes)
        if not address:
            raise MemoryError(f"gpu_external_alloc gave none of {nbytes} bytes")
        if address % ALIGNMENT:
            self._free(address)
            raise RuntimeError(
                f"gpu_external_alloc gave memory from {address:#x} on, which is no "
                f"multiple of {ALIGNMENT}, as kernels are compiled for; give such, as "
                "cudaMalloc does"
            )
        return int(address)

    def free(self, address: int) -> None:
        """Give back what no work uses any more."""
        self._free(address)

    def forget(self) -> None:
        """Have the user's cache given back."""
        if self._empty is not None:
            self._empty()
