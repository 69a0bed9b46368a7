"""Finds plugins from the metadata of installed distributions; imports none of them."""

from __future__ import annotations

import functools
from typing import Any, Final

GROUP: Final = "onnxplug.execution_providers"
"""The entry-point group: the name is the EP's name, the value a module with hooks."""


class FoundPlugin:
    """An EP that an installed distribution says it supplies.

    Attributes:
        name: the EP's name, ``CPUExecutionProvider``.
        module: the module with the hook implementations.
    """

    def __init__(self, name: str, module: str, distribution: Any) -> None:
        self.name = name
        self.module = module
        self._distribution = distribution

    # read when asked for: parsing a distribution's metadata takes milliseconds

    @functools.cached_property
    def distribution(self) -> str:
        """The name of the distribution that advertises the EP."""
        return str(self._distribution.metadata["Name"])

    @functools.cached_property
    def version(self) -> str:
        """The distribution's version."""
        return str(self._distribution.version)


def find_plugins() -> list[FoundPlugin]:
    """Every advertised EP, sorted by name."""
    # imported here and nowhere else: mixed with the standard library's own module
    # it changes the classes that the latter yields
    import importlib_metadata

    found = [
        FoundPlugin(entry_point.name, entry_point.value, entry_point.dist)
        for entry_point in importlib_metadata.entry_points(group=GROUP)
        if entry_point.dist is not None
    ]
    return sorted(found, key=lambda plugin: (plugin.name, plugin.module))
