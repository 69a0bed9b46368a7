"""Loads plugins when one of their EPs is first needed.

Invariant: a library is loaded at most once, and what went wrong then is kept and raised
again.  While one is imported its own lock is held, and never that of the table.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from onnxplug.ep import EpFactory
from onnxplug.errors import PluginError, PluginLoadError
from onnxplug.guard import FAILURES
from onnxplug.interruption import interruption, raise_interruption
from onnxplug.plugins.outcome import accept, error_of, fail, log
from onnxplug.plugins.record import PluginRecord, PluginState
from onnxplug.plugins.requires import check_requirements
from onnxplug.plugins.table import PluginTable


class PluginLoader:
    """Loads what a table has records of."""

    def __init__(self, table: PluginTable) -> None:
        self._table = table
        self._thread = threading.local()

    def factory(self, name: str) -> EpFactory:
        """The factory of an EP, its plugin loaded if it is not yet.

        Raises:
            PluginError: it cannot be had; the subclass and the text say why.
        """
        record = self._table.resolve(name)
        if record.state in (PluginState.FOUND, PluginState.LOADING):
            self.refuse_while_loading(f"plugin {record.name}")
            # one lock per library: importing one must not hold up the others
            with record.library.lock:
                if record.state is PluginState.FOUND:
                    self._load(record)
        if record.factory is None:
            raise error_of(record) from record.error
        return record.factory

    def automatic_factories(self) -> list[EpFactory]:
        """The factories of all EPs that may be used without being named, sorted.

        Raises:
            ExceptionGroup: ``ONNXPLUG_STRICT=1``, and a plugin cannot be used for
                another reason than a setting.
        """
        self.refuse_while_loading("all EPs")
        factories: list[EpFactory] = []
        errors: list[Exception] = []
        for record in self._table.records():
            is_new = record.state is PluginState.FOUND
            is_named_only = not self._table.settings.autoload
            if record.state is PluginState.BLOCKED or (
                is_named_only and record.state is not PluginState.READY
            ):
                continue
            try:
                factories.append(self.factory(record.name))
            except PluginError as error:
                errors.append(error)
                if is_new:
                    log(error)
        self._table.settings.raise_if_strict(errors)
        return factories

    def start_child(self) -> None:
        """In the child of a fork: what a thread that is gone was loading is not."""
        is_loading = bool(getattr(self._thread, "loading", ""))
        for record in self._table.read_records():
            if record.state is PluginState.LOADING and not is_loading:
                record.state = PluginState.FOUND

    @contextmanager
    def loading(self, what: str) -> Iterator[None]:
        """A context in which this thread loads *what*."""
        self._thread.loading = what
        try:
            yield
        finally:
            self._thread.loading = ""

    def refuse_while_loading(self, wanted: str) -> None:
        """Refuse to load *wanted* while this thread loads something.

        Raises:
            PluginLoadError: it does.
        """
        # two plugins that ask for each other in two threads would wait for ever
        loading = getattr(self._thread, "loading", "")
        if loading:
            raise PluginLoadError(
                f"{loading} asked for {'itself' if wanted == loading else wanted} "
                "while it was being imported; import onnxplug's EPs later",
                plugin=wanted,
            )

    def _load(self, record: PluginRecord) -> None:
        with self._table.lock:
            supplied = [
                other
                for other in self._table.read_records()
                if other.library is record.library and other.state is PluginState.FOUND
            ]
        if record not in supplied:
            supplied.append(record)
        for each in supplied:
            each.state = PluginState.LOADING
        try:
            with self.loading(f"plugin {record.name}"):
                factories = _load_found(record)
        except BaseException as error:
            passing = interruption(error)
            if passing is None and isinstance(error, FAILURES):
                for each in supplied:
                    fail(each, error)
                return
            # an interrupt says nothing about the plugin: it may be tried again
            for each in supplied:
                each.state = PluginState.FOUND
            raise_interruption(error)
            raise
        else:
            for each in supplied:
                accept(each, factories)


def _load_found(record: PluginRecord) -> dict[str, EpFactory]:
    """The factories of a found plugin's library.

    Raises:
        PluginIncompatible: its distribution needs another onnxplug.
        Exception: whatever the library raises.
    """
    (supplier,) = record.suppliers
    # before importing: what a newer onnxplug has would be an ImportError otherwise
    check_requirements(supplier)
    return record.library.load()
