"""Finds plugins from the metadata of installed distributions; imports none of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

GROUP: Final = "onnxplug.execution_providers"
"""The entry-point group: the name is the EP's name, the value a module with hooks."""


@dataclass(frozen=True, slots=True)
class FoundPlugin:
    """An EP that an installed distribution says it supplies.

    Attributes:
        name: the EP's name, ``CPUExecutionProvider``.
        distribution: the distribution that advertises it.
        version: the distribution's version.
        module: the module with the hook implementations.
        entry_point: what loads it.
    """

    name: str
    distribution: str
    version: str
    module: str
    entry_point: Any


def find_plugins() -> list[FoundPlugin]:
    """Every advertised EP, sorted by name and distribution."""
    # imported here and nowhere else: mixed with the standard library's own module
    # it changes the classes that the latter yields
    import importlib_metadata

    found = [
        FoundPlugin(
            entry_point.name,
            entry_point.dist.metadata["Name"],
            entry_point.dist.version,
            entry_point.value,
            entry_point,
        )
        for entry_point in importlib_metadata.entry_points(group=GROUP)
        if entry_point.dist is not None
    ]
    return sorted(found, key=lambda plugin: (plugin.name, plugin.distribution))
