"""Sorts found plugins by EP, and marks those that settings or conflicts keep out.

Invariant: a record that leaves here as ``found`` has exactly one supplier.
"""

from __future__ import annotations

from collections.abc import Sequence

from onnxplug.plugins.advertised import FoundPlugin
from onnxplug.plugins.library import Library
from onnxplug.plugins.names import (
    distribution_suffixes,
    normal_distribution,
    short_name,
)
from onnxplug.plugins.record import PluginRecord, PluginState
from onnxplug.plugins.settings import BLOCK, PLUGINS, Settings


def group_plugins(
    found: Sequence[FoundPlugin], settings: Settings
) -> dict[str, PluginRecord]:
    """One record per EP name; those that one module supplies share its library."""
    records: dict[str, PluginRecord] = {}
    libraries: dict[str, Library] = {}
    for plugin in found:
        if plugin.module not in libraries:
            libraries[plugin.module] = plugin.library()
        if plugin.name not in records:
            records[plugin.name] = PluginRecord(plugin.name, libraries[plugin.module])
        records[plugin.name].suppliers.append(plugin)
    for record in records.values():
        _apply(settings, record)
        if record.state is PluginState.FOUND:
            record.library = libraries[record.suppliers[0].module]
    return records


def _apply(settings: Settings, record: PluginRecord) -> None:
    """Block *record*, or reduce its suppliers to one, or record the conflict."""
    name, listed = record.name, settings.listed
    if settings.blocked and settings.blocks(
        {name.lower(), short_name(name), *distribution_suffixes(record)}
        | {normal_distribution(plugin.distribution) for plugin in record.suppliers}
    ):
        _block(record, f"{BLOCK} has it; take it out there to use it")
        return
    if listed is not None:
        names = [short_name(name), *sorted(distribution_suffixes(record))]
        match = next((each for each in names if each in listed), None)
        if match is None:
            _block(
                record,
                f"{PLUGINS} lists the EPs to be used, and it is not among them "
                f"({', '.join(listed)}); add {short_name(name)!r} there to use it",
            )
            return
        pinned = listed[match]
        suppliers = [
            plugin
            for plugin in record.suppliers
            if not pinned or normal_distribution(plugin.distribution) == pinned
        ]
        if not suppliers:
            _block(
                record,
                f"{PLUGINS} wants it from {pinned}, and {record.distribution} "
                "supplies it; install the one or write the other",
            )
            return
        record.suppliers = suppliers
    if len(record.suppliers) > 1:
        record.state = PluginState.CONFLICT
        first = min(plugin.distribution for plugin in record.suppliers)
        record.reason = (
            f"{record.distribution} both supply {name}, so neither is loaded; "
            f"uninstall one of them, or list the one to use in {PLUGINS}, such as "
            f"{short_name(name)}@{first}, together with the other EPs you use"
        )


def _block(record: PluginRecord, why: str) -> None:
    record.state = PluginState.BLOCKED
    record.reason = f"{record} is blocked: {why}"
