"""The life of plugins: found, loading, ready; or conflict, incompatible, failed.

Invariant: a plugin is imported at most once, when an EP of its own is first asked
for, and what went wrong then is kept and told again.
"""

from __future__ import annotations

import difflib
import importlib
import threading
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

import pluggy

from onnxplug import hookspecs
from onnxplug.ep import SPI_VERSION, EpFactory
from onnxplug.errors import (
    PluginConflict,
    PluginError,
    PluginIncompatible,
    PluginLoadError,
    PluginNotFound,
)
from onnxplug.plugins.find import FoundPlugin, find_plugins

if TYPE_CHECKING:
    import logging

_SUFFIX = "executionprovider"


class PluginState(StrEnum):
    """Where a plugin is in its life."""

    FOUND = "found"
    LOADING = "loading"
    READY = "ready"
    CONFLICT = "conflict"
    INCOMPATIBLE = "incompatible"
    FAILED = "failed"


class PluginRecord:
    """What is known of one EP name.

    Attributes:
        name: the EP's name.
        state: where it is in its life.
        reason: why it is not usable; empty when it is.
        error: the exception kept from loading.
        factory: what it supplied, once ready.
        suppliers: the installed plugins of that name; none for one that was
            registered by hand.
        lock: held while the plugin is loaded.
    """

    def __init__(
        self,
        name: str,
        suppliers: Sequence[FoundPlugin] = (),
        factory: EpFactory | None = None,
    ) -> None:
        self.name = name
        self.suppliers = list(suppliers)
        self.state = PluginState.READY if factory else PluginState.FOUND
        self.reason = ""
        self.error: BaseException | None = None
        self.factory = factory
        self.lock = threading.RLock()

    @property
    def distribution(self) -> str:
        """Who supplies it; several names joined when in conflict."""
        names = [plugin.distribution for plugin in self.suppliers]
        return " and ".join(sorted(names)) or "registered"

    @property
    def version(self) -> str:
        """The supplier's version; empty when in conflict."""
        if len(self.suppliers) == 1:
            return self.suppliers[0].version
        return self.factory.version if self.factory else ""


class _Host:
    """See :class:`onnxplug.ep.Host`."""

    spi_version = SPI_VERSION

    def __init__(self, plugin: str) -> None:
        self._plugin = plugin

    @property
    def version(self) -> str:
        from onnxplug import __version__

        return __version__

    @property
    def logger(self) -> logging.Logger:
        import logging

        return logging.getLogger(f"onnxplug.plugin.{self._plugin}")


