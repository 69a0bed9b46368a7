"""Which of several ways to compute the same was the fastest on a GPU, kept on disk."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from onnxplug import ep
from onnxplug.authoring.entries import Cache, fingerprint
from onnxplug.authoring.locks import new_rlock

DISTRIBUTION: Final = "onnxplug-cuda"
"""Under whose name entries are kept."""

MOST_PLANS: Final = 1024
"""Plans that a library keeps; those that are not are made anew."""

_FORMAT: Final = 1
_ROUNDS: Final = 3
_MOST_NAME: Final = 4096
"""Characters of a way's name, at most."""


class Scratch(Protocol):
    """Memory that nobody else reads; it is given back when this object goes."""

    @property
    def address(self) -> int:
        """Where it is, divided by 256."""


class Bench(Protocol):
    """Measures work on a GPU."""

    def memory(self, nbytes: int) -> Scratch:
        """Memory to measure with, filled with zeros.

        Raises:
            MemoryError: there is none.
        """

    def seconds(self, queue: Callable[[int], None]) -> float:
        """How long what *queue* puts on a stream takes, by the device's own clock.

        Args:
            queue: given the address of a stream; called more than once.

        Raises:
            whatever *queue* raises.
        """


class Choices:
    """The fastest ways for a GPU with these versions of libraries.  Safe for threads.

    Entries are owned by the user and checksummed; one that is damaged, or names no way
    that there is, is measured anew.

    Args:
        kind: what is chosen among, a word for the names of entries.
        machine: what the results depend on: the GPU's name, versions.
    """

    def __init__(
        self,
        kind: str,
        machine: Mapping[str, str],
        logger: logging.Logger,
    ) -> None:
        self._kind = kind
        self._machine = {"format": str(_FORMAT), **machine}
        self._logger = logger
        self._cache = Cache(DISTRIBUTION)
        self._lock = new_rlock()
        self._known: dict[str, str] = {}

    def best(
        self,
        key: str,
        names: Sequence[str],
        measure: Callable[[int], float] | None,
        seconds: float = 0.0,
    ) -> int:
        """The number of the fastest way: as found before, else measured now; the first
        if that is not to be, or all fail.

        Args:
            key: what is computed.
            names: of the ways, which tell them apart with these versions.
            measure: the seconds that the way of a number takes; ``None``: nothing is
                measured.  One that raises is out.
            seconds: after which no other way is tried; 0: all are.
        """
        if len(names) < 2:
            return 0
        entry = self.entry_name(key)
        with self._lock:
            found = self._known.get(entry) or self._kept(entry)
            if found not in names:
                number = measure and self._measured(names, measure, seconds)
                if number is None:
                    return 0
                found = names[number]
                self._logger.info("%s: %s is computed by %s", self._kind, key, found)
                self._cache.store(entry, found.encode())
                self._cache.prune_if_due()
            self._known[entry] = found
        return names.index(found)

    def entry_name(self, key: str) -> str:
        """The name of the entry for *key* on disk."""
        facts = json.dumps([self._kind, self._machine, key], sort_keys=True)
        return f"{self._kind}-{fingerprint(facts).hex()}"

    def _kept(self, entry: str) -> str:
        """The name in an entry; empty if there is none, or it is damaged."""
        content = self._cache.load(entry)
        if content is None or len(content) > _MOST_NAME:
            return ""
        return content.decode(errors="replace")  # what is none of the names is none

    def _measured(
        self, names: Sequence[str], measure: Callable[[int], float], seconds: float
    ) -> int | None:
        """The number of the way that takes the least time; ``None``: all fail."""
        times: dict[int, float] = {}
        end = time.monotonic() + seconds
        for number, name in enumerate(names):
            if times and seconds and time.monotonic() >= end:
                break
            try:
                times[number] = min(measure(number) for _ in range(_ROUNDS))
            except Exception as error:  # noqa: BLE001  # others are tried
                ep.raise_interruption(error)
                self._logger.info("%s: %s fails: %s", self._kind, name, error)
        return min(times, key=times.__getitem__) if times else None
