"""Loads plugins when one of their EPs is first needed.

Invariant: a library is loaded at most once, and what went wrong then is kept and raised
again.  While one is imported its own lock is held, and never that of the table.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from onnxplug.ep import EpFactory
from onnxplug.errors import (
    OnnxplugError,
    PluginError,
    PluginIncompatible,
    PluginLoadError,
)
from onnxplug.guard import FAILURES
from onnxplug.interruption import interruption, raise_interruption
from onnxplug.plugins.library import check_factory
from onnxplug.plugins.names import short_name
from onnxplug.plugins.record import Failed, Found, Loaded, PluginState, log
from onnxplug.plugins.requires import check_requirements
from onnxplug.plugins.settings import BLOCK
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
        while isinstance(record, Found):
            self.refuse_while_loading(f"plugin {record.name}")
            # one lock per library: importing one must not hold up the others
            with record.library.lock:
                known = self._table.get(record.name) or record
                if known.library is record.library and isinstance(known, Found):
                    known = self._load(known)
            record = known
        if isinstance(record, Failed):
            raise record.exception() from record.error
        assert isinstance(record, Loaded)
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
        for name in [record.name for record in self._table.records()]:
            record = self._table.get(name)  # one library may supply several
            if (
                record is None
                or record.state is PluginState.BLOCKED
                or not (self._table.settings.autoload or isinstance(record, Loaded))
            ):
                continue
            is_new = record.state is PluginState.FOUND
            try:
                factories.append(self.factory(name))
            except PluginError as error:
                errors.append(error)
                if is_new:
                    log(error)
        self._table.settings.raise_if_strict(errors)
        return factories

    def start_child(self) -> None:
        """In the child of a fork: what a thread that is gone was loading is not."""
        if not getattr(self._thread, "loading", ""):
            self._table.replace(
                record._replace(is_loading=False)
                for record in self._table.read_records()
                if isinstance(record, Found) and record.is_loading
            )

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

    def _load(self, wanted: Found) -> Loaded | Failed:
        """What comes of *wanted*; all that its library supplies is in the table."""
        others = [
            record
            for record in self._table.records()
            if isinstance(record, Found)
            and record.library is wanted.library
            and record.name != wanted.name
        ]
        supplied = [wanted, *others]
        self._table.replace(each._replace(is_loading=True) for each in supplied)
        try:
            with self.loading(f"plugin {wanted.name}"):
                (supplier,) = wanted.suppliers
                # before importing: what a newer onnxplug has would be an ImportError
                check_requirements(supplier)
                factories = wanted.library.load()
        except BaseException as error:
            # an interrupt says nothing about the plugin: it may be tried again
            if interruption(error) is not None or not isinstance(error, FAILURES):
                self._table.replace(supplied)
                raise_interruption(error)
                raise
            outcomes: list[Loaded | Failed] = [
                _failed(each, error) for each in supplied
            ]
        else:
            outcomes = [_accepted(each, factories) for each in supplied]
        self._table.replace(outcomes)
        return outcomes[0]


def _accepted(found: Found, supplied: Mapping[str, EpFactory]) -> Loaded | Failed:
    """*found* with what its library supplied for it."""
    try:
        if found.name not in supplied:
            raise LookupError(
                f"{found.library.source} supplies {sorted(supplied) or 'no EP'}, "
                f"and not {found.name!r}, which its entry point is named for"
            )
        check_factory(supplied[found.name])
    except FAILURES as error:  # spi_version is what the plugin wrote, or forgot
        raise_interruption(error)
        return _failed(found, error)
    return found.loaded(supplied[found.name])


def _failed(found: Found, error: BaseException) -> Loaded | Failed:
    """*found* with why it could not be loaded."""
    if isinstance(error, PluginIncompatible):
        reason = f"{found} is incompatible: {error}"
        return found.failed(PluginState.INCOMPATIBLE, reason, error)
    remedy = error.remedy if isinstance(error, OnnxplugError) else ""
    if not remedy:
        remedy = (
            f"install {found.distribution} again, with all that it needs"
            if isinstance(error, ImportError)
            else f"tell the makers of {found.distribution}"
        )
    return found.failed(
        PluginState.FAILED,
        f"{found} could not be loaded: {type(error).__name__}: {error}\n"
        f"To remedy this, {remedy}; {BLOCK}={short_name(found.name)} leaves it out.",
        error,
    )
