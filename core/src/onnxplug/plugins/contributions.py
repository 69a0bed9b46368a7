"""What loaded plugins supply besides EPs: selection policies, and devices they find."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from onnxplug.errors import PluginConflict, PluginLoadError, PluginNotFound
from onnxplug.plugins.library import Library
from onnxplug.plugins.names import nearest
from onnxplug.plugins.record import Loaded, PluginRecord, log
from onnxplug.plugins.settings import BLOCK
from onnxplug.plugins.table import PluginTable

if TYPE_CHECKING:
    from onnxplug.ep import HardwareDevice, Host, SelectionPolicy

_T = TypeVar("_T")

_Contributions: TypeAlias = "dict[str, list[tuple[PluginRecord, SelectionPolicy]]]"


def policies(table: PluginTable) -> dict[str, SelectionPolicy]:
    """See :meth:`onnxplug.plugins.PluginRegistry.policies`."""
    contributions = _policy_contributions(table)
    return {
        name: contributions[name][0][1]
        for name in sorted(contributions)
        if len(contributions[name]) < 2
    }


def policy(table: PluginTable, name: str) -> SelectionPolicy:
    """See :meth:`onnxplug.plugins.PluginRegistry.policy`."""
    contributions = _policy_contributions(table)
    if name not in contributions:
        raise PluginNotFound(
            f"no loaded plugin supplies a selection policy named {name!r}."
            f"{nearest(name, contributions)}\n"
            f"Policies of plugins: {', '.join(sorted(contributions)) or 'none'}.",
            plugin=name,
        )
    if len(contributions[name]) > 1:
        owners = " and ".join(str(record) for record, _ in contributions[name])
        raise PluginConflict(
            f"{owners} both supply a selection policy named {name!r}, so neither "
            f"is used; keep one of them out with {BLOCK}",
            plugin=name,
        )
    return contributions[name][0][1]


def probe_hardware(table: PluginTable, host: Host | None) -> list[HardwareDevice]:
    """See :meth:`onnxplug.plugins.PluginRegistry.probe_hardware`."""
    found: list[HardwareDevice] = []
    for _, devices in _ask_loaded(table, lambda each: each.probe_hardware(host)):
        found.extend(device for device in devices if device not in found)
    return found


def _policy_contributions(table: PluginTable) -> _Contributions:
    contributions: _Contributions = {}
    for record, supplied in _ask_loaded(table, Library.policies):
        for name, function in supplied.items():
            contributions.setdefault(name, []).append((record, function))
    return contributions


def _ask_loaded(
    table: PluginTable, ask: Callable[[Library], _T]
) -> list[tuple[PluginRecord, _T]]:
    """What each loaded library answers, with the first record that it supplies."""
    first: dict[int, PluginRecord] = {}
    for record in table.records():
        if isinstance(record, Loaded):
            first.setdefault(id(record.library), record)
    answers: list[tuple[PluginRecord, _T]] = []
    errors: list[Exception] = []
    for record in first.values():
        try:
            answers.append((record, ask(record.library)))
        except PluginLoadError as error:
            errors.append(error)
            log(error)
    table.settings.raise_if_strict(errors)
    return answers
