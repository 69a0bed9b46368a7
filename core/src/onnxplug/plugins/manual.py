"""Libraries and EPs that a program registers by hand, and unregisters."""

from __future__ import annotations

import functools
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from onnxplug.authoring.locks import new_rlock
from onnxplug.ep import EpFactory, HardwareDevice
from onnxplug.errors import (
    LibraryInUse,
    PluginConflict,
    PluginError,
    PluginIncompatible,
    PluginLoadError,
    PluginNotFound,
)
from onnxplug.guard import FAILURES, ep_failure
from onnxplug.interruption import raise_interruption
from onnxplug.plugins.library import Library, check_factory
from onnxplug.plugins.loader import PluginLoader
from onnxplug.plugins.names import nearest
from onnxplug.plugins.record import Loaded, PluginRecord, log
from onnxplug.plugins.table import PluginTable

if TYPE_CHECKING:
    from onnxplug.plugins.contexts import DeviceContexts
    from onnxplug.plugins.target import LibraryRecord, Target


def _shown(known: LibraryRecord) -> str:
    count = len(known.devices)
    return f", which is shown {count} devices by hand" if count else ""


class RegisteredLibraries:
    """What is registered by hand in a table."""

    def __init__(
        self, table: PluginTable, loader: PluginLoader, contexts: DeviceContexts
    ) -> None:
        self._table = table
        self._loader = loader
        self._contexts = contexts
        self._handle_locks: defaultdict[str, threading.RLock] = defaultdict(new_rlock)

    def add(self, factory: EpFactory) -> PluginRecord:
        """Make *factory* known under its own name, without a handle."""
        library = Library(factory.name, lambda: factory)
        (record,) = self._publish(library, {factory.name: factory}, None)
        return record

    def register(
        self, name: str, target: object, devices: Sequence[HardwareDevice] = ()
    ) -> LibraryRecord:
        """See :meth:`onnxplug.plugins.PluginRegistry.register_ep_library`."""
        from onnxplug.plugins.target import check_handle, read_target

        check_handle(name)
        self._loader.refuse_while_loading(f"library {name!r}")
        with self._table.lock:
            handle_lock = self._handle_locks[name]
        with handle_lock:
            aim = read_target(name, target, devices)
            if aim.is_installed:
                installed = self._table.resolve(aim.source, installed=True)
                aim = aim._replace(source=installed.name)
            known = self.by_handle().get(name)
            if known is not None:
                if aim.is_that_of(known):
                    return known
                raise PluginConflict(
                    f"a library is registered as {name!r} already, from "
                    f"{known.source}{_shown(known)}; unregister it first, or choose "
                    "another handle",
                    plugin=name,
                )
            self._table.refuse_blocked(name)
            if aim.is_installed:
                return self._register_installed(name, aim)
            return self._register_new(name, aim)

    def unregister(self, name: str) -> None:
        """See :meth:`onnxplug.plugins.PluginRegistry.unregister_ep_library`."""
        handles = self.by_handle()
        if name not in handles:
            raise PluginNotFound(
                f"no library is registered as {name!r}.{nearest(name, handles)}\n"
                f"Registered libraries: {', '.join(handles) or 'none'}.",
                plugin=name,
            )
        is_installed = handles[name].is_installed
        with self._table.lock:
            records = [
                record
                for record in self._table.read_records()
                if isinstance(record, Loaded) and name in record.handles
            ]
            self._refuse_while_used(name, records)
            if not is_installed:
                self._table.forget(record.name for record in records)
        for record in records:
            if is_installed:
                self._table.change(record.library, lambda each: each.unregistered(name))
            else:
                # its contexts are closed first, once no value is in their memory
                close = functools.partial(_close, record)
                self._contexts.forget(record.name, then=close)
                record.library.discard()

    def by_handle(self) -> dict[str, LibraryRecord]:
        """The libraries by their handles, sorted."""
        handles: dict[str, LibraryRecord] = {}
        for record in self._table.records():
            handles |= record.handles
        return dict(sorted(handles.items()))

    def _register_installed(self, name: str, aim: Target) -> LibraryRecord:
        self._loader.factory(aim.source)
        record = self._table.resolve(aim.source)
        supplied = [
            other
            for other in self._table.records()
            if other.library is record.library and isinstance(other, Loaded)
        ]
        library = aim.record(name, tuple(each.name for each in supplied))
        self._table.change(record.library, lambda each: each.registered(library))
        return library

    def _register_new(self, name: str, aim: Target) -> LibraryRecord:
        library = aim.library
        with (
            _discarded_on_error(name, library),
            self._loader.loading(f"library {name!r}"),
        ):
            factories = library.load()
            if not factories:
                raise LookupError(f"{aim.source} supplies no EP")
            record = aim.record(name, tuple(sorted(factories)))
            self._publish(library, factories, record)
        return record

    def _publish(
        self,
        library: Library,
        factories: Mapping[str, EpFactory],
        handle: LibraryRecord | None,
    ) -> list[Loaded]:
        """All of *factories* become known, or none."""
        self._table.by_name()
        handles = {} if handle is None else {handle.name: handle}
        made = []
        for name, factory in factories.items():
            self._table.refuse_blocked(name)
            try:
                check_factory(factory)
            except PluginIncompatible as error:
                text = f"{name} is incompatible: {error}"
                raise PluginIncompatible(text, plugin=name) from error
            made.append(Loaded(name, library, (), factory, handles))
        self._table.publish(made)
        return made

    def _refuse_while_used(self, name: str, records: Sequence[Loaded]) -> None:
        """Refuse to unregister a library whose EPs are in use; the table is locked.

        Raises:
            LibraryInUse: they are.
        """
        sessions = {each.name: self._table.sessions(each.name) for each in records}
        users = set().union(*sessions.values())
        if users:
            count = f"{len(users)} session{'s' if len(users) > 1 else ''}"
            eps = " or ".join(ep for ep, those in sessions.items() if those)
            raise LibraryInUse(
                f"library {name!r} is in use: {count} on {eps}; close what uses it "
                "first",
                plugin=name,
            )


@contextmanager
def _discarded_on_error(name: str, library: Library) -> Iterator[None]:
    """Whatever goes wrong in here undoes the load of a library registered as *name*.

    Raises:
        PluginError: for whatever was raised.
    """
    try:
        yield
    except BaseException as error:
        library.discard()
        raise_interruption(error)
        if isinstance(error, PluginError):
            raise
        if isinstance(error, FAILURES):
            raise PluginLoadError(
                f"library {name!r} ({library.source}) could not be loaded: "
                f"{type(error).__name__}: {error}",
                plugin=name,
            ) from error
        raise


def _close(record: Loaded) -> None:
    try:
        record.factory.close()
    except FAILURES as error:  # the library is gone all the same
        log(ep_failure(record.name, "close", error))
