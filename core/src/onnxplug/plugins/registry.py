"""The life of plugins: found, loading, ready; or conflict, incompatible, failed.

Invariant: a plugin is imported at most once, when an EP of its own is first asked
for, and what went wrong then is kept and told again.
"""

from __future__ import annotations

import difflib
import importlib
import logging
import threading
from dataclasses import dataclass, field
from enum import StrEnum

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

_SUFFIX = "executionprovider"


class PluginState(StrEnum):
    """Where a plugin is in its life."""

    FOUND = "found"
    LOADING = "loading"
    READY = "ready"
    CONFLICT = "conflict"
    INCOMPATIBLE = "incompatible"
    FAILED = "failed"


@dataclass(slots=True)
class PluginRecord:
    """What is known of one EP name.

    Attributes:
        name: the EP's name.
        distribution: who supplies it; several names joined when in conflict.
        version: the distribution's version.
        state: where it is in its life.
        reason: why it is not usable; empty when it is.
        error: the exception kept from loading.
        factory: what it supplied, once ready.
    """

    name: str
    distribution: str
    version: str = ""
    state: PluginState = PluginState.FOUND
    reason: str = ""
    error: BaseException | None = None
    factory: EpFactory | None = None
    found: FoundPlugin | None = None
    lock: threading.RLock = field(default_factory=threading.RLock, repr=False)


@dataclass(frozen=True, slots=True)
class _Host:
    version: str
    spi_version: tuple[int, int]
    logger: logging.Logger


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

    def add(self, factory: EpFactory, distribution: str = "registered") -> PluginRecord:
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
        record = PluginRecord(
            factory.name,
            distribution,
            factory.version,
            PluginState.READY,
            factory=factory,
        )
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
        source = f"plugin {record.name} ({record.distribution} {record.version})"
        try:
            record.factory = _load_factory(record)
        except PluginIncompatible as error:
            record.state, record.error = PluginState.INCOMPATIBLE, error
            record.reason = f"{source} is incompatible: {error}"
        # whatever a plugin raises, SystemExit too, is its own failure and not ours
        except (Exception, SystemExit) as error:  # noqa: BLE001
            record.state, record.error = PluginState.FAILED, error
            record.reason = (
                f"{source} could not be loaded: {type(error).__name__}: {error}"
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
        record = records.get(plugin.name)
        if record is None:
            records[plugin.name] = PluginRecord(
                plugin.name, plugin.distribution, plugin.version, found=plugin
            )
            continue
        record.state = PluginState.CONFLICT
        record.distribution += f" and {plugin.distribution}"
        record.reason = (
            f"{record.distribution} both supply {plugin.name}, so neither is loaded; "
            "uninstall one of them"
        )
    return records


def _load_factory(record: PluginRecord) -> EpFactory:
    from onnxplug import __version__

    assert record.found is not None
    module = importlib.import_module(record.found.module)
    manager = pluggy.PluginManager("onnxplug")
    manager.add_hookspecs(hookspecs)
    manager.register(module)
    manager.check_pending()
    host = _Host(
        __version__,
        SPI_VERSION,
        logging.getLogger(f"onnxplug.plugin.{record.distribution}"),
    )
    factories = {f.name: f for f in manager.hook.onnxplug_ep_factories(host=host) or ()}
    if record.name not in factories:
        raise LookupError(
            f"{record.found.module} supplies {sorted(factories) or 'no EP'}, "
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
