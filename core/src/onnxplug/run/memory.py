"""The memory locations of a session, and the way of a value between two of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from onnxplug.ep import (
    HOST,
    Allocator,
    DataTransfer,
    DataType,
    EpFactory,
    MemoryLocation,
    Stream,
)
from onnxplug.ep.record import Record
from onnxplug.errors import EpError, RunError
from onnxplug.guard import blaming


class Hop(Record):
    """One copy on the way of a value.

    Attributes:
        source, target: the two locations.
        transfer: what copies.
        stream_at: whose stream the copy is queued on.
    """

    source: MemoryLocation
    target: MemoryLocation
    transfer: DataTransfer
    stream_at: MemoryLocation


class Memory:
    """Allocators, transfers and streams of the EPs of one session.

    Built from the factory and location of each EP; EPs in host memory need nothing.
    """

    def __init__(self, eps: Iterable[tuple[EpFactory, MemoryLocation]]) -> None:
        self._factories: dict[MemoryLocation, EpFactory] = {}
        self._allocators: dict[MemoryLocation, Allocator] = {}
        self._transfers: list[tuple[str, DataTransfer]] = []
        for factory, location in eps:
            if location == HOST or location in self._factories:
                continue
            with blaming(factory.name, "create"):
                allocator = factory.create_allocator(location)
                transfer = factory.create_data_transfer()
            if transfer is None or (allocator is None and not location.host_accessible):
                raise EpError(
                    f"{factory.name} works in {location} and supplies no "
                    f"{'data transfer' if transfer is None else 'allocator'} for it; "
                    "an EP outside host memory must supply both",
                    ep=factory.name,
                    stage="create",
                )
            self._factories[location] = factory
            if allocator is not None:
                self._allocators[location] = allocator
            self._transfers.append((factory.name, transfer))

    def needs_copy(self, source: MemoryLocation, target: MemoryLocation) -> bool:
        """Whether a value in *source* cannot be used in *target* as it is."""
        if source == target or (source.host_accessible and target.host_accessible):
            return False
        for ep, transfer in self._transfers:
            with blaming(ep, "run"):
                if transfer.can_copy(source, target):
                    return transfer.needs_copy(source, target)
        return True

    def route(self, source: MemoryLocation, target: MemoryLocation) -> list[Hop]:
        """The copies that take a value from *source* to *target*: one, or two by way
        of the host.

        Raises:
            EpError: no EP's data transfer knows the way.
        """
        direct = self._hop(source, target)
        if direct is not None:
            return [direct]
        down, up = self._hop(source, HOST), self._hop(HOST, target)
        if down is None or up is None:
            raise EpError(
                f"no EP of the session can copy from {source} to {target}; "
                "its data transfer must know the way to the host",
                stage="run",
            )
        return [down, up]

    def _hop(self, source: MemoryLocation, target: MemoryLocation) -> Hop | None:
        for ep, transfer in self._transfers:
            with blaming(ep, "run"):
                can_copy = transfer.can_copy(source, target)
            if can_copy:
                device = target if target in self._factories else source
                return Hop(source, target, transfer, device)
        return None

    def empty(self, location: MemoryLocation, like: Any, stream: Stream | None) -> Any:
        """A new array at *location* with the shape and element type of *like*."""
        allocator = self._allocators.get(location)
        if allocator is None:
            import numpy as np

            return np.empty(like.shape, like.dtype)
        dtype = DataType.from_numpy(like.dtype)
        if dtype is DataType.STRING:
            raise RunError(
                f"strings cannot be copied to {location}; the EP there must refuse "
                "nodes with string inputs"
            )
        with blaming(self.ep_at(location), "run"):
            return allocator.empty(like.shape, dtype, stream)

    def ep_at(self, location: MemoryLocation) -> str:
        """The name of the EP that works in *location*."""
        factory = self._factories.get(location)
        return factory.name if factory is not None else str(location)

    def create_stream(self, location: MemoryLocation) -> Stream | None:
        """A stream on *location*, for one run."""
        factory = self._factories.get(location)
        if factory is None:
            return None
        with blaming(factory.name, "run"):
            return factory.create_stream(location)
