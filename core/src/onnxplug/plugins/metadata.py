"""What installed distributions advertise in their metadata; none is imported.

``importlib_metadata`` does so for every way of being installed.  Importing it takes
longer than making a session, though, and from then on the standard library's own module
yields other classes to the whole program.  Nearly all distributions are folders of text
in a folder of ``sys.path``, and those are read here.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from onnxplug.interruption import raise_interruption
from onnxplug.plugins.library import Library
from onnxplug.search_path import METADATA, finders_are_usual, search_path


class InstalledDistribution:
    """A distribution, as the folder with its metadata.

    Attributes:
        name: the distribution's, in lower case and with dashes only.
    """

    def __init__(self, folder: str, name: str = "") -> None:
        self._folder = folder
        self.name = name

    def locate_file(self, path: str) -> str:
        """Where a file of the distribution is."""
        return os.path.join(os.path.dirname(self._folder), path)

    def read_text(self, name: str) -> str | None:
        """The text of one of its files; ``None`` if there is none.

        Raises:
            UnicodeDecodeError: it is no text in UTF-8.
        """
        try:
            with open(os.path.join(self._folder, name), encoding="utf-8") as file:
                return file.read()
        except OSError:
            return None

    def plugins(self, group: str) -> list[FoundPlugin]:
        """What it advertises in *group*.

        Raises:
            ValueError: its list cannot be read.
        """
        text = self.read_text("entry_points.txt") or ""
        if group not in text:
            return []
        return [FoundPlugin(*pair, self) for pair in _pairs(text, group)]

    def __str__(self) -> str:
        return self._folder


def installed_distributions() -> list[InstalledDistribution] | None:
    """The distributions on the :func:`search_path`, of each name the first.

    ``None`` when there may be others: in an archive, an egg, or known to some finder.
    """
    if not finders_are_usual():
        return None
    found: dict[str, InstalledDistribution] = {}
    for path in search_path():
        if path.endswith(".egg"):
            return None
        try:
            children = os.listdir(path)
        except NotADirectoryError:
            return None
        except OSError:
            continue
        for child in children:
            stem, extension = os.path.splitext(child.lower())
            if extension in METADATA:
                name = re.sub(r"[-_.]+", "-", stem.partition("-")[0])
                if name not in found:
                    found[name] = InstalledDistribution(os.path.join(path, child), name)
    return list(found.values())


def _pairs(text: str, group: str) -> Iterator[tuple[str, str]]:
    section = None
    for line in map(str.strip, text.splitlines()):
        if line.startswith("[") and line.endswith("]"):
            section = line.strip("[]")
        elif section == group and line and not line.startswith("#"):
            name, equals, value = line.partition("=")
            if not equals:
                raise ValueError(f"{line!r} is no entry point, which is a name = value")
            yield name.strip(), value.strip()


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
        return list(_of_the_library(group))
    return [
        plugin
        for distribution in distributions
        for plugin in _read(distribution, lambda each: each.plugins(group))
    ]


def _of_the_library(group: str) -> Iterator[FoundPlugin]:
    """The plugins of those distributions that ``importlib_metadata`` can read."""
    # imported here and nowhere else; see the head of this file
    import importlib_metadata

    seen = set()
    # one by one: a malformed entry_points.txt, be it of no plugin of ours, would break
    # the listing of all
    for distribution in importlib_metadata.distributions(path=search_path()):
        plugins = _read(
            distribution,
            lambda each: [
                FoundPlugin(entry_point.name, entry_point.value, each)
                for entry_point in each.entry_points.select(group=group)
            ],
        )
        # as in importlib_metadata, the first on sys.path wins
        if plugins and (name := plugins[0].distribution.lower()) not in seen:
            seen.add(name)
            yield from plugins


def _read(
    distribution: Any, plugins: Callable[[Any], list[FoundPlugin]]
) -> list[FoundPlugin]:
    """The *plugins* of *distribution*; none, and a warning, if they cannot be read."""
    try:
        return plugins(distribution)
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
