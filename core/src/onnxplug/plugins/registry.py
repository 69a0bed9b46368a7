"""The life of plugins: found, loading, ready; or what kept them from it.

Invariant: a library is loaded at most once, when one of its EPs is first asked for,
and what went wrong then is kept and told again.  While one is imported its own lock
is held, and never that of the table.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from onnxplug.ep import EpFactory
from onnxplug.ep.locks import new_lock, new_rlock
from onnxplug.errors import (
    LibraryInUse,
    PluginBlocked,
    PluginConflict,
    PluginError,
    PluginLoadError,
    PluginNotFound,
)
from onnxplug.guard import FAILURES, ep_failure
from onnxplug.plugins.find import find_plugins
from onnxplug.plugins.group import group_plugins
from onnxplug.plugins.library import Library, check_factory
from onnxplug.plugins.load import (
    error_of,
    fail,
    load_found,
    settle,
    undone_on_error,
)
from onnxplug.plugins.names import nearest, resolve, short_name
from onnxplug.plugins.record import PluginRecord, PluginState
from onnxplug.plugins.settings import BLOCK, STRICT, Settings, read_settings

if TYPE_CHECKING:
    from onnxplug.ep import HardwareDevice, Host
    from onnxplug.plugins.target import LibraryRecord, Target

_T = TypeVar("_T")


class PluginRegistry:
    """All plugins of the process.  Its methods may be called from any thread.

    Args:
        environment: where the settings are; ``None``: the process's variables.
    """

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self._environment = environment
        self._lock = new_lock()
        self._records: dict[str, PluginRecord] | None = None
        self._settings: Settings | None = None
        self._handle_locks: defaultdict[str, threading.RLock] = defaultdict(new_rlock)
        self._thread = threading.local()

    # Finding...

    @property
    def settings(self) -> Settings:
        """What the environment says, read when it is first needed.

        Raises:
            OptionError: a variable has a value that is not understood.
        """
        settings = self._settings
        if settings is None:
            settings = self._settings = read_settings(self._environment)
        return settings

    def records(self) -> list[PluginRecord]:
        """One record per EP name, sorted; nothing is imported.

        Raises:
            OptionError: a variable has a value that is not understood.
        """
        table = self._table()
        with self._lock:
            return [table[name] for name in sorted(table)]

    def refresh(self) -> None:
        """Read settings and metadata anew; what is loaded and not blocked now stays.

        For programs that install a plugin or change a variable while they run.
        """
        settings = read_settings(self._environment)
        fresh = group_plugins(find_plugins(), settings)
        with self._lock:
            for name, record in (self._records or {}).items():
                found = fresh.get(name)
                if record.state is PluginState.READY and (
                    found is None or found.state is PluginState.FOUND
                ):
                    fresh[name] = record
            self._settings, self._records = settings, fresh

    def resolve(self, name: str) -> PluginRecord:
        """The record of an EP, by its name, the name without its suffix, or what
        follows ``onnxplug-`` in that of its distribution; case does not matter.

        Raises:
            PluginNotFound: there is none.
            PluginError: the name fits several.
        """
        return resolve(name, self.records())

    def _resolve_installed(self, name: str) -> PluginRecord:
        return resolve(name, [each for each in self.records() if each.suppliers])

    def _table(self) -> dict[str, PluginRecord]:
        table = self._records
        if table is None:
            # two threads may both look; the first to be done is believed
            settings = read_settings(self._environment)
            found = group_plugins(find_plugins(), settings)
            with self._lock:
                if self._records is None:
                    self._settings, self._records = settings, found
                table = self._records
        return table

    # Loading...

    def factory(self, name: str) -> EpFactory:
        """The factory of an EP, its plugin loaded if it is not yet.

        Raises:
            PluginError: it cannot be had; the subclass and the text say why.
        """
        record = self.resolve(name)
        if record.state in (PluginState.FOUND, PluginState.LOADING):
            self._refuse_while_loading(f"plugin {record.name}")
            # one lock per library: importing one must not hold up the others
            with record.library.lock:
                if record.state is PluginState.FOUND:
                    self._load(record)
        if record.factory is None:
            raise error_of(record) from record.error
        return record.factory

    def automatic_factories(self) -> list[EpFactory]:
        """The factories of all EPs that may be used without being named, sorted.

        Their plugins are loaded, unless ``ONNXPLUG_AUTOLOAD=0``: then only those
        are told that were named before.  What cannot be used is left out, and a
        plugin that turns out so just now is logged.

        Raises:
            ExceptionGroup: ``ONNXPLUG_STRICT=1``, and a plugin cannot be used for
                another reason than a setting.
        """
        self._refuse_while_loading("all EPs")
        factories: list[EpFactory] = []
        errors: list[Exception] = []
        for record in self.records():
            is_new = record.state is PluginState.FOUND
            is_named_only = not self.settings.autoload
            if record.state is PluginState.BLOCKED or (
                is_named_only and record.state is not PluginState.READY
            ):
                continue
            try:
                factories.append(self.factory(record.name))
            except PluginError as error:
                errors.append(error)
                if is_new:
                    _log(error)
        self._raise_if_strict(errors)
        return factories

    def start_child(self) -> None:
        """In the child of a fork: what a thread that is gone was loading is not."""
        for record in (self._records or {}).values():
            if record.state is PluginState.LOADING and not self._is_loading():
                record.state = PluginState.FOUND

    def _is_loading(self) -> bool:
        """Whether this thread loads a plugin."""
        return bool(getattr(self._thread, "loading", ""))

    def _load(self, record: PluginRecord) -> None:
        library = record.library
        with self._lock:
            together = [
                other
                for other in (self._records or {}).values()
                if other.library is library and other.state is PluginState.FOUND
            ]
        if record not in together:
            together.append(record)
        for each in together:
            each.state = PluginState.LOADING
        try:
            with self._loading(f"plugin {record.name}"):
                factories = load_found(record)
        except FAILURES as error:
            for each in together:
                fail(each, error)
        except BaseException:
            # an interrupt says nothing about the plugin: it may be tried again
            for each in together:
                each.state = PluginState.FOUND
            raise
        else:
            for each in together:
                settle(each, factories)

    @contextmanager
    def _loading(self, what: str) -> Iterator[None]:
        self._thread.loading = what
        try:
            yield
        finally:
            self._thread.loading = ""

    def _refuse_while_loading(self, wanted: str) -> None:
        # two plugins that ask for each other in two threads would wait for ever
        loading = getattr(self._thread, "loading", "")
        if loading:
            raise PluginLoadError(
                f"{loading} asked for {'itself' if wanted == loading else wanted} "
                "while it was being imported; import onnxplug's EPs later",
                plugin=wanted,
            )

    # Registering by hand...

    def add(self, factory: EpFactory) -> PluginRecord:
        """Make *factory* known under its own name, without a handle.

        Raises:
            PluginConflict: the name is taken.
            PluginBlocked: ``ONNXPLUG_BLOCK`` has it.
        """
        library = Library(factory.name, lambda: factory)
        (record,) = self._publish(library, {factory.name: factory}, None)
        return record

    def remove(self, name: str) -> None:
        """Forget an EP that :meth:`add` made known, whether it is in use or not."""
        with self._lock:
            if self._records is not None:
                self._records.pop(name, None)

    def register_ep_library(self, name: str, target: object) -> LibraryRecord:
        """Load a library and make its EPs known.

        Args:
            name: a handle to unregister it by; not the name of an EP.
            target: what the library is, told by its form: an EP's factory, its class,
                or a module or object with hooks; a path to a Python file or an
                extension module (with a separator in it, or ending in ``.py``, ``.so``,
                ``.dll``, ``.dylib`` or ``.pyd``); ``package.module:attribute``; or else
                the name of an EP that is installed.

        Returns:
            what is known of it; the same again if it is registered already.

        Raises:
            PluginConflict: the handle, or the name of an EP, is taken.
            PluginBlocked: a setting keeps it out.
            PluginNotFound: there is no such file, or no such EP is installed.
            PluginError: it cannot be loaded.
        """
        from onnxplug.plugins.target import check_handle, read_target

        check_handle(name)
        self._refuse_while_loading(f"library {name!r}")
        with self._lock:
            handle_lock = self._handle_locks[name]
        with handle_lock:
            aim = read_target(name, target)
            if aim.is_installed:
                aim = aim._replace(source=self._resolve_installed(aim.source).name)
            known = self._by_handle().get(name)
            if known is not None:
                if aim.is_that_of(known):
                    return known
                raise PluginConflict(
                    f"a library is registered as {name!r} already, from "
                    f"{known.source}; unregister it first, or choose another handle",
                    plugin=name,
                )
            self._refuse_blocked(name)
            if aim.is_installed:
                return self._register_installed(name, aim)
            library = aim.library
            with undone_on_error(name, library), self._loading(f"library {name!r}"):
                factories = library.load()
                if not factories:
                    raise LookupError(f"{aim.source} supplies no EP")
                record = aim.record(name, tuple(sorted(factories)))
                self._publish(library, factories, record)
            return record

    def unregister_ep_library(self, name: str) -> None:
        """Forget a library that was registered by hand, and its EPs.

        An EP that is installed, and was registered under *name* besides, stays known.

        Raises:
            PluginNotFound: nothing is registered as *name*.
            LibraryInUse: sessions use its EPs.
        """
        handles = self._by_handle()
        if name not in handles:
            raise PluginNotFound(
                f"no library is registered as {name!r}.{nearest(name, handles)}\n"
                f"Registered libraries: {', '.join(handles) or 'none'}.",
                plugin=name,
            )
        is_installed = handles[name].is_installed
        with self._lock:
            table = self._records or {}
            records = [each for each in table.values() if name in each.handles]
            users = {session for record in records for session in record.sessions}
            if users:
                count = f"{len(users)} session{'s' if len(users) > 1 else ''}"
                eps = " or ".join(each.name for each in records if each.sessions)
                raise LibraryInUse(
                    f"library {name!r} is in use: {count} on {eps}; close what uses "
                    "it first",
                    plugin=name,
                )
            for record in records:
                del record.handles[name]
                if not is_installed:
                    del table[record.name]
        if not is_installed:
            for record in records:
                _close(record)
                record.library.discard()

    def libraries(self) -> list[LibraryRecord]:
        """The libraries that were registered by hand, sorted by handle."""
        return list(self._by_handle().values())

    def _by_handle(self) -> dict[str, LibraryRecord]:
        handles: dict[str, LibraryRecord] = {}
        for record in self.records():
            handles |= record.handles
        return dict(sorted(handles.items()))

    def _register_installed(self, name: str, aim: Target) -> LibraryRecord:
        self.factory(aim.source)
        record = self.resolve(aim.source)
        together = [
            other
            for other in self.records()
            if other.library is record.library and other.state is PluginState.READY
        ]
        eps = tuple(each.name for each in together)
        library = aim.record(name, eps)
        with self._lock:
            for each in together:
                each.handles[name] = library
        return library

    def _publish(
        self,
        library: Library,
        factories: Mapping[str, EpFactory],
        handle: LibraryRecord | None,
    ) -> list[PluginRecord]:
        """All of *factories* become known, or none."""
        self._table()
        made = []
        for name, factory in factories.items():
            self._refuse_blocked(name)
            check_factory(factory)
            record = PluginRecord(name, library)
            record.factory, record.state = factory, PluginState.READY
            if handle is not None:
                record.handles[handle.name] = handle
            made.append(record)
        with self._lock:
            assert self._records is not None
            table = self._records
            for record in made:
                if record.name in table:
                    raise PluginConflict(
                        f"an EP named {record.name!r} is known already, from "
                        f"{table[record.name].distribution}; remove one of the two",
                        plugin=record.name,
                    )
            table.update((record.name, record) for record in made)
        return made

    def _refuse_blocked(self, name: str) -> None:
        if self.settings.blocks({name.lower(), short_name(name)}):
            raise PluginBlocked(
                f"{name!r} is blocked: {BLOCK} has it, which outranks registering; "
                "take it out there to use it",
                plugin=name,
            )

    # Use by sessions...

    def attach(self, ep: str, session: object) -> None:
        """Note that *session* uses an EP, until :meth:`detach` or the session's end.

        Raises:
            PluginNotFound: no EP has exactly this name (any more).
        """
        record = self._table().get(ep)
        if record is None:
            raise PluginNotFound(
                f"no EP is named {ep!r}; was its library unregistered?", plugin=ep
            )
        with self._lock:
            record.sessions.add(session)

    def detach(self, ep: str, session: object) -> None:
        """Note that *session* uses an EP no more; not an error if it never did."""
        record = self._table().get(ep)
        if record is not None:
            with self._lock:
                record.sessions.discard(session)

    # What else plugins supply...

    def policies(self) -> dict[str, Any]:
        """Selection policies of loaded plugins, by name, sorted.

        A name that two plugins want is left out; :meth:`policy` tells of it.

        Raises:
            ExceptionGroup: ``ONNXPLUG_STRICT=1``, and a plugin's hook failed.
        """
        offers = self._policy_offers()
        return {
            name: offers[name][0][1] for name in sorted(offers) if len(offers[name]) < 2
        }

    def policy(self, name: str) -> Any:
        """The selection policy *name* of a loaded plugin.

        Raises:
            PluginNotFound: none supplies it.
            PluginConflict: two do; neither is believed.
        """
        offers = self._policy_offers()
        if name not in offers:
            raise PluginNotFound(
                f"no loaded plugin supplies a selection policy named {name!r}."
                f"{nearest(name, offers)}\n"
                f"Policies of plugins: {', '.join(sorted(offers)) or 'none'}.",
                plugin=name,
            )
        if len(offers[name]) > 1:
            owners = " and ".join(str(record) for record, _ in offers[name])
            raise PluginConflict(
                f"{owners} both supply a selection policy named {name!r}, so neither "
                f"is used; keep one of them out with {BLOCK}",
                plugin=name,
            )
        return offers[name][0][1]

    def probe_hardware(self, host: Host | None = None) -> list[HardwareDevice]:
        """Devices that loaded plugins find and the host does not, without repeats.

        Args:
            host: what the hooks are given; ``None``: a host for each.

        Raises:
            ExceptionGroup: ``ONNXPLUG_STRICT=1``, and a plugin's hook failed.
        """
        asked = self._ask_loaded(lambda library: library.probe_hardware(host))
        found: list[HardwareDevice] = []
        for _, devices in asked:
            found.extend(device for device in devices if device not in found)
        return found

    def _policy_offers(self) -> dict[str, list[tuple[PluginRecord, Any]]]:
        offers: dict[str, list[tuple[PluginRecord, Any]]] = {}
        for record, policies in self._ask_loaded(Library.policies):
            for name, policy in policies.items():
                offers.setdefault(name, []).append((record, policy))
        return offers

    def _ask_loaded(
        self, ask: Callable[[Library], _T]
    ) -> list[tuple[PluginRecord, _T]]:
        """What each loaded library answers, with the first record that it supplies."""
        first: dict[int, PluginRecord] = {}
        for record in self.records():
            if record.state is PluginState.READY:
                first.setdefault(id(record.library), record)
        answers: list[tuple[PluginRecord, _T]] = []
        errors: list[Exception] = []
        for record in first.values():
            try:
                answers.append((record, ask(record.library)))
            except PluginLoadError as error:
                errors.append(error)
                _log(error)
        self._raise_if_strict(errors)
        return answers

    def _raise_if_strict(self, errors: list[Exception]) -> None:
        if errors and self.settings.strict:
            raise ExceptionGroup(f"{STRICT} is set, and plugins are broken", errors)


def _close(record: PluginRecord) -> None:
    assert record.factory is not None
    try:
        record.factory.close()
    except FAILURES as error:  # the library is gone all the same
        _log(ep_failure(record.name, "close", error))


def _log(error: Exception) -> None:
    import logging

    logging.getLogger("onnxplug.plugins").warning("%s", error)
