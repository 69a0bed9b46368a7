"""The device contexts of a registry's EPs: one per memory location."""

from __future__ import annotations

import contextlib
import operator
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeAlias

from onnxplug.authoring.locks import has_lock, new_rlock
from onnxplug.ep import MemoryLocation
from onnxplug.errors import EpError, PluginError
from onnxplug.guard import blaming, close_all, malformed
from onnxplug.plugins.record import Loaded, PluginState
from onnxplug.plugins.table import PluginTable
from onnxplug.plugins.versions import warn_deprecated
from onnxplug.weights import SharedWeights

if TYPE_CHECKING:
    import threading

    from onnxplug.ep import DeviceContext, EpFactory, MemorySpaces, Stream

_Owner: TypeAlias = "tuple[EpFactory, MemorySpaces]"
"""An EP, and the memories that it owns."""


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
                self._imports.append(new_stream(self.owner, self.context))
            return self._imports[0], self._lock

    def keep_open(self) -> None:
        """Keep it until its EP is forgotten: its last use will not be seen."""
        place = self._place()
        if place is not None:
            place.kept = self

    def dlpack_device(self) -> tuple[int, int] | None:
        """What DLPack calls the device, its type and number.

        Raises:
            EpError: the context does not say.
        """
        with blaming(self.owner, "create", "DeviceContext.dlpack_device"):
            named = self.context.dlpack_device
            if named is None:
                return None
            kind, number = named
            return operator.index(kind), operator.index(number)


def new_stream(ep: str, context: DeviceContext) -> Stream | None:
    """A new stream of a context of *ep*'s, to be closed; ``None`` if it has none.

    Raises:
        EpError: it fails to make one.
    """
    from onnxplug.ep import Stream  # few processes have one

    with blaming(ep, "run", "DeviceContext.create_stream"):
        stream = context.create_stream()
    if stream is not None and not isinstance(stream, Stream):
        raise malformed(
            ep, "run", "DeviceContext.create_stream", stream, "a Stream, or None"
        )
    if stream is not None:
        warn_deprecated(stream, "Stream")
    return stream


def close_stream(ep: str, stream: Stream) -> None:
    """Release a stream of *ep*'s, whose work is done.

    Raises:
        EpError: it cannot be closed.
    """
    with blaming(ep, "close", "Stream.close"):
        stream.close()


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
    closers: list[Callable[[], object]] = [lambda: context.close()]
    if (stream := next(iter(imports), None)) is not None:
        closers = [
            lambda: stream.synchronize(),
            lambda: close_stream(owner, stream),
            *closers,
        ]
    try:
        close_all((owner, close) for close in closers)
    except EpError as error:  # nobody is there to whom it could be raised
        import logging

        logging.getLogger("onnxplug.plugins").warning("%s", error)


class _End:
    """Kept by the contexts of an EP that is forgotten, for a finalizer to see to."""