class PluginRegistry:
    """All plugins of the process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._records: dict[str, PluginRecord] | None = None

    def records(self) -> list[PluginRecord]:
        """One record per EP name, sorted; nothing is imported."""
        with self._lock:
            if self._records is None:
                self._records = _group(find_plugins())
            return list(self._records.values())

    def add(self, factory: EpFactory) -> PluginRecord:
        """Make *factory* known under its own name.

        Raises:
            PluginConflict: the name is taken.
        """
        known = {record.name: record for record in self.records()}
        if factory.name in known:
            raise PluginConflict(
                f"an EP named {factory.name!r} is known already, from "
                f"{known[factory.name].distribution}; remove one of the two",
                plugin=factory.name,
            )
        _check_version(factory)
        record = PluginRecord(factory.name, factory=factory)
        with self._lock:
            assert self._records is not None
            self._records[factory.name] = record
        return record

    def remove(self, name: str) -> None:
        """Forget a factory that :meth:`add` made known."""
        with self._lock:
            if self._records is not None:
                self._records.pop(name, None)

    def resolve(self, name: str) -> PluginRecord:
        """The record of an EP, by its name, the name without its suffix, or the
        distribution's own suffix; case does not matter.

        Raises:
            PluginNotFound: there is none.
            PluginError: the name fits several.
        """
        records = self.records()
        wanted = _short(name)
        exact = [record for record in records if record.name == name]
        fitting = exact or [
            record
            for record in records
            if wanted in (_short(record.name), _distribution_suffix(record))
        ]
        if len(fitting) == 1:
            return fitting[0]
        if fitting:
            raise PluginError(
                f"{name!r} fits several EPs: {', '.join(r.name for r in fitting)}; "
                "write the whole name",
                plugin=name,
            )
        raise PluginNotFound(_not_found(name, records), plugin=name)

    def factory(self, name: str) -> EpFactory:
        """The factory of an EP, its plugin loaded if it is not yet.

        Raises:
            PluginError: it cannot be had; the subclass and the text say why.
        """
        record = self.resolve(name)
        # one lock per plugin: importing one must not hold up the others
        with record.lock:
            if record.state is PluginState.FOUND:
                self._load(record)
            if record.state is PluginState.LOADING:
                raise PluginLoadError(
                    f"plugin {record.name} ({record.distribution}) asked for itself "
                    "while it was being imported; import onnxplug's EPs later",
                    plugin=record.name,
                )
        if record.factory is None:
            kind = _ERRORS[record.state]
            raise kind(record.reason, plugin=record.name) from record.error
        return record.factory

    def _load(self, record: PluginRecord) -> None:
        record.state = PluginState.LOADING
        try:
            record.factory = _load_factory(record)
        except PluginIncompatible as error:
            record.state, record.error = PluginState.INCOMPATIBLE, error
            record.reason = f"{_source(record)} is incompatible: {error}"
        # whatever a plugin raises, SystemExit too, is its own failure and not ours
        except (Exception, SystemExit) as error:  # noqa: BLE001
            record.state, record.error = PluginState.FAILED, error
            record.reason = (
                f"{_source(record)} could not be loaded: "
                f"{type(error).__name__}: {error}"
            )
        else:
            record.state = PluginState.READY


_ERRORS: dict[PluginState, type[PluginError]] = {
    PluginState.CONFLICT: PluginConflict,
    PluginState.INCOMPATIBLE: PluginIncompatible,
    PluginState.FAILED: PluginLoadError,
}


def _group(found: list[FoundPlugin]) -> dict[str, PluginRecord]:
    records: dict[str, PluginRecord] = {}
    for plugin in found:
        record = records.setdefault(plugin.name, PluginRecord(plugin.name))
        record.suppliers.append(plugin)
    for record in records.values():
        if len(record.suppliers) > 1:
            record.state = PluginState.CONFLICT
            record.reason = (
                f"{record.distribution} both supply {record.name}, so neither is "
                "loaded; uninstall one of them"
            )
    return records


def _load_factory(record: PluginRecord) -> EpFactory:
    (supplier,) = record.suppliers
    module = importlib.import_module(supplier.module)
    manager = pluggy.PluginManager("onnxplug")
    manager.add_hookspecs(hookspecs)
    manager.register(module)
    manager.check_pending()
    host = _Host(supplier.module)
    factories = {f.name: f for f in manager.hook.onnxplug_ep_factories(host=host) or ()}
    if record.name not in factories:
        raise LookupError(
            f"{supplier.module} supplies {sorted(factories) or 'no EP'}, "
            f"and not {record.name!r}, which its entry point is named for"
        )
    factory: EpFactory = factories[record.name]
    _check_version(factory)
    return factory


def _check_version(factory: EpFactory) -> None:
    major, minor = factory.spi_version
    if major != SPI_VERSION[0] or minor > SPI_VERSION[1]:
        raise PluginIncompatible(
            f"written for SPI {major}.{minor}, and this onnxplug speaks "
            f"{SPI_VERSION[0]}.{SPI_VERSION[1]}; "
            + (
                "upgrade onnxplug"
                if (major, minor) > SPI_VERSION
                else "upgrade the plugin"
            ),
            plugin=factory.name,
        )


def _source(record: PluginRecord) -> str:
    return f"plugin {record.name} ({record.distribution} {record.version})"


def _short(name: str) -> str:
    return name.lower().removesuffix(_SUFFIX)


def _distribution_suffix(record: PluginRecord) -> str:
    return record.distribution.lower().removeprefix("onnxplug-")


def _not_found(name: str, records: list[PluginRecord]) -> str:
    installed = [record.name for record in records]
    near = difflib.get_close_matches(
        _short(name), [_short(known) for known in installed], n=1
    )
    hint = f"  Did you mean {near[0]!r}?" if near else ""
    return (
        f"no installed plugin supplies an EP named {name!r}.{hint}\n"
        f"Installed EPs: {', '.join(installed) or 'none'}; "
        "each comes with a distribution of its own, such as onnxplug-cpu."
    )
