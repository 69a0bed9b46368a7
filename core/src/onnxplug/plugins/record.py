"""What is known of an EP's plugin."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnxplug.ep import EpFactory
    from onnxplug.plugins.advertised import FoundPlugin
    from onnxplug.plugins.library import Library
    from onnxplug.plugins.registered import LibraryRecord


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


class PluginRecord:
    """What is known of one EP name.

    Attributes:
        name: the EP's name.
        library: what is loaded to get it, shared by the EPs that it supplies.
        suppliers: the installed plugins of that name; none for one that was
            registered by hand.
        state: where it is in its life.
        reason: why it is not usable; empty when it is.
        error: the exception kept from loading.
        factory: what it supplied, once ready.
        handles: the libraries registered by hand that supply it, by their handles.
        sessions: those that use it now.
    """

    def __init__(
        self, name: str, library: Library, suppliers: Sequence[FoundPlugin] = ()
    ) -> None:
        self.name = name
        self.library = library
        self.suppliers = list(suppliers)
        self.state = PluginState.FOUND
        self.reason = ""
        self.error: BaseException | None = None
        self.factory: EpFactory | None = None
        self.handles: dict[str, LibraryRecord] = {}
        self.sessions: weakref.WeakSet[object] = weakref.WeakSet()

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
    def problems(self) -> Mapping[str, str]:
        """What went wrong in its optional hooks, by hook; its EPs work all the same."""
        return self.library.problems

    def __str__(self) -> str:
        source = f"{self.distribution} {self.version}".rstrip()
        return f"plugin {self.name} ({source})"
