"""Weights in the form that kernels want, made once and shared by sessions.

A kernel is given each constant before its first run, and may keep what it makes of it.
Where that lies on the host it may hand it over instead: what another kernel of the same
operator made already, to the bit, it is then given in its place.
"""

from __future__ import annotations

import ctypes
import hashlib
from typing import TYPE_CHECKING, Any

from onnxplug import ep
from onnxplug.authoring.locks import new_lock
from onnxplug_native.functions.allocator import host_allocator
from onnxplug_native.functions.prepacked import WeightCache, free
from onnxplug_native.functions.tensor import Value

if TYPE_CHECKING:
    from onnxplug_native.interface.structure import Structure

Buffers = list[tuple[int, int]]
"""The address and the size of each."""

_Key = tuple[str, str, bytes]


class PackedWeights:
    """What kernels of a library have handed over, while any of them uses it."""

    def __init__(self) -> None:
        self._lock = new_lock()
        self._held: dict[_Key, tuple[Buffers, int]] = {}

    def hold(self, operator: tuple[str, str], buffers: Buffers) -> tuple[_Key, Buffers]:
        """*buffers*, or those of the same content that are there; they are freed when
        each of those who hold them lets them go.

        Args:
            operator: its domain and its name.
        """
        digest = hashlib.sha256()
        for address, size in buffers:
            digest.update(size.to_bytes(8, "little"))
            if size:
                digest.update((ctypes.c_char * size).from_address(address))
        key = (*operator, digest.digest())
        with self._lock:
            known = self._held.get(key)
            shared, count = known or (buffers, 0)
            self._held[key] = shared, count + 1
        if known is not None:
            free(buffers)
        return key, shared

    def let_go(self, key: _Key) -> None:
        """Somebody who held the buffers of *key* does not any more."""
        with self._lock:
            buffers, count = self._held[key]
            if count > 1:
                self._held[key] = buffers, count - 1
                return
            del self._held[key]
        free(buffers)

    def __len__(self) -> int:
        return len(self._held)


class Prepacking:
    """Has one kernel pack its weights.

    Attributes:
        packed: the inputs whose constants the kernel reads no more.
    """

    def __init__(
        self, structure: Structure, operator: tuple[str, str], store: PackedWeights
    ) -> None:
        self._structure = structure
        self._operator = operator
        self._store = store
        self._keys: list[_Key] = []
        self.packed: set[int] = set()

    def pack(self, slot: int, dtype: ep.DataType, array: Any, allocator: int) -> None:
        """Offer the kernel the constant that is its input *slot*.

        Args:
            array: where the kernel wants it.
            allocator: of the EP's memory; 0: that is the host's.

        Raises:
            OnnxplugError: the library fails, and says why.
        """
        if not self._structure.has("PrePackWeight"):
            return
        value, is_packed = Value.of(array, dtype), ctypes.c_bool()
        # what lies in a memory of the library's own, nobody else can compare
        cache = None if allocator else WeightCache()
        try:
            self._structure.call(
                "PrePackWeight",
                value.address,
                slot,
                allocator or host_allocator().address,
                None if cache is None else cache.address,
                ctypes.addressof(is_packed),
            )
            if not is_packed.value:
                return
            self.packed.add(slot)
            if cache is not None and cache.buffers:
                self._share(slot, cache.take())
        finally:
            value.release()
            if cache is not None:
                cache.release()

    def _share(self, slot: int, buffers: Buffers) -> None:
        if not self._structure.has("SetSharedPrePackedWeight"):
            free(buffers)
            raise ep.EPFail(
                f"a kernel of {self._structure.owner} hands over what it packed, and "
                "does not implement OrtKernelImpl.SetSharedPrePackedWeight"
            )
        key, shared = self._store.hold(self._operator, buffers)
        self._keys.append(key)
        count = len(shared)
        addresses = (ctypes.c_void_p * count)(*(address for address, _ in shared))
        sizes = (ctypes.c_size_t * count)(*(size for _, size in shared))
        self._structure.call(
            "SetSharedPrePackedWeight",
            ctypes.addressof(addresses),
            ctypes.addressof(sizes),
            count,
            slot,
        )

    def release(self) -> None:
        """Let go of what is shared, once the kernel is released."""
        while self._keys:
            self._store.let_go(self._keys.pop())
