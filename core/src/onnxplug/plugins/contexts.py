"""The device contexts of a registry's EPs: one per memory location."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING

from onnxplug.authoring.locks import has_lock, new_rlock
from onnxplug.ep import MemoryLocation
from onnxplug.errors import EpError, PluginError
from onnxplug.guard import blaming, close_all
from onnxplug.plugins.record import PluginState
from onnxplug.plugins.table import PluginTable
from onnxplug.weights import SharedWeights

if TYPE_CHECKING:
    import threading

    from onnxplug.ep import DeviceContext, EpFactory, Stream


class OwnedContext:
    """A device context, which is closed when nothing refers to this any more.

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
        "_place",
        "context",
        "keeps",
        "owner",
        "weights",
    )

    def __init__(self, owner: str, context: DeviceContext, place: _Place) -> None:
        self.owner = owner
        self.context = context
        self.weights = SharedWeights()
        self.keeps: object = None
        # one that a thread may hold twice, as an exporter may import itself
        self._lock = new_rlock()
        self._imports: list[Stream | None] = []
        # weakly, as that may keep this
        self._place = weakref.ref(place)
        place.owner = owner
        place.reference = weakref.ref(self)
        place.closing = _Closing(owner, context, self._imports)
        weakref.finalize(self, place.closing)

    def stream_of_imports(self) -> tuple[Stream | None, threading.RLock]:
        """The stream before which work of arrays is ordered that others lend, and the
        lock to hold while it is used; ``None`` if nothing is ever queued."""
        with self._lock:
            if not self._imports:
                with blaming(self.owner, "run", "DeviceContext.create_stream"):
                    self._imports.append(self.context.create_stream())
            return self._imports[0], self._lock

    def keep_open(self) -> None:
        """Keep it until its EP is forgotten: its last use will not be seen."""
        place = self._place()
        if place is not None:
            place.kept = self


class _Closing:
    """Closes a context once, in whichever thread comes first; others wait for it.

    That is usually the finalizer's.  It may have been called in the middle of anything,
    so it holds no lock that anybody needs who uses another context.
    """

    def __init__(
        self, owner: str, context: DeviceContext, imports: list[Stream | None]
    ) -> None:
        self._owner = owner
        self._context: DeviceContext | None = context
        self._imports = imports
        self._lock = new_rlock()
        self._is_at_work = False

    def __call__(self) -> None:
        with self._lock:
            context, self._context = self._context, None
            if context is not None:
                self._is_at_work = True
                try:
                    _close(self._owner, context, self._imports)
                finally:
                    self._is_at_work = False

    def is_at_work_here(self) -> bool:
        """Whether this very thread is closing it, further out."""
        # in the child of a fork nobody has the lock that a thread had which is gone
        return self._is_at_work and has_lock(self._lock)


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


class _Place:
    """A location, and its context while there is one.

    Attributes:
        lock: held while a context is made, which is not before the last is closed.
        owner: the name of the EP that made the last one.
        reference: to the last one.
        closing: what closes the last one.
        kept: the last one, if it stays open without being used.
    """

    def __init__(self) -> None:
        self.lock = new_rlock()
        self.owner = ""
        self.reference: weakref.ref[OwnedContext] | None = None
        self.closing: _Closing | None = None
        self.kept: OwnedContext | None = None

    def open(self) -> OwnedContext | None:
        """The context that is open."""
        return None if self.reference is None else self.reference()

    def end(self) -> None:
        """Wait until the last context is closed, which nothing refers to."""
        if self.closing is not None:
            self.closing()


class DeviceContexts:
    """Finds who owns a memory space, and makes contexts, one at a time per location.

    A context is closed when whoever asked for it has dropped it, unless its factory
    keeps its contexts.

    Args:
        table: the EPs.
        load: gives the factory of an EP by name.
    """

    def __init__(self, table: PluginTable, load: Callable[[str], EpFactory]) -> None:
        self._table = table
        self._load = load
        # one that a thread may hold twice, as garbage may be collected in here
        self._lock = new_rlock()
        self._places: dict[MemoryLocation, _Place] = {}
        self._dlpack: dict[tuple[str, MemoryLocation], tuple[int, int] | None] = {}

    def at(self, location: MemoryLocation) -> OwnedContext:
        """The context of *location*, which stays open while this is referred to.

        Raises:
            EpError: no EP owns its space, two do, or its owner fails to make it.
        """
        with self._lock:
            place = self._places.setdefault(location, _Place())
        # one that is slow to make or to close holds up nobody who wants another
        with place.lock:
            owned = place.open()
            if owned is None:
                if place.closing is not None and place.closing.is_at_work_here():
                    raise EpError(
                        f"the context of {location} was asked for while "
                        f"{place.owner} closes it; what closes it must not use it",
                        ep=place.owner,
                        stage="close",
                    )
                place.end()
                owned = self._make(location, place)
            return owned

    def of_dlpack(self, where: tuple[int, int]) -> OwnedContext | None:
        """The context of the device that DLPack calls *where*, its type and number.

        EPs are loaded and contexts made until there is one.  What a location is for
        DLPack is remembered, so each is looked at once.
        """
        for name in [record.name for record in self._table.records()]:
            try:
                factory = self._load(name)
            except PluginError:
                continue  # what cannot be had does not have the array
            for space in sorted(factory.memory_spaces | factory.spare_memory_spaces):
                location = MemoryLocation(space, where[1])
                try:
                    if self._may_be(location, where):
                        owned = self.at(location)
                        if owned.context.dlpack_device == where:
                            return owned
                except EpError as error:
                    if isinstance(error.__cause__, LookupError):  # no such device
                        self._dlpack[error.ep, location] = None
        return None

    def _may_be(self, location: MemoryLocation, where: tuple[int, int]) -> bool:
        """Whether nothing that is known says that DLPack has another name for it."""
        with self._lock:
            place = self._places.get(location)
        owned = None if place is None else place.open()
        owner = self._owner(location.space).name if owned is None else owned.owner
        return self._dlpack.get((owner, location), where) == where

    def forget(self, owner: str, then: Callable[[], object] | None = None) -> None:
        """Leave the contexts that an EP made to those who use them.

        Args:
            then: called when the last of them is closed, at once if there is none.
        """
        end = _End()
        if then is not None:
            weakref.finalize(end, then)
        with self._lock:
            forgotten = [
                self._places.pop(location)
                for location, place in list(self._places.items())
                if place.owner == owner
            ]
            for key in [key for key in list(self._dlpack) if key[0] == owner]:
                del self._dlpack[key]
        # contexts may be closed here, while nothing is locked
        while forgotten:
            place = forgotten.pop()
            owned = place.open()
            if owned is None:
                place.end()  # another thread may be at it
            else:
                owned.keeps = end
                place.kept = owned = None

    def _make(self, location: MemoryLocation, place: _Place) -> OwnedContext:
        from onnxplug.ep import DeviceContext  # few processes have one

        factory = self._owner(location.space)
        with blaming(factory.name, "create", "create_context"):
            context = factory.create_context(location)
            if not isinstance(context, DeviceContext):
                raise TypeError(
                    f"for {location} it returned {context!r}; expected a DeviceContext"
                )
            dlpack_device = context.dlpack_device
        self._dlpack[factory.name, location] = dlpack_device
        owned = OwnedContext(factory.name, context, place)
        if factory.keeps_contexts:
            owned.keep_open()
        return owned

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
