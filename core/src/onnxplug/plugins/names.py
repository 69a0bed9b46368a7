"""The names by which an EP may be called, by users and in settings.

Invariant: a name stands for the EP of that very name before all others, then for the
one whose name without its suffix it is, then for those of ``onnxplug-<name>``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from onnxplug.errors import PluginError, PluginNotFound

if TYPE_CHECKING:
    from onnxplug.plugins.record import PluginRecord

_SUFFIX: Final = "executionprovider"
PREFIX: Final = "onnxplug-"
"""What the names of onnxplug's own distributions begin with."""


def short_name(ep: str) -> str:
    """An EP's name in lower case and without its suffix."""
    return ep.lower().removesuffix(_SUFFIX)


def normal_distribution(distribution: str) -> str:
    """A distribution's name, spelled as the package index compares it."""
    return distribution.lower().replace("_", "-").replace(".", "-")


def distribution_suffixes(record: PluginRecord) -> set[str]:
    """What follows ``onnxplug-`` in the names of an EP's suppliers.

    No more than that: anyone may publish a distribution named ``cpu``.
    """
    names = (normal_distribution(plugin.distribution) for plugin in record.suppliers)
    return {name.removeprefix(PREFIX) for name in names if name.startswith(PREFIX)}


def _fitting(name: str, records: Sequence[PluginRecord]) -> list[PluginRecord]:
    """The records that *name* may stand for; more than one if it is ambiguous."""
    wanted = short_name(name)
    tests: tuple[Callable[[PluginRecord], bool], ...] = (
        lambda record: record.name == name,
        lambda record: short_name(record.name) == wanted,
        lambda record: name.lower() in distribution_suffixes(record),
    )
    for test in tests:
        found = [record for record in records if test(record)]
        if found:
            return found
    return []


def resolve(name: str, records: Sequence[PluginRecord]) -> PluginRecord:
    """The one record that *name* stands for.

    Raises:
        PluginNotFound: there is none.
        PluginError: the name fits several.
    """
    found = _fitting(name, records)
    if len(found) == 1:
        return found[0]
    if found:
        raise PluginError(
            f"{name!r} fits several EPs: {', '.join(r.name for r in found)}; "
            "write the whole name",
            plugin=name,
        )
    known = [record.name for record in records]
    raise PluginNotFound(
        f"no installed plugin supplies an EP named {name!r}.{nearest(name, known)}\n"
        f"Installed EPs: {', '.join(known) or 'none'}; "
        "each comes with a distribution of its own, such as onnxplug-cpu.",
        plugin=name,
    )


def nearest(name: str, known: Iterable[str]) -> str:
    """A question that names the nearest of *known*; empty when none is near."""
    import difflib

    names = dict.fromkeys(map(short_name, known))
    near = difflib.get_close_matches(short_name(name), names, n=2)
    return f"  Did you mean {' or '.join(map(repr, near))}?" if near else ""
