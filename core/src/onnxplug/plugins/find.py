"""Finds the plugins of installed distributions; imports none of them.

Invariant: an EP that leaves here as found has exactly one supplier.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from onnxplug.plugins.library import Library
from onnxplug.plugins.metadata import (
    FoundPlugin,
    find_advertised,
    installed_distributions,
)
from onnxplug.plugins.names import normal_distribution, short_name
from onnxplug.plugins.record import Failed, Found, PluginRecord, PluginState
from onnxplug.plugins.settings import BLOCK, PLUGINS, Settings

GROUP: Final = "onnxplug.execution_providers"
"""The entry-point group: the name is the EP's name, the value a module with hooks."""

WHEELS: Final = ("onnxruntime-ep-", "nxrt-ep-", "onnxruntime-ggml", "onnxruntime-qnn")
"""What the names of wheels begin with that have native EPs made for ONNX Runtime."""


def find_plugins(group: str) -> list[FoundPlugin]:
    """What is advertised in *group*, and native EPs with the EPs, sorted by name."""
    distributions = installed_distributions()
    found = find_advertised(group, distributions)
    if group == GROUP:
        wheels = [each for each in distributions or () if each.name.startswith(WHEELS)]
        if wheels:
            from onnxplug.plugins.wheels import find_in_wheels

            found += find_in_wheels(wheels)
    return sorted(found, key=lambda plugin: (plugin.name, plugin.module))


def group_plugins(
    plugins: Sequence[FoundPlugin], settings: Settings
) -> dict[str, PluginRecord]:
    """Each EP by name, found, or kept out by *settings* or a conflict.

    Those that one module supplies share its library.
    """
    suppliers: dict[str, list[FoundPlugin]] = {}
    libraries: dict[str, Library] = {}
    for plugin in plugins:
        if plugin.module not in libraries:
            libraries[plugin.module] = plugin.library()
        suppliers.setdefault(plugin.name, []).append(plugin)
    return {
        name: _admitted(
            Found(name, libraries[those[0].module], tuple(those)), libraries, settings
        )
        for name, those in suppliers.items()
    }


def _admitted(
    found: Found, libraries: Mapping[str, Library], settings: Settings
) -> Found | Failed:
    """*found* with one supplier, or what keeps it out."""
    name, suppliers, listed = found.name, found.suppliers, settings.listed
    if settings.blocked and settings.blocks(
        {name.lower(), short_name(name), *found.suffixes}
        | {normal_distribution(plugin.distribution) for plugin in suppliers}
    ):
        return _blocked(found, f"{BLOCK} has it; take it out there to use it")
    if listed is not None:
        names = [short_name(name), *sorted(found.suffixes)]
        match = next((each for each in names if each in listed), None)
        if match is None:
            return _blocked(
                found,
                f"{PLUGINS} lists the EPs to be used, and it is not among them "
                f"({', '.join(listed)}); add {short_name(name)!r} there to use it",
            )
        pinned = listed[match]
        suppliers = tuple(
            plugin
            for plugin in suppliers
            if not pinned or normal_distribution(plugin.distribution) == pinned
        )
        if not suppliers:
            return _blocked(
                found,
                f"{PLUGINS} wants it from {pinned}, and {found.distribution} "
                "supplies it; install the one or write the other",
            )
        found = found._replace(
            library=libraries[suppliers[0].module], suppliers=suppliers
        )
    if len(suppliers) == 1:
        return found
    first = min(plugin.distribution for plugin in suppliers)
    return found.failed(
        PluginState.CONFLICT,
        f"{found.distribution} both supply {name}, so neither is loaded; "
        f"uninstall one of them, or list the one to use in {PLUGINS}, such as "
        f"{short_name(name)}@{first}, together with the other EPs you use",
    )


def _blocked(found: Found, why: str) -> Failed:
    return found.failed(PluginState.BLOCKED, f"{found} is blocked: {why}")
