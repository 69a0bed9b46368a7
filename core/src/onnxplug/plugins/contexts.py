"""The device contexts of a registry's EPs: one per memory location."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from onnxplug.ep import MemoryLocation
from onnxplug.ep.locks import new_lock, new_rlock
from onnxplug.errors import EpError, PluginError
from onnxplug.guard import blaming, close_all
from onnxplug.plugins.record import PluginState
from onnxplug.plugins.table import PluginTable
from onnxplug.weights import SharedWeights

if TYPE_CHECKING:
    import threading

    from onnxplug.ep import DeviceContext, EpFactory, Stream


class OwnedContext:
    """A device context, which is closed with its last user.

    Attributes:
        owner: the name of the EP that made it.
        context: what it made.
        weights: what EPs made of weights there.
        keeps: something that is to live until the context is closed.
    """

    __slots__ = (
        "__weakref__",
        "_imports",
        "_lock",
        "context",
        "keeps",
        "owner",
        "weights",
    )

    def __init__(self, owner: str, context: DeviceContext) -> None:
        self.owner = owner
        self.context = context
        self.weights = SharedWeights()
        self.keeps: object = None
        # one that a thread may hold twice, as an exporter may import itself
        self._lock = new_rlock()
        self._imports: list[Stream | None] = []
        weakref.finalize(self, _close, owner, context, self._imports)

    def stream_of_imports(self) -> tuple[Stream | None, threading.RLock]:
        """The stream before which work of arrays is ordered that others lend, and the
        lock to hold while it is used; ``None`` if nothing is ever queued."""
        with self._lock:
            if not self._imports:
                with blaming(self.owner, "run"):
                    self._imports.append(self.context.create_stream())
            return self._imports[0], self._lock


def _close(owner: str, context: DeviceContext, imports: list[Stream | None]) -> None:
    """Close a context that nothing uses, its own stream first."""
    streams = [stream for stream in imports if stream is not None]
    try:
        close_all(
            (owner, close)
            for close in (
                *(stream.synchronize for stream in streams),
                *(stream.close for stream in streams),
                context.close,
            )
        )
    except EpError as error:  # nobody is there to whom it could be raised
        import logging

        logging.getLogger("onnxplug.plugins").warning("%s", error)


class _End:
    """Kept by the contexts of an EP that is forgotten, for a finalizer to see to."""


class _Place(NamedTuple):
    """A location, and the lock that is held while its context is made."""

    lock: threading.RLock
    made: list[OwnedContext]


class DeviceContexts:
    """Finds who owns a memory space, and makes each location's context once.

    Args:
        table: the EPs.
        load: gives the factory of an EP by name.
    """

    def __init__(self, table: PluginTable, load: Callable[[str], EpFactory]) -> None:
        self._table = table
        self._load = load
        self._lock = new_lock()
        self._places: dict[MemoryLocation, _Place] = {}

    def at(self, location: MemoryLocation) -> OwnedContext:
        """The context of *location*.

        Raises:
            EpError: no EP owns its space, two do, or its owner fails to make it.
        """
        with self._lock:
            place = self._places.setdefault(location, _Place(new_rlock(), []))
        # one that is slow to make holds up nobody who wants another
        with place.lock:
            if not place.made:
                place.made.append(self._make(location))
            return place.made[0]

    def of_dlpack(self, where: tuple[int, int]) -> OwnedContext | None:
        """The context of the device that DLPack calls *where*, its type and number.

        EPs are loaded and contexts made until there is one.
        """
        for name in [record.name for record in self._table.records()]:
            try:
                factory = self._load(name)
                for space in sorted(
                    factory.memory_spaces | factory.spare_memory_spaces
                ):
                    owned = self.at(MemoryLocation(space, where[1]))
                    if owned.context.dlpack_device == where:
                        return owned
            except (EpError, PluginError):
                continue  # what cannot be had does not have the array
        return None

    def forget(self, owner: str, then: Callable[[], object] | None = None) -> None:
        """Leave the contexts that an EP made to those who use them.

        Args:
            then: called when the last of them is closed, at once if there is none.
        """
        end = _End()
        if then is not None:
            weakref.finalize(end, then)
        forgotten = []
        with self._lock:
            for location, place in list(self._places.items()):
                if place.made and place.made[0].owner == owner:
                    place.made[0].keeps = end
                    # it may be closed when it goes, and not while this is locked
                    forgotten.append(self._places.pop(location))

    def _make(self, location: MemoryLocation) -> OwnedContext:
        from onnxplug.ep import DeviceContext  # few processes have one

        factory = self._owner(location.space)
        with blaming(factory.name, "create"):
            context = factory.create_context(location)
            if not isinstance(context, DeviceContext):
                raise TypeError(
                    f"create_context({location}) returned {context!r}; expected a "
                    "DeviceContext"
                )
        return OwnedContext(factory.name, context)

    def _owner(self, space: str) -> EpFactory:
        """The factory that owns a memory space, loaded if it is not yet.

        One that has it to spare does where none has it for itself.

        Raises:
            EpError: there is none, or more than one.
        """
        owners = self._loaded_owners(space)
        if not owners:
            for record in self._table.records():
                if record.state is not PluginState.FOUND:
                    continue
                try:
                    factory = self._load(record.name)
                except PluginError:
                    continue  # the record has why, and another may own the space
                if space in factory.memory_spaces:
                    owners = self._loaded_owners(space)
                    break
        owners = owners or self._loaded_spares(space)[:1]
        if len(owners) > 1:
            names = " and ".join(sorted(factory.name for factory in owners))
            raise EpError(
                f"{names} both own the memory {space!r}, so that neither's arrays can "
                "be told apart from the other's; keep one of them out with "
                "ONNXPLUG_BLOCK",
                ep=owners[0].name,
                stage="create",
            )
        if not owners:
            raise EpError(
                f"no installed EP has memory named {space!r}; `onnxplug eps` lists "
                "the EPs, and 'cpu' is the host's memory",
                stage="create",
            )
        return owners[0]

    def _loaded_owners(self, space: str) -> list[EpFactory]:
        return [
            record.factory
            for record in self._table.records()
            if record.factory is not None and space in record.factory.memory_spaces
        ]

    def _loaded_spares(self, space: str) -> list[EpFactory]:
        spares = [
            record.factory
            for record in self._table.records()
            if record.factory is not None
            and space in record.factory.spare_memory_spaces
        ]
        return sorted(spares, key=lambda factory: factory.name)