class _Place:
    """A location, and its context while there is one.

    Attributes:
        askers: how many threads ask for its context now.
        lock: held while a context is made, which is not before the last is closed.
        owner: the name of the EP that made the last one.
        reference: to the last one.
        closing: what closes the last one.
        kept: the last one, if it stays open without being used.
    """

    def __init__(self) -> None:
        self.askers = 0
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
        with self._asked(location) as place:
            # before the lock, which another thread has that waits for the closing
            if place.closing is not None and place.closing.is_at_work_here():
                raise EpError(
                    f"the context of {location} was asked for while {place.owner} "
                    "closes it; what closes it must not use it",
                    ep=place.owner,
                    stage="close",
                )
            # one that is slow to make or to close holds up nobody who wants another
            with place.lock:
                owned = place.open()
                if owned is None:
                    place.end()
                    owned = self._make(location, place)
                return owned

    @contextlib.contextmanager
    def _asked(self, location: MemoryLocation) -> Iterator[_Place]:
        """The place of *location*, which is kept only if it ever had a context."""
        with self._lock:
            place = self._places.get(location)
            if place is None:
                place = self._places[location] = _Place()
            place.askers += 1
        try:
            yield place
        finally:
            with self._lock:
                place.askers -= 1
                if not place.askers and place.closing is None:
                    del self._places[location]

    def of_dlpack(self, where: tuple[int, int]) -> OwnedContext | None:
        """The context of the device that DLPack calls *where*, its type and number.

        EPs are loaded and contexts made until there is one.  What a location is for
        DLPack is remembered, so each is looked at once.
        """
        # what is seen of an EP that is forgotten meanwhile is not seen of the next
        known = self._dlpack
        for name in [record.name for record in self._table.records()]:
            try:
                factory = self._load(name)
            except PluginError:
                continue  # what cannot be had does not have the array
            spaces = factory.memory_spaces
            if spaces is None:
                continue
            for space in sorted(spaces.owned | spaces.spare):
                location = MemoryLocation(space, where[1])
                try:
                    owner = self._owner_of(location)
                    if known.get((owner, location), where) != where:
                        continue
                    owned = self.at(location)
                except EpError as error:
                    if isinstance(error.__cause__, LookupError):  # no such device
                        known[error.ep, location] = None
                    continue
                with contextlib.suppress(EpError):  # the array may be another's
                    named = known[owned.owner, location] = owned.dlpack_device()
                    if named == where:
                        return owned
        return None

    def _owner_of(self, location: MemoryLocation) -> str:
        """The name of the EP whose context is there, or would be."""
        with self._lock:
            place = self._places.get(location)
        owned = None if place is None else place.open()
        return self._owner(location.space)[0].name if owned is None else owned.owner

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
            self._dlpack = {
                key: named
                for key, named in self._dlpack.copy().items()
                if key[0] != owner
            }
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

        factory, spaces = self._owner(location.space)
        with blaming(factory.name, "create", "create_context"):
            context = spaces.create_context(location)
            if not isinstance(context, DeviceContext):
                raise TypeError(
                    f"for {location} it returned {context!r}; expected a DeviceContext"
                )
        warn_deprecated(context, "DeviceContext")
        owned = OwnedContext(factory.name, context, place)
        if spaces.keeps_contexts:
            owned.keep_open()
        return owned

    def _owner(self, space: str) -> _Owner:
        """The factory that owns a memory space, loaded if it is not yet.

        Raises:
            EpError: there is none, or more than one.
        """
        owners = self._owners(space)
        if len(owners) > 1:
            names = " and ".join(sorted(factory.name for factory, _ in owners))
            raise EpError(
                f"{names} both own the memory {space!r}, so that neither's arrays can "
                "be told apart from the other's; keep one of them out with "
                "ONNXPLUG_BLOCK",
                ep=owners[0][0].name,
                stage="create",
            )
        if not owners:
            raise EpError(
                f"no installed EP has memory named {space!r}; `onnxplug eps` lists "
                "the EPs, and 'cpu' is the host's memory",
                stage="create",
            )
        return owners[0]

    def has(self, space: str) -> bool:
        """Whether an EP owns a memory space; EPs are loaded until one does."""
        return bool(self._owners(space))

    def _owners(self, space: str) -> list[_Owner]:
        """As :meth:`_owner`, all of them.

        One that has it to spare does where none has it for itself.
        """
        owners = self._loaded_owners(space)
        for record in self._table.records():
            if owners:
                break
            if record.state is PluginState.FOUND:
                # the record has why, and another may own the space
                with contextlib.suppress(PluginError):
                    self._load(record.name)
                owners = self._loaded_owners(space)
        return owners or [each for each in self._loaded() if space in each[1].spare][:1]

    def _loaded_owners(self, space: str) -> list[_Owner]:
        return [each for each in self._loaded() if space in each[1].owned]

    def _loaded(self) -> list[_Owner]:
        return [
            (record.factory, spaces)
            for record in self._table.records()
            if isinstance(record, Loaded)
            and (spaces := record.factory.memory_spaces) is not None
        ]
