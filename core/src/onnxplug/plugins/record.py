"""What is known of an EP's plugin: it is found, loaded, or it failed."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from onnxplug.authoring.record import Record
from onnxplug.errors import (
    PluginBlocked,
    PluginConflict,
    PluginError,
    PluginIncompatible,
    PluginLoadError,
)
from onnxplug.plugins.names import PREFIX, normal_distribution

if TYPE_CHECKING:
    from onnxplug.ep import EpFactory
    from onnxplug.plugins.library import Library
    from onnxplug.plugins.metadata import FoundPlugin
    from onnxplug.plugins.target import LibraryRecord


class PluginState(StrEnum):
    """Where a plugin is in its life.

    ``found``, ``loading`` and ``ready`` in this order; the others are where it ends.
    """

    FOUND = "found"
    LOADING = "loading"
    READY = "ready"
    BLOCKED = "blocked"
    CONFLICT = "conflict"
    INCOMPATIBLE = "incompatible"
    FAILED = "failed"


class PluginRecord(Record):
    """What is known of one EP name: :class:`Found`, :class:`Loaded` or :class:`Failed`.

    It is what was so when it was asked for, and does not change.

    Attributes:
        name: the EP's name.
        library: what is loaded to get it, shared by the EPs that it supplies.
        suppliers: the installed plugins of that name; none for one that was
            registered by hand.
    """

    name: str
    library: Library
    suppliers: tuple[FoundPlugin, ...]

    @property
    def state(self) -> PluginState:
        """Where it is in its life."""
        raise NotImplementedError

    @property
    def reason(self) -> str:
        """Why it is not usable; empty when it is."""
        return ""

    @property
    def error(self) -> BaseException | None:
        """The exception kept from loading."""
        return None

    @property
    def factory(self) -> EpFactory | None:
        """What it supplied, once ready."""
        return None

    @property
    def handles(self) -> Mapping[str, LibraryRecord]:
        """The libraries registered by hand that supply it, by their handles."""
        return MappingProxyType({})

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

    @property
    def suffixes(self) -> set[str]:
        """What follows ``onnxplug-`` in the names of its suppliers.

        No more than that: anyone may publish a distribution named ``cpu``.
        """
        names = [normal_distribution(each.distribution) for each in self.suppliers]
        return {name.removeprefix(PREFIX) for name in names if name.startswith(PREFIX)}

    @property
    def problems(self) -> Mapping[str, str]:
        """What went wrong in its optional hooks, by hook; its EPs work all the same."""
        return self.library.problems

    def __str__(self) -> str:
        source = f"{self.distribution} {self.version}".rstrip()
        return f"plugin {self.name} ({source})"


class Found(PluginRecord):
    """An EP that exactly one installed distribution supplies; nothing is imported yet.

    Attributes:
        is_loading: a thread imports it now.
    """

    is_loading: bool = False

    @property
    def state(self) -> PluginState:
        return PluginState.LOADING if self.is_loading else PluginState.FOUND

    def loaded(self, factory: EpFactory) -> Loaded:
        """The same with what it supplied."""
        return Loaded(self.name, self.library, self.suppliers, factory)

    def failed(
        self, state: PluginState, reason: str, error: BaseException | None = None
    ) -> Failed:
        """The same with *reason* why it cannot be had."""
        return Failed(self.name, self.library, self.suppliers, state, reason, error)


class Loaded(PluginRecord):
    """An EP that was loaded, or registered by hand."""

    factory: EpFactory
    handles: Mapping[str, LibraryRecord] = MappingProxyType({})

    @property
    def state(self) -> PluginState:
        return PluginState.READY

    def registered(self, library: LibraryRecord) -> Loaded:
        """The same, supplied by *library* besides."""
        return self._replace(handles={**self.handles, library.name: library})

    def unregistered(self, handle: str) -> Loaded:
        """The same without the library of *handle*."""
        left = {name: each for name, each in self.handles.items() if name != handle}
        return self._replace(handles=left)


class Failed(PluginRecord):
    """An EP that cannot be had: it is kept out, or could not be loaded."""

    state: PluginState
    reason: str
    error: BaseException | None = None

    def exception(self) -> PluginError:
        """What to raise when the EP is asked for."""
        return _EXCEPTIONS[self.state](self.reason, plugin=self.name)


_EXCEPTIONS: Final[Mapping[PluginState, type[PluginError]]] = {
    PluginState.BLOCKED: PluginBlocked,
    PluginState.CONFLICT: PluginConflict,
    PluginState.INCOMPATIBLE: PluginIncompatible,
    PluginState.FAILED: PluginLoadError,
}


def log(error: Exception) -> None:
    """Log what is wrong with a plugin that nobody named, or that is gone."""
    import logging

    logging.getLogger("onnxplug.plugins").warning("%s", error)
