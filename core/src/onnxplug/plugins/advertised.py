"""What installed distributions advertise in their metadata; none is imported."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from onnxplug.interruption import raise_interruption
from onnxplug.plugins.installed import InstalledDistribution, search_path

if TYPE_CHECKING:
    from onnxplug.plugins.library import Library


class FoundPlugin:
    """An EP, or a domain, that an installed distribution says it supplies.

    Attributes:
        name: the EP's name, ``CPUExecutionProvider``, or the domain's.
        module: the module with the hook implementations.
    """

    def __init__(self, name: str, module: str, distribution: Any) -> None:
        self.name = name
        self.module = module
        self._distribution = distribution

    # Read when asked for, and by hand: the lines wanted are found in some 50 µs, where
    # importing and running the parser of e-mail headers takes tens of milliseconds.

    def library(self) -> Library:
        """What is loaded to get it."""
        from onnxplug.plugins.library import Library

        return Library.of_module(self.module)

    @property
    def distribution(self) -> str:
        """The name of the distribution that advertises it."""
        return next(self._lines("Name"), "an unnamed distribution")

    @property
    def version(self) -> str:
        """The distribution's version."""
        return next(self._lines("Version"), "")

    @property
    def requirements(self) -> list[str]:
        """What the distribution needs, as it says: ``onnxplug>=0.1,<0.2``."""
        return list(self._lines("Requires-Dist"))

    def _lines(self, key: str) -> Iterator[str]:
        for line in self._header:
            name, _, value = line.partition(":")
            if name.lower() == key.lower():
                yield value.strip()

    @functools.cached_property
    def _header(self) -> list[str]:
        try:
            text = self._distribution.read_text("METADATA") or ""
            text = text or self._distribution.read_text("PKG-INFO") or ""
        except UnicodeDecodeError:
            return []
        lines = text.splitlines()
        return lines[: lines.index("")] if "" in lines else lines


def find_advertised(
    group: str, distributions: Sequence[InstalledDistribution] | None
) -> list[FoundPlugin]:
    """What is advertised in a group of entry points.

    Args:
        distributions: where to look; ``None``: wherever ``importlib_metadata`` does.
    """
    if distributions is None:
        entry_points = list(_of_the_library(group))
    else:
        entry_points = [
            entry_point
            for distribution in distributions
            for entry_point in _read(distribution, lambda d: d.entry_points(group))
        ]
    return [
        FoundPlugin(entry_point.name, entry_point.value, entry_point.dist)
        for entry_point in entry_points
        if entry_point.dist is not None
    ]


def _of_the_library(group: str) -> Iterator[Any]:
    """The entry points of those distributions that ``importlib_metadata`` can read."""
    # imported here and nowhere else; see onnxplug.plugins.installed
    import importlib_metadata

    seen = set()
    # one by one: a malformed entry_points.txt, be it of no plugin of ours, would break
    # the listing of all
    for distribution in importlib_metadata.distributions(path=search_path()):
        entry_points = _read(distribution, lambda d: d.entry_points.select(group=group))
        if not entry_points:
            continue
        # as in importlib_metadata, the first on sys.path wins
        name = FoundPlugin("", "", distribution).distribution.lower()
        if name not in seen:
            seen.add(name)
            yield from entry_points


def _read(distribution: Any, entry_points: Callable[[Any], Iterable[Any]]) -> list[Any]:
    """The entry points of *distribution*; nothing, and a warning, if broken."""
    try:
        return list(entry_points(distribution))
    except Exception as error:  # noqa: BLE001  # one must not break the listing of all
        raise_interruption(error)
        import logging

        logging.getLogger("onnxplug.plugins").warning(
            "the entry points of %s cannot be read, so it is left out: %s: %s",
            distribution,
            type(error).__name__,
            error,
        )
        return []
