"""Streams of libraries, as the entries of the interface know them."""

from __future__ import annotations

import itertools

from onnxplug_native.interface.handles import Handle, find
from onnxplug_native.interface.host import implements
from onnxplug_native.interface.structure import Structure

_NUMBERS = itertools.count(1)


class SyncStream(Handle):
    """A stream.

    Attributes:
        structure: the library's own.
        number: which stream it is, in the process.
    """

    def __init__(self, structure: Structure) -> None:
        super().__init__()
        self.structure = structure
        self.number = next(_NUMBERS)

    @property
    def native_handle(self) -> int:
        """What the device's own API calls it; 0 for none."""
        return self.structure.call("GetHandle") or 0


@implements("SyncStream_GetHandle")
def get_handle(stream: int) -> int:
    """What the device's own API calls it."""
    return find(SyncStream, stream).native_handle


@implements("SyncStream_GetImpl", "OrtEpApi")
def get_implementation(stream: int) -> int:
    """The library's own structure."""
    return find(SyncStream, stream).structure.address


@implements("SyncStream_GetSyncId", "OrtEpApi")
def get_sync_id(stream: int) -> int:
    """Which stream it is."""
    return find(SyncStream, stream).number


@implements("GetSyncIdForLastWaitOnSyncStream", "OrtEpApi")
def get_sync_id_of_last_wait(producer: int, consumer: int) -> int:
    """0: waits are not counted, so memory is reused in the order of a stream only."""
    find(SyncStream, producer)
    find(SyncStream, consumer)
    return 0
